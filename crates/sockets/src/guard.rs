//! The performance guard: a connection on which the ring is slower than the kernel goes back.
//!
//! Every 64 calls that moved bytes the time they took, for each byte, is noted for the path they took; the shortest of
//! the last four counts, so that pauses of the program or the machine do not. Suspicion: the ring took half as long
//! again as the kernel did before the upgrade (or during an earlier stay). Then the connection is taken back for a
//! trial, and the kernel is measured beside: if it is faster by a quarter the connection stays there for a while, if not
//! it returns to the ring and is not suspected for a while. Each while is twice the last one.

use crate::config::LogLevel;
use crate::peer::Conn;
use crate::state;
use crate::switch;
use crate::table::{Sock, flag};
use crate::thread::Call;
use crate::{log, rendezvous};
use bypath_shm::direction::ask;
use bypath_shm::reason::Reason;
use bypath_sys::clock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Calls of a window.
const WINDOW: u32 = 64;
/// Windows whose shortest counts.
const KEPT: usize = 4;
/// Fewest calls before the upgrade that say something about the kernel.
const FEWEST_COLD: u32 = 8;
/// Windows of the first while; and how often it is doubled.
const FIRST_WHILE: u32 = 64;
const DOUBLINGS: u32 = 10;
/// A trial without result is given up after this many windows.
const LONGEST_TRIAL: u32 = 64;

/// Values of [`Guard::phase`].
mod phase {
    /// The connection may use rings, and is measured.
    pub const WATCH: u32 = 0;
    /// It was taken back for a trial.
    pub const TRIAL: u32 = 1;
    /// The kernel was faster: it stays there for a while.
    pub const HELD: u32 = 2;
}

/// What is known about one connection's speed. Threads that share it may garble a window: that costs a trial.
#[derive(Debug, Default)]
pub struct Guard {
    /// Calls in this window.
    calls: AtomicU32,
    /// When it began (ticks, 0 = it did not), and the bytes moved by then through rings and carrier.
    since: AtomicU64,
    bytes: [AtomicU64; 2],
    /// Ticks for a KiB in the last windows, by path (ring, carrier); 0 = not known.
    costs: [[AtomicU64; KEPT]; 2],
    windows: [AtomicU32; 2],
    phase: AtomicU32,
    /// Windows until the next decision.
    due: AtomicU32,
    /// How often the while was doubled.
    doubled: AtomicU32,
}

const RING: usize = 0;
const KERNEL: usize = 1;

impl Guard {
    /// For a new socket.
    pub fn reset(&self) {
        for word in [&self.calls, &self.phase, &self.due, &self.doubled, &self.windows[0], &self.windows[1]] {
            word.store(0, Relaxed);
        }
        self.since.store(0, Relaxed);
        self.forget(RING);
        self.forget(KERNEL);
    }

    /// Whether the connection is to stay on the kernel now.
    #[inline]
    pub fn holds(&self) -> bool {
        self.phase.load(Relaxed) != phase::WATCH
    }

    fn forget(&self, path: usize) {
        self.costs[path].iter().for_each(|cost| cost.store(0, Relaxed));
        self.windows[path].store(0, Relaxed);
    }

    fn note(&self, path: usize, cost: u64) {
        let n = self.windows[path].fetch_add(1, Relaxed);
        self.costs[path][n as usize % KEPT].store(cost, Relaxed);
    }

    /// The shortest of the last windows; `None` = not known yet.
    fn cost(&self, path: usize) -> Option<u64> {
        self.costs[path].iter().map(|cost| cost.load(Relaxed)).filter(|cost| *cost != 0).min()
    }

    /// Counts down to the next decision; true when it is due.
    fn is_due(&self) -> bool {
        let due = self.due.load(Relaxed);
        self.due.store(due.saturating_sub(1), Relaxed);
        due <= 1
    }

    /// The next while, in windows.
    fn next_while(&self) -> u32 {
        FIRST_WHILE << self.doubled.fetch_add(1, Relaxed).min(DOUBLINGS)
    }
}

/// A call moved bytes.
#[inline]
pub fn moved(s: &'static Sock) {
    let calls = s.guard.calls.load(Relaxed) + 1;
    s.guard.calls.store(calls, Relaxed);
    if calls >= WINDOW || calls == 1 {
        window(s);
    }
}

/// Both ends are mapped now: what was measured so far was the kernel.
pub fn upgraded(s: &'static Sock) {
    if s.guard.calls.load(Relaxed) >= FEWEST_COLD {
        window(s);
    }
    s.guard.calls.store(0, Relaxed);
    s.guard.since.store(0, Relaxed);
}

/// A window ends and the next begins.
#[cold]
fn window(s: &'static Sock) {
    if !state::config().is_some_and(|c| c.guard) {
        s.guard.calls.store(1, Relaxed);
        return;
    }
    let (guard, end) = (&s.guard, s.end());
    let now = clock::ticks();
    let bytes = [
        end.w.ring_bytes.load(Relaxed) + end.r.ring_bytes.load(Relaxed),
        end.w.kernel_bytes.load(Relaxed) + end.r.kernel_bytes.load(Relaxed),
    ];
    let calls = guard.calls.load(Relaxed);
    let since = guard.since.swap(now, Relaxed);
    let before = [0, 1].map(|path| guard.bytes[path].swap(bytes[path], Relaxed));
    if calls >= FEWEST_COLD {
        guard.calls.store(1, Relaxed);
    }
    let by_path = [0, 1].map(|path| bytes[path].wrapping_sub(before[path]));
    // A window that took both paths says nothing.
    let path = match by_path {
        [ring, 0] if ring > 0 => RING,
        [0, kernel] if kernel > 0 => KERNEL,
        _ => return,
    };
    if since != 0 && calls >= FEWEST_COLD {
        let ticks = now.wrapping_sub(since).min(u64::MAX / 1024);
        judge(s, path, (ticks * 1024 / by_path[path]).max(1));
    }
}

fn judge(s: &'static Sock, path: usize, cost: u64) {
    let guard = &s.guard;
    match (guard.phase.load(Relaxed), path) {
        (phase::WATCH, _) => {
            guard.note(path, cost);
            if path == RING && guard.is_due() && guard.windows[RING].load(Relaxed) >= KEPT as u32 {
                suspect(s);
            }
        }
        (phase::TRIAL, KERNEL) => {
            // The first one is about the change of paths.
            if guard.windows[KERNEL].fetch_add(1, Relaxed) > 0 {
                guard.costs[KERNEL][guard.windows[KERNEL].load(Relaxed) as usize % KEPT].store(cost, Relaxed);
            }
            if guard.windows[KERNEL].load(Relaxed) > KEPT as u32 {
                decide(s);
            }
        }
        (phase::TRIAL, _) if guard.is_due() => release(s),
        (phase::HELD, KERNEL) if guard.is_due() => release(s),
        _ => {}
    }
}

/// Takes the connection back for a trial, if the ring seems slower than the kernel was.
fn suspect(s: &'static Sock) {
    let guard = &s.guard;
    let (Some(ring), Some(kernel)) = (guard.cost(RING), guard.cost(KERNEL)) else { return };
    let Some(conn) = s.conn.get() else { return };
    let alone = state::get().is_some_and(|state| s.is_sole_holder(state)) && !s.inherited.load(Relaxed);
    if ring <= kernel.saturating_mul(3) / 2
        || !alone
        || s.has(flag::FOR_GOOD | flag::SENT_FIN | flag::NO_READ)
    {
        return;
    }
    let Some(call) = Call::enter() else { return };
    guard.forget(KERNEL);
    guard.due.store(LONGEST_TRIAL, Relaxed);
    guard.phase.store(phase::TRIAL, Relaxed);
    tell(s, "the ring seems slower than the kernel", ring, kernel);
    take_back(s, conn, &call);
}

fn take_back(s: &'static Sock, conn: &'static Conn, call: &Call) {
    switch::recall_outgoing(s, conn, Reason::RecalledSlower, call);
    conn.inc().withdraw_consent();
    switch::ask_recall(s, conn, ask::RECALL, Reason::RecalledSlower);
}

/// The trial is over.
fn decide(s: &'static Sock) {
    let guard = &s.guard;
    let (Some(ring), Some(kernel)) = (guard.cost(RING), guard.cost(KERNEL)) else { return release(s) };
    if kernel.saturating_mul(5) / 4 < ring {
        guard.due.store(guard.next_while(), Relaxed);
        guard.phase.store(phase::HELD, Relaxed);
        tell(s, "the kernel is faster", ring, kernel);
    } else {
        tell(s, "the ring is not slower", ring, kernel);
        release(s);
        guard.due.store(guard.next_while(), Relaxed);
    }
}

/// The connection may use rings again.
fn release(s: &'static Sock) {
    s.guard.forget(RING);
    s.guard.due.store(0, Relaxed);
    s.guard.phase.store(phase::WATCH, Relaxed);
    // This was no sign that rings fail here.
    s.end().w.claims.store(0, Relaxed);
    s.end().w.not_before.store(0, Relaxed);
    if let Some(conn) = s.conn.get() {
        switch::consent(s, conn);
    } else {
        rendezvous::attempt_soon(s);
    }
}

fn tell(s: &Sock, what: &str, ring: u64, kernel: u64) {
    let per_us = state::ticks_per_us();
    let ns = |cost: u64| cost * 1000 / per_us;
    log::line(
        LogLevel::Info,
        format_args!("fd {}: {what}: {} ns and {} ns for a KiB", s.carrier(), ns(ring), ns(kernel)),
    );
}
