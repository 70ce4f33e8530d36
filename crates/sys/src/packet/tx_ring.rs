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
    geometry: Geometry,
    /// Where the send ring begins in the mapping: behind the receive ring.
    base: usize,
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
    /// Octets received (`tp_snaplen`), which the kernel does not look at here: where we note [`Tx::shift`].
    shift: usize,
}

const SLOT: Offsets = Offsets { status: 0, len: 4, start: 12, header: 32, shift: 8 };
const IN_BLOCK: Offsets = Offsets { status: 20, len: 16, start: 24, header: 48, shift: 12 };

/// How far apart the frames of neighbouring slots begin, relative to their slots, where there is room. Slots of long frames
/// lie at multiples of a power of two: without this, short frames in them would all use the same few lines of the
/// processor's cache. More than a usual frame with its header; less than what the field for it can say, in all.
const SHIFT: usize = 1600;
const MOST_SHIFT: usize = 60_000;

impl Tx {
    pub fn new(layout: Layout, geometry: Geometry, base: usize, longest: usize, vnet: bool) -> Tx {
        let at = if matches!(layout, Layout::Blocks { .. }) { IN_BLOCK } else { SLOT };
        Tx { geometry, base, next: 0, oldest: 0, out: 0, longest, vnet, at }
    }

    pub fn frames(&self) -> usize {
        self.geometry.frames()
    }

    fn offset(&self, slot: usize) -> usize {
        self.base + self.geometry.offset(slot)
    }

    /// Octets between the header of a slot, and the usual place of its frame.
    fn shift(&self, slot: usize) -> usize {
        let needed = self.at.header + HEADROOM + self.longest;
        let spare = self.geometry.frame_size.saturating_sub(needed).min(MOST_SHIFT);
        slot * SHIFT % (spare / SHIFT * SHIFT + SHIFT)
    }

    fn status(&self, map: &Map, slot: usize) -> u32 {
        // Pairs with the kernel's barrier before it gives a slot back: it has read the frame.
        map.status(self.offset(slot) + self.at.status).load(Acquire)
    }

    /// Counts slots that the kernel gave back.
    fn settle(&mut self, map: &Map) {
        while self.out > 0 && self.status(map, self.oldest) == libc::TP_STATUS_AVAILABLE {
            self.oldest = (self.oldest + 1) % self.frames();
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
                self.status(map, (self.oldest + n) % self.frames()) & libc::TP_STATUS_SEND_REQUEST != 0
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
        let shift = self.shift(self.next);
        let room = self.at.header + shift;
        // SAFETY: the slot is available: ours until its status is set below, the only place that gives one away.
        let bytes = unsafe { map.bytes_mut(slot, self.geometry.frame_size) };
        let body = &mut bytes[room..];
        let (len, how) = fill(&mut body[HEADROOM..HEADROOM + self.longest])?;
        let len = len.min(self.longest);
        let start = complete(body, len, &how, self.vnet);
        let end = HEADROOM + len;
        bytes[self.at.len..][..4].copy_from_slice(&((end - start) as u32).to_ne_bytes());
        bytes[self.at.start..][..2].copy_from_slice(&((room + start) as u16).to_ne_bytes());
        bytes[self.at.shift..][..4].copy_from_slice(&(shift as u32).to_ne_bytes());
        // Pairs with the kernel's look at the status: it sees the frame.
        map.status(slot + self.at.status).store(libc::TP_STATUS_SEND_REQUEST, Release);
        self.next = (self.next + 1) % self.frames();
        self.out += 1;
        Some(len)
    }

    /// Takes out the frame that the kernel marked as one that cannot be sent; those behind it move up, because the kernel
    /// goes on where it stopped. Returns its octets, 0 if there is none.
    pub fn take_out_refused(&mut self, map: &mut Map) -> usize {
        let frames = self.frames();
        let refused = (0..self.out)
            .find(|n| self.status(map, (self.oldest + n) % frames) & libc::TP_STATUS_WRONG_FORMAT != 0);
        let Some(refused) = refused else { return 0 };
        let len = self.len(map, (self.oldest + refused) % frames);
        for n in refused..self.out - 1 {
            let (to, from) =
                (self.offset((self.oldest + n) % frames), self.offset((self.oldest + n + 1) % frames));
            let fields = [(self.at.len, 4), (self.at.start, 2), (self.at.shift, 4)];
            for part in fields.map(|(at, len)| at..at + len) {
                self.copy(map, from, to, part);
            }
            self.copy(map, from, to, self.at.header..self.geometry.frame_size);
            // Pairs with the kernel's look at the status: it sees the frame that moved here.
            map.status(to + self.at.status).store(libc::TP_STATUS_SEND_REQUEST, Release);
        }
        self.next = (self.oldest + self.out - 1) % frames;
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
        let before = self.at.header + HEADROOM + word(self.at.shift) as usize;
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
            self.next = (self.next + self.frames() - 1) % self.frames();
            self.out -= 1;
            // Pairs with the kernel's look at the status; there is nothing to be seen.
            map.status(self.offset(self.next) + self.at.status).store(libc::TP_STATUS_AVAILABLE, Release);
        }
    }
}
