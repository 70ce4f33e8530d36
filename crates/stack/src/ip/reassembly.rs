//! Fragments put together (RFC 791, 3.2; RFC 8200, 4.5).
//!
//! Memory and time are bounded. Fragments that overlap end their datagram (RFC 5722, 3; for IPv4 as well, as those who make
//! them are attacks); one that comes twice, octet by octet, is ignored. A datagram that is not whole in time is given up, and its
//! sender may be told (RFC 1122, 3.3.2; RFC 4443, 3.3).

use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bypath_wire::IpProtocol;
use core::net::IpAddr;
use core::time::Duration;
use foldhash::quality::FixedState;
use hashbrown::HashMap;

/// Fragments of all but the last one carry a multiple of so many octets.
const UNIT: usize = 8;
/// Octets of the longest datagram: those behind the header of IPv4, or behind the fragment header of IPv6.
const LONGEST: usize = 65_535;
/// Octets of a datagram's first fragment that are kept for the message that it is given up (RFC 4443, 3.3: no more than fits
/// into 1280 with its headers).
const QUOTED: usize = 1232;

/// What reassembly may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Octets of memory for fragments, 512 more counted for each datagram. At the bound the oldest one is given up.
    pub octets: usize,
    /// Datagrams in the making at most.
    pub most: usize,
    /// So long a datagram may take from its first fragment on.
    pub longest: Duration,
    /// Pieces of one datagram that do not touch each other, at most.
    pub pieces: usize,
}

impl Default for Config {
    fn default() -> Config {
        // 30 s as Linux has it (net.ipv4.ipfrag_time): in the 60 s of the RFCs IPv4's identifications come around (RFC 4963).
        Config { octets: 4 << 20, most: 1024, longest: Duration::from_secs(30), pieces: 128 }
    }
}

/// What fragments of one datagram have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// From.
    pub source: IpAddr,
    /// To.
    pub destination: IpAddr,
    /// Of the sender's choice.
    pub identification: u32,
    /// IPv4: what the datagram carries. IPv6 leaves it out (RFC 8200, 4.5), as the first fragment alone tells it.
    pub protocol: Option<IpProtocol>,
}

/// A fragment.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'a> {
    /// Where it belongs, in octets.
    pub offset: usize,
    /// Others follow.
    pub more: bool,
    /// Its part of the datagram.
    pub octets: &'a [u8],
    /// The packet that it came in.
    pub packet: &'a [u8],
    /// IPv6: the protocol of the first fragment counts.
    pub protocol: IpProtocol,
}

/// What became of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Others are missing.
    Missing,
    /// The datagram is whole: [`Reassembly::whole`].
    Whole,
    /// It was there already.
    Repeated,
    /// It ended its datagram, or was not noted.
    Dropped(Reason),
}

/// Why a fragment and its datagram were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It overlaps another one, or says otherwise where the end is.
    Overlap,
    /// Not the last one, and no multiple of 8 octets; or empty.
    Length,
    /// It ends behind the longest datagram: the "ping of death".
    TooLong,
    /// Too many pieces that do not touch each other.
    Pieces,
    /// Longer than all the memory.
    Memory,
}

#[derive(Debug)]
struct Datagram {
    key: Key,
    /// How many were begun before it.
    number: u64,
    octets: Vec<u8>,
    /// What is there: from, to; sorted, no two touch.
    there: Vec<(u32, u32)>,
    /// Where it ends, once the last fragment is there.
    end: Option<usize>,
    /// The packet of the first fragment, cut.
    first: Vec<u8>,
    protocol: IpProtocol,
}

/// A datagram that was given up.
#[derive(Debug)]
pub struct GivenUp<'a> {
    /// Its fragments' addresses and number.
    pub key: Key,
    /// The beginning of the packet that carried its first fragment; empty if that never came: then nobody is told.
    pub first: &'a [u8],
    /// Its time was over; no: it made room for others.
    pub late: bool,
}

/// Datagrams in the making.
#[derive(Debug)]
pub struct Reassembly {
    config: Config,
    places: HashMap<Key, u32, FixedState>,
    datagrams: Vec<Datagram>,
    /// Time, number and key in the order in which they were begun; those that ended are left out when they come to the front.
    order: VecDeque<(Instant, u64, Key)>,
    begun: u64,
    /// Octets of all, as they are counted against the bound.
    used: usize,
    /// The one that is whole, or was given up last.
    ended: Option<Datagram>,
    /// Of those that ended: without octets.
    spare: Vec<Datagram>,
    /// Their octets.
    rooms: Rooms,
}

/// Memory of datagrams that ended, used again for those that need about as much.
#[derive(Debug, Default)]
struct Rooms(Vec<Vec<u8>>);

/// What a datagram costs beside its octets.
const OVERHEAD: usize = 512;
/// Ended datagrams that are kept, and octets of lists that each of them has at most.
const SPARE: usize = 8;
const SPARE_OCTETS: usize = 2048;
/// Memory of ended datagrams that is kept: a datagram doubles its own some times. Longer pieces go back.
const ROOMS: usize = 16;
const ROOM: usize = 32 << 10;

impl Reassembly {
    /// `seed`: a secret, of the table.
    pub fn new(config: Config, seed: u64) -> Reassembly {
        Reassembly {
            config,
            places: HashMap::with_hasher(FixedState::with_seed(seed)),
            datagrams: Vec::new(),
            order: VecDeque::new(),
            begun: 0,
            used: 0,
            ended: None,
            spare: Vec::new(),
            rooms: Rooms::default(),
        }
    }

    /// Adds a fragment.
    pub fn add(&mut self, now: Instant, key: Key, fragment: &Fragment<'_>) -> Outcome {
        let Fragment { offset, more, octets, .. } = *fragment;
        let end = offset + octets.len();
        if octets.is_empty() || more && !octets.len().is_multiple_of(UNIT) {
            return self.refuse(key, Reason::Length);
        }
        if end > LONGEST {
            return self.refuse(key, Reason::TooLong);
        }
        let place = match self.places.get(&key) {
            Some(&place) => place as usize,
            None => self.begin(now, key),
        };
        let datagram = &mut self.datagrams[place];
        match datagram.examine(offset, end, more, octets) {
            Ok(true) => {}
            Ok(false) => return Outcome::Repeated,
            Err(reason) => return self.refuse(key, reason),
        }
        let before = datagram.cost();
        self.rooms.grow(&mut datagram.octets, end);
        datagram.put(offset, fragment);
        let (cost, pieces, whole) = (datagram.cost(), datagram.there.len(), datagram.is_whole());
        self.used += cost - before;
        if whole {
            self.end(key);
            return Outcome::Whole;
        }
        if pieces > self.config.pieces {
            return self.refuse(key, Reason::Pieces);
        }
        if cost > self.config.octets {
            return self.refuse(key, Reason::Memory);
        }
        Outcome::Missing
    }

    /// The datagram that [`add`](Reassembly::add) made whole, and what it carries; until the next call that adds or ends one.
    pub fn whole(&self) -> Option<(IpProtocol, &[u8])> {
        let datagram = self.ended.as_ref().filter(|d| d.is_whole())?;
        Some((datagram.protocol, &datagram.octets))
    }

    /// Takes what [`whole`](Reassembly::whole) gives, and the packet of the first fragment as far as it was kept; what the two
    /// vectors held before is used again.
    pub fn take_whole(&mut self, octets: &mut Vec<u8>, first: &mut Vec<u8>) -> Option<IpProtocol> {
        let datagram = self.ended.as_mut().filter(|d| d.is_whole())?;
        core::mem::swap(&mut datagram.octets, octets);
        core::mem::swap(&mut datagram.first, first);
        datagram.end = None;
        Some(datagram.protocol)
    }

    /// Ends the oldest datagram if its time is over, or if there are more, or of more octets, than may be. To be called after
    /// each fragment that was added, and at [`poll_timeout`](Reassembly::poll_timeout), until there is none.
    pub fn give_up(&mut self, now: Instant) -> Option<GivenUp<'_>> {
        let (begun, key) = self.oldest()?;
        let late = begun + self.config.longest <= now;
        if !late && self.used <= self.config.octets && self.datagrams.len() <= self.config.most {
            return None;
        }
        self.end(key);
        let datagram = self.ended.as_ref()?;
        Some(GivenUp { key, first: &datagram.first, late })
    }

    /// When the oldest datagram's time is over.
    pub fn poll_timeout(&self) -> Option<Instant> {
        // One that has ended is in front for a while: no harm, but a look too early.
        self.order.front().map(|(begun, ..)| *begun + self.config.longest)
    }

    /// Datagrams in the making.
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// None is in the making.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Octets of memory that they use, and 512 for each.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// The oldest one.
    fn oldest(&mut self) -> Option<(Instant, Key)> {
        while let Some(&(begun, number, key)) = self.order.front() {
            let there = self.places.get(&key).is_some_and(|&at| self.datagrams[at as usize].number == number);
            if there {
                return Some((begun, key));
            }
            self.order.pop_front();
        }
        None
    }

    fn refuse(&mut self, key: Key, reason: Reason) -> Outcome {
        self.end(key);
        Outcome::Dropped(reason)
    }

    /// A new datagram; its place.
    fn begin(&mut self, now: Instant, key: Key) -> usize {
        let mut datagram = self.spare.pop().unwrap_or_else(|| Datagram::new(key));
        datagram.begin(self.begun, key);
        self.used += datagram.cost();
        let place = self.datagrams.len();
        self.datagrams.push(datagram);
        self.places.insert(key, place as u32);
        self.order.push_back((now, self.begun, key));
        self.begun += 1;
        // Those that ended long ago.
        if self.order.len() > 4 * self.config.most {
            let (places, datagrams) = (&self.places, &self.datagrams);
            self.order.retain(|(_, number, key)| {
                places.get(key).is_some_and(|&at| datagrams[at as usize].number == *number)
            });
        }
        place
    }

    /// Takes a datagram out, if it is there.
    fn end(&mut self, key: Key) {
        let Some(place) = self.places.remove(&key) else { return };
        let datagram = self.datagrams.swap_remove(place as usize);
        if let Some(moved) = self.datagrams.get(place as usize) {
            self.places.insert(moved.key, place);
        }
        self.used -= datagram.cost();
        if let Some(mut before) = self.ended.replace(datagram) {
            self.rooms.keep(core::mem::take(&mut before.octets));
            if self.spare.len() < SPARE && before.lists() <= SPARE_OCTETS {
                self.spare.push(before);
            }
        }
    }
}

impl Rooms {
    /// Room for `len` octets in all. It is no more than twice that: what is held counts, and a short datagram is to count little.
    fn grow(&mut self, octets: &mut Vec<u8>, len: usize) {
        if len <= octets.capacity() {
            return;
        }
        let fits = |room: &Vec<u8>| (len..=2 * len).contains(&room.capacity());
        let kept = self.0.iter().enumerate().filter(|(_, room)| fits(room));
        let mut room = match kept.min_by_key(|(_, room)| room.capacity()).map(|(at, _)| at) {
            Some(at) => self.0.swap_remove(at),
            None => Vec::with_capacity((2 * octets.len()).clamp(len, LONGEST)),
        };
        room.clear();
        room.extend_from_slice(octets);
        self.keep(core::mem::replace(octets, room));
    }

    /// Of a datagram that ended.
    fn keep(&mut self, room: Vec<u8>) {
        if self.0.len() < ROOMS && (1..=ROOM).contains(&room.capacity()) {
            self.0.push(room);
        }
    }
}

impl Datagram {
    const fn new(key: Key) -> Datagram {
        Datagram {
            key,
            number: 0,
            octets: Vec::new(),
            there: Vec::new(),
            end: None,
            first: Vec::new(),
            protocol: IpProtocol::NO_NEXT,
        }
    }

    fn begin(&mut self, number: u64, key: Key) {
        (self.key, self.number, self.end) = (key, number, None);
        self.octets.clear();
        self.there.clear();
        self.first.clear();
    }

    /// What counts against the bound: the memory that it has.
    const fn cost(&self) -> usize {
        self.octets.capacity() + self.lists() + OVERHEAD
    }

    /// Octets of memory beside those of its octets.
    const fn lists(&self) -> usize {
        self.first.capacity() + self.there.capacity() * size_of::<(u32, u32)>()
    }

    fn is_whole(&self) -> bool {
        let end = self.end.and_then(|end| u32::try_from(end).ok());
        end.is_some_and(|end| self.there == [(0, end)])
    }

    /// Whether a fragment is new; no: it was there. Otherwise it belongs to no datagram of which the others are.
    fn examine(&self, offset: usize, end: usize, more: bool, octets: &[u8]) -> Result<bool, Reason> {
        // Its last octet, and the datagram's.
        let furthest = self.there.last().map_or(0, |(_, to)| *to as usize);
        let beyond = match self.end {
            Some(last) => end > last || !more && end != last,
            None => !more && furthest > end,
        };
        if beyond {
            return Err(Reason::Overlap);
        }
        let (from, to) = (offset as u32, end as u32);
        let at = self.there.partition_point(|(_, there)| *there <= from);
        match self.there.get(at) {
            Some(&(begins, ends)) if begins < to => {
                let inside = begins <= from && to <= ends && self.octets[offset..end] == *octets;
                let same_end = more || self.end == Some(end);
                if inside && same_end { Ok(false) } else { Err(Reason::Overlap) }
            }
            _ => Ok(true),
        }
    }

    /// Puts a fragment where nothing is.
    fn put(&mut self, offset: usize, fragment: &Fragment<'_>) {
        let end = offset + fragment.octets.len();
        if self.octets.len() < end {
            self.octets.resize(end, 0);
        }
        self.octets[offset..end].copy_from_slice(fragment.octets);
        if !fragment.more {
            self.end = Some(end);
        }
        if offset == 0 {
            self.protocol = fragment.protocol;
            self.first.extend_from_slice(&fragment.packet[..fragment.packet.len().min(QUOTED)]);
        }
        let (from, to) = (offset as u32, end as u32);
        let at = self.there.partition_point(|(_, there)| *there < from);
        let touches_before = self.there.get(at).is_some_and(|(_, ends)| *ends == from);
        let next = at + usize::from(touches_before);
        let touches_behind = self.there.get(next).is_some_and(|(begins, _)| *begins == to);
        match (touches_before, touches_behind) {
            (true, true) => {
                self.there[at].1 = self.there[next].1;
                self.there.remove(next);
            }
            (true, false) => self.there[at].1 = to,
            (false, true) => self.there[next].0 = from,
            (false, false) => self.there.insert(at, (from, to)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;
    use std::vec;

    const KEY: Key = Key {
        source: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        destination: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        identification: 1,
        protocol: Some(IpProtocol::UDP),
    };

    fn sec(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn fragment(offset: usize, octets: &[u8], more: bool) -> Fragment<'_> {
        Fragment { offset, more, octets, packet: octets, protocol: IpProtocol::UDP }
    }

    fn octets(len: usize) -> Vec<u8> {
        (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
    }

    fn reassembly(config: Config) -> Reassembly {
        Reassembly::new(config, 3)
    }

    #[test]
    fn fragments_in_any_order_make_the_datagram() {
        let whole = octets(5001);
        for step in [8, 1480, 4096] {
            let mut parts: Vec<_> = (0..5001).step_by(step).map(|at| (at, (at + step).min(5001))).collect();
            for round in 0..3 {
                let mut r = reassembly(Config { pieces: 1000, ..Config::default() });
                let (last, others) = parts.split_last().unwrap();
                for &(at, end) in others {
                    assert_eq!(
                        r.add(sec(0), KEY, &fragment(at, &whole[at..end], end < 5001)),
                        Outcome::Missing
                    );
                }
                assert_eq!(
                    r.add(sec(0), KEY, &fragment(last.0, &whole[last.0..last.1], last.1 < 5001)),
                    Outcome::Whole
                );
                assert_eq!(r.whole(), Some((IpProtocol::UDP, &whole[..])));
                assert_eq!((r.len(), r.used()), (0, 0));
                // Forth, back, and every second one first.
                parts.reverse();
                if round == 1 {
                    parts.sort_by_key(|(at, _)| at / step % 2);
                }
            }
        }
    }

    #[test]
    fn what_overlaps_contradicts_or_is_too_long_ends_its_datagram() {
        use Reason::*;
        let bytes = octets(65_600);
        type Part = (usize, usize, bool);
        // What comes before, what comes then, and why it is dropped.
        let cases: [(&[Part], Part, Reason); 12] = [
            (&[(0, 16, true)], (8, 24, true), Overlap),
            (&[(8, 24, true)], (0, 16, true), Overlap),
            (&[(8, 16, true)], (0, 24, true), Overlap),
            // Teardrop: the second lies inside the first, and says that it is the last one.
            (&[(0, 32, true)], (8, 16, false), Overlap),
            (&[(0, 16, true), (32, 40, true)], (16, 40, true), Overlap),
            (&[(16, 20, false)], (24, 32, true), Overlap),
            (&[(16, 20, false)], (8, 12, false), Overlap),
            (&[(16, 24, true)], (8, 12, false), Overlap),
            (&[(16, 24, true)], (16, 24, false), Overlap),
            (&[], (0, 13, true), Length),
            (&[], (0, 0, false), Length),
            (&[(0, 8, true)], (65_528, 65_540, false), TooLong),
        ];
        for (before, (at, end, more), reason) in cases {
            let mut r = reassembly(Config::default());
            for &(at, end, more) in before {
                assert_eq!(
                    r.add(sec(0), KEY, &fragment(at, &bytes[at..end], more)),
                    Outcome::Missing,
                    "{before:?}"
                );
            }
            let outcome = r.add(sec(0), KEY, &fragment(at, &bytes[at..end], more));
            assert_eq!(outcome, Outcome::Dropped(reason), "{before:?} {at} {end}");
            assert_eq!((r.len(), r.used(), r.whole()), (0, 0, None));
        }
    }

    #[test]
    fn a_fragment_that_comes_twice_is_ignored_and_one_that_differs_is_not() {
        let whole = octets(32);
        let mut r = reassembly(Config::default());
        r.add(sec(0), KEY, &fragment(0, &whole[..16], true));
        assert_eq!(r.add(sec(0), KEY, &fragment(0, &whole[..16], true)), Outcome::Repeated);
        assert_eq!(r.add(sec(0), KEY, &fragment(8, &whole[8..16], true)), Outcome::Repeated);
        assert_eq!(r.add(sec(0), KEY, &fragment(16, &whole[16..], false)), Outcome::Whole);
        r.add(sec(0), KEY, &fragment(0, &whole[..16], true));
        assert_eq!(r.add(sec(0), KEY, &fragment(0, &[0xff; 16], true)), Outcome::Dropped(Reason::Overlap));
    }

    #[test]
    fn what_is_not_whole_in_time_is_given_up_with_its_first_fragment() {
        let mut r = reassembly(Config::default());
        let other = Key { identification: 2, ..KEY };
        r.add(sec(0), KEY, &fragment(8, &[2; 8], false));
        r.add(sec(1), other, &fragment(0, &[3; 8], true));
        assert!(r.give_up(sec(29)).is_none());
        assert_eq!(r.poll_timeout(), Some(sec(30)));
        let gone = r.give_up(sec(30)).expect("one is late");
        assert_eq!((gone.key, gone.first), (KEY, &[][..]));
        assert!(r.give_up(sec(30)).is_none());
        let gone = r.give_up(sec(31)).expect("one is late");
        assert_eq!((gone.key, gone.first), (other, &[3; 8][..]));
        assert_eq!((r.len(), r.used(), r.give_up(sec(99)).is_none()), (0, 0, true));
        // A later datagram of the same number is another one.
        r.add(sec(40), KEY, &fragment(0, &[1; 8], true));
        assert_eq!(r.len(), 1);
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let config = Config { octets: 100_000, most: 20, pieces: 4, ..Config::default() };
        let mut r = reassembly(config);
        let bytes = octets(65_000);
        let mut given_up = 0;
        for identification in 0..10_000u32 {
            let key = Key { identification, ..KEY };
            let at = (identification as usize * 808) % 60_000 / 8 * 8;
            r.add(sec(0), key, &fragment(at, &bytes[at..at + 8], true));
            given_up += core::iter::from_fn(|| r.give_up(sec(0)).map(|_| ())).count();
            assert!(r.used() <= 100_000 && r.len() <= 20);
        }
        assert_eq!(given_up + r.len(), 10_000);
        assert!(r.order.len() <= 4 * 20 + 1 && r.spare.len() <= SPARE);
        // Pieces that touch nothing.
        let mut r = reassembly(config);
        let outcomes =
            [0, 16, 32, 48, 64].map(|at| r.add(sec(0), KEY, &fragment(at, &bytes[at..at + 8], true)));
        assert_eq!(outcomes[3..], [Outcome::Missing, Outcome::Dropped(Reason::Pieces)]);
        assert_eq!(r.used(), 0);
    }

    /// What it has, those that are kept for others left out.
    fn memory(r: &Reassembly) -> usize {
        r.datagrams.iter().map(|d| d.octets.capacity() + d.first.capacity() + 8 * d.there.capacity()).sum()
    }

    #[test]
    fn what_counts_is_the_memory_that_is_held_whatever_ended_before() {
        let config = Config { octets: 200_000, most: 2000, ..Config::default() };
        let mut r = reassembly(config);
        let bytes = octets(65_000);
        for number in 0..1000u32 {
            // A long datagram that becomes whole, and one of which eight octets are there.
            let key = |n: u32| Key { identification: 2 * number + n, ..KEY };
            for at in (0..65_000).step_by(1480) {
                let end = (at + 1480).min(65_000);
                r.add(sec(0), key(0), &fragment(at, &bytes[at..end], end < 65_000));
            }
            // Whoever takes it leaves another one's memory.
            if number % 2 == 0 {
                r.take_whole(&mut vec![0; 60_000], &mut vec![0; 2000]);
            }
            r.add(sec(0), key(1), &fragment(800, &bytes[..8], true));
            while r.give_up(sec(0)).is_some() {}
            assert!(memory(&r) <= r.used() && r.used() <= 200_000, "{} of {}", memory(&r), r.used());
        }
        // Short ones count little: others have room beside them.
        assert!(r.len() > 60, "{}", r.len());
        let kept: usize = r.rooms.0.iter().map(Vec::capacity).sum();
        assert!(r.rooms.0.len() <= ROOMS && kept <= ROOMS * ROOM, "{kept}");
    }

    #[test]
    fn a_datagram_that_begins_and_ends_again_and_again_leaves_nothing_behind() {
        let config = Config { most: 20, ..Config::default() };
        let mut r = reassembly(config);
        for _ in 0..10_000 {
            // All at one time: callers look at the clock once for many frames.
            r.add(sec(0), KEY, &fragment(0, &[1; 16], true));
            assert!(r.give_up(sec(0)).is_none());
            r.add(sec(0), KEY, &fragment(8, &[2; 16], true));
        }
        assert!(r.order.len() <= 4 * 20 + 1, "{}", r.order.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

        #[test]
        fn what_is_given_out_is_what_came(parts in prop::collection::vec(
            (0..6usize, prop_oneof![3 => (1..4usize).prop_map(|u| u * 8), 1 => 0..30usize], prop::bool::weighted(0.7), 0..3u8),
            1..30,
        )) {
            let mut r = reassembly(Config::default());
            let mut came: Vec<Option<u8>> = std::vec![None; 400];
            for (at, len, more, value) in parts {
                let (at, bytes) = (at * 8, std::vec![value; len]);
                match r.add(sec(0), KEY, &fragment(at, &bytes, more)) {
                    Outcome::Missing => came[at..at + len].fill(Some(value)),
                    Outcome::Repeated => prop_assert!(came[at..at + len].iter().all(|o| *o == Some(value))),
                    Outcome::Whole => {
                        came[at..at + len].fill(Some(value));
                        let whole: Option<Vec<u8>> = came.iter().copied().take_while(Option::is_some).collect();
                        prop_assert_eq!(whole.as_deref(), r.whole().map(|(_, octets)| octets));
                        prop_assert_eq!(came.iter().flatten().count(), whole.map_or(0, |w| w.len()));
                        came.fill(None);
                    }
                    Outcome::Dropped(_) => {
                        prop_assert!(r.is_empty() && r.used() == 0);
                        came.fill(None);
                    }
                }
            }
        }
    }
}
