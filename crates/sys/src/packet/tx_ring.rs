//! The send ring: one slot for each frame, TPACKET_V2 or TPACKET_V3 headers.
//!
//! At most half of the slots are given to the kernel at a time. A device may give a slot back as soon as it has passed a
//! reference to its memory on (loopback does, veth does not): then half a ring lies between a frame that is still
//! referred to and the one that overwrites it. That is a distance and no guarantee; on loopback a receiver without a ring
//! of its own may fall behind further.

use super::frame::{HEADROOM, complete};
use super::ring::{Fill, Geometry, Layout, Map};
use std::sync::atomic::Ordering::{Acquire, Release};

pub(super) struct Tx {
    /// Where in the mapping each slot begins: divisions, once.
    slots: Box<[usize]>,
    slot_size: usize,
    /// Slot that is filled next.
    next: usize,
    /// Oldest slot that may still be the kernel's, and how many there are from it on.
    oldest: usize,
    out: usize,
    longest: usize,
    vnet: bool,
    at: Offsets,
}

/// Offsets in struct tpacket2_hdr and tpacket3_hdr, and its length.
struct Offsets {
    status: usize,
    len: usize,
    start: usize,
    header: usize,
}

const SLOT: Offsets = Offsets { status: 0, len: 4, start: 12, header: 32 };
const IN_BLOCK: Offsets = Offsets { status: 20, len: 16, start: 24, header: 48 };

impl Tx {
    pub fn new(layout: Layout, geometry: Geometry, base: usize, longest: usize, vnet: bool) -> Tx {
        let at = if matches!(layout, Layout::Blocks { .. }) { IN_BLOCK } else { SLOT };
        let slots = (0..geometry.frames()).map(|slot| base + geometry.offset(slot)).collect();
        Tx { slots, slot_size: geometry.frame_size, next: 0, oldest: 0, out: 0, longest, vnet, at }
    }

    pub fn frames(&self) -> usize {
        self.slots.len()
    }

    fn offset(&self, slot: usize) -> usize {
        self.slots[slot]
    }

    /// The slot `n` behind this one, `n` being at most the ring's length.
    fn behind(&self, slot: usize, n: usize) -> usize {
        let slot = slot + n;
        if slot < self.frames() { slot } else { slot - self.frames() }
    }

    fn status(&self, map: &Map, slot: usize) -> u32 {
        // Pairs with the kernel's barrier before it gives a slot back: it has read the frame.
        map.status(self.offset(slot) + self.at.status).load(Acquire)
    }

    /// Counts slots that the kernel gave back.
    fn settle(&mut self, map: &Map) {
        while self.out > 0 && self.status(map, self.oldest) == libc::TP_STATUS_AVAILABLE {
            self.oldest = self.behind(self.oldest, 1);
            self.out -= 1;
        }
    }

    fn full(&self) -> bool {
        self.out >= self.frames() / 2
    }

    pub fn has_room(&self, map: &Map) -> bool {
        !self.full() || self.status(map, self.oldest) == libc::TP_STATUS_AVAILABLE
    }

    /// Frames whose sending the kernel has not begun.
    pub fn pending(&mut self, map: &Map) -> usize {
        self.settle(map);
        (0..self.out)
            .rev()
            .take_while(|n| {
                self.status(map, self.behind(self.oldest, *n)) & libc::TP_STATUS_SEND_REQUEST != 0
            })
            .count()
    }

    pub fn put(&mut self, map: &mut Map, fill: &mut Fill<'_>) -> Option<usize> {
        if self.full() {
            self.settle(map);
            if self.full() {
                return None;
            }
        }
        let slot = self.offset(self.next);
        if self.status(map, self.next) != libc::TP_STATUS_AVAILABLE {
            return None;
        }
        let room = self.at.header;
        // SAFETY: the slot is available: ours until its status is set below, the only place that gives one away.
        let bytes = unsafe { map.bytes_mut(slot, self.slot_size) };
        let body = &mut bytes[room..];
        let (len, how) = fill(&mut body[HEADROOM..HEADROOM + self.longest])?;
        let len = len.min(self.longest);
        let start = complete(body, len, &how, self.vnet);
        let end = HEADROOM + len;
        bytes[self.at.len..][..4].copy_from_slice(&((end - start) as u32).to_ne_bytes());
        bytes[self.at.start..][..2].copy_from_slice(&((room + start) as u16).to_ne_bytes());
        // Pairs with the kernel's look at the status: it sees the frame.
        map.status(slot + self.at.status).store(libc::TP_STATUS_SEND_REQUEST, Release);
        self.next = self.behind(self.next, 1);
        self.out += 1;
        Some(len)
    }

    /// Takes out the frame that the kernel marked as one that cannot be sent; those behind it move up, because the kernel
    /// goes on where it stopped. Returns its octets, 0 if there is none.
    pub fn take_out_refused(&mut self, map: &mut Map) -> usize {
        let refused = (0..self.out)
            .find(|n| self.status(map, self.behind(self.oldest, *n)) & libc::TP_STATUS_WRONG_FORMAT != 0);
        refused.map_or(0, |refused| self.take_out(map, refused))
    }

    /// Takes out the first frame whose sending the kernel has not begun. Returns its octets, 0 if there is none.
    pub fn take_out_first(&mut self, map: &mut Map) -> usize {
        match self.pending(map) {
            0 => 0,
            pending => self.take_out(map, self.out - pending),
        }
    }

    /// Takes out the frame so far behind the oldest slot; those behind it move up.
    fn take_out(&mut self, map: &mut Map, refused: usize) -> usize {
        let len = self.len(map, self.behind(self.oldest, refused));
        for n in refused..self.out - 1 {
            let (to, from) = [n, n + 1].map(|n| self.offset(self.behind(self.oldest, n))).into();
            let fields = [(self.at.len, 4), (self.at.start, 2)];
            for part in fields.map(|(at, len)| at..at + len) {
                self.copy(map, from, to, part);
            }
            self.copy(map, from, to, self.at.header..self.slot_size);
            // Pairs with the kernel's look at the status: it sees the frame that moved here.
            map.status(to + self.at.status).store(libc::TP_STATUS_SEND_REQUEST, Release);
        }
        self.next = self.behind(self.oldest, self.out - 1);
        self.out -= 1;
        // Pairs with the kernel's look at the status; there is nothing to be seen.
        map.status(self.offset(self.next) + self.at.status).store(libc::TP_STATUS_AVAILABLE, Release);
        len
    }

    /// Octets of the frame in a slot that is not the kernel's, without the tag and header that were put in front.
    fn len(&self, map: &Map, slot: usize) -> usize {
        // SAFETY: the kernel refused the slot, and touches it no more.
        let bytes = unsafe { map.bytes(self.offset(slot), self.at.header) };
        let word =
            |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
        let start = usize::from(u16::from_ne_bytes([bytes[self.at.start], bytes[self.at.start + 1]]));
        let before = self.at.header + HEADROOM;
        (start + word(self.at.len) as usize).saturating_sub(before)
    }

    fn copy(&self, map: &mut Map, from: usize, to: usize, part: std::ops::Range<usize>) {
        // SAFETY: the kernel touches a ring's slots only inside our call to it, but for frames that it has begun to send;
        // the slots here are those that it refused, or has not come to.
        let bytes = unsafe { map.bytes(from + part.start, part.len()) }.to_vec();
        // SAFETY: as above.
        unsafe { map.bytes_mut(to + part.start, part.len()) }.copy_from_slice(&bytes);
    }

    /// Makes slots available whose sending the kernel has not begun. It would go on at the first of them.
    pub fn forget_pending(&mut self, map: &Map) {
        let pending = self.pending(map);
        for _ in 0..pending {
            self.next = self.behind(self.next, self.frames() - 1);
            self.out -= 1;
            // Pairs with the kernel's look at the status; there is nothing to be seen.
            map.status(self.offset(self.next) + self.at.status).store(libc::TP_STATUS_AVAILABLE, Release);
        }
    }
}
