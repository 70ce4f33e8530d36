//! Rings of datagrams: records with boundaries in the ring of a [`Direction`](crate::direction::Direction).
//!
//! Head, tail, path, wait words and asks are those of the direction, and mean what they mean for octets
//! (docs/switch-protocol.md): head and tail stand at boundaries of records, so a commit, a claim and what is sent again after
//! one are whole datagrams. A record may begin before the end of the ring and go on at its start.
//!
//! One writer and one reader at a time. *Writers* that share a socket take turns by a lock in memory of their own
//! (`WriterLine.lock`), which also keeps the true tail. *Readers* that share one need none: each copies a datagram out and
//! releases it by a compare-and-swap of the head; who loses forgets its copy and looks again.
//!
//! What others can write is checked where it is used: a record's word is read once, and no length or position that it says
//! reaches beyond what lies between head and tail. What makes no sense is [`Poisoned`](crate::direction::Poisoned), and the end
//! of this one socket's ring.

mod reader;
mod record;
mod writer;

pub use reader::{Found, Peeked, Reader};
pub use record::{ALIGN, HEADS, LONGEST, MARK, Place, Record, WORD, span};
pub use writer::{Refused, Reserved, Writer};

/// Octets of a line of the processors' caches.
pub const LINE: u64 = 64;

/// The octets of a ring, by positions that are taken modulo its size. What is asked for is at most as long as the ring.
pub trait Octets {
    /// Octets of the ring, a power of two.
    fn size(&self) -> u64;
    /// Copies octets in.
    fn put(&self, position: u64, from: &[u8]);
    /// Copies octets out.
    fn get(&self, position: u64, to: &mut [u8]);
    /// What will stand there is to be read as soon as it does.
    #[inline]
    fn expect(&self, _position: u64) {}
    /// So many octets there are to be written soon.
    #[inline]
    fn prepare(&self, _position: u64, _octets: u64) {}
}

#[cfg(not(loom))]
impl Octets for crate::ring::Ring {
    #[inline]
    fn size(&self) -> u64 {
        crate::ring::Ring::size(self)
    }

    #[inline]
    fn put(&self, position: u64, from: &[u8]) {
        self.copy_from_slice(position, from);
    }

    #[inline]
    fn get(&self, position: u64, to: &mut [u8]) {
        self.copy_to_slice(position, to);
    }

    #[inline]
    fn expect(&self, position: u64) {
        self.prefetch_read(position);
    }

    #[inline]
    fn prepare(&self, position: u64, octets: u64) {
        // Whoever writes where the position is from may say anything.
        for line in 0..octets.div_ceil(LINE) {
            self.prefetch_write(position.wrapping_add(line * LINE));
        }
    }
}

/// A ring of an [`OwnArena`](crate::region::OwnArena).
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    /// The arena.
    pub arena: &'a crate::region::OwnArena,
    /// Which of its slots: one that it has.
    pub slot: u32,
    /// Which of the slot's rings, 0 or 1.
    pub direction: usize,
}

#[cfg(not(loom))]
impl Octets for Slot<'_> {
    fn size(&self) -> u64 {
        u64::from(self.arena.geometry().ring)
    }

    fn put(&self, position: u64, from: &[u8]) {
        self.arena.copy_in(self.slot, self.direction, position, from);
    }

    fn get(&self, position: u64, to: &mut [u8]) {
        self.arena.copy_out(self.slot, self.direction, position, to);
    }
}
