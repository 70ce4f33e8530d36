//! Ways into the stack as plain functions of octets, for fuzzers: `fuzz/` wraps them for cargo-fuzz, [`drive`] mutates without
//! knowing what is covered, in an ordinary test.
//!
//! An input is a list of [`pieces`], so that what takes several frames can be found. Each target makes frames of them that get
//! as far as its layer, with the checksums that are in front of it mended. Whatever comes: nothing panics, what [`check`](crate::check)
//! says holds after each frame, and an honest peer is served in the end.

pub mod corpus;
mod drive;
mod mend;
mod seeds;
mod segments;
mod session;
mod victim;

pub use drive::{Drive, drive, mutate};
pub use seeds::any_session;
pub use segments::segments;
pub use session::session;

use crate::attack;
use crate::attack::{MAC, V4, V6};
use bypath_wire::ipv6_ext::FragmentHeader;
use bypath_wire::{
    Addresses, EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv6Header, MacAddr, icmpv4, icmpv6, udp,
};
use std::net::{Ipv4Addr, Ipv6Addr};
use victim::Victim;

/// Something that takes an input.
pub type Target = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: [(&str, Target); 11] = [
    ("ethernet", ethernet),
    ("ipv4", ipv4),
    ("ipv6", ipv6),
    ("arp", arp),
    ("ndp", ndp),
    ("icmp", icmp),
    ("udp", udp_datagrams),
    ("groups", groups),
    ("fragments", fragments),
    ("segments", segments),
    ("session", session),
];

const PEER_V4: Ipv4Addr = attack::ROUTER_V4;
const PEER_V6: Ipv6Addr = attack::ROUTER_V6;
const STATION: MacAddr = MacAddr([2, 6, 6, 6, 6, 6]);

/// The pieces of an input: two octets of length, least significant first, and so many octets, again and again. What is missing
/// at the end is missing.
pub fn pieces(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = input;
    std::iter::from_fn(move || {
        let (len, behind) = rest.split_first_chunk::<2>()?;
        let len = usize::from(u16::from_le_bytes(*len)).min(behind.len());
        let (piece, behind) = behind.split_at(len);
        rest = behind;
        Some(piece)
    })
}

/// An input of these pieces.
pub fn input<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut input = Vec::new();
    for piece in pieces {
        let piece = &piece[..piece.len().min(usize::from(u16::MAX))];
        input.extend_from_slice(&(piece.len() as u16).to_le_bytes());
        input.extend_from_slice(piece);
    }
    input
}

fn run(input: &[u8], mut frame: impl FnMut(&[u8]) -> Option<Vec<u8>>) {
    let mut victim = Victim::new(true);
    for piece in pieces(input) {
        if let Some(frame) = frame(piece) {
            victim.takes(&frame);
        }
    }
    victim.serves();
}

fn in_ethernet(to: MacAddr, ethertype: EtherType, packet: &[u8]) -> Option<Vec<u8>> {
    let mut frame = vec![0; 14 + packet.len()];
    EthernetHeader::new(to, STATION, ethertype).emit(&mut frame).ok()?;
    frame[14..].copy_from_slice(packet);
    Some(frame)
}

fn in_v4(header: &Ipv4Header, payload: &[u8]) -> Option<Vec<u8>> {
    let mut packet = vec![0; header.len() + payload.len()];
    header.emit(&mut packet, payload.len()).ok()?;
    packet[header.len()..].copy_from_slice(payload);
    let group = header.destination.is_multicast();
    let to = if group { MacAddr::of_ipv4_group(header.destination) } else { MAC };
    in_ethernet(to, EtherType::IPV4, &packet)
}

fn in_v6(header: &Ipv6Header, payload: &[u8]) -> Option<Vec<u8>> {
    let mut packet = vec![0; 40 + payload.len()];
    header.emit(&mut packet, payload.len()).ok()?;
    packet[40..].copy_from_slice(payload);
    let group = header.destination.is_multicast();
    let to = if group { MacAddr::of_ipv6_group(header.destination) } else { MAC };
    in_ethernet(to, EtherType::IPV6, &packet)
}

/// Frames as they are, but to our station.
pub fn ethernet(input: &[u8]) {
    run(input, |piece| {
        let mut frame = piece.to_vec();
        if let Some(to) = frame.first_chunk_mut::<6>()
            && to[0] & 1 == 0
        {
            *to = MAC.0;
        }
        Some(frame)
    });
}

/// Packets of IPv4, whose header's checksum is right.
pub fn ipv4(input: &[u8]) {
    run(input, |piece| {
        let mut packet = piece.to_vec();
        let len = packet.first().map_or(0, |first| usize::from(first & 15) * 4);
        if (20..=packet.len()).contains(&len) {
            packet[10..12].fill(0);
            let sum = bypath_wire::checksum::checksum(&packet[..len]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        in_ethernet(MAC, EtherType::IPV4, &packet)
    });
}

/// Packets of IPv6.
pub fn ipv6(input: &[u8]) {
    run(input, |piece| in_ethernet(MAC, EtherType::IPV6, piece));
}

/// Packets of ARP.
pub fn arp(input: &[u8]) {
    run(input, |piece| in_ethernet(MacAddr::BROADCAST, EtherType::ARP, piece));
}

/// ICMPv6 from a neighbour, to all if the first octet is odd.
fn icmpv6_from_near(piece: &[u8], hops: u8) -> Option<Vec<u8>> {
    let (first, message) = piece.split_first()?;
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let source = if first & 2 == 0 { PEER_V6 } else { Ipv6Addr::UNSPECIFIED };
    let header = Ipv6Header {
        hop_limit: hops,
        ..Ipv6Header::new(source, if first & 1 == 0 { V6 } else { all }, IpProtocol::ICMPV6)
    };
    let mut message = message.to_vec();
    icmpv6::fill(&header.addresses(), &mut message);
    in_v6(&header, &message)
}

/// Messages of neighbour discovery behind an octet: 1, to all; 2, from nobody.
pub fn ndp(input: &[u8]) {
    run(input, |piece| icmpv6_from_near(piece, 255));
}

/// ICMP messages behind an octet: 1, of ICMPv6.
pub fn icmp(input: &[u8]) {
    run(input, |piece| {
        let (first, message) = piece.split_first()?;
        let mut message = message.to_vec();
        if first & 1 == 0 {
            icmpv4::fill(&mut message);
            in_v4(&Ipv4Header::new(PEER_V4, V4, IpProtocol::ICMP), &message)
        } else {
            let header = Ipv6Header::new(PEER_V6, V6, IpProtocol::ICMPV6);
            icmpv6::fill(&header.addresses(), &mut message);
            in_v6(&header, &message)
        }
    });
}

/// Datagrams behind an octet: 1, in IPv6; 2, to the port that is served; 4, with the checksum that they have.
pub fn udp_datagrams(input: &[u8]) {
    run(input, |piece| {
        let (first, datagram) = piece.split_first()?;
        let mut datagram = datagram.to_vec();
        if first & 2 != 0 && datagram.len() >= 4 {
            datagram[2..4].copy_from_slice(&attack::PORT.to_be_bytes());
        }
        let (v4, v6) =
            (Ipv4Header::new(PEER_V4, V4, IpProtocol::UDP), Ipv6Header::new(PEER_V6, V6, IpProtocol::UDP));
        let addresses: Addresses = if first & 1 == 0 { v4.addresses() } else { v6.addresses() };
        if first & 4 == 0 && datagram.len() >= 8 {
            udp::fill(&addresses, &mut datagram);
        }
        if first & 1 == 0 { in_v4(&v4, &datagram) } else { in_v6(&v6, &datagram) }
    });
}

/// Messages of group management behind an octet: 1, of MLD.
pub fn groups(input: &[u8]) {
    run(input, |piece| {
        let (first, message) = piece.split_first()?;
        let mut message = message.to_vec();
        if first & 1 == 0 {
            if message.len() >= 8 {
                message[2..4].fill(0);
                let sum = bypath_wire::checksum::checksum(&message);
                message[2..4].copy_from_slice(&sum.to_be_bytes());
            }
            let all = Ipv4Addr::new(224, 0, 0, 1);
            in_v4(&Ipv4Header { ttl: 1, ..Ipv4Header::new(PEER_V4, all, IpProtocol::IGMP) }, &message)
        } else {
            let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
            let header = Ipv6Header { hop_limit: 1, ..Ipv6Header::new(PEER_V6, all, IpProtocol::HOP_BY_HOP) };
            icmpv6::fill(&header.addresses(), &mut message);
            in_v6(&header, &[&[58, 0, 5, 2, 0, 0, 1, 0][..], &message].concat())
        }
    });
}

/// Fragments behind four octets: 1, in IPv6, 2, others follow; identification; and where it belongs, in units of eight.
pub fn fragments(input: &[u8]) {
    run(input, |piece| {
        let (&[first, identification, a, b], octets) = piece.split_first_chunk::<4>()?;
        let offset = (u16::from_be_bytes([a, b]) & 0x1fff) << 3;
        let more = first & 2 != 0;
        if first & 1 == 0 {
            let header = Ipv4Header {
                identification: identification.into(),
                dont_fragment: false,
                more_fragments: more,
                fragment_offset: offset,
                ..Ipv4Header::new(PEER_V4, V4, IpProtocol::UDP)
            };
            return in_v4(&header, octets);
        }
        let mut payload = vec![0; 8];
        let header = FragmentHeader { offset, more, identification: identification.into() };
        header.emit(&mut payload, IpProtocol::UDP).ok()?;
        payload.extend_from_slice(octets);
        in_v6(&Ipv6Header::new(PEER_V6, V6, IpProtocol::FRAGMENT), &payload)
    });
}
