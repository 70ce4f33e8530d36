//! Whether a carrier's number leads to the connection's other end yet.
//!
//! What a program closes, or connects anew, is seen where it calls the library. What io_uring does is not, nor what a process does by a socket that
//! it shares with this one: then the number is another socket's, or the socket has another partner, and what is still to be said to the first one, or done to
//! its connection, is nobody's.

use crate::peer::Conn;
use crate::table::{self, NEVER_OPEN, Sock, flag};
use crate::{cut, state};
use bypath_shm::reason::Reason;
use bypath_sys::{Errno, sock};
use std::sync::atomic::Ordering::*;

/// Whether `fd` is the socket's, with its partner, as far as an instance of io_uring has to do with that. No question where the process has none, or the
/// socket never had a ring.
#[inline]
pub fn is_its_number(s: &Sock, fd: i32) -> bool {
    !is_doubted(s) || !leads_elsewhere(s, fd)
}

/// Whether there is no way any more to hear of the other end, as [`is_its_number`]: it is enough that the connection was dissolved, but by this library.
pub fn is_lost(s: &Sock, conn: &Conn) -> bool {
    is_doubted(s) && !is_connected(s, s.carrier()).unwrap_or_else(|_| cut::is_off(conn))
}

#[inline]
fn is_doubted(s: &Sock) -> bool {
    state::hindrance() == Some(Reason::IoUring) && s.conn.get().is_some()
}

/// The carrier for what must reach nobody else: never open, if it is another one's by now.
pub fn carrier(s: &Sock) -> i32 {
    let fd = s.carrier();
    if leads_elsewhere(s, fd) { NEVER_OPEN } else { fd }
}

/// Whether the number is known for the socket's, and is another one's, or that has another partner.
#[cold]
pub fn is_elsewhere(s: &Sock) -> bool {
    let fd = s.fd.load(Acquire);
    table::still(fd, s) && leads_elsewhere(s, fd)
}

#[cold]
fn leads_elsewhere(s: &Sock, fd: i32) -> bool {
    let known = s.end().cookie.load(Relaxed);
    let is_other = || sock::option_u64(fd, libc::SOL_SOCKET, libc::SO_COOKIE) != Ok(known);
    known != 0 && is_other() || is_connected(s, fd) == Ok(false)
}

/// To whom it was, if that is known. An error: to nobody.
fn is_connected(s: &Sock, fd: i32) -> Result<bool, Errno> {
    let known = &s.end().remote;
    if s.has(flag::LOCAL) || known.name().is_none() {
        return Ok(fd != NEVER_OPEN);
    }
    sock::remote_address(fd).map(|to| known.is(to.family, to.port, to.bytes))
}
