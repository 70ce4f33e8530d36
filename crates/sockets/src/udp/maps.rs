//! Addresses of mailboxes that are over. A thread may still be about to use them, so they are never unmapped: the next mailbox of that size gets them.
//! Their memory goes once no thread is inside a call that has seen what was there: whoever looks at a mailbox is inside one.

use crate::thread::{self, Record};
use bypath_shm::region::{self, MailboxMap, StaticCell};
use bypath_sys::{Errno, Result, fd, thread as sys};
use std::sync::atomic::{AtomicU32, Ordering::*};

/// Mailboxes and routes that a process has addresses for at a time: each takes some that are not given back.
const MOST: usize = 4096;
/// Attempts to let go of what is over where it must go, each of a millisecond at most, or a yield: longer than any call that does not sleep takes.
const PATIENCE: u32 = 100;

/// What has become of the addresses at a place.
mod state {
    /// There are none.
    pub const NONE: u32 = 0;
    /// A thread may still use what is there.
    pub const OVER: u32 = 1;
    /// The same; those that came before the last look whether one does.
    pub const LEAVING: u32 = 2;
    /// Nothing is there any more.
    pub const GONE: u32 = 3;
}

/// A place for addresses that nobody has.
struct Place {
    map: StaticCell<MailboxMap>,
    state: AtomicU32,
}

static MADE: AtomicU32 = AtomicU32::new(0);
static PLACES: [Place; MOST] =
    [const { Place { map: StaticCell::new(), state: AtomicU32::new(state::NONE) } }; MOST];
/// So many are over, and not gone.
static OVER: AtomicU32 = AtomicU32::new(0);

/// As many as there are addresses: who gives some back finds a place.
fn places() -> impl Iterator<Item = &'static Place> {
    PLACES.iter().take(MADE.load(Relaxed) as usize)
}

/// Nobody uses it from now on but who has just looked; only for who has taken it from where it was known. Who has just looked may hold the lock of its
/// writers, and is to give that back to all: so its memory stays until it is [let go](let_go).
pub fn give_back(map: &'static MailboxMap) {
    let free = |place: &&Place| place.map.get().is_none() && std::ptr::eq(place.map.set_once(map), map);
    if let Some(place) = places().find(free) {
        OVER.fetch_add(1, Relaxed);
        place.state.store(state::OVER, Release);
    }
}

/// What is over is mapped no longer, if no thread can be about to use it: whether nothing is left. Under [`LIFE`](crate::state::LIFE).
pub fn let_go() -> bool {
    if OVER.load(Relaxed) == 0 {
        return true;
    }
    for place in places() {
        let _ = place.state.compare_exchange(state::OVER, state::LEAVING, AcqRel, Relaxed);
    }
    if !is_quiet() {
        return false;
    }
    for place in places().filter(|place| place.state.load(Relaxed) == state::LEAVING) {
        if let Some(map) = place.map.get() {
            map.let_go();
        }
        place.state.store(state::GONE, Relaxed);
        OVER.fetch_sub(1, Relaxed);
    }
    OVER.load(Relaxed) == 0
}

/// The same where it must go: who is inside a call is waited for. Under [`LIFE`](crate::state::LIFE).
pub fn let_go_of_all() {
    for _ in 0..PATIENCE {
        if let_go() {
            return;
        }
        sys::yield_now();
    }
}

/// Whether no thread is inside a call that has seen what was there before.
fn is_quiet() -> bool {
    // Of this one's frames that which has the lock is to be the only one: those further out may have seen it.
    thread::existing().is_none_or(Record::is_outermost) && thread::quiesce()
}

/// A new mailbox with a ring of this many octets, and its descriptor. Under [`LIFE`](crate::state::LIFE).
///
/// # Errors
/// As [`MailboxMap::new`]; ENOBUFS: there are too many.
pub fn make(ring: u32, floor: i32) -> Result<(&'static MailboxMap, i32)> {
    let memory = MailboxMap::memory(ring, floor)?;
    match map(memory) {
        Ok(map) => Ok((map, memory)),
        Err(e) => {
            fd::close(memory);
            Err(e)
        }
    }
}

/// Another process's. Under [`LIFE`](crate::state::LIFE).
///
/// # Errors
/// As [`MailboxMap::map`]; ENOBUFS: there are too many.
pub fn map(memory: i32) -> Result<&'static MailboxMap> {
    let size = MailboxMap::size_of(memory)?;
    let_go();
    let is_fitting = |place: &&Place| {
        place.state.load(Relaxed) == state::GONE
            && place.map.get().is_some_and(|map| map.ring().size() == u64::from(size))
    };
    if let Some(place) = places().find(is_fitting)
        && let Some(map) = place.map.get()
    {
        map.refill(memory)?;
        // First: whoever finds the place empty may take it.
        place.state.store(state::NONE, Relaxed);
        place.map.set(None);
        return Ok(map);
    }
    if MADE.load(Relaxed) as usize >= MOST {
        return Err(Errno::NOBUFS);
    }
    let map = MailboxMap::map(memory)?;
    MADE.fetch_add(1, Relaxed);
    region::leak(map).inspect_err(|_| map.let_go())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::LIFE;
    use crate::table;
    use crate::thread::Call;

    /// Where it is mapped, as `/proc/self/maps` shows it: 0 is not at all, 1 once.
    fn mapped(memory: i32) -> usize {
        let inode = std::fs::metadata(format!("/proc/self/fd/{memory}")).unwrap();
        let wanted = std::os::unix::fs::MetadataExt::ino(&inode).to_string();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.split_whitespace().nth(4) == Some(&wanted)).count()
    }

    #[test]
    fn memory_goes_and_addresses_are_used_again_for_as_much() {
        bypath_sys::process::membarrier_register().unwrap();
        let life = LIFE.lock(table::tid()).unwrap();
        let (first, memory) = make(8192, 3).unwrap();
        first.ring().copy_from_slice(0, b"old");
        first.mailbox().kill();
        assert_eq!(mapped(memory), 1);
        give_back(first);
        // A frame of this thread further out may have seen it.
        let inner = Call::enter();
        assert!(!let_go());
        assert_eq!(mapped(memory), 1);
        drop(inner);
        // Other tests are inside calls.
        let_go_of_all();
        assert_eq!(mapped(memory), 0);
        fd::close(memory);

        let (larger, memory) = make(16_384, 3).unwrap();
        assert!(!std::ptr::eq(larger, first));
        fd::close(memory);
        let made = MADE.load(Relaxed);
        let (again, memory) = make(8192, 3).unwrap();
        assert!(std::ptr::eq(again, first));
        assert_eq!(MADE.load(Relaxed), made);
        assert!(!again.mailbox().is_dead());
        // It is that memory, and not what was left there.
        let other = MailboxMap::map(memory).unwrap();
        other.ring().copy_from_slice(0, b"new");
        let mut seen = [0; 3];
        again.ring().copy_to_slice(0, &mut seen);
        assert_eq!(&seen, b"new");
        fd::close(memory);
        other.let_go();
        drop(life);
    }
}
