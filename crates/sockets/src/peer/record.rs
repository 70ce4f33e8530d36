//! The arenas of a pair, and what this process keeps of their slots.

use super::Conn;
use crate::others;
use bypath_shm::arena::Geometry;
use bypath_shm::region::{self, Arena, StaticCell};
use bypath_sys::{Errno, Result, fd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};

/// Slots that are mapped in this process's life: 16 TiB of addresses at most, of which there are 128, and 200 MB of records. Those of a peer that is
/// gone serve the next arena of the same geometry alone, and a liar has ever another one.
const MOST_SLOTS: u32 = 8 << 20;
static SLOTS_MAPPED: AtomicU32 = AtomicU32::new(0);
/// Octets of addresses that they have. They are never given back, and where the program has a limit it keeps half of that.
static ADDRESSES: AtomicU64 = AtomicU64::new(0);

/// An arena and the connections that its slots carry.
#[derive(Debug, Default)]
pub(super) struct ArenaRecord {
    pub(super) arena: StaticCell<Arena>,
    /// Slots, from the first one on, that may be touched.
    pub(super) opened: AtomicU32,
    /// Of one that was filled: which file that is.
    file: [AtomicU64; 2],
    /// Descriptor of an arena of ours plus one (kept: an answer that carried it may be lost), 0 = none.
    pub(super) fd: AtomicI32,
    /// Stays for the next process that has this place.
    pub(super) conns: StaticCell<ConnSlots>,
    /// The arena of a process that had this place before, which is gone: its addresses, and all records that know them, serve the
    /// next one.
    spare: StaticCell<Arena>,
}

impl ArenaRecord {
    /// Maps the memory `fd`, which nobody may touch before it is [opened](ArenaRecord::open).
    ///
    /// # Errors
    /// As [`Arena::map`]; ENOMEM beyond [`MOST_SLOTS`], or half of what the process may have.
    pub(super) fn fill(&self, fd: i32, geometry: Geometry) -> Result<()> {
        let file = fd::identity(fd)?;
        self.file[0].store(file.0, Relaxed);
        self.file[1].store(file.1, Relaxed);
        self.opened.store(0, Relaxed);
        if let Some(spare) = self.spare.get().filter(|spare| spare.geometry == geometry) {
            spare.refill(fd)?;
            self.arena.set(Some(spare));
            return Ok(());
        }
        // The peer names the geometry, which is looked at then.
        let slots = SLOTS_MAPPED.load(Relaxed).saturating_add(geometry.slots);
        let addresses = ADDRESSES.load(Relaxed).saturating_add(geometry.size() as u64);
        if slots > MOST_SLOTS || addresses > fd::most_memory() / 2 {
            return Err(Errno::NOMEM);
        }
        let mapped = Arena::map_closed(fd, geometry)?;
        SLOTS_MAPPED.store(slots, Relaxed);
        ADDRESSES.store(addresses, Relaxed);
        let conns = region::alloc_static::<ConnSlot>(geometry.slots as usize)?;
        self.conns.set(Some(region::leak(ConnSlots(conns))?));
        self.arena.set(Some(region::leak(mapped)?));
        Ok(())
    }

    /// So many slots may be touched from now on, if they were not before. Of what is behind them nothing takes memory, whatever the program does with all that
    /// it has mapped. Called under [`crate::state::LIFE`].
    ///
    /// # Errors
    /// EINVAL without an arena, or beyond its last slot; as mprotect(2).
    pub(super) fn open(&self, slots: u32) -> Result<()> {
        let from = self.opened.load(Relaxed);
        if slots > from {
            self.arena.get().ok_or(Errno::INVAL)?.open(from, slots)?;
            self.opened.store(slots, Relaxed);
        }
        Ok(())
    }

    /// Whether this is the file that is mapped: its close is not the last one.
    pub(super) fn maps(&self, fd: i32) -> bool {
        let file = (self.file[0].load(Relaxed), self.file[1].load(Relaxed));
        self.arena.get().is_some() && fd::identity(fd) == Ok(file)
    }

    /// Number of the file that is mapped, on the kernel's own file system.
    pub(super) fn inode(&self) -> u64 {
        self.file[1].load(Relaxed)
    }

    /// Lets go of the memory. The address space stays: it carries nothing, and nothing can dangle.
    pub(super) fn empty(&self, is_gone: bool) {
        if let Some(arena) = self.arena.get() {
            // Of a process that lives the other end may still read what is left there; what another user has is not given back in a call.
            if is_gone && !others::any() {
                arena.release_all();
            } else {
                arena.let_go(|_| false);
            }
            self.spare.set(Some(arena));
        }
        self.arena.set(None);
        self.opened.store(0, Relaxed);
        let kept = self.fd.swap(0, AcqRel);
        if kept > 0 {
            fd::close(kept - 1);
        }
    }
}

/// Connection records of an arena, one per slot; a slot's record is made at its first use and stays.
#[derive(Debug)]
pub(super) struct ConnSlots(pub(super) &'static [ConnSlot]);

#[derive(Debug, Default)]
pub(super) struct ConnSlot {
    pub(super) conn: StaticCell<Conn>,
    /// In use by this process: our own word, not the arena's.
    pub(super) busy: AtomicBool,
    /// This process has closed its socket, and others of the family go on with it: {generation << 32 | end number + 1}, 0 = no.
    pub(super) left: AtomicU64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a process of its own, which has a limit.
    #[test]
    fn half_of_what_a_program_may_have_stays_its_own() {
        const CHILD: &str = "BYPATH_TEST_ADDRESSES";
        if std::env::var_os(CHILD).is_none() {
            let name = "peer::record::tests::half_of_what_a_program_may_have_stays_its_own";
            // 4 GiB.
            let out = std::process::Command::new("sh")
                .args(["-c", "ulimit -v 4194304 && exec \"$0\" \"$1\" --exact --nocapture"])
                .arg(std::env::current_exe().expect("this program"))
                .arg(name)
                .env(CHILD, "1")
                .output()
                .expect("starts");
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            return;
        }
        let fill = |slots: u32| {
            let geometry = Geometry { slots, ring: 1 << 20 };
            let memory = Arena::memory(geometry, 3).expect("it takes no memory");
            let filled = ArenaRecord::default().fill(memory, geometry);
            fd::close(memory);
            filled
        };
        assert_eq!(fill(4096), Err(Errno::NOMEM));
        assert_eq!(fill(64), Ok(()));
        let more: Vec<_> = (0..20).map(|_| fill(64)).collect();
        assert_eq!(more.iter().filter(|filled| filled.is_ok()).count(), 14, "{more:?}");
    }
}
