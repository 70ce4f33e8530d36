//! Socket options: which exclude an upgrade, which must be known to move bytes as the kernel would.

use crate::table::{self, Sock, flag};
use crate::{carrier, epoll, ready};
use bypath_shm::reason::Reason;
use bypath_sys::sock;
use std::sync::atomic::Ordering::*;

/// SO_PEEK_OFF, SO_ZEROCOPY (asm-generic/socket.h).
const SO_PEEK_OFF: i32 = 42;
const SO_ZEROCOPY: i32 = 60;

/// Whether the options in force on the socket have an equivalent on a ring.
///
/// # Errors
/// The reason why not.
pub fn eligible(s: &Sock) -> Result<(), Reason> {
    let fd = s.carrier();
    let is_set = |level, name| sock::option(fd, level, name).is_ok_and(|v| v != 0);
    if is_set(libc::SOL_SOCKET, SO_ZEROCOPY)
        || is_set(libc::SOL_SOCKET, libc::SO_TIMESTAMP)
        || is_set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS)
        || is_set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING)
        || sock::option(fd, libc::SOL_SOCKET, SO_PEEK_OFF).is_ok_and(|v| v >= 0)
    {
        return Err(Reason::SocketOption);
    }
    if bypath_sys::fd::status_flags(fd).is_ok_and(|f| f & libc::O_ASYNC != 0) {
        return Err(Reason::SocketOption);
    }
    carrier::of(s).eligible(fd)
}

/// Reads the options that data calls on a ring need.
pub fn refresh(s: &Sock) {
    let (end, fd) = (s.end(), s.carrier());
    end.rcvtimeo.store(sock::option_time(fd, libc::SO_RCVTIMEO).unwrap_or(0), Relaxed);
    end.sndtimeo.store(sock::option_time(fd, libc::SO_SNDTIMEO).unwrap_or(0), Relaxed);
    let lowat = sock::option(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT).unwrap_or(1);
    end.rcvlowat.store(lowat.max(1) as u32, Relaxed);
    table::refresh_nonblocking(s);
}

/// Before a data call: who else has the socket may have changed its options, and nobody heard. While there is an heir
/// everything is on the kernel's path.
#[inline]
pub fn look_again(s: &Sock, on_kernel: bool) {
    if s.has(flag::HANDED_OVER | flag::SPREAD) || on_kernel && s.end().r.heir.load(Relaxed) != 0 {
        refresh(s);
    }
}

/// Whether setting this option needs the kernel path for good.
pub fn needs_kernel(level: i32, name: i32) -> bool {
    match level {
        libc::SOL_SOCKET => {
            name == SO_ZEROCOPY
                || name == SO_PEEK_OFF
                || name == libc::SO_TIMESTAMP
                || name == libc::SO_TIMESTAMPNS
                || name == libc::SO_TIMESTAMPING
        }
        libc::IPPROTO_TCP => name == libc::TCP_ULP || name == libc::TCP_REPAIR || name == libc::TCP_MD5SIG,
        _ => false,
    }
}

/// After a successful setsockopt.
pub fn changed(s: &'static Sock, level: i32, name: i32) {
    if level != libc::SOL_SOCKET || !s.is_warm() {
        return;
    }
    if name == libc::SO_RCVTIMEO || name == libc::SO_SNDTIMEO || name == libc::SO_RCVLOWAT {
        refresh(s);
    }
    // AF_UNIX does not wait for the mark, nor report that it was reached.
    let waits = name == libc::SO_RCVLOWAT && !s.has(flag::LOCAL);
    if waits && s.conn.get().is_some_and(|conn| ready::ring_readable(s, conn)) {
        epoll::is_enough(s);
    }
}
