//! Sleepers that no ring wakes: all places for their words are taken, or the other end has no bell of theirs.
//!
//! The other end is asked for the carrier then, which wakes anybody, and answers with its next call. Until it has, such a sleeper looks by
//! itself: soon, and ever more rarely while nothing moves. So an end that never answers, which costs that nothing, costs whoever waits for it ten
//! looks a second and no more.

use crate::peer::Conn;
use crate::siblings::PERIOD_NS;
use crate::switch;
use crate::table::Sock;
use bypath_shm::direction::ask;
use bypath_shm::reason::Reason;
use bypath_sys::clock;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// The first looks are so far apart.
pub const FIRST_NS: u64 = 2_000_000;
/// Later ones by this part of the time that nothing has moved for.
const PART: u64 = 8;

/// How often to look at what does not move.
#[derive(Debug)]
pub struct Pace {
    /// Since when nothing has moved (ns of CLOCK_MONOTONIC, 0 = not looked yet), and what was seen then.
    since: AtomicU64,
    seen: AtomicU64,
    /// When the other end was last asked.
    asked: AtomicU64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::new()
    }
}

impl Pace {
    /// Nothing was looked at.
    pub const fn new() -> Pace {
        Pace { since: AtomicU64::new(0), seen: AtomicU64::new(0), asked: AtomicU64::new(0) }
    }

    /// For a new socket.
    pub fn reset(&self) {
        for word in [&self.since, &self.seen, &self.asked] {
            word.store(0, Relaxed);
        }
    }

    /// How long to sleep before the next look, at least `first` ns. `seen` is another number once something has moved.
    pub fn next(&self, seen: u64, first: u64) -> u64 {
        self.at(clock::monotonic_ns(), seen, first)
    }

    fn at(&self, now: u64, seen: u64, first: u64) -> u64 {
        if self.seen.swap(seen, Relaxed) != seen || self.since.load(Relaxed) == 0 {
            self.since.store(now, Relaxed);
            self.asked.store(0, Relaxed);
        }
        // Later than now, too, in a child of another time namespace.
        (now.saturating_sub(self.since.load(Relaxed)) / PART).clamp(first, PERIOD_NS)
    }

    /// Whether it is time to wake the other end for an answer.
    fn is_due(&self, now: u64, pause: u64) -> bool {
        let last = self.asked.load(Relaxed);
        let is_due = last == 0 || now.abs_diff(last) >= pause;
        if is_due {
            self.asked.store(now, Relaxed);
        }
        is_due
    }
}

/// Asks for the carrier, for a sleeper of `s` that nobody wakes. Returns how long that sleeps before it looks by itself.
#[cold]
pub fn ask(s: &'static Sock, conn: &'static Conn, reason: Reason) -> u64 {
    let (inc, now) = (conn.inc(), clock::monotonic_ns());
    let path = (inc.path() as u64).rotate_right(2);
    let moved = inc.t.tail.load(Relaxed).rotate_left(32) ^ inc.wa.switch_k.load(Relaxed) ^ path;
    let pause = s.unwoken.at(now, moved, FIRST_NS);
    if s.unwoken.is_due(now, pause) {
        switch::ask_recall(s, conn, ask::RECALL, reason);
    } else {
        // Whoever woke this thread may have done so because it was woken itself: by what is its own, if it lies.
        inc.ask_recall(ask::RECALL);
    }
    pause
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_does_not_move_is_looked_at_ten_times_a_second_in_the_end() {
        let pace = Pace::new();
        let (mut now, mut looks) = (MS, 0);
        while now < 10_000 * MS {
            now += pace.at(now, 7, FIRST_NS);
            looks += 1;
        }
        assert!((100..160).contains(&looks), "{looks} looks in ten seconds");
        assert_eq!(pace.at(now, 7, FIRST_NS), PERIOD_NS);
        assert_eq!(pace.at(now, 8, FIRST_NS), FIRST_NS);
        assert_eq!(pace.at(now + 80 * MS, 8, FIRST_NS), 10 * MS);
    }

    #[test]
    fn who_is_asked_is_not_woken_each_time() {
        let pace = Pace::new();
        let pause = pace.at(MS, 7, FIRST_NS);
        assert!(pace.is_due(MS, pause));
        assert!(!pace.is_due(MS + 1, pause));
        assert!(pace.is_due(MS + pause, pause));
        // What has moved is another matter.
        let pause = pace.at(2 * MS, 8, FIRST_NS);
        assert!(pace.is_due(2 * MS, pause));
    }
}
