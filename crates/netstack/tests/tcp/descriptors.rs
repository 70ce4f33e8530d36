//! Descriptors say what the next call does.

use crate::{LONGEST, at, host, listener, pair};
use bypath_netstack::{TcpStream, UdpSocket};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Whether a descriptor is readable within that time.
fn within(fd: BorrowedFd<'_>, longest: Duration) -> bool {
    let timeout = PollTimeout::try_from(longest).expect("a time-out");
    let mut all = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut all, timeout).expect("poll") == 1
}

fn is(fd: BorrowedFd<'_>) -> bool {
    within(fd, Duration::ZERO)
}

fn becomes(fd: BorrowedFd<'_>) -> bool {
    within(fd, LONGEST)
}

#[test]
fn a_stream_is_polled_like_one_of_the_kernel() {
    let host = host();
    let (mut client, mut server) = pair(&host);
    let reader = client.try_clone().expect("a clone");
    let (readable, writable) = (reader.readable_fd().unwrap(), reader.writable_fd().unwrap());
    assert_eq!(readable.as_raw_fd(), client.readable_fd().unwrap().as_raw_fd());
    assert!(!is(readable) && is(writable));
    // As long as there are octets, and no longer.
    server.write_all(b"hello").unwrap();
    assert!(becomes(readable));
    client.read_exact(&mut [0; 4]).unwrap();
    assert!(is(readable));
    client.peek(&mut [0; 4]).unwrap();
    assert!(is(readable));
    client.read_exact(&mut [0; 1]).unwrap();
    assert!(!is(readable));
    // As long as there is room: half of it, once there was none.
    client.set_nonblocking(true).unwrap();
    let mut written = 0;
    while let Ok(n) = client.write(&[7; 100_000]) {
        written += n;
    }
    assert!(!is(writable));
    let mut room = vec![0; 100_000];
    let mut read = 0;
    while read < written {
        read += server.read(&mut room).unwrap();
    }
    assert!(becomes(writable));
    assert!(client.write(&[7; 100_000]).unwrap() > 0);
    // The other side has finished: that can be read.
    server.shutdown(Shutdown::Write).unwrap();
    assert!(becomes(readable));
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    assert!(is(readable));
    // It is over.
    server.abort().unwrap();
    client.set_nonblocking(false).unwrap();
    while client.take_error().unwrap().is_none() {
        std::thread::yield_now();
    }
    assert!(is(readable) && is(writable));
}

#[test]
fn a_descriptor_that_is_asked_for_late_says_what_is() {
    let host = host();
    let (client, mut server) = pair(&host);
    server.write_all(b"hello").unwrap();
    while client.statistics().unwrap().unread < 5 {
        std::thread::yield_now();
    }
    assert!(is(client.readable_fd().unwrap()) && is(client.writable_fd().unwrap()));
    let deaf = server;
    deaf.shutdown(Shutdown::Read).unwrap();
    assert!(is(deaf.readable_fd().unwrap()));
    let fd = client.readable_fd().unwrap().as_raw_fd();
    assert!(std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap().to_str().unwrap().contains("eventfd"));
}

#[test]
fn a_call_that_was_begun_is_writable_when_it_is_decided() {
    let host = host();
    let refused = TcpStream::begin_connect(&host, at("127.0.0.1:99"), None, |_, _| {}).unwrap();
    assert!(becomes(refused.writable_fd().unwrap()));
    refused.set_nonblocking(true).unwrap();
    assert_eq!(refused.finish_connect().unwrap_err().kind(), ErrorKind::ConnectionRefused);
    // Nobody has the address: there is no way there.
    let nowhere = TcpStream::begin_connect(&host, at("192.0.2.1:99"), None, |_, _| {});
    assert_eq!(nowhere.unwrap_err().kind(), ErrorKind::NetworkUnreachable);
    let listener = listener(&host);
    let calls = listener.readable_fd().unwrap();
    assert!(!is(calls));
    let begun = TcpStream::begin_connect(&host, at("127.0.0.1:80"), None, |_, _| {}).unwrap();
    begun.set_nonblocking(true).unwrap();
    assert!(becomes(begun.writable_fd().unwrap()));
    begun.finish_connect().unwrap();
    assert!(becomes(calls));
    listener.accept().unwrap();
    assert!(!is(calls));
}

#[test]
fn a_host_that_ends_makes_everything_ready() {
    let host = host();
    let (client, _server) = pair(&host);
    let udp = UdpSocket::bind(&host, at("127.0.0.1:9")).unwrap();
    let listener = listener(&host);
    let all = [client.readable_fd().unwrap(), udp.readable_fd().unwrap(), listener.readable_fd().unwrap()];
    assert!(all.iter().all(|fd| !is(*fd)));
    drop(host);
    assert!(all.iter().all(|fd| is(*fd)));
    client.set_nonblocking(true).unwrap();
    assert_eq!(client.recv(&mut [0]).unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert!(is(client.readable_fd().unwrap()) && is(client.writable_fd().unwrap()));
}

#[test]
fn datagrams_are_polled_for() {
    let host = host();
    let (server, client) = (
        UdpSocket::bind(&host, at("127.0.0.1:9")).unwrap(),
        UdpSocket::bind(&host, at("127.0.0.1:0")).unwrap(),
    );
    let readable = server.readable_fd().unwrap();
    assert!(!is(readable) && is(client.writable_fd().unwrap()));
    for _ in 0..2 {
        client.send_to(b"x", at("127.0.0.1:9")).unwrap();
    }
    assert!(becomes(readable));
    server.set_timeout(Some(LONGEST));
    server.recv(&mut [0; 9]).unwrap();
    server.recv(&mut [0; 9]).unwrap();
    assert!(!is(readable));
    // What the network said is something to be received, and is told once.
    drop(server);
    client.connect(at("127.0.0.1:9")).unwrap();
    client.send(b"x").unwrap();
    assert!(becomes(client.readable_fd().unwrap()));
    assert_eq!(client.recv(&mut [0; 9]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(!is(client.readable_fd().unwrap()));
}

/// One thread serves many connections by poll alone, and never waits in a call.
#[test]
fn one_thread_serves_many_connections_by_poll() {
    const MANY: usize = 60;
    const OCTETS: usize = 50_000;
    let host = host();
    let listener = listener(&host);
    listener.set_nonblocking(true).unwrap();
    let clients: Vec<_> = (0..MANY)
        .map(|_| {
            let client = TcpStream::connect(&host, at("127.0.0.1:80")).unwrap();
            client.set_timeout(Some(LONGEST));
            std::thread::spawn(move || {
                let content = crate::octets(OCTETS);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        (&client).write_all(&content).unwrap();
                        client.shutdown(Shutdown::Write).unwrap();
                    });
                    let mut all = Vec::new();
                    (&client).read_to_end(&mut all).unwrap();
                    assert!(all == content, "{} octets", all.len());
                });
            })
        })
        .collect();
    let mut served: Vec<(TcpStream, Vec<u8>, bool)> = Vec::new();
    let mut done = 0;
    while done < MANY {
        let fds: Vec<_> = std::iter::once(listener.readable_fd().unwrap().try_clone_to_owned().unwrap())
            .chain(served.iter().map(|(stream, waits, _)| {
                let fd = if waits.is_empty() { stream.readable_fd() } else { stream.writable_fd() };
                fd.unwrap().try_clone_to_owned().unwrap()
            }))
            .collect();
        let mut all: Vec<_> = fds.iter().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)).collect();
        assert!(
            poll(&mut all, PollTimeout::try_from(LONGEST).unwrap()).unwrap() > 0,
            "nothing within a long time"
        );
        let ready: Vec<bool> = all.iter().map(|fd| fd.any().unwrap()).collect();
        let mut room = [0; 5000];
        for ((stream, waits, over), _) in served.iter_mut().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            if waits.is_empty() {
                match stream.read(&mut room) {
                    Ok(0) => *over = true,
                    Ok(n) => waits.extend_from_slice(&room[..n]),
                    Err(e) => panic!("said to be readable: {e}"),
                }
            }
            if !waits.is_empty() {
                match stream.write(waits) {
                    Ok(n) => drop(waits.drain(..n)),
                    Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
                }
            }
        }
        let before = served.len();
        served.retain(|(_, _, over)| !over);
        done += before - served.len();
        if ready[0] {
            let (stream, _) = listener.accept().expect("said to be readable");
            stream.set_nonblocking(true).unwrap();
            served.push((stream, Vec::new(), false));
        }
    }
    clients.into_iter().for_each(|client| client.join().expect("a client"));
}
