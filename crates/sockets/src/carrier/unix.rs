//! AF_UNIX streams: the switch on a carrier that is not TCP. Followed are those of a netstack service, and in tests all of them.
//!
//! What differs from TCP:
//! * The kernel counts no stream bytes: positions are the counts of hooked calls, so an un-hooked writer is not
//!   noticed, and a sibling that was killed between a send and its count cannot be repaired exactly.
//! * SIOCOUTQ counts memory, not bytes: the room is an estimate on the safe side.
//! * Nothing is held back, so nothing has to be urged. Urgent octets go by the carrier alone.
//! * After a shutdown for reading the other end's bytes are refused, also those of a flush; and poll says nothing of a
//!   shutdown to a writer that waits for room.
//! * There is no reset. A close with unread bytes leaves ECONNRESET at the other end, which only a receive reports: a
//!   send says EPIPE. The queue of unread bytes that the kernel looks at is not the ring; the writer, whose flush comes
//!   too late, keeps the error instead.

use super::{Backend, Course, Standing, untold};
use crate::service;
use crate::table::Sock;
use bypath_shm::reason::Reason;
use bypath_sys::sockdiag::{self, Found};
use bypath_sys::{Result, poll, sock};
use std::sync::atomic::Ordering::*;

/// A connected AF_UNIX stream socket.
#[derive(Debug)]
pub struct Unix;

impl Backend for Unix {
    fn eligible(&self, fd: i32) -> std::result::Result<(), Reason> {
        // Credentials that come with the bytes have no place in a ring.
        let marked = sock::option(fd, libc::SOL_SOCKET, libc::SO_PASSCRED).is_ok_and(|v| v != 0);
        if marked { Err(Reason::SocketOption) } else { Ok(()) }
    }

    fn record_names(&self, _s: &Sock) -> bool {
        // The record has room for IP addresses only; who is connected shows when the other end is asked for.
        true
    }

    fn peer(&self, s: &Sock, netlink: i32) -> std::result::Result<Found, Reason> {
        sockdiag::unix_peer(netlink, s.carrier()).map_err(untold)?.ok_or(Reason::PeerRemote)
    }

    fn standing(&self, s: &Sock) -> Result<Standing> {
        let course = match poll::now(s.carrier(), libc::POLLRDHUP) {
            events if events & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0 => Course::Over,
            events if events & libc::POLLRDHUP != 0 => Course::PeerFinished,
            _ => Course::Open,
        };
        Ok(Standing { given: s.end().w.kernel_bytes.load(Acquire), course })
    }

    fn arrived(&self, s: &Sock, position: u64, unread: usize) -> bool {
        // In this order: bytes that another reader takes in between are missing, and that one looks again after it has
        // counted them. The other way round they would count twice.
        let taken = s.end().r.kernel_bytes.load(Acquire);
        let queued = sock::inq(s.carrier());
        // A netstack service has written everything to the pair before it writes to the ring; how much a program has taken that nobody
        // sees does not matter then.
        queued == Ok(unread) && (s.served().is_some() || taken.wrapping_add(unread as u64) == position)
    }

    fn received(&self, s: &Sock) -> Result<u64> {
        // In this order: what another reader takes in between counts twice at most until it has counted it.
        let queued = sock::inq(s.carrier())? as u64;
        Ok(s.end().r.kernel_bytes.load(Acquire).wrapping_add(queued))
    }

    fn has_mark_within(&self, s: &Sock, want: usize) -> bool {
        let queued = sock::inq(s.carrier()).unwrap_or(0);
        let Ok(seen) = sock::count(s.carrier(), want, libc::MSG_PEEK | libc::MSG_DONTWAIT) else {
            return false;
        };
        seen < want && seen < queued
    }

    fn urge(&self, _s: &Sock) -> bool {
        false
    }

    fn relax(&self, _s: &Sock) {}

    fn lost(&self, s: &Sock, error: Option<i32>) -> Option<i32> {
        // Without a close (the other end shut its receiving side down) only the next send learns it, from the kernel.
        let closed = poll::now(s.carrier(), 0) & libc::POLLHUP != 0;
        match error {
            None | Some(libc::EPIPE) => closed.then_some(libc::ECONNRESET),
            other => other,
        }
    }

    fn send_reports_errors(&self) -> bool {
        false
    }

    fn shutdown_is_gentle(&self) -> bool {
        false
    }

    fn tells_after_fin(&self, s: &Sock) -> bool {
        // It hangs up. Whether something was unread is nothing to who asks a service then.
        s.served().is_some()
    }

    fn is_left(&self, _s: &Sock) -> bool {
        false
    }

    fn reset(&self, s: &Sock) {
        sock::shutdown(s.carrier(), libc::SHUT_RDWR);
    }

    fn dissolve(&self, _s: &Sock) -> bool {
        false
    }

    fn has_finished(&self, _s: &Sock) -> bool {
        // Either shutdown is both ends'.
        true
    }

    fn discardable(&self, _s: &Sock) -> usize {
        // What was sent lies in the other end's queue, and stays there.
        0
    }

    fn close_unread(&self, s: &Sock) {
        // The other end was told that nobody reads any more, and finds it out at its flush. What was put aside it takes for read, which
        // a service is to know.
        if let Some(record) = s.served() {
            service::calls::leaves_unread(record);
        }
    }
}
