//! An exec under way: what the next image does not inherit this process may hold no longer, in a moment.
//!
//! Its bit stays among the holders until somebody who wants to know has asked the kernel: this process locks a byte of the
//! family region's file, and the kernel takes that lock back when the exec closes the descriptor, not before. If the exec
//! fails, nothing has happened. See docs/shm-format.md, "Who may use an end".

use crate::state::{self, State};
use crate::table::{self, Sock, flag};
use crate::{fault, numbers, udp};
use bypath_shm::family::{End, PROCESSES};
use bypath_sys::fd;
use std::sync::atomic::{AtomicU32, Ordering::*};

/// Execs of this process's threads that are under way.
static UNDER_WAY: AtomicU32 = AtomicU32::new(0);

/// Whether a thread of this process is about to become another image: what it holds comes up on no ring.
#[inline]
pub fn is_under_way() -> bool {
    UNDER_WAY.load(SeqCst) != 0
}

/// In a forked child: execs of the parent's other threads are theirs.
pub fn enter_child() {
    if UNDER_WAY.load(Relaxed) != 0 {
        UNDER_WAY.store(0, Relaxed);
    }
}

/// Before anything is taken from rings for an exec.
pub fn begin() {
    UNDER_WAY.fetch_add(1, SeqCst);
}

/// The others of the family are told what the next image will not inherit; `stays` are left to it.
pub fn tell(state: &State, stays: impl Fn(&Sock) -> bool) {
    // Without the lock nothing is told: they take the process for a holder until it ends.
    if let Some(_life) = state::LIFE.lock_past(table::tid())
        && let Some(execs) = own_place(state)
        && state.holds_view()
        && fd::lock_byte(state.view(), place(state), true).is_ok()
    {
        // The lock comes first: who sees an odd number and no lock knows that the exec has happened.
        let before = execs.load(Relaxed);
        execs.store(before.wrapping_add(1 + (before & 1)), SeqCst);
        table::each_sock(|s| {
            if fd::is_cloexec(s.carrier()) == Ok(true) && !s.has(flag::FOR_GOOD) && !stays(s) {
                s.end().r.leaving.fetch_or(state.bit(), AcqRel);
            }
        });
        udp::holders::leaves(state.bit());
    }
    fault::between("exec-told");
}

/// The exec failed.
pub fn failed(state: &State) {
    if let Some(_life) = state::LIFE.lock_past(table::tid())
        && UNDER_WAY.load(SeqCst) == 1
        && let Some(execs) = own_place(state)
        && execs.load(Relaxed) % 2 == 1
    {
        table::each_sock(|s| {
            if s.end().r.leaving.load(Relaxed) & state.bit() != 0 {
                s.end().r.leaving.fetch_and(!state.bit(), AcqRel);
            }
        });
        udp::holders::stays(state.bit());
        execs.fetch_add(1, SeqCst);
        if state.holds_view() {
            let _ = fd::lock_byte(state.view(), place(state), false);
        }
    }
    UNDER_WAY.fetch_sub(1, SeqCst);
}

fn place(state: &State) -> i64 {
    i64::from(state.own().index.load(Relaxed))
}

fn own_place(state: &State) -> Option<&'static AtomicU32> {
    state.family.header.execs.get(state.own().index.load(Relaxed) as usize)
}

/// Whether the process at a place of the table has become another image, which does not hold `end`. Asks the kernel.
fn has_left(state: &State, end: &End, place: u32) -> bool {
    let execs = &state.family.header.execs[place as usize % PROCESSES];
    let said = || end.r.leaving.load(SeqCst) & 1 << place != 0;
    let number = execs.load(SeqCst);
    said()
        && number % 2 == 1
        && state.holds_view()
        && fd::is_byte_locked(state.view(), i64::from(place)) == Ok(false)
        // It may have failed and given the lock back in between.
        && execs.load(SeqCst) == number
        && said()
}

/// Whether no other living process of the family holds `end`: bits of those that have ended, or have become an image that
/// does not hold it, are cleared.
pub fn is_left_to(state: &State, end: &End) -> bool {
    let alone = numbers::is_left_to(state.family, end, state.bit(), |place| has_left(state, end, place));
    let leaving = end.r.leaving.load(Acquire);
    if leaving != 0 {
        // Bits of those that hold it no longer.
        end.r.leaving.fetch_and(!(leaving & !end.holders.load(Acquire)), AcqRel);
    }
    alone
}
