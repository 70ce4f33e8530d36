//! Octets both ways, in both roles.

use crate::program::Sock;
use crate::{Running, at, isolated, kernels, octets, patient};
use bypath_shm::service::{FOLLOWED, LEVEL};
use bypath_stack::config::Config;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Writes so many octets and an end.
fn give(mut to: impl Write, octets: &[u8]) {
    to.write_all(octets).expect("written");
}

fn take(mut from: impl Read, expected: &[u8]) {
    let mut got = Vec::new();
    from.read_to_end(&mut got).expect("an end");
    assert_eq!(got.len(), expected.len());
    assert!(got == expected);
}

/// The same octets both ways at once, then the ends.
fn exchange(own: &UnixStream, kernel: &TcpStream, len: usize) {
    let all = octets(len);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            give(own, &all);
            own.shutdown(Shutdown::Write).expect("an end");
        });
        scope.spawn(|| {
            give(kernel, &all);
            kernel.shutdown(Shutdown::Write).expect("an end");
        });
        scope.spawn(|| take(own, &all));
        take(kernel, &all);
    });
}

fn pair<'a>(program: &'a crate::Program, v6: bool, calls: bool) -> (Sock<'a>, TcpStream) {
    let (own, kernel) = if v6 { ("[fd09::2]:0", "[fd09::1]:0") } else { ("10.9.0.2:0", "10.9.0.1:0") };
    if calls {
        let (listener, to) = kernels(kernel);
        let own = program.connect(to);
        (own, patient(listener.accept().expect("a connection").0))
    } else {
        let (listener, to) = program.listener(at(own));
        let kernel = patient(TcpStream::connect(to).expect("a connection"));
        (listener.accept().0, kernel)
    }
}

isolated! {
    fn streams_go_both_ways_in_both_roles() {
        let running = Running::new();
        let program = running.program();
        for (v6, calls) in [(false, false), (false, true), (true, false), (true, true)] {
            for len in [0, 1, 1000, 8_000_000] {
                let (own, kernel) = pair(&program, v6, calls);
                let (local, remote, state) = own.names();
                assert_eq!((local, remote), (kernel.peer_addr().ok(), kernel.local_addr().ok()));
                assert_eq!(state, 1);
                exchange(&own.stream, &kernel, len);
            }
        }
        running.has_sockets(0);
    }
}

isolated! {
    fn octets_that_others_follow_wait_for_them() {
        let running = Running::new();
        let program = running.program();
        let (own, kernel) = pair(&program, false, true);
        let on = 1i32.to_ne_bytes();
        assert_eq!(own.set(libc::IPPROTO_TCP, libc::TCP_NODELAY, &on), 0);
        let followed = |octets: u32| own.set(LEVEL, FOLLOWED, &octets.to_ne_bytes());
        let read = |most: usize| {
            let mut room = vec![0; most];
            let n = (&kernel).read(&mut room).expect("octets");
            room.truncate(n);
            room
        };
        // All in one segment, however often the service looks in between.
        assert_eq!(followed(5), 0);
        (&own.stream).write_all(b"first").expect("written");
        assert_eq!(followed(6), 0);
        (&own.stream).write_all(b"second").expect("written");
        assert_eq!(own.names().2, 1);
        (&own.stream).write_all(b"third").expect("written");
        assert_eq!(read(100), b"firstsecondthird");
        // What is not followed goes at once, and what was before it.
        (&own.stream).write_all(b"fourth").expect("written");
        assert_eq!(read(100), b"fourth");
        // Nobody waits for ever.
        let begin = Instant::now();
        assert_eq!(followed(5), 0);
        (&own.stream).write_all(b"fifth").expect("written");
        assert_eq!(read(100), b"fifth");
        assert!(begin.elapsed() > Duration::from_millis(100), "{:?}", begin.elapsed());
        // An end waits for nothing.
        assert_eq!(followed(5), 0);
        (&own.stream).write_all(b"sixth").expect("written");
        own.stream.shutdown(Shutdown::Write).expect("an end");
        take(&kernel, b"sixth");
        let (listener, _) = program.listener(at("10.9.0.2:0"));
        assert_eq!(listener.set(LEVEL, FOLLOWED, &on), libc::ENOTCONN);
        assert_eq!(listener.set(LEVEL, FOLLOWED, &on[..3]), libc::EINVAL);
        assert_eq!(listener.set(LEVEL, 99, &on), libc::ENOPROTOOPT);
    }
}

isolated! {
    fn a_reader_that_does_not_read_stops_the_writer_and_others_go_on() {
        let running = Running::new();
        let program = running.program();
        let (slow, kernel) = pair(&program, false, false);
        kernel.set_nonblocking(true).expect("a socket");
        let piece = octets(100_000);
        let mut written = 0;
        // Until nothing is taken any more for a while: the windows are shut.
        let mut quiet = 0;
        while quiet < 20 {
            match (&kernel).write(&piece) {
                Ok(n) => (written, quiet) = (written + n, 0),
                Err(e) => {
                    assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock);
                    let (other, others) = pair(&program, false, true);
                    exchange(&other.stream, &others, 10_000);
                    quiet += 1;
                }
            }
            assert!(written < 64 << 20, "nothing stops the writer");
        }
        kernel.set_nonblocking(false).expect("a socket");
        kernel.shutdown(Shutdown::Write).expect("an end");
        let mut got = Vec::new();
        (&slow.stream).read_to_end(&mut got).expect("an end");
        assert_eq!(got.len(), written);
    }
}

isolated! {
    fn short_messages_come_at_once_and_one_by_one() {
        short_messages(Running::new());
    }
}

isolated! {
    fn short_messages_come_to_a_service_that_looks_for_them() {
        short_messages(Running::with(|settings| settings.busy_poll = Duration::from_micros(200), Config::default()));
    }
}

fn short_messages(running: Running) {
    let program = running.program();
    let (own, mut kernel) = pair(&program, false, true);
    assert_eq!(own.set(libc::IPPROTO_TCP, libc::TCP_NODELAY, &1i32.to_ne_bytes()), 0);
    kernel.set_nodelay(true).expect("an option");
    let mut stream = &own.stream;
    for n in 0..500u32 {
        stream.write_all(&n.to_ne_bytes()).expect("written");
        let mut room = [0; 4];
        kernel.read_exact(&mut room).expect("octets");
        assert_eq!(u32::from_ne_bytes(room), n);
        kernel.write_all(&room).expect("written");
        stream.read_exact(&mut room).expect("octets");
        assert_eq!(u32::from_ne_bytes(room), n);
    }
}

isolated! {
    fn a_thousand_connections_at_once() {
        let running = Running::new();
        let program = running.program();
        let (listener, to) = program.listener(at("10.9.0.2:0"));
        let (theirs, there) = kernels("10.9.0.1:0");
        let mut all = Vec::new();
        for n in 0..1000 {
            if n % 2 == 0 {
                let kernel = patient(TcpStream::connect(to).expect("a connection"));
                all.push((listener.accept().0, kernel));
            } else {
                let own = program.connect(there);
                all.push((own, patient(theirs.accept().expect("a connection").0)));
            }
        }
        assert_eq!(running.query("sockets").len(), 1001);
        for (n, (own, kernel)) in all.iter().enumerate() {
            let text = n.to_string();
            (&own.stream).write_all(text.as_bytes()).expect("written");
            { kernel }.write_all(text.as_bytes()).expect("written");
        }
        for (n, (own, kernel)) in all.iter().enumerate() {
            own.stream.shutdown(Shutdown::Write).expect("an end");
            kernel.shutdown(Shutdown::Write).expect("an end");
            take(&own.stream, n.to_string().as_bytes());
            take(kernel, n.to_string().as_bytes());
        }
        drop((all, listener));
        running.has_sockets(0);
    }
}
