//! Octets: both ways, over links that lose, double and delay, cut by the link or not, to ourselves, and fairly.

use super::*;
use crate::world::Faults;
use bypath_stack::config::Config;
use bypath_stack::iface::Offload;
use bypath_stack::tcp::Settings;

const ALL: Offload = Offload { checksum: true, segmentation: true };
const CHECKSUM: Offload = Offload { checksum: true, segmentation: false };

#[test]
fn octets_go_both_ways_at_once() {
    for remote in ["10.0.0.2:80", "[fd00::2]:80"] {
        for offload in [Offload::default(), CHECKSUM, ALL] {
            let mut world = World::with(2, 1, &Config::default(), offload, 1500);
            let (client, accepted) = pair(&mut world, remote);
            exchange(&mut world, [(0, client), (1, accepted)], 2_000_000, 10);
            assert_eq!((world.drops(0), world.drops(1)), (vec![], vec![]));
            let statistics = tcp(&mut world, 0, client).statistics().unwrap();
            assert_eq!((statistics.octets_received, statistics.octets_acknowledged), (2_000_000, 2_000_000));
            assert_eq!(statistics.octets_again, 0);
        }
    }
}

#[test]
fn octets_can_be_read_where_they_lie() {
    let mut world = World::new(2, 1);
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    let mut read = Vec::new();
    let mut take = |world: &mut World, most: usize, takes: usize| {
        tcp(world, 1, accepted).read_with(most, |octets| {
            assert!(octets.len() <= most);
            read.extend_from_slice(&octets[..takes.min(octets.len())]);
            takes
        })
    };
    assert_eq!(take(&mut world, 10, 10), Err(ReadError::Empty));
    assert_eq!(tcp(&mut world, 0, client).write(b"octets of a stream"), Ok(18));
    world.millis(10);
    // What is not taken stays; more than there was cannot be taken.
    assert_eq!(take(&mut world, 7, 0), Ok(0));
    assert_eq!(take(&mut world, 7, 3), Ok(3));
    assert_eq!(take(&mut world, 4, 100), Ok(4));
    assert_eq!(take(&mut world, 100, 100), Ok(11));
    assert_eq!(take(&mut world, 100, 100), Err(ReadError::Empty));
    // Of a buffer that goes round, one piece at a time; the window opens as octets are taken.
    let all: Vec<u8> = (0..400_000u64).map(|n| ((n * n) >> 7) as u8).collect();
    let (mut written, mut taken) = (0, 0);
    while taken < all.len() {
        written += tcp(&mut world, 0, client).write(&all[written..]).unwrap_or(0);
        world.millis(50);
        let n = take(&mut world, 30_001, 29_999);
        taken += n.expect("octets");
    }
    tcp(&mut world, 0, client).finish().unwrap();
    world.millis(50);
    assert_eq!(take(&mut world, 100, 100), Ok(0));
    assert_eq!(read, [b"octets of a stream", &all[..]].concat());
}

#[test]
fn octets_survive_what_links_do() {
    for (seed, remote) in [(3, "10.0.0.2:80"), (4, "[fd00::2]:80"), (5, "10.0.0.2:80")] {
        let mut world = World::new(2, seed);
        let (client, accepted) = pair(&mut world, remote);
        world.faults = Faults { loss: 0.03, duplication: 0.03, jitter: 2_000_000 };
        exchange(&mut world, [(0, client), (1, accepted)], 300_000, 300);
        world.hosts[0].stack.close(client);
        world.hosts[1].stack.close(accepted);
        world.secs(200);
        for host in &world.hosts {
            let usage = host.stack.usage();
            assert_eq!((usage.connections, usage.time_wait, usage.connection_octets), (0, 0, 0));
        }
    }
}

#[test]
fn a_link_that_cuts_gets_up_to_64_kib_at_once() {
    let mut world = World::with(2, 1, &Config::default(), ALL, 1500);
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    exchange(&mut world, [(0, client), (1, accepted)], 3_000_000, 10);
    let longest = world.trace.iter().map(|(_, frame)| frame.len()).max().unwrap();
    assert!((30_000..=65_553).contains(&longest), "{longest}");
}

#[test]
fn who_we_are_ourselves_is_called_without_a_link() {
    for remote in ["127.0.0.1:80", "[::1]:80", "10.0.0.1:80", "[fe80::1]:80"] {
        let mut world = World::new(1, 1);
        let server = listen(&mut world, 0, "[::]:80");
        let client = call(&mut world, 0, remote);
        world.millis(10);
        let accepted = tcp(&mut world, 0, server).accept().unwrap();
        exchange(&mut world, [(0, client), (0, accepted)], 1_000_000, 10);
        assert_eq!(world.trace.len(), 0, "{remote}");
        // A segment is as long as packets to ourselves are.
        assert!(tcp(&mut world, 0, client).statistics().unwrap().mss > 65_000);
        world.hosts[0].stack.close(client);
        world.hosts[0].stack.close(accepted);
        world.secs(61);
        assert_eq!(world.hosts[0].stack.usage().connections, 1);
    }
}

#[test]
fn connections_and_datagrams_take_turns() {
    let mut world = World::new(2, 1);
    let pairs: Vec<_> = (80..84).map(|port| pair(&mut world, &format!("10.0.0.2:{port}"))).collect();
    // Windows are open.
    for (client, accepted) in &pairs {
        exchange(&mut world, [(0, *client), (1, *accepted)], 200_000, 10);
    }
    let udp = world.bound(0, "0.0.0.0:9");
    for (client, _) in &pairs {
        tcp(&mut world, 0, *client).write(&[1; 40_000]).unwrap();
    }
    for _ in 0..20 {
        world.send_to(0, udp, &[2; 1000], "10.0.0.2:9");
    }
    let (now, iface) = (world.now(), world.hosts[0].iface);
    let mut room = vec![0; 2000];
    let mut said = Vec::new();
    // A turn of a connection is 16 segments, one after each datagram while there are some.
    for _ in 0..20 + 4 * 16 {
        let (len, _) = world.hosts[0].stack.poll_transmit(now, iface, &mut room).unwrap();
        // The source port, behind 34 octets.
        said.push((room[23], u16::from_be_bytes([room[34], room[35]])));
        assert!(len > 1000);
    }
    assert!(said[..40].chunks(2).all(|two| two.iter().any(|(protocol, _)| *protocol == 17)), "{said:?}");
    for (client, _) in &pairs {
        let port = tcp(&mut world, 0, *client).local().unwrap().port();
        assert_eq!(said.iter().filter(|one| **one == (6, port)).count(), 16, "{said:?}");
    }
}

#[test]
fn what_can_be_read_can_be_looked_at_before() {
    let mut world = World::new(2, 1);
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    tcp(&mut world, 0, client).write(b"look").unwrap();
    world.millis(10);
    let mut room = [0; 10];
    for _ in 0..2 {
        assert_eq!(tcp(&mut world, 1, accepted).peek(&mut room), Ok(4));
    }
    assert_eq!((&room[..4], tcp(&mut world, 1, accepted).unread()), (&b"look"[..], 4));
    assert_eq!(tcp(&mut world, 1, accepted).read(&mut room), Ok(4));
    assert_eq!(tcp(&mut world, 1, accepted).peek(&mut room), Err(ReadError::Empty));
}

#[test]
fn who_found_no_room_is_told_when_half_of_it_is_free() {
    let mut world = World::new(2, 1);
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    let now = world.now();
    let settings = Settings { send_octets: 50_000, ..tcp(&mut world, 0, client).settings() };
    tcp(&mut world, 0, client).set_settings(now, settings);
    assert_eq!(tcp(&mut world, 0, client).write(&[1; 60_000]), Ok(50_000));
    assert_eq!(tcp(&mut world, 0, client).write(&[1; 1]), Err(WriteError::Full));
    told(&mut world, 0, client);
    world.millis(100);
    assert_eq!(told(&mut world, 0, client), (false, true, false));
    assert_eq!(read(&mut world, 1, accepted).0.len(), 50_000);
}

#[test]
fn short_writes_are_collected_unless_they_are_not_to_be() {
    for (nodelay, frames) in [(false, 2), (true, 10)] {
        let mut world = World::new(2, 1);
        let (client, _) = pair(&mut world, "10.0.0.2:80");
        let now = world.now();
        let settings = Settings { nodelay, ..tcp(&mut world, 0, client).settings() };
        tcp(&mut world, 0, client).set_settings(now, settings);
        world.trace.clear();
        for _ in 0..10 {
            tcp(&mut world, 0, client).write(b"x").unwrap();
            world.run(std::time::Duration::from_nanos(1));
        }
        world.millis(10);
        let sent = world.trace.iter().filter(|(from, frame)| *from == 0 && frame.len() > 66).count();
        assert_eq!(sent, frames);
    }
}
