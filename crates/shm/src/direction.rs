//! One direction of a connection: who may change what, on which word, with which ordering.
//!
//! W is the writing end, R the reading end. The path of a direction stands in the two top bits of `head`, so one
//! compare-and-swap decides between a commit by R and a claim by W (docs/switch-protocol.md, "One direction").
//! Everything here is lock-free and holds no reference to stream bytes; the bytes are in [`crate::ring`].

use crate::atomic::{AtomicU32, AtomicU64, Ordering::*, fence, fence_after_rmw};

/// Which way the bytes of a direction go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Through the ring.
    Ring,
    /// Through the ring, but R must first read the carrier up to `switch_k`.
    Drain,
    /// Through the carrier.
    Kernel,
}

const PATH_SHIFT: u32 = 62;
const POSITION: u64 = (1 << PATH_SHIFT) - 1;

/// Reckoning with positions, which are counted modulo 2^62: the head has no more room for them.
pub mod position {
    use super::POSITION;

    /// The position `n` bytes behind `from` in the stream.
    #[inline]
    pub const fn onward(from: u64, n: u64) -> u64 {
        from.wrapping_add(n) & POSITION
    }

    /// The position `n` bytes before `from` in the stream.
    #[inline]
    pub const fn back(from: u64, n: u64) -> u64 {
        from.wrapping_sub(n) & POSITION
    }

    /// Bytes from one position to a later one; more than any ring holds if `to` is the earlier one.
    #[inline]
    pub const fn distance(from: u64, to: u64) -> u64 {
        to.wrapping_sub(from) & POSITION
    }
}

/// A value of the head word: position and path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head(u64);

impl Head {
    /// Composes a head word; a position of 2^62 or more loses its upper bits.
    pub const fn new(position: u64, path: Path) -> Head {
        let bits = match path {
            Path::Ring => 0,
            Path::Drain => 1,
            Path::Kernel => 3,
        };
        Head(position & POSITION | bits << PATH_SHIFT)
    }

    /// Reads a head word.
    pub const fn from_raw(word: u64) -> Head {
        Head(word)
    }

    /// The word itself.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Bytes consumed so far, modulo 2^62.
    pub const fn position(self) -> u64 {
        self.0 & POSITION
    }

    /// The path. The unused pattern counts as Kernel; only a broken peer writes it.
    pub const fn path(self) -> Path {
        match self.0 >> PATH_SHIFT {
            0 => Path::Ring,
            1 => Path::Drain,
            _ => Path::Kernel,
        }
    }
}

/// Bits of [`ReaderAsks::ask`].
pub mod ask {
    /// R permits one upgrade.
    pub const CONSENT: u32 = 1;
    /// R wants the kernel path.
    pub const RECALL: u32 = 2;
    /// The last reader closed.
    pub const CLOSED: u32 = 4;
    /// This end's program image was replaced, and the next one may meet the other end anew.
    pub const LEFT: u32 = 8;
}

/// Bits of [`WriterAsks::flags`].
pub mod writer_flag {
    /// W flushed and is shutting its direction down.
    pub const SHUT: u32 = 1;
    /// W has claimed, or is about to, and its re-sent bytes are not all on the carrier yet: who was told of bytes in
    /// the ring finds them there in a moment.
    pub const FLUSHING: u32 = 2;
    /// R has dissolved the carrier, as somebody has it who cannot read what W, which is gone, has left here: to who can, the
    /// carrier's error is the end.
    pub const CUT: u32 = 4;
}

/// How often a head that moves while it is looked at is looked at again: siblings take turns, and only a liar goes on and on.
pub(crate) const MOVES: u32 = 1000;

/// The peer wrote something that no correct peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poisoned;

/// Line T: written by W, polled by R.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct TailLine {
    /// Bytes of the stream ever offered to the ring, modulo 2^62 ([`position`]).
    pub tail: AtomicU64,
    /// Processor W last ran on.
    pub cpu: AtomicU32,
    /// Datagrams that were lost, as the ring was full ([`crate::dgram`]).
    pub lost: AtomicU64,
    /// Where the tail stood when W gave the ring's memory back last: what was before that is gone. For who looks from outside.
    pub released: AtomicU64,
}

/// Line H: written by R (and by W to switch), polled by W when the ring is full.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct HeadLine {
    /// Position and path, see [`Head`].
    pub head: AtomicU64,
    /// Processor R last ran on.
    pub cpu: AtomicU32,
    /// Bytes R has read from the carrier on [`Path::Drain`]: while it does, the head stands still.
    pub carrier_read: AtomicU64,
    /// Looks of R before its last one that found the ring empty since the last octets, and did not wait: more than none, and it spins.
    pub looks: AtomicU32,
}

/// Line RA: rarely written, by R; read by W after every publish.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct ReaderAsks {
    /// Sleeping readers: {bell << 32 | ticket}, 0 = free.
    pub wait: [AtomicU64; 4],
    /// Bits of [`ask`].
    pub ask: AtomicU32,
}

/// Line WA: rarely written, by W; read by R after every commit.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct WriterAsks {
    /// Sleeping writers, as [`ReaderAsks::wait`].
    pub wait: [AtomicU64; 4],
    /// Carrier bytes that precede the first ring byte of the current ring phase.
    pub switch_k: AtomicU64,
    /// Bits of [`writer_flag`].
    pub flags: AtomicU32,
    /// What W says of octets that fill no segment ([`crate::hold`]), where R is a netstack service.
    pub hold: AtomicU64,
}

/// One direction. `repr(C)`, four lines 128 bytes apart (adjacent-line prefetch).
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Direction {
    /// Line T.
    pub t: TailLine,
    /// Line H.
    pub h: HeadLine,
    /// Line RA.
    pub ra: ReaderAsks,
    /// Line WA.
    pub wa: WriterAsks,
}

/// What R finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readable {
    /// Read the carrier.
    Kernel,
    /// Read the carrier up to `switch_k`, then call [`Direction::drained`] with this head.
    Drain(Head),
    /// `available` bytes at this head (0 = empty).
    Ring {
        /// The head to commit against.
        head: Head,
        /// Bytes that can be copied out.
        available: u64,
    },
}

impl Direction {
    /// A direction on the kernel path, for tests and models (shared memory starts with [`Direction::reset`]).
    pub fn new() -> Direction {
        let wait = || [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];
        Direction {
            t: TailLine {
                tail: AtomicU64::new(0),
                cpu: AtomicU32::new(u32::MAX),
                lost: AtomicU64::new(0),
                released: AtomicU64::new(0),
            },
            h: HeadLine {
                head: AtomicU64::new(Head::new(0, Path::Kernel).0),
                cpu: AtomicU32::new(u32::MAX),
                carrier_read: AtomicU64::new(0),
                looks: AtomicU32::new(0),
            },
            ra: ReaderAsks { wait: wait(), ask: AtomicU32::new(0) },
            wa: WriterAsks {
                wait: wait(),
                switch_k: AtomicU64::new(0),
                flags: AtomicU32::new(0),
                hold: AtomicU64::new(0),
            },
        }
    }

    /// Puts a fresh slot on the kernel path, before the other end hears of it.
    pub fn reset(&self) {
        for w in self.ra.wait.iter().chain(&self.wa.wait) {
            w.store(0, Relaxed);
        }
        self.ra.ask.store(0, Relaxed);
        self.wa.switch_k.store(0, Relaxed);
        self.wa.flags.store(0, Relaxed);
        self.wa.hold.store(0, Relaxed);
        self.t.cpu.store(u32::MAX, Relaxed);
        self.h.cpu.store(u32::MAX, Relaxed);
        self.h.carrier_read.store(0, Relaxed);
        self.h.looks.store(0, Relaxed);
        self.t.lost.store(0, Relaxed);
        self.t.released.store(0, Relaxed);
        self.t.tail.store(0, Relaxed);
        self.h.head.store(Head::new(0, Path::Kernel).0, Release);
    }

    // ---- W, under the writer's lock

    /// Free bytes of a ring of `size` bytes whose true tail is `tail`.
    ///
    /// # Errors
    /// The head is not on a ring path, behind the last ring, or ahead of `tail`: the peer lies.
    #[inline]
    pub fn space(&self, tail: u64, size: u64) -> Result<u64, Poisoned> {
        // Acquire pairs with R's commit: its reads of the bytes happen before we overwrite them.
        let head = Head(self.h.head.load(Acquire));
        let used = position::distance(head.position(), tail);
        if head.path() == Path::Kernel || used > size {
            return Err(Poisoned);
        }
        Ok(size - used)
    }

    /// A number that changes whenever R reads, from the ring or, before that, from the carrier.
    pub fn progress(&self) -> u64 {
        self.h.head.load(Relaxed).wrapping_add(self.h.carrier_read.load(Relaxed))
    }

    /// Makes the bytes up to `tail` visible. The caller then unlocks with a read-modify-write and looks at the
    /// wait words and at `ask`: publish, fence, look (I4).
    #[inline]
    pub fn publish(&self, tail: u64) {
        // Release pairs with the Acquire of `tail` in `readable`.
        self.t.tail.store(tail, Release);
    }

    /// W is about to give the ring's memory back; the ring is empty, or not in use, and W's true tail is `tail`.
    pub fn releasing(&self, tail: u64) {
        // Release: who copies from outside and finds zeroes finds this, too, when it looks afterwards.
        self.t.released.store(tail, Release);
    }

    /// K to D: the next bytes go through the ring, after `switch_k` carrier bytes. The consent is used up.
    /// Returns whether R still consented.
    pub fn begin_ring(&self, tail: u64, switch_k: u64) -> bool {
        if self.ra.ask.compare_exchange(ask::CONSENT, 0, AcqRel, Relaxed).is_err() {
            return false;
        }
        // Not before: on the kernel's path R tells by these two what of an earlier ring has not come yet.
        self.wa.switch_k.store(switch_k, Relaxed);
        self.t.tail.store(tail, Relaxed);
        // Release pairs with `readable`: who sees D sees switch_k and tail.
        self.h.head.store(Head::new(tail, Path::Drain).0, Release);
        true
    }

    /// D or R to K: freezes R's position. Returns it: ring bytes from there to the tail are W's to re-send.
    ///
    /// # Errors
    /// The head is on the kernel path already or moves without end: the peer lies.
    pub fn claim(&self) -> Result<u64, Poisoned> {
        let mut seen = self.h.head.load(Acquire);
        for _ in 0..1000 {
            let head = Head(seen);
            if head.path() == Path::Kernel {
                return Err(Poisoned);
            }
            let claimed = Head::new(head.position(), Path::Kernel);
            match self.h.head.compare_exchange(seen, claimed.0, AcqRel, Acquire) {
                Ok(_) => return Ok(head.position()),
                Err(now) => seen = now,
            }
        }
        Err(Poisoned)
    }

    // ---- R

    /// What there is to read, given a ring of `size` bytes.
    ///
    /// # Errors
    /// The tail is behind the head or more than `size` ahead: the peer lies.
    #[inline]
    pub fn readable(&self, size: u64) -> Result<Readable, Poisoned> {
        for _ in 0..MOVES {
            let seen = self.h.head.load(Acquire);
            let head = Head(seen);
            match head.path() {
                Path::Kernel => return Ok(Readable::Kernel),
                Path::Drain => return Ok(Readable::Drain(head)),
                Path::Ring => {
                    // Acquire pairs with `publish`.
                    let available = position::distance(head.position(), self.t.tail.load(Acquire));
                    if available > size {
                        // A sibling may have moved the head between the two loads.
                        if self.h.head.load(Acquire) != seen {
                            continue;
                        }
                        return Err(Poisoned);
                    }
                    return Ok(Readable::Ring { head, available });
                }
            }
        }
        Err(Poisoned)
    }

    /// Commits `n` bytes that were copied out at `head`; false if a sibling or a claim was faster.
    #[inline]
    pub fn commit(&self, head: Head, n: u64) -> bool {
        let next = Head::new(head.position() + n, head.path());
        // Release pairs with `space` and `claim`: our copy is done before W may overwrite or re-send.
        self.h.head.compare_exchange(head.0, next.0, AcqRel, Relaxed).is_ok()
    }

    /// R has read `n` bytes of the carrier that come before the ring's: W sees that it reads.
    pub fn note_carrier_read(&self, n: u64) {
        self.h.carrier_read.fetch_add(n, Relaxed);
    }

    /// D to R: the carrier is read up to `switch_k`.
    pub fn drained(&self, head: Head) -> bool {
        let next = Head::new(head.position(), Path::Ring);
        self.h.head.compare_exchange(head.0, next.0, AcqRel, Relaxed).is_ok()
    }

    /// K to R: W claimed and is gone. Of the bytes behind the frozen `head`, `resent` came through the carrier before it
    /// ended; R reads the others from the ring. Returns whether there are any, in a ring of `size` bytes.
    pub fn inherit(&self, resent: u64, size: u64) -> bool {
        let head = Head(self.h.head.load(Acquire));
        let behind = position::distance(head.position(), self.t.tail.load(Acquire));
        if head.path() != Path::Kernel || behind > size || resent >= behind {
            return false;
        }
        let next = Head::new(head.position() + resent, Path::Ring);
        self.h.head.compare_exchange(head.0, next.0, AcqRel, Relaxed).is_ok()
    }

    /// The path as R sees it.
    pub fn path(&self) -> Path {
        Head(self.h.head.load(Acquire)).path()
    }

    /// R permits one upgrade (or renews its permission).
    pub fn consent(&self) {
        // A pending RECALL wins: it is cleared by `withdraw_recall` only.
        let _ = self.ra.ask.compare_exchange(0, ask::CONSENT, AcqRel, Relaxed);
    }

    /// R takes its permission back; false if W used it already.
    pub fn withdraw_consent(&self) -> bool {
        let before = self.ra.ask.fetch_and(!ask::CONSENT, AcqRel);
        before & ask::CONSENT != 0
    }

    /// R asks W for the kernel path.
    pub fn ask_recall(&self, bits: u32) {
        self.ra.ask.fetch_or(bits, AcqRel);
        self.ra.ask.fetch_and(!ask::CONSENT, AcqRel);
        fence_after_rmw();
    }

    /// R no longer asks (after the claim).
    pub fn withdraw_recall(&self) {
        self.ra.ask.fetch_and(!ask::RECALL, AcqRel);
    }

    /// R's image goes, everything is on the carrier, and another image may come.
    pub fn leave(&self) {
        self.ra.ask.fetch_or(ask::LEFT, AcqRel);
    }

    /// It stays after all.
    pub fn stay(&self) {
        self.ra.ask.fetch_and(!ask::LEFT, AcqRel);
    }

    /// Whether R has said so.
    #[inline]
    pub fn is_left(&self) -> bool {
        self.ra.ask.load(Relaxed) & ask::LEFT != 0
    }

    /// Whether a consent is pending.
    #[inline]
    pub fn consented(&self) -> bool {
        self.ra.ask.load(Relaxed) == ask::CONSENT
    }
}

impl Default for Direction {
    fn default() -> Self {
        Direction::new()
    }
}

/// Wait words: ask-then-look by the sleeper, publish-then-look by the waker.
pub mod wait {
    use super::*;

    /// Names a sleeper: `bell` and a ticket that makes this sleep unique.
    pub const fn word(bell: u32, ticket: u32) -> u64 {
        (bell as u64) << 32 | ticket as u64
    }

    /// The bell of a wait word.
    pub const fn bell(word: u64) -> u32 {
        (word >> 32) as u32
    }

    /// Enters `word` into a free place, then fences: the caller must look again before it sleeps (I4).
    /// False if all places are taken.
    pub fn arm(places: &[AtomicU64], word: u64) -> bool {
        for p in places {
            if p.load(Relaxed) == 0 && p.compare_exchange(0, word, AcqRel, Relaxed).is_ok() {
                fence(SeqCst);
                return true;
            }
        }
        false
    }

    /// Takes `word` out again; false if a waker cleared it (and rang, or is about to).
    pub fn disarm(places: &[AtomicU64], word: u64) -> bool {
        for p in places {
            if p.load(Relaxed) == word && p.compare_exchange(word, 0, AcqRel, Relaxed).is_ok() {
                return true;
            }
        }
        false
    }

    /// Calls `f` with the bell of every sleeper; nobody is taken off.
    pub fn each(places: &[AtomicU64], f: impl Fn(u32)) {
        for p in places {
            let word = p.load(Acquire);
            if word != 0 {
                f(bell(word));
            }
        }
    }

    /// Whether `word` is still entered.
    pub fn is_armed(places: &[AtomicU64], word: u64) -> bool {
        word != 0 && places.iter().any(|p| p.load(Relaxed) == word)
    }

    /// Whether anybody sleeps. Called by the waker after its publish and a full fence.
    #[inline]
    pub fn any(places: &[AtomicU64]) -> bool {
        places.iter().any(|p| p.load(Relaxed) != 0)
    }

    /// Wakes every sleeper: `ring` first, clear second, so that a waker killed in between costs a spurious
    /// wake and not a lost one; the ticket keeps the clear from erasing a newer sleep.
    pub fn wake(places: &[AtomicU64], mut ring: impl FnMut(u32)) {
        for p in places {
            let word = p.load(Acquire);
            if word != 0 {
                ring(bell(word));
                let _ = p.compare_exchange(word, 0, AcqRel, Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn on_ring(size: u64) -> Direction {
        let d = Direction::new();
        d.consent();
        assert!(d.begin_ring(100, 100));
        let Readable::Drain(h) = d.readable(size).unwrap() else { panic!() };
        assert!(d.drained(h));
        d
    }

    #[test]
    fn claim_freezes_the_position_and_defeats_a_late_commit() {
        let d = on_ring(64);
        d.publish(110);
        let Readable::Ring { head, available } = d.readable(64).unwrap() else { panic!() };
        assert_eq!(available, 10);
        assert_eq!(d.claim(), Ok(100));
        assert!(!d.commit(head, 10));
        assert_eq!(d.readable(64), Ok(Readable::Kernel));
    }

    #[test]
    fn what_a_dead_writer_claimed_and_did_not_send_again_is_read_from_the_ring() {
        let d = on_ring(64);
        d.publish(110);
        assert!(!d.inherit(0, 64));
        d.claim().unwrap();
        assert!(!d.inherit(10, 64));
        assert!(!d.inherit(0, 8));
        assert!(d.inherit(4, 64));
        let head = Head::new(104, Path::Ring);
        assert_eq!(d.readable(64), Ok(Readable::Ring { head, available: 6 }));
        assert!(!d.inherit(4, 64));
    }

    #[test]
    fn upgrade_needs_a_consent_and_uses_it_up() {
        let d = Direction::new();
        assert!(!d.begin_ring(0, 0));
        d.consent();
        assert!(d.begin_ring(0, 0));
        d.claim().unwrap();
        assert!(!d.begin_ring(0, 0));
        d.ask_recall(ask::RECALL);
        d.consent();
        assert!(!d.begin_ring(0, 0));
    }

    #[test]
    fn positions_go_on_from_their_wrap() {
        const END: u64 = 1 << 62;
        let d = Direction::new();
        d.consent();
        assert!(d.begin_ring(END - 10, 100));
        let Readable::Drain(h) = d.readable(64).unwrap() else { panic!() };
        assert!(d.drained(h));
        let tail = position::onward(END - 10, 64);
        assert_eq!((tail, d.space(END - 10, 64)), (54, Ok(64)));
        d.publish(tail);
        assert_eq!(d.space(tail, 64), Ok(0));
        for (n, left) in [(4, 60), (20, 40), (5, 35)] {
            let Readable::Ring { head, .. } = d.readable(64).unwrap() else { panic!() };
            assert!(d.commit(head, n));
            assert_eq!(d.space(tail, 64), Ok(64 - left));
            let Ok(Readable::Ring { available, head }) = d.readable(64) else { panic!() };
            assert_eq!((available, head.path()), (left, Path::Ring));
        }
        assert_eq!(d.claim(), Ok(19));
        assert!(d.inherit(30, 64));
        assert_eq!(d.readable(64), Ok(Readable::Ring { head: Head::new(49, Path::Ring), available: 5 }));
        assert_eq!(position::back(3, 5), END - 2);
        // One byte more than was offered, on either side of the wrap.
        d.h.head.store(Head::new(55, Path::Ring).0, Relaxed);
        assert_eq!((d.space(tail, 64), d.readable(64)), (Err(Poisoned), Err(Poisoned)));
        d.t.tail.store(0, Relaxed);
        d.h.head.store(Head::new(END - 65, Path::Ring).0, Relaxed);
        assert_eq!((d.space(0, 64), d.readable(64)), (Err(Poisoned), Err(Poisoned)));
    }

    #[test]
    fn lies_are_found() {
        let d = on_ring(64);
        d.t.tail.store(100 + 65, Relaxed);
        assert_eq!(d.readable(64), Err(Poisoned));
        d.t.tail.store(99, Relaxed);
        assert_eq!(d.readable(64), Err(Poisoned));
        d.h.head.store(Head::new(101, Path::Ring).0, Relaxed);
        assert_eq!(d.space(100, 64), Err(Poisoned));
        d.h.head.store(Head::new(90, Path::Kernel).0, Relaxed);
        assert_eq!(d.space(100, 64), Err(Poisoned));
        assert_eq!(d.claim(), Err(Poisoned));
    }

    #[test]
    fn tickets_keep_a_late_clear_from_erasing_a_newer_sleep() {
        let d = Direction::new();
        assert!(wait::arm(&d.ra.wait, wait::word(7, 1)));
        wait::wake(&d.ra.wait, |bell| {
            assert_eq!(bell, 7);
            // The sleeper wakes and sleeps again before the waker clears.
            assert!(wait::disarm(&d.ra.wait, wait::word(7, 1)));
            assert!(wait::arm(&d.ra.wait, wait::word(7, 2)));
        });
        assert!(wait::is_armed(&d.ra.wait, wait::word(7, 2)));
    }
}
