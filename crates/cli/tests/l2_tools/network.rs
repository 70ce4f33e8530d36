//! Namespaces, and programs whose output is waited for.

use crate::common::bypath;
use bypath::l2::{self, MacAddr, Socket};
use bypath_sys::netns;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What no test should need.
pub const LONG: Duration = Duration::from_secs(20);

/// A test that runs in a user and network namespace of its own.
macro_rules! isolated {
    ($(#[$meta:meta])* fn $name:ident() $body:block) => {
        #[test]
        $(#[$meta])*
        fn $name() {
            $crate::network::in_namespace(concat!(module_path!(), "::", stringify!($name)), || $body);
        }
    };
}

/// Runs `body` in a process that was started in namespaces of its own.
pub fn in_namespace(path: &str, body: impl FnOnce()) {
    const INSIDE: &str = "BYPATH_TEST_NAMESPACE";
    // Without the crate's name, as libtest names tests.
    let name = path.split_once("::").map_or(path, |(_, name)| name);
    if std::env::var_os(INSIDE).is_some_and(|inside| inside == name) {
        return body();
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, name);
    match netns::isolated(&mut command).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
            // A part that was left out inside is told outside.
            text.lines().filter(|l| l.starts_with("skipped: ")).for_each(|l| println!("{l}"));
        }
        Err(e) => skip(name, &format!("no user and network namespaces: {e}")),
    }
}

/// Says that a test did not run, and why.
pub fn skip(name: &str, reason: &str) {
    println!("skipped: {name}: {reason}");
    if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS") {
        let mut file =
            std::fs::OpenOptions::new().append(true).create(true).open(path).expect("the list of skips");
        file.write_all(format!("{name}\t{reason}\n").as_bytes()).expect("the list of skips");
    }
}

/// Two interfaces, `left` and `right`, that are connected and up, and the loopback interface. Returns their addresses.
pub fn veth() -> (MacAddr, MacAddr) {
    netns::veth("left", "right", None).expect("a veth pair");
    for name in ["lo", "left", "right"] {
        netns::set_up(name, true).expect("an interface that is up");
    }
    let end = Instant::now() + LONG;
    // For a while after they are up the kernel still throws away what they send.
    while !l2::interfaces().expect("interfaces").iter().all(|i| i.loopback || i.flags & 0x40 != 0) {
        assert!(Instant::now() < end, "the interfaces do not run");
        std::thread::yield_now();
    }
    let mac = |name: &str| l2::Interface::named(name).expect("an interface").mac;
    (mac("left"), mac("right"))
}

/// A socket of the test's own, which waits long.
pub fn socket(interface: &str) -> Socket {
    Socket::builder(interface).ethertype(0x88b5).timeout(LONG).open().expect("a socket")
}

/// A `bypath` that runs. It is killed if the test ends before it does.
pub struct Tool {
    child: Child,
    lines: mpsc::Receiver<String>,
    /// What it said so far on standard error.
    pub said: String,
    output: Option<std::thread::JoinHandle<Vec<u8>>>,
}

/// How a tool ended.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ended {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Checks the exit status.
    #[track_caller]
    pub fn expect(self, code: i32) -> Ended {
        assert_eq!(self.code(), Some(code), "{}{}", self.text(), self.stderr);
        self
    }
}

impl Tool {
    pub fn start(args: &[&str]) -> Tool {
        let mut command = bypath(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("bypath starts");
        let stderr = child.stderr.take().expect("a pipe");
        let mut stdout = child.stdout.take().expect("a pipe");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                if sender.send(line.expect("a line")).is_err() {
                    break;
                }
            }
        });
        let output = std::thread::spawn(move || {
            let mut all = Vec::new();
            stdout.read_to_end(&mut all).expect("output");
            all
        });
        Tool { child, lines, said: String::new(), output: Some(output) }
    }

    /// Waits for a line on standard error that contains this.
    #[track_caller]
    pub fn says(mut self, what: &str) -> Tool {
        let end = Instant::now() + LONG;
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.said += &line;
            self.said.push('\n');
            if line.contains(what) {
                return self;
            }
        }
        panic!("`{what}` was not said:\n{}", self.said);
    }

    /// Writes to its standard input and closes it.
    pub fn give(mut self, input: &[u8]) -> Tool {
        let mut stdin = self.child.stdin.take().expect("standard input");
        let input = input.to_vec();
        // It may end before it has read all.
        std::thread::spawn(move || stdin.write_all(&input));
        self
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("a process");
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ended {
        drop(self.child.stdin.take());
        let end = Instant::now() + LONG;
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.said += &line;
            self.said.push('\n');
        }
        assert!(Instant::now() < end, "it does not end:\n{}", self.said);
        let stdout = self.output.take().expect("not yet taken").join().expect("the reader");
        let status = self.child.wait().expect("a status");
        Ended { status, stdout, stderr: std::mem::take(&mut self.said) }
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A tool that is started and ends.
pub fn tool(args: &[&str]) -> Ended {
    Tool::start(args).end()
}
