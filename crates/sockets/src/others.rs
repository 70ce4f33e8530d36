//! Processes of other users that share memory with this one (`--allow-uid`), and what they could keep it from.
//!
//! A bell is an eventfd, and its description belongs to all who have it: who clears O_NONBLOCK there and fills, or empties, the counter would
//! have write(2), or read(2), wait for ever. And the own inbox is one for all peers: who wipes a mark or a ticket there keeps the wake of
//! somebody else's connection from a sleeper. So, from the first such peer on, the kernel rings all bells (`bypath_sys::aio`),
//! and who sleeps looks at everything ten times a second. (They are silenced without waiting in any case.) Nor is memory given back then (MADV_REMOVE), but as a whole
//! with its last mapping: that takes the lock of the file, which anybody can hold who has it and writes there without end. It stays so when the peer has gone: others may
//! have what it had. Among programs of one user nothing of this is done: they could stop each other anyway.
//!
//! What the kernel has for that (`fs.aio-max-nr`) all users of a host have together: a forked child may find nothing left. It tries again. Meanwhile
//! readers at the other end are woken by the carrier, to which their octets go ([`Conn::ring`](crate::peer::Conn::ring) says that it rang nobody); others of
//! the own user, who wait for room or are asked for something, are rung as carefully as a write can; and those of other users, and threads of this
//! process, look by themselves.

use crate::siblings::PERIOD_NS;
use crate::{state, switch, table};
use bypath_shm::region::{self, StaticCell};
use bypath_sys::aio::Ringer;
use bypath_sys::{Result, clock, eventfd, process, unix};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// There was such a peer.
static ANY: AtomicBool = AtomicBool::new(false);
/// Who rings then. It is made for the first one, and stays.
static RINGER: StaticCell<Ringer> = StaticCell::new();

/// When one was last tried to be made, and how long it is left then (ns).
static TRIED: AtomicU64 = AtomicU64::new(0);
const TRY_AGAIN_NS: u64 = 10_000_000;

/// When everything was last looked at.
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// Whether there was one.
#[inline]
pub fn any() -> bool {
    ANY.load(Relaxed)
}

/// Before the own inbox, or a bell, is shared with the process at the other end of `channel`. Called under [`state::LIFE`].
///
/// # Errors
/// As [`Ringer::above`]: there is nobody who rings without waiting.
pub fn admit(channel: i32) -> Result<()> {
    // Who is somebody else for a while is to be safe from him afterwards, too.
    if unix::peer_credentials(channel).is_ok_and(|other| process::is_wholly(other.uid)) {
        return Ok(());
    }
    if RINGER.get().is_none() {
        RINGER.set(Some(region::leak(Ringer::above(state::floor())?)?));
    }
    ANY.store(true, SeqCst);
    Ok(())
}

/// In a forked child: who rang is the parent's, and does not know it. It makes its own when it first rings: most children never do, and one that has it needs
/// 30 ms more to end, or to execute a program, as the kernel waits then for what it might still do.
pub fn enter_child() {
    let Some(parents) = RINGER.get() else { return };
    parents.forget();
    RINGER.set(None);
    TRIED.store(0, Relaxed);
}

/// Who rings; one that could not be made is tried again, now and then.
#[inline]
fn ringer() -> Option<&'static Ringer> {
    RINGER.get().or_else(make_anew)
}

#[cold]
fn make_anew() -> Option<&'static Ringer> {
    let (now, last) = (clock::monotonic_ns(), TRIED.load(Relaxed));
    // Earlier than that, too, in a child of another time namespace.
    if now.abs_diff(last) < TRY_AGAIN_NS
        || TRIED.compare_exchange(last, now, AcqRel, Relaxed).is_err()
        // What a vfork child opens its parent has not.
        || state::is_memory_of_another()
        || state::is_sealed()
    {
        return None;
    }
    let made = Ringer::above(state::floor()).and_then(region::leak).ok()?;
    Some(RINGER.set_once(made))
}

/// Rings a bell of this process, whoever has it beside.
#[inline]
pub fn ring(bell: i32) {
    let _ = ring_at_once(bell);
}

/// Rings a bell, whoever has it. False: there is nobody who rings without waiting.
#[inline]
pub fn ring_at_once(bell: i32) -> bool {
    if any() {
        return ring_safely(bell);
    }
    eventfd::ring(bell);
    true
}

#[cold]
fn ring_safely(bell: i32) -> bool {
    let Some(ringer) = ringer() else { return false };
    let _ = ringer.ring_number(bell);
    true
}

/// Rings a bell of a process of `user` whom nothing else wakes.
#[inline]
pub fn ring_all_the_same(bell: i32, user: u32) {
    if !ring_at_once(bell) && user == process::euid() {
        eventfd::ring_carefully(bell);
    }
}

/// Silences a bell of this process, whoever has it beside. Without waiting: who was of the own user when he got it may be somebody else now.
#[inline]
pub fn silence(bell: i32) {
    eventfd::silence_at_once(bell);
}

/// Called before a thread sleeps for at most `bound` ns (`None` = for ever). Returns how long to sleep.
#[inline]
pub fn before_sleep(bound: Option<u64>) -> Option<u64> {
    if !any() {
        return bound;
    }
    look();
    Some(bound.unwrap_or(u64::MAX).min(PERIOD_NS))
}

/// As if every peer had marked all of its ends.
#[cold]
fn look() {
    let (now, last) = (clock::monotonic_ns(), LOOKED.load(Relaxed));
    // Earlier than that, too, in a child of another time namespace.
    if now.abs_diff(last) < PERIOD_NS / 2 || LOOKED.compare_exchange(last, now, AcqRel, Relaxed).is_err() {
        return;
    }
    table::each_sock(switch::attend_to);
}

/// The descriptor that is kept for ringing.
pub fn descriptor() -> Option<i32> {
    RINGER.get().map(Ringer::number)
}
