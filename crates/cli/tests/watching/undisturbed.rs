//! Whoever looks on holds nobody up: not while he looks, not when he is stopped, killed, or read by nobody.

use crate::common::{TempDir, bypath};
use crate::lab::{Running, Talk, has, signal, status, until};
use crate::still::said;
use crate::udp::Post;
use rustix::process::Signal;
use std::fs;
use std::process::Stdio;

/// What the descriptors of a process mean, and what it maps of ours.
fn holds(pid: u32) -> (Vec<String>, usize) {
    let link = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.expect("a descriptor");
        let means = fs::read_link(entry.path()).expect("what it means");
        format!("{} {}", entry.file_name().display(), means.display())
    };
    let mut all: Vec<_> = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors").map(link).collect();
    all.sort();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    (all, maps.lines().filter(|l| l.contains("bypath")).count())
}

/// Lets both sleep until each has its bell, and the other one's: those are made at the first sleep, which a busy machine may bring late.
fn sleep_once(talk: &mut Talk) {
    let pids = [talk.server_pid(), talk.caller_pid()];
    let has_both = |pid: u32| holds(pid).0.iter().filter(|what| what.ends_with("[eventfd]")).count() == 2;
    until("both have slept", || {
        signal(pids[0], Signal::STOP);
        talk.begin("resp 1");
        until("the caller sleeps", || status(pids[1], "State").starts_with('S'));
        signal(pids[0], Signal::CONT);
        talk.done();
        until("the server sleeps", || status(pids[0], "State").starts_with('S'));
        pids.into_iter().all(has_both)
    });
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
    sleep_once(&mut talk);
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

#[test]
fn a_view_leaves_nothing_behind_and_waits_for_nobody() {
    if !has("undisturbed::a_view_leaves_nothing_behind_and_waits_for_nobody", &["python3", "taskset"]) {
        return;
    }
    let (mut talk, mut post) = (Talk::new(), Post::new());
    post.talks(500);
    let servers = [talk.server_pid(), post.server.0.id()];
    let all = [servers[0], talk.caller_pid(), servers[1], post.caller.0.id()];
    let is = |state: char| move |pid: &u32| status(*pid, "State").starts_with(state);
    for stop in [false, true] {
        until("nobody has anything to do", || all.iter().all(is('S')));
        if stop {
            servers.iter().for_each(|pid| signal(*pid, Signal::STOP));
            until("the servers are stopped", || servers.iter().all(is('T')));
        }
        let before = all.map(holds);
        for pid in all.map(|pid| pid.to_string()) {
            said(&["ss", "--pid", &pid]);
            said(&["ss", "-u", "--pid", &pid]);
            said(&["why", &pid]);
            said(&["top", "--once", "-d", "0.1", "pid", &pid]);
            said(&["dump", "--seconds", "0.1", "pid", &pid]);
        }
        said(&["metrics"]);
        assert_eq!(all.map(holds), before, "nothing is mapped or opened for who looks");
        assert_eq!(all.map(|pid| status(pid, "TracerPid")), ["0"; 4]);
        if stop {
            assert!(servers.iter().all(is('T')), "nobody lets them go on");
            servers.iter().for_each(|pid| signal(*pid, Signal::CONT));
        }
        talk.does("resp 10");
        post.talks(10);
    }
}
