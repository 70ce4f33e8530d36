//! Process ids that come again. A program of its own: it starts processes, which hold for a moment what tests beside it have open.

use bypath_sys::process;
use bypath_sys::unix::{is_of_this_process, peer_credentials, recv, send};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

const ROLE: &str = "BYPATH_TEST_ROLE";
const NEXT: &str = "/proc/sys/kernel/ns_last_pid";

/// This test as another process, whose descriptor 0 that is.
fn role(name: &str, input: OwnedFd) -> Command {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "--nocapture", "who_has_the_number_of_a_dead_process_is_not_taken_for_it"]);
    again.env(ROLE, name).stdin(Stdio::from(input)).stdout(Stdio::null());
    again
}

#[test]
fn who_has_the_number_of_a_dead_process_is_not_taken_for_it() {
    match std::env::var(ROLE).as_deref() {
        Ok("maker") => {
            let (kept, given) = UnixStream::pair().unwrap();
            assert!(is_of_this_process(kept.as_raw_fd()), "it has made it");
            return send(0, b"end", &[given.as_raw_fd()]).unwrap();
        }
        Ok(_) => {
            assert_eq!(peer_credentials(0).unwrap().pid, process::pid());
            return assert!(!is_of_this_process(0));
        }
        Err(_) => {}
    }
    if std::fs::OpenOptions::new().write(true).open(NEXT).is_err() {
        return skip(
            "who_has_the_number_of_a_dead_process_is_not_taken_for_it",
            "process ids cannot be chosen here",
        );
    }
    for _ in 0..200 {
        let (near, far) = UnixStream::pair().unwrap();
        let mut maker = role("maker", far.into()).spawn().unwrap();
        let number = maker.id();
        assert!(maker.wait().unwrap().success());
        let end = recv(near.as_raw_fd(), &mut [0; 8], 3).unwrap().expect("an end").fds[0];
        // SAFETY: it was received just now and is nobody else's.
        let end: OwnedFd = unsafe { std::os::fd::FromRawFd::from_raw_fd(end) };
        assert!(!is_of_this_process(end.as_raw_fd()), "it is of another one");
        let mut later = role("later", end);
        std::fs::write(NEXT, (number - 1).to_string()).unwrap();
        let mut later = later.spawn().unwrap();
        let is_it = later.id() == number;
        let ended = later.wait().unwrap();
        if is_it {
            return assert!(ended.success(), "it takes itself for the one before");
        }
    }
    panic!("others were always faster");
}

fn skip(test: &str, reason: &str) {
    use std::io::Write;
    if let Some(list) = std::env::var_os("BYPATH_TEST_SKIPS") {
        let mut list = std::fs::OpenOptions::new().append(true).create(true).open(list).expect("the list");
        writeln!(list, "{test}\t{reason}").expect("a line");
    }
}
