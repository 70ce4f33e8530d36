//! Low numbers of the program's descriptor table: the kernel gives the lowest free one, so what this library makes or takes stands there for a moment, where the program
//! may put something itself.

use crate::signal::Blocked;
use crate::{Result, clock, fd, futex, thread};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

/// The number of the thread that has something of this library's at a low number for a moment; 0: none.
static TAKER: AtomicU32 = AtomicU32::new(0);
/// How many threads replace what stands at a number, close a standard descriptor, or fork; and of them those that take so long that nobody waits for them any more, or
/// have left by siglongjmp(3).
static REPLACERS: AtomicU32 = AtomicU32::new(0);
static SLOW: AtomicU32 = AtomicU32::new(0);

/// How long another taker is waited for by who may come to nothing,
const LONGEST_TURN: u64 = 1_000_000;
/// and by who may not, and by replacers;
const LONGEST_WAIT: u64 = 100_000_000;
/// and how long those that replace are, which may wait for as long as they like (SO_LINGER, a FIFO without a writer), once.
const LONGEST_REPLACEMENT: u64 = 20_000_000;
/// Looks before it is slept, and how long that is then (ns).
const SPINS: u32 = 64;
const NAP: u64 = 50_000;

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

/// In a forked child: of what other threads did nothing goes on, and no plug stands there for it.
pub fn enter_child() {
    for word in [&TAKER, &REPLACERS, &SLOW] {
        // Written only if need be: each page that a child writes is copied first.
        if word.load(Relaxed) != 0 {
            word.store(0, Relaxed);
        }
    }
    for (place, is_plugged) in (0..).zip(&PLUGGED) {
        if is_plugged.load(Relaxed) {
            is_plugged.store(false, Relaxed);
            if fd::is_plug(place) {
                fd::close(place);
            }
        }
    }
}

/// Waits until `is_over`, which the word tells. False: it took longer than that (ns).
fn waits(patience: u64, word: &AtomicU32, is_over: impl Fn(u32) -> bool) -> bool {
    let mut until = None;
    for looks in 0u32.. {
        let now = word.load(SeqCst);
        if is_over(now) {
            return true;
        }
        if looks < SPINS {
            std::hint::spin_loop();
            continue;
        }
        let time = clock::monotonic_ns();
        if time > *until.get_or_insert(time + patience) {
            return false;
        }
        futex::wait(word, now, NAP);
    }
    false
}

/// While it lives no other thread of this process makes or takes descriptors, nor begins to [replace](Replacing) one: what is made or taken stands at a low number
/// first, which may be the one that is replaced. It does not stand at the numbers of the standard descriptors, to which programs write that have closed them.
#[derive(Debug)]
pub struct Turn {
    is_held: bool,
    /// Standard descriptors that are closed, in whose places something stands: read(2) and write(2) by them fail as before.
    plugs: [bool; STANDARD as usize],
    /// A handler may replace what stands at a low number.
    _blocked: Blocked,
}

impl Turn {
    /// For who may come to nothing: `None` where another thread takes its time.
    pub fn to_take() -> Option<Turn> {
        Turn::within(LONGEST_TURN)
    }

    /// For who may not, and goes on beside others that take very long.
    pub fn to_make() -> Turn {
        Turn::within(LONGEST_WAIT).unwrap_or_else(|| Turn::at_last(false, Blocked::all()))
    }

    fn within(patience: u64) -> Option<Turn> {
        let (own, blocked, took) = (thread::tid(), Blocked::all(), Cell::new(false));
        let takes = |now: u32| {
            // What it does within its turn may take one, too. Who has it may be a thread of the process that this one was forked from.
            let is_free = now == 0 || now != own && !thread::is_alive(now);
            took.set(is_free && TAKER.compare_exchange(now, own, SeqCst, Relaxed).is_ok());
            took.get() || now == own
        };
        waits(patience, &TAKER, takes).then(|| Turn::at_last(took.get(), blocked))
    }

    fn at_last(is_held: bool, blocked: Blocked) -> Turn {
        if !waits(LONGEST_REPLACEMENT, &REPLACERS, |count| count <= SLOW.load(SeqCst)) {
            SLOW.store(REPLACERS.load(SeqCst), SeqCst);
        }
        let mut turn = Turn { is_held, plugs: [false; _], _blocked: blocked };
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
            TAKER.store(0, SeqCst);
        }
    }
}

/// While it lives no other thread begins a [turn](Turn): it replaces what stands at a number by something else (dup2), closes a standard descriptor, or forks. Others that
/// do so do not wait, and who takes very long is waited for no more.
#[derive(Debug)]
pub struct Replacing(());

impl Replacing {
    /// Waits for who has a turn, but not for ever. No system call where nobody has.
    pub fn begin() -> Replacing {
        let begins = |taker: u32| {
            if taker != 0 {
                return false;
            }
            REPLACERS.fetch_add(1, SeqCst);
            // Who has it since waits for those that were here before.
            let is_alone = TAKER.load(SeqCst) == 0;
            if !is_alone {
                ends();
            }
            is_alone
        };
        if !waits(LONGEST_WAIT, &TAKER, begins) {
            REPLACERS.fetch_add(1, SeqCst);
        }
        Replacing(())
    }
}

impl Drop for Replacing {
    fn drop(&mut self) {
        ends();
    }
}

fn ends() {
    // In a child that was forked by a handler meanwhile there is none.
    let _ = REPLACERS.fetch_update(SeqCst, SeqCst, |count| Some(count.saturating_sub(1)));
    SLOW.fetch_min(REPLACERS.load(SeqCst), SeqCst);
}

/// Makes a descriptor that stands at `floor` or above ([`fd::move_high`]), and nowhere else to who replaces one meanwhile. Of 0: one for the program, as the
/// kernel gives it.
///
/// # Errors
/// Those of `make`; EMFILE (EINVAL where `floor` is beyond the limit).
pub fn high(floor: i32, make: impl FnOnce() -> Result<i32>) -> Result<i32> {
    if floor == 0 {
        return make();
    }
    let _turn = Turn::to_make();
    fd::move_high(make()?, floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_replaces_a_descriptor_waits_for_who_takes_one_and_nobody_for_himself() {
        let turn = Turn::to_take().unwrap();
        assert!(Turn::to_take().is_some(), "within a turn");
        let other = std::thread::spawn(|| Turn::to_take().is_none());
        assert!(other.join().unwrap());
        let (begun, other) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _replacing = Replacing::begin();
            begun.send(()).unwrap();
        });
        assert!(other.try_recv().is_err());
        drop(turn);
        other.recv().unwrap();
    }
}
