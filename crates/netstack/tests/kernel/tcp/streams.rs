//! Connections of every kind, and what calls say.

use super::{exchange, pair, piece, set};
use crate::{Config, LONGEST, Offloads, at, host, isolated};
use bypath_link::fault::{FaultInjector, Faults};
use bypath_link::tun::Device;
use bypath_netstack::{Engine, Host, TcpListener, TcpStream};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener as KernelListener, TcpStream as KernelStream};
use std::time::Duration;

isolated! {
    fn octets_go_both_ways_between_the_stack_and_the_kernel() {
        for offloads in [Offloads::ALL, Offloads::NONE] {
            let (host, _) = host(Config::default(), offloads);
            for (v6, ours_calls) in [(false, false), (false, true), (true, false), (true, true)] {
                let (own, kernel) = pair(&host, v6, ours_calls);
                exchange(&own, &kernel, 5_000_000);
                let statistics = own.statistics().expect("a connection");
                assert!(statistics.sack && statistics.timestamps && statistics.shifts.0 > 0, "{statistics:?}");
                assert_eq!(statistics.octets_received, 5_000_000);
            }
            drop(host);
        }
    }
}

isolated! {
    fn the_kernel_may_control_congestion_as_it_likes() {
        let (host, _) = host(Config::default(), Offloads::NONE);
        for algorithm in ["cubic", "reno", "bbr"] {
            if !set("tcp_congestion_control", algorithm) {
                eprintln!("the kernel has no {algorithm}");
                continue;
            }
            for ours_calls in [false, true] {
                let (own, kernel) = pair(&host, false, ours_calls);
                exchange(&own, &kernel, 2_000_000);
            }
        }
        for (name, value) in [("tcp_sack", "0"), ("tcp_timestamps", "0"), ("tcp_window_scaling", "0"), ("tcp_ecn", "1")] {
            assert!(set(name, value), "{name}");
            for ours_calls in [false, true] {
                let (own, kernel) = pair(&host, false, ours_calls);
                exchange(&own, &kernel, 2_000_000);
            }
        }
    }
}

isolated! {
    fn questions_are_answered_back_and_forth() {
        let (host, _) = host(Config::default(), Offloads::ALL);
        for ours_calls in [false, true] {
            let (own, mut kernel) = pair(&host, false, ours_calls);
            kernel.set_nodelay(true).expect("an option");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut room = [0; 100];
                    loop {
                        let n = own.recv(&mut room).expect("read");
                        if n == 0 {
                            break;
                        }
                        assert_eq!(own.send(&room[..n]).expect("written"), n);
                    }
                });
                let mut room = [0; 1];
                for n in 0..2000u32 {
                    kernel.write_all(&[n as u8]).expect("written");
                    kernel.read_exact(&mut room).expect("an answer");
                    assert_eq!(room[0], n as u8);
                }
                kernel.shutdown(Shutdown::Write).expect("a connection");
            });
        }
    }
}

isolated! {
    fn a_thousand_connections_at_once() {
        let (host, _) = host(Config::default(), Offloads::ALL);
        let listener = TcpListener::bind_with(&host, at("0.0.0.0:80"), 1000, |_, _| {}).expect("a listener");
        listener.set_timeout(Some(LONGEST));
        let kernels: Vec<_> = (0..1000).map(|_| KernelStream::connect(at("10.9.0.2:80")).expect("a connection")).collect();
        let owns: Vec<_> = (0..1000).map(|_| listener.accept().expect("a connection").0).collect();
        for (n, kernel) in kernels.iter().enumerate() {
            kernel.set_read_timeout(Some(LONGEST)).expect("a time-out");
            (&mut &*kernel).write_all(piece(n, 3000)).expect("written");
        }
        let by_port = |port: u16| kernels.iter().position(|k| k.local_addr().expect("an address").port() == port);
        let mut room = vec![0; 3000];
        for own in &owns {
            own.set_timeout(Some(LONGEST));
            let n = by_port(own.peer_addr().expect("an address").port()).expect("who called");
            (&mut &*own).read_exact(&mut room).expect("octets");
            assert!(room == *piece(n, 3000), "{n}");
            assert_eq!(own.send(&room).expect("written"), 3000);
        }
        for (n, kernel) in kernels.iter().enumerate() {
            (&mut &*kernel).read_exact(&mut room).expect("octets");
            assert!(room == *piece(n, 3000), "{n}");
        }
        assert_eq!(host.with(|engine| engine.stack().usage().connections), 1001);
        drop((kernels, owns));
        // And the other way round.
        let kernel = KernelListener::bind(at("10.9.0.1:81")).expect("a listener");
        let taken = std::thread::spawn(move || (0..1000).map(|_| kernel.accept().expect("a connection").0).collect::<Vec<_>>());
        let owns: Vec<_> = (0..1000).map(|_| TcpStream::connect(&host, at("10.9.0.1:81")).expect("a connection")).collect();
        let taken = taken.join().expect("all of them");
        for own in &owns {
            assert_eq!(own.send(b"hello").expect("written"), 5);
        }
        for mut one in taken {
            let mut room = [0; 5];
            one.set_read_timeout(Some(LONGEST)).expect("a time-out");
            one.read_exact(&mut room).expect("octets");
            assert_eq!(&room, b"hello");
        }
    }
}

isolated! {
    fn calls_wait_as_long_as_they_are_told_to_and_say_what_went_wrong() {
        let (host, _) = host(Config::default(), Offloads::ALL);
        let refused = TcpStream::connect(&host, at("10.9.0.1:99")).expect_err("nobody listens");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let nobody = TcpStream::connect(&host, at("10.9.0.77:99")).expect_err("nobody is there");
        assert_eq!(nobody.kind(), ErrorKind::HostUnreachable);
        let (own, kernel) = pair(&host, false, true);
        own.set_timeout(Some(Duration::ZERO));
        assert_eq!(own.recv(&mut [0]).expect_err("nothing came").kind(), ErrorKind::WouldBlock);
        own.set_timeout(Some(Duration::from_millis(30)));
        assert_eq!(own.recv(&mut [0]).expect_err("nothing came").kind(), ErrorKind::TimedOut);
        // Who does not read makes the other one wait.
        let full = loop {
            if let Err(e) = own.send(&[0; 100_000]) {
                break e;
            }
        };
        assert_eq!(full.kind(), ErrorKind::TimedOut);
        drop(kernel);
        own.set_timeout(Some(LONGEST));
        assert_eq!(own.recv(&mut [0]).expect_err("it was reset").kind(), ErrorKind::ConnectionReset);
        assert_eq!(own.send(b"?").expect_err("it is over").kind(), ErrorKind::BrokenPipe);
        let listener = TcpListener::bind(&host, at("0.0.0.0:80")).expect("a listener");
        let again = TcpListener::bind(&host, at("10.9.0.2:80")).expect_err("there is one");
        assert_eq!(again.kind(), ErrorKind::AddrInUse);
        listener.set_timeout(Some(Duration::from_millis(10)));
        assert_eq!(listener.accept().expect_err("nobody calls").kind(), ErrorKind::TimedOut);
        drop(listener);
        let refused = KernelStream::connect(at("10.9.0.2:80")).expect_err("nobody listens");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
}

isolated! {
    fn octets_survive_what_a_link_loses_and_doubles() {
        for seed in [1, 2] {
            let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
            let device = Device::tap("mine").address(ip("10.9.0.1"), 24).offloads(Offloads::NONE);
            let faults = Faults { loss: 0.02, duplication: 0.01, ..Faults::NONE };
            let clock = bypath_sys::clock::monotonic_ns as fn() -> u64;
            let link = FaultInjector::new(device.open().expect("a device"), faults, faults, seed, clock).expect("faults");
            let mut engine = Engine::new(Config::default());
            let iface = engine.add_link("mine", Box::new(link)).expect("an interface");
            let prefix = "10.9.0.2/24".parse().expect("an address");
            engine.stack().add_address(Engine::now(), iface, prefix).expect("an address");
            let host = Host::run(engine).expect("a thread");
            for ours_calls in [false, true] {
                let (own, kernel) = pair(&host, false, ours_calls);
                exchange(&own, &kernel, 400_000);
                assert!(own.statistics().expect("a connection").octets_again > 0);
            }
            drop(host);
        }
    }
}
