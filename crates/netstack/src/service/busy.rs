//! Looking for work without sleeping, for a while after there was some: who wakes a thread that sleeps waits for the kernel to do it.
//!
//! It is for a thread that has a processor to itself, or shares it with those who sleep while they wait for it. Between two looks it gives
//! the processor to who wants it. If it comes back late there is somebody who does not sleep: for some time the thread sleeps at once,
//! as only who was asleep gets such a processor as soon as there is work.

use std::time::Duration;

/// Between two looks nothing is done that takes as long: another thread had the processor (ns).
const GAP: u64 = 200_000;
/// So long it sleeps at once after that (ns).
const PAUSE: u64 = 200_000_000;

/// When to look again, and when to sleep.
#[derive(Debug)]
pub struct Busy {
    /// Nanoseconds; 0: never.
    window: u64,
    /// There was work since the last look.
    worked: bool,
    /// It looks until then.
    until: u64,
    /// When it looked last, if it has not slept since.
    looked: Option<u64>,
    /// It sleeps at once before.
    paused_until: u64,
}

impl Busy {
    pub fn new(window: Duration) -> Busy {
        let window = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        Busy { window, worked: false, until: 0, looked: None, paused_until: 0 }
    }

    /// There was something to do.
    pub const fn works(&mut self) {
        self.worked = true;
    }

    /// There is nothing to do now: whether to look again in place of sleeping.
    pub fn looks(&mut self, now: u64) -> bool {
        if self.window == 0 {
            return false;
        }
        // What was done in between may have taken long.
        let alone = !std::mem::take(&mut self.worked);
        if alone && self.looked.is_some_and(|looked| now.saturating_sub(looked) > GAP) {
            self.paused_until = now.saturating_add(PAUSE);
        }
        if !alone {
            self.until = now.saturating_add(self.window);
        }
        let looks = now < self.until && now >= self.paused_until;
        self.looked = looks.then_some(now);
        looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 50_000;

    fn busy() -> Busy {
        Busy::new(Duration::from_nanos(WINDOW))
    }

    #[test]
    fn it_looks_for_a_while_after_there_was_work() {
        let mut busy = busy();
        assert!(!busy.looks(1000), "nothing was ever done");
        busy.works();
        assert!(busy.looks(2000) && busy.looks(3000) && busy.looks(2000 + WINDOW - 1));
        assert!(!busy.looks(2000 + WINDOW) && !busy.looks(2001 + WINDOW));
        busy.works();
        assert!(busy.looks(900_000), "after a long sleep there was work again");
    }

    #[test]
    fn who_is_not_alone_sleeps() {
        let mut busy = Busy::new(Duration::from_secs(1));
        busy.works();
        assert!(busy.looks(0) && busy.looks(GAP));
        let late = GAP + GAP + 1;
        assert!(!busy.looks(late), "another thread ran");
        busy.works();
        assert!(!busy.looks(late + 1000) && !busy.looks(late + PAUSE - 1));
        busy.works();
        assert!(busy.looks(late + PAUSE));
    }

    #[test]
    fn work_that_takes_long_is_no_gap() {
        let mut busy = Busy::new(Duration::from_secs(1));
        busy.works();
        assert!(busy.looks(0));
        busy.works();
        assert!(busy.looks(10 * GAP));
    }

    #[test]
    fn without_a_window_it_sleeps() {
        let mut busy = Busy::new(Duration::ZERO);
        busy.works();
        assert!(!busy.looks(1));
    }
}
