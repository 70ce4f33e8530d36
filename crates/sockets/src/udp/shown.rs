//! What views see of a UDP socket, the kernel's or a netstack service's: a record in the family region, taken with one of its first datagrams.

use super::Record;
use crate::state;
use bypath_shm::family::{DATAGRAM_ENDS, DatagramCounts, DatagramEnd, datagram_path};
use bypath_shm::reason::Reason;
use bypath_sys::{sock, thread};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Adds to a counter that other threads of the process may add to.
#[inline]
pub fn add(counter: &AtomicU64, n: u64) {
    if thread::is_the_only_one() {
        counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
    } else {
        counter.fetch_add(n, Relaxed);
    }
}

/// Counts a datagram of `len` octets.
#[inline]
pub fn count(counts: &DatagramCounts, by_ring: bool, len: usize) {
    let (datagrams, bytes) =
        if by_ring { (&counts.ring, &counts.ring_bytes) } else { (&counts.kernel, &counts.kernel_bytes) };
    add(datagrams, 1);
    add(bytes, len as u64);
}

/// A free record of the family region, or one of a process that is dead. Under `state::LIFE`.
fn take(holder: u32) -> Option<u32> {
    let ends = &state::get()?.family.datagrams;
    let claim =
        |from: u32, end: &DatagramEnd| end.holder.compare_exchange(from, holder, AcqRel, Relaxed).is_ok();
    if let Some(free) = (0..DATAGRAM_ENDS).find(|i| ends[*i].holder.load(Relaxed) == 0 && claim(0, &ends[*i]))
    {
        return Some(free as u32);
    }
    let living = state::get()?.living_places();
    let is_dead = |place: u32| place > 0 && living & 1u64.checked_shl(place - 1).unwrap_or(0) == 0;
    let dead = (0..DATAGRAM_ENDS).find(|i| {
        let of = ends[*i].holder.load(Relaxed);
        is_dead(of) && claim(of, &ends[*i])
    });
    dead.map(|i| i as u32)
}

/// What a socket has moved, by the kernel, before it was shown: datagrams and their octets.
#[derive(Debug, Default)]
pub struct Early([AtomicU64; 2]);

impl Early {
    fn count(&self, len: usize) {
        self.0[0].fetch_add(1, Relaxed);
        self.0[1].fetch_add(len as u64, Relaxed);
    }

    pub(super) fn forget(&self) {
        self.0.iter().for_each(|word| word.store(0, Relaxed));
    }

    /// From now on it is counted there.
    fn pour(&self, counts: &DatagramCounts) {
        let [datagrams, bytes] = [&self.0[0], &self.0[1]].map(|word| word.swap(0, Relaxed));
        counts.kernel.fetch_add(datagrams, Relaxed);
        counts.kernel_bytes.fetch_add(bytes, Relaxed);
    }
}

/// The place of a socket in the view, if it has one.
#[derive(Debug, Default)]
pub struct Shown(AtomicU32);

impl Shown {
    /// What views see of it, if they do.
    #[inline]
    pub fn end(&self) -> Option<&'static DatagramEnd> {
        let place = self.0.load(Acquire).checked_sub(1)?;
        state::get()?.family.datagrams.get(place as usize)
    }

    /// From now on it is shown, with a record of which nothing but descriptor, cookie and `reason` is filled in; `None`: it was so before, or
    /// there is no room. Under `state::LIFE`.
    pub fn begin(&self, fd: i32, reason: Reason) -> Option<&'static DatagramEnd> {
        if self.0.load(Relaxed) != 0 {
            return None;
        }
        let state = state::start()?;
        let index = state.own().index.load(Relaxed);
        let place = index.checked_add(1).and_then(take)?;
        let end = &state.family.datagrams[place as usize];
        end.fd.store(fd, Relaxed);
        end.paths.store(0, Relaxed);
        end.rule.store(0, Relaxed);
        end.routes.store(0, Relaxed);
        end.service.set("");
        end.cookie.store(sock::option_u64(fd, libc::SOL_SOCKET, libc::SO_COOKIE).unwrap_or(0), Relaxed);
        for counts in [&end.tx, &end.rx] {
            let DatagramCounts { ring, ring_bytes, kernel, kernel_bytes, lost } = counts;
            [ring, ring_bytes, kernel, kernel_bytes, lost].iter().for_each(|word| word.store(0, Relaxed));
        }
        end.reason.store(reason as u16, Relaxed);
        end.rx_reason.store(reason as u16, Relaxed);
        end.local.set(0, 0, [0; 16]);
        end.remote.set(0, 0, [0; 16]);
        self.0.store(place + 1, Release);
        Some(end)
    }

    /// It is another process's, or none any more: its record is nobody's business here.
    pub fn forget(&self) {
        self.0.store(0, Relaxed);
    }

    /// It is gone. Under `state::LIFE`.
    pub fn hide(&self) {
        if let Some(end) = self.end() {
            self.0.store(0, Release);
            end.holder.store(0, Release);
        }
    }
}

impl Record {
    /// As `Shown::end`.
    #[inline]
    pub fn shown(&self) -> Option<&'static DatagramEnd> {
        self.shown.end()
    }

    /// From one of its first datagrams on it is shown. Under `state::LIFE`.
    pub fn show(&self, fd: i32) {
        let reason = self.stays().or_else(state::hindrance).unwrap_or(Reason::BelowThreshold);
        if self.shown.begin(fd, reason).is_some() {
            self.show_names(fd);
        }
    }

    /// Counts a datagram of `len` octets that went by the kernel.
    #[inline]
    pub(super) fn count_by_kernel(&self, fd: i32, is_sent: bool, len: usize) {
        match self.shown() {
            Some(end) => count(if is_sent { &end.tx } else { &end.rx }, false, len),
            None => self.count_early(fd, is_sent, len),
        }
    }

    #[cold]
    fn count_early(&self, fd: i32, is_sent: bool, len: usize) {
        let [sent, received] = &self.early;
        if is_sent { sent } else { received }.count(len);
        self.seen(fd);
        // Another thread may have shown it just now: who comes last takes all.
        if let Some(end) = self.shown() {
            sent.pour(&end.tx);
            received.pour(&end.rx);
        }
    }

    /// Its names, as they are now.
    pub fn show_names(&self, fd: i32) {
        let Some(end) = self.shown() else { return };
        let names = [(&end.local, sock::local_address(fd)), (&end.remote, sock::remote_address(fd))];
        for (place, name) in names {
            match name {
                Ok(name) => place.set(name.family, name.port, name.bytes),
                Err(_) => place.set(0, 0, [0; 16]),
            }
        }
    }

    /// Why what it sends goes where it goes.
    pub fn show_reason(&self, reason: Reason) {
        if let Some(end) = self.shown() {
            end.reason.store(reason as u16, Relaxed);
        }
    }

    /// Why it has a mailbox or none.
    pub fn show_rx_reason(&self, reason: Reason) {
        if let Some(end) = self.shown() {
            end.rx_reason.store(reason as u16, Relaxed);
            let paths = if reason == Reason::Ring {
                end.paths.load(Relaxed) | datagram_path::RECEIVES
            } else {
                end.paths.load(Relaxed) & !datagram_path::RECEIVES
            };
            end.paths.store(paths, Relaxed);
        }
    }

    /// How many mailboxes it sends to.
    pub fn show_routes(&self, routes: u32) {
        if let Some(end) = self.shown() {
            end.routes.store(routes, Relaxed);
            let paths = end.paths.load(Relaxed) & !datagram_path::SENDS;
            end.paths.store(paths | if routes > 0 { datagram_path::SENDS } else { 0 }, Relaxed);
        }
    }

    /// It is gone. Under `state::LIFE`.
    pub fn hide(&self) {
        self.shown.hide();
    }
}
