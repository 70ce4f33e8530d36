//! Threads that wait for news of what a lock guards, without its lock: a condition variable would take the lock again as it likes,
//! not in turn.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// News, counted. Whoever waits reads the count under the lock of what he has looked at: no news after that look is missed.
#[derive(Debug, Default)]
pub struct Signal {
    count: Mutex<u64>,
    more: Condvar,
}

impl Signal {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// News so far.
    pub fn count(&self) -> u64 {
        *self.lock()
    }

    /// There is news.
    pub fn raise(&self) {
        *self.lock() += 1;
        self.more.notify_all();
    }

    /// Waits until there is more than `seen`; false: `until` came first.
    pub fn wait(&self, seen: u64, until: Option<Instant>) -> bool {
        let mut count = self.lock();
        while *count == seen {
            count = match until {
                None => self.more.wait(count).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    self.more.wait_timeout(count, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }
}
