//! The writing end of a mailbox.

use super::{Mailbox, phase, possible};
use crate::atomic::{AtomicU64, Ordering::*, fence};
use crate::dgram::{ALIGN, HEADS, LINE, LONGEST, MARK, Octets, Place, Record, WORD, span};
use crate::direction::{MOVES, Poisoned};

/// Looks at the lock at most: what is longer than a copy of the longest datagram is a writer that does not run.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 256 };

/// Octets of a next record at most whose lines are asked for.
const PREPARED: u64 = 2048;
/// Octets of the heads that most records have.
const SHORT: usize = 24;

/// The writing end.
#[derive(Debug)]
pub struct Writer<'a, O> {
    mailbox: &'a Mailbox,
    ring: O,
    turn: Turn<'a>,
}

/// How writers stay out of each other's way.
#[derive(Debug)]
enum Turn<'a> {
    /// By the lock, with this number.
    Lock(u32),
    /// There is no other: the true tail, which is believed instead of the mailbox's.
    Sole(&'a AtomicU64),
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pushed {
    /// It is in the ring, and will be read.
    Sent,
    /// It is not: it goes by the carrier, then [`Writer::sent_by_kernel`] is called.
    Kernel,
    /// There is no room for it. It is dropped ([`Writer::lose`]), or goes by the carrier as above.
    Full,
    /// The mailbox cannot be used any more.
    Poisoned,
}

impl<'a, O: Octets> Writer<'a, O> {
    /// A writing end of `mailbox`, whose octets are `ring`'s. `owner` is what [`held_by`](Writer::held_by) tells the others while it writes.
    ///
    /// # Panics
    /// For owner 0.
    pub const fn new(mailbox: &'a Mailbox, ring: O, owner: u32) -> Self {
        assert!(owner != 0, "0 is nobody");
        Writer { mailbox, ring, turn: Turn::Lock(owner) }
    }

    /// The only writing end there is, which takes no lock; `tail`, first 0, is what it keeps for itself.
    pub const fn sole(mailbox: &'a Mailbox, ring: O, tail: &'a AtomicU64) -> Self {
        Writer { mailbox, ring, turn: Turn::Sole(tail) }
    }

    /// The octets.
    pub const fn ring(&self) -> &O {
        &self.ring
    }

    /// Sends a datagram by the ring, if it may go there. `left` is the sending socket's, one for each mailbox, first 0. The
    /// ring is full from `limit` octets of records on ([`span`]), and where it has no room; one that is empty has room for one datagram
    /// whatever the limit, as the kernel's buffers have.
    #[inline]
    pub fn push(&self, left: &AtomicU64, head: &[u8], octets: &[u8], limit: u64) -> Pushed {
        self.push_with(left, head, octets.len(), limit, |ring, at| ring.put(at, octets))
    }

    /// As [`push`](Writer::push); `fill` copies the datagram's octets to a position of the ring.
    #[inline]
    pub fn push_with(
        &self,
        left: &AtomicU64,
        head: &[u8],
        octets: usize,
        limit: u64,
        fill: impl FnOnce(&O, u64),
    ) -> Pushed {
        let gate = self.mailbox.gate.0.load(Acquire);
        if gate & 3 != phase::OPEN || gate >> 2 <= left.load(Relaxed) {
            return Pushed::Kernel;
        }
        if head.len() > HEADS
            || octets > LONGEST
            || span(head.len(), octets) > self.ring.size()
            || !self.lock()
        {
            return Pushed::Kernel;
        }
        let pushed = self.locked(gate, head, octets, limit, fill, |_, _| true);
        self.unlock();
        pushed
    }

    /// As [`push_with`](Writer::push_with), of a datagram that is not to lie in the ring: it is sent only if R has taken it while `waits` says
    /// true, which is asked again and again, and goes by the carrier otherwise. It is alone in the ring, and its writer keeps its turn.
    #[inline]
    pub fn offer_with(
        &self,
        left: &AtomicU64,
        head: &[u8],
        octets: usize,
        fill: impl FnOnce(&O, u64),
        mut waits: impl FnMut() -> bool,
    ) -> Pushed {
        let gate = self.mailbox.gate.0.load(Acquire);
        if gate & 3 != phase::OPEN
            || gate >> 2 <= left.load(Relaxed)
            || head.len() > HEADS
            || octets > LONGEST
            || span(head.len(), octets) > self.ring.size()
            || !self.lock()
        {
            return Pushed::Kernel;
        }
        let (head_of, gate_of) = (&self.mailbox.head.0, &self.mailbox.gate.0);
        let pushed = self.locked(gate, head, octets, 0, fill, |start, gate| {
            while waits() {
                // Acquire pairs with `Reader::release`: who is told that it was taken finds it taken.
                if head_of.load(Acquire) > start {
                    return true;
                }
                if gate_of.load(Relaxed) != gate {
                    break;
                }
            }
            false
        });
        self.unlock();
        if pushed == Pushed::Full { Pushed::Kernel } else { pushed }
    }

    /// In its turn until the end: whose record stands behind another one relies on it that no writer takes that back any more. `stays`: whether the
    /// record at that position may stay, while the gate is that one.
    #[inline]
    fn locked(
        &self,
        gate: u64,
        head: &[u8],
        octets: usize,
        limit: u64,
        fill: impl FnOnce(&O, u64),
        stays: impl FnOnce(u64, u64) -> bool,
    ) -> Pushed {
        let span = span(head.len(), octets);
        let tail = match self.room(span, limit) {
            Ok(Some(tail)) => tail,
            Ok(None) => return Pushed::Full,
            Err(Poisoned) => return Pushed::Poisoned,
        };
        // Pairs with `Reader::stands`.
        fence(Release);
        let word = Record { octets: octets as u32, head: head.len() as u16, mark: MARK };
        self.ring.put(tail, &word.encode());
        match head.first_chunk::<SHORT>() {
            // A copy of a length that is known is no call.
            Some(short) if head.len() == SHORT => self.ring.put(tail + WORD, short),
            _ if head.is_empty() => {}
            _ => self.ring.put(tail + WORD, head),
        }
        fill(&self.ring, tail + WORD + head.len() as u64);
        let end = tail + span;
        match self.turn {
            Turn::Sole(own) => own.store(end, Relaxed),
            Turn::Lock(_) => self.mailbox.writers.tail.store(end, Relaxed),
        }
        // Release pairs with the Acquire of the tail in `Reader::peek`.
        self.mailbox.tail.0.store(end, Release);
        // Pairs with the fence of `Reader::close`.
        fence(SeqCst);
        if self.mailbox.gate.0.load(Relaxed) == gate && stays(tail, gate) {
            return Pushed::Sent;
        }
        self.take_back(tail, end)
    }

    /// Whether the gate is open, but not for this one: it is left alone for this epoch. Who can find out that all of what it has sent by the
    /// carrier was taken may push all the same, with a `left` of 0.
    #[inline]
    pub fn is_barred(&self, left: &AtomicU64) -> bool {
        let gate = self.mailbox.gate.0.load(Acquire);
        gate & 3 == phase::OPEN && gate >> 2 <= left.load(Relaxed)
    }

    /// A datagram went by the carrier, and that call is over.
    #[inline]
    pub fn sent_by_kernel(&self, left: &AtomicU64) {
        // Pairs with the fence of `Reader::open_begin`.
        fence(SeqCst);
        let gate = self.mailbox.gate.0.load(Acquire);
        if matches!(gate & 3, phase::OPENING | phase::OPEN) && left.load(Relaxed) < gate >> 2 {
            left.fetch_max(gate >> 2, Relaxed);
        }
    }

    /// Takes everything back that nobody has read, and leaves the ring alone for this epoch: a reader that says it is awake does not read. Each record is
    /// shown, in their order, and goes by the carrier. Only for who is [alone](Writer::sole). `taken`: up to where everything was taken back before, which
    /// nobody makes unread again.
    ///
    /// # Errors
    /// The head is where it cannot be, or the records are none any more.
    pub fn take_all_back(
        &self,
        left: &AtomicU64,
        taken: &mut u64,
        mut each: impl FnMut(&O, &Place),
    ) -> Result<(), Poisoned> {
        let Turn::Sole(own) = self.turn else { return Err(Poisoned) };
        let (tail, word) = (own.load(Relaxed), &self.mailbox.head.0);
        left.fetch_max(self.mailbox.gate.0.load(Acquire) >> 2, Relaxed);
        let mut head = word.load(Acquire);
        for _ in 0..MOVES {
            if tail.wrapping_sub(head) > self.ring.size().min(tail.wrapping_sub(*taken)) {
                return Err(Poisoned);
            }
            // R's releases fail from here on.
            match word.compare_exchange(head, tail, AcqRel, Acquire) {
                Ok(_) => {
                    *taken = tail;
                    while head != tail {
                        let place = Place::find(&self.ring, head, tail.wrapping_sub(head))?;
                        each(&self.ring, &place);
                        head = place.end();
                    }
                    return Ok(());
                }
                Err(now) => head = now,
            }
        }
        Err(Poisoned)
    }

    /// After a datagram of `octets` that is to be answered before the next one goes: asks for the lines of a next one of that length, which are this
    /// writer's then before it has something to write there. The first two are left alone: R looks at them again and again.
    #[inline]
    pub fn prepare(&self, octets: usize) {
        if octets > 2 * LINE as usize {
            let tail = self.own_tail();
            self.ring.prepare(tail.wrapping_add(2 * LINE), (octets as u64).min(PREPARED) - 2 * LINE);
        }
    }

    /// Whether something is in the ring.
    pub fn unread(&self) -> bool {
        self.mailbox.unread() != 0
    }

    /// Counts a datagram that was lost, as there was no room for it.
    pub fn lose(&self) {
        self.mailbox.writers.lost.fetch_add(1, Relaxed);
    }

    /// Who writes now; `None`: nobody. Where it stays the same, and is dead, nobody writes here any more, and the mailbox is to be
    /// [killed](Mailbox::kill).
    pub fn held_by(&self) -> Option<u32> {
        match self.mailbox.writers.lock.load(Relaxed) {
            0 => None,
            owner => Some(owner),
        }
    }

    #[inline]
    fn lock(&self) -> bool {
        let Turn::Lock(owner) = self.turn else { return true };
        let lock = &self.mailbox.writers.lock;
        for _ in 0..LOOKS {
            // Acquire pairs with `unlock`: the tail and what it saw of the head are the last writer's.
            if lock.load(Relaxed) == 0 && lock.compare_exchange(0, owner, Acquire, Relaxed).is_ok() {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    #[inline]
    fn unlock(&self) {
        if let Turn::Lock(_) = self.turn {
            self.mailbox.writers.lock.store(0, Release);
        }
    }

    /// The tail, as writers know it.
    #[inline]
    fn own_tail(&self) -> u64 {
        let word = match self.turn {
            Turn::Lock(_) => &self.mailbox.writers.tail,
            Turn::Sole(own) => own,
        };
        word.load(Relaxed)
    }

    /// The tail, if there is room behind it.
    #[inline]
    fn room(&self, span: u64, limit: u64) -> Result<Option<u64>, Poisoned> {
        let tail = possible(self.own_tail())?;
        let size = self.ring.size();
        let fits = |used: u64| used <= size && size - used >= span && (used == 0 || used + span <= limit);
        let seen = &self.mailbox.writers.head;
        if tail.is_multiple_of(ALIGN) && fits(tail.wrapping_sub(seen.load(Relaxed))) {
            return Ok(Some(tail));
        }
        // Acquire pairs with `Reader::release`.
        let head = self.mailbox.head.0.load(Acquire);
        let used = tail.wrapping_sub(head);
        if used > size || !(tail | used).is_multiple_of(ALIGN) {
            return Err(Poisoned);
        }
        seen.store(head, Relaxed);
        Ok(fits(used).then_some(tail))
    }

    /// The gate is another one, or R does not come: takes the record back that ends at `end`, if R may not see it.
    #[cold]
    fn take_back(&self, start: u64, end: u64) -> Pushed {
        let word = &self.mailbox.head.0;
        let mut head = word.load(Acquire);
        for _ in 0..MOVES {
            if head > start {
                return Pushed::Sent;
            }
            // Behind records that nobody has read it stays: R has seen those, or their writer would have taken them back, and who takes them
            // reads from this write, and so sees our tail.
            let next = if head == start { end } else { head };
            match word.compare_exchange(head, next, AcqRel, Acquire) {
                Ok(_) if head == start => return Pushed::Kernel,
                Ok(_) => return Pushed::Sent,
                Err(now) => head = now,
            }
        }
        Pushed::Poisoned
    }
}
