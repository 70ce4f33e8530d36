//! Urgent octets through the pair (MSG_OOB), of programs that say they write some and of those that nobody sees.

use crate::program::{Program, Sock};
use crate::{Running, at, isolated, kernels, patient};
use bypath_shm::service::{LEVEL, URGENT};
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::{pair, sock};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};

/// Longest wait (ns).
const PATIENCE: u64 = 20_000_000_000;

/// Both ends of a connection, which read urgent octets in their place.
fn both(program: &Program) -> (Sock<'_>, TcpStream) {
    let (listener, to) = kernels("10.9.0.1:0");
    let own = program.connect(to);
    let kernel = patient(listener.accept().expect("a connection").0);
    pair::keep_urgent_in_line(own.stream.as_fd());
    pair::keep_urgent_in_line(kernel.as_fd());
    (own, kernel)
}

/// Octets, of which the one after `before` is urgent.
fn give<T: AsFd>(to: &T, before: &[u8], behind: &[u8])
where
    for<'a> &'a T: Write,
{
    let mut stream = to;
    stream.write_all(before).expect("written");
    assert_eq!(pair::send_urgent(to.as_fd(), b'!'), Ok(1));
    stream.write_all(behind).expect("written");
}

/// Reads what [`give`] has given, as it was given.
fn take<T: AsRawFd>(from: &T, before: &[u8], behind: &[u8])
where
    for<'a> &'a T: Read,
{
    let fd = from.as_raw_fd();
    let mut waits = [PollFd { fd, events: libc::POLLPRI, revents: 0 }];
    assert_eq!(ppoll(&mut waits, Some(PATIENCE), 0), Ok(1), "nothing urgent came");
    let (mut stream, mut room, mut got) = (from, [0; 100], 0);
    while !sock::is_at_mark(fd) {
        got += stream.read(&mut room[got..]).expect("octets");
    }
    assert_eq!(room[..got], *before);
    let mut rest = vec![0; 1 + behind.len()];
    stream.read_exact(&mut rest).expect("octets");
    assert_eq!((rest[0], &rest[1..]), (b'!', behind));
    assert!(!sock::is_at_mark(fd));
}

isolated! {
    fn an_urgent_octet_is_one_on_both_sides() {
        let running = Running::new();
        let program = running.program();
        let (own, kernel) = both(&program);
        let on = 1i32.to_ne_bytes();
        assert_eq!(own.set(LEVEL, URGENT, &on), 0);
        for (before, behind) in [("before", "behind"), ("", "behind"), ("before", ""), ("", "")] {
            let (before, behind) = (before.as_bytes(), behind.as_bytes());
            give(&own.stream, before, behind);
            take(&kernel, before, behind);
            give(&kernel, before, behind);
            take(&own.stream, before, behind);
        }
        let (listener, _) = program.listener(at("10.9.0.2:0"));
        assert_eq!(listener.set(LEVEL, URGENT, &on), libc::ENOTCONN);
        assert_eq!(own.set(LEVEL, URGENT, &on[..3]), libc::EINVAL);
    }
}

isolated! {
    fn octets_of_somebody_who_says_nothing_are_all_there() {
        let running = Running::new();
        let program = running.program();
        let (own, kernel) = both(&program);
        // Whether the first ones are urgent depends on when they come; once the kernel tells of one in time, the service looks for them.
        let is_told = || {
            give(&own.stream, b"some", b"octets");
            let (mut got, mut is_told) = (Vec::<u8>::new(), false);
            while got.len() < 11 {
                let mut waits = [PollFd { fd: kernel.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
                assert_eq!(ppoll(&mut waits, Some(PATIENCE), 0), Ok(1), "octets are missing");
                is_told |= sock::is_at_mark(kernel.as_raw_fd());
                let mut room = [0; 11];
                let n = (&kernel).read(&mut room).expect("octets");
                got.extend(&room[..n]);
            }
            assert_eq!(got, *b"some!octets");
            is_told
        };
        assert!((0..1000).any(|_| is_told()), "the kernel never told of one in time");
        for _ in 0..20 {
            give(&own.stream, b"before", b"behind");
            take(&kernel, b"before", b"behind");
        }
    }
}

isolated! {
    fn an_urgent_octet_is_one_whenever_it_comes() {
        let running = Running::new();
        let program = running.program();
        let (own, kernel) = both(&program);
        assert_eq!(own.set(LEVEL, URGENT, &1i32.to_ne_bytes()), 0);
        // Just as the service has found, or is about to find, that there is nothing more.
        for n in 0..3000u32 {
            (&own.stream).write_all(b"before").expect("written");
            for _ in 0..n % 100 {
                std::hint::spin_loop();
            }
            give(&own.stream, b"", b"");
            take(&kernel, b"before", b"");
        }
    }
}
