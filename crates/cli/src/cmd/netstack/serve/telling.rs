//! How often a service says what happened on its links: hosts there make it happen, as often as they like.

use bypath_stack::limit::Limit;
use bypath_stack::time::Instant;

/// Lines at once, and lines of a second in the long run.
const AT_ONCE: u32 = 50;
const OF_SECOND: u32 = 1;

/// What was said.
#[derive(Debug)]
pub struct Telling {
    limit: Limit,
    /// Lines since the last one that was.
    left_out: u64,
}

impl Telling {
    pub const fn new() -> Telling {
        Telling { limit: Limit::new(OF_SECOND, AT_ONCE), left_out: 0 }
    }

    /// Whether one more line may be written now, and how many were not before it.
    pub const fn next(&mut self, now: Instant) -> Option<u64> {
        if !self.limit.allows(now) {
            self.left_out += 1;
            return None;
        }
        Some(std::mem::replace(&mut self.left_out, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hosts_of_the_link_make_a_service_say_has_an_end() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let mut telling = Telling::new();
        let said = (0..10_000).filter(|n| telling.next(at(1_000_000 + n / 10)).is_some()).count();
        assert_eq!(said, AT_ONCE as usize);
        assert_eq!(telling.next(at(1_001_500)), Some(10_000 - u64::from(AT_ONCE)));
        assert_eq!(telling.next(at(1_002_500)), Some(0));
    }
}
