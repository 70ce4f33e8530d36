//! Frames that attackers send, by name: each with the counter that must tell of it. All of them are made here.
//!
//! They are for a host with [`MAC`], [`V4`], [`V6`] and [`LINK_LOCAL`] on a link where an attacker says what he likes, as whom he
//! likes. Who takes somebody else's place by ARP or neighbour discovery is not among them: nothing in those keeps him from it.

mod fragments;
mod headers;
mod icmp;
mod neighbors;
pub mod tcp;

use bypath_wire::arp::ArpPacket;
use bypath_wire::ipv6_ext::FragmentHeader;
use bypath_wire::ndp::{NdpOption, PrefixInformation, RouterPreference};
use bypath_wire::{
    Addresses, EtherType, EthernetHeader, Icmpv4Message, Icmpv6Message, IpProtocol, Ipv4Header, Ipv6Header,
    MacAddr, NdpMessage, UdpHeader, checksum, icmpv6,
};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The victim's station: node 0, port 0 of a simulation.
pub const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0]);
/// The victim.
pub const V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The victim.
pub const V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
/// The victim.
pub const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
/// A port on which the victim listens.
pub const PORT: u16 = 7;
/// The victim's only router, in IPv4.
pub const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
/// The victim's only router, in IPv6.
pub const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xfe);
/// A host behind the router.
pub const FAR_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
/// A host behind the router.
pub const FAR_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);

/// The attacker's addresses, if he needs one of his own.
const EVIL_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 66);
const EVIL_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x66);
const EVIL: MacAddr = MacAddr([2, 6, 6, 6, 6, 6]);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// An attack.
#[derive(Clone, Debug)]
pub struct Attack {
    /// What it is known as.
    pub name: &'static str,
    /// The counter of the victim that tells of it.
    pub counter: &'static str,
    /// How many more it must be afterwards, at least.
    pub least: u64,
    /// What is sent.
    pub frames: Vec<Vec<u8>>,
}

/// A frame to the victim, from the attacker's station.
fn ethernet(to: MacAddr, ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14 + packet.len()];
    let _fits = EthernetHeader::new(to, EVIL, ethertype).emit(&mut frame);
    frame[14..].copy_from_slice(packet);
    frame
}

/// An IPv4 packet in its frame.
fn v4(header: &Ipv4Header, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; header.len() + payload.len()];
    let _fits = header.emit(&mut packet, payload.len());
    packet[header.len()..].copy_from_slice(payload);
    let everybody = header.destination.is_broadcast();
    let to = if header.destination.is_multicast() {
        MacAddr::of_ipv4_group(header.destination)
    } else if everybody {
        MacAddr::BROADCAST
    } else {
        MAC
    };
    ethernet(to, EtherType::IPV4, &packet)
}

/// The same in IPv6.
fn v6(header: &Ipv6Header, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 40 + payload.len()];
    let _fits = header.emit(&mut packet, payload.len());
    packet[40..].copy_from_slice(payload);
    let group = header.destination.is_multicast();
    let to = if group { MacAddr::of_ipv6_group(header.destination) } else { MAC };
    ethernet(to, EtherType::IPV6, &packet)
}

fn addresses_v4(source: Ipv4Addr) -> Addresses {
    Addresses::V4 { source, destination: V4 }
}

fn addresses_v6(source: Ipv6Addr) -> Addresses {
    Addresses::V6 { source, destination: V6 }
}

/// A UDP datagram.
fn datagram(addresses: &Addresses, from: u16, to: u16, len: usize) -> Vec<u8> {
    let mut octets = vec![0; 8 + len];
    let header = UdpHeader { source_port: from, destination_port: to };
    let _fits = header.emit_with(&mut octets, addresses, &vec![0x66; len]);
    octets
}

/// A fragment of IPv4 or IPv6.
fn fragment(is_v6: bool, id: u32, offset: u16, octets: &[u8], more: bool) -> Vec<u8> {
    if is_v6 {
        let mut payload = vec![0; 8];
        let header = FragmentHeader { offset, more, identification: id };
        let _fits = header.emit(&mut payload, IpProtocol::UDP);
        payload.extend_from_slice(octets);
        v6(&Ipv6Header::new(EVIL_V6, V6, IpProtocol::FRAGMENT), &payload)
    } else {
        let header = Ipv4Header {
            identification: id as u16,
            dont_fragment: false,
            more_fragments: more,
            fragment_offset: offset,
            ..Ipv4Header::new(EVIL_V4, V4, IpProtocol::UDP)
        };
        v4(&header, octets)
    }
}

fn icmp4(source: Ipv4Addr, message: Icmpv4Message, rest: &[u8]) -> Vec<u8> {
    let mut octets = vec![0; 8 + rest.len()];
    let _fits = message.emit_with(&mut octets, rest);
    v4(&Ipv4Header::new(source, V4, IpProtocol::ICMP), &octets)
}

fn icmp6(source: Ipv6Addr, message: Icmpv6Message, rest: &[u8]) -> Vec<u8> {
    let mut octets = vec![0; 8 + rest.len()];
    let _fits = message.emit_with(&mut octets, &addresses_v6(source), rest);
    v6(&Ipv6Header::new(source, V6, IpProtocol::ICMPV6), &octets)
}

fn ndp(source: Ipv6Addr, to: Ipv6Addr, message: &NdpMessage, options: &[NdpOption<'_>]) -> Vec<u8> {
    let mut octets = [0; 512];
    let len = message.emit(&mut octets, options).unwrap_or(0);
    icmpv6::fill(&Addresses::V6 { source, destination: to }, &mut octets[..len]);
    let header = Ipv6Header { hop_limit: 255, ..Ipv6Header::new(source, to, IpProtocol::ICMPV6) };
    v6(&header, &octets[..len])
}

fn arp(packet: &ArpPacket) -> Vec<u8> {
    let mut octets = [0; 28];
    let _fits = packet.emit(&mut octets);
    ethernet(MacAddr::BROADCAST, EtherType::ARP, &octets)
}

/// An IGMP message to everybody; a query if `kind` is 0x11.
fn igmp(kind: u8, code: u8, group: Ipv4Addr, v3: bool) -> Vec<u8> {
    let [a, b, c, d] = group.octets();
    let mut message = vec![kind, code, 0, 0, a, b, c, d];
    message.resize(if v3 { 12 } else { 8 }, 0);
    let sum = checksum::checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let header =
        Ipv4Header { ttl: 1, ..Ipv4Header::new(ROUTER_V4, Ipv4Addr::new(224, 0, 0, 1), IpProtocol::IGMP) };
    v4(&header, &message)
}

/// An MLD message to all nodes, with the router alert that it needs.
fn mld(source: Ipv6Addr, kind: u8, code: u16, group: Ipv6Addr, len: usize) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend_from_slice(&code.to_be_bytes());
    message.extend_from_slice(&[0, 0]);
    message.extend_from_slice(&group.octets());
    message.resize(len, 0);
    icmpv6::fill(&Addresses::V6 { source, destination: ALL_NODES }, &mut message);
    let payload = [&[58, 0, 5, 2, 0, 0, 1, 0][..], &message].concat();
    v6(&Ipv6Header { hop_limit: 1, ..Ipv6Header::new(source, ALL_NODES, IpProtocol::HOP_BY_HOP) }, &payload)
}

fn attack(name: &'static str, counter: &'static str, least: u64, frames: Vec<Vec<u8>>) -> Attack {
    Attack { name, counter, least, frames }
}

/// All attacks. `from`: the port of a socket of the victim's that is connected to port 53 of [`FAR_V4`], and of another one to
/// that of [`FAR_V6`].
pub fn corpus(from: u16) -> Vec<Attack> {
    [fragments::all(), headers::all(), icmp::all(from), neighbors::all()].concat()
}
