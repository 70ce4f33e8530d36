//! A process that has no room for a descriptor. A program of its own: its limit is for all tests in it.

use bypath_sys::unix::{recv, send};
use bypath_sys::{Errno, fd};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

const ROLE: &str = "BYPATH_TEST_ROLE";

#[test]
fn a_message_whose_descriptors_find_no_room_is_a_failure_and_not_half_of_one() {
    if std::env::var_os(ROLE).is_none() {
        let mut again = Command::new("sh");
        again
            .args(["-c", "ulimit -n 64; exec \"$0\" --nocapture"])
            .arg(std::env::current_exe().expect("this test"));
        let ended = again.env(ROLE, "limited").output().expect("sh starts");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        return;
    }
    let (near, far) = UnixStream::pair().expect("a pair");
    let (near, far) = (near.as_raw_fd(), far.as_raw_fd());
    let mut room = [0; 8];
    for (sent, free) in [(1, 0), (2, 1), (4, 3)] {
        send(far, b"with", &[far; 4][..sent]).expect("it is sent");
        let mut taken = Vec::new();
        while let Ok(another) = fd::dup_high(near, 0) {
            taken.push(another);
        }
        taken.drain(..free).for_each(fd::close);
        assert_eq!(recv(near, &mut room, 0).map(|_| ()), Err(Errno::MFILE), "{sent} sent, {free} free");
        let mut left = Vec::new();
        while let Ok(another) = fd::dup_high(near, 0) {
            left.push(another);
        }
        assert_eq!(left.len(), free, "what was taken is closed");
        taken.into_iter().chain(left).for_each(fd::close);
        send(far, b"with", &[far]).expect("it is sent");
        let got = recv(near, &mut room, 0).expect("there is room").expect("a message");
        assert_eq!((&room[..got.len], got.fd_count), (&b"with"[..], 1));
        fd::close(got.fds[0]);
    }
}
