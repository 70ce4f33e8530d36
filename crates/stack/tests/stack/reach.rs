//! Whose packets are taken: addresses, VLANs, broadcasts, the forwarder, raw sockets.

use crate::world::World;
use bypath_stack::config::Config;
use bypath_stack::iface::{IfaceConfig, IfaceId, Medium, NoAddress, NoIface, Offload};
use bypath_stack::time::Instant;
use bypath_stack::{SendTo, Stack};
use bypath_wire::vlan::VlanTags;
use bypath_wire::{
    EtherType, EthernetHeader, FrameMeta, Headers, Icmpv4Message, IpProtocol, Ipv4Header, Ipv6Header,
    MacAddr, Network, Transport, UdpHeader, VlanTag, icmpv4,
};
use std::net::{IpAddr, Ipv4Addr};

/// A datagram in its frame, to port 7.
pub fn frame(to: MacAddr, source: &str, destination: &str) -> Vec<u8> {
    let (source, destination): (IpAddr, IpAddr) = (source.parse().unwrap(), destination.parse().unwrap());
    let network = match (source, destination) {
        (IpAddr::V4(s), IpAddr::V4(d)) => Network::V4(Ipv4Header::new(s, d, IpProtocol::UDP)),
        (IpAddr::V6(s), IpAddr::V6(d)) => Network::V6(Ipv6Header::new(s, d, IpProtocol::UDP)),
        _ => panic!("two kinds"),
    };
    let link = Some(EthernetHeader::new(to, MacAddr([2, 0, 0, 0, 0, 0x99]), EtherType::IPV4));
    let transport = Transport::Udp(UdpHeader { source_port: 1234, destination_port: 7 });
    let mut octets = vec![0; 200];
    let len = Headers { link, network, transport }.emit(&mut octets, b"hi").unwrap();
    octets.truncate(len);
    octets
}

#[test]
fn packets_from_addresses_that_no_host_has_are_dropped() {
    let mut world = World::new(1, 1);
    let mac = world.hosts[0].mac;
    let server = world.bound(0, "[::]:7");
    let cases = [
        ("224.0.0.5", "10.0.0.1"),
        ("255.255.255.255", "10.0.0.1"),
        ("10.0.0.255", "10.0.0.1"),
        ("0.0.0.0", "10.0.0.1"),
        ("127.0.0.1", "10.0.0.1"),
        ("10.0.0.9", "127.0.0.1"),
        // Land.
        ("10.0.0.1", "10.0.0.1"),
    ];
    for (n, (source, destination)) in (1..).zip(cases) {
        world.hand(0, &frame(mac, source, destination), &FrameMeta::default());
        assert_eq!(world.count(0, "ipv4_drop_source"), n, "{source}");
    }
    let cases = [
        ("ff02::5", "fd00::1"),
        ("::1", "fd00::1"),
        ("fd00::9", "::1"),
        ("fd00::1", "fd00::1"),
        ("::ffff:10.0.0.9", "fd00::1"),
    ];
    for (n, (source, destination)) in (1..).zip(cases) {
        world.hand(0, &frame(mac, source, destination), &FrameMeta::default());
        assert_eq!(world.count(0, "ipv6_drop_source"), n, "{source}");
    }
    assert!(world.received(0, server).is_empty());
    world.hand(0, &frame(mac, "10.0.0.9", "10.0.0.1"), &FrameMeta::default());
    world.hand(0, &frame(mac, "fd00::9", "fd00::1"), &FrameMeta::default());
    assert_eq!(world.received(0, server).len(), 2);
}

#[test]
fn frames_and_packets_for_others_are_not_ours() {
    let mut world = World::new(1, 1);
    let mac = world.hosts[0].mac;
    let server = world.bound(0, "[::]:7");
    world.hand(0, &frame(MacAddr([2, 0, 0, 0, 0, 7]), "10.0.0.9", "10.0.0.1"), &FrameMeta::default());
    assert_eq!(world.count(0, "link_drop_other_station"), 1);
    for to in ["10.0.0.3", "8.8.8.8", "224.0.0.9"] {
        world.hand(0, &frame(mac, "10.0.0.9", to), &FrameMeta::default());
    }
    // What we sent ourselves, given back.
    let mut own = frame(mac, "10.0.0.9", "10.0.0.1");
    own[6..12].copy_from_slice(&mac.0);
    world.hand(0, &own, &FrameMeta::default());
    assert_eq!(world.count(0, "link_drop_own"), 1);
    // A packet to one host in a frame to all (RFC 1122, 3.3.6).
    world.hand(0, &frame(MacAddr::BROADCAST, "10.0.0.9", "10.0.0.1"), &FrameMeta::default());
    assert_eq!(world.count(0, "ipv4_drop_not_local"), 4);
    for to in ["fd00::3", "ff02::9"] {
        world.hand(0, &frame(mac, "fd00::9", to), &FrameMeta::default());
    }
    assert!(world.received(0, server).is_empty());
    world.millis(10);
    assert!(world.trace.is_empty());
}

#[test]
fn a_broadcast_reaches_all_and_whoever_sent_it() {
    let mut world = World::new(3, 1);
    for to in ["10.0.0.255:7", "255.255.255.255:7"] {
        let servers: Vec<_> = (0..3).map(|host| world.bound(host, "0.0.0.0:7")).collect();
        let client = world.bound(0, "0.0.0.0:9");
        let mut options = world.udp(0, client).options();
        options.broadcast = true;
        world.udp(0, client).set_options(options);
        world.send_to(0, client, b"all", to);
        world.millis(10);
        for (host, server) in servers.into_iter().enumerate() {
            assert_eq!(world.received(host, server), [("10.0.0.1:9".parse().unwrap(), b"all".to_vec())]);
            world.hosts[host].stack.close(server);
        }
        world.hosts[0].stack.close(client);
        // Nobody answers where nobody listens.
        assert!(world.trace.iter().all(|(host, _)| *host == 0));
    }
}

#[test]
fn vlans_are_interfaces_of_their_own() {
    let mut world = World::new(2, 1);
    let now = world.now();
    let mut vlans = Vec::new();
    for (host, address) in [(0, "10.5.0.1/24"), (1, "10.5.0.2/24")] {
        let Host { stack, iface, .. } = &mut world.hosts[host];
        let vlan = stack.add_vlan(*iface, 5, 1500).unwrap();
        stack.add_address(now, vlan, address.parse().unwrap()).unwrap();
        vlans.push(vlan);
        assert_eq!(stack.add_vlan(*iface, 5, 1500), Err(NoIface::Exists));
        assert_eq!(stack.add_vlan(*iface, 4095, 1500), Err(NoIface::Vid));
        assert_eq!(stack.add_vlan(vlan, 6, 1500), Err(NoIface::Medium));
        assert_eq!(stack.add_vlan(*iface, 6, 1501), Err(NoIface::Mtu));
    }
    use crate::world::Host;
    let (server, client) = (world.bound(1, "0.0.0.0:7"), world.bound(0, "0.0.0.0:9"));
    world.send_to(0, client, &[1; 1472], "10.5.0.2:7");
    world.millis(10);
    let mut room = [0; 2000];
    let got = world.udp(1, server).receive(&mut room).unwrap();
    assert_eq!((got.len, got.datagram.iface), (1472, vlans[1]));
    let (_, tagged) = world.trace.iter().find(|(_, frame)| frame.len() == 1518).unwrap().clone();
    assert_eq!(EthernetHeader::parse(&tagged).unwrap().0.tags.outermost().unwrap().vid, 5);
    // The device may have taken the tag out.
    let mut plain = tagged.clone();
    plain.drain(12..16);
    let tag = |vid| VlanTag { tpid: 0x8100, pcp: 3, dei: false, vid };
    world.hand(1, &plain, &FrameMeta { vlan: Some(tag(5)), ..FrameMeta::default() });
    assert_eq!(world.udp(1, server).receive(&mut room).unwrap().datagram.iface, vlans[1]);
    // Another VLAN, two tags: nobody's.
    world.hand(1, &plain, &FrameMeta { vlan: Some(tag(6)), ..FrameMeta::default() });
    world.hand(1, &tagged, &FrameMeta { vlan: Some(tag(5)), ..FrameMeta::default() });
    assert_eq!(world.count(1, "link_drop_vlan"), 2);
    // Nor is one inside of a priority.
    world.hand(1, &tagged, &FrameMeta { vlan: Some(tag(0)), ..FrameMeta::default() });
    assert_eq!(world.count(1, "link_drop_vlan"), 3);
    // A priority alone is no VLAN.
    let mut link = EthernetHeader::new(world.hosts[1].mac, MacAddr([2, 0, 0, 0, 0, 0x99]), EtherType::IPV4);
    link.tags = VlanTags::one(tag(0));
    let mut prioritised = vec![0; 18];
    link.emit(&mut prioritised).unwrap();
    prioritised.extend_from_slice(&frame(world.hosts[1].mac, "10.0.0.9", "10.0.0.2")[14..]);
    world.hand(1, &prioritised, &FrameMeta::default());
    assert_eq!(world.udp(1, server).receive(&mut room).unwrap().datagram.iface, world.hosts[1].iface);
}

#[test]
fn the_forwarder_takes_what_is_for_others_and_answers_as_they() {
    for (client_ip, server, mine) in
        [("10.0.0.9", "8.8.8.8", "10.0.0.1"), ("fd00::9", "2001:db8::8", "fd00::1")]
    {
        let mut world = World::new(1, 1);
        let (mac, iface) = (world.hosts[0].mac, world.hosts[0].iface);
        let ordinary = world.bound(0, "[::]:7");
        let forwarder = world.bound(0, "[::]:0");
        let to_others = frame(mac, client_ip, server);
        world.hand(0, &to_others, &FrameMeta::default());
        assert!(world.received(0, forwarder).is_empty());
        world.hosts[0].stack.set_udp_forwarder(Some(forwarder));
        world.hand(0, &to_others, &FrameMeta::default());
        world.hand(0, &frame(mac, client_ip, mine), &FrameMeta::default());
        let mut room = [0; 100];
        let got = world.udp(0, forwarder).receive(&mut room).unwrap();
        let to = std::net::SocketAddr::new(server.parse().unwrap(), 7);
        assert_eq!((got.datagram.to, &room[..got.len]), (to, &b"hi"[..]));
        // What is ours is not the forwarder's.
        assert_eq!((world.received(0, forwarder).len(), world.received(0, ordinary).len()), (0, 1));
        // Nobody else may send from there.
        let answer = SendTo {
            to: Some(got.datagram.from),
            source: Some(to.ip()),
            source_port: Some(to.port()),
            ..SendTo::default()
        };
        assert!(world.udp(0, ordinary).send_with(b"no", &answer).is_err());
        world.hosts[0].stack.set_neighbor(iface, client_ip.parse().unwrap(), MacAddr([2, 0, 0, 0, 0, 0x99]));
        world.udp(0, forwarder).send_with(b"yes", &answer).unwrap();
        world.millis(1);
        let (_, sent) = world.trace.last().unwrap();
        let headers = if client_ip.contains(':') { 54 } else { 34 };
        assert_eq!(sent[headers..headers + 4], [0, 7, 4, 210]);
        assert_eq!(&sent[headers + 8..], b"yes");
        // One that was closed takes nothing, and what it would have taken is counted.
        world.hosts[0].stack.close(forwarder);
        let not_local =
            |world: &World| world.count(0, "ipv4_drop_not_local") + world.count(0, "ipv6_drop_not_local");
        let before = not_local(&world);
        world.hand(0, &to_others, &FrameMeta::default());
        assert_eq!(not_local(&world), before + 1);
    }
}

#[test]
fn echo_is_answered_and_raw_sockets_hear_it() {
    for (to, protocol) in
        [("10.0.0.2", IpProtocol::ICMP), ("fd00::2", IpProtocol::ICMPV6), ("127.0.0.1", IpProtocol::ICMP)]
    {
        let mut world = World::new(2, 1);
        let ping = world.hosts[0].stack.open_raw(protocol).unwrap();
        for len in [0usize, 56, 1472, 5000] {
            let mut message = vec![0x42; 8 + len];
            let kind = if protocol == IpProtocol::ICMP { 8 } else { 128 };
            message[..8].copy_from_slice(&[kind, 0, 0, 0, 0x12, 0x34, 0, len as u8]);
            if protocol == IpProtocol::ICMP {
                icmpv4::fill(&mut message);
            }
            world.raw(0, ping).send(&message, to.parse().unwrap(), None).unwrap();
            world.millis(20);
            let mut room = vec![0; 6000];
            let mut answers = Vec::new();
            while let Ok(got) = world.raw(0, ping).receive(&mut room) {
                answers.push((got.datagram.from.ip().to_string(), room[0], room[4..got.len].to_vec()));
            }
            let reply = if protocol == IpProtocol::ICMP { 0 } else { 129 };
            let own = (to.to_owned(), reply, message[4..].to_vec());
            assert!(answers.contains(&own), "{to} {len}: {} answers", answers.len());
        }
    }
}

#[test]
fn echo_to_all_is_not_answered() {
    let mut world = World::new(1, 1);
    let link = EthernetHeader::new(MacAddr::BROADCAST, MacAddr([2, 0, 0, 0, 0, 0x99]), EtherType::IPV4);
    let network = Network::V4(Ipv4Header::new(
        Ipv4Addr::new(10, 0, 0, 9),
        Ipv4Addr::new(10, 0, 0, 255),
        IpProtocol::ICMP,
    ));
    let transport = Transport::Icmpv4(Icmpv4Message::EchoRequest { identifier: 1, sequence: 1 });
    let mut octets = [0; 100];
    let len = Headers { link: Some(link), network, transport }.emit(&mut octets, b"smurf").unwrap();
    world.hand(0, &octets[..len], &FrameMeta::default());
    world.millis(10);
    assert_eq!((world.count(0, "icmp_drop_broadcast_echo"), world.trace.len()), (1, 0));
}

#[test]
fn what_cannot_be_is_refused() {
    let config = Config { ifaces: 2, addresses: 1, ..Config::default() };
    let mut stack = Stack::new(config, [1; 32]);
    let ip = |mtu| IfaceConfig { medium: Medium::Ip, mtu, offload: Offload::default() };
    assert_eq!([stack.add_iface(ip(67)), stack.add_iface(ip(65_536))], [Err(NoIface::Mtu); 2]);
    let iface = stack.add_iface(ip(1000)).unwrap();
    assert_eq!(stack.add_iface(ip(1000)), Err(NoIface::Full { most: 2 }));
    let mut add = |text: &str| stack.add_address(Instant::ZERO, iface, text.parse().unwrap());
    for text in
        ["0.0.0.0/8", "224.0.0.1/4", "255.255.255.255/32", "127.0.0.5/8", "::1/128", "::ffff:10.0.0.1/120"]
    {
        assert_eq!(add(text), Err(NoAddress::NotAHost), "{text}");
    }
    let host = "10.0.0.1/24".parse().unwrap();
    assert_eq!(add("10.0.0.255/24"), Err(NoAddress::Broadcast { host }));
    assert_eq!(add("10.0.0.0/24"), Err(NoAddress::Network { host }));
    assert_eq!(add("fd00::/64"), Err(NoAddress::Network { host: "fd00::1/64".parse().unwrap() }));
    assert_eq!(add("fd00::1/64"), Err(NoAddress::Mtu));
    assert_eq!(add("10.0.0.1/24"), Ok(()));
    assert_eq!(add("10.0.0.1/24"), Err(NoAddress::Exists));
    assert_eq!(add("10.0.1.1/24"), Err(NoAddress::Full { most: 1 }));
    assert!(stack.remove_address(iface, "10.0.0.1".parse().unwrap()));
    assert!(!stack.remove_address(iface, "10.0.0.1".parse().unwrap()));
    assert_eq!(stack.routes().count(), 0);
    // Where there are two hosts, the network's own address is one's (RFC 3021).
    assert_eq!(stack.add_address(Instant::ZERO, iface, "10.0.0.0/31".parse().unwrap()), Ok(()));
    assert_eq!(IfaceId::from_scope(iface.scope()), Some(iface));
}

#[test]
fn sources_of_other_links_are_used_if_they_mean_something_there() {
    let mut stack = Stack::new(Config { dad_transmits: 0, ..Config::default() }, [1; 32]);
    let medium = |n| Medium::Ethernet(MacAddr([2, 0, 0, 0, 0, n]));
    let [near, far] = [1, 2].map(|n| {
        stack.add_iface(IfaceConfig { medium: medium(n), mtu: 1500, offload: Offload::default() }).unwrap()
    });
    let now = Instant::ZERO;
    stack.add_address(now, far, "fe80::2/64".parse().unwrap()).unwrap();
    let prefix = "2001:db8::/32".parse().unwrap();
    let route = bypath_stack::route::Route { prefix, iface: near, via: None, metric: 0, source: None };
    stack.add_route(route).unwrap();
    let to: IpAddr = "2001:db8::9".parse().unwrap();
    // Neither ::1 nor the other link's address gets there.
    assert_eq!(stack.path(to, None, None), Err(bypath_stack::path::Unreachable::Source));
    stack.add_address(now, far, "fd00::2/64".parse().unwrap()).unwrap();
    let source = |stack: &Stack| stack.path(to, None, None).unwrap().source.to_string();
    assert_eq!(source(&stack), "fd00::2");
    stack.add_address(now, near, "2001:db8::1/64".parse().unwrap()).unwrap();
    assert_eq!(source(&stack), "2001:db8::1");
}

#[test]
fn a_raw_socket_sees_no_icmpv6_with_a_wrong_checksum() {
    let mut world = World::new(1, 1);
    let raw = world.hosts[0].stack.open_raw(IpProtocol::ICMPV6).unwrap();
    let ask = bypath_wire::NdpMessage::NeighborSolicitation { target: "fd00::1".parse().unwrap() };
    let mac = world.hosts[0].mac;
    let mut octets = crate::neighbors::ndp_frame(mac, "fd00::9", "fd00::1", 255, &ask, &[]);
    world.hand(0, &octets, &FrameMeta::default());
    octets[60] ^= 1;
    world.hand(0, &octets, &FrameMeta::default());
    assert_eq!((world.count(0, "raw_delivered"), world.count(0, "icmp_drop_checksum")), (1, 1));
    assert!(world.raw(0, raw).receive(&mut [0; 100]).is_ok());
}
