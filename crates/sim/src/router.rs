//! Routers: packets from one link to another (RFC 1812; RFC 8200), with the errors that hosts must live with.
//!
//! A router is not a stack: no sockets, nothing that it answers but questions for its addresses, no limits on what it says,
//! no routing protocol. It exists for what it does to hosts behind it.

use bypath_stack::prefix::Prefix;
use bypath_wire::arp::{self, ArpOperation, ArpPacket};
use bypath_wire::icmpv4::unreachable::{FRAGMENTATION_NEEDED, NET};
use bypath_wire::icmpv6::unreachable::NO_ROUTE;
use bypath_wire::ndp::{self, NdpOption, PrefixInformation, RouterPreference};
use bypath_wire::{
    Addresses, EtherType, EthernetHeader, Headers, Icmpv4Message, Icmpv6Message, IpProtocol, Ipv4Header,
    Ipv6Header, MacAddr, NdpMessage, Network, Transport, icmpv4, icmpv6, ip, ipv4, ipv6,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

/// Packets that wait for the addresses of a port's neighbours, at most.
const WAITING: usize = 64;
/// Hops of the router's own packets.
const HOPS: u8 = 64;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// What a router did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterCounters {
    /// Packets that went on.
    pub forwarded: u64,
    /// Packets that were cut to go on.
    pub cut: u64,
    /// Too long for the next link.
    pub too_big: u64,
    /// Passed too many routers.
    pub expired: u64,
    /// To where no route leads.
    pub no_route: u64,
    /// A better router was named.
    pub redirected: u64,
    /// Whatever else did not go on: malformed, to groups, for neighbours that did not answer.
    pub dropped: u64,
}

#[derive(Debug)]
pub(crate) struct Port {
    pub mac: MacAddr,
    pub mtu: usize,
    pub addresses: Vec<Prefix>,
    neighbors: BTreeMap<IpAddr, MacAddr>,
    waiting: VecDeque<(IpAddr, Vec<u8>)>,
    /// Told to hosts that ask for routers.
    pub advertised: Vec<PrefixInformation>,
}

/// A way: to where, by which port, and which router there.
type Way = (Prefix, usize, Option<IpAddr>);

#[derive(Debug, Default)]
pub(crate) struct Router {
    pub ports: Vec<Port>,
    pub routes: Vec<Way>,
    pub counters: RouterCounters,
    /// It says nothing of what it drops: a black hole.
    pub silent: bool,
    /// To be sent: port and frame.
    pub out: VecDeque<(usize, Vec<u8>)>,
}

impl Router {
    pub fn attach(&mut self, mac: MacAddr, mtu: usize, addresses: Vec<Prefix>) {
        let port = self.ports.len();
        for prefix in addresses.iter().filter(|prefix| !is_link_local(prefix.address())) {
            self.routes.push((prefix.network(), port, None));
        }
        self.ports.push(Port {
            mac,
            mtu,
            addresses,
            neighbors: BTreeMap::new(),
            waiting: VecDeque::new(),
            advertised: Vec::new(),
        });
    }

    /// Takes a frame.
    pub fn handle(&mut self, port: usize, frame: &[u8]) {
        let Ok((link, packet)) = EthernetHeader::parse(frame) else { return };
        let own = self.ports[port].mac;
        if link.source == own || link.destination != own && !link.destination.is_multicast() {
            return;
        }
        match link.ethertype {
            EtherType::ARP => self.arp(port, packet),
            EtherType::IPV4 => self.v4(port, packet),
            EtherType::IPV6 => self.v6(port, packet),
            _ => {}
        }
    }

    fn has(&self, port: usize, ip: IpAddr) -> bool {
        self.ports[port].addresses.iter().any(|prefix| prefix.address() == ip)
    }

    fn is_own(&self, ip: IpAddr) -> bool {
        (0..self.ports.len()).any(|port| self.has(port, ip))
    }

    fn arp(&mut self, port: usize, packet: &[u8]) {
        let Ok(arp) = ArpPacket::parse(packet) else { return };
        if !arp.sender_ip.is_unspecified() {
            self.learn(port, arp.sender_ip.into(), arp.sender_mac);
        }
        if arp.operation == ArpOperation::REQUEST && self.has(port, arp.target_ip.into()) {
            self.send_arp(port, arp.sender_mac, &arp.reply(self.ports[port].mac));
        }
    }

    fn send_arp(&mut self, port: usize, to: MacAddr, packet: &ArpPacket) {
        let mut octets = [0; arp::PACKET_LEN];
        if packet.emit(&mut octets).is_ok() {
            self.put(port, to, EtherType::ARP, &octets);
        }
    }

    /// Puts a frame on a link.
    fn put(&mut self, port: usize, to: MacAddr, ethertype: EtherType, packet: &[u8]) {
        let mut frame = vec![0; 14 + packet.len()];
        let header = EthernetHeader::new(to, self.ports[port].mac, ethertype);
        if header.emit(&mut frame).is_ok() {
            frame[14..].copy_from_slice(packet);
            self.out.push_back((port, frame));
        }
    }

    /// Who has an address, and what waits for him.
    fn learn(&mut self, port: usize, ip: IpAddr, mac: MacAddr) {
        self.ports[port].neighbors.insert(ip, mac);
        let waiting = std::mem::take(&mut self.ports[port].waiting);
        for (to, packet) in waiting {
            if to == ip {
                self.send(port, to, packet);
            } else {
                self.ports[port].waiting.push_back((to, packet));
            }
        }
    }

    /// Sends a packet to a neighbour, whose address is asked for if it is not known.
    fn send(&mut self, port: usize, to: IpAddr, packet: Vec<u8>) {
        let ethertype = if to.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        if let Some(&mac) = self.ports[port].neighbors.get(&to) {
            return self.put(port, mac, ethertype, &packet);
        }
        if self.ports[port].waiting.len() >= WAITING {
            self.ports[port].waiting.pop_front();
            self.counters.dropped += 1;
        }
        self.ports[port].waiting.push_back((to, packet));
        let mac = self.ports[port].mac;
        match (self.source(port, to.is_ipv4()), to) {
            (Some(IpAddr::V4(own)), IpAddr::V4(target)) => {
                self.send_arp(port, MacAddr::BROADCAST, &ArpPacket::request(mac, own, target));
            }
            (Some(IpAddr::V6(own)), IpAddr::V6(target)) => {
                let message = NdpMessage::NeighborSolicitation { target };
                let group = ipv6::solicited_node(target);
                let to = MacAddr::of_ipv6_group(group);
                self.send_ndp(port, to, own, group, &message, &[NdpOption::SourceLinkLayer(mac)]);
            }
            _ => {}
        }
    }

    /// The router's address on a port: a global one if there is one.
    fn source(&self, port: usize, v4: bool) -> Option<IpAddr> {
        let own = self.ports[port].addresses.iter().map(|prefix| prefix.address());
        let mut own: Vec<_> = own.filter(|ip| ip.is_ipv4() == v4).collect();
        own.sort_by_key(|ip| is_link_local(*ip));
        own.first().copied()
    }

    fn link_local(&self, port: usize) -> Option<Ipv6Addr> {
        self.ports[port].addresses.iter().find_map(|prefix| match prefix.address() {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(ip),
            _ => None,
        })
    }

    fn send_ndp(
        &mut self,
        port: usize,
        to: MacAddr,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        message: &NdpMessage,
        options: &[NdpOption<'_>],
    ) {
        self.put(port, to, EtherType::IPV6, &discovery(source, destination, message, options));
    }

    /// Which port and which neighbour lead to an address.
    fn route(&self, to: IpAddr) -> Option<(usize, IpAddr)> {
        let leads = self.routes.iter().filter(|(prefix, ..)| prefix.contains(to));
        let (_, port, via) = leads.max_by_key(|(prefix, ..)| prefix.len())?;
        Some((*port, via.unwrap_or(to)))
    }

    fn v4(&mut self, port: usize, packet: &[u8]) {
        let Ok((header, extent)) = Ipv4Header::parse_header(packet) else { return self.dropped() };
        let Some(packet) = packet.get(..extent.total_len).filter(|_| extent.checksum_fits) else {
            return self.dropped();
        };
        let to = header.destination;
        if self.is_own(to.into()) || to.is_multicast() || to.is_broadcast() || to.is_link_local() {
            return self.dropped();
        }
        let Some((out, next)) = self.route(to.into()) else {
            self.counters.no_route += 1;
            return self.tell_v4(port, packet, Icmpv4Message::Unreachable { code: NET, mtu: 0 });
        };
        let mut onward = packet.to_vec();
        if ipv4::decrement_ttl(&mut onward).is_none_or(|left| left == 0) {
            self.counters.expired += 1;
            return self.tell_v4(port, packet, Icmpv4Message::TimeExceeded { code: 0 });
        }
        if let (true, IpAddr::V4(gateway)) = (out == port, next) {
            self.counters.redirected += 1;
            self.tell_v4(port, packet, Icmpv4Message::Redirect { code: 1, gateway });
        }
        let mtu = self.ports[out].mtu;
        if packet.len() <= mtu {
            self.counters.forwarded += 1;
            return self.send(out, next, onward);
        }
        if header.dont_fragment {
            self.counters.too_big += 1;
            let mtu = mtu as u16;
            return self.tell_v4(
                port,
                packet,
                Icmpv4Message::Unreachable { code: FRAGMENTATION_NEEDED, mtu },
            );
        }
        self.counters.cut += 1;
        for part in cut(&onward, mtu) {
            self.send(out, next, part);
        }
    }

    fn v6(&mut self, port: usize, packet: &[u8]) {
        let Ok((header, payload)) = Ipv6Header::parse(packet) else { return self.dropped() };
        let packet = &packet[..ipv6::HEADER_LEN + payload.len()];
        let (from, to) = (header.source, header.destination);
        let discovery = header.next_header == IpProtocol::ICMPV6 && header.hop_limit == ndp::HOP_LIMIT;
        if discovery && icmpv6::verify(&header.addresses(), payload) {
            self.neighbors(port, from, payload);
        }
        let near = to.is_multicast() || to.is_unicast_link_local() || from.is_unicast_link_local();
        if self.is_own(to.into()) || near || from.is_unspecified() {
            return self.dropped();
        }
        let Some((out, next)) = self.route(to.into()) else {
            self.counters.no_route += 1;
            return self.tell_v6(port, packet, Icmpv6Message::Unreachable { code: NO_ROUTE });
        };
        let mut onward = packet.to_vec();
        if ipv6::decrement_hop_limit(&mut onward).is_none_or(|left| left == 0) {
            self.counters.expired += 1;
            return self.tell_v6(port, packet, Icmpv6Message::TimeExceeded { code: 0 });
        }
        if out == port {
            self.redirect_v6(port, from, to, next);
        }
        let mtu = self.ports[out].mtu;
        if packet.len() > mtu {
            self.counters.too_big += 1;
            return self.tell_v6(port, packet, Icmpv6Message::PacketTooBig { mtu: mtu as u32 });
        }
        self.counters.forwarded += 1;
        self.send(out, next, onward);
    }

    fn dropped(&mut self) {
        self.counters.dropped += 1;
    }

    /// Neighbour discovery, as far as a router takes part in it (RFC 4861, 6.2.6, 7.2.3 and 7.2.5).
    fn neighbors(&mut self, port: usize, from: Ipv6Addr, message: &[u8]) {
        let Ok((message, options)) = NdpMessage::parse(message) else { return };
        let mac = self.ports[port].mac;
        match message {
            NdpMessage::NeighborSolicitation { target } => {
                if let Some(station) = options.source_link_layer() {
                    self.learn(port, from.into(), station);
                }
                let asker = self.ports[port].neighbors.get(&from.into()).copied();
                if let (true, Some(asker)) = (self.has(port, target.into()), asker) {
                    let answer = NdpMessage::NeighborAdvertisement {
                        router: true,
                        solicited: true,
                        replace: true,
                        target,
                    };
                    self.send_ndp(port, asker, target, from, &answer, &[NdpOption::TargetLinkLayer(mac)]);
                }
            }
            NdpMessage::NeighborAdvertisement { target, .. } => {
                if let Some(station) = options.target_link_layer() {
                    self.learn(port, target.into(), station);
                }
            }
            NdpMessage::RouterSolicitation => self.advertise(port),
            _ => {}
        }
    }

    /// Tells a link's hosts of the networks there, and that this is a router.
    pub fn advertise(&mut self, port: usize) {
        let Some(own) = self.link_local(port).filter(|_| !self.ports[port].advertised.is_empty()) else {
            return;
        };
        let message = NdpMessage::RouterAdvertisement {
            hop_limit: HOPS,
            managed: false,
            other: false,
            preference: RouterPreference::Medium,
            lifetime: 1800,
            reachable_ms: 0,
            retransmit_ms: 0,
        };
        let Port { mac, mtu, advertised, .. } = &self.ports[port];
        let mut options = vec![NdpOption::SourceLinkLayer(*mac), NdpOption::Mtu(*mtu as u32)];
        options.extend(advertised.iter().copied().map(NdpOption::Prefix));
        self.send_ndp(port, MacAddr::of_ipv6_group(ALL_NODES), own, ALL_NODES, &message, &options);
    }

    /// The way leads back where the packet came from (RFC 4861, 8.2).
    fn redirect_v6(&mut self, port: usize, from: Ipv6Addr, to: Ipv6Addr, next: IpAddr) {
        let on_link = self.ports[port].addresses.iter().any(|prefix| prefix.contains(from.into()));
        let (Some(own), IpAddr::V6(target), true) = (self.link_local(port), next, on_link) else { return };
        if target != to && !target.is_unicast_link_local() {
            return;
        }
        self.counters.redirected += 1;
        let known = self.ports[port].neighbors.get(&next).copied();
        let option = known.map(NdpOption::TargetLinkLayer);
        let message = NdpMessage::Redirect { target, destination: to };
        self.send(port, from.into(), discovery(own, from, &message, option.as_slice()));
    }

    /// Tells the sender of a packet what is wrong (RFC 1812, 4.3.2.7: not of errors, later fragments and nobodies).
    fn tell_v4(&mut self, port: usize, about: &[u8], message: Icmpv4Message) {
        let Ok((header, extent)) = Ipv4Header::parse_header(about) else { return };
        let quoted = Icmpv4Message::parse(about.get(extent.header_len..).unwrap_or(&[]));
        let error = header.protocol == IpProtocol::ICMP && quoted.is_ok_and(|(quoted, _)| quoted.is_error());
        let nobody = header.source.is_unspecified() || header.source.is_multicast();
        if self.silent || error || nobody || header.fragment_offset > 0 {
            return;
        }
        let Some(IpAddr::V4(own)) = self.source(port, true) else { return };
        let quote = &about[..about.len().min(icmpv4::MOST_ERROR - ipv4::HEADER_LEN - icmpv4::HEADER_LEN)];
        let network = Network::V4(Ipv4Header::new(own, header.source, IpProtocol::ICMP));
        self.tell(port, header.source.into(), network, Transport::Icmpv4(message), quote);
    }

    /// The same (RFC 4443, 2.4 e).
    fn tell_v6(&mut self, port: usize, about: &[u8], message: Icmpv6Message) {
        let Ok((header, payload)) = Ipv6Header::parse(about) else { return };
        let error =
            header.next_header == IpProtocol::ICMPV6 && payload.first().is_none_or(|kind| *kind < 128);
        if self.silent || error || header.source.is_multicast() {
            return;
        }
        let Some(IpAddr::V6(own)) = self.source(port, false) else { return };
        let quote = &about[..about.len().min(icmpv6::MOST_ERROR - ipv6::HEADER_LEN - icmpv6::HEADER_LEN)];
        let network = Network::V6(Ipv6Header::new(own, header.source, IpProtocol::ICMPV6));
        self.tell(port, header.source.into(), network, Transport::Icmpv6(message), quote);
    }

    fn tell(&mut self, port: usize, to: IpAddr, network: Network, transport: Transport, quote: &[u8]) {
        let mut packet = vec![0; 64 + quote.len()];
        let Ok(len) = (Headers { link: None, network, transport }).emit(&mut packet, quote) else { return };
        packet.truncate(len);
        match self.route(to) {
            Some((out, next)) => self.send(out, next, packet),
            None => self.send(port, to, packet),
        }
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// A packet of neighbour discovery; empty if its options do not fit, as they always do here.
fn discovery(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    message: &NdpMessage,
    options: &[NdpOption<'_>],
) -> Vec<u8> {
    let mut packet = vec![0; 1280];
    let rest = &mut packet[ipv6::HEADER_LEN..];
    let Ok(len) = message.emit(rest, options) else { return Vec::new() };
    icmpv6::fill(&Addresses::V6 { source, destination }, &mut rest[..len]);
    let header =
        Ipv6Header { hop_limit: ndp::HOP_LIMIT, ..Ipv6Header::new(source, destination, IpProtocol::ICMPV6) };
    match header.emit(&mut packet, len) {
        Ok(at) => packet.truncate(at + len),
        Err(_) => packet.clear(),
    }
    packet
}

/// Fragments of an IPv4 packet without options to be copied (RFC 791, 3.2).
fn cut(packet: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let Ok((header, extent)) = Ipv4Header::parse_header(packet) else { return Vec::new() };
    let payload = &packet[extent.header_len..];
    let step = mtu.saturating_sub(header.len()) & !7;
    if step == 0 || ip::version(packet) != Some(4) {
        return Vec::new();
    }
    let parts = payload.chunks(step).enumerate();
    let count = payload.len().div_ceil(step);
    let part = |(n, octets): (usize, &[u8])| {
        let mut part = vec![0; header.len() + octets.len()];
        let fragment = Ipv4Header {
            fragment_offset: header.fragment_offset.checked_add((n * step) as u16)?,
            more_fragments: n + 1 < count || header.more_fragments,
            ..header
        };
        fragment.emit(&mut part, octets.len()).ok()?;
        part[header.len()..].copy_from_slice(octets);
        Some(part)
    };
    parts.filter_map(part).collect()
}
