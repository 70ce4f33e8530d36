//! Octets of a stream between the application and the segments: a queue in one piece of memory that goes round.
//!
//! Memory is taken when octets come and doubled up to a bound; an empty queue can give it back. The octets ahead of the
//! queue may be written out of order, and become part of it when what was missing has come.

use alloc::boxed::Box;
use alloc::vec;
use bypath_wire::checksum::Sum;
use core::fmt;

/// The first piece of memory: short messages need no more.
const FIRST: usize = 512;
/// Octets that each connection may have, whatever others have: one segment of most links.
pub const LEAST: usize = 2048;

/// A queue of octets.
#[derive(Default)]
pub struct Buffer {
    /// A power of two octets, or none.
    memory: Box<[u8]>,
    head: usize,
    len: usize,
}

impl fmt::Debug for Buffer {
    /// How many octets, not which.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} octets", self.len, self.memory.len())
    }
}

impl Buffer {
    /// Octets in it.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// None.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Octets of memory that it holds.
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// Makes room for `want` octets in all, those ahead of the queue included: whatever lies within the old size stays.
    fn grow(&mut self, want: usize) {
        if want <= self.memory.len() {
            return;
        }
        let size = want.next_power_of_two().max(FIRST);
        let mut memory = vec![0; size].into_boxed_slice();
        let (first, second) = self.memory.split_at(self.head);
        memory[..second.len()].copy_from_slice(second);
        memory[second.len()..second.len() + first.len()].copy_from_slice(first);
        (self.memory, self.head) = (memory, 0);
    }

    /// The two pieces of memory of `len` octets from `from` octets behind the head.
    fn place(&self, from: usize, len: usize) -> (core::ops::Range<usize>, usize) {
        let start = (self.head + from) & (self.memory.len().wrapping_sub(1));
        let first = len.min(self.memory.len() - start);
        (start..start + first, len - first)
    }

    /// Appends as many octets as there is room for, with `most` in the queue in all; how many.
    pub fn push(&mut self, bytes: &[u8], most: usize) -> usize {
        let n = bytes.len().min(most.saturating_sub(self.len));
        self.write_ahead(0, &bytes[..n]);
        self.len += n;
        n
    }

    /// Lets `fill` append octets, `len` at most, with `most` in the queue in all; how many it says that it wrote. It gets one piece of
    /// memory, which may be shorter. `None`: there is no room.
    pub fn push_with(
        &mut self,
        len: usize,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Option<usize> {
        let n = len.min(most.saturating_sub(self.len));
        if n == 0 {
            return None;
        }
        self.grow(self.len + n);
        let (piece, _) = self.place(self.len, n);
        let piece = &mut self.memory[piece];
        let written = fill(piece).min(piece.len());
        self.len += written;
        Some(written)
    }

    /// Writes octets `ahead` of the end of the queue, without making them part of it.
    pub fn write_ahead(&mut self, ahead: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.grow(self.len + ahead + bytes.len());
        let (first, rest) = self.place(self.len + ahead, bytes.len());
        let (a, b) = bytes.split_at(bytes.len() - rest);
        self.memory[first].copy_from_slice(a);
        self.memory[..rest].copy_from_slice(b);
    }

    /// It takes `n` octets more without more memory.
    #[inline]
    pub fn has_memory(&self, n: usize) -> bool {
        n <= self.memory.len() - self.len
    }

    /// Writes octets at the end of the queue, without making them part of it, and adds them to a sum. There is
    /// [memory](Buffer::has_memory) for them.
    #[inline]
    pub fn write_summed(&mut self, bytes: &[u8], sum: Sum) -> Sum {
        let (first, rest) = self.place(self.len, bytes.len());
        if rest == 0 {
            return sum.copy(&mut self.memory[first], bytes);
        }
        let (a, b) = bytes.split_at(bytes.len() - rest);
        sum.copy(&mut self.memory[first], a).copy(&mut self.memory[..rest], b)
    }

    /// So many octets that were written ahead are part of it now.
    pub fn extend(&mut self, n: usize) {
        debug_assert!(self.len + n <= self.memory.len());
        self.len += n;
    }

    /// The octets from `from` on, `len` at most, in up to two pieces.
    pub fn slices(&self, from: usize, len: usize) -> (&[u8], &[u8]) {
        let len = len.min(self.len.saturating_sub(from));
        if len == 0 {
            return (&[], &[]);
        }
        let (first, rest) = self.place(from, len);
        (&self.memory[first], &self.memory[..rest])
    }

    /// Copies octets from `from` on; how many.
    pub fn copy_out(&self, from: usize, room: &mut [u8]) -> usize {
        let (a, b) = self.slices(from, room.len());
        room[..a.len()].copy_from_slice(a);
        room[a.len()..a.len() + b.len()].copy_from_slice(b);
        a.len() + b.len()
    }

    /// Takes octets away at the head, as many as there are at most.
    pub fn pop(&mut self, n: usize) {
        let n = n.min(self.len);
        if n > 0 {
            self.head = (self.head + n) & (self.memory.len() - 1);
            self.len -= n;
        }
    }

    /// An empty queue begins at the front of its memory again: what is used again and again stays in the processor's caches. Nothing may
    /// be written ahead.
    #[inline]
    pub fn rewind(&mut self) {
        if self.len == 0 {
            self.head = 0;
        }
    }

    /// Gives its memory back, if it is empty and nothing was written ahead.
    pub fn release(&mut self) {
        if self.len == 0 {
            *self = Buffer::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    #[test]
    fn it_takes_memory_when_it_is_used_and_gives_it_back() {
        let mut buffer = Buffer::default();
        assert_eq!((buffer.capacity(), buffer.push(b"", 10), buffer.capacity()), (0, 0, 0));
        assert_eq!(buffer.push(&[7; 5000], 4000), 4000);
        assert_eq!(buffer.push(b"x", 4000), 0);
        assert_eq!(buffer.capacity(), 4096);
        buffer.pop(4000);
        buffer.release();
        assert_eq!(buffer.capacity(), 0);
    }

    #[test]
    fn octets_are_filled_in_up_to_the_end_of_the_memory_and_to_the_bound() {
        let mut buffer = Buffer::default();
        buffer.push(&[1; 2000], 4000);
        buffer.pop(1990);
        // 48 octets are left until it goes round.
        let mut seen = 0;
        let filled = buffer.push_with(100, 4000, |room| {
            seen = room.len();
            room[..40].fill(2);
            40
        });
        assert_eq!((seen, filled, buffer.len()), (48, Some(40), 50));
        // Who says more than there was room for has written as much as there was.
        assert_eq!(buffer.push_with(100, 4000, |_| 1000), Some(8));
        assert_eq!(buffer.push_with(100, 60, |room| room.len()), Some(2));
        assert_eq!(buffer.push_with(100, 60, |_| unreachable!()), None);
        assert_eq!(buffer.push_with(0, 600, |_| unreachable!()), None);
        assert_eq!(buffer.slices(9, 3), (&[1, 2, 2][..], &[][..]));
    }

    #[test]
    fn an_empty_one_begins_at_its_front_again() {
        let mut buffer = Buffer::default();
        buffer.push(&[1; 3000], 4000);
        buffer.pop(2999);
        buffer.rewind();
        assert_eq!(buffer.head, 2999);
        buffer.pop(1);
        buffer.rewind();
        buffer.push(b"abc", 4000);
        assert_eq!((buffer.head, buffer.slices(0, 3)), (0, (&b"abc"[..], &b""[..])));
    }

    #[test]
    fn octets_ahead_become_part_of_it_when_the_gap_is_filled() {
        let mut buffer = Buffer::default();
        buffer.push(b"abc", 100);
        buffer.write_ahead(2, b"fg");
        // It grows, and what lies ahead stays.
        buffer.write_ahead(4, &[b'h'; 3000]);
        buffer.write_ahead(0, b"de");
        buffer.extend(3004);
        let mut room = [0; 8];
        assert_eq!((buffer.len(), buffer.copy_out(0, &mut room), &room), (3007, 8, b"abcdefgh"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

        #[test]
        fn it_does_what_a_queue_does(steps in prop::collection::vec((0..3u8, 0..5000usize), 1..60)) {
            let mut buffer = Buffer::default();
            let mut model: VecDeque<u8> = VecDeque::new();
            let mut next = 0u8;
            for (what, n) in steps {
                match what {
                    0 => {
                        let bytes: Vec<u8> = (0..n).map(|_| { next = next.wrapping_add(1); next }).collect();
                        let taken = buffer.push(&bytes, 20_000);
                        prop_assert_eq!(taken, n.min(20_000 - model.len()));
                        model.extend(&bytes[..taken]);
                    }
                    1 => {
                        buffer.pop(n);
                        buffer.rewind();
                        model.drain(..n.min(model.len()));
                    }
                    _ => {
                        let mut room = std::vec![0; 700];
                        let copied = buffer.copy_out(n, &mut room);
                        let expected: Vec<u8> = model.iter().copied().skip(n).take(700).collect();
                        prop_assert_eq!(&room[..copied], &expected[..]);
                    }
                }
                prop_assert_eq!(buffer.len(), model.len());
            }
        }
    }
}
