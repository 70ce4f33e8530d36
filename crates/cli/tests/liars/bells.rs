//! Bells that make who rings them wait.

use crate::common::{bypath, run, stderr, stdout, workspace};
use crate::lab::{Running, Talk, has};
use crate::liar::{Liar, copy, full_bell, within};
use bypath_shm::family::{bell, end_state};
use bypath_shm::inbox::Inbox;
use bypath_shm::region;
use bypath_sys::sock::{self, Address};
use bypath_sys::{fd, sockdiag};
use rustix::event::EventfdFlags;
use serde_json::Value;
use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Who is asked has 2 s, and the machine may be busy.
const MOST: Duration = Duration::from_secs(20);

#[test]
fn a_full_bell_that_waits_does_not_hold_up_who_asks() {
    let bell = full_bell();
    let mut liar = Liar::new();
    liar.has_end(0, 77, 78);
    let inbox = liar.sleeps_for(&bell);
    let mut recall = bypath(["recall", "--wait", "0.1"]);
    recall.arg(std::process::id().to_string());
    let output = within(MOST, recall);
    // It was asked, and has not done it.
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(inbox.is_marked());
}

#[test]
fn a_bell_that_is_something_else_is_not_rung() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut liar = Liar::new();
    liar.has_end(0, 77, 78);
    let writer = writer.into();
    let inbox = liar.sleeps_for(&writer);
    let mut recall = bypath(["recall", "--wait", "0.1"]);
    recall.arg(std::process::id().to_string());
    let output = within(MOST, recall);
    let said = stderr(&output);
    assert!(output.status.code() == Some(4) && said.contains("may not be woken"), "{said}");
    assert!(inbox.is_marked());
    drop(writer);
    assert_eq!(std::io::read_to_string(reader).expect("its end"), "");
}

pub fn address(text: &Value) -> Address {
    let known: SocketAddr = text.as_str().expect("an address").parse().expect("an address");
    let IpAddr::V4(ip) = known.ip() else { panic!("{known}") };
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&ip.octets());
    Address { family: 2, port: known.port(), bytes, scope: 0 }
}

/// The kernel's number of a socket.
pub fn cookie(local: &Address, remote: &Address) -> u64 {
    let netlink = sockdiag::open(3).expect("netlink");
    let found = sockdiag::tcp(netlink, local, remote).expect("an answer").expect("the socket");
    fd::close(netlink);
    found.cookie
}

/// A program takes a descriptor of an honest one. Somebody else says that he has the socket at its other end, and sleeps.
#[test]
fn who_takes_a_descriptor_is_not_held_up_by_who_says_he_has_the_other_end() {
    if !has("bells::who_takes_a_descriptor_is_not_held_up_by_who_says_he_has_the_other_end", &["python3"]) {
        return;
    }
    let mut talk = Talk::new();
    let caller = talk.caller_pid().to_string();
    let output = bypath(["ss", "--json", "--pid", &caller]).output().expect("bypath starts");
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let (local, remote) = (address(&list[0]["local"]), address(&list[0]["remote"]));
    let bell = full_bell();
    let mut liar = Liar::new();
    liar.has_end(0, cookie(&remote, &local), cookie(&local, &remote));
    let inbox = liar.sleeps_for(&bell);
    let script = workspace().join("crates/cli/tests/liars/take.py");
    let mut take = run(["--", "python3"]);
    take.arg(script).arg(&caller).arg(list[0]["fd"].to_string());
    let output = within(MOST, take);
    assert_eq!(stdout(&output), "taken\n", "{}", stderr(&output));
    // He was not asked: the socket is another one's.
    assert!(!inbox.is_marked());
    drop(liar);
    talk.does("resp 10");
}

/// A process that sleeps for a bell, its standard output, as it says in its inbox, its standard input; and that may have a region.
fn sleeper(inbox: i32, bell: &OwnedFd, region: Stdio) -> Running {
    let inbox = File::options().read(true).write(true).open(format!("/proc/self/fd/{inbox}"));
    let mut sleeper = Command::new("sleep");
    sleeper.arg("1000").stdin(inbox.expect("the inbox")).stderr(region);
    Running(sleeper.stdout(bell.try_clone().expect("a copy")).spawn().expect("sleep starts"))
}

/// A program takes a descriptor of a process that says of others that they have the socket, too.
#[test]
fn who_has_not_the_region_is_not_woken_whatever_it_says() {
    if !has("bells::who_has_not_the_region_is_not_woken_whatever_it_says", &["python3", "sleep"]) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let socket = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let known =
        sock::option_u64(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_COOKIE).expect("the kernel's number");
    let liar = Liar::new();
    liar.has_end(0, known, 0);
    let end = &liar.family.ends[0];
    end.state.store(end_state::COLD, Relaxed);
    liar.family.bells[0].store(bell::pack(1, 0), Relaxed);
    let (inbox, number): (&Inbox, i32) = region::new_inbox(3).expect("an inbox");
    inbox.asleep[0].store(1, Relaxed);
    let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
    let innocent = sleeper(number, &bell, Stdio::null());
    let holder = sleeper(number, &bell, copy(&liar).into());
    fd::close(number);
    let take = |other: &Running| {
        liar.has_member(1, other.0.id());
        end.holders.store(3, Relaxed);
        let mut take = run(["--", "python3"]);
        take.arg(workspace().join("crates/cli/tests/liars/take.py"));
        take.arg(std::process::id().to_string()).arg(socket.as_raw_fd().to_string());
        let output = within(MOST, take);
        assert_eq!(stdout(&output), "taken\n", "{}", stderr(&output));
        let mut count = [0; 8];
        rustix::io::read(&bell, &mut count).map(|_| u64::from_ne_bytes(count))
    };
    assert_eq!(take(&innocent), Err(rustix::io::Errno::AGAIN));
    assert!(!inbox.is_marked());
    assert_eq!(take(&holder), Ok(1));
    assert!(inbox.is_marked());
}
