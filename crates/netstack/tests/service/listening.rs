//! Connections that others ask for.

use crate::program::accept;
use crate::{LONGEST, Running, at, isolated, patient};
use bypath_shm::service::Op;
use bypath_stack::config::Config;
use nix::poll::PollFlags;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

isolated! {
    fn a_listener_is_readable_while_there_is_a_connection() {
        let running = Running::new();
        let program = running.program();
        let (listener, to) = program.listener(at("0.0.0.0:0"));
        assert_eq!((listener.names().0, listener.names().2), (Some(to), 10));
        let both = PollFlags::POLLIN | PollFlags::POLLOUT;
        assert_eq!(listener.ready(both, 50), PollFlags::empty());
        let to = at(&format!("10.9.0.2:{}", to.port()));
        let kernel = patient(TcpStream::connect(to).expect("a connection"));
        assert_eq!(listener.ready(both, LONGEST.as_millis() as u16), PollFlags::POLLIN);
        let (own, record) = listener.accept();
        assert_eq!(record.local.0, Some(to));
        assert_eq!(record.remote.0, kernel.local_addr().ok());
        assert_eq!(own.names(), (record.local.0, record.remote.0, 1));
        assert_eq!(listener.ready(PollFlags::POLLIN, 50), PollFlags::empty());
        // Another backlog; what is connected does not listen.
        assert_eq!((listener.listen(1), own.listen(1)), (0, libc::EINVAL));
        assert_eq!(listener.ready(both, 0), PollFlags::empty());
        // Who asks for it with another descriptor has his connection, and no listener.
        let backlog = 1i32.to_ne_bytes();
        let fresh = program.open(false).expect("a socket");
        let wrong = program.ask_with(Op::Listen, fresh.cookie, &backlog, Some(own.stream.as_fd()));
        assert_eq!((wrong.errno, fresh.names().2), (libc::EBADF, 7));
        // One that is shut has ended without an error.
        assert_eq!(listener.ask(Op::Shutdown, &libc::SHUT_RD.to_ne_bytes()).errno, 0);
        assert_eq!(listener.ready(both, LONGEST.as_millis() as u16), both | PollFlags::POLLHUP);
        assert!(accept(&listener.stream).is_none());
        assert_eq!(program.open(false).expect("a socket").bind(to), Err(libc::EADDRINUSE));
    }
}

isolated! {
    fn a_port_is_free_when_its_listener_was_closed() {
        let running = Running::new();
        let program = running.program();
        let (mut listener, to) = program.listener(at("10.9.0.2:0"));
        for n in 0..300 {
            // Others that end at the same time, and before.
            let others: Vec<_> = (0..n % 7).map(|_| program.socket(to)).collect();
            drop(others);
            drop(listener);
            let next = program.socket(to);
            assert_eq!(next.bind(to), Ok(to), "{n}");
            assert_eq!(next.listen(16), 0, "{n}");
            listener = next;
        }
    }
}

isolated! {
    fn a_listener_of_ipv6_tells_ipv4_in_its_way() {
        let running = Running::new();
        let program = running.program();
        let (listener, to) = program.listener(at("[::]:0"));
        let kernel = TcpStream::connect(at(&format!("10.9.0.2:{}", to.port()))).expect("a connection");
        let (_, record) = listener.accept();
        let remote = at(&format!("[::ffff:10.9.0.1]:{}", kernel.local_addr().expect("one").port()));
        assert_eq!(record.remote.0, Some(remote));
    }
}

isolated! {
    fn more_than_fit_wait_and_all_are_accepted() {
        let running = Running::new();
        let program = running.program();
        let (listener, to) = program.listener(at("10.9.0.2:0"));
        let calls: Vec<_> = (0..100).map(|_| TcpStream::connect(to).expect("a connection")).collect();
        let mut froms: Vec<_> = (0..100).map(|_| listener.accept().1.remote.0).collect();
        let mut expected: Vec<_> = calls.iter().map(|call| call.local_addr().ok()).collect();
        froms.sort();
        expected.sort();
        assert_eq!(froms, expected);
    }
}

isolated! {
    fn several_accept_from_one_listener() {
        let running = Running::new();
        let program = running.program();
        let (listener, to) = program.listener(at("10.9.0.2:0"));
        let streams: Vec<UnixStream> = (0..4).map(|_| listener.stream.try_clone().expect("a descriptor")).collect();
        std::thread::scope(|scope| {
            let accepting: Vec<_> = streams.iter().map(|stream| scope.spawn(move || {
                for _ in 0..50 {
                    let (fd, _) = accept(stream).expect("a connection");
                    let mut own = UnixStream::from(fd);
                    let mut room = [0; 8];
                    own.read_exact(&mut room).expect("octets");
                    own.write_all(&room).expect("written");
                }
            })).collect();
            for n in 0..200u64 {
                let mut kernel = patient(TcpStream::connect(to).expect("a connection"));
                kernel.write_all(&n.to_ne_bytes()).expect("written");
                let mut room = [0; 8];
                kernel.read_exact(&mut room).expect("octets");
                assert_eq!(room, n.to_ne_bytes());
            }
            accepting.into_iter().for_each(|one| one.join().expect("no panic"));
        });
        drop((streams, listener));
        running.has_sockets(0);
    }
}

isolated! {
    fn who_was_not_accepted_is_reset_with_the_listener() {
        let running = Running::new();
        let program = running.program();
        let (listener, to) = program.listener(at("10.9.0.2:0"));
        let mut calls: Vec<_> = (0..20).map(|_| patient(TcpStream::connect(to).expect("a connection"))).collect();
        let (own, record) = listener.accept();
        let n = calls.iter().position(|call| call.local_addr().ok() == record.remote.0).expect("one of them");
        let mut accepted = calls.swap_remove(n);
        drop(listener);
        for call in &mut calls {
            assert_eq!(call.read(&mut [0; 1]).map_err(|e| e.kind()), Err(ErrorKind::ConnectionReset));
        }
        // What was accepted goes on.
        (&own.stream).write_all(b"x").expect("written");
        accepted.read_exact(&mut [0; 1]).expect("an octet");
        drop(own);
        assert_eq!(accepted.read(&mut [0; 1]).expect("an end"), 0);
        drop(accepted);
        let refused = TcpStream::connect(to).map_err(|e| e.kind());
        assert_eq!(refused.err(), Some(ErrorKind::ConnectionRefused));
        running.has_sockets(0);
    }
}

isolated! {
    fn a_listener_that_is_shut_wakes_who_accepts() {
        let running = Running::new();
        let program = running.program();
        let (listener, to) = program.listener(at("10.9.0.2:0"));
        assert_eq!(listener.ask(Op::Shutdown, &libc::SHUT_WR.to_ne_bytes()).errno, 0);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| accept(&listener.stream).is_none());
            assert_eq!(listener.ask(Op::Shutdown, &libc::SHUT_RD.to_ne_bytes()).errno, 0);
            assert!(waiting.join().expect("no panic"));
        });
        assert!(TcpStream::connect(to).is_err());
        let other = program.open(false).expect("a socket");
        assert_eq!(other.ask(Op::Shutdown, &libc::SHUT_RD.to_ne_bytes()).errno, libc::ENOTCONN);
    }
}

isolated! {
    fn who_calls_where_too_many_are_about_to_is_let_in_by_a_cookie() {
        let mut config = Config::default();
        config.tcp.half_open = 0;
        let running = Running::with(|_| {}, config);
        let program = running.program();
        let (listener, to) = program.listener(at("10.9.0.2:0"));
        for n in 0..20u8 {
            let mut kernel = patient(TcpStream::connect(to).expect("a connection"));
            let (own, record) = listener.accept();
            assert_eq!(record.remote.0, kernel.local_addr().ok());
            kernel.write_all(&[n; 100]).expect("written");
            let mut room = [0; 100];
            (&own.stream).read_exact(&mut room).expect("octets");
            assert_eq!(room, [n; 100]);
        }
        let stats = running.query("stats");
        let value = |name: &str| stats.iter().find(|row| row["name"] == name).and_then(|row| row["value"].as_u64());
        assert_eq!(value("tcp_cookies_returned"), Some(20));
    }
}

isolated! {
    fn listeners_share_a_port_if_all_say_so() {
        let running = Running::new();
        let program = running.program();
        let on = 1i32.to_ne_bytes();
        let open = || {
            let socket = program.open(false).expect("a socket");
            assert_eq!(socket.set(libc::SOL_SOCKET, libc::SO_REUSEPORT, &on), 0);
            socket
        };
        let (first, second) = (open(), open());
        let to = first.bind(at("10.9.0.2:0")).expect("a port");
        assert_eq!((second.bind(to), first.listen(64), second.listen(64)), (Ok(to), 0, 0));
        let _calls: Vec<_> = (0..40).map(|_| TcpStream::connect(to).expect("a connection")).collect();
        for listener in [&first, &second] {
            assert_eq!(listener.ready(PollFlags::POLLIN, LONGEST.as_millis() as u16), PollFlags::POLLIN);
        }
    }
}
