//! The reading end of a ring of datagrams.

use super::{Octets, Place};
use crate::atomic::{Ordering::*, fence};
use crate::direction::{Direction, Head, MOVES, Poisoned, Readable};

/// The reading end.
#[derive(Debug)]
pub struct Reader<'a, O> {
    direction: &'a Direction,
    ring: O,
}

/// What there is to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Read the carrier.
    Kernel,
    /// Read what was sent through the carrier before, then call [`Direction::drained`] with this head.
    Drain(Head),
    /// Nothing.
    Empty,
    /// A datagram.
    Datagram(Peeked),
}

/// A datagram that stays in the ring until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peeked {
    seen: Head,
    /// Where it stands.
    pub place: Place,
}

impl<'a, O: Octets> Reader<'a, O> {
    /// The reading end of `direction`, whose octets are `ring`'s.
    pub const fn new(direction: &'a Direction, ring: O) -> Self {
        Reader { direction, ring }
    }

    /// The octets.
    pub const fn ring(&self) -> &O {
        &self.ring
    }

    /// The datagram at the head. What is copied of it counts only once [`release`](Reader::release), or
    /// [`stands`](Reader::stands) where it is to stay, has said so: a sibling may take it meanwhile.
    ///
    /// # Errors
    /// The tail, the head or the record at the head is what no correct peer writes.
    #[inline]
    pub fn peek(&self) -> Result<Found, Poisoned> {
        for _ in 0..MOVES {
            let (head, available) = match self.direction.readable(self.ring.size())? {
                Readable::Kernel => return Ok(Found::Kernel),
                Readable::Drain(head) => return Ok(Found::Drain(head)),
                Readable::Ring { available: 0, .. } => return Ok(Found::Empty),
                Readable::Ring { head, available } => (head, available),
            };
            match Place::find(&self.ring, head.position(), available) {
                Ok(place) => return Ok(Found::Datagram(Peeked { seen: head, place })),
                // A sibling may have taken the record, and W have written over it.
                Err(poisoned) if self.at(head) => return Err(poisoned),
                Err(_) => {}
            }
        }
        Err(Poisoned)
    }

    /// Takes the datagram out of the ring; false: a sibling or a claim was faster, what was copied is not to be used. Who has
    /// released then fences and looks whether W waits for room, as after a commit of octets.
    #[inline]
    pub fn release(&self, peeked: &Peeked) -> bool {
        self.direction.commit(peeked.seen, peeked.place.span())
    }

    /// Whether the datagram has stood there until now, so that what was copied of it is what it is.
    #[inline]
    pub fn stands(&self, peeked: &Peeked) -> bool {
        self.at(peeked.seen)
    }

    /// Whether the head is still `seen`, after all octets that were read before.
    fn at(&self, seen: Head) -> bool {
        // Pairs with the fence of `Writer::reserve`: who read octets that were written over later sees the head which let them be.
        fence(Acquire);
        self.direction.h.head.load(Relaxed) == seen.raw()
    }
}
