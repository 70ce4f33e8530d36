//! Which sockets have a route that is up: those that are looked after before a sleep.

use super::{Record, record};
use std::sync::atomic::{AtomicU32, Ordering::*};

/// Numbers of sockets with a route that is up, plus one; how many such sockets there are; and how many of them have found no place.
static ROUTED: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
static COUNT: AtomicU32 = AtomicU32::new(0);
static MORE: AtomicU32 = AtomicU32::new(0);

/// The sockets that may have a route.
#[inline]
pub fn each(mut f: impl FnMut(&'static Record)) {
    if COUNT.load(Relaxed) == 0 {
        return;
    }
    if MORE.load(Relaxed) != 0 {
        return super::each(f);
    }
    ROUTED.iter().filter_map(|place| record(place.load(Acquire).checked_sub(1)?)).for_each(&mut f);
}

/// A socket has a route now, and had none.
pub fn comes(number: u32) {
    COUNT.fetch_add(1, AcqRel);
    let takes = |place: &AtomicU32| place.compare_exchange(0, number + 1, AcqRel, Relaxed).is_ok();
    if !ROUTED.iter().any(takes) {
        MORE.fetch_add(1, AcqRel);
    }
}

/// It has none any more.
pub fn goes(number: u32) {
    COUNT.fetch_sub(1, AcqRel);
    let leaves = |place: &AtomicU32| place.compare_exchange(number + 1, 0, AcqRel, Relaxed).is_ok();
    if !ROUTED.iter().any(leaves) {
        MORE.fetch_sub(1, AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_without_a_place_are_counted() {
        // Numbers that no socket of this test's process has.
        let all = 1_000_000..1_000_070;
        all.clone().for_each(comes);
        assert_eq!((COUNT.load(Relaxed), MORE.load(Relaxed)), (70, 6));
        all.clone().skip(64).for_each(goes);
        assert_eq!(MORE.load(Relaxed), 0);
        all.take(64).for_each(goes);
        assert_eq!((COUNT.load(Relaxed), MORE.load(Relaxed)), (0, 0));
    }
}
