//! epoll over followed and other descriptors: an overlay that is looked at before the kernel's set.
//!
//! The kernel's set stays authoritative for everything it can see; the overlay adds what only rings know: bytes
//! to read, room to write. Kernel data words are not changed but for those of registrations that have nothing to tell, so
//! un-hooked waits stay right. A warm end is either
//! *hot* (polled by whoever waits on the set) or *armed* (its wait word names the set's bell): idle ends cost
//! nothing. The bell is an eventfd in the program's own set, edge-triggered, never read.

pub mod datagrams;
mod gone;
mod hot;
mod nested;
mod other;
mod wait;

pub use nested::{keep_on_kernel, taken};
pub use wait::{blind_wait_begins, blind_wait_ended, told_by_kernel, wait, without_bells};

use crate::fault;
use crate::hook::{EpollEvent, Verdict};
use crate::lock::Lock;
use crate::meant::Meant;
use crate::others;
use crate::peer::Conn;
use crate::ready;
use crate::switch;
use crate::table::{self, Entry, Sock};
use crate::thread::{self, Call};
use crate::udp;
use crate::wait::SpinHistory;
use bypath_shm::direction::wait as words;
use bypath_shm::reason::Reason;
use bypath_shm::region::Slab;
use bypath_sys::epoll::{self as sys, Event};
use bypath_sys::{Errno, fd};
use hot::{make_hot, unlink_hot};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};

const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
const OUT: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
const ET: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// The events themselves: poll(2) has them by the same numbers.
const KNOWN: u32 = 0x7fff;
/// What is reported without being asked for.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
/// Data word of our bell in the program's set.
const BELL_DATA: u64 = 0xb1fa_7000_be11_0000 ^ 0x5bd1_e995_9e37_79b9;

/// Data word of a registration that the overlay has disarmed. The kernel watches for errors and ends whatever it is asked
/// for: what it tells of those is nothing to the program until it arms the registration again.
const DISARMED_DATA: u64 = 0xd15a_6000_be11_0000 ^ 0x5bd1_e995_9e37_79b9;

static SETS: Slab<Set, 64, 16> = Slab::new();
static REGS: Slab<Reg, 1024, 64> = Slab::new();
/// Guards sets, registrations and hot lists. Taken after a writer's lock, before nothing.
static LOCK: Lock = Lock::new();
/// Some hooked wait was seen: the program does not wait behind our back. In any set, or by poll or select, and before a fork
/// as well: one that always finds something to read need not wait in that one for long.
static WAITED: AtomicBool = AtomicBool::new(false);
static REGS_USED: AtomicU32 = AtomicU32::new(0);
static REGS_FREE: AtomicU32 = AtomicU32::new(0);

/// Registrations by their data words: of each list the number of the first one plus one.
static WORDS: [AtomicU32; 4096] = [const { AtomicU32::new(0) }; 4096];

fn words_like(data: u64) -> &'static AtomicU32 {
    // Fibonacci hashing: descriptors and pointers spread over all of the table.
    &WORDS[(data.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize]
}

/// The registrations in a set with this data word. The caller holds [`LOCK`].
fn with_word(s: &'static Set, data: u64) -> impl Iterator<Item = &'static Reg> {
    let mut next = words_like(data).load(Relaxed);
    let all = std::iter::from_fn(move || {
        let r = reg(next.checked_sub(1)?)?;
        next = r.next_word.load(Relaxed);
        Some(r)
    });
    let in_set =
        |r: &&Reg| r.set.load(Relaxed).checked_sub(1).and_then(set).is_some_and(|k| std::ptr::eq(k, s));
    all.filter(move |r| r.data.load(Relaxed) == data).filter(in_set)
}

/// Enters a registration into the list of its word. The caller holds [`LOCK`].
fn enter_word(number: u32, r: &Reg) {
    let first = words_like(r.data.load(Relaxed));
    r.next_word.store(first.swap(number + 1, Relaxed), Relaxed);
}

/// Takes it out again.
fn leave_word(number: u32, r: &Reg) {
    let mut place = words_like(r.data.load(Relaxed));
    while let Some(n) = place.load(Relaxed).checked_sub(1) {
        let Some(here) = reg(n) else { return };
        if n == number {
            place.store(here.next_word.load(Relaxed), Relaxed);
            return;
        }
        place = &here.next_word;
    }
}

/// One epoll set.
#[derive(Debug, Default)]
struct Set {
    in_use: AtomicBool,
    /// How many sets have had this number.
    generation: AtomicU32,
    fd: AtomicI32,
    bell: AtomicU32,
    bell_fd: AtomicI32,
    /// The bell is in the kernel's set.
    has_bell: AtomicBool,
    /// It is to be taken out of there.
    leaving: AtomicBool,
    /// Its ends stay on the kernel: nested in another set, shared with a forked process.
    foreign: AtomicBool,
    /// Nested: its bell was rung because a ring has something to tell.
    shown: AtomicBool,
    /// Registrations of warm ends.
    warm: AtomicU32,
    /// Registrations of UDP sockets with a mailbox.
    datagrams: AtomicU32,
    /// Threads in a wait that the overlay does not see (entered before the first warm end); the bell ends it.
    blind_waits: AtomicU32,
    sleepers: AtomicU32,
    /// First registration of the hot list plus one.
    hot: AtomicU32,
    hot_count: AtomicU32,
    /// It has or had one-shot registrations, cold ones as well: what the kernel disarmed before an upgrade stays so after it.
    oneshots: AtomicBool,
    calls: AtomicU32,
    /// When the kernel was last asked while ends were hot, in ticks of the processor.
    asked_at: AtomicU64,
    /// It filled its half of the array then, and may have had more.
    had_more: AtomicBool,
    /// Who was told of last where there was room for few events (`wait`).
    told: AtomicU32,
    ticket: AtomicU32,
    spins: SpinHistory,
}

/// One registration of a followed socket in a set.
#[derive(Debug, Default)]
struct Reg {
    set: AtomicU32,
    sock: AtomicU32,
    fd: AtomicI32,
    events: AtomicU32,
    data: AtomicU64,
    /// Next registration of the same socket plus one; free list.
    next: AtomicU32,
    /// Next in the hot list plus one.
    next_hot: AtomicU32,
    /// Next in the list of its word plus one.
    next_word: AtomicU32,
    is_hot: AtomicBool,
    /// Edge-triggered: tail when last reported, plus one; 0 = never.
    reported_tail: AtomicU64,
    /// Edge-triggered: room was reported since the ring was last seen full.
    reported_room: AtomicBool,
    disarmed: AtomicBool,
    word_in: AtomicU64,
    word_out: AtomicU64,
}

fn set(number: u32) -> Option<&'static Set> {
    SETS.get(number as usize)
}

fn reg(number: u32) -> Option<&'static Reg> {
    REGS.get(number as usize)
}

/// The registrations of a socket. The caller holds [`LOCK`].
fn regs_of(s: &Sock) -> impl Iterator<Item = (u32, &'static Reg)> {
    let mut next = s.registrations.load(Relaxed);
    std::iter::from_fn(move || {
        let number = next.checked_sub(1)?;
        let r = reg(number)?;
        next = r.next.load(Relaxed);
        Some((number, r))
    })
}

/// A hooked wait begins.
#[inline]
pub fn waits() {
    if !WAITED.load(Relaxed) {
        WAITED.store(true, Relaxed);
    }
}

// ---------------------------------------------------------------- life of a set

/// Which set of this number it is.
pub fn generation(number: u32) -> u32 {
    SETS.get(number as usize).map_or(0, |s| s.generation.load(Relaxed))
}

/// `epoll_create` returned `epfd`. Under [`state::LIFE`].
pub fn created(epfd: i32) {
    for number in 0..SETS_CAPACITY {
        let Some(s) = SETS.ensure(number as usize) else { return };
        if s.in_use.swap(true, AcqRel) {
            continue;
        }
        s.generation.fetch_add(1, Relaxed);
        s.fd.store(epfd, Relaxed);
        for b in [&s.has_bell, &s.foreign, &s.shown, &s.oneshots, &s.had_more] {
            b.store(false, Relaxed);
        }
        for w in [&s.warm, &s.datagrams, &s.blind_waits, &s.sleepers, &s.hot, &s.hot_count, &s.calls] {
            w.store(0, Relaxed);
        }
        table::set_epoll(epfd, number);
        return;
    }
}

const SETS_CAPACITY: u32 = 64 * 16;

/// A descriptor of a set is about to be closed: what is told the kernel of its registrations must not reach whichever set has the number next.
pub fn leaves(number: u32, fd: i32) {
    let Some(s) = set(number).filter(|s| s.fd.load(Relaxed) == fd) else { return };
    let Some(_held) = LOCK.lock(table::tid()) else { return };
    let mut other = -1;
    table::each(|fd, entry| {
        if matches!(entry, Entry::Epoll(n) if n == number) {
            other = fd;
        }
    });
    s.fd.store(other, Relaxed);
}

/// The last descriptor of a set is closed. Under [`state::LIFE`].
pub fn closed(number: u32) {
    let Some(s) = set(number) else { return };
    datagrams::set_closed(number);
    let Some(_held) = LOCK.lock(table::tid()) else { return };
    for i in 0..REGS_USED.load(Relaxed) {
        if let Some(r) = reg(i)
            && r.set.load(Relaxed) == number + 1
        {
            drop_reg(i, r);
        }
    }
    // The bell stays with the record: peers know its number.
    s.in_use.store(false, Release);
}

// ---------------------------------------------------------------- registrations

fn drop_reg(number: u32, r: &'static Reg) {
    drop_which(number, r, true);
}

/// `is_gone`: the kernel has it no more.
fn drop_which(number: u32, r: &'static Reg, is_gone: bool) {
    let was_in = r.set.swap(0, AcqRel);
    let Some(s) = was_in.checked_sub(1).and_then(set) else { return };
    unlink_hot(number, r, s);
    leave_word(number, r);
    if let Some(sock) = table::by_number(r.sock.load(Relaxed)) {
        if let Some(conn) = sock.conn.get() {
            disarm(r, conn);
            s.warm.fetch_sub(1, Relaxed);
            if is_gone && r.events.load(Relaxed) & ONESHOT != 0 {
                gone::goes(s, r.data.load(Relaxed));
            }
        }
        let mut place = &sock.registrations;
        while let Some(n) = place.load(Relaxed).checked_sub(1) {
            let Some(here) = reg(n) else { break };
            if n == number {
                place.store(here.next.load(Relaxed), Relaxed);
                break;
            }
            place = &here.next;
        }
    }
    r.next.store(REGS_FREE.load(Relaxed), Relaxed);
    REGS_FREE.store(number + 1, Relaxed);
}

fn disarm(r: &Reg, conn: &'static Conn) {
    let word = r.word_in.swap(0, Relaxed);
    if word != 0 {
        words::disarm(&conn.inc().ra.wait, word);
    }
    let word = r.word_out.swap(0, Relaxed);
    if word != 0 {
        words::disarm(&conn.out().wa.wait, word);
    }
}

fn new_reg() -> Option<(u32, &'static Reg)> {
    if let Some(number) = REGS_FREE.load(Relaxed).checked_sub(1) {
        let r = reg(number)?;
        REGS_FREE.store(r.next.load(Relaxed), Relaxed);
        return Some((number, r));
    }
    let number = REGS_USED.load(Relaxed);
    let r = REGS.ensure(number as usize)?;
    REGS_USED.store(number + 1, Release);
    Some((number, r))
}

/// A one-shot registration was told, by the overlay: the kernel has nothing to tell of it. Under [`LOCK`].
fn silence(s: &Set, r: &Reg) {
    r.disarmed.store(true, Relaxed);
    let event = Event { events: ONESHOT | ET, data: DISARMED_DATA };
    let _ = sys::ctl(s.fd.load(Relaxed), libc::EPOLL_CTL_MOD, r.fd.load(Relaxed), event);
}

/// What the kernel watches for a registration of `wanted`.
///
/// Room in a carrier that is not in use is none of its business, with one exception: an arrival is an edge that tells
/// all there is, room as well, even of bytes that were read meanwhile. Such a carrier has room at once and tells of it
/// with nothing but arrivals after that, so while the ring is full it must not be asked.
fn watched(s: &Sock, wanted: u32) -> u32 {
    let Some(conn) = s.conn.get() else { return wanted };
    let edge = wanted & (ET | ONESHOT) == ET && ready::ring_writable(s, conn);
    if edge { wanted } else { ready::carrier_events(s, wanted) }
}

/// epoll_ctl.
pub fn ctl(epfd: i32, op: i32, fd: i32, event: Option<EpollEvent>) -> Verdict {
    let own = match table::entry(epfd) {
        Some(Entry::Epoll(n)) => set(n).map(|s| (n, s)),
        _ => None,
    };
    let overlaid = table::entry(fd)
        .filter(|entry| !matches!(entry, Entry::Served(_) | Entry::Datagrams(_) | Entry::Udp(_)));
    let Some(target) = overlaid else {
        if let (Some(Entry::Served(number)), Some((n, _))) = (table::entry(fd), own) {
            crate::service::registers(number, (epfd, n), op, fd, event);
        }
        if let (Some(number), Some((n, _))) = (table::datagrams(fd), own) {
            crate::service::datagram::registers(number, (epfd, n), op, fd, event);
        }
        if let (Some((_, set)), Some(event)) = (own, event)
            && op != libc::EPOLL_CTL_DEL
        {
            other::registers(set, event.data, fd);
            if gone::may_be(set, event.data)
                && let Some(_held) = LOCK.lock(table::tid())
            {
                gone::is_back(set, event.data);
            }
        }
        if let Some(r) = udp::of(fd) {
            return datagrams::ctl(r, own.map(|(n, _)| n), (epfd, op, fd), event);
        }
        return Verdict::NotOurs;
    };
    let sock = match target {
        Entry::Epoll(inner) => {
            if op == libc::EPOLL_CTL_ADD {
                keep_on_kernel(inner);
            }
            return Verdict::NotOurs;
        }
        Entry::Sock(s) => s,
        Entry::Served(_) | Entry::Datagrams(_) | Entry::Udp(_) => return Verdict::NotOurs,
    };
    let Some((number, set)) = own else {
        // A set that was not created through us.
        let meant = Meant::begin([fd, epfd]);
        switch::recall_both(sock, Reason::ForeignEpoll, true);
        return meant.gone().map_or(Verdict::NotOurs, |e| Verdict::done(Err(e)));
    };
    let meanings = || [fd, epfd].map(table::meaning);
    let ages = || (sock.end().generation.load(Relaxed), set.generation.load(Relaxed));
    let (begun, aged) = (meanings(), ages());
    // By dup2 a number comes to mean anew what it meant.
    let means_them = || {
        matches!(table::entry(fd), Some(Entry::Sock(now)) if std::ptr::eq(now, sock))
            && matches!(table::entry(epfd), Some(Entry::Epoll(now)) if now == number)
            && ages() == aged
    };
    let event = match (op, event) {
        (libc::EPOLL_CTL_DEL, _) => EpollEvent { events: 0, data: 0 },
        (_, Some(e)) => e,
        (_, None) => return Verdict::NotOurs,
    };
    if event.events & EXCLUSIVE != 0 {
        switch::recall_both(sock, Reason::ForeignEpoll, true);
    }
    if set.foreign.load(Acquire) && sock.is_warm() {
        switch::recall_both(sock, Reason::RecalledEpoll, false);
    }
    let Some(_call) = Call::enter() else { return Verdict::NotOurs };
    fault::between("taken-back");
    let Some(held) = LOCK.lock(table::tid()) else { return Verdict::NotOurs };
    if meanings() != begun && !means_them() {
        // The other end, or others' calls, have held this thread up. By dup2 the number means something else at once: the call is for that.
        let is_replaced = sock.replaced.load(Acquire) == fd + 1 && !sock.is_late.load(Acquire);
        return match sock.is_dissolved() || is_replaced {
            true => Verdict::NotOurs,
            false => Verdict::done(Err(Errno::BADF)).unless_sealed(),
        };
    }
    if event.events & ONESHOT != 0 {
        // Before the kernel can tell of it: who gets that looks here.
        set.oneshots.store(true, SeqCst);
    } else if op != libc::EPOLL_CTL_DEL && set.oneshots.load(SeqCst) {
        gone::is_back(set, event.data);
    }
    let existing = regs_of(sock).find(|(_, r)| r.set.load(Relaxed) == number + 1 && r.fd.load(Relaxed) == fd);
    if let Err(e) = sys::ctl(epfd, op, fd, Event { events: watched(sock, event.events), data: event.data }) {
        return Verdict::done(Err(e));
    }
    match (op, existing) {
        (libc::EPOLL_CTL_DEL, Some((n, r))) => drop_reg(n, r),
        (libc::EPOLL_CTL_DEL, None) => {}
        (_, found) => {
            let fresh = found.is_none();
            let Some((n, r)) = found.or_else(new_reg) else {
                drop(held);
                switch::recall_both(sock, Reason::TableFull, true);
                return Verdict::done(Ok(0));
            };
            r.fd.store(fd, Relaxed);
            r.events.store(event.events, Relaxed);
            if fresh || r.data.load(Relaxed) != event.data {
                if !fresh {
                    leave_word(n, r);
                }
                r.data.store(event.data, Relaxed);
                enter_word(n, r);
            }
            r.reported_tail.store(0, Relaxed);
            r.reported_room.store(false, Relaxed);
            r.disarmed.store(false, Relaxed);
            if fresh {
                r.sock.store(sock.number.load(Relaxed), Relaxed);
                r.next_hot.store(0, Relaxed);
                r.is_hot.store(false, Relaxed);
                r.word_in.store(0, Relaxed);
                r.word_out.store(0, Relaxed);
                r.next.store(sock.registrations.load(Relaxed), Relaxed);
                sock.registrations.store(n + 1, Relaxed);
                r.set.store(number + 1, Release);
            }
            if sock.is_warm() {
                if fresh {
                    // Who begins a wait after this is served by the overlay; who did before hears the bell.
                    set.warm.fetch_add(1, SeqCst);
                }
                if ensure_bell(set) {
                    make_hot(n, r, set);
                    drop(held);
                    ring_own(set);
                } else {
                    drop(held);
                    switch::recall_both(sock, Reason::RecalledEpoll, false);
                }
            }
        }
    }
    Verdict::done(Ok(0))
}

/// Puts the set's bell into the kernel's set. The caller holds [`LOCK`].
fn ensure_bell(s: &Set) -> bool {
    if s.has_bell.load(Relaxed) {
        return true;
    }
    if s.bell.load(Relaxed) == 0 {
        let Ok((number, fd)) = thread::new_bell() else { return false };
        s.bell_fd.store(fd, Relaxed);
        s.bell.store(number, Release);
    }
    // It may have been rung for an earlier set with this record.
    others::silence(s.bell_fd.load(Relaxed));
    let event = Event { events: libc::EPOLLIN as u32 | ET, data: BELL_DATA };
    let added = sys::ctl(s.fd.load(Relaxed), libc::EPOLL_CTL_ADD, s.bell_fd.load(Relaxed), event);
    let ok = matches!(added, Ok(()) | Err(Errno::EXIST));
    s.has_bell.store(ok, Relaxed);
    ok
}

/// Whether every set that holds the socket can serve it from a ring.
pub fn can_overlay(s: &'static Sock) -> bool {
    let Some(_held) = LOCK.lock(table::tid()) else { return false };
    regs_of(s).all(|(_, r)| {
        r.set.load(Relaxed).checked_sub(1).and_then(set).is_some_and(|set| {
            WAITED.load(Relaxed)
                && !set.foreign.load(Acquire)
                && set.blind_waits.load(SeqCst) == 0
                && set.has_bell.load(Relaxed)
        })
    })
}

/// The socket's connection was mapped.
pub fn became_warm(s: &'static Sock) {
    let Some(_held) = LOCK.lock(table::tid()) else { return };
    for (n, r) in regs_of(s) {
        let Some(set) = r.set.load(Relaxed).checked_sub(1).and_then(set) else { continue };
        set.warm.fetch_add(1, SeqCst);
        if ensure_bell(set) {
            make_hot(n, r, set);
            if set.blind_waits.load(SeqCst) != 0 {
                ring_own(set);
            }
        }
    }
}

/// Every registration of the socket goes: its last descriptor in this process is closed. Under [`state::LIFE`].
pub fn forget(s: &'static Sock) {
    let Some(_held) = LOCK.lock(table::tid()) else { return };
    while let Some(n) = s.registrations.load(Relaxed).checked_sub(1) {
        let Some(r) = reg(n) else { break };
        drop_reg(n, r);
    }
}

/// The socket is not followed any more, and stays open: the kernel has its registrations as the program made them.
pub fn give_back(s: &'static Sock) {
    let Some(_held) = LOCK.lock(table::tid()) else { return };
    while let Some((number, r)) = regs_of(s).next() {
        if let Some(set) = r.set.load(Relaxed).checked_sub(1).and_then(set) {
            give_back_one(s, r, set);
            // Who sleeps here by our bell looks again.
            ring_own(set);
        }
        drop_which(number, r, false);
    }
}

fn give_back_one(s: &Sock, r: &Reg, set: &Set) {
    if s.is_warm() {
        let events = if r.disarmed.load(Relaxed) { ONESHOT | ET } else { r.events.load(Relaxed) };
        let (epfd, fd, data) = (set.fd.load(Relaxed), r.fd.load(Relaxed), r.data.load(Relaxed));
        let _ = sys::ctl(epfd, libc::EPOLL_CTL_MOD, fd, Event { events, data });
    }
}

/// Another socket is about to take the place of this cold one: it leaves the kernel's sets.
pub fn withdraw(s: &'static Sock) {
    let Some(_held) = LOCK.lock(table::tid()) else { return };
    for (_, r) in regs_of(s) {
        if let Some(set) = r.set.load(Relaxed).checked_sub(1).and_then(set) {
            let none = Event { events: 0, data: 0 };
            let _ = sys::ctl(set.fd.load(Relaxed), libc::EPOLL_CTL_DEL, r.fd.load(Relaxed), none);
        }
    }
}

/// After [`withdraw`]: what has its place, and is followed as it was, is registered as it was.
pub fn renew(s: &'static Sock) {
    let Some(_held) = LOCK.lock(table::tid()) else { return };
    for (_, r) in regs_of(s) {
        if let Some(set) = r.set.load(Relaxed).checked_sub(1).and_then(set) {
            let event = Event { events: r.events.load(Relaxed), data: r.data.load(Relaxed) };
            let _ = sys::ctl(set.fd.load(Relaxed), libc::EPOLL_CTL_ADD, r.fd.load(Relaxed), event);
        }
    }
}

/// After [`withdraw`]: what has its place is registered as it was, with the kernel alone.
pub fn hand_over(s: &'static Sock) {
    let Some(_held) = LOCK.lock(table::tid()) else { return };
    while let Some((number, r)) = regs_of(s).next() {
        if let Some(set) = r.set.load(Relaxed).checked_sub(1).and_then(set) {
            let (fd, data) = (r.fd.load(Relaxed), r.data.load(Relaxed));
            let event = Event { events: r.events.load(Relaxed), data };
            let _ = sys::ctl(set.fd.load(Relaxed), libc::EPOLL_CTL_ADD, fd, event);
            other::registers(set, data, fd);
        }
        drop_which(number, r, false);
    }
}

/// The outgoing path changed: the kernel watches the carrier's room, or leaves it to us.
pub fn path_changed(s: &'static Sock) {
    if s.registrations.load(Relaxed) == 0 {
        return;
    }
    let Some(_held) = LOCK.lock(table::tid()) else { return };
    for (n, r) in regs_of(s) {
        let Some(set) = r.set.load(Relaxed).checked_sub(1).and_then(set) else { continue };
        if r.events.load(Relaxed) & OUT != 0 && !r.disarmed.load(Relaxed) {
            let event = Event { events: watched(s, r.events.load(Relaxed)), data: r.data.load(Relaxed) };
            let _ = sys::ctl(set.fd.load(Relaxed), libc::EPOLL_CTL_MOD, r.fd.load(Relaxed), event);
            r.reported_room.store(false, Relaxed);
        }
        if set.has_bell.load(Relaxed) {
            make_hot(n, r, set);
            ring_own(set);
        }
    }
}

/// A peer marked the socket in our inbox: it is looked at by whoever waits on its sets.
pub fn news(s: &'static Sock) {
    if s.registrations.load(Relaxed) == 0 {
        return;
    }
    let Some(_held) = LOCK.lock(table::tid()) else { return };
    for (n, r) in regs_of(s) {
        let Some(set) = r.set.load(Relaxed).checked_sub(1).and_then(set) else { continue };
        make_hot(n, r, set);
        ring_own(set);
    }
}

/// The low-water mark was set and what is there reaches it, or the socket was shut down: the kernel reports that as an
/// arrival.
pub fn is_enough(s: &'static Sock) {
    if s.registrations.load(Relaxed) == 0 {
        return;
    }
    let Some(_held) = LOCK.lock(table::tid()) else { return };
    for (n, r) in regs_of(s) {
        let Some(set) = r.set.load(Relaxed).checked_sub(1).and_then(set) else { continue };
        if r.events.load(Relaxed) & IN != 0 {
            r.reported_tail.store(0, Relaxed);
            make_hot(n, r, set);
            ring_own(set);
        }
    }
}

/// A write found no room, or too little: room from now on is an edge, even if the other end made it already.
pub fn out_of_room(s: &'static Sock) {
    if s.registrations.load(Relaxed) == 0 {
        return;
    }
    let Some(_held) = LOCK.lock(table::tid()) else { return };
    for (n, r) in regs_of(s) {
        let Some(set) = r.set.load(Relaxed).checked_sub(1).and_then(set) else { continue };
        if r.events.load(Relaxed) & OUT != 0
            && r.reported_room.swap(false, Relaxed)
            && set.has_bell.load(Relaxed)
        {
            make_hot(n, r, set);
            ring_own(set);
        }
    }
}

/// Wakes a sleeper of the set `number`, if any.
pub fn ring(number: u32) {
    if let Some(s) = set(number) {
        ring_own(s);
    }
}

/// Wakes a sleeper of the set, if any; one that the overlay does not see as well: it comes back into the overlay.
fn ring_own(s: &Set) {
    std::sync::atomic::fence(SeqCst);
    let asleep = s.sleepers.load(Relaxed) != 0 || s.blind_waits.load(Relaxed) != 0;
    if asleep && (s.has_bell.load(Relaxed) || s.leaving.load(Relaxed)) {
        others::ring(s.bell_fd.load(Relaxed));
    }
}

/// Nothing is followed any more: the kernel's sets are given back as the program made them.
pub fn leave() {
    for number in 0..SETS_CAPACITY {
        let Some(s) = set(number) else { break };
        if !s.in_use.load(Acquire) {
            continue;
        }
        let Some(held) = LOCK.lock(table::tid()) else { continue };
        for i in 0..REGS_USED.load(Relaxed) {
            let Some(r) = reg(i).filter(|r| r.set.load(Relaxed) == number + 1) else { continue };
            if let Some(sock) = table::by_number(r.sock.load(Relaxed)) {
                give_back_one(sock, r, s);
            }
            drop_reg(i, r);
        }
        drop(held);
        // Who sleeps here looks again, and finds that it is the kernel's wait.
        ring_own(s);
        if s.has_bell.swap(false, AcqRel) {
            s.leaving.store(true, Release);
        }
    }
}

/// After [`leave`], once nobody sleeps by our bells any more.
pub fn take_bells() {
    for number in 0..SETS_CAPACITY {
        let Some(s) = set(number) else { break };
        if s.leaving.swap(false, AcqRel) {
            let none = Event { events: 0, data: 0 };
            let _ = sys::ctl(s.fd.load(Relaxed), libc::EPOLL_CTL_DEL, s.bell_fd.load(Relaxed), none);
        }
    }
}

// ---------------------------------------------------------------- processes

/// In a forked child: sets are shared with the parent, their bells are its own.
pub fn enter_child() {
    LOCK.reset();
    for number in 0..SETS_CAPACITY {
        let Some(s) = set(number) else { break };
        if s.bell.swap(0, Relaxed) != 0 {
            fd::close(s.bell_fd.load(Relaxed));
        }
        if s.in_use.load(Relaxed) {
            s.foreign.store(true, Relaxed);
        }
        s.has_bell.store(false, Relaxed);
        s.sleepers.store(0, Relaxed);
        s.blind_waits.store(0, Relaxed);
    }
}

/// Whether `number` is the bell of a set.
pub fn owns(number: i32) -> bool {
    let mut found = false;
    descriptors(|d| found |= d == number);
    found
}

/// Every bell of a set.
pub fn descriptors(mut f: impl FnMut(i32)) {
    for number in 0..SETS_CAPACITY {
        let Some(s) = set(number) else { break };
        if s.bell.load(Relaxed) != 0 {
            f(s.bell_fd.load(Relaxed));
        }
    }
}
