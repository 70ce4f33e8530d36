//! What routers advertise (RFC 4861, 6.3), and addresses that we make ourselves of it (RFC 4862, 5.5): on interfaces where a
//! user wants that.
//!
//! Identifiers of interfaces are opaque and stable (RFC 7217, RFC 8064): they follow from the stack's seed, the interface and
//! the network. Of what routers say, networks, lifetimes, the default router and the MTU are taken.

use crate::Stack;
use crate::egress::Hop;
use crate::iface::{AddressState, IfaceId};
use crate::ingress::Packet;
use crate::prefix::Prefix;
use crate::route::Route;
use crate::stack::Due;
use crate::time::Instant;
use crate::timer::TimerId;
use alloc::vec::Vec;
use bypath_wire::ndp::{NdpOption, NdpOptions, PrefixInformation, RouterPreference};
use bypath_wire::{MacAddr, NdpMessage, ipv6};
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

/// The group of all routers of a link (RFC 4291, 2.7.1).
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// MAX_RTR_SOLICITATIONS and RTR_SOLICITATION_INTERVAL (RFC 4861, 10).
const SOLICITATIONS: u8 = 3;
const INTERVAL: Duration = Duration::from_secs(4);
/// A network is not given up sooner because a message, which anybody may have sent, says so (RFC 4862, 5.5.3 e).
const TWO_HOURS: Duration = Duration::from_secs(2 * 3600);
/// Routers and networks that one interface believes at most.
const MOST: usize = 16;
/// Metric of a default route of medium preference; others stand before and behind it (RFC 4191, 2.1).
const METRIC: u32 = 1024;

/// A network that was advertised.
#[derive(Clone, Copy, Debug)]
struct Network {
    prefix: Prefix,
    /// Its addresses are on the link until then.
    on_link: Option<Instant>,
    /// The address that we made of it, and how long it is preferred and valid.
    address: Option<(Ipv6Addr, Instant, Instant)>,
}

/// What one interface was told by routers.
#[derive(Debug, Default)]
pub(crate) struct Autoconf {
    on: bool,
    solicitations: u8,
    routers: Vec<(Ipv6Addr, Instant)>,
    networks: Vec<Network>,
    /// Octets of packets that the link takes.
    pub mtu: Option<u32>,
    timers: Option<[TimerId; 2]>,
}

impl Autoconf {
    /// Whether a router says that a network is on this link.
    pub fn is_on_link(&self, network: Prefix) -> bool {
        self.networks.iter().any(|known| known.prefix == network && known.on_link.is_some())
    }
}

/// For ever, if the number says that (RFC 4861, 4.6.2).
fn after(now: Instant, seconds: u32) -> Instant {
    match seconds {
        u32::MAX => Instant::from_nanos(u64::MAX),
        seconds => now + Duration::from_secs(seconds.into()),
    }
}

impl Stack {
    /// From now on an Ethernet interface makes itself a link-local address, asks for routers, and believes what they advertise.
    /// False: it is no Ethernet, has an MTU below 1280, or does so already.
    pub fn autoconfigure(&mut self, now: Instant, iface: IfaceId) -> bool {
        let Some(own) = self.ifaces.get_mut(iface.at()) else { return false };
        let able = own.mac().is_some() && own.shape.mtu >= ipv6::MIN_MTU;
        if own.autoconf.on || !able {
            return false;
        }
        let timers = [Due::Lifetimes(iface), Due::Solicit(iface)].map(|due| self.timers.create(due));
        own.autoconf =
            Autoconf { on: true, solicitations: SOLICITATIONS, timers: Some(timers), ..Autoconf::default() };
        if own.link_local().is_none() {
            let address = self.opaque(iface, Prefix::LINK_LOCAL_V6);
            let prefix = Prefix::new(IpAddr::V6(address), 64);
            // As many as there may be: nothing is asked for, then.
            let _full = prefix.map(|prefix| self.add_address(now, iface, prefix));
        }
        // RFC 4861, 6.3.7: not all at once.
        let delay = Duration::from_nanos(self.random.below(1_000_000_000).into());
        self.timers.set(timers[1], now + delay);
        true
    }

    /// An address of a network of 64 bits (RFC 7217, 5).
    fn opaque(&self, iface: IfaceId, network: Prefix) -> Ipv6Addr {
        let IpAddr::V6(network) = network.address() else { return Ipv6Addr::UNSPECIFIED };
        let high = (network.to_bits() >> 64) as u64;
        let low = self.identifiers.function(high, iface.0.into());
        // Not the anycast address of routers, nor one of those that RFC 5453 reserves.
        let low = if low == 0 || low >> 7 == u64::MAX >> 7 { 1 } else { low };
        Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))
    }

    /// Asks for routers (RFC 4861, 6.3.7).
    pub(crate) fn solicit_routers(&mut self, now: Instant, iface: IfaceId) {
        let autoconf = &mut self.ifaces[iface.at()].autoconf;
        let (Some([_, timer]), true) = (autoconf.timers, autoconf.routers.is_empty()) else { return };
        if autoconf.solicitations == 0 {
            return;
        }
        autoconf.solicitations -= 1;
        self.timers.set(timer, now + INTERVAL);
        let own = &self.ifaces[iface.at()];
        let (source, mac) = (own.link_local(), own.mac());
        let option = mac.map(NdpOption::SourceLinkLayer).filter(|_| source.is_some());
        let hop = Hop::Station(MacAddr::of_ipv6_group(ALL_ROUTERS));
        let source = source.unwrap_or(Ipv6Addr::UNSPECIFIED);
        self.send_ndp(iface, hop, source, ALL_ROUTERS, &NdpMessage::RouterSolicitation, option.as_slice());
    }

    /// A router advertises itself (RFC 4861, 6.3.4). False: not like this.
    pub(crate) fn router_advertised(
        &mut self,
        packet: &Packet<'_>,
        source: Ipv6Addr,
        message: &NdpMessage,
        options: &NdpOptions<'_>,
    ) -> bool {
        let NdpMessage::RouterAdvertisement { lifetime, preference, .. } = *message else { return false };
        // RFC 4861, 6.1.2.
        if !source.is_unicast_link_local() {
            return false;
        }
        let (now, iface) = (packet.now, packet.through);
        if !self.ifaces[iface.at()].autoconf.on {
            return true;
        }
        if let Some(mac) = options.source_link_layer() {
            if self.ifaces[iface.at()].neighbors.heard(IpAddr::V6(source), mac) {
                self.resolved(iface, IpAddr::V6(source));
            }
            self.drop_lost(iface, None);
        }
        self.default_router(now, iface, source, lifetime, preference);
        for option in options.iter() {
            match option {
                NdpOption::Prefix(information) => self.network_advertised(now, iface, &information),
                NdpOption::Mtu(mtu) => {
                    let own = &mut self.ifaces[iface.at()];
                    // RFC 4861, 6.3.4: no less than any link has, no more than ours.
                    if (ipv6::MIN_MTU..=own.shape.mtu).contains(&(mtu as usize)) {
                        own.autoconf.mtu = Some(mtu);
                    }
                }
                _ => {}
            }
        }
        self.generation += 1;
        self.lifetimes_due(now, iface);
        true
    }

    fn default_router(
        &mut self,
        now: Instant,
        iface: IfaceId,
        router: Ipv6Addr,
        lifetime: u16,
        preference: RouterPreference,
    ) {
        let autoconf = &mut self.ifaces[iface.at()].autoconf;
        autoconf.routers.retain(|(known, _)| *known != router);
        self.routes.remove(|r| is_default(r, iface, router));
        let autoconf = &mut self.ifaces[iface.at()].autoconf;
        if lifetime == 0 {
            return;
        }
        if autoconf.routers.len() >= MOST {
            self.counters.ndp_drop_full += 1;
            return;
        }
        autoconf.routers.push((router, after(now, lifetime.into())));
        let metric = match preference {
            RouterPreference::High => METRIC / 2,
            RouterPreference::Medium => METRIC,
            RouterPreference::Low => METRIC * 2,
        };
        let (prefix, via) = (Prefix::ALL_V6, Some(IpAddr::V6(router)));
        let _full = self.routes.add(Route { prefix, iface, via, metric, source: None });
    }

    /// A network on this link, or one to make an address of (RFC 4861, 6.3.4; RFC 4862, 5.5.3).
    fn network_advertised(&mut self, now: Instant, iface: IfaceId, information: &PrefixInformation) {
        let &PrefixInformation { len, on_link, autonomous, valid_s, preferred_s, prefix } = information;
        let Some(prefix) = Prefix::new(IpAddr::V6(prefix), len).map(Prefix::network) else { return };
        let near =
            matches!(prefix.address(), IpAddr::V6(v6) if v6.is_unicast_link_local() || v6.is_multicast());
        if near || len == 0 {
            return;
        }
        let networks = &mut self.ifaces[iface.at()].autoconf.networks;
        let at = match networks.iter().position(|network| network.prefix == prefix) {
            Some(at) => at,
            None if valid_s == 0 => return,
            None if networks.len() >= MOST => {
                self.counters.ndp_drop_full += 1;
                return;
            }
            None => {
                networks.push(Network { prefix, on_link: None, address: None });
                networks.len() - 1
            }
        };
        if on_link {
            networks[at].on_link = Some(after(now, valid_s));
            let _exists = self.routes.add(Route { prefix, iface, via: None, metric: 256, source: None });
        }
        // RFC 4862, 5.5.3 c and d.
        if !autonomous || preferred_s > valid_s || len != 64 {
            return;
        }
        let (preferred, valid) = (after(now, preferred_s), after(now, valid_s));
        match self.ifaces[iface.at()].autoconf.networks[at].address {
            Some((address, _, before)) => {
                // RFC 4862, 5.5.3 e.
                let soon = now + TWO_HOURS;
                let valid = if valid > soon || valid > before { valid } else { before.min(soon) };
                self.ifaces[iface.at()].autoconf.networks[at].address = Some((address, preferred, valid));
                let known = self.ifaces[iface.at()].addresses.iter_mut().find(|a| a.ip() == address);
                if let Some(known) = known.filter(|a| a.state == AddressState::Deprecated && preferred > now)
                {
                    known.state = AddressState::Preferred;
                }
            }
            None if valid_s > 0 => {
                let address = self.opaque(iface, prefix);
                let Some(own) = Prefix::new(IpAddr::V6(address), 64) else { return };
                if self.give_address(now, iface, own).is_ok() {
                    self.ifaces[iface.at()].autoconf.networks[at].address = Some((address, preferred, valid));
                }
            }
            None => {}
        }
    }

    /// Gives up what is over, and waits for what will be next.
    pub(crate) fn lifetimes_due(&mut self, now: Instant, iface: IfaceId) {
        let Some([timer, _]) = self.ifaces[iface.at()].autoconf.timers else { return };
        let mut next = Instant::from_nanos(u64::MAX);
        let mut at = 0;
        while let Some(&(router, until)) = self.ifaces[iface.at()].autoconf.routers.get(at) {
            if until > now {
                (next, at) = (next.min(until), at + 1);
                continue;
            }
            self.ifaces[iface.at()].autoconf.routers.remove(at);
            self.routes.remove(|r| is_default(r, iface, router));
            self.generation += 1;
        }
        let mut at = 0;
        while let Some(&network) = self.ifaces[iface.at()].autoconf.networks.get(at) {
            let left = self.network_due(now, iface, network);
            let dates =
                left.address.map(|(_, preferred, valid)| if preferred > now { preferred } else { valid });
            for date in [left.on_link, dates].into_iter().flatten() {
                next = next.min(date);
            }
            let networks = &mut self.ifaces[iface.at()].autoconf.networks;
            if left.on_link.is_none() && left.address.is_none() {
                networks.remove(at);
            } else {
                networks[at] = left;
                at += 1;
            }
        }
        if next < Instant::from_nanos(u64::MAX) {
            self.timers.set(timer, next);
        }
    }

    /// What is left of a network.
    fn network_due(&mut self, now: Instant, iface: IfaceId, mut network: Network) -> Network {
        if network.on_link.is_some_and(|until| until <= now) {
            network.on_link = None;
            let own = self.ifaces[iface.at()].addresses.iter();
            let used = own.filter(|a| a.prefix.network() == network.prefix).count()
                > usize::from(network.address.is_some());
            if !used {
                self.routes.remove(|r| r.prefix == network.prefix && r.iface == iface && r.via.is_none());
            }
            self.generation += 1;
        }
        if let Some((address, preferred, valid)) = network.address {
            let ip = IpAddr::V6(address);
            if valid <= now {
                self.remove_address(iface, ip);
                network.address = None;
            } else if preferred <= now {
                let known = self.ifaces[iface.at()].addresses.iter_mut().find(|a| a.ip() == ip);
                if let Some(known) = known.filter(|a| a.state == AddressState::Preferred) {
                    known.state = AddressState::Deprecated;
                    self.generation += 1;
                }
            }
        }
        network
    }
}

fn is_default(route: &Route, iface: IfaceId, router: Ipv6Addr) -> bool {
    route.prefix == Prefix::ALL_V6 && route.iface == iface && route.via == Some(IpAddr::V6(router))
}
