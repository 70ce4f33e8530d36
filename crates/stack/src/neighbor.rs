//! Neighbours of one interface: their hardware addresses, and whether they can be reached (RFC 4861, 7.3; the same states serve
//! ARP, RFC 826, whose question and answer are a solicitation and an advertisement).
//!
//! It holds what waits for an address, and says what is to be asked; it makes no packets.

use crate::share::{Shares, Whom};
use crate::time::Instant;
use crate::timer::{TimerId, Timers};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bypath_wire::MacAddr;
use core::net::IpAddr;
use core::time::Duration;
use foldhash::quality::FixedState;
use hashbrown::HashMap;

/// How neighbours are asked for (RFC 4861, 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Neighbours at most: further ones take the places of those that were not used for longest. Half of them may be asked for at once, a user
    /// of the stack for no more than he leaves of these: who asks for many takes no place of those that are in use.
    pub most: usize,
    /// What waits for one address at most: a further one takes the place of the oldest (RFC 4861, 7.2.2).
    pub waiting: usize,
    /// Times that everybody is asked for an address: MAX_MULTICAST_SOLICIT.
    pub solicitations: u8,
    /// Times that a neighbour is asked whether it is still there: MAX_UNICAST_SOLICIT.
    pub probes: u8,
    /// Time between two of them: RETRANS_TIMER.
    pub retransmit: Duration,
    /// So long a neighbour that answered is taken to be there: ReachableTime, before it is spread.
    pub reachable: Duration,
    /// So long a neighbour that may have gone is used before it is asked: DELAY_FIRST_PROBE_TIME.
    pub delay: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            most: 1024,
            waiting: 64,
            solicitations: 3,
            probes: 3,
            retransmit: Duration::from_secs(1),
            reachable: Duration::from_secs(30),
            delay: Duration::from_secs(5),
        }
    }
}

/// What is known of a neighbour (RFC 4861, 7.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is being asked for its address.
    Incomplete,
    /// It answered lately.
    Reachable,
    /// It may have gone; nobody has sent it anything since.
    Stale,
    /// It was sent something, and may yet be heard of.
    Delay,
    /// It is being asked whether it is there.
    Probe,
}

/// An answer to a solicitation, or an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// The address; `None`: it told none (IPv6 only).
    pub mac: Option<MacAddr>,
    /// It answers us.
    pub solicited: bool,
    /// It replaces what is known.
    pub overrides: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask for this address: everybody, or only whom it belonged to.
    Solicit {
        /// Whose hardware address is looked for.
        address: IpAddr,
        /// The one to ask; `None`: all.
        to: Option<MacAddr>,
    },
    /// Nobody answered. What waited is [lost](Neighbors::take_lost).
    Unreachable {
        /// The address that nobody has.
        address: IpAddr,
    },
}

#[derive(Debug)]
struct Entry<W> {
    address: IpAddr,
    mac: MacAddr,
    state: State,
    /// Told by a user: it stays as it is.
    permanent: bool,
    /// Since the hand passed by.
    used: bool,
    /// Questions without an answer.
    asked: u8,
    /// For whom it was asked for first.
    whom: Whom,
    timer: TimerId,
    waiting: VecDeque<W>,
}

/// The neighbours of an interface, and what waits for them.
#[derive(Debug)]
pub struct Neighbors<W> {
    config: Config,
    places: HashMap<IpAddr, u32, FixedState>,
    entries: Vec<Entry<W>>,
    timers: Timers<u32>,
    /// Those that are being asked for, and for whom.
    incomplete: usize,
    asking: Shares,
    /// Where the one stands that was looked up last.
    last: u32,
    /// Where the search for an unused one goes on.
    hand: usize,
    /// What is to be taken and given up: of entries that made room, or did not answer.
    lost: VecDeque<(IpAddr, W)>,
    /// Neighbours that made room for others since that was last asked for.
    replaced: u64,
    /// State of the numbers that spread times.
    random: u64,
}

impl<W> Neighbors<W> {
    /// `seed`: a secret; of the table, and of the numbers by which hosts that began together do not ask together.
    pub fn new(config: Config, seed: u64) -> Neighbors<W> {
        Neighbors {
            config,
            places: HashMap::with_hasher(FixedState::with_seed(seed)),
            entries: Vec::new(),
            timers: Timers::default(),
            incomplete: 0,
            asking: Shares::default(),
            last: 0,
            hand: 0,
            lost: VecDeque::new(),
            replaced: 0,
            random: seed | 1,
        }
    }

    /// The hardware address of a neighbour, for a packet that is about to be sent.
    #[inline]
    pub fn lookup(&mut self, now: Instant, address: IpAddr) -> Option<MacAddr> {
        // Most packets go where the last one went.
        let place = match self.entries.get(self.last as usize) {
            Some(entry) if entry.address == address => self.last,
            _ => *self.places.get(&address)?,
        };
        self.last = place;
        let entry = &mut self.entries[place as usize];
        entry.used = true;
        match entry.state {
            State::Incomplete => None,
            State::Stale if !entry.permanent => {
                // RFC 4861, 7.3.3: the first packet to a stale neighbour begins the delay.
                (entry.state, entry.asked) = (State::Delay, 0);
                self.timers.set(entry.timer, now + self.config.delay);
                Some(entry.mac)
            }
            _ => Some(entry.mac),
        }
    }

    /// Lets something wait for an address that [`lookup`](Neighbors::lookup) did not know, which is asked for from now on. What
    /// gives way to it: the oldest one that waits for the same address; or itself, where as many are asked for as may be, or as may be for
    /// this user (0: for nobody in particular).
    pub fn wait(&mut self, now: Instant, address: IpAddr, whom: u32, what: W) -> Option<W> {
        let place = match self.places.get(&address) {
            Some(&place) => place,
            None => {
                let most = self.config.most.div_ceil(2);
                if !self.asking.may_have(whom, 1, most - self.incomplete.min(most)) {
                    return Some(what);
                }
                let Some(place) = self.begin(address, MacAddr::default(), State::Incomplete) else {
                    return Some(what);
                };
                self.entries[place as usize].whom = whom;
                self.asking.add(whom, 1);
                self.incomplete += 1;
                self.timers.set(self.entries[place as usize].timer, now);
                place
            }
        };
        let waiting = &mut self.entries[place as usize].waiting;
        // First out, then in: the list has no more room than it needs.
        let gone = if waiting.len() >= self.config.waiting { waiting.pop_front() } else { None };
        waiting.push_back(what);
        gone
    }

    /// The next that waited for an address that is known now.
    pub fn take_ready(&mut self, address: IpAddr) -> Option<W> {
        let place = *self.places.get(&address)?;
        let entry = &mut self.entries[place as usize];
        let ready = (entry.state != State::Incomplete).then(|| entry.waiting.pop_front()).flatten();
        // One that is known is kept for long, and hardly ever waited for again.
        if entry.waiting.is_empty() {
            entry.waiting = VecDeque::new();
        }
        ready
    }

    /// The next that waited in vain, and for whom. To be asked until there is none after each call that can make one lose its
    /// place: [`wait`](Neighbors::wait), [`heard`](Neighbors::heard), [`poll`](Neighbors::poll), [`remove`](Neighbors::remove).
    pub fn take_lost(&mut self) -> Option<(IpAddr, W)> {
        let lost = self.lost.pop_front();
        if lost.is_none() && self.lost.capacity() > 0 {
            self.lost = VecDeque::new();
        }
        lost
    }

    /// Neighbours that made room for others since the last call.
    pub const fn take_replaced(&mut self) -> u64 {
        core::mem::replace(&mut self.replaced, 0)
    }

    /// A neighbour asked us for our address, and told its own (RFC 4861, 7.2.3; RFC 826). True: what waits for it is ready.
    pub fn heard(&mut self, address: IpAddr, mac: MacAddr) -> bool {
        if !is_station(mac) {
            return false;
        }
        let Some(&place) = self.places.get(&address) else {
            self.begin(address, mac, State::Stale);
            return false;
        };
        let entry = &self.entries[place as usize];
        if entry.permanent || entry.mac == mac && entry.state != State::Incomplete {
            return false;
        }
        // What waits for one whose address was known before was ready then, and is still.
        let was_unknown = entry.state == State::Incomplete;
        self.become_known(place);
        let entry = &mut self.entries[place as usize];
        (entry.mac, entry.state) = (mac, State::Stale);
        self.timers.stop(entry.timer);
        was_unknown && !entry.waiting.is_empty()
    }

    /// A neighbour advertised itself (RFC 4861, 7.2.5). True: what waits for it is ready. One that nobody asked for is not noted.
    pub fn advertised(&mut self, now: Instant, address: IpAddr, advertisement: Advertisement) -> bool {
        let Advertisement { mac, solicited, overrides } = advertisement;
        let Some(&place) = self.places.get(&address) else { return false };
        let entry = &mut self.entries[place as usize];
        if entry.permanent || mac.is_some_and(|mac| !is_station(mac)) {
            return false;
        }
        if entry.state == State::Incomplete {
            let Some(mac) = mac else { return false };
            entry.mac = mac;
            self.settle(now, place, solicited);
            return !self.entries[place as usize].waiting.is_empty();
        }
        let other = mac.is_some_and(|mac| mac != entry.mac);
        if other && !overrides {
            // I. of 7.2.5: a doubt, and nothing more.
            if entry.state == State::Reachable {
                entry.state = State::Stale;
                self.timers.stop(entry.timer);
            }
            return false;
        }
        entry.mac = mac.unwrap_or(entry.mac);
        if solicited || other {
            self.settle(now, place, solicited);
        }
        false
    }

    /// Somebody above heard from a neighbour what only an answer to what we sent can be (RFC 4861, 7.3.1).
    pub fn confirmed(&mut self, now: Instant, address: IpAddr) {
        let Some(&place) = self.places.get(&address) else { return };
        let entry = &self.entries[place as usize];
        if !entry.permanent && entry.state != State::Incomplete {
            self.settle(now, place, true);
        }
    }

    /// A neighbour's address as a user tells it: nothing that is heard changes it. False: there is no room.
    pub fn set_permanent(&mut self, address: IpAddr, mac: MacAddr) -> bool {
        let place = match self.places.get(&address) {
            Some(&place) => Some(place),
            None => self.begin(address, mac, State::Reachable),
        };
        let Some(place) = place else { return false };
        self.become_known(place);
        let entry = &mut self.entries[place as usize];
        (entry.mac, entry.state, entry.permanent) = (mac, State::Reachable, true);
        self.timers.stop(entry.timer);
        true
    }

    /// Forgets a neighbour. What waited for it is lost.
    pub fn remove(&mut self, address: IpAddr) {
        if let Some(&place) = self.places.get(&address) {
            self.forget(place as usize);
        }
    }

    /// What is known of a neighbour.
    pub fn state(&self, address: IpAddr) -> Option<(State, MacAddr)> {
        let entry = &self.entries[*self.places.get(&address)? as usize];
        Some((entry.state, entry.mac))
    }

    /// All that are known or asked for, and what is known of them.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, State, MacAddr)> {
        self.entries.iter().map(|entry| (entry.address, entry.state, entry.mac))
    }

    /// Neighbours that are known or asked for.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Nobody is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When [`poll`](Neighbors::poll) has something to say.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// What is to be done by now, until nothing is.
    pub fn poll(&mut self, now: Instant) -> Option<Action> {
        while let Some(place) = self.timers.pop_due(now) {
            let entry = &mut self.entries[place as usize];
            let most = match entry.state {
                State::Reachable => {
                    entry.state = State::Stale;
                    continue;
                }
                State::Stale => continue,
                State::Delay => {
                    (entry.state, entry.asked) = (State::Probe, 0);
                    self.config.probes
                }
                State::Probe => self.config.probes,
                State::Incomplete => self.config.solicitations,
            };
            let address = entry.address;
            if entry.asked >= most {
                self.forget(place as usize);
                return Some(Action::Unreachable { address });
            }
            entry.asked += 1;
            self.timers.set(entry.timer, now + self.config.retransmit);
            let to = (entry.state == State::Probe).then_some(entry.mac);
            return Some(Action::Solicit { address, to });
        }
        None
    }

    /// Reachable from now on, or stale.
    fn settle(&mut self, now: Instant, place: u32, reachable: bool) {
        let spread = self.spread();
        self.become_known(place);
        let entry = &mut self.entries[place as usize];
        if reachable {
            entry.state = State::Reachable;
            self.timers.set(entry.timer, now + spread);
        } else {
            entry.state = State::Stale;
            self.timers.stop(entry.timer);
        }
    }

    /// Half to one and a half of the time that a neighbour is reachable (RFC 4861, 6.3.2).
    fn spread(&mut self) -> Duration {
        // xorshift64: it must differ between hosts, not be secret.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let part = (self.random >> 32) as u32;
        self.config.reachable / 2 + self.config.reachable.mul_f64(f64::from(part) / f64::from(u32::MAX))
    }

    /// A new neighbour; `None`: there is no room, as all that there are were told by a user.
    fn begin(&mut self, address: IpAddr, mac: MacAddr, state: State) -> Option<u32> {
        if self.entries.len() >= self.config.most {
            let place = self.least_used()?;
            self.forget(place);
            self.replaced += 1;
        }
        let place = self.entries.len() as u32;
        let timer = self.timers.create(place);
        let waiting = VecDeque::new();
        self.entries.push(Entry {
            address,
            mac,
            state,
            permanent: false,
            used: false,
            asked: 0,
            whom: 0,
            timer,
            waiting,
        });
        self.places.insert(address, place);
        Some(place)
    }

    /// One that is asked for is so no more: it is about to be known, or forgotten.
    fn become_known(&mut self, place: u32) {
        let entry = &self.entries[place as usize];
        if entry.state == State::Incomplete {
            self.incomplete -= 1;
            self.asking.take(entry.whom, 1);
        }
    }

    /// The first one that was not used since the hand passed by (a clock, which needs no list). What is asked for stays: it has its own bound, and goes
    /// by itself.
    fn least_used(&mut self) -> Option<usize> {
        for _ in 0..2 * self.entries.len() {
            let place = self.hand % self.entries.len();
            self.hand = place + 1;
            let entry = &mut self.entries[place];
            if !entry.permanent && entry.state != State::Incomplete && !core::mem::take(&mut entry.used) {
                return Some(place);
            }
        }
        None
    }

    /// Takes an entry out; the last one gets its place.
    fn forget(&mut self, place: usize) {
        self.become_known(place as u32);
        let gone = self.entries.swap_remove(place);
        self.timers.remove(gone.timer);
        self.places.remove(&gone.address);
        self.lost.extend(gone.waiting.into_iter().map(|what| (gone.address, what)));
        if let Some(moved) = self.entries.get_mut(place) {
            self.timers.set_key(moved.timer, place as u32);
            self.places.insert(moved.address, place as u32);
        }
    }
}

/// Whether a frame can be sent to it alone.
fn is_station(mac: MacAddr) -> bool {
    !mac.is_multicast() && mac != MacAddr::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;
    use std::vec;

    const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
    const ANSWER: Advertisement = Advertisement { mac: Some(MAC), solicited: true, overrides: true };

    fn sec(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn neighbors(config: Config) -> Neighbors<u32> {
        Neighbors::new(config, 7)
    }

    /// What is to be done at this time.
    fn all(neighbors: &mut Neighbors<u32>, now: Instant) -> Vec<Action> {
        core::iter::from_fn(|| neighbors.poll(now)).collect()
    }

    fn lost(neighbors: &mut Neighbors<u32>) -> Vec<u32> {
        core::iter::from_fn(|| neighbors.take_lost()).map(|(_, what)| what).collect()
    }

    const ASK: Action = Action::Solicit { address: A, to: None };
    const PROBE: Action = Action::Solicit { address: A, to: Some(MAC) };

    #[test]
    fn what_waits_goes_out_in_its_order_when_the_address_is_known() {
        let mut n = neighbors(Config::default());
        assert_eq!(n.lookup(sec(0), A), None);
        assert_eq!([n.wait(sec(0), A, 0, 1), n.wait(sec(0), A, 0, 2)], [None, None]);
        assert_eq!(all(&mut n, sec(0)), [ASK]);
        assert_eq!((n.take_ready(A), n.lookup(sec(0), A)), (None, None));
        assert!(n.advertised(sec(0), A, ANSWER));
        assert_eq!([n.take_ready(A), n.take_ready(A), n.take_ready(A)], [Some(1), Some(2), None]);
        assert_eq!((n.lookup(sec(1), A), n.state(A)), (Some(MAC), Some((State::Reachable, MAC))));
    }

    #[test]
    fn who_does_not_answer_is_asked_three_times_and_given_up() {
        let mut n = neighbors(Config::default());
        n.wait(sec(10), A, 0, 1);
        for second in 10..13 {
            assert_eq!(n.poll_timeout(), Some(sec(second)));
            assert_eq!(all(&mut n, sec(second)), [ASK]);
            n.wait(sec(second), A, 0, 2);
        }
        assert_eq!(all(&mut n, sec(13)), [Action::Unreachable { address: A }]);
        assert_eq!(lost(&mut n), [1, 2, 2, 2]);
        assert!(n.is_empty() && n.poll_timeout().is_none());
    }

    #[test]
    fn the_oldest_that_waits_gives_way() {
        let mut n = neighbors(Config { waiting: 2, ..Config::default() });
        let gone: Vec<_> = (0..4).map(|what| n.wait(sec(0), A, 0, what)).collect();
        assert_eq!(gone, [None, None, Some(0), Some(1)]);
    }

    #[test]
    fn lists_of_what_waits_have_memory_as_long_as_something_waits() {
        let mut n = neighbors(Config { waiting: 64, ..Config::default() });
        let gone = (0..200).filter_map(|what| n.wait(sec(0), A, 0, what)).count();
        assert_eq!(gone, 136);
        assert!(n.entries[0].waiting.capacity() <= 64);
        n.advertised(sec(0), A, ANSWER);
        assert_eq!(core::iter::from_fn(|| n.take_ready(A)).count(), 64);
        assert_eq!(n.entries[0].waiting.capacity(), 0);
        n.remove(A);
        n.wait(sec(0), A, 0, 1);
        n.remove(A);
        assert_eq!((lost(&mut n), n.lost.capacity()), (vec![1], 0));
    }

    #[test]
    fn a_neighbour_that_is_used_again_after_its_time_is_probed() {
        let mut n = neighbors(Config::default());
        n.wait(sec(0), A, 0, 1);
        n.advertised(sec(0), A, ANSWER);
        // Half to one and a half of 30 s.
        let stale = n.poll_timeout().expect("a time");
        assert!(stale >= sec(15) && stale <= sec(45), "{stale:?}");
        assert_eq!(all(&mut n, stale), []);
        assert_eq!((n.state(A), n.poll_timeout()), (Some((State::Stale, MAC)), None));
        // Used: known for five seconds more, then asked alone, once a second.
        assert_eq!(n.lookup(sec(100), A), Some(MAC));
        assert_eq!(n.poll_timeout(), Some(sec(105)));
        for second in 105..108 {
            assert_eq!(all(&mut n, sec(second)), [PROBE]);
            assert_eq!((n.lookup(sec(second), A), n.state(A)), (Some(MAC), Some((State::Probe, MAC))));
        }
        // It answers at the last moment, and the next time it does not.
        n.advertised(sec(108), A, ANSWER);
        assert_eq!(n.state(A), Some((State::Reachable, MAC)));
        assert_eq!(all(&mut n, sec(200)), []);
        n.lookup(sec(200), A);
        let actions: Vec<_> = (200..=208).flat_map(|second| all(&mut n, sec(second))).collect();
        assert_eq!(actions, [PROBE, PROBE, PROBE, Action::Unreachable { address: A }]);
        assert_eq!(n.lookup(sec(208), A), None);
    }

    #[test]
    fn news_from_above_spares_the_probe() {
        let mut n = neighbors(Config::default());
        n.heard(A, MAC);
        assert_eq!(n.lookup(sec(0), A), Some(MAC));
        n.confirmed(sec(1), A);
        assert_eq!(all(&mut n, sec(10)), []);
        assert_eq!(n.state(A), Some((State::Reachable, MAC)));
    }

    /// RFC 4861, 7.2.5, and Appendix C.
    #[test]
    fn advertisements_change_what_the_rfc_says_they_change() {
        use State::{Reachable, Stale};
        // What is known, what comes, what is known then.
        for (known, mac, solicited, overrides, then) in [
            (Reachable, Some(MAC), false, false, (Reachable, MAC)),
            (Stale, Some(MAC), true, false, (Reachable, MAC)),
            (Stale, None, true, true, (Reachable, MAC)),
            (Stale, None, false, true, (Stale, MAC)),
            (Stale, Some(MAC), false, true, (Stale, MAC)),
            (Reachable, Some(OTHER), false, false, (Stale, MAC)),
            (Reachable, Some(OTHER), true, false, (Stale, MAC)),
            (Stale, Some(OTHER), true, false, (Stale, MAC)),
            (Reachable, Some(OTHER), true, true, (Reachable, OTHER)),
            (Reachable, Some(OTHER), false, true, (Stale, OTHER)),
            // An address of several, or of none, is nobody's.
            (Reachable, Some(MacAddr::BROADCAST), true, true, (Reachable, MAC)),
            (Reachable, Some(MacAddr([0; 6])), true, true, (Reachable, MAC)),
        ] {
            let mut n = neighbors(Config::default());
            n.heard(A, MAC);
            if known == Reachable {
                n.confirmed(sec(0), A);
            }
            assert!(!n.advertised(sec(0), A, Advertisement { mac, solicited, overrides }));
            assert_eq!(n.state(A), Some(then), "{known:?} {mac:?} {solicited} {overrides}");
        }
        // Nobody asked for it.
        let mut n = neighbors(Config::default());
        n.advertised(sec(0), A, ANSWER);
        assert_eq!(n.state(A), None);
        // An answer without an address leaves the question open.
        n.wait(sec(0), A, 0, 1);
        assert!(!n.advertised(sec(0), A, Advertisement { mac: None, ..ANSWER }));
        assert_eq!(n.state(A).map(|s| s.0), Some(State::Incomplete));
    }

    #[test]
    fn who_asks_us_tells_where_it_is() {
        let mut n = neighbors(Config::default());
        n.wait(sec(0), A, 0, 1);
        assert!(n.heard(A, MAC));
        assert_eq!((n.state(A), n.take_ready(A)), (Some((State::Stale, MAC)), Some(1)));
        n.confirmed(sec(0), A);
        // The same again is no news, another address is.
        n.heard(A, MAC);
        assert_eq!(n.state(A), Some((State::Reachable, MAC)));
        n.heard(A, OTHER);
        assert_eq!(n.state(A), Some((State::Stale, OTHER)));
    }

    #[test]
    fn what_waits_is_ready_once_however_often_an_address_moves() {
        let mut n = neighbors(Config::default());
        n.wait(sec(0), A, 0, 1);
        let told: Vec<_> = [MAC, OTHER, MAC, OTHER].into_iter().map(|mac| n.heard(A, mac)).collect();
        assert_eq!(told, [true, false, false, false]);
        assert_eq!(n.take_ready(A), Some(1));
    }

    #[test]
    fn a_permanent_neighbour_stays_whatever_is_heard() {
        let mut n = neighbors(Config { most: 1, ..Config::default() });
        assert!(n.set_permanent(A, MAC));
        n.heard(A, OTHER);
        n.advertised(sec(0), A, Advertisement { mac: Some(OTHER), ..ANSWER });
        assert_eq!((n.lookup(sec(1000), A), n.poll_timeout()), (Some(MAC), None));
        // Nobody else finds a place.
        assert_eq!(n.wait(sec(0), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 0, 5), Some(5));
        n.remove(A);
        assert!(n.is_empty());
    }

    #[test]
    fn a_flood_of_addresses_takes_no_place_of_those_in_use() {
        let mut n = neighbors(Config { most: 16, ..Config::default() });
        n.heard(A, MAC);
        for host in 0..10_000u32 {
            assert_eq!(n.lookup(sec(0), A), Some(MAC));
            let nobody = IpAddr::V4(Ipv4Addr::from_bits(0x0a01_0000 + host));
            // Half of the places are for those who are asked for, and they stay theirs.
            let gone = (host >= 8).then_some(host);
            assert_eq!((n.lookup(sec(0), nobody), n.wait(sec(0), nobody, 0, host)), (None, gone));
            assert!(lost(&mut n).is_empty());
            // Others tell where they are.
            n.heard(IpAddr::V4(Ipv4Addr::from_bits(0x0a02_0000 + host)), OTHER);
            assert!(lost(&mut n).is_empty() && n.len() <= 16);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

        /// Whatever happens, what waits comes out once, by one of the ways out, and the table keeps its bound.
        #[test]
        fn nothing_that_waits_is_lost_or_doubled(steps in prop::collection::vec((0..7u8, 0..6u8, any::<bool>()), 1..200)) {
            let mut n = neighbors(Config { most: 4, waiting: 3, ..Config::default() });
            let (mut given, mut out, mut now) = (0, Vec::new(), 0);
            for (step, host, flag) in steps {
                let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, host));
                let time = sec(now);
                match step {
                    0 | 1 if n.lookup(time, address).is_none() => {
                        out.extend(n.wait(time, address, 0, given));
                        given += 1;
                    }
                    2 => {
                        n.advertised(time, address, Advertisement { solicited: flag, ..ANSWER });
                    }
                    3 => {
                        n.heard(address, if flag { MAC } else { OTHER });
                    }
                    4 => n.remove(address),
                    5 if flag => prop_assert_eq!(n.set_permanent(address, MAC), n.state(address).is_some()),
                    _ => {
                        now += 1;
                        while n.poll(sec(now)).is_some() {}
                    }
                }
                out.extend(core::iter::from_fn(|| n.take_ready(address)));
                out.extend(core::iter::from_fn(|| n.take_lost()).map(|(_, what)| what));
                prop_assert!(n.len() <= 4);
            }
            for host in 0..6 {
                n.remove(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)));
            }
            out.extend(core::iter::from_fn(|| n.take_lost()).map(|(_, what)| what));
            out.sort_unstable();
            prop_assert_eq!(out, (0..given).collect::<Vec<_>>());
        }
    }
}
