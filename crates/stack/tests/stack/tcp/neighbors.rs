//! Neighbours of connections.

use super::*;
use bypath_stack::config::Config;
use bypath_stack::neighbor;
use std::time::Duration;

#[test]
fn who_acknowledges_need_not_be_asked_whether_he_is_there() {
    for (remote, own, counter) in
        [("10.0.0.2:80", "10.0.0.1", "arp_sent"), ("[fd00::2]:80", "fd00::1", "icmp_sent")]
    {
        let mut world = World::new(2, 1);
        let (mac, iface) = (world.hosts[0].mac, world.hosts[1].iface);
        // The other side only ever hears, and would have to ask.
        assert!(world.hosts[1].stack.set_neighbor(iface, own.parse().unwrap(), mac));
        let (client, accepted) = pair(&mut world, remote);
        let before = world.count(0, counter);
        for n in 0..100 {
            assert_eq!(tcp(&mut world, 0, client).write(b"x"), Ok(1));
            world.millis(2000);
            assert_eq!(read(&mut world, 1, accepted).0, b"x", "{n}");
        }
        assert_eq!(world.count(0, counter) - before, 0, "{counter}");
        // Who says nothing for long is asked.
        world.secs(60);
        assert_eq!(tcp(&mut world, 0, client).write(b"x"), Ok(1));
        world.secs(10);
        assert!(world.count(0, counter) - before <= 1);
    }
}

/// Hosts whose neighbours have eight places: 10.0.0.1 and 10.0.0.2.
fn crowded() -> World {
    let neighbors = neighbor::Config { most: 8, ..neighbor::Config::default() };
    World::with(2, 1, &Config { neighbors, ..Config::default() }, Default::default(), 1500)
}

#[test]
fn more_connections_than_neighbours_are_no_storm_and_nobody_is_told_what_is_not_so() {
    let mut world = crowded();
    listen(&mut world, 1, "0.0.0.0:80");
    let (iface, now) = (world.hosts[0].iface, world.now());
    let calls: Vec<_> = (100..110).map(|host| call(&mut world, 0, &format!("10.0.0.{host}:80"))).collect();
    let honest = call(&mut world, 0, "10.0.0.2:80");
    let mut room = vec![0; 2000];
    let stack = &mut world.hosts[0].stack;
    let frames = (0..1000).take_while(|_| stack.poll_transmit(now, iface, &mut room).is_some()).count();
    assert!((1..=8).contains(&frames), "{frames} questions at once");
    // Who was not asked for is not known to be away.
    world.millis(500);
    let waits = calls.iter().filter(|id| state(&mut world, 0, **id) == State::SynSent).count();
    assert_eq!((waits, state(&mut world, 0, honest)), (10, State::SynSent));
    // Places are free again once nobody has answered.
    world.secs(30);
    assert_eq!(state(&mut world, 0, honest), State::Established);
}

#[test]
fn who_asks_for_many_neighbours_takes_no_place_of_those_in_use() {
    let mut world = crowded();
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    let asker = world.bound(0, "0.0.0.0:9");
    let asked = world.count(0, "arp_sent");
    for n in 0..400u32 {
        for host in 0..10 {
            // Each twice: they are as much in use as any other.
            for _ in 0..2 {
                world.send_to(0, asker, b"?", &format!("10.0.0.{}:7", 50 + (n * 10 + host) % 200));
            }
        }
        assert_eq!(tcp(&mut world, 0, client).write(b"x"), Ok(1));
        world.millis(10);
        assert_eq!(read(&mut world, 1, accepted).0, b"x", "{n}");
    }
    // Four places for those who are asked for, three times each, in 4 s.
    let asked = world.count(0, "arp_sent") - asked;
    assert!(asked <= 30, "{asked} questions");
    assert_eq!(world.count(0, "neighbor_replaced"), 0);
}

/// Closes it; how many connections there are then, and how many of them were closed.
fn left(world: &mut World, id: SocketId) -> (usize, usize) {
    world.hosts[0].stack.close(id);
    assert_eq!(world.hosts[0].stack.contradiction(), None);
    let usage = world.hosts[0].stack.usage();
    (usage.connections, usage.orphans)
}

#[test]
fn what_is_closed_while_its_neighbour_is_asked_for_is_over_at_once() {
    let mut world = World::new(2, 1);
    listen(&mut world, 1, "0.0.0.0:80");
    let calls: Vec<_> = (0..20).map(|_| call(&mut world, 0, "10.0.0.9:80")).collect();
    // The first question is on its way; nobody answers.
    world.millis(10);
    for (n, id) in calls.iter().enumerate().rev().skip(1).step_by(2) {
        left(&mut world, *id);
        assert_eq!(state(&mut world, 0, calls[n + 1]), State::SynSent);
    }
    assert_eq!((left(&mut world, calls[19]).1, world.hosts[0].stack.usage().connections), (0, 9));
    // In the places of those come others, who wait for somebody else, or for the same one.
    let other = call(&mut world, 0, "10.0.0.2:80");
    let again = call(&mut world, 0, "10.0.0.9:80");
    world.millis(100);
    assert_eq!([other, again].map(|id| state(&mut world, 0, id)), [State::Established, State::SynSent]);
    let asked = world.count(0, "arp_sent");
    world.secs(1);
    assert_eq!(world.count(0, "arp_sent") - asked, 1, "it is asked for once in a second");
    for id in calls[..18].iter().step_by(2).chain([&again]) {
        assert_eq!(left(&mut world, *id).1, 0);
    }
    // Nobody waits, and who comes now is told all the same that nobody is there.
    let last = call(&mut world, 0, "10.0.0.9:80");
    world.secs(4);
    assert_eq!(state(&mut world, 0, last), State::Closed);
    assert_eq!(state(&mut world, 0, other), State::Established);
}

/// Six connections to a neighbour that is asked for again and does not answer; two may be closed and not over.
fn silent_neighbour() -> (World, Vec<SocketId>, SocketId) {
    let mut config = Config::default();
    config.tcp.orphans = 2;
    let mut world = World::with(2, 1, &config, Default::default(), 1500);
    let (iface, peer) = (world.hosts[0].iface, "10.0.0.2".parse().unwrap());
    let server = listen(&mut world, 1, "0.0.0.0:80");
    let all: Vec<_> = (0..6).map(|_| call(&mut world, 0, "10.0.0.2:80")).collect();
    world.millis(100);
    assert_eq!(std::iter::from_fn(|| tcp(&mut world, 1, server).accept().ok()).count(), 6);
    // It is asked for again, and does not answer.
    let theirs = world.hosts[1].iface;
    world.hosts[1].stack.remove_address(theirs, peer);
    world.hosts[0].stack.remove_neighbor(iface, peer);
    for id in &all {
        assert_eq!(tcp(&mut world, 0, *id).write(b"x"), Ok(1));
    }
    world.millis(10);
    (world, all, server)
}

#[test]
fn resets_beyond_the_bound_of_closed_connections_do_not_wait_for_a_neighbour() {
    let (mut world, all, _) = silent_neighbour();
    let found: Vec<_> = all.iter().map(|id| left(&mut world, *id)).collect();
    assert_eq!(found, [(6, 1), (6, 2), (5, 2), (4, 2), (3, 2), (2, 2)]);
    assert_eq!(world.count(0, "tcp_orphans_reset"), 4);
}

#[test]
fn neither_do_those_that_the_program_asks_for() {
    // They wait already, or do not yet.
    for waits in [true, false] {
        let (mut world, all, _) = silent_neighbour();
        if !waits {
            world.secs(4);
        }
        let left: Vec<_> = all
            .iter()
            .map(|id| {
                let options = tcp(&mut world, 0, *id).options();
                let at_once = bypath_stack::tcp::Options { linger: Some(Duration::ZERO), ..options };
                tcp(&mut world, 0, *id).set_options(at_once);
                left(&mut world, *id)
            })
            .collect();
        world.millis(1);
        let usage = world.hosts[0].stack.usage();
        assert!(usage.orphans <= 2 && usage.connections <= 2, "{waits}: {left:?}, {usage:?}");
    }
}

#[test]
fn nor_those_of_callers_that_nobody_accepted() {
    let mut world = World::new(2, 1);
    let server = listen(&mut world, 1, "0.0.0.0:80");
    for _ in 0..6 {
        call(&mut world, 0, "10.0.0.2:80");
    }
    world.millis(100);
    let (iface, peer) = (world.hosts[1].iface, "10.0.0.1".parse().unwrap());
    let theirs = world.hosts[0].iface;
    world.hosts[0].stack.remove_address(theirs, peer);
    world.hosts[1].stack.remove_neighbor(iface, peer);
    assert_eq!(world.hosts[1].stack.usage().connections, 7, "the listener is one");
    world.hosts[1].stack.close(server);
    world.millis(1);
    assert_eq!(world.hosts[1].stack.usage().connections, 0);
    assert_eq!(world.hosts[1].stack.contradiction(), None);
}
