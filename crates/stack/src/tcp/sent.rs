//! What was sent and not acknowledged: the scoreboard (RFC 6675), and which of it is lost (RACK, RFC 8985).
//!
//! Each stretch of sequence space remembers when it was last sent. It is on its way, lost, or arrived beyond a gap (SACK);
//! what is acknowledged is forgotten. Stretches are as long as they were sent, and are cut where an acknowledgement ends
//! inside of them.

use super::rack::Rack;
use super::tcb::milliseconds;
use crate::time::Instant;
use alloc::collections::VecDeque;
use bypath_wire::seq::SeqNumber;
use bypath_wire::tcp_options::SackBlock;
use core::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    OnItsWay,
    Lost,
    /// It arrived, beyond a gap.
    Sacked,
}

/// Sequence space that was sent at once.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    seq: SeqNumber,
    end: SeqNumber,
    /// When it was sent last.
    at: Instant,
    fate: Fate,
    /// It was sent more than once.
    again: bool,
    /// Octets of each of its segments but the last one; 1: not known.
    segment: u16,
}

impl Stretch {
    const fn len(&self) -> u32 {
        self.end.since(self.seq)
    }

    /// Octets of it before `seq` that are of segments which begin before it: all of them, or only those that end before it, too.
    fn segments_to(&self, seq: SeqNumber, all: bool) -> u32 {
        let (octets, segment) = (seq.since(self.seq), u32::from(self.segment));
        let whole = if all { octets.div_ceil(segment) } else { octets / segment };
        (whole * segment).min(self.len())
    }

    /// It begins there now, inside of what it was.
    fn begin(&mut self, seq: SeqNumber) {
        if !seq.since(self.seq).is_multiple_of(u32::from(self.segment)) {
            self.segment = 1;
        }
        self.seq = seq;
    }
}

/// What an acknowledgement told of arrivals.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivered {
    /// Octets that were not known to have arrived.
    pub octets: u32,
    /// Octets that are acknowledged, known to have arrived or not.
    pub acked: u32,
    /// A round trip of octets that were sent once: of those that were sent last.
    pub rtt: Option<Duration>,
    /// Some were sent again before.
    pub again: bool,
    /// The lowest end of those that were sent once: of others it is not known which copy arrived.
    pub once: Option<SeqNumber>,
    /// SACK told something new.
    pub sacked: bool,
    /// To which time it answers (TSecr), in milliseconds.
    pub echo: Option<u32>,
}

/// Pieces into which blocks may cut what is on its way, beside one for each [`PIECE`] octets of it: who tells of single octets makes
/// more of it than it is worth.
const PIECES: usize = 256;
/// See [`PIECES`].
const PIECE: usize = 256;

/// The octets from `snd.una` to `snd.nxt`.
#[derive(Debug, Default)]
pub struct Sent {
    stretches: VecDeque<Stretch>,
    on_its_way: u32,
    lost: u32,
    sacked: u32,
    /// Of those on their way so many octets must have arrived, as they were acknowledged in vain: without SACK.
    arrived: u32,
    rack: Rack,
}

impl Sent {
    /// Nothing waits for an acknowledgement.
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// Octets on their way: `pipe` of RFC 6675.
    pub const fn pipe(&self) -> u32 {
        self.on_its_way.saturating_sub(self.arrived)
    }

    /// Octets that are lost and were not sent again.
    pub const fn lost(&self) -> u32 {
        self.lost
    }

    /// Octets that arrived beyond gaps.
    pub const fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Octets in all.
    pub const fn octets(&self) -> u32 {
        self.on_its_way + self.lost + self.sacked
    }

    /// What of round trips and reordering is known.
    pub const fn rack(&self) -> &Rack {
        &self.rack
    }

    /// What of round trips and reordering is known.
    pub const fn rack_mut(&mut self) -> &mut Rack {
        &mut self.rack
    }

    /// Octets that follow the last ones are sent, in segments of so many.
    pub fn push(&mut self, now: Instant, seq: SeqNumber, end: SeqNumber, segment: u32) {
        self.on_its_way += end.since(seq);
        let segment = segment.clamp(1, u16::MAX.into()) as u16;
        self.stretches.push_back(Stretch { seq, end, at: now, fate: Fate::OnItsWay, again: false, segment });
    }

    /// Everything before `una` has arrived.
    pub fn ack(&mut self, now: Instant, una: SeqNumber, told: &mut Delivered) {
        while let Some(first) = self.stretches.front_mut() {
            if first.seq.at_or_after(una) {
                break;
            }
            let mut gone = *first;
            if gone.end.after(una) {
                gone.end = una;
                first.begin(una);
            } else {
                self.stretches.pop_front();
            }
            let len = gone.len();
            told.acked += len;
            self.leaves(gone.fate, len);
            if gone.fate != Fate::Sacked {
                self.arrives(now, &gone, true, told);
            }
        }
        self.arrived = self.arrived.min(self.on_its_way);
    }

    /// These octets have arrived, beyond a gap. Of a segment that has not arrived as a whole nothing has, as in Linux: who told of some
    /// octets of each could make many small ones of it.
    pub fn sack(&mut self, now: Instant, block: SackBlock, told: &mut Delivered) {
        let (Some(first), Some(last)) = (self.stretches.front(), self.stretches.back()) else { return };
        // Of what was acknowledged before, or never sent, nothing can be told.
        if block.left.before(first.seq) || block.right.after(last.end) || !block.left.before(block.right) {
            return;
        }
        let block = SackBlock { left: self.whole(block.left, true), right: self.whole(block.right, false) };
        if !block.left.before(block.right) {
            return;
        }
        let many = self.stretches.len() >= PIECES + self.octets() as usize / PIECE;
        if many && !(self.begins(block.left) && self.begins(block.right)) {
            return;
        }
        let mut at = self.cut(block.left);
        let end = self.cut(block.right);
        while at < end {
            let stretch = self.stretches[at];
            if stretch.fate != Fate::Sacked {
                self.leaves(stretch.fate, stretch.len());
                self.sacked += stretch.len();
                self.stretches[at].fate = Fate::Sacked;
                told.sacked = true;
                self.arrives(now, &stretch, false, told);
            }
            at += 1;
        }
    }

    fn leaves(&mut self, fate: Fate, len: u32) {
        match fate {
            Fate::OnItsWay => self.on_its_way -= len,
            Fate::Lost => self.lost -= len,
            Fate::Sacked => self.sacked -= len,
        }
    }

    fn arrives(&mut self, now: Instant, stretch: &Stretch, in_order: bool, told: &mut Delivered) {
        told.octets += stretch.len();
        if stretch.again {
            told.again = true;
        } else {
            told.once = Some(told.once.map_or(stretch.end, |end| end.earlier(stretch.end)));
            told.rtt = Some(now.since(stretch.at));
        }
        // RFC 8985, 6.2, step 2: an answer to the copy before tells nothing of this one. What arrived beyond a gap is answered
        // with the time of what was before the gap.
        let earlier = |echo: u32| (echo.wrapping_sub(milliseconds(stretch.at)) as i32) < 0;
        if !(stretch.again && in_order && told.echo.is_some_and(earlier)) {
            self.rack.arrived(now, stretch.at, stretch.end, stretch.again);
        }
    }

    /// The end of the segment in which this lies, or (`up` is false) its beginning; itself between two.
    fn whole(&self, seq: SeqNumber, up: bool) -> SeqNumber {
        let at = self.stretches.partition_point(|s| s.end.at_or_before(seq));
        match self.stretches.get(at) {
            Some(stretch) if stretch.seq.before(seq) => stretch.seq + stretch.segments_to(seq, up),
            _ => seq,
        }
    }

    /// Nothing has to be cut there.
    fn begins(&self, seq: SeqNumber) -> bool {
        let at = self.stretches.partition_point(|s| s.end.at_or_before(seq));
        self.stretches.get(at).is_none_or(|s| s.seq.at_or_after(seq))
    }

    /// A stretch begins there, if one was there at all; its place.
    fn cut(&mut self, seq: SeqNumber) -> usize {
        let at = self.stretches.partition_point(|s| s.end.at_or_before(seq));
        if let Some(stretch) = self.stretches.get_mut(at)
            && stretch.seq.before(seq)
        {
            let mut second = *stretch;
            stretch.end = seq;
            second.begin(seq);
            self.stretches.insert(at + 1, second);
            return at + 1;
        }
        at
    }

    /// Looks for what is lost by now (RFC 8985, 6.2, step 5): whether there is something new, and when to look again if
    /// nothing is heard.
    pub fn detect(&mut self, now: Instant, window: Duration) -> (bool, Option<Instant>) {
        let mut found = false;
        let mut again: Option<Instant> = None;
        for at in 0..self.stretches.len() {
            let stretch = self.stretches[at];
            if stretch.fate != Fate::OnItsWay {
                continue;
            }
            if !self.rack.is_before(stretch.at, stretch.end) {
                if stretch.again {
                    continue;
                }
                // Those behind it were sent later still.
                break;
            }
            let due = stretch.at + self.rack.rtt() + window;
            if due <= now {
                self.lose(at);
                found = true;
            } else {
                again = Some(again.map_or(due, |other| other.max(due)));
            }
        }
        (found, again)
    }

    fn lose(&mut self, at: usize) {
        let stretch = &mut self.stretches[at];
        if stretch.fate == Fate::OnItsWay {
            stretch.fate = Fate::Lost;
            let len = stretch.len();
            self.on_its_way -= len;
            self.lost += len;
            self.arrived = self.arrived.min(self.on_its_way);
        }
    }

    /// The first `octets` are lost (RFC 6582: without SACK).
    pub fn lose_first(&mut self, octets: u32) {
        if let Some(first) = self.stretches.front() {
            let end = SeqNumber(first.seq.0.wrapping_add(octets.min(first.len())));
            self.cut(end);
            self.lose(0);
        }
    }

    /// What of these octets did not arrive is lost.
    pub fn lose_between(&mut self, seq: SeqNumber, end: SeqNumber) {
        self.cut(end);
        let mut at = self.cut(seq);
        while self.stretches.get(at).is_some_and(|stretch| stretch.end.at_or_before(end)) {
            self.lose(at);
            at += 1;
        }
    }

    /// Everything that did not arrive is lost: nothing was heard in time (RFC 6675, 5.1). If what is first is said to have
    /// arrived, the other side has thrown it away (RFC 2018, 8).
    pub fn lose_all(&mut self) {
        if self.stretches.front().is_some_and(|first| first.fate == Fate::Sacked) {
            self.forget_sacked();
        }
        self.arrived = 0;
        for at in 0..self.stretches.len() {
            self.lose(at);
        }
    }

    fn forget_sacked(&mut self) {
        for stretch in &mut self.stretches {
            if stretch.fate == Fate::Sacked {
                stretch.fate = Fate::OnItsWay;
            }
        }
        self.on_its_way += self.sacked;
        self.sacked = 0;
    }

    /// What was lost was on its way after all.
    pub fn find_all(&mut self) {
        for stretch in &mut self.stretches {
            if stretch.fate == Fate::Lost {
                stretch.fate = Fate::OnItsWay;
            }
        }
        self.on_its_way += self.lost;
        self.lost = 0;
    }

    /// One more acknowledgement came that acknowledged nothing, so a segment has arrived: without SACK.
    pub fn in_vain(&mut self, octets: u32) {
        self.arrived = (self.arrived + octets).min(self.on_its_way);
    }

    /// Acknowledgements in vain are counted anew.
    pub fn in_vain_over(&mut self, octets: u32) {
        self.arrived = self.arrived.saturating_sub(octets);
    }

    /// The first octets that are lost, `most` of them: they are sent again.
    pub fn first_lost(&self) -> Option<(SeqNumber, u32)> {
        if self.lost == 0 {
            return None;
        }
        self.stretches.iter().find(|s| s.fate == Fate::Lost).map(|s| (s.seq, s.len()))
    }

    /// So many octets from there on, all of one stretch, are sent again.
    pub fn again(&mut self, now: Instant, seq: SeqNumber, len: u32) {
        let at = self.cut(seq);
        let end = SeqNumber(seq.0.wrapping_add(len));
        self.cut(end);
        let Some(stretch) = self.stretches.get_mut(at) else { return };
        let (fate, len) = (stretch.fate, stretch.len());
        (stretch.at, stretch.again, stretch.fate) = (now, true, Fate::OnItsWay);
        self.leaves(fate, len);
        self.on_its_way += len;
    }

    /// The last segment, for a probe (RFC 8985, 7.3), with the FIN if that was sent; where it begins is not known: the last octets, `most` of
    /// them.
    pub fn last(&self, most: u32, fin: bool) -> Option<(SeqNumber, u32)> {
        let last = self.stretches.back()?;
        let len = match u32::from(last.segment) {
            1 => last.len().min(most),
            segment => {
                let before = last.len().saturating_sub(1 + u32::from(fin)) / segment * segment;
                last.len() - before
            }
        };
        Some((SeqNumber(last.end.0.wrapping_sub(len)), len))
    }

    /// When the first octets were sent last.
    pub fn first_at(&self) -> Option<Instant> {
        self.stretches.front().map(|s| s.at)
    }

    /// Gives back memory, if there is nothing to remember.
    pub fn release(&mut self) {
        if self.stretches.is_empty() {
            self.stretches = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn block(left: u32, right: u32) -> SackBlock {
        SackBlock { left: SeqNumber(left), right: SeqNumber(right) }
    }

    /// Ten segments of 100 octets, one a millisecond.
    fn ten() -> Sent {
        let mut sent = Sent::default();
        for n in 0..10 {
            sent.push(at(u64::from(n)), SeqNumber(n * 100), SeqNumber(n * 100 + 100), 1);
        }
        sent
    }

    #[test]
    fn acknowledged_octets_are_forgotten_and_measure_a_round_trip() {
        let mut sent = ten();
        let mut told = Delivered::default();
        sent.ack(at(50), SeqNumber(250), &mut told);
        assert_eq!((told.octets, told.acked, told.again), (250, 250, false));
        assert_eq!(told.once, Some(SeqNumber(100)));
        assert_eq!(told.rtt, Some(Duration::from_millis(48)), "the last segment of which octets arrived");
        assert_eq!((sent.pipe(), sent.octets()), (750, 750));
    }

    #[test]
    fn what_was_sent_well_before_something_that_arrived_is_lost() {
        let mut sent = ten();
        let mut told = Delivered::default();
        sent.sack(at(52), block(200, 300), &mut told);
        assert_eq!(
            (told.octets, told.acked, told.sacked, sent.sacked(), sent.pipe()),
            (100, 0, true, 100, 900)
        );
        // The round trip is 50 ms: octets that were sent at 0 and 1 ms are late at 50 and 51 ms, and a window is allowed.
        assert_eq!(sent.detect(at(52), Duration::from_millis(10)), (false, Some(at(61))));
        assert_eq!(sent.detect(at(60), Duration::from_millis(10)), (true, Some(at(61))));
        assert_eq!((sent.first_lost(), sent.lost()), (Some((SeqNumber(0), 100)), 100));
        assert_eq!(sent.detect(at(61), Duration::from_millis(10)), (true, None));
        sent.again(at(61), SeqNumber(0), 60);
        assert_eq!((sent.first_lost(), sent.lost(), sent.pipe()), (Some((SeqNumber(60), 40)), 140, 760));
        let mut told = Delivered::default();
        sent.ack(at(111), SeqNumber(60), &mut told);
        assert_eq!((told.rtt, told.again, told.once), (None, true, None), "which copy arrived is not known");
    }

    #[test]
    fn a_time_out_loses_all_that_did_not_arrive_and_what_a_receiver_threw_away() {
        let mut sent = ten();
        sent.sack(at(50), block(500, 600), &mut Delivered::default());
        sent.lose_all();
        assert_eq!((sent.lost(), sent.sacked(), sent.pipe()), (900, 100, 0));
        sent.ack(at(60), SeqNumber(500), &mut Delivered::default());
        sent.lose_all();
        assert_eq!((sent.lost(), sent.sacked(), sent.first_lost()), (500, 0, Some((SeqNumber(500), 100))));
        sent.find_all();
        assert_eq!((sent.lost(), sent.pipe()), (0, 500));
    }

    #[test]
    fn without_sack_acknowledgements_in_vain_make_room() {
        let mut sent = ten();
        (0..3).for_each(|_| sent.in_vain(100));
        sent.lose_first(100);
        assert_eq!((sent.pipe(), sent.lost()), (600, 100));
        sent.again(at(60), SeqNumber(0), 100);
        assert_eq!((sent.pipe(), sent.lost()), (700, 0));
        sent.ack(at(99), SeqNumber(800), &mut Delivered::default());
        assert_eq!((sent.pipe(), sent.octets()), (0, 200));
        sent.in_vain_over(200);
        assert_eq!(sent.pipe(), 200);
    }

    #[test]
    fn blocks_cut_into_a_bounded_number_of_pieces() {
        let mut sent = Sent::default();
        sent.push(at(0), SeqNumber(0), SeqNumber(65_536), 1);
        for left in (1..60_000).step_by(2) {
            sent.sack(at(9), block(left, left + 1), &mut Delivered::default());
        }
        assert!((500..=514).contains(&sent.stretches.len()), "{}", sent.stretches.len());
        // Those of what was sent in single octets cut nothing.
        let mut sent = Sent::default();
        (0..2000).for_each(|n| sent.push(at(0), SeqNumber(n), SeqNumber(n + 1), 1));
        sent.sack(at(9), block(1001, 1900), &mut Delivered::default());
        assert_eq!(sent.sacked(), 899);
    }

    #[test]
    fn only_whole_segments_have_arrived() {
        let told_of = |blocks: &[(u32, u32)]| {
            let mut sent = Sent::default();
            sent.push(at(0), SeqNumber(0), SeqNumber(3500), 1000);
            sent.push(at(0), SeqNumber(3500), SeqNumber(3600), 1000);
            for (left, right) in blocks {
                sent.sack(at(9), block(*left, *right), &mut Delivered::default());
            }
            sent
        };
        for parts in [(999, 1000), (1000, 1999), (1, 1999), (3499, 3500), (3000, 3499), (3500, 3599)] {
            assert_eq!(told_of(&[parts]).sacked(), 0, "{parts:?}");
        }
        assert_eq!(told_of(&[(1000, 2000)]).sacked(), 1000);
        assert_eq!(told_of(&[(500, 3200)]).sacked(), 2000);
        assert_eq!(told_of(&[(3000, 3500), (3500, 3600)]).sacked(), 600, "the last one is as long as it is");
        assert_eq!(told_of(&[(2500, 3600)]).sacked(), 600);
        // Where segments begin is not known any more.
        let mut sent = told_of(&[]);
        sent.ack(at(9), SeqNumber(500), &mut Delivered::default());
        sent.sack(at(9), block(2000, 2001), &mut Delivered::default());
        assert_eq!(sent.sacked(), 1);
        assert_eq!(told_of(&[]).last(50, false), Some((SeqNumber(3500), 100)));
        let mut sent = Sent::default();
        sent.push(at(0), SeqNumber(0), SeqNumber(3001), 1000);
        assert_eq!(
            (sent.last(9, false), sent.last(9, true)),
            (Some((SeqNumber(3000), 1)), Some((SeqNumber(2000), 1001)))
        );
    }

    #[test]
    fn blocks_of_what_was_never_sent_are_ignored() {
        let mut sent = ten();
        let mut told = Delivered::default();
        for (left, right) in
            [(900, 1001), (300, 300), (300, 200), (u32::MAX - 5, 100), (0x8000_0000, 0x8000_0100)]
        {
            sent.sack(at(50), block(left, right), &mut told);
        }
        assert_eq!((told.octets, sent.sacked()), (0, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

        #[test]
        fn its_counts_are_those_of_its_octets(
            base in prop_oneof![Just(0u32), Just(u32::MAX - 2000), any::<u32>()],
            steps in prop::collection::vec((0..9u8, 0..3000u32, 1..700u32), 1..80),
        ) {
            let seq = |n: u32| SeqNumber(base.wrapping_add(n));
            let mut sent = Sent::default();
            let (mut una, mut nxt) = (0u32, 0u32);
            // Of each octet from una on: its fate.
            let mut octets: Vec<Fate> = Vec::new();
            for (n, (what, x, len)) in steps.into_iter().enumerate() {
                let now = at(n as u64);
                let mut told = Delivered::default();
                match what {
                    0..=2 => {
                        sent.push(now, seq(nxt), seq(nxt + len), 1);
                        nxt += len;
                        octets.extend((0..len).map(|_| Fate::OnItsWay));
                    }
                    3 => {
                        let upto = una + x.min(nxt - una);
                        sent.ack(now, seq(upto), &mut told);
                        let gone = octets.drain(..(upto - una) as usize);
                        prop_assert_eq!(told.octets as usize, gone.filter(|f| *f != Fate::Sacked).count());
                        prop_assert_eq!(told.acked, upto - una);
                        una = upto;
                    }
                    4 | 5 => {
                        let left = una + x;
                        let right = left + len;
                        sent.sack(now, SackBlock { left: seq(left), right: seq(right) }, &mut told);
                        if right <= nxt {
                            let mut fresh = 0;
                            for fate in &mut octets[(left - una) as usize..(right - una) as usize] {
                                fresh += u32::from(*fate != Fate::Sacked);
                                *fate = Fate::Sacked;
                            }
                            prop_assert_eq!(told.octets, fresh);
                        }
                    }
                    6 => {
                        sent.lose_all();
                        if octets.first() == Some(&Fate::Sacked) {
                            octets.fill(Fate::Lost);
                        }
                        octets.iter_mut().filter(|f| **f == Fate::OnItsWay).for_each(|f| *f = Fate::Lost);
                    }
                    7 => {
                        if let Some((first, most)) = sent.first_lost() {
                            let from = first.since(seq(una)) as usize;
                            let len = most.min(len);
                            prop_assert_eq!(octets.iter().position(|f| *f == Fate::Lost), Some(from));
                            prop_assert!(octets[from..from + most as usize].iter().all(|f| *f == Fate::Lost));
                            sent.again(now, first, len);
                            octets[from..from + len as usize].fill(Fate::OnItsWay);
                        }
                    }
                    _ => {
                        sent.find_all();
                        octets.iter_mut().filter(|f| **f == Fate::Lost).for_each(|f| *f = Fate::OnItsWay);
                    }
                }
                let count = |fate: Fate| octets.iter().filter(|f| **f == fate).count() as u32;
                prop_assert_eq!(sent.pipe(), count(Fate::OnItsWay));
                prop_assert_eq!(sent.lost(), count(Fate::Lost));
                prop_assert_eq!(sent.sacked(), count(Fate::Sacked));
                prop_assert_eq!(sent.octets(), nxt - una);
            }
        }
    }
}
