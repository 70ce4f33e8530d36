//! Streams as the standard library has them.

use crate::{LONGEST, at, host, listener, octets, pair};
use bypath_netstack::{TcpListener, TcpStream};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write, copy};
use std::net::Shutdown;
use std::time::Duration;

#[test]
fn a_clone_reads_while_another_one_writes_and_the_last_one_closes() {
    let host = host();
    let (client, server) = pair(&host);
    let content = octets(3_000_000);
    std::thread::scope(|scope| {
        // An echo, by two handles of one connection.
        let mut reader = server.try_clone().expect("a clone");
        let mut writer = server;
        scope.spawn(move || {
            copy(&mut reader, &mut writer).expect("octets");
            drop(writer);
            // One handle is left: it is still open for who reads. Then it goes.
            assert_eq!(reader.read(&mut [0]).expect("an end"), 0);
        });
        let mut writer = client.try_clone().expect("a clone");
        scope.spawn({
            let content = &content;
            move || {
                writer.write_all(content).expect("written");
                writer.shutdown(Shutdown::Write).expect("a connection");
            }
        });
        let mut all = Vec::new();
        (&client).read_to_end(&mut all).expect("octets");
        assert!(all == content, "{} octets", all.len());
    });
    drop(client);
    // Nothing is left but what is waited out.
    let end = std::time::Instant::now() + LONGEST;
    while host.with(|engine| engine.stack().usage().connections) > 0 {
        assert!(std::time::Instant::now() < end, "{:?}", host.with(|engine| engine.stack().usage()));
        std::thread::yield_now();
    }
}

#[test]
fn a_clone_that_is_dropped_ends_nothing() {
    let host = host();
    let (client, server) = pair(&host);
    for _ in 0..10 {
        drop(client.try_clone().expect("a clone"));
        drop(server.try_clone().expect("a clone"));
    }
    (&client).write_all(b"still here").expect("written");
    let mut room = [0; 10];
    (&server).read_exact(&mut room).expect("octets");
    assert_eq!(&room, b"still here");
}

#[test]
fn several_pieces_are_read_and_written_at_once() {
    let host = host();
    let (mut client, mut server) = pair(&host);
    let pieces = [&b"one "[..], b"", b"two ", b"three"].map(IoSlice::new);
    assert_eq!(client.write_vectored(&pieces).expect("written"), 13);
    // As one segment: all of it is there at once.
    let (mut a, mut b, mut c) = ([0; 3], [0; 6], [0; 9]);
    let mut room = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b), IoSliceMut::new(&mut c)];
    assert_eq!(server.read_vectored(&mut room).expect("octets"), 13);
    assert_eq!((&a, &b, &c[..4]), (b"one", b" two t", &b"hree"[..]));
    // What goes wrong behind the octets is told by the next call.
    client.write_all(b"the last").expect("written");
    while server.statistics().expect("a connection").unread < 8 {
        std::thread::yield_now();
    }
    client.abort().expect("a host");
    while server.statistics().expect("a connection").state != bypath_stack::tcp::State::Closed {
        std::thread::yield_now();
    }
    let (mut a, mut b) = ([0; 8], [0; 8]);
    let mut room = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
    assert_eq!(server.read_vectored(&mut room).expect("octets"), 8);
    assert_eq!(server.read(&mut [0]).expect_err("it was reset").kind(), ErrorKind::ConnectionReset);
    assert_eq!(server.read_vectored(&mut []).expect("no room"), 0);
    assert_eq!(server.read(&mut []).expect("no room"), 0);
}

#[test]
fn time_outs_are_those_of_their_direction() {
    let host = host();
    let (client, server) = pair(&host);
    let short = Some(Duration::from_millis(20));
    for (result, kind) in [
        (client.set_read_timeout(Some(Duration::ZERO)), ErrorKind::InvalidInput),
        (client.set_write_timeout(Some(Duration::ZERO)), ErrorKind::InvalidInput),
        (
            TcpStream::connect_timeout(&host, at("127.0.0.1:80"), Duration::ZERO).map(drop),
            ErrorKind::InvalidInput,
        ),
    ] {
        assert_eq!(result.expect_err("no time").kind(), kind);
    }
    client.set_read_timeout(short).expect("a time-out");
    client.set_write_timeout(None).expect("a time-out");
    assert_eq!((client.read_timeout().unwrap(), client.write_timeout().unwrap()), (short, None));
    assert_eq!(client.recv(&mut [0]).expect_err("nothing came").kind(), ErrorKind::TimedOut);
    // Clones have them in common.
    let other = client.try_clone().expect("a clone");
    assert_eq!(other.recv(&mut [0]).expect_err("nothing came").kind(), ErrorKind::TimedOut);
    other.set_nonblocking(true).expect("a host");
    assert_eq!(client.recv(&mut [0]).expect_err("nothing came").kind(), ErrorKind::WouldBlock);
    let full = loop {
        if let Err(e) = client.send(&[0; 100_000]) {
            break e;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    client.set_nonblocking(false).expect("a host");
    assert_eq!(client.read_timeout().unwrap(), short);
    client.set_read_timeout(Some(LONGEST)).expect("a time-out");
    // As long as it takes.
    let reads = std::thread::spawn(move || copy(&mut &server, &mut std::io::sink()).expect("octets"));
    client.send(b"the last").expect("room");
    client.shutdown(Shutdown::Write).expect("a connection");
    assert!(reads.join().expect("a thread") >= 100_000);
}

#[test]
fn a_listener_is_cloned_and_gives_one_connection_after_the_other() {
    let host = host();
    let listener = listener(&host);
    let calls = std::thread::spawn({
        let to = listener.local_addr().expect("an address");
        move || {
            let all: Vec<_> = (0..20).map(|_| TcpStream::connect(&host, to).expect("a connection")).collect();
            (host, all)
        }
    });
    let other = listener.try_clone().expect("a clone");
    let first: Vec<_> = listener.incoming().take(10).map(|stream| stream.expect("a connection")).collect();
    drop(listener);
    let second: Vec<_> = other.incoming().take(10).map(|stream| stream.expect("a connection")).collect();
    let (host, called) = calls.join().expect("a thread");
    let mut ends: Vec<_> =
        first.iter().chain(&second).map(|stream| stream.peer_addr().expect("an address")).collect();
    let mut expected: Vec<_> = called.iter().map(|stream| stream.local_addr().expect("an address")).collect();
    ends.sort();
    expected.sort();
    assert_eq!(ends, expected);
    other.set_nonblocking(true).expect("a host");
    assert_eq!(other.accept().expect_err("nobody calls").kind(), ErrorKind::WouldBlock);
    drop(other);
    let nobody = TcpStream::connect(&host, at("127.0.0.1:80")).expect_err("nobody listens");
    assert_eq!(nobody.kind(), ErrorKind::ConnectionRefused);
    drop(TcpListener::bind(&host, at("127.0.0.1:80")).expect("a listener"));
}

/// Waits until a thread of ours sleeps.
fn sleeps(thread: nix::unistd::Pid) {
    let end = std::time::Instant::now() + LONGEST;
    // "Number (name) state": a name may have anything in it.
    let is_asleep = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'));
    while !std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).is_ok_and(is_asleep) {
        assert!(std::time::Instant::now() < end, "it does not wait");
        std::thread::yield_now();
    }
}

#[test]
fn who_reads_no_more_wakes_who_waits_for_octets() {
    let host = host();
    let (client, server) = pair(&host);
    let reader = client.try_clone().expect("a clone");
    let (tell, told) = std::sync::mpsc::channel();
    let waits = std::thread::spawn(move || {
        tell.send(nix::unistd::gettid()).expect("somebody who wants to know");
        reader.recv(&mut [0; 9])
    });
    sleeps(told.recv().expect("a thread"));
    client.shutdown(Shutdown::Read).expect("a connection");
    assert_eq!(waits.join().expect("a thread").expect("an end"), 0);
    // The other direction goes on.
    client.send(b"x").expect("written");
    assert_eq!(server.recv(&mut [0; 9]).expect("octets"), 1);
}

#[test]
fn a_connection_that_was_begun_is_finished_when_it_is_open() {
    let host = host();
    let begun = TcpStream::begin_connect(&host, at("127.0.0.1:99"), None, |_, _| {}).expect("a call");
    begun.set_timeout(Some(LONGEST));
    assert_eq!(begun.finish_connect().expect_err("nobody listens").kind(), ErrorKind::ConnectionRefused);
    assert_eq!(begun.finish_connect().expect_err("it was told").kind(), ErrorKind::NotConnected);
    let listener = listener(&host);
    let begun = TcpStream::begin_connect(&host, at("127.0.0.1:80"), None, |_, _| {}).expect("a call");
    begun.set_timeout(Some(LONGEST));
    begun.finish_connect().expect("an open connection");
    begun.finish_connect().expect("an open connection");
    assert_eq!(listener.accept().expect("a connection").1, begun.local_addr().expect("an address"));
}
