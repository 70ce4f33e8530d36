//! What was on the links, in the order in which it was sent.

use crate::LinkId;
use bypath_stack::time::Instant;
use std::collections::VecDeque;

/// A frame that somebody put on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When.
    pub at: Instant,
    /// On which link.
    pub link: LinkId,
    /// As it was sent, or as it came out of the link with a wrong bit.
    pub frame: Vec<u8>,
    /// What became of it, if that is not what the sender wants.
    pub remark: String,
}

/// The last frames of a run.
#[derive(Debug)]
pub struct Record {
    frames: VecDeque<Sent>,
    most: usize,
    left_out: u64,
}

impl Record {
    pub(crate) const fn new(most: usize) -> Record {
        Record { frames: VecDeque::new(), most, left_out: 0 }
    }

    pub(crate) fn keep(&mut self, most: usize) {
        self.most = most;
        self.frames.truncate(most);
    }

    pub(crate) fn push(&mut self, sent: Sent) {
        if self.frames.len() >= self.most {
            self.left_out += 1;
            self.frames.pop_front();
        }
        if self.most > 0 {
            self.frames.push_back(sent);
        }
    }

    /// The frames, oldest first.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = &Sent> {
        self.frames.iter()
    }

    /// Older ones that were not kept.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.frames.clear();
    }
}
