//! Urgent octets through whole stacks: who is told, over links of every kind, and that streams go on as before.

use super::*;
use bypath_stack::config::Config;
use bypath_stack::event::Ready;
use bypath_stack::iface::Offload;
use bypath_stack::tcp::UrgentError;

/// What a host was told of a socket since it was last asked.
fn news(world: &mut World, host: usize, id: SocketId) -> Ready {
    let mut all = Ready::default();
    for event in std::mem::take(&mut world.hosts[host].events) {
        if let Event::Socket { id: other, ready } = event
            && other == id
        {
            all.readable |= ready.readable;
            all.urgent |= ready.urgent;
        }
    }
    all
}

fn read_all(world: &mut World, host: usize, id: SocketId) -> Vec<u8> {
    let (mut all, mut room) = (Vec::new(), [0; 10_000]);
    while let Ok(n @ 1..) = tcp(world, host, id).read(&mut room) {
        all.extend_from_slice(&room[..n]);
        if tcp(world, host, id).mark() == Some(0) {
            break;
        }
    }
    all
}

#[test]
fn urgent_octets_are_told_of_and_kept_apart_over_every_link() {
    let all: Vec<u8> = (0..50_000u32).map(|n| (n * 7 + n / 251) as u8).collect();
    for remote in ["10.0.0.2:80", "[fd00::2]:80"] {
        for (checksum, segmentation) in [(false, false), (true, false), (true, true)] {
            let offload = Offload { checksum, segmentation };
            let mut world = World::with(2, 1, &Config::default(), offload, 1500);
            let (client, accepted) = pair(&mut world, remote);
            let _before = news(&mut world, 1, accepted);
            assert_eq!(tcp(&mut world, 1, accepted).read_urgent(), Err(UrgentError::Nothing));
            assert_eq!(tcp(&mut world, 0, client).write_urgent(&all, false), Ok(50_000));
            assert_eq!(tcp(&mut world, 0, client).write(b"behind"), Ok(6));
            world.millis(1000);
            let told = news(&mut world, 1, accepted);
            assert!(told.readable && told.urgent, "{told:?}");
            assert!(world.hosts[1].stack.readiness(accepted).urgent);
            assert_eq!(tcp(&mut world, 1, accepted).mark(), Some(49_999));
            assert!(read_all(&mut world, 1, accepted) == all[..49_999], "{remote} {offload:?}");
            assert_eq!(tcp(&mut world, 1, accepted).peek_urgent(), Ok(all[49_999]));
            assert_eq!(tcp(&mut world, 1, accepted).read_urgent(), Ok(all[49_999]));
            assert!(!world.hosts[1].stack.readiness(accepted).urgent);
            assert_eq!(read_all(&mut world, 1, accepted), b"behind");
            assert_eq!(tcp(&mut world, 1, accepted).mark(), None);
            // As if nothing had been.
            exchange(&mut world, [(0, client), (1, accepted)], 500_000, 10);
            assert_eq!((world.drops(0), world.drops(1)), (vec![], vec![]));
        }
    }
}

#[test]
fn an_urgent_octet_alone_is_nothing_to_read() {
    let mut world = World::new(2, 1);
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    let _before = news(&mut world, 1, accepted);
    assert_eq!(tcp(&mut world, 0, client).write_urgent(b"!", false), Ok(1));
    world.millis(100);
    let told = news(&mut world, 1, accepted);
    assert!(told.urgent && !told.readable, "{told:?}");
    assert_eq!(tcp(&mut world, 1, accepted).unread(), 0);
    assert_eq!(tcp(&mut world, 1, accepted).peek(&mut [0; 9]), Err(ReadError::Empty));
    assert!(tcp(&mut world, 1, accepted).has_urgent());
    // Who reads in vain has passed it.
    assert_eq!(tcp(&mut world, 1, accepted).read(&mut [0; 9]), Err(ReadError::Empty));
    assert_eq!(tcp(&mut world, 1, accepted).read_urgent(), Err(UrgentError::Nothing));
    assert_eq!(tcp(&mut world, 0, client).write_urgent(b"?", false), Ok(1));
    tcp(&mut world, 0, client).finish().unwrap();
    world.millis(100);
    assert!(news(&mut world, 1, accepted).readable, "an end can be read");
    assert_eq!(tcp(&mut world, 1, accepted).read_urgent(), Ok(b'?'));
    assert_eq!(tcp(&mut world, 1, accepted).read(&mut [0; 9]), Ok(0));
}

#[test]
fn an_urgent_octet_that_came_before_a_connection_was_accepted_is_told_of() {
    let mut world = World::new(2, 1);
    let listener = listen(&mut world, 1, "10.0.0.2:80");
    let client = call(&mut world, 0, "10.0.0.2:80");
    world.millis(100);
    assert_eq!(tcp(&mut world, 0, client).write_urgent(b"!", false), Ok(1));
    world.millis(100);
    let accepted = tcp(&mut world, 1, listener).accept().unwrap();
    world.millis(1);
    assert!(news(&mut world, 1, accepted).urgent);
    assert_eq!(tcp(&mut world, 1, accepted).read_urgent(), Ok(b'!'));
}
