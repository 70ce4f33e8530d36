//! The memory that frames lie in (UMEM): chunks of one size, each ours or the kernel's.

use crate::mem::Mapping;
use crate::{Errno, Result};

/// Whose a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Ours: its octets may be seen as a slice.
    Us,
    /// Given to the kernel, which reads or writes it at any time.
    Kernel,
}

/// The mapping, and whose each chunk is. A chunk that is the kernel's is never handed out; one that the kernel claims to
/// give back without having had it is an error.
pub(super) struct Umem {
    memory: Mapping,
    chunk: usize,
    owners: Vec<Owner>,
}

impl Umem {
    /// `chunks` chunks of `chunk` octets (a power of two), all ours.
    pub fn new(chunks: usize, chunk: usize) -> Result<Umem> {
        let len = chunks.checked_mul(chunk).filter(|&l| l > 0).ok_or(Errno::INVAL)?;
        let memory = Mapping::private(len)?;
        let umem = Umem { memory, chunk, owners: vec![Owner::Us; chunks] };
        match memory.populate(0, len) {
            // An old kernel: registering touches the pages.
            Ok(()) | Err(Errno::INVAL) => Ok(umem),
            Err(e) => Err(e),
        }
    }

    pub fn address(&self) -> u64 {
        self.memory.addr() as u64
    }

    pub const fn len(&self) -> usize {
        self.memory.len()
    }

    pub const fn chunk(&self) -> usize {
        self.chunk
    }

    /// The chunk in which `address` (an offset into the memory) lies.
    pub fn chunk_of(&self, address: u64) -> Option<usize> {
        usize::try_from(address).ok().map(|a| a / self.chunk).filter(|&c| c < self.owners.len())
    }

    /// Where a chunk begins.
    pub const fn start_of(&self, chunk: usize) -> u64 {
        (chunk * self.chunk) as u64
    }

    /// A chunk of ours becomes the kernel's.
    pub fn give(&mut self, chunk: usize) {
        debug_assert_eq!(self.owners[chunk], Owner::Us);
        self.owners[chunk] = Owner::Kernel;
    }

    /// The kernel gives a chunk back. `None` for one that it did not have.
    pub fn take(&mut self, address: u64) -> Option<usize> {
        let chunk = self.chunk_of(address)?;
        let owner = &mut self.owners[chunk];
        (*owner == Owner::Kernel).then(|| {
            *owner = Owner::Us;
            chunk
        })
    }

    /// Octets in one chunk of ours; `None` where they are not inside it, or not ours.
    pub fn bytes(&self, address: u64, len: usize) -> Option<&[u8]> {
        let chunk = self.chunk_of(address)?;
        let start = address as usize;
        if self.owners[chunk] != Owner::Us || len > (chunk + 1) * self.chunk - start {
            return None;
        }
        // SAFETY: inside the mapping, which lives as long as `self`, and in a chunk that nobody else uses; it becomes the
        // kernel's through `&mut self` only.
        Some(unsafe { std::slice::from_raw_parts(self.memory.addr().add(start), len) })
    }

    /// Octets in `chunks` consecutive chunks of ours from `first` on, to be written; `None` where one is not ours.
    pub fn chunks_mut(&mut self, first: usize, chunks: usize) -> Option<&mut [u8]> {
        let owners = self.owners.get(first..first.checked_add(chunks)?)?;
        if owners.iter().any(|&o| o != Owner::Us) {
            return None;
        }
        let (start, len) = (first * self.chunk, chunks * self.chunk);
        // SAFETY: as in `bytes`, and exclusive by `&mut self`.
        Some(unsafe { std::slice::from_raw_parts_mut(self.memory.addr().add(start), len) })
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: slices borrow `self`, so there are none left. The kernel holds the pages itself for as long as it uses
        // them.
        unsafe { self.memory.unmap() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_seen_only_while_it_is_ours() {
        let mut umem = Umem::new(4, 2048).unwrap();
        umem.chunks_mut(1, 2).unwrap().fill(7);
        assert_eq!(umem.bytes(2048, 2048), Some(&[7u8; 2048][..]));
        assert_eq!(umem.bytes(2048 + 2000, 49), None, "beyond the chunk");
        umem.give(2);
        assert_eq!(umem.bytes(4096, 1), None);
        assert!(umem.chunks_mut(1, 2).is_none() && umem.chunks_mut(3, 2).is_none());
        assert_eq!(umem.take(4096 + 100), Some(2));
        assert_eq!(umem.take(4096), None, "given back twice");
        for wrong in [8192, u64::MAX, 1 << 48] {
            assert_eq!(umem.take(wrong), None);
            assert_eq!(umem.bytes(wrong, 1), None);
        }
    }
}
