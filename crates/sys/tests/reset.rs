//! What is left of a connection that its peer has reset.

use bypath_sys::{poll, sock};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

#[test]
fn nothing_is_unsent_of_what_a_reset_threw_away() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let mut near = TcpStream::connect(listener.local_addr().expect("its address")).expect("a connection");
    let (far, _) = listener.accept().expect("its other end");
    near.set_nonblocking(true).expect("it does not wait");
    let octets = vec![7; 1 << 20];
    while near.write(&octets).is_ok() {}
    let fd = near.as_raw_fd();
    assert!(sock::unsent(fd).is_ok_and(|n| n > 0), "more than the other end takes");
    // With octets that nobody has read: a reset.
    drop(far);
    while poll::now(fd, 0) & libc::POLLHUP == 0 {
        std::thread::yield_now();
    }
    assert_eq!(sock::unsent(fd), Ok(0));
}
