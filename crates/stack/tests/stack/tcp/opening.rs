//! Connections that begin: who is called, and who is not.

use super::*;
use bypath_stack::config::Config;
use bypath_stack::iface::Offload;
use bypath_stack::socket::{BindError, SocketError};
use bypath_stack::tcp::error::{AcceptError, ConnectError, ListenError};
use bypath_stack::tcp::{Failure, Options};
use bypath_stack::udp::demux::{Crowded, InUse, SHARERS};
use std::net::SocketAddr;

#[test]
fn a_connection_is_asked_for_accepted_and_told_of() {
    for (remote, own) in [("10.0.0.2:80", "10.0.0.1"), ("[fd00::2]:80", "fd00::1")] {
        let mut world = World::new(2, 1);
        let server = listen(&mut world, 1, "[::]:80");
        assert_eq!(tcp(&mut world, 1, server).accept(), Err(AcceptError::Empty));
        let client = call(&mut world, 0, remote);
        assert_eq!(state(&mut world, 0, client), State::SynSent);
        assert_eq!(tcp(&mut world, 0, client).write(b"early"), Err(WriteError::Full));
        world.millis(10);
        assert_eq!(told(&mut world, 0, client), (false, true, false));
        assert_eq!(told(&mut world, 1, server), (true, false, false));
        let accepted = tcp(&mut world, 1, server).accept().unwrap();
        let local = tcp(&mut world, 0, client).local().unwrap();
        assert_eq!(local.ip(), own.parse::<std::net::IpAddr>().unwrap());
        assert_eq!(tcp(&mut world, 1, accepted).remote(), Some(local));
        assert_eq!(tcp(&mut world, 1, accepted).local(), Some(remote.parse().unwrap()));
        assert_eq!(tcp(&mut world, 0, client).write(b"question"), Ok(8));
        world.millis(10);
        assert_eq!(told(&mut world, 1, accepted), (true, false, false));
        assert_eq!(read(&mut world, 1, accepted), (b"question".to_vec(), false));
        assert_eq!(world.drops(0), []);
        assert_eq!(world.drops(1), []);
    }
}

#[test]
fn a_port_that_nobody_listens_on_refuses() {
    for remote in ["10.0.0.2:81", "[fd00::2]:81", "10.0.0.2:0", "[fd00::2]:0"] {
        let mut world = World::new(2, 1);
        let client = call(&mut world, 0, remote);
        world.millis(10);
        assert_eq!(told(&mut world, 0, client), (true, true, true));
        assert_eq!(tcp(&mut world, 0, client).take_error(), Some(Failure::Refused));
        assert_eq!(world.count(1, "tcp_resets_sent"), 1);
    }
}

#[test]
fn who_is_not_there_is_not_reached() {
    let mut world = World::new(1, 1);
    let client = call(&mut world, 0, "10.0.0.9:80");
    world.millis(2900);
    assert_eq!(state(&mut world, 0, client), State::SynSent);
    world.millis(200);
    assert_eq!(told(&mut world, 0, client), (true, true, true));
    let failure = Failure::Network(SocketError::HostUnreachable);
    assert_eq!(tcp(&mut world, 0, client).take_error(), Some(failure));
    world.hosts[0].stack.close(client);
    assert_eq!(world.hosts[0].stack.usage().connections, 0);
}

#[test]
fn what_a_connection_says_waits_for_its_neighbour() {
    let mut world = World::new(2, 1);
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    let iface = world.hosts[0].iface;
    world.hosts[0].stack.remove_neighbor(iface, "10.0.0.2".parse().unwrap());
    tcp(&mut world, 0, client).write(b"later").unwrap();
    world.millis(1);
    // One question and one answer later it goes, and nothing had to be sent again.
    assert_eq!(read(&mut world, 1, accepted).0, b"later");
    assert_eq!(tcp(&mut world, 0, client).statistics().unwrap().octets_again, 0);
}

#[test]
fn who_listens_to_the_address_goes_before_who_listens_to_all() {
    let mut world = World::new(2, 1);
    let both = Options { reuse_address: true, ..Options::default() };
    let mut open = |local: &str, options: Options| {
        let stack = &mut world.hosts[1].stack;
        let id = stack.open_tcp().unwrap();
        let mut socket = stack.tcp(id).unwrap();
        socket.set_options(options);
        socket.bind(local.parse().unwrap()).map(|_| {
            socket.listen(5).unwrap();
            id
        })
    };
    let one = open("10.0.0.2:80", both).unwrap();
    assert!(matches!(open("10.0.0.2:80", both), Err(BindError::InUse(_))));
    assert!(matches!(open("[::]:80", Options::default()), Err(BindError::InUse(_))));
    let v6 = open("[::]:80", Options { only_v6: true, ..Options::default() }).unwrap();
    for (remote, server, other) in [("10.0.0.2:80", one, v6), ("[fd00::2]:80", v6, one)] {
        call(&mut world, 0, remote);
        world.millis(10);
        assert!(tcp(&mut world, 1, server).accept().is_ok());
        assert_eq!(tcp(&mut world, 1, other).accept(), Err(AcceptError::Empty));
    }
}

#[test]
fn sockets_that_share_a_port_share_who_calls() {
    let mut world = World::new(2, 1);
    let shared = Options { reuse_port: true, ..Options::default() };
    let servers: Vec<_> = (0..4)
        .map(|_| {
            let stack = &mut world.hosts[1].stack;
            let id = stack.open_tcp().unwrap();
            let mut socket = stack.tcp(id).unwrap();
            socket.set_options(shared);
            socket.bind("0.0.0.0:80".parse().unwrap()).unwrap();
            socket.listen(200).unwrap();
            id
        })
        .collect();
    for _ in 0..100 {
        call(&mut world, 0, "10.0.0.2:80");
    }
    world.millis(100);
    let counts =
        servers.into_iter().map(|id| std::iter::from_fn(|| tcp(&mut world, 1, id).accept().ok()).count());
    let counts: Vec<_> = counts.collect();
    assert_eq!(counts.iter().sum::<usize>(), 100);
    assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
}

#[test]
fn a_user_shares_a_port_with_no_more_listeners_than_he_leaves() {
    let mut world = World::new(1, 1);
    let stack = &mut world.hosts[0].stack;
    let mut listens = |user, local: &str| {
        let id = stack.open_tcp().unwrap();
        let mut socket = stack.tcp(id).unwrap();
        socket.set_user(user);
        socket.set_options(Options { reuse_port: true, ..Options::default() });
        if socket.bind(local.parse().unwrap()) == Err(InUse.into()) {
            return false;
        }
        let crowded = Err(ListenError::Bind(Crowded.into()));
        let listens = socket.listen(1);
        assert!(listens.is_ok() || listens == crowded, "{listens:?}");
        listens.is_ok()
    };
    let mut count = |user, local| (0..SHARERS + 10).filter(|_| listens(user, local)).count();
    assert_eq!(count(7, "0.0.0.0:80"), SHARERS / 2);
    assert_eq!([count(8, "0.0.0.0:80"), count(8, "0.0.0.0:81")], [0, SHARERS / 2], "each has his own");
}

/// As Linux has it: SO_REUSEADDR lets both be bound, SO_REUSEPORT shares among the sockets of one user.
#[test]
fn users_who_share_an_address_do_not_share_its_callers() {
    let mut world = World::new(1, 1);
    let stack = &mut world.hosts[0].stack;
    let ids = [7, 8, 7].map(|user| {
        let id = stack.open_tcp().unwrap();
        let mut socket = stack.tcp(id).unwrap();
        socket.set_user(user);
        socket.set_options(Options { reuse_address: true, reuse_port: true, ..Options::default() });
        socket.bind("0.0.0.0:80".parse().unwrap()).unwrap();
        id
    });
    let listens = ids.map(|id| stack.tcp(id).unwrap().listen(1));
    assert_eq!(listens, [Ok(()), Err(ListenError::Bind(InUse.into())), Ok(())]);
}

/// Its call could meet that of who calls the listener (RFC 9293, 3.5: simultaneous open).
#[test]
fn nobody_calls_from_where_another_user_listens_and_nobody_listens_where_another_user_calls_from() {
    let mut world = World::new(1, 1);
    let bound = |world: &mut World, user, local: &str| {
        let id = world.hosts[0].stack.open_tcp().unwrap();
        let mut socket = tcp(world, 0, id);
        socket.set_user(user);
        socket.set_options(Options { reuse_address: true, ..Options::default() });
        socket.bind(local.parse().unwrap()).unwrap();
        id
    };
    let calls = |world: &mut World, id, to: &str| {
        tcp(world, 0, id).connect(bypath_stack::time::Instant::ZERO, to.parse().unwrap())
    };
    let listens = |world: &mut World, id| tcp(world, 0, id).listen(1);
    let in_use = || Err(ListenError::Bind(InUse.into()));
    let group = "224.0.0.1:80";
    let ids = [(7, "10.0.0.1:80"), (8, "10.0.0.1:80"), (8, group), (7, "10.0.0.1:80"), (8, "127.0.0.1:80")];
    let [listener, same, many, own, elsewhere] = ids.map(|(user, local)| bound(&mut world, user, local));
    assert_eq!(listens(&mut world, listener), Ok(()));
    assert_eq!(calls(&mut world, same, "10.0.0.2:9"), Err(ConnectError::InUse));
    assert_eq!(calls(&mut world, many, "10.0.0.2:9"), Err(ConnectError::InUse));
    assert_eq!(calls(&mut world, own, "10.0.0.2:9"), Ok(()));
    assert_eq!(calls(&mut world, elsewhere, "127.0.0.1:9"), Ok(()));
    for many in ["10.0.0.1:81", "10.0.0.255:82", "224.0.0.1:83"] {
        let port = many.rsplit(':').next().unwrap();
        let ids = [(8, many.to_owned()), (7, format!("10.0.0.1:{port}")), (8, format!("10.0.0.1:{port}"))];
        let [caller, listener, own] = ids.map(|(user, local)| bound(&mut world, user, &local));
        assert_eq!(calls(&mut world, caller, "10.0.0.2:9"), Ok(()));
        assert_eq!(listens(&mut world, listener), in_use(), "{many}");
        assert_eq!(listens(&mut world, own), Ok(()), "{many}");
    }
}

#[test]
fn sockets_are_used_in_their_order() {
    let mut world = World::new(2, 1);
    let now = world.now();
    let stack = &mut world.hosts[0].stack;
    let id = stack.open_tcp().unwrap();
    let remote = "10.0.0.2:80".parse().unwrap();
    assert_eq!(stack.tcp(id).unwrap().read(&mut [0]), Err(ReadError::NotConnected));
    assert_eq!(stack.tcp(id).unwrap().write(b"?"), Err(WriteError::NotConnected));
    assert_eq!(stack.tcp(id).unwrap().accept(), Err(AcceptError::NotListening));
    assert_eq!(stack.tcp(id).unwrap().bind("10.0.0.9:5".parse().unwrap()), Err(BindError::NotOurs));
    for nobody in ["10.0.0.255:5", "224.0.0.1:5", "[ff02::1]:5"] {
        let asked = stack.tcp(id).unwrap().connect(now, nobody.parse().unwrap());
        assert!(asked.is_err(), "{nobody}");
    }
    // As Linux has it; nobody gets there by it.
    for everybodys in ["10.0.0.255:6", "255.255.255.255:7", "224.0.0.1:8"] {
        let other = stack.open_tcp().unwrap();
        let everybodys: SocketAddr = everybodys.parse().unwrap();
        assert_eq!(stack.tcp(other).unwrap().bind(everybodys), Ok(everybodys));
        stack.tcp(other).unwrap().connect(now, remote).unwrap();
        assert_eq!(
            stack.tcp(other).unwrap().local(),
            Some(SocketAddr::new([10, 0, 0, 1].into(), everybodys.port()))
        );
        stack.close(other);
    }
    stack.tcp(id).unwrap().bind("10.0.0.1:5".parse().unwrap()).unwrap();
    assert_eq!(stack.tcp(id).unwrap().connect(now, "[fd00::2]:80".parse().unwrap()), Err(ConnectError::Kind));
    stack.tcp(id).unwrap().connect(now, remote).unwrap();
    assert_eq!(stack.tcp(id).unwrap().connect(now, remote), Err(ConnectError::Connected));
    assert_eq!(stack.tcp(id).unwrap().listen(1), Err(ListenError::Connected));
    // Another one from the same port to the same place cannot be.
    let other = stack.open_tcp().unwrap();
    let taken = stack.tcp(other).unwrap().bind("10.0.0.1:5".parse().unwrap());
    assert!(matches!(taken, Err(BindError::InUse(_))));
    assert!(stack.udp(id).is_none());
    stack.close(id);
    assert!(stack.tcp(id).is_none());
}

#[test]
fn ports_of_connections_are_not_to_be_guessed_and_run_out() {
    let config = Config { ephemeral: 5000..=5009, ..Config::default() };
    let mut world = World::with(2, 1, &config, Offload::default(), 1500);
    listen(&mut world, 1, "0.0.0.0:80");
    let mut ports: Vec<_> = (0..10)
        .map(|_| {
            let id = call(&mut world, 0, "10.0.0.2:80");
            tcp(&mut world, 0, id).local().unwrap().port()
        })
        .collect();
    assert!(!ports.is_sorted());
    ports.sort_unstable();
    assert_eq!(ports, (5000..=5009).collect::<Vec<_>>());
    let now = world.now();
    let stack = &mut world.hosts[0].stack;
    let one_more = stack.open_tcp().unwrap();
    let full = stack.tcp(one_more).unwrap().connect(now, "10.0.0.2:80".parse().unwrap());
    assert_eq!(full, Err(ConnectError::InUse));
    // To another place from the same ports.
    assert_eq!(stack.tcp(one_more).unwrap().connect(now, "10.0.0.2:81".parse().unwrap()), Ok(()));
}

#[test]
fn a_queue_that_is_full_makes_callers_wait() {
    let mut world = World::new(2, 1);
    let server = listener(&mut world.hosts[1].stack, "0.0.0.0:80", 2);
    let clients: Vec<_> = (0..6)
        .map(|_| {
            let id = call(&mut world, 0, "10.0.0.2:80");
            world.millis(1);
            id
        })
        .collect();
    world.millis(100);
    // As Linux has it: one more than was asked for.
    assert_eq!(world.hosts[1].stack.usage().connections, 1 + 3);
    let accepted: Vec<_> = std::iter::from_fn(|| tcp(&mut world, 1, server).accept().ok()).collect();
    assert_eq!(accepted.len(), 3);
    // The others ask again, and are served.
    world.secs(8);
    assert_eq!(std::iter::from_fn(|| tcp(&mut world, 1, server).accept().ok()).count(), 3);
    assert!(clients.iter().all(|id| state(&mut world, 0, *id) == State::Established));
    assert!(world.count(1, "tcp_drop_accept_full") > 0);
}

#[test]
fn who_calls_a_listener_that_closes_is_reset() {
    let mut world = World::new(2, 1);
    let server = listen(&mut world, 1, "0.0.0.0:80");
    let client = call(&mut world, 0, "10.0.0.2:80");
    world.millis(10);
    world.hosts[1].stack.close(server);
    world.millis(10);
    assert_eq!(tcp(&mut world, 0, client).take_error(), Some(Failure::Reset));
    let usage = world.hosts[1].stack.usage();
    assert_eq!((usage.connections, usage.half_open, usage.connection_octets), (0, 0, 0));
}

#[test]
fn both_may_call_each_other_at_once_and_one_may_call_itself() {
    let mut world = World::new(2, 1);
    let now = world.now();
    let mut sockets = Vec::new();
    for (host, own, other) in [(0, "10.0.0.1:5", "10.0.0.2:6"), (1, "10.0.0.2:6", "10.0.0.1:5")] {
        let stack = &mut world.hosts[host].stack;
        let id = stack.open_tcp().unwrap();
        stack.tcp(id).unwrap().bind(own.parse().unwrap()).unwrap();
        stack.tcp(id).unwrap().connect(now, other.parse().unwrap()).unwrap();
        sockets.push((host, id));
    }
    world.millis(100);
    exchange(&mut world, [sockets[0], sockets[1]], 100_000, 10);

    for own in ["10.0.0.1:7", "[::1]:8", "127.0.0.1:9"] {
        let now = world.now();
        let stack = &mut world.hosts[0].stack;
        let id = stack.open_tcp().unwrap();
        stack.tcp(id).unwrap().bind(own.parse().unwrap()).unwrap();
        stack.tcp(id).unwrap().connect(now, own.parse().unwrap()).unwrap();
        world.millis(100);
        assert_eq!(state(&mut world, 0, id), State::Established, "{own}");
        tcp(&mut world, 0, id).write(b"to myself").unwrap();
        world.millis(100);
        assert_eq!(read(&mut world, 0, id), (b"to myself".to_vec(), false));
        tcp(&mut world, 0, id).finish().unwrap();
        world.millis(100);
        assert_eq!(read(&mut world, 0, id), (vec![], true));
        world.hosts[0].stack.close(id);
    }
}

#[test]
fn a_port_of_nobodys_choice_is_found_where_all_have_connections() {
    let config = Config { ephemeral: 50_000..=50_009, ..Config::default() };
    let mut world = World::with(2, 1, &config, Default::default(), 1500);
    for n in 0..40 {
        listen(&mut world, 1, &format!("10.0.0.2:{}", 80 + n));
        call(&mut world, 0, &format!("10.0.0.2:{}", 80 + n));
    }
    world.millis(10);
    let stack = &mut world.hosts[0].stack;
    for n in 0..11 {
        let id = stack.open_tcp().unwrap();
        let bound = stack.tcp(id).unwrap().bind("0.0.0.0:0".parse().unwrap());
        assert_eq!(bound.is_ok(), n < 10, "{n}: {bound:?}");
    }
}

/// As Linux has it: a connection keeps what its socket, or its listener, said of the port; in TIME-WAIT as well.
#[test]
fn a_port_with_connections_is_shared_only_where_all_of_them_say_so() {
    let mut world = World::new(2, 1);
    let bind = |world: &mut World, local: &str, reuse_address, reuse_port, user| {
        let stack = &mut world.hosts[1].stack;
        let id = stack.open_tcp().unwrap();
        let mut socket = stack.tcp(id).unwrap();
        socket.set_user(user);
        socket.set_options(Options { reuse_address, reuse_port, ..Options::default() });
        let bound = socket.bind(local.parse().unwrap()).is_ok();
        (id, bound)
    };
    let is_free = |world: &mut World, local: &str, reuse_address, reuse_port, user| {
        let (id, bound) = bind(world, local, reuse_address, reuse_port, user);
        world.hosts[1].stack.close(id);
        assert_eq!(world.hosts[1].stack.contradiction(), None);
        bound
    };
    for (port, reuse_address, reuse_port) in [(80, false, false), (81, true, false), (82, false, true)] {
        let [own, any, other] = ["10.0.0.2", "0.0.0.0", "127.0.0.1"].map(|ip| format!("{ip}:{port}"));
        let (server, _) = bind(&mut world, &own, reuse_address, reuse_port, 7);
        tcp(&mut world, 1, server).listen(5).unwrap();
        let client = call(&mut world, 0, &own);
        world.millis(10);
        let accepted = tcp(&mut world, 1, server).accept().unwrap();
        world.hosts[1].stack.close(server);
        for at in [&own, &any] {
            assert!(!is_free(&mut world, at, false, false, 7), "{at}");
            assert_eq!(is_free(&mut world, at, true, false, 8), reuse_address, "{at}");
            assert_eq!(is_free(&mut world, at, false, true, 7), reuse_port, "{at}");
            assert!(!is_free(&mut world, at, false, true, 8), "{at}");
        }
        assert!(is_free(&mut world, &other, true, false, 8));
        // Nor does a socket that is bound to the port elsewhere make it free.
        let (elsewhere, bound) = bind(&mut world, &other, true, true, 7);
        assert!(bound && !is_free(&mut world, &own, false, false, 7));
        assert_eq!(is_free(&mut world, &own, true, false, 8), reuse_address);
        world.hosts[1].stack.close(elsewhere);
        // It may say something else later.
        let said = tcp(&mut world, 1, accepted).options();
        tcp(&mut world, 1, accepted).set_options(Options { reuse_address: !reuse_address, ..said });
        assert_eq!(is_free(&mut world, &own, true, false, 8), !reuse_address);
        tcp(&mut world, 1, accepted).set_options(said);

        world.hosts[1].stack.close(accepted);
        world.millis(10);
        world.hosts[0].stack.close(client);
        world.millis(10);
        assert_eq!(world.hosts[1].stack.usage().time_wait, 1);
        assert_eq!(is_free(&mut world, &any, true, false, 8), reuse_address);
        assert_eq!(is_free(&mut world, &any, false, true, 8), reuse_port);
        assert!(!is_free(&mut world, &any, false, false, 7) && is_free(&mut world, &other, true, false, 8));
        world.secs(61);
        assert!(is_free(&mut world, &any, false, false, 8));
    }
}

/// A call that comes there may be meant for him who has the connection.
#[test]
fn nobody_listens_at_the_port_of_another_users_connection() {
    let config = Config { ephemeral: 50_000..=50_000, ..Config::default() };
    let mut world = World::with(2, 1, &config, Default::default(), 1500);
    listen(&mut world, 1, "0.0.0.0:80");
    let now = world.now();
    let open = |world: &mut World, user| {
        let id = world.hosts[0].stack.open_tcp().unwrap();
        tcp(world, 0, id).set_user(user);
        tcp(world, 0, id).set_options(Options { reuse_address: true, ..Options::default() });
        id
    };
    // It has not chosen its port, and yet says so.
    for (said, user, listens) in [(false, 8, false), (false, 7, true), (true, 8, true)] {
        let client = open(&mut world, 7);
        tcp(&mut world, 0, client).set_options(Options { reuse_address: said, ..Options::default() });
        tcp(&mut world, 0, client).connect(now, "10.0.0.2:80".parse().unwrap()).unwrap();
        world.millis(10);
        let chosen = open(&mut world, user);
        assert_eq!(tcp(&mut world, 0, chosen).bind("0.0.0.0:50000".parse().unwrap()).is_ok(), said);
        world.hosts[0].stack.close(chosen);
        let server = open(&mut world, user);
        assert!(tcp(&mut world, 0, server).bind("0.0.0.0:0".parse().unwrap()).is_ok());
        assert_eq!(tcp(&mut world, 0, server).listen(1).is_ok(), listens, "{said} {user}");
        world.hosts[0].stack.close(server);
        tcp(&mut world, 0, client).abort();
        world.hosts[0].stack.close(client);
        world.millis(10);
    }
}

/// Or his ports would be twice as many as the sockets that he may have.
#[test]
fn what_a_user_has_left_keeps_no_port_from_who_has_no_wish_for_one() {
    let config = Config { ephemeral: 50_000..=50_001, ..Config::default() };
    let mut world = World::with(2, 1, &config, Default::default(), 1500);
    let server = listen(&mut world, 1, "0.0.0.0:80");
    let now = world.now();
    let open = |world: &mut World, user, port: u16| {
        let id = world.hosts[0].stack.open_tcp().unwrap();
        tcp(world, 0, id).set_user(user);
        let bound = tcp(world, 0, id).bind(format!("0.0.0.0:{port}").parse().unwrap());
        bound.map(|local| (id, local.port()))
    };
    for port in [50_000, 50_001] {
        let (id, _) = open(&mut world, 7, port).unwrap();
        tcp(&mut world, 0, id).connect(now, "10.0.0.2:80".parse().unwrap()).unwrap();
        world.millis(10);
        tcp(&mut world, 1, server).accept().unwrap();
        world.hosts[0].stack.close(id);
        world.millis(10);
    }
    assert_eq!(world.hosts[0].stack.usage().orphans, 2);
    assert_eq!(world.hosts[0].stack.contradiction(), None);
    // By wish it is not to be had, as with the kernel.
    assert!(open(&mut world, 8, 50_000).is_err() && open(&mut world, 7, 50_001).is_err());
    let elsewhere = world.hosts[0].stack.open_tcp().unwrap();
    tcp(&mut world, 0, elsewhere).bind("127.0.0.1:50000".parse().unwrap()).unwrap();
    world.hosts[0].stack.close(elsewhere);
    let (first, one) = open(&mut world, 8, 0).unwrap();
    let (second, other) = open(&mut world, 8, 0).unwrap();
    assert_ne!(one, other);
    tcp(&mut world, 0, first).listen(1).unwrap();
    tcp(&mut world, 0, second).listen(1).unwrap();
    assert!(open(&mut world, 9, 0).is_err());
    world.hosts[0].stack.close(first);
    let caller = world.hosts[0].stack.open_tcp().unwrap();
    tcp(&mut world, 0, caller).set_user(9);
    assert!(tcp(&mut world, 0, caller).connect(now, "10.0.0.2:81".parse().unwrap()).is_ok());
    assert_eq!(world.hosts[0].stack.contradiction(), None);
}

#[test]
fn who_resets_a_connection_and_leaves_it_can_have_its_port_again_at_once() {
    let mut world = World::new(2, 1);
    listen(&mut world, 1, "0.0.0.0:80");
    let now = world.now();
    let open = |world: &mut World| {
        let stack = &mut world.hosts[0].stack;
        let id = stack.open_tcp().unwrap();
        stack.tcp(id).unwrap().bind("10.0.0.1:5".parse().unwrap()).map(|_| id)
    };
    let id = open(&mut world).unwrap();
    tcp(&mut world, 0, id).connect(now, "10.0.0.2:80".parse().unwrap()).unwrap();
    world.millis(10);
    tcp(&mut world, 0, id).abort();
    // It is the one's who has it.
    assert!(open(&mut world).is_err());
    world.hosts[0].stack.close(id);
    // The reset was not sent yet.
    let again = open(&mut world).unwrap();
    tcp(&mut world, 0, again).connect(now, "10.0.0.2:80".parse().unwrap()).unwrap();
    world.millis(100);
    assert_eq!(state(&mut world, 0, again), State::Established);
    assert_eq!(world.hosts[0].stack.contradiction(), None);
}
