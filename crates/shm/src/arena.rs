//! The arena of a pair of processes: connection slots, each a control page and two rings.
//!
//! One sealed memfd. The accepting process creates it and hands out slots; both map it. Slot layout, in bytes:
//! control page (4096), ring of direction 0 (dialler to accepter), ring of direction 1. Slot 0 starts after the
//! arena's own page. See docs/shm-format.md.

use crate::direction::Direction;
use crate::mailbox::Mailbox;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Page that precedes the slots, and size of a slot's control page.
pub const PAGE: usize = 4096;

/// Use of a slot: one bit per side.
pub mod slot_use {
    /// The accepting side (which allocates) uses the slot.
    pub const ACCEPTER: u32 = 1;
    /// The dialling side uses the slot.
    pub const DIALLER: u32 = 2;
}

/// Control page of one connection.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Control {
    /// Bits of [`slot_use`].
    pub in_use: AtomicU32,
    /// Raised whenever the slot is handed out: who looks from outside tells the connections apart that had it. 0 = never.
    pub life: AtomicU32,
    /// Cookies of the dialling and the accepting socket, for checks and debugging.
    pub cookies: [AtomicU64; 2],
    /// End numbers in the dialler's and the accepter's family: what to mark in their inboxes.
    pub ends: [AtomicU32; 2],
    /// Directions: 0 = dialler to accepter, 1 = accepter to dialler.
    pub direction: [Direction; 2],
    /// Of a socket of datagrams, in place of the directions: on the same rings, with the same numbers.
    pub mailbox: [Mailbox; 2],
}

impl Control {
    /// Begins a life of the slot, which nobody uses: both directions are on the kernel path, at position 0. The sockets'
    /// numbers are for the caller to enter: whoever looks from outside does not know the slot by the old ones any more.
    pub fn begin(&self) {
        for cookie in &self.cookies {
            cookie.store(0, Relaxed);
        }
        // Each Release: the numbers are gone before the life is another, that before the words are those of the new one.
        self.life.fetch_add(1, AcqRel);
        self.in_use.store(slot_use::ACCEPTER | slot_use::DIALLER, Release);
        self.direction.iter().for_each(Direction::reset);
    }

    /// Enters the sockets' numbers, that of the dialling one first: the slot is theirs.
    pub fn name(&self, cookies: [u64; 2]) {
        for (place, cookie) in self.cookies.iter().zip(cookies) {
            place.store(cookie, Release);
        }
    }
}

/// Geometry of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Number of slots, at most [`Geometry::MAX_SLOTS`].
    pub slots: u32,
    /// Bytes of one ring, a power of two.
    pub ring: u32,
}

impl Geometry {
    /// Slots an arena may have.
    pub const MAX_SLOTS: u32 = 4096;
    /// Bytes that a ring may have.
    pub const MAX_RING: u32 = 1 << 20;

    /// Whether a geometry named by a peer is acceptable.
    pub fn is_valid(self) -> bool {
        (1..=Self::MAX_SLOTS).contains(&self.slots)
            && self.ring.is_power_of_two()
            && (PAGE as u32..=Self::MAX_RING).contains(&self.ring)
    }

    /// Bytes of one slot.
    pub const fn slot_size(self) -> usize {
        PAGE + 2 * self.ring as usize
    }

    /// Bytes of the whole arena.
    pub const fn size(self) -> usize {
        PAGE + self.slots as usize * self.slot_size()
    }

    /// Offset of a slot's control page.
    pub const fn slot(self, slot: u32) -> usize {
        PAGE + slot as usize * self.slot_size()
    }

    /// Offset of a slot's ring of direction `d`.
    pub const fn ring_at(self, slot: u32, d: usize) -> usize {
        self.slot(slot) + PAGE + d * self.ring as usize
    }
}

const _: () = assert!(size_of::<Control>() == PAGE);
