//! A small lock between the threads of one process, for bookkeeping that is off the data path.
//!
//! It knows its owner, so a signal handler that interrupts its own thread inside the lock is told so instead of
//! waiting for ever, and a forked child can free locks that other threads of the parent held.

use crate::fault;
use crate::thread::Call;
use bypath_sys::{clock, futex, thread};
use std::sync::atomic::{AtomicU32, Ordering::*, compiler_fence};

const CONTENDED: u32 = 1 << 31;
/// The owner is out of this library, where it may wait for others: [`Held::goes_away`].
const AWAY: u32 = 1 << 30;
/// Somebody has waited for that for long.
const LATE: u32 = 1 << 29;
const OWNER: u32 = LATE - 1;
/// Who waits looks again so often.
const LOOKS_NS: u64 = 10_000_000;
/// So long an owner that is away is waited for, at most and at least: less where that was in vain.
const PATIENCE_US: [u32; 2] = [50_000, 1_000];

/// The lock: owner's thread id, and how it is with it.
#[derive(Debug)]
pub struct Lock {
    word: AtomicU32,
    patience_us: AtomicU32,
}

/// Holding the lock. Signal handlers wait until it is given back.
#[derive(Debug)]
pub struct Held<'a> {
    lock: &'a Lock,
    // Dropped after the lock is free.
    _call: Option<Call>,
}

impl Lock {
    /// Unlocked.
    pub const fn new() -> Lock {
        Lock { word: AtomicU32::new(0), patience_us: AtomicU32::new(PATIENCE_US[0]) }
    }

    /// Takes the lock; `None` if the calling thread (`tid`) holds it already, further out.
    #[inline]
    pub fn lock(&self, tid: u32) -> Option<Held<'_>> {
        self.take(tid, false)
    }

    /// The same, and `None`, too, if the owner is [away](Held::goes_away) for long: it may wait for a lock that the caller has.
    #[inline]
    pub fn lock_soon(&self, tid: u32) -> Option<Held<'_>> {
        self.take(tid, true)
    }

    #[inline]
    fn take(&self, tid: u32, gives_up: bool) -> Option<Held<'_>> {
        let call = Call::enter();
        // The only thread of a process needs no locked instruction: its signal handlers leave the lock as it was.
        if thread::is_the_only_one() && self.word.load(Relaxed) == 0 {
            fault::between("alone-in-process");
            self.word.store(tid, Relaxed);
            compiler_fence(SeqCst);
            return Some(Held { lock: self, _call: call });
        }
        self.contend(tid, call, gives_up)
    }

    /// A thread that sleeps here is outside of its call: the owner may be in [`crate::thread::quiesce`], which waits
    /// for all that are inside.
    fn contend(&self, tid: u32, mut call: Option<Call>, gives_up: bool) -> Option<Held<'_>> {
        let (mut spins, mut until) = (0, None);
        loop {
            match self.word.compare_exchange(0, tid, Acquire, Relaxed) {
                Ok(_) => return Some(Held { lock: self, _call: call }),
                Err(owner) if owner & OWNER == tid => return None,
                Err(_) if spins < 100 => {
                    spins += 1;
                    std::hint::spin_loop();
                }
                Err(owner) => {
                    let is_late = gives_up && owner & AWAY != 0 && {
                        let now = clock::monotonic_ns();
                        owner & LATE != 0 || now > *until.get_or_insert_with(|| now + self.patience_ns())
                    };
                    let waiting = owner | if is_late { LATE } else { CONTENDED };
                    if owner != waiting
                        && self.word.compare_exchange(owner, waiting, SeqCst, Relaxed).is_err()
                    {
                        continue;
                    }
                    if is_late {
                        return None;
                    }
                    drop(call.take());
                    let long = if gives_up && owner & AWAY != 0 { self.patience_ns() } else { LOOKS_NS };
                    futex::wait(&self.word, waiting, long.min(LOOKS_NS));
                    call = Call::enter();
                }
            }
        }
    }

    fn patience_ns(&self) -> u64 {
        u64::from(self.patience_us.load(Relaxed)) * 1000
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self, tid: u32) -> Option<Held<'_>> {
        let call = Call::enter();
        self.word.compare_exchange(0, tid, Acquire, Relaxed).ok().map(|_| Held { lock: self, _call: call })
    }

    /// Whether somebody went on [without it](Lock::lock_soon), as its owner is away.
    pub fn is_gone_past(&self) -> bool {
        self.word.load(SeqCst) & LATE != 0
    }

    /// In a forked child: whoever held it does not exist here.
    pub fn reset(&self) {
        if self.word.load(Relaxed) != 0 {
            self.word.store(0, Release);
        }
    }
}

impl Held<'_> {
    /// The owner keeps it while it is out of this library, where it may have to wait for what other threads have.
    pub fn goes_away(&self) {
        self.lock.word.fetch_or(AWAY, SeqCst);
    }

    /// It is back, and looks after what others have left to it, if [somebody did](Lock::is_gone_past).
    pub fn comes_back(&self) {
        let [most, least] = PATIENCE_US;
        let was = self.lock.patience_us.load(Relaxed);
        let late = self.lock.word.fetch_and(!(AWAY | LATE), SeqCst) & LATE != 0;
        let next = if late { (was / 4).max(least) } else { (was + was.div_ceil(8)).min(most) };
        if next != was {
            self.lock.patience_us.store(next, Relaxed);
        }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if thread::is_the_only_one() {
            return self.lock.word.store(0, Release);
        }
        if self.lock.word.swap(0, Release) & CONTENDED != 0 {
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
    fn an_owner_that_is_away_for_long_is_gone_past_by_who_may() {
        let _one = ONE_HOLDS.lock();
        let lock = Lock::new();
        let held = lock.lock(7).unwrap();
        held.goes_away();
        assert!(!lock.is_gone_past() && lock.lock_soon(8).is_none() && lock.is_gone_past());
        let began = clock::monotonic_ns();
        assert!(lock.lock_soon(9).is_none(), "it is known to be late");
        assert!(clock::monotonic_ns() - began < lock.patience_ns());
        let before = lock.patience_ns();
        held.comes_back();
        assert!(!lock.is_gone_past() && lock.patience_ns() < before);
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| lock.lock_soon(8).is_some());
            std::thread::sleep(std::time::Duration::from_nanos(2 * before));
            assert!(!waits.is_finished(), "who is not away is waited for");
            drop(held);
            assert!(waits.join().unwrap());
        });
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
