//! Calls on what outlives its service, other than those that wait for what comes: while the service is away they are about what will be made
//! ([`super::recipe`]), and once it is back about the socket that those who share the ended one have made, or that is made now.
//!
//! So who never accepts (the process that starts a server's workers) finds the socket as who does.

use super::anew::is_gone;
use super::{Record, datagram, recognise, stage};
use crate::state;
use crate::table::{self, Entry};
use bypath_sys::{Result, fd as sys, poll};

impl Record {
    /// What the service answers about one that may listen. `None`: it listens, its service is away, and a timer has its place.
    pub(super) fn answered<T>(&self, fd: i32, mut ask: impl FnMut() -> Result<T>) -> Option<Result<T>> {
        if !self.is_there(fd) {
            return None;
        }
        let answer = ask();
        let may_last = matches!(self.stage(), stage::LISTENING | stage::AWAY);
        if !may_last || !is_gone(&answer) || !self.waits_for_service(fd) {
            return Some(answer);
        }
        self.is_there(fd).then(ask)
    }

    /// Whether its service is, as far as this process knows; one that is away is looked for now and then.
    pub(super) fn is_there(&self, fd: i32) -> bool {
        self.stage() != stage::AWAY || self.listens_again(fd)
    }
}

/// Before an exec, or a spawn: whether the next image inherits a socket of a service. One whose service has ended and is back is made again before
/// that, as nobody can tell what the ended one was.
pub fn are_inherited() -> bool {
    let is_borrowed = state::is_borrowed();
    let may_ask = !state::is_sealed() && !is_borrowed;
    let (mut any, mut there_are) = (false, false);
    table::each(|fd, entry| {
        let is_stream = table::served(fd).is_some();
        if !is_stream && !matches!(entry, Entry::Datagrams(n) if datagram::cookie(n).is_some_and(|c| c != 0))
        {
            return;
        }
        there_are = true;
        if sys::is_cloexec(fd) == Ok(false) {
            any = true;
            if may_ask {
                renew(fd);
            }
        }
    });
    // Who borrows memory makes descriptors that nobody hears of.
    any || there_are && is_borrowed && recognise::are_any_inherited()
}

/// One that has ended is made again, where that can be.
fn renew(fd: i32) {
    let has_ended = |r: &Record| r.stage() == stage::AWAY || poll::now(fd, 0) & libc::POLLHUP != 0;
    match super::of(fd).filter(|r| matches!(r.stage(), stage::LISTENING | stage::AWAY)) {
        Some(r) if has_ended(r) => drop(r.answered(fd, || r.names())),
        Some(_) => {}
        None => datagram::calls::renew(fd),
    }
}
