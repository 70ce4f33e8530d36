//! What arrived out of order: ranges of sequence space ahead of `rcv.nxt`, and the blocks that tell the other side of them
//! (RFC 2018, RFC 2883).

use alloc::boxed::Box;
use alloc::vec::Vec;
use bypath_wire::seq::SeqNumber;
use bypath_wire::tcp_options::{MOST_SACK_BLOCKS, SackBlock, SackBlocks};

/// Ranges at most. Each is a hole that the other side has to fill, and costs a look at each segment that fills one.
const MOST: usize = 128;

/// Ranges that arrived, without gaps between octets of one, and with gaps between two. Where everything comes in order, it takes
/// no memory.
#[derive(Debug, Default)]
pub struct Assembler {
    held: Option<Box<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    /// In the order of the stream.
    ranges: Vec<SackBlock>,
    /// Left edges of the ranges that grew last, the last one first (RFC 2018, 4).
    recent: [Option<SeqNumber>; 4],
    /// What arrived a second time, to be told once (RFC 2883, 4).
    again: Option<SackBlock>,
}

/// There are too many gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl Assembler {
    /// Nothing is ahead.
    pub fn is_empty(&self) -> bool {
        self.held.as_ref().is_none_or(|held| held.ranges.is_empty())
    }

    /// Octets that are ahead, gaps not counted.
    pub fn octets(&self) -> u32 {
        self.held.iter().flat_map(|held| &held.ranges).map(|r| r.right.since(r.left)).sum()
    }

    /// Octets from `left` up to `right` arrived, ahead of `rcv.nxt`.
    ///
    /// # Errors
    /// [`TooMany`]: they cannot be remembered, and are to be forgotten.
    pub fn add(&mut self, left: SeqNumber, right: SeqNumber) -> Result<(), TooMany> {
        self.held.get_or_insert_default().add(left, right)
    }

    /// Octets that were taken already arrived once more: told with the next acknowledgement.
    pub fn duplicate(&mut self, left: SeqNumber, right: SeqNumber) {
        self.held.get_or_insert_default().again = Some(SackBlock { left, right });
    }

    /// Everything before `nxt` is there: how many octets behind it are there, too. They are no longer ahead.
    pub fn take(&mut self, nxt: SeqNumber) -> u32 {
        self.held.as_mut().map_or(0, |held| held.take(nxt))
    }

    /// What to tell with an acknowledgement, `most` blocks at most; what arrived twice is told once.
    pub fn blocks(&mut self, most: usize) -> SackBlocks {
        self.held.as_mut().map_or_else(SackBlocks::new, |held| held.blocks(most))
    }

    /// There is something to tell.
    pub fn has_news(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.again.is_some() || !held.ranges.is_empty())
    }

    /// Gives back memory, if there is nothing to tell.
    pub fn release(&mut self) {
        if !self.has_news() {
            self.held = None;
        }
    }
}

impl Held {
    fn add(&mut self, left: SeqNumber, right: SeqNumber) -> Result<(), TooMany> {
        // Those that end before it are left alone; those that touch it become one with it.
        let first = self.ranges.partition_point(|r| r.right.before(left));
        let touched = self.ranges[first..].iter().take_while(|r| r.left.at_or_before(right)).count();
        let mut whole = SackBlock { left, right };
        if touched == 0 {
            if self.ranges.len() >= MOST {
                return Err(TooMany);
            }
            self.ranges.insert(first, whole);
        } else {
            let (one, last) = (self.ranges[first], self.ranges[first + touched - 1]);
            if one.left.at_or_before(left) && one.right.at_or_after(right) {
                self.again = Some(SackBlock { left, right });
            }
            whole = SackBlock { left: left.earlier(one.left), right: right.later(last.right) };
            self.ranges[first] = whole;
            self.ranges.drain(first + 1..first + touched);
        }
        self.note(whole.left);
        Ok(())
    }

    /// The range that begins there is the most recent one.
    fn note(&mut self, left: SeqNumber) {
        let at = self.recent.iter().position(|r| *r == Some(left)).unwrap_or(self.recent.len() - 1);
        self.recent[..=at].rotate_right(1);
        self.recent[0] = Some(left);
    }

    fn take(&mut self, nxt: SeqNumber) -> u32 {
        let mut end = nxt;
        let done = self.ranges.iter().take_while(|r| r.left.at_or_before(end)).count();
        for range in self.ranges.drain(..done) {
            end = end.later(range.right);
        }
        end.since(nxt)
    }

    fn blocks(&mut self, most: usize) -> SackBlocks {
        let mut blocks = SackBlocks::new();
        let most = most.min(MOST_SACK_BLOCKS);
        // RFC 2883, 4: what arrived twice is the first block, before the one that has most recently grown.
        if let Some(again) = self.again.take() {
            let _fits = blocks.push(again);
        }
        let twice = blocks.as_slice().len();
        let recent = self.recent.iter().flatten().filter_map(|left| self.range_of(*left));
        for range in recent.chain(self.ranges.iter().copied()) {
            let told = blocks.as_slice();
            if told.len() >= most {
                break;
            }
            if !told[twice..].contains(&range) {
                let _fits = blocks.push(range);
            }
        }
        blocks
    }

    fn range_of(&self, left: SeqNumber) -> Option<SackBlock> {
        let at = self.ranges.partition_point(|r| r.right.at_or_before(left));
        self.ranges.get(at).copied().filter(|r| r.left.at_or_before(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    fn blocks(assembler: &mut Assembler, most: usize) -> Vec<(u32, u32)> {
        assembler.blocks(most).as_slice().iter().map(|b| (b.left.0, b.right.0)).collect()
    }

    fn add(assembler: &mut Assembler, left: u32, right: u32) {
        assembler.add(SeqNumber(left), SeqNumber(right)).unwrap();
    }

    #[test]
    fn the_block_that_grew_last_is_told_first() {
        let mut a = Assembler::default();
        add(&mut a, 100, 200);
        add(&mut a, 300, 400);
        add(&mut a, 500, 600);
        assert_eq!(blocks(&mut a, 4), [(500, 600), (300, 400), (100, 200)]);
        add(&mut a, 200, 250);
        assert_eq!(blocks(&mut a, 3), [(100, 250), (500, 600), (300, 400)]);
        // A range that two others became is told once.
        add(&mut a, 250, 300);
        assert_eq!(blocks(&mut a, 2), [(100, 400), (500, 600)]);
        assert_eq!(a.take(SeqNumber(100)), 300);
        assert_eq!(blocks(&mut a, 4), [(500, 600)]);
    }

    #[test]
    fn what_arrived_twice_is_told_once_and_first() {
        let mut a = Assembler::default();
        add(&mut a, 100, 200);
        a.duplicate(SeqNumber(50), SeqNumber(60));
        assert_eq!(blocks(&mut a, 4), [(50, 60), (100, 200)]);
        assert_eq!(blocks(&mut a, 4), [(100, 200)]);
        add(&mut a, 120, 140);
        assert_eq!(blocks(&mut a, 4), [(120, 140), (100, 200)]);
    }

    #[test]
    fn gaps_are_bounded() {
        let mut a = Assembler::default();
        for n in 0..MOST as u32 {
            add(&mut a, 10 + n * 10, 15 + n * 10);
        }
        assert_eq!(a.add(SeqNumber(5), SeqNumber(6)), Err(TooMany));
        // One that makes no gap is welcome.
        add(&mut a, 15, 20);
        assert_eq!(a.octets(), MOST as u32 * 5 + 5);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

        #[test]
        fn it_knows_which_octets_are_there(
            base in prop_oneof![Just(0u32), Just(u32::MAX - 300), any::<u32>()],
            steps in prop::collection::vec((0..600u32, 1..40u32, prop::bool::weighted(0.1)), 1..60),
        ) {
            let mut assembler = Assembler::default();
            let mut model: BTreeSet<u32> = BTreeSet::new();
            let mut nxt = 0u32;
            for (at, len, takes) in steps {
                if takes {
                    // Whatever is missing up to the next octet comes.
                    let next = model.first().copied().unwrap_or(nxt);
                    let mut end = next;
                    while model.remove(&end) {
                        end += 1;
                    }
                    prop_assert_eq!(assembler.take(SeqNumber(base.wrapping_add(next))), end - next);
                    nxt = end;
                } else {
                    let left = nxt + 1 + at;
                    let (l, r) = (base.wrapping_add(left), base.wrapping_add(left + len));
                    if assembler.add(SeqNumber(l), SeqNumber(r)).is_ok() {
                        model.extend(left..left + len);
                    }
                }
                prop_assert_eq!(assembler.octets() as usize, model.len());
                for block in assembler.blocks(4).as_slice() {
                    let (l, r) = (block.left.0.wrapping_sub(base), block.right.0.wrapping_sub(base));
                    prop_assert!(l < r && (l..r).all(|octet| model.contains(&octet)));
                }
            }
        }
    }
}
