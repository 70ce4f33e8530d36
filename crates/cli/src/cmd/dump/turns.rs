//! In which order rings and mailboxes are read, and how many of them in one look.

use crate::connections::is_trusted;
use std::cmp::Reverse;
use std::collections::HashMap;

/// In one look: 1 ms for what one other user's processes have, 4 ms for what all other users' have.
type Effort = crate::effort::Effort<1, 4>;

/// What is read: whose it is, and at which look it was read last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    user: u32,
    look: u64,
}

impl Turn {
    /// One that was never read.
    pub fn of(user: u32) -> Turn {
        Turn { user, look: 0 }
    }
}

/// Looks, one after the other.
#[derive(Debug, Default)]
pub struct Turns {
    /// This is the first one, the second one, ...
    look: u64,
    /// The last look in which a user had something read.
    of_user: HashMap<u32, u64>,
    effort: Effort,
}

impl Turns {
    /// Begins a look. Which of all is read first, and then: what root and the own user have; of other users whoever waits for
    /// longest, and of his what waits for longest.
    pub fn begin(&mut self, all: impl Iterator<Item = Turn>) -> Vec<usize> {
        self.look += 1;
        self.effort = Effort::default();
        let mut order: Vec<_> = all.enumerate().collect();
        let key = |turn: Turn| match is_trusted(turn.user) {
            true => (Reverse(true), 0, 0, 0),
            false => {
                let had = self.of_user.get(&turn.user).copied().unwrap_or(0);
                (Reverse(false), had, turn.user, turn.look)
            }
        };
        order.sort_by_key(|(_, turn)| key(*turn));
        order.into_iter().map(|(at, _)| at).collect()
    }

    /// Whether it is left for the next look: its user has had his time.
    pub fn is_left(&self, turn: Turn) -> bool {
        self.effort.is_over(turn.user)
    }

    /// Reads it.
    pub fn on<R>(&mut self, turn: &mut Turn, f: impl FnOnce() -> R) -> R {
        turn.look = self.look;
        self.of_user.insert(turn.user, self.look);
        self.effort.on(turn.user, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// A user's whole time, and more.
    fn long() {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(5) {}
    }

    /// What is read in one look, each for longer than a user is given.
    fn look(turns: &mut Turns, all: &mut [Turn]) -> Vec<usize> {
        let mut read = Vec::new();
        for at in turns.begin(all.iter().copied()) {
            if !turns.is_left(all[at]) {
                turns.on(&mut all[at], long);
                read.push(at);
            }
        }
        read
    }

    #[test]
    fn who_has_had_his_time_waits_for_the_next_look() {
        let own = bypath_sys::process::euid();
        let (one, other) = (own + 1000, own + 1001);
        let mut turns = Turns::default();
        let mut all = [one, one, own, other, own].map(Turn::of);
        // Of the own user all, at each look, and before what others have; they come one after the other.
        let looks: Vec<_> = (0..5).map(|_| look(&mut turns, &mut all)).collect();
        assert_eq!(looks, [[2, 4, 0], [2, 4, 3], [2, 4, 1], [2, 4, 3], [2, 4, 0]]);
    }

    #[test]
    fn what_takes_no_time_is_read_at_each_look() {
        let own = bypath_sys::process::euid();
        let mut turns = Turns::default();
        let mut all: Vec<_> = (0..3).map(|n| Turn::of(own + 1000 + n)).collect();
        for _ in 0..3 {
            for at in turns.begin(all.clone().into_iter()) {
                assert!(!turns.is_left(all[at]));
                turns.on(&mut all[at], || ());
            }
        }
        assert!(all.iter().all(|turn| turn.look == 3));
    }
}
