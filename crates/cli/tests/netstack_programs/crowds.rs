//! Many connections at once, busy ones and idle ones.

use crate::lab::{Lab, ROLES, Side, have, script};
use crate::network::{LONG, Tool, skip};
use rustix::process::{Resource, Signal, getrlimit};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Idle connections of each program.
const IDLE: u64 = 5000;
/// KiB that a service may keep of what it once had.
const KEPT: u64 = 24 << 10;

/// Waits until the service's memory is what it was at first, but for a bounded part.
#[track_caller]
fn gives_back(lab: &Lab, first: u64) {
    let end = Instant::now() + LONG;
    while lab.memory() > first + KEPT {
        assert!(Instant::now() < end, "{} KiB of memory, {first} at first", lab.memory());
        std::thread::yield_now();
    }
}

isolated! {
    fn a_thousand_connections_at_once_in_both_roles() {
        if !have("crowds::a_thousand_connections_at_once_in_both_roles", &["python3"]) {
            return;
        }
        let lab = Lab::new("");
        let (crowd, first, descriptors) = (script("crowd.py"), lab.memory(), lab.descriptors());
        for (server, client) in ROLES {
            let served = lab.start(server, &["python3", &crowd, "server", server.address(), "7000"]).hears("listening");
            let line = ["python3", &crowd, "client", server.address(), "7000", "1000", "20000"];
            lab.start(client, &line).hears("good 1000").quiet().end().expect(0);
            let served = served.hears("open 1000");
            served.signal(Signal::TERM);
            served.end().expect(0);
        }
        lab.is_empty();
        lab.has_descriptors(descriptors);
        gives_back(&lab, first);
        lab.end();
    }
}

isolated! {
    fn ten_thousand_idle_connections() {
        const NAME: &str = "crowds::ten_thousand_idle_connections";
        if !have(NAME, &["python3"]) {
            return;
        }
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        if most < 2 * IDLE + 500 {
            return skip(NAME, &format!("a process may have {most} descriptors at most (RLIMIT_NOFILE)"));
        }
        let lab = Lab::new("[limits]\nsockets-per-user = 20000\n");
        let (crowd, first, descriptors) = (script("crowd.py"), lab.memory(), lab.descriptors());
        let count = IDLE.to_string();
        let all: Vec<(Tool, Tool)> = ROLES
            .map(|(server, client)| {
                let served = lab.start(server, &["python3", &crowd, "server", server.address(), "7000"]).hears("listening");
                let line = ["python3", &crowd, "client", server.address(), "7000", &count, "1"];
                (served, lab.start(client, &line).hears(&format!("good {count}")))
            })
            .into();
        let service = lab.told(&["stats"]).remove(0);
        assert!(service["sockets"].as_u64() > Some(2 * IDLE), "{service}");
        let full = lab.memory();
        println!("{} KiB with {} idle connections, {first} at first", full, 2 * IDLE);
        assert!(full < first + 2 * IDLE * 24, "{full} KiB of memory, {first} at first");
        // Who comes now is served as ever.
        let one_more = || {
            let begun = Instant::now();
            let mut one = TcpStream::connect((Side::Stack.address(), 7000)).expect("a connection");
            one.write_all(b"x").expect("room");
            one.read_exact(&mut [0]).expect("an echo");
            begun.elapsed()
        };
        let took = lab.there.run(|| (0..20).map(|_| one_more()).min().expect("some")).expect("the other host");
        assert!(took < Duration::from_millis(100), "{took:?}");

        for (served, client) in all {
            client.quiet().end().expect(0);
            let served = served.hears("open ");
            served.signal(Signal::TERM);
            served.end().expect(0);
        }
        lab.is_empty();
        lab.has_descriptors(descriptors);
        gives_back(&lab, first);
        lab.end();
    }
}
