//! Octets that stand in a ring when they are none of the stream any more.
//!
//! A stream may be over for the kernel, as its end, an error, or a shutdown both ways was seen, while the other end still has the ring, where it may write for
//! ever. An honest end has written all that there is by then: what it publishes stands there before it closes. So what is found in the ring first after
//! that is the last that is read of it, however much comes later.
//!
//! And a program may set an option by which the kernel does something to all octets that come: decrypts them, asks for a signature, filters them. The
//! other end is asked for the carrier then, and takes what was not read back there before it says anything else: what it writes into the ring meanwhile is
//! not read, and comes by the carrier, or it lies.
//!
//! Each process that has the connection finds out for itself how much is left.

use crate::peer::Conn;
use crate::switch;
use crate::table::{Sock, flag};
use crate::thread::Call;
use crate::{others, wait};
use bypath_shm::direction::{Path, Poisoned, Readable};
use std::sync::atomic::Ordering::*;

/// While octets come from a process of another user, who may go on for ever, the carrier is looked at so often (us).
const LOOK_US: u64 = 100_000;
/// Any of them: it may be over.
pub const SIGNS: u32 = flag::PEER_GONE | flag::NO_READ | flag::SEALED;

/// Without the octets that came too late.
#[inline]
pub fn without_late(s: &Sock, seen: Result<Readable, Poisoned>) -> Result<Readable, Poisoned> {
    if s.has(SIGNS) { bounded(s, seen) } else { seen }
}

#[cold]
fn bounded(s: &Sock, seen: Result<Readable, Poisoned>) -> Result<Readable, Poisoned> {
    match seen {
        Ok(Readable::Ring { head, available }) if is_over(s) => {
            let last =
                s.last.compare_exchange(0, available + 1, Relaxed, Relaxed).unwrap_or_else(|last| last);
            let available = if last == 0 { available } else { available.min(last - 1) };
            Ok(Readable::Ring { head, available })
        }
        seen => seen,
    }
}

/// `n` octets of the ring were read.
#[inline]
pub fn took(s: &Sock, n: u64) {
    if s.has(SIGNS) {
        let rest = |last: u64| (last > 1).then(|| last - n.min(last - 1));
        let _ = s.last.fetch_update(Relaxed, Relaxed, rest);
    }
}

fn is_over(s: &Sock) -> bool {
    // Who reads no more, and still sends, hears what comes later, as of TCP.
    let end = if s.has(flag::NO_READ) { flag::SENT_FIN } else { flag::PEER_GONE };
    s.has(end | flag::SEALED)
}

/// Nothing more is read of the ring than stands there now, in which the incoming direction was asked back. Whether that is nothing.
pub fn seal(s: &'static Sock, conn: &'static Conn) -> bool {
    let left = switch::unread(conn);
    // What is being taken back is on its way to the kernel.
    let is_empty = left == 0 || conn.inc().path() == Path::Kernel;
    let _ = s.last.compare_exchange(0, left + 1, Relaxed, Relaxed);
    s.set(flag::SEALED);
    is_empty
}

/// Nothing more of the ring is read: its other end lies.
pub fn end(s: &Sock) {
    s.last.store(1, Relaxed);
    s.set(flag::SEALED);
}

/// Octets came from the ring: whether the connection is over otherwise shows only once there are none.
#[inline]
pub fn look(call: &Call, s: &'static Sock, conn: &'static Conn) {
    if others::any() && wait::peer_check_due(s, LOOK_US) {
        look_at_carrier(call, s, conn);
    }
}

#[cold]
fn look_at_carrier(call: &Call, s: &'static Sock, conn: &'static Conn) {
    let (ended, reset) = wait::peer_end(s);
    if ended && !s.has(flag::NO_READ) {
        switch::peer_ended(s, conn, reset, call);
        s.set(flag::PEER_GONE);
    }
}
