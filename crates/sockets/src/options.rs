//! Socket options: which exclude an upgrade, which must be known to move bytes as the kernel would.

use crate::table::{self, Sock, flag};
use crate::thread::Call;
use crate::{carrier, epoll, flush, over, ready, switch};
use bypath_shm::direction::ask;
use bypath_shm::family::wpath;
use bypath_shm::reason::Reason;
use bypath_sys::{Errno, sock};
use std::sync::atomic::{Ordering::*, fence};

/// SO_PEEK_OFF, SO_ZEROCOPY (asm-generic/socket.h).
const SO_PEEK_OFF: i32 = 42;
const SO_ZEROCOPY: i32 = 60;

/// With these the kernel tells the time of what is received, or of what was sent: the numbers of old and new structures
/// (asm-generic/socket.h).
const TIMES: [i32; 6] = [libc::SO_TIMESTAMP, libc::SO_TIMESTAMPNS, libc::SO_TIMESTAMPING, 63, 64, 65];

/// With this every recvmsg tells how much is left to read (linux/tcp.h).
const TCP_INQ: i32 = 36;

/// Receives, by getsockopt (linux/tcp.h).
const TCP_ZEROCOPY_RECEIVE: i32 = 35;

/// A signature of each segment, and the like (linux/tcp.h).
const TCP_MD5SIG_EXT: i32 = 32;
const TCP_AO_ADD_KEY: i32 = 38;

/// IPsec (linux/in.h, linux/in6.h).
const IP_XFRM_POLICY: i32 = 17;
const IPV6_XFRM_POLICY: i32 = 35;

/// A filter of what is received (asm-generic/socket.h). The first one is SO_GET_FILTER, too.
const SO_ATTACH_FILTER: i32 = 26;
const SO_ATTACH_BPF: i32 = 50;

/// Whether the options in force on the socket have an equivalent on a ring.
///
/// # Errors
/// The reason why not.
pub fn eligible(s: &Sock) -> Result<(), Reason> {
    let fd = s.carrier();
    let is_set = |level, name| sock::option(fd, level, name).is_ok_and(|v| v != 0);
    if is_set(libc::SOL_SOCKET, SO_ZEROCOPY)
        || TIMES.iter().any(|name| is_set(libc::SOL_SOCKET, *name))
        || sock::option(fd, libc::SOL_SOCKET, SO_PEEK_OFF).is_ok_and(|v| v >= 0)
    {
        return Err(Reason::SocketOption);
    }
    if bypath_sys::fd::status_flags(fd).is_ok_and(|f| f & libc::O_ASYNC != 0) {
        return Err(Reason::SocketOption);
    }
    if has_filter(fd)
        || is_set(libc::IPPROTO_IP, libc::IP_MINTTL)
        || is_set(libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT)
    {
        return Err(Reason::SocketOption);
    }
    carrier::of(s).eligible(fd)
}

/// Whether a filter looks at what is received: it is told how many instructions it has, or that they cannot be.
fn has_filter(fd: i32) -> bool {
    match sock::option_bytes(fd, libc::SOL_SOCKET, SO_ATTACH_FILTER, &mut []) {
        Ok(count) => count > 0,
        Err(e) => e == Errno::ACCESS,
    }
}

/// Whether every recvmsg tells how much is left to read (TCP_INQ). Bytes that were in a ring when that was set may still be
/// read from there.
pub fn tells_rest(s: &Sock) -> bool {
    s.has(flag::STAYS) && !s.has(flag::LOCAL) && has_inq(s.carrier())
}

/// Whether TCP_INQ is set.
pub fn has_inq(fd: i32) -> bool {
    sock::option(fd, libc::IPPROTO_TCP, TCP_INQ).is_ok_and(|v| v != 0)
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

/// Whether setting this option, or receiving by it, needs the kernel path for good.
pub fn needs_kernel(level: i32, name: i32) -> bool {
    let needs = match level {
        libc::SOL_SOCKET => name == SO_ZEROCOPY || name == SO_PEEK_OFF || TIMES.contains(&name),
        libc::IPPROTO_TCP => [libc::TCP_REPAIR, TCP_INQ, TCP_ZEROCOPY_RECEIVE].contains(&name),
        _ => false,
    };
    needs || looks_at_octets(level, name)
}

/// Whether by this option the kernel does something to what is received, or asks something of it: no octet is read past it.
fn looks_at_octets(level: i32, name: i32) -> bool {
    match level {
        libc::SOL_SOCKET => name == SO_ATTACH_FILTER || name == SO_ATTACH_BPF,
        libc::IPPROTO_TCP => {
            [libc::TCP_ULP, libc::TCP_MD5SIG, TCP_MD5SIG_EXT, TCP_AO_ADD_KEY].contains(&name)
        }
        libc::IPPROTO_IP => name == libc::IP_MINTTL || name == IP_XFRM_POLICY,
        libc::IPPROTO_IPV6 => name == libc::IPV6_MINHOPCOUNT || name == IPV6_XFRM_POLICY,
        _ => false,
    }
}

/// After the directions were taken back for this option: what comes by a ring from now on is not read.
///
/// # Errors
/// EBUSY: octets that the kernel would have to decrypt (TCP_ULP) stand in a ring, and the other end does not take them back.
pub fn seal(s: &'static Sock, level: i32, name: i32) -> Result<(), Errno> {
    if !looks_at_octets(level, name) {
        return Ok(());
    }
    let Some(conn) = s.conn.get() else {
        // What a listener accepts has it, too.
        s.set(flag::SEALED);
        return Ok(());
    };
    let is_empty = over::seal(s, conn, true);
    let is_layer = level == libc::IPPROTO_TCP && name == libc::TCP_ULP;
    if is_layer && !is_empty { Err(Errno::BUSY) } else { Ok(()) }
}

/// The same of a child in this process's memory (vfork), which waits for nobody.
///
/// # Errors
/// As [`seal`].
pub fn seal_by_child(s: &'static Sock, level: i32, name: i32) -> Result<(), Errno> {
    if looks_at_octets(level, name)
        && let Some(conn) = s.conn.get()
    {
        s.set(flag::FOR_GOOD);
        conn.inc().withdraw_consent();
        switch::ask_recall(s, conn, ask::RECALL, Reason::RecalledOption);
    }
    seal(s, level, name)
}

/// Whether reading this option takes bytes out of the stream, past any ring.
pub fn receives(level: i32, name: i32) -> bool {
    level == libc::IPPROTO_TCP && name == TCP_ZEROCOPY_RECEIVE
}

/// Whether this option is the carrier's room for what is taken back.
fn bounds_flush(level: i32, name: i32) -> bool {
    level == libc::SOL_SOCKET && (name == libc::SO_SNDBUF || name == libc::SO_SNDBUFFORCE)
}

/// Whether what is done before setsockopt takes back what is in rings.
pub fn takes_back(level: i32, name: i32) -> bool {
    needs_kernel(level, name) || bounds_flush(level, name)
}

/// Before setsockopt: what is in a ring goes to the carrier while that has the buffer by which the ring's length was agreed on.
pub fn changes(s: &'static Sock, level: i32, name: i32) {
    if bounds_flush(level, name) {
        empty_ring(s);
    }
}

#[cold]
fn empty_ring(s: &'static Sock) {
    if s.end().w.path.load(Acquire) != wpath::KERNEL
        && let (Some(conn), Some(call)) = (s.conn.get(), Call::enter())
    {
        flush::empty_ring(s, conn, Reason::RecalledOption, &call);
    }
}

/// Whether this option of sockets says how long a call waits, or for how much.
fn is_limit(name: i32) -> bool {
    name == libc::SO_RCVTIMEO || name == libc::SO_SNDTIMEO || name == libc::SO_RCVLOWAT
}

/// After a successful setsockopt of a child in this process's memory, where the descriptor may be something else by now.
#[cold]
pub fn changed_by_child(s: &Sock, level: i32, name: i32) {
    if level != libc::SOL_SOCKET || !is_limit(name) || !s.is_warm() {
        return;
    }
    let cookie = sock::option_u64(s.carrier(), libc::SOL_SOCKET, libc::SO_COOKIE);
    if cookie.is_ok_and(|cookie| cookie == s.end().cookie.load(Relaxed)) {
        refresh(s);
    }
}

/// After a successful setsockopt.
pub fn changed(s: &'static Sock, level: i32, name: i32) {
    if level != libc::SOL_SOCKET || !s.is_warm() {
        return;
    }
    if is_limit(name) {
        refresh(s);
    }
    if bounds_flush(level, name) {
        // Who begins a ring looks at the buffer after it; who has begun one before this is seen here.
        fence(SeqCst);
        if s.conn.get().is_some_and(|conn| !switch::can_take_back(s, conn)) {
            empty_ring(s);
        }
    }
    // AF_UNIX does not wait for the mark, nor report that it was reached.
    let waits = name == libc::SO_RCVLOWAT && !s.has(flag::LOCAL);
    if waits && s.conn.get().is_some_and(|conn| ready::ring_readable(s, conn)) {
        epoll::is_enough(s);
    }
}
