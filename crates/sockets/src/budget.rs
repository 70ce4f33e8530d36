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

/// What took longer of a processor is followed by a rest.
const LITTLE_NS: u64 = 1_000_000;
/// And never by a longer one.
const LONGEST_REST_NS: u64 = 60_000_000_000;

/// What others can make slow, as the kernel tells all who watch when it is done, is not done again before the rest of the time has passed of which it has had its part.
#[derive(Debug)]
pub struct Rest {
    /// ns of CLOCK_MONOTONIC.
    until: AtomicU64,
}

impl Rest {
    pub const fn new() -> Rest {
        Rest { until: AtomicU64::new(0) }
    }

    pub fn is_over(&self) -> bool {
        self.is_over_at(clock::monotonic_ns())
    }

    fn is_over_at(&self, now: u64) -> bool {
        // Further away than any: of another time namespace.
        self.until.load(Relaxed).saturating_sub(now).wrapping_sub(1) >= LONGEST_REST_NS
    }

    /// Does it.
    pub fn after<R>(&self, slow: impl FnOnce() -> R) -> R {
        let before = clock::thread_ns();
        let done = slow();
        self.took(clock::thread_ns().saturating_sub(before), clock::monotonic_ns());
        done
    }

    fn took(&self, ns: u64, now: u64) {
        if ns > LITTLE_NS {
            let rest = ns.saturating_mul(SHARE).min(LONGEST_REST_NS);
            self.until.store(now.saturating_add(rest), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_slow_has_a_rest_of_its_length() {
        let (rest, now) = (Rest::new(), 1 << 40);
        assert!(rest.is_over_at(now));
        rest.took(LITTLE_NS, now);
        assert!(rest.is_over_at(now));
        rest.took(2 * LITTLE_NS, now);
        assert!(!rest.is_over_at(now) && !rest.is_over_at(now + 2 * SHARE * LITTLE_NS - 1));
        assert!(rest.is_over_at(now + 2 * SHARE * LITTLE_NS));
        rest.took(u64::MAX, now);
        assert!(!rest.is_over_at(now) && rest.is_over_at(now + LONGEST_REST_NS));
        assert!(rest.is_over_at(now - 1), "before it began");
    }

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
