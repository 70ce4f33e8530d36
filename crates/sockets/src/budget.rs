//! How long a process waits for others that need not answer: for one of them as long as it takes, for many of them, or one again and again, not.

use bypath_sys::clock;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// In the long run one part in so many of all time is waited.
const SHARE: u64 = 20;

/// Time for waits: so much at once, which comes back slowly.
#[derive(Debug)]
pub struct Budget {
    most: u64,
    /// When all of it is there again (ns).
    whole_at: AtomicU64,
}

impl Budget {
    pub const fn new(most_ns: u64) -> Budget {
        Budget { most: most_ns, whole_at: AtomicU64::new(0) }
    }

    /// What is left of it (ns).
    pub fn left(&self) -> u64 {
        self.left_at(clock::monotonic_ns())
    }

    fn left_at(&self, now: u64) -> u64 {
        self.most.saturating_sub(self.whole_at.load(Relaxed).saturating_sub(now) / SHARE)
    }

    /// From `since` (monotonic, ns) to now was waited.
    pub fn spend(&self, since: u64) {
        self.spend_at(since, clock::monotonic_ns());
    }

    fn spend_at(&self, since: u64, now: u64) {
        let spent = now.saturating_sub(since).saturating_mul(SHARE);
        let none_left = now.saturating_add(self.most.saturating_mul(SHARE));
        let later = |whole_at: u64| Some(whole_at.max(now).saturating_add(spent).min(none_left));
        let _ = self.whole_at.fetch_update(Relaxed, Relaxed, later);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_waited_comes_back_slowly() {
        let budget = Budget::new(1000);
        let now = 1 << 40;
        assert_eq!(budget.left_at(now), 1000);
        budget.spend_at(now - 300, now);
        assert_eq!((budget.left_at(now), budget.left_at(now + 2000)), (700, 800));
        budget.spend_at(now, now + 4000);
        assert_eq!(
            (budget.left_at(now + 4000), budget.left_at(now + 14_000)),
            (0, 500),
            "never less than nothing"
        );
        assert_eq!(budget.left_at(now + 1_000_000), 1000);
        // Who waits no longer than the twentieth part of the time always may.
        for turn in 0..1000 {
            let now = now + 2_000_000 + turn * 1000;
            assert!(budget.left_at(now) >= 50, "{turn}");
            budget.spend_at(now - 49, now);
        }
    }
}
