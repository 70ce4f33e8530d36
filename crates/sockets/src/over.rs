//! Octets that stand in a ring when they are none of the stream any more.
//!
//! A stream may be over for the kernel, as its end, an error, or a shutdown both ways was seen, while the other end still has the ring, where it may write for
//! ever. An honest end has written all that there is by then: what it publishes stands there before it closes. So what is found in the ring first after
//! that is the last that is read of it, however much comes later.
//!
//! And a program may set an option by which the kernel does something to all octets that come: decrypts them, asks for a signature, filters them; or it gives
//! the socket to another program, which may. The other end is asked for the carrier then, and takes what was not read back there before it says anything else: what it writes into the ring meanwhile is
//! not read, and comes by the carrier, or it lies.

use crate::carrier::{self, Course};
use crate::peer::Conn;
use crate::switch;
use crate::table::{Sock, flag};
use crate::thread::Call;
use crate::{others, wait, whose};
use bypath_shm::direction::{Head, Path, Poisoned, Readable, position};
use std::sync::atomic::{AtomicU64, Ordering::*};

/// While octets come from a process of another user, who may go on for ever, the carrier is looked at so often (us).
const LOOK_US: u64 = 100_000;
/// Any of them: it may be over.
pub const SIGNS: u32 = flag::PEER_GONE | flag::NO_READ | flag::SEALED | flag::EMPTIED;

/// Where a stream ends in a ring, for all processes that have it. The other end may move the head back: nothing is read twice.
struct Last<'a> {
    /// How far was read, and the end: positions, with [`KNOWN`]; 0: not known.
    read: &'a AtomicU64,
    end: &'a AtomicU64,
}

const KNOWN: u64 = 1 << 63;

fn last(s: &Sock) -> Last<'_> {
    let [read, end] = &s.end().last;
    Last { read, end }
}

impl Last<'_> {
    fn is_known(&self) -> bool {
        self.end.load(Relaxed) != 0
    }

    /// Of `available` octets at a position those that are the stream's, in a ring of a `size`. The first time all of them are, and no later ones.
    fn of(&self, at: u64, available: u64, size: u64) -> u64 {
        let end = position::onward(at, available);
        let known = |place: &AtomicU64, new: u64| {
            let new = new | KNOWN;
            place.compare_exchange(0, new, Relaxed, Relaxed).map_or_else(|old| old, |_| new) & !KNOWN
        };
        let (read, end) = (known(self.read, at), known(self.end, end));
        // Two who saw it at once may have seen different things, if the other end lies: no more than it could have written before.
        let left = position::distance(read, end);
        let is_within = left <= size && position::distance(read, at) <= left;
        if is_within { available.min(position::distance(at, end)) } else { 0 }
    }

    /// It was read up to a position.
    fn took(&self, to: u64) {
        let later = |read: u64| {
            let is_later = position::distance(read & !KNOWN, to) < 1 << 61;
            (read != 0 && is_later).then_some(to | KNOWN)
        };
        let _ = self.read.fetch_update(Relaxed, Relaxed, later);
    }
}

type Seen = Result<Readable, Poisoned>;

/// Without the octets that came too late.
#[inline]
pub fn without_late(s: &Sock, conn: &Conn, mut seen: Seen) -> Seen {
    if s.has(SIGNS) {
        bound(s, conn, &mut seen);
    }
    seen
}

/// The same in place, where there are [`SIGNS`].
#[cold]
#[inline(never)]
pub fn bound(s: &Sock, conn: &Conn, seen: &mut Seen) {
    if whose::is_lost(s, conn) {
        end(s);
    }
    if s.has(flag::EMPTIED) {
        // Whatever stands in shared memory, and be it nonsense: what the carrier says is all there is.
        *seen = Ok(Readable::Kernel);
        return;
    }
    let Ok(Readable::Ring { head, available }) = seen else { return };
    if is_over(s) {
        // What was seen may be of an earlier look: the end is where it is now.
        if !last(s).is_known() {
            match conn.inc().readable(conn.rx.size()) {
                Ok(Readable::Ring { head, available }) => {
                    last(s).of(head.position(), available, conn.rx.size())
                }
                other => return *seen = other,
            };
        }
        *available = last(s).of(head.position(), *available, conn.rx.size());
    }
}

/// The same of those that stand behind the last ones of the carrier.
pub fn of_those_behind(s: &Sock, conn: &Conn, head: Head, waiting: u64) -> u64 {
    if s.has(flag::EMPTIED) {
        0
    } else if is_over(s) && last(s).is_known() {
        last(s).of(head.position(), waiting, conn.rx.size())
    } else {
        // Where it ends is seen where it is read.
        waiting
    }
}

/// `n` octets of the ring were read at `head`: how far it was read is remembered where that may be over, and whether it is shows otherwise
/// only once there are none.
#[inline]
pub fn took(call: &Call, s: &'static Sock, conn: &'static Conn, head: Head, n: u64) {
    if s.has(SIGNS) || others::any() {
        note(call, s, conn, head, n);
    }
}

#[cold]
#[inline(never)]
fn note(call: &Call, s: &'static Sock, conn: &'static Conn, head: Head, n: u64) {
    if s.has(SIGNS) {
        last(s).took(position::onward(head.position(), n));
    }
    if others::any() && wait::peer_check_due(s, LOOK_US) {
        look_at_carrier(call, s, conn);
    }
}

fn is_over(s: &Sock) -> bool {
    // Who reads no more, and still sends, hears what comes later, as of TCP.
    let end = if s.has(flag::NO_READ) { flag::SENT_FIN } else { flag::PEER_GONE };
    s.has(end | flag::SEALED)
}

/// The end is told, as nothing of the ring is left.
pub fn told(s: &Sock) {
    if !s.has(flag::NO_READ) || s.has(flag::SENT_FIN) {
        end(s);
    }
}

/// The end, an error, or a shutdown both ways of this process was seen: what stands in the ring now is the last, on whichever path.
pub fn seen(s: &Sock, conn: &Conn) {
    if is_over(s) && !last(s).is_known() {
        let head = Head::from_raw(conn.inc().h.head.load(Acquire));
        last(s).of(head.position(), behind(conn, head), conn.rx.size());
    }
}

/// Octets of the ring that are not read, whose way to the reader may be the carrier.
pub fn behind(conn: &Conn, head: Head) -> u64 {
    let behind = position::distance(head.position(), conn.inc().t.tail.load(Acquire));
    if behind <= conn.rx.size() { behind } else { 0 }
}

/// Nothing more is read of the ring than stands there now, in which the incoming direction was asked back. Returns whether that is nothing.
/// `strictly`: nor what its writer is sending again by the carrier, even if it cannot send all of it.
pub fn seal(s: &'static Sock, conn: &'static Conn, strictly: bool) -> bool {
    let head = Head::from_raw(conn.inc().h.head.load(Acquire));
    let behind = behind(conn, head);
    let is_left = behind > 0 && !(strictly && head.path() == Path::Kernel);
    if is_left {
        last(s).of(head.position(), behind, conn.rx.size());
    }
    s.set(if is_left { flag::SEALED } else { flag::EMPTIED });
    !is_left
}

/// Nothing more of the ring is read: its other end lies, or the end was told.
pub fn end(s: &Sock) {
    s.set(flag::EMPTIED);
}

fn look_at_carrier(call: &Call, s: &'static Sock, conn: &'static Conn) {
    if s.has(flag::NO_READ) {
        // To poll it looks as if the other end were gone in any case.
        if carrier::of(s).standing(s).is_ok_and(|at| at.course != Course::Open) {
            s.set(flag::SEALED);
        }
        return;
    }
    let (ended, reset) = wait::peer_end(s);
    if ended {
        switch::peer_ended(s, conn, reset, call);
        s.set(flag::PEER_GONE);
        seen(s, conn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_first_is_the_last_and_is_read_once() {
        const SIZE: u64 = 4096;
        // Positions have 62 bits.
        for begin in [0, 7, (1 << 62) - 3] {
            let at = |n| position::onward(begin, n);
            let places = [AtomicU64::new(0), AtomicU64::new(0)];
            let last = Last { read: &places[0], end: &places[1] };
            last.took(at(5));
            assert_eq!(last.of(begin, 10, SIZE), 10, "nothing was known");
            assert_eq!(last.of(begin, 500, SIZE), 10);
            last.took(at(4));
            assert_eq!((last.of(at(4), 100, SIZE), last.of(at(4), 3, SIZE)), (6, 3));
            // Another thread's, who was held up.
            last.took(at(2));
            assert_eq!((last.of(at(2), 100, SIZE), last.of(begin, 4, SIZE)), (0, 0), "it is read twice");
            last.took(at(10));
            assert_eq!(
                (last.of(at(10), 1, SIZE), last.of(at(11), 1, SIZE), last.of(at(9), 1, SIZE)),
                (0, 0, 0)
            );
            places.iter().for_each(|place| place.store(0, Relaxed));
            assert_eq!(last.of(at(9), 1, SIZE), 1);
        }
    }

    #[test]
    fn where_nothing_is_nothing_comes() {
        let places = [AtomicU64::new(0), AtomicU64::new(0)];
        let last = Last { read: &places[0], end: &places[1] };
        const SIZE: u64 = 4096;
        assert_eq!(
            [last.of(3, 0, SIZE), last.of(3, 9, SIZE), last.of(2, 9, SIZE), last.of(1 << 61, 9, SIZE)],
            [0; 4]
        );
    }

    #[test]
    fn what_two_saw_at_once_of_a_liar_is_no_more_than_a_ring_holds() {
        const SIZE: u64 = 4096;
        let places = [AtomicU64::new(100 | KNOWN), AtomicU64::new((100 + SIZE) | KNOWN)];
        let last = Last { read: &places[0], end: &places[1] };
        assert_eq!(last.of(100, SIZE, SIZE), SIZE);
        places[1].store((101 + SIZE) | KNOWN, Relaxed);
        assert_eq!(last.of(100, SIZE, SIZE), 0);
    }
}
