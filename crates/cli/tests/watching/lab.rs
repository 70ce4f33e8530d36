//! Two programs that talk when they are told to, and the means to look at them.

use crate::common::{bypath, run, workspace};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest that anything here takes on a machine that is busy.
pub const LONG: Duration = Duration::from_secs(60);

/// Says that a test is left out, and why; also in the list of the tests' closing summary.
pub fn skip(name: &str, reason: &str) {
    eprintln!("skipped: {name}: {reason}");
    if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).expect("the list");
        file.write_all(format!("{name}\t{reason}\n").as_bytes()).expect("the list");
    }
}

/// Whether every program is there; if not, says that the test is left out.
pub fn has(name: &str, programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing: Vec<_> = programs
        .iter()
        .filter(|program| !std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
        .collect();
    if !missing.is_empty() {
        skip(name, &format!("not installed: {missing:?}"));
    }
    missing.is_empty()
}

/// Sends a signal to a process of ours.
pub fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).expect("a number"), signal).expect("a child");
}

/// What the kernel says of a process: a line of its status.
pub fn status(pid: u32, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    text.lines()
        .find_map(|l| l.strip_prefix(field))
        .expect("a field")
        .trim_start_matches(':')
        .trim()
        .to_owned()
}

/// Asks until it is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "never: {what}");
    }
}

/// A program that is killed and waited for at the end.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server and who calls it, over one connection on rings.
pub struct Talk {
    server: Running,
    caller: Running,
    /// The server's.
    pub port: u16,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

fn program(args: &[&str]) -> Command {
    let mut command = run(["--upgrade=eager", "--", "python3"]);
    command.arg(workspace().join("crates/cli/tests/watching/talk.py")).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

impl Talk {
    /// Starts both, and lets them talk until both directions are on rings.
    pub fn new() -> Talk {
        Talk::at("127.0.0.1")
    }

    /// The same at such an address.
    pub fn at(address: &str) -> Talk {
        Talk::of(program, address)
    }

    /// The same of programs that are started so.
    pub fn of(program: impl Fn(&[&str]) -> Command, address: &str) -> Talk {
        let mut server = Running(program(&["serve", address]).spawn().expect("python3 starts"));
        let mut line = String::new();
        BufReader::new(server.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a port");
        let port: u16 = line.trim().parse().expect("a port");
        let mut caller =
            Running(program(&["call", &port.to_string(), address]).spawn().expect("python3 starts"));
        let to = caller.0.stdin.take().expect("a pipe");
        let from = BufReader::new(caller.0.stdout.take().expect("a pipe"));
        let mut talk = Talk { server, caller, port, to, from };
        let begun = Instant::now();
        loop {
            talk.does("resp 50");
            let both = [talk.server_pid(), talk.caller_pid()].map(|pid| {
                let output =
                    bypath(["ss", "--json", "--pid", &pid.to_string()]).output().expect("bypath starts");
                let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
                list.as_array().expect("a list").iter().any(|c| c["path"] == "ring")
            });
            if both == [true, true] {
                return talk;
            }
            assert!(begun.elapsed() < LONG, "never on rings");
        }
    }

    /// Number of the server's process.
    pub fn server_pid(&self) -> u32 {
        self.server.0.id()
    }

    /// Number of the caller's process.
    pub fn caller_pid(&self) -> u32 {
        self.caller.0.id()
    }

    /// Whether the caller has ended.
    pub fn caller_ended(&mut self) -> bool {
        self.caller.0.try_wait().expect("a child").is_some()
    }

    /// Tells the caller to do something.
    pub fn begin(&mut self, what: &str) {
        writeln!(self.to, "{what}").expect("the caller listens");
    }

    /// Waits until it is done.
    pub fn done(&mut self) {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("an answer");
        assert_eq!(line, "done\n");
    }

    /// Both.
    pub fn does(&mut self, what: &str) {
        self.begin(what);
        self.done();
    }
}
