//! Several users of one stack: what each may have, and what the others have then.

use super::*;
use bypath_stack::config::Config;
use bypath_stack::iface::Offload;
use bypath_stack::tcp::{Held, Options, Settings, Share};

/// What a connection may have that nobody has accepted.
const OF_CALLER: usize = 65_536;

fn world(config: &Config, share: Share) -> World {
    let mut world = World::with(2, 1, config, Offload::default(), 1500);
    world.millis(3000);
    world.hosts[1].stack.set_share(share);
    world
}

/// A listener of a user's on host 1, whose connections may have so many octets unread.
fn listen_as(world: &mut World, user: u32, port: u16, window: usize) -> SocketId {
    let id = world.hosts[1].stack.open_tcp().unwrap();
    let mut socket = tcp(world, 1, id);
    let sizes = Settings { receive_octets: window, send_octets: 1 << 20, ..socket.settings() };
    let settings = Settings { tune_receive: false, tune_send: false, ..sizes };
    socket.set_options(Options { reuse_address: true, ..Options::default() });
    socket.set_settings(bypath_stack::time::Instant::ZERO, settings);
    socket.set_user(user);
    socket.bind(format!("[::]:{port}").parse().unwrap()).unwrap();
    socket.listen(64).unwrap();
    id
}

fn held(world: &World, user: u32) -> Held {
    assert_eq!(world.hosts[1].stack.contradiction(), None);
    world.hosts[1].stack.held_by(user)
}

/// Connections to a port of host 1, each of which has sent so many octets, if they were taken.
fn calls(world: &mut World, port: u16, count: usize, octets: usize) -> Vec<SocketId> {
    let all: Vec<_> = (0..count).map(|_| call(world, 0, &format!("10.0.0.2:{port}"))).collect();
    world.millis(100);
    for id in &all {
        let _ = tcp(world, 0, *id).write(&vec![6; octets]);
    }
    world.secs(3);
    all
}

#[test]
fn who_is_not_accepted_has_a_small_window_and_then_his_own() {
    for offered in [false, true] {
        let mut world = world(&Config::default(), Share::ALL);
        let server = listen_as(&mut world, 7, 80, 1 << 20);
        let client = calls(&mut world, 80, 1, 120_000)[0];
        let waits = |world: &mut World| 120_000 - tcp(world, 0, client).unacknowledged();
        assert!((OF_CALLER - 3000..=OF_CALLER).contains(&waits(&mut world)), "{}", waits(&mut world));
        let expected = Held { callers: 1, caller_octets: OF_CALLER, ..Held::default() };
        assert_eq!(held(&world, 7), expected);
        let accepted = if offered {
            let accepted = tcp(&mut world, 1, server).accept_to_offer().unwrap();
            world.secs(3);
            assert_eq!(held(&world, 7), Held { callers: 0, ..expected });
            // What is read makes room for as much, and no more.
            let (came, _) = read(&mut world, 1, accepted);
            assert!(came.iter().all(|octet| *octet == 6));
            world.secs(3);
            assert_eq!(held(&world, 7).octets, 0);
            tcp(&mut world, 1, accepted).take_offered();
            assert_eq!(tcp(&mut world, 0, client).write(&[6; 120_000]), Ok(120_000));
            accepted
        } else {
            tcp(&mut world, 1, server).accept().unwrap()
        };
        // Without a read, and without a probe of the other side's.
        world.millis(100);
        assert_eq!(tcp(&mut world, 0, client).unacknowledged(), 0);
        let now = held(&world, 7);
        assert_eq!((now.callers, now.caller_octets), (0, 0));
        assert!(now.octets >= 120_000);
        world.hosts[1].stack.close(accepted);
        world.secs(1);
        assert_eq!(held(&world, 7), Held::default());
    }
}

#[test]
fn a_window_that_is_wide_enough_yet_is_told_with_what_comes_next() {
    let mut world = world(&Config::default(), Share::ALL);
    let server = listen_as(&mut world, 7, 80, 1 << 20);
    let client = calls(&mut world, 80, 1, 1000)[0];
    let sent = world.count(1, "tcp_sent");
    let accepted = tcp(&mut world, 1, server).accept().unwrap();
    world.secs(1);
    assert_eq!(world.count(1, "tcp_sent"), sent);
    assert_eq!(tcp(&mut world, 0, client).write(&[6; 120_000]), Ok(120_000));
    world.millis(100);
    assert_eq!(tcp(&mut world, 1, accepted).unread(), 121_000);
}

#[test]
fn so_many_call_a_user_and_others_are_called_all_the_same() {
    for half_open in [4096, 0] {
        let mut config = Config::default();
        config.tcp.half_open = half_open;
        let mut world = world(&config, Share { callers: 3, ..Share::ALL });
        // Of one user, by two listeners; of another one.
        let servers = [(7, 80), (7, 81), (8, 82)].map(|(user, port)| listen_as(&mut world, user, port, 9000));
        let all: Vec<_> = (80..83).flat_map(|port| calls(&mut world, port, 2, 10)).collect();
        assert_eq!([7, 8].map(|user| held(&world, user).callers), [3, 2], "{half_open}");
        let is_open = |world: &mut World, id: &SocketId| {
            tcp(world, 1, servers[1]).has_callers() && state(world, 0, *id) == State::Established
        };
        assert!(is_open(&mut world, &all[0]) && is_open(&mut world, &all[5]));
        // Who was not answered asks again, and there is room by then.
        tcp(&mut world, 1, servers[0]).accept().unwrap();
        world.secs(10);
        assert_eq!([7, 8].map(|user| held(&world, user).callers), [3, 2], "{half_open}");
        world.hosts[1].stack.close(servers[1]);
        world.secs(1);
        assert_eq!(held(&world, 7).callers, 1);
    }
}

#[test]
fn who_calls_at_once_by_cookies_is_not_let_in_beyond_the_share() {
    let mut config = Config::default();
    config.tcp.half_open = 0;
    let mut world = world(&config, Share { callers: 3, ..Share::ALL });
    listen_as(&mut world, 7, 80, 9000);
    calls(&mut world, 80, 9, 10);
    assert_eq!(held(&world, 7).callers, 3);
    assert!(world.count(1, "tcp_drop_accept_full") > 0);
}

#[test]
fn callers_of_a_user_take_no_memory_from_what_he_has_accepted() {
    let share = Share { caller_octets: 200_000, ..Share::ALL };
    let mut world = world(&Config::default(), share);
    let server = listen_as(&mut world, 7, 80, 1 << 20);
    let first = calls(&mut world, 80, 1, 10)[0];
    let accepted = tcp(&mut world, 1, server).accept().unwrap();
    calls(&mut world, 80, 20, 100_000);
    let of_callers = held(&world, 7).caller_octets;
    // A buffer that grows may go beyond it once; each has a little.
    assert!((200_000..200_000 + OF_CALLER + 20 * 2048).contains(&of_callers), "{of_callers}");
    assert_eq!(read(&mut world, 1, accepted).0.len(), 10);
    exchange(&mut world, [(0, first), (1, accepted)], 300_000, 5);
}

#[test]
fn who_has_little_has_some_where_others_have_all() {
    const ALL: usize = 4 << 20;
    let mut config = Config::default();
    config.tcp.octets = ALL;
    let mut world = world(&config, Share::ALL);
    for (user, port) in [(7, 80), (8, 81), (9, 82)] {
        let server = listen_as(&mut world, user, port, 1 << 20);
        calls(&mut world, port, 4, 10);
        let own: Vec<_> = (0..4).map(|_| tcp(&mut world, 1, server).accept().unwrap()).collect();
        for id in own {
            let _ = tcp(&mut world, 1, id).write(&vec![1; 3 << 20]);
        }
    }
    // Nobody has more than half, or a little more as a buffer grows; what is written leaves room for what comes.
    for user in [7, 8] {
        let octets = held(&world, user).octets;
        assert!((ALL / 8 * 3..ALL / 2 + (1 << 20)).contains(&octets), "{octets}");
    }
    let server = listen_as(&mut world, 10, 83, 1 << 20);
    let client = calls(&mut world, 83, 1, 10)[0];
    assert!(world.hosts[1].stack.usage().connection_octets >= ALL / 4 * 3);
    let accepted = tcp(&mut world, 1, server).accept().unwrap();
    assert_eq!(read(&mut world, 1, accepted).0.len(), 10);
    exchange(&mut world, [(0, client), (1, accepted)], 300_000, 5);
}

#[test]
fn so_many_are_left_by_a_user_and_others_leave_theirs_all_the_same() {
    let mut config = Config::default();
    config.tcp.orphans = 8;
    let mut world = world(&config, Share { orphan_octets: 300_000, ..Share::ALL });
    let left = |world: &mut World, user: u32, port: u16, octets: usize| {
        let server = listen_as(world, user, port, 9000);
        // It reads nothing.
        let (now, client) = (world.now(), world.hosts[0].stack.open_tcp().unwrap());
        let mut socket = tcp(world, 0, client);
        let settings = Settings { receive_octets: 4000, tune_receive: false, ..socket.settings() };
        socket.set_settings(now, settings);
        socket.connect(now, format!("10.0.0.2:{port}").parse().unwrap()).unwrap();
        world.millis(100);
        let accepted = tcp(world, 1, server).accept().unwrap();
        assert_eq!(tcp(world, 1, accepted).write(&vec![2; octets]), Ok(octets));
        world.hosts[1].stack.close(accepted);
        world.hosts[1].stack.close(server);
        world.millis(500);
        state(world, 0, client) == State::Established
    };
    // A fourth of them is the most that one has; octets are bounded, too.
    let many = 200_000;
    assert!(left(&mut world, 7, 80, many));
    assert!(!left(&mut world, 7, 80, many));
    let now = held(&world, 7);
    assert_eq!((now.orphans, now.octets, now.orphan_octets), (1, 1 << 18, 1 << 18));
    assert!(left(&mut world, 7, 80, 20_000) && !left(&mut world, 7, 80, many));
    for user in 8..11 {
        assert!((0..2).all(|_| left(&mut world, user, 80, many / 2)) && !left(&mut world, user, 80, 10));
    }
    assert_eq!(world.hosts[1].stack.usage().orphans, 8);
    // All there are, and whoever had none leaves one.
    assert!(left(&mut world, 11, 80, many) && !left(&mut world, 11, 80, many));
    assert_eq!(world.count(1, "tcp_orphans_reset"), 6);
}

#[test]
fn a_connection_that_becomes_somebody_elses_counts_for_him() {
    let mut world = world(&Config::default(), Share::ALL);
    let server = listen_as(&mut world, 7, 80, 1 << 20);
    calls(&mut world, 80, 1, 100);
    let accepted = tcp(&mut world, 1, server).accept().unwrap();
    let before = held(&world, 7);
    assert_eq!((before.octets, before.callers), (512, 0));
    tcp(&mut world, 1, accepted).set_user(8);
    assert_eq!([7, 8].map(|user| held(&world, user)), [Held::default(), before]);
    let mut users: Vec<_> = world.hosts[1].stack.users().map(|(user, held)| (user, held.octets)).collect();
    users.sort();
    assert_eq!(users, [(7, 0), (8, 512)]);
}
