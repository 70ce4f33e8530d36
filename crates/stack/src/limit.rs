//! How often something may be done: so many at once, and so many a second (RFC 4443, 2.4 (f); RFC 1812, 4.3.2.8).

use crate::time::Instant;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Nanoseconds that one costs.
    cost: u64,
    /// Nanoseconds that can be saved up.
    most: u64,
    /// When what was done is paid for.
    paid: u64,
}

impl Limit {
    /// `rate` a second, 0: none at all; after a pause `burst` at once.
    pub const fn new(rate: u32, burst: u32) -> Limit {
        let cost = if rate == 0 { u64::MAX } else { SECOND.div_ceil(rate as u64) };
        Limit { cost, most: cost.saturating_mul(burst as u64), paid: 0 }
    }

    /// Whether it may be done now; if so, it counts.
    pub const fn allows(&mut self, now: Instant) -> bool {
        let now = now.as_nanos();
        if self.cost == u64::MAX {
            return false;
        }
        // What was done is paid for from `paid` on; no more than `most` may be owed.
        let begin = if self.paid > now { self.paid } else { now };
        let end = begin.saturating_add(self.cost);
        if end - now > self.most {
            return false;
        }
        self.paid = end;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(limit: &mut Limit, at: u64, tries: usize) -> usize {
        (0..tries).filter(|_| limit.allows(Instant::from_nanos(at))).count()
    }

    #[test]
    fn a_burst_then_the_rate() {
        let mut limit = Limit::new(10, 5);
        assert_eq!(allowed(&mut limit, 7 * SECOND, 100), 5);
        assert_eq!(allowed(&mut limit, 7 * SECOND + SECOND / 10 - 1, 100), 0);
        assert_eq!(allowed(&mut limit, 7 * SECOND + SECOND / 10, 100), 1);
        // Ten a second, in small steps.
        let most: usize = (0..1000).map(|n| allowed(&mut limit, 8 * SECOND + n * SECOND / 1000, 3)).sum();
        assert!((13..=15).contains(&most), "{most}");
        // A pause saves up no more than the burst.
        assert_eq!(allowed(&mut limit, 900 * SECOND, 100), 5);
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(allowed(&mut Limit::new(0, 5), SECOND, 100), 0);
        assert_eq!(allowed(&mut Limit::new(5, 0), SECOND, 100), 0);
    }
}
