//! Time, which is always an argument: the stack has no clock.

use core::fmt;
use core::num::NonZeroU64;
use core::ops::Add;
use core::time::Duration;

/// A point of time: nanoseconds since a beginning that the caller chose, and that never goes back. 584 years of them.
///
/// An `Option` of it takes no more memory than it does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(NonZeroU64);

impl Default for Instant {
    fn default() -> Instant {
        Instant::ZERO
    }
}

impl Instant {
    /// The beginning.
    pub const ZERO: Instant = Instant::from_nanos(0);

    /// So many nanoseconds after the beginning; the last one there is counts as the one before.
    pub const fn from_nanos(nanos: u64) -> Instant {
        // One more than is meant: never zero.
        match NonZeroU64::new(nanos.saturating_add(1)) {
            Some(more) => Instant(more),
            None => Instant(NonZeroU64::MIN),
        }
    }

    /// Nanoseconds since the beginning.
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// Time since an earlier point; none if that is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }
}

/// The sooner one of two points of time, if there are any.
#[inline(always)]
pub(crate) fn sooner(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, None) => one,
        (None, other) => other,
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Later; at most the end of all time.
    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Debug for Instant {
    /// In seconds: `12.000345678s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.as_nanos();
        write!(f, "{}.{:09}s", nanos / 1_000_000_000, nanos % 1_000_000_000)
    }
}
