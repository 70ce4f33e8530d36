//! Messages that make no sense, in any number: the service goes on, and holds nothing for who sent them.

use crate::{Program, Running, at, isolated, kernels};
use bypath_shm::service::{Address, Header, MESSAGE, Op};
use nix::poll::PollFlags;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::os::fd::AsFd;

/// Bodies of all lengths, and such that begin as one of the questions does.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let noise = proptest::collection::vec(any::<u8>(), 0..200);
    let small = proptest::sample::select(vec![-1i32, 0, 1, 2, 6, 10, 13, 41, 4096, i32::MAX, i32::MIN]);
    let numbers = proptest::collection::vec(small, 0..12)
        .prop_map(|all| all.into_iter().flat_map(i32::to_ne_bytes).collect::<Vec<u8>>());
    let addresses =
        proptest::sample::select(vec!["10.9.0.1:9", "[fd09::1]:9", "0.0.0.0:0", "255.255.255.255:1"])
            .prop_map(|text| Address(Some(at(text))).encode().to_vec());
    let what = ["service", "sockets", "stats", "addresses", "routes", "neighbors", "links", "x"];
    let query = proptest::sample::select(what.to_vec())
        .prop_map(|what| serde_json::json!({ "what": what }).to_string().into_bytes());
    let body = prop_oneof![noise.clone(), numbers, addresses, query];
    let formed = (0u32..16, any::<u32>(), body).prop_map(|(op, serial, body)| {
        let header =
            Header { op: Op::from_number(op).unwrap_or(Op::Hello), serial, socket: u64::MAX, errno: 0 };
        let mut octets = header.encode().to_vec();
        octets[..4].copy_from_slice(&op.to_ne_bytes());
        [octets, body].concat()
    });
    prop_oneof![1 => noise, 8 => formed]
}

isolated! {
    fn messages_that_make_no_sense_do_no_harm() {
        let running = Running::new();
        let cases = Config { cases: 300, failure_persistence: None, ..Config::default() };
        let all = proptest::collection::vec(message(), 1..20);
        let mut runner = TestRunner::new(cases);
        runner
            .run(&all, |messages| {
                let program = Program::new(&running.path);
                let socket = program.open(false).ok();
                let cookie = socket.as_ref().map_or(0, |socket| socket.cookie);
                for mut message in messages {
                    // Of the socket that there is.
                    if let Some(place) = message.get_mut(8..16).filter(|place| place.iter().all(|o| *o == 255)) {
                        place.copy_from_slice(&cookie.to_ne_bytes());
                    }
                    if program.say(&message).is_err() {
                        break;
                    }
                }
                Ok(())
            })
            .expect("nothing to fail");
        let program = running.program();
        let (listener, to) = kernels("10.9.0.1:0");
        let own = program.connect(to);
        drop((own, listener));
        running.has_sockets(0);
    }
}

isolated! {
    fn who_makes_no_sense_or_does_not_read_is_left() {
        let running = Running::new();
        let header = |op| Header { op, serial: 1, socket: 0, errno: 0 }.encode().to_vec();
        let nonsense: [(&str, Vec<u8>); 5] = [
            ("shorter than a header", vec![1; 10]),
            ("no question", vec![0xff; 64]),
            ("longer than a message", [header(Op::Hello), vec![0; MESSAGE]].concat()),
            ("a body that is too short", header(Op::Open)),
            ("a query of nothing", [header(Op::Query), b"{}".to_vec()].concat()),
        ];
        for (name, message) in nonsense {
            let program = running.program();
            program.say(&message).expect("a service");
            assert!(program.hear().is_none(), "{name}");
        }
        // Answers that nobody reads: the service leaves, and does not wait.
        let program = running.program();
        let question = [header(Op::Hello), 1u32.to_ne_bytes().to_vec()].concat();
        let mut asked = 0;
        loop {
            match program.say(&question) {
                Ok(()) => asked += 1,
                Err(bypath_sys::Errno::AGAIN) => std::thread::yield_now(),
                Err(_) => break,
            }
            assert!(asked < 1_000_000, "the service answers for ever");
        }
        assert_eq!(running.query("service").len(), 1);
    }
}

isolated! {
    fn octets_where_none_are_expected_do_no_harm() {
        use std::io::Write;
        let running = Running::new();
        let program = running.program();
        // Of one that is not connected, and of one that listens.
        let fresh = program.open(false).expect("a socket");
        let (listener, to) = program.listener(at("10.9.0.2:0"));
        for socket in [&fresh, &listener] {
            socket.stream.set_nonblocking(true).expect("a socket");
            while (&socket.stream).write(&[1; 4096]).is_ok() {}
        }
        let _kernel = std::net::TcpStream::connect(to).expect("a connection");
        listener.stream.set_nonblocking(false).expect("a socket");
        let (own, _) = listener.accept();
        assert_eq!(own.ready(PollFlags::POLLOUT, 0), PollFlags::POLLOUT);
        // Connected after all: what was written before is what it is.
        assert_eq!(bypath_sys::pair::receive(fresh.stream.as_fd(), &mut [0; 1]), Err(bypath_sys::Errno::AGAIN));
    }
}
