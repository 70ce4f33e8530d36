//! Messages become a stream, the stream becomes pieces; what the other end has is forgotten.

use super::control::Report;
use super::ranges::Ranges;
use super::{Lie, PREFIX};
use std::collections::VecDeque;

/// Octets that are held before more input is taken. One message, which may be as long as it likes, goes beyond.
const ROOM: usize = 1 << 20;

/// What one end sends.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// Everything before is at the other end.
    acked: u64,
    /// Everything before was sent once.
    sent: u64,
    /// The other end takes nothing from here on yet.
    limit: u64,
    /// The octets from `acked` on.
    held: VecDeque<u8>,
    /// What is to be sent again.
    wanted: Ranges,
    /// Where the stream ends.
    end: Option<u64>,
    /// Messages taken.
    pub messages: u64,
    /// Octets of these messages.
    pub octets: u64,
    /// Pieces given out.
    pub frames: u64,
    /// Of these, those that were asked for again.
    pub again: u64,
}

impl Outgoing {
    /// Nothing yet; the other end takes `window` octets.
    pub fn new(window: u64) -> Outgoing {
        Outgoing { limit: window, ..Outgoing::default() }
    }

    /// Everything before was sent once.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Everything before is at the other end.
    pub const fn acked(&self) -> u64 {
        self.acked
    }

    /// The other end takes nothing from here on yet.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Where the stream ends, once that is known.
    pub const fn end(&self) -> Option<u64> {
        self.end
    }

    /// Whether a message is taken now.
    pub fn has_room(&self) -> bool {
        self.held.len() < ROOM && self.end.is_none()
    }

    /// Takes a message.
    pub fn message(&mut self, octets: &[u8]) {
        debug_assert!(self.end.is_none() && octets.len() <= super::LONGEST);
        self.held.extend((octets.len() as u32).to_be_bytes());
        self.held.extend(octets);
        self.messages += 1;
        self.octets += octets.len() as u64;
    }

    /// There is no further message. Where the stream ends.
    pub fn finish(&mut self) -> u64 {
        *self.end.get_or_insert(self.acked + self.held.len() as u64)
    }

    /// Whether there is a piece to be sent.
    pub fn has_next(&self) -> bool {
        self.wanted.first().is_some() || self.fresh() > self.sent
    }

    /// What may be sent for the first time ends here.
    fn fresh(&self) -> u64 {
        (self.acked + self.held.len() as u64).min(self.limit)
    }

    /// The next piece of at most `most` octets: its position, and the octets, written to `out`.
    pub fn next(&mut self, most: usize, out: &mut Vec<u8>) -> Option<u64> {
        let most = most.max(1) as u64;
        let (from, to) = match self.wanted.first() {
            Some((from, to)) => {
                let to = to.min(from + most);
                self.wanted.forget_before(to);
                self.again += 1;
                (from, to)
            }
            None => (self.sent, self.fresh().min(self.sent + most)),
        };
        if from >= to {
            return None;
        }
        self.sent = self.sent.max(to);
        self.frames += 1;
        let (from_here, to_here) = ((from - self.acked) as usize, (to - self.acked) as usize);
        let (first, second) = self.held.as_slices();
        let middle = first.len();
        out.extend_from_slice(&first[from_here.min(middle)..to_here.min(middle)]);
        out.extend_from_slice(&second[from_here.saturating_sub(middle)..to_here.saturating_sub(middle)]);
        Some(from)
    }

    /// The piece at `position` with this many octets could not be sent: it will be given out again, cut as it fits then.
    pub fn refused(&mut self, position: u64, octets: usize) {
        self.wanted.insert(position.max(self.acked), (position + octets as u64).min(self.sent));
    }

    /// Takes what the other end has and wants. Whether it has more than before.
    ///
    /// # Errors
    /// It cannot be.
    pub fn report(&mut self, report: &Report) -> Result<bool, Lie> {
        let Report { next, limit, wanted } = report;
        if *next > self.sent {
            return Err(Lie::new(format_args!("it has {next} octets of {} that were sent", self.sent)));
        }
        if *next < self.acked || *limit < self.limit {
            return Err(Lie::new("it has, or takes, less than it said before"));
        }
        if wanted.iter().any(|&(from, to)| from < *next || from >= to || to > self.sent) {
            return Err(Lie::new("it asks again for what was not sent, or what it has"));
        }
        let more = *next > self.acked;
        self.held.drain(..(*next - self.acked) as usize);
        self.acked = *next;
        self.limit = *limit;
        self.wanted.forget_before(*next);
        wanted.iter().for_each(|&(from, to)| self.wanted.insert(from, to));
        Ok(more)
    }

    /// Octets that a message takes in the stream.
    #[cfg(test)]
    pub const fn in_stream(octets: usize) -> u64 {
        (PREFIX + octets) as u64
    }
}

const _: () = assert!(PREFIX == size_of::<u32>());

#[cfg(test)]
mod tests {
    use super::*;

    fn take(out: &mut Outgoing, most: usize) -> Option<(u64, Vec<u8>)> {
        let mut octets = Vec::new();
        out.next(most, &mut octets).map(|position| (position, octets))
    }

    fn report(next: u64, limit: u64, wanted: &[(u64, u64)]) -> Report {
        Report { next, limit, wanted: wanted.to_vec() }
    }

    #[test]
    fn messages_become_pieces_within_the_window_and_are_cut_anew() {
        let mut out = Outgoing::new(10);
        out.message(b"abcd");
        out.message(b"ef");
        assert_eq!(take(&mut out, 6), Some((0, b"\0\0\0\x04ab".to_vec())));
        assert_eq!(take(&mut out, 6), Some((6, b"cd\0\0".to_vec())));
        assert_eq!((take(&mut out, 6), out.has_next()), (None, false));
        assert_eq!(out.report(&report(6, 100, &[(7, 10)])), Ok(true));
        assert_eq!(take(&mut out, 2), Some((7, b"d\0".to_vec())));
        out.refused(7, 2);
        assert_eq!(take(&mut out, 1), Some((7, b"d".to_vec())));
        assert_eq!(take(&mut out, 6), Some((8, b"\0\0".to_vec())));
        assert_eq!(take(&mut out, 6), Some((10, b"\0\x02ef".to_vec())));
        assert_eq!((out.finish(), out.sent()), (14, Outgoing::in_stream(4) + Outgoing::in_stream(2)));
        assert_eq!(out.report(&report(14, 100, &[])), Ok(true));
        assert_eq!((out.held.len(), out.has_next(), out.has_room()), (0, false, false));
    }

    #[test]
    fn what_cannot_be_is_a_lie() {
        for wrong in [
            report(9, 100, &[]),
            report(3, 100, &[]),
            report(4, 99, &[]),
            report(4, 100, &[(3, 5)]),
            report(4, 100, &[(5, 9)]),
            report(4, 100, &[(5, 5)]),
            report(4, 100, &[(6, 5)]),
            report(u64::MAX, u64::MAX, &[]),
        ] {
            let mut out = Outgoing::new(100);
            out.message(b"abcd");
            take(&mut out, 100);
            assert_eq!(out.report(&report(4, 100, &[])), Ok(true));
            assert!(out.report(&wrong).is_err(), "{wrong:?}");
        }
    }
}
