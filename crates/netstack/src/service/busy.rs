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

/// After a connection began it looks so long after there was work (ns), until so long after (ns): what is said to get it going is answered
/// sooner than somebody who sleeps is woken.
const YOUNG: u64 = 30_000;
const YOUNG_FOR: u64 = 1_000_000;
/// It goes on so as long as looks find something more often than not: each that does is one more, up to this many, that may be in vain.
const CREDIT: u32 = 8;
/// Who has none left tries two looks again with one connection of so many.
const RETRY: u32 = 64;

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
    /// Until then a connection counts as young.
    young_until: u64,
    /// Looks beside young connections that may be in vain yet.
    credit: u32,
    /// Connections that began without it.
    unwatched: u32,
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
            young_until: 0,
            credit: CREDIT,
            unwatched: 0,
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

    /// A connection has begun.
    pub fn begins(&mut self, now: u64) {
        if self.credit == 0 {
            self.unwatched += 1;
            if self.unwatched < RETRY {
                return;
            }
            (self.unwatched, self.credit) = (0, 2);
        }
        self.young_until = now.saturating_add(YOUNG_FOR);
    }

    /// How long it looks now.
    fn window(&self, now: u64) -> u64 {
        let beside = if now < self.beside_until { BESIDE } else { 0 };
        let young = if now < self.young_until { YOUNG } else { 0 };
        self.window.max(beside).max(young)
    }

    /// A look found something, or the time for it is over.
    fn learn(&mut self, alone: bool, now: u64) {
        // What others look for, or was looked for long after, says nothing of young connections.
        if self.looked.is_none() || now >= self.young_until.saturating_add(YOUNG) {
            return;
        }
        if !alone {
            self.credit = (self.credit + 1).min(CREDIT);
        } else if now >= self.until {
            self.credit = self.credit.saturating_sub(1);
            if self.credit == 0 {
                self.young_until = 0;
            }
        }
    }

    /// There is nothing to do now, on this processor.
    pub fn rest(&mut self, now: u64, own: u32) -> Rest {
        if now >= self.beside_until {
            self.spinner = None;
        }
        let window = self.window(now);
        if window == 0 && self.looked.is_none() {
            return Rest::Sleep;
        }
        // What was done in between may have taken long.
        let alone = !std::mem::take(&mut self.worked);
        self.learn(alone, now);
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
    fn while_a_connection_is_young_it_looks() {
        let mut busy = Busy::new(Duration::ZERO);
        busy.begins(1000);
        busy.works();
        assert!(looks(&mut busy, 1000) && looks(&mut busy, 1000 + YOUNG - 1));
        assert!(!looks(&mut busy, 1000 + YOUNG));
        busy.works();
        assert!(!looks(&mut busy, 1000 + YOUNG_FOR), "it is young no more");
    }

    #[test]
    fn looks_that_are_in_vain_more_often_than_not_are_left_out() {
        let mut busy = Busy::new(Duration::ZERO);
        let mut now = 0;
        // Whether it looks when there was work beside a new connection; it finds something or does not.
        let mut begins = |busy: &mut Busy, finds: bool| {
            now += 10 * YOUNG_FOR;
            busy.begins(now);
            busy.works();
            let looked = looks(busy, now);
            if finds && looked {
                busy.works();
                busy.rest(now + 1, OWN);
            }
            // The last one finds nothing.
            assert!(!looks(busy, now + 2 * YOUNG));
            looked
        };
        assert!((0..100).all(|_| begins(&mut busy, true)), "as many find something");
        let vain = (0..100).take_while(|_| begins(&mut busy, false)).count();
        assert_eq!(vain, CREDIT as usize - 1, "the last look of all was in vain");
        let tries = (0..10 * RETRY).filter(|_| begins(&mut busy, false)).count();
        assert!((10..=22).contains(&tries), "{tries}");
        // It is worth it again.
        let again = (0..RETRY).find(|_| begins(&mut busy, true));
        assert!(again.is_some());
        assert!((0..100).all(|_| begins(&mut busy, true)));
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
