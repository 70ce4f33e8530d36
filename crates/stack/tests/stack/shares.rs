//! Users of one stack: what one of them takes of what all have together leaves something for the others.

use crate::allocations;
use crate::tcp::{listen, state};
use crate::world::World;
use bypath_stack::config::Config;
use bypath_stack::group::NoGroup;
use bypath_stack::neighbor;
use bypath_stack::socket::{Options, SocketId};
use bypath_stack::tcp::{Share, State};
use bypath_wire::IpProtocol;
use std::net::{IpAddr, Ipv4Addr};

const HOG: u32 = 65_001;
const HONEST: u32 = 65_002;

fn config() -> Config {
    Config { groups: 16, transmit_octets: 100_000, waiting_octets: 100_000, ..Config::default() }
}

/// A user's socket of host 0, which may have much to send.
fn of(world: &mut World, user: u32, local: &str) -> SocketId {
    let socket = world.hosts[0].stack.open_udp().unwrap();
    let mut udp = world.udp(0, socket);
    udp.set_user(user);
    udp.set_send_octets(1 << 20);
    udp.bind(local.parse().unwrap()).unwrap();
    socket
}

fn sends(world: &mut World, socket: SocketId, octets: &[u8], to: &str) {
    sends_of(world, 0, socket, octets, to);
}

fn sends_of(world: &mut World, host: usize, socket: SocketId, octets: &[u8], to: &str) {
    let _ = world.udp(host, socket).send(octets, Some(to.parse().unwrap()));
}

#[test]
fn a_link_that_is_slow_sends_what_others_have_beside_one_who_floods_it() {
    let mut world = World::with(2, 1, &config(), Default::default(), 1500);
    let server = world.bound(1, "0.0.0.0:7");
    let (hog, honest) = (of(&mut world, HOG, "0.0.0.0:8"), of(&mut world, HONEST, "0.0.0.0:9"));
    // Known, so that nothing waits.
    sends(&mut world, honest, b"first", "10.0.0.2:7");
    world.millis(10);
    for turn in 0..10 {
        for _ in 0..500 {
            sends(&mut world, hog, &[1; 1000], "10.0.0.2:7");
        }
        let queued = world.hosts[0].stack.usage().transmit_octets;
        assert!((49_000..=51_064).contains(&queued), "{queued}");
        for _ in 0..20 {
            sends(&mut world, honest, &[2; 1000], "10.0.0.2:7");
        }
        world.millis(10);
        let got = world.received(1, server);
        let honests = got.iter().filter(|(_, octets)| octets[0] == 2).count();
        assert_eq!((honests, got.len() > 60), (20, true), "{turn}");
    }
    // Who is nobody in particular may have all of it.
    let all = world.bound(0, "0.0.0.0:10");
    world.udp(0, all).set_send_octets(1 << 20);
    for _ in 0..500 {
        sends(&mut world, all, &[1; 1000], "10.0.0.2:7");
    }
    assert!(world.hosts[0].stack.usage().transmit_octets > 98_000);
    world.millis(10);
    assert_eq!(world.hosts[0].stack.usage().transmit_octets, 0);
}

#[test]
fn what_waits_for_neighbours_leaves_room_for_what_others_send() {
    let config = Config { transmit_octets: 4 << 20, ..config() };
    let mut world = World::with(2, 1, &config, Default::default(), 1500);
    let server = world.bound(1, "0.0.0.0:7");
    let (hog, honest) = (of(&mut world, HOG, "0.0.0.0:8"), of(&mut world, HONEST, "0.0.0.0:9"));
    for host in 100..180 {
        sends(&mut world, hog, &[1; 1400], &format!("10.0.0.{host}:7"));
    }
    world.millis(0);
    let waits = world.hosts[0].stack.usage().waiting_octets;
    assert!((49_000..=51_400).contains(&waits), "{waits}");
    for _ in 0..15 {
        sends(&mut world, honest, &[2; 1400], "10.0.0.2:7");
    }
    world.millis(10);
    assert_eq!(world.received(1, server).len(), 15);
    // All that he had is given back, and he has his share again.
    world.secs(10);
    assert_eq!(world.hosts[0].stack.usage().waiting_octets, 0);
    sends(&mut world, hog, b"again", "10.0.0.2:7");
    world.millis(10);
    assert_eq!(world.received(1, server).len(), 1);
}

#[test]
fn what_waits_for_neighbours_holds_no_more_memory_than_counts_whatever_was_refused() {
    let mut world = World::with(1, 1, &Config::default(), Default::default(), 1500);
    let hog = of(&mut world, HOG, "0.0.0.0:8");
    let long = [1; 65_000];
    // As much as he may have, so that more is refused.
    for _ in 0..40 {
        sends(&mut world, hog, &long, "10.0.0.3:7");
        world.millis(0);
    }
    let before = world.hosts[0].stack.usage().waiting_octets as i64;
    let held = allocations::held();
    for host in 100..120 {
        for _ in 0..64 {
            sends(&mut world, hog, &long, "10.0.0.3:7");
            sends(&mut world, hog, b"", &format!("10.0.0.{host}:7"));
            world.millis(0);
        }
    }
    let (counted, more) =
        (world.hosts[0].stack.usage().waiting_octets as i64 - before, allocations::held() - held);
    // What the link's queue keeps, and neighbours themselves, is not what waits.
    assert!(more < counted + (600 << 10), "{more} octets of memory, {counted} counted");
    assert!(counted > 0 && world.hosts[0].stack.usage().waiting_octets <= 2 << 20, "some of them wait");
    world.secs(10);
    assert_eq!(world.hosts[0].stack.usage().waiting_octets, 0);
    assert!(allocations::held() < held, "it goes back");
}

#[test]
fn errors_that_nobody_asks_for_count_with_what_their_user_has_not_received() {
    const OCTETS: usize = 200_000;
    let mut world = World::with(1, 1, &Config::default(), Default::default(), 1500);
    world.hosts[0].stack.set_share(Share { datagram_octets: OCTETS, ..Share::ALL });
    let wants = |world: &mut World, user: u32, port: u16| {
        let id = of(world, user, &format!("0.0.0.0:{port}"));
        world.udp(0, id).set_options(Options { all_errors: true, ..Options::default() });
        id
    };
    let hogs: Vec<_> = (0..40).map(|n| wants(&mut world, HOG, 1000 + n)).collect();
    let honest = wants(&mut world, HONEST, 2000);
    let fails = |world: &mut World, n: usize, id: SocketId| {
        // Nobody is there, and each of them is told so.
        (0..20).for_each(|_| sends(world, id, &[1; 600], &format!("10.0.0.{}:7", 100 + n)));
    };
    hogs.iter().enumerate().for_each(|(n, id)| fails(&mut world, n, *id));
    fails(&mut world, hogs.len(), honest);
    world.secs(5);
    let held = |world: &mut World| hogs.iter().map(|id| world.udp(0, *id).report_octets()).sum::<usize>();
    assert!((OCTETS - 2000..=OCTETS).contains(&held(&mut world)), "{}", held(&mut world));
    assert!(world.count(0, "udp_drop_reports") > 600);
    let reports =
        |world: &mut World, id: SocketId| std::iter::from_fn(|| world.udp(0, id).take_report()).count();
    assert_eq!(reports(&mut world, honest), 20, "another user has as much for himself");
    assert_eq!(world.hosts[0].stack.contradiction(), None);
    // They are asked for, not wanted any more, and closed.
    assert!(hogs[..10].iter().map(|id| reports(&mut world, *id)).sum::<usize>() > 0);
    hogs[10..20].iter().for_each(|id| world.udp(0, *id).set_options(Options::default()));
    assert_eq!(world.hosts[0].stack.contradiction(), None);
    hogs[20..].iter().for_each(|id| world.hosts[0].stack.close(*id));
    assert_eq!((world.hosts[0].stack.datagram_octets(), world.hosts[0].stack.contradiction()), (0, None));
    // Of what one socket may have to be read they are a part.
    world.udp(0, hogs[0]).set_receive_octets(2500);
    fails(&mut world, 0, hogs[0]);
    world.secs(5);
    assert_eq!(reports(&mut world, hogs[0]), 2);
}

#[test]
fn who_asks_for_neighbours_without_number_leaves_others_some_to_ask_for() {
    let neighbors = neighbor::Config { most: 32, ..neighbor::Config::default() };
    let mut world = World::with(2, 1, &Config { neighbors, ..config() }, Default::default(), 1500);
    let server = world.bound(1, "0.0.0.0:7");
    let (hog, honest) = (of(&mut world, HOG, "0.0.0.0:8"), of(&mut world, HONEST, "0.0.0.0:9"));
    for host in 100..200 {
        sends(&mut world, hog, b"?", &format!("10.0.0.{host}:7"));
    }
    world.millis(0);
    let iface = world.hosts[0].iface;
    assert_eq!(world.hosts[0].stack.neighbors(iface), 8, "half of those that may be asked for at once");
    sends(&mut world, honest, b"!", "10.0.0.2:7");
    world.millis(10);
    assert_eq!(world.received(1, server).len(), 1);
    // He has them again when nobody has answered.
    world.secs(10);
    sends(&mut world, hog, b"?", "10.0.0.2:7");
    world.millis(10);
    assert_eq!(world.received(1, server).len(), 1);
}

#[test]
fn who_connects_to_who_is_not_there_leaves_others_neighbours_to_ask_for() {
    let neighbors = neighbor::Config { most: 32, ..neighbor::Config::default() };
    let mut world = World::with(2, 1, &Config { neighbors, ..config() }, Default::default(), 1500);
    listen(&mut world, 1, "0.0.0.0:80");
    let connects = |world: &mut World, user: u32, to: String| {
        let now = world.now();
        let stack = &mut world.hosts[0].stack;
        let id = stack.open_tcp().unwrap();
        let mut tcp = stack.tcp(id).unwrap();
        tcp.set_user(user);
        tcp.connect(now, to.parse().unwrap()).unwrap();
        id
    };
    let hogs: Vec<_> =
        (100..200).map(|host| connects(&mut world, HOG, format!("10.0.0.{host}:80"))).collect();
    world.millis(0);
    let iface = world.hosts[0].iface;
    assert_eq!(world.hosts[0].stack.neighbors(iface), 8, "half of those that may be asked for at once");
    let honest = connects(&mut world, HONEST, "10.0.0.2:80".to_owned());
    world.millis(10);
    assert_eq!(state(&mut world, 0, honest), State::Established);
    // He hears of those whom nobody answers for, and of nobody else.
    world.secs(4);
    let gone =
        hogs.iter().filter(|id| world.hosts[0].stack.tcp(**id).unwrap().state() == Some(State::Closed));
    assert_eq!(gone.count(), 8);
    let again = connects(&mut world, HOG, "10.0.0.2:80".to_owned());
    world.millis(10);
    assert_eq!(state(&mut world, 0, again), State::Established);
}

#[test]
fn a_user_is_in_no_more_groups_than_he_leaves_and_hears_of_others() {
    let mut world = World::with(1, 1, &config(), Default::default(), 1500);
    let (iface, group) = (world.hosts[0].iface, |n: u8| IpAddr::V4(Ipv4Addr::new(239, 0, 0, n)));
    // One is of its own addresses.
    let mut hogs: Vec<_> = (0..4).map(|n| of(&mut world, HOG, &format!("0.0.0.0:{}", 100 + n))).collect();
    let honest = of(&mut world, HONEST, "0.0.0.0:9");
    let joins = |world: &mut World, socket, n| {
        let now = world.now();
        world.udp(0, socket).join(now, iface, group(n))
    };
    let full = Err(NoGroup::Full { most: 16 });
    let joined = (0..16).filter(|n| joins(&mut world, hogs[usize::from(*n) % 4], *n).is_ok()).count();
    assert_eq!(joined, 8);
    // As many sockets as he likes may be in those.
    assert_eq!(joins(&mut world, hogs[1], 0), Ok(()));
    // What he is in another one may be in, too; and what he leaves is that one's.
    let of_other = (0..4).chain(100..110).filter(|n| joins(&mut world, honest, *n).is_ok()).count();
    assert_eq!(of_other, 6);
    // Who leaves one and joins another has not more of them meanwhile.
    let another = (20..100).filter(|n| {
        let left = (0..8).find(|n| world.udp(0, hogs[usize::from(*n) % 4]).leave(iface, group(*n)));
        assert!(left.is_some() || *n > 27);
        joins(&mut world, hogs[0], *n).is_ok()
    });
    assert_eq!(another.count(), 0);
    world.secs(10);
    for socket in hogs.drain(..) {
        world.hosts[0].stack.close(socket);
    }
    world.secs(10);
    let of_other = (120..140).filter(|n| joins(&mut world, honest, *n).is_ok()).count();
    assert_eq!(of_other, 2, "eight of fifteen");
    assert_eq!(joins(&mut world, honest, 140), full);
}

/// A socket of this user that hears what is sent to the group, at a port of many.
fn hears(world: &mut World, user: u32) -> SocketId {
    let (iface, now) = (world.hosts[0].iface, world.now());
    let id = world.hosts[0].stack.open_udp().unwrap();
    let mut udp = world.udp(0, id);
    udp.set_options(Options { reuse_address: true, ..Options::default() });
    udp.set_user(user);
    udp.bind("0.0.0.0:7".parse().unwrap()).unwrap();
    udp.join(now, iface, "239.0.0.1".parse().unwrap()).unwrap();
    id
}

#[test]
fn what_a_user_does_not_receive_has_a_bound_for_all_of_his_sockets() {
    const OCTETS: usize = 1 << 20;
    let mut world = World::with(2, 1, &Config::default(), Default::default(), 1500);
    world.hosts[0].stack.set_share(Share { datagram_octets: OCTETS, ..Share::ALL });
    let hogs: Vec<_> = (0..100).map(|_| hears(&mut world, HOG)).collect();
    let honest = hears(&mut world, HONEST);
    let from = world.bound(1, "0.0.0.0:9");
    let sends = |world: &mut World, octets: &[u8]| {
        sends_of(world, 1, from, octets, "239.0.0.1:7");
        world.millis(1);
    };
    (0..200).for_each(|_| sends(&mut world, &[1; 1000]));
    let waits = |world: &mut World| hogs.iter().map(|id| world.udp(0, *id).queued().0).sum::<usize>();
    // Memory for what is still to come is part of it; it is taken twice as much at a time.
    assert!((OCTETS / 2..OCTETS).contains(&waits(&mut world)), "{}", waits(&mut world));
    assert_eq!(world.received(0, honest).len(), 200, "another user has as much for himself");
    // One that has nothing hears a small one yet, and long ones when the others have less.
    let late = hears(&mut world, HOG);
    for len in [2049, 2048, 2048] {
        sends(&mut world, &vec![2; len]);
    }
    let small = world.received(0, late);
    assert_eq!((small.len(), small[0].1.len()), (1, 2048));
    hogs[..50].iter().for_each(|id| drop(world.received(0, *id)));
    hogs[50..].iter().for_each(|id| world.hosts[0].stack.close(*id));
    for _ in 0..10 {
        sends(&mut world, &[3; 9000]);
        assert!(hogs[..50].iter().all(|id| world.received(0, *id).len() == 1));
    }
    assert_eq!(world.hosts[0].stack.contradiction(), None);
}

#[test]
fn sockets_of_a_user_get_so_many_copies_at_one_time_and_others_get_theirs() {
    let mut world = World::with(1, 1, &Config::default(), Default::default(), 1500);
    let hogs: Vec<_> = (0..100).map(|_| hears(&mut world, HOG)).collect();
    let honest = hears(&mut world, HONEST);
    let from = of(&mut world, HOG, "0.0.0.0:9");
    for _ in 0..2 {
        (0..200).for_each(|_| sends(&mut world, from, b"x", "239.0.0.1:7"));
        let now = world.now();
        world.hosts[0].stack.handle_timeout(now);
        let copies: usize = hogs.iter().map(|id| world.received(0, *id).len()).sum();
        assert_eq!((copies, world.received(0, honest).len()), (4096, 200));
        world.millis(1);
    }
}

#[test]
fn whoever_has_many_ports_leaves_others_some() {
    let mut world =
        World::with(1, 1, &Config { ephemeral: 50_000..=50_099, ..config() }, Default::default(), 1500);
    let stack = &mut world.hosts[0].stack;
    let mut many = |user: u32, to: &str| {
        let sockets = std::iter::from_fn(|| {
            let id = stack.open_udp().unwrap();
            let mut udp = stack.udp(id).unwrap();
            udp.set_user(user);
            let bound = match to {
                "" => udp.connect("10.0.0.2:7".parse().unwrap()).is_ok(),
                local => udp.bind(local.parse().unwrap()).is_ok(),
            };
            bound.then_some(id)
        });
        let sockets: Vec<_> = sockets.take(200).collect();
        (sockets.len(), sockets)
    };
    let (count, hogs) = many(HOG, "0.0.0.0:0");
    assert_eq!((count, many(HONEST, "").0, many(HOG, "").0), (50, 25, 0));
    // By another address, too, and whether they were chosen or not.
    assert_eq!(many(HOG, "127.0.0.1:0").0, 0);
    // A disconnect and a close give them back.
    for id in &hogs[..10] {
        let mut udp = stack.udp(*id).unwrap();
        assert!(udp.connect("10.0.0.2:7".parse().unwrap()).is_ok());
        udp.disconnect().unwrap();
    }
    hogs.iter().for_each(|id| stack.close(*id));
    let id = stack.open_udp().unwrap();
    let mut udp = stack.udp(id).unwrap();
    udp.set_user(HOG);
    for _ in 0..200 {
        assert!(udp.connect("10.0.0.2:7".parse().unwrap()).is_ok());
        udp.disconnect().unwrap();
    }
}

#[test]
fn one_socket_that_is_several_users_has_a_share_for_each() {
    let mut world = World::with(2, 1, &config(), Default::default(), 1500);
    let first = of(&mut world, HONEST, "0.0.0.0:9");
    sends(&mut world, first, b"first", "10.0.0.2:7");
    world.millis(10);
    let pings = world.hosts[0].stack.open_raw(IpProtocol::ICMP).unwrap();
    let before = world.count(1, "ipv4_received");
    world.raw(0, pings).set_octets(1 << 20, 1 << 20);
    for (user, count) in [(HOG, 500), (HONEST, 20)] {
        let mut raw = world.raw(0, pings);
        raw.set_user(user);
        for _ in 0..count {
            raw.send(&[0; 1000], "10.0.0.2".parse().unwrap(), None).unwrap();
        }
    }
    world.millis(10);
    // 100,000 octets: half of them were one's.
    let came = world.count(1, "ipv4_received") - before;
    assert_eq!(came, 47 + 20);
}
