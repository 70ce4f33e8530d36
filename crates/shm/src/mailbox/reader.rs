//! The reading end of a mailbox.

use super::{Mailbox, phase, possible};
use crate::atomic::{Ordering::*, fence};
use crate::dgram::{Octets, Place};
use crate::direction::{MOVES, Poisoned};

/// The reading end: every thread of the receiving socket may have one.
#[derive(Debug)]
pub struct Reader<'a, O> {
    pub(super) mailbox: &'a Mailbox,
    ring: O,
}

/// A time for which the gate opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Epoch(u64);

/// A datagram that stays in the ring until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peeked {
    head: u64,
    /// Where it stands.
    pub place: Place,
}

impl<'a, O: Octets> Reader<'a, O> {
    /// The reading end of `mailbox`, whose octets are `ring`'s.
    pub const fn new(mailbox: &'a Mailbox, ring: O) -> Self {
        Reader { mailbox, ring }
    }

    /// The octets.
    pub const fn ring(&self) -> &O {
        &self.ring
    }

    /// Begins to open: from now on the carrier is read until it says that it is empty, then
    /// [`open_finish`](Reader::open_finish) is called. There may be other calls in between, and an opening that another thread, or an
    /// earlier call, has begun goes on here: read the carrier to its end after *this* call. `None`: it is open, or dead, or
    /// another thread has changed it just now.
    #[inline]
    pub fn open_begin(&self) -> Option<Epoch> {
        let gate = &self.mailbox.gate.0;
        let seen = gate.load(Acquire);
        let opening = match seen & 3 {
            phase::CLOSED => {
                let next = (seen | 3).wrapping_add(1) | phase::OPENING;
                gate.compare_exchange(seen, next, AcqRel, Relaxed).ok()?;
                next
            }
            phase::OPENING => seen,
            _ => return None,
        };
        // Pairs with the fence of `Writer::sent_by_kernel`: who still sees the gate closed there has sent what we read now.
        fence(SeqCst);
        Some(Epoch(opening))
    }

    /// Opens. False: it was closed meanwhile, or something is in the ring, which is to be read first.
    #[inline]
    pub fn open_finish(&self, epoch: Epoch) -> bool {
        self.is_empty()
            && self
                .mailbox
                .gate
                .0
                .compare_exchange(epoch.0, epoch.0 & !3 | phase::OPEN, AcqRel, Relaxed)
                .is_ok()
    }

    /// Closes, whoever has opened it. Afterwards look at [`is_empty`](Reader::is_empty): only then nothing comes by the ring.
    pub fn close(&self) {
        let gate = &self.mailbox.gate.0;
        // Pairs with that of `open_begin`: who opens sees what we said before (that we sleep), or we see that it opens.
        fence(SeqCst);
        let mut seen = gate.load(Relaxed);
        for _ in 0..MOVES {
            if matches!(seen & 3, phase::CLOSED | phase::DEAD) {
                break;
            }
            match gate.compare_exchange(seen, seen & !3 | phase::CLOSED, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        // Pairs with the fence of `Writer::push`: it sees that the gate is closed, or we see its record.
        fence(SeqCst);
    }

    /// Whether writers may use the ring.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.mailbox.gate.0.load(Relaxed) & 3 == phase::OPEN
    }

    /// Whether the gate is closed, for now or for good.
    #[inline]
    pub fn is_closed(&self) -> bool {
        matches!(self.mailbox.gate.0.load(SeqCst) & 3, phase::CLOSED | phase::DEAD)
    }

    /// Whether nothing is in the ring.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.mailbox.unread() == 0
    }

    /// As [`is_empty`](Reader::is_empty), of who looks again and again: the lines of the next record are asked for, which so come together with the
    /// tail, and not after it.
    #[inline]
    pub fn is_empty_so_far(&self) -> bool {
        // In this order, as in `Mailbox::unread`.
        let head = self.mailbox.head.0.load(Acquire);
        let is_empty = self.mailbox.tail.0.load(Acquire) == head;
        if is_empty {
            self.ring.expect(head);
        }
        is_empty
    }

    /// As [`Mailbox::is_dead`].
    pub fn is_dead(&self) -> bool {
        self.mailbox.is_dead()
    }

    /// As [`Mailbox::kill`].
    pub fn kill(&self) {
        self.mailbox.kill();
    }

    /// The datagram at the head. What is copied of it counts only once [`release`](Reader::release), or
    /// [`stands`](Reader::stands) where it is to stay, has said so: another thread may take it meanwhile, or its writer take it back.
    ///
    /// # Errors
    /// The head, the tail or the record at the head is what no correct process writes.
    #[inline]
    pub fn peek(&self) -> Result<Option<Peeked>, Poisoned> {
        for _ in 0..MOVES {
            // Acquire pairs with every write to the head: who moved it has seen a tail that is not behind it.
            let head = possible(self.mailbox.head.0.load(Acquire))?;
            // Acquire pairs with the tail's store in `Writer::push`.
            let available = self.mailbox.tail.0.load(Acquire).wrapping_sub(head);
            if available == 0 {
                self.ring.expect(head);
                return Ok(None);
            }
            match Place::find(&self.ring, head, available) {
                Ok(place) => return Ok(Some(Peeked { head, place })),
                // Another thread may have taken the record, and W have written over it.
                Err(poisoned) if self.at(head) => return Err(poisoned),
                Err(_) => {}
            }
        }
        Err(Poisoned)
    }

    /// Takes the datagram out of the ring; false: it was taken, or taken back, and what was copied is not to be used.
    #[inline]
    pub fn release(&self, peeked: &Peeked) -> bool {
        let next = peeked.head.wrapping_add(peeked.place.span());
        // Release pairs with the Acquire of the head in `Writer::push`: our copy is done before W writes over it.
        self.mailbox.head.0.compare_exchange(peeked.head, next, AcqRel, Relaxed).is_ok()
    }

    /// Whether the datagram has stood there until now, so that what was copied of it is what it is.
    #[inline]
    pub fn stands(&self, peeked: &Peeked) -> bool {
        self.at(peeked.head)
    }

    /// Whether the head is still there, after all octets that were read before.
    fn at(&self, head: u64) -> bool {
        // Pairs with the fence of `Writer::push`: who read octets that were written over later sees the head which let them be.
        fence(Acquire);
        self.mailbox.head.0.load(Relaxed) == head
    }
}
