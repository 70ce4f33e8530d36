//! Which record is believed of a socket: its number is no secret (sock_diag tells it to everybody), and any process may name it.
//!
//! What root and the own user say goes first. Else of his own connections everybody is believed himself, and of another user's socket
//! who has it, as the kernel knows.

use super::owners::Owners;
use super::regions::Id;
use super::{Family, Scan};
use bypath_shm::view::End;
use std::cell::RefCell;
use std::collections::HashMap;

/// Whose word a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Word {
    /// Root's, or the own user's.
    Trusted,
    /// Another user's.
    User(u32),
    /// Somebody's of several other users who have this region.
    Region(Id),
}

/// The sockets that processes name.
#[derive(Debug)]
pub struct Sockets<'a> {
    /// By number, and then by whose word it is; of those that one says first.
    all: Vec<(u64, Word, &'a Family, &'a End)>,
    /// Which of them has a socket, so far as it was asked.
    proven: RefCell<HashMap<u64, Option<usize>>>,
    owners: RefCell<Owners>,
}

impl<'a> Sockets<'a> {
    pub(super) fn of(scan: &'a Scan) -> Sockets<'a> {
        let of = |f: &'a Family| f.ends.iter().filter_map(move |e| Some((e.cookie?, f.word(), f, e)));
        let mut all: Vec<_> = scan.families.iter().flat_map(of).collect();
        all.sort_by_key(|(cookie, word, ..)| (*cookie, *word));
        Sockets { all, proven: RefCell::default(), owners: RefCell::default() }
    }

    /// Whether anybody names it.
    pub fn has(&self, cookie: u64) -> bool {
        self.all.get(self.first(cookie, Word::Trusted)).is_some_and(|(named, ..)| *named == cookie)
    }

    /// The record that is believed of a socket where it is an end of a connection of which this one says something.
    pub fn believed(&self, word: Word, cookie: u64) -> Option<(&'a Family, &'a End)> {
        let said = |word| {
            let (named, whose, family, end) = self.all.get(self.first(cookie, word))?;
            (*named == cookie && *whose == word).then_some((*family, *end))
        };
        said(Word::Trusted).or_else(|| said(word)).or_else(|| self.proven(cookie))
    }

    /// Both of a connection.
    pub fn ends(&self, word: Word, cookies: [u64; 2]) -> Ends<'a> {
        cookies.map(|cookie| self.believed(word, cookie))
    }

    fn first(&self, cookie: u64, word: Word) -> usize {
        self.all.partition_point(|(named, whose, ..)| (*named, *whose) < (cookie, word))
    }

    /// Of whom the kernel says that he has it.
    fn proven(&self, cookie: u64) -> Option<(&'a Family, &'a End)> {
        let known = self.proven.borrow().get(&cookie).copied();
        let at = known.unwrap_or_else(|| {
            let first = self.first(cookie, Word::Trusted);
            let who = self.all[first..].iter().take_while(|(named, ..)| *named == cookie);
            let mut owners = self.owners.borrow_mut();
            let found = who.enumerate().find(|(_, (_, _, family, end))| owners.has(family, end));
            let found = found.map(|(more, _)| first + more);
            self.proven.borrow_mut().insert(cookie, found);
            found
        });
        at.map(|at| (self.all[at].2, self.all[at].3))
    }
}

/// What is believed of both ends of a connection.
pub type Ends<'a> = [Option<(&'a Family, &'a End)>; 2];
