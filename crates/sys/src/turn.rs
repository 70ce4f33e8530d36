//! Low numbers of the program's descriptor table: the kernel gives the lowest free one, so what this library makes or takes stands there for a moment, where the program
//! may put something itself.

use crate::signal::Blocked;
use crate::{Result, clock, fd, thread};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

/// The number of the thread that takes a number of the program's table for a moment, or replaces one.
static TABLE: AtomicU32 = AtomicU32::new(0);
/// How long it is waited for who replaces one: what that was is closed within the call.
const LONGEST_TURN: u64 = 1_000_000;
/// ... and by who replaces one.
const LONGEST_WAIT: u64 = 100_000_000;

/// So many standard descriptors are there: input, output, errors.
pub const STANDARD: i32 = 3;

/// Whether a [plug](Turn) stands in the place of one of them.
static PLUGGED: [AtomicBool; STANDARD as usize] = [const { AtomicBool::new(false) }; _];

/// Whether a number is closed for the program, and something of ours stands there for a moment.
#[inline]
pub fn is_plug(number: i32) -> bool {
    let may_be = usize::try_from(number).ok().and_then(|number| PLUGGED.get(number));
    may_be.is_some_and(|plug| plug.load(Relaxed)) && fd::is_plug(number)
}

/// In a child that was forked while another thread had one: nothing stands there for it.
pub fn enter_child() {
    for (place, is_plugged) in (0..).zip(&PLUGGED) {
        if is_plugged.swap(false, Relaxed) && fd::is_plug(place) {
            fd::close(place);
        }
    }
}

/// While it lives no other thread of this process that has one takes descriptors, or replaces one by another (dup2): what was taken stands at a low number
/// first, which may be the one that is replaced. It does not stand at the numbers of the standard descriptors, to which programs write that have closed them.
#[derive(Debug)]
pub struct Turn {
    is_held: bool,
    /// Standard descriptors that are closed, in whose places something stands: read(2) and write(2) by them fail as before.
    plugs: [bool; 3],
    /// While something is taken. A handler may replace what stands at a low number.
    _blocked: Option<Blocked>,
}

impl Turn {
    /// For a call that may not come to nothing, and goes on without it where somebody takes very long: who has it may wait for who waits here.
    pub fn to_replace() -> Turn {
        Turn { is_held: Turn::within(LONGEST_WAIT).unwrap_or(false), plugs: [false; 3], _blocked: None }
    }

    /// For one that may: `None` where somebody takes his time.
    pub fn to_take() -> Option<Turn> {
        let blocked = Blocked::all();
        Turn::within(LONGEST_TURN).map(|is_held| Turn::taking(is_held, blocked))
    }

    /// For what is made, or opened for a moment: as [`Turn::to_replace`].
    pub fn to_make() -> Turn {
        let blocked = Blocked::all();
        Turn::taking(Turn::within(LONGEST_WAIT).unwrap_or(false), blocked)
    }

    fn taking(is_held: bool, blocked: Blocked) -> Turn {
        let mut turn = Turn { is_held, plugs: [false; 3], _blocked: Some(blocked) };
        for ((place, plug), is_plugged) in (0..).zip(&mut turn.plugs).zip(&PLUGGED) {
            if fd::is_cloexec(place).is_err() {
                // First: who closes the number looks whether it is one.
                is_plugged.store(true, SeqCst);
                *plug = fd::plug(place);
                is_plugged.store(*plug, SeqCst);
            }
        }
        turn
    }

    /// Whether it was taken, or the thread has it; `None`: too late.
    fn within(patience: u64) -> Option<bool> {
        let (own, mut until) = (thread::tid(), None);
        loop {
            match TABLE.compare_exchange(0, own, Acquire, Relaxed) {
                Ok(_) => return Some(true),
                // A handler's call interrupts one that has it, and goes before it.
                Err(other) if other == own => return Some(false),
                // A thread of the process that this one was forked from, or one that was killed.
                Err(other) if !thread::is_alive(other) => {
                    let _ = TABLE.compare_exchange(other, 0, Relaxed, Relaxed);
                }
                Err(_) => {
                    let now = clock::monotonic_ns();
                    if now > *until.get_or_insert(now + patience) {
                        return None;
                    }
                    thread::yield_now();
                }
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        for ((place, plug), is_plugged) in (0..).zip(self.plugs).zip(&PLUGGED) {
            if plug {
                // The C library closes numbers itself, and has something else there: then it is not ours.
                if fd::is_plug(place) {
                    fd::close(place);
                }
                is_plugged.store(false, Relaxed);
            }
        }
        if self.is_held {
            TABLE.store(0, Release);
        }
    }
}

/// Makes a descriptor that stands at `floor` or above ([`fd::move_high`]), and nowhere else to who replaces one meanwhile.
///
/// # Errors
/// Those of `make`; EMFILE (EINVAL where `floor` is beyond the limit).
pub fn high(floor: i32, make: impl FnOnce() -> Result<i32>) -> Result<i32> {
    let _turn = Turn::to_make();
    fd::move_high(make()?, floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_replaces_a_descriptor_waits_for_who_takes_one_and_not_for_itself() {
        let turn = Turn::to_take().unwrap();
        assert!(Turn::to_take().is_some(), "a handler");
        let other = std::thread::spawn(|| Turn::to_take().is_none());
        assert!(other.join().unwrap());
        let other = std::thread::spawn(|| drop(Turn::to_replace()));
        drop(turn);
        other.join().unwrap();
    }
}
