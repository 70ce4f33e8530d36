//! The performance guard (`--guard=on`): a connection on which the ring is slower than the kernel goes back.
//!
//! Measured is what a program waits for: the time from a send to the next receive, on sockets that were connected (and
//! not accepted). The mean of 32 of these exchanges is a window, and the shortest of the last four windows counts for
//! the path they took. Suspicion: half as long again by the ring as by the kernel before the upgrade. Then the connection
//! is taken back for a trial, and the kernel is measured beside. If it is faster by a quarter, and again so in a second
//! trial after four windows by the ring, the connection stays there for a while. If not, it returns to the ring and is not
//! suspected for a while. Each while is twice the last one.

use crate::config::LogLevel;
use crate::flush;
use crate::peer::Conn;
use crate::state;
use crate::switch;
use crate::table::{Sock, flag};
use crate::thread::Call;
use crate::{log, rendezvous};
use bypath_shm::direction::ask;
use bypath_shm::reason::Reason;
use bypath_sys::clock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

/// Exchanges of a window.
const WINDOW: u32 = 32;
/// Windows whose shortest counts.
const KEPT: usize = 4;
/// Fewest exchanges before the upgrade that say something about the kernel.
const FEWEST_COLD: u32 = 4;
/// Trials that have to agree.
const TRIALS: u32 = 2;
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
    /// It is measured at all.
    on: AtomicBool,
    /// When the last send ended (ticks), 0 = it was answered.
    sent: AtomicU64,
    /// Exchanges of this window, and the ticks they took.
    exchanges: AtomicU32,
    ticks: AtomicU64,
    /// Bytes moved before this window, through rings and carrier.
    bytes: [AtomicU64; 2],
    /// Ticks of an exchange in the last windows, by path (ring, carrier); 0 = not known.
    costs: [[AtomicU64; KEPT]; 2],
    windows: [AtomicU32; 2],
    phase: AtomicU32,
    /// Windows until the next decision.
    due: AtomicU32,
    /// Trials in a row that the ring has lost.
    lost: AtomicU32,
    /// How often the while was doubled.
    doubled: AtomicU32,
}

const RING: usize = 0;
const KERNEL: usize = 1;

impl Guard {
    /// For a new socket.
    pub fn reset(&self) {
        for word in [&self.exchanges, &self.phase, &self.due, &self.lost, &self.doubled] {
            word.store(0, Relaxed);
        }
        self.sent.store(0, Relaxed);
        self.ticks.store(0, Relaxed);
        self.on.store(false, Relaxed);
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

/// connect() was called: the connection is measured from now on, if that is wanted.
pub fn connects(s: &Sock) {
    s.guard.on.store(state::config().is_some_and(|c| c.guard), Relaxed);
}

/// A call moved bytes.
#[inline]
pub fn moved(s: &'static Sock, sending: bool) {
    if s.guard.on.load(Relaxed) {
        measure(s, sending);
    }
}

#[cold]
fn measure(s: &'static Sock, sending: bool) {
    let guard = &s.guard;
    if sending {
        return guard.sent.store(clock::ticks(), Relaxed);
    }
    let sent = guard.sent.swap(0, Relaxed);
    if sent == 0 {
        return;
    }
    guard.ticks.fetch_add(clock::ticks().wrapping_sub(sent), Relaxed);
    if guard.exchanges.fetch_add(1, Relaxed) + 1 >= WINDOW {
        window(s);
    }
}

/// Both ends are mapped now: what was measured so far was the kernel.
pub fn upgraded(s: &'static Sock) {
    if s.guard.exchanges.load(Relaxed) >= FEWEST_COLD {
        window(s);
    }
    s.guard.exchanges.store(0, Relaxed);
    s.guard.ticks.store(0, Relaxed);
    s.guard.sent.store(0, Relaxed);
}

/// A window ends and the next begins.
fn window(s: &'static Sock) {
    let (guard, end) = (&s.guard, s.end());
    let bytes = [
        end.w.ring_bytes.load(Relaxed).wrapping_add(end.r.ring_bytes.load(Relaxed)),
        end.w.kernel_bytes.load(Relaxed).wrapping_add(end.r.kernel_bytes.load(Relaxed)),
    ];
    let before = [0, 1].map(|path| guard.bytes[path].swap(bytes[path], Relaxed));
    let exchanges = guard.exchanges.swap(0, Relaxed).max(1);
    let ticks = guard.ticks.swap(0, Relaxed);
    // A window that took both paths says nothing.
    let path = match [0, 1].map(|path| bytes[path] != before[path]) {
        [true, false] => RING,
        [false, true] => KERNEL,
        _ => return,
    };
    judge(s, path, (ticks / u64::from(exchanges)).max(1));
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
    let alone = state::get().is_some_and(|state| s.is_sole_holder(state)) && !s.is_inherited();
    if ring <= kernel.saturating_mul(3) / 2 || !alone || s.has(flag::STAYS | flag::SENT_FIN | flag::NO_READ) {
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
    flush::recall_outgoing(s, conn, Reason::RecalledSlower, call);
    conn.inc().withdraw_consent();
    switch::ask_recall(s, conn, ask::RECALL, Reason::RecalledSlower);
}

/// A trial is over.
fn decide(s: &'static Sock) {
    let guard = &s.guard;
    let (Some(ring), Some(kernel)) = (guard.cost(RING), guard.cost(KERNEL)) else { return release(s) };
    if ring <= kernel / 4 * 5 {
        tell(s, "the ring is not slower", ring, kernel);
        guard.lost.store(0, Relaxed);
        release(s);
        guard.due.store(guard.next_while(), Relaxed);
    } else if guard.lost.fetch_add(1, Relaxed) + 1 < TRIALS {
        release(s);
    } else {
        tell(s, "the kernel is faster", ring, kernel);
        guard.lost.store(0, Relaxed);
        guard.due.store(guard.next_while(), Relaxed);
        guard.phase.store(phase::HELD, Relaxed);
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
        format_args!("fd {}: {what}: {} ns and {} ns for an exchange", s.carrier(), ns(ring), ns(kernel)),
    );
}
