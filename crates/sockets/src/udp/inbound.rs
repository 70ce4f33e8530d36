//! What a socket has to get datagrams by its mailbox.

use super::address::Name;
use super::news::News;
use super::told::Places;
use crate::peer::Kept;
use crate::wait::SpinHistory;
use bypath_shm::mailbox::Reader;
use bypath_shm::region::{MailboxMap, StaticCell};
use bypath_shm::ring::Ring;
use bypath_sys::{fd, strangers};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};

/// Senders that may have the mailbox at a time.
pub const SENDERS: usize = 64;
/// Senders that have called, and have not said yet from where they send.
const CALLERS: usize = 4;
/// Sources that are remembered.
const SOURCES: usize = 64;

/// How a socket gets datagrams beside the kernel. Descriptors are stored plus one.
#[derive(Debug)]
pub struct Inbound {
    pub(super) mailbox: StaticCell<MailboxMap>,
    /// The effective user of this process as it was made.
    pub(super) made_by: AtomicU32,
    pub(super) memory: AtomicI32,
    pub(super) listener: AtomicI32,
    pub(super) senders: [AtomicI32; SENDERS],
    /// What these have lent (`stand_in`), each at its sender's place.
    pub(super) lent: [AtomicI32; SENDERS],
    /// As whose these count here: the ones, and the others.
    pub(super) shares: [[Kept; 2]; SENDERS],
    /// Whether there may be some; which of them is looked after next; when one was (ticks): see `lenders`.
    pub(super) has_lenders: AtomicBool,
    /// See `has_lenders`.
    pub(super) lender: AtomicU32,
    /// See `has_lenders`.
    pub(super) lenders_seen: AtomicU64,
    /// Who may have the mailbox, and has not said yet from where he sends.
    pub(super) callers: [AtomicI32; CALLERS],
    /// As whose these count here.
    pub(super) calling: [Kept; CALLERS],
    /// Looks in which these are waited for.
    pub(super) patience: AtomicU32,
    pub(super) spins: SpinHistory,
    pub(super) news: News,
    pub(super) reads: AtomicU32,
    /// What the kernel's queue would hold in the mailbox's place, in the memory that it counts for that (SO_RCVBUF).
    pub(super) room: AtomicU64,
    /// So much was read, counted like that, since the kernel was found to have something; 0: it was not, or was asked for it since.
    pub(super) overdue: AtomicU64,
    pub(super) sender_cpu: AtomicU32,
    /// The last thing that the socket did was to send: it waits for an answer.
    pub(super) sent_last: AtomicBool,
    /// Something was taken out of the ring since the last send.
    pub(super) has_taken: AtomicBool,
    pub(super) sources: [AtomicU64; SOURCES],
    /// Of those that its mailbox had no room for, so many are shown.
    pub(super) lost: AtomicU64,
    /// Datagrams from this host that the kernel brought.
    pub(super) near: AtomicU32,
    /// What comes by the mailbox is offered (`holders`).
    pub(super) offers: AtomicBool,
    /// The thread that recalls what is in the mailbox; 0: none does.
    pub(super) recaller: AtomicU32,
    /// Another program may inherit the socket: what could not be recalled is offered.
    pub(super) is_inheritable: AtomicBool,
    pub(super) looks: AtomicU32,
    /// How many there have to be for the next attempt to make a mailbox.
    pub(super) due: AtomicU32,
    pub(super) until_look: AtomicU32,
    /// A source of which is known whether it is this host's, and what: hash, or that of the other answer.
    pub(super) judged: [AtomicU64; 2],
    /// The address of the socket that has the mailbox.
    pub(super) own: [AtomicU64; 2],
    /// What the heads of the mailbox's records have beside the source.
    pub(super) heads: AtomicU32,
    /// Where own addresses are.
    pub(super) places: Places,
}

impl Default for Inbound {
    fn default() -> Inbound {
        Inbound {
            mailbox: StaticCell::new(),
            made_by: AtomicU32::new(0),
            memory: AtomicI32::new(0),
            listener: AtomicI32::new(0),
            senders: [const { AtomicI32::new(0) }; SENDERS],
            lent: [const { AtomicI32::new(0) }; SENDERS],
            shares: [const { [Kept::new(), Kept::new()] }; SENDERS],
            has_lenders: AtomicBool::new(false),
            lender: AtomicU32::new(0),
            lenders_seen: AtomicU64::new(0),
            callers: [const { AtomicI32::new(0) }; CALLERS],
            calling: [const { Kept::new() }; CALLERS],
            patience: AtomicU32::new(0),
            spins: SpinHistory::new(),
            news: News::default(),
            reads: AtomicU32::new(0),
            room: AtomicU64::new(0),
            overdue: AtomicU64::new(0),
            sender_cpu: AtomicU32::new(u32::MAX),
            sent_last: AtomicBool::new(false),
            has_taken: AtomicBool::new(false),
            sources: [const { AtomicU64::new(0) }; SOURCES],
            lost: AtomicU64::new(0),
            near: AtomicU32::new(0),
            offers: AtomicBool::new(false),
            recaller: AtomicU32::new(0),
            is_inheritable: AtomicBool::new(false),
            looks: AtomicU32::new(0),
            due: AtomicU32::new(0),
            until_look: AtomicU32::new(0),
            judged: [const { AtomicU64::new(0) }; 2],
            own: [const { AtomicU64::new(0) }; 2],
            heads: AtomicU32::new(0),
            places: Places::default(),
        }
    }
}

/// The descriptor of such a word, which has none any more.
pub(super) fn take(word: &AtomicI32) -> Option<i32> {
    Some(word.swap(0, AcqRel) - 1).filter(|own| *own >= 0)
}

/// The reading end of a mailbox.
pub(super) type End = Reader<'static, Ring>;

impl Inbound {
    /// The descriptors.
    fn words(&self) -> impl Iterator<Item = &AtomicI32> {
        let first = [&self.memory, &self.listener].into_iter();
        first.chain(&self.lent).chain(self.channels())
    }

    /// Those of them whose other end is a sender's.
    fn channels(&self) -> impl Iterator<Item = &AtomicI32> {
        self.senders.iter().chain(&self.callers)
    }

    /// Closes them all.
    pub(super) fn close_all(&self) {
        let mut channels = [0; SENDERS + CALLERS];
        let mut count = 0;
        for own in self.channels().filter_map(take) {
            channels[count] = own;
            count += 1;
        }
        strangers::close_callers(&mut channels[..count]);
        self.words().filter_map(take).for_each(fd::close);
        self.forget_shares();
    }

    fn forget_shares(&self) {
        for kept in self.shares.iter().flatten().chain(&self.calling) {
            drop(kept.take());
        }
    }

    pub(super) fn reset(&self) {
        self.mailbox.set(None);
        self.words().for_each(|word| word.store(0, Relaxed));
        self.forget_shares();
        self.offers.store(false, Relaxed);
        self.is_inheritable.store(false, Relaxed);
        self.has_lenders.store(false, Relaxed);
        for word in [&self.reads, &self.near, &self.due, &self.until_look, &self.looks] {
            word.store(0, Relaxed);
        }
        for word in self.sources.iter().chain(&self.judged) {
            if word.load(Relaxed) != 0 {
                word.store(0, Relaxed);
            }
        }
        self.sender_cpu.store(u32::MAX, Relaxed);
        self.sent_last.store(false, Relaxed);
        self.has_taken.store(false, Relaxed);
        self.places.reset();
        self.news.reset();
        self.lost.store(0, Relaxed);
        self.overdue.store(0, Relaxed);
    }

    pub(super) fn descriptors(&self, mut f: impl FnMut(i32)) {
        for word in self.words() {
            if let Some(fd) = Some(word.load(Relaxed) - 1).filter(|fd| *fd >= 0) {
                f(fd);
            }
        }
    }

    /// Whether the kernel has brought something from there lately.
    pub(super) fn knows(&self, source: &Name) -> bool {
        let hash = source.hash();
        self.sources[hash as usize >> 1 & (SOURCES - 1)].load(Relaxed) == hash
    }

    /// The kernel was asked.
    #[inline]
    pub(super) fn forgive(&self) {
        if self.overdue.load(Relaxed) != 0 {
            self.overdue.store(0, Relaxed);
        }
    }

    pub(super) fn remember(&self, hash: u64) {
        let place = &self.sources[hash as usize >> 1 & (SOURCES - 1)];
        if place.load(Relaxed) != hash {
            place.store(hash, Relaxed);
        }
    }

    /// The reading end of the mailbox.
    #[inline]
    pub(super) fn reader(&self) -> Option<End> {
        self.mailbox.get().map(|map| Reader::new(map.mailbox(), map.ring()))
    }
}
