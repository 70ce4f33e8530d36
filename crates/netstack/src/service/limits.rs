//! What each user may have of the service: a bound of sockets, of octets, and of connections for questions.

use std::collections::{HashMap, HashSet};

/// What a user has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Descriptors that were given out and are open.
    pub sockets: usize,
    /// Octets that wait in the stack, both ways.
    pub octets: usize,
    /// Octets of rings.
    pub rings: usize,
    /// Connections for questions.
    pub controls: usize,
}

/// All users who have something.
#[derive(Debug)]
pub struct Users {
    all: HashMap<u32, Usage>,
    sockets: usize,
    octets: usize,
    /// Who was refused a socket, and has not got down to half of his bound since.
    short: HashSet<u32>,
    /// Of these, who is to be told of.
    news: Vec<u32>,
}

/// Connections for questions of one user: one for each process.
const CONTROLS: usize = 4096;
/// Of one whom the service is not for.
const CONTROLS_OF_STRANGER: usize = 128;

impl Users {
    pub fn new(sockets: usize, octets: usize) -> Users {
        Users { all: HashMap::new(), sockets, octets, short: HashSet::new(), news: Vec::new() }
    }

    pub const fn set_bounds(&mut self, sockets: usize, octets: usize) {
        (self.sockets, self.octets) = (sockets, octets);
    }

    pub fn of(&self, uid: u32) -> Usage {
        self.all.get(&uid).copied().unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, Usage)> {
        self.all.iter().map(|(uid, usage)| (*uid, *usage))
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

    /// Whether rings of so many octets may be given to this user: all of his have the bound that what waits in the stack has.
    pub fn may_have_rings(&self, uid: u32, octets: usize) -> bool {
        self.of(uid).rings + octets <= self.octets
    }

    /// No more is to be taken of this user.
    pub fn is_full(&self, uid: u32) -> bool {
        self.of(uid).octets >= self.octets
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
        assert!(!users.may_open(7) && users.may_open(8) && !users.is_full(7));
        users.refuse(7);
        users.refuse(7);
        assert_eq!([users.take_short(), users.take_short()], [Some((7, 2)), None]);
        users.change(7, |usage| usage.sockets -= 1);
        users.change(7, |usage| usage.sockets += 1);
        users.refuse(7);
        assert_eq!(users.take_short(), Some((7, 2)), "it is news again");
        users.count(7, 0, 100);
        assert!(users.is_full(7) && !users.is_full(8));
        users.count(7, 100, 0);
        users.change(7, |usage| usage.sockets -= 2);
        assert_eq!((users.iter().count(), users.of(7)), (0, Usage::default()));
    }
}
