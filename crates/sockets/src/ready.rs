//! Readiness of one followed socket: what the ring says, and what to ask the carrier.

use crate::carrier;
use crate::cut;
use crate::kept;
use crate::over;
use crate::peer::Conn;
use crate::promised;
use crate::switch;
use crate::table::{Sock, flag};
use crate::thread::Call;
use crate::wait;
use bypath_shm::direction::{Head, Readable, position};
use bypath_shm::family::wpath;
use bypath_sys::{sock, thread};
use std::sync::atomic::Ordering::*;

/// POLLIN and friends, as poll(2) and epoll(7) share them.
const IN: u32 = (libc::POLLIN | libc::POLLRDNORM) as u32;
const OUT: u32 = (libc::POLLOUT | libc::POLLWRNORM) as u32;

/// AF_UNIX says this, too, where it has room, and select asks for it; TCP never does.
const BAND: u32 = libc::POLLWRBAND as u32;

/// What stands behind the bytes of a stream.
const END: u32 = (libc::POLLRDHUP | libc::POLLPRI) as u32;

/// Whether the ring has enough bytes for a reader. Passes the drain if the carrier is empty.
pub fn ring_readable(s: &'static Sock, conn: &'static Conn) -> bool {
    // AF_UNIX does not wait for the mark here.
    let mark = if s.has(flag::LOCAL) { 0 } else { s.end().rcvlowat.load(Relaxed) };
    let need = u64::from(mark).max(1);
    let before = promised::before(s);
    match over::without_late(s, conn, conn.inc().readable(conn.rx.size())) {
        Ok(Readable::Ring { available, .. }) => {
            let is_ready = available >= need
                || s.has(flag::PEER_GONE) && (available > 0 || cut::is_off(conn))
                || s.end().pending_error.load(Relaxed) != 0;
            if is_ready {
                promised::told(s, conn, before, available);
            }
            is_ready
        }
        Ok(Readable::Drain(head)) => {
            let behind = position::distance(head.position(), conn.inc().t.tail.load(Acquire));
            if behind == 0 {
                return false;
            }
            let queued = sock::inq(s.carrier());
            let is_ready = match queued {
                Ok(0) => {
                    switch::try_drained(s, conn, head)
                        && over::of_those_behind(s, conn, head, switch::unread(conn)) >= need
                }
                // The kernel tells of these alone if they are enough; together with what follows them they may be.
                Ok(queued) if need > 1 && queued as u64 + behind >= need => {
                    let before = conn.inc().wa.switch_k.load(Relaxed);
                    carrier::of(s).arrived(s, before, queued)
                }
                _ => false,
            };
            if is_ready {
                promised::told(s, conn, before, need);
            }
            is_ready
        }
        Ok(Readable::Kernel) => false,
        // Poison is found by the read that follows.
        Err(_) => true,
    }
}

/// Whether the last bytes of the carrier may make enough of what is there, without anybody telling: too few for the
/// kernel's low-water mark, and the ring's bytes have been told.
pub fn fills_unseen(s: &Sock, conn: &Conn) -> bool {
    s.end().rcvlowat.load(Relaxed) > 1
        && !s.has(flag::LOCAL)
        && conn.inc().path() == bypath_shm::direction::Path::Drain
}

/// Whether a writer finds room: a quarter of the ring, as a reader frees it in batches.
pub fn ring_writable(s: &Sock, conn: &Conn) -> bool {
    s.end().w.path.load(Relaxed) == wpath::RING && switch::has_space(s, conn)
}

/// Looks at ring and carrier while bytes are on their way from one to the other: so many times at the writer's
/// convenience, and so many in all.
const UNREAD_LOOKS: (u32, u32) = (20, 40);

/// Bytes to read, in ring and carrier together.
pub fn unread(s: &'static Sock, conn: &'static Conn) -> usize {
    let call = Call::enter();
    let generation = s.end().generation.load(Relaxed);
    let mut total = 0;
    for look in 0..UNREAD_LOOKS.1 {
        let before = promised::before(s);
        let head = conn.inc().h.head.load(Acquire);
        // Asked before the carrier is looked at: what arrives afterwards must not be missed.
        let under_way = switch::owed(s, conn).is_some_and(|owed| switch::is_under_way(s, owed));
        let there = over::of_those_behind(s, conn, Head::from_raw(head), switch::within_reach(s, conn));
        let ring = there + kept::len(s);
        let carrier = sock::inq(s.carrier()).unwrap_or(0);
        if conn.inc().h.head.load(Acquire) != head {
            // Taken back between the two: they would count twice, or not at all.
            continue;
        }
        total = ring as usize + carrier;
        if ring > 0 {
            promised::told(s, conn, before, there + carrier as u64);
        }
        let patiently = look >= UNREAD_LOOKS.0;
        if !under_way || patiently && carrier > 0 {
            break;
        }
        match &call {
            Some(call) if !wait::for_flush(call, s, patiently) => break,
            Some(_) => {}
            None => thread::yield_now(),
        }
        if s.end().generation.load(Relaxed) != generation || !s.is_warm() {
            // Closed while this thread slept.
            break;
        }
    }
    total
}

/// Events out of `wanted` that the ring can vouch for.
pub fn ring_events(s: &'static Sock, conn: &'static Conn, wanted: u32) -> u32 {
    let mut ready = 0;
    if wanted & IN != 0 && ring_readable(s, conn) {
        ready |= IN;
    }
    if wanted & OUT != 0 && ring_writable(s, conn) {
        ready |= OUT;
    }
    ready &= wanted;
    if s.end().pending_error.load(Relaxed) != 0 {
        ready |= libc::POLLERR as u32 | wanted & (IN | OUT);
    }
    ready
}

/// The part of `wanted` that only the carrier can answer now.
pub fn on_carrier(s: &Sock, conn: &Conn, wanted: u32) -> u32 {
    let mut bits = 0;
    if conn.inc().path() != bypath_shm::direction::Path::Ring {
        bits |= wanted & (IN | END);
    }
    if s.end().w.path.load(Relaxed) != wpath::RING {
        bits |= wanted & OUT;
    }
    bits
}

/// Whether the other end's FIN must be watched for on the program's behalf: bytes of ours that it will never read
/// have to meet the kernel's answer.
pub fn watches_end(s: &Sock, conn: &Conn) -> bool {
    s.end().w.path.load(Relaxed) == wpath::RING && !s.has(flag::PEER_GONE) && !switch::is_half_closed(s, conn)
}

/// What to ask the kernel about the carrier: everything but the room in a buffer that is not in use.
///
/// Readable stays in: a carrier has bytes on the ring path only after a claim, at its end, or from a foreign
/// writer, and each of them makes the socket readable.
pub fn carrier_events(s: &Sock, wanted: u32) -> u32 {
    if s.end().w.path.load(Relaxed) == wpath::RING { wanted & !(OUT | BAND) } else { wanted }
}

/// Whether a sleeper that waits for `wanted` must enter wait words: the incoming ring is or may come into use at
/// any time, the outgoing ring is full.
pub fn needs_words(s: &Sock, wanted: u32) -> (bool, bool) {
    (wanted & IN != 0, wanted & OUT != 0 && s.end().w.path.load(Relaxed) == wpath::RING)
}
