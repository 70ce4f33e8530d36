//! The inbox of a process: which of its ends have news, found in O(news), and which bells have a sleeper.
//!
//! One memfd per process, mapped by it and by its peers. A peer can mark, clear or ring without reason: that costs
//! its victim a look, or a wake, of connections with processes of the same user (or users it allowed).

use crate::family::ENDS;
use crate::marks::Marks;
use std::ffi::CStr;
use std::sync::atomic::AtomicU32;

/// Name of the memfd; it shows as `/memfd:bypath-inbox (deleted)` in /proc/PID/fd.
pub const INBOX_NAME: &CStr = c"bypath-inbox";
/// Bells a family can have.
pub const BELLS: usize = 8192;

/// Words of eight octets of a message between processes that share memory; the second one is [`MESSAGE_VERSION`].
pub const MESSAGE_WORDS: usize = 14;
/// Version of these messages.
pub const MESSAGE_VERSION: u64 = 1;
/// First word of the message that brings a bell (an eventfd); the third one is the bell's number.
pub const BELL: u64 = 0x6c6c6542;
/// Set in a bell's number in a wait word: the waker marks the inbox first, and rings only if the bell has a sleeper there.
pub const MARKED_BELL: u32 = 1 << 31;

/// A three-level bitmap of end numbers and the sleepers' tickets. `repr(C)`, atomics only.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Inbox {
    /// The ends that have news.
    pub marks: Marks<{ ENDS / 4096 }, { ENDS / 64 }>,
    /// Per bell the ticket of its sleeper, 0 = nobody sleeps.
    pub asleep: [AtomicU32; BELLS],
}

impl Inbox {
    /// Marks an end.
    pub fn mark(&self, end: u32) {
        self.marks.mark(end);
    }

    /// Whether anything is marked: one load.
    #[inline]
    pub fn is_marked(&self) -> bool {
        self.marks.is_marked()
    }

    /// Takes every mark, calling `f` with each end.
    pub fn drain(&self, f: impl FnMut(u32)) {
        self.marks.drain(f);
    }

    /// The same where only the first `count` ends are there. False: another one is marked.
    pub fn drain_below(&self, count: u32, f: impl FnMut(u32)) -> bool {
        self.marks.drain_below(count, f)
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
