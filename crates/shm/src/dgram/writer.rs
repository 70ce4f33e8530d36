//! The writing end of a ring of datagrams.

use super::{ALIGN, HEADS, LONGEST, MARK, Octets, Place, Record, WORD, span};
use crate::atomic::{Ordering::*, fence};
use crate::direction::{Direction, Poisoned, position};

/// The writing end, for as long as the writer's lock is held.
#[derive(Debug)]
pub struct Writer<'a, O> {
    direction: &'a Direction,
    ring: O,
    tail: u64,
}

/// Why a datagram cannot stand in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Not now.
    Full,
    /// Never, as the ring is shorter than it, or no datagram is as long.
    TooLong,
    /// The peer wrote something that no correct peer writes.
    Poisoned,
}

impl From<Poisoned> for Refused {
    fn from(Poisoned: Poisoned) -> Refused {
        Refused::Poisoned
    }
}

/// Room for a datagram, which nobody sees until it is committed and published.
#[derive(Debug)]
#[must_use]
pub struct Reserved {
    start: u64,
    head: usize,
    octets: usize,
}

impl Reserved {
    /// Position of its head.
    pub const fn head_at(&self) -> u64 {
        self.start + WORD
    }

    /// Position of the datagram.
    pub const fn at(&self) -> u64 {
        self.head_at() + self.head as u64
    }

    /// Octets there is room for.
    pub const fn room(&self) -> usize {
        self.octets
    }
}

impl<'a, O: Octets> Writer<'a, O> {
    /// The writing end of `direction`, whose octets are `ring`'s; `tail`, a multiple of [`ALIGN`], is the true tail, which the
    /// writers keep for themselves.
    pub const fn new(direction: &'a Direction, ring: O, tail: u64) -> Self {
        assert!(tail.is_multiple_of(ALIGN), "between records");
        Writer { direction, ring, tail }
    }

    /// The octets.
    pub const fn ring(&self) -> &O {
        &self.ring
    }

    /// The true tail.
    pub const fn tail(&self) -> u64 {
        self.tail
    }

    /// Room for a head and a datagram. The ring is full from `limit` octets of records on, and where it has no room; one that
    /// is empty has room for one datagram of any length whatever the limit, as the kernel's buffers have.
    ///
    /// # Errors
    /// [`Refused`].
    #[inline]
    pub fn reserve(&self, head: usize, octets: usize, limit: u64) -> Result<Reserved, Refused> {
        let size = self.ring.size();
        if head > HEADS || octets > LONGEST || span(head, octets) > size {
            return Err(Refused::TooLong);
        }
        let space = self.direction.space(self.tail, size)?;
        if !space.is_multiple_of(ALIGN) {
            return Err(Refused::Poisoned);
        }
        let used = size - space;
        if span(head, octets) > space || (used > 0 && used + span(head, octets) > limit) {
            return Err(Refused::Full);
        }
        // Pairs with `Reader::at`.
        fence(Release);
        Ok(Reserved { start: self.tail, head, octets })
    }

    /// Ends a record whose head and octets were copied to where [`Reserved`] says; the datagram may be shorter than there was
    /// room for. It is seen with the next [`publish`](Writer::publish).
    ///
    /// # Panics
    /// For a longer one, and for room that was reserved before another commit.
    #[inline]
    pub fn commit(&mut self, reserved: Reserved, octets: usize) {
        assert!(octets <= reserved.octets && reserved.start == self.tail, "the room that was reserved");
        let word = Record { octets: octets as u32, head: reserved.head as u16, mark: MARK };
        self.ring.put(self.tail, &word.encode());
        self.tail = position::onward(self.tail, span(reserved.head, octets));
    }

    /// Puts a datagram in, as [`reserve`](Writer::reserve), a copy and [`commit`](Writer::commit).
    ///
    /// # Errors
    /// [`Refused`].
    pub fn push(&mut self, head: &[u8], octets: &[u8], limit: u64) -> Result<(), Refused> {
        let reserved = self.reserve(head.len(), octets.len(), limit)?;
        self.ring.put(reserved.head_at(), head);
        self.ring.put(reserved.at(), octets);
        self.commit(reserved, octets.len());
        Ok(())
    }

    /// Shows the reader what was committed. The caller then fences and looks whether a reader sleeps or asks for something, as
    /// after a publish of octets (I4).
    #[inline]
    pub fn publish(&self) {
        self.direction.publish(self.tail);
    }

    /// Counts a datagram that was lost, as there was no room for it.
    pub fn lose(&self) {
        // W alone writes it, under its lock.
        let lost = &self.direction.t.lost;
        lost.store(lost.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// After a claim that froze the head at `from`: the datagram there, which W sends again through the carrier, and then that
    /// at its [`end`](Place::end). `None`: that was all.
    ///
    /// # Errors
    /// The reader has moved the head to where none is, or written over the records.
    pub fn again(&self, from: u64) -> Result<Option<Place>, Poisoned> {
        match position::distance(from, self.tail) {
            0 => Ok(None),
            left => Place::find(&self.ring, from, left).map(Some),
        }
    }
}
