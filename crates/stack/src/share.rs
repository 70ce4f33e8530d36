//! What sockets of all users of a stack have together: nobody has more of it than he leaves the others.

use crate::Stack;
use crate::time::Instant;
use alloc::vec::Vec;

/// Whose a socket is: the place of a user. 0: nobody's in particular.
pub(crate) type Whom = u32;

/// How much of something each user has.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    of: Vec<usize>,
    all: usize,
}

impl Shares {
    /// Whether there is so much for him, where so much is `free`. Who is nobody in particular may have all of it; a user no more than he leaves:
    /// one alone has half of it at most, two who both take what they can a third each, or a half and a quarter.
    #[inline]
    pub fn may_have(&self, whom: Whom, more: usize, free: usize) -> bool {
        let own = if whom == 0 { 0 } else { self.of(whom) };
        own + more <= free
    }

    /// What he has; who is nobody in particular has nothing that counts.
    #[inline]
    pub fn of(&self, whom: Whom) -> usize {
        self.of.get(whom as usize).copied().unwrap_or(0)
    }

    /// What all of them have.
    pub const fn all(&self) -> usize {
        self.all
    }

    /// He has so much more.
    #[inline]
    pub fn add(&mut self, whom: Whom, more: usize) {
        self.all += if whom == 0 { 0 } else { more };
        match self.of.get_mut(whom as usize) {
            _ if whom == 0 => {}
            Some(own) => *own += more,
            None => self.add_first(whom, more),
        }
    }

    #[cold]
    fn add_first(&mut self, whom: Whom, more: usize) {
        self.of.resize(whom as usize + 1, 0);
        self.of[whom as usize] = more;
    }

    /// He has so much less.
    #[inline]
    pub fn take(&mut self, whom: Whom, less: usize) {
        if whom != 0
            && let Some(own) = self.of.get_mut(whom as usize)
        {
            *own -= less;
            self.all -= less;
        }
    }
}

/// Copies of datagrams to groups and to everybody that all sockets of a user get at one time, at most: each of them is some work, and who sends one
/// pays for one.
pub(crate) const COPIES: u32 = 4096;

/// Copies that users have got.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    at: Instant,
    of: Vec<u32>,
}

impl Copies {
    /// Whether a socket of his may have one more now. Who is nobody in particular may have as many as there are.
    pub fn may_have(&mut self, now: Instant, whom: Whom) -> bool {
        if whom == 0 {
            return true;
        }
        if core::mem::replace(&mut self.at, now) != now {
            self.of.clear();
        }
        if self.of.len() <= whom as usize {
            self.of.resize(whom as usize + 1, 0);
        }
        let own = &mut self.of[whom as usize];
        let may = *own < COPIES;
        *own += u32::from(may);
        may
    }
}

impl Stack {
    /// The place of a user, by the number that the application has for him.
    pub(crate) fn whom(&mut self, user: u32) -> Whom {
        let next = self.whoms.len() as Whom + 1;
        *self.whoms.entry(user).or_insert(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(shares: &Shares) -> usize {
        assert_eq!(shares.of.iter().sum::<usize>(), shares.all());
        shares.all()
    }

    /// Takes one after the other as long as there is one for him; how many he has.
    fn fill(shares: &mut Shares, whom: Whom, most: usize, nobodys: usize) -> usize {
        while shares.may_have(whom, 1, most - nobodys - sum(shares)) {
            shares.add(whom, 1);
        }
        shares.of[whom as usize]
    }

    #[test]
    fn nobody_has_more_than_he_leaves_and_others_find_something() {
        let mut shares = Shares::default();
        assert_eq!([1, 2, 3].map(|whom| fill(&mut shares, whom, 256, 0)), [128, 64, 32]);
        // As soon as one has less others may have more.
        shares.take(1, 100);
        assert_eq!([3, 2].map(|whom| fill(&mut shares, whom, 256, 0)), [82, 73]);
        (4..10).for_each(|whom| assert!(fill(&mut shares, whom, 256, 0) > 0, "{whom}"));
        // What is nobody's leaves less, and is not bounded by what others have.
        let mut shares = Shares::default();
        assert_eq!(fill(&mut shares, 7, 100, 40), 30);
        assert!(shares.may_have(0, 30, 30) && !shares.may_have(7, 1, 30) && !shares.may_have(0, 31, 30));
        shares.add(0, 5);
        shares.take(0, 5);
        assert_eq!((sum(&shares), shares.of[0]), (30, 0));
    }
}
