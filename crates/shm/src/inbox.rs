//! The inbox of a process: which of its ends have news, found in O(news), and which bells have a sleeper.
//!
//! One memfd per process, mapped by it and by its peers. A peer can mark, clear or ring without reason: that costs
//! its victim a look, or a wake, of connections with processes of the same user (or users it allowed).

use crate::family::ENDS;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Bells a family can have.
pub const BELLS: usize = 8192;

/// A three-level bitmap of end numbers and the sleepers' tickets. `repr(C)`, atomics only.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Inbox {
    /// Bit i: `middle[i]` is not empty.
    pub top: AtomicU64,
    _pad: [AtomicU64; 15],
    middle: [AtomicU64; ENDS / 4096],
    low: [AtomicU64; ENDS / 64],
    /// Per bell the ticket of its sleeper, 0 = nobody sleeps.
    pub asleep: [AtomicU32; BELLS],
}

impl Inbox {
    /// Marks an end: lowest level first, so that who sees the top finds the rest.
    pub fn mark(&self, end: u32) {
        let end = end as usize % ENDS;
        let bit = 1 << (end % 64);
        if self.low[end / 64].fetch_or(bit, SeqCst) & bit == 0 || self.top.load(SeqCst) == 0 {
            self.middle[end / 4096].fetch_or(1 << (end / 64 % 64), SeqCst);
            self.top.fetch_or(1 << (end / 4096), SeqCst);
        }
    }

    /// Whether anything is marked: one load.
    #[inline]
    pub fn is_marked(&self) -> bool {
        self.top.load(Acquire) != 0
    }

    /// Takes every mark, calling `f` with each end: highest level first, so that a mark made meanwhile is
    /// found now or leaves the top set.
    pub fn drain(&self, mut f: impl FnMut(u32)) {
        let mut top = self.top.swap(0, SeqCst);
        while top != 0 {
            let i = top.trailing_zeros() as usize;
            top &= top - 1;
            let Some(middle) = self.middle.get(i) else { continue };
            let mut words = middle.swap(0, SeqCst);
            while words != 0 {
                let j = i * 64 + words.trailing_zeros() as usize;
                words &= words - 1;
                let mut bits = self.low[j].swap(0, SeqCst);
                while bits != 0 {
                    f((j * 64) as u32 + bits.trailing_zeros());
                    bits &= bits - 1;
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #[test]
    fn marks_come_out_once_and_in_order() {
        let (inbox, _fd) = crate::region::new_inbox(3).unwrap();
        for e in [0, 63, 64, 4095, 4096, 65535, 64] {
            inbox.mark(e);
        }
        assert!(inbox.is_marked());
        let mut seen = Vec::new();
        inbox.drain(|e| seen.push(e));
        assert_eq!(seen, [0, 63, 64, 4095, 4096, 65535]);
        assert!(!inbox.is_marked());
    }
}
