//! Namespaces, and programs whose output is waited for.

use crate::common::bypath;
use bypath::l2::{self, MacAddr, Socket};
use bypath_sys::netns;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

#[path = "../../../link/tests/common/namespace.rs"]
mod namespace;
#[allow(unused_imports, reason = "some tests have namespaces of another kind")]
pub use namespace::{apart, in_namespace, skip};

/// What no test should need.
pub const LONG: Duration = Duration::from_secs(60);

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

/// Two interfaces, `left` and `right`, that are connected and up, and the loopback interface. Returns their addresses.
pub fn veth() -> (MacAddr, MacAddr) {
    veths(&[("left", "right")]);
    let mac = |name: &str| l2::Interface::named(name).expect("an interface").mac;
    (mac("left"), mac("right"))
}

/// Pairs of connected interfaces that are up, and the loopback interface.
pub fn veths(pairs: &[(&str, &str)]) {
    for (a, b) in pairs {
        netns::veth(a, b, None).expect("a veth pair");
    }
    for name in pairs.iter().flat_map(|(a, b)| [*a, *b]).chain(["lo"]) {
        netns::set_up(name, true).expect("an interface that is up");
    }
    they_run();
}

/// Two hosts: `left` with 10.0.0.1 here, and `right` with 10.0.0.2 in the namespace that is returned.
pub fn hosts() -> netns::Namespace {
    let there = netns::Namespace::new().expect("a namespace");
    netns::veth("left", "right", Some(&there)).expect("a veth pair");
    let up = |name: &str, ip: &str| {
        netns::set_up(name, true).expect("an interface that is up");
        address(name, ip);
    };
    there.run(|| up("right", "10.0.0.2")).expect("the other host");
    up("left", "10.0.0.1");
    they_run();
    there.run(they_run).expect("the other host");
    there
}

/// Waits until all interfaces carry frames.
pub fn they_run() {
    let end = Instant::now() + LONG;
    // For a while after they are up the kernel still throws away what they send.
    while !l2::interfaces().expect("interfaces").iter().all(|i| !i.up || i.loopback || i.flags & 0x40 != 0) {
        assert!(Instant::now() < end, "the interfaces do not run");
        std::thread::yield_now();
    }
}

/// Gives an interface an address.
pub fn address(interface: &str, address: &str) {
    netns::add_address(interface, address.parse().expect("an address"), 24).expect("an address that is free");
}

/// Octets of every value, in no simple order.
pub fn octets(len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Runs `body` on a thread that, with what it starts, has no CAP_NET_RAW.
pub fn without_net_raw(body: impl FnOnce() + Send) {
    without(rustix::thread::CapabilitySet::NET_RAW, body);
}

/// Runs `body` on a thread that, with what it starts, does not have these capabilities.
pub fn without<T: Send>(set: rustix::thread::CapabilitySet, body: impl FnOnce() -> T + Send) -> T {
    let drop_them = || {
        set.iter().for_each(|one| {
            rustix::thread::remove_capability_from_bounding_set(one).expect("a bounding set");
        });
        let mut have = rustix::thread::capabilities(None).expect("capabilities");
        have.inheritable.remove(set);
        rustix::thread::set_capabilities(None, have).expect("fewer capabilities");
        body()
    };
    std::thread::scope(|scope| scope.spawn(drop_them).join().expect("the thread"))
}

/// Checks that no packet socket is open in this namespace, and no port waits.
pub fn nothing_is_left() {
    let lines = |path: &str| std::fs::read_to_string(path).expect(path).lines().count() - 1;
    let end = Instant::now() + LONG;
    // The kernel takes its time with sockets that were closed.
    while lines("/proc/net/packet") > 0 {
        assert!(Instant::now() < end, "a packet socket is left");
        std::thread::yield_now();
    }
    std::net::TcpListener::bind(("127.0.0.1", 9000)).expect("a port that is free");
    let names: Vec<_> =
        l2::interfaces().expect("interfaces").into_iter().map(|i| (i.name, i.flags & 0x100)).collect();
    let expected = ["left", "lo", "right"].map(|n| (n.to_owned(), 0));
    let mut sorted = names;
    sorted.sort();
    assert_eq!(sorted, expected, "interfaces, and whether they are promiscuous");
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
    printed: mpsc::Receiver<Vec<u8>>,
    /// What it wrote so far on standard output.
    heard: Vec<u8>,
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
        Tool::of(bypath(args))
    }

    /// Any program.
    pub fn of(mut command: Command) -> Tool {
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
        let (sender, printed) = mpsc::channel();
        std::thread::spawn(move || {
            let mut chunk = vec![0; 1 << 16];
            // A terminal that is gone is an error, which is an end, too.
            while let Ok(len @ 1..) = stdout.read(&mut chunk) {
                if sender.send(chunk[..len].to_vec()).is_err() {
                    break;
                }
            }
        });
        Tool { child, lines, said: String::new(), printed, heard: Vec::new() }
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

    /// Waits until this was written to standard output.
    #[track_caller]
    pub fn hears(mut self, what: &str) -> Tool {
        let end = Instant::now() + LONG;
        while !self.heard.windows(what.len()).any(|w| w == what.as_bytes()) {
            match self.printed.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(octets) => self.heard.extend(octets),
                Err(_) => {
                    panic!("`{what}` was not heard: {}{}", String::from_utf8_lossy(&self.heard), self.said)
                }
            }
        }
        self
    }

    /// Waits until anything more was written to standard output.
    #[allow(dead_code, reason = "tests of programs that say the same again")]
    #[track_caller]
    pub fn hears_more(mut self) -> Tool {
        match self.printed.recv_timeout(LONG) {
            Ok(octets) => self.heard.extend(octets),
            Err(_) => panic!("nothing more was heard: {}{}", String::from_utf8_lossy(&self.heard), self.said),
        }
        self
    }

    /// What it wrote to standard output, as far as that was waited for.
    #[allow(dead_code, reason = "tests of services read reports")]
    pub fn heard(&self) -> String {
        String::from_utf8_lossy(&self.heard).into_owned()
    }

    /// Writes to its standard input, which stays open.
    pub fn write(&mut self, input: &[u8]) {
        self.child.stdin.as_mut().expect("standard input").write_all(input).expect("a reader");
    }

    /// Writes to its standard input and closes it.
    pub fn give(mut self, input: &[u8]) -> Tool {
        let mut stdin = self.child.stdin.take().expect("standard input");
        let input = input.to_vec();
        // It may end before it has read all.
        std::thread::spawn(move || stdin.write_all(&input));
        self
    }

    /// Closes its standard input.
    pub fn quiet(mut self) -> Tool {
        drop(self.child.stdin.take());
        self
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("a process");
    }

    /// Stops it, and waits until it is.
    pub fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
        let end = Instant::now() + LONG;
        let stat = format!("/proc/{}/stat", self.id());
        while !std::fs::read_to_string(&stat)
            .is_ok_and(|s| s.rsplit(") ").next().is_some_and(|s| s.starts_with('T')))
        {
            assert!(Instant::now() < end, "it does not stop");
            std::thread::yield_now();
        }
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
        while let Ok(octets) = self.printed.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.heard.extend(octets);
        }
        assert!(Instant::now() < end, "its output does not end:\n{}", self.said);
        let status = self.child.wait().expect("a status");
        Ended { status, stdout: std::mem::take(&mut self.heard), stderr: std::mem::take(&mut self.said) }
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
