//! Segments that are written by hand: of strangers, and of peers that are not as we are.

use super::*;
use bypath_wire::tcp::{TcpFlags, TcpHeader};
use bypath_wire::{
    EtherType, EthernetHeader, FrameMeta, Headers, IpProtocol, Ipv4Header, Ipv6Header, MacAddr, Network,
    SeqNumber, Transport,
};
use std::net::{IpAddr, SocketAddr};

/// The station that strangers' frames come from.
pub const STRANGER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x99]);

/// A segment in its frame.
pub fn segment(to_mac: MacAddr, from: SocketAddr, to: SocketAddr, header: TcpHeader) -> Vec<u8> {
    with(to_mac, from, to, header, &[])
}

/// The same, with octets.
pub fn with(to_mac: MacAddr, from: SocketAddr, to: SocketAddr, header: TcpHeader, octets: &[u8]) -> Vec<u8> {
    let (network, ethertype) = match (from.ip(), to.ip()) {
        (IpAddr::V4(s), IpAddr::V4(d)) => {
            (Network::V4(Ipv4Header::new(s, d, IpProtocol::TCP)), EtherType::IPV4)
        }
        (IpAddr::V6(s), IpAddr::V6(d)) => {
            (Network::V6(Ipv6Header::new(s, d, IpProtocol::TCP)), EtherType::IPV6)
        }
        _ => panic!("two kinds"),
    };
    let link = Some(EthernetHeader::new(to_mac, STRANGER, ethertype));
    let header = TcpHeader { source_port: from.port(), destination_port: to.port(), ..header };
    let mut frame = vec![0; 100 + octets.len()];
    let len = Headers { link, network, transport: Transport::Tcp(header) }.emit(&mut frame, octets).unwrap();
    frame.truncate(len);
    frame
}

/// A header with these flags and numbers.
pub fn header(flags: TcpFlags, seq: u32, ack: u32) -> TcpHeader {
    let mut header = TcpHeader::new(0, 0);
    (header.flags, header.seq, header.ack, header.window) = (flags, SeqNumber(seq), SeqNumber(ack), 60_000);
    header
}

/// What host 0 has to send next: TCP headers.
pub fn answers(world: &mut World) -> Vec<TcpHeader> {
    let (now, iface) = (world.now(), world.hosts[0].iface);
    let mut room = vec![0; 2000];
    let mut all = Vec::new();
    while let Some((len, _)) = world.hosts[0].stack.poll_transmit(now, iface, &mut room) {
        let (_, packet) = EthernetHeader::parse(&room[..len]).unwrap();
        let segment = match packet[0] >> 4 {
            4 => Ipv4Header::parse(packet).unwrap().1,
            _ => Ipv6Header::parse(packet).unwrap().1,
        };
        all.push(TcpHeader::parse(segment).unwrap().0);
    }
    all
}

/// A host, and a stranger that it knows the station of.
fn scene() -> (World, MacAddr, SocketAddr, SocketAddr) {
    let mut world = World::new(1, 1);
    let (mac, iface) = (world.hosts[0].mac, world.hosts[0].iface);
    world.hosts[0].stack.set_neighbor(iface, "10.0.0.9".parse().unwrap(), STRANGER);
    (world, mac, "10.0.0.9:5".parse().unwrap(), "10.0.0.1:80".parse().unwrap())
}

#[test]
fn segments_to_nobody_are_answered_as_the_rfc_says() {
    let (mut world, mac, from, to) = scene();
    for (flags, octets, seq, ack, answer) in [
        (TcpFlags::SYN, &b""[..], 0, 1001, TcpFlags::RST | TcpFlags::ACK),
        (TcpFlags::SYN | TcpFlags::FIN, b"ab", 0, 1004, TcpFlags::RST | TcpFlags::ACK),
        (TcpFlags::ACK, b"abc", 77, 0, TcpFlags::RST),
        (TcpFlags::SYN | TcpFlags::ACK, b"", 77, 0, TcpFlags::RST),
        (TcpFlags::NONE, b"", 0, 1000, TcpFlags::RST | TcpFlags::ACK),
    ] {
        let frame = with(mac, from, to, header(flags, 1000, 77), octets);
        world.hand(0, &frame, &FrameMeta::default());
        let answers = answers(&mut world);
        assert_eq!(answers.len(), 1, "{flags}");
        assert_eq!((answers[0].flags, answers[0].seq.0, answers[0].ack.0), (answer, seq, ack), "{flags}");
    }
    let frame = segment(mac, from, to, header(TcpFlags::RST, 1000, 0));
    world.hand(0, &frame, &FrameMeta::default());
    assert_eq!(answers(&mut world), []);
}

#[test]
fn a_wrong_checksum_or_length_is_dropped() {
    let (mut world, mac, from, to) = scene();
    let frame = with(mac, from, to, header(TcpFlags::ACK, 1, 2), b"octets");
    let mut wrong = frame.clone();
    *wrong.last_mut().unwrap() ^= 1;
    world.hand(0, &wrong, &FrameMeta::default());
    let mut long = frame.clone();
    // A header of 60 octets.
    long[34 + 12] = 0xf0;
    world.hand(0, &long, &FrameMeta::default());
    assert_eq!((world.count(0, "tcp_drop_checksum"), world.count(0, "tcp_drop_malformed")), (1, 1));
    assert_eq!(answers(&mut world), []);
    // A link that has looked is believed.
    let checksum = bypath_wire::meta::ChecksumState::Verified;
    world.hand(0, &wrong, &FrameMeta { checksum, ..FrameMeta::default() });
    assert_eq!(answers(&mut world).len(), 1);
}

#[test]
fn a_reset_counts_only_if_its_number_is_exactly_the_next_one() {
    let (mut world, mac, from, to) = scene();
    let server = listen(&mut world, 0, "10.0.0.1:80");
    let syn = segment(mac, from, to, header(TcpFlags::SYN, 1000, 0));
    world.hand(0, &syn, &FrameMeta::default());
    let answer = answers(&mut world)[0];
    assert_eq!((answer.flags, answer.ack.0), (TcpFlags::SYN | TcpFlags::ACK, 1001));
    let ack = segment(mac, from, to, header(TcpFlags::ACK, 1001, answer.seq.0 + 1));
    world.hand(0, &ack, &FrameMeta::default());
    let accepted = tcp(&mut world, 0, server).accept().unwrap();
    let reset = |seq| segment(mac, from, to, header(TcpFlags::RST, seq, 0));
    world.hand(0, &reset(1002), &FrameMeta::default());
    // RFC 5961, 3.2: it is asked about.
    assert_eq!(answers(&mut world).iter().map(|a| a.flags).collect::<Vec<_>>(), [TcpFlags::ACK]);
    assert_eq!(state(&mut world, 0, accepted), State::Established);
    world.hand(0, &reset(1001), &FrameMeta::default());
    assert_eq!(state(&mut world, 0, accepted), State::Closed);
    // The ends are nobody's now.
    world.hand(0, &ack, &FrameMeta::default());
    assert_eq!(world.count(0, "tcp_drop_no_socket"), 0, "the listener is asked");
    assert_eq!(answers(&mut world)[0].flags, TcpFlags::RST);
}

#[test]
fn what_was_put_together_by_the_link_counts_as_the_segments_it_was() {
    use bypath_wire::meta::{Gso, GsoKind};
    let (mut world, mac, from, to) = scene();
    let server = listen(&mut world, 0, "10.0.0.1:80");
    world.hand(0, &segment(mac, from, to, header(TcpFlags::SYN, 1000, 0)), &FrameMeta::default());
    let iss = answers(&mut world)[0].seq.0;
    let ack = |seq: u32, octets: &[u8]| with(mac, from, to, header(TcpFlags::ACK, seq, iss + 1), octets);
    world.hand(0, &ack(1001, &[]), &FrameMeta::default());
    let accepted = tcp(&mut world, 0, server).accept().unwrap();
    let gso = Some(Gso { kind: GsoKind::Tcp4, size: 536, header_len: 54, ecn: false });
    let mut next = 1001;
    for _ in 0..10 {
        let frame = ack(next, &[1; 5360]);
        next += 5360;
        world.hand(0, &frame, &FrameMeta { gso, ..FrameMeta::default() });
        // Two full segments are acknowledged at once, however they came.
        assert_eq!(answers(&mut world).last().map(|a| a.ack.0), Some(next));
    }
    let statistics = tcp(&mut world, 0, accepted).statistics().unwrap();
    assert_eq!((statistics.octets_received, statistics.segments_in), (53_600, 1 + 1 + 100));
}
