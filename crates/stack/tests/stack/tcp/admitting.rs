//! Listeners that decide about a call before anything answers it, and what sockets are said to be.

use super::{call, exchange, listen, read, state, tcp, told};
use crate::world::World;
use bypath_stack::event::Ready;
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::error::{AcceptError, WriteError};
use bypath_stack::tcp::{Failure, Options, State};

/// A listener of host 1 that admits whom it likes, for as many calls.
fn admits(world: &mut World, backlog: usize) -> SocketId {
    let id = world.hosts[1].stack.open_tcp().unwrap();
    let mut socket = tcp(world, 1, id);
    socket.set_options(Options { admits: true, ..Options::default() });
    socket.bind("[::]:80".parse().unwrap()).unwrap();
    socket.listen(backlog).unwrap();
    id
}

#[test]
fn a_call_is_answered_when_it_was_admitted_and_not_before() {
    for remote in ["10.0.0.2:80", "[fd00::2]:80"] {
        let mut world = World::new(2, 1);
        let listener = admits(&mut world, 5);
        let client = call(&mut world, 0, remote);
        world.millis(500);
        let sent = world.count(1, "tcp_sent");
        assert!(told(&mut world, 1, listener).0);
        let accepted = tcp(&mut world, 1, listener).accept().unwrap();
        assert_eq!(tcp(&mut world, 1, listener).accept(), Err(AcceptError::Empty));
        assert_eq!(tcp(&mut world, 1, accepted).write(b"too early"), Err(WriteError::Full));
        // Whoever calls calls again, which changes nothing.
        world.secs(10);
        assert_eq!(world.count(1, "tcp_sent"), sent);
        assert_eq!(state(&mut world, 0, client), State::SynSent);
        assert!(!told(&mut world, 1, accepted).1);
        let now = world.now();
        tcp(&mut world, 1, accepted).admit(now);
        world.millis(100);
        assert_eq!(state(&mut world, 0, client), State::Established);
        assert!(told(&mut world, 1, accepted).1);
        exchange(&mut world, [(0, client), (1, accepted)], 100_000, 10);
        // Once is enough.
        let now = world.now();
        tcp(&mut world, 1, accepted).admit(now);
        exchange(&mut world, [(0, client), (1, accepted)], 1000, 10);
    }
}

#[test]
fn a_call_that_is_not_admitted_is_refused_as_if_nobody_listened() {
    let mut world = World::new(2, 1);
    let listener = admits(&mut world, 5);
    for way in 0..3 {
        let client = call(&mut world, 0, "10.0.0.2:80");
        world.millis(100);
        let accepted = tcp(&mut world, 1, listener).accept().unwrap();
        match way {
            0 => tcp(&mut world, 1, accepted).abort(),
            _ => world.hosts[1].stack.close(accepted),
        }
        world.millis(100);
        assert_eq!(tcp(&mut world, 0, client).take_error(), Some(Failure::Refused), "{way}");
        world.hosts[0].stack.close(client);
        if way == 0 {
            let now = world.now();
            tcp(&mut world, 1, accepted).admit(now);
            assert_eq!(state(&mut world, 1, accepted), State::Closed);
            world.hosts[1].stack.close(accepted);
        }
    }
    // Those that nobody has accepted are refused with their listener.
    let clients: Vec<_> = (0..3).map(|_| call(&mut world, 0, "10.0.0.2:80")).collect();
    world.millis(100);
    world.hosts[1].stack.close(listener);
    world.millis(100);
    for client in clients {
        assert_eq!(tcp(&mut world, 0, client).take_error(), Some(Failure::Refused));
        world.hosts[0].stack.close(client);
    }
    world.secs(1);
    assert_eq!((world.hosts[0].stack.usage().connections, world.hosts[1].stack.usage().connections), (0, 0));
}

#[test]
fn calls_that_wait_for_an_answer_are_bounded_and_may_be_given_up() {
    let mut world = World::new(2, 1);
    let listener = admits(&mut world, 3);
    let clients: Vec<_> = (0..20).map(|_| call(&mut world, 0, "10.0.0.2:80")).collect();
    world.millis(500);
    // One more than the backlog, and no cookie for the others: they ask again.
    assert_eq!(world.hosts[1].stack.usage().connections, 5);
    assert_eq!((world.count(1, "tcp_cookies_sent"), world.count(1, "tcp_sent")), (0, 0));
    assert!(world.count(1, "tcp_drop_accept_full") >= 16);
    let mut admitted = Vec::new();
    for _ in 0..60 {
        while let Ok(accepted) = tcp(&mut world, 1, listener).accept() {
            let now = world.now();
            tcp(&mut world, 1, accepted).admit(now);
            admitted.push(accepted);
        }
        world.millis(500);
    }
    assert_eq!(admitted.len(), 20);
    for client in clients {
        assert_eq!(state(&mut world, 0, client), State::Established);
    }
    // Whoever has called has gone without a word: the answer is refused, which is told.
    let client = call(&mut world, 0, "10.0.0.2:80");
    world.millis(100);
    let accepted = tcp(&mut world, 1, listener).accept().unwrap();
    world.hosts[0].stack.close(client);
    let now = world.now();
    tcp(&mut world, 1, accepted).admit(now);
    world.millis(100);
    assert!(told(&mut world, 1, accepted).2);
    assert_eq!(tcp(&mut world, 1, accepted).take_error(), Some(Failure::Refused));
}

#[test]
fn what_is_said_of_a_socket_is_what_its_calls_do() {
    let is = |world: &mut World, host: usize, id| -> (bool, bool, bool) {
        let Ready { readable, writable, error, .. } = world.hosts[host].stack.readiness(id);
        (readable, writable, error)
    };
    let mut world = World::new(2, 1);
    let listener = listen(&mut world, 1, "10.0.0.2:80");
    assert_eq!(is(&mut world, 1, listener), (false, false, false));
    let client = call(&mut world, 0, "10.0.0.2:80");
    assert_eq!(is(&mut world, 0, client), (false, false, false));
    world.millis(100);
    assert_eq!(is(&mut world, 1, listener), (true, false, false));
    let accepted = tcp(&mut world, 1, listener).accept().unwrap();
    assert_eq!(is(&mut world, 1, listener), (false, false, false));
    assert_eq!(is(&mut world, 0, client), (false, true, false));
    tcp(&mut world, 0, client).write(b"hello").unwrap();
    world.millis(100);
    assert_eq!(is(&mut world, 1, accepted), (true, true, false));
    read(&mut world, 1, accepted);
    assert_eq!(is(&mut world, 1, accepted), (false, true, false));
    // Full, by a write that just fits: it is told of room all the same.
    let most = tcp(&mut world, 0, client).settings().send_octets;
    let mut written = 0;
    while written < most {
        match tcp(&mut world, 0, client).write(&vec![7; most - written]) {
            Ok(n) => written += n,
            Err(_) => break,
        }
    }
    assert_eq!(is(&mut world, 0, client), (false, false, false));
    told(&mut world, 0, client);
    let mut room = vec![0; 1 << 20];
    for _ in 0..200 {
        while tcp(&mut world, 1, accepted).read(&mut room).is_ok() {}
        world.millis(10);
    }
    assert!(told(&mut world, 0, client).1);
    assert_eq!(is(&mut world, 0, client), (false, true, false));
    // Finished: the one side writes no more, the other reads an end.
    tcp(&mut world, 0, client).finish().unwrap();
    world.millis(100);
    assert_eq!(
        (is(&mut world, 0, client), is(&mut world, 1, accepted)),
        ((false, true, false), (true, true, false))
    );
    tcp(&mut world, 1, accepted).abort();
    world.millis(100);
    assert_eq!(is(&mut world, 0, client), (true, true, true));
    assert_eq!(tcp(&mut world, 0, client).take_error(), Some(Failure::Reset));
    assert_eq!(is(&mut world, 0, client), (true, true, false));
    world.hosts[0].stack.close(client);
    assert_eq!(is(&mut world, 0, client), (false, false, false));

    // Datagrams.
    let server = world.hosts[1].stack.open_udp().unwrap();
    world.hosts[1].stack.udp(server).unwrap().bind("10.0.0.2:9".parse().unwrap()).unwrap();
    assert_eq!(is(&mut world, 1, server), (false, true, false));
    let asks = world.hosts[0].stack.open_udp().unwrap();
    let to = Some("10.0.0.2:9".parse().unwrap());
    world.hosts[0].stack.udp(asks).unwrap().send(b"x", to).unwrap();
    world.millis(100);
    assert_eq!(is(&mut world, 1, server), (true, true, false));
    world.hosts[1].stack.udp(server).unwrap().receive(&mut [0; 9]).unwrap();
    assert_eq!(is(&mut world, 1, server), (false, true, false));
    world.hosts[1].stack.close(server);
    world.hosts[0].stack.udp(asks).unwrap().connect("10.0.0.2:9".parse().unwrap()).unwrap();
    world.hosts[0].stack.udp(asks).unwrap().send(b"x", None).unwrap();
    world.millis(100);
    assert_eq!(is(&mut world, 0, asks), (true, true, true));
    assert!(world.hosts[0].stack.udp(asks).unwrap().take_error().is_some());
    assert_eq!(is(&mut world, 0, asks), (false, true, false));
    while world.hosts[0].stack.udp(asks).unwrap().send(&[0; 1000], to).is_ok() {}
    assert_eq!(is(&mut world, 0, asks), (false, false, false));
    told(&mut world, 0, asks);
    world.millis(1000);
    assert!(is(&mut world, 0, asks).1);
}
