//! connect(): a socket's first connection, the end of one, and another one behind it.

use crate::table::{self, Entry, Sock, flag};
use crate::thread::{Busy, Call};
use crate::{carrier, cut, epoll, flush, guard, life, state, switch, udp};
use bypath_shm::direction::ask;
use bypath_shm::family::Addr;
use bypath_shm::reason::Reason;
use bypath_sys::sock;
use std::sync::atomic::Ordering::*;

/// connect() on a socket: its first one, or (`dissolves`: to AF_UNSPEC) the end of a connection. Else a connected one stays so, which is what the kernel will say.
pub fn begin(fd: i32, dissolves: bool) {
    udp::connect_begin(fd);
    if table::sock(fd).is_none() {
        return;
    }
    let _busy = Busy::begin();
    let Some(s) = table::sock(fd) else { return };
    // What the library has dissolved already (`cut`) is another connection afterwards.
    let dissolves = dissolves || s.conn.get().is_some_and(cut::is_off);
    if dissolves && !s.has(flag::LOCAL) && (is_known(s) || s.has(flag::USED | flag::SENT_FIN | flag::NO_READ))
    {
        leave_connection(s, false);
    } else if !is_known(s) {
        guard::connects(s);
    }
}

/// After it; `begun`: it is connected now, or about to be.
pub fn end(fd: i32, begun: bool) {
    udp::connect_end(fd);
    if !begun || table::sock(fd).is_none() {
        return;
    }
    let _busy = Busy::begin();
    // Dissolved by a call that nobody saw, or by `cut`.
    if let Some(s) = table::sock(fd)
        && is_known(s)
        && is_another_connection(s)
    {
        leave_connection(s, true);
    }
}

/// Whether there is anything that is about the socket's connection.
fn is_known(s: &Sock) -> bool {
    s.is_warm() || s.meeting.load(Relaxed) || s.attempts.load(Relaxed) > 0
}

/// Whether the carrier is not the connection any more that it was: it has other names, or fewer octets than it was given.
fn is_another_connection(s: &Sock) -> bool {
    let (end, fd) = (s.end(), s.carrier());
    if end.remote.name().is_none() {
        return false;
    }
    let is = |known: &Addr, now: bypath_sys::Result<sock::Address>| {
        now.is_ok_and(|now| known.is(now.family, now.port, now.bytes))
    };
    let given = carrier::of(s).moved(s).map_or(u64::MAX, |(given, _)| given);
    !is(&end.local, sock::local_address(fd))
        || !is(&end.remote, sock::remote_address(fd))
        || given < end.w.kernel_bytes.load(Acquire)
}

/// What it is connected to from now on (`is_over`: already) is somebody else: neither rings, nor who was called, nor what is known of the other end is of that
/// one. So the socket is the kernel's, and what is unread, or was not sent yet, goes with the connection.
#[cold]
fn leave_connection(s: &'static Sock, is_over: bool) {
    let reason = Reason::RecalledConnect;
    if let Some(conn) = s.conn.get() {
        if is_over {
            switch::ask_recall(s, conn, ask::CLOSED, reason);
        } else if !life::is_last_process(s) {
            switch::recall_both(s, reason, true);
        } else if let Some(call) = Call::enter() {
            flush::empty_ring(s, conn, reason, &call);
            switch::ask_recall(s, conn, ask::CLOSED, reason);
        }
    }
    let Some(_life) = state::LIFE.lock_past(table::tid()) else { return };
    s.keep_on_kernel(reason);
    s.replaced.store(table::ALL, Release);
    table::each(|fd, entry| {
        if matches!(entry, Entry::Sock(other) if std::ptr::eq(other, s)) {
            table::remove(fd);
        }
    });
    epoll::give_back(s);
    s.descriptors.store(0, Relaxed);
    life::finish_last(s);
}
