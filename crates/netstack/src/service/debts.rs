//! Users for whom a call took much longer than it should. Whoever has a descriptor can make a call of others with its other end slow: with a
//! million epoll watches on a socket each message to it takes 0.1 s, and no limit of the service's bears on them. So a user pays for what he
//! takes: after each such call he waits until it is one part of [`SHARE`] of the time, and what others want is done meanwhile.
//!
//! A thread that was kept from its processor has done nothing for long: that is no user's doing. To tell the two apart takes two system calls,
//! which are made only for users for whom a call took long lately.

use super::deputies::{Deputies, Job};
use super::slab::Key;
use bypath_sys::strangers::{Kernels, Others};
use bypath_sys::thread::Usage;
use bypath_sys::{Result, clock, thread};
use std::os::fd::{AsRawFd, OwnedFd};

/// What one call, or a few, may take (ns).
pub const PIECE: u64 = 2_000_000;
/// Of so many parts of the time one is his who takes more.
const SHARE: u64 = 20;
/// How often it is looked whether a deputy is done (ns).
const LOOK: u64 = 20_000_000;
/// So long he is looked at closely after that (ns).
const SUSPECT: u64 = 10_000_000_000;

/// One user.
#[derive(Debug)]
struct Debt {
    uid: u32,
    suspect_until: u64,
    /// Nothing is done for him before.
    until: u64,
}

/// All of them, and what waits for them.
#[derive(Debug)]
pub struct Debts {
    all: Vec<Debt>,
    kernels: Kernels,
    deputies: Deputies,
    pub waiting: Waiting,
}

/// What is not done before its user has paid.
#[derive(Debug, Default)]
pub struct Waiting {
    pub controls: Vec<Key>,
    pub sockets: Vec<Key>,
    pub neighbours: Vec<Key>,
}

/// Something that is done for a user.
#[derive(Debug)]
pub struct Meter {
    uid: u32,
    began: u64,
    /// Of one who is looked at closely.
    usage: Option<Usage>,
}

impl Debts {
    /// # Errors
    /// EMFILE and its like.
    pub fn new() -> Result<Debts> {
        Ok(Debts {
            all: Vec::new(),
            kernels: Kernels::new()?,
            deputies: Deputies::default(),
            waiting: Waiting::default(),
        })
    }

    /// Whether the kernel alone is asked when these are closed.
    pub fn are_kernels(&self, fds: &[OwnedFd]) -> bool {
        fds.iter().all(|file| self.kernels.have(file.as_raw_fd()))
    }

    /// Closes what came from this user, and nobody wants.
    pub fn close(&mut self, uid: u32, is_trusted: bool, fds: Vec<OwnedFd>) {
        if is_trusted || self.are_kernels(&fds) {
            let _others = Others::among(&fds);
            drop(fds);
        } else {
            self.depute(uid, Job::Close(fds));
        }
    }

    /// Whether nothing is done for this user for now.
    pub fn owes(&self, uid: u32) -> bool {
        self.all.iter().any(|debt| debt.uid == uid && debt.until > 0)
    }

    /// Has something done for this user that may wait; others of his wait for it, too.
    pub fn depute(&mut self, uid: u32, job: Job) {
        self.deputies.give(uid, job);
        if self.deputies.hold(uid) {
            let (at, until) = (self.of(uid), clock::monotonic_ns() + LOOK);
            self.all[at].until = self.all[at].until.max(until);
        }
    }

    /// Whether nothing is heard of users whom the service is not for: too much waits already.
    pub fn are_too_many(&self) -> bool {
        self.deputies.are_all_busy()
    }

    /// Something is begun for this user, now (ns).
    pub fn begin(&self, uid: u32, now: u64) -> Meter {
        let is_suspect = self.all.iter().any(|debt| debt.uid == uid);
        Meter { uid, began: now, usage: is_suspect.then(thread::usage) }
    }

    /// It is done.
    pub fn end(&mut self, meter: &Meter) {
        let now = clock::monotonic_ns();
        let took = now.saturating_sub(meter.began);
        if took > PIECE {
            let cost = meter.usage.map(|before| thread::usage().since(&before, took));
            self.took_long(meter.uid, cost, now);
        }
    }

    /// A call took long; `cost` is his part of it (ns), if that is known.
    fn took_long(&mut self, uid: u32, cost: Option<u64>, now: u64) {
        let at = self.of(uid);
        let debt = &mut self.all[at];
        debt.suspect_until = now + SUSPECT;
        if let Some(cost) = cost.filter(|cost| *cost > PIECE) {
            debt.until = debt.until.max(now).saturating_add(cost.saturating_mul(SHARE - 1));
        }
    }

    /// His place.
    fn of(&mut self, uid: u32) -> usize {
        self.all.iter().position(|debt| debt.uid == uid).unwrap_or_else(|| {
            self.all.push(Debt { uid, suspect_until: 0, until: 0 });
            self.all.len() - 1
        })
    }

    /// Who has paid goes on: what waited. Of the others `due` tells when.
    pub fn settle(&mut self, now: u64) -> Option<Waiting> {
        let mut any = false;
        self.all.retain_mut(|debt| {
            if (1..=now).contains(&debt.until) {
                let holds = self.deputies.hold(debt.uid);
                (debt.until, any) = if holds { (now + LOOK, any) } else { (0, true) };
            }
            debt.until > 0 || debt.suspect_until > now
        });
        any.then(|| std::mem::take(&mut self.waiting))
    }

    /// When the next one has paid (ns).
    pub fn due(&self) -> Option<u64> {
        self.all.iter().map(|debt| debt.until).filter(|until| *until > 0).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: u64 = 100_000_000;

    #[test]
    fn who_takes_long_waits_and_others_do_not() {
        let mut debts = Debts::new().expect("descriptors");
        debts.took_long(7, None, 1000);
        assert!(!debts.owes(7), "it may have been somebody else who had the processor");
        assert!(debts.begin(7, 0).usage.is_some() && debts.begin(8, 0).usage.is_none());
        debts.took_long(7, Some(PIECE), 1000);
        assert!(!debts.owes(7) && debts.due().is_none());
        debts.took_long(7, Some(LONG), 1000);
        debts.waiting.sockets.push(Key { index: 1, generation: 0 });
        let due = 1000 + LONG * (SHARE - 1);
        assert!(debts.owes(7) && !debts.owes(8));
        assert_eq!(debts.due(), Some(due));
        assert!(debts.settle(due - 1).is_none() && debts.owes(7));
        assert_eq!(debts.settle(due).expect("it is paid").sockets.len(), 1);
        assert!(!debts.owes(7) && debts.due().is_none() && debts.settle(due).is_none());
        debts.settle(1000 + SUSPECT);
        assert!(debts.begin(7, 0).usage.is_none(), "he is like others again");
    }

    #[test]
    fn what_is_added_to_a_debt_is_paid_after_it() {
        let mut debts = Debts::new().expect("descriptors");
        debts.took_long(7, Some(LONG), 1000);
        debts.took_long(7, Some(LONG), 2000);
        assert_eq!(debts.due(), Some(1000 + 2 * LONG * (SHARE - 1)));
    }

    #[test]
    fn only_what_a_user_takes_of_the_processor_or_waits_for_is_counted() {
        let mut debts = Debts::new().expect("descriptors");
        debts.took_long(7, None, clock::monotonic_ns());
        let mut took = |f: &dyn Fn()| {
            let meter = debts.begin(7, clock::monotonic_ns());
            f();
            debts.end(&meter);
            debts.owes(7)
        };
        assert!(!took(&|| ()));
        assert!(took(&|| std::thread::sleep(std::time::Duration::from_nanos(2 * PIECE))));
    }
}
