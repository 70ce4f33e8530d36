//! Whoever looks on holds nobody up: not while he looks, not when he is stopped, killed, or read by nobody.

use crate::common::{TempDir, bypath};
use crate::lab::{Running, Talk, has, signal, status, until};
use rustix::process::Signal;
use std::fs;
use std::process::Stdio;

/// Descriptors of a process and what it maps, in numbers.
fn holds(pid: u32) -> (usize, usize) {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors").count();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    (descriptors, maps.lines().filter(|l| l.contains("bypath")).count())
}

#[test]
fn a_watcher_that_is_stopped_killed_or_read_by_nobody_holds_nobody_up() {
    if !has(
        "undisturbed::a_watcher_that_is_stopped_killed_or_read_by_nobody_holds_nobody_up",
        &["python3", "script"],
    ) {
        return;
    }
    let mut talk = Talk::new();
    let folder = TempDir::new();
    let file = folder.join("watched.pcapng");
    let pids = [talk.server_pid(), talk.caller_pid()];
    let before = pids.map(holds);
    let port = talk.port.to_string();
    let to_file = bypath(["dump", "-w"]).arg(&file).args(["port", &port]).stderr(Stdio::null()).spawn();
    // Of more than a pipe holds nobody reads anything.
    let unread =
        bypath(["dump", "-w", "-", "port", &port]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let top = bypath(["top", "--once", "-d", "3600"]).stdout(Stdio::null()).spawn();
    let mut watchers = [to_file, unread, top].map(|child| Running(child.expect("bypath starts")));
    until("they follow", || {
        talk.does("resp 1");
        fs::metadata(&file).is_ok_and(|m| m.len() > 2000)
    });
    let traced = |pids: [u32; 2]| pids.map(|pid| status(pid, "TracerPid"));
    assert_eq!(traced(pids), ["0", "0"]);
    assert_eq!(pids.map(holds), before, "nothing is mapped or opened for who looks");
    talk.does("http 50 100000");
    for watcher in &watchers {
        signal(watcher.0.id(), Signal::STOP);
    }
    let stopped = |n: u32| status(n, "State").starts_with('T');
    until("they are stopped", || watchers.iter().all(|w| stopped(w.0.id())));
    let length = fs::metadata(&file).expect("a file").len();
    // Many rings full, through both of which nobody looks.
    talk.does("http 50 300000");
    assert_eq!(fs::metadata(&file).expect("a file").len(), length);
    for watcher in &mut watchers[..2] {
        signal(watcher.0.id(), Signal::CONT);
    }
    talk.does("http 50 100000");
    for watcher in &mut watchers {
        watcher.0.kill().expect("a child");
        watcher.0.wait().expect("a child");
    }
    talk.does("http 50 100000");
    assert_eq!(pids.map(holds), before);
}
