//! Users for whom a call took much longer than it should. Whoever has a descriptor can make a call of others with its other end slow: with a
//! million epoll watches on a socket each message to it takes 0.1 s, and no limit of the service's bears on them. So who takes that pays for it:
//! nothing is done for him until such calls are one part of [`SHARE`] of the time, and what others want is done meanwhile.
//!
//! Who pays is the user of a socket, or of a connection for questions. A socket of root's, or of the service's own user, pays for itself: somebody
//! else may hold it, as workers of a server do.
//!
//! What counts is the processor's time: a thread that was kept from it, on a busy host or by a stop, has cost nobody anything (waits for memory that a
//! user gives back are counted in `sharers.rs`). To ask for it takes two system calls, which are made only for those for whom a call took long lately.

use super::deputies::Deputies;
use super::limits::{Counted, Unwanted};
use super::slab::Key;
use bypath_sys::strangers::{Kernels, Others};
use bypath_sys::{Result, clock};
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};

/// After so long a turn is over, whatever is left to do (ns).
pub const PIECE: u64 = 1_000_000;
/// What a turn may take with its last call (ns).
const LONG: u64 = 1_500_000;
/// Of so many parts of the time one is his who takes more.
const SHARE: u64 = 20;
/// Who has not done so for so long (ns) has as much to spend at once: a host that is late now and then is nobody's doing.
const CREDIT: u64 = 2_000_000_000;
/// How often it is looked whether a deputy is done: first, and after a while (ns).
const FIRST_LOOK: u64 = 1_000_000;
const LAST_LOOK: u64 = 64_000_000;
/// So long he is looked at closely after that (ns).
const SUSPECT: u64 = 10_000_000_000;

/// Who pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Payer {
    User(u32),
    Socket(Key),
}

/// One of them.
#[derive(Debug, Default)]
struct Debt {
    suspect_until: u64,
    /// When what he has taken was his share (ns).
    paid: u64,
    /// Nothing is done for him before; 0: he owes nothing.
    until: u64,
    /// After how long it is looked again whether his deputy is done.
    look: u64,
}

/// All of them, and what waits for them.
#[derive(Debug)]
pub struct Debts {
    all: HashMap<Payer, Debt>,
    kernels: Kernels,
    deputies: Deputies,
    pub waiting: Waiting,
    /// Time (ns) that meters have had which were begun while another one ran.
    inner: u64,
    /// When it is looked whether users whom the service is not for are heard again; 0: they are.
    crowded_until: u64,
}

/// What is not done before its user has paid.
#[derive(Debug, Default)]
pub struct Waiting {
    pub controls: Vec<Key>,
    pub sockets: Vec<Key>,
    pub neighbours: Vec<Key>,
}

/// Something that is done for somebody.
#[derive(Debug)]
pub struct Meter {
    /// `None`: for nobody.
    payer: Option<Payer>,
    began: u64,
    /// Of one who is looked at closely: what the thread has had of a processor (ns).
    cpu: Option<u64>,
    inner: u64,
}

impl Debts {
    /// # Errors
    /// EMFILE and its like.
    pub fn new() -> Result<Debts> {
        Ok(Debts {
            all: HashMap::new(),
            kernels: Kernels::new()?,
            deputies: Deputies::default(),
            waiting: Waiting::default(),
            inner: 0,
            crowded_until: 0,
        })
    }

    /// Whether the kernel alone is asked when these are closed.
    pub fn are_kernels<'a>(&self, fds: impl IntoIterator<Item = &'a OwnedFd>) -> bool {
        fds.into_iter().all(|file| self.kernels.have(file.as_raw_fd()))
    }

    /// Closes what came from this user, and nobody wants.
    pub fn close(&mut self, uid: u32, is_trusted: bool, fds: Vec<Unwanted>) {
        if is_trusted || self.are_kernels(fds.iter().map(Unwanted::file)) {
            let _others = Others::among(fds.iter().map(Unwanted::file));
            drop(fds);
        } else {
            self.deputies.close(uid, fds);
            self.hold(uid);
        }
    }

    /// Gives the program's end of a socket room, whose lock this user may hold.
    pub fn widen(&mut self, uid: u32, program: Counted, octets: i32) {
        self.deputies.widen(uid, program, octets);
        self.hold(uid);
    }

    /// Has this user wait as long as his deputies want.
    fn hold(&mut self, uid: u32) {
        if self.deputies.hold(uid) {
            let debt = self.all.entry(Payer::User(uid)).or_default();
            debt.until = debt.until.max(clock::monotonic_ns() + FIRST_LOOK);
            debt.look = FIRST_LOOK;
        }
    }

    /// Whether nothing is heard of users whom the service is not for, for now: too much waits already.
    pub fn are_too_many(&self) -> bool {
        self.deputies.are_too_many()
    }

    /// Somebody waits until less of others waits to be closed, or of his own.
    pub fn crowd(&mut self) {
        if self.crowded_until == 0 {
            self.crowded_until = clock::monotonic_ns() + LAST_LOOK;
        }
    }

    /// Whether nothing is done for him for now.
    pub fn owes(&self, payer: Payer) -> bool {
        !self.all.is_empty() && self.all.get(&payer).is_some_and(|debt| debt.until > 0)
    }

    /// Whether he is looked at closely.
    pub fn suspects(&self, payer: Payer) -> bool {
        !self.all.is_empty() && self.all.contains_key(&payer)
    }

    /// Something is begun for him, now (ns).
    pub fn begin(&self, payer: Payer, now: u64) -> Meter {
        let cpu = self.suspects(payer).then(clock::thread_ns);
        Meter { payer: Some(payer), began: now, cpu, inner: self.inner }
    }

    /// Something is begun that is nobody's, and not his either for whom something else was begun.
    pub fn begin_apart(&self) -> Meter {
        Meter { payer: None, began: clock::monotonic_ns(), cpu: None, inner: self.inner }
    }

    /// It is done.
    pub fn end(&mut self, meter: &Meter) {
        let now = clock::monotonic_ns();
        let took = now.saturating_sub(meter.began);
        // What others had meanwhile was counted for them.
        let others = self.inner - meter.inner;
        self.inner = meter.inner + took;
        if let Some(payer) = meter.payer.filter(|_| took.saturating_sub(others) > LONG) {
            let cost = meter.cpu.map(|before| (clock::thread_ns() - before).saturating_sub(others));
            self.took_long(payer, cost, now);
        }
    }

    /// A call took long; `cost` is his part of it (ns), if that is known.
    fn took_long(&mut self, payer: Payer, cost: Option<u64>, now: u64) {
        let debt = self.all.entry(payer).or_default();
        debt.suspect_until = now + SUSPECT;
        if let Some(cost) = cost.filter(|cost| *cost > LONG) {
            debt.paid = debt.paid.max(now.saturating_sub(CREDIT)).saturating_add(cost.saturating_mul(SHARE));
            if debt.paid > now {
                debt.until = debt.until.max(debt.paid);
            }
        }
    }

    /// This socket is gone.
    pub fn forget(&mut self, socket: Key) {
        if !self.all.is_empty() {
            self.all.remove(&Payer::Socket(socket));
        }
    }

    /// Who has paid goes on: what waited. Of the others `due` tells when.
    pub fn settle(&mut self, now: u64) -> Option<Waiting> {
        if self.all.is_empty() && self.crowded_until == 0 {
            return None;
        }
        let mut any = (1..=now).contains(&self.crowded_until);
        if any {
            self.crowded_until = 0;
        }
        let deputies = &mut self.deputies;
        self.all.retain(|payer, debt| {
            if (1..=now).contains(&debt.until) {
                if matches!(payer, Payer::User(uid) if deputies.looks(*uid)) {
                    debt.look = (2 * debt.look).clamp(FIRST_LOOK, LAST_LOOK);
                    debt.until = now + debt.look;
                } else {
                    (debt.until, any) = (0, true);
                }
            }
            debt.until > 0 || debt.suspect_until > now
        });
        any.then(|| std::mem::take(&mut self.waiting))
    }

    /// When the next one has paid (ns).
    pub fn due(&self) -> Option<u64> {
        let debts = self.all.values().map(|debt| debt.until);
        debts.chain([self.crowded_until]).filter(|until| *until > 0).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const HE: Payer = Payer::User(7);
    const OTHER: Payer = Payer::User(8);

    fn debts() -> Debts {
        Debts::new().expect("descriptors")
    }

    #[test]
    fn who_takes_long_waits_and_others_do_not() {
        let (mut debts, took, now) = (debts(), 200_000_000, 10 * CREDIT);
        debts.took_long(HE, None, now);
        assert!(!debts.owes(HE), "it may have been somebody else who had the processor");
        assert!(debts.begin(HE, 0).cpu.is_some() && debts.begin(OTHER, 0).cpu.is_none());
        debts.took_long(HE, Some(LONG), now);
        debts.took_long(HE, Some(CREDIT / SHARE), now);
        assert!(!debts.owes(HE) && debts.due().is_none(), "he had as much to spend");
        debts.took_long(HE, Some(took), now);
        debts.waiting.sockets.push(Key { index: 1, generation: 0 });
        let due = now + took * SHARE;
        assert!(debts.owes(HE) && !debts.owes(OTHER));
        assert_eq!(debts.due(), Some(due));
        assert!(debts.settle(due - 1).is_none() && debts.owes(HE));
        assert_eq!(debts.settle(due).expect("it is paid").sockets.len(), 1);
        assert!(!debts.owes(HE) && debts.due().is_none() && debts.settle(due).is_none());
        debts.settle(now + SUSPECT);
        assert!(!debts.suspects(HE), "he is like others again");
    }

    #[test]
    fn what_is_added_to_a_debt_is_paid_after_it() {
        let (mut debts, took, now) = (debts(), CREDIT / SHARE, 10 * CREDIT);
        debts.took_long(HE, Some(2 * took), now);
        debts.took_long(HE, Some(2 * took), now + 1);
        assert_eq!(debts.due(), Some(now + 3 * CREDIT));
    }

    /// So long it has the processor.
    fn works(ns: u64) {
        let until = clock::thread_ns() + ns;
        while clock::thread_ns() < until {}
    }

    #[test]
    fn only_what_a_user_takes_of_the_processor_is_counted() {
        let mut debts = debts();
        debts.took_long(HE, None, clock::monotonic_ns());
        let mut took = |f: &dyn Fn()| {
            let meter = debts.begin(HE, clock::monotonic_ns());
            f();
            debts.end(&meter);
            debts.owes(HE)
        };
        assert!(!took(&|| std::thread::sleep(Duration::from_nanos(2 * CREDIT / SHARE))));
        assert!(took(&|| works(2 * CREDIT / SHARE)));
    }

    #[test]
    fn what_is_done_for_others_meanwhile_is_theirs() {
        let mut debts = debts();
        let sleeps = || std::thread::sleep(Duration::from_nanos(2 * LONG));
        let outer = debts.begin(HE, clock::monotonic_ns());
        let inner = debts.begin(OTHER, clock::monotonic_ns());
        sleeps();
        debts.end(&inner);
        let apart = debts.begin_apart();
        sleeps();
        debts.end(&apart);
        debts.end(&outer);
        assert!(debts.suspects(OTHER) && !debts.suspects(HE));
    }

    #[test]
    fn who_waits_as_others_close_too_much_is_heard_again() {
        let mut debts = debts();
        debts.crowded_until = 5000;
        debts.waiting.controls.push(Key { index: 1, generation: 0 });
        assert!(debts.due() == Some(5000) && debts.settle(4999).is_none());
        assert_eq!(debts.settle(5000).expect("it is time").controls.len(), 1);
    }
}
