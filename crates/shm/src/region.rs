//! Typed views of mapped memory. Unsafe file: it vouches that a mapping is large enough, aligned and never
//! unmapped, and that the types seen through it are plain atomics.

mod mailbox;

use crate::arena::{Control, Geometry, PAGE};
use crate::family::{Family, REGION_SIZE, VIEW_MAGIC, VIEW_NAME};
use crate::inbox::{INBOX_NAME, Inbox};
use crate::mailbox::Page;
pub use crate::region_lasting::{Slab, StaticCell, alloc_static, leak};
use crate::ring::Ring;
use crate::stats::{RECORD_SIZE, StatsRecord};
use bypath_sys::mem::Mapping;
use bypath_sys::memfd;
use bypath_sys::{Errno, Result, fd, handle};
pub use mailbox::MailboxMap;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::*};

/// A type made of atomics (and padding) only: any bytes are a valid value, and others may change them.
///
/// # Safety
/// Exactly that.
unsafe trait Shared {}
// SAFETY: atomics only, repr(C).
unsafe impl Shared for Family {}
// SAFETY: atomics only, repr(C).
unsafe impl Shared for Inbox {}
// SAFETY: atomics only, repr(C).
unsafe impl Shared for Control {}
// SAFETY: atomics only, repr(C).
unsafe impl Shared for StatsRecord {}
// SAFETY: atomics only, repr(C).
unsafe impl Shared for Page {}

/// A reference into `map` that lives as long as the process: mappings passed here are never unmapped.
fn view<T: Shared>(map: &Mapping, offset: usize) -> Result<&'static T> {
    let end = offset.checked_add(size_of::<T>()).ok_or(Errno::INVAL)?;
    if end > map.len() || !(map.addr() as usize + offset).is_multiple_of(align_of::<T>()) {
        return Err(Errno::INVAL);
    }
    // SAFETY: in bounds and aligned as checked; T accepts any bytes; the mapping stays.
    Ok(unsafe { &*map.addr().add(offset).cast::<T>() })
}

/// Creates and maps a family region (also the view of this process). Returns it with its descriptor, which
/// stays open.
///
/// # Errors
/// EMFILE, ENOMEM, EPERM as memfd_create(2) and mmap(2).
pub fn new_family(floor: i32) -> Result<(&'static Family, i32)> {
    let size = REGION_SIZE.next_multiple_of(4096);
    let fd = memfd::create(VIEW_NAME, size, floor)?;
    let map = Mapping::shared(fd, 0, size).inspect_err(|_| bypath_sys::fd::close(fd))?;
    let family: &'static Family = view(&map, 0)?;
    family.header.next_bell.store(1, Relaxed);
    family.header.magic.store(VIEW_MAGIC, Release);
    Ok((family, fd))
}

/// A family region without a descriptor: counters and reasons work, nobody outside can look at it.
///
/// # Errors
/// ENOMEM.
pub fn hidden_family() -> Result<&'static Family> {
    let map = Mapping::shared_anonymous(REGION_SIZE.next_multiple_of(4096))?;
    let family: &'static Family = view(&map, 0)?;
    family.header.next_bell.store(1, Relaxed);
    family.header.magic.store(VIEW_MAGIC, Release);
    Ok(family)
}

/// Creates and maps an inbox; the descriptor is for sending to peers.
///
/// # Errors
/// As [`new_family`].
pub fn new_inbox(floor: i32) -> Result<(&'static Inbox, i32)> {
    let size = size_of::<Inbox>();
    let fd = memfd::create(INBOX_NAME, size, floor)?;
    let map = Mapping::shared(fd, 0, size).inspect_err(|_| bypath_sys::fd::close(fd))?;
    Ok((view(&map, 0)?, fd))
}

/// Maps the family region of another process for as long as `f` looks at it.
///
/// # Errors
/// EPERM if it could shrink, EINVAL if it is too small or not a memfd, as mmap(2).
pub fn with_family<R>(fd: i32, f: impl FnOnce(&Family) -> R) -> Result<R> {
    with(fd, REGION_SIZE.next_multiple_of(4096), f)
}

/// Maps the family region of an earlier image of this process by its [handle](hand_on), which may be closed afterwards.
///
/// # Errors
/// As [`with_family`]; EACCES: it is another user's.
pub fn map_family(number: i32) -> Result<&'static Family> {
    let size = REGION_SIZE.next_multiple_of(4096);
    let memory = handle::open(number)?;
    let map = match memfd::sealed_size(memory) {
        Ok(len) if len >= size => Mapping::shared(memory, 0, size),
        Ok(_) => Err(Errno::INVAL),
        Err(e) => Err(e),
    };
    fd::close(memory);
    view(&map?, 0)
}

/// A handle of the family region that `view` is, for the next image of this process ([`handle`]).
///
/// # Errors
/// As [`handle::make`].
pub fn hand_on(view: i32, floor: i32) -> Result<i32> {
    handle::make(view, floor)
}

/// Whether a descriptor of this process is such a handle.
pub fn is_handed_on(number: i32) -> bool {
    handle::is_of(number, REGION_SIZE.next_multiple_of(4096))
}

/// Maps the inbox of another process for as long as `f` looks at it.
///
/// # Errors
/// As [`with_family`].
pub fn with_inbox<R>(fd: i32, f: impl FnOnce(&Inbox) -> R) -> Result<R> {
    with(fd, size_of::<Inbox>(), f)
}

fn with<T: Shared + 'static, R>(fd: i32, size: usize, f: impl FnOnce(&T) -> R) -> Result<R> {
    if memfd::sealed_size(fd)? < size {
        return Err(Errno::INVAL);
    }
    let map = Mapping::shared(fd, 0, size)?;
    let result = view(&map, 0).map(|shared: &T| f(shared));
    // SAFETY: the only reference was `f`'s, which takes one of any lifetime and so can keep none.
    unsafe { map.unmap() };
    result
}

/// Addresses of inboxes that were let go, for those that are mapped next; 0 = none.
static SPARE_INBOXES: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// Whether memory is as long as it must be: who touches a page of it while its owner gives all of it back waits until that is done.
///
/// # Errors
/// EPERM if it could shrink, EINVAL if it is not so long, or not a memfd.
fn is_as_long(fd: i32, size: usize) -> Result<()> {
    if memfd::sealed_size(fd)? == size { Ok(()) } else { Err(Errno::INVAL) }
}

/// Maps a peer's inbox; the descriptor may be closed afterwards.
///
/// # Errors
/// EPERM if it could shrink, EINVAL if it is shorter or longer than one, or not a memfd.
pub fn map_inbox(fd: i32) -> Result<&'static Inbox> {
    is_as_long(fd, size_of::<Inbox>())?;
    let spare = SPARE_INBOXES.iter().find_map(|place| NonZeroUsize::new(place.swap(0, AcqRel)));
    if let Some(addr) = spare {
        // SAFETY: the mapping of an inbox that was let go, and nobody else took it.
        let map = unsafe { Mapping::of(addr.get(), size_of::<Inbox>()) };
        map.refill(fd)?;
        return view(&map, 0);
    }
    view(&Mapping::shared(fd, 0, size_of::<Inbox>())?, 0)
}

/// Gives a peer's inbox back to the kernel: the peer is gone, and nobody uses the reference any more. Its addresses serve an
/// inbox that is mapped later.
pub fn let_go_of_inbox(inbox: &'static Inbox) {
    // SAFETY: every inbox is the whole of a mapping.
    let map = unsafe { Mapping::of(std::ptr::from_ref(inbox).addr(), size_of::<Inbox>()) };
    if map.let_go().is_ok() {
        let addr = map.addr() as usize;
        let _ = SPARE_INBOXES.iter().find(|p| p.compare_exchange(0, addr, AcqRel, Relaxed).is_ok());
    }
}

/// Maps the statistics record at `offset` of an open file.
///
/// # Errors
/// As mmap(2).
pub fn map_stats(fd: i32, offset: u64) -> Result<&'static StatsRecord> {
    view(&Mapping::shared(fd, offset, RECORD_SIZE)?, 0)
}

/// A mapped arena.
#[derive(Clone, Copy, Debug)]
pub struct Arena {
    map: Mapping,
    /// Its geometry, checked against the mapping.
    pub geometry: Geometry,
}

impl Arena {
    /// Memory for an arena: a descriptor, to be sent to the peer.
    ///
    /// # Errors
    /// As [`new_family`].
    pub fn memory(geometry: Geometry, floor: i32) -> Result<i32> {
        memfd::create(c"bypath-arena", geometry.size(), floor)
    }

    /// Creates an arena; returns it with its descriptor, to be sent to the peer and closed.
    ///
    /// # Errors
    /// As [`new_family`].
    pub fn new(geometry: Geometry, floor: i32) -> Result<(Arena, i32)> {
        let fd = Self::memory(geometry, floor)?;
        let map = Mapping::shared(fd, 0, geometry.size()).inspect_err(|_| bypath_sys::fd::close(fd))?;
        Ok((Arena { map, geometry }, fd))
    }

    /// Maps an arena received from a peer.
    ///
    /// # Errors
    /// EINVAL for a geometry that is not acceptable or not that of the memfd, EPERM for missing seals.
    pub fn map(fd: i32, geometry: Geometry) -> Result<Arena> {
        let arena = Self::map_closed(fd, geometry)?;
        arena.open(0, geometry.slots).inspect_err(|_| {
            // SAFETY: nobody has seen it.
            unsafe { arena.map.unmap() };
        })?;
        Ok(arena)
    }

    /// Maps an arena received from a peer. Its slots may be touched once they are [opened](Arena::open).
    ///
    /// # Errors
    /// As [`Arena::map`].
    pub fn map_closed(fd: i32, geometry: Geometry) -> Result<Arena> {
        if !geometry.is_valid() {
            return Err(Errno::INVAL);
        }
        is_as_long(fd, geometry.size())?;
        Ok(Arena { map: Mapping::closed(fd, 0, geometry.size())?, geometry })
    }

    /// The slots from one on, up to another one, may be touched from now on.
    ///
    /// # Errors
    /// EINVAL beyond the last slot; as mprotect(2).
    pub fn open(&self, from: u32, to: u32) -> Result<()> {
        if from > to || to > self.geometry.slots {
            return Err(Errno::INVAL);
        }
        // With the arena's own page, which nobody has a use for, so that it is one mapping more and not two.
        let first = if from == 0 { 0 } else { self.geometry.slot(from) };
        self.map.part(first, self.geometry.slot(to) - first).open()
    }

    /// Puts other memory in the place of what was given back ([`Arena::release_all`]): pages, rings and addresses of before mean
    /// the new one, once its slots are [opened](Arena::open).
    ///
    /// # Errors
    /// As [`Arena::map`].
    pub fn refill(&self, fd: i32) -> Result<()> {
        is_as_long(fd, self.geometry.size())?;
        self.map.refill_closed(fd)
    }

    /// Control page of a slot.
    ///
    /// # Errors
    /// EINVAL beyond the last slot.
    pub fn control(&self, slot: u32) -> Result<&'static Control> {
        if slot >= self.geometry.slots {
            return Err(Errno::INVAL);
        }
        view(&self.map, self.geometry.slot(slot))
    }

    /// Ring of direction `d` (0 or 1) of a slot.
    ///
    /// # Errors
    /// EINVAL beyond the last slot.
    pub fn ring(&self, slot: u32, d: usize) -> Result<Ring> {
        if slot >= self.geometry.slots || d > 1 {
            return Err(Errno::INVAL);
        }
        ring_in(self.map, self.geometry.ring_at(slot, d), self.geometry.ring)
    }

    /// Gives every page back to the kernel, and the mapping: the peer is gone and no connection uses the arena.
    pub fn release_all(&self) {
        // Opened slots come first, and behind them it may fail: nothing was written there.
        self.map.release(0, self.map.len());
        let _ = self.map.let_go();
    }

    /// Lets go of the mapping, but for the slots that `keeps` is true of: what others that map the memory have there stays theirs.
    pub fn let_go(&self, keeps: impl Fn(u32) -> bool) {
        let (mut from, slots) = (0, self.geometry.slots);
        for slot in (0..slots).filter(|slot| keeps(*slot)) {
            let _ = self.map.part(from, self.geometry.slot(slot) - from).let_go();
            from = self.geometry.slot(slot) + self.geometry.slot_size();
        }
        let _ = self.map.part(from, self.map.len() - from).let_go();
    }

    /// Gives the ring pages of an unused slot back to the kernel.
    pub fn release_rings(&self, slot: u32) {
        if slot < self.geometry.slots {
            self.map.release(self.geometry.ring_at(slot, 0), 2 * self.geometry.ring as usize);
        }
    }
}

/// An inbox whose mapping ends with it: for who serves many processes, one after the other.
#[derive(Debug)]
pub struct OwnInbox(Mapping);

impl OwnInbox {
    /// A new one, with the descriptor that is sent to the process that marks there.
    ///
    /// # Errors
    /// As [`new_family`].
    pub fn new() -> Result<(OwnInbox, OwnedFd)> {
        let size = size_of::<Inbox>();
        let fd = memfd::create(c"bypath-inbox", size, 3)?;
        // SAFETY: the kernel made it for us just now.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok((OwnInbox(Mapping::shared(fd.as_raw_fd(), 0, size)?), fd))
    }

    /// Another process's; the descriptor may be closed afterwards.
    ///
    /// # Errors
    /// As [`map_inbox`].
    pub fn map(fd: i32) -> Result<OwnInbox> {
        is_as_long(fd, size_of::<Inbox>())?;
        Ok(OwnInbox(Mapping::shared(fd, 0, size_of::<Inbox>())?))
    }

    /// What is mapped.
    pub fn get(&self) -> &Inbox {
        // SAFETY: as long as an inbox, aligned to a page, atomics only, and mapped for as long as `self` is borrowed.
        unsafe { &*self.0.addr().cast::<Inbox>() }
    }
}

impl Drop for OwnInbox {
    fn drop(&mut self) {
        // SAFETY: nobody borrows from it any more.
        unsafe { self.0.unmap() };
    }
}

/// An arena whose mapping ends with it.
#[derive(Debug)]
pub struct OwnArena {
    map: Mapping,
    geometry: Geometry,
}

impl OwnArena {
    /// A new one, with the descriptor that is sent to the other process.
    ///
    /// # Errors
    /// As [`new_family`]; EINVAL for a geometry that is not acceptable.
    pub fn new(geometry: Geometry) -> Result<(OwnArena, OwnedFd)> {
        if !geometry.is_valid() {
            return Err(Errno::INVAL);
        }
        let (Arena { map, geometry }, fd) = Arena::new(geometry, 3)?;
        // SAFETY: the kernel made it for us just now.
        Ok((OwnArena { map, geometry }, unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Its geometry.
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    const fn arena(&self) -> Arena {
        Arena { map: self.map, geometry: self.geometry }
    }

    /// Control page of a slot.
    ///
    /// # Panics
    /// Beyond the last slot.
    pub fn control(&self, slot: u32) -> &Control {
        self.arena().control(slot).expect("a slot of this arena")
    }

    fn ring(&self, slot: u32, direction: usize) -> Ring {
        self.arena().ring(slot, direction).expect("a ring of this arena")
    }

    /// Copies octets into ring `direction` (0 or 1) of a slot, from a position of the stream on: they must be free there.
    ///
    /// # Panics
    /// Beyond the last slot, and for more octets than the ring holds.
    pub fn copy_in(&self, slot: u32, direction: usize, position: u64, from: &[u8]) {
        self.ring(slot, direction).copy_from_slice(position, from);
    }

    /// Copies octets out of it.
    ///
    /// # Panics
    /// As [`copy_in`](OwnArena::copy_in).
    pub fn copy_out(&self, slot: u32, direction: usize, position: u64, to: &mut [u8]) {
        self.ring(slot, direction).copy_to_slice(position, to);
    }

    /// Takes memory for octets of ring `direction` of a slot, so that touching them cannot raise SIGBUS.
    ///
    /// # Errors
    /// ENOMEM.
    ///
    /// # Panics
    /// Beyond the last slot.
    pub fn back(&self, slot: u32, direction: usize, from: u64, to: u64) -> Result<()> {
        self.ring(slot, direction).back(from, to)
    }

    /// Gives the memory of both rings back.
    pub fn release_rings(&self, slot: u32) {
        self.arena().release_rings(slot);
    }
}

impl Drop for OwnArena {
    fn drop(&mut self) {
        // SAFETY: nobody borrows from it any more, and its rings are given to nobody.
        unsafe { self.map.unmap() };
    }
}

/// The one slot of an arena of one, whose mapping ends with it: for two processes that share nothing else.
#[derive(Debug)]
pub struct OwnSlot {
    map: Mapping,
    rings: [Ring; 2],
}

impl OwnSlot {
    /// A new one with rings of this many octets, with the descriptor that is sent to the other process.
    ///
    /// # Errors
    /// As [`OwnArena::new`].
    pub fn new(ring: u32) -> Result<(OwnSlot, OwnedFd)> {
        let geometry = Geometry { slots: 1, ring };
        if !geometry.is_valid() {
            return Err(Errno::INVAL);
        }
        let (arena, fd) = Arena::new(geometry, 3)?;
        // SAFETY: the kernel made it for us just now.
        Ok((OwnSlot::of(&arena)?, unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Another process's; the rings' size follows from that of the memory. The descriptor may be closed afterwards.
    ///
    /// # Errors
    /// As [`Arena::map`].
    pub fn map(fd: i32) -> Result<OwnSlot> {
        let size = memfd::sealed_size(fd)?;
        let ring = size.checked_sub(2 * PAGE).ok_or(Errno::INVAL)? / 2;
        let geometry = Geometry { slots: 1, ring: u32::try_from(ring).map_err(|_| Errno::INVAL)? };
        if geometry.is_valid() && geometry.size() != size {
            return Err(Errno::INVAL);
        }
        OwnSlot::of(&Arena::map(fd, geometry)?)
    }

    fn of(arena: &Arena) -> Result<OwnSlot> {
        arena.control(0)?;
        Ok(OwnSlot { map: arena.map, rings: [arena.ring(0, 0)?, arena.ring(0, 1)?] })
    }

    /// Its control page.
    #[inline]
    pub fn control(&self) -> &Control {
        // SAFETY: in bounds and aligned (`of` has seen it), atomics only, and mapped for as long as `self` is borrowed.
        unsafe { &*self.map.addr().add(PAGE).cast::<Control>() }
    }

    /// Octets of one ring.
    #[inline]
    pub const fn size(&self) -> u64 {
        self.rings[0].size()
    }

    /// As [`OwnArena::copy_in`].
    ///
    /// # Panics
    /// For more octets than the ring holds.
    #[inline]
    pub fn copy_in(&self, direction: usize, position: u64, from: &[u8]) {
        self.rings[direction].copy_from_slice(position, from);
    }

    /// As [`OwnArena::copy_out`].
    ///
    /// # Panics
    /// For more octets than the ring holds.
    #[inline]
    pub fn copy_out(&self, direction: usize, position: u64, to: &mut [u8]) {
        self.rings[direction].copy_to_slice(position, to);
    }

    /// What will stand there is to be read as soon as it does.
    #[inline]
    pub fn expect(&self, direction: usize, position: u64) {
        self.rings[direction].prefetch_read(position);
    }

    /// Octets where they lie, as two runs: the other process may write to them at any time.
    #[inline]
    pub fn octets(&self, direction: usize, position: u64, n: usize) -> [&[AtomicU8]; 2] {
        // SAFETY: mapped for as long as `self` is borrowed.
        unsafe { self.rings[direction].octets(position, n) }
    }

    /// Takes memory for both rings, so that touching them cannot raise SIGBUS.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn back(&self) -> Result<()> {
        self.rings.iter().try_for_each(|ring| ring.back(0, ring.size()))
    }
}

impl Drop for OwnSlot {
    fn drop(&mut self) {
        // SAFETY: nobody borrows from it any more, and its rings are given to nobody.
        unsafe { self.map.unmap() };
    }
}

/// The ring of `size` bytes (a power of two) at `offset` of a mapping that is never unmapped.
fn ring_in(map: Mapping, offset: usize, size: u32) -> Result<Ring> {
    if offset.checked_add(size as usize).is_none_or(|end| end > map.len()) {
        return Err(Errno::INVAL);
    }
    // SAFETY: the range lies inside the mapping; those of this module are never unmapped.
    Ok(unsafe { Ring::new(map, offset, size) })
}

/// A ring of `size` bytes (a power of two) that no peer maps; processes forked from this one share it.
///
/// # Errors
/// ENOMEM.
pub fn own_ring(size: u32) -> Result<Ring> {
    let map = Mapping::shared_anonymous(size as usize)?;
    ring_in(map, 0, size)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_as_long_as_it_must_be_is_not_mapped() {
        let geometry = Geometry { slots: 2, ring: 4096 };
        let (arena, fd) = Arena::new(geometry, 3).unwrap();
        bypath_sys::fd::close(fd);
        let memory = |len: usize| memfd::create(c"memory", len, 3).unwrap();
        for more in [-4096, 4096, 4 << 30] {
            let len = |size: usize| size.wrapping_add_signed(more);
            let fd = memory(len(size_of::<Inbox>()));
            assert_eq!(map_inbox(fd).map(|_| ()), Err(Errno::INVAL), "{more}");
            assert_eq!(OwnInbox::map(fd).map(|_| ()), Err(Errno::INVAL), "{more}");
            bypath_sys::fd::close(fd);
            let fd = memory(len(geometry.size()));
            assert_eq!(Arena::map(fd, geometry).map(|_| ()), Err(Errno::INVAL), "{more}");
            assert_eq!(arena.refill(fd), Err(Errno::INVAL), "{more}");
            bypath_sys::fd::close(fd);
        }
        let fd = memory(geometry.size());
        assert_eq!(Arena::map(fd, geometry).map(|arena| arena.geometry), Ok(geometry));
        bypath_sys::fd::close(fd);
    }

    #[test]
    fn a_slot_of_its_own_is_the_same_memory_for_both_and_shows_where_it_wraps() {
        let (here, fd) = OwnSlot::new(4096).unwrap();
        let there = OwnSlot::map(fd.as_raw_fd()).unwrap();
        assert_eq!(there.size(), 4096);
        here.back().unwrap();
        here.copy_in(1, 4090, b"across the end");
        let runs = there.octets(1, 4090, 14);
        assert_eq!(runs.map(<[AtomicU8]>::len), [6, 8]);
        let seen: Vec<u8> = runs.iter().flat_map(|run| run.iter().map(|o| o.load(Relaxed))).collect();
        assert_eq!(seen, b"across the end");
        let mut out = [0; 14];
        there.copy_out(1, 4090, &mut out);
        assert_eq!(&out, b"across the end");
        assert_eq!(there.octets(0, 4090, 1 << 20).map(<[AtomicU8]>::len), [6, 4090]);
        here.control().cookies[0].store(7, Relaxed);
        assert_eq!(there.control().cookies[0].load(Relaxed), 7);
        assert_eq!(OwnSlot::new(5000).err(), Some(Errno::INVAL));
        let (_, family) = new_inbox(3).unwrap();
        assert_eq!(OwnSlot::map(family).err(), Some(Errno::INVAL));
        bypath_sys::fd::close(family);
    }
}
