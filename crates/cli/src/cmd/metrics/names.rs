//! How programs are called in labels: each user has so many names, and nobody takes those of others.

use crate::connections;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Programs of root and of the own user that have a label of their own.
pub const OF_TRUSTED: usize = 64;
/// Programs of each other user that have one, and of all other users.
pub const OF_USER: usize = 16;
pub const OF_USERS: usize = 1024;
/// Of these such as are free for who comes, as long as anybody has some who is gone.
const FOR_NEW: usize = 256;
/// Other users who show nothing any more, and are remembered.
pub const GONE: usize = 256;
/// Name of the programs that have none.
pub const OTHER: &str = "other";

/// A user's program, as the labels name it: what one user's says of itself is never in the sums of another one's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    pub user: u32,
    pub command: String,
}

impl Label {
    pub fn user(&self) -> (&'static str, String) {
        ("user", self.user.to_string())
    }

    pub fn command(&self) -> (&'static str, String) {
        ("command", self.command.clone())
    }
}

/// The names that were given.
#[derive(Debug, Default)]
pub struct Names {
    given: BTreeSet<Label>,
    /// Other users, and the look in which each was there last.
    users: BTreeMap<u32, u64>,
    looks: u64,
}

impl Names {
    /// The label of a program; `before`: the one that it is counted by.
    pub fn label(&mut self, user: u32, command: String, before: Option<&Label>) -> Label {
        let label = Label { user, command };
        let other = Label { user, command: OTHER.to_owned() };
        // What was counted so stays there: no sum goes back while it lives.
        if before == Some(&other) {
            return other;
        }
        if self.given.contains(&label) {
            return label;
        }
        let has_room = if connections::is_trusted(user) {
            self.of_trusted() < OF_TRUSTED
        } else {
            self.of(user) < OF_USER && self.of_others() < OF_USERS
        };
        if !has_room {
            return other;
        }
        if !connections::is_trusted(user) {
            self.users.entry(user).or_insert(self.looks);
        }
        self.given.insert(label.clone());
        label
    }

    fn of(&self, user: u32) -> usize {
        let first = Label { user, command: String::new() };
        self.given.range(first..).take_while(|label| label.user == user).count()
    }

    fn of_trusted(&self) -> usize {
        let own = Some(bypath_sys::process::euid()).filter(|user| *user != 0);
        self.of(0) + own.map_or(0, |user| self.of(user))
    }

    fn of_others(&self) -> usize {
        self.given.len() - self.of_trusted()
    }

    /// A look is over, in which these users were there. Of other users who were not, those who went first are forgotten, as far as they are too many, or
    /// their names are wanted: it says who.
    pub fn end_look(&mut self, there: impl Iterator<Item = u32>) -> HashSet<u32> {
        self.looks += 1;
        self.users
            .extend(there.filter(|user| !connections::is_trusted(*user)).map(|user| (user, self.looks)));
        let mut gone: Vec<_> = self
            .users
            .iter()
            .filter(|(_, last)| **last < self.looks)
            .map(|(user, last)| (*last, *user))
            .collect();
        gone.sort_unstable();
        let (mut count, mut names) = (gone.len(), self.of_others());
        let mut forgotten = HashSet::new();
        for (_, user) in gone {
            if count <= GONE && names <= OF_USERS - FOR_NEW {
                break;
            }
            (count, names) = (count - 1, names - self.of(user));
            forgotten.insert(user);
        }
        self.given.retain(|label| !forgotten.contains(&label.user));
        self.users.retain(|user, _| !forgotten.contains(user));
        forgotten
    }
}
