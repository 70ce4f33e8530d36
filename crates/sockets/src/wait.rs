//! Waiting on one connection: spin a little where that has paid off, then sleep on the carrier and a bell.
//!
//! Sleep (I4): enter a wait word, fence, look again, sleep. Whoever publishes fences and looks at the wait words.

use crate::budget::Budget;
use crate::carrier;
use crate::fault;
use crate::flush;
use crate::memory;
use crate::others;
use crate::over;
use crate::peer::Conn;
use crate::siblings;
use crate::state;
use crate::switch;
use crate::table::{Sock, flag};
use crate::thread::Call;
use crate::unwoken;
use crate::uring;
use bypath_shm::direction::{Path, Readable, wait};
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::{Errno, clock, thread};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Bytes that nobody seems to read are taken back after this long.
pub const STALL_NS: u64 = 20_000_000;
/// A full ring without progress is taken back after this long.
pub const FULL_NS: u64 = 50_000_000;
/// So many times twice as long while the machine has more to run than processors: a reader waits for its turn.
pub const BUSY_PARDONS: u32 = 2;
/// The same where the reader has shown that it reads rings.
pub const QUIET_NS: u64 = 500_000_000;
/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Something may have changed in the ring.
    Look,
    /// The carrier has events.
    Carrier(i16),
    /// The bound given by the caller passed.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

/// When a wait ends: an absolute time of CLOCK_MONOTONIC, or never.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<u64>);

impl Deadline {
    /// `ns` from now, 0 = never.
    pub fn after(ns: u64) -> Deadline {
        Deadline((ns != 0).then(|| clock::monotonic_ns().saturating_add(ns)))
    }

    /// The same, or `ns` from now if that is sooner.
    pub fn or_after(self, ns: u64) -> Deadline {
        let soon = clock::monotonic_ns().saturating_add(ns);
        Deadline(Some(self.0.map_or(soon, |at| at.min(soon))))
    }

    /// Time left; `None` = no bound, `Some(0)` = passed.
    pub fn left(self) -> Option<u64> {
        self.0.map(|at| at.saturating_sub(clock::monotonic_ns()))
    }
}

/// Success history of spinning: after failures spins are left out, twice as many each time.
#[derive(Debug, Default)]
pub struct SpinHistory {
    skip: AtomicU64,
    failures: AtomicU64,
}

impl SpinHistory {
    /// No history.
    pub const fn new() -> SpinHistory {
        SpinHistory { skip: AtomicU64::new(0), failures: AtomicU64::new(0) }
    }

    /// Whether to spin now.
    #[inline]
    pub fn should(&self) -> bool {
        let skip = self.skip.load(Relaxed);
        if skip > 0 {
            self.skip.store(skip - 1, Relaxed);
            return false;
        }
        true
    }

    /// How the spin went.
    #[inline]
    pub fn record(&self, success: bool) {
        if success {
            self.failures.store(0, Relaxed);
        } else {
            let failures = (self.failures.load(Relaxed) + 1).min(8);
            self.failures.store(failures, Relaxed);
            self.skip.store(1 << failures, Relaxed);
        }
    }
}

/// Whether anybody ever spins here.
#[inline]
pub fn may_spin() -> bool {
    state::config().is_some_and(|config| config.spin_budget_ns != 0)
}

/// Polls `ready` for as long as the profile allows and history recommends. `pause` = polls to leave out between
/// two looks (stream mode), 0 = look as fast as possible (latency mode). A signal ends it.
#[inline]
pub fn spin(
    call: &Call,
    history: &SpinHistory,
    peer_cpu: u32,
    pause: u32,
    mut ready: impl FnMut() -> bool,
) -> bool {
    let Some(config) = state::config() else { return false };
    let cap = config.spin_budget_ns;
    if cap == 0 || !history.should() {
        return false;
    }
    let cpu = thread::cpu();
    if cpu == peer_cpu && cpu != u32::MAX {
        // The other end needs this processor to make progress.
        return false;
    }
    let bound = cap * state::ticks_per_us() / 1000;
    let start = clock::ticks();
    // Up to the last look at the clock: one more would be on the way of who has waited long enough.
    let mut spun = 0;
    // To read the clock takes as long as several looks.
    let looks = if pause == 0 { 64 } else { 16 };
    let success = 'spinning: loop {
        for _ in 0..looks {
            if ready() {
                history.record(true);
                break 'spinning true;
            }
            for _ in 0..pause {
                std::hint::spin_loop();
            }
        }
        spun = clock::ticks().wrapping_sub(start);
        if call.is_wanted() {
            break false;
        }
        if spun > bound {
            history.record(false);
            break false;
        }
    };
    if spun > 0 {
        call.thread.count(|b| &b.spun_ticks, spun);
    }
    success
}

/// Sleeps on the carrier and this thread's bell, after `arm` entered the bell's word and `ready` was asked once
/// more. `events` are what to watch on the carrier.
#[expect(clippy::too_many_arguments, reason = "one place for the order of steps")]
pub fn sleep(
    call: &Call,
    s: &'static Sock,
    conn: &'static Conn,
    places: &'static [AtomicU64],
    events: i16,
    bound_ns: Option<u64>,
    ready: impl Fn() -> bool,
    blind: bool,
) -> Woken {
    let thread = call.thread;
    let _nest = thread.sleeping();
    let Some((bell, bell_fd)) = conn.bell_for(thread) else {
        return sleep_without_bell(call, s, conn, events, bound_ns, blind);
    };
    // Silenced before the word is entered: a ring after that is for this sleep.
    if thread.rung.swap(false, Relaxed) {
        others::silence(bell_fd);
    }
    let word = wait::word(bell, thread.next_ticket());
    fault::between("to-sleep");
    if !wait::arm(places, word) {
        return sleep_without_bell(call, s, conn, events, bound_ns, blind);
    }
    announce(bell, word as u32);
    if ready() {
        withdraw(places, word, bell, thread);
        return Woken::Look;
    }
    fault::between("word-entered");
    let mut fds = [
        PollFd { fd: s.carrier(), events, revents: 0 },
        PollFd { fd: bell_fd, events: libc::POLLIN, revents: 0 },
    ];
    let flushing = flush::flushes_pending();
    let mut bound = bound_ns;
    if flushing {
        bound = Some(bound.unwrap_or(u64::MAX).min(flush::FLUSH_PERIOD_NS));
    }
    let bound = before_sleep(call, bound);
    let outer = thread.is_to_touch(s);
    let result = call.parked(|| ppoll(&mut fds, bound, 0));
    withdraw(places, word, bell, thread);
    thread.touched(outer);
    if fds[1].revents != 0 {
        thread.rung.store(true, Relaxed);
    }
    switch::attend();
    if flushing {
        flush::drive_flushes(call);
    }
    match result {
        Err(Errno::INTR) => Woken::Interrupted,
        Err(_) => Woken::Look,
        Ok(0) if bound == bound_ns => Woken::TimedOut,
        Ok(0) => Woken::Look,
        Ok(_) if fds[0].revents != 0 => Woken::Carrier(fds[0].revents),
        Ok(_) => Woken::Look,
    }
}

/// Called before a sleep of at most `bound` ns (`None` = for ever): does what is due for others. Returns how long to
/// sleep.
#[inline]
pub fn before_sleep(call: &Call, bound: Option<u64>) -> Option<u64> {
    let bound = siblings::before_sleep(call, memory::before_sleep(call, bound));
    uring::before_sleep(call, others::before_sleep(bound))
}

/// The ticket of a sleep: never 0, and not that of the sleep before, of which a waker may still want to clear the word.
#[inline]
pub fn fresh_ticket(last: &AtomicU32) -> u32 {
    let next = |last| match last {
        0 => fault::first_ticket(),
        u32::MAX => 1,
        last => last + 1,
    };
    let before = last.fetch_update(Relaxed, Relaxed, |last| Some(next(last)));
    before.map_or(1, next)
}

/// Enters the sleeper in the own inbox, where those who demand attention look for a bell to ring.
pub fn announce(bell: u32, ticket: u32) {
    if let Some(inbox) = state::get().and_then(|s| s.inbox_if_any()) {
        if let Some(a) = inbox.asleep.get(bell as usize) {
            a.store(ticket, SeqCst);
        }
        // A demand made just before would not have rung: look once more.
        switch::attend();
    }
}

/// Takes the entry of [`announce`] back.
pub fn retract(bell: u32, thread: &crate::thread::Record) {
    if let Some(inbox) = state::get().and_then(|s| s.inbox_if_any())
        && let Some(a) = inbox.asleep.get(bell as usize)
        && a.swap(0, Relaxed) == 0
    {
        thread.rung.store(true, Relaxed);
    }
}

fn withdraw(places: &[AtomicU64], word: u64, bell: u32, thread: &crate::thread::Record) {
    if !wait::disarm(places, word) {
        // A waker took it: it rang, or will in a moment.
        thread.rung.store(true, Relaxed);
    }
    retract(bell, thread);
}

/// No bell to be had, or all places taken: the other end is asked to use the carrier, which wakes anybody.
fn sleep_without_bell(
    call: &Call,
    s: &'static Sock,
    conn: &'static Conn,
    events: i16,
    bound_ns: Option<u64>,
    blind: bool,
) -> Woken {
    let mut bound = bound_ns;
    if blind {
        // Until the claim a short period stands in for the bell.
        let pause = unwoken::ask(s, conn, bypath_shm::reason::Reason::RecalledWaiters);
        bound = Some(bound_ns.unwrap_or(u64::MAX).min(pause));
    }
    let mut fds = [PollFd { fd: s.carrier(), events, revents: 0 }];
    let result = call.parked(|| ppoll(&mut fds, bound, 0));
    switch::attend();
    match result {
        Err(Errno::INTR) => Woken::Interrupted,
        Ok(0) if bound == bound_ns => Woken::TimedOut,
        Ok(n) if n > 0 => Woken::Carrier(fds[0].revents),
        _ => Woken::Look,
    }
}

/// Waits until the incoming direction has at least `need` bytes, its path changes, or the carrier has events.
pub fn readable(
    call: &Call,
    s: &'static Sock,
    conn: &'static Conn,
    seen: Path,
    need: u64,
    deadline: Deadline,
) -> Woken {
    let inc = conn.inc();
    let size = conn.rx.size();
    // Compared with what the caller acted on, not with what the path is by now: a change in between counts.
    let ready = || match over::without_late(s, conn, inc.readable(size)) {
        Ok(Readable::Ring { available, .. }) => available >= need || seen != Path::Ring,
        Ok(Readable::Drain(_)) => seen != Path::Drain,
        Ok(Readable::Kernel) => seen != Path::Kernel,
        Err(_) => true,
    };
    if seen == Path::Ring {
        let pause = if s.sent_last.load(Relaxed) { 0 } else { 2 };
        if spin(call, &s.spins, inc.t.cpu.load(Relaxed), pause, ready) {
            return Woken::Look;
        }
    }
    let left = deadline.left();
    if left == Some(0) {
        return Woken::TimedOut;
    }
    // Bytes of ours that the other end shows no sign of reading: do not sleep on them for ever.
    let mut bound = left;
    let mut stalled = None;
    if s.end().w.path.load(Relaxed) != bypath_shm::family::wpath::KERNEL {
        let tail = s.end().w.tail.load(Relaxed);
        let head = conn.out().h.head.load(Relaxed);
        if bypath_shm::direction::Head::from_raw(head).position() != tail && !wait::any(&conn.out().ra.wait) {
            stalled = Some(head);
            bound = Some(left.unwrap_or(u64::MAX).min(QUIET_NS));
        }
    }
    let events = libc::POLLIN | libc::POLLRDHUP;
    let woken = sleep(call, s, conn, &inc.ra.wait, events, bound, ready, true);
    if woken == Woken::TimedOut && bound != left {
        if stalled == Some(conn.out().h.head.load(Relaxed)) && !wait::any(&conn.out().ra.wait) {
            flush::recall_outgoing(s, conn, bypath_shm::reason::Reason::RecalledStalledReader, call);
        }
        return Woken::Look;
    }
    woken
}

/// Waits until a quarter of the outgoing ring is free, or the carrier reports an end. A ring that stays full is
/// the caller's to take back when this times out.
pub fn space(call: &Call, s: &'static Sock, conn: &'static Conn, deadline: Deadline) -> Woken {
    let out = conn.out();
    let ready = || {
        switch::has_space(s, conn)
            || s.end().w.path.load(Relaxed) != bypath_shm::family::wpath::RING
            || out.ra.ask.load(Relaxed) & bypath_shm::direction::ask::RECALL != 0
    };
    if spin(call, &s.spins, out.h.cpu.load(Relaxed), 4, ready) {
        return Woken::Look;
    }
    let left = deadline.left();
    if left == Some(0) {
        return Woken::TimedOut;
    }
    let bound = left.unwrap_or(u64::MAX).min(STALL_NS / 10);
    // A FIN that was announced is no news, if the end of who still reads is told as well.
    let events = if switch::is_half_closed(s, conn) { 0 } else { libc::POLLRDHUP };
    match sleep(call, s, conn, &out.wa.wait, events, Some(bound), ready, false) {
        Woken::TimedOut => {
            if switch::has_space(s, conn) {
                conn.tell_again(call.thread.bell.load(Relaxed));
            }
            if left == Some(bound) { Woken::TimedOut } else { Woken::Look }
        }
        other => other,
    }
}

/// Waits until the carrier takes bytes.
pub fn carrier_writable(call: &Call, s: &'static Sock, deadline: Deadline) -> Woken {
    let left = deadline.left();
    if left == Some(0) {
        return Woken::TimedOut;
    }
    let silent = !carrier::of(s).shutdown_is_gentle();
    let bound = if silent { Some(left.unwrap_or(u64::MAX).min(siblings::PERIOD_NS)) } else { left };
    // Nobody rings this bell but who cancels the thread. Without one, a look now and then must do.
    let _nest = call.thread.sleeping();
    let bell = call.thread.ensure_bell().ok().and_then(|_| call.thread.silenced_bell());
    let bound = if bell.is_some() { bound } else { Some(bound.unwrap_or(u64::MAX).min(siblings::PERIOD_NS)) };
    let mut fds = [
        PollFd { fd: s.carrier(), events: libc::POLLOUT, revents: 0 },
        PollFd { fd: bell.unwrap_or(-1), events: libc::POLLIN, revents: 0 },
    ];
    let result = call.parked(|| ppoll(&mut fds, bound, 0));
    if fds[1].revents != 0 {
        call.thread.rung.store(true, Relaxed);
    }
    switch::attend();
    match result {
        Err(Errno::INTR) => Woken::Interrupted,
        Ok(0) if bound != left => Woken::Look,
        Ok(0) => Woken::TimedOut,
        _ if fds[0].revents == 0 => Woken::Look,
        _ => Woken::Carrier(fds[0].revents),
    }
}

/// How long calls that do not wait may wait for octets that other ends say they take back, and how long at once.
static FLUSHES: Budget = Budget::new(1_000_000_000);
const PAUSE_NS: u64 = 5_000_000;

/// Gives the writer of a flush that is under way a chance: its processor, or a few milliseconds. False: it has had enough.
pub fn for_flush(call: &Call, s: &'static Sock, patiently: bool) -> bool {
    if !patiently {
        thread::yield_now();
        return true;
    }
    if FLUSHES.left() < PAUSE_NS {
        return false;
    }
    let begin = clock::monotonic_ns();
    // Shut down for reading, it is always told to be readable.
    let (carrier, pause) = if s.has(flag::NO_READ) { (-1, PAUSE_NS / 5) } else { (s.carrier(), PAUSE_NS) };
    let mut fds = [PollFd { fd: carrier, events: libc::POLLIN, revents: 0 }];
    let _ = call.parked(|| ppoll(&mut fds, Some(pause), 0));
    FLUSHES.spend(begin);
    true
}

/// When the kernel last told the program that a descriptor has something to read (ticks).
static TOLD: AtomicU64 = AtomicU64::new(0);

/// The kernel told the program about a descriptor, perhaps a carrier: a read that follows must not answer EAGAIN
/// without a look at it, as an edge is told once.
#[inline]
pub fn kernel_told(events: u32) {
    if events & (libc::POLLIN | libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) as u32 != 0 {
        TOLD.store(clock::ticks(), Relaxed);
    }
}

/// When the kernel last told the program of something (ticks).
#[inline]
pub fn last_told() -> u64 {
    TOLD.load(Relaxed)
}

/// How often (microseconds) it is looked whether the connection's other end is alive.
pub const EACH_MS: u64 = 1000;
/// The same where its end would come behind what was read just now. An end that is no death takes the ring back first, and is seen at once.
pub const BEHIND_DATA: u64 = 20;

/// Whether it is to be looked whether the connection's other end is alive: it was not for so many microseconds, or the kernel told of something.
#[inline]
pub fn peer_check_due(s: &Sock, every_us: u64) -> bool {
    let now = clock::ticks();
    let last = s.looked.load(Relaxed);
    if now.wrapping_sub(last) < every_us * state::ticks_per_us() && last > last_told() {
        return false;
    }
    s.looked.store(now, Relaxed);
    true
}

/// What the carrier says about the other end: (FIN seen, reset or error seen).
pub fn peer_end(s: &Sock) -> (bool, bool) {
    let events = bypath_sys::poll::now(s.carrier(), libc::POLLRDHUP);
    let reset = events & (libc::POLLERR | libc::POLLHUP) != 0;
    let ended = events & libc::POLLRDHUP != 0 || reset;
    // Of what this side has shut down itself poll says the same.
    (ended && (!s.has(flag::NO_READ) || carrier::of(s).has_finished(s)), reset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_differ_from_the_one_before_also_where_they_wrap() {
        for begin in [0, 1, u32::MAX - 2] {
            let last = AtomicU32::new(begin);
            let tickets: Vec<u32> = (0..6).map(|_| fresh_ticket(&last)).collect();
            assert!(tickets.iter().all(|&ticket| ticket != 0), "{tickets:?}");
            assert!(tickets.windows(2).all(|two| two[0] != two[1]), "{tickets:?}");
        }
    }
}
