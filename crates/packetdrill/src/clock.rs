//! Real time, or the caller's.

use crate::flags::Time;
use bypath_stack::time::Instant;
use bypath_sys::clock;

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    time: Time,
    /// Of the monotonic clock when it was made, and of the wall clock.
    began: (u64, u64),
    /// Of virtual time.
    now: u64,
}

impl Clock {
    pub fn new(time: Time) -> Clock {
        Clock { time, began: (clock::monotonic_ns(), clock::realtime_ns()), now: 0 }
    }

    pub const fn is_virtual(&self) -> bool {
        matches!(self.time, Time::Virtual)
    }

    pub fn now(&self) -> Instant {
        Instant::from_nanos(match self.time {
            Time::Real => clock::monotonic_ns().saturating_sub(self.began.0),
            Time::Virtual => self.now,
        })
    }

    /// Virtual time is that, unless it is later.
    pub fn advance(&mut self, to: Instant) {
        self.now = self.now.max(to.as_nanos());
    }

    /// Microseconds since 1970.
    pub fn wall(&self, at: Instant) -> i64 {
        ((self.began.1 + at.as_nanos()) / 1000) as i64
    }
}
