//! ARP and neighbour discovery on the wire.

use crate::world::{Faults, World};
use bypath_stack::config::Config;
use bypath_stack::event::Event;
use bypath_stack::iface::AddressState;
use bypath_stack::neighbor::{self, State};
use bypath_stack::route::Route;
use bypath_stack::socket::{Options, SocketError};
use bypath_wire::arp::ArpPacket;
use bypath_wire::ndp::NdpOption;
use bypath_wire::{
    Addresses, EtherType, EthernetHeader, FrameMeta, IpProtocol, Ipv6Header, MacAddr, NdpMessage, icmpv6,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn arp_frame(to: MacAddr, packet: &ArpPacket) -> Vec<u8> {
    let mut frame = vec![0; 60];
    EthernetHeader::new(to, packet.sender_mac, EtherType::ARP).emit(&mut frame).unwrap();
    packet.emit(&mut frame[14..]).unwrap();
    frame
}

/// A message of neighbour discovery in its frame.
pub fn ndp_frame(
    to: MacAddr,
    from: &str,
    dst: &str,
    hops: u8,
    message: &NdpMessage,
    options: &[NdpOption<'_>],
) -> Vec<u8> {
    let (source, destination): (Ipv6Addr, Ipv6Addr) = (from.parse().unwrap(), dst.parse().unwrap());
    let mut octets = [0; 200];
    let len = message.emit(&mut octets, options).unwrap();
    icmpv6::fill(&Addresses::V6 { source, destination }, &mut octets[..len]);
    let mut frame = vec![0; 14 + 40 + len];
    let link = EthernetHeader::new(to, MacAddr([2, 0, 0, 0, 0, 0x99]), EtherType::IPV6);
    link.emit(&mut frame).unwrap();
    let header = Ipv6Header { hop_limit: hops, ..Ipv6Header::new(source, destination, IpProtocol::ICMPV6) };
    header.emit(&mut frame[14..], len).unwrap();
    frame[54..].copy_from_slice(&octets[..len]);
    frame
}

fn is_arp(frame: &[u8]) -> Option<ArpPacket> {
    let (link, packet) = EthernetHeader::parse(frame).unwrap();
    (link.ethertype == EtherType::ARP).then(|| ArpPacket::parse(packet).unwrap())
}

#[test]
fn what_waits_for_an_address_goes_out_in_order_and_nothing_asks_twice() {
    for to in ["10.0.0.2:7", "[fd00::2]:7"] {
        let mut world = World::new(2, 1);
        let (server, client) = (world.bound(1, "[::]:7"), world.bound(0, "[::]:9"));
        for n in 0..20u8 {
            world.send_to(0, client, &[n], to);
        }
        world.millis(1);
        let got: Vec<u8> = world.received(1, server).iter().map(|(_, octets)| octets[0]).collect();
        assert_eq!(got, (0..20).collect::<Vec<_>>());
        // One question, one answer.
        assert_eq!(world.trace.len(), 22);
        assert_eq!(world.hosts[0].stack.usage().waiting_octets, 0);
        let iface = world.hosts[0].iface;
        assert_eq!(
            world.hosts[0]
                .stack
                .neighbor(iface, ip(to.rsplit_once(':').unwrap().0.trim_matches(['[', ']'])))
                .unwrap()
                .0,
            State::Reachable
        );
    }
}

#[test]
fn one_silent_neighbour_holds_nobody_else_back() {
    let mut world = World::new(2, 1);
    let (server, client) = (world.bound(1, "[::]:7"), world.bound(0, "[::]:9"));
    for n in 0..10u8 {
        world.send_to(0, client, &[n], "10.0.0.99:7");
        world.send_to(0, client, &[n], "10.0.0.2:7");
    }
    world.millis(1);
    assert_eq!(world.received(1, server).len(), 10);
}

/// Of a datagram whose socket is closed nobody is told, whoever has its port by then: the octets are none of his.
#[test]
fn what_was_sent_in_vain_is_told_to_who_has_sent_it_alone() {
    for to in ["10.0.0.99:7", "[fd00::99]:7"] {
        let mut world = World::new(2, 1);
        let all = Options { all_errors: true, ..Options::default() };
        let (gone, there) = (world.bound(0, "[::]:9"), world.bound(0, "[::]:10"));
        world.udp(0, there).set_options(all);
        world.send_to(0, gone, b"a secret", to);
        world.send_to(0, there, b"its own", to);
        world.hosts[0].stack.close(gone);
        let next = world.bound(0, "[::]:9");
        world.udp(0, next).set_options(all);
        world.millis(4000);
        assert_eq!(world.drops(0), [("neighbor_drop_unreachable", 2)]);
        assert_eq!((world.udp(0, next).take_error(), world.udp(0, next).take_report()), (None, None));
        assert_eq!(world.udp(0, there).take_error(), Some(SocketError::HostUnreachable));
        let report = world.udp(0, there).take_report().expect("what came of it");
        assert_eq!(&report.octets[..], b"its own");
    }
}

#[test]
fn nobody_there_is_told_to_whoever_wants_to_know() {
    for to in ["10.0.0.99:7", "[fd00::99]:7"] {
        let mut world = World::new(2, 1);
        let (one, other) = (world.connected(0, to), world.bound(0, "[::]:9"));
        world.udp(0, one).set_options(Options { all_errors: true, ..Options::default() });
        let calm = world.connected(0, to);
        world.udp(0, one).send(b"?", None).unwrap();
        world.udp(0, calm).send(b"?", None).unwrap();
        world.send_to(0, other, b"?", to);
        world.millis(2500);
        assert_eq!(world.udp(0, one).take_error(), None);
        world.millis(1000);
        assert_eq!(world.udp(0, one).take_error(), Some(SocketError::HostUnreachable));
        // As in Linux, such an error may pass: it is not told to who does not ask.
        assert_eq!(world.udp(0, calm).take_error(), None);
        assert_eq!(world.udp(0, other).take_error(), None);
        assert_eq!(world.drops(0), [("neighbor_drop_unreachable", 3)]);
        // Three questions, as RFC 4861, 10 says.
        assert_eq!(world.trace.len(), 3);
    }
}

#[test]
fn a_neighbour_that_went_away_is_asked_and_forgotten() {
    let mut world = World::new(2, 1);
    let client = world.bound(0, "0.0.0.0:9");
    let server = world.bound(1, "0.0.0.0:7");
    let iface = world.hosts[0].iface;
    world.send_to(0, client, b"x", "10.0.0.2:7");
    world.secs(60);
    assert_eq!(world.received(1, server).len(), 1);
    assert_eq!(world.hosts[0].stack.neighbor(iface, ip("10.0.0.2")).unwrap().0, State::Stale);
    world.faults = Faults { loss: 1.0, ..Faults::default() };
    world.trace.clear();
    world.send_to(0, client, b"y", "10.0.0.2:7");
    world.secs(20);
    // The datagram, and three questions to the one who answered before (RFC 4861, 7.3.3; RFC 1122, 2.3.2.1).
    let asked: Vec<_> = world.trace[1..].iter().map(|(_, frame)| frame[..6].to_vec()).collect();
    assert_eq!(asked, vec![world.hosts[1].mac.0.to_vec(); 3]);
    assert_eq!(world.hosts[0].stack.neighbor(iface, ip("10.0.0.2")), None);
}

#[test]
fn an_announcement_moves_an_address_and_notes_nobody_new() {
    let mut world = World::new(2, 1);
    let client = world.bound(0, "0.0.0.0:9");
    world.send_to(0, client, b"x", "10.0.0.2:7");
    world.millis(10);
    let iface = world.hosts[0].iface;
    let other = MacAddr([2, 0, 0, 0, 0, 0x55]);
    for address in [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 77)] {
        let announcement = ArpPacket::request(other, address, address);
        world.hand(0, &arp_frame(MacAddr::BROADCAST, &announcement), &FrameMeta::default());
    }
    assert_eq!(world.hosts[0].stack.neighbor(iface, ip("10.0.0.2")).unwrap().1, other);
    assert_eq!(world.hosts[0].stack.neighbor(iface, ip("10.0.0.77")), None);
}

#[test]
fn an_ipv4_address_is_announced_twice_and_a_conflict_is_told() {
    let mut world = World::new(2, 1);
    let now = world.now();
    let iface = world.hosts[0].iface;
    world.hosts[0].stack.add_address(now, iface, "10.0.0.50/24".parse().unwrap()).unwrap();
    world.secs(5);
    let announced: Vec<_> = world.trace.iter().filter_map(|(_, frame)| is_arp(frame)).collect();
    assert_eq!(announced.len(), 2);
    assert!(announced.iter().all(|a| a.is_announcement() && a.sender_ip == Ipv4Addr::new(10, 0, 0, 50)));
    let other = ArpPacket::request(
        MacAddr([2, 9, 9, 9, 9, 9]),
        Ipv4Addr::new(10, 0, 0, 50),
        Ipv4Addr::new(10, 0, 0, 1),
    );
    world.hand(0, &arp_frame(MacAddr::BROADCAST, &other), &FrameMeta::default());
    world.millis(1);
    assert_eq!(world.hosts[0].events, [Event::AddressConflict { iface, address: ip("10.0.0.50") }]);
}

#[test]
fn a_router_that_falls_silent_is_told_of_once_and_so_is_its_return() {
    let mut world = World::new(1, 1);
    let iface = world.hosts[0].iface;
    let router = ip("10.0.0.77");
    let route =
        Route { prefix: "192.0.2.0/24".parse().unwrap(), iface, via: Some(router), metric: 0, source: None };
    world.hosts[0].stack.add_route(route).unwrap();
    let client = world.bound(0, "[::]:9");
    // Nobody answers for a host, which is no router; nor for the router.
    for to in ["10.0.0.66:7", "192.0.2.1:7", "192.0.2.1:7"] {
        world.send_to(0, client, b"x", to);
        world.secs(5);
        let mut udp = world.hosts[0].stack.udp(client).unwrap();
        let _ = udp.take_error();
    }
    assert_eq!(told(&world), [Event::RouterSilent { iface, address: router }]);
    let towards = |world: &mut World, to: &str| world.hosts[0].stack.silent_towards(ip(to), None, false);
    assert_eq!(towards(&mut world, "192.0.2.9"), Some((iface, router)));
    assert_eq!(towards(&mut world, "10.0.0.66"), Some((iface, ip("10.0.0.66"))));
    assert_eq!(towards(&mut world, "10.0.0.67"), None);
    let back = ArpPacket::request(
        MacAddr([2, 9, 9, 9, 9, 9]),
        Ipv4Addr::new(10, 0, 0, 77),
        Ipv4Addr::new(10, 0, 0, 1),
    );
    for _ in 0..2 {
        world.hand(0, &arp_frame(MacAddr::BROADCAST, &back), &FrameMeta::default());
        world.millis(1);
    }
    let both = [Event::RouterSilent { iface, address: router }, Event::RouterBack { iface, address: router }];
    assert_eq!(told(&world), both);
    assert_eq!(towards(&mut world, "192.0.2.9"), None);
}

/// Events that are no socket's.
fn told(world: &World) -> Vec<Event> {
    world.hosts[0].events.iter().copied().filter(|e| !matches!(e, Event::Socket { .. })).collect()
}

#[test]
fn what_a_bridge_gives_back_is_no_conflict() {
    let mut world = World::new(1, 1);
    let own = Ipv4Addr::new(10, 0, 0, 1);
    let mut frame = arp_frame(MacAddr::BROADCAST, &ArpPacket::request(world.hosts[0].mac, own, own));
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x99]);
    world.hand(0, &frame, &FrameMeta::default());
    assert_eq!(world.count(0, "arp_conflicts"), 0);
}

#[test]
fn what_waits_for_neighbours_is_bounded_in_octets() {
    let config = Config { waiting_octets: 10_000, ..Config::default() };
    let mut world = World::with(2, 1, &config, Default::default(), 1500);
    let client = world.bound(0, "0.0.0.0:9");
    for n in 0..50 {
        world.send_to(0, client, &[0; 1000], &format!("10.0.0.{}:7", 100 + n));
        world.millis(0);
        assert!(world.hosts[0].stack.usage().waiting_octets <= 10_000);
    }
    // Each counts 256 octets more.
    assert_eq!(world.drops(0), [("neighbor_drop_queue_full", 43)]);
    let server = world.bound(1, "0.0.0.0:7");
    world.secs(5);
    world.send_to(0, client, b"x", "10.0.0.2:7");
    world.millis(10);
    assert_eq!(world.received(1, server).len(), 1);
}

#[test]
fn two_hosts_that_want_one_address_find_out() {
    let mut world = World::new(2, 1);
    let prefix = "fd00::50/64".parse().unwrap();
    let now = world.now();
    let iface = world.hosts[0].iface;
    world.hosts[0].stack.add_address(now, iface, prefix).unwrap();
    // Tentative: no packet is its.
    let client = world.bound(1, "[::]:9");
    world.send_to(1, client, b"x", "[fd00::50]:7");
    world.secs(3);
    assert_eq!(world.hosts[0].events, [Event::AddressReady { iface, address: ip("fd00::50") }]);
    let now = world.now();
    world.hosts[1].stack.add_address(now, iface, prefix).unwrap();
    world.secs(3);
    assert_eq!(world.hosts[1].events, [Event::AddressConflict { iface, address: ip("fd00::50") }]);
    let state = |world: &World, host: usize| {
        world.hosts[host].stack.addresses(iface).iter().find(|a| a.ip() == ip("fd00::50")).unwrap().state
    };
    assert_eq!(state(&world, 0), AddressState::Preferred);
    assert_eq!(state(&world, 1), AddressState::Duplicate);
    // Who has it was told with the answer.
    let has = world.hosts[1].stack.addresses(iface).iter().find(|a| a.ip() == ip("fd00::50")).unwrap();
    assert_eq!(has.holder, Some(world.hosts[0].mac));
    assert_eq!(world.count(1, "ndp_conflicts"), 1);
}

/// Whoever is on the link can say so as often as he likes.
#[test]
fn that_an_ipv6_address_is_another_ones_too_is_told_once_in_a_while() {
    let mut world = World::new(1, 1);
    let (mac, iface) = (world.hosts[0].mac, world.hosts[0].iface);
    let target: Ipv6Addr = "fd00::1".parse().unwrap();
    let said = NdpMessage::NeighborAdvertisement { router: false, solicited: false, replace: true, target };
    let other = NdpOption::TargetLinkLayer(MacAddr([2, 0, 0, 0, 0, 0x99]));
    let frame = ndp_frame(mac, "fe80::99", "fd00::1", 255, &said, &[other]);
    for told in 1..=2 {
        for _ in 0..1000 {
            world.hand(0, &frame, &FrameMeta::default());
        }
        world.millis(1);
        let conflict = Event::AddressConflict { iface, address: ip("fd00::1") };
        assert_eq!(world.hosts[0].events.iter().filter(|e| **e == conflict).count(), told);
        assert_eq!(world.count(0, "ndp_conflicts"), 1000 * told as u64);
        assert_eq!(state_of(&world, 0, "fd00::1"), Some(AddressState::Preferred));
        world.secs(11);
    }
}

#[test]
fn messages_of_neighbour_discovery_that_cannot_be_are_dropped() {
    let mut world = World::new(2, 1);
    let mac = world.hosts[0].mac;
    let target: Ipv6Addr = "fd00::1".parse().unwrap();
    let ask = NdpMessage::NeighborSolicitation { target };
    let own = NdpOption::SourceLinkLayer(MacAddr([2, 0, 0, 0, 0, 0x99]));
    let group = "ff02::1:ff00:1";
    let cases = [
        // From afar.
        ndp_frame(mac, "fd00::9", "fd00::1", 254, &ask, &[own]),
        // A probe that tells its address, or asks one alone.
        ndp_frame(mac, "::", group, 255, &ask, &[own]),
        ndp_frame(mac, "::", "fd00::1", 255, &ask, &[]),
        // For a group.
        ndp_frame(
            mac,
            "fd00::9",
            group,
            255,
            &NdpMessage::NeighborSolicitation { target: "ff02::5".parse().unwrap() },
            &[own],
        ),
        // An answer to all that was asked for.
        ndp_frame(
            mac,
            "fd00::9",
            "ff02::1",
            255,
            &NdpMessage::NeighborAdvertisement {
                router: false,
                solicited: true,
                replace: true,
                target: "fd00::9".parse().unwrap(),
            },
            &[own],
        ),
    ];
    for (n, frame) in (1..).zip(&cases) {
        world.hand(0, frame, &FrameMeta::default());
        assert_eq!(world.count(0, "ndp_drop_malformed"), n, "case {n}");
    }
    let mut frame = ndp_frame(mac, "fd00::9", "fd00::1", 255, &ask, &[own]);
    // An option of no length.
    frame[14 + 40 + 24 + 1] = 0;
    let (source, destination) = ("fd00::9".parse().unwrap(), "fd00::1".parse().unwrap());
    icmpv6::fill(&Addresses::V6 { source, destination }, &mut frame[54..]);
    world.hand(0, &frame, &FrameMeta::default());
    assert_eq!(world.count(0, "ndp_drop_malformed"), 6);
    world.millis(10);
    assert!(world.trace.is_empty(), "nothing was answered");
    // A good one is.
    world.hand(0, &ndp_frame(mac, "fd00::9", "fd00::1", 255, &ask, &[own]), &FrameMeta::default());
    world.millis(10);
    assert_eq!(world.trace.len(), 1);
}

#[test]
fn a_redirect_is_believed_of_the_router_in_use_alone() {
    let mut world = World::new(3, 1);
    let iface = world.hosts[0].iface;
    let prefix = "2001:db8::/32".parse().unwrap();
    let route = Route { prefix, iface, via: Some(ip("fe80::2")), metric: 0, source: None };
    world.hosts[0].stack.add_route(route).unwrap();
    let path = |world: &World| world.hosts[0].stack.path(ip("2001:db8::5"), None, None).unwrap().next_hop;
    assert_eq!(path(&world), ip("fe80::2"));
    let redirect = NdpMessage::Redirect {
        target: "fe80::3".parse().unwrap(),
        destination: "2001:db8::5".parse().unwrap(),
    };
    let mac = world.hosts[0].mac;
    for (from, hops) in [("fe80::3", 255), ("fe80::2", 254), ("fd00::2", 255)] {
        world.hand(0, &ndp_frame(mac, from, "fd00::1", hops, &redirect, &[]), &FrameMeta::default());
        assert_eq!(path(&world), ip("fe80::2"), "{from} {hops}");
    }
    // A link-local destination has no router; nor is a global address that of one.
    let before = world.count(0, "ndp_drop_malformed");
    for (target, destination) in [("fe80::3", "fe80::5"), ("fd00::3", "2001:db8::5"), ("fe80::3", "ff05::1")]
    {
        let [target, destination] = [target, destination].map(|text| text.parse().unwrap());
        let wrong = NdpMessage::Redirect { target, destination };
        world.hand(0, &ndp_frame(mac, "fe80::2", "fd00::1", 255, &wrong, &[]), &FrameMeta::default());
    }
    assert_eq!(world.count(0, "ndp_drop_malformed"), before + 3);
    world.hand(0, &ndp_frame(mac, "fe80::2", "fd00::1", 255, &redirect, &[]), &FrameMeta::default());
    assert_eq!(path(&world), ip("fe80::3"));
    // It does not last for ever.
    world.secs(601);
    assert_eq!(path(&world), ip("fe80::2"));
}

#[test]
fn a_flood_of_neighbours_costs_no_more_than_the_table() {
    let config =
        Config { neighbors: neighbor::Config { most: 64, ..Default::default() }, ..Config::default() };
    let mut world = World::with(2, 1, &config, Default::default(), 1500);
    let (server, client) = (world.bound(1, "0.0.0.0:7"), world.bound(0, "0.0.0.0:9"));
    let target = Ipv4Addr::new(10, 0, 0, 1);
    for n in 0..20_000u32 {
        let [_, b, c, d] = n.to_be_bytes();
        let sender = Ipv4Addr::new(10, b, c, d.max(3));
        let ask = ArpPacket::request(MacAddr([2, 1, 1, b, c, d]), sender, target);
        world.hand(0, &arp_frame(MacAddr::BROADCAST, &ask), &FrameMeta::default());
        let iface = world.hosts[0].iface;
        assert!(world.hosts[0].stack.neighbors(iface) <= 64);
        if n % 1000 == 0 {
            world.send_to(0, client, b"on", "10.0.0.2:7");
            world.millis(1);
        }
    }
    world.millis(10);
    assert_eq!(world.received(1, server).len(), 20);
    assert!(world.count(0, "neighbor_replaced") > 19_000);
    // Nor does one whom we cause ourselves.
    for n in 3..255 {
        world.send_to(0, client, &[0; 1000], &format!("10.0.0.{n}:7"));
        world.millis(0);
    }
    world.secs(5);
    assert!(world.hosts[0].stack.usage().waiting_octets == 0);
}

/// Lets time go on; ARP packets that a host sends meanwhile, with the milliseconds at which it did, within ten.
fn arps_of(world: &mut World, host: usize, millis: u64) -> Vec<(u64, ArpPacket)> {
    let mut sent = Vec::new();
    for step in 0..millis / 10 {
        let before = world.trace.len();
        world.millis(10);
        let those = world.trace[before..].iter().filter(|(from, _)| *from == host);
        sent.extend(those.filter_map(|(_, frame)| Some((step * 10, is_arp(frame)?))));
    }
    sent
}

fn state_of(world: &World, host: usize, address: &str) -> Option<AddressState> {
    let host = &world.hosts[host];
    host.stack.addresses(host.iface).iter().find(|a| a.ip() == ip(address)).map(|a| a.state)
}

/// RFC 5227, 2.1.1 and 2.3.
#[test]
fn a_claimed_ipv4_address_is_asked_for_three_times_and_then_announced() {
    for seed in 1..20 {
        let mut world = World::new(2, seed);
        world.secs(5);
        let (now, iface) = (world.now(), world.hosts[0].iface);
        world.hosts[0].stack.claim_address(now, iface, "10.0.0.50/24".parse().unwrap()).unwrap();
        let client = world.hosts[0].stack.open_udp().unwrap();
        assert!(world.udp(0, client).bind("10.0.0.50:7".parse().unwrap()).is_err());
        // Nobody is told of it while it is asked for.
        let asks = world.bound(1, "0.0.0.0:9");
        world.send_to(1, asks, b"?", "10.0.0.50:7");
        let mut sent = arps_of(&mut world, 0, 1500);
        let known = world.hosts[1].stack.neighbor(world.hosts[1].iface, ip("10.0.0.50"));
        assert_eq!(known.map(|(state, _)| state), Some(State::Incomplete));
        sent.extend(arps_of(&mut world, 0, 12_000).into_iter().map(|(at, arp)| (at + 1500, arp)));
        assert!(sent.iter().all(|(_, arp)| arp.target_ip == Ipv4Addr::new(10, 0, 0, 50)));
        let kinds: Vec<_> = sent.iter().map(|(_, a)| (a.is_probe(), a.is_announcement())).collect();
        let (probe, announcement) = ((true, false), (false, true));
        assert_eq!(kinds, [probe, probe, probe, announcement, announcement]);
        let waits: Vec<u64> = sent.windows(2).map(|w| w[1].0 - w[0].0).collect();
        assert!(sent[0].0 <= 1000, "{sent:?}");
        assert!(waits[..2].iter().all(|ms| (990..=2010).contains(ms)), "{waits:?}");
        assert!(waits[2..].iter().all(|ms| (1990..=2010).contains(ms)), "{waits:?}");
        assert_eq!(world.hosts[0].events, [Event::AddressReady { iface, address: ip("10.0.0.50") }]);
        assert_eq!(
            world.udp(0, client).bind("10.0.0.50:7".parse().unwrap()),
            Ok("10.0.0.50:7".parse().unwrap())
        );
        world.send_to(1, asks, b"!", "10.0.0.50:7");
        world.millis(10);
        assert_eq!(world.received(0, client).len(), 1);
    }
}

#[test]
fn a_claimed_ipv4_address_that_somebody_has_or_wants_is_not_used() {
    // Somebody has it.
    let mut world = World::new(2, 1);
    let (now, iface) = (world.now(), world.hosts[0].iface);
    world.hosts[0].stack.claim_address(now, iface, "10.0.0.2/24".parse().unwrap()).unwrap();
    world.secs(10);
    assert_eq!(state_of(&world, 0, "10.0.0.2"), Some(AddressState::Duplicate));
    assert_eq!(world.hosts[0].events, [Event::AddressConflict { iface, address: ip("10.0.0.2") }]);
    assert_eq!((world.count(0, "arp_conflicts"), world.count(1, "arp_conflicts")), (1, 0));
    assert!(world.hosts[1].events.is_empty());
    // Given up for good, it can be taken again.
    assert!(world.hosts[0].stack.remove_address(iface, ip("10.0.0.2")));
    // Two want it at once: never do both have it.
    for seed in 1..50 {
        let mut world = World::new(3, seed);
        for host in 0..2 {
            let (now, iface) = (world.now(), world.hosts[host].iface);
            world.hosts[host].stack.claim_address(now, iface, "10.0.0.50/24".parse().unwrap()).unwrap();
        }
        world.secs(15);
        let have =
            (0..2).filter(|h| state_of(&world, *h, "10.0.0.50") == Some(AddressState::Preferred)).count();
        assert!(have <= 1, "seed {seed}");
    }
    // What a switch gives back of our own probe is no conflict.
    let mut world = World::new(1, 1);
    let (now, iface, mac) = (world.now(), world.hosts[0].iface, world.hosts[0].mac);
    let own = Ipv4Addr::new(10, 0, 0, 50);
    world.hosts[0].stack.claim_address(now, iface, "10.0.0.50/24".parse().unwrap()).unwrap();
    for sender in [Ipv4Addr::UNSPECIFIED, own] {
        world.secs(1);
        let back = arp_frame(MacAddr::BROADCAST, &ArpPacket::request(mac, sender, own));
        world.hand(0, &back, &FrameMeta::default());
    }
    world.secs(10);
    assert_eq!(state_of(&world, 0, "10.0.0.50"), Some(AddressState::Preferred));
}

/// RFC 5227, 2.4 (b) and (c).
#[test]
fn an_ipv4_address_is_defended_once_in_a_while_and_a_leased_one_given_up() {
    let own = Ipv4Addr::new(10, 0, 0, 50);
    let other = ArpPacket::request(MacAddr([2, 9, 9, 9, 9, 9]), own, Ipv4Addr::new(10, 0, 0, 1));
    let frame = arp_frame(MacAddr::BROADCAST, &other);
    for (claimed, leased) in [(false, false), (true, false), (true, true)] {
        let mut world = World::new(1, 1);
        let (now, iface) = (world.now(), world.hosts[0].iface);
        let (prefix, stack) = ("10.0.0.50/24".parse().unwrap(), &mut world.hosts[0].stack);
        if leased {
            stack.claim_leased_address(now, iface, prefix).unwrap();
        } else if claimed {
            stack.claim_address(now, iface, prefix).unwrap();
        } else {
            stack.add_address(now, iface, prefix).unwrap();
        }
        world.secs(20);
        let announced = |world: &mut World| {
            world.hand(0, &frame, &FrameMeta::default());
            let sent = arps_of(world, 0, 10);
            sent.iter().filter(|(_, a)| a.is_announcement() && a.sender_ip == own).count()
        };
        assert_eq!(announced(&mut world), 1);
        world.secs(11);
        assert_eq!(announced(&mut world), 1);
        assert_eq!(state_of(&world, 0, "10.0.0.50"), Some(AddressState::Preferred));
        world.secs(9);
        assert_eq!(announced(&mut world), 0);
        let after = if leased { AddressState::Duplicate } else { AddressState::Preferred };
        assert_eq!(state_of(&world, 0, "10.0.0.50"), Some(after));
        let conflict = Event::AddressConflict { iface, address: ip("10.0.0.50") };
        let told = world.hosts[0].events.iter().filter(|e| **e == conflict).count();
        assert_eq!((told, world.count(0, "arp_conflicts")), (if leased { 3 } else { 2 }, 3));
        let socket = world.hosts[0].stack.open_udp().unwrap();
        let bound = world.udp(0, socket).bind("10.0.0.50:7".parse().unwrap());
        assert_eq!(bound.is_ok(), !leased);
    }
}
