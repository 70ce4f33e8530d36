//! Connections that come up, and those that do not.

use crate::program::Sock;
use crate::{LONGEST, Running, SILENT, at, isolated, kernels, octets, patient};
use bypath_shm::service::{Address, Header, LEFT, LEVEL, Op, SEND_BUFFER, of_end_name};
use bypath_sys::pair;
use nix::poll::PollFlags;
use nix::sys::socket::{UnixAddr, getpeername};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};

/// Whether an end has the buffer of one that is connected, rather than the smallest.
fn is_wide(socket: &Sock<'_>) -> bool {
    let (end, _other) = pair::new().expect("a pair");
    let [wide, small] = [SEND_BUFFER, 1].map(|octets| {
        pair::set_send_buffer(end.as_fd(), octets).expect("a buffer");
        pair::send_buffer(end.as_fd()).expect("a size")
    });
    let size = pair::send_buffer(socket.stream.as_fd()).expect("a size");
    assert!(size == wide || size == small, "{size}");
    size == wide
}

isolated! {
    fn a_descriptor_tells_what_it_is() {
        let running = Running::new();
        let program = running.program();
        let socket = program.open(false).expect("a socket");
        let peer: UnixAddr = getpeername(socket.stream.as_raw_fd()).expect("a name");
        assert_eq!(of_end_name(peer.as_abstract().expect("an abstract name")), Some(("lab", socket.cookie)));
        assert_eq!(bypath_sys::pair::cookie(socket.stream.as_fd()), Ok(socket.cookie));
        assert_eq!(socket.names(), (None, None, 7));
        assert!(matches!(program.ask(Op::Open, 0, &[9; 12]).errno, libc::EAFNOSUPPORT));
    }
}

isolated! {
    fn nobody_may_write_before_a_connection_is_open() {
        let running = Running::new();
        let program = running.program();
        let socket = program.socket(at(SILENT));
        assert_eq!(socket.begin(at(SILENT)), libc::EINPROGRESS);
        assert_eq!(socket.ready(PollFlags::POLLOUT | PollFlags::POLLIN, 300), PollFlags::empty());
        assert_eq!((socket.names().2, socket.error()), (2, 0));
        assert_eq!((socket.begin(at(SILENT)), socket.listen(1)), (libc::EALREADY, libc::EINVAL));
        // The service holds it, too.
        drop(socket);
        assert_eq!(running.query("sockets").len(), 1);
    }
}

isolated! {
    fn a_connection_that_comes_up_is_over_when_its_program_is_gone() {
        let running = Running::new();
        for dials in [false, true] {
            let program = running.program();
            let socket = if dials {
                program.dial(at(SILENT), &[]).1.expect("a socket")
            } else {
                let socket = program.socket(at(SILENT));
                assert_eq!(socket.begin(at(SILENT)), libc::EINPROGRESS);
                socket
            };
            let end = socket.stream.try_clone().expect("a descriptor");
            drop(socket);
            drop(program);
            // Another process has it.
            let others = running.program();
            assert_eq!(others.open(false).map(drop), Ok(()));
            assert_eq!(crate::program::ready(end.as_fd(), PollFlags::POLLOUT, 100), PollFlags::empty());
            running.has_sockets(1);
            drop(end);
            running.has_sockets(0);
        }
    }
}

isolated! {
    fn who_closes_a_connection_that_comes_up_says_so() {
        let running = Running::new();
        let program = running.program();
        let leaves = [LEVEL, LEFT, 0].map(i32::to_ne_bytes).concat();
        let says = |cookie| program.say(&[&header(cookie).encode()[..], &leaves].concat());
        fn header(socket: u64) -> Header {
            Header { op: Op::Say, serial: 0, socket, errno: 0 }
        }
        let socket = program.socket(at(SILENT));
        assert_eq!(socket.begin(at(SILENT)), libc::EINPROGRESS);
        says(socket.cookie).expect("said");
        // It was not the last one.
        assert_eq!(socket.names().2, 2);
        drop(socket);
        running.has_sockets(0);
        // Of one that is up it means nothing.
        let (listener, to) = kernels("10.9.0.1:0");
        let own = program.connect(to);
        let mut kernel = patient(listener.accept().expect("a connection").0);
        says(own.cookie).expect("said");
        (&own.stream).write_all(b"octets").expect("written");
        let mut octets = [0; 6];
        kernel.read_exact(&mut octets).expect("octets");
        assert_eq!(&octets, b"octets");
    }
}

isolated! {
    fn who_inherits_a_connection_that_comes_up_gets_it() {
        let running = Running::new();
        let (listener, to) = kernels("10.9.0.1:0");
        // Its queue has one place, which is taken: nobody answers the first request.
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).expect("a number")).expect("a queue");
        let _first = std::net::TcpStream::connect(to).expect("a connection");
        let program = running.program();
        let socket = program.socket(to);
        assert_eq!(socket.begin(to), libc::EINPROGRESS);
        let mut end = socket.stream.try_clone().expect("a descriptor");
        drop(socket);
        drop(program);
        assert_eq!(crate::program::ready(end.as_fd(), PollFlags::POLLOUT, 100), PollFlags::empty());
        drop(listener.accept().expect("the first one"));
        let mut kernel = patient(listener.accept().expect("the second one").0);
        assert_eq!(crate::program::ready(end.as_fd(), PollFlags::POLLOUT, 20_000), PollFlags::POLLOUT);
        let all = octets(300_000);
        let expected = all.clone();
        let writer = std::thread::spawn(move || {
            end.write_all(&all).and_then(|()| end.shutdown(std::net::Shutdown::Write)).expect("room");
            end
        });
        let mut came = Vec::new();
        kernel.read_to_end(&mut came).expect("octets");
        assert!(came == expected);
        drop(writer.join());
        drop(kernel);
        running.has_sockets(0);
    }
}

isolated! {
    fn octets_that_filled_the_end_are_nobodys() {
        let running = Running::new();
        let program = running.program();
        let (listener, to) = kernels("10.9.0.1:0");
        let own = program.connect(to);
        let mut kernel = patient(listener.accept().expect("a connection").0);
        let fresh = program.open(false).expect("a socket");
        assert!(is_wide(&own) && !is_wide(&fresh));
        drop(fresh);
        (&own.stream).write_all(b"octets").expect("written");
        own.stream.shutdown(std::net::Shutdown::Write).expect("an end");
        let mut text = String::new();
        kernel.read_to_string(&mut text).expect("octets");
        assert_eq!(text, "octets");
        assert_eq!(own.begin(to), libc::EISCONN);
    }
}

isolated! {
    fn a_refused_connection_says_so_once() {
        let running = Running::new();
        let program = running.program();
        let (listener, to) = kernels("10.9.0.1:0");
        drop(listener);
        let socket = program.socket(to);
        assert_eq!(socket.connect(to), libc::ECONNREFUSED);
        assert_eq!(socket.error(), 0);
        let flags = socket.ready(PollFlags::POLLOUT | PollFlags::POLLIN, 0);
        assert!(flags.contains(PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLOUT | PollFlags::POLLIN), "{flags:?}");
        let (_, remote, state) = socket.names();
        assert_eq!((remote, state), (Some(to), 7));
        assert_eq!(socket.begin(to), libc::EINVAL);
        running.has_sockets(0);
    }
}

isolated! {
    fn what_cannot_be_reached_is_told_at_once_or_later() {
        let running = Running::new();
        let program = running.program();
        let to = at("192.0.2.1:80");
        assert_eq!(program.socket(to).connect(to), libc::ENETUNREACH);
        // Nobody answers for the address.
        let to = at("10.9.0.77:80");
        let socket = program.socket(to);
        assert_eq!(socket.begin(to), libc::EINPROGRESS);
        assert_eq!(socket.ready(PollFlags::POLLOUT, 100), PollFlags::empty());
        assert!(!socket.ready(PollFlags::POLLOUT, LONGEST.as_millis() as u16).is_empty());
        assert_eq!(socket.error(), libc::EHOSTUNREACH);
        // Nobody listens on port 0, which is asked as any other.
        let to = at("10.9.0.1:0");
        assert_eq!(program.socket(to).connect(to), libc::ECONNREFUSED);
        // Of another family; no address at all.
        let socket = program.open(false).expect("a socket");
        assert_eq!(socket.begin(at("[fd09::1]:80")), libc::EAFNOSUPPORT);
        let none = program.ask_with(Op::Connect, socket.cookie, &Address(None).encode(), Some(socket.stream.as_fd()));
        assert_eq!(none.errno, libc::EAFNOSUPPORT);
        // No descriptor, or another one.
        let body = Address(Some(at("10.9.0.1:80"))).encode();
        assert_eq!(program.ask(Op::Connect, socket.cookie, &body).errno, libc::EBADF);
        let other = program.open(false).expect("a socket");
        let wrong = program.ask_with(Op::Connect, socket.cookie, &body, Some(other.stream.as_fd()));
        assert_eq!(wrong.errno, libc::EBADF);
    }
}

isolated! {
    fn ipv4_through_a_socket_of_ipv6() {
        let running = Running::new();
        let program = running.program();
        let (listener, to) = kernels("10.9.0.1:0");
        let mapped = at(&format!("[::ffff:10.9.0.1]:{}", to.port()));
        let own = program.connect(mapped);
        let (_, remote, _) = own.names();
        assert_eq!(remote, Some(mapped));
        let (_, from) = listener.accept().expect("a connection");
        assert_eq!(from.ip(), at("10.9.0.2:0").ip());
    }
}

isolated! {
    fn a_socket_may_connect_as_it_is_opened() {
        let running = Running::new();
        let program = running.program();
        let (listener, to) = kernels("10.9.0.1:0");
        let nodelay = (libc::IPPROTO_TCP, libc::TCP_NODELAY, &1i32.to_ne_bytes()[..]);
        // What there is no such option for is as if it had not been set.
        let (errno, own) = program.dial(to, &[nodelay, (libc::IPPROTO_TCP, 4000, b"x")]);
        let own = own.expect("a descriptor");
        assert_eq!(errno, libc::EINPROGRESS);
        let mut kernel = patient(listener.accept().expect("a connection").0);
        assert!(own.ready(PollFlags::POLLOUT, LONGEST.as_millis() as u16).contains(PollFlags::POLLOUT));
        assert_eq!((own.error(), own.names().1), (0, Some(to)));
        assert_eq!(own.get(libc::IPPROTO_TCP, libc::TCP_NODELAY), Ok(1i32.to_ne_bytes().to_vec()));
        let fresh = program.open(false).expect("a socket");
        assert!(is_wide(&own) && !is_wide(&fresh));
        assert_eq!(fresh.get(libc::IPPROTO_TCP, libc::TCP_NODELAY), Ok(0i32.to_ne_bytes().to_vec()));
        (&own.stream).write_all(b"octets").expect("written");
        drop((own, fresh));
        let mut text = String::new();
        kernel.read_to_string(&mut text).expect("octets");
        assert_eq!(text, "octets");
        drop(kernel);
        running.has_sockets(0);
    }
}

isolated! {
    fn nobody_may_write_to_what_connects_as_it_is_opened_either() {
        let running = Running::new();
        let program = running.program();
        let (errno, own) = program.dial(at(SILENT), &[]);
        let own = own.expect("a descriptor");
        assert_eq!((errno, own.begin(at(SILENT))), (libc::EINPROGRESS, libc::EALREADY));
        assert_eq!(own.ready(PollFlags::POLLOUT | PollFlags::POLLIN, 300), PollFlags::empty());
        assert_eq!(own.names().2, 2);
        // It is left to itself, and over when nobody answers.
        drop(own);
        assert_eq!(running.query("sockets").len(), 1);
    }
}

isolated! {
    fn what_cannot_connect_as_it_is_opened_leaves_nothing() {
        let running = Running::new();
        let program = running.program();
        for (to, errno) in [("192.0.2.1:80", libc::ENETUNREACH), ("224.0.0.1:80", libc::ENETUNREACH)] {
            let (answered, socket) = program.dial(at(to), &[]);
            assert_eq!((answered, socket.is_none()), (errno, true), "{to}");
        }
        running.has_sockets(0);
        let (listener, to) = kernels("10.9.0.1:0");
        drop(listener);
        let (_, refused) = program.dial(to, &[]);
        let refused = refused.expect("a descriptor");
        assert!(refused.ready(PollFlags::POLLOUT, LONGEST.as_millis() as u16).contains(PollFlags::POLLHUP));
        assert_eq!(refused.error(), libc::ECONNREFUSED);
        // An option that is not all there.
        let message = [libc::AF_INET, libc::SOCK_STREAM, 0].map(i32::to_ne_bytes).concat();
        let option = [libc::IPPROTO_TCP, libc::TCP_NODELAY, 4].map(i32::to_ne_bytes).concat();
        let body = [&message[..], &Address(Some(to)).encode(), &option].concat();
        let header = bypath_shm::service::Header { op: Op::Open, serial: 7, socket: 0, errno: 0 };
        program.say(&[&header.encode()[..], &body].concat()).expect("said");
        assert!(program.hear().is_none());
        running.has_sockets(0);
    }
}
