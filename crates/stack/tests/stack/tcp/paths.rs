//! Paths that are narrower than they seem, addresses and routes that go, and what the network says.

use super::strangers::{header, segment};
use super::*;
use bypath_stack::route::{Metrics, Route};
use bypath_stack::socket::SocketError;
use bypath_stack::tcp::Failure;
use bypath_wire::{
    EtherType, EthernetHeader, FrameMeta, Headers, Icmpv4Message, IpProtocol, Ipv4Header, MacAddr, Network,
    Transport,
};

/// An ICMP error to host 0 about the packet of a frame.
fn error(world: &World, message: Icmpv4Message, about: &[u8]) -> Vec<u8> {
    let header =
        Ipv4Header::new("10.0.0.254".parse().unwrap(), "10.0.0.1".parse().unwrap(), IpProtocol::ICMP);
    let link = EthernetHeader::new(world.hosts[0].mac, MacAddr([2, 0, 0, 0, 0, 0x99]), EtherType::IPV4);
    let mut octets = vec![0; 1600];
    let headers =
        Headers { link: Some(link), network: Network::V4(header), transport: Transport::Icmpv4(message) };
    let len = headers.emit(&mut octets, &about[..about.len().min(548)]).unwrap();
    octets.truncate(len);
    octets
}

/// The packets that host 0 sent, the last one first.
fn sent(world: &World) -> Vec<Vec<u8>> {
    let own = world.trace.iter().rev().filter(|(from, frame)| *from == 0 && frame[12..14] == [8, 0]);
    own.map(|(_, frame)| frame[14..].to_vec()).collect()
}

#[test]
fn a_narrow_path_is_learnt_and_what_was_lost_is_sent_again_in_shorter_segments() {
    let mut world = World::new(2, 1);
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    world.faults.loss = 1.0;
    world.trace.clear();
    tcp(&mut world, 0, client).write(&[3; 5000]).unwrap();
    world.millis(1);
    let about = sent(&world).pop().unwrap();
    assert_eq!(about.len(), 1500);
    world.faults.loss = 0.0;
    world.trace.clear();
    // Another one's number is not believed.
    let mut forged = about.clone();
    forged[24] ^= 0x80;
    let too_big = Icmpv4Message::Unreachable { code: 4, mtu: 1000 };
    let told = error(&world, too_big, &forged);
    world.hand(0, &told, &FrameMeta::default());
    world.millis(1);
    assert_eq!((sent(&world).len(), world.count(0, "icmp_drop_unrelated")), (0, 1));
    let told = error(&world, too_big, &about);
    world.hand(0, &told, &FrameMeta::default());
    world.millis(100);
    assert_eq!(read(&mut world, 1, accepted).0, vec![3; 5000]);
    assert!(sent(&world).iter().all(|packet| packet.len() <= 1000));
    assert_eq!(world.count(0, "icmp_path_mtus"), 1);
    // The next connection knows.
    let (next, accepted) = pair(&mut world, "10.0.0.2:81");
    world.trace.clear();
    exchange(&mut world, [(0, next), (1, accepted)], 50_000, 5);
    assert!(sent(&world).iter().all(|packet| packet.len() <= 1000));
}

#[test]
fn what_is_known_of_a_way_bounds_segments_and_the_first_window() {
    let mut world = World::new(2, 1);
    let to = "10.0.0.2/32".parse().unwrap();
    let metrics = |mtu, mss| Metrics { mtu: Some(mtu), mss: Some(mss), initial_window: Some(3) };
    world.hosts[0].stack.set_metrics(to, metrics(640, 500)).unwrap();
    world.trace.clear();
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    // MSS, the first option of the SYN, behind 40 octets.
    assert_eq!(sent(&world).pop().unwrap()[40..44], [2, 4, 1, 244]);
    world.trace.clear();
    world.faults.loss = 1.0;
    tcp(&mut world, 0, client).write(&[3; 10_000]).unwrap();
    world.millis(1);
    assert!(sent(&world).iter().all(|packet| packet.len() == 640));
    assert_eq!(tcp(&mut world, 0, client).statistics().unwrap().cwnd, 3 * 588);
    // It is told of more while octets are on their way: what follows is longer.
    world.faults.loss = 0.0;
    world.hosts[0].stack.set_metrics(to, metrics(1500, 1460)).unwrap();
    world.secs(2);
    assert_eq!(read(&mut world, 1, accepted).0, vec![3; 10_000]);
    assert_eq!(sent(&world).iter().map(Vec::len).max(), Some(1500));
    // What goes the other way is as short as was asked for.
    world.trace.clear();
    tcp(&mut world, 1, accepted).write(&[4; 10_000]).unwrap();
    world.secs(1);
    let all = world.trace.iter().filter(|(from, frame)| *from == 1 && frame[12..14] == [8, 0]);
    assert_eq!(all.map(|(_, frame)| frame.len() - 14).max(), Some(540));
}

#[test]
fn the_network_ends_connections_that_are_not_open_alone() {
    let unreachable = Icmpv4Message::Unreachable { code: 1, mtu: 0 };
    let mut world = World::new(2, 1);
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    world.faults.loss = 1.0;
    tcp(&mut world, 0, client).write(b"lost").unwrap();
    world.millis(1);
    let about = sent(&world).remove(0);
    let told = error(&world, unreachable, &about);
    world.hand(0, &told, &FrameMeta::default());
    world.faults.loss = 0.0;
    world.secs(2);
    assert_eq!(read(&mut world, 1, accepted).0, b"lost");
    assert_eq!(tcp(&mut world, 0, client).warning(), Some(SocketError::HostUnreachable));

    world.faults.loss = 1.0;
    let client = call(&mut world, 0, "10.0.0.2:90");
    world.millis(1);
    let about = sent(&world).remove(0);
    let told = error(&world, unreachable, &about);
    world.hand(0, &told, &FrameMeta::default());
    let failure = Failure::Network(SocketError::HostUnreachable);
    assert_eq!(tcp(&mut world, 0, client).take_error(), Some(failure));
}

#[test]
fn a_connection_outlives_its_address_and_its_route_for_a_while() {
    let mut world = World::new(2, 1);
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    let iface = world.hosts[0].iface;
    world.hosts[0].stack.remove_address(iface, "10.0.0.1".parse().unwrap());
    tcp(&mut world, 0, client).write(b"patience").unwrap();
    world.secs(1);
    assert_eq!(read(&mut world, 1, accepted).0, b"");
    assert!(world.count(0, "tcp_drop_unreachable") > 0);
    let now = world.now();
    world.hosts[0].stack.add_address(now, iface, "10.0.0.1/24".parse().unwrap()).unwrap();
    world.secs(5);
    assert_eq!(read(&mut world, 1, accepted).0, b"patience");
}

#[test]
fn a_neighbour_that_went_away_is_tried_until_it_is_given_up() {
    let mut world = World::new(2, 1);
    let (client, _) = pair(&mut world, "10.0.0.2:80");
    let iface = world.hosts[0].iface;
    world.faults.loss = 1.0;
    world.hosts[0].stack.remove_neighbor(iface, "10.0.0.2".parse().unwrap());
    tcp(&mut world, 0, client).write(b"anybody?").unwrap();
    world.secs(1200);
    assert_eq!(tcp(&mut world, 0, client).take_error(), Some(Failure::TimedOut));
}

#[test]
fn the_forwarder_is_whoever_is_called() {
    let mut world = World::new(2, 1);
    let iface = world.hosts[0].iface;
    for (all, via) in [("0.0.0.0/0", "10.0.0.2"), ("::/0", "fd00::2")] {
        let via = Some(via.parse().unwrap());
        let route = Route { prefix: all.parse().unwrap(), iface, via, metric: 0, source: None };
        world.hosts[0].stack.add_route(route).unwrap();
    }
    let server = listen(&mut world, 1, "[::]:9999");
    world.hosts[1].stack.set_tcp_forwarder(Some(server));
    for remote in ["8.8.8.8:443", "[2001:db8::8]:443"] {
        let client = call(&mut world, 0, remote);
        world.millis(100);
        let accepted = tcp(&mut world, 1, server).accept().unwrap();
        assert_eq!(tcp(&mut world, 1, accepted).local(), Some(remote.parse().unwrap()));
        assert_eq!(tcp(&mut world, 0, client).remote(), Some(remote.parse().unwrap()));
        exchange(&mut world, [(0, client), (1, accepted)], 100_000, 5);
    }
    // What is ours is not for it.
    let client = call(&mut world, 0, "10.0.0.2:443");
    world.millis(100);
    assert_eq!(tcp(&mut world, 0, client).take_error(), Some(Failure::Refused));
    world.hosts[1].stack.close(server);
    let client = call(&mut world, 0, "8.8.8.8:443");
    world.millis(100);
    assert_eq!(state(&mut world, 0, client), State::SynSent);
}

#[test]
fn segments_to_all_are_not_answered() {
    let mut world = World::new(2, 1);
    listen(&mut world, 0, "[::]:80");
    let syn = |to: &str, port: u16| {
        let to = std::net::SocketAddr::new(to.parse().unwrap(), port);
        let from = "10.0.0.2:5".parse().unwrap();
        segment(MacAddr::BROADCAST, from, to, header(bypath_wire::TcpFlags::SYN, 1, 0))
    };
    let before = world.count(0, "tcp_sent");
    for octets in [syn("10.0.0.255", 80), syn("10.0.0.255", 81), syn("255.255.255.255", 81)] {
        world.hand(0, &octets, &FrameMeta::default());
    }
    world.millis(10);
    assert_eq!((world.count(0, "tcp_sent") - before, world.count(0, "tcp_drop_address")), (0, 3));
}
