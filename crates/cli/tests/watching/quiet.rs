//! Many sockets that say nothing, in one set with few that do: what a wait costs is counted in system calls.

use crate::common::{TempDir, run, workspace};
use crate::lab::{Running, has, skip};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const NAME: &str = "quiet::a_wait_asks_the_kernel_about_those_that_talk";

/// How often a server with so many sockets, of which two talk, asks the kernel whether one of them has something; `None`: nobody may be traced.
fn questions(count: u32) -> Option<usize> {
    let folder = TempDir::new();
    let counts = folder.join("counts");
    let script = workspace().join("crates/cli/tests/watching/crowd.py");
    let own = run(["--upgrade=eager", "--profile=latency", "--", "python3"]);
    let program = |role: &str| {
        let mut command = Command::new(own.get_program());
        command.args(own.get_args()).arg(&script).args([role, &count.to_string()]);
        command
    };
    let traced = program("serve");
    let mut server = Command::new("strace");
    server
        .args(["-f", "-e", "trace=ppoll,access,faccessat,faccessat2", "-o"])
        .arg(&counts)
        .arg(traced.get_program());
    server.args(traced.get_args()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, value) in own.get_envs() {
        server.env(name, value.unwrap_or_default());
    }
    let mut server = Running(server.spawn().expect("strace starts"));
    let mut ports = String::new();
    let read = BufReader::new(server.0.stdout.take().expect("a pipe")).read_line(&mut ports).expect("ports");
    if read == 0 {
        return None;
    }
    let mut caller = program("call");
    for (name, value) in own.get_envs() {
        caller.env(name, value.unwrap_or_default());
    }
    let output = caller.args(ports.split_whitespace()).output().expect("python3 starts");
    assert!(output.status.success(), "{output:?}");
    assert!(server.0.wait().expect("a child").success());
    let text = std::fs::read_to_string(&counts).expect("the counts");
    let talk = text.split_once("\"begins\"").unwrap_or_else(|| panic!("{text}")).1;
    Some(talk.matches("ppoll(").count())
}

#[test]
fn a_wait_asks_the_kernel_about_those_that_talk() {
    if !has(NAME, &["python3", "strace"]) {
        return;
    }
    let (Some(few), Some(many)) = (questions(4), questions(150)) else {
        return skip(NAME, "this user may not trace processes (ptrace, Yama or a container)");
    };
    // There are 200 pauses, before each of which all 150 would be asked about.
    assert!(many < few + 4_000, "{many} with 150 sockets, {few} with 4");
}
