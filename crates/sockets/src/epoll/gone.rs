//! One-shot registrations of warm ends that have gone, of any set: a thread may still hold what the kernel told of them.
//! The last ones are remembered, as many as go while a thread that got a report waits for a processor.

use super::{DISARMED_DATA, Set};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

const KEPT: usize = 4096;
static WORDS: [AtomicU64; KEPT] = [const { AtomicU64::new(0) }; KEPT];
static SETS: [AtomicUsize; KEPT] = [const { AtomicUsize::new(0) }; KEPT];
static NUMBER: AtomicU32 = AtomicU32::new(0);
/// How many of those that are kept have a set and a word with this hash.
static LIKE: [AtomicU16; 1024] = [const { AtomicU16::new(0) }; 1024];

fn like(set: usize, data: u64) -> &'static AtomicU16 {
    &LIKE[((data ^ set as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize]
}

/// How many have gone, wrapping.
pub fn number() -> u32 {
    NUMBER.load(Acquire)
}

/// Places of those of `s` with this data word among the `last` before `number`.
fn places(number: u32, last: u32, s: &Set, data: u64) -> impl Iterator<Item = usize> {
    let set = std::ptr::from_ref(s).addr();
    (1..=last.min(KEPT as u32))
        .map(move |back| number.wrapping_sub(back) as usize % KEPT)
        .filter(move |&i| WORDS[i].load(Relaxed) == data && SETS[i].load(Relaxed) == set)
}

/// Another word comes into a place. The caller holds the lock.
fn put(place: usize, set: usize, data: u64) {
    let (old_set, old) = (SETS[place].swap(set, Relaxed), WORDS[place].swap(data, Relaxed));
    if old_set != 0 && old != DISARMED_DATA {
        like(old_set, old).fetch_sub(1, Relaxed);
    }
    if data != DISARMED_DATA {
        like(set, data).fetch_add(1, Relaxed);
    }
}

/// One goes. The caller holds the lock.
pub fn goes(s: &Set, data: u64) {
    let n = NUMBER.load(Relaxed);
    put(n as usize % KEPT, std::ptr::from_ref(s).addr(), data);
    NUMBER.store(n.wrapping_add(1), Release);
}

/// Whether [`is_back`] may have something to do: seldom, and to be asked without the lock. Who registers anew knows that
/// the old registration has gone.
pub fn may_be(s: &Set, data: u64) -> bool {
    like(std::ptr::from_ref(s).addr(), data).load(Relaxed) != 0
}

/// Another registration with this data word is made: what the kernel tells of it is news. The caller holds the lock.
pub fn is_back(s: &Set, data: u64) {
    if may_be(s, data) {
        let set = std::ptr::from_ref(s).addr();
        places(NUMBER.load(Relaxed), KEPT as u32, s, data).for_each(|i| put(i, set, DISARMED_DATA));
    }
}

/// Whether one with this data word has gone since there were `then`. The caller holds the lock.
pub fn since(then: u32, s: &Set, data: u64) -> bool {
    let n = NUMBER.load(Relaxed);
    may_be(s, data) && places(n, n.wrapping_sub(then), s, data).next().is_some()
}
