//! Sets of positions.

/// Ranges of positions, each from its first one up to, and without, its second one: ascending, none touches another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// How many there are.
    pub const fn count(&self) -> usize {
        self.0.len()
    }

    /// The first one.
    pub fn first(&self) -> Option<(u64, u64)> {
        self.0.first().copied()
    }

    /// Whether a range from `from` to `to` touches one that is there.
    pub fn touches(&self, from: u64, to: u64) -> bool {
        self.0.iter().any(|&(a, b)| a <= to && from <= b)
    }

    /// Adds a range.
    pub fn insert(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let begin = self.0.partition_point(|&(_, b)| b < from);
        let end = self.0.partition_point(|&(a, _)| a <= to);
        let merged = self.0[begin..end].iter().fold((from, to), |(a, b), &(c, d)| (a.min(c), b.max(d)));
        self.0.splice(begin..end, [merged]);
    }

    /// Takes out everything before `position`.
    pub fn forget_before(&mut self, position: u64) {
        self.0.retain(|&(_, b)| b > position);
        if let Some(first) = self.0.first_mut() {
            first.0 = first.0.max(position);
        }
    }

    /// What is not in it from `from` to `to`, ascending.
    pub fn missing(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
        let starts = std::iter::once(from).chain(self.0.iter().map(|&(_, b)| b));
        let ends = self.0.iter().map(|&(a, _)| a).chain(std::iter::once(to));
        starts.zip(ends).map(move |(a, b)| (a.max(from), b.min(to))).filter(|(a, b)| a < b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_sets(steps in prop::collection::vec((0u64..60, 0u64..12, any::<bool>()), 0..40)) {
            let (mut ranges, mut model) = (Ranges::default(), [false; 80]);
            for (at, len, add) in steps {
                if add {
                    ranges.insert(at, at + len);
                    model[at as usize..(at + len) as usize].fill(true);
                } else {
                    ranges.forget_before(at);
                    model[..at as usize].fill(false);
                }
                let mut seen = [false; 80];
                ranges.0.iter().for_each(|&(a, b)| seen[a as usize..b as usize].fill(true));
                prop_assert_eq!(seen, model);
                prop_assert!(ranges.0.windows(2).all(|w| w[0].1 < w[1].0), "{:?}", ranges);
                let mut missing = [true; 80];
                ranges.missing(0, 80).for_each(|(a, b)| missing[a as usize..b as usize].fill(false));
                prop_assert_eq!(missing, model);
            }
        }
    }

    #[test]
    fn a_range_touches_its_neighbours() {
        let mut ranges = Ranges::default();
        ranges.insert(10, 20);
        assert!(ranges.touches(20, 30) && ranges.touches(5, 10) && !ranges.touches(21, 30));
        assert_eq!(ranges.missing(12, 25).collect::<Vec<_>>(), [(20, 25)]);
    }
}
