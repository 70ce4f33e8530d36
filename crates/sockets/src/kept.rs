//! Bytes that had arrived in a ring when the connection was shut down.
//!
//! In the kernel's own queue they would stay readable. But the other end sends what is left in the ring again, through
//! the carrier, and a connection that is shut down both ways answers bytes that come with a reset. So they are put
//! aside before the kernel hears of the shutdown, and are read from here first. Processes forked later share them.

use crate::carrier;
use crate::over;
use crate::peer::Conn;
use crate::state;
use crate::stream;
use crate::switch;
use crate::table::{self, Sock, flag};
use crate::thread::Call;
use crate::{wait, whose};
use bypath_shm::direction::{Path, Readable, writer_flag};
use bypath_shm::reason::Reason;
use bypath_shm::region::{self, Slab, StaticCell};
use bypath_shm::ring::Ring;
use bypath_sys::user::UserVec;
use bypath_sys::{Errno, clock, sock, thread};
use std::sync::atomic::{AtomicBool, Ordering::*};

/// Most bytes of a connection: a ring, and what the kernel's queue holds before it. Memory is taken as bytes come.
const SIZE: u32 = 8 << 20;
/// How long bytes are waited for that are on their way through the carrier.
const PATIENCE_NS: u64 = 50_000_000;
/// The same where other processes share the socket; for so long at most others are taken one after the other.
const PATIENCE_SHARED_NS: u64 = 500_000_000;
/// Bytes read from the carrier at a time.
const PIECE: u64 = 64 * 1024;

/// Counts of such bytes stay below: what others of the family write there cannot make them overflow.
const MOST_KEPT: u64 = u64::MAX >> 1;

/// Room for the bytes of one connection.
#[derive(Debug, Default)]
struct Place {
    ring: StaticCell<Ring>,
    in_use: AtomicBool,
    /// Processes that were forked meanwhile have it, too, whatever they hold.
    is_shared: AtomicBool,
}

static PLACES: Slab<Place, 64, 16> = Slab::new();

fn places() -> impl Iterator<Item = &'static Place> {
    (0..64 * 16).map_while(|i| PLACES.get(i))
}

fn free_place() -> Option<&'static Ring> {
    let place = (0..64 * 16).find_map(|i| PLACES.ensure(i).filter(|p| !p.in_use.swap(true, AcqRel)))?;
    if place.ring.get().is_none() {
        place.ring.set(region::own_ring(SIZE).and_then(region::leak).ok());
    }
    place.ring.get()
}

/// Unread bytes that were put aside: no more than there is room for, whatever others of the family have written there.
pub fn len(s: &Sock) -> u64 {
    let r = &s.end().r;
    r.kept.load(Acquire).saturating_sub(r.kept_read.load(Acquire)).min(u64::from(SIZE))
}

/// Before the kernel shuts both directions down: takes what has arrived in the ring, and what is on its way back to the
/// carrier, out of the way of a reset.
pub fn put_aside(s: &'static Sock, conn: &'static Conn, call: &Call) {
    let inc = conn.inc();
    let alone = state::get().is_some_and(|state| s.is_sole_holder(state));
    inc.withdraw_consent();
    if alone {
        // Asked first, looked at second: W sees this before its next byte, or its byte is seen here.
        switch::ask_recall(s, conn, bypath_shm::direction::ask::RECALL, Reason::RecalledShutdown);
    } else {
        // Who shares the socket has no view of these bytes: they had better go back to the kernel.
        for _ in 0..PATIENCE_SHARED_NS / PATIENCE_NS {
            switch::recall_incoming(s, conn, Reason::RecalledShutdown);
            if inc.path() == Path::Kernel || wait::peer_end(s).0 {
                break;
            }
        }
    }
    let begun = clock::monotonic_ns();
    let patience = if alone { PATIENCE_NS } else { PATIENCE_SHARED_NS };
    loop {
        // Whether bytes were taken, or something else has changed: the other end may change its words for ever.
        let (took, moved) = match inc.readable(conn.rx.size()) {
            Ok(Readable::Ring { available: 0, .. }) | Err(_) => return,
            Ok(Readable::Ring { head, available }) => {
                let Some((ring, at, room)) = room(s) else { return };
                let n = over::of_those_behind(s, conn, head, available).min(room);
                if n == 0 || ring.back(at, at + n).is_err() {
                    return;
                }
                conn.rx.with_pieces(head.position(), n as usize, |v| ring.copy_in(at, v, 0, n as usize));
                let took = inc.commit(head, n);
                if took {
                    s.end().r.kept.store(at + n, Release);
                    stream::received(call, s, conn, head, n as usize);
                    over::took(call, s, conn, head, n);
                }
                (took, true)
            }
            Ok(Readable::Drain(head)) => {
                if inc.t.tail.load(Acquire) == head.position() {
                    return;
                }
                let took = from_carrier(s, call);
                (took, took || switch::try_drained(s, conn, head))
            }
            Ok(Readable::Kernel) => {
                if inc.wa.flags.load(Acquire) & writer_flag::FLUSHING == 0 {
                    return;
                }
                // Makes room for the rest of the flush.
                let took = alone && from_carrier(s, call);
                (took, took)
            }
        };
        if clock::monotonic_ns() - begun > if took { PATIENCE_SHARED_NS } else { patience } {
            return;
        }
        if !moved {
            if wait::peer_end(s).0 {
                return;
            }
            // W may be this very process.
            switch::attend();
            thread::yield_now();
        }
    }
}

/// Where the next bytes go, and how many fit.
fn room(s: &'static Sock) -> Option<(&'static Ring, u64, u64)> {
    let ring = match s.kept.get() {
        Some(ring) => ring,
        None => s.kept.set_once(free_place()?),
    };
    Some((ring, s.end().r.kept.load(Relaxed) & MOST_KEPT, ring.size().saturating_sub(len(s))))
}

/// Bytes that stand before those in the ring. Whether there were any.
fn from_carrier(s: &'static Sock, call: &Call) -> bool {
    if sock::inq(s.carrier()).unwrap_or(0) == 0 {
        return false;
    }
    let Some((ring, at, room)) = room(s) else { return false };
    let n = room.min(PIECE);
    if n == 0 || ring.back(at, at + n).is_err() {
        return false;
    }
    let got = ring.with_pieces(at, n as usize, |v| sock::recv(s.carrier(), v, libc::MSG_DONTWAIT));
    let Ok(got @ 1..) = got else { return false };
    s.end().r.kept.store(at + got as u64, Release);
    stream::from_kernel(call, s, got);
    true
}

/// Reads what was put aside, at most `want` bytes.
///
/// # Errors
/// EFAULT.
#[cold]
pub fn read(call: &Call, s: &Sock, buf: UserVec<'_>, want: usize, flags: i32) -> Result<usize, Errno> {
    loop {
        let Some(ring) = s.kept.get() else { return Ok(0) };
        let read = &s.end().r.kept_read;
        let at = read.load(Acquire);
        let left = s.end().r.kept.load(Acquire).saturating_sub(at);
        // No more than there is room for: others of the family write these words, too.
        let mut n = left.min(want as u64).min(ring.size()) as usize;
        if n == 0 {
            return Ok(0);
        }
        if flags & libc::MSG_TRUNC == 0 {
            n = stream::writable(call, buf, n);
            if n == 0 {
                return Err(Errno::FAULT);
            }
            ring.copy_out(at, buf, 0, n);
        }
        let peek = flags & libc::MSG_PEEK != 0;
        if peek || read.compare_exchange(at, at.wrapping_add(n as u64), AcqRel, Relaxed).is_ok() {
            return Ok(n);
        }
    }
}

/// The connection is over, or begins anew: unread bytes are gone. `last`: no other process holds it.
pub fn forget(s: &Sock, last: bool) {
    let Some(ring) = s.kept.get() else { return };
    s.kept.set(None);
    if last {
        let r = &s.end().r;
        r.kept_read.store(r.kept.load(Relaxed), Relaxed);
        if let Some(place) = places().find(|p| p.ring.get().is_some_and(|r| std::ptr::eq(r, ring))) {
            if !place.is_shared.load(Relaxed) {
                ring.release();
            } else if ring.renew().is_ok() {
                // What others read there is theirs; what comes next is nothing to them.
                place.is_shared.store(false, Relaxed);
            } else {
                return;
            }
            place.in_use.store(false, Release);
        }
    }
}

/// Before a fork.
pub fn forking() {
    for place in places().filter(|p| p.in_use.load(Relaxed) && !p.is_shared.load(Relaxed)) {
        place.is_shared.store(true, Relaxed);
    }
}

/// In a forked child: what is not in use may come into use in the parent.
pub fn enter_child() {
    for place in places().filter(|p| !p.in_use.load(Relaxed)) {
        if let Some(ring) = place.ring.get() {
            ring.let_go();
        }
        place.ring.set(None);
    }
}

/// In a forked child: what was put aside of sockets that it does not hold is its parent's. Called under [`state::LIFE`].
pub fn let_go_of_parents() {
    for place in places() {
        let Some(ring) = place.ring.get() else { continue };
        let mut is_held = false;
        table::each_sock(|s| is_held |= s.kept.get().is_some_and(|kept| std::ptr::eq(kept, ring)));
        if !is_held {
            ring.let_go();
            place.ring.set(None);
        }
    }
}

/// Whether reads must look here, and at the carrier before they find nothing.
#[inline]
pub fn concerns(s: &Sock) -> bool {
    s.has(flag::NO_READ | flag::ASIDE) && whose::is_its_number(s, s.fd.load(Acquire))
}

/// Whether bytes have to be put aside before the shutdown that `s` is marked with.
pub fn is_due(s: &Sock) -> bool {
    s.has(flag::NO_READ) && (s.has(flag::SENT_FIN) || !carrier::of(s).shutdown_is_gentle())
}
