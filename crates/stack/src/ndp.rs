//! Neighbour discovery (RFC 4861) on the wire.

use crate::Stack;
use crate::egress::{Fragmentation, Hop, Kind, Outgoing};
use crate::iface::{AddressState, IfaceId};
use crate::ingress::Packet;
use crate::neighbor::Advertisement;
use bypath_wire::ndp::{HOP_LIMIT, NdpOption, NdpOptions};
use bypath_wire::{Addresses, IpProtocol, MacAddr, NdpMessage, TrafficClass, icmpv6, ipv6};
use core::net::{IpAddr, Ipv6Addr};

/// The group of all nodes of a link (RFC 4291, 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

impl Stack {
    pub(crate) fn input_ndp(&mut self, packet: &Packet<'_>, message: &[u8]) {
        self.counters.ndp_received += 1;
        let Addresses::V6 { source, destination } = packet.addresses else { return };
        // RFC 4861, 6.1 and 7.1: from this link, of code 0, with possible options.
        let code = message.get(1).copied();
        let parsed = NdpMessage::parse(message).ok();
        let taken = match parsed {
            Some((message, options)) if packet.hops == HOP_LIMIT && code == Some(0) => match message {
                NdpMessage::NeighborSolicitation { target } => {
                    self.solicited(packet, source, destination, target, &options)
                }
                NdpMessage::NeighborAdvertisement { solicited, replace, target, .. } => {
                    let mac = options.target_link_layer();
                    let advertisement = Advertisement { mac, solicited, overrides: replace };
                    self.advertised(packet, destination, target, advertisement)
                }
                NdpMessage::Redirect { target, destination } => {
                    self.redirected_v6(packet, source, target, destination, &options)
                }
                NdpMessage::RouterAdvertisement { .. } => {
                    self.router_advertised(packet, source, &message, &options)
                }
                // Routers answer it, and hosts do not.
                NdpMessage::RouterSolicitation => true,
            },
            _ => false,
        };
        if !taken {
            self.counters.ndp_drop_malformed += 1;
        }
    }

    /// Somebody asks for an address (RFC 4861, 7.2.3; RFC 4862, 5.4.3). False: not like this.
    fn solicited(
        &mut self,
        packet: &Packet<'_>,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        target: Ipv6Addr,
        options: &NdpOptions<'_>,
    ) -> bool {
        let mac = options.source_link_layer();
        let probe = source.is_unspecified();
        // RFC 4861, 7.1.1.
        if target.is_multicast() || probe && (destination != ipv6::solicited_node(target) || mac.is_some()) {
            return false;
        }
        let iface = packet.through;
        let own = &self.ifaces[iface.at()];
        let ip = IpAddr::V6(target);
        let Some(address) = own.addresses.iter().find(|a| a.ip() == ip) else { return true };
        if let AddressState::Tentative { .. } = address.state {
            // Somebody else wants it, too: nobody gets it (RFC 4862, 5.4.3).
            if probe {
                self.duplicate(iface, ip, None);
            }
            return true;
        }
        let (true, Some(own_mac)) = (address.is_usable(), own.mac()) else { return true };
        if let Some(mac) = mac {
            self.heard_of(iface, IpAddr::V6(source));
            let neighbors = &mut self.ifaces[iface.at()].neighbors;
            if neighbors.heard(IpAddr::V6(source), mac) {
                self.resolved(iface, IpAddr::V6(source));
            }
            self.drop_lost(iface, None);
        }
        let (to, hop) = if probe {
            (ALL_NODES, Hop::Station(MacAddr::of_ipv6_group(ALL_NODES)))
        } else {
            (source, mac.map_or(Hop::Neighbor(IpAddr::V6(source)), Hop::Station))
        };
        let answer =
            NdpMessage::NeighborAdvertisement { router: false, solicited: !probe, replace: true, target };
        self.send_ndp(iface, hop, target, to, &answer, &[NdpOption::TargetLinkLayer(own_mac)]);
        true
    }

    /// Somebody says that he has an address (RFC 4861, 7.2.5). False: not like this.
    fn advertised(
        &mut self,
        packet: &Packet<'_>,
        destination: Ipv6Addr,
        target: Ipv6Addr,
        advertisement: Advertisement,
    ) -> bool {
        // RFC 4861, 7.1.2.
        if target.is_multicast() || destination.is_multicast() && advertisement.solicited {
            return false;
        }
        let (iface, ip) = (packet.through, IpAddr::V6(target));
        let own = self.ifaces[iface.at()].addresses.iter().find(|a| a.ip() == ip).map(|a| a.state);
        match own {
            Some(AddressState::Tentative { .. }) => self.duplicate(iface, ip, advertisement.mac),
            Some(AddressState::Duplicate) => {}
            // RFC 4862, 5.4.4: a doubt that goes beyond this.
            Some(_) => {
                self.counters.ndp_conflicts += 1;
                self.disputed(packet.now, iface, ip);
            }
            None => {
                self.heard_of(iface, ip);
                if self.ifaces[iface.at()].neighbors.advertised(packet.now, ip, advertisement) {
                    self.resolved(iface, ip);
                }
            }
        }
        true
    }

    /// A router knows a better way (RFC 4861, 8.1 and 8.3). False: not like this.
    fn redirected_v6(
        &mut self,
        packet: &Packet<'_>,
        source: Ipv6Addr,
        target: Ipv6Addr,
        destination: Ipv6Addr,
        options: &NdpOptions<'_>,
    ) -> bool {
        let router = target.is_unicast_link_local();
        if !source.is_unicast_link_local()
            || destination.is_multicast()
            || destination.is_unicast_link_local()
            || !router && target != destination
        {
            return false;
        }
        let (iface, to) = (packet.through, IpAddr::V6(destination));
        let in_use = self.path(to, None, None).is_ok_and(|path| {
            path.iface == iface && path.next_hop == IpAddr::V6(source) && path.next_hop != to
        });
        let ip = IpAddr::V6(target);
        if !in_use || self.is_local(ip, Some(iface)) {
            self.counters.ndp_drop_redirect += 1;
            return true;
        }
        self.destinations.redirect(packet.now, to, iface, ip);
        self.counters.destination_replaced += self.destinations.take_replaced();
        self.generation += 1;
        if let Some(mac) = options.target_link_layer() {
            if self.ifaces[iface.at()].neighbors.heard(ip, mac) {
                self.resolved(iface, ip);
            }
            self.drop_lost(iface, None);
        }
        true
    }

    /// Asks for a neighbour's address: everybody who may have it, or `to` alone (RFC 4861, 7.2.2).
    pub(crate) fn solicit(&mut self, iface: IfaceId, target: Ipv6Addr, to: Option<MacAddr>) {
        let own = &self.ifaces[iface.at()];
        let Some(mac) = own.mac() else { return };
        let near = self.network_of(iface, IpAddr::V6(target)).map(|p| p.address());
        let source = match near {
            Some(IpAddr::V6(source)) => source,
            _ => match self.ifaces[iface.at()].link_local() {
                Some(source) => source,
                None => return,
            },
        };
        let group = ipv6::solicited_node(target);
        let (destination, hop) = match to {
            Some(mac) => (target, Hop::Station(mac)),
            None => (group, Hop::Station(MacAddr::of_ipv6_group(group))),
        };
        let message = NdpMessage::NeighborSolicitation { target };
        self.send_ndp(iface, hop, source, destination, &message, &[NdpOption::SourceLinkLayer(mac)]);
    }

    /// Asks whether somebody else has an address that is to be ours (RFC 4862, 5.4.2).
    pub(crate) fn probe(&mut self, iface: IfaceId, target: Ipv6Addr) {
        let group = ipv6::solicited_node(target);
        let hop = Hop::Station(MacAddr::of_ipv6_group(group));
        let message = NdpMessage::NeighborSolicitation { target };
        self.send_ndp(iface, hop, Ipv6Addr::UNSPECIFIED, group, &message, &[]);
    }

    pub(crate) fn send_ndp(
        &mut self,
        iface: IfaceId,
        hop: Hop,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        message: &NdpMessage,
        options: &[NdpOption<'_>],
    ) {
        // The longest of our messages: an address and a device's.
        const MOST: usize = 64;
        let addresses = Addresses::V6 { source, destination };
        let mut octets = [0; MOST];
        let Ok(len) = message.emit(&mut octets, options) else { return };
        icmpv6::fill(&addresses, &mut octets[..len]);
        let outgoing = Outgoing {
            iface,
            hop,
            addresses,
            hops: HOP_LIMIT,
            class: TrafficClass(0),
            fragmentation: Fragmentation::Never,
            mtu: u32::MAX,
            kind: Kind::Ip { protocol: IpProtocol::ICMPV6, router_alert: false },
            owner: None,
            whom: 0,
        };
        let sent = self.enqueue(outgoing, len, |room| room.copy_from_slice(&octets[..len]));
        self.counters.icmp_sent += u64::from(sent);
    }
}
