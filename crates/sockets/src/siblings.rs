//! What a sibling that was killed left undone on a shared end, and would be done by nobody: bytes that it was sending
//! again through the carrier, and the wake of a reader. Whoever sends on the end does it in passing; this is for
//! processes of the family that only wait. So is the look at what the other end asks of a process that inherited the
//! end: it marks the inbox of the parent. And whether ends that only send no more are still there, of which TCP tells nothing.

use crate::state::{self, State};
use crate::thread::Call;
use crate::{carrier, flush, switch, table};
use bypath_shm::family::wpath;
use bypath_sys::clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// A sibling may be killed at any time: nobody of a family that shares ends sleeps longer than this.
pub const PERIOD_NS: u64 = 100_000_000;

/// Some mapped end may be shared.
static SHARED: AtomicBool = AtomicBool::new(false);
/// Some other end may have shut its sending side down, and be gone.
static HALVES: AtomicBool = AtomicBool::new(false);
/// When shared ends were last looked at.
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// Before a fork: what is mapped now is shared from now on, in both processes.
pub fn forking() {
    table::each_sock(|s| {
        // Each page that a parent writes after a fork is copied first.
        if s.is_warm() && !SHARED.load(Relaxed) {
            SHARED.store(true, Release);
        }
    });
}

/// Called before a thread sleeps for at most `bound` ns (`None` = for ever): looks after shared ends. Returns how long
/// to sleep: less while there are any.
#[inline]
pub fn before_sleep(call: &Call, bound: Option<u64>) -> Option<u64> {
    if !SHARED.load(Relaxed) {
        return bound;
    }
    look(call);
    if SHARED.load(Relaxed) { Some(bound.unwrap_or(u64::MAX).min(PERIOD_NS)) } else { bound }
}

/// There is an end that has shut its sending side down: whether it is there has to be looked at.
pub fn watch() {
    if !HALVES.load(Relaxed) {
        HALVES.store(true, Release);
        SHARED.store(true, Release);
    }
}

/// Whether there is such an end.
#[inline]
pub fn is_watching() -> bool {
    HALVES.load(Relaxed)
}

/// Looks after such ends, for who does not sleep.
#[inline]
pub fn look_if_due(call: &Call) {
    if HALVES.load(Relaxed) {
        look(call);
    }
}

#[cold]
fn look(call: &Call) {
    let (now, last) = (clock::monotonic_ns(), LOOKED.load(Relaxed));
    // Earlier than that, too, in a child of another time namespace.
    if now.abs_diff(last) < PERIOD_NS / 2 || LOOKED.compare_exchange(last, now, AcqRel, Relaxed).is_err() {
        return;
    }
    let Some(state) = state::get() else { return };
    // Who lives is asked first: who dies after that is found by the next look.
    let living = state.living_places() & !state.bit();
    SHARED.store(false, SeqCst);
    HALVES.store(false, SeqCst);
    table::each_sock(|s| look_after(s, state, living, call));
}

fn look_after(s: &'static table::Sock, state: &State, living: u64, call: &Call) {
    let Some(conn) = s.conn.get() else { return };
    // `switch::is_half_closed` has it looked at again.
    if s.end().w.path.load(Acquire) != wpath::KERNEL && switch::is_half_closed(s, conn) {
        let is_left = state::LIFE.try_lock(table::tid()).is_some_and(|_life| carrier::of(s).is_left(s));
        if is_left {
            switch::peer_ended(s, conn, true, call);
        }
    }
    let others = s.end().holders.load(Acquire) & !state.bit();
    // What the other end asks for it tells the process that it knows: the one that was forked looks for itself.
    let unheard = s.is_inherited() && s.end().w.path.load(Relaxed) != wpath::KERNEL;
    if others == 0 && !unheard {
        return;
    }
    if others & living != 0 || unheard {
        SHARED.store(true, Release);
    }
    flush::finish_for_siblings(s, conn, call);
    if unheard {
        switch::answer_demand(s, conn);
    }
}
