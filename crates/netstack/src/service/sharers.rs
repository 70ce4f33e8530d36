//! Users whose processes share memory with the service: how many processes and bells each of them has, how many inboxes and marks of theirs are
//! looked at in one turn, and how often the service had to wait for memory of theirs.
//!
//! A user who means harm can do two things with memory that both sides write. He can lie there, which costs him his connection, or in an inbox,
//! which is of no connection, the rings of all of them. And he can give pages back to the kernel (FALLOC_FL_PUNCH_HOLE, MADV_REMOVE) while the service touches them: it waits until that is done. No seal
//! forbids it to who may write. One wait is as long as the memory is large, so arenas of such users are small; and who makes the
//! service wait often, or long, has no rings any more, and loses the connections that had some.

use bypath_sys::{clock, thread};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Processes of one user that have rings, at once. Each has two descriptors of the service, and one for each arena.
const PROCESSES: usize = 1024;
/// Bells of all processes of one user.
const BELLS: usize = 8192;
/// Inboxes of one user that are looked at in one turn, and marks after which it is enough: the others wait for the next turn.
pub const INBOXES: usize = 64;
const MARKS: usize = 1024;
/// Waits within [`SPAN`] that are one too many.
const WAITS: u32 = 64;
/// One second (ns).
const SPAN: u64 = 1_000_000_000;
/// So long the service waits for one user in all (ns), where [`FORGOTTEN`] of a time is forgotten meanwhile.
const WAITED: u64 = 2_000_000_000;
const FORGOTTEN: u64 = 20;
/// Of one wait no more counts (ns): the whole process may have been stopped.
const AT_ONCE: u64 = 200_000_000;

/// One user.
#[derive(Debug, Default)]
pub struct Sharer {
    processes: AtomicUsize,
    bells: AtomicUsize,
    /// The turn in which his inboxes were looked at last, how many of them, and how many marks there were.
    turn: AtomicU64,
    inboxes: AtomicUsize,
    marks: AtomicUsize,
    waits: AtomicU32,
    since: AtomicU64,
    /// When all waits are forgotten (ns).
    patient_at: AtomicU64,
    /// A process of his was not heard out.
    unheard: AtomicBool,
    barred: AtomicBool,
    /// That was seen to.
    told: AtomicBool,
}

impl Sharer {
    /// Whether one more process may have rings.
    pub fn may_meet(&self) -> bool {
        self.processes.load(Relaxed) < PROCESSES && !self.is_barred()
    }

    pub fn enter(&self) {
        self.processes.fetch_add(1, Relaxed);
    }

    /// A process is gone, and so are its bells.
    pub fn leave(&self, bells: usize) {
        self.processes.fetch_sub(1, Relaxed);
        self.bells.fetch_sub(bells, Relaxed);
    }

    /// One more bell. False: there are too many.
    pub fn add_bell(&self) -> bool {
        let fits = self.bells.load(Relaxed) < BELLS;
        self.bells.fetch_add(fits.into(), Relaxed);
        fits
    }

    /// Whether one more of his inboxes may be looked at in this turn.
    pub fn has_turn(&self, turn: u64) -> bool {
        if self.turn.load(Relaxed) != turn {
            self.turn.store(turn, Relaxed);
            self.inboxes.store(0, Relaxed);
            self.marks.store(0, Relaxed);
        }
        let inboxes = self.inboxes.load(Relaxed);
        let has = inboxes < INBOXES && self.marks.load(Relaxed) < MARKS && !self.is_barred();
        self.inboxes.store(inboxes + usize::from(has), Relaxed);
        has
    }

    /// So many marks were found in it.
    pub fn found(&self, marks: usize) {
        self.marks.store(self.marks.load(Relaxed).saturating_add(marks), Relaxed);
    }

    /// A process of his has said more than could be heard at once.
    pub fn leave_unheard(&self) {
        self.unheard.store(true, Relaxed);
    }

    /// He has said what no program says that means well.
    pub fn bar(&self) {
        self.barred.store(true, Relaxed);
    }

    /// He has lied, or made the service wait too often.
    pub fn is_barred(&self) -> bool {
        self.barred.load(Relaxed)
    }

    /// Does what touches memory that he can write, and counts whether that had to wait.
    pub fn watched<R>(&self, f: impl FnOnce() -> R) -> R {
        let (began, (slept, read)) = (clock::monotonic_ns(), thread::sleeps());
        let result = f();
        let now = thread::sleeps();
        // What was read from a disk was not his doing.
        if now.0 != slept && now.1 == read {
            self.waited(began, clock::monotonic_ns());
        }
        result
    }

    fn waited(&self, began: u64, now: u64) {
        let waits = FORGOTTEN * now.saturating_sub(began).min(AT_ONCE);
        let patient_at = self.patient_at.load(Relaxed).max(now).saturating_add(waits);
        self.patient_at.store(patient_at, Relaxed);
        if patient_at - now > FORGOTTEN * WAITED {
            self.bar();
        }
        if now.saturating_sub(self.since.load(Relaxed)) > SPAN {
            self.since.store(now, Relaxed);
            self.waits.store(0, Relaxed);
        }
        if self.waits.fetch_add(1, Relaxed) >= WAITS {
            self.bar();
        }
    }
}

/// The same, where somebody is to be watched.
pub fn watched<R>(stranger: Option<&Sharer>, f: impl FnOnce() -> R) -> R {
    match stranger {
        Some(sharer) => sharer.watched(f),
        None => f(),
    }
}

/// All users who have, or had, some process.
#[derive(Debug, Default)]
pub struct Sharers(HashMap<u32, Arc<Sharer>>);

impl Sharers {
    pub fn of(&mut self, uid: u32) -> Arc<Sharer> {
        // Those of whom nothing needs to be known are forgotten when another one comes.
        if !self.0.contains_key(&uid) {
            let is_known = |sharer: &Sharer| sharer.is_barred() || sharer.unheard.load(Relaxed);
            self.0.retain(|_, sharer| is_known(sharer) || Arc::strong_count(sharer) > 1);
        }
        Arc::clone(self.0.entry(uid).or_default())
    }

    /// Whether somebody has been barred since this was asked last.
    pub fn has_news(&self) -> bool {
        let is_new = |sharer: &Arc<Sharer>| sharer.is_barred() && !sharer.told.swap(true, Relaxed);
        self.0.values().filter(|sharer| is_new(sharer)).count() > 0
    }

    /// Whether some process was not heard out since this was asked.
    pub fn take_unheard(&self) -> bool {
        let is_unheard = |sharer: &&Arc<Sharer>| sharer.unheard.swap(false, Relaxed);
        self.0.values().filter(is_unheard).count() > 0
    }

    pub fn is_barred(&self, uid: u32) -> bool {
        self.0.get(&uid).is_some_and(|sharer| sharer.is_barred())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_and_bells_of_a_user_have_bounds_that_others_do_not_feel() {
        let mut all = Sharers::default();
        let one = all.of(7);
        for _ in 0..PROCESSES {
            assert!(one.may_meet());
            one.enter();
        }
        assert!(!one.may_meet() && all.of(8).may_meet());
        for _ in 0..BELLS {
            assert!(one.add_bell());
        }
        assert!(!one.add_bell());
        one.leave(2);
        assert!(one.may_meet() && one.add_bell() && one.add_bell() && !one.add_bell());
    }

    #[test]
    fn who_makes_the_service_wait_often_is_barred_for_good_and_now_and_then_is_not_often() {
        let mut all = Sharers::default();
        let one = all.of(7);
        for second in 0..10 {
            for n in 0..u64::from(WAITS) {
                let now = (2 * second + 2) * SPAN + n;
                one.waited(now, now);
            }
            assert!(!one.is_barred());
        }
        (0..=WAITS).for_each(|n| one.waited(100 * SPAN, 100 * SPAN + u64::from(n)));
        assert!(one.is_barred() && !one.may_meet());
        drop(one);
        all.of(8);
        assert!(all.is_barred(7) && !all.is_barred(8));
        assert!(all.has_news() && !all.has_news());
    }

    #[test]
    fn who_makes_the_service_wait_long_is_barred_and_a_little_is_forgotten() {
        let one = Sharer::default();
        // One part of twenty, for long.
        for n in 1..1000 {
            one.waited(n * SPAN, n * SPAN + SPAN / FORGOTTEN);
        }
        assert!(!one.is_barred());
        one.waited(1000 * SPAN, 2000 * SPAN);
        assert!(!one.is_barred(), "all that runs may have been stopped");
        (0..WAITED / AT_ONCE).for_each(|_| one.waited(2000 * SPAN, 2000 * SPAN + AT_ONCE));
        assert!(one.is_barred());
    }

    #[test]
    fn a_turn_has_so_many_inboxes_and_marks_of_each_user() {
        let mut all = Sharers::default();
        let (one, other) = (all.of(7), all.of(8));
        assert_eq!((0..100).filter(|_| one.has_turn(1)).count(), INBOXES);
        assert!(other.has_turn(1) && one.has_turn(2));
        one.found(MARKS - 1);
        assert!(one.has_turn(2));
        one.found(1);
        assert!(!one.has_turn(2) && other.has_turn(2) && one.has_turn(3));
        one.bar();
        assert!(!one.has_turn(4) && other.has_turn(4));
    }

    #[test]
    fn a_sleep_counts_and_work_does_not() {
        let one = Sharer::default();
        one.watched(|| std::hint::black_box((0..1000u64).sum::<u64>()));
        assert_eq!(one.waits.load(Relaxed), 0);
        one.watched(|| std::thread::sleep(std::time::Duration::from_millis(1)));
        assert_eq!(one.waits.load(Relaxed), 1);
    }
}
