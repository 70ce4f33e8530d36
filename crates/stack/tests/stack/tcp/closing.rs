//! Connections that end: finished, left, reset, and what is left of them.

use super::*;
use bypath_stack::config::Config;
use bypath_stack::iface::Offload;
use bypath_stack::tcp::{Failure, Options};
use std::time::Duration;

#[test]
fn what_was_written_arrives_before_the_end() {
    let mut world = World::new(2, 1);
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    let octets: Vec<u8> = (0..120_000).map(octet).collect();
    assert_eq!(tcp(&mut world, 0, client).write(&octets), Ok(octets.len()));
    world.hosts[0].stack.close(client);
    assert!(world.hosts[0].stack.tcp(client).is_none());
    world.secs(2);
    assert_eq!(read(&mut world, 1, accepted), (octets, true));
    assert_eq!(state(&mut world, 1, accepted), State::CloseWait);
    let usage = world.hosts[0].stack.usage();
    assert_eq!((usage.connections, usage.orphans, usage.time_wait), (1, 1, 0));
    world.hosts[1].stack.close(accepted);
    world.secs(1);
    // Who was first waits; the other one has nothing left.
    let usage = world.hosts[0].stack.usage();
    assert_eq!((usage.connections, usage.orphans, usage.time_wait), (0, 0, 1));
    let usage = world.hosts[1].stack.usage();
    assert_eq!((usage.connections, usage.orphans, usage.time_wait), (0, 0, 0));
    world.secs(61);
    assert_eq!(world.hosts[0].stack.usage().time_wait, 0);
    for host in &world.hosts {
        assert_eq!(host.stack.usage().connection_octets, 0);
    }
}

#[test]
fn one_direction_may_go_on_after_the_other_has_finished() {
    let mut world = World::new(2, 1);
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    tcp(&mut world, 0, client).write(b"question").unwrap();
    tcp(&mut world, 0, client).finish().unwrap();
    world.millis(100);
    assert!(told(&mut world, 1, accepted).0);
    assert_eq!(read(&mut world, 1, accepted), (b"question".to_vec(), true));
    assert_eq!(tcp(&mut world, 0, client).write(b"more"), Err(WriteError::Finished));
    tcp(&mut world, 1, accepted).write(&[5; 100_000]).unwrap();
    tcp(&mut world, 1, accepted).finish().unwrap();
    world.secs(1);
    assert_eq!(read(&mut world, 0, client), (vec![5; 100_000], true));
    assert_eq!(state(&mut world, 0, client), State::TimeWait);
    // The socket is still there; then it is forgotten but for its ends.
    world.hosts[0].stack.close(client);
    world.millis(1);
    assert_eq!(world.hosts[0].stack.usage().time_wait, 1);
}

#[test]
fn a_connection_that_is_left_with_octets_unread_is_reset() {
    let mut world = World::new(2, 1);
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    tcp(&mut world, 0, client).write(b"unread").unwrap();
    world.millis(100);
    world.hosts[1].stack.close(accepted);
    world.millis(100);
    assert_eq!(tcp(&mut world, 0, client).read(&mut [0]), Err(ReadError::Failed(Failure::Reset)));
    // Told once; from now on it is an end.
    assert_eq!(tcp(&mut world, 0, client).read(&mut [0]), Ok(0));
    assert_eq!(tcp(&mut world, 0, client).write(b"x"), Err(WriteError::Finished));
    assert_eq!(world.hosts[1].stack.usage().connections, 0);
}

#[test]
fn who_does_not_linger_resets() {
    let mut world = World::new(2, 1);
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    let at_once = Options { linger: Some(Duration::ZERO), ..Options::default() };
    tcp(&mut world, 0, client).set_options(at_once);
    world.hosts[0].stack.close(client);
    world.millis(10);
    assert_eq!(tcp(&mut world, 1, accepted).take_error(), Some(Failure::Reset));
    let usage = world.hosts[0].stack.usage();
    assert_eq!((usage.connections, usage.time_wait), (0, 0));
    // For a while: octets that nobody reads.
    let (client, accepted) = pair(&mut world, "10.0.0.2:81");
    tcp(&mut world, 0, client).set_options(Options { linger: Some(Duration::from_secs(5)), ..at_once });
    while tcp(&mut world, 0, client).write(&[1; 100_000]).is_ok() {
        world.millis(1);
    }
    world.hosts[0].stack.close(client);
    world.secs(4);
    assert_eq!(state(&mut world, 1, accepted), State::Established);
    world.secs(2);
    assert_eq!(state(&mut world, 1, accepted), State::Closed);
    assert_eq!(world.hosts[0].stack.usage().connections, 0);
}

#[test]
fn who_was_left_in_the_middle_of_finishing_does_not_wait_for_ever() {
    let mut world = World::new(2, 1);
    let (client, _never_closed) = pair(&mut world, "10.0.0.2:80");
    world.hosts[0].stack.close(client);
    world.secs(50);
    assert_eq!(world.hosts[0].stack.usage().orphans, 1);
    world.secs(15);
    assert_eq!(world.hosts[0].stack.usage().connections, 0);
}

#[test]
fn too_many_that_were_left_are_reset() {
    let mut config = Config::default();
    config.tcp.orphans = 3;
    let mut world = World::with(2, 1, &config, Offload::default(), 1500);
    let pairs: Vec<_> = (80..86).map(|port| pair(&mut world, &format!("10.0.0.2:{port}"))).collect();
    for (client, _) in &pairs {
        world.hosts[0].stack.close(*client);
    }
    world.millis(100);
    assert_eq!(world.hosts[0].stack.usage().orphans, 3);
    assert_eq!(world.count(0, "tcp_orphans_reset"), 3);
    let reset = pairs.iter().filter(|(_, id)| state(&mut world, 1, *id) == State::Closed).count();
    assert_eq!(reset, 3);
}

/// A connection from one port to another one, finished by whoever called.
fn over(world: &mut World, from: &str) {
    let server = listen(world, 1, "0.0.0.0:80");
    let now = world.now();
    let stack = &mut world.hosts[0].stack;
    let client = stack.open_tcp().unwrap();
    let reuse = Options { reuse_address: true, ..Options::default() };
    stack.tcp(client).unwrap().set_options(reuse);
    stack.tcp(client).unwrap().bind(from.parse().unwrap()).unwrap();
    stack.tcp(client).unwrap().connect(now, "10.0.0.2:80".parse().unwrap()).unwrap();
    world.millis(100);
    let accepted = tcp(world, 1, server).accept().unwrap();
    world.hosts[0].stack.close(client);
    world.millis(100);
    world.hosts[1].stack.close(accepted);
    world.hosts[1].stack.close(server);
    world.millis(100);
}

#[test]
fn the_same_ends_may_be_used_again_after_a_second() {
    let mut world = World::new(2, 1);
    over(&mut world, "10.0.0.1:5");
    assert_eq!(world.hosts[0].stack.usage().time_wait, 1);
    let now = world.now();
    let stack = &mut world.hosts[0].stack;
    let id = stack.open_tcp().unwrap();
    let reuse = Options { reuse_address: true, ..Options::default() };
    stack.tcp(id).unwrap().set_options(reuse);
    stack.tcp(id).unwrap().bind("10.0.0.1:5".parse().unwrap()).unwrap();
    let remote = "10.0.0.2:80".parse().unwrap();
    assert!(stack.tcp(id).unwrap().connect(now, remote).is_err());
    world.hosts[0].stack.close(id);
    world.secs(1);
    over(&mut world, "10.0.0.1:5");
    assert_eq!(world.hosts[0].stack.usage().time_wait, 1);
    assert_eq!(world.count(0, "tcp_time_wait_reused"), 1);
}

#[test]
fn a_new_call_ends_time_wait() {
    let mut world = World::new(2, 1);
    let (client, accepted) = {
        let server = listen(&mut world, 1, "0.0.0.0:80");
        let now = world.now();
        let stack = &mut world.hosts[0].stack;
        let client = stack.open_tcp().unwrap();
        stack.tcp(client).unwrap().bind("10.0.0.1:5".parse().unwrap()).unwrap();
        stack.tcp(client).unwrap().connect(now, "10.0.0.2:80".parse().unwrap()).unwrap();
        world.millis(100);
        let accepted = tcp(&mut world, 1, server).accept().unwrap();
        (client, accepted)
    };
    // The side that listens finishes first.
    world.hosts[1].stack.close(accepted);
    world.millis(100);
    world.hosts[0].stack.close(client);
    world.millis(100);
    assert_eq!(world.hosts[1].stack.usage().time_wait, 1);
    let now = world.now();
    let stack = &mut world.hosts[0].stack;
    let client = stack.open_tcp().unwrap();
    stack.tcp(client).unwrap().bind("10.0.0.1:5".parse().unwrap()).unwrap();
    stack.tcp(client).unwrap().connect(now, "10.0.0.2:80".parse().unwrap()).unwrap();
    world.millis(100);
    assert_eq!(state(&mut world, 0, client), State::Established);
    assert_eq!((world.count(1, "tcp_time_wait_reused"), world.hosts[1].stack.usage().time_wait), (1, 0));
}

#[test]
fn time_wait_is_bounded() {
    let mut config = Config::default();
    config.tcp.time_wait = 4;
    let mut world = World::with(2, 1, &config, Offload::default(), 1500);
    for port in 5..15 {
        over(&mut world, &format!("10.0.0.1:{port}"));
    }
    assert_eq!(world.hosts[0].stack.usage().time_wait, 4);
    assert_eq!(world.count(0, "tcp_time_wait_replaced"), 6);
}

#[test]
fn lingering_begins_when_the_socket_is_closed_however_long_nothing_happened_before() {
    let mut world = World::new(2, 1);
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    tcp(&mut world, 0, client).finish().unwrap();
    world.secs(3600);
    assert_eq!(state(&mut world, 0, client), State::FinWait2);
    tcp(&mut world, 0, client).set_options(Options { linger: None, ..Options::default() });
    world.hosts[0].stack.close(client);
    world.secs(50);
    assert_eq!(world.hosts[0].stack.usage().orphans, 1);
    tcp(&mut world, 1, accepted).finish().unwrap();
    world.secs(1);
    let usage = world.hosts[0].stack.usage();
    assert_eq!((usage.orphans, usage.time_wait), (0, 1));
}
