//! One sender's frames put together to messages. No socket, no clock.

use super::LONGEST;
use crate::raw::header::{END_OF_MESSAGE, FIRST, Header};

/// What a receiver knows of one sender.
#[derive(Debug, Default)]
pub struct Incoming {
    /// Number of the next frame.
    expected: u32,
    /// Number of the next message.
    next: u32,
    /// Number after the highest one that a fragment had.
    seen: u32,
    /// What there is of a message, if its first fragment is there and none is missing.
    partial: Option<Vec<u8>>,
    /// Whether the sender said that there is no more.
    pub ended: bool,
    /// When it was heard of, in ns.
    pub heard: u64,
    /// Frames that did not arrive.
    pub lost_frames: u64,
    /// Messages before the next one that did not arrive, or not whole.
    lost_messages: u64,
}

impl Incoming {
    /// What an acknowledgement says: the number of the next frame.
    pub const fn expected(&self) -> u32 {
        self.expected
    }

    /// Messages that did not arrive, or not whole, as far as numbers tell: the one under way is not lost yet.
    pub fn lost_messages(&self) -> u64 {
        let begun = u64::from(self.seen.saturating_sub(self.next));
        self.lost_messages + begun.saturating_sub(u64::from(self.partial.is_some()))
    }

    /// Takes a frame's number: `false` for one that was there before.
    fn arrived(&mut self, seq: u32) -> bool {
        if seq < self.expected || self.ended {
            return false;
        }
        if seq > self.expected {
            self.lost_frames += u64::from(seq - self.expected);
            self.partial = None;
        }
        self.expected = seq.saturating_add(1);
        true
    }

    /// Counts messages before this one that did not arrive.
    fn up_to(&mut self, message: u32) {
        self.lost_messages += u64::from(message.saturating_sub(self.next));
        self.next = self.next.max(message);
    }

    /// Takes a fragment. The message that it completed.
    pub fn data(&mut self, header: &Header, body: &[u8]) -> Option<Vec<u8>> {
        if !self.arrived(header.seq) {
            return None;
        }
        self.seen = self.seen.max(header.message.saturating_add(1));
        if header.flags & FIRST != 0 {
            self.up_to(header.message);
            self.partial = Some(Vec::new());
        } else if header.message != self.next {
            self.partial = None;
        }
        let partial = self.partial.as_mut()?;
        if partial.len() + body.len() > LONGEST {
            self.partial = None;
            return None;
        }
        partial.extend_from_slice(body);
        if header.flags & END_OF_MESSAGE == 0 {
            return None;
        }
        self.next = self.next.saturating_add(1);
        self.partial.take()
    }

    /// Takes a sender's word of what it sent so far. Frames stay in order: what is not here by now does not come.
    pub fn hello(&mut self, header: &Header) {
        if !self.ended && header.seq > self.expected {
            self.lost_frames += u64::from(header.seq - self.expected);
            self.partial = None;
            self.expected = header.seq;
            self.up_to(header.message);
        }
    }

    /// Takes the end.
    pub fn end(&mut self, header: &Header) {
        if self.arrived(header.seq) {
            self.up_to(header.message);
            self.ended = true;
        }
    }

    /// Ends it for a sender that is silent. What it began is lost.
    pub fn silent(&mut self) {
        self.partial = None;
        self.ended = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::header::Kind;

    fn data(seq: u32, message: u32, flags: u16) -> Header {
        Header { kind: Kind::Data, session: 1, seq, message, flags }
    }

    fn end(seq: u32, message: u32) -> Header {
        Header { kind: Kind::End, ..data(seq, message, 0) }
    }

    #[test]
    fn fragments_become_messages() {
        let mut i = Incoming::default();
        assert_eq!(i.data(&data(0, 0, FIRST | END_OF_MESSAGE), b"a"), Some(b"a".to_vec()));
        assert_eq!(i.data(&data(1, 1, FIRST), b"b"), None);
        assert_eq!(i.data(&data(1, 1, FIRST), b"b"), None, "twice");
        assert_eq!(i.data(&data(2, 1, END_OF_MESSAGE), b"c"), Some(b"bc".to_vec()));
        i.end(&end(3, 2));
        assert_eq!((i.ended, i.expected(), i.lost_frames, i.lost_messages()), (true, 4, 0, 0));
    }

    #[test]
    fn a_gap_costs_the_messages_that_it_touches() {
        let mut i = Incoming::default();
        assert_eq!(i.data(&data(0, 0, FIRST), b"a"), None);
        // Frame 1 is missing; its message is not given out in part.
        assert_eq!(i.data(&data(2, 0, END_OF_MESSAGE), b"c"), None);
        assert_eq!(i.data(&data(3, 1, FIRST | END_OF_MESSAGE), b"d"), Some(b"d".to_vec()));
        i.end(&end(6, 4));
        assert_eq!((i.lost_frames, i.lost_messages()), (3, 3));
    }

    #[test]
    fn the_last_frames_before_a_hello_are_missed() {
        let mut i = Incoming::default();
        i.data(&data(0, 0, FIRST), b"a");
        let hello = Header { kind: Kind::Hello, ..data(3, 2, 0) };
        i.hello(&hello);
        i.hello(&hello);
        assert_eq!((i.expected(), i.lost_frames, i.lost_messages()), (3, 2, 2));
        assert_eq!(i.data(&data(3, 2, FIRST | END_OF_MESSAGE), b"b"), Some(b"b".to_vec()));
    }

    #[test]
    fn silence_costs_every_message_whose_number_was_seen() {
        let mut i = Incoming::default();
        i.data(&data(0, 0, FIRST | END_OF_MESSAGE), b"a");
        i.data(&data(1, 1, FIRST), b"b");
        assert_eq!(i.lost_messages(), 0, "message 1 may still become whole");
        // The rest of 1, all of 2 and the beginning of 3 are missing.
        i.data(&data(9, 3, 0), b"d");
        assert_eq!((i.lost_frames, i.lost_messages()), (7, 3));
        i.silent();
        assert_eq!((i.lost_frames, i.lost_messages()), (7, 3));

        let mut i = Incoming::default();
        i.data(&data(0, 0, FIRST), b"a");
        i.silent();
        assert_eq!((i.lost_frames, i.lost_messages()), (0, 1));
    }

    #[test]
    fn no_number_overflows() {
        let mut i = Incoming::default();
        assert!(i.data(&data(u32::MAX, u32::MAX, FIRST | END_OF_MESSAGE), b"x").is_some());
        assert!(i.data(&data(u32::MAX, u32::MAX, FIRST | END_OF_MESSAGE), b"x").is_some());
        i.end(&end(u32::MAX, 0));
        assert_eq!((i.lost_frames, i.lost_messages()), (u64::from(u32::MAX), u64::from(u32::MAX)));
    }

    #[test]
    fn a_message_without_end_stays_bounded() {
        let mut i = Incoming::default();
        let body = vec![0; 60_000];
        i.data(&data(0, 0, FIRST), &body);
        for seq in 1..400 {
            assert_eq!(i.data(&data(seq, 0, 0), &body), None);
            assert!(i.partial.as_ref().is_none_or(|p| p.len() <= LONGEST));
        }
        i.end(&end(400, 1));
        assert_eq!(i.lost_messages(), 1);
    }
}
