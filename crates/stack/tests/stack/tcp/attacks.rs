//! Floods: memory stays bounded, and who is honest is served.

use super::strangers::{STRANGER, answers, header, segment};
use super::*;
use bypath_stack::config::Config;
use bypath_stack::iface::Offload;
use bypath_wire::FrameMeta;
use bypath_wire::{TcpFlags, TcpOption, TcpOptions};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Calls from everywhere, which nobody goes on with.
fn flood(world: &mut World, calls: u32) {
    let (mac, iface) = (world.hosts[1].mac, world.hosts[1].iface);
    let via = "10.0.0.254".parse().unwrap();
    world.hosts[1].stack.set_neighbor(iface, via, STRANGER);
    let route = bypath_stack::route::Route {
        prefix: "0.0.0.0/0".parse().unwrap(),
        iface,
        via: Some(via),
        metric: 0,
        source: None,
    };
    let _there = world.hosts[1].stack.add_route(route);
    let to: SocketAddr = "10.0.0.2:80".parse().unwrap();
    for n in 0..calls {
        let ip = IpAddr::V4(Ipv4Addr::from_bits(0x5000_0000 + n));
        let from = SocketAddr::new(ip, 1000 + (n % 60_000) as u16);
        let frame = segment(mac, from, to, header(TcpFlags::SYN, n.wrapping_mul(77_777), 0));
        world.hand(1, &frame, &FrameMeta::default());
    }
}

#[test]
fn a_new_connection_is_served_in_the_middle_of_a_flood() {
    let mut world = World::new(2, 1);
    let server = listen(&mut world, 1, "0.0.0.0:80");
    flood(&mut world, 20_000);
    let usage = world.hosts[1].stack.usage();
    assert_eq!((usage.half_open, usage.connections), (128, 129));
    assert!(world.count(1, "tcp_cookies_sent") > 19_000);
    world.millis(100);
    flood(&mut world, 10_000);
    let client = call(&mut world, 0, "10.0.0.2:80");
    world.millis(100);
    let accepted = tcp(&mut world, 1, server).accept().expect("an honest one");
    assert_eq!(world.count(1, "tcp_cookies_returned"), 1);
    // What was agreed on came back with the cookie.
    let statistics = tcp(&mut world, 1, accepted).statistics().unwrap();
    assert!(statistics.sack && statistics.timestamps && statistics.mss == 1460, "{statistics:?}");
    assert_eq!(statistics.shifts, tcp(&mut world, 0, client).statistics().unwrap().shifts);
    exchange(&mut world, [(0, client), (1, accepted)], 500_000, 20);
    // Nobody went on with the others.
    world.secs(130);
    assert_eq!(world.hosts[1].stack.usage().half_open, 0);
}

#[test]
fn a_cookie_that_was_never_sent_opens_nothing() {
    let mut world = World::new(1, 1);
    let (mac, iface) = (world.hosts[0].mac, world.hosts[0].iface);
    world.hosts[0].stack.set_neighbor(iface, "10.0.0.9".parse().unwrap(), STRANGER);
    let server = listener(&mut world.hosts[0].stack, "10.0.0.1:80", 1);
    let to: SocketAddr = "10.0.0.1:80".parse().unwrap();
    let from = |port| SocketAddr::new("10.0.0.9".parse().unwrap(), port);
    for port in 1..4 {
        world.hand(0, &segment(mac, from(port), to, header(TcpFlags::SYN, 5, 0)), &FrameMeta::default());
    }
    assert_eq!(world.count(0, "tcp_cookies_sent"), 2);
    let cookie = answers(&mut world).last().unwrap().seq.0;
    for guess in 0..1000u32 {
        let ack = header(TcpFlags::ACK, 6, guess.wrapping_mul(4_000_037));
        world.hand(0, &segment(mac, from(9), to, ack), &FrameMeta::default());
    }
    assert!(tcp(&mut world, 0, server).accept().is_err());
    assert_eq!(world.count(0, "tcp_drop_cookie"), 1000);
    // The real one does, for whom it was made.
    let ack = header(TcpFlags::ACK, 6, cookie.wrapping_add(1));
    world.hand(0, &segment(mac, from(4), to, ack), &FrameMeta::default());
    assert!(tcp(&mut world, 0, server).accept().is_err());
    let last = [2, 3].iter().any(|port| {
        world.hand(0, &segment(mac, from(*port), to, ack), &FrameMeta::default());
        tcp(&mut world, 0, server).accept().is_ok()
    });
    assert!(last);
}

#[test]
fn who_comes_back_with_a_cookie_while_the_queue_is_full_is_not_refused() {
    for writes in [0, 1, 5] {
        let mut world = World::new(2, 1);
        let server = listener(&mut world.hosts[1].stack, "10.0.0.2:80", 1);
        // One that is half open for ever: the others get cookies, and two of them fill the queue.
        flood(&mut world, 1);
        let clients: Vec<_> = (0..5).map(|_| call(&mut world, 0, "10.0.0.2:80")).collect();
        world.millis(50);
        assert!(world.count(1, "tcp_drop_accept_full") >= 3, "{writes}");
        for (n, client) in clients.iter().enumerate() {
            assert_eq!(state(&mut world, 0, *client), State::Established, "{n}");
            for _ in 0..writes {
                assert_eq!(tcp(&mut world, 0, *client).write(&[n as u8; 1000]), Ok(1000));
                world.millis(5);
            }
        }
        let usage = world.hosts[1].stack.usage();
        assert!(usage.half_open <= 2, "{usage:?}");
        // Nobody was told that it was reset, and each is served when its turn comes.
        let mut served = Vec::new();
        for _ in 0..100 {
            served.extend(std::iter::from_fn(|| tcp(&mut world, 1, server).accept().ok()));
            world.millis(1000);
        }
        let open = |world: &mut World| {
            clients.iter().filter(|client| state(world, 0, **client) == State::Established).count()
        };
        assert_eq!(open(&mut world), 5, "{writes}");
        // Who says nothing is open here if there was room to remember it.
        assert!(served.len() == 5 || writes == 0 && served.len() >= 3, "{writes}: {}", served.len());
        for accepted in served {
            assert_eq!(read(&mut world, 1, accepted).0.len(), writes * 1000);
        }
    }
}

#[test]
fn octets_that_nobody_reads_are_bounded_over_all_connections() {
    let mut config = Config::default();
    config.tcp.octets = 1 << 20;
    let mut world = World::with(2, 1, &config, Offload::default(), 1500);
    let pairs: Vec<_> = (80..100).map(|port| pair(&mut world, &format!("10.0.0.2:{port}"))).collect();
    for _ in 0..50 {
        for (client, _) in &pairs {
            let _full = tcp(&mut world, 0, *client).write(&[7; 20_000]);
        }
        world.millis(20);
        for host in &world.hosts {
            let held = host.stack.usage().connection_octets;
            assert!(held <= (1 << 20) + (1 << 20), "{held}");
        }
    }
    // Once somebody reads, everything gets on again.
    for _ in 0..4000 {
        for (_, accepted) in &pairs {
            let _came = read(&mut world, 1, *accepted);
        }
        world.millis(10);
    }
    let left: usize = pairs
        .iter()
        .map(|(client, _)| tcp(&mut world, 0, *client).statistics().unwrap().unacknowledged)
        .sum();
    assert_eq!(left, 0);
}

#[test]
fn calls_with_any_options_end_nothing() {
    let mut world = World::new(1, 1);
    let (mac, iface) = (world.hosts[0].mac, world.hosts[0].iface);
    world.hosts[0].stack.set_neighbor(iface, "10.0.0.9".parse().unwrap(), STRANGER);
    listen(&mut world, 0, "10.0.0.1:80");
    let to: SocketAddr = "10.0.0.1:80".parse().unwrap();
    for (n, mss) in [0, 1, 12, 47, 48, 536, 65_535].into_iter().enumerate() {
        let mut syn = header(TcpFlags::SYN, 5, 0);
        syn.options = TcpOptions::new();
        assert!(syn.options.push(&TcpOption::MaxSegmentSize(mss)));
        assert!(syn.options.push(&TcpOption::WindowScale(255)));
        let from = SocketAddr::new("10.0.0.9".parse().unwrap(), 100 + n as u16);
        world.hand(0, &segment(mac, from, to, syn), &FrameMeta::default());
        let answer = answers(&mut world)[0];
        let ack = header(TcpFlags::ACK, 6, answer.seq.0.wrapping_add(1));
        world.hand(0, &segment(mac, from, to, ack), &FrameMeta::default());
    }
    assert_eq!(world.hosts[0].stack.usage().half_open, 0);
}
