//! A three-level bitmap in shared memory: many mark, one process takes. It is the body of the inbox, kept apart
//! and generic in its size so that loom checks the same code on a small one.

use crate::atomic::{AtomicU64, Ordering::*};

/// `MIDDLE` words of 64 bits each stand for 64 `low` words; `LOW * 64` numbers can be marked. `repr(C)`, atomics
/// only.
#[repr(C)]
#[derive(Debug)]
pub struct Marks<const MIDDLE: usize, const LOW: usize> {
    /// Bit i: `middle[i]` may be not empty.
    pub top: AtomicU64,
    /// Keeps the word that everybody polls away from the words that markers write.
    pub pad: [AtomicU64; 15],
    /// Bit j of word i: `low[64 * i + j]` may be not empty.
    pub middle: [AtomicU64; MIDDLE],
    /// One bit per number.
    pub low: [AtomicU64; LOW],
}

impl<const MIDDLE: usize, const LOW: usize> Marks<MIDDLE, LOW> {
    /// An empty bitmap, for tests and models (shared memory starts as zeroes).
    pub fn new() -> Self {
        let word = |_| AtomicU64::new(0);
        Marks {
            top: word(0),
            pad: std::array::from_fn(word),
            middle: std::array::from_fn(word),
            low: std::array::from_fn(word),
        }
    }

    /// Marks a number (modulo the size): lowest level first, so that who sees the top finds the rest.
    ///
    /// Every marker makes sure of all three levels itself. A bit that is set already says nothing about the level
    /// above: another marker may have been stopped or killed between the two.
    pub fn mark(&self, number: u32) {
        let number = number as usize % (LOW * 64);
        let raise = |word: &AtomicU64, bit: u64| {
            // A set bit: the swap that takes it comes after this load, so `drain` sees what we set below it.
            if word.load(SeqCst) & bit == 0 {
                word.fetch_or(bit, SeqCst);
            }
        };
        // Always a read-modify-write: it orders what the marker published before against what it looks at next.
        self.low[number / 64].fetch_or(1 << (number % 64), SeqCst);
        raise(&self.middle[number / 4096], 1 << (number / 64 % 64));
        raise(&self.top, 1 << (number / 4096));
    }

    /// Whether anything is marked: one load.
    #[inline]
    pub fn is_marked(&self) -> bool {
        self.top.load(Acquire) != 0
    }

    /// Takes every mark, calling `f` with each number: highest level first, so that a mark made meanwhile is
    /// found now or leaves the top set.
    pub fn drain(&self, f: impl FnMut(u32)) {
        self.drain_below((LOW * 64) as u32, f);
    }

    /// The same where only the first `count` numbers stand for something: the words of the others are not read, whoever has marked
    /// them. False: somebody has.
    pub fn drain_below(&self, count: u32, mut f: impl FnMut(u32)) -> bool {
        let mut top = self.top.swap(0, SeqCst);
        while top != 0 {
            let i = top.trailing_zeros();
            top &= top - 1;
            let Some(middle) = self.middle.get(i as usize).filter(|_| i * 4096 < count) else { return false };
            let mut words = middle.swap(0, SeqCst);
            while words != 0 {
                let j = i * 64 + words.trailing_zeros();
                words &= words - 1;
                let Some(low) = self.low.get(j as usize).filter(|_| j * 64 < count) else { return false };
                let mut bits = low.swap(0, SeqCst);
                while bits != 0 {
                    let number = j * 64 + bits.trailing_zeros();
                    bits &= bits - 1;
                    if number >= count {
                        return false;
                    }
                    f(number);
                }
            }
        }
        true
    }
}

impl<const MIDDLE: usize, const LOW: usize> Default for Marks<MIDDLE, LOW> {
    fn default() -> Self {
        Marks::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_marker_killed_half_way_hides_no_later_mark() {
        let marks = Marks::<2, 128>::new();
        // Somebody set the lowest bit and was killed; the top is busy with other news.
        marks.low[0].store(1 << 5, Relaxed);
        marks.mark(4096);
        marks.mark(5);
        let mut seen = Vec::new();
        marks.drain(|n| seen.push(n));
        assert_eq!(seen, [5, 4096]);
    }
    #[test]
    fn numbers_that_stand_for_nothing_are_told_and_their_words_not_read() {
        let marks = Marks::<16, 1024>::new();
        let drained = |count| {
            let mut seen = Vec::new();
            let honest = marks.drain_below(count, |n| seen.push(n));
            (seen, honest)
        };
        (0..70).for_each(|n| marks.mark(n));
        assert_eq!(drained(70), ((0..70).collect(), true));
        // In the last word that is read, in one behind it, and behind all that its word of the middle stands for.
        for above in [70, 128, 65_535] {
            marks.mark(3);
            marks.mark(above);
            assert_eq!(drained(70), (vec![3], false), "{above}");
            assert!(!marks.is_marked());
        }
        assert!([2, 1023].iter().all(|word| marks.low[*word].load(Relaxed) != 0));
        // Nor is one that has none at all: all that is set is told once.
        marks.mark(0);
        assert_eq!((drained(0), drained(0)), ((vec![], false), (vec![], true)));
        // What stood there is found when it is marked again, and there is something.
        marks.mark(129);
        assert_eq!(drained(4096), (vec![0, 128, 129], true));
    }
}
