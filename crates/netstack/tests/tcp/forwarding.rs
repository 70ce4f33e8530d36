//! Connections to others, over a cable between two hosts of our own.

use crate::{LONGEST, at, octets};
use bypath_link::pair::pair;
use bypath_netstack::{Engine, Host, TcpForwarder, TcpStream};
use bypath_stack::config::Config;
use bypath_stack::prefix::Prefix;
use bypath_stack::route::Route;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

/// Who calls anybody, and who is anybody.
pub fn hosts() -> (Host, Host) {
    let (a, b) = pair(1500, 256);
    let with = |link, address: &str, other: &str, seed| {
        let mut engine = Engine::with_seed(Config::default(), [seed; 32]);
        let iface = engine.add_link("cable", Box::new(link)).expect("an interface");
        let prefix = address.parse().expect("an address");
        engine.stack().add_address(Engine::now(), iface, prefix).expect("an address");
        let via = Some(other.parse().expect("an address"));
        let route = Route { prefix: Prefix::ALL_V4, iface, via, metric: 0, source: None };
        engine.stack().add_route(route).expect("a route");
        Host::run(engine).expect("a thread")
    };
    (with(a, "10.0.0.1/24", "10.0.0.2", 1), with(b, "10.0.0.2/24", "10.0.0.1", 2))
}

#[test]
fn a_call_to_anybody_is_accepted_or_refused() {
    let (a, b) = hosts();
    let forwarder = TcpForwarder::open(&b).expect("a forwarder");
    forwarder.set_timeout(Some(LONGEST));
    assert_eq!(TcpForwarder::open(&b).expect_err("there is one").kind(), ErrorKind::AddrInUse);
    let content = &octets(100_000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..20 {
                let call = forwarder.accept().expect("a call");
                assert!(format!("{call:?}").contains("198.51.100."), "{call:?}");
                if call.to().port() != 80 {
                    if n % 2 == 0 {
                        call.refuse()
                    } else {
                        drop(call)
                    }
                    continue;
                }
                assert_eq!(call.from().ip(), at("10.0.0.1:0").ip());
                let to = call.to();
                let mut stream = call.accept().expect("a connection");
                assert_eq!(stream.local_addr().expect("an address"), to);
                std::io::copy(&mut stream.try_clone().expect("a clone"), &mut stream).expect("octets");
            }
        });
        for n in 1..=10 {
            let to = at(&format!("198.51.100.{n}:80"));
            let mut stream = TcpStream::connect_timeout(&a, to, LONGEST).expect("a connection");
            assert_eq!(stream.peer_addr().expect("an address"), to);
            let mut writer = stream.try_clone().expect("a clone");
            scope.spawn(move || {
                writer.write_all(content).expect("written");
                writer.shutdown(Shutdown::Write).expect("a connection");
            });
            let mut all = Vec::new();
            stream.read_to_end(&mut all).expect("octets");
            assert!(all == *content);
            let to = at(&format!("198.51.100.{n}:81"));
            let refused = TcpStream::connect_timeout(&a, to, LONGEST).expect_err("it is refused");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        }
    });
    // Whoever was not answered is refused when the forwarder goes; afterwards nobody is there.
    let waits = TcpStream::begin_connect(&a, at("198.51.100.1:80"), None, |_, _| {}).expect("a call");
    waits.set_timeout(Some(Duration::from_millis(100)));
    assert_eq!(waits.finish_connect().expect_err("nobody answers").kind(), ErrorKind::TimedOut);
    drop(forwarder);
    waits.set_timeout(Some(LONGEST));
    assert_eq!(waits.finish_connect().expect_err("it is refused").kind(), ErrorKind::ConnectionRefused);
    drop(TcpForwarder::open(&b).expect("another one"));
}
