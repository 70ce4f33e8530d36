//! Memory that the kernel and we share (PACKET_RX_RING, PACKET_TX_RING): frames without a system call each.
//!
//! A status word says whose a frame, or a block of frames, is. Safe code sees memory only while it is ours, as a slice
//! for the length of a closure. The kernel is trusted; what it writes is still checked against the ring's bounds.

use super::Socket;
use super::frame::{Arrival, Departure};
use super::rx_ring::Rx;
use super::tx_ring::Tx;
use crate::syscall::{check, syscall};
use crate::{Errno, Result, sock};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicU32;

/// How frames are received through the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// TPACKET_V3: the kernel fills blocks, and gives one over when it is full, or this many milliseconds old. The least
    /// CPU per frame; a single frame waits for the time.
    Blocks {
        /// Milliseconds, from 1.
        retire_ms: u32,
        /// Octets of a block, 32 KiB to 4 MiB, rounded up to a power of two that holds the longest frame.
        size: usize,
    },
    /// TPACKET_V2: one slot per frame, given over at once. The lowest latency.
    Slots,
}

/// What rings are to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The form of both rings.
    pub layout: Layout,
    /// Octets of the receive ring, rounded up; 0 = none.
    pub receive: usize,
    /// Frames of the send ring, rounded up; 0 = none.
    pub send: usize,
    /// Octets of the longest frame.
    pub longest: usize,
    /// A virtio-net header stands in front of every frame.
    pub vnet: bool,
}

/// Blocks of one kind of ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Geometry {
    pub block_size: usize,
    pub blocks: usize,
    pub frame_size: usize,
}

impl Geometry {
    pub const fn bytes(&self) -> usize {
        self.block_size * self.blocks
    }

    pub const fn frames(&self) -> usize {
        self.block_size / self.frame_size * self.blocks
    }

    /// Offset of a frame in its ring: no frame crosses a block's end.
    pub const fn offset(&self, frame: usize) -> usize {
        let per_block = self.block_size / self.frame_size;
        frame / per_block * self.block_size + frame % per_block * self.frame_size
    }

    /// At least `frames` frames of `frame_size` octets.
    fn of_frames(frames: usize, frame_size: usize) -> Geometry {
        let frame_size = spread(frame_size);
        let all = (frames * frame_size).next_power_of_two().min(LARGE_BLOCK);
        let block_size = frame_size.next_power_of_two().max(BLOCK).max(all);
        let blocks = frames.div_ceil(block_size / frame_size).max(1);
        Geometry { block_size, blocks, frame_size }
    }
}

/// Octets of a slot for frames of up to so many. Frames are mostly shorter: were the slots as long as a power of two, all of
/// the frames' first octets would use the same few lines of the processor's cache.
pub(super) fn spread(frame_size: usize) -> usize {
    let least = frame_size.next_multiple_of(LINE);
    if least <= SHORT {
        return least;
    }
    match least % CYCLE {
        beyond if beyond < APART => least + APART - beyond,
        beyond if beyond > CYCLE - APART => least + CYCLE + APART - beyond,
        _ => least,
    }
}

/// Octets of a line of the cache.
const LINE: usize = 64;
/// Slots of frames up to this length need no more room between them.
const SHORT: usize = 4096;
/// Addresses so far apart use the same lines of the cache, or few others.
const CYCLE: usize = 16 * 1024;
/// How far the beginnings of neighbouring slots then are from the same lines, at least: a usual frame with its header.
const APART: usize = 26 * LINE;
/// Blocks are contiguous memory, which the kernel has in pieces of up to this size, and makes out of pages otherwise. In two
/// blocks slots of the same place use the same lines of the cache: one large block is better than many.
const LARGE_BLOCK: usize = 4 << 20;
/// Frames begin at multiples of this (TPACKET_ALIGNMENT).
const ALIGNMENT: usize = 16;
/// Frames of a send ring at least: half of them are kept back.
const LEAST: usize = 2;
/// The least size of a block.
const BLOCK: usize = 32 * 1024;
/// What stands in front of a block's frames.
const BLOCK_HEADER: usize = 64;
/// Headers in front of a frame: the longest tpacket header, an address, a virtio-net header, and room for alignment.
const OVERHEAD: usize = 48 + 20 + 12 + 4 * ALIGNMENT;

/// The mapping of a socket's rings.
pub(super) struct Map {
    base: *mut u8,
    len: usize,
}

// SAFETY: an address of memory that belongs to no thread; whoever owns the `Map` may use it.
unsafe impl Send for Map {}

impl Map {
    /// The status word at `offset`.
    pub fn status(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset <= self.len - 4);
        // SAFETY: aligned (the mapping is page aligned), inside the mapping, which lives as long as `self`. The kernel
        // and we access it as one word.
        unsafe { AtomicU32::from_ptr(self.base.add(offset).cast()) }
    }

    /// `len` octets at `offset`.
    ///
    /// # Safety
    /// They are ours until the slice's end: the kernel does not write them.
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: inside the mapping, and not written meanwhile (the caller's contract).
        unsafe { std::slice::from_raw_parts(self.base.add(offset), len) }
    }

    /// `len` octets at `offset`, to be written.
    ///
    /// # Safety
    /// They are ours until the slice's end: the kernel neither reads nor writes them.
    pub unsafe fn bytes_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: inside the mapping, exclusively ours (the caller's contract, and `&mut self`).
        unsafe { std::slice::from_raw_parts_mut(self.base.add(offset), len) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: slices and words of the mapping borrow `self`, so there are none left.
        unsafe { syscall(libc::SYS_munmap, [self.base as usize, self.len, 0, 0, 0, 0]) };
    }
}

/// Writes a frame, and returns its length and facts; `None`: there is none.
pub type Fill<'a> = dyn FnMut(&mut [u8]) -> Option<(usize, Departure)> + 'a;
/// Takes a frame.
pub type Each<'a> = dyn FnMut(&[u8], &Arrival) + 'a;

/// A packet socket with its rings.
pub struct Ring {
    // First, so that the mapping is gone before the descriptor.
    map: Map,
    receive: Option<Rx>,
    send: Option<Tx>,
    /// Octets of the frame that the kernel refused last.
    refused: usize,
    socket: Socket,
}

impl Ring {
    /// Gives a socket its rings. It must not be bound yet: what arrives before would be in the socket's queue.
    ///
    /// # Errors
    /// The socket comes back with the error: ENOMEM or EINVAL for rings that are too large, EPERM beyond
    /// RLIMIT_MEMLOCK, EBUSY for a second time.
    pub fn new(socket: Socket, wish: &Wish) -> std::result::Result<Ring, (Socket, Errno)> {
        match Self::make(&socket, wish) {
            Ok((map, receive, send)) => Ok(Ring { map, receive, send, refused: 0, socket }),
            Err(e) => {
                // A ring that could be made before the other one failed goes again, or frames would go into it.
                for name in [libc::PACKET_RX_RING, libc::PACKET_TX_RING] {
                    let _ = sock::set_option(socket.as_fd().as_raw_fd(), libc::SOL_PACKET, name, &[0; 28]);
                }
                Err((socket, e))
            }
        }
    }

    fn make(socket: &Socket, wish: &Wish) -> Result<(Map, Option<Rx>, Option<Tx>)> {
        let fd = socket.as_fd().as_raw_fd();
        let frame = wish.longest.checked_add(OVERHEAD).filter(|&f| f <= 1 << 24).ok_or(Errno::INVAL)?;
        let (version, retire) = match wish.layout {
            Layout::Blocks { retire_ms, .. } => (2i32, retire_ms.max(1)),
            Layout::Slots => (1, 0),
        };
        sock::set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, &version.to_ne_bytes())?;
        let none = Geometry::default();
        let receive = match wish.layout {
            _ if wish.receive == 0 => none,
            Layout::Slots => {
                let size = frame.next_multiple_of(ALIGNMENT);
                Geometry::of_frames(wish.receive.div_ceil(size), size)
            }
            Layout::Blocks { size, .. } => {
                // One that is given over by time is used up however little is in it: their number is the milliseconds that
                // a reader may be away while frames come slowly. Smaller ones would wake a sleeping reader more often.
                let block_size =
                    (frame + BLOCK_HEADER).max(size.clamp(BLOCK, LARGE_BLOCK)).next_power_of_two();
                let blocks = wish.receive.div_ceil(block_size).max(4);
                Geometry { block_size, blocks, frame_size: frame.next_multiple_of(ALIGNMENT) }
            }
        };
        let send = if wish.send == 0 { none } else { Geometry::of_frames(wish.send.max(LEAST), frame) };
        if receive != none && wish.layout == Layout::Slots {
            // A frame that is longer than a slot is in the socket's queue, too.
            sock::set_option(fd, libc::SOL_PACKET, libc::PACKET_COPY_THRESH, &1i32.to_ne_bytes())?;
        }
        if send != none {
            sock::set_option(fd, libc::SOL_PACKET, libc::PACKET_TX_HAS_OFF, &1i32.to_ne_bytes())?;
        }
        for (name, geometry, retire) in
            [(libc::PACKET_RX_RING, receive, retire), (libc::PACKET_TX_RING, send, 0)]
        {
            if geometry != none {
                request(fd, name, &geometry, retire, version)?;
            }
        }
        let len = receive.bytes() + send.bytes();
        let (protection, flags) =
            ((libc::PROT_READ | libc::PROT_WRITE) as usize, (libc::MAP_SHARED | libc::MAP_POPULATE) as usize);
        // SAFETY: a fresh mapping chosen by the kernel touches nothing that exists.
        let base = check(unsafe { syscall(libc::SYS_mmap, [0, len, protection, flags, fd as usize, 0]) })?;
        let map = Map { base: base as *mut u8, len };
        let rx = (receive != none).then(|| Rx::new(wish.layout, receive, wish.vnet));
        let tx = (send != none).then(|| Tx::new(wish.layout, send, receive.bytes(), wish.longest, wish.vnet));
        Ok((map, rx, tx))
    }

    /// The socket.
    pub const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Octets of the receive ring.
    pub fn receive_bytes(&self) -> usize {
        self.receive.as_ref().map_or(0, Rx::bytes)
    }

    /// Frames of the send ring.
    pub fn send_frames(&self) -> usize {
        self.send.as_ref().map_or(0, Tx::frames)
    }

    /// Gives up to `most` frames that are there to `each`, and returns how many. It makes no system call, but for a frame
    /// that is longer than a slot: the MTU was raised, or segments were put together.
    pub fn receive(&mut self, most: usize, each: &mut Each<'_>) -> usize {
        self.receive.as_mut().map_or(0, |rx| rx.receive(&self.map, &self.socket, most, each))
    }

    /// Lets `fill` write the next frame that is to be sent, and returns what it returns: the frame's length and facts, or
    /// `None` for no frame. `None` also while the ring has no free slot. Sent by [`kick`](Ring::kick).
    pub fn put(&mut self, fill: &mut Fill<'_>) -> Option<usize> {
        self.send.as_mut().and_then(|tx| tx.put(&mut self.map, fill))
    }

    /// Whether [`put`](Ring::put) has room.
    pub fn has_room(&self) -> bool {
        self.send.as_ref().is_some_and(|tx| tx.has_room(&self.map))
    }

    /// Frames put that the kernel has not taken.
    pub fn pending(&mut self) -> usize {
        self.send.as_mut().map_or(0, |tx| tx.pending(&self.map))
    }

    /// Lets the kernel send what was put, as far as it can now.
    ///
    /// # Errors
    /// EAGAIN or ENOBUFS where it cannot go on now; EMSGSIZE for a frame beyond the MTU, which is taken out; ENETDOWN,
    /// ENXIO. The frames left stay pending.
    pub fn kick(&mut self) -> Result<()> {
        let Some(tx) = self.send.as_mut() else { return Ok(()) };
        let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
        // SAFETY: a null buffer of no length.
        let sent =
            check(unsafe { syscall(libc::SYS_sendto, [self.socket.raw() as usize, 0, 0, flags, 0, 0]) });
        match sent {
            Ok(_) => Ok(()),
            Err(e) => {
                self.refused = tx.take_out_refused(&mut self.map);
                Err(e)
            }
        }
    }

    /// Octets of the frame that the last failed [`kick`](Ring::kick) took out, without a tag that was put in; 0: none.
    pub const fn refused_len(&self) -> usize {
        self.refused
    }

    /// Takes out the first frame that was not sent yet. Returns its octets, without a tag that was put in; 0: there is none.
    pub fn take_out_first(&mut self) -> usize {
        self.send.as_mut().map_or(0, |tx| tx.take_out_first(&mut self.map))
    }

    /// Takes out frames that were not sent yet, and forgets them.
    pub fn forget_pending(&mut self) {
        if let Some(tx) = self.send.as_mut() {
            tx.forget_pending(&self.map);
        }
    }
}

/// PACKET_RX_RING or PACKET_TX_RING: struct tpacket_req, or tpacket_req3, which begins with it.
fn request(fd: i32, name: i32, geometry: &Geometry, retire_ms: u32, version: i32) -> Result<()> {
    let words = [
        geometry.block_size,
        geometry.blocks,
        geometry.frame_size,
        geometry.frames(),
        retire_ms as usize,
        0,
        0,
    ];
    let mut value = [0u8; 28];
    for (bytes, word) in value.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&u32::try_from(word).map_err(|_| Errno::INVAL)?.to_ne_bytes());
    }
    let len = if version == 2 { 28 } else { 16 };
    sock::set_option(fd, libc::SOL_PACKET, name, &value[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_frame_crosses_the_end_of_a_block() {
        for longest in [60, 1514, 9014, 65550] {
            let g = Geometry::of_frames(256, longest + OVERHEAD);
            assert!(g.frames() >= 256 && g.frame_size >= longest + OVERHEAD);
            for frame in 0..g.frames() {
                let offset = g.offset(frame);
                assert_eq!(offset / g.block_size, (offset + g.frame_size - 1) / g.block_size);
                assert!(offset + g.frame_size <= g.bytes());
                assert_eq!(offset % ALIGNMENT, 0);
            }
            // Frames at once on their way, of the usual length, do not push each other out of the cache.
            let mut users = [0; CYCLE / LINE];
            for frame in 0..64 {
                let first = g.offset(frame) / LINE;
                (first..first + 25).for_each(|line| users[line % users.len()] += 1);
            }
            assert!(users.iter().all(|&n| n <= 12), "{longest}: {users:?}");
        }
    }
}
