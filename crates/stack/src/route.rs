//! The routing table: which interface and which neighbour lead to an address (RFC 1122, 3.3.1; RFC 4861, 5.2).
//!
//! The longest prefix wins, then the smallest metric, then the route that was there first. Lookups walk a sorted list, which
//! is short; who sends often remembers what was found, and asks again when the [generation](Routes::generation) is another.

use crate::iface::IfaceId;
use crate::prefix::Prefix;
use alloc::vec::Vec;
use core::net::IpAddr;

/// A way to a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where it leads.
    pub prefix: Prefix,
    /// Through this interface.
    pub iface: IfaceId,
    /// By this router; `None`: the receivers are neighbours.
    pub via: Option<IpAddr>,
    /// Of several to one network the smallest is taken.
    pub metric: u32,
    /// The source address of those who bind to none; `None`: as RFC 6724 has it.
    pub source: Option<IpAddr>,
}

/// What is known of ways beside where they lead; `None`: as ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Octets of a packet at most, if a link takes more: `mtu` of ip-route(8).
    pub mtu: Option<u32>,
    /// Octets of payload that others are asked to put into a segment of TCP at most: `advmss`.
    pub mss: Option<u16>,
    /// Segments of a connection's first window, in place of RFC 6928's: `initcwnd`.
    pub initial_window: Option<u16>,
}

/// A route that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoRoute {
    /// The same network, interface, router and metric are in the table.
    #[error("there is such a route already")]
    Exists,
    /// The table is full: `Config::routes`.
    #[error("the table holds {most} routes, and no more")]
    Full {
        /// Routes at most.
        most: usize,
    },
    /// IPv4 by a router of IPv6, a router or source that is nobody's address.
    #[error("the router and the source must be addresses of single hosts, of the network's kind")]
    Address,
}

/// All routes of a stack, and what is known of ways.
#[derive(Debug)]
pub struct Routes {
    /// Longest prefix first, then smallest metric.
    routes: Vec<Route>,
    /// Longest prefix first.
    metrics: Vec<(Prefix, Metrics)>,
    most: usize,
    generation: u64,
}

impl Routes {
    /// For so many routes at most.
    pub fn new(most: usize) -> Routes {
        Routes { routes: Vec::new(), metrics: Vec::new(), most, generation: 0 }
    }

    /// Adds a route; bits behind the network's are ignored.
    ///
    /// # Errors
    /// [`NoRoute`].
    pub fn add(&mut self, route: Route) -> Result<(), NoRoute> {
        let route = Route { prefix: route.prefix.network(), ..route };
        let of_kind = |address: IpAddr| {
            address.is_ipv4() == route.prefix.address().is_ipv4()
                && !address.is_unspecified()
                && !address.is_multicast()
        };
        if !route.via.is_none_or(of_kind) || !route.source.is_none_or(of_kind) {
            return Err(NoRoute::Address);
        }
        let same = |r: &Route| (r.prefix, r.iface, r.via, r.metric);
        if self.routes.iter().any(|r| same(r) == same(&route)) {
            return Err(NoRoute::Exists);
        }
        if self.routes.len() >= self.most {
            return Err(NoRoute::Full { most: self.most });
        }
        let rank = |r: &Route| (core::cmp::Reverse(r.prefix.len()), r.metric);
        let place = self.routes.partition_point(|r| rank(r) <= rank(&route));
        self.routes.insert(place, route);
        self.generation += 1;
        Ok(())
    }

    /// Removes the routes of which this is true; how many they were.
    pub fn remove(&mut self, gone: impl Fn(&Route) -> bool) -> usize {
        let before = self.routes.len();
        self.routes.retain(|r| !gone(r));
        let removed = before - self.routes.len();
        self.generation += u64::from(removed > 0);
        removed
    }

    /// The best route to an address; `through`: only by this interface.
    pub fn lookup(&self, to: IpAddr, through: Option<IfaceId>) -> Option<&Route> {
        self.routes.iter().find(|r| r.prefix.contains(to) && through.is_none_or(|iface| iface == r.iface))
    }

    /// What is known of the ways to a network; nothing: it is forgotten. True: it is something else than before.
    ///
    /// # Errors
    /// [`NoRoute::Full`]: it is known of as many networks as there may be routes.
    pub fn set_metrics(&mut self, to: Prefix, metrics: Metrics) -> Result<bool, NoRoute> {
        let to = to.network();
        let at = self.metrics.iter().position(|(prefix, _)| *prefix == to);
        match at {
            Some(at) if self.metrics[at].1 == metrics => return Ok(false),
            Some(at) if metrics == Metrics::default() => drop(self.metrics.remove(at)),
            Some(at) => self.metrics[at].1 = metrics,
            None if metrics == Metrics::default() => return Ok(false),
            None if self.metrics.len() >= self.most => return Err(NoRoute::Full { most: self.most }),
            None => {
                let place = self.metrics.partition_point(|(prefix, _)| prefix.len() >= to.len());
                self.metrics.insert(place, (to, metrics));
            }
        }
        self.generation += 1;
        Ok(true)
    }

    /// What is known of the way to an address: by the longest prefix of which something is.
    pub fn metrics(&self, to: IpAddr) -> Metrics {
        self.metrics.iter().find(|(prefix, _)| prefix.contains(to)).map_or(Metrics::default(), |(_, m)| *m)
    }

    /// Another number for each change.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// All of them, longest prefix first.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FIRST: IfaceId = IfaceId(0);
    const SECOND: IfaceId = IfaceId(1);

    fn route(prefix: &str, iface: IfaceId, via: Option<&str>, metric: u32) -> Route {
        let via = via.map(|a| a.parse().unwrap());
        Route { prefix: prefix.parse().unwrap(), iface, via, metric, source: None }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_longest_prefix_wins_then_the_metric_then_who_came_first() {
        let mut routes = Routes::new(16);
        for r in [
            route("0.0.0.0/0", FIRST, Some("10.0.0.1"), 100),
            route("0.0.0.0/0", SECOND, Some("10.9.0.1"), 50),
            route("10.0.0.7/24", FIRST, None, 100),
            route("10.0.0.128/25", SECOND, None, 900),
            route("10.0.0.0/24", SECOND, None, 100),
            route("::/0", SECOND, Some("fe80::1"), 0),
        ] {
            routes.add(r).unwrap();
        }
        let to = |address: &str, through| routes.lookup(ip(address), through).map(|r| (r.iface, r.metric));
        assert_eq!(to("8.8.8.8", None), Some((SECOND, 50)));
        assert_eq!(to("8.8.8.8", Some(FIRST)), Some((FIRST, 100)));
        assert_eq!(to("10.0.0.5", None), Some((FIRST, 100)));
        assert_eq!(to("10.0.0.200", None), Some((SECOND, 900)));
        assert_eq!(to("10.0.0.200", Some(FIRST)), Some((FIRST, 100)));
        assert_eq!(to("2001:db8::1", None), Some((SECOND, 0)));
        assert_eq!(to("2001:db8::1", Some(FIRST)), None);
    }

    #[test]
    fn what_is_known_of_ways_is_found_by_the_longest_prefix_and_forgotten() {
        let mut routes = Routes::new(2);
        let narrow = |mtu| Metrics { mtu: Some(mtu), ..Metrics::default() };
        let (all, near, host): (Prefix, Prefix, Prefix) =
            ("0.0.0.0/0".parse().unwrap(), "10.0.0.0/8".parse().unwrap(), "10.0.0.1/32".parse().unwrap());
        assert_eq!(routes.set_metrics(all, narrow(1400)), Ok(true));
        assert_eq!(routes.set_metrics(near, narrow(1300)), Ok(true));
        assert_eq!(routes.set_metrics(near, narrow(1300)), Ok(false), "it is known already");
        assert_eq!(routes.set_metrics(host, narrow(1200)), Err(NoRoute::Full { most: 2 }));
        let mtu = |routes: &Routes, to: &str| routes.metrics(to.parse().unwrap()).mtu;
        assert_eq!((mtu(&routes, "10.0.0.1"), mtu(&routes, "11.0.0.1")), (Some(1300), Some(1400)));
        assert_eq!(mtu(&routes, "fd00::1"), None);
        let generation = routes.generation();
        assert_eq!(routes.set_metrics(near, Metrics::default()), Ok(true));
        assert!(routes.generation() > generation);
        assert_eq!(routes.set_metrics(near, Metrics::default()), Ok(false));
        assert_eq!(routes.set_metrics(host, narrow(1200)), Ok(true));
        assert_eq!((mtu(&routes, "10.0.0.1"), mtu(&routes, "10.0.0.2")), (Some(1200), Some(1400)));
    }

    #[test]
    fn what_is_there_does_not_fit_or_cannot_be_is_refused() {
        let mut routes = Routes::new(2);
        let first = route("10.0.0.0/8", FIRST, None, 1);
        assert_eq!(routes.add(first), Ok(()));
        assert_eq!(routes.add(route("10.5.0.0/8", FIRST, None, 1)), Err(NoRoute::Exists));
        for (prefix, via) in
            [("10.0.0.0/8", "fe80::1"), ("::/0", "10.0.0.1"), ("::/0", "ff02::1"), ("::/0", "::")]
        {
            assert_eq!(
                routes.add(route(prefix, FIRST, Some(via), 1)),
                Err(NoRoute::Address),
                "{prefix} {via}"
            );
        }
        assert_eq!(routes.generation(), 1);
        assert_eq!(routes.add(route("10.0.0.0/8", FIRST, None, 2)), Ok(()));
        assert_eq!(routes.add(route("10.0.0.0/8", FIRST, None, 3)), Err(NoRoute::Full { most: 2 }));
        assert_eq!(routes.remove(|r| r.metric == 1), 1);
        assert_eq!((routes.remove(|r| r.metric == 1), routes.generation()), (0, 3));
        assert_eq!(routes.iter().map(|r| r.metric).collect::<Vec<_>>(), [2]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

        #[test]
        fn no_route_that_leads_there_is_better(
            all in prop::collection::vec((any::<[u8; 4]>(), 0..=32u8, 0..3u32, 0..2u32), 0..20),
            to in any::<[u8; 4]>(),
        ) {
            let mut routes = Routes::new(100);
            let to = IpAddr::from(to);
            for (address, len, metric, iface) in all {
                // Few networks, so that they hold each other and the address.
                let address = IpAddr::from(address.map(|b| b & 3));
                let prefix = Prefix::new(address, len).unwrap();
                let _ = routes.add(Route { prefix, iface: IfaceId(iface), via: None, metric, source: None });
            }
            let leads: Vec<_> = routes.iter().filter(|r| r.prefix.contains(to)).collect();
            let best = leads.iter().map(|r| (core::cmp::Reverse(r.prefix.len()), r.metric)).min();
            let found = routes.lookup(to, None);
            prop_assert_eq!(found.map(|r| (core::cmp::Reverse(r.prefix.len()), r.metric)), best);
        }
    }
}
