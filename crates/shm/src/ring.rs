//! The bytes of a ring. Unsafe file: raw copies between the program's buffers and memory that the peer can write.
//!
//! Positions are absolute 64-bit counts; the index is the position modulo the ring's size. There are no references
//! to ring bytes, only copies; what was copied out is used only after the commit succeeded.

use bypath_sys::mem::Mapping;
use bypath_sys::user::{IoVec, UserVec};
use bypath_sys::{Errno, Result};
use std::sync::atomic::AtomicU8;

/// One ring inside a mapping.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    map: Mapping,
    offset: usize,
    mask: u64,
}

// SAFETY: a Ring is an address range that stays mapped; all accesses are raw copies, ordered by `Direction`.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring of `size` bytes (a power of two) at `offset` of `map`.
    ///
    /// # Safety
    /// The range lies inside the mapping, which is never unmapped.
    pub unsafe fn new(map: Mapping, offset: usize, size: u32) -> Ring {
        Ring { map, offset, mask: u64::from(size) - 1 }
    }

    /// Size in bytes.
    #[inline]
    pub const fn size(&self) -> u64 {
        self.mask + 1
    }

    #[inline]
    fn at(&self, position: u64) -> (*mut u8, usize) {
        let index = (position & self.mask) as usize;
        // SAFETY: index is below the size, and the range lies in the mapping.
        (unsafe { self.map.addr().add(self.offset + index) }, self.mask as usize + 1 - index)
    }

    /// Copies `n` bytes, the program's bytes from `skip` on, into the ring at `position`.
    /// The caller holds the writer's lock and knows that `n` bytes are free there.
    #[inline]
    pub fn copy_in(&self, position: u64, from: UserVec<'_>, skip: usize, n: usize) {
        each_piece(from, skip, n, |base, done, len| {
            let (to, run) = self.at(position + done as u64);
            let first = len.min(run);
            // SAFETY: the UserVec vouches for the source; the destination is inside the ring.
            unsafe {
                std::ptr::copy_nonoverlapping(base as *const u8, to, first);
                if first < len {
                    let (start, _) = self.at(0);
                    std::ptr::copy_nonoverlapping((base + first) as *const u8, start, len - first);
                }
            }
        });
    }

    /// Copies `n` bytes at `position` into the program's buffers from `skip` on.
    #[inline]
    pub fn copy_out(&self, position: u64, to: UserVec<'_>, skip: usize, n: usize) {
        each_piece(to, skip, n, |base, done, len| {
            let (from, run) = self.at(position + done as u64);
            let first = len.min(run);
            // SAFETY: the source is inside the ring; the UserVec vouches for the destination.
            unsafe {
                std::ptr::copy_nonoverlapping(from, base as *mut u8, first);
                if first < len {
                    let (start, _) = self.at(0);
                    std::ptr::copy_nonoverlapping(start, (base + first) as *mut u8, len - first);
                }
            }
        });
    }

    /// Copies `from` into the ring at `position`; the bytes must be free there.
    ///
    /// # Panics
    /// If `from` is longer than the ring.
    #[inline]
    pub fn copy_from_slice(&self, position: u64, from: &[u8]) {
        assert!(from.len() as u64 <= self.size(), "more bytes than the ring holds");
        let (to, run) = self.at(position);
        if from.len() <= run {
            // A length that is known when this is compiled stays known here.
            // SAFETY: that many bytes fit before the ring's end.
            return unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        }
        // SAFETY: `run` bytes fit before the ring's end, the others (at most its size) at its start.
        unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), to, run);
            std::ptr::copy_nonoverlapping(from.as_ptr().add(run), self.at(0).0, from.len() - run);
        }
    }

    /// Fills `to` with the bytes at `position`.
    ///
    /// # Panics
    /// If `to` is longer than the ring.
    #[inline]
    pub fn copy_to_slice(&self, position: u64, to: &mut [u8]) {
        assert!(to.len() as u64 <= self.size(), "more bytes than the ring holds");
        let (from, run) = self.at(position);
        if to.len() <= run {
            // SAFETY: as in `copy_from_slice`.
            return unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        }
        // SAFETY: as in `copy_from_slice`.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), run);
            std::ptr::copy_nonoverlapping(self.at(0).0, to.as_mut_ptr().add(run), to.len() - run);
        }
    }

    /// The `n` bytes at `position`, at most the ring's size, as two runs, the second one at the ring's start: whoever maps the
    /// memory may write to them at any time.
    ///
    /// # Safety
    /// The mapping stays for as long as `'a`.
    #[inline]
    pub unsafe fn octets<'a>(&self, position: u64, n: usize) -> [&'a [AtomicU8]; 2] {
        let n = n.min(self.mask as usize + 1);
        let (first, run) = self.at(position);
        let head = n.min(run);
        // SAFETY: `head` bytes fit before the ring's end, the others (at most its size) at its start; mapped as the caller
        // promises; any byte is a value, and others may change it.
        unsafe {
            [
                std::slice::from_raw_parts(first.cast::<AtomicU8>(), head),
                std::slice::from_raw_parts(self.at(0).0.cast::<AtomicU8>(), n - head),
            ]
        }
    }

    /// The `n` bytes at `position` as a scatter/gather list, for re-sending them through the carrier.
    pub fn pieces(&self, position: u64, n: usize) -> ([IoVec; 2], usize) {
        let (first, run) = self.at(position);
        let (start, _) = self.at(0);
        let head = n.min(run);
        (
            [IoVec { base: first as usize, len: head }, IoVec { base: start as usize, len: n - head }],
            if n > head { 2 } else { 1 },
        )
    }

    /// Calls `f` with the `n` ring bytes at `position` as a list that system calls can read.
    pub fn with_pieces<R>(&self, position: u64, n: usize, f: impl FnOnce(UserVec<'_>) -> R) -> R {
        let (pieces, count) = self.pieces(position, n.min(self.mask as usize + 1));
        // SAFETY: both pieces lie inside the ring, which stays mapped.
        f(unsafe { UserVec::new(&pieces[..count]) })
    }

    /// Asks for ownership of the line that the next bytes will go to.
    #[inline]
    pub fn prefetch_write(&self, position: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            let (p, _) = self.at(position);
            // SAFETY: a prefetch has no effect on memory.
            unsafe { std::arch::asm!("prefetchw [{}]", in(reg) p, options(nostack, preserves_flags)) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = position;
    }

    /// Asks for the line of the bytes at `position`, and for the one behind it, to be read.
    #[inline]
    pub fn prefetch_read(&self, position: u64) {
        #[cfg(target_arch = "x86_64")]
        for position in [position, position.wrapping_add(64)] {
            let (p, _) = self.at(position);
            // SAFETY: a prefetch has no effect on memory.
            unsafe { std::arch::asm!("prefetcht0 [{}]", in(reg) p, options(nostack, preserves_flags)) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = position;
    }

    /// Backs the bytes at positions `[from, to)`, at most the ring's size, with memory.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn back(&self, from: u64, to: u64) -> Result<()> {
        let start = (from & self.mask) as usize;
        let len = (to - from).min(self.size()) as usize;
        let first = len.min(self.size() as usize - start);
        for (offset, len) in [(start, first), (0, len - first)] {
            if len > 0 && self.map.populate(self.offset + offset, len).is_err_and(|e| e != Errno::INVAL) {
                return Err(Errno::NOMEM);
            }
        }
        Ok(())
    }

    /// Lets go of the mapping of a ring that has one of its own: others that have it keep what is there.
    pub fn let_go(&self) {
        let _ = self.map.let_go();
    }

    /// Puts zeroes in the place of a ring that has a mapping of its own: others that have it keep what is there, and see nothing of what comes here.
    ///
    /// # Errors
    /// As mmap(2): it is the old one then.
    pub fn renew(&self) -> Result<()> {
        self.map.renew()
    }

    /// Gives the ring's memory back to the kernel: its bytes read as zeroes afterwards.
    pub fn release(&self) {
        self.map.release(self.offset, self.size() as usize);
    }
}

/// Walks the pieces of `list` that make up bytes `skip..skip + n`: `f(address, offset from skip, length)`.
#[inline]
fn each_piece(list: UserVec<'_>, skip: usize, n: usize, mut f: impl FnMut(usize, usize, usize)) {
    let (mut skip, mut done) = (skip, 0);
    for v in list.elements() {
        if done == n {
            return;
        }
        if skip >= v.len {
            skip -= v.len;
            continue;
        }
        let len = (v.len - skip).min(n - done);
        f(v.base + skip, done, len);
        done += len;
        skip = 0;
    }
}
