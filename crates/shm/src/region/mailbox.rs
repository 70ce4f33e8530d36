//! A mapped mailbox: its control words and its ring.

use super::{ring_in, view};
use crate::arena::PAGE;
use crate::mailbox::{self, Mailbox};
use crate::ring::Ring;
use bypath_sys::mem::Mapping;
use bypath_sys::memfd;
use bypath_sys::{Errno, Result};
use std::sync::atomic::AtomicU64;

/// A mapped mailbox of its own: the page of its control words, and its ring.
#[derive(Clone, Copy, Debug)]
pub struct MailboxMap {
    map: Mapping,
    ring: Ring,
}

impl MailboxMap {
    /// Octets that a ring may have.
    const RINGS: std::ops::RangeInclusive<u32> = PAGE as u32..=1 << 22;

    /// Whether a ring may have so many octets.
    pub fn is_ring(octets: u32) -> bool {
        octets.is_power_of_two() && Self::RINGS.contains(&octets)
    }

    /// Creates one whose ring has this many octets (a power of two, 4096 to 4 MiB), with its descriptor, for those who write there. Its pages come as they are
    /// touched: see [`Ring::back`].
    ///
    /// # Errors
    /// As [`new_family`](super::new_family); EINVAL for another size.
    pub fn new(ring: u32, floor: i32) -> Result<(MailboxMap, i32)> {
        let fd = Self::memory(ring, floor)?;
        Ok((Self::of(fd, ring).inspect_err(|_| bypath_sys::fd::close(fd))?, fd))
    }

    /// The memory of a new one, which is not mapped yet.
    ///
    /// # Errors
    /// As [`new`](MailboxMap::new).
    pub fn memory(ring: u32, floor: i32) -> Result<i32> {
        if !Self::is_ring(ring) {
            return Err(Errno::INVAL);
        }
        memfd::create(c"bypath-mailbox", PAGE + ring as usize, floor)
    }

    /// Maps another process's; the ring's size follows from that of the memory. The descriptor may be closed afterwards.
    ///
    /// # Errors
    /// EPERM if it could shrink, EINVAL if it is none, as mmap(2).
    pub fn map(fd: i32) -> Result<MailboxMap> {
        Self::of(fd, Self::size_of(fd)?)
    }

    /// Octets of the ring in a mailbox's memory.
    ///
    /// # Errors
    /// EPERM if it could shrink, EINVAL if it is none.
    pub fn size_of(fd: i32) -> Result<u32> {
        let ring = u32::try_from(memfd::sealed_size(fd)?.saturating_sub(PAGE)).map_err(|_| Errno::INVAL)?;
        if !Self::is_ring(ring) {
            return Err(Errno::INVAL);
        }
        Ok(ring)
    }

    /// Maps the memory of another mailbox, whose ring is as long, in place of what was [let go](MailboxMap::let_go).
    ///
    /// # Errors
    /// EINVAL if it is none that is as long; as mmap(2).
    pub fn refill(&self, fd: i32) -> Result<()> {
        if u64::from(Self::size_of(fd)?) != self.ring.size() {
            return Err(Errno::INVAL);
        }
        self.map.refill(fd)
    }

    fn of(fd: i32, ring: u32) -> Result<MailboxMap> {
        let map = Mapping::shared(fd, 0, PAGE + ring as usize)?;
        Ok(MailboxMap { map, ring: ring_in(map, PAGE, ring)? })
    }

    fn page(&self) -> &'static mailbox::Page {
        view(&self.map, 0).expect("shorter than a page")
    }

    /// Its control words.
    pub fn mailbox(&self) -> &'static Mailbox {
        &self.page().mailbox
    }

    /// SO_COOKIE of the socket whose it is: 0 as long as nobody has said that.
    pub fn owner(&self) -> &'static AtomicU64 {
        &self.page().owner
    }

    /// Its ring.
    pub const fn ring(&self) -> Ring {
        self.ring
    }

    /// Gives the memory back to the kernel: what is written there from now on nobody sees. Addresses stay valid.
    pub fn let_go(&self) {
        let _ = self.map.let_go();
    }
}
