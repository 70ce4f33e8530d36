//! What the service does for who asks beside its sockets: changes, echo requests, captures.

use crate::{LONGEST, Running, at, isolated, kernels, patient};
use bypath_link::pcapng::reader::{Block, Frame};
use bypath_link::pcapng::{Direction, Reader};
use bypath_netstack::service::{CaptureStream, Change, Client, QueryError, query_within};
use bypath_netstack::{Filter, Ping, PingCounts, PingEvent, TapCounts};
use bypath_stack::config::Config;
use bypath_sys::netns;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Whether the stack refuses connections to this address, as it does to its own.
fn is_there(address: &str) -> bool {
    let to = std::net::SocketAddr::new(ip(address), 9);
    let refused = TcpStream::connect_timeout(&to, Duration::from_millis(300)).expect_err("nobody listens");
    refused.kind() == std::io::ErrorKind::ConnectionRefused
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, QueryError>) -> (i32, String) {
    match result {
        Err(QueryError::Refused { errno, why, .. }) => (errno, why),
        other => panic!("{other:?}"),
    }
}

isolated! {
    fn addresses_routes_and_neighbours_are_changed() {
        let running = Running::new();
        let client = Client::at(&running.path);
        assert!(is_there("10.9.0.2") && !is_there("10.9.0.3"));
        let add = |address: &str| {
            client.change(Change::AddAddress { address: address.to_owned(), interface: None, claim: false })
        };
        assert_eq!(add("10.9.0.3/24").expect("done"), "10.9.0.3/24 added");
        assert!(is_there("10.9.0.3"));
        assert_eq!(refused(add("10.9.0.3/24")).0, libc::EEXIST);
        assert_eq!(refused(add("10.9.0.4")).0, libc::EINVAL);
        assert_eq!(refused(add("224.0.0.1/24")).0, libc::EINVAL);
        for (wrong, words) in [("10.9.0.0/24", "but the network's; give one of it, such as 10.9.0.1/24"), ("10.9.0.255/24", "(broadcast)")] {
            let (errno, why) = refused(add(wrong));
            assert!(errno == libc::EINVAL && why.starts_with(wrong) && why.contains(words), "{why}");
        }
        // The kernel would answer for it, and neither would hear the other one.
        for (kernels, on) in [("10.9.0.1/24", "mine"), ("fd09::1/64", "mine"), ("127.0.0.1/32", "lo")] {
            let (errno, why) = refused(add(kernels));
            assert_eq!(errno, libc::EADDRINUSE);
            assert!(why.contains(&format!("{kernels}: the kernel has that address on {on}; give the stack one")), "{why}");
        }
        let remove = |interface: Option<&str>| {
            let interface = interface.map(str::to_owned);
            client.change(Change::RemoveAddress { address: ip("10.9.0.3"), interface })
        };
        let (errno, why) = refused(remove(Some("eth7")));
        assert_eq!((errno, why.as_str()), (libc::ENODEV, "eth7: no such interface of the service; there are: lo, mine"));
        remove(Some("mine")).expect("done");
        assert_eq!(refused(remove(None)).0, libc::EADDRNOTAVAIL);
        // Nothing of it is left in the kernel's memory of neighbours, either.
        assert!(!is_there("10.9.0.3"));

        let way = |to: &str, via: Option<&str>| Change::AddRoute {
            to: to.to_owned(), via: via.map(ip), interface: None, metric: 7,
        };
        client.change(way("default", Some("10.9.0.1"))).expect("done");
        client.change(way("192.0.2.99/24", Some("10.9.0.1"))).expect("done");
        assert_eq!(refused(client.change(way("default", Some("10.9.0.1")))).0, libc::EEXIST);
        assert_eq!(refused(client.change(way("10.1.0.0/16", Some("10.9.0.2")))).0, libc::EINVAL);
        assert_eq!(refused(client.change(way("home", None))).0, libc::EINVAL);
        for far in ["10.8.0.1", "fd08::1"] {
            let (errno, why) = refused(client.change(way("198.51.100.0/24", Some(far))));
            assert!(errno == libc::ENETUNREACH && why.contains("in no network of the stack's addresses on mine; give one that is on the link"), "{why}");
        }
        // A way to a network on the link makes its routers near, and link-local ones always are.
        client.change(way("10.8.0.0/24", None)).expect("done");
        client.change(way("198.51.100.0/24", Some("10.8.0.1"))).expect("done");
        client.change(way("fd08::/64", Some("fe80::1"))).expect("done");
        let routes = client.routes().expect("rows");
        let has = |to: &str| routes.iter().any(|r| r.destination == to && r.via == Some(ip("10.9.0.1")) && r.metric == 7);
        assert!(has("0.0.0.0/0") && has("192.0.2.0/24"), "{routes:?}");
        let gone = |to: &str, via: Option<&str>| Change::RemoveRoute { to: to.to_owned(), via: via.map(ip), interface: None };
        assert_eq!(refused(client.change(gone("default", Some("10.9.0.9")))).0, libc::ESRCH);
        client.change(gone("default", None)).expect("done");
        assert!(!client.routes().expect("rows").iter().any(|r| r.destination == "0.0.0.0/0"));

        let flush = |address: Option<&str>| client.change(Change::FlushNeighbors { address: address.map(ip), interface: None });
        assert!(client.neighbors().expect("rows").iter().any(|n| n.address == ip("10.9.0.1")));
        flush(Some("10.9.0.1")).expect("done");
        assert!(!client.neighbors().expect("rows").iter().any(|n| n.address == ip("10.9.0.1")));
        assert_eq!(refused(flush(Some("10.9.0.1"))).0, libc::ESRCH);
        flush(None).expect("done");
        // They are asked for again.
        assert!(is_there("10.9.0.2"));
    }
}

isolated! {
    fn an_address_that_is_claimed_is_there_when_it_is_said_to_be() {
        let running = Running::with(|_| {}, Config { acd_probes: 1, ..Config::default() });
        let client = Client::at(&running.path);
        let claim = |address: &str| {
            client.change(Change::AddAddress { address: address.to_owned(), interface: None, claim: true })
        };
        let state = |address: &str| client.addresses().expect("rows").iter().find(|a| a.address == address).map(|a| a.state.clone());
        assert_eq!(claim("10.9.0.3/24").expect("done"), "10.9.0.3/24 added");
        assert_eq!(state("10.9.0.3/24").as_deref(), Some("preferred"));
        assert_eq!(refused(claim("10.9.0.3/24")).0, libc::EEXIST);
        assert_eq!(claim("fd09::3/64").expect("done"), "fd09::3/64 added");
        assert_eq!(state("fd09::3/64").as_deref(), Some("preferred"));
        // Who goes before it is known leaves no address behind.
        std::thread::scope(|threads| {
            let asks = threads.spawn(|| {
                let question = r#"{"what":"change","change":"add-address","address":"10.9.0.4/24","claim":true}"#;
                query_within(&running.path, question, Duration::from_millis(100), |_| {})
            });
            let ended = asks.join().expect("no panic");
            assert!(matches!(ended, Err(QueryError::Silent { pid: Some(pid), .. }) if pid == std::process::id()), "{ended:?}");
        });
        let end = Instant::now() + LONGEST;
        while state("10.9.0.4/24").is_some() {
            assert!(Instant::now() < end);
        }
        // What somebody takes away meanwhile was not added.
        std::thread::scope(|threads| {
            let claims = threads.spawn(|| claim("10.9.0.5/24"));
            while state("10.9.0.5/24").is_none() {}
            client.change(Change::RemoveAddress { address: ip("10.9.0.5"), interface: None }).expect("done");
            assert_eq!(refused(claims.join().expect("no panic")).0, libc::EADDRNOTAVAIL);
        });
    }
}

/// All that happens.
fn events(client: &Client, ping: Ping) -> Result<Vec<PingEvent>, QueryError> {
    let mut pings = client.ping(ping)?;
    let mut all = Vec::new();
    while let Some(event) = pings.event()? {
        all.push(event);
    }
    Ok(all)
}

isolated! {
    fn the_service_asks_for_answers() {
        let running = Running::new();
        let client = Client::at(&running.path);
        for to in ["10.9.0.1", "fd09::1"] {
            let ping = Ping { count: 5, interval_ns: 1_000_000, octets: 3000, ..Ping::to(ip(to)) };
            let all = events(&client, ping).expect("events");
            let counts = PingCounts { sent: 5, received: 5, ..PingCounts::default() };
            assert_eq!((all.len(), all.last()), (6, Some(&PingEvent::Ended(counts))), "{all:?}");
            assert!(all[..5].iter().all(|e| matches!(e, PingEvent::Answered { from, round_trip_ns, .. } if *from == ip(to) && *round_trip_ns > 0)));
        }
        // Whom a question for the hardware address finds nobody for.
        client.change(Change::AddRoute { to: "192.0.2.0/24".to_owned(), via: Some(ip("10.9.0.68")), interface: None, metric: 0 }).expect("done");
        for (to, neighbor) in [("10.9.0.67", "10.9.0.67"), ("192.0.2.1", "10.9.0.68"), ("fd09::67", "fd09::67")] {
            let nobody = Ping { count: 1, timeout_ns: 100_000_000, ..Ping::to(ip(to)) };
            let lost = PingCounts { sent: 1, lost: 1, ..PingCounts::default() };
            let all = events(&client, nobody).expect("events");
            assert_eq!(all, [PingEvent::Silent { neighbor: ip(neighbor) }, PingEvent::Ended(lost)], "{to}");
        }
        client.change(Change::RemoveRoute { to: "192.0.2.0/24".to_owned(), via: None, interface: None }).expect("done");
        // Nobody is there; who has heard enough is told how far it came.
        let silent = Ping { count: 2, interval_ns: 0, timeout_ns: 100_000_000, ..Ping::to(ip("10.9.0.66")) };
        let lost = PingCounts { sent: 2, lost: 2, ..PingCounts::default() };
        assert_eq!(events(&client, silent).expect("events").last(), Some(&PingEvent::Ended(lost)));
        let mut pings = client.ping(Ping { count: 65_535, ..Ping::to(ip("10.9.0.1")) }).expect("a question");
        assert!(matches!(pings.event(), Ok(Some(PingEvent::Answered { number: 0, .. }))));
        pings.stop();
        let ended = pings.event().expect("an event");
        assert!(matches!(ended, Some(PingEvent::Ended(PingCounts { received: 1, .. }))), "{ended:?}");
        assert_eq!(pings.event().expect("the end"), None);
        drop(pings);
        assert_eq!(refused(events(&client, Ping::to(ip("192.0.2.1")))).0, libc::ENETUNREACH);
        assert_eq!(refused(events(&client, Ping { octets: 7, ..Ping::to(ip("10.9.0.1")) })).0, libc::EINVAL);
        // Who goes leaves nothing behind.
        drop(client.ping(Ping { count: 65_535, ..Ping::to(ip("10.9.0.1")) }).expect("a question"));
        let end = Instant::now() + LONGEST;
        while client.service().expect("a row").processes > 1 {
            assert!(Instant::now() < end);
        }
    }
}

/// Everything up to the end, and what was counted.
fn all_of(capture: CaptureStream) -> (Vec<Frame>, TapCounts) {
    let mut file = Vec::new();
    capture.octets().read_to_end(&mut file).expect("octets");
    let blocks = Reader::new(&file[..]).all().expect("a capture");
    let frames =
        blocks.into_iter().filter_map(|b| if let Block::Frame(f) = b { Some(f) } else { None }).collect();
    (frames, capture.counts().expect("counts"))
}

isolated! {
    fn frames_are_captured_while_programs_use_the_service() {
        let running = Running::new();
        let client = Client::at(&running.path);
        let everything = client.capture(None, None, None, Filter::default()).expect("a capture");
        let (theirs, to) = kernels("10.9.0.1:0");
        let port = Some(to.port());
        let chosen = client.capture(Some("mine"), None, Some(60), Filter { port, ..Filter::default() }).expect("a capture");
        let three = client.capture(None, Some(3), None, Filter { protocol: Some(6), ..Filter::default() }).expect("a capture");
        let udp = Filter { protocol: Some(17), host: Some(ip("10.9.0.1")), ..Filter::default() };
        let none = client.capture(None, None, None, udp).expect("a capture");
        let program = running.program();
        let own = program.connect(to);
        let mut far = patient(theirs.accept().expect("a connection").0);
        far.write_all(&[7; 5000]).expect("written");
        let mut got = vec![0; 5000];
        (&own.stream).read_exact(&mut got).expect("octets");
        (&own.stream).write_all(&got).expect("written");
        far.read_exact(&mut got).expect("octets");
        // It has ended by itself.
        let (frames, counts) = all_of(three);
        assert_eq!((frames.len(), counts.frames, counts.dropped), (3, 3, 0));
        for capture in [&everything, &chosen, &none] {
            capture.stop();
        }
        let (frames, counts) = all_of(everything);
        assert_eq!((frames.len() as u64, counts.dropped), (counts.frames, 0));
        assert!(frames.iter().any(|f| f.direction == Direction::In) && frames.iter().any(|f| f.direction == Direction::Out));
        // ARP was asked for, too.
        assert!(frames.iter().any(|f| f.bytes[12..14] == [8, 6]));
        let octets: u64 = frames.iter().map(|f| u64::from(f.original)).sum();
        assert!(octets > 10_000 && octets == counts.octets, "{octets} {counts:?}");
        let (frames, _) = all_of(chosen);
        assert!(frames.len() > 4 && frames.iter().all(|f| f.bytes.len() <= 60 && f.bytes[23] == 6));
        assert_eq!(all_of(none).0.len(), 0);
        let (errno, _) = refused(client.capture(Some("eth7"), None, None, Filter::default()).expect("a question").counts());
        assert_eq!(errno, libc::ENODEV);
    }
}

isolated! {
    fn who_does_not_read_loses_frames_and_holds_nobody_up() {
        let running = Running::with(|_| {}, Config::default());
        let client = Client::at(&running.path);
        let lazy = client.capture(None, None, None, Filter::default()).expect("a capture");
        let gone = client.capture(None, None, None, Filter::default()).expect("a capture");
        drop(gone);
        let kernel = UdpSocket::bind("10.9.0.1:0").expect("a socket");
        // Nobody listens there: what comes is captured, and answered a few times at most.
        netns::settle_addresses("mine", 5_000_000_000).expect("addresses");
        let end = Instant::now() + LONGEST;
        loop {
            for _ in 0..500 {
                kernel.send_to(&[7; 1400], at("10.9.0.2:7")).ok();
            }
            let came = client.links().expect("rows")[0].received_octets;
            if came > 24 << 20 {
                break;
            }
            assert!(Instant::now() < end, "{came}");
        }
        lazy.stop();
        let (frames, counts) = all_of(lazy);
        assert!(counts.dropped > 0 && frames.len() as u64 == counts.frames, "{counts:?}");
        let end = Instant::now() + LONGEST;
        while client.service().expect("a row").processes > 1 {
            assert!(Instant::now() < end);
        }
    }
}
