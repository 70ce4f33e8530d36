//! A small lock between the threads of one process, for bookkeeping that is off the data path.
//!
//! It knows its owner, so a signal handler that interrupts its own thread inside the lock is told so instead of
//! waiting for ever, and a forked child can free locks that other threads of the parent held.

use crate::fault;
use crate::thread::Call;
use bypath_sys::{futex, thread};
use std::sync::atomic::{AtomicU32, Ordering::*, compiler_fence};

const CONTENDED: u32 = 1 << 31;

/// The lock: owner's thread id, top bit = somebody waits.
#[derive(Debug, Default)]
pub struct Lock(AtomicU32);

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
        Lock(AtomicU32::new(0))
    }

    /// Takes the lock; `None` if the calling thread (`tid`) holds it already, further out.
    #[inline]
    pub fn lock(&self, tid: u32) -> Option<Held<'_>> {
        let call = Call::enter();
        // The only thread of a process needs no locked instruction: its signal handlers leave the lock as it was.
        if thread::is_the_only_one() && self.0.load(Relaxed) == 0 {
            fault::between("alone-in-process");
            self.0.store(tid, Relaxed);
            compiler_fence(SeqCst);
            return Some(Held { lock: self, _call: call });
        }
        self.contend(tid, call)
    }

    /// A thread that sleeps here is outside of its call: the owner may be in [`crate::thread::quiesce`], which waits
    /// for all that are inside.
    fn contend(&self, tid: u32, mut call: Option<Call>) -> Option<Held<'_>> {
        let mut spins = 0;
        loop {
            match self.0.compare_exchange(0, tid, Acquire, Relaxed) {
                Ok(_) => return Some(Held { lock: self, _call: call }),
                Err(owner) if owner & !CONTENDED == tid => return None,
                Err(_) if spins < 100 => {
                    spins += 1;
                    std::hint::spin_loop();
                }
                Err(owner) => {
                    let waiting = owner | CONTENDED;
                    if owner == waiting || self.0.compare_exchange(owner, waiting, Relaxed, Relaxed).is_ok() {
                        drop(call.take());
                        futex::wait(&self.0, waiting, 10_000_000);
                        call = Call::enter();
                    }
                }
            }
        }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self, tid: u32) -> Option<Held<'_>> {
        let call = Call::enter();
        self.0.compare_exchange(0, tid, Acquire, Relaxed).ok().map(|_| Held { lock: self, _call: call })
    }

    /// In a forked child: whoever held it does not exist here.
    pub fn reset(&self) {
        if self.0.load(Relaxed) != 0 {
            self.0.store(0, Release);
        }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if thread::is_the_only_one() {
            return self.lock.0.store(0, Release);
        }
        if self.lock.0.swap(0, Release) & CONTENDED != 0 {
            futex::wake(&self.lock.0, 1);
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
        lock.0.store(7, Relaxed);
        assert!(lock.try_lock(8).is_none());
        lock.reset();
        assert!(lock.try_lock(8).is_some());
    }

    #[test]
    fn who_waits_for_the_lock_is_not_waited_for() {
        bypath_sys::process::membarrier_register().unwrap();
        let lock = Lock::new();
        let held = lock.lock(7).unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| drop(lock.lock(8)));
            while lock.0.load(Relaxed) & CONTENDED == 0 {
                std::thread::yield_now();
            }
            // It looks again every 10 ms, and is inside for that long.
            let quiet = (0..100).any(|_| crate::thread::quiesce());
            drop(held);
            assert!(quiet, "the waiting thread counts as inside");
        });
    }
}
