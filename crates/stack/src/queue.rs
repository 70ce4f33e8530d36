//! A queue of datagrams: each lies in one piece, beside what is known of it.
//!
//! A queue that was never used has no memory. It grows up to its bound, and what it has it keeps: a datagram costs no
//! allocation once the queue was as long as it gets.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Octets of memory at first.
const FIRST: usize = 2048;
/// What a datagram counts for beside its octets: a queue of empty ones is bounded, too.
const OVERHEAD: usize = 64;

/// There is no room for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Clone, Copy, Debug)]
struct Place<M> {
    meta: M,
    start: usize,
    len: usize,
}

/// Datagrams in their order.
#[derive(Debug)]
pub struct Queue<M> {
    places: VecDeque<Place<M>>,
    octets: Vec<u8>,
    /// Octets, and [`OVERHEAD`] for each.
    used: usize,
    most: usize,
}

impl<M> Queue<M> {
    /// For so many octets at most, with 64 counted for each datagram.
    pub const fn new(most: usize) -> Queue<M> {
        Queue { places: VecDeque::new(), octets: Vec::new(), used: 0, most }
    }

    /// Another bound. What is there stays, even if it is more.
    pub const fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// The bound.
    pub const fn most(&self) -> usize {
        self.most
    }

    /// Adds a datagram of `len` octets, which `fill` writes. What was there before it is called is not told.
    ///
    /// # Errors
    /// [`Full`]: it is not called.
    #[inline]
    pub fn push(&mut self, meta: M, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        let used = self.used + len + OVERHEAD;
        // Most are empty when something comes.
        if self.places.is_empty() && len <= self.octets.len() {
            fill(&mut self.octets[..len]);
            self.places.push_back(Place { meta, start: 0, len });
            self.used = used;
            return Ok(());
        }
        // An empty queue takes a datagram of any length: otherwise it would never be taken.
        if used > self.most && !self.places.is_empty() {
            return Err(Full);
        }
        let start = match self.room(len) {
            Some(start) => start,
            None => {
                self.grow(len);
                self.room(len).ok_or(Full)?
            }
        };
        fill(&mut self.octets[start..start + len]);
        self.places.push_back(Place { meta, start, len });
        self.used = used;
        Ok(())
    }

    /// The first one.
    #[inline]
    pub fn front(&self) -> Option<(&M, &[u8])> {
        let place = self.places.front()?;
        Some((&place.meta, &self.octets[place.start..place.start + place.len]))
    }

    /// What is known of the first one, to be changed.
    pub fn front_meta(&mut self) -> Option<&mut M> {
        self.places.front_mut().map(|place| &mut place.meta)
    }

    /// Removes the first one.
    #[inline]
    pub fn pop(&mut self) -> Option<M> {
        let place = self.places.pop_front()?;
        self.used -= place.len + OVERHEAD;
        Some(place.meta)
    }

    /// Removes all of them; the memory stays.
    pub fn clear(&mut self) {
        self.places.clear();
        self.used = 0;
    }

    /// Datagrams.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Octets of memory that it has.
    #[inline]
    pub fn memory(&self) -> usize {
        self.octets.len() + self.places.capacity() * size_of::<Place<M>>()
    }

    /// Gives its memory back, if there is none in it.
    pub fn shrink(&mut self) {
        if self.is_empty() {
            (self.places, self.octets) = (VecDeque::new(), Vec::new());
        }
    }

    /// Octets of the bound that are left.
    pub const fn free(&self) -> usize {
        self.most.saturating_sub(self.used)
    }

    /// Octets that count against the bound.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Whether a datagram of `len` octets fits.
    pub fn fits(&self, len: usize) -> bool {
        self.places.is_empty() || self.used + len + OVERHEAD <= self.most
    }

    /// Where `len` octets in one piece are free: behind the last datagram, or before the first.
    fn room(&self, len: usize) -> Option<usize> {
        let (Some(first), Some(last)) = (self.places.front(), self.places.back()) else {
            return (len <= self.octets.len()).then_some(0);
        };
        let end = last.start + last.len;
        let wrapped = last.start < first.start;
        let limit = if wrapped { first.start } else { self.octets.len() };
        if end + len <= limit {
            return Some(end);
        }
        // Never up to the first one: one that lies where it begins would be taken for the first of all.
        (!wrapped && len < first.start).then_some(0)
    }

    /// More memory, with the datagrams at its beginning.
    #[cold]
    fn grow(&mut self, len: usize) {
        let needed = self.places.iter().map(|p| p.len).sum::<usize>() + len;
        // Twice as much as is needed, so that no hole at the end is in the way.
        let size = (2 * self.octets.len()).max(FIRST).max(2 * needed).min(2 * self.most.max(needed));
        let mut octets = vec![0; size];
        let mut end = 0;
        for place in &mut self.places {
            octets[end..end + place.len].copy_from_slice(&self.octets[place.start..place.start + place.len]);
            place.start = end;
            end += place.len;
        }
        self.octets = octets;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn push(queue: &mut Queue<u32>, number: u32, len: usize) -> Result<(), Full> {
        queue.push(number, len, |octets| octets.fill(number as u8))
    }

    #[test]
    fn what_goes_in_comes_out_in_its_order() {
        let mut queue = Queue::new(1000);
        assert_eq!((queue.front(), queue.octets.capacity()), (None, 0));
        assert_eq!([push(&mut queue, 1, 3), push(&mut queue, 2, 0), push(&mut queue, 3, 5)], [Ok(()); 3]);
        assert_eq!((queue.len(), queue.used()), (3, 8 + 3 * OVERHEAD));
        for (number, octets) in [(1, &[1; 3][..]), (2, &[]), (3, &[3; 5])] {
            assert_eq!(queue.front(), Some((&number, octets)));
            assert_eq!(queue.pop(), Some(number));
        }
        assert_eq!((queue.pop(), queue.used()), (None, 0));
    }

    #[test]
    fn the_bound_counts_datagrams_as_well_as_octets() {
        let mut queue = Queue::new(10 * OVERHEAD);
        let taken = (0..100).take_while(|n| push(&mut queue, *n, 0).is_ok()).count();
        assert_eq!(taken, 10);
        assert!(!queue.fits(0));
        // The first one may be longer than the bound.
        queue.clear();
        assert_eq!([push(&mut queue, 1, 60_000), push(&mut queue, 2, 0)], [Ok(()), Err(Full)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

        #[test]
        fn it_does_what_a_list_of_vectors_does(
            steps in prop::collection::vec(prop_oneof![2 => (0..900usize).prop_map(Some), 1 => Just(None)], 1..200),
            most in 1000..5000usize,
        ) {
            let mut queue = Queue::new(most);
            let mut model: VecDeque<(u32, usize)> = VecDeque::new();
            for (number, step) in (0u32..).zip(steps) {
                match step {
                    Some(len) => {
                        let used: usize = model.iter().map(|(_, len)| len + OVERHEAD).sum();
                        let fits = model.is_empty() || used + len + OVERHEAD <= most;
                        prop_assert_eq!((queue.used(), queue.fits(len)), (used, fits));
                        prop_assert_eq!(push(&mut queue, number, len).is_ok(), fits);
                        if fits {
                            model.push_back((number, len));
                        }
                    }
                    None => prop_assert_eq!(queue.pop(), model.pop_front().map(|(number, _)| number)),
                }
                let front = model.front().map(|(number, len)| (*number, vec![*number as u8; *len]));
                let found = queue.front().map(|(number, octets)| (*number, octets.to_vec()));
                prop_assert_eq!(found, front);
                prop_assert!(queue.octets.len() <= 2 * (most + 900));
            }
        }
    }
}
