//! Timers: a heap whose nodes have four children, and which knows where each timer stands in it.
//!
//! Setting, moving and stopping one takes O(log n) steps, looking at the next one is free, and timers that are due at the same
//! time come in the order in which they were set: a simulation that is run again does the same.

use crate::time::Instant;
use alloc::vec::Vec;

/// Children of a node: a family of four fills a line of the cache.
const CHILDREN: usize = 4;
/// Of a timer that is not in the heap.
const STOPPED: u32 = u32::MAX;

/// One timer of [`Timers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: Instant,
    /// How many had been set before.
    order: u64,
    timer: u32,
}

#[derive(Clone, Copy, Debug)]
struct Timer<K> {
    /// Its place in the heap.
    place: u32,
    key: Option<K>,
}

/// Timers, each with a key that says what is to be done.
#[derive(Debug)]
pub struct Timers<K> {
    heap: Vec<Entry>,
    timers: Vec<Timer<K>>,
    free: Vec<u32>,
    set: u64,
}

impl<K> Default for Timers<K> {
    fn default() -> Timers<K> {
        Timers { heap: Vec::new(), timers: Vec::new(), free: Vec::new(), set: 0 }
    }
}

impl<K: Copy> Timers<K> {
    /// A timer that is stopped. Its memory is that of one that was removed, if there is any.
    pub fn create(&mut self, key: K) -> TimerId {
        let timer = Timer { place: STOPPED, key: Some(key) };
        let id = match self.free.pop() {
            Some(id) => {
                self.timers[id as usize] = timer;
                id
            }
            None => {
                self.timers.push(timer);
                // As many as there are have their places.
                self.heap.reserve(self.timers.len() - self.heap.len());
                self.free.reserve(self.timers.len());
                (self.timers.len() - 1) as u32
            }
        };
        TimerId(id)
    }

    /// Forgets a timer, whose id may be another one's from now on.
    pub fn remove(&mut self, id: TimerId) {
        self.stop(id);
        if self.timers[id.0 as usize].key.take().is_some() {
            self.free.push(id.0);
        }
    }

    /// Says something else when it is due.
    pub fn set_key(&mut self, id: TimerId, key: K) {
        if let Some(old) = &mut self.timers[id.0 as usize].key {
            *old = key;
        }
    }

    /// Sets it to this time, from whatever time it was set to.
    pub fn set(&mut self, id: TimerId, at: Instant) {
        let entry = Entry { at, order: self.set, timer: id.0 };
        self.set += 1;
        let place = self.timers[id.0 as usize].place;
        if place == STOPPED {
            self.heap.push(entry);
            self.rise(self.heap.len() - 1, entry);
        } else {
            self.settle(place as usize, entry);
        }
    }

    /// It is not due any more.
    pub fn stop(&mut self, id: TimerId) {
        let place = self.timers[id.0 as usize].place;
        if place != STOPPED {
            self.take(place as usize);
        }
    }

    /// When it is due, if it is set.
    pub fn deadline(&self, id: TimerId) -> Option<Instant> {
        let place = self.timers[id.0 as usize].place;
        (place != STOPPED).then(|| self.heap[place as usize].at)
    }

    /// When the first one is due.
    pub fn next(&self) -> Option<Instant> {
        self.heap.first().map(|entry| entry.at)
    }

    /// Stops the first one that is due, and tells its key.
    pub fn pop_due(&mut self, now: Instant) -> Option<K> {
        let first = *self.heap.first().filter(|entry| entry.at <= now)?;
        self.take(0);
        self.timers[first.timer as usize].key
    }

    /// Timers that are set.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// None is set.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Takes an entry out of the heap; the last one fills its place.
    fn take(&mut self, place: usize) {
        let gone = self.heap[place];
        self.timers[gone.timer as usize].place = STOPPED;
        if let Some(last) = self.heap.pop()
            && place < self.heap.len()
        {
            self.settle(place, last);
        }
    }

    /// Puts an entry into this place or, if it does not belong there, above or below it.
    fn settle(&mut self, place: usize, entry: Entry) {
        if place > 0 && entry < self.heap[(place - 1) / CHILDREN] {
            self.rise(place, entry);
        } else {
            self.sink(place, entry);
        }
    }

    fn rise(&mut self, mut place: usize, entry: Entry) {
        while place > 0 {
            let parent = (place - 1) / CHILDREN;
            if self.heap[parent] <= entry {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    fn sink(&mut self, mut place: usize, entry: Entry) {
        loop {
            let first = place * CHILDREN + 1;
            let children = first..(first + CHILDREN).min(self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.heap[child]) else { break };
            if entry <= self.heap[least] {
                break;
            }
            self.put(place, self.heap[least]);
            place = least;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.timers[entry.timer as usize].place = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn timers_come_when_they_are_due_and_in_the_order_in_which_they_were_set() {
        let mut timers = Timers::default();
        let ids: Vec<_> = (0..5).map(|key| timers.create(key)).collect();
        for (id, time) in ids.iter().zip([30, 10, 20, 10, 10]) {
            timers.set(*id, at(time));
        }
        assert_eq!(timers.next(), Some(at(10)));
        assert_eq!(timers.pop_due(at(9)), None);
        // One that is set anew is behind those that were set before.
        timers.set(ids[1], at(10));
        let due: Vec<_> = core::iter::from_fn(|| timers.pop_due(at(25))).collect();
        assert_eq!(due, [3, 4, 1, 2]);
        assert_eq!((timers.next(), timers.len()), (Some(at(30)), 1));
        timers.stop(ids[0]);
        assert!(timers.is_empty() && timers.pop_due(at(u64::MAX)).is_none());
    }

    #[test]
    fn a_removed_timer_does_not_come_and_its_place_is_used_again() {
        let mut timers = Timers::default();
        let first = timers.create('a');
        timers.set(first, at(1));
        timers.remove(first);
        timers.remove(first);
        let (second, third) = (timers.create('b'), timers.create('c'));
        assert_ne!(second, third);
        assert_eq!((timers.pop_due(at(9)), timers.deadline(second)), (None, None));
        timers.set(second, at(5));
        assert_eq!((timers.deadline(second), timers.pop_due(at(9))), (Some(at(5)), Some('b')));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Set(usize, u64),
        Stop(usize),
        Pop(u64),
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

        #[test]
        fn they_do_what_a_sorted_map_does(steps in prop::collection::vec(prop_oneof![
            4 => (0..40usize, 0..100u64).prop_map(|(which, at)| Step::Set(which, at)),
            1 => (0..40usize).prop_map(Step::Stop),
            2 => (0..100u64).prop_map(Step::Pop),
        ], 1..200)) {
            let mut timers = Timers::default();
            let ids: Vec<_> = (0..40usize).map(|key| timers.create(key)).collect();
            let mut model: BTreeMap<(u64, usize), usize> = BTreeMap::new();
            for (order, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Set(which, time) => {
                        timers.set(ids[which], at(time));
                        model.retain(|_, timer| *timer != which);
                        model.insert((time, order), which);
                    }
                    Step::Stop(which) => {
                        timers.stop(ids[which]);
                        model.retain(|_, timer| *timer != which);
                    }
                    Step::Pop(now) => {
                        let due = model.first_key_value().filter(|((time, _), _)| *time <= now);
                        let due = due.map(|(key, timer)| (*key, *timer));
                        if let Some((key, _)) = due {
                            model.remove(&key);
                        }
                        prop_assert_eq!(timers.pop_due(at(now)), due.map(|(_, timer)| timer));
                    }
                }
                prop_assert_eq!(timers.len(), model.len());
                prop_assert_eq!(timers.next(), model.keys().next().map(|(time, _)| at(*time)));
            }
        }
    }
}
