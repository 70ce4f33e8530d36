//! A small lock between the threads of one process, for bookkeeping that is off the data path.
//!
//! It knows its owner, so a signal handler that interrupts its own thread inside the lock is told so instead of
//! waiting for ever, and a forked child can free locks that other threads of the parent held.

use crate::fault;
use crate::thread::{Busy, Call};
use bypath_sys::{clock, futex, thread};
use std::sync::atomic::{AtomicU32, Ordering::*, compiler_fence};

const CONTENDED: u32 = 1 << 31;
/// Whoever has it is out of this library, where it may wait for others: [`Held::goes_away`].
const AWAY: u32 = 1 << 30;
/// Somebody has waited for that for long.
const LATE: u32 = 1 << 29;
const OWNER: u32 = LATE - 1;
/// In place of an owner who is away: no thread has this id.
const NO_THREAD: u32 = OWNER;
/// Who waits looks again so often.
const LOOKS_NS: u64 = 10_000_000;
/// So long those that are away are waited for, at most and at least: less where that was in vain.
const PATIENCE_US: [u32; 2] = [50_000, 1_000];

/// The lock.
#[derive(Debug)]
pub struct Lock {
    /// Owner's thread id, and how it is with it.
    word: AtomicU32,
    /// The same of who [goes past](Lock::lock_past) those that are away.
    stand_in: AtomicU32,
    /// How many are away.
    away: AtomicU32,
    patience_us: AtomicU32,
}

/// Holding the lock. Signal handlers wait until it is given back.
#[derive(Debug)]
pub struct Held<'a> {
    lock: &'a Lock,
    is_stand_in: bool,
    // Dropped after the lock is free.
    call: Option<Call>,
}

/// Who was holding the lock, and is out of this library: nobody else takes it meanwhile but to [go past](Lock::lock_past).
#[derive(Debug)]
pub struct Away<'a> {
    lock: &'a Lock,
    call: Option<Call>,
}

/// What is done where those that have the lock are away for long: they may wait for another lock that the caller has.
#[derive(Clone, Copy, PartialEq)]
enum Late {
    Waits,
    GivesUp,
    GoesPast,
}

impl Lock {
    /// Unlocked.
    pub const fn new() -> Lock {
        Lock {
            word: AtomicU32::new(0),
            stand_in: AtomicU32::new(0),
            away: AtomicU32::new(0),
            patience_us: AtomicU32::new(PATIENCE_US[0]),
        }
    }

    /// Takes the lock; `None` if the calling thread (`tid`) holds it already, further out.
    #[inline]
    pub fn lock(&self, tid: u32) -> Option<Held<'_>> {
        self.take(tid, Late::Waits)
    }

    /// The same, and `None`, too, if those that have it are [away](Held::goes_away) for long.
    #[inline]
    pub fn lock_soon(&self, tid: u32) -> Option<Held<'_>> {
        self.take(tid, Late::GivesUp)
    }

    /// As [`Lock::lock`], and beside those that are [away](Held::goes_away) for long, as the only one: for what they need not know of.
    #[inline]
    pub fn lock_past(&self, tid: u32) -> Option<Held<'_>> {
        self.take(tid, Late::GoesPast)
    }

    #[inline]
    fn take(&self, tid: u32, late: Late) -> Option<Held<'_>> {
        let call = Call::enter();
        // The only thread of a process needs no locked instruction: its signal handlers leave the lock as it was.
        if thread::is_the_only_one() && self.word.load(Relaxed) == 0 {
            fault::between("alone-in-process");
            self.word.store(tid, Relaxed);
            compiler_fence(SeqCst);
            return Some(Held { lock: self, is_stand_in: false, call });
        }
        self.contend(tid, call, late)
    }

    /// A thread that sleeps here is outside of its call: the owner may be in [`crate::thread::quiesce`], which waits
    /// for all that are inside.
    fn contend(&self, tid: u32, mut call: Option<Call>, late: Late) -> Option<Held<'_>> {
        let (mut spins, mut until) = (0, None);
        loop {
            match self.word.compare_exchange(0, tid, Acquire, Relaxed) {
                Ok(_) => return Some(Held { lock: self, is_stand_in: false, call }),
                Err(owner) if owner & OWNER == tid => return None,
                Err(_) if spins < 100 => {
                    spins += 1;
                    std::hint::spin_loop();
                }
                Err(_) if self.stand_in.load(Relaxed) & OWNER == tid => return None,
                Err(owner) => {
                    let is_patient = late == Late::Waits || owner & AWAY == 0;
                    let is_late = !is_patient && {
                        let now = clock::monotonic_ns();
                        owner & LATE != 0 || now > *until.get_or_insert_with(|| now + self.patience_ns())
                    };
                    let waiting = owner | if is_late { LATE } else { CONTENDED };
                    if owner != waiting
                        && self.word.compare_exchange(owner, waiting, SeqCst, Relaxed).is_err()
                    {
                        continue;
                    }
                    if !is_late {
                        let long = if is_patient { LOOKS_NS } else { self.patience_ns().min(LOOKS_NS) };
                        sleep(&self.word, waiting, long, &mut call);
                    } else if late == Late::GivesUp {
                        return None;
                    } else if self.take_stand_in(tid, &mut call) {
                        return Some(Held { lock: self, is_stand_in: true, call });
                    }
                }
            }
        }
    }

    /// Takes the place beside those that are away; `false` if there is none any more.
    fn take_stand_in(&self, tid: u32, call: &mut Option<Call>) -> bool {
        while let Err(owner) = self.stand_in.compare_exchange(0, tid, SeqCst, Relaxed) {
            let waiting = owner | CONTENDED;
            if owner == waiting || self.stand_in.compare_exchange(owner, waiting, SeqCst, Relaxed).is_ok() {
                sleep(&self.stand_in, waiting, LOOKS_NS, call);
            }
        }
        // Who is back takes this place, too, before the lock is given back.
        let is_one = self.word.load(SeqCst) & AWAY != 0;
        if !is_one {
            free(&self.stand_in);
        }
        is_one
    }

    fn patience_ns(&self) -> u64 {
        u64::from(self.patience_us.load(Relaxed)) * 1000
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self, tid: u32) -> Option<Held<'_>> {
        let call = Call::enter();
        let free = self.word.compare_exchange(0, tid, Acquire, Relaxed);
        free.ok().map(|_| Held { lock: self, is_stand_in: false, call })
    }

    /// Whether somebody went on [without it](Lock::lock_soon), or [past](Lock::lock_past) those that are away.
    pub fn is_gone_past(&self) -> bool {
        self.word.load(SeqCst) & LATE != 0
    }

    /// In a forked child: whoever held it does not exist here.
    pub fn reset(&self) {
        for word in [&self.word, &self.stand_in, &self.away] {
            if word.load(Relaxed) != 0 {
                word.store(0, Release);
            }
        }
    }
}

/// Sleeps as long as this stands there, outside of the call.
fn sleep(word: &AtomicU32, value: u32, long: u64, call: &mut Option<Call>) {
    let _busy = Busy::begin();
    drop(call.take());
    futex::wait(word, value, long);
    *call = Call::enter();
}

fn free(word: &AtomicU32) {
    if word.swap(0, SeqCst) & CONTENDED != 0 {
        futex::wake(word, 1);
    }
}

impl<'a> Held<'a> {
    /// Keeps it for while the owner is out of this library, where it may have to wait for what other threads have.
    pub fn goes_away(mut self) -> Away<'a> {
        let (lock, call) = (self.lock, self.call.take());
        lock.away.fetch_add(1, SeqCst);
        if self.is_stand_in {
            // Dropped: those that are away have it together.
            drop(self);
        } else {
            std::mem::forget(self);
            let _ = lock.word.fetch_update(SeqCst, SeqCst, |word| Some(word & !OWNER | NO_THREAD | AWAY));
        }
        Away { lock, call }
    }
}

impl<'a> Away<'a> {
    /// It is back. The last one has the lock again, and looks after what [others](Lock::lock_soon) have left to it.
    pub fn comes_back(mut self, tid: u32) -> Option<Held<'a>> {
        let (lock, mut call) = (self.lock, self.call.take());
        if !lock.take_stand_in(tid, &mut call) {
            return None;
        }
        let held = (lock.away.fetch_sub(1, SeqCst) == 1).then(|| {
            let [most, least] = PATIENCE_US;
            let was = lock.patience_us.load(Relaxed);
            let back = |word: u32| Some(word & CONTENDED | tid);
            let late = lock.word.fetch_update(SeqCst, SeqCst, back).is_ok_and(|word| word & LATE != 0);
            let next = if late { (was / 4).max(least) } else { (was + was.div_ceil(8)).min(most) };
            if next != was {
                lock.patience_us.store(next, Relaxed);
            }
            Held { lock, is_stand_in: false, call }
        });
        free(&lock.stand_in);
        held
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.is_stand_in {
            free(&self.lock.stand_in);
        } else if thread::is_the_only_one() {
            self.lock.word.store(0, Release);
        } else if self.lock.word.swap(0, Release) & CONTENDED != 0 {
            futex::wake(&self.lock.word, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_lock_is_refused_and_freed_by_the_owner() {
        let lock = Lock::new();
        let held = lock.lock(7).unwrap();
        assert!(lock.lock(7).is_none());
        assert!(lock.try_lock(8).is_none());
        drop(held);
        assert!(lock.lock(8).is_some());
    }

    #[test]
    fn a_lock_of_a_thread_that_is_no_more_is_free_again() {
        let lock = Lock::new();
        lock.word.store(7, Relaxed);
        assert!(lock.try_lock(8).is_none());
        lock.reset();
        assert!(lock.try_lock(8).is_some());
    }

    /// Who holds a lock is inside a call, for which the other test waits.
    static ONE_HOLDS: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn who_is_away_for_long_is_gone_past_by_who_may() {
        let _one = ONE_HOLDS.lock();
        let lock = Lock::new();
        let away = lock.lock(7).unwrap().goes_away();
        assert!(!lock.is_gone_past() && lock.lock_soon(8).is_none() && lock.is_gone_past());
        let began = clock::monotonic_ns();
        assert!(lock.lock_soon(9).is_none(), "it is known to be late");
        assert!(clock::monotonic_ns() - began < lock.patience_ns());
        let stand_in = lock.lock_past(8).unwrap();
        assert!(lock.lock_past(8).is_none() && lock.lock(8).is_none(), "it is held further out");
        assert!(lock.try_lock(9).is_none());
        std::thread::scope(|threads| {
            let others = [
                threads.spawn(|| drop(lock.lock_past(9))),
                threads.spawn(|| drop(lock.lock(10))),
                threads.spawn(|| assert!(away.comes_back(7).is_some())),
            ];
            std::thread::sleep(std::time::Duration::from_nanos(lock.patience_ns()));
            assert!(
                others.iter().all(|other| !other.is_finished()),
                "there is one stand-in, for whom who is back waits"
            );
            drop(stand_in);
        });
        assert!(!lock.is_gone_past() && lock.patience_ns() < u64::from(PATIENCE_US[0]) * 1000);
        assert!([&lock.word, &lock.stand_in, &lock.away].iter().all(|word| word.load(Relaxed) == 0));
    }

    #[test]
    fn those_that_are_away_have_the_lock_until_the_last_one_is_back() {
        let _one = ONE_HOLDS.lock();
        let lock = Lock::new();
        let first = lock.lock(7).unwrap().goes_away();
        let second = lock.lock_past(8).unwrap().goes_away();
        assert!(lock.lock_past(9).is_some(), "the place beside them is free again");
        assert!(first.comes_back(7).is_none());
        assert!(lock.try_lock(9).is_none() && lock.lock_soon(7).is_none());
        drop(second.comes_back(8).unwrap());
        assert!(lock.try_lock(9).is_some());
    }

    #[test]
    fn who_waits_for_the_lock_is_not_waited_for() {
        let _one = ONE_HOLDS.lock();
        bypath_sys::process::membarrier_register().unwrap();
        let lock = Lock::new();
        let held = lock.lock(7).unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| drop(lock.lock(8)));
            while lock.word.load(Relaxed) & CONTENDED == 0 {
                std::thread::yield_now();
            }
            // It looks again every 10 ms, and is inside for that long.
            let quiet = (0..100).any(|_| crate::thread::quiesce());
            drop(held);
            assert!(quiet, "the waiting thread counts as inside");
        });
    }
}
