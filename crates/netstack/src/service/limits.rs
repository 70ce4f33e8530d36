//! What each user may have of the service: a bound of sockets, of octets, and of connections for questions.

use bypath_stack::tcp::{Held, Share as TcpShare};
use bypath_sys::unix::ALL_FDS;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// What a user has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Descriptors that were given out and are open.
    pub sockets: usize,
    /// Octets that wait in the stack, both ways.
    pub octets: usize,
    /// Connections for questions.
    pub controls: usize,
    /// Descriptors on their way to him, as far as is known.
    pub on_way: usize,
    /// Identifiers of ping sockets, of IPv4 and of IPv6.
    pub pings: [usize; 2],
}

/// Descriptors of the service and octets of rings that a user has. What has some holds a [`Charge`], on whatever thread it is dropped.
#[derive(Debug)]
pub struct Account {
    pub uid: u32,
    descriptors: AtomicUsize,
    rings: AtomicUsize,
    /// Of these descriptors, those that he sent, nobody wants, and are not closed yet.
    unwanted: AtomicUsize,
    unwanted_of_all: Arc<Unclosed>,
    /// Octets of rings at most.
    most: AtomicUsize,
    /// Descriptors that the service may have: RLIMIT_NOFILE.
    all: usize,
    /// He is neither root nor the user that the service runs as, who have what there is.
    is_bounded: bool,
}

impl Account {
    /// Whether so many more descriptors, the last one with this number, may be his: numbers are given out from the lowest on, so about as many
    /// are left as are above it, and he has no more than he leaves.
    pub fn may_have(&self, number: i32, more: usize) -> bool {
        !self.is_bounded || self.descriptors.load(Relaxed) + more <= self.left(number)
    }

    /// The same of a bell, without which a thread is not woken: of these he has some where he may have nothing else any more.
    pub fn may_have_bell(&self, number: i32) -> bool {
        !self.is_bounded || self.descriptors.load(Relaxed) < 2 * self.left(number)
    }

    /// Whether rings of so many octets may be his: all of them have the bound that what waits in the stack has.
    pub fn may_have_rings(&self, octets: usize) -> bool {
        self.rings.load(Relaxed) + octets <= self.most.load(Relaxed)
    }

    /// Whether anything may be received of him that may bring descriptors: nothing while one of his is not closed, as the close of a file of his
    /// own file system (FUSE) is not before he likes. So he has no more of them than one message brings.
    pub fn may_send(&self) -> bool {
        !self.is_bounded || !self.is_closing() && self.unwanted_of_all.has_room()
    }

    /// Whether some of his are not closed.
    pub fn is_closing(&self) -> bool {
        self.unwanted.load(Acquire) > 0
    }

    /// This one of his is to be closed.
    pub fn unwanted(self: &Arc<Self>, file: OwnedFd) -> Unwanted {
        self.unwanted.fetch_add(1, Relaxed);
        if self.is_bounded {
            self.unwanted_of_all.count.fetch_add(1, Relaxed);
        }
        Unwanted { file, closing: Closing(self.charge(1, 0)) }
    }

    const fn left(&self, number: i32) -> usize {
        self.all.saturating_sub(if number < 0 { 0 } else { number as usize })
    }

    /// He has so much more until this is dropped.
    pub fn charge(self: &Arc<Self>, descriptors: usize, rings: usize) -> Charge {
        self.descriptors.fetch_add(descriptors, Relaxed);
        self.rings.fetch_add(rings, Relaxed);
        Charge { to: Arc::clone(self), descriptors, rings }
    }
}

/// What counts as somebody's.
#[derive(Debug)]
pub struct Charge {
    to: Arc<Account>,
    descriptors: usize,
    rings: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.to.descriptors.fetch_sub(self.descriptors, Relaxed);
        self.to.rings.fetch_sub(self.rings, Relaxed);
    }
}

/// Descriptors that users sent, nobody wants, and are not closed yet: of all whose descriptors are bounded.
#[derive(Debug, Default)]
struct Unclosed {
    count: AtomicUsize,
    most: usize,
}

impl Unclosed {
    /// Whether one more message may bring some.
    fn has_room(&self) -> bool {
        self.count.load(Relaxed) + ALL_FDS <= self.most
    }
}

/// A descriptor that somebody sent and nobody wants: it counts until its close has returned, on whatever thread.
#[derive(Debug)]
pub struct Unwanted {
    // Dropped first.
    file: OwnedFd,
    closing: Closing,
}

#[derive(Debug)]
struct Closing(Charge);

impl Drop for Closing {
    fn drop(&mut self) {
        let account = &self.0.to;
        if account.is_bounded {
            account.unwanted_of_all.count.fetch_sub(1, Relaxed);
        }
        account.unwanted.fetch_sub(1, Release);
    }
}

impl Unwanted {
    /// Whose it is.
    pub fn account(&self) -> &Arc<Account> {
        &self.closing.0.to
    }

    pub const fn file(&self) -> &OwnedFd {
        &self.file
    }
}

/// A descriptor that counts as somebody's.
#[derive(Debug)]
pub struct Counted {
    file: OwnedFd,
    _charge: Charge,
}

impl AsFd for Counted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// All users who have something.
#[derive(Debug)]
pub struct Users {
    all: HashMap<u32, Usage>,
    accounts: HashMap<u32, Arc<Account>>,
    sockets: usize,
    octets: usize,
    /// Who was refused a socket, and has not got down to half of his bound since.
    short: HashSet<u32>,
    /// Of these, who is to be told of.
    news: Vec<u32>,
    /// Descriptors on their way to all of them.
    on_way: usize,
    /// The user that the service runs as.
    own: u32,
    /// Descriptors that the service may have: RLIMIT_NOFILE.
    descriptors: usize,
    unwanted: Arc<Unclosed>,
}

/// Descriptors of all users that are not closed yet and that nobody wants, at most: an eighth of those that the service may have, and no more
/// than this, as each has a thread. Two users have some in any case.
const UNWANTED: usize = 4096;

/// Connections for questions of one user: one for each process.
const CONTROLS: usize = 4096;
/// Of one whom the service is not for.
const CONTROLS_OF_STRANGER: usize = 128;

/// Descriptors that one message has at most: those of first rings.
pub const AT_ONCE: usize = 4;
/// Descriptors on their way by one connection for questions.
const ON_WAY_OF_ONE: usize = 16;
/// To one user, and to all: half of the soft limit of open files that most processes have (1024).
const ON_WAY_OF_USER: usize = 128;
const ON_WAY_OF_ALL: usize = 512;
/// To one user where half of what all may have is on its way.
const ON_WAY_OF_USER_IN_A_CROWD: usize = 8;

/// Whether nothing more is heard of a connection with so many descriptors on their way.
pub const fn is_too_many(on_way: usize) -> bool {
    on_way + AT_ONCE > ON_WAY_OF_ONE
}

/// What descriptors are for: of what a user may have on its way, listeners leave others a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// An answer.
    Answer,
    /// A connection that can be accepted, of a listener that has no other one.
    First,
    /// Another one.
    Ahead,
}

impl Share {
    const fn of(self, most: usize) -> usize {
        match self {
            Share::Answer => most,
            Share::First => most / 4 * 3,
            Share::Ahead => most / 2,
        }
    }
}

impl Users {
    pub fn new(sockets: usize, octets: usize) -> Users {
        let (all, short, news, own) =
            (HashMap::new(), HashSet::new(), Vec::new(), bypath_sys::process::euid());
        let descriptors = usize::try_from(bypath_sys::fd::limits().0).unwrap_or(usize::MAX);
        let (accounts, on_way) = (HashMap::new(), 0);
        let most = (descriptors / 8).clamp(2 * ALL_FDS, UNWANTED);
        let unwanted = Arc::new(Unclosed { most, ..Unclosed::default() });
        Users { all, accounts, sockets, octets, short, news, on_way, own, descriptors, unwanted }
    }

    pub fn set_bounds(&mut self, sockets: usize, octets: usize) {
        (self.sockets, self.octets) = (sockets, octets);
        self.accounts.values().for_each(|account| account.most.store(octets, Relaxed));
    }

    /// Where his descriptors and rings are counted.
    pub fn account(&mut self, uid: u32) -> Arc<Account> {
        // Those of whom nothing counts are forgotten when another one comes.
        if !self.accounts.contains_key(&uid) {
            self.accounts.retain(|_, account| Arc::strong_count(account) > 1);
        }
        let new = || Account {
            uid,
            descriptors: AtomicUsize::new(0),
            rings: AtomicUsize::new(0),
            unwanted: AtomicUsize::new(0),
            unwanted_of_all: Arc::clone(&self.unwanted),
            most: AtomicUsize::new(self.octets),
            all: self.descriptors,
            is_bounded: uid != 0 && uid != self.own,
        };
        Arc::clone(self.accounts.entry(uid).or_insert_with(|| Arc::new(new())))
    }

    /// This descriptor is the user's as long as it is kept.
    pub fn counted(&mut self, uid: u32, file: OwnedFd) -> Counted {
        Counted { file, _charge: self.account(uid).charge(1, 0) }
    }

    /// Whether anything may be received of him that may bring descriptors.
    pub fn may_send(&self, uid: u32) -> bool {
        let may = self.accounts.get(&uid).map(|account| account.may_send());
        may.unwrap_or_else(|| !self.counts(uid) || self.unwanted.has_room())
    }

    /// Whether half of what may be unwanted and not closed is: then nothing is heard of those whom the service is not for.
    pub fn is_half_unwanted(&self) -> bool {
        self.unwanted.count.load(Relaxed) >= self.unwanted.most / 2
    }

    /// These came from this user and are to be closed.
    pub fn unwanted(&mut self, uid: u32, files: Vec<OwnedFd>) -> Vec<Unwanted> {
        if files.is_empty() {
            return Vec::new();
        }
        let account = self.account(uid);
        files.into_iter().map(|file| account.unwanted(file)).collect()
    }

    /// Descriptors of the service and octets of rings that a user has.
    pub fn has(&self, uid: u32) -> (usize, usize) {
        let of = |account: &Arc<Account>| (account.descriptors.load(Relaxed), account.rings.load(Relaxed));
        self.accounts.get(&uid).map_or((0, 0), of)
    }

    pub fn of(&self, uid: u32) -> Usage {
        self.all.get(&uid).copied().unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, Usage)> {
        self.all.iter().map(|(uid, usage)| (*uid, *usage))
    }

    /// Who has nothing else than descriptors, or rings.
    pub fn others(&self) -> impl Iterator<Item = u32> {
        let others = self.accounts.keys().filter(|uid| !self.all.contains_key(*uid));
        others.copied().filter(|uid| self.has(*uid) != (0, 0))
    }

    pub fn may_open(&self, uid: u32) -> bool {
        self.of(uid).sockets < self.sockets
    }

    /// He is refused another one.
    pub fn refuse(&mut self, uid: u32) {
        if self.short.insert(uid) {
            self.news.push(uid);
        }
    }

    /// Somebody who was refused a socket, told once as long as he has so many, and how many one may have.
    pub fn take_short(&mut self) -> Option<(u32, usize)> {
        self.news.pop().map(|uid| (uid, self.sockets))
    }

    pub fn may_ask(&self, uid: u32) -> bool {
        self.of(uid).controls < CONTROLS
    }

    /// The same of one whom the service is not for.
    pub fn may_ask_as_stranger(&self, uid: u32) -> bool {
        self.of(uid).controls < CONTROLS_OF_STRANGER
    }

    /// Whether he may have one more identifier of pings, where so many are nobody's: he has no more than he leaves.
    pub fn may_ping(&self, uid: u32, v6: bool, free: usize) -> bool {
        self.of(uid).pings[usize::from(v6)] < free
    }

    /// Whether a descriptor with this number, a new one, may be for this user.
    pub fn may_have_descriptor(&mut self, uid: u32, number: i32) -> bool {
        self.account(uid).may_have(number, 1)
    }

    /// Whether descriptors on their way to this user are counted. Root, and the user that the service runs as, can send as many without it.
    pub const fn counts(&self, uid: u32) -> bool {
        uid != 0 && uid != self.own
    }

    /// Whether one more message with descriptors may be sent to this user.
    pub fn may_be_sent(&self, uid: u32, share: Share) -> bool {
        if !self.counts(uid) || self.on_way + AT_ONCE <= Share::Ahead.of(ON_WAY_OF_USER) {
            return true;
        }
        let is_crowded = self.on_way >= ON_WAY_OF_ALL / 2;
        let most = if is_crowded { ON_WAY_OF_USER_IN_A_CROWD } else { ON_WAY_OF_USER };
        self.of(uid).on_way + AT_ONCE <= share.of(most) && self.on_way + AT_ONCE <= ON_WAY_OF_ALL
    }

    /// Descriptors were sent to this user. True: they are counted.
    pub fn sent(&mut self, uid: u32, descriptors: usize) -> bool {
        if descriptors == 0 || !self.counts(uid) {
            return false;
        }
        self.on_way += descriptors;
        self.change(uid, |usage| usage.on_way += descriptors);
        true
    }

    /// He has received so many of them.
    pub fn received(&mut self, uid: u32, descriptors: usize) {
        if descriptors > 0 && self.counts(uid) {
            self.on_way = self.on_way.saturating_sub(descriptors);
            self.change(uid, |usage| usage.on_way = usage.on_way.saturating_sub(descriptors));
        }
    }

    /// No more is to be taken of this user, whose connections hold so much: what he has closed counts on until it is gone.
    pub fn is_full(&self, uid: u32, held: &Held) -> bool {
        self.of(uid).octets + held.orphan_octets >= self.octets
    }

    /// What the stack lets each user have. His bounds here are met before those there: memory is taken in powers of two, and windows that
    /// were told are kept. Who calls him has a part beside it, so that strangers who do take nothing of what he has accepted.
    pub const fn share(&self) -> TcpShare {
        TcpShare {
            octets: self.octets.saturating_mul(2),
            callers: self.sockets,
            caller_octets: self.octets / 4,
            orphan_octets: self.octets / 2,
            orphans: self.sockets,
            datagram_octets: self.octets,
        }
    }

    pub fn change(&mut self, uid: u32, change: impl FnOnce(&mut Usage)) {
        let usage = self.all.entry(uid).or_default();
        change(usage);
        if usage.sockets <= self.sockets / 2 {
            self.short.remove(&uid);
        }
        if *usage == Usage::default() {
            self.all.remove(&uid);
        }
    }

    /// A socket has so many octets in place of so many.
    pub fn count(&mut self, uid: u32, before: usize, now: usize) {
        if before != now {
            self.change(uid, |usage| usage.octets = (usage.octets + now).saturating_sub(before));
        }
    }
}

/// How long users have had in one turn.
#[derive(Default)]
pub struct Took(Vec<(u32, u64)>);

impl Took {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn of(&mut self, uid: u32) -> &mut u64 {
        let at = self.0.iter().position(|(other, _)| *other == uid).unwrap_or_else(|| {
            self.0.push((uid, 0));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    /// What is left of so many ns.
    pub fn left(&mut self, uid: u32, most: u64) -> u64 {
        most.saturating_sub(*self.of(uid))
    }

    pub fn add(&mut self, uid: u32, ns: u64) {
        *self.of(uid) += ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_each_users_own_and_nothing_is_left_of_who_has_nothing() {
        let mut users = Users::new(2, 100);
        for _ in 0..2 {
            assert!(users.may_open(7));
            users.change(7, |usage| usage.sockets += 1);
        }
        let nothing = Held::default();
        assert!(!users.may_open(7) && users.may_open(8) && !users.is_full(7, &nothing));
        users.refuse(7);
        users.refuse(7);
        assert_eq!([users.take_short(), users.take_short()], [Some((7, 2)), None]);
        users.change(7, |usage| usage.sockets -= 1);
        users.change(7, |usage| usage.sockets += 1);
        users.refuse(7);
        assert_eq!(users.take_short(), Some((7, 2)), "it is news again");
        users.count(7, 0, 99);
        assert!(!users.is_full(7, &nothing) && users.is_full(7, &Held { orphan_octets: 1, ..nothing }));
        users.count(7, 99, 100);
        assert!(users.is_full(7, &nothing) && !users.is_full(8, &nothing));
        users.count(7, 100, 0);
        users.change(7, |usage| usage.sockets -= 2);
        assert_eq!((users.iter().count(), users.of(7)), (0, Usage::default()));
    }

    #[test]
    fn a_user_has_no_more_identifiers_of_pings_than_he_leaves() {
        let mut users = Users::new(100, 100);
        let mut all = |uid: u32, left: usize| {
            let mut free = left;
            while users.may_ping(uid, true, free) {
                users.change(uid, |usage| usage.pings[1] += 1);
                free -= 1;
            }
            users.of(uid).pings
        };
        assert_eq!(
            [all(7, 1000), all(8, 500), all(9, 250), all(9, 1)],
            [[0, 500], [0, 250], [0, 125], [0, 125]]
        );
        assert!(users.may_ping(7, false, 1) && !users.may_ping(7, true, 500));
    }

    #[test]
    fn a_user_has_no_more_descriptors_than_he_leaves() {
        let mut users = Users::new(1000, 100);
        (users.own, users.descriptors) = (9, 100);
        let mut charges = Vec::new();
        let mut all = |uid: u32, first: i32| {
            let numbers = first..100;
            let has = |number: &i32| {
                let may = users.may_have_descriptor(uid, *number);
                charges.extend(may.then(|| users.account(uid).charge(1, 0)));
                may
            };
            numbers.take_while(has).count()
        };
        assert_eq!([all(7, 10), all(8, 55), all(0, 78), all(9, 78)], [45, 23, 22, 22]);
        // Two at once are one more, and a bell has room where nothing else has.
        let account = users.account(7);
        assert!(account.may_have(54, 1) && !account.may_have(54, 2) && !account.may_have(55, 1));
        assert!(account.may_have_bell(77) && !account.may_have_bell(78));
        charges.clear();
        assert_eq!((users.has(7), users.others().count()), ((0, 0), 0));
        drop(account);
        users.account(6);
        assert_eq!(users.accounts.len(), 1, "who has nothing is forgotten");
    }

    #[test]
    fn who_has_sent_what_is_not_closed_sends_no_more_and_others_do_while_there_is_room() {
        let mut users = Users::new(1000, 100);
        users.own = 9;
        let (file, _other) = bypath_sys::pair::new().expect("a pair");
        let sends = |users: &mut Users, uid: u32| {
            let may = users.may_send(uid);
            let files = (0..ALL_FDS).map(|_| file.try_clone().expect("a descriptor")).collect();
            may.then(|| users.unwanted(uid, files))
        };
        users.unwanted = Arc::new(Unclosed { most: 2 * ALL_FDS, ..Unclosed::default() });
        let one = sends(&mut users, 7).expect("the first");
        assert!(sends(&mut users, 7).is_none() && users.is_half_unwanted());
        assert_eq!(users.has(7), (ALL_FDS, 0));
        let other = sends(&mut users, 8);
        assert!(other.is_some() && !users.may_send(6), "there is no room for his");
        // Root, and the service's own user, have no bound, and take no room of others.
        let own = [0, 9].map(|uid| [sends(&mut users, uid), sends(&mut users, uid)]);
        assert!(own.iter().flatten().all(Option::is_some));
        drop(other);
        assert!(users.may_send(6) && users.may_send(8) && !users.may_send(7));
        drop((one, own));
        assert!(users.may_send(7) && !users.is_half_unwanted());
        assert_eq!([7, 0].map(|uid| users.has(uid)), [(0, 0); 2]);
    }

    #[test]
    fn rings_of_a_user_have_a_bound_that_may_change() {
        let mut users = Users::new(1000, 100);
        let account = users.account(7);
        let charge = account.charge(0, 60);
        assert!(
            account.may_have_rings(40) && !account.may_have_rings(41) && users.account(8).may_have_rings(100)
        );
        assert_eq!((users.has(7), users.others().collect::<Vec<_>>()), ((0, 60), vec![7]));
        users.set_bounds(1000, 80);
        assert!(account.may_have_rings(20) && !account.may_have_rings(21));
        drop(charge);
        assert!(account.may_have_rings(80));
    }

    #[test]
    fn so_many_descriptors_are_on_their_way_to_a_user_and_to_all() {
        let (mut users, most) = (Users::new(2, 100), |users: &mut Users, uid: u32, share: Share| {
            while users.may_be_sent(uid, share) {
                assert!(users.sent(uid, AT_ONCE));
            }
            users.of(uid).on_way
        });
        users.own = 7;
        for uid in [0, 7] {
            assert!(!users.sent(uid, 10_000) && users.may_be_sent(uid, Share::Ahead));
        }
        let shares = [Share::Ahead, Share::First, Share::Answer];
        assert_eq!(shares.map(|share| most(&mut users, 8, share)), [64, 96, 128]);
        assert_eq!(most(&mut users, 9, Share::Answer), 128);
        // A crowd: each of the others has a little.
        assert_eq!([10, 11].map(|uid| most(&mut users, uid, Share::Answer)), [8, 8]);
        (12..100).for_each(|uid| assert!(most(&mut users, uid, Share::Answer) <= 8));
        assert_eq!(users.on_way, ON_WAY_OF_ALL);
        users.received(8, 128);
        assert!(users.may_be_sent(99, Share::Answer) && !users.may_be_sent(9, Share::Answer));
        (9..100).for_each(|uid| users.received(uid, users.of(uid).on_way));
        assert_eq!((users.on_way, users.iter().count()), (0, 0));
    }
}
