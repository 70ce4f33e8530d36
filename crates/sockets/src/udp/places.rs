//! Sockets of one kind, and which of them are *lively*: those that something is looked for at. What a wait costs depends on these, and not on how
//! many there are.

use super::{Record, record};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Sockets that find a place.
pub const PLACES: usize = 256;

/// The places.
#[derive(Debug)]
pub struct Places {
    /// Numbers of sockets, plus one.
    numbers: [AtomicU32; PLACES],
    /// A bit for each that is lively.
    lively: [AtomicU64; PLACES / 64],
}

/// The place of a socket, plus one; 0: it has none.
#[derive(Debug, Default)]
pub struct Place(AtomicU32);

impl Place {
    fn get(&self) -> Option<usize> {
        self.0.load(Acquire).checked_sub(1).map(|place| place as usize)
    }
}

impl Places {
    /// All free.
    pub const fn new() -> Places {
        Places {
            numbers: [const { AtomicU32::new(0) }; PLACES],
            lively: [const { AtomicU64::new(0) }; PLACES / 64],
        }
    }

    /// The socket with this number gets a place, and is lively; false: there is none.
    pub fn take(&self, place: &Place, number: u32) -> bool {
        let is_taken = |at: &AtomicU32| at.compare_exchange(0, number + 1, AcqRel, Relaxed).is_ok();
        let Some(found) = self.numbers.iter().position(is_taken) else { return false };
        place.0.store(found as u32 + 1, Release);
        self.stir(place);
        true
    }

    /// It gives the place back; false: it had none.
    pub fn leave(&self, place: &Place) -> bool {
        let Some(at) = place.0.swap(0, AcqRel).checked_sub(1) else { return false };
        self.calm(at as usize);
        self.numbers[at as usize % PLACES].store(0, Release);
        true
    }

    fn word(&self, at: usize) -> (&AtomicU64, u64) {
        (&self.lively[at / 64 % self.lively.len()], 1 << (at % 64))
    }

    /// Something may have to be looked for there from now on.
    #[inline]
    pub fn stir(&self, place: &Place) {
        let Some(at) = place.get() else { return };
        let (word, bit) = self.word(at);
        if word.load(SeqCst) & bit == 0 {
            word.fetch_or(bit, SeqCst);
        }
    }

    /// Nothing has to be looked for at the `at`th place, as far as is known.
    pub fn calm(&self, at: usize) {
        let (word, bit) = self.word(at);
        word.fetch_and(!bit, SeqCst);
    }

    /// As [`calm`](Places::calm), of a socket that was seen there and has no news; whoever has its place by now stays lively.
    pub fn calm_quiet(&self, at: usize, seen: &Record, has_news: impl Fn(&Record) -> bool) {
        self.calm(at);
        if self.at(at).is_some_and(|now| !std::ptr::eq(now, seen) || has_news(now)) {
            let (word, bit) = self.word(at);
            word.fetch_or(bit, SeqCst);
        }
    }

    /// How many are lively.
    pub fn count_lively(&self) -> u32 {
        self.lively.iter().map(|word| word.load(Relaxed).count_ones()).sum()
    }

    /// Those that are lively, and their places.
    #[inline]
    pub fn lively(&self) -> impl Iterator<Item = (usize, &'static Record)> {
        let bits = |(i, word): (usize, &AtomicU64)| {
            let mut left = word.load(SeqCst);
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                left &= left.wrapping_sub(1);
                (bit < 64).then_some(64 * i + bit)
            })
        };
        self.lively.iter().enumerate().flat_map(bits).filter_map(|at| Some((at, self.at(at)?)))
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (usize, &'static Record)> {
        (0..PLACES).filter_map(|at| Some((at, self.at(at)?)))
    }

    fn at(&self, at: usize) -> Option<&'static Record> {
        record(self.numbers[at].load(Acquire).checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lively(places: &Places) -> Vec<usize> {
        // No socket of this test's process has such a number: bits are what is looked at.
        (0..PLACES).filter(|at| places.word(*at).0.load(Relaxed) & places.word(*at).1 != 0).collect()
    }

    #[test]
    fn who_has_a_place_is_lively_until_it_is_calmed() {
        let places = Places::new();
        let sockets: Vec<Place> = (0..PLACES + 1).map(|_| Place::default()).collect();
        for (number, socket) in (1_000_000..).zip(&sockets) {
            assert_eq!(places.take(socket, number), number < 1_000_000 + PLACES as u32);
        }
        assert_eq!(places.count_lively(), PLACES as u32);
        (0..PLACES).filter(|at| *at != 70).for_each(|at| places.calm(at));
        assert_eq!(lively(&places), [70]);
        places.stir(&sockets[3]);
        places.stir(&sockets[PLACES]);
        assert_eq!(lively(&places), [3, 70]);
        assert!(places.leave(&sockets[70]) && !places.leave(&sockets[70]));
        assert!(places.take(&sockets[PLACES], 7));
        assert_eq!(lively(&places), [3, 70]);
        places.stir(&sockets[70]);
        assert_eq!(lively(&places), [3, 70], "it has no place");
    }

    #[test]
    fn who_is_calmed_is_looked_at_once_more_and_stays_lively_where_there_is_news() {
        // Numbers that no socket of this process comes to have.
        let [one, other] = [60_000, 60_001].map(|number| {
            super::super::RECORDS.ensure(number);
            (number as u32, record(number as u32).unwrap())
        });
        let places = Places::new();
        let place = Place::default();
        assert!(places.take(&place, one.0));
        places.calm_quiet(0, one.1, |seen| !std::ptr::eq(seen, one.1));
        assert_eq!(lively(&places), []);
        places.calm_quiet(0, one.1, |_| true);
        assert_eq!(lively(&places), [0], "it had news");
        // What comes while it is looked at is not lost.
        places.calm_quiet(0, one.1, |_| {
            places.stir(&place);
            false
        });
        assert_eq!(lively(&places), [0], "it was stirred");
        places.calm_quiet(0, other.1, |_| false);
        assert_eq!(lively(&places), [0], "another socket has its place");
        assert!(places.leave(&place));
        places.calm_quiet(0, one.1, |_| true);
        assert_eq!(lively(&places), [], "nobody has it");
    }
}
