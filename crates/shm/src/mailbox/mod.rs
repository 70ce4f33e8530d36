//! A mailbox: datagrams for one receiving socket, while whoever reads it is awake.
//!
//! A ring of the records of [`dgram`](crate::dgram), with one reader R (a socket; its threads take turns by the head) and many
//! writers W (which take turns by a lock). **The kernel wakes, the ring carries**: there is nothing here to sleep on. A
//! datagram goes into the ring only while the *gate* is open, and R closes the gate before it sleeps in any way; then datagrams go
//! by the *carrier* (the kernel's UDP, or a pair of AF_UNIX sockets), which wakes as ever.
//!
//! # The gate
//!
//! | phase | what R does | what W does |
//! |---|---|---|
//! | closed | may sleep | the carrier |
//! | opening | reads the carrier until it is empty | the carrier, and then not the ring for this *epoch* |
//! | open | reads the ring; looks at the carrier now and then | the ring, or as above |
//! | dead | the carrier, for good | the carrier |
//!
//! - R opens: [`Reader::open_begin`] (a new epoch), the carrier until that says EAGAIN, [`Reader::open_finish`].
//! - R reads **the ring first, then the carrier**, in every phase. While the gate is open it only asks the carrier whether something is
//!   there; if so: [`Reader::close`], *then* the ring until it is empty, then the carrier.
//! - R sleeps: [`Reader::close`], then [`Reader::is_empty`]; only if it is. A thread that sleeps says so to the others of its socket *before* it closes,
//!   and those look *between* `open_begin` and `open_finish` whether any does: then the gate is not opened.
//! - W sends: [`Writer::push`]. Where that says [`Pushed::Kernel`], by the carrier, and when that call is over [`Writer::sent_by_kernel`]. So it says, too,
//!   before its first push, of what it sent before it knew the mailbox.
//!
//! # Why nothing is lost, doubled or overtaken
//!
//! *Lost.* W shows its record, fences, and looks at the gate again; R closes, fences, and looks at the ring. So either R sees the record, or W
//! sees that the gate is another one (or both). W then takes its record back if it is the next to be read, by moving the head over it:
//! R's release of it fails from then on. If the head is beyond it R has taken it. If the head is before it, there are records that R has
//! seen, as W keeps its turn until it has looked, and nobody has taken them back; R takes them over W's write to the head, by which it sees
//! this record, too. A record is seen when it is whole, so a writer that dies leaves nothing to be mended. If it dies in its turn, the lock is nobody's any more,
//! and the mailbox is to be killed ([`Writer::held_by`]).
//!
//! *Overtaken.* Who sent by the carrier and finds the gate opening or open when that call is over leaves the ring alone for that epoch (`left`). Who finds
//! it closed may use the next epoch: R begins it by a write and a fence, and reads the carrier until it is empty only then.
//!
//! *Recalled.* A mailbox that ends may have something in it that R sends again by the carrier, in its writers' names ([`Mailbox::recall`]): R takes their lock, for
//! good, before it does so, and they wait, for a while, until it is done before they send by the carrier themselves.
//!
//! What others can write is checked where it is used, as in [`dgram`](crate::dgram): [`Poisoned`] is the end of the mailbox,
//! not of its socket. Nobody waits for anybody: every loop has a bound.

mod reader;
mod recall;
mod writer;

pub use reader::{Epoch, Peeked, Reader};
pub use writer::{Pushed, Writer};

use crate::atomic::{AtomicU32, AtomicU64, Ordering::*};
use crate::direction::Poisoned;

/// Phases of the gate: its two lowest bits, below the epoch.
pub mod phase {
    /// Nobody writes.
    pub const CLOSED: u64 = 0;
    /// R reads what came by the carrier.
    pub const OPENING: u64 = 1;
    /// Datagrams go into the ring.
    pub const OPEN: u64 = 2;
    /// Never again.
    pub const DEAD: u64 = 3;
}

/// Positions are below this. Who counts on never gets there.
const POSITIONS: u64 = 1 << 62;

/// A value that is alone in its lines (adjacent-line prefetch).
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Line<T>(pub T);

/// What writers share.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Writers {
    /// The number of who writes; 0: nobody.
    pub lock: AtomicU32,
    /// A head that a writer saw: R is there, or further.
    pub head: AtomicU64,
    /// Datagrams that were lost, as the ring was full.
    pub lost: AtomicU64,
    /// The tail, where only writers look: the line of [`Mailbox::tail`] is the reader's, who looks at it again and again.
    pub tail: AtomicU64,
}

/// The control words. All zeroes: a closed mailbox with nothing in it.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Mailbox {
    /// epoch << 2 | [`phase`].
    pub gate: Line<AtomicU64>,
    /// Position of the next record to be read.
    pub head: Line<AtomicU64>,
    /// Position behind the last record.
    pub tail: Line<AtomicU64>,
    /// What writers share.
    pub writers: Writers,
}

/// The first page of a mailbox that has memory of its own.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Page {
    /// The control words.
    pub mailbox: Mailbox,
    /// SO_COOKIE of the socket whose it is, for who looks on from outside.
    pub owner: AtomicU64,
}

impl Mailbox {
    /// A closed one with nothing in it.
    pub fn new() -> Mailbox {
        let zero = || AtomicU64::new(0);
        Mailbox {
            gate: Line(zero()),
            head: Line(zero()),
            tail: Line(zero()),
            writers: Writers { lock: AtomicU32::new(0), head: zero(), lost: zero(), tail: zero() },
        }
    }

    /// Makes used memory a closed one with nothing in it, before anybody hears of it.
    pub fn reset(&self) {
        let writers = [&self.writers.head, &self.writers.lost, &self.writers.tail];
        for word in [&self.gate.0, &self.head.0, &self.tail.0].into_iter().chain(writers) {
            word.store(0, Relaxed);
        }
        self.writers.lock.store(0, Release);
    }

    /// Datagrams that were lost as the ring was full.
    pub fn lost(&self) -> u64 {
        self.writers.lost.load(Relaxed)
    }

    /// Nothing goes into the ring from now on. What is in it can be read.
    pub fn kill(&self) {
        self.gate.0.store(phase::DEAD, SeqCst);
        crate::atomic::fence(SeqCst);
    }

    /// Whether it was [killed](Mailbox::kill).
    #[inline]
    pub fn is_dead(&self) -> bool {
        self.gate.0.load(Relaxed) & 3 == phase::DEAD
    }

    /// Octets of records that nobody has read; more than there can be: somebody lies.
    #[inline]
    pub fn unread(&self) -> u64 {
        // The head first: it never is ahead of a tail that is read later.
        let head = self.head.0.load(Acquire);
        self.tail.0.load(Acquire).wrapping_sub(head)
    }
}

impl Default for Mailbox {
    fn default() -> Mailbox {
        Mailbox::new()
    }
}

/// A position that there can be.
#[inline]
fn possible(position: u64) -> Result<u64, Poisoned> {
    if position < POSITIONS { Ok(position) } else { Err(Poisoned) }
}
