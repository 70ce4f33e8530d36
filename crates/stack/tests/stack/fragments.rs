//! Fragments: put together, and what attackers make of them.

use crate::world::World;
use bypath_stack::Fragmentation;
use bypath_stack::config::Config;
use bypath_wire::ipv6_ext::FragmentHeader;
use bypath_wire::meta::ChecksumState;
use bypath_wire::{
    Addresses, EtherType, EthernetHeader, FrameMeta, IpProtocol, Ipv4Header, Ipv6Header, MacAddr, UdpHeader,
};
use std::net::{Ipv4Addr, Ipv6Addr};

const V4: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(10, 0, 0, 1));
const V6: (Ipv6Addr, Ipv6Addr) =
    (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));

/// A UDP datagram to port 7, header and all.
fn datagram(v6: bool, len: usize) -> Vec<u8> {
    let addresses = if v6 {
        Addresses::V6 { source: V6.0, destination: V6.1 }
    } else {
        Addresses::V4 { source: V4.0, destination: V4.1 }
    };
    let mut octets = vec![0; 8 + len];
    let payload: Vec<u8> = (0..len).map(|n| (n * 3 + n / 256) as u8).collect();
    let header = UdpHeader { source_port: 1234, destination_port: 7 };
    header.emit_with(&mut octets, &addresses, &payload).unwrap();
    octets
}

/// A fragment in its frame.
pub fn fragment(v6: bool, id: u32, offset: usize, octets: &[u8], more: bool) -> Vec<u8> {
    let ethertype = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
    let mut frame = vec![0; 100 + octets.len()];
    EthernetHeader::new(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 0x99]), ethertype)
        .emit(&mut frame)
        .unwrap();
    let rest = &mut frame[14..];
    let len = if v6 {
        let header = Ipv6Header::new(V6.0, V6.1, IpProtocol::FRAGMENT);
        let at = header.emit(rest, 8 + octets.len()).unwrap();
        let fragment = FragmentHeader { offset: offset as u16, more, identification: id };
        at + fragment.emit(&mut rest[at..], IpProtocol::UDP).unwrap()
    } else {
        let header = Ipv4Header {
            identification: id as u16,
            dont_fragment: false,
            more_fragments: more,
            fragment_offset: offset as u16,
            ..Ipv4Header::new(V4.0, V4.1, IpProtocol::UDP)
        };
        header.emit(rest, octets.len()).unwrap()
    };
    rest[len..len + octets.len()].copy_from_slice(octets);
    frame.truncate(14 + len + octets.len());
    frame
}

fn hand(world: &mut World, frame: &[u8]) {
    world.hand(0, frame, &FrameMeta::default());
}

#[test]
fn fragments_in_any_order_are_a_datagram() {
    for v6 in [false, true] {
        let mut world = World::new(1, 1);
        let server = world.bound(0, "[::]:7");
        let whole = datagram(v6, 4000);
        let mut parts: Vec<_> = (0..whole.len()).step_by(1448).collect();
        for id in 0..3 {
            for &at in &parts {
                let end = (at + 1448).min(whole.len());
                hand(&mut world, &fragment(v6, id, at, &whole[at..end], end < whole.len()));
            }
            let got = world.received(0, server);
            assert!(got.len() == 1 && got[0].1 == whole[8..]);
            parts.rotate_left(1);
        }
        assert_eq!(world.hosts[0].stack.usage().fragment_octets, 0);
    }
}

#[test]
fn overlaps_teardrops_and_pings_of_death_end_nothing_but_themselves() {
    for v6 in [false, true] {
        let mut world = World::new(1, 1);
        let server = world.bound(0, "[::]:7");
        let whole = datagram(v6, 4000);
        // One overlaps; teardrop: one inside another, and the last.
        hand(&mut world, &fragment(v6, 1, 0, &whole[..1448], true));
        hand(&mut world, &fragment(v6, 1, 1440, &whole[1440..2880], true));
        hand(&mut world, &fragment(v6, 2, 0, &whole[..1448], true));
        hand(&mut world, &fragment(v6, 2, 24, &whole[24..32], false));
        assert_eq!(world.count(0, "fragments_drop_overlap"), 2);
        // Beyond the longest packet.
        hand(&mut world, &fragment(v6, 3, 65_528, &whole[..1000], false));
        assert_eq!(world.count(0, "fragments_drop_too_long"), 1);
        // No multiple of eight; nothing at all.
        hand(&mut world, &fragment(v6, 4, 0, &whole[..1001], true));
        hand(&mut world, &fragment(v6, 5, 8, &[], true));
        assert_eq!(world.count(0, "fragments_drop_length"), 2);
        assert_eq!(world.hosts[0].stack.usage().fragmented, 0);
        // The service goes on.
        hand(&mut world, &fragment(v6, 6, 1448, &whole[1448..], false));
        hand(&mut world, &fragment(v6, 6, 0, &whole[..1448], true));
        assert_eq!(world.received(0, server).len(), 1);
    }
}

#[test]
fn a_first_fragment_without_all_headers_is_refused() {
    let mut world = World::new(1, 1);
    let iface = world.hosts[0].iface;
    world.hosts[0].stack.set_neighbor(iface, V6.0.into(), MacAddr([2, 0, 0, 0, 0, 0x99]));
    let whole = datagram(true, 100);
    // Part of a chain of options that goes on in the next one.
    let mut frame = fragment(true, 1, 0, &[60, 2, 1, 4, 0, 0, 0, 0], true);
    frame[54] = 60;
    hand(&mut world, &frame);
    assert_eq!(world.count(0, "fragments_drop_headers"), 1);
    world.millis(1);
    // Parameter problem: incomplete chain (RFC 7112).
    assert_eq!(world.trace.last().unwrap().1[54..56], [4, 3]);
    // The whole in one fragment is none (RFC 6946).
    let server = world.bound(0, "[::]:7");
    hand(&mut world, &fragment(true, 1, 0, &whole, false));
    assert_eq!((world.received(0, server).len(), world.count(0, "fragments_received")), (1, 0));
}

#[test]
fn what_is_not_whole_in_time_is_told_if_its_first_part_came() {
    for v6 in [false, true] {
        let mut world = World::new(1, 1);
        let iface = world.hosts[0].iface;
        let source = if v6 { V6.0.into() } else { V4.0.into() };
        world.hosts[0].stack.set_neighbor(iface, source, MacAddr([2, 0, 0, 0, 0, 0x99]));
        let whole = datagram(v6, 4000);
        hand(&mut world, &fragment(v6, 1, 0, &whole[..1448], true));
        hand(&mut world, &fragment(v6, 2, 1448, &whole[1448..2896], true));
        world.secs(29);
        assert!(world.trace.is_empty());
        world.secs(2);
        assert_eq!(world.count(0, "fragments_drop_given_up"), 2);
        let [(_, frame)] = &world.trace[..] else { panic!("{} frames", world.trace.len()) };
        let (at, kind) = if v6 { (54, 3) } else { (34, 11) };
        assert_eq!(frame[at..at + 2], [kind, 1]);
        assert_eq!(world.hosts[0].stack.usage().fragment_octets, 0);
    }
}

#[test]
fn what_a_device_says_of_a_fragment_does_not_hold_for_the_whole() {
    let mut world = World::new(1, 1);
    let server = world.bound(0, "[::]:7");
    let mut whole = datagram(false, 2000);
    whole[1500] ^= 1;
    let verified = FrameMeta { checksum: ChecksumState::Verified, ..FrameMeta::default() };
    world.hand(0, &fragment(false, 1, 0, &whole[..1448], true), &verified);
    world.hand(0, &fragment(false, 1, 1448, &whole[1448..], false), &verified);
    assert_eq!((world.received(0, server).len(), world.count(0, "udp_drop_checksum")), (0, 1));
}

#[test]
fn nobody_is_told_of_fragments_of_an_error() {
    let mut world = World::new(1, 1);
    let iface = world.hosts[0].iface;
    world.hosts[0].stack.set_neighbor(iface, V4.0.into(), MacAddr([2, 0, 0, 0, 0, 0x99]));
    // The first fragment of a long "port unreachable", and of a long echo request.
    for (kind, told) in [(3, 0), (8, 1)] {
        let mut frame = fragment(false, kind.into(), 0, &[kind; 64], true);
        frame[23] = 1;
        frame[24..26].fill(0);
        let sum = bypath_wire::checksum::checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        hand(&mut world, &frame);
        world.secs(40);
        assert_eq!(world.trace.len(), told);
    }
}

#[test]
fn a_flood_of_fragments_costs_no_more_than_the_memory_for_it() {
    let mut world = World::new(1, 1);
    let server = world.bound(0, "[::]:7");
    let whole = datagram(false, 4000);
    for id in 0..6_000u32 {
        let at = id as usize % 40 * 1448;
        // The world checks the bounds after each.
        hand(&mut world, &fragment(id % 2 == 0, id, at, &whole[..1448], true));
    }
    let usage = world.hosts[0].stack.usage();
    assert!(usage.fragment_octets <= Config::default().reassembly.octets && usage.fragmented > 10);
    hand(&mut world, &fragment(false, 6_001, 0, &whole[..1448], true));
    hand(&mut world, &fragment(false, 6_001, 1448, &whole[1448..], false));
    assert_eq!(world.received(0, server).len(), 1);
    world.millis(1);
    // Whose fragments made room for others is not told.
    assert!(world.count(0, "fragments_drop_given_up") > 1000 && world.count(0, "icmp_sent") < 20);
    world.secs(31);
    assert_eq!(world.hosts[0].stack.usage().fragment_octets, 0);
}

#[test]
fn numbers_of_what_is_cut_do_not_repeat_soon() {
    let mut world = World::new(2, 1);
    let client = world.bound(0, "[::]:9");
    for _ in 0..50 {
        world.send_to(0, client, &[0; 2000], "10.0.0.2:7");
        world.millis(1);
    }
    let first_parts =
        world.trace.iter().filter(|(host, f)| *host == 0 && f[12..14] == [8, 0] && f[20] & 0x20 != 0);
    let ids: std::collections::HashSet<_> = first_parts.map(|(_, f)| [f[18], f[19]]).collect();
    assert_eq!(ids.len(), 50);
}

#[test]
fn who_lets_routers_cut_says_so_in_the_header() {
    let mut world = World::new(2, 1);
    let client = world.bound(0, "[::]:9");
    let sent = |world: &mut World, fragmentation| {
        let mut options = world.udp(0, client).options();
        options.fragmentation = fragmentation;
        world.udp(0, client).set_options(options);
        world.send_to(0, client, &[0; 100], "10.0.0.2:7");
        world.millis(10);
        let (_, frame) = world.trace.iter().rfind(|(host, f)| *host == 0 && f[12..14] == [8, 0]).unwrap();
        (frame[20] & 0x40 != 0, u16::from_be_bytes([frame[18], frame[19]]))
    };
    assert_eq!(sent(&mut world, Fragmentation::Here), (true, 0));
    assert_eq!(sent(&mut world, Fragmentation::Never), (true, 0));
    let (first, second) =
        (sent(&mut world, Fragmentation::Anywhere), sent(&mut world, Fragmentation::Anywhere));
    assert!(!first.0 && !second.0 && first.1 != second.1);
}

#[test]
fn a_fragment_of_a_fragment_is_nobodys() {
    let mut world = World::new(1, 1);
    let server = world.bound(0, "[::]:7");
    let inner = datagram(true, 100);
    let mut octets = vec![17, 0, 0, 1, 0, 0, 0, 9];
    octets.extend_from_slice(&inner);
    octets.resize(octets.len().next_multiple_of(8), 0);
    for (at, more) in [(0usize, true), (64, false)] {
        let end = if more { 64 } else { octets.len() };
        let mut frame = fragment(true, 5, at, &octets[at..end], more);
        frame[54] = 44;
        hand(&mut world, &frame);
    }
    assert_eq!((world.received(0, server).len(), world.count(0, "ipv6_drop_extension")), (0, 1));
}
