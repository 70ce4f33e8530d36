//! A link that loses, doubles, reorders, corrupts, delays and throttles frames, by chance but repeatably: the same seed,
//! the same frames and the same times have the same effect.
//!
//! Time comes from the clock that is given: virtual time in simulations, [`bypath_sys::clock::monotonic_ns`] otherwise.
//! Each kind of fault draws from a sequence of its own, so that switching one on leaves the others' decisions as they were.
//! What is due is sent by [`Link::send`] and [`Link::flush`], and given out by [`Link::receive`];
//! [`FaultInjector::next_due`] tells when to call them.

use crate::{Capabilities, Each, Error, Link, Next, Result, Statistics};
use bypath_wire::FrameMeta;
use bypath_wire::meta::ChecksumState;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError};

/// What happens to frames on one way. Probabilities are per frame, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that it comes twice.
    pub duplication: f64,
    /// Probability that one bit of it is flipped.
    pub corruption: f64,
    /// Probability that later frames overtake it.
    pub reordering: f64,
    /// How many overtake it at most, from 1.
    pub overtaken_by: u32,
    /// After so many nanoseconds it goes on even if no other has come.
    pub overtaken_within: u64,
    /// Nanoseconds that each frame takes.
    pub delay: u64,
    /// Up to so many nanoseconds more, by chance: frames overtake each other.
    pub jitter: u64,
    /// Bits in a second, of the octets from the first address on; `None`: any number.
    pub rate: Option<u64>,
    /// Frames that wait at most; what comes beyond is lost.
    pub queue: usize,
}

impl Faults {
    /// None at all.
    pub const NONE: Faults = Faults {
        loss: 0.0,
        duplication: 0.0,
        corruption: 0.0,
        reordering: 0.0,
        overtaken_by: 3,
        overtaken_within: 10_000_000,
        delay: 0,
        jitter: 0,
        rate: None,
        queue: 1000,
    };

    fn check(&self) -> Result<()> {
        let wrong = |text: &str| Err(Error::Invalid(text.to_owned()));
        let probabilities = [self.loss, self.duplication, self.corruption, self.reordering];
        if !probabilities.iter().all(|p| (0.0..=1.0).contains(p)) {
            return wrong("a probability of a fault is not from 0 to 1");
        }
        if self.rate == Some(0) || self.queue == 0 || self.overtaken_by == 0 {
            return wrong("a rate, a queue or a number of overtaking frames of 0 lets nothing pass");
        }
        Ok(())
    }

    /// Whether frames go at once, or not at all.
    const fn is_timeless(&self) -> bool {
        self.delay == 0 && self.jitter == 0 && self.rate.is_none() && self.reordering == 0.0
    }
}

/// What has happened to frames on one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that came in.
    pub entered: u64,
    /// Frames that went out, copies included.
    pub left: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Lost because the queue was full.
    pub overflowed: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
    /// Frames that were held back for others to overtake.
    pub reordered: u64,
    /// Frames that did not go out in the moment in which they came in.
    pub delayed: u64,
}

/// A sequence of numbers that look like chance: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// True with this probability. Draws once, whatever it is.
    fn chance(&mut self, probability: f64) -> bool {
        const SCALE: f64 = 1.0 / (1u64 << 53) as f64;
        ((self.next() >> 11) as f64 * SCALE) < probability
    }

    /// From 0 to `most`.
    fn up_to(&mut self, most: u64) -> u64 {
        let wide = u128::from(self.next()) * (u128::from(most) + 1);
        (wide >> 64) as u64
    }
}

/// The sequences of one way.
struct Chances {
    loss: Random,
    duplication: Random,
    corruption: Random,
    reordering: Random,
    jitter: Random,
}

impl Chances {
    fn new(seed: u64, way: u64) -> Chances {
        let mut seeds = Random(seed ^ way.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let mut one = || Random(seeds.next());
        Chances { loss: one(), duplication: one(), corruption: one(), reordering: one(), jitter: one() }
    }
}

/// A frame on its way. Ordered by the time at which it is due, then by when it came.
struct Frame {
    due: u64,
    order: u64,
    came: u64,
    bytes: Vec<u8>,
    meta: FrameMeta,
}

impl Frame {
    const fn key(&self) -> (u64, u64) {
        (self.due, self.order)
    }
}

impl PartialEq for Frame {
    fn eq(&self, other: &Frame) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Frame {}

impl PartialOrd for Frame {
    fn partial_cmp(&self, other: &Frame) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Frame {
    fn cmp(&self, other: &Frame) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// A frame that others overtake.
struct HeldBack {
    /// How many still do.
    remaining: u32,
    /// It goes on then at the latest.
    until: u64,
    frame: Frame,
}

/// One way.
struct Lane {
    faults: Faults,
    chances: Chances,
    waiting: BinaryHeap<Reverse<Frame>>,
    held_back: Vec<HeldBack>,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
    order: u64,
    /// When the frame before has passed at the given rate.
    busy_until: u64,
    counters: Counters,
}

impl Lane {
    fn new(faults: Faults, chances: Chances) -> Lane {
        Lane {
            faults,
            chances,
            waiting: BinaryHeap::new(),
            held_back: Vec::new(),
            spare: Vec::new(),
            order: 0,
            busy_until: 0,
            counters: Counters::default(),
        }
    }

    fn len(&self) -> usize {
        self.waiting.len() + self.held_back.len()
    }

    fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    fn recycle(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.spare.push(buffer);
    }

    /// A frame comes in.
    fn admit(&mut self, now: u64, mut bytes: Vec<u8>, mut meta: FrameMeta) {
        self.counters.entered += 1;
        let lost = self.chances.loss.chance(self.faults.loss);
        let twice = self.chances.duplication.chance(self.faults.duplication);
        let corrupted = self.chances.corruption.chance(self.faults.corruption);
        let bit = self.chances.corruption.next();
        if lost {
            self.counters.lost += 1;
            return self.recycle(bytes);
        }
        if twice {
            self.counters.duplicated += 1;
            let mut copy = self.buffer();
            copy.extend_from_slice(&bytes);
            self.enqueue(now, copy, meta);
        }
        if corrupted && !bytes.is_empty() {
            self.counters.corrupted += 1;
            let bit = bit % (bytes.len() as u64 * 8);
            bytes[bit as usize / 8] ^= 1 << (bit % 8);
            if meta.checksum == ChecksumState::Verified {
                // Nobody vouches for these bytes.
                meta.checksum = ChecksumState::Unknown;
            }
        }
        self.enqueue(now, bytes, meta);
    }

    fn enqueue(&mut self, now: u64, bytes: Vec<u8>, meta: FrameMeta) {
        let back = self.chances.reordering.chance(self.faults.reordering);
        let by = self.chances.reordering.up_to(u64::from(self.faults.overtaken_by - 1)) as u32 + 1;
        let jitter = self.chances.jitter.up_to(self.faults.jitter);
        if self.len() >= self.faults.queue {
            self.counters.overflowed += 1;
            return self.recycle(bytes);
        }
        let passed = match self.faults.rate {
            None => now,
            Some(rate) => {
                let bits = bytes.len() as u128 * 8 * 1_000_000_000;
                let took = (bits.div_ceil(u128::from(rate))).min(u128::from(u64::MAX)) as u64;
                self.busy_until = self.busy_until.max(now).saturating_add(took);
                self.busy_until
            }
        };
        self.order += 1;
        let due = passed.saturating_add(self.faults.delay).saturating_add(jitter);
        let frame = Frame { due, order: self.order, came: now, bytes, meta };
        let overtaking = self.held_back.len();
        if back {
            self.counters.reordered += 1;
            let until = due.saturating_add(self.faults.overtaken_within);
            self.held_back.push(HeldBack { remaining: by, until, frame });
        } else {
            self.waiting.push(Reverse(frame));
        }
        // This one has overtaken those that were held back before it.
        for held in &mut self.held_back[..overtaking] {
            held.remaining -= 1;
        }
        self.let_go(|held| held.remaining == 0);
    }

    /// Frames that were held back, and for which this is true, go on behind what waits.
    fn let_go(&mut self, what: impl Fn(&HeldBack) -> bool) {
        let mut at = 0;
        while at < self.held_back.len() {
            if !what(&self.held_back[at]) {
                at += 1;
                continue;
            }
            let mut frame = self.held_back.remove(at).frame;
            self.order += 1;
            frame.order = self.order;
            let last = self.waiting.iter().map(|Reverse(f)| f.due).max().unwrap_or(0);
            frame.due = frame.due.max(last);
            self.waiting.push(Reverse(frame));
        }
    }

    /// Takes out the next frame that is due.
    fn due(&mut self, now: u64) -> Option<Frame> {
        self.let_go(|held| held.until <= now);
        let Reverse(first) = self.waiting.peek()?;
        if first.due > now {
            return None;
        }
        let Reverse(frame) = self.waiting.pop()?;
        self.counters.left += 1;
        self.counters.delayed += u64::from(frame.came < now);
        Some(frame)
    }

    fn is_due(&self, now: u64) -> bool {
        self.next_due().is_some_and(|due| due <= now)
    }

    fn next_due(&self) -> Option<u64> {
        let waiting = self.waiting.peek().map(|Reverse(frame)| frame.due);
        waiting.into_iter().chain(self.held_back.iter().map(|h| h.until)).min()
    }
}

/// Changes the faults of an injector that somebody else has.
#[derive(Clone, Debug)]
pub struct Switch(Arc<Wanted>);

/// Faults on the way in and out, which the injector takes over when frames move next.
#[derive(Debug)]
struct Wanted {
    changed: AtomicBool,
    faults: Mutex<(Faults, Faults)>,
}

impl Switch {
    /// Other faults from now on, as [`FaultInjector::set`] does.
    ///
    /// # Errors
    /// [`Error::Invalid`] for faults that cannot be.
    pub fn set(&self, ingress: Faults, egress: Faults) -> Result<()> {
        ingress.check()?;
        egress.check()?;
        *self.0.faults.lock().unwrap_or_else(PoisonError::into_inner) = (ingress, egress);
        // Pairs with the one in `tick`.
        self.0.changed.store(true, Release);
        Ok(())
    }
}

/// A link with faults on the way in, out, or both.
pub struct FaultInjector<L, C> {
    link: L,
    clock: C,
    now: u64,
    ingress: Lane,
    egress: Lane,
    statistics: Statistics,
    /// An error that came beside frames: the next call reports it.
    noted: Option<Error>,
    wanted: Option<Arc<Wanted>>,
}

impl<L: Link, C: FnMut() -> u64> FaultInjector<L, C> {
    /// Around `link`; `clock` tells the time in nanoseconds from any beginning.
    ///
    /// # Errors
    /// [`Error::Invalid`] for faults that cannot be.
    pub fn new(link: L, ingress: Faults, egress: Faults, seed: u64, clock: C) -> Result<FaultInjector<L, C>> {
        ingress.check()?;
        egress.check()?;
        Ok(FaultInjector {
            link,
            clock,
            now: 0,
            ingress: Lane::new(ingress, Chances::new(seed, 1)),
            egress: Lane::new(egress, Chances::new(seed, 2)),
            statistics: Statistics::default(),
            noted: None,
            wanted: None,
        })
    }

    /// Other faults from now on. Frames that wait keep their times.
    ///
    /// # Errors
    /// [`Error::Invalid`] for faults that cannot be.
    pub fn set(&mut self, ingress: Faults, egress: Faults) -> Result<()> {
        ingress.check()?;
        egress.check()?;
        (self.ingress.faults, self.egress.faults) = (ingress, egress);
        Ok(())
    }

    /// What changes them from elsewhere, on any thread.
    pub fn switch(&mut self) -> Switch {
        let faults = (self.ingress.faults, self.egress.faults);
        let new = || Arc::new(Wanted { changed: AtomicBool::new(false), faults: Mutex::new(faults) });
        Switch(Arc::clone(self.wanted.get_or_insert_with(new)))
    }

    /// When something is due next, by the clock; `None`: nothing waits.
    pub fn next_due(&self) -> Option<u64> {
        self.ingress.next_due().into_iter().chain(self.egress.next_due()).min()
    }

    /// What has happened to frames on the way in.
    pub const fn ingress(&self) -> Counters {
        self.ingress.counters
    }

    /// What has happened to frames on the way out.
    pub const fn egress(&self) -> Counters {
        self.egress.counters
    }

    /// The link inside.
    pub const fn inner(&mut self) -> &mut L {
        &mut self.link
    }

    /// The link inside; frames that wait are dropped.
    pub fn into_inner(self) -> L {
        self.link
    }

    fn tick(&mut self) -> u64 {
        if let Some(wanted) = &self.wanted
            && wanted.changed.load(Acquire)
            && wanted.changed.swap(false, AcqRel)
        {
            let faults = *wanted.faults.lock().unwrap_or_else(PoisonError::into_inner);
            (self.ingress.faults, self.egress.faults) = faults;
        }
        // A clock that is set back does not let frames wait for ever.
        self.now = self.now.max((self.clock)());
        self.now
    }

    /// Sends what is due.
    fn release(&mut self, now: u64) -> Result<()> {
        while self.egress.is_due(now) {
            let lane = &mut self.egress;
            let mut next = |slot: &mut [u8]| {
                let frame = lane.due(now)?;
                let len = frame.bytes.len();
                let room = len.min(slot.len());
                slot[..room].copy_from_slice(&frame.bytes[..room]);
                lane.recycle(frame.bytes);
                Some((len, frame.meta))
            };
            if self.link.send(usize::MAX, &mut next)? == 0 {
                break;
            }
        }
        Ok(())
    }
}

impl<L: Link, C: FnMut() -> u64> Link for FaultInjector<L, C> {
    fn capabilities(&self) -> Capabilities {
        self.link.capabilities()
    }

    /// The descriptor of the link inside; `None` with faults that let frames wait, because it does not tell when.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let timeless = self.ingress.faults.is_timeless() && self.egress.faults.is_timeless();
        if timeless { self.link.descriptor() } else { None }
    }

    fn receive(&mut self, most: usize, each: &mut Each<'_>) -> Result<usize> {
        if let Some(e) = self.noted.take() {
            return Err(e);
        }
        let now = self.tick();
        let lane = &mut self.ingress;
        let outcome = self.link.receive(most, &mut |bytes, meta| {
            let mut buffer = lane.buffer();
            buffer.extend_from_slice(bytes);
            lane.admit(now, buffer, *meta);
        });
        let mut given = 0;
        while given < most {
            let Some(frame) = self.ingress.due(now) else { break };
            self.statistics.received += 1;
            self.statistics.received_octets += frame.bytes.len() as u64;
            each(&frame.bytes, &frame.meta);
            self.ingress.recycle(frame.bytes);
            given += 1;
        }
        match outcome {
            Err(e) if given == 0 => Err(e),
            Err(e) => {
                self.noted = Some(e);
                Ok(given)
            }
            Ok(_) => Ok(given),
        }
    }

    /// Frames are accepted now, and meet their faults; errors of the link inside come when they are due. A frame that
    /// cannot be is passed on at once.
    fn send(&mut self, most: usize, next: &mut Next<'_>) -> Result<usize> {
        let now = self.tick();
        self.release(now)?;
        let longest = self.link.capabilities().longest;
        let mut given = 0;
        while given < most {
            if self.egress.len() >= self.egress.faults.queue && self.egress.is_due(now) {
                // It is the link inside that takes no more.
                break;
            }
            let mut buffer = self.egress.buffer();
            buffer.resize(longest, 0);
            let Some((len, meta)) = next(&mut buffer) else {
                self.egress.recycle(buffer);
                break;
            };
            if len > longest {
                self.egress.recycle(buffer);
                // The link inside says what is wrong with it, and counts it.
                let mut once = Some((len, meta));
                self.link.send(1, &mut |_| once.take())?;
                continue;
            }
            buffer.truncate(len);
            self.statistics.sent += 1;
            self.statistics.sent_octets += len as u64;
            self.egress.admit(now, buffer, meta);
            given += 1;
        }
        self.release(now)?;
        Ok(given)
    }

    fn flush(&mut self) -> Result<usize> {
        let now = self.tick();
        self.release(now)?;
        Ok(self.egress.len() + self.link.flush()?)
    }

    fn forget(&mut self) -> usize {
        let lane = &mut self.egress;
        let count = lane.len();
        let waiting = std::mem::take(&mut lane.waiting).into_iter().map(|Reverse(frame)| frame);
        let held_back = std::mem::take(&mut lane.held_back).into_iter().map(|held| held.frame);
        lane.spare.extend(waiting.chain(held_back).map(|mut frame| {
            frame.bytes.clear();
            frame.bytes
        }));
        self.statistics.refused += count as u64;
        count + self.link.forget()
    }

    /// Frames that were given out and accepted here; what the link inside dropped, cut and refused.
    fn statistics(&mut self) -> Statistics {
        let inner = self.link.statistics();
        Statistics {
            dropped: inner.dropped,
            cut: inner.cut,
            refused: inner.refused + self.statistics.refused,
            ..self.statistics
        }
    }
}

#[cfg(test)]
mod tests;
