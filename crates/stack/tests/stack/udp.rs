//! UDP between hosts, and with ourselves.

use crate::world::{Faults, World};
use bypath_stack::config::Config;
use bypath_stack::event::{Event, Ready};
use bypath_stack::iface::{IfaceId, NoAddress};
use bypath_stack::path::Unreachable;
use bypath_stack::socket::{BindError, Datagram, Inbox, ReceiveError, SendError, SocketError};
use bypath_stack::{SendTo, Stack};
use bypath_wire::FrameMeta;
use proptest::prelude::*;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

#[test]
fn datagrams_get_there_and_back_over_both_kinds() {
    for (server, to, from) in [
        ("0.0.0.0:7", "10.0.0.2:7", "10.0.0.1"),
        ("10.0.0.2:7", "10.0.0.2:7", "10.0.0.1"),
        ("[::]:7", "10.0.0.2:7", "10.0.0.1"),
        ("[::]:7", "[fd00::2]:7", "fd00::1"),
        ("[fd00::2]:7", "[fd00::2]:7", "fd00::1"),
        ("[::]:7", "[fe80::2%2]:7", "fe80::1"),
    ] {
        let mut world = World::new(2, 1);
        let (server, client) = (world.bound(1, server), world.hosts[0].stack.open_udp().unwrap());
        world.send_to(0, client, b"there", to);
        world.millis(10);
        let got = world.received(1, server);
        let [(sender, octets)] = &got[..] else { panic!("{to}: {got:?}") };
        assert_eq!((sender.ip().to_string(), &octets[..]), (from.to_string(), &b"there"[..]));
        assert!((32_768..=65_535).contains(&sender.port()));
        world.udp(1, server).send(b"back", Some(*sender)).unwrap();
        world.millis(10);
        assert_eq!(world.received(0, client), [(to.parse().unwrap(), b"back".to_vec())]);
        assert!(world.drops(0).is_empty() && world.drops(1).is_empty());
    }
}

type Sent = (SocketAddr, Vec<u8>);

/// Memory of somebody else, with room for two datagrams.
#[derive(Clone, Debug, Default)]
struct Elsewhere(Arc<Mutex<Vec<Sent>>>);

impl Inbox for Elsewhere {
    fn take(&mut self, about: &Datagram, octets: &[u8]) -> bool {
        let mut all = self.0.lock().unwrap();
        let fits = all.len() < 2;
        if fits {
            all.push((about.from, octets.to_vec()));
        }
        fits
    }
}

#[test]
fn datagrams_can_go_into_memory_of_somebody_else() {
    let mut world = World::new(2, 1);
    let (server, client) = (world.bound(1, "0.0.0.0:7"), world.bound(0, "10.0.0.1:9"));
    world.send_to(0, client, b"before", "10.0.0.2:7");
    world.millis(10);
    let elsewhere = Elsewhere::default();
    world.udp(1, server).receive_into(Some(Box::new(elsewhere.clone())));
    world.hosts[1].events.clear();
    for octets in [b"one", b"two", b"six"] {
        world.send_to(0, client, octets, "10.0.0.2:7");
    }
    world.millis(10);
    let from: SocketAddr = "10.0.0.1:9".parse().unwrap();
    let got = std::mem::take(&mut *elsewhere.0.lock().unwrap());
    assert_eq!(got, [(from, b"one".to_vec()), (from, b"two".to_vec())]);
    // Who waits for datagrams is told, and what did not fit is counted.
    let ready = Ready { readable: true, ..Ready::default() };
    assert!(world.hosts[1].events.contains(&Event::Socket { id: server, ready }));
    assert_eq!((world.udp(1, server).dropped(), world.hosts[1].stack.counters().udp_drop_queue_full), (1, 1));
    // What came before is still there, and so is what comes when the socket has its own queue again.
    world.udp(1, server).receive_into(None);
    world.send_to(0, client, b"after", "10.0.0.2:7");
    world.millis(10);
    assert_eq!(world.received(1, server), [(from, b"before".to_vec()), (from, b"after".to_vec())]);
}

#[test]
fn datagrams_of_every_length_arrive_as_they_were_sent() {
    for (mtu, to) in [
        (1500, "10.0.0.2:7"),
        (1500, "[fd00::2]:7"),
        (9000, "10.0.0.2:7"),
        (1280, "[fd00::2]:7"),
        (576, "10.0.0.2:7"),
    ] {
        let mut world = World::with(2, 3, &Config::default(), Default::default(), mtu);
        let server = world.bound(1, "[::]:7");
        let client = world.hosts[0].stack.open_udp().unwrap();
        let longest = if to.starts_with('[') { 65_527 } else { 65_507 };
        let edges =
            [mtu - 49, mtu - 48, mtu - 47, mtu - 29, mtu - 28, mtu - 27, 2 * mtu, longest - 1, longest];
        for len in (0..3100).step_by(97).chain(edges) {
            let octets: Vec<u8> = (0..len).map(|n| (n * 7 + len) as u8).collect();
            world.send_to(0, client, &octets, to);
            world.millis(20);
            let got = world.received(1, server);
            assert!(got.len() == 1 && got[0].1 == octets, "{len} octets to {to}");
        }
        let most = longest;
        let error = world.udp(0, client).send(&vec![0; longest + 1], Some(to.parse().unwrap()));
        assert_eq!(error, Err(SendError::TooLong { len: longest + 1, most }));
        assert_eq!((world.drops(0), world.drops(1)), (vec![], vec![]));
    }
}

#[test]
fn whoever_is_connected_hears_of_his_partner_alone() {
    let mut world = World::new(3, 1);
    let client = world.connected(0, "10.0.0.2:7");
    let local = world.udp(0, client).local().unwrap();
    assert_eq!(local.ip().to_string(), "10.0.0.1");
    let (partner, other, third) =
        (world.bound(1, "0.0.0.0:7"), world.bound(1, "0.0.0.0:8"), world.bound(2, "0.0.0.0:7"));
    for (host, id) in [(1, other), (2, third)] {
        world.udp(host, id).send(b"?", Some(local)).unwrap();
    }
    world.udp(1, partner).send(b"!", Some(local)).unwrap();
    world.millis(10);
    assert_eq!(world.received(0, client), [("10.0.0.2:7".parse().unwrap(), b"!".to_vec())]);
    assert_eq!(world.count(0, "udp_drop_no_socket"), 2);
    // The port was nobody's choice: it is given back.
    world.udp(0, client).disconnect().unwrap();
    assert_eq!((world.udp(0, client).local(), world.udp(0, client).remote()), (None, None));
    world.udp(2, third).send(b"now", Some(local)).unwrap();
    world.millis(10);
    assert_eq!(world.count(0, "udp_drop_no_socket"), 3);
    // One that was chosen stays.
    let any = world.udp(0, client).bind("0.0.0.0:9".parse().unwrap()).unwrap();
    world.udp(0, client).connect("10.0.0.2:7".parse().unwrap()).unwrap();
    assert_eq!(world.udp(0, client).local(), Some("10.0.0.1:9".parse().unwrap()));
    world.udp(0, client).disconnect().unwrap();
    assert_eq!(world.udp(0, client).local(), Some(any));
    world.udp(2, third).send(b"now", Some("10.0.0.1:9".parse().unwrap())).unwrap();
    world.millis(10);
    assert_eq!(world.received(0, client).len(), 1);
}

#[test]
fn a_host_talks_to_itself() {
    let mut world = World::new(1, 1);
    for (bind, to, from) in [
        ("0.0.0.0:7", "127.0.0.1:7", "127.0.0.1"),
        ("0.0.0.0:8", "127.3.4.5:8", "127.3.4.5"),
        ("10.0.0.1:9", "10.0.0.1:9", "10.0.0.1"),
        ("[::1]:7", "[::1]:7", "::1"),
        ("[::]:9", "[fd00::1]:9", "fd00::1"),
        ("[::]:10", "[fe80::1%2]:10", "fe80::1"),
    ] {
        let server = world.bound(0, bind);
        let client = world.hosts[0].stack.open_udp().unwrap();
        world.send_to(0, client, &[7; 60_000], to);
        world.millis(1);
        let got = world.received(0, server);
        assert_eq!(got.len(), 1, "{to}");
        assert_eq!((got[0].0.ip().to_string(), got[0].1.len()), (from.to_string(), 60_000));
        world.hosts[0].stack.close(server);
        world.hosts[0].stack.close(client);
    }
    // Nothing of it was seen outside.
    assert!(world.trace.is_empty());
    // Nobody listens there.
    let client = world.connected(0, "127.0.0.1:77");
    world.udp(0, client).send(b"?", None).unwrap();
    world.millis(1);
    assert_eq!(world.udp(0, client).take_error(), Some(SocketError::PortUnreachable));
}

#[test]
fn two_sockets_that_answer_each_other_for_ever_leave_time_for_others() {
    let mut world = World::new(1, 1);
    let (a, b) = (world.bound(0, "127.0.0.1:1"), world.bound(0, "127.0.0.1:2"));
    world.send_to(0, a, b"ping", "127.0.0.1:2");
    for _ in 0..1000 {
        let now = world.now();
        world.hosts[0].stack.handle_timeout(now);
        for (id, to) in [(a, "127.0.0.1:2"), (b, "127.0.0.1:1")] {
            for _ in world.received(0, id) {
                world.send_to(0, id, b"pong", to);
            }
        }
    }
    assert_eq!(world.count(0, "udp_delivered"), 1000);
}

#[test]
fn a_socket_is_told_of_once_however_much_comes() {
    let mut world = World::new(2, 1);
    let server = world.bound(1, "0.0.0.0:7");
    let client = world.hosts[0].stack.open_udp().unwrap();
    for _ in 0..10 {
        world.send_to(0, client, b"x", "10.0.0.2:7");
    }
    // Two copies of the events: those that the world fetched are in `events`.
    world.millis(10);
    let readable = Ready { readable: true, ..Ready::default() };
    assert_eq!(world.hosts[1].events, vec![Event::Socket { id: server, ready: readable }; 1]);
    assert_eq!(world.received(1, server).len(), 10);
    assert!(world.hosts[0].events.is_empty());
}

#[test]
fn a_sender_that_is_too_fast_is_told_to_wait_and_when_to_go_on() {
    let mut world = World::new(2, 1);
    let server = world.bound(1, "0.0.0.0:7");
    let client = world.hosts[0].stack.open_udp().unwrap();
    world.udp(0, client).set_send_octets(10 * 1064);
    let to = Some("10.0.0.2:7".parse().unwrap());
    let sent = (0..100).take_while(|_| world.udp(0, client).send(&[0; 1000], to).is_ok()).count();
    assert_eq!(sent, 10);
    assert_eq!(world.udp(0, client).send(&[0; 1000], to), Err(SendError::Full));
    // Not for each place, but for half of them.
    let (iface, now) = (world.hosts[0].iface, world.now());
    let mac = world.hosts[1].mac;
    let stack = &mut world.hosts[0].stack;
    stack.set_neighbor(iface, "10.0.0.2".parse().unwrap(), mac);
    for _ in 0..4 {
        let (len, _) = stack.poll_transmit(now, iface, &mut [0; 2000]).unwrap();
        assert_eq!((len, stack.poll_event()), (1042, None));
    }
    world.millis(1);
    let writable = Ready { writable: true, ..Ready::default() };
    assert_eq!(world.hosts[0].events, [Event::Socket { id: client, ready: writable }]);
    assert_eq!(world.received(1, server).len(), 6);
    assert_eq!(world.udp(0, client).send(&[0; 1000], to), Ok(()));
}

#[test]
fn a_receiver_that_is_too_slow_loses_what_does_not_fit() {
    let mut world = World::new(2, 1);
    let server = world.bound(1, "0.0.0.0:7");
    world.udp(1, server).set_receive_octets(5 * 164);
    let client = world.hosts[0].stack.open_udp().unwrap();
    for _ in 0..8 {
        world.send_to(0, client, &[0; 100], "10.0.0.2:7");
    }
    world.millis(10);
    assert_eq!(world.received(1, server).len(), 5);
    assert_eq!((world.count(1, "udp_drop_queue_full"), world.udp(1, server).dropped()), (3, 3));
}

#[test]
fn addresses_and_ports_are_given_as_linux_gives_them() {
    let mut world = World::new(1, 1);
    let stack = &mut world.hosts[0].stack;
    let ids: Vec<_> = (0..4).map(|_| stack.open_udp().unwrap()).collect();
    let mut bind = |n: usize, local: &str| stack.udp(ids[n]).unwrap().bind(local.parse().unwrap());
    assert_eq!(bind(0, "10.0.0.9:7"), Err(BindError::NotOurs));
    assert_eq!(bind(0, "10.0.0.1:7"), Ok("10.0.0.1:7".parse().unwrap()));
    assert_eq!(bind(0, "10.0.0.1:8"), Err(BindError::Bound));
    assert!(matches!(bind(1, "0.0.0.0:7"), Err(BindError::InUse(_))));
    assert_eq!(bind(1, "127.0.0.1:7"), Ok("127.0.0.1:7".parse().unwrap()));
    assert!(bind(2, "10.0.0.1:0").unwrap().port() >= 32_768);
    assert_eq!(bind(3, "[fe80::1%2]:7"), Ok("[fe80::1]:7".parse().unwrap()));
    let to = |text: &str| Some(text.parse().unwrap());
    let mut send = |n: usize, to| stack.udp(ids[n]).unwrap().send(b"", to);
    assert_eq!(send(0, None), Err(SendError::NoDestination));
    assert_eq!(send(0, to("10.0.0.2:0")), Err(SendError::Port));
    assert_eq!(send(0, to("[fd00::2]:1")), Err(SendError::Kind));
    assert_eq!(send(0, to("10.0.0.255:1")), Err(SendError::Broadcast));
    assert!(matches!(send(0, to("8.8.8.8:1")), Err(SendError::Unreachable(_))));
}

#[test]
fn ports_are_not_to_be_guessed_and_run_out() {
    let config = Config { ephemeral: 50_000..=50_099, ..Config::default() };
    let mut stack = Stack::new(config, [5; 32]);
    let mut ports = Vec::new();
    for _ in 0..100 {
        let id = stack.open_udp().unwrap();
        ports.push(stack.udp(id).unwrap().bind("0.0.0.0:0".parse().unwrap()).unwrap().port());
    }
    assert_eq!(ports.iter().collect::<HashSet<_>>().len(), 100);
    let steps = ports.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
    assert!(steps < 50, "{ports:?}");
    let id = stack.open_udp().unwrap();
    assert_eq!(stack.udp(id).unwrap().bind("0.0.0.0:0".parse().unwrap()), Err(BindError::NoPort));
}

#[test]
fn sockets_are_bounded_and_an_old_id_is_nobodys() {
    let mut stack = Stack::new(Config { sockets: 2, ..Config::default() }, [1; 32]);
    let (a, b) = (stack.open_udp().unwrap(), stack.open_udp().unwrap());
    assert!(stack.open_udp().is_err());
    stack.close(a);
    stack.close(a);
    let c = stack.open_udp().unwrap();
    assert!(stack.udp(a).is_none() && stack.udp(b).is_some() && stack.udp(c).is_some());
    assert_eq!(stack.sockets(), 2);
}

#[test]
fn a_checksum_is_looked_at_and_under_ipv6_there_must_be_one() {
    let mut world = World::new(2, 1);
    let (server, client) = (world.bound(1, "[::]:7"), world.bound(0, "[::]:9"));
    for (to, at) in [("10.0.0.2:7", 14 + 20 + 6), ("[fd00::2]:7", 14 + 40 + 6)] {
        world.send_to(0, client, b"hello", to);
        world.millis(10);
        assert_eq!(world.received(1, server).len(), 1);
        let mut frame = world.trace.last().unwrap().1.clone();
        frame[at + 3] ^= 1;
        let wrong = world.count(1, "udp_drop_checksum");
        world.hand(1, &frame, &FrameMeta::default());
        assert_eq!(world.count(1, "udp_drop_checksum"), wrong + 1);
        frame[at..at + 2].fill(0);
        world.hand(1, &frame, &FrameMeta::default());
        let v4 = to.starts_with("10");
        assert_eq!(world.received(1, server).len(), usize::from(v4));
        assert_eq!(world.count(1, "udp_drop_checksum"), wrong + 2 - u64::from(v4));
    }
}

#[test]
fn the_same_seed_does_the_same() {
    let run = |seed| {
        let mut world = World::new(3, seed);
        world.faults = Faults { loss: 0.2, duplication: 0.2, jitter: 5_000_000 };
        let server = world.bound(2, "[::]:7");
        for n in 0..50usize {
            let id = world.hosts[n % 2].stack.open_udp().unwrap();
            world.send_to(n % 2, id, &vec![n as u8; n * 100], ["10.0.0.3:7", "[fd00::3]:7"][n % 2]);
            world.millis(7);
        }
        world.secs(5);
        let got = world.received(2, server);
        (world.trace, got)
    };
    assert!(run(5) == run(5));
    assert!(run(5).0 != run(6).0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    /// What is received was sent, by whom it says; without faults everything is, in order.
    #[test]
    fn what_arrives_was_sent(
        seed in any::<u64>(), bad in any::<bool>(),
        sends in prop::collection::vec((0..3usize, prop_oneof![4 => 0..1500usize, 1 => 1500..9000usize], any::<bool>(), 0..3u64), 1..60),
    ) {
        let mut world = World::new(4, seed);
        if bad {
            world.faults = Faults { loss: 0.1, duplication: 0.1, jitter: 2_000_000 };
        }
        let server = world.bound(3, "[::]:7");
        world.udp(3, server).set_receive_octets(1 << 20);
        let clients: Vec<_> = (0..3).map(|host| world.bound(host, "[::]:9")).collect();
        let mut sent = Vec::new();
        for (n, (host, len, v6, pause)) in sends.into_iter().enumerate() {
            let octets: Vec<u8> = (0..len).map(|at| (at / 251 + n) as u8).collect();
            world.send_to(host, clients[host], &octets, if v6 { "[fd00::4]:7" } else { "10.0.0.4:7" });
            let from = if v6 { format!("[fd00::{}]:9", host + 1) } else { format!("10.0.0.{}:9", host + 1) };
            sent.push((from.parse().unwrap(), octets));
            world.millis(pause);
        }
        world.secs(10);
        let got = world.received(3, server);
        if bad {
            prop_assert!(got.iter().all(|one| sent.contains(one)));
        } else {
            let of = |all: &[(std::net::SocketAddr, Vec<u8>)], from| {
                all.iter().filter(|one| one.0 == from).cloned().collect::<Vec<_>>()
            };
            for (from, _) in &sent {
                prop_assert_eq!(of(&got, *from), of(&sent, *from));
            }
        }
    }
}

#[test]
fn receiving_says_what_is_there() {
    let mut world = World::new(2, 1);
    let server = world.bound(1, "0.0.0.0:7");
    let client = world.hosts[0].stack.open_udp().unwrap();
    assert_eq!(world.udp(1, server).receive(&mut [0; 9]), Err(ReceiveError::Empty));
    world.send_to(0, client, b"hello world", "10.0.0.2:7");
    world.millis(10);
    let mut room = [0; 5];
    assert_eq!(world.udp(1, server).peek().unwrap().1, b"hello world");
    let got = world.udp(1, server).receive(&mut room).unwrap();
    assert_eq!((got.len, &room, got.datagram.hop_limit), (11, b"hello", 64));
    assert_eq!(got.datagram.to, "10.0.0.2:7".parse().unwrap());
    assert_eq!(got.datagram.iface, world.hosts[1].iface);
}

#[test]
fn a_datagram_past_the_queue_is_the_same_frame_and_overtakes_nothing() {
    for to in ["10.0.0.2:7", "[fd00::2]:7"] {
        let mut world = World::new(2, 1);
        let (server, client) = (world.bound(1, "[::]:7"), world.bound(0, "[::]:9"));
        let (iface, to) = (world.hosts[0].iface, Some(to.parse().unwrap()));
        let mut room = [0; 2000];
        let mut through = |world: &mut World, octets: &[u8]| {
            let now = world.now();
            let sent = world.udp(0, client).send_through(now, octets, to, iface, &mut room).unwrap();
            sent.map(|(len, meta)| {
                world.hand(1, &room[..len], &meta);
                room[..len].to_vec()
            })
        };
        // The neighbour is not known yet; then the queue is not empty; what must be cut is.
        assert_eq!((through(&mut world, b"1"), through(&mut world, b"2")), (None, None));
        world.millis(10);
        assert_eq!(through(&mut world, &[3; 3000]), None);
        assert_eq!(through(&mut world, b"4"), None);
        world.millis(10);
        let last = world.trace.last().unwrap().1.clone();
        assert_eq!(through(&mut world, b"4"), Some(last));
        let got: Vec<_> = world.received(1, server).into_iter().map(|(_, octets)| octets[0]).collect();
        assert_eq!(got, [b'1', b'2', 3, b'4', b'4']);
        assert_eq!(world.count(0, "udp_sent"), 5);
    }
}

#[test]
fn a_partner_with_a_link_local_address_stays_on_its_link() {
    let mut world = World::new(2, 1);
    let now = world.now();
    let iface = world.hosts[0].iface;
    // A second link with such addresses.
    let other = world.hosts[0].stack.add_vlan(iface, 9, 1500).unwrap();
    world.hosts[0].stack.add_address(now, other, "fe80::8/64".parse().unwrap()).unwrap();
    world.secs(3);
    let server = world.bound(1, "[::]:7");
    let client = world.connected(0, "[fe80::2%2]:7");
    world.udp(0, client).send(b"hi", None).unwrap();
    world.millis(10);
    let got = world.received(1, server);
    assert_eq!(got.len(), 1);
    world.udp(1, server).send(b"ho", Some(got[0].0)).unwrap();
    world.millis(10);
    assert_eq!(world.received(0, client), [("[fe80::2%2]:7".parse().unwrap(), b"ho".to_vec())]);
    // Without the scope nobody knows which link is meant.
    let lost = world.bound(0, "[::]:0");
    let to = Some("[fe80::2]:7".parse().unwrap());
    assert!(matches!(world.udp(0, lost).send(b"?", to), Err(SendError::Unreachable(_))));
}

#[test]
fn an_interface_that_is_not_there_is_an_error_whoever_names_it() {
    let mut world = World::new(1, 1);
    let client = world.bound(0, "[::]:9");
    for to in ["[ff02::1%99]:7", "[ff01::1%99]:7", "[fe80::2%99]:7", "[fe80::1%4294967295]:7"] {
        let sent = world.udp(0, client).send(b"?", Some(to.parse().unwrap()));
        assert_eq!(sent, Err(SendError::Unreachable(Unreachable::Iface)), "{to}");
        assert!(world.udp(0, client).connect(to.parse().unwrap()).is_err());
    }
    // As Linux has it: addresses of more than a link have no scope.
    for to in ["[ff05::1%99]:7", "[fd00::2%99]:7"] {
        assert_eq!(world.udp(0, client).send(b"?", Some(to.parse().unwrap())), Ok(()), "{to}");
        let other = world.connected(0, to);
        assert_eq!(world.udp(0, other).remote(), Some(to.replace("%99", "").parse().unwrap()));
    }
    let nowhere = IfaceId::from_scope(99).unwrap();
    let now = world.now();
    let stack = &mut world.hosts[0].stack;
    assert_eq!(stack.add_address(now, nowhere, "10.9.0.1/24".parse().unwrap()), Err(NoAddress::NoIface));
    assert!(
        !stack.remove_address(nowhere, "10.9.0.1".parse().unwrap()) && !stack.autoconfigure(now, nowhere)
    );
    assert!(!stack.set_neighbor(nowhere, "10.9.0.1".parse().unwrap(), bypath_wire::MacAddr([2; 6])));
    assert!(world.udp(0, client).join(now, nowhere, "239.1.1.1".parse().unwrap()).is_err());
    world.hosts[0].stack.handle_frame(now, nowhere, &[0; 60], &FrameMeta::default());
    assert!(world.hosts[0].stack.poll_transmit(now, nowhere, &mut [0; 2000]).is_none());
}

#[test]
fn a_socket_does_not_send_from_an_address_that_is_not_ours_any_more() {
    for (own, to) in [("10.0.0.50/24", "10.0.0.2:7"), ("fd00::50/64", "[fd00::2]:7")] {
        let mut world = World::new(2, 1);
        let (now, iface) = (world.now(), world.hosts[0].iface);
        let prefix: bypath_stack::prefix::Prefix = own.parse().unwrap();
        world.hosts[0].stack.add_address(now, iface, prefix).unwrap();
        world.secs(5);
        let server = world.bound(1, "[::]:7");
        let local = std::net::SocketAddr::new(prefix.address(), 9);
        let client = world.bound(0, &local.to_string());
        let connected = world.hosts[0].stack.open_udp().unwrap();
        world.udp(0, connected).bind(std::net::SocketAddr::new(prefix.address(), 10)).unwrap();
        world.udp(0, connected).connect(to.parse().unwrap()).unwrap();
        world.send_to(0, client, b"1", to);
        world.millis(10);
        assert_eq!(world.received(1, server), [(local, b"1".to_vec())]);
        assert!(world.hosts[0].stack.remove_address(iface, prefix.address()));
        let gone = Err(SendError::Unreachable(Unreachable::NotOurs));
        assert_eq!(world.udp(0, client).send(b"2", Some(to.parse().unwrap())), gone);
        assert_eq!(world.udp(0, connected).send(b"2", None), gone);
        assert_eq!(world.udp(0, client).connect(to.parse().unwrap()), gone);
        world.secs(1);
        assert_eq!(world.received(1, server), []);
    }
}

/// As in Linux, where such a socket has no source address of its own (RFC 1122, 3.2.1.3 e).
#[test]
fn who_listens_to_everybody_on_a_network_sends_from_an_own_address() {
    let mut world = World::new(2, 1);
    let server = world.bound(1, "0.0.0.0:7");
    let client = world.bound(0, "10.0.0.255:9");
    world.send_to(0, client, b"1", "10.0.0.2:7");
    world.millis(10);
    assert_eq!(world.received(1, server), [("10.0.0.1:9".parse().unwrap(), b"1".to_vec())]);
    world.udp(0, client).connect("10.0.0.2:7".parse().unwrap()).unwrap();
    world.udp(0, client).send(b"2", None).unwrap();
    world.millis(10);
    assert_eq!(world.received(1, server), [("10.0.0.1:9".parse().unwrap(), b"2".to_vec())]);
}

/// As in Linux, where connect(2) gives a socket the address from which it sends only if it is bound to none: else it would come to the address of another one.
#[test]
fn who_is_bound_to_many_and_connects_hears_nothing_that_is_one_sockets() {
    for (many, server, partner) in [
        ("224.0.0.1:7", "10.0.0.1:7", "10.0.0.2:9"),
        ("10.0.0.255:7", "10.0.0.1:7", "10.0.0.2:9"),
        ("[ff02::7]:7", "[fd00::1]:7", "[fd00::2]:9"),
    ] {
        let mut world = World::new(2, 1);
        let server = world.bound(0, server);
        let other = world.bound(0, many);
        world.udp(0, other).connect(partner.parse().unwrap()).unwrap();
        assert_eq!(world.udp(0, other).local(), Some(many.parse().unwrap()));
        let client = world.bound(1, partner);
        let to = if partner.starts_with('[') { "[fd00::1]:7" } else { "10.0.0.1:7" };
        world.send_to(1, client, b"its", to);
        world.millis(10);
        assert_eq!(world.received(0, server), [(partner.parse().unwrap(), b"its".to_vec())], "{many}");
    }
}

/// As Linux has it for IPv6: another socket may be bound to that address and port there.
#[test]
fn who_is_bound_to_an_interface_sends_through_no_other_one() {
    let mut world = World::new(2, 1);
    let iface = world.hosts[0].iface;
    let id = world.hosts[0].stack.open_udp().unwrap();
    let mut udp = world.udp(0, id);
    let options = udp.options();
    udp.set_options(bypath_stack::socket::Options { iface: Some(IfaceId::LOOPBACK), ..options });
    udp.bind("[fd00::1]:7".parse().unwrap()).unwrap();
    let to = Some("[fd00::2]:7".parse().unwrap());
    let message = SendTo { to, iface: Some(iface), ..SendTo::default() };
    assert_eq!(udp.send_with(b"1", &message), Err(SendError::Interface));
}

/// An address may have gone since.
#[test]
fn a_packet_is_sent_from_no_address_but_an_own_one() {
    let mut world = World::new(2, 1);
    let id = world.hosts[0].stack.open_raw(bypath_wire::IpProtocol::ICMP).unwrap();
    let to = "10.0.0.2".parse().unwrap();
    for (source, sent) in [
        ("10.0.0.1", Ok(())),
        ("10.0.0.9", Err(SendError::Unreachable(Unreachable::NotOurs))),
        ("127.0.0.1", Err(SendError::Unreachable(Unreachable::Source))),
    ] {
        let mut raw = world.raw(0, id);
        raw.bind(Some(source.parse().unwrap()));
        assert_eq!(raw.send(&[8, 0, 0xf7, 0xff, 0, 0, 0, 0], to, None), sent, "{source}");
    }
}

/// RFC 1122, 3.2.1.3 g; RFC 4291, 2.5.3.
#[test]
fn loopback_addresses_leave_on_no_link() {
    let mut world = World::new(2, 1);
    for (own, to) in [("127.0.0.1:9", "10.0.0.2:7"), ("[::1]:9", "[fd00::2]:7")] {
        let client = world.bound(0, own);
        let sent = world.udp(0, client).send(b"1", Some(to.parse().unwrap()));
        assert!(sent.is_err(), "{own}");
        assert!(world.udp(0, client).connect(to.parse().unwrap()).is_err(), "{own}");
        world.secs(1);
    }
    for (_, frame) in &world.trace {
        assert!(frame.len() < 42 || frame[26..30] != [127, 0, 0, 1], "{frame:?}");
    }
}
