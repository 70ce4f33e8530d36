//! What is for others: the kernel's sockets talk to hosts that are not there, and the stack answers as they.

use crate::{Config, LONGEST, Offloads, at, isolated, kernels, octets, ours};
use bypath_link::tun::Device;
use bypath_netstack::{Engine, Host, TcpForwarder, UdpForwarder};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream as KernelStream};
use std::process::Command;
use std::time::Duration;

/// Networks of nobody here (RFC 5737, RFC 3849).
const OTHERS: [(&str, &str); 2] = [("198.51.100.0/24", "10.9.0.2"), ("2001:db8:5::/48", "fd09::2")];

/// A host on a device of either kind to which the kernel sends what is for others.
fn host(ethernet: bool, offloads: Offloads) -> Host {
    let builder = if ethernet { Device::tap("mine") } else { Device::tun("mine") };
    let v4 = ("10.9.0.1".parse().expect("an address"), 24);
    let v6 = ("fd09::1".parse().expect("an address"), 64);
    let device = builder.address(v4.0, v4.1).address(v6.0, v6.1).offloads(offloads).open().expect("a device");
    let mut engine = Engine::new(Config { dad_transmits: 0, ..Config::default() });
    let iface = engine.add_link("mine", Box::new(device)).expect("an interface");
    for address in ["10.9.0.2/24", "fd09::2/64", "fe80::2/64"] {
        let prefix = address.parse().expect("an address");
        engine.stack().add_address(Engine::now(), iface, prefix).expect("an address");
    }
    for (network, via) in OTHERS {
        let mut route = Command::new("ip");
        route.args(["route", "add", network, "dev", "mine"]);
        if ethernet {
            route.args(["via", via]);
        }
        assert!(route.status().expect("ip").success(), "{network}");
    }
    Host::run(engine).expect("a thread")
}

/// Answers every datagram with its octets backwards, as whom it was for, until one is empty.
fn backwards(forwarder: &UdpForwarder) -> Vec<(SocketAddr, SocketAddr, usize)> {
    let mut room = vec![0; 65_535];
    let mut seen = Vec::new();
    loop {
        let got = forwarder.recv(&mut room).expect("a datagram");
        if got.len == 0 {
            return seen;
        }
        seen.push((got.from, got.to, got.len));
        room[..got.len].reverse();
        forwarder.answer(&room[..got.len], got.to, got.from).expect("sent");
    }
}

isolated! {
    fn datagrams_to_anybody_are_answered_as_by_them() {
        if Command::new("ip").arg("-V").output().is_err() {
            return crate::namespace::skip("forward", "no ip (iproute2)");
        }
        for (ethernet, offloads) in
            [(false, Offloads::NONE), (false, Offloads::ALL), (true, Offloads::NONE), (true, Offloads::ALL)]
        {
            let host = host(ethernet, offloads);
            let forwarder = UdpForwarder::open(&host).expect("a forwarder");
            forwarder.set_timeout(Some(LONGEST));
            let second = UdpForwarder::open(&host).map(|_| ()).map_err(|e| e.kind());
            assert_eq!(second, Err(ErrorKind::AddrInUse));
            // What is ours stays ours.
            let own = ours(&host, "[::]:53");
            let answers = std::thread::spawn(move || backwards(&forwarder));
            let mut expected = Vec::new();
            let pairs = [
                ("10.9.0.1:4000", "198.51.100.7:53"),
                ("10.9.0.1:4000", "198.51.100.200:65535"),
                ("10.9.0.1:4001", "198.51.100.7:53"),
                ("[fd09::1]:4000", "[2001:db8:5::7]:53"),
                ("[fd09::1]:4000", "[2001:db8:5:6::8]:1"),
            ];
            for (from, to) in pairs {
                // A connected socket hears of nobody else.
                let client = kernels(from);
                client.connect(to).expect("a way");
                // The last one takes fragments: over IPv6 they are not for the forwarder.
                let lens = [1, 2, 100, 1400, if to.starts_with('[') { 1452 } else { 5000 }];
                for len in lens {
                    let content = octets(len);
                    client.send(&content).expect("sent");
                    let mut room = vec![0; 65_535];
                    let got = client.recv(&mut room).unwrap_or_else(|e| panic!("{from} {to} {len}: {e}"));
                    room[..got].reverse();
                    assert!(room[..got] == content, "{from} {to} {len}: {got} octets");
                    expected.push((at(from), at(to), len));
                }
            }
            for to in ["10.9.0.2:53", "[fd09::2]:53"] {
                kernels(if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" }).send_to(b"own", to).expect("sent");
                assert_eq!(own.receive(&mut [0; 9]).expect("a datagram").datagram.to, at(to));
            }
            // Many at once, from one call: each is one.
            let client = kernels("10.9.0.1:4002");
            client.connect("198.51.100.9:9").expect("a way");
            setsockopt(&client, sockopt::UdpGsoSegment, &1000).expect("an option");
            client.send(&octets(9500)).expect("sent");
            for n in 0..10 {
                let len = client.recv(&mut [0; 2000]).expect("an answer");
                assert_eq!(len, if n == 9 { 500 } else { 1000 });
                expected.push((at("10.9.0.1:4002"), at("198.51.100.9:9"), len));
            }
            kernels("10.9.0.1:4003").send_to(b"", "198.51.100.9:9").expect("sent");
            assert_eq!(answers.join().expect("the forwarder's thread"), expected);

            // It is closed: nobody answers, and another one may be opened.
            let client = kernels("10.9.0.1:4004");
            client.set_read_timeout(Some(Duration::from_millis(50))).expect("a time-out");
            client.send_to(b"?", "198.51.100.9:9").expect("sent");
            assert!(client.recv(&mut [0; 9]).is_err());
            drop(UdpForwarder::open(&host).expect("another one"));
        }
    }
}

isolated! {
    fn an_answer_that_cannot_go_is_told() {
        let host = crate::host(Config::default(), Offloads::NONE).0;
        let forwarder = UdpForwarder::open(&host).expect("a forwarder");
        let (as_who, nowhere) = (at("198.51.100.7:53"), at("203.0.113.1:9"));
        let kind = |from, to| forwarder.answer(b"x", from, to).map_err(|e| e.kind());
        assert_eq!(kind(as_who, nowhere), Err(ErrorKind::NetworkUnreachable));
        assert_eq!(kind(as_who, at("[fd09::1]:9")), Err(ErrorKind::InvalidInput));
        assert_eq!(kind(as_who, at("10.9.0.1:0")), Err(ErrorKind::InvalidInput));
        assert_eq!(kind(as_who, at("10.9.0.1:9")), Ok(1));
        let too_long = forwarder.answer(&[0; 65_508], as_who, at("10.9.0.1:9")).map_err(|e| e.kind());
        assert_eq!(too_long, Err(ErrorKind::InvalidInput));
        // An ordinary socket may not.
        let how = bypath_stack::SendTo {
            to: Some(at("10.9.0.1:9")),
            source: Some(as_who.ip()),
            ..bypath_stack::SendTo::default()
        };
        let ordinary = ours(&host, "[::]:0");
        assert_eq!(ordinary.send_with(b"x", &how).map_err(|e| e.kind()), Err(ErrorKind::AddrNotAvailable));
    }
}

isolated! {
    fn calls_to_anybody_wait_for_a_decision_however_long_it_takes() {
        if Command::new("ip").arg("-V").output().is_err() {
            return crate::namespace::skip("forward", "no ip (iproute2)");
        }
        for (ethernet, offloads) in [(false, Offloads::ALL), (true, Offloads::NONE)] {
            let host = host(ethernet, offloads);
            let forwarder = TcpForwarder::open(&host).expect("a forwarder");
            forwarder.set_timeout(Some(LONGEST));
            for to in ["198.51.100.7:80", "[2001:db8:5::7]:443"] {
                let content = octets(500_000);
                let calls = std::thread::spawn({
                    let content = content.clone();
                    move || {
                        let stream = KernelStream::connect(to).expect("a connection");
                        stream.set_read_timeout(Some(LONGEST)).expect("a time-out");
                        std::thread::scope(|scope| {
                            scope.spawn(|| {
                                (&stream).write_all(&content).expect("written");
                                stream.shutdown(Shutdown::Write).expect("a connection");
                            });
                            let mut all = Vec::new();
                            (&stream).read_to_end(&mut all).expect("octets");
                            assert!(all == content, "{} octets", all.len());
                        });
                    }
                });
                let call = forwarder.accept().expect("a call");
                assert_eq!(call.to(), at(to));
                // The kernel calls again, and hears nothing before it is accepted.
                let received = || host.with(|engine| engine.stack().counters().tcp_received);
                let (seen, end) = (received(), std::time::Instant::now() + LONGEST);
                while received() == seen {
                    assert!(std::time::Instant::now() < end, "nobody calls again");
                    std::thread::sleep(Duration::from_millis(20));
                }
                let stream = call.accept().expect("a connection");
                std::io::copy(&mut &stream, &mut &stream).expect("octets");
                stream.shutdown(Shutdown::Write).expect("a connection");
                calls.join().expect("the kernel's side");
                // And refused is refused, at once.
                let refused = std::thread::spawn(move || KernelStream::connect(to).map_err(|e| e.kind()));
                drop(forwarder.accept().expect("a call"));
                assert_eq!(refused.join().expect("a thread").expect_err("nobody"), ErrorKind::ConnectionRefused);
            }
        }
    }
}
