//! What a socket that is not followed is registered with by epoll: another descriptor that takes its place is registered so, too.

use crate::epoll as sets;
use crate::hook::EpollEvent;
use crate::table::{self, Entry};
use bypath_sys::epoll::{self, Event};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Registrations of one socket that are known.
const MOST: usize = 8;

/// One with an epoll set.
#[derive(Debug, Default)]
struct Registration {
    /// The set's descriptor plus one; 0: there is none.
    set: AtomicI32,
    /// Its number, and which set of that number it was.
    number: AtomicU32,
    generation: AtomicU32,
    fd: AtomicI32,
    events: AtomicU32,
    data: AtomicU64,
}

/// Those of one socket. All calls under `state::LIFE`.
#[derive(Debug, Default)]
pub struct Registrations([Registration; MOST]);

impl Registrations {
    /// epoll_ctl on a descriptor of the socket: the set's descriptor and number.
    pub fn note(&self, set: (i32, u32), op: i32, fd: i32, event: Option<EpollEvent>) {
        let is = |one: &&Registration| one.set.load(Relaxed) == set.0 + 1 && one.fd.load(Relaxed) == fd;
        let known = self.0.iter().find(is);
        match (op, event) {
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, Some(event)) => {
                let free = || self.0.iter().find(|one| one.is_free());
                let Some(one) = known.or_else(free) else { return };
                one.number.store(set.1, Relaxed);
                one.generation.store(sets::generation(set.1), Relaxed);
                one.fd.store(fd, Relaxed);
                one.events.store(event.events, Relaxed);
                one.data.store(event.data, Relaxed);
                one.set.store(set.0 + 1, Relaxed);
            }
            _ => known.into_iter().for_each(|one| one.set.store(0, Relaxed)),
        }
    }

    /// Another descriptor is about to take the place of the socket: it leaves the kernel's sets, where other processes that have it would
    /// keep it. `is_its` tells whether a descriptor means it yet.
    pub fn withdraw(&self, is_its: impl Fn(i32) -> bool) {
        for (set, one) in self.standing(is_its) {
            let none = Event { events: 0, data: 0 };
            let _ = epoll::ctl(set, libc::EPOLL_CTL_DEL, one.fd.load(Relaxed), none);
        }
    }

    /// What stands in its place is registered as it was.
    pub fn renew(&self, is_its: impl Fn(i32) -> bool) {
        for (set, one) in self.standing(is_its) {
            let event = Event { events: one.events.load(Relaxed), data: one.data.load(Relaxed) };
            let _ = epoll::ctl(set, libc::EPOLL_CTL_ADD, one.fd.load(Relaxed), event);
        }
    }

    /// Nothing is known of it any more.
    pub fn forget(&self) {
        self.0.iter().for_each(|one| one.set.store(0, Relaxed));
    }

    /// Those of descriptors and with sets that are what they were.
    fn standing(&self, is_its: impl Fn(i32) -> bool) -> impl Iterator<Item = (i32, &Registration)> {
        let all = self.0.iter().filter(move |one| !one.is_free() && is_its(one.fd.load(Relaxed)));
        all.map(|one| (one.set.load(Relaxed) - 1, one))
    }
}

impl Registration {
    /// None, or one with a set that has been closed.
    fn is_free(&self) -> bool {
        let set = self.set.load(Relaxed) - 1;
        let number = self.number.load(Relaxed);
        set < 0
            || !matches!(table::entry(set), Some(Entry::Epoll(n)) if n == number)
            || sets::generation(number) != self.generation.load(Relaxed)
    }
}
