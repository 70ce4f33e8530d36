//! Counts of nanoseconds: exact below 2,048, above with an error of at most a thousandth.
//!
//! Our own, because it is twenty lines of integer arithmetic and records in a nanosecond within the timed loop, and
//! because what a crate brings for it (the mathematics library) would be loaded by every `bypath run`.

/// Values below this have a counter each; above, each power of two has half as many.
const EXACT: u64 = 1 << (BITS + 1);
const BITS: u32 = 10;
const COUNTERS: usize = (64 - BITS as usize) << BITS;

/// The counters.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    n: u64,
}

impl Histogram {
    /// An empty one.
    pub fn new() -> Histogram {
        Histogram { counts: vec![0; COUNTERS + EXACT as usize], n: 0 }
    }

    #[inline]
    fn index(ns: u64) -> usize {
        if ns < EXACT {
            return ns as usize;
        }
        let shift = 63 - ns.leading_zeros() - BITS;
        ((shift as usize) << BITS) + (ns >> shift) as usize
    }

    /// Middle of the values that share a counter.
    fn value(index: usize) -> f64 {
        if index < EXACT as usize {
            return index as f64;
        }
        let shift = (index >> BITS) as u32 - 1;
        let low = ((index - ((shift as usize) << BITS)) as u64) << shift;
        low as f64 + (((1u64 << shift) - 1) / 2) as f64
    }

    /// Counts a value.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.record_n(ns, 1);
    }

    /// Counts a value `n` times.
    #[inline]
    pub fn record_n(&mut self, ns: u64, n: u64) {
        self.counts[Self::index(ns)] += n;
        self.n += n;
    }

    /// Adds all that another one counted.
    pub fn add(&mut self, other: &Histogram) {
        for (a, b) in self.counts.iter_mut().zip(&other.counts) {
            *a += b;
        }
        self.n += other.n;
    }

    /// How many values were counted.
    pub fn len(&self) -> u64 {
        self.n
    }

    /// As (nanoseconds, count), rising.
    pub fn pairs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.occupied().map(|(value, n)| (value as u64, n))
    }

    fn occupied(&self) -> impl Iterator<Item = (f64, u64)> {
        let used = |(i, n): (usize, &u64)| (*n > 0).then(|| (Self::value(i), *n));
        self.counts.iter().enumerate().filter_map(used)
    }

    /// The value that a share `q` (0 to 1) of all values does not exceed; `None` if there are none.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let rank = ((q * self.n as f64).ceil() as u64).max(1);
        let mut below = 0;
        self.occupied().find_map(|(value, n)| {
            below += n;
            (below >= rank).then_some(value)
        })
    }

    /// The mean; `None` if there are no values.
    pub fn mean(&self) -> Option<f64> {
        (self.n > 0).then(|| self.occupied().map(|(v, n)| v * n as f64).sum::<f64>() / self.n as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_kept_within_a_thousandth() {
        let mut values: Vec<u64> = (0..64).flat_map(|b| [1u64 << b, (1u64 << b) + (1u64 << b) / 3]).collect();
        values.extend([0, 3, 2047, 2048, 2049, 65_537, 99_999_999_999, u64::MAX]);
        for v in values {
            let mut h = Histogram::new();
            h.record(v);
            let kept = h.quantile(0.5).unwrap();
            assert!((kept - v as f64).abs() <= v as f64 / 1000.0, "{v} was kept as {kept}");
        }
    }

    #[test]
    fn quantiles_follow_the_ranks() {
        let mut h = Histogram::new();
        (1..=100).for_each(|v| h.record(v));
        let at = |q| h.quantile(q).unwrap();
        assert_eq!((at(0.0), at(0.5), at(0.99), at(1.0)), (1.0, 50.0, 99.0, 100.0));
        assert_eq!((h.mean(), h.len()), (Some(50.5), 100));
        assert_eq!(Histogram::new().quantile(0.5), None);
    }

    #[test]
    fn what_is_reported_in_pairs_is_counted_alike() {
        let mut a = Histogram::new();
        [5, 5, 3000, 70_000, 12_345_678].into_iter().for_each(|v| a.record(v));
        let mut b = Histogram::new();
        a.pairs().for_each(|(v, n)| b.record_n(v, n));
        assert_eq!(a.pairs().collect::<Vec<_>>(), b.pairs().collect::<Vec<_>>());
    }
}
