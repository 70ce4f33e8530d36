//! The four rings between the kernel and a socket: one writer and one reader each, positions that only grow.

use crate::syscall::{check, syscall};
use crate::{Errno, Result};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// What stands in a ring. Every pattern of bits is a value.
pub(super) trait Entry: Copy {}

/// A chunk's address (fill and completion rings).
impl Entry for u64 {}

/// A frame, or a piece of one, laid out as `struct xdp_desc` (receive and transmit rings).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub address: u64,
    pub len: u32,
    pub options: u32,
}

impl Entry for Descriptor {}

/// The frame goes on in the next descriptor (XDP_PKT_CONTD).
pub(super) const CONTINUED: u32 = libc::XDP_PKT_CONTD;

/// Which end of a ring is ours.
trait End {}
/// We write entries.
pub(super) enum Ours {}
/// The kernel writes entries.
pub(super) enum Theirs {}
impl End for Ours {}
impl End for Theirs {}

/// Where the parts of a ring lie in its mapping (`struct xdp_ring_offset`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offsets {
    pub producer: u64,
    pub consumer: u64,
    pub entries: u64,
    pub flags: u64,
}

/// A mapped ring.
#[expect(private_bounds, reason = "the two ends are those of this file")]
pub(super) struct Ring<E, D: End> {
    base: *mut u8,
    len: usize,
    producer: usize,
    consumer: usize,
    entries: usize,
    flags: usize,
    size: u32,
    /// Our own position: written ahead of what is published.
    own: u32,
    /// The kernel's position as last seen.
    other: u32,
    kind: PhantomData<(E, D)>,
}

// SAFETY: an address of memory that belongs to no thread; whoever owns the ring may use it.
unsafe impl<E, D: End> Send for Ring<E, D> {}

#[expect(private_bounds, reason = "the two ends are those of this file")]
impl<E: Entry, D: End> Ring<E, D> {
    /// Maps the ring of `size` entries (a power of two) at the page offset `at` of the socket.
    pub fn map(socket: BorrowedFd<'_>, at: u64, offsets: Offsets, size: u32) -> Result<Self> {
        let [producer, consumer, entries, flags] =
            [offsets.producer, offsets.consumer, offsets.entries, offsets.flags].map(|o| o as usize);
        let len = entries.checked_add(size as usize * size_of::<E>()).ok_or(Errno::INVAL)?;
        let words_fit = [producer, consumer, flags].iter().all(|o| o % 4 == 0 && *o <= len - 4);
        if !words_fit || !entries.is_multiple_of(8) || !size.is_power_of_two() {
            return Err(Errno::PROTO);
        }
        let (protection, how) =
            ((libc::PROT_READ | libc::PROT_WRITE) as usize, (libc::MAP_SHARED | libc::MAP_POPULATE) as usize);
        // SAFETY: a fresh mapping chosen by the kernel touches nothing that exists.
        let base = check(unsafe {
            syscall(libc::SYS_mmap, [0, len, protection, how, socket.as_raw_fd() as usize, at as usize])
        })?;
        Ok(Ring {
            base: base as *mut u8,
            len,
            producer,
            consumer,
            entries,
            flags,
            size,
            own: 0,
            other: 0,
            kind: PhantomData,
        })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: aligned and inside the mapping, as `map` made sure; kernel and we access it as one word.
        unsafe { AtomicU32::from_ptr(self.base.add(offset).cast()) }
    }

    fn entry(&self, position: u32) -> *mut E {
        let index = (position & (self.size - 1)) as usize;
        // SAFETY: below `size`, for which `map` mapped room.
        unsafe { self.base.add(self.entries).cast::<E>().add(index) }
    }

    /// Whether the kernel asks to be woken when there is something for it in this ring (XDP_RING_NEED_WAKEUP).
    pub fn needs_wakeup(&self) -> bool {
        // Relaxed: a hint; what it is about is ordered by the positions, and the waking system call orders by itself.
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<E: Entry> Ring<E, Ours> {
    /// Entries that can be put now.
    ///
    /// # Errors
    /// EPROTO if the kernel's position cannot be: the ring is not used any more.
    pub fn room(&mut self) -> Result<u32> {
        // Acquire: pairs with the kernel's release of its consumer position: entries before it are free to be written.
        let taken = self.word(self.consumer).load(Ordering::Acquire);
        let pending = self.own.wrapping_sub(taken);
        if pending > self.size || taken.wrapping_sub(self.other) > self.size {
            return Err(Errno::PROTO);
        }
        self.other = taken;
        Ok(self.size - pending)
    }

    /// Entries that the kernel has not taken, as of the last [`room`](Ring::room).
    pub const fn pending(&self) -> u32 {
        self.own.wrapping_sub(self.other)
    }

    /// Those entries.
    pub fn waiting(&self) -> impl Iterator<Item = E> + '_ {
        // SAFETY: written by us, and by nobody else until the kernel's position has passed them and `put` is called.
        (0..self.pending()).map(|n| unsafe { self.entry(self.other.wrapping_add(n)).read() })
    }

    /// Writes an entry, for which there is room. The kernel sees it after [`publish`](Ring::publish).
    pub fn put(&mut self, entry: E) {
        assert!(self.own.wrapping_sub(self.other) < self.size, "no room was asked for");
        // SAFETY: between the kernel's position and ours: not read by it before the position is published.
        unsafe { self.entry(self.own).write(entry) };
        self.own = self.own.wrapping_add(1);
    }

    /// Shows the kernel what was put.
    pub fn publish(&self) {
        // Release: pairs with the kernel's acquire of the producer position: it sees whole entries, and whole frames.
        self.word(self.producer).store(self.own, Ordering::Release);
    }
}

impl<E: Entry> Ring<E, Theirs> {
    /// Entries that are there.
    ///
    /// # Errors
    /// EPROTO if the kernel's position cannot be: the ring is not used any more.
    pub fn available(&mut self) -> Result<u32> {
        // Acquire: pairs with the kernel's release of its producer position: entries before it, and frames, are whole.
        let put = self.word(self.producer).load(Ordering::Acquire);
        let there = put.wrapping_sub(self.own);
        if there > self.size || put.wrapping_sub(self.other) > self.size {
            return Err(Errno::PROTO);
        }
        self.other = put;
        Ok(there)
    }

    /// Entries left of the last [`available`](Ring::available).
    pub const fn left(&self) -> u32 {
        self.other.wrapping_sub(self.own)
    }

    /// Reads the next entry. The kernel may use its place after [`release`](Ring::release).
    pub fn next(&mut self) -> Option<E> {
        if self.left() == 0 {
            return None;
        }
        // SAFETY: before the kernel's position and behind ours: written, and not written again until we release it.
        let entry = unsafe { self.entry(self.own).read() };
        self.own = self.own.wrapping_add(1);
        Some(entry)
    }

    /// Gives the places of entries that were read back.
    pub fn release(&self) {
        // Release: pairs with the kernel's acquire of the consumer position: our reads are done.
        self.word(self.consumer).store(self.own, Ordering::Release);
    }
}

impl<E, D: End> Drop for Ring<E, D> {
    fn drop(&mut self) {
        // SAFETY: words and entries are reached through `self` only.
        unsafe { syscall(libc::SYS_munmap, [self.base as usize, self.len, 0, 0, 0, 0]) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memfd;
    use std::os::fd::{FromRawFd, OwnedFd};

    const OFFSETS: Offsets = Offsets { producer: 0, consumer: 64, entries: 192, flags: 128 };

    /// Both ends of a ring in memory: the kernel's part is played by a second mapping.
    fn pair(size: u32) -> (Ring<u64, Ours>, Ring<u64, Theirs>) {
        let fd = memfd::create(c"ring", 4096, 0).unwrap();
        // SAFETY: made just now.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let fd = std::os::fd::AsFd::as_fd(&fd);
        (Ring::map(fd, 0, OFFSETS, size).unwrap(), Ring::map(fd, 0, OFFSETS, size).unwrap())
    }

    #[test]
    fn entries_come_out_as_they_went_in_over_many_rounds() {
        let (mut into, mut out) = pair(8);
        let (mut sent, mut got) = (0u64, 0u64);
        for round in 0..100 {
            for _ in 0..into.room().unwrap().min(round % 9) {
                into.put(sent);
                sent += 1;
            }
            assert_eq!(out.available().unwrap(), 0, "nothing is seen before it is published");
            into.publish();
            out.available().unwrap();
            while let Some(entry) = out.next() {
                assert_eq!(entry, got);
                got += 1;
            }
            out.release();
        }
        assert!(sent == got && sent > 300);
    }

    #[test]
    fn positions_go_on_past_their_largest_value() {
        let (mut into, mut out) = pair(4);
        for ring_position in [&mut into.own, &mut into.other, &mut out.own, &mut out.other] {
            *ring_position = u32::MAX - 1;
        }
        into.word(0).store(u32::MAX - 1, Ordering::Relaxed);
        into.word(64).store(u32::MAX - 1, Ordering::Relaxed);
        for value in 0..4 {
            assert!(into.room().unwrap() > 0);
            into.put(value);
        }
        assert_eq!(into.room(), Ok(0));
        into.publish();
        assert_eq!(out.available(), Ok(4));
        assert_eq!(std::iter::from_fn(|| out.next()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn positions_that_cannot_be_are_refused() {
        let (mut into, mut out) = pair(4);
        into.word(64).store(1, Ordering::Relaxed);
        assert_eq!(into.room(), Err(Errno::PROTO), "taken before it was put");
        for wrong in [5, u32::MAX, 1 << 31] {
            into.word(0).store(wrong, Ordering::Relaxed);
            assert_eq!(out.available(), Err(Errno::PROTO), "{wrong}");
        }
        // A position that goes back.
        into.word(0).store(3, Ordering::Relaxed);
        assert_eq!(out.available(), Ok(3));
        into.word(0).store(1, Ordering::Relaxed);
        assert_eq!(out.available(), Err(Errno::PROTO));
    }

    #[test]
    fn offsets_outside_the_ring_are_refused() {
        let fd = memfd::create(c"ring", 4096, 0).unwrap();
        // SAFETY: made just now.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let fd = std::os::fd::AsFd::as_fd(&fd);
        for wrong in [
            Offsets { producer: 2, ..OFFSETS },
            Offsets { consumer: 4096, ..OFFSETS },
            Offsets { flags: u64::MAX, ..OFFSETS },
            Offsets { entries: 4, ..OFFSETS },
        ] {
            assert!(Ring::<u64, Ours>::map(fd, 0, wrong, 8).is_err());
        }
        assert!(Ring::<u64, Ours>::map(fd, 0, OFFSETS, 7).is_err());
    }
}
