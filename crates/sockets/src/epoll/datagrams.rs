//! UDP sockets in sets: what a set has to know of mailboxes, and what those have to know of it.

use super::{LOCK, SETS_CAPACITY, WAITED, ensure_bell, set, sys};
use crate::hook::{EpollEvent, Verdict};
use crate::table;
use crate::udp::{self, wait};
use bypath_shm::reason::Reason;
use std::sync::atomic::Ordering::*;

/// epoll_ctl on a UDP socket; `set`: the number of the set, if that is followed.
pub fn ctl(
    r: &'static udp::Record,
    set: Option<u32>,
    (epfd, op, fd): (i32, i32, i32),
    event: Option<EpollEvent>,
) -> Verdict {
    let Some(set) = set else {
        r.keep(Reason::ForeignEpoll);
        return Verdict::NotOurs;
    };
    let given = match (op, event) {
        (libc::EPOLL_CTL_DEL, _) => EpollEvent { events: 0, data: 0 },
        (_, Some(event)) => event,
        (_, None) => return Verdict::NotOurs,
    };
    let done = sys::ctl(epfd, op, fd, sys::Event { events: given.events, data: given.data });
    if done.is_ok() {
        wait::registered(r, set, op, fd, event);
    }
    Verdict::done(done.map(|()| 0))
}

/// Whether somebody sleeps in the set, or may.
pub fn has_sleepers(number: u32) -> bool {
    set(number).is_some_and(|s| s.sleepers.load(SeqCst) != 0 || s.blind_waits.load(SeqCst) != 0)
}

/// Whether a mailbox of a socket in the set is seen by who waits there.
pub fn can_serve(number: u32) -> bool {
    let Some(s) = set(number).filter(|_| number < SETS_CAPACITY) else { return false };
    let Some(_held) = LOCK.lock(table::tid()) else { return false };
    WAITED.load(Relaxed) && !s.foreign.load(Acquire) && ensure_bell(s)
}

/// A socket in the set has a mailbox now.
pub fn comes(number: u32) {
    if let Some(s) = set(number) {
        s.datagrams.fetch_add(1, SeqCst);
    }
}

/// It has none any more, or has left.
pub fn goes(number: u32) {
    if let Some(s) = set(number) {
        let _ = s.datagrams.fetch_update(SeqCst, Relaxed, |n| n.checked_sub(1));
    }
}

/// The last descriptor of a set is closed.
pub(super) fn set_closed(number: u32) {
    wait::set_closed(number);
}
