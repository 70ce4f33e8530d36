use super::*;
use crate::ethernet::MacAddr;
use crate::ipv6_ext::{FragmentHeader, emit_options, emit_routing};
use crate::packet::{Headers, Network, Transport};
use core::net::{Ipv4Addr, Ipv6Addr};
use std::vec::Vec;

const V4: Ipv4Header =
    Ipv4Header::new(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), IpProtocol(253));
const V6: Ipv6Header = Ipv6Header::new(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, IpProtocol(253));
const UDP: UdpHeader = UdpHeader { source_port: 1, destination_port: 2 };

fn packet(network: Network, transport: Transport, payload: &[u8]) -> Vec<u8> {
    let mut buffer = std::vec![0; 2000];
    let len = Headers { link: None, network, transport }.emit(&mut buffer, payload).unwrap();
    buffer.truncate(len);
    buffer
}

fn udp4(payload: &[u8]) -> Vec<u8> {
    packet(Network::V4(V4), Transport::Udp(UDP), payload)
}

/// Headers without their values, the quoted ones in brackets, and the end.
fn shape(bytes: &[u8], first: First) -> (Vec<&'static str>, Why, usize) {
    let mut layers = dissect(bytes, first);
    let mut names = Vec::new();
    for layer in &mut layers {
        names.push(match (layer.header, layer.quoted) {
            (Header::Ethernet(_), _) => "ethernet",
            (Header::Arp(_), _) => "arp",
            (Header::Ipv4(..), false) => "ipv4",
            (Header::Ipv4(..), true) => "(ipv4)",
            (Header::Ipv6(_), false) => "ipv6",
            (Header::Ipv6(_), true) => "(ipv6)",
            (Header::Extension(_), _) => "extension",
            (Header::Udp(_, Verdict::Fits), _) => "udp",
            (Header::Udp(_, Verdict::Wrong), _) => "wrong udp",
            (Header::Udp(_, _), false) => "udp?",
            (Header::Udp(_, _), true) => "(udp?)",
            (Header::Tcp(..), _) => "tcp",
            (Header::Icmpv4(..), false) => "icmp",
            (Header::Icmpv4(..), true) => "(icmp)",
            (Header::Icmpv6(..), _) => "icmpv6",
            (Header::Ndp(..), _) => "ndp",
            #[cfg(feature = "roce")]
            (Header::Roce(_, Verdict::Fits), _) => "roce",
            #[cfg(feature = "roce")]
            (Header::Roce(..), _) => "roce?",
        });
    }
    let end = layers.end();
    (names, end.why, end.missing)
}

#[test]
fn packets_without_a_link_are_told_by_their_version() {
    assert_eq!(shape(&udp4(b"x"), First::Ip), (std::vec!["ipv4", "udp"], Why::Payload, 0));
    let v6 = packet(Network::V6(V6), Transport::Udp(UDP), b"x");
    assert_eq!(shape(&v6, First::Ip), (std::vec!["ipv6", "udp"], Why::Payload, 0));
    let strange = ParseError::Version { part: Part::Ipv4, found: 15 };
    assert_eq!(shape(&[0xff; 40], First::Ip), (std::vec![], Why::Error(strange), 0));
    let nothing = ParseError::Truncated { part: Part::Ipv4, need: 20, have: 0 };
    assert_eq!(shape(&[], First::Ip), (std::vec![], Why::Error(nothing), 0));
}

#[test]
fn what_is_missing_is_counted_and_not_judged() {
    let bytes = udp4(&[7; 100]);
    assert_eq!(shape(&bytes[..90], First::Ip), (std::vec!["ipv4", "udp?"], Why::Payload, 38));
    let end = dissect(&bytes[..90], First::Ip).end();
    assert_eq!((end.at, end.rest.len()), (28, 62));
}

#[test]
fn a_datagram_longer_than_its_packet_is_an_error() {
    let mut bytes = udp4(b"12345678");
    bytes[25] += 1;
    let error = ParseError::Truncated { part: Part::Udp, need: 17, have: 16 };
    assert_eq!(shape(&bytes, First::Ip), (std::vec!["ipv4"], Why::Error(error), 0));
    // A shorter one leaves octets that nobody looks at.
    bytes[25] -= 2;
    assert_eq!(shape(&bytes, First::Ip).0, ["ipv4", "wrong udp"]);
    assert_eq!(dissect(&bytes, First::Ip).end().rest, b"1234567");
}

#[test]
fn fragments_are_taken_to_their_payload() {
    let first = Ipv4Header { more_fragments: true, dont_fragment: false, ..V4 };
    let bytes = packet(Network::V4(first), Transport::Udp(UDP), &[0; 8]);
    assert_eq!(shape(&bytes, First::Ip), (std::vec!["ipv4", "udp?"], Why::Payload, 0));
    let later = Ipv4Header { fragment_offset: 16, protocol: IpProtocol::UDP, ..first };
    let bytes = packet(Network::V4(later), Transport::None, &[0; 8]);
    assert_eq!(shape(&bytes, First::Ip), (std::vec!["ipv4"], Why::Fragment, 0));
}

/// An IPv6 packet with these octets between its header and a datagram whose checksum fits.
fn extended(first: IpProtocol, extensions: &[u8]) -> Vec<u8> {
    let datagram = packet(Network::V6(V6), Transport::Udp(UDP), b"deep");
    let payload = [extensions, &datagram[ipv6::HEADER_LEN..]].concat();
    packet(Network::V6(Ipv6Header { next_header: first, ..V6 }), Transport::None, &payload)
}

#[test]
fn extension_headers_are_counted_from_behind_the_fixed_one() {
    let mut buffer = [0; 64];
    let mut len = emit_options(&mut buffer, IpProtocol::FRAGMENT, &[]).unwrap();
    let atomic = FragmentHeader { offset: 0, more: false, identification: 9 };
    len += atomic.emit(&mut buffer[len..], IpProtocol::UDP).unwrap();
    let bytes = extended(IpProtocol::HOP_BY_HOP, &buffer[..len]);
    assert_eq!(shape(&bytes, First::Ip).0, ["ipv6", "extension", "extension", "udp"]);
    let at: Vec<_> = dissect(&bytes, First::Ip)
        .filter_map(|l| if let Header::Extension(e) = l.header { Some((l.at, e.at, e.len)) } else { None })
        .collect();
    assert_eq!(at, [(40, 0, 8), (48, 8, 8)]);
}

#[test]
fn a_way_that_is_not_at_its_end_is_not_judged() {
    let mut buffer = [0; 64];
    for (left, name) in [(0, "udp"), (1, "udp?")] {
        let len = emit_routing(&mut buffer, IpProtocol::UDP, 4, left, &[0; 20]).unwrap();
        let bytes = extended(IpProtocol::ROUTING, &buffer[..len]);
        assert_eq!(shape(&bytes, First::Ip).0, ["ipv6", "extension", name]);
    }
}

#[test]
fn chains_without_end_are_left() {
    let many = [60, 0, 1, 4, 0, 0, 0, 0].repeat(30);
    let (names, why, _) = shape(&extended(IpProtocol::DESTINATION_OPTIONS, &many), First::Ip);
    assert_eq!((names.len(), why), (1 + MOST_HEADERS, Why::Error(ParseError::TooManyExtensions)));
    let misplaced = [0, 0, 1, 4, 0, 0, 0, 0];
    let (names, why, _) = shape(&extended(IpProtocol::DESTINATION_OPTIONS, &misplaced), First::Ip);
    assert_eq!((names.len(), why), (2, Why::Error(ParseError::ExtensionOrder { at: 8 })));
}

#[test]
fn tunnels_are_followed_only_so_far() {
    let mut bytes = udp4(b"inside");
    bytes = packet(Network::V6(Ipv6Header { next_header: IpProtocol::IPV4, ..V6 }), Transport::None, &bytes);
    assert_eq!(shape(&bytes, First::Ip).0, ["ipv6", "ipv4", "udp"]);
    for _ in 0..40 {
        bytes = packet(Network::V4(Ipv4Header { protocol: IpProtocol::IPV4, ..V4 }), Transport::None, &bytes);
    }
    let (names, why, _) = shape(&bytes, First::Ip);
    assert_eq!((names.len(), why), (MOST_LAYERS, Why::TooDeep));
}

#[test]
fn an_error_quotes_but_a_quotation_does_not() {
    let inner = packet(
        Network::V4(V4),
        Transport::Icmpv4(Icmpv4Message::TimeExceeded { code: 0 }),
        &udp4(b"innermost"),
    );
    let error = Transport::Icmpv4(Icmpv4Message::Unreachable { code: 1, mtu: 0 });
    let bytes = packet(Network::V4(V4), error, &inner);
    assert_eq!(shape(&bytes, First::Ip), (std::vec!["ipv4", "icmp", "(ipv4)", "(icmp)"], Why::Payload, 0));
    let bytes = packet(Network::V4(V4), error, &udp4(b"cut off here")[..28]);
    assert_eq!(shape(&bytes, First::Ip), (std::vec!["ipv4", "icmp", "(ipv4)", "(udp?)"], Why::Payload, 12));
    let bytes = packet(Network::V4(V4), error, &[]);
    assert_eq!(shape(&bytes, First::Ip), (std::vec!["ipv4", "icmp"], Why::Payload, 0));
}

#[test]
fn protocols_of_the_other_family_are_strange() {
    let v4 = Network::V4(Ipv4Header { protocol: IpProtocol::ICMPV6, ..V4 });
    assert_eq!(shape(&packet(v4, Transport::None, &[0; 8]), First::Ip).1, Why::Protocol(IpProtocol::ICMPV6));
    let v4 = Network::V4(Ipv4Header { protocol: IpProtocol::DESTINATION_OPTIONS, ..V4 });
    let why = Why::Protocol(IpProtocol::DESTINATION_OPTIONS);
    assert_eq!(shape(&packet(v4, Transport::None, &[0; 8]), First::Ip).1, why);
    let v6 = Network::V6(Ipv6Header { next_header: IpProtocol::ICMP, ..V6 });
    assert_eq!(shape(&packet(v6, Transport::None, &[0; 8]), First::Ip).1, Why::Protocol(IpProtocol::ICMP));
}

#[test]
fn padding_belongs_to_nobody() {
    let link = EthernetHeader::new(MacAddr::BROADCAST, MacAddr::UNSPECIFIED, EtherType::ARP);
    let mut frame = [0xaa; 60];
    let at = link.emit(&mut frame).unwrap();
    ArpPacket::request(MacAddr::UNSPECIFIED, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST)
        .emit(&mut frame[at..])
        .unwrap();
    let end = dissect(&frame, First::Ethernet).end();
    assert_eq!((end.at, end.rest, end.missing), (42, &[][..], 0));
    let mut padded = udp4(b"x");
    padded.resize(60, 0);
    assert_eq!(dissect(&padded, First::Ip).end().rest, b"x");
}
