//! Addresses of mailboxes that are over. A thread may still be about to use them, so they are never unmapped: the next mailbox of that size gets them,
//! once no thread is inside a call that has seen the old one.

use crate::thread;
use bypath_shm::region::{self, MailboxMap, StaticCell};
use bypath_sys::{Errno, Result, fd};
use std::sync::atomic::{AtomicU32, Ordering::*};

/// Mailboxes and routes that a process has addresses for: each takes some that are not given back.
const MOST: u32 = 4096;
/// Of which so many wait for the next one.
const KEPT: usize = 64;

static MADE: AtomicU32 = AtomicU32::new(0);
static OVER: [StaticCell<MailboxMap>; KEPT] = [const { StaticCell::new() }; KEPT];

/// Nobody uses it from now on but who has just looked; only for who has taken it from where it was known. Who has just looked may hold the lock of its
/// writers, and is to give that back to all: so its memory stays until its addresses are used again.
pub fn give_back(map: &'static MailboxMap) {
    let is_kept = OVER.iter().any(|place| std::ptr::eq(place.set_once(map), map));
    // Where there is no place for it its addresses are lost, and its memory where nobody can be waited for.
    if !is_kept && is_quiet() {
        map.let_go();
    }
}

/// What is over is mapped no longer, if no thread can hold a lock in it.
pub fn let_go() {
    if !is_quiet() {
        return;
    }
    OVER.iter().filter_map(StaticCell::get).for_each(MailboxMap::let_go);
}

/// Whether no thread is inside a call that has seen what was there before.
fn is_quiet() -> bool {
    // A handler's thread may have been interrupted in such a call.
    !thread::existing().is_some_and(thread::Record::is_inside) && thread::quiesce()
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
    let is_fitting =
        |place: &&StaticCell<MailboxMap>| place.get().is_some_and(|map| map.ring().size() == u64::from(size));
    if let Some(place) = OVER.iter().find(is_fitting)
        && let Some(map) = place.get()
        && is_quiet()
    {
        map.refill(memory)?;
        place.set(None);
        return Ok(map);
    }
    if MADE.load(Relaxed) >= MOST {
        return Err(Errno::NOBUFS);
    }
    let map = MailboxMap::map(memory)?;
    MADE.fetch_add(1, Relaxed);
    region::leak(map).inspect_err(|_| map.let_go())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_used_again_and_only_for_as_much() {
        bypath_sys::process::membarrier_register().unwrap();
        let (first, memory) = make(8192, 3).unwrap();
        first.ring().copy_from_slice(0, b"old");
        first.mailbox().kill();
        give_back(first);
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
    }
}
