//! What is remembered of what is gone: so much of it, and the newest.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// More is not remembered.
pub const MOST: usize = 4096;

/// What came first goes first.
#[derive(Debug)]
pub struct Newest<K, V> {
    all: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Newest<K, V> {
    fn default() -> Self {
        Newest { all: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Copy + Eq + Hash, V> Newest<K, V> {
    /// One more, or another value of one.
    pub fn insert(&mut self, key: K, value: V) {
        if self.all.insert(key, value).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
    }

    /// What is remembered of this one.
    pub fn of(&self, key: &K) -> Option<&V> {
        self.all.get(key)
    }

    /// Forgets the others.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.order.retain(&keep);
        self.all.retain(|key, _| keep(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first() {
        let mut newest = Newest::default();
        for n in 0..3 * MOST {
            newest.insert(n, n);
            newest.insert(n, n + 1);
        }
        assert_eq!((newest.all.len(), newest.order.len()), (MOST, MOST));
        let last = 3 * MOST - 1;
        assert_eq!([last, last - MOST].map(|n| newest.of(&n).copied()), [Some(3 * MOST), None]);
        newest.retain(|n| *n == last);
        assert_eq!((newest.all.len(), newest.order.len()), (1, 1));
    }
}
