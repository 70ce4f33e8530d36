//! Which processes of the family hold a socket that was there at a fork. All of them share its queue, and nobody knows who of them reads: while
//! there is more than one it stays on the kernel. One of the family's ends (docs/shm-format.md) says who holds it, until the others have closed it,
//! have ended, or have become programs that did not inherit it.

use super::{Record, each};
use crate::state::{self, State};
use crate::table::{self, flag};
use crate::{leaving, numbers};
use bypath_shm::family::End;
use bypath_shm::reason::Reason;
use bypath_sys::{fd, sock};
use std::sync::atomic::Ordering::*;

/// Before a fork of a process that has no state yet: made, if there is a socket of which to say who holds it.
pub fn begin() -> Option<&'static State> {
    let mut any = false;
    each(|r| any |= r.stays().is_none());
    if !any || state::is_sealed() || state::is_borrowed() {
        return None;
    }
    let _life = state::LIFE.lock(table::tid())?;
    state::start()
}

/// Before a fork: the child at `place` will hold every socket, too. `None`: nobody would know when it does no more. Under
/// [`state::LIFE`], if there is any state.
pub fn forking(to: Option<(&State, u32)>) {
    each(|r| {
        if r.stays().is_none() {
            match to {
                Some((state, place)) if r.spread_to(state, place) => r.rest(),
                _ => r.keep(Reason::SharedQueue),
            }
        }
    });
}

/// There was no fork.
pub fn no_child(place: u32) {
    each(|r| {
        if let Some(end) = r.end_of_holders() {
            end.holders.fetch_and(!(1 << place), AcqRel);
        }
    });
}

/// In a forked child: what views see is its parent's, and so are the sleepers.
pub fn enter_child() {
    each(|r| {
        r.shown.forget();
        // Calls of the parent's that this copy remembers are no longer about this one.
        r.generation.fetch_add(1, Relaxed);
        r.sleepers.store(0, Relaxed);
    });
}

/// Before an exec, of which the others are told: what is close-on-exec the next image does not hold. Under [`state::LIFE`].
pub fn leaves(bit: u64) {
    each(|r| {
        if let Some(end) = r.end_of_holders()
            && fd::is_cloexec(r.fd.load(Relaxed)) == Ok(true)
        {
            end.r.leaving.fetch_or(bit, AcqRel);
        }
    });
}

/// The exec failed.
pub fn stays(bit: u64) {
    each(|r| {
        if let Some(end) = r.end_of_holders() {
            end.r.leaving.fetch_and(!bit, AcqRel);
        }
    });
}

impl Record {
    /// What says who holds it, once there was a fork.
    fn end_of_holders(&self) -> Option<&'static End> {
        let number = self.end.load(Relaxed).checked_sub(1)?;
        state::get()?.family.ends.get(number as usize)
    }

    fn spread_to(&self, state: &State, place: u32) -> bool {
        let end = match self.end_of_holders() {
            Some(end) => end,
            None => {
                let Some(place) = numbers::take(state) else { return false };
                let (own, end) = (self.fd.load(Relaxed), place.end());
                // First: who takes a number and dies does not keep it.
                end.holders.store(state.bit(), Relaxed);
                end.generation.fetch_add(1, Relaxed);
                end.flags.store(0, Relaxed);
                end.r.leaving.store(0, Relaxed);
                end.fd.store(own, Relaxed);
                let cookie = sock::option_u64(own, libc::SOL_SOCKET, libc::SO_COOKIE).unwrap_or(0);
                end.cookie.store(cookie, Relaxed);
                self.end.store(place.number.load(Relaxed) + 1, Relaxed);
                end
            }
        };
        end.holders.fetch_or(1 << place, AcqRel);
        // What an earlier process of that place was about to do.
        end.r.leaving.fetch_and(!(1 << place), AcqRel);
        true
    }

    /// By the kernel, until it is this process's alone.
    fn rest(&self) {
        self.end_mailbox(Reason::SharedQueue);
        self.drop_routes(Reason::SharedQueue);
        self.show_reason(Reason::SharedQueue);
        self.show_rx_reason(Reason::SharedQueue);
    }

    /// Whether another process holds it, too. Under [`state::LIFE`].
    pub(super) fn is_held_elsewhere(&self) -> bool {
        let (Some(end), Some(state)) = (self.end_of_holders(), state::get()) else { return false };
        if !leaving::is_left_to(state, end) {
            return true;
        }
        // Read behind that: who gives it away says so while he holds it.
        if end.flags.load(SeqCst) & (flag::STAYS | flag::HANDED_OVER) != 0 {
            self.keep(Reason::SharedQueue);
            return true;
        }
        self.holds_no_longer();
        false
    }

    /// Others come to hold it of whom nobody will know when they do no more.
    pub(super) fn is_given_away(&self) {
        if let Some(end) = self.end_of_holders() {
            end.flags.fetch_or(flag::FOR_GOOD, SeqCst);
        }
    }

    /// It is closed, or nothing needs to be known of who holds it. Under [`state::LIFE`].
    pub(super) fn holds_no_longer(&self) {
        if let (Some(end), Some(state)) = (self.end_of_holders(), state::get()) {
            self.end.store(0, Relaxed);
            if end.holders.fetch_and(!state.bit(), AcqRel) == state.bit() {
                numbers::free(end);
            }
        }
    }
}
