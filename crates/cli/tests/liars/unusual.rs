//! Honest processes of which `/proc` tells in another way than of most.

use crate::common::{bypath, workspace};
use crate::lab::{Running, has, skip, status};
use crate::liar::{Liar, copy, within};
use crate::whose::{STRANGER, may_be_others};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How many sockets a look at a process shows.
fn rows(look: Command) -> usize {
    let output = within(Duration::from_secs(30), look);
    let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    list.as_array().map_or(0, Vec::len)
}

fn look_at(pid: u32) -> Command {
    bypath(["ss", "--json", "--pid", &pid.to_string()])
}

/// It holds the first end of the region.
fn holds(liar: &Liar, pid: u32) {
    liar.has_member(1, pid);
    liar.has_end(0, 77, 78);
    liar.family.ends[0].holders.store(2, Relaxed);
}

#[test]
fn a_process_whose_first_thread_has_ended_is_shown() {
    let name = "unusual::a_process_whose_first_thread_has_ended_is_shown";
    if !has(name, &["python3"]) {
        return;
    }
    let liar = Liar::new();
    let code = "import ctypes, sys, threading\nthreading.Thread(target=sys.stdin.read).start()\nctypes.CDLL(None).pthread_exit(None)";
    let mut other = Command::new("python3");
    other.args(["-c", code]).stdin(Stdio::piped()).stdout(copy(&liar));
    let other = Running(other.spawn().expect("python3 starts"));
    let pid = other.0.id();
    crate::lab::until("its first thread ends", || status(pid, "State").starts_with('Z'));
    holds(&liar, pid);
    assert_eq!(rows(look_at(pid)), 1);
    let said = within(Duration::from_secs(30), bypath(["why", &pid.to_string()]));
    assert!(String::from_utf8_lossy(&said.stdout).contains("1 connection"), "{said:?}");
}

#[test]
fn processes_of_another_time_namespace_are_shown() {
    let name = "unusual::processes_of_another_time_namespace_are_shown";
    let other_time = ["--time", "--boottime", "1000", "--fork"];
    if !has(name, &["unshare", "cat"]) {
        return;
    }
    let is_made = Command::new("unshare").args(other_time).arg("true").status().is_ok_and(|s| s.success());
    if !is_made {
        return skip(name, "no time namespace may be made");
    }
    let liar = Liar::new();
    let mut other = Command::new("cat");
    let other = Running(other.stdin(Stdio::piped()).stdout(copy(&liar)).spawn().expect("cat starts"));
    let pid = other.0.id();
    holds(&liar, pid);
    let mut there = Command::new("unshare");
    let tool = look_at(pid);
    there.args(other_time).arg(tool.get_program()).args(tool.get_args()).current_dir(workspace());
    assert_eq!((rows(look_at(pid)), rows(there)), (1, 1));
    // In the own one a start time that does not fit is another process's.
    liar.family.header.processes[1].start_time.fetch_add(1, Relaxed);
    assert_eq!(rows(look_at(pid)), 0);
}

/// Whoever makes a pid namespace has processes of any number there.
#[test]
fn who_has_the_number_of_one_of_roots_processes_does_not_stand_in_its_place() {
    let name = "unusual::who_has_the_number_of_one_of_roots_processes_does_not_stand_in_its_place";
    let first = ["--pid", "--fork", "--kill-child"];
    if !has(name, &["unshare", "setpriv", "cat"]) || !may_be_others(name) {
        return;
    }
    if !Command::new("unshare").args(first).arg("true").status().is_ok_and(|s| s.success()) {
        return skip(name, "no pid namespace may be made");
    }
    let liar = Liar::new();
    // Each is process 1 of its namespace.
    let start = |command: &[&str]| {
        let mut made = Command::new("unshare");
        let made = made.args(first).args(command).stdin(Stdio::piped()).stdout(copy(&liar)).spawn();
        let made = Running(made.expect("unshare starts"));
        let mut pid = String::new();
        crate::lab::until("it runs", || {
            let pids = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", made.0.id()));
            pid = pids.unwrap_or_default().trim().into();
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "cat\n")
        });
        (made, pid.parse::<u32>().expect("one child"))
    };
    let user = STRANGER.to_string();
    let (_stranger, lower) = start(&["setpriv", "--reuid", &user, "--clear-groups", "cat"]);
    let (_own, higher) = start(&["cat"]);
    assert!(lower < higher, "numbers have begun anew: this test shows nothing");
    holds(&liar, higher);
    let member = &liar.family.header.processes[1];
    member.pid.store(1, Relaxed);
    // As where it saw no /proc.
    member.start_time.store(0, Relaxed);
    assert_eq!([lower, higher].map(|pid| rows(look_at(pid))), [0, 1]);
}
