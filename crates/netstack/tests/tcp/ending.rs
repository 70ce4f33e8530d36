//! The end of a host: who is connected hears of it.

use crate::forwarding::hosts;
use crate::{LONGEST, at, octets};
use bypath_netstack::{Host, TcpListener, TcpStream};
use std::io::{ErrorKind, Read, Write};

/// A connection from the first host to the second one.
fn connected(a: &Host, b: &Host) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(b, at("10.0.0.2:80")).expect("a listener");
    listener.set_timeout(Some(LONGEST));
    let near = TcpStream::connect_timeout(a, at("10.0.0.2:80"), LONGEST).expect("a connection");
    let far = listener.accept().expect("a connection").0;
    for stream in [&near, &far] {
        stream.set_timeout(Some(LONGEST));
    }
    (near, far)
}

#[test]
fn who_is_connected_to_a_host_that_ends_is_reset() {
    for asked in [false, true] {
        let (a, b) = hosts();
        let (mut near, far) = connected(&a, &b);
        if asked {
            b.finish(LONGEST)
        } else {
            drop(b)
        }
        let ended = near.read(&mut [0; 10]).expect_err("nobody is there");
        assert_eq!(ended.kind(), ErrorKind::ConnectionReset, "{asked}");
        drop(far);
    }
}

#[test]
fn what_was_written_comes_before_a_host_ends() {
    let (a, b) = hosts();
    let (mut near, mut far) = connected(&a, &b);
    // More than the cable takes at once, and than is acknowledged at once.
    let all = octets(120_000);
    far.write_all(&all).expect("room");
    drop(far);
    b.finish(LONGEST);
    let mut got = Vec::new();
    near.read_to_end(&mut got).expect("an end, and no reset");
    assert!(got == all, "{} octets of {}", got.len(), all.len());
}
