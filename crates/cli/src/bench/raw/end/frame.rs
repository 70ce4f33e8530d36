//! What stands in the frames: a head with run and number, and octets that follow from the number.
//!
//! Head: two octets of mark, the kind, an octet 0, the run (32 bits), the number (64 bits), little endian. The rest is a
//! piece of a fixed noise that begins at a place which depends on the number: a frame that was overwritten by another one,
//! even in part, does not pass.

use crate::bench::raw::order::{Flaws, Received, Run};

/// Octets of the head.
pub const HEAD: usize = 16;
/// The shortest payload: what an Ethernet frame is padded to, so that none is.
pub const SHORTEST: usize = 46;
const MARK: [u8; 2] = [0xb7, 0x5a];
/// Places at which a frame's noise begins: multiples of eight below this.
const PLACES: u64 = 512;

/// Kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Are you there?
    Greeting = 1,
    /// Yes.
    Welcome = 2,
    /// One of many.
    Data = 3,
    /// To be sent back.
    Ping = 4,
    /// Sent back.
    Pong = 5,
}

/// Writes and checks the frames of one run.
pub struct Content {
    noise: Vec<u8>,
    run: Run,
}

impl Content {
    /// For this run.
    pub fn new(run: Run) -> Content {
        let mut noise = Vec::with_capacity(run.size + 8 * PLACES as usize + 8);
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        while noise.len() < run.size + 8 * PLACES as usize {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            noise.extend_from_slice(&x.to_le_bytes());
        }
        Content { noise, run }
    }

    /// Octets of a frame's payload.
    pub const fn size(&self) -> usize {
        self.run.size
    }

    fn noise(&self, number: u64) -> &[u8] {
        let at = (number % PLACES) as usize * 8;
        &self.noise[at..at + self.run.size - HEAD]
    }

    /// Writes a frame; `payload` has the run's size.
    #[inline]
    pub fn write(&self, payload: &mut [u8], kind: Kind, number: u64) {
        payload[..2].copy_from_slice(&MARK);
        payload[2] = kind as u8;
        payload[3] = 0;
        payload[4..8].copy_from_slice(&self.run.number.to_le_bytes());
        payload[8..HEAD].copy_from_slice(&number.to_le_bytes());
        payload[HEAD..].copy_from_slice(self.noise(number));
    }

    /// The number of a frame of this run and kind.
    #[inline]
    pub fn number(&self, payload: &[u8], kind: Kind) -> Option<u64> {
        let head = payload.get(..HEAD)?;
        let run = u32::from_le_bytes(head[4..8].try_into().ok()?);
        let ours = head[..2] == MARK && head[2] == kind as u8 && run == self.run.number;
        ours.then(|| u64::from_le_bytes(head[8..].try_into().expect("eight octets")))
    }

    /// Whether length and octets are those of frame `number`. Raw frames shorter than the medium's least may be padded.
    #[inline]
    pub fn is_whole(&self, payload: &[u8], number: u64) -> bool {
        let fits = payload.len() == self.run.size || self.run.size < SHORTEST && payload.len() == SHORTEST;
        fits && (!self.run.verify || payload[HEAD..self.run.size] == *self.noise(number))
    }
}

/// Numbers that a sender gives to its frames, and what it does to them on purpose.
pub struct Numbers {
    next: u64,
    flaws: Flaws,
}

impl Numbers {
    /// From 0.
    pub const fn new(flaws: Flaws) -> Numbers {
        Numbers { next: 0, flaws }
    }

    /// Frames so far, those lost on purpose included.
    pub const fn so_far(&self) -> u64 {
        self.next
    }

    /// One that was numbered was not sent.
    pub const fn take_back(&mut self) {
        self.next -= 1;
    }

    /// Writes the next frame.
    #[inline]
    pub fn write(&mut self, content: &Content, payload: &mut [u8]) {
        let Flaws { lose, spoil } = self.flaws;
        if lose > 0 && self.next % lose == lose - 1 {
            self.next += 1;
        }
        content.write(payload, Kind::Data, self.next);
        if spoil > 0 && self.next % spoil == spoil - 1 {
            let at = HEAD + self.next as usize % (payload.len() - HEAD);
            payload[at] ^= 1;
        }
        self.next += 1;
    }
}

/// Numbers remembered, to tell late frames from repeated ones.
const WINDOW: u64 = 4096;

/// Counts what arrives.
pub struct Tally {
    content: Content,
    seen: Vec<u64>,
    /// The number after the highest seen.
    next: u64,
    counts: Received,
    first: Option<(u64, u64)>,
    last: (u64, u64),
}

impl Tally {
    /// Of this run.
    pub fn new(run: Run) -> Tally {
        Tally {
            content: Content::new(run),
            seen: vec![0; (WINDOW / 64) as usize],
            next: 0,
            counts: Received::default(),
            first: None,
            last: (0, 0),
        }
    }

    /// Frames of this run so far, good or not.
    pub const fn arrived(&self) -> u64 {
        self.counts.good + self.counts.corrupt
    }

    /// Counts a payload.
    #[inline]
    pub fn take(&mut self, payload: &[u8]) {
        let Some(number) = self.content.number(payload, Kind::Data) else {
            self.counts.foreign += u64::from(self.content.number(payload, Kind::Greeting).is_none());
            return;
        };
        let (word, bit) = ((number / 64 % (WINDOW / 64)) as usize, 1 << (number % 64));
        if number >= self.next {
            self.forget(number);
            self.next = number + 1;
        } else if self.next - number > WINDOW || self.seen[word] & bit != 0 {
            // Repeated, or so late that it cannot be told.
            self.counts.corrupt += 1;
            return;
        } else {
            self.counts.disordered += 1;
        }
        self.seen[word] |= bit;
        if self.content.is_whole(payload, number) {
            self.counts.good += 1;
        } else {
            self.counts.corrupt += 1;
        }
    }

    /// Makes room in the window up to `number`.
    #[inline]
    fn forget(&mut self, number: u64) {
        let (from, to) = (self.next.div_ceil(64), number / 64);
        if to < from {
            return;
        }
        let words = WINDOW / 64;
        for word in from.max((to + 1).saturating_sub(words))..=to {
            self.seen[(word % words) as usize] = 0;
        }
    }

    /// Takes the time of what has come so far.
    #[inline]
    pub fn stamp(&mut self, now: u64) {
        self.last = (now, self.counts.good);
        if self.first.is_none() && self.counts.good > 0 {
            self.first = Some(self.last);
        }
    }

    /// What was counted.
    pub fn finish(self) -> Received {
        let (begin, before) = self.first.unwrap_or(self.last);
        Received { timed: self.last.1 - before, elapsed_ns: self.last.0 - begin, ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::raw::order::Carrier;

    const RUN: Run =
        Run { carrier: Carrier::RawPlain, size: 100, number: 7, spin: false, verify: true, deep: false };

    fn frames(flaws: Flaws, count: usize) -> Vec<Vec<u8>> {
        let (content, mut numbers) = (Content::new(RUN), Numbers::new(flaws));
        let mut one = || {
            let mut payload = vec![0; RUN.size];
            numbers.write(&content, &mut payload);
            payload
        };
        (0..count).map(|_| one()).collect()
    }

    fn count<'f>(frames: impl IntoIterator<Item = &'f Vec<u8>>) -> Received {
        let mut tally = Tally::new(RUN);
        frames.into_iter().for_each(|f| tally.take(f));
        tally.finish()
    }

    #[test]
    fn every_changed_octet_behind_the_head_is_found() {
        let frame = frames(Flaws::default(), 1).remove(0);
        for at in HEAD..frame.len() {
            let mut changed = frame.clone();
            changed[at] ^= 0x10;
            let counted = count([&changed]);
            assert_eq!((counted.good, counted.corrupt), (0, 1), "{at}");
        }
        let counted = count([&frame[..99].to_vec()]);
        assert_eq!((counted.good, counted.corrupt), (0, 1));
    }

    #[test]
    fn flaws_made_on_purpose_are_counted() {
        let frames = frames(Flaws { lose: 10, spoil: 25 }, 900);
        let counted = count(&frames);
        // Of 1000 numbers a hundred are lost; of those that are spoilt half are lost, too.
        assert_eq!((counted.good, counted.corrupt, counted.disordered), (880, 20, 0));
    }

    #[test]
    fn late_frames_count_and_repeated_ones_do_not() {
        let frames = frames(Flaws::default(), 10_000);
        let mut order: Vec<usize> = (0..10_000).collect();
        order.swap(5, 70);
        order.extend([9_999, 9_000, 3]);
        let counted = count(order.iter().map(|&n| &frames[n]));
        assert_eq!((counted.good, counted.corrupt), (10_000, 3));
        assert_eq!(counted.disordered, 65);
    }

    #[test]
    fn a_frame_overwritten_by_a_later_one_is_found() {
        let frames = frames(Flaws::default(), 3);
        let mixed = [&frames[1][..50], &frames[2][50..]].concat();
        let counted = count([&frames[0], &mixed, &frames[2]]);
        assert_eq!((counted.good, counted.corrupt), (2, 1));
        let counted = count([&frames[0], &frames[2], &frames[2]]);
        assert_eq!((counted.good, counted.corrupt), (2, 1));
    }

    #[test]
    fn other_runs_are_not_counted() {
        let other = Content::new(Run { number: 8, ..RUN });
        let mut payload = vec![0; RUN.size];
        other.write(&mut payload, Kind::Data, 0);
        let counted = count([&payload, &vec![0; 100]]);
        assert_eq!((counted.good, counted.corrupt, counted.foreign), (0, 0, 2));
    }
}
