//! Bytes of a connection as the segments they might have been, and datagrams in their packets: Ethernet, IP, TCP or UDP, with checksums.

use bypath::wire::ethernet::MacAddr;
use bypath::wire::ip::{Addresses, IpProtocol, TrafficClass};
use bypath::wire::ipv4::{Ipv4Header, Ipv4Options};
use bypath::wire::ipv6::Ipv6Header;
use bypath::wire::seq::SeqNumber;
use bypath::wire::tcp::{TcpFlags, TcpHeader};
use bypath::wire::udp::{self, UdpHeader};
use std::net::{IpAddr, SocketAddr};

/// Bytes of one segment at most; IPv4 takes 65,495.
pub const MOST: usize = 32 << 10;
const ETHERNET: usize = 14;

/// Writes a segment's frame in place of what stood in `frame`. Positions are those of the two directions; sequence numbers
/// begin with 1 at position 0, as a dissector shows them.
pub fn build(
    frame: &mut Vec<u8>,
    from: SocketAddr,
    to: SocketAddr,
    position: u64,
    answered: u64,
    payload: &[u8],
) {
    let mut tcp = TcpHeader::new(from.port(), to.port());
    tcp.seq = SeqNumber((position as u32).wrapping_add(1));
    tcp.ack = SeqNumber((answered as u32).wrapping_add(1));
    tcp.flags = TcpFlags::from_bits(TcpFlags::ACK.bits() | TcpFlags::PSH.bits());
    tcp.window = u16::MAX;
    let len = tcp.len() + payload.len();
    let addresses = headers(frame, [from, to], IpProtocol::TCP, len);
    let at = frame.len();
    frame.resize(at + len, 0);
    tcp.emit_with(&mut frame[at..], &addresses, payload).expect("room for it");
}

/// The same of a datagram, whole; false: none so long can be in a packet.
pub fn datagram(frame: &mut Vec<u8>, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> bool {
    let udp = UdpHeader { source_port: from.port(), destination_port: to.port() };
    let len = udp::HEADER_LEN + payload.len();
    let is_v4 = from.ip().to_canonical().is_ipv4() && to.ip().to_canonical().is_ipv4();
    if len > if is_v4 { MOST_V4 } else { MOST_V6 } {
        return false;
    }
    let addresses = headers(frame, [from, to], IpProtocol::UDP, len);
    let at = frame.len();
    frame.resize(at + len, 0);
    udp.emit_with(&mut frame[at..], &addresses, payload).expect("room for it");
    true
}

/// Octets behind an IPv4 header without options, and behind an IPv6 one, at most.
const MOST_V4: usize = 65_535 - 20;
const MOST_V6: usize = 65_535;

/// Ethernet and IP, for so many octets behind them.
fn headers(frame: &mut Vec<u8>, [from, to]: [SocketAddr; 2], protocol: IpProtocol, len: usize) -> Addresses {
    frame.clear();
    frame.extend_from_slice(&MacAddr([0; 6]).0);
    frame.extend_from_slice(&MacAddr([0; 6]).0);
    match (from.ip().to_canonical(), to.ip().to_canonical()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend_from_slice(&0x0800u16.to_be_bytes());
            let header = Ipv4Header {
                class: TrafficClass(0),
                identification: 0,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                ttl: 64,
                protocol,
                source,
                destination,
                options: Ipv4Options::default(),
            };
            frame.resize(ETHERNET + header.len(), 0);
            header.emit(&mut frame[ETHERNET..], len).expect("less than a packet holds");
            Addresses::V4 { source, destination }
        }
        (source, destination) => {
            frame.extend_from_slice(&0x86ddu16.to_be_bytes());
            let v6 = |ip| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            let header = Ipv6Header::new(v6(source), v6(destination), protocol);
            frame.resize(ETHERNET + 40, 0);
            header.emit(&mut frame[ETHERNET..], len).expect("less than a packet holds");
            header.addresses()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bypath::wire::tcp;

    #[test]
    fn segments_have_the_addresses_and_numbers_they_should() {
        let mut frame = Vec::new();
        let (a, b) = ("127.0.0.1:5000".parse().unwrap(), "127.0.0.1:6379".parse().unwrap());
        build(&mut frame, a, b, u64::from(u32::MAX) + 5, 7, b"hello");
        let (ip, segment) = Ipv4Header::parse(&frame[ETHERNET..]).unwrap();
        let addresses = Addresses::V4 { source: ip.source, destination: ip.destination };
        assert!(tcp::verify(&addresses, segment));
        let (header, payload) = TcpHeader::parse(segment).unwrap();
        assert_eq!((header.source_port, header.destination_port, payload), (5000, 6379, &b"hello"[..]));
        assert_eq!((header.seq.0, header.ack.0), (5, 8));

        let (a, b) = ("[::1]:5000".parse().unwrap(), "[::ffff:1.2.3.4]:80".parse().unwrap());
        build(&mut frame, a, b, 0, 0, &[7; MOST]);
        let (ip, segment) = Ipv6Header::parse(&frame[ETHERNET..]).unwrap();
        assert!(tcp::verify(&ip.addresses(), segment));
        assert_eq!(TcpHeader::parse(segment).unwrap().1.len(), MOST);
    }

    #[test]
    fn datagrams_have_the_addresses_and_lengths_they_should() {
        let mut frame = Vec::new();
        let (a, b) = ("127.0.0.1:5000".parse().unwrap(), "127.0.0.1:53".parse().unwrap());
        for payload in [&b""[..], b"hello", &[7; 65_507]] {
            assert!(datagram(&mut frame, a, b, payload));
            let (ip, packet) = Ipv4Header::parse(&frame[ETHERNET..]).unwrap();
            let addresses = Addresses::V4 { source: ip.source, destination: ip.destination };
            assert_eq!(udp::verify(&addresses, packet), udp::UdpChecksum::Fits);
            let (header, octets) = UdpHeader::parse(packet).unwrap();
            assert_eq!((header.source_port, header.destination_port, octets), (5000, 53, payload));
        }
        assert!(!datagram(&mut frame, a, b, &[7; 65_508]));
        let (a, b) = ("[::1]:5000".parse().unwrap(), "[::1]:53".parse().unwrap());
        assert!(datagram(&mut frame, a, b, &[7; 65_527]) && !datagram(&mut frame, a, b, &[7; 65_528]));
    }
}
