//! Pieces become a stream again, the stream becomes messages. What is beyond a gap waits in a buffer of fixed size.

use super::ranges::Ranges;
use super::{LONGEST, Lie, PREFIX, WINDOW};
use std::collections::VecDeque;

/// Places where something may be missing at one time; a piece that would make more is dropped.
const GAPS: usize = 512;
/// What a message costs beside its octets.
const COST: u64 = 64;

/// What one end receives.
#[derive(Debug)]
pub struct Incoming {
    /// Everything before is there.
    next: u64,
    /// Nothing from here on is taken.
    limit: u64,
    /// The other end has sent up to here, as far as is known.
    known: u64,
    /// Octets beyond `next`, each at its position modulo the window.
    beyond: Vec<u8>,
    /// Which of them are there.
    there: Ranges,
    /// Octets of the next message's length.
    prefix: Vec<u8>,
    /// Octets of the next message.
    partial: Vec<u8>,
    /// Messages that are complete.
    ready: VecDeque<Vec<u8>>,
    /// What they cost.
    waiting: u64,
    /// Where the stream ends, once that was said.
    end: Option<u64>,
    /// Messages that are complete, all of them.
    pub messages: u64,
    /// Octets of these messages.
    pub octets: u64,
    /// Pieces that had something new.
    pub frames: u64,
    /// Pieces that were there before.
    pub twice: u64,
    /// Pieces beyond what may be sent, or with too many gaps before them.
    pub refused: u64,
}

impl Incoming {
    /// Nothing yet.
    pub fn new() -> Incoming {
        Incoming {
            next: 0,
            limit: WINDOW,
            known: 0,
            beyond: vec![0; WINDOW as usize],
            there: Ranges::default(),
            prefix: Vec::new(),
            partial: Vec::new(),
            ready: VecDeque::new(),
            waiting: 0,
            end: None,
            messages: 0,
            octets: 0,
            frames: 0,
            twice: 0,
            refused: 0,
        }
    }

    /// Everything before is there.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// What may be sent to this end: it never becomes less.
    pub fn limit(&mut self) -> u64 {
        self.limit = self.limit.max(self.next + WINDOW.saturating_sub(self.waiting));
        self.limit
    }

    /// What was sent and is not there, ascending.
    pub fn missing(&self) -> impl Iterator<Item = (u64, u64)> {
        self.there.missing(self.next, self.known)
    }

    /// Whether something is missing.
    pub fn is_behind(&self) -> bool {
        self.next < self.known
    }

    /// Whether everything up to the end is there.
    pub fn is_complete(&self) -> bool {
        self.end == Some(self.next)
    }

    /// Takes the other end's word of what it sent.
    ///
    /// # Errors
    /// It was not allowed to.
    pub fn sent(&mut self, position: u64) -> Result<(), Lie> {
        if position > self.limit || self.end.is_some_and(|end| position > end) {
            return Err(Lie::new("it sent more than it may"));
        }
        self.known = self.known.max(position);
        Ok(())
    }

    /// Takes the other end's word of where its stream ends.
    ///
    /// # Errors
    /// It cannot end there.
    pub fn ends(&mut self, end: u64) -> Result<(), Lie> {
        if self.end.is_some_and(|before| before != end) || end < self.known.max(self.next) {
            return Err(Lie::new("its stream ends before what it sent"));
        }
        self.end = Some(end);
        Ok(())
    }

    /// Takes a piece. Whether anything of it is new.
    ///
    /// # Errors
    /// The stream has a message that cannot be.
    pub fn piece(&mut self, position: u64, octets: &[u8]) -> Result<bool, Lie> {
        let Some(to) = position.checked_add(octets.len() as u64) else {
            self.refused += 1;
            return Ok(false);
        };
        if to > self.limit || self.end.is_some_and(|end| to > end) {
            self.refused += 1;
            return Ok(false);
        }
        let from = position.max(self.next);
        if from >= to || self.there.missing(from, to).next().is_none() {
            self.twice += 1;
            return Ok(false);
        }
        let new = &octets[(from - position) as usize..];
        if from > self.next {
            if self.there.count() >= GAPS && !self.there.touches(from, to) {
                self.refused += 1;
                return Ok(false);
            }
            self.keep(from, new);
            self.there.insert(from, to);
        } else {
            self.next = to;
            self.feed(new)?;
            self.follow()?;
        }
        self.known = self.known.max(to);
        self.frames += 1;
        Ok(true)
    }

    /// Keeps octets beyond a gap.
    fn keep(&mut self, position: u64, octets: &[u8]) {
        let at = (position % WINDOW) as usize;
        let first = octets.len().min(self.beyond.len() - at);
        self.beyond[at..at + first].copy_from_slice(&octets[..first]);
        self.beyond[..octets.len() - first].copy_from_slice(&octets[first..]);
    }

    /// Goes on with what is there already.
    fn follow(&mut self) -> Result<(), Lie> {
        self.there.forget_before(self.next);
        let Some((from, to)) = self.there.first().filter(|&(from, _)| from == self.next) else {
            return Ok(());
        };
        self.there.forget_before(to);
        self.next = to;
        // Lent out while messages are made of it.
        let beyond = std::mem::take(&mut self.beyond);
        let (at, len) = ((from % WINDOW) as usize, (to - from) as usize);
        let first = len.min(beyond.len() - at);
        let fed = self.feed(&beyond[at..at + first]).and_then(|()| self.feed(&beyond[..len - first]));
        self.beyond = beyond;
        fed
    }

    /// Makes messages of the next octets of the stream.
    fn feed(&mut self, mut octets: &[u8]) -> Result<(), Lie> {
        while !octets.is_empty() {
            if self.prefix.len() < PREFIX {
                let (prefix, rest) = octets.split_at(octets.len().min(PREFIX - self.prefix.len()));
                self.prefix.extend_from_slice(prefix);
                octets = rest;
            }
            let Ok(prefix) = <[u8; PREFIX]>::try_from(&self.prefix[..]) else { continue };
            let len = u32::from_be_bytes(prefix) as usize;
            if len == 0 || len > LONGEST {
                return Err(Lie::new(format_args!(
                    "a message of {len} octets; there are those of 1 to {LONGEST}"
                )));
            }
            let (part, rest) = octets.split_at(octets.len().min(len - self.partial.len()));
            self.partial.extend_from_slice(part);
            octets = rest;
            if self.partial.len() == len {
                self.prefix.clear();
                self.messages += 1;
                self.octets += len as u64;
                self.waiting += len as u64 + COST;
                self.ready.push_back(std::mem::take(&mut self.partial));
            }
        }
        Ok(())
    }

    /// The next message.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let message = self.ready.pop_front()?;
        self.waiting -= message.len() as u64 + COST;
        Some(message)
    }

    /// Whether a message waits to be taken.
    pub fn has_message(&self) -> bool {
        !self.ready.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(messages: &[&[u8]]) -> Vec<u8> {
        messages.iter().flat_map(|m| [&(m.len() as u32).to_be_bytes()[..], m].concat()).collect()
    }

    #[test]
    fn pieces_in_any_order_become_messages_in_theirs() {
        let octets = stream(&[b"one", b"two and a half", b"3"]);
        let mut inc = Incoming::new();
        for (from, to) in [(20, octets.len()), (5, 9), (0, 2), (6, 12), (2, 7), (0, 5)] {
            inc.piece(from as u64, &octets[from..to]).unwrap();
        }
        assert_eq!(inc.missing().collect::<Vec<_>>(), [(12, 20)]);
        assert_eq!((inc.twice, inc.take(), inc.take()), (1, Some(b"one".to_vec()), None));
        assert_eq!(inc.piece(10, &octets[10..22]), Ok(true));
        inc.ends(octets.len() as u64).unwrap();
        assert_eq!((inc.take(), inc.take()), (Some(b"two and a half".to_vec()), Some(b"3".to_vec())));
        assert!(inc.is_complete() && !inc.is_behind());
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let mut inc = Incoming::new();
        // Every second octet: each would be a gap of its own.
        for at in 0..5000u64 {
            inc.piece(1 + 2 * at, b"x").unwrap();
        }
        assert_eq!((inc.there.count(), inc.refused), (GAPS, 5000 - GAPS as u64));
        // Beyond what may be sent.
        assert_eq!(inc.piece(WINDOW - 1, b"xy"), Ok(false));
        assert_eq!(inc.piece(u64::MAX, b"xy"), Ok(false));
        assert!(inc.sent(WINDOW + 1).is_err());
        // A user that takes nothing holds up the sender.
        let mut inc = Incoming::new();
        let octets = stream(&[&[7; 1000]]);
        let mut at = 0;
        while at + octets.len() as u64 <= inc.limit() {
            assert_eq!(inc.piece(at, &octets), Ok(true));
            at += octets.len() as u64;
        }
        assert!(inc.waiting <= 2 * WINDOW && inc.limit() == inc.limit, "{}", inc.waiting);
        let before = inc.limit();
        while inc.take().is_some() {}
        assert!(inc.limit() > before);
    }

    #[test]
    fn messages_that_cannot_be_are_lies() {
        for len in [0, LONGEST as u32 + 1, u32::MAX] {
            assert!(Incoming::new().piece(0, &len.to_be_bytes()).is_err());
        }
        let mut inc = Incoming::new();
        inc.piece(0, &stream(&[b"abc"])).unwrap();
        assert!(inc.ends(6).is_err() && inc.ends(7).is_ok() && inc.ends(8).is_err());
        assert_eq!(inc.piece(7, b"more"), Ok(false));
        assert!(inc.sent(8).is_err());
    }

    proptest! {
        #[test]
        fn every_order_gives_the_stream(lens in prop::collection::vec(1usize..300, 1..30), size in 1usize..200,
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..200)) {
            let messages: Vec<Vec<u8>> = lens.iter().enumerate().map(|(n, len)| vec![n as u8; *len]).collect();
            let octets = stream(&messages.iter().map(|m| &m[..]).collect::<Vec<_>>());
            let pieces: Vec<_> = octets.chunks(size).enumerate().map(|(n, c)| ((n * size) as u64, c)).collect();
            let mut inc = Incoming::new();
            for index in order {
                let (at, piece) = pieces[index.index(pieces.len())];
                inc.piece(at, piece).unwrap();
            }
            inc.sent(octets.len() as u64).unwrap();
            let missing: Vec<_> = inc.missing().collect();
            for (from, to) in missing {
                inc.piece(from, &octets[from as usize..to as usize]).unwrap();
            }
            inc.ends(octets.len() as u64).unwrap();
            prop_assert!(inc.is_complete());
            let got: Vec<_> = std::iter::from_fn(|| inc.take()).collect();
            prop_assert_eq!(got, messages);
        }
    }
}
