//! The descriptors of pairs: control channels, arenas of ours, bells of theirs.

use super::shares::{Who, admit};
use super::{BELL_PLACES, PEERS, PEERS_USED, Peer};
use crate::{others, state};
use bypath_sys::{Errno, Result, eventfd, fd, process, strangers, unix};
use std::sync::atomic::Ordering::*;

pub(super) fn in_use() -> impl Iterator<Item = &'static Peer> {
    let peers = (0..PEERS_USED.load(Acquire)).filter_map(|i| PEERS.get(i as usize));
    peers.filter(|peer| peer.alive.load(Acquire))
}

impl Peer {
    /// Whether it may have one more.
    ///
    /// # Errors
    /// As [`admit`].
    pub(super) fn may_have_more(&self) -> Result<()> {
        self.may_have(0)
    }

    /// The same, where so many more are counted already.
    fn may_have(&self, counted: u64) -> Result<()> {
        admit(Who { process: self.process.load(Relaxed), user: self.user.load(Relaxed) }, counted)
    }

    pub(super) fn count(&self) -> u32 {
        let arenas = self.ours.iter().filter(|arena| arena.fd.load(Relaxed) > 0).count();
        1 + arenas as u32 + self.bell_count.load(Relaxed)
    }

    pub(super) fn bell(&self, number: u32) -> Option<i32> {
        self.known_bell(number).or_else(|| {
            self.read_control();
            self.known_bell(number)
        })
    }

    #[inline]
    fn known_bell(&self, number: u32) -> Option<i32> {
        let start = number as usize % BELL_PLACES;
        for i in 0..BELL_PLACES {
            let entry = self.bells[(start + i) % BELL_PLACES].load(Acquire);
            if entry == 0 {
                return None;
            }
            if (entry >> 32) as u32 == number {
                return Some(entry as u32 as i32);
            }
        }
        None
    }

    /// Keeps a bell of this peer; false if it is none, or there is no room (the descriptor is closed): its sleeper is woken by the kernel then.
    pub fn add_bell(&self, number: u32, bell_fd: i32) -> bool {
        let entry = u64::from(number) << 32 | u64::from(bell_fd as u32);
        let start = number as usize % BELL_PLACES;
        let is_bell = eventfd::is_bell(bell_fd);
        // Before it is looked how many there are: another thread may do so, too.
        self.bell_count.fetch_add(1, AcqRel);
        if number != 0 && is_bell && self.may_have(1).is_ok() {
            for i in 0..BELL_PLACES {
                let place = &self.bells[(start + i) % BELL_PLACES];
                match place.compare_exchange(0, entry, AcqRel, Acquire) {
                    Ok(_) => return true,
                    Err(have) if (have >> 32) as u32 == number => break,
                    Err(_) => {}
                }
            }
        }
        // Not below those of a process that has this place by now.
        let _ = self.bell_count.fetch_update(AcqRel, Relaxed, |count| count.checked_sub(1));
        strangers::close_files(&[bell_fd]);
        false
    }

    pub(super) fn close_descriptors(&self, close_control: fn(i32)) {
        let mut bells = [0; BELL_PLACES];
        let mut count = 0;
        for place in &self.bells {
            let entry = place.swap(0, AcqRel);
            if entry != 0 {
                bells[count] = entry as u32 as i32;
                count += 1;
            }
        }
        // Perhaps something else that looked like one.
        strangers::close_files(&bells[..count]);
        self.bell_count.store(0, Relaxed);
        let control = self.control.swap(-1, AcqRel);
        if control >= 0 {
            close_control(control);
        }
    }

    /// Closes what came as an arena of theirs: of one that is mapped already it was not looked at, and may be anything.
    pub fn close_arena(&self, arena: u32, fd: i32) {
        if self.theirs.get(arena as usize).is_some_and(|record| record.maps(fd)) {
            fd::close(fd);
        } else {
            strangers::close_files(&[fd]);
        }
    }
}

/// Messages of one peer that are taken before an exec at most.
const MOST_LEFT: u32 = 1024;

/// Before an exec, which closes the control channels, and waits for what a last close waits for: what peers of other users have left there is closed so that nobody
/// waits, and they can leave nothing more.
pub fn take_nothing() {
    let mut message = [0; crate::rendezvous::MESSAGE_SIZE];
    for peer in strangers_of_ours() {
        let control = peer.control.load(Relaxed);
        unix::take_descriptors(control, false);
        for _ in 0..MOST_LEFT {
            match unix::recv(control, &mut message, state::floor()) {
                Ok(Some(received)) if received.len > 0 => strangers::close_received(&received),
                Err(Errno::MFILE) => {}
                _ => break,
            }
        }
    }
}

/// There was no exec.
pub fn take_again() {
    strangers_of_ours().for_each(|peer| unix::take_descriptors(peer.control.load(Relaxed), true));
}

/// Of a channel that another process of the family has, too, no close is the last one, and what is left there may be for that one.
fn strangers_of_ours() -> impl Iterator<Item = &'static Peer> {
    let is_anothers = |peer: &&Peer| peer.user.load(Relaxed) != process::euid();
    let is_ours = |peer: &&Peer| !peer.is_inherited() && !peer.shared.load(Relaxed);
    in_use().filter(is_anothers).filter(is_ours)
}

/// Whether `number` is a descriptor of some pair.
pub fn owns(number: i32) -> bool {
    let mut found = false;
    descriptors(|d| found |= d == number);
    found
}

/// Every descriptor of pairs.
pub fn descriptors(mut f: impl FnMut(i32)) {
    others::descriptor().into_iter().for_each(&mut f);
    for peer in in_use() {
        f(peer.control.load(Relaxed));
        for arena in &peer.ours {
            if arena.fd.load(Relaxed) > 0 {
                f(arena.fd.load(Relaxed) - 1);
            }
        }
        for bell in &peer.bells {
            let entry = bell.load(Relaxed);
            if entry != 0 {
                f(entry as u32 as i32);
            }
        }
    }
}
