//! Input that nobody meant to send: real frames that are cut, changed and glued, and noise. Nothing panics, nothing
//! loops, and what is read is within the frame. The order of inputs is fixed.

use crate::frames::all;
use bypath_wire::dissect::{First, MOST_LAYERS, dissect};
use bypath_wire::ipv6_ext::{Extension, ExtensionWalk};
use bypath_wire::print::Line;
use bypath_wire::{
    Addresses, ArpPacket, EthernetHeader, Icmpv4Message, Icmpv6Message, Ipv4Header, Ipv6Header,
};
use bypath_wire::{IpProtocol, NdpMessage, TcpHeader, UdpHeader, icmpv4, icmpv6, ipv4, ipv6, tcp, udp, vlan};
use std::hint::black_box;
use std::net::Ipv6Addr;

/// xorshift64: the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Everything that reads, on the same bytes.
fn read_all(bytes: &[u8]) {
    let inside = |rest: &[u8]| assert!(rest.len() <= bytes.len());
    if let Ok((header, rest)) = EthernetHeader::parse(bytes) {
        inside(rest);
        let mut again = [0; 64];
        let len = header.emit(&mut again).expect("what was read can be written");
        assert_eq!(again[..len], bytes[..len]);
    }
    if let Ok(packet) = ArpPacket::parse(bytes) {
        let mut again = [0; 28];
        packet.emit(&mut again).expect("what was read can be written");
        assert_eq!(again, bytes[..28]);
    }
    if let Ok((header, extent)) = Ipv4Header::parse_header(bytes) {
        black_box(header.options.iter().count());
        let mut again = [0; 60];
        let payload = extent.total_len - extent.header_len;
        assert_eq!(header.emit(&mut again, payload), Ok(extent.header_len));
        assert_eq!(Ipv4Header::parse_header(&again[..extent.header_len]).map(|(h, _)| h), Ok(header));
    }
    if let Ok((header, payload)) = Ipv6Header::parse(bytes) {
        inside(payload);
        let mut walk = ExtensionWalk::new(header.next_header, payload);
        for extension in walk.by_ref().flatten() {
            if let Extension::HopByHop(options) | Extension::DestinationOptions(options) = extension.extension
            {
                black_box(options.iter().count());
            }
        }
        inside(walk.rest().2);
    }
    for next in [0, 43, 44, 51, 60] {
        black_box(ExtensionWalk::new(IpProtocol(next), bytes).count());
    }
    let addresses = Addresses::V6 { source: Ipv6Addr::LOCALHOST, destination: Ipv6Addr::LOCALHOST };
    if let Ok((header, payload)) = TcpHeader::parse(bytes) {
        black_box((header.options.iter().count(), header.options.known()));
        let mut again = vec![0; bytes.len()];
        let len = header.emit_with(&mut again, &addresses, payload).expect("what was read can be written");
        assert!(tcp::verify(&addresses, &again[..len]));
        assert_eq!(TcpHeader::parse(&again), Ok((header, payload)));
    }
    black_box((UdpHeader::parse(bytes).is_ok(), udp::verify(&addresses, bytes)));
    black_box((Icmpv4Message::parse(bytes).is_ok(), icmpv4::is_intact(bytes)));
    black_box((Icmpv6Message::parse(bytes).is_ok(), icmpv6::verify(&addresses, bytes)));
    if let Ok((message, options)) = NdpMessage::parse(bytes) {
        let options: Vec<_> = options.iter().collect();
        let mut again = vec![0; bytes.len()];
        let len = message.emit(&mut again, &options).expect("what was read can be written");
        let (read, found) = NdpMessage::parse(&again[..len]).expect("what was written can be read");
        assert_eq!((read, found.iter().collect::<Vec<_>>()), (message, options));
    }
    change_all(bytes, &addresses);
    for first in [First::Ethernet, First::Ip] {
        let mut layers = dissect(bytes, first);
        let mut at = 0;
        let mut count = 0;
        for layer in &mut layers {
            assert!(layer.at >= at && layer.at + layer.len <= bytes.len(), "{layer:?}");
            at = layer.at + layer.len;
            count += 1;
        }
        assert!(count <= MOST_LAYERS);
        let end = layers.end();
        assert!(end.at >= at && end.at + end.rest.len() <= bytes.len(), "{end:?}");
        let line = Line::new(bytes, first).to_string();
        assert!(!line.contains('\n') && line.len() < 8192, "{line}");
    }
}

/// Everything that changes bytes in place.
fn change_all(bytes: &[u8], addresses: &Addresses) {
    let mut copy = bytes.to_vec();
    let _ = vlan::remove(&mut copy);
    let _ = vlan::insert(&mut copy, &bypath_wire::VlanTag::from_tci(0x8100, 0xe00a));
    let _ = ipv4::decrement_ttl(&mut copy);
    let _ = ipv4::set_total_len(&mut copy, 99);
    let _ = ipv6::decrement_hop_limit(&mut copy);
    udp::fill(addresses, &mut copy);
    udp::fill_partial(addresses, &mut copy);
    tcp::fill(addresses, &mut copy);
    tcp::fill_partial(addresses, &mut copy);
    icmpv4::fill(&mut copy);
    icmpv6::fill(addresses, &mut copy);
    assert_eq!(copy.len(), bytes.len());
}

#[test]
fn frames_cut_anywhere_are_read() {
    for golden in all() {
        for len in 0..golden.octets.len().min(200) {
            read_all(&golden.octets[..len]);
            // Headers of upper layers at the front too.
            read_all(&golden.octets[len..]);
        }
    }
}

#[test]
fn changed_frames_are_read() {
    let frames: Vec<Vec<u8>> = all().into_iter().map(|g| g.octets).collect();
    let mut random = Random(0x5eed_0000_0000_0001);
    for _ in 0..30_000 {
        let mut frame = frames[random.below(frames.len())].clone();
        for _ in 0..=random.below(6) {
            let at = random.below(frame.len().min(120));
            match random.below(6) {
                0 => frame[at] ^= 1 << random.below(8),
                1 => frame[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
                2 => frame[at] = random.next() as u8,
                3 => frame.truncate(at.max(1)),
                4 => {
                    let other = &frames[random.below(frames.len())];
                    let from = random.below(other.len());
                    frame.truncate(at.max(1));
                    frame.extend(&other[from..]);
                }
                _ => {
                    let piece = frame[at..frame.len().min(at + 16)].to_vec();
                    frame.splice(at..at, piece);
                }
            }
        }
        read_all(&frame);
    }
}

#[test]
fn noise_is_read() {
    let mut random = Random(0x5eed_0000_0000_0002);
    for _ in 0..20_000 {
        let len = random.below(160);
        let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        // Half of it begins like a packet.
        if let Some(first) = bytes.first_mut() {
            *first = [0x45, 0x60, 0x4f, *first, *first, *first][random.below(6)];
        }
        read_all(&bytes);
    }
}
