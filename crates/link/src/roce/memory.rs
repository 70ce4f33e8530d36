//! Memory that can be sent from, received into, and given to others by a key.

use std::collections::HashMap;
use std::ops::Range;

/// What others may do with a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// RDMA READ.
    pub read: bool,
    /// RDMA WRITE.
    pub write: bool,
    /// Compare and swap, fetch and add.
    pub atomic: bool,
}

impl Access {
    /// Nothing: for this end's own use.
    pub const LOCAL: Access = Access { read: false, write: false, atomic: false };
    /// Everything.
    pub const ALL: Access = Access { read: true, write: true, atomic: true };
}

/// Part of a region of this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// The region's key.
    pub key: u32,
    /// Its first octet's address.
    pub address: u64,
    /// Octets.
    pub len: u32,
}

/// A place in a region of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The key that it gave out.
    pub key: u32,
    /// The address in its region.
    pub address: u64,
}

/// There is no such memory for this purpose: another key, beyond the bounds, or without the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied;

/// What is wanted of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Anything, by this end.
    Local,
    Read,
    Write,
    Atomic,
}

#[derive(Debug)]
struct Region {
    bytes: Vec<u8>,
    base: u64,
    access: Access,
}

impl Region {
    fn range(&self, address: u64, len: u32, want: Want) -> Result<Range<usize>, Denied> {
        let allowed = match want {
            Want::Local => true,
            Want::Read => self.access.read,
            Want::Write => self.access.write,
            Want::Atomic => self.access.atomic,
        };
        let from = address.checked_sub(self.base).and_then(|at| usize::try_from(at).ok());
        let from = from.filter(|_| allowed).ok_or(Denied)?;
        let end = from.checked_add(len as usize).filter(|end| *end <= self.bytes.len());
        Ok(from..end.ok_or(Denied)?)
    }
}

/// The registered regions.
#[derive(Debug, Default)]
pub struct Memory {
    regions: HashMap<u32, Region>,
}

impl Memory {
    /// None yet.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Registers octets under a key, which others can use as far as `access` goes; the first one gets the address `base`.
    /// Whoever learns the key has the access: draw it by chance.
    ///
    /// # Errors
    /// The octets come back if the key is taken or the addresses would wrap.
    pub fn register(&mut self, key: u32, bytes: Vec<u8>, base: u64, access: Access) -> Result<(), Vec<u8>> {
        let fits = base.checked_add(bytes.len() as u64).is_some();
        if !fits || self.regions.contains_key(&key) {
            return Err(bytes);
        }
        self.regions.insert(key, Region { bytes, base, access });
        Ok(())
    }

    /// Takes a region away; requests for it fail from now on. `None`: there is none with this key.
    pub fn deregister(&mut self, key: u32) -> Option<Vec<u8>> {
        self.regions.remove(&key).map(|region| region.bytes)
    }

    /// Others can no longer use the region. False: there is none with this key that they could use.
    pub(super) fn invalidate(&mut self, key: u32) -> bool {
        match self.regions.get_mut(&key) {
            Some(region) if region.access != Access::LOCAL => {
                region.access = Access::LOCAL;
                true
            }
            _ => false,
        }
    }

    /// Octets of a region.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn octets(&self, what: Local) -> Result<&[u8], Denied> {
        self.wanted(what, Want::Local)
    }

    /// Octets of a region, to be changed.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn octets_mut(&mut self, what: Local) -> Result<&mut [u8], Denied> {
        self.wanted_mut(what, Want::Local)
    }

    pub(super) fn wanted(&self, what: Local, want: Want) -> Result<&[u8], Denied> {
        let region = self.regions.get(&what.key).ok_or(Denied)?;
        let range = region.range(what.address, what.len, want)?;
        region.bytes.get(range).ok_or(Denied)
    }

    pub(super) fn wanted_mut(&mut self, what: Local, want: Want) -> Result<&mut [u8], Denied> {
        let region = self.regions.get_mut(&what.key).ok_or(Denied)?;
        let range = region.range(what.address, what.len, want)?;
        region.bytes.get_mut(range).ok_or(Denied)
    }
}

impl Local {
    /// The part from `offset` on, of `len` octets. The caller knows that it is within.
    pub(super) const fn part(self, offset: u32, len: u32) -> Local {
        Local { address: self.address.wrapping_add(offset as u64), len, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_given_within_its_bounds_and_rights_only() {
        let mut memory = Memory::new();
        let read = Access { read: true, ..Access::LOCAL };
        memory.register(7, (0..100).collect(), 1000, read).expect("a free key");
        assert_eq!(memory.register(7, vec![1], 0, Access::ALL), Err(vec![1]));
        assert_eq!(memory.register(8, vec![1, 2], u64::MAX, Access::ALL), Err(vec![1, 2]));
        let local = |address, len| Local { key: 7, address, len };
        assert_eq!(memory.wanted(local(1010, 3), Want::Read), Ok(&[10, 11, 12][..]));
        assert_eq!(memory.wanted(local(1100, 0), Want::Read), Ok(&[][..]));
        for (address, len) in
            [(999, 1), (0, 1), (1100, 1), (1000, 101), (u64::MAX, 2), (1001, u32::MAX), (1101, 0)]
        {
            assert_eq!(memory.wanted(local(address, len), Want::Read), Err(Denied), "{address} {len}");
        }
        assert_eq!(memory.wanted(local(1000, 1), Want::Write), Err(Denied));
        assert_eq!(memory.wanted(local(1000, 1), Want::Atomic), Err(Denied));
        assert_eq!(memory.wanted(Local { key: 6, ..local(1000, 1) }, Want::Read), Err(Denied));
        assert!(memory.octets(local(1000, 1)).is_ok());
        assert!(memory.invalidate(7) && !memory.invalidate(7) && !memory.invalidate(9));
        assert_eq!(memory.wanted(local(1000, 1), Want::Read), Err(Denied));
        assert_eq!(memory.deregister(7).map(|b| b.len()), Some(100));
        assert_eq!(memory.octets(local(1000, 1)), Err(Denied));
    }
}
