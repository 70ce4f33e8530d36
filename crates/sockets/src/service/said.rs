//! Options that a service is told without waiting for its answer: what can be said of them the library says itself.
//!
//! That holds where the service is known to answer this process about the socket, and on the connection where it did: nobody would hear
//! of a refusal. Of who accepts, that is known of the listening socket.

use super::control;
use super::{Record, stage};
use crate::table;
use bypath_shm::service::Op;
use bypath_sys::sock;
use std::sync::atomic::Ordering::*;

/// Options that are set without an answer: what they cost the service is little, and what can be said of them the program knows
/// itself.
pub const fn may_be(level: i32, name: i32) -> bool {
    match level {
        libc::SOL_SOCKET => name == libc::SO_KEEPALIVE,
        libc::IPPROTO_TCP => matches!(
            name,
            libc::TCP_CORK
                | libc::TCP_NODELAY
                | libc::TCP_QUICKACK
                | libc::TCP_KEEPIDLE
                | libc::TCP_KEEPINTVL
                | libc::TCP_KEEPCNT
                | libc::TCP_USER_TIMEOUT
        ),
        _ => false,
    }
}

/// What saying it takes: `None`, it has to be asked; true: it holds octets back, and nothing may be under way.
fn holds(level: i32, name: i32, value: &[u8]) -> Option<bool> {
    if !may_be(level, name) {
        return None;
    }
    let n = i32::from_ne_bytes(*value.first_chunk()?);
    let may = match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_CORK) => return Some(n != 0),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => return Some(n == 0),
        // Linux's MAX_TCP_KEEPIDLE, MAX_TCP_KEEPINTVL, MAX_TCP_KEEPCNT.
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL) => (1..=32_767).contains(&n),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => (1..=127).contains(&n),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => n >= 0,
        _ => true,
    };
    may.then_some(false)
}

/// Sets an option so. False: the service is to be asked.
pub(super) fn set(fd: i32, r: &Record, level: i32, name: i32, value: &[u8]) -> bool {
    let Some(holds) = holds(level, name, value).filter(|_| r.stage() == stage::CONNECTED) else {
        return false;
    };
    // What holds is read before what is in the pair: none of that may have been written before. Of a ring the pair does not tell.
    if holds && (table::sock(fd).is_none_or(|s| s.is_warm()) || sock::outq(fd) != Ok(0)) {
        return false;
    }
    let said = r.question(Op::Say).number(level).number(name).octets(value);
    said.say(r.service(), r.heard.load(Relaxed), fd)
}

impl Record {
    /// The service has answered about it.
    pub(super) fn is_heard(&self) {
        self.heard.store(control::connection(self.service()), Relaxed);
    }

    /// Of one that listens: whether the service answers this process about it, and so about what it accepts, is asked once.
    pub(super) fn is_heard_for_others(&self) {
        let (service, heard) = (self.service(), self.heard.load(Relaxed));
        let is_known = heard != 0 && heard == control::connection(service);
        if !is_known && !control::shows(service) && self.names_within().is_some() {
            self.is_heard();
        }
    }
}
