//! The receive ring: TPACKET_V3 (blocks) and TPACKET_V2 (a slot for each frame).

use super::Socket;
use super::frame::{Arrival, HEADROOM, LONGEST, Stamp, VnetHeader};
use super::ring::{Each, Geometry, Layout, Map};
use std::sync::atomic::Ordering::{Acquire, Release};

/// Where we are in the receive ring, which begins at the mapping's first octet.
pub(super) struct Rx {
    blocks: bool,
    geometry: Geometry,
    vnet: bool,
    /// Block, or frame, that is looked at next.
    current: usize,
    /// Of the current block: frames not given out yet, and the offset of the first of them.
    left: u32,
    next: usize,
    /// For frames that are longer than a slot; empty before the first of them.
    long: Vec<u8>,
}

// linux/if_packet.h: struct tpacket_block_desc with tpacket_hdr_v1.
const BLOCK_STATUS: usize = 8;
const BLOCK_FRAMES: usize = 12;
const BLOCK_FIRST: usize = 16;
const BLOCK_HEADER: usize = 48;

/// Offsets in a frame's header: struct tpacket2_hdr or tpacket3_hdr, and the address behind it.
struct Offsets {
    status: usize,
    len: usize,
    captured: usize,
    start: usize,
    time: usize,
    tci: usize,
    tpid: usize,
    /// `sll_pkttype`.
    kind: usize,
    whole: usize,
}

const SLOT: Offsets = Offsets {
    status: 0,
    len: 4,
    captured: 8,
    start: 12,
    time: 16,
    tci: 24,
    tpid: 26,
    kind: 32 + 10,
    whole: 52,
};
const IN_BLOCK: Offsets = Offsets {
    status: 20,
    len: 16,
    captured: 12,
    start: 24,
    time: 4,
    tci: 32,
    tpid: 36,
    kind: 48 + 10,
    whole: 68,
};

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_ne_bytes)
}

/// Has the processor fetch what is likely to be a header and the first octets of its frame.
#[inline]
fn fetch(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if at + 128 < bytes.len() {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, inside the slice.
        unsafe {
            _mm_prefetch(bytes.as_ptr().add(at).cast(), _MM_HINT_T0);
            _mm_prefetch(bytes.as_ptr().add(at + 64).cast(), _MM_HINT_T0);
        }
    }
}

/// The frame whose header begins `bytes`; `None` where lengths make no sense.
fn frame<'a>(bytes: &'a [u8], at: &Offsets, vnet: bool) -> Option<(&'a [u8], Arrival)> {
    let header = bytes.get(..at.whole)?;
    let start = usize::from(half(header, at.start));
    let frame = bytes.get(start..)?.get(..word(header, at.captured) as usize)?;
    let mut found = Arrival {
        len: frame.len(),
        whole: word(header, at.len) as usize,
        kind: header[at.kind],
        ..Arrival::default()
    };
    let status = word(header, at.status);
    found.status(status, half(header, at.tci), half(header, at.tpid));
    let (seconds, ns) = (u64::from(word(header, at.time)), u64::from(word(header, at.time + 4)));
    found.stamp = Some(Stamp {
        ns: seconds * 1_000_000_000 + ns,
        hardware: status & libc::TP_STATUS_TS_RAW_HARDWARE != 0,
    });
    if vnet {
        let encoded = start.checked_sub(VnetHeader::SIZE).and_then(|s| bytes.get(s..start));
        found.vnet = encoded.and_then(|b| b.try_into().ok()).map(VnetHeader::decode);
    }
    Some((frame, found))
}

/// Takes the frame that a slot has only a part of; `None` where it is not in the queue.
fn whole<'a>(socket: &Socket, buffer: &'a mut Vec<u8>, vnet: bool) -> Option<&'a [u8]> {
    buffer.resize(Socket::buffer_for(LONGEST), 0);
    let len = socket.receive(buffer, vnet).ok()?.len;
    buffer.get(HEADROOM..HEADROOM + len)
}

impl Rx {
    pub fn new(layout: Layout, geometry: Geometry, vnet: bool) -> Rx {
        Rx {
            blocks: matches!(layout, Layout::Blocks { .. }),
            geometry,
            vnet,
            current: 0,
            left: 0,
            next: 0,
            long: Vec::new(),
        }
    }

    pub fn bytes(&self) -> usize {
        self.geometry.bytes()
    }

    pub fn receive(&mut self, map: &Map, socket: &Socket, most: usize, each: &mut Each<'_>) -> usize {
        let mut given = 0;
        // Bounded by the ring, so that a sender that is faster than `each` cannot keep us here.
        let mut looks = if self.blocks { self.geometry.blocks } else { self.geometry.frames() };
        while given < most && looks > 0 {
            let went_on = if self.blocks {
                self.give_block(map, most, &mut given, &mut looks, each)
            } else {
                looks -= 1;
                self.give_slot(map, socket, &mut given, each)
            };
            if !went_on {
                break;
            }
        }
        given
    }

    /// Gives out frames of the current block, and the block back if none is left. False: the block is the kernel's.
    fn give_block(
        &mut self,
        map: &Map,
        most: usize,
        given: &mut usize,
        looks: &mut usize,
        each: &mut Each<'_>,
    ) -> bool {
        let block = self.current * self.geometry.block_size;
        let status = map.status(block + BLOCK_STATUS);
        // Pairs with the kernel's barrier before it sets the status: the block's contents are seen.
        if status.load(Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: the kernel gave the block over and does not write it before the status is set back below.
        let bytes = unsafe { map.bytes(block, self.geometry.block_size) };
        if self.left == 0 {
            self.left = word(bytes, BLOCK_FRAMES);
            self.next = word(bytes, BLOCK_FIRST) as usize;
        }
        while self.left > 0 && *given < most {
            let at = self.next;
            let here = bytes.get(at.max(BLOCK_HEADER)..).unwrap_or(&[]);
            self.left -= 1;
            let apart = word(here, 0) as usize;
            self.next = at.saturating_add(apart);
            fetch(bytes, at.wrapping_add(4 * apart));
            let Some((frame, arrival)) = frame(here, &IN_BLOCK, self.vnet) else {
                self.left = 0;
                break;
            };
            *given += 1;
            each(frame, &arrival);
        }
        if self.left == 0 {
            // Pairs with the kernel's look at the status: our reads of the block are done.
            status.store(libc::TP_STATUS_KERNEL, Release);
            self.current = (self.current + 1) % self.geometry.blocks;
            *looks -= 1;
        }
        true
    }

    /// Gives out the frame in the current slot. False: the slot is the kernel's.
    fn give_slot(&mut self, map: &Map, socket: &Socket, given: &mut usize, each: &mut Each<'_>) -> bool {
        let slot = self.geometry.offset(self.current);
        let status = map.status(slot + SLOT.status);
        // Pairs with the kernel's barrier before it sets the status: the slot's contents are seen.
        let bits = status.load(Acquire);
        if bits & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: the kernel gave the slot over and does not write it before the status is set back below.
        let bytes = unsafe { map.bytes(slot, self.geometry.frame_size) };
        // The kernel queues such frames in the order of their slots, before it gives the slot over.
        let whole =
            if bits & libc::TP_STATUS_COPY != 0 { whole(socket, &mut self.long, self.vnet) } else { None };
        if let Some((part, mut arrival)) = frame(bytes, &SLOT, self.vnet) {
            *given += 1;
            let frame = whole.unwrap_or(part);
            arrival.len = frame.len();
            each(frame, &arrival);
        }
        // Pairs with the kernel's look at the status: our reads of the slot are done.
        status.store(libc::TP_STATUS_KERNEL, Release);
        self.current = (self.current + 1) % self.geometry.frames();
        true
    }
}
