//! epoll over followed and other descriptors: an overlay that is looked at before the kernel's set.
//!
//! The kernel's set stays authoritative for everything it can see; the overlay adds what only rings know: bytes
//! to read, room to write. Kernel data words are never changed, so un-hooked waits stay right. A warm end is either
//! *hot* (polled by whoever waits on the set) or *armed* (its wait word names the set's bell): idle ends cost
//! nothing. The bell is an eventfd in the program's own set, edge-triggered, never read.

use crate::hook::{EpollEvent, Verdict};
use crate::lock::Lock;
use crate::peer::{Conn, EPOLL_BELL};
use crate::ready;
use crate::state;
use crate::switch;
use crate::table::{self, Entry, Sock};
use crate::thread::{self, Call};
use crate::wait::{STALL_NS, SpinHistory};
use bypath_shm::direction::{ask, wait as words};
use bypath_shm::reason::Reason;
use bypath_shm::region::Slab;
use bypath_sys::epoll::{self as sys, Event};
use bypath_sys::{Errno, clock, eventfd, fd, thread as cpu};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const ET: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// Data word of our bell in the program's set.
const BELL_DATA: u64 = 0xb1fa_7000_be11_0000 ^ 0x5bd1_e995_9e37_79b9;
/// While rings have events, the kernel is asked at least at every such call.
const KERNEL_EVERY: u32 = 16;
/// Hot ends that a spinning waiter polls directly; more are armed and found through the inbox.
const HOT_POLLED: usize = 64;

static SETS: Slab<Set, 64, 16> = Slab::new();
static REGS: Slab<Reg, 1024, 64> = Slab::new();
/// Guards sets, registrations and hot lists. Taken after a writer's lock, before nothing.
static LOCK: Lock = Lock::new();
static REGS_USED: AtomicU32 = AtomicU32::new(0);
static REGS_FREE: AtomicU32 = AtomicU32::new(0);

/// One epoll set.
#[derive(Debug, Default)]
struct Set {
    in_use: AtomicBool,
    fd: AtomicI32,
    bell: AtomicU32,
    bell_fd: AtomicI32,
    /// The bell is in the kernel's set.
    has_bell: AtomicBool,
    /// Some hooked wait was seen: the program does not wait behind our back.
    waited: AtomicBool,
    /// Its ends stay on the kernel: nested in another set, shared with a forked process.
    foreign: AtomicBool,
    /// Registrations of warm ends.
    warm: AtomicU32,
    /// Threads in a wait that the overlay does not see (entered before the first warm end).
    blind_waits: AtomicU32,
    sleepers: AtomicU32,
    /// First registration of the hot list plus one.
    hot: AtomicU32,
    hot_count: AtomicU32,
    /// Warm one-shot registrations.
    oneshots: AtomicU32,
    calls: AtomicU32,
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

// ---------------------------------------------------------------- life of a set

/// `epoll_create` returned `epfd`. Under [`state::LIFE`].
pub fn created(epfd: i32) {
    for number in 0..SETS_CAPACITY {
        let Some(s) = SETS.ensure(number as usize) else { return };
        if s.in_use.swap(true, AcqRel) {
            continue;
        }
        s.fd.store(epfd, Relaxed);
        for b in [&s.has_bell, &s.waited, &s.foreign] {
            b.store(false, Relaxed);
        }
        for w in [&s.warm, &s.blind_waits, &s.sleepers, &s.hot, &s.hot_count, &s.oneshots, &s.calls] {
            w.store(0, Relaxed);
        }
        table::set_epoll(epfd, number);
        return;
    }
}

const SETS_CAPACITY: u32 = 64 * 16;

/// The last descriptor of a set is about to be closed. Under [`state::LIFE`].
pub fn closed(number: u32) {
    let Some(s) = set(number) else { return };
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

/// A set that the kernel looks at from outside (nested, or polled): the sockets in it stay on the kernel.
pub fn keep_on_kernel(number: u32) {
    let Some(s) = set(number) else { return };
    if s.foreign.swap(true, AcqRel) {
        return;
    }
    let mut socks = [None; 64];
    let mut n = 0;
    if let Some(_held) = LOCK.lock(table::tid()) {
        for i in 0..REGS_USED.load(Relaxed) {
            if let Some(r) = reg(i)
                && r.set.load(Relaxed) == number + 1
                && let Some(sock) = table::by_number(r.sock.load(Relaxed))
                && n < socks.len()
            {
                socks[n] = Some(sock);
                n += 1;
            }
        }
    }
    for s in socks.iter().flatten() {
        switch::recall_both(s, Reason::RecalledEpoll, false);
    }
    if n == socks.len() {
        // More than fit: the rest one by one, as they are found through their own registrations.
        table::each_sock(|s| {
            if is_in(s, number) {
                switch::recall_both(s, Reason::RecalledEpoll, false);
            }
        });
    }
}

fn is_in(s: &Sock, number: u32) -> bool {
    LOCK.lock(table::tid()).is_some_and(|_held| regs_of(s).any(|(_, r)| r.set.load(Relaxed) == number + 1))
}

// ---------------------------------------------------------------- registrations

fn drop_reg(number: u32, r: &'static Reg) {
    let was_in = r.set.swap(0, AcqRel);
    let Some(s) = was_in.checked_sub(1).and_then(set) else { return };
    unlink_hot(number, r, s);
    if let Some(sock) = table::by_number(r.sock.load(Relaxed)) {
        if let Some(conn) = sock.conn.get() {
            disarm(r, conn);
            s.warm.fetch_sub(1, Relaxed);
            if r.events.load(Relaxed) & ONESHOT != 0 {
                s.oneshots.fetch_sub(1, Relaxed);
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

/// The kernel's mask for a registration.
fn kernel_mask(s: &Sock, r: &Reg) -> u32 {
    let wanted = r.events.load(Relaxed);
    if r.disarmed.load(Relaxed) {
        return 0;
    }
    if s.is_warm() { ready::carrier_events(s, wanted) } else { wanted }
}

/// epoll_ctl.
pub fn ctl(epfd: i32, op: i32, fd: i32, event: Option<EpollEvent>) -> Verdict {
    let target = table::entry(fd);
    let Some(target) = target else { return Verdict::NotOurs };
    let own = match table::entry(epfd) {
        Some(Entry::Epoll(n)) => set(n).map(|s| (n, s)),
        _ => None,
    };
    let sock = match target {
        Entry::Epoll(inner) => {
            if op == libc::EPOLL_CTL_ADD {
                keep_on_kernel(inner);
            }
            return Verdict::NotOurs;
        }
        Entry::Sock(s) => s,
    };
    let Some((number, set)) = own else {
        // A set that was not created through us.
        switch::recall_both(sock, Reason::ForeignEpoll, true);
        return Verdict::NotOurs;
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
    let Some(held) = LOCK.lock(table::tid()) else { return Verdict::NotOurs };
    let existing = regs_of(sock).find(|(_, r)| r.set.load(Relaxed) == number + 1 && r.fd.load(Relaxed) == fd);
    let mut mask = event.events;
    if sock.is_warm() {
        mask = ready::carrier_events(sock, mask);
    }
    if let Err(e) = sys::ctl(epfd, op, fd, Event { events: mask, data: event.data }) {
        return Verdict::Done(Err(e));
    }
    match (op, existing) {
        (libc::EPOLL_CTL_DEL, Some((n, r))) => drop_reg(n, r),
        (libc::EPOLL_CTL_DEL, None) => {}
        (_, found) => {
            let fresh = found.is_none();
            let Some((n, r)) = found.or_else(new_reg) else {
                drop(held);
                switch::recall_both(sock, Reason::TableFull, true);
                return Verdict::Done(Ok(0));
            };
            let was = r.events.load(Relaxed);
            r.fd.store(fd, Relaxed);
            r.events.store(event.events, Relaxed);
            r.data.store(event.data, Relaxed);
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
            } else if sock.is_warm() && was & ONESHOT != 0 {
                set.oneshots.fetch_sub(1, Relaxed);
            }
            if sock.is_warm() {
                if fresh {
                    set.warm.fetch_add(1, Relaxed);
                }
                if event.events & ONESHOT != 0 {
                    set.oneshots.fetch_add(1, Relaxed);
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
    Verdict::Done(Ok(0))
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
    let event = Event { events: IN | ET, data: BELL_DATA };
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
            set.waited.load(Acquire)
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
        if r.events.load(Relaxed) & ONESHOT != 0 {
            set.oneshots.fetch_add(1, Relaxed);
        }
        if ensure_bell(set) {
            make_hot(n, r, set);
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

/// The outgoing path changed: the kernel watches the carrier's room, or leaves it to us.
pub fn path_changed(s: &'static Sock) {
    if s.registrations.load(Relaxed) == 0 {
        return;
    }
    let Some(_held) = LOCK.lock(table::tid()) else { return };
    for (n, r) in regs_of(s) {
        let Some(set) = r.set.load(Relaxed).checked_sub(1).and_then(set) else { continue };
        if r.events.load(Relaxed) & OUT != 0 && !r.disarmed.load(Relaxed) {
            let event = Event { events: kernel_mask(s, r), data: r.data.load(Relaxed) };
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

/// Wakes a sleeper of the set, if any.
fn ring_own(s: &Set) {
    std::sync::atomic::fence(SeqCst);
    if s.sleepers.load(Relaxed) != 0 {
        eventfd::ring(s.bell_fd.load(Relaxed));
    }
}

fn make_hot(number: u32, r: &Reg, s: &Set) {
    if !r.is_hot.swap(true, Relaxed) {
        r.next_hot.store(s.hot.load(Relaxed), Relaxed);
        s.hot.store(number + 1, Release);
        s.hot_count.fetch_add(1, Relaxed);
    }
}

fn unlink_hot(number: u32, r: &Reg, s: &Set) {
    if !r.is_hot.swap(false, Relaxed) {
        return;
    }
    let mut place = &s.hot;
    while let Some(n) = place.load(Relaxed).checked_sub(1) {
        let Some(here) = reg(n) else { return };
        if n == number {
            place.store(here.next_hot.load(Relaxed), Relaxed);
            s.hot_count.fetch_sub(1, Relaxed);
            return;
        }
        place = &here.next_hot;
    }
}

// ---------------------------------------------------------------- waiting

/// A wait that the overlay does not serve: the set has no warm end yet.
#[derive(Debug)]
pub struct BlindWait(u32);

impl BlindWait {
    /// It ended.
    pub fn finish(self) {
        if let Some(s) = set(self.0) {
            s.blind_waits.fetch_sub(1, SeqCst);
        }
    }
}

/// epoll_wait, epoll_pwait, epoll_pwait2.
pub fn wait(epfd: i32, out: &mut [EpollEvent], timeout_ns: Option<u64>, sigmask: usize) -> Verdict {
    let Some(Entry::Epoll(number)) = table::entry(epfd) else { return Verdict::NotOurs };
    let Some(s) = set(number) else { return Verdict::NotOurs };
    if out.is_empty() {
        return Verdict::NotOurs;
    }
    s.waited.store(true, Release);
    if s.warm.load(SeqCst) == 0 && !s.has_bell.load(Relaxed) {
        if cpu::is_the_only_one() {
            // Nobody else can upgrade anything meanwhile.
            return Verdict::NotOurs;
        }
        s.blind_waits.fetch_add(1, SeqCst);
        if s.warm.load(SeqCst) == 0 {
            return Verdict::Kernel(crate::hook::Cold::blind(BlindWait(number)));
        }
        s.blind_waits.fetch_sub(1, SeqCst);
    }
    let Some(call) = Call::enter() else { return Verdict::NotOurs };
    Verdict::Done(wait_overlay(&call, s, epfd, out, timeout_ns, sigmask))
}

fn wait_overlay(
    call: &Call,
    s: &'static Set,
    epfd: i32,
    out: &mut [EpollEvent],
    timeout_ns: Option<u64>,
    sigmask: usize,
) -> Result<usize, Errno> {
    let deadline = timeout_ns.map(|ns| clock::monotonic_ns().saturating_add(ns));
    let mut spun = false;
    loop {
        switch::attend();
        let n = collect(s, out);
        if n > 0 {
            // Who does not wait wants to know all there is; who waits gets the rest with its next call.
            let due = timeout_ns == Some(0) || s.calls.fetch_add(1, Relaxed).is_multiple_of(KERNEL_EVERY);
            let more = if due && n < out.len() { kernel_events(s, epfd, out, n, Some(0), 0)? } else { 0 };
            return Ok(n + more);
        }
        let k = kernel_events(s, epfd, out, 0, Some(0), 0)?;
        if k > 0 || timeout_ns == Some(0) {
            return Ok(k);
        }
        if !spun {
            spun = true;
            if spin(s, epfd) {
                continue;
            }
        }
        // Sleep: announce, arm what is hot, fence, look again.
        let ticket = s.ticket.fetch_add(1, Relaxed).wrapping_add(1).max(1);
        s.sleepers.fetch_add(1, SeqCst);
        set_asleep(s, ticket);
        let (rings, stall) = arm_hot(s);
        std::sync::atomic::fence(SeqCst);
        let marked = state::get().and_then(|st| st.inbox_if_any()).is_some_and(|i| i.is_marked());
        let left = deadline.map(|d| d.saturating_sub(clock::monotonic_ns()));
        let mut bound = left;
        if stall {
            bound = Some(bound.unwrap_or(u64::MAX).min(STALL_NS));
        }
        let flushing = switch::flushes_pending();
        if flushing {
            bound = Some(bound.unwrap_or(u64::MAX).min(switch::FLUSH_PERIOD_NS));
        }
        bound = crate::memory::before_sleep(call, bound);
        let k = if marked || rings {
            Ok(0)
        } else {
            call.parked(|| kernel_events(s, epfd, out, 0, bound, sigmask))
        };
        let others = s.sleepers.fetch_sub(1, SeqCst) - 1;
        if others > 0 {
            // The baton: somebody still sleeps; the next news must ring again.
            set_asleep(s, ticket);
            if state::get().and_then(|st| st.inbox_if_any()).is_some_and(|i| i.is_marked()) {
                ring_own(s);
            }
        } else {
            set_asleep(s, 0);
        }
        if stall {
            unstick_all(s, call);
        }
        if flushing {
            switch::drive_flushes(call);
        }
        let k = k?;
        if k > 0 {
            switch::attend();
            let n = collect_into(s, out, k);
            return Ok(n);
        }
        if deadline.is_some_and(|d| clock::monotonic_ns() >= d) {
            switch::attend();
            return Ok(collect(s, out));
        }
    }
}

fn set_asleep(s: &Set, ticket: u32) {
    if let Some(inbox) = state::get().and_then(|st| st.inbox_if_any())
        && let Some(a) = inbox.asleep.get(s.bell.load(Relaxed) as usize)
    {
        a.store(ticket, SeqCst);
    }
}

/// Ready ends of the hot list into `out`. Level-triggered ones stay hot; others too, until they are armed.
fn collect(s: &'static Set, out: &mut [EpollEvent]) -> usize {
    if s.hot.load(Acquire) == 0 {
        return 0;
    }
    collect_into(s, out, 0)
}

/// As [`collect`], behind `n` events of the kernel: an end that is among them gets its bits added.
fn collect_into(s: &'static Set, out: &mut [EpollEvent], n: usize) -> usize {
    let Some(_held) = LOCK.lock(table::tid()) else { return n };
    let kernel = n;
    let mut n = n;
    let mut next = s.hot.load(Relaxed);
    while let Some(number) = next.checked_sub(1) {
        let Some(r) = reg(number) else { break };
        next = r.next_hot.load(Relaxed);
        let Some(sock) = table::by_number(r.sock.load(Relaxed)) else { continue };
        let Some(conn) = sock.conn.get() else { continue };
        let events = report(sock, conn, r);
        if events == 0 {
            continue;
        }
        let data = r.data.load(Relaxed);
        if let Some(same) = out[..kernel].iter_mut().find(|e| { e.data } == data) {
            same.events |= events;
        } else if n < out.len() {
            out[n] = EpollEvent { events, data };
            n += 1;
        } else {
            // No room: first in line next time.
            r.reported_tail.store(0, Relaxed);
            r.reported_room.store(false, Relaxed);
            break;
        }
        if r.events.load(Relaxed) & ONESHOT != 0 {
            r.disarmed.store(true, Relaxed);
            let event = Event { events: 0, data };
            let _ = sys::ctl(s.fd.load(Relaxed), libc::EPOLL_CTL_MOD, r.fd.load(Relaxed), event);
        }
    }
    n
}

/// What to report of one registration now.
fn report(sock: &'static Sock, conn: &'static Conn, r: &Reg) -> u32 {
    if r.disarmed.load(Relaxed) {
        return 0;
    }
    let wanted = r.events.load(Relaxed);
    let events = ready::ring_events(sock, conn, wanted);
    if wanted & ET == 0 {
        return events;
    }
    let mut edge = 0;
    // Any arrival is an edge, also of bytes that were read meanwhile.
    let tail = conn.inc().t.tail.load(Acquire) + 1;
    if r.reported_tail.swap(tail, Relaxed) != tail {
        edge |= IN;
    }
    if events & OUT != 0 {
        if !r.reported_room.swap(true, Relaxed) {
            edge |= OUT;
        }
    } else if wanted & OUT != 0 {
        r.reported_room.store(false, Relaxed);
    }
    if edge == 0 {
        return 0;
    }
    // As the kernel: an edge reports everything that is ready, on whichever path.
    let on_carrier = ready::on_carrier(sock, conn, wanted);
    if on_carrier == 0 { events } else { events | carrier_now(sock, on_carrier) }
}

fn carrier_now(sock: &Sock, wanted: u32) -> u32 {
    bypath_sys::poll::now(sock.carrier(), wanted as i16) as u32 & wanted
}

/// Arms what is hot and not ready, and takes it off the list. Returns (something is ready, a full ring is waited
/// for).
fn arm_hot(s: &'static Set) -> (bool, bool) {
    let Some(_held) = LOCK.lock(table::tid()) else { return (true, false) };
    let (mut ready, mut stall) = (false, false);
    let mut next = s.hot.load(Relaxed);
    while let Some(number) = next.checked_sub(1) {
        let Some(r) = reg(number) else { break };
        next = r.next_hot.load(Relaxed);
        let sock = table::by_number(r.sock.load(Relaxed));
        let Some((sock, conn)) = sock.and_then(|k| Some((k, k.conn.get()?))) else {
            unlink_hot(number, r, s);
            continue;
        };
        if r.disarmed.load(Relaxed) {
            unlink_hot(number, r, s);
            continue;
        }
        let wanted = r.events.load(Relaxed);
        let (incoming, outgoing) = ready::needs_words(sock, wanted);
        let bell = s.bell.load(Relaxed);
        if !conn.tell_bell(bell, s.bell_fd.load(Relaxed)) {
            switch::ask_recall(sock, conn, ask::RECALL, Reason::RecalledNoBell);
        }
        let ticket = s.ticket.fetch_add(1, Relaxed).wrapping_add(1).max(1);
        let word = words::word(bell | EPOLL_BELL, ticket);
        // An old word may be about to be cleared by a waker that rang already: it never counts as armed.
        disarm(r, conn);
        if incoming {
            r.word_in.store(word, Relaxed);
            if !words::arm(&conn.inc().ra.wait, word) {
                switch::ask_recall(sock, conn, ask::RECALL, Reason::RecalledWaiters);
            }
        }
        if outgoing {
            stall = true;
            r.word_out.store(word, Relaxed);
            words::arm(&conn.out().wa.wait, word);
        }
        std::sync::atomic::fence(SeqCst);
        if would_report(sock, conn, r) {
            ready = true;
        } else if !outgoing {
            // A full ring that is waited for stays on the list: it may have to be taken back.
            unlink_hot(number, r, s);
        }
    }
    (ready, stall)
}

/// Whether [`report`] would say something, without saying it.
fn would_report(sock: &'static Sock, conn: &'static Conn, r: &Reg) -> bool {
    let wanted = r.events.load(Relaxed);
    let events = ready::ring_events(sock, conn, wanted);
    if wanted & ET == 0 || r.disarmed.load(Relaxed) {
        return events != 0 && !r.disarmed.load(Relaxed);
    }
    events != 0 && r.reported_tail.load(Relaxed) != conn.inc().t.tail.load(Acquire) + 1
        || events & OUT != 0 && !r.reported_room.load(Relaxed)
}

fn unstick_all(s: &'static Set, call: &Call) {
    let mut stuck = [None; 16];
    if let Some(_held) = LOCK.lock(table::tid()) {
        let mut next = s.hot.load(Relaxed);
        for place in &mut stuck {
            let Some(r) = next.checked_sub(1).and_then(reg) else { break };
            next = r.next_hot.load(Relaxed);
            if r.events.load(Relaxed) & OUT != 0 {
                *place = table::by_number(r.sock.load(Relaxed));
            }
        }
    }
    for sock in stuck.iter().flatten() {
        if let Some(conn) = sock.conn.get() {
            crate::stream::unstick(sock, conn, call);
        }
    }
}

/// The kernel's events into `out[from..]`, without our bell and without ends that are there already.
fn kernel_events(
    s: &'static Set,
    epfd: i32,
    out: &mut [EpollEvent],
    from: usize,
    timeout_ns: Option<u64>,
    sigmask: usize,
) -> Result<usize, Errno> {
    let mut room = [Event::default(); 64];
    let (_, tail) = out.split_at(from);
    // Large arrays go to the kernel in portions: the rest stays ready and comes with the next call.
    let len = tail.len().min(room.len());
    let got = sys::wait(epfd, &mut room[..len], timeout_ns, sigmask)?;
    let mut n = from;
    for e in &room[..got] {
        let (events, data) = (e.events, e.data);
        if data == BELL_DATA {
            continue;
        }
        if s.oneshots.load(Relaxed) != 0 {
            oneshot_fired(s, data);
        }
        if let Some(same) = out[..from].iter_mut().find(|o| { o.data } == data) {
            same.events |= events;
            continue;
        }
        out[n] = EpollEvent { events, data };
        n += 1;
    }
    Ok(n - from)
}

/// The kernel reported (and disarmed) a one-shot registration: so does the overlay.
fn oneshot_fired(s: &'static Set, data: u64) {
    let Some(_held) = LOCK.lock(table::tid()) else { return };
    for i in 0..REGS_USED.load(Relaxed) {
        if let Some(r) = reg(i)
            && r.data.load(Relaxed) == data
            && r.events.load(Relaxed) & ONESHOT != 0
            && r.set.load(Relaxed).checked_sub(1).and_then(set).is_some_and(|k| std::ptr::eq(k, s))
        {
            r.disarmed.store(true, Relaxed);
        }
    }
}

/// Spins on few hot rings and the inbox, asking the kernel every few microseconds.
fn spin(s: &'static Set, epfd: i32) -> bool {
    let Some(config) = state::config() else { return false };
    let cap = config.profile.spin_cap_ns();
    if cap == 0 || !s.spins.should() {
        return false;
    }
    let mut hot = [None; HOT_POLLED];
    if s.hot_count.load(Relaxed) as usize > HOT_POLLED {
        let (ready, _) = arm_hot(s);
        if ready {
            return true;
        }
    } else if let Some(_held) = LOCK.lock(table::tid()) {
        let mut next = s.hot.load(Relaxed);
        for place in &mut hot {
            let Some(r) = next.checked_sub(1).and_then(reg) else { break };
            next = r.next_hot.load(Relaxed);
            *place = table::by_number(r.sock.load(Relaxed)).and_then(|k| Some((k, k.conn.get()?, r)));
        }
    }
    let here = cpu::cpu();
    let same_cpu = |c: &Conn| c.inc().t.cpu.load(Relaxed) == here && here != u32::MAX;
    if hot.iter().flatten().any(|(_, c, _)| same_cpu(c)) {
        return false;
    }
    let inbox = state::get().and_then(|st| st.inbox_if_any());
    let per_us = state::ticks_per_us();
    let start = clock::ticks();
    let mut next_kernel = start + 5 * per_us;
    loop {
        for _ in 0..8 {
            if inbox.is_some_and(|i| i.is_marked())
                || hot.iter().flatten().any(|(k, c, r)| would_report(k, c, r))
            {
                s.spins.record(true);
                return true;
            }
            std::hint::spin_loop();
        }
        let now = clock::ticks();
        if now.wrapping_sub(start) > cap * per_us / 1000 {
            s.spins.record(false);
            return false;
        }
        if now >= next_kernel {
            next_kernel = now + 10 * per_us;
            // Only asks: level-triggered events stay, edges would be lost, so look from outside.
            if bypath_sys::poll::now(epfd, libc::POLLIN) != 0 {
                s.spins.record(true);
                return true;
            }
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
