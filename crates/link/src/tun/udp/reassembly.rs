//! Fragments put together (RFC 791, 3.2; RFC 8200, 4.5; RFC 5722: what overlaps is thrown away).
//!
//! A few datagrams at a time; a further one takes the place of the oldest. Memory is taken for the first fragment and kept.
//! What is not whole in time is given up: identifications come again.

use std::net::IpAddr;

/// Datagrams in the making at once.
const PLACES: usize = 4;
/// Octets of the longest datagram, header included.
const MOST: usize = 65_535;
/// Fragments begin at multiples of so many octets.
const UNIT: usize = 8;

/// How long a datagram may take, in ns, as the kernel has it (`net.ipv4.ipfrag_time`); RFC 1122, 3.3.2 and RFC 8200, 4.5 have 60 s
/// and more, in which the 65,536 identifications of IPv4 come around on a fast link (RFC 4963).
const LONGEST: u64 = 30_000_000_000;

/// What fragments of one datagram have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub identification: u32,
}

#[derive(Debug)]
struct Place {
    key: Option<Key>,
    /// When it was begun, in datagrams.
    begun: u64,
    /// The same, in ns.
    since: u64,
    bytes: Box<[u8]>,
    /// Which units are there.
    there: Box<[u64]>,
    /// Octets that are there.
    octets: usize,
    /// Where the furthest fragment ends.
    furthest: usize,
    /// Octets of the whole, once the last fragment is there.
    whole: Option<usize>,
}

impl Place {
    fn new() -> Place {
        Place {
            key: None,
            begun: 0,
            since: 0,
            bytes: vec![0; MOST + UNIT].into(),
            there: vec![0; (MOST + UNIT) / UNIT / 64 + 1].into(),
            octets: 0,
            furthest: 0,
            whole: None,
        }
    }

    fn begin(&mut self, key: Key, begun: u64, now: u64) {
        self.there.fill(0);
        (self.key, self.begun, self.since) = (Some(key), begun, now);
        self.octets = 0;
        (self.furthest, self.whole) = (0, None);
    }

    /// False: it overlaps others, or contradicts them.
    fn add(&mut self, offset: usize, bytes: &[u8], more: bool) -> bool {
        let end = offset + bytes.len();
        let sound = !bytes.is_empty()
            && end <= MOST
            && (!more || bytes.len().is_multiple_of(UNIT))
            && self.whole.is_none_or(|whole| more && end <= whole)
            && (more || self.furthest <= end);
        if !sound {
            return false;
        }
        for unit in offset / UNIT..end.div_ceil(UNIT) {
            let bit = 1 << (unit % 64);
            let word = &mut self.there[unit / 64];
            if *word & bit != 0 {
                return false;
            }
            *word |= bit;
        }
        self.bytes[offset..end].copy_from_slice(bytes);
        self.octets += bytes.len();
        self.furthest = self.furthest.max(end);
        if !more {
            self.whole = Some(end);
        }
        true
    }
}

/// Datagrams in the making.
#[derive(Debug, Default)]
pub struct Reassembly {
    places: Vec<Place>,
    begun: u64,
    /// Datagrams that were given up.
    pub incomplete: u64,
}

impl Reassembly {
    /// Adds a fragment that came `now`, in ns. The place of a datagram that is whole now, and its octets: valid until the next fragment.
    pub fn add(
        &mut self,
        now: u64,
        key: Key,
        offset: usize,
        bytes: &[u8],
        more: bool,
    ) -> Option<(usize, usize)> {
        let at = self.place(key, now);
        let place = &mut self.places[at];
        if !place.add(offset, bytes, more) {
            place.key = None;
            self.incomplete += 1;
            return None;
        }
        let whole = place.whole?;
        // Nothing overlaps, and nothing is behind the end: as many octets are all of them.
        if place.octets < whole {
            return None;
        }
        place.key = None;
        Some((at, whole))
    }

    /// The datagram that [`add`](Reassembly::add) told of.
    pub fn bytes(&self, (place, len): (usize, usize)) -> &[u8] {
        &self.places[place].bytes[..len]
    }

    /// Where this datagram is, or is begun.
    fn place(&mut self, key: Key, now: u64) -> usize {
        for late in
            self.places.iter_mut().filter(|p| p.key.is_some() && now.saturating_sub(p.since) > LONGEST)
        {
            late.key = None;
            self.incomplete += 1;
        }
        if let Some(at) = self.places.iter().position(|p| p.key == Some(key)) {
            return at;
        }
        self.begun += 1;
        let at = match self.places.iter().position(|p| p.key.is_none()) {
            Some(free) => free,
            None if self.places.len() < PLACES => {
                self.places.push(Place::new());
                self.places.len() - 1
            }
            None => {
                self.incomplete += 1;
                let oldest = self.places.iter().enumerate().min_by_key(|(_, p)| p.begun);
                oldest.map_or(0, |(at, _)| at)
            }
        };
        self.places[at].begin(key, self.begun, now);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Key = Key {
        source: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        destination: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        identification: 7,
    };

    const NOW: u64 = 1_000_000_000_000;

    fn datagram(len: usize) -> Vec<u8> {
        (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
    }

    #[test]
    fn fragments_in_any_order_make_the_datagram() {
        let whole = datagram(5001);
        let parts = |step: usize| (0..whole.len()).step_by(step).map(move |at| (at, (at + step).min(5001)));
        for step in [8, 1480, 4096] {
            let mut forth: Vec<_> = parts(step).collect();
            for _ in 0..2 {
                let mut reassembly = Reassembly::default();
                let mut found = None;
                for &(at, end) in &forth {
                    assert!(found.is_none());
                    found = reassembly.add(NOW, KEY, at, &whole[at..end], end < 5001);
                }
                assert!(reassembly.bytes(found.expect("it is whole")) == whole);
                assert_eq!(reassembly.incomplete, 0);
                forth.reverse();
            }
        }
    }

    #[test]
    fn what_overlaps_contradicts_or_is_too_long_is_thrown_away() {
        let bytes = datagram(65_536);
        let cases: [&[(usize, usize, bool)]; 7] = [
            &[(0, 16, true), (8, 16, true)],
            &[(0, 16, true), (0, 16, true)],
            &[(16, 20, false), (24, 32, true)],
            &[(16, 20, false), (8, 12, false)],
            &[(0, 13, true)],
            // As many octets as the whole has, of which some are behind its end and the first ones were never there.
            &[(24, 32, true), (8, 16, true), (16, 20, false)],
            &[(65_528, 65_536, false)],
        ];
        for case in cases {
            let mut reassembly = Reassembly::default();
            for &(at, end, more) in case {
                assert_eq!(reassembly.add(NOW, KEY, at, &bytes[at..end], more), None, "{case:?}");
            }
            assert_eq!(reassembly.incomplete, 1, "{case:?}");
            // The next one with the same key is another datagram.
            assert_eq!(reassembly.add(NOW, KEY, 0, &bytes[..8], true), None);
            assert_eq!(reassembly.add(NOW, KEY, 8, &bytes[8..9], false), Some((0, 9)));
        }
    }

    #[test]
    fn the_oldest_gives_way_and_memory_is_bounded() {
        let mut reassembly = Reassembly::default();
        for identification in 0..100 {
            reassembly.add(NOW, Key { identification, ..KEY }, 0, &[1; 8], true);
        }
        assert_eq!((reassembly.places.len(), reassembly.incomplete), (PLACES, 96));
        let last = Key { identification: 99, ..KEY };
        assert!(reassembly.add(NOW, last, 8, &[2], false).is_some());
    }

    #[test]
    fn what_is_not_whole_in_time_is_given_up() {
        let mut reassembly = Reassembly::default();
        assert_eq!(reassembly.add(NOW, KEY, 0, &[1; 8], true), None);
        assert_eq!(reassembly.add(NOW + LONGEST, KEY, 8, &[2; 8], true), None);
        // Another datagram with the same identification; the time counts from the first fragment.
        assert_eq!(reassembly.add(NOW + LONGEST + 1, KEY, 16, &[3; 8], false), None);
        assert_eq!(reassembly.incomplete, 1);
        assert_eq!(reassembly.add(NOW + LONGEST + 1, KEY, 0, &[4; 8], true), None);
        let whole = reassembly.add(NOW + LONGEST + 1, KEY, 8, &[5; 8], true).expect("it is whole");
        assert_eq!(reassembly.bytes(whole), [[4; 8], [5; 8], [3; 8]].concat());
    }

    /// A fragment: where it begins, in units, its octets, and whether others follow.
    fn fragment() -> impl Strategy<Value = (usize, usize, bool, u8)> {
        // Mostly as they are cut.
        let len = prop_oneof![3 => (1..4usize).prop_map(|units| units * UNIT), 1 => 0..30usize];
        (0..6usize, len, prop::bool::weighted(0.7), any::<u8>())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(5000) })]

        #[test]
        fn what_is_given_out_is_what_came(fragments in prop::collection::vec(fragment(), 1..30)) {
            let mut reassembly = Reassembly::default();
            // What came of the datagram that is in the making, octet by octet.
            let mut came: Vec<Option<u8>> = vec![None; 400];
            for (at, len, more, value) in fragments {
                let (at, bytes) = (at * UNIT, vec![value; len]);
                let given_up = reassembly.incomplete;
                came[at..at + len].fill(Some(value));
                let found = reassembly.add(NOW, KEY, at, &bytes, more);
                if let Some(whole) = found {
                    let octets: Option<Vec<u8>> = came[..whole.1].iter().copied().collect();
                    prop_assert_eq!(octets.as_deref(), Some(reassembly.bytes(whole)));
                    prop_assert!(came[whole.1..].iter().all(Option::is_none));
                }
                if found.is_some() || reassembly.incomplete > given_up {
                    came.fill(None);
                }
            }
        }
    }
}
