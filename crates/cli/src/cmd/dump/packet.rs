//! Bytes of a connection as the segments they might have been: Ethernet, IP, TCP, with checksums.

use bypath::wire::ethernet::MacAddr;
use bypath::wire::ip::{Addresses, IpProtocol, TrafficClass};
use bypath::wire::ipv4::{Ipv4Header, Ipv4Options};
use bypath::wire::ipv6::Ipv6Header;
use bypath::wire::seq::SeqNumber;
use bypath::wire::tcp::{TcpFlags, TcpHeader};
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
    frame.clear();
    frame.extend_from_slice(&MacAddr([0; 6]).0);
    frame.extend_from_slice(&MacAddr([0; 6]).0);
    let addresses = match (from.ip().to_canonical(), to.ip().to_canonical()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend_from_slice(&0x0800u16.to_be_bytes());
            let header = Ipv4Header {
                class: TrafficClass(0),
                identification: 0,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                ttl: 64,
                protocol: IpProtocol::TCP,
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
            let header = Ipv6Header::new(v6(source), v6(destination), IpProtocol::TCP);
            frame.resize(ETHERNET + 40, 0);
            header.emit(&mut frame[ETHERNET..], len).expect("less than a packet holds");
            header.addresses()
        }
    };
    let at = frame.len();
    frame.resize(at + len, 0);
    tcp.emit_with(&mut frame[at..], &addresses, payload).expect("room for it");
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
}
