//! ICMP errors that somebody made up who is not on the way: about what nobody sent, and about what is soon guessed.

use crate::errors::{error, too_big};
use crate::tcp::{call, pair, tcp};
use crate::world::World;
use bypath_stack::route::Route;
use bypath_stack::socket::SocketId;
use bypath_wire::{FrameMeta, Icmpv4Message, IpProtocol, MacAddr, Transport, icmpv4};
use std::net::{IpAddr, SocketAddr};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A host with a router of IPv4 and one of IPv6, whose hardware addresses it knows.
fn behind_routers() -> (World, MacAddr) {
    let mut world = World::new(1, 1);
    let (iface, mac) = (world.hosts[0].iface, world.hosts[0].mac);
    for (all, router) in [("0.0.0.0/0", "10.0.0.254"), ("::/0", "fd00::254")] {
        let via = Some(ip(router));
        let route = Route { prefix: all.parse().unwrap(), iface, via, metric: 0, source: None };
        world.hosts[0].stack.add_route(route).unwrap();
        world.hosts[0].stack.set_neighbor(iface, ip(router), MacAddr([2, 0, 0, 0, 0, 0x99]));
    }
    (world, mac)
}

/// Sends a long echo request; the packet.
fn ping(world: &mut World, socket: SocketId, to: &str, sequence: u8) -> Vec<u8> {
    let v4 = ip(to).is_ipv4();
    let mut message = vec![0x42; 1380];
    message[..8].copy_from_slice(&[if v4 { 8 } else { 128 }, 0, 0, 0, 0x12, 0x34, 0, sequence]);
    if v4 {
        icmpv4::fill(&mut message);
    }
    world.raw(0, socket).send(&message, ip(to), None).unwrap();
    world.millis(1);
    world.trace.pop().unwrap().1[14..].to_vec()
}

fn mtu(world: &World, to: &str) -> u32 {
    world.hosts[0].stack.path(ip(to), None, None).unwrap().mtu
}

#[test]
fn an_error_about_an_echo_request_that_nobody_sent_does_nothing() {
    for (v4, own, router, pinged, other) in [
        (true, "10.0.0.1", "10.0.0.254", "8.8.8.8", "11.0.0.1"),
        (false, "fd00::1", "fd00::254", "2001:db8::8", "2001:db8::9"),
    ] {
        let (mut world, mac) = behind_routers();
        let protocol = if v4 { IpProtocol::ICMP } else { IpProtocol::ICMPV6 };
        let socket = world.hosts[0].stack.open_raw(protocol).unwrap();
        let sent = ping(&mut world, socket, pinged, 1);
        let message = if v4 { 20 } else { 40 };
        let changed = |place: usize| {
            let mut about = sent.clone();
            about[place] ^= 1;
            about
        };
        let mut about: Vec<_> = [2, 5, 7].map(|place| changed(message + place)).into();
        // To a host that was never asked, and one of which too little is there.
        let mut to_another = sent.clone();
        match ip(other) {
            IpAddr::V4(v4) => to_another[16..20].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => to_another[24..40].copy_from_slice(&v6.octets()),
        }
        about.extend([to_another, sent[..message + 7].to_vec()]);
        let told = |world: &mut World, about: &[u8]| {
            let told = error(mac, router, own, too_big(v4, 1290), &about[..about.len().min(500)]);
            world.hand(0, &told, &FrameMeta::default());
        };
        for (n, about) in (1..).zip(&about) {
            told(&mut world, about);
            assert_eq!((world.count(0, "icmp_drop_unrelated"), world.count(0, "icmp_path_mtus")), (n, 0));
        }
        assert_eq!((mtu(&world, pinged), mtu(&world, other)), (1500, 1500));
        told(&mut world, &sent);
        assert_eq!((mtu(&world, pinged), mtu(&world, other)), (1290, 1500));
        // What was sent long ago is not remembered.
        for sequence in 0..=255 {
            ping(&mut world, socket, other, sequence);
        }
        told(&mut world, &sent);
        assert_eq!(world.count(0, "icmp_drop_unrelated"), 6);
    }
}

#[test]
fn what_is_said_of_datagrams_and_pings_leaves_connections_alone() {
    for (v4, own, to, least) in [(true, "10.0.0.1", "10.0.0.2", 552), (false, "fd00::1", "fd00::2", 1280)] {
        let mut world = World::new(2, 1);
        let mac = world.hosts[0].mac;
        let with_port = |port: u16| SocketAddr::new(ip(to), port).to_string();
        let (client, _accepted) = pair(&mut world, &with_port(80));
        let protocol = if v4 { IpProtocol::ICMP } else { IpProtocol::ICMPV6 };
        let pings = world.hosts[0].stack.open_raw(protocol).unwrap();
        let datagrams = world.bound(0, "[::]:53");
        world.faults.loss = 1.0;
        let pinged = ping(&mut world, pings, to, 1);
        world.send_to(0, datagrams, &[7; 1400], &with_port(4000));
        world.millis(1);
        let datagram = world.trace.pop().unwrap().1[14..].to_vec();
        for about in [pinged, datagram] {
            let told = error(mac, to, own, too_big(v4, 68), &about[..500]);
            world.hand(0, &told, &FrameMeta::default());
        }
        assert_eq!((world.count(0, "icmp_path_mtus"), mtu(&world, to)), (1, least));
        world.trace.clear();
        // Whoever calls next knows no more of it.
        tcp(&mut world, 0, client).write(&[3; 1500]).unwrap();
        call(&mut world, 0, &with_port(81));
        world.millis(1);
        let longest = world.trace.iter().map(|(_, frame)| frame.len() - 14).max();
        assert_eq!(longest, Some(1500));
    }
}

#[test]
fn a_redirect_is_believed_of_the_router_in_use_about_a_connection_alone() {
    let (mut world, mac) = behind_routers();
    let to = "8.8.8.8";
    let redirect = |gateway: &str| {
        Transport::Icmpv4(Icmpv4Message::Redirect { code: 1, gateway: gateway.parse().unwrap() })
    };
    let next = |world: &World| world.hosts[0].stack.path(ip(to), None, None).unwrap().next_hop;
    let sent = |world: &mut World| {
        world.millis(1);
        world.trace.pop().unwrap().1[14..].to_vec()
    };
    let socket = world.hosts[0].stack.open_raw(IpProtocol::ICMP).unwrap();
    let pinged = ping(&mut world, socket, to, 1);
    let client = world.bound(0, "0.0.0.0:9");
    world.send_to(0, client, b"x", "8.8.8.8:7");
    let datagram = sent(&mut world);
    let connected = world.connected(0, "8.8.8.8:7");
    world.udp(0, connected).send(b"x", None).unwrap();
    let partners = sent(&mut world);
    call(&mut world, 0, "8.8.8.8:80");
    let segment = sent(&mut world);
    let good = ("10.0.0.254", "10.0.0.253");
    for (n, (about, (from, gateway))) in (1..).zip([
        (&pinged, good),
        (&datagram, good),
        (&partners, good),
        (&segment, ("10.0.0.253", "10.0.0.253")),
        (&segment, ("10.0.0.254", "9.9.9.9")),
        (&segment, ("10.0.0.254", "10.0.0.1")),
    ]) {
        let told = error(mac, from, "10.0.0.1", redirect(gateway), &about[..28]);
        world.hand(0, &told, &FrameMeta::default());
        assert_eq!((next(&world), world.count(0, "icmp_drop_redirect")), (ip("10.0.0.254"), n), "{from}");
    }
    let mut forged = segment.clone();
    forged[24] ^= 0x80;
    for (about, via) in [(&forged, "10.0.0.254"), (&segment, "10.0.0.253")] {
        let told = error(mac, good.0, "10.0.0.1", redirect(good.1), &about[..28]);
        world.hand(0, &told, &FrameMeta::default());
        assert_eq!(next(&world), ip(via));
    }
    // RFC 1122, 3.3.1.4: nobody is there.
    world.send_to(0, client, b"x", "8.8.8.8:7");
    world.secs(10);
    assert_eq!(next(&world), ip("10.0.0.254"));
}
