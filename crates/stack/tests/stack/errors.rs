//! ICMP errors: which we send, and which we believe.

use crate::reach::frame;
use crate::world::World;
use bypath_stack::Fragmentation;
use bypath_stack::route::Route;
use bypath_stack::socket::{Options, SendError, SocketError};
use bypath_wire::{
    EtherType, EthernetHeader, FrameMeta, Headers, Icmpv4Message, Icmpv6Message, IpProtocol, Ipv4Header,
    Ipv6Header, MacAddr, Network, Transport,
};
use std::net::{IpAddr, SocketAddr};

/// An ICMP error about a packet.
pub fn error(to: MacAddr, from: &str, destination: &str, message: Transport, about: &[u8]) -> Vec<u8> {
    let (source, destination): (IpAddr, IpAddr) = (from.parse().unwrap(), destination.parse().unwrap());
    let network = match (source, destination) {
        (IpAddr::V4(s), IpAddr::V4(d)) => Network::V4(Ipv4Header::new(s, d, IpProtocol::ICMP)),
        (IpAddr::V6(s), IpAddr::V6(d)) => Network::V6(Ipv6Header::new(s, d, IpProtocol::ICMPV6)),
        _ => panic!("two kinds"),
    };
    let link = Some(EthernetHeader::new(to, MacAddr([2, 0, 0, 0, 0, 0x99]), EtherType::IPV4));
    let mut octets = vec![0; 1600];
    let len = Headers { link, network, transport: message }.emit(&mut octets, about).unwrap();
    octets.truncate(len);
    octets
}

pub fn too_big(v4: bool, mtu: u16) -> Transport {
    if v4 {
        Transport::Icmpv4(Icmpv4Message::Unreachable { code: 4, mtu })
    } else {
        Transport::Icmpv6(Icmpv6Message::PacketTooBig { mtu: mtu.into() })
    }
}

#[test]
fn a_port_without_a_socket_is_told_to_whoever_is_connected() {
    for to in ["10.0.0.2:7", "[fd00::2]:7"] {
        let mut world = World::new(2, 1);
        let (one, other) = (world.connected(0, to), world.bound(0, "[::]:9"));
        world.udp(0, one).send(b"?", None).unwrap();
        world.send_to(0, other, b"?", to);
        world.millis(10);
        // Once, by the next call.
        let refused = Err(SendError::Network(SocketError::PortUnreachable));
        assert_eq!(world.udp(0, one).send(b"?", None), refused);
        assert_eq!(world.udp(0, one).send(b"?", None), Ok(()));
        assert_eq!(world.udp(0, other).take_error(), None);
        assert_eq!((world.count(1, "udp_drop_no_socket"), world.count(1, "icmp_sent") >= 2), (2, true));
    }
}

#[test]
fn who_wants_all_errors_has_each_with_what_it_is_about() {
    for (to, kind) in [("10.0.0.2:7", 3), ("[fd00::2]:7", 1)] {
        let mut world = World::new(2, 1);
        let remote: SocketAddr = to.parse().unwrap();
        let id = world.bound(0, "[::]:9");
        world.udp(0, id).set_options(Options { all_errors: true, ..Options::default() });
        world.send_to(0, id, b"first", to);
        world.millis(10);
        assert_eq!(world.udp(0, id).take_error(), Some(SocketError::PortUnreachable));
        for n in 0..50u8 {
            world.send_to(0, id, &[n; 600], to);
            world.millis(10);
            let _first = world.udp(0, id).take_error();
        }
        let report = world.udp(0, id).take_report().unwrap();
        assert_eq!((report.to, report.from, &report.octets[..]), (remote, remote.ip(), &b"first"[..]));
        assert_eq!((report.error, report.kind), (SocketError::PortUnreachable, kind));
        assert_eq!(report.code, if remote.is_ipv4() { 3 } else { 4 });
        // What the next call is told is the next one; they are bounded, and so is each.
        assert_eq!(world.udp(0, id).take_error(), Some(SocketError::PortUnreachable));
        let next = world.udp(0, id).take_report().unwrap();
        assert!((100..=548).contains(&next.octets.len()) && next.octets.iter().all(|octet| *octet == 0));
        let left = std::iter::from_fn(|| world.udp(0, id).take_report()).count();
        assert!((1..=30).contains(&left), "{left}");
        assert_eq!(world.udp(0, id).take_error(), None);
        world.send_to(0, id, b"?", to);
        world.millis(2000);
        world.udp(0, id).set_options(Options::default());
        assert_eq!(world.udp(0, id).take_report(), None);
    }
}

#[test]
fn errors_are_sent_no_faster_than_they_may_be() {
    let mut world = World::new(2, 1);
    let client = world.bound(0, "[::]:9");
    world.send_to(0, client, b"?", "10.0.0.2:7");
    world.millis(100);
    for _ in 0..500 {
        world.send_to(0, client, b"?", "10.0.0.2:7");
    }
    world.millis(1);
    assert_eq!(world.count(1, "udp_drop_no_socket"), 501);
    let dropped = world.count(1, "icmp_drop_rate");
    assert!((440..=450).contains(&dropped), "{dropped}");
}

#[test]
fn the_path_mtu_is_learnt_from_routers_about_packets_that_we_sent() {
    for (to, from, far, v4) in
        [("8.8.8.8:7", "10.0.0.1", "10.0.0.254", true), ("[2001:db8::8]:7", "fd00::1", "fd00::254", false)]
    {
        let mut world = World::new(1, 1);
        let (iface, mac) = (world.hosts[0].iface, world.hosts[0].mac);
        let router: IpAddr = far.parse().unwrap();
        let all = if v4 { "0.0.0.0/0" } else { "::/0" };
        let route = Route { prefix: all.parse().unwrap(), iface, via: Some(router), metric: 0, source: None };
        world.hosts[0].stack.add_route(route).unwrap();
        world.hosts[0].stack.set_neighbor(iface, router, MacAddr([2, 0, 0, 0, 0, 0x99]));
        let (cuts, never) = (world.bound(0, "[::]:9"), world.connected(0, to));
        let mut options = world.udp(0, never).options();
        options.fragmentation = Fragmentation::Never;
        world.udp(0, never).set_options(options);
        let headers = if v4 { 28 } else { 48 };
        let full = vec![7; 1500 - headers];
        world.udp(0, never).send(&full, None).unwrap();
        world.send_to(0, cuts, &full, to);
        world.millis(1);
        assert_eq!(world.trace.len(), 2);
        let sent = world.trace[0].1[14..].to_vec();

        // About what we did not send: another port, another source, a length that passes.
        let mut other_port = sent.clone();
        let at = if v4 { 20 } else { 40 };
        other_port[at..at + 2].copy_from_slice(&[1, 1]);
        for about in [&other_port[..548], &sent[..at + 3]] {
            world.hand(0, &error(mac, far, from, too_big(v4, 1300), about), &FrameMeta::default());
        }
        world.hand(0, &error(mac, far, from, too_big(v4, 1500), &sent[..548]), &FrameMeta::default());
        assert_eq!((world.count(0, "icmp_drop_unrelated"), world.count(0, "icmp_path_mtus")), (3, 0));

        world.hand(0, &error(mac, far, from, too_big(v4, 1300), &sent[..548]), &FrameMeta::default());
        assert_eq!(world.count(0, "icmp_path_mtus"), 1);
        assert_eq!(world.udp(0, never).take_error(), Some(SocketError::TooBig { mtu: 1300 }));
        let most = 1300 - headers;
        let refused = Err(SendError::TooLong { len: full.len(), most });
        assert_eq!(world.udp(0, never).send(&full, None), refused);
        world.udp(0, never).send(&full[..most], None).unwrap();
        world.send_to(0, cuts, &full, to);
        world.trace.clear();
        world.millis(1);
        let lens: Vec<_> = world.trace.iter().map(|(_, frame)| frame.len() - 14).collect();
        assert_eq!(lens.len(), 3);
        assert!(lens.iter().all(|len| *len <= 1300), "{lens:?}");

        // Nobody makes us send dust.
        world.hand(0, &error(mac, far, from, too_big(v4, 68), &sent[..548]), &FrameMeta::default());
        let path = world.hosts[0].stack.path(to.parse::<std::net::SocketAddr>().unwrap().ip(), None, None);
        assert_eq!(path.unwrap().mtu, if v4 { 552 } else { 1280 });
        // And not for ever.
        world.secs(601);
        world.udp(0, never).take_error();
        assert_eq!(world.udp(0, never).send(&full, None), Ok(()));
    }
}

#[test]
fn an_old_router_that_does_not_say_the_mtu_is_guessed_for() {
    let mut world = World::new(1, 1);
    let (iface, mac) = (world.hosts[0].iface, world.hosts[0].mac);
    world.hosts[0].stack.set_neighbor(iface, "10.0.0.9".parse().unwrap(), MacAddr([2, 0, 0, 0, 0, 0x99]));
    let client = world.bound(0, "[::]:9");
    world.send_to(0, client, &[0; 1472], "10.0.0.9:7");
    world.millis(1);
    let sent = world.trace[0].1[14..].to_vec();
    world.hand(0, &error(mac, "10.0.0.9", "10.0.0.1", too_big(true, 0), &sent[..28]), &FrameMeta::default());
    // RFC 1191, 7: the next lower plateau.
    assert_eq!(world.hosts[0].stack.path("10.0.0.9".parse().unwrap(), None, None).unwrap().mtu, 1492);
}

#[test]
fn an_error_about_nothing_of_ours_does_nothing() {
    let mut world = World::new(1, 1);
    let mac = world.hosts[0].mac;
    let victim = world.connected(0, "10.0.0.2:53");
    let port = world.udp(0, victim).local().unwrap().port();
    let unreachable = Transport::Icmpv4(Icmpv4Message::Unreachable { code: 3, mtu: 0 });
    let packet = |source: &str, destination: &str, source_port: u16, destination_port: u16| {
        let mut packet = frame(mac, source, destination)[14..].to_vec();
        packet[20..22].copy_from_slice(&source_port.to_be_bytes());
        packet[22..24].copy_from_slice(&destination_port.to_be_bytes());
        packet
    };
    let about = [
        packet("10.0.0.1", "10.0.0.2", port ^ 1, 53),
        packet("10.0.0.1", "10.0.0.2", port, 54),
        packet("10.0.0.1", "10.0.0.3", port, 53),
        packet("10.0.0.7", "10.0.0.2", port, 53),
    ];
    for (n, about) in (1..).zip(&about) {
        world.hand(0, &error(mac, "10.0.0.2", "10.0.0.1", unreachable, about), &FrameMeta::default());
        assert_eq!(world.count(0, "icmp_drop_unrelated"), n);
    }
    let right = packet("10.0.0.1", "10.0.0.2", port, 53);
    // With a wrong checksum, and cut off.
    let mut wrong = error(mac, "10.0.0.2", "10.0.0.1", unreachable, &right);
    wrong[40] ^= 1;
    world.hand(0, &wrong, &FrameMeta::default());
    assert_eq!(world.count(0, "icmp_drop_checksum"), 1);
    for len in 0..24 {
        let cut = error(mac, "10.0.0.2", "10.0.0.1", unreachable, &right[..len]);
        world.hand(0, &cut, &FrameMeta::default());
    }
    assert_eq!(world.udp(0, victim).take_error(), None);
    world.hand(0, &error(mac, "10.0.0.2", "10.0.0.1", unreachable, &right), &FrameMeta::default());
    assert_eq!(world.udp(0, victim).take_error(), Some(SocketError::PortUnreachable));
    world.millis(10);
    // No error was answered by an error.
    assert!(world.trace.is_empty());
}

#[test]
fn a_packet_from_elsewhere_is_not_ours_whatever_port_it_names() {
    let mut world = World::new(1, 1);
    let mac = world.hosts[0].mac;
    world.bound(0, "0.0.0.0:7");
    // As if 10.0.0.7 had sent from port 7 to port 1234, which a socket that is bound to all addresses would do.
    let mut about = frame(mac, "10.0.0.7", "10.0.0.9")[14..].to_vec();
    about[20..24].copy_from_slice(&[0, 7, 4, 210]);
    about[2..4].copy_from_slice(&1500u16.to_be_bytes());
    world.hand(0, &error(mac, "10.0.0.9", "10.0.0.1", too_big(true, 1000), &about), &FrameMeta::default());
    assert_eq!((world.count(0, "icmp_drop_unrelated"), world.count(0, "icmp_path_mtus")), (1, 0));
    let mut ours = about.clone();
    ours[15] = 1;
    world.hand(0, &error(mac, "10.0.0.9", "10.0.0.1", too_big(true, 1000), &ours), &FrameMeta::default());
    assert_eq!(world.count(0, "icmp_path_mtus"), 1);
}

#[test]
fn errors_are_not_sent_where_they_must_not_be() {
    let mut world = World::new(1, 1);
    let mac = world.hosts[0].mac;
    let iface = world.hosts[0].iface;
    for neighbour in ["10.0.0.9", "fd00::9"] {
        world.hosts[0].stack.set_neighbor(iface, neighbour.parse().unwrap(), MacAddr([2, 0, 0, 0, 0, 0x99]));
    }
    let silent = [
        // To everybody, and to one in a frame to everybody.
        frame(MacAddr::BROADCAST, "10.0.0.9", "10.0.0.255"),
        frame(MacAddr::BROADCAST, "10.0.0.9", "10.0.0.1"),
        frame(MacAddr([0x33, 0x33, 0, 0, 0, 1]), "fd00::9", "ff02::1"),
        frame(MacAddr([0x33, 0x33, 0, 0, 0, 1]), "fd00::9", "fd00::1"),
        frame(mac, "::", "fd00::1"),
    ];
    for octets in &silent {
        world.hand(0, octets, &FrameMeta::default());
    }
    world.millis(10);
    assert!(world.trace.is_empty());
    // A protocol that nobody takes is told.
    let mut octets = frame(mac, "10.0.0.9", "10.0.0.1");
    octets[14 + 9] = 99;
    octets[24..26].fill(0);
    let sum = bypath_wire::checksum::checksum(&octets[14..34]);
    octets[24..26].copy_from_slice(&sum.to_be_bytes());
    world.hand(0, &octets, &FrameMeta::default());
    let mut octets = frame(mac, "fd00::9", "fd00::1");
    octets[14 + 6] = 99;
    world.hand(0, &octets, &FrameMeta::default());
    world.millis(10);
    assert_eq!((world.count(0, "ipv4_drop_protocol"), world.count(0, "ipv6_drop_protocol")), (1, 1));
    // Nothing behind the headers is nothing to be told of (RFC 8200, 4.7), but counted.
    octets[14 + 6] = 59;
    world.hand(0, &octets, &FrameMeta::default());
    world.millis(10);
    assert_eq!(world.count(0, "ipv6_drop_protocol"), 2);
    let kinds: Vec<_> = world
        .trace
        .iter()
        .map(|(_, f)| if f[12..14] == [8, 0] { (f[34], f[35]) } else { (f[54], f[55]) })
        .collect();
    // Protocol unreachable; parameter problem, unknown next header.
    assert_eq!(kinds, [(3, 2), (4, 1)]);
}
