//! Neighbours of connections.

use super::*;
use bypath_stack::config::Config;
use bypath_stack::neighbor;

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
