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

/// Beside a program that spins it looks so long after there was work (ns), until so long after the program was last seen (ns).
const BESIDE: u64 = 50_000;
const BESIDE_FOR: u64 = 2_000_000;
/// It changes the processor so often at most (ns).
const BETWEEN_MOVES: u64 = 10_000_000;

/// What to do where there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    Sleep,
    Look,
    /// Go to this processor, and look there.
    Move(u32),
}

/// When to look again, and when to sleep.
#[derive(Debug)]
pub struct Busy {
    /// Nanoseconds; 0: never, unless a program spins.
    window: u64,
    /// There was work since the last look.
    worked: bool,
    /// It looks until then.
    until: u64,
    /// When it looked last, if it has not slept since.
    looked: Option<u64>,
    /// It sleeps at once before.
    paused_until: u64,
    /// Until then a program counts as one that spins.
    beside_until: u64,
    /// Where it did last.
    spinner: Option<u32>,
    /// When the processor was changed last.
    moved: u64,
}

impl Busy {
    pub fn new(window: Duration) -> Busy {
        let window = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        Busy {
            window,
            worked: false,
            until: 0,
            looked: None,
            paused_until: 0,
            beside_until: 0,
            spinner: None,
            moved: 0,
        }
    }

    /// There was something to do.
    pub const fn works(&mut self) {
        self.worked = true;
    }

    /// A program spins, on this processor.
    pub const fn beside(&mut self, spinner: u32, now: u64) {
        self.beside_until = now.saturating_add(BESIDE_FOR);
        self.spinner = Some(spinner);
    }

    /// There is nothing to do now, on this processor.
    pub fn rest(&mut self, now: u64, own: u32) -> Rest {
        if now >= self.beside_until {
            self.spinner = None;
        }
        let window = if now < self.beside_until { self.window.max(BESIDE) } else { self.window };
        if window == 0 && self.looked.is_none() {
            return Rest::Sleep;
        }
        // What was done in between may have taken long.
        let alone = !std::mem::take(&mut self.worked);
        let mut to = None;
        if alone && self.looked.is_some_and(|looked| now.saturating_sub(looked) > GAP) {
            match self.spinner {
                // Who spins gives the processor back each time he looks in vain.
                Some(spinner) if spinner == own => {}
                Some(spinner) if now.saturating_sub(self.moved) > BETWEEN_MOVES => {
                    self.moved = now;
                    to = Some(spinner);
                }
                Some(_) => self.paused_until = now.saturating_add(BETWEEN_MOVES),
                None => self.paused_until = now.saturating_add(PAUSE),
            }
        }
        if !alone {
            self.until = now.saturating_add(window);
        }
        let looks = now < self.until && now >= self.paused_until;
        self.looked = looks.then_some(now);
        match to {
            Some(to) => Rest::Move(to),
            None if looks => Rest::Look,
            None => Rest::Sleep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 50_000;

    const OWN: u32 = 1;

    fn looks(busy: &mut Busy, now: u64) -> bool {
        busy.rest(now, OWN) == Rest::Look
    }

    fn busy() -> Busy {
        Busy::new(Duration::from_nanos(WINDOW))
    }

    #[test]
    fn it_looks_for_a_while_after_there_was_work() {
        let mut busy = busy();
        assert!(!looks(&mut busy, 1000), "nothing was ever done");
        busy.works();
        assert!(looks(&mut busy, 2000) && looks(&mut busy, 3000) && looks(&mut busy, 2000 + WINDOW - 1));
        assert!(!looks(&mut busy, 2000 + WINDOW) && !looks(&mut busy, 2001 + WINDOW));
        busy.works();
        assert!(looks(&mut busy, 900_000), "after a long sleep there was work again");
    }

    #[test]
    fn who_is_not_alone_sleeps() {
        let mut busy = Busy::new(Duration::from_secs(1));
        busy.works();
        assert!(looks(&mut busy, 0) && looks(&mut busy, GAP));
        let late = GAP + GAP + 1;
        assert!(!looks(&mut busy, late), "another thread ran");
        busy.works();
        assert!(!looks(&mut busy, late + 1000) && !looks(&mut busy, late + PAUSE - 1));
        busy.works();
        assert!(looks(&mut busy, late + PAUSE));
    }

    #[test]
    fn work_that_takes_long_is_no_gap() {
        let mut busy = Busy::new(Duration::from_secs(1));
        busy.works();
        assert!(looks(&mut busy, 0));
        busy.works();
        assert!(looks(&mut busy, 10 * GAP));
    }

    #[test]
    fn without_a_window_it_sleeps() {
        let mut busy = Busy::new(Duration::ZERO);
        busy.works();
        assert!(!looks(&mut busy, 1));
    }

    #[test]
    fn beside_a_program_that_spins_it_looks() {
        let mut busy = Busy::new(Duration::ZERO);
        busy.beside(OWN, 1000);
        busy.works();
        assert!(looks(&mut busy, 2000) && looks(&mut busy, 2000 + BESIDE - 1));
        assert!(!looks(&mut busy, 2000 + BESIDE), "there was no work for a while");
        busy.works();
        assert!(looks(&mut busy, 500_000), "there is work again");
        busy.works();
        assert!(!looks(&mut busy, 1000 + BESIDE_FOR), "the program spins no more");
    }

    #[test]
    fn who_spins_here_gives_the_processor_back() {
        let mut busy = Busy::new(Duration::from_secs(1));
        busy.beside(OWN, 0);
        busy.works();
        assert!(looks(&mut busy, 0) && looks(&mut busy, GAP + 1) && looks(&mut busy, 3 * GAP));
    }

    #[test]
    fn where_somebody_else_does_not_sleep_it_goes_to_the_spinner_now_and_then() {
        let other = OWN + 1;
        let mut busy = Busy::new(Duration::from_secs(1));
        let start = BETWEEN_MOVES + 1;
        busy.beside(other, start);
        busy.works();
        assert!(looks(&mut busy, start));
        let late = start + GAP + 1;
        assert_eq!(busy.rest(late, OWN), Rest::Move(other));
        assert!(looks(&mut busy, late + 1));
        // It was moved back, by the kernel.
        let later = late + 2 * GAP;
        assert_eq!(busy.rest(later, OWN), Rest::Sleep, "not again so soon");
        busy.works();
        assert!(!looks(&mut busy, later + BETWEEN_MOVES - 1));
        busy.works();
        let last = later + BETWEEN_MOVES;
        assert!(looks(&mut busy, last));
        // The program is gone: nobody is to be gone to.
        assert_eq!(busy.rest(last + 2 * GAP, OWN), Rest::Sleep);
        busy.works();
        assert!(!looks(&mut busy, last + 2 * GAP + PAUSE - 1));
    }
}
