//! What routers said of single destinations: how long packets may be on the way there (RFC 1191, RFC 8201), and that another
//! router is nearer (RFC 1122, 3.2.2.2; RFC 4861, 8). Bounded: who makes us learn much makes us forget.

use crate::iface::IfaceId;
use crate::time::Instant;
use alloc::collections::VecDeque;
use core::net::IpAddr;
use core::time::Duration;
use foldhash::quality::FixedState;
use hashbrown::HashMap;

/// So long what was learnt is believed (RFC 1191, 6.3; RFC 8201, 4: ten minutes).
const AGE: Duration = Duration::from_secs(600);
/// No path is taken to be narrower: IPv4, below what Linux believes nothing (net.ipv4.route.min_pmtu), as small fragments are
/// of use to attackers only.
const LEAST_V4: u32 = 552;
/// The same for IPv6 (RFC 8200, 5).
const LEAST_V6: u32 = 1280;

/// What is known of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Octets of datagrams that get there.
    pub mtu: Option<u32>,
    /// The same of packets of connections.
    pub segments: Option<u32>,
    /// The router to take on this interface.
    pub via: Option<(IfaceId, IpAddr)>,
    learnt: Instant,
}

/// Whose packets are taken to be too long, as some were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narrows {
    /// Those of datagrams: nothing but an address and a port tells the error from one that somebody made up.
    Datagrams,
    /// Those of connections as well: the error names a sequence number that is under way.
    All,
}

/// All of them.
#[derive(Debug)]
pub struct Destinations {
    known: HashMap<IpAddr, Destination, FixedState>,
    order: VecDeque<(Instant, IpAddr)>,
    most: usize,
    /// Those that made room for others since that was last asked for.
    replaced: u64,
}

impl Destinations {
    /// For so many at most. `seed`: a secret, of the table.
    pub fn new(most: usize, seed: u64) -> Destinations {
        let known = HashMap::with_hasher(FixedState::with_seed(seed));
        Destinations { known, order: VecDeque::new(), most, replaced: 0 }
    }

    /// What is known of a destination.
    #[inline]
    pub fn get(&self, to: IpAddr) -> Option<&Destination> {
        if self.known.is_empty() { None } else { self.known.get(&to) }
    }

    /// Longer packets than this do not get there; true: that is news.
    pub fn narrow(&mut self, now: Instant, to: IpAddr, mtu: u32, whose: Narrows) -> bool {
        let mtu = mtu.max(if to.is_ipv4() { LEAST_V4 } else { LEAST_V6 });
        let Some(known) = self.learn(now, to) else { return false };
        let narrower = |before: &mut Option<u32>| {
            let news = before.is_none_or(|before| mtu < before);
            if news {
                *before = Some(mtu);
            }
            news
        };
        let news = narrower(&mut known.mtu);
        match whose {
            Narrows::Datagrams => news,
            Narrows::All => narrower(&mut known.segments) || news,
        }
    }

    /// Another router leads there.
    pub fn redirect(&mut self, now: Instant, to: IpAddr, iface: IfaceId, via: IpAddr) {
        if let Some(known) = self.learn(now, to) {
            known.via = Some((iface, via));
        }
    }

    /// No destination is reached by this router any more; true: some were.
    pub fn forget_router(&mut self, iface: IfaceId, router: IpAddr) -> bool {
        let mut some = false;
        for known in self.known.values_mut() {
            some |= known.via.take_if(|via| *via == (iface, router)).is_some();
        }
        some
    }

    /// Destinations that made room for others since the last call.
    pub const fn take_replaced(&mut self) -> u64 {
        core::mem::replace(&mut self.replaced, 0)
    }

    /// When [`forget`](Destinations::forget) has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.order.front().map(|(learnt, _)| *learnt + AGE)
    }

    /// Forgets what is old; true: something was.
    pub fn forget(&mut self, now: Instant) -> bool {
        let before = self.known.len();
        while let Some(&(learnt, to)) = self.order.front()
            && learnt + AGE <= now
        {
            self.drop_first(learnt, to);
        }
        self.known.len() < before
    }

    /// Destinations that are known.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// None is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The entry of a destination, from now on as old as can be; it is not learnt anew before it is forgotten, so that what
    /// grew wider again is found out.
    fn learn(&mut self, now: Instant, to: IpAddr) -> Option<&mut Destination> {
        if self.most == 0 {
            return None;
        }
        if !self.known.contains_key(&to) {
            if self.known.len() >= self.most
                && let Some(&(learnt, oldest)) = self.order.front()
            {
                self.drop_first(learnt, oldest);
                self.replaced += 1;
            }
            self.order.push_back((now, to));
        }
        let new = Destination { mtu: None, segments: None, via: None, learnt: now };
        Some(self.known.entry(to).or_insert(new))
    }

    fn drop_first(&mut self, learnt: Instant, to: IpAddr) {
        self.order.pop_front();
        if self.known.get(&to).is_some_and(|d| d.learnt == learnt) {
            self.known.remove(&to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sec(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn host(n: u32) -> IpAddr {
        IpAddr::V4(core::net::Ipv4Addr::from_bits(n))
    }

    #[test]
    fn a_path_only_gets_narrower_down_to_a_bound_until_it_is_forgotten() {
        let mut d = Destinations::new(10, 1);
        let all = Narrows::All;
        assert!(d.narrow(sec(0), host(1), 1400, all) && !d.narrow(sec(5), host(1), 1450, all));
        assert!(d.narrow(sec(5), host(1), 68, all) && !d.narrow(sec(6), host(1), 100, all));
        assert_eq!(d.get(host(1)).and_then(|d| d.mtu), Some(LEAST_V4));
        d.redirect(sec(7), host(1), IfaceId(1), host(9));
        assert_eq!(d.poll_timeout(), Some(sec(600)));
        assert!(!d.forget(sec(599)) && d.forget(sec(600)) && d.is_empty());
        assert!(d.narrow(sec(601), "2001:db8::1".parse().unwrap(), 576, all));
        assert_eq!(d.get("2001:db8::1".parse().unwrap()).and_then(|d| d.mtu), Some(1280));
    }

    #[test]
    fn what_is_said_of_datagrams_is_not_taken_to_be_of_connections() {
        let mut d = Destinations::new(10, 1);
        let known = |d: &Destinations| d.get(host(1)).map(|d| (d.mtu, d.segments));
        assert!(d.narrow(sec(0), host(1), 1000, Narrows::Datagrams));
        assert_eq!(known(&d), Some((Some(1000), None)));
        assert!(d.narrow(sec(0), host(1), 1200, Narrows::All));
        assert_eq!(known(&d), Some((Some(1000), Some(1200))));
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut d = Destinations::new(3, 1);
        for n in 0..1000 {
            d.narrow(sec(u64::from(n)), host(n), 1000, Narrows::All);
            assert!(d.len() <= 3 && d.order.len() <= 3);
        }
        assert!(d.get(host(996)).is_none() && d.get(host(997)).is_some());
        assert!(!Destinations::new(0, 1).narrow(sec(0), host(1), 1000, Narrows::All));
    }
}
