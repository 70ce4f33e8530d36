//! A child process that cannot outlive its test: each leads a process group of its own, which is killed
//! before the leader is reaped, and its output is kept to be shown when something fails.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use std::fmt;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A running program.
pub struct Process {
    name: String,
    child: Child,
    pidfd: OwnedFd,
    status: Option<ExitStatus>,
    deadline: Instant,
    stdout: Capture,
    stderr: Capture,
}

/// How a program ended and what it said.
#[derive(Debug)]
pub struct Outcome {
    pub name: String,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// What a child wrote so far, filled by a thread until end of file.
#[derive(Default)]
struct Capture {
    state: Arc<(Mutex<Captured>, Condvar)>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Captured {
    bytes: Vec<u8>,
    ended: bool,
}

impl Capture {
    fn start(mut from: impl Read + Send + 'static) -> Capture {
        let state: Arc<(Mutex<Captured>, Condvar)> = Arc::default();
        let theirs = Arc::clone(&state);
        let reader = std::thread::spawn(move || {
            let mut block = [0; 65536];
            loop {
                let n = from.read(&mut block).unwrap_or(0);
                let mut captured = theirs.0.lock().expect("no panic while locked");
                captured.bytes.extend_from_slice(&block[..n]);
                captured.ended = n == 0;
                theirs.1.notify_all();
                if n == 0 {
                    return;
                }
            }
        });
        Capture { state, reader: Some(reader) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.state.0.lock().expect("no panic while locked").bytes).into_owned()
    }

    /// Waits for a complete line for which `wanted` answers.
    fn wait_line<T>(&self, deadline: Instant, wanted: impl Fn(&str) -> Option<T>) -> Option<T> {
        let mut captured = self.state.0.lock().expect("no panic while locked");
        loop {
            let text = String::from_utf8_lossy(&captured.bytes);
            let complete = text.rfind('\n').map_or("", |end| &text[..end]);
            if let Some(found) = complete.lines().find_map(&wanted) {
                return Some(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if captured.ended || left.is_zero() {
                return None;
            }
            captured = self.state.1.wait_timeout(captured, left).expect("no panic while locked").0;
        }
    }

    /// Waits for the end of file; the process group is dead by now.
    fn join(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Process {
    /// Starts `command`. Its stdout is captured unless the caller directed it elsewhere (`own_stdout`).
    pub fn start(name: &str, mut command: Command, own_stdout: bool, deadline: Instant) -> Process {
        use std::os::unix::process::CommandExt;
        command.process_group(0).stderr(Stdio::piped());
        if !own_stdout {
            command.stdout(Stdio::piped());
        }
        // Another thread of the tests may be starting a program just now, and its child still has the file open for writing
        // that this one has copied.
        let mut child = loop {
            match command.spawn() {
                Err(e) if e.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < deadline => {
                    std::thread::yield_now();
                }
                other => break other.unwrap_or_else(|e| panic!("starting {command:?}: {e}")),
            }
        };
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("pidfd_open");
        let stdout = child.stdout.take().map_or_else(Capture::default, Capture::start);
        let stderr = child.stderr.take().map_or_else(Capture::default, Capture::start);
        Process { name: name.to_owned(), child, pidfd, status: None, deadline, stdout, stderr }
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote to stdout so far.
    pub fn said(&self) -> String {
        self.stdout.text()
    }

    /// Waits for a line on stdout or stderr and returns what `wanted` made of it.
    #[track_caller]
    pub fn ready<T>(&mut self, wanted: impl Fn(&str) -> Option<T>) -> T {
        // Either stream may carry it: short turns on each until the deadline.
        while Instant::now() < self.deadline {
            // What it wrote last may be on its way when it has ended: to the end of file then, which children that
            // have its output put off.
            let ended = self.has_ended();
            let turn =
                Instant::now() + if ended { Duration::from_secs(5) } else { Duration::from_millis(20) };
            for stream in [&self.stdout, &self.stderr] {
                if let Some(found) = stream.wait_line(turn.min(self.deadline), &wanted) {
                    return found;
                }
            }
            if ended {
                break;
            }
        }
        panic!("no ready line from {self}");
    }

    /// Waits until the process, or one of its group, listens on `port`, without connecting to it.
    #[track_caller]
    pub fn listening(&mut self, port: u16) {
        if !self.has(port, listens) {
            panic!("nothing listens on port {port}: {self}");
        }
    }

    /// Waits until it, or one of its group, has a UDP socket at `port`.
    #[track_caller]
    pub fn bound(&mut self, port: u16) {
        if !self.has(port, is_bound) {
            panic!("nothing is bound to port {port}: {self}");
        }
    }

    fn has(&self, port: u16, is_there: fn(u16) -> bool) -> bool {
        while Instant::now() < self.deadline {
            if is_there(port) {
                return true;
            }
            // The wait is on the process: one that ends before is reported at once.
            if self.poll(Duration::from_millis(5)) {
                break;
            }
        }
        false
    }

    fn poll(&self, at_most: Duration) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let at_most = Timespec::try_from(at_most).expect("a short time");
        poll(&mut fds, Some(&at_most)).is_ok_and(|n| n > 0)
    }

    /// Whether the process has ended (it may still have to be reaped).
    pub fn has_ended(&self) -> bool {
        self.status.is_some() || self.poll(Duration::ZERO)
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            kill_process(Pid::from_child(&self.child), signal).expect("the child is ours");
        }
    }

    /// Waits for the end by itself; fails at the deadline.
    #[track_caller]
    pub fn wait(mut self) -> Outcome {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let ended = self.poll(left);
        if !ended {
            panic!("still running at the deadline: {self}");
        }
        self.reap();
        self.outcome()
    }

    /// Asks a server to end with `signal` and waits for it.
    #[track_caller]
    pub fn stop(self, signal: Signal) -> Outcome {
        self.signal(signal);
        self.wait()
    }

    /// Kills what is left of the group and reaps the leader: as long as it is not reaped the group's number
    /// cannot be given to anybody else.
    fn reap(&mut self) {
        if self.status.is_none() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            self.status = self.child.wait().ok();
            self.stdout.join();
            self.stderr.join();
        }
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            name: self.name.clone(),
            status: self.status.expect("reaped"),
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (out, err) = (self.stdout.text(), self.stderr.text());
        write!(f, "{} (pid {})\n--- stdout\n{out}\n--- stderr\n{err}", self.name, self.pid())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let was_running = self.status.is_none();
        self.reap();
        if was_running && std::thread::panicking() {
            eprintln!("killed with the failing test: {self}");
        }
    }
}

impl Outcome {
    /// Fails unless the program ended with status 0.
    #[track_caller]
    pub fn ok(self) -> Outcome {
        let Outcome { name, status, stdout, stderr } = &self;
        assert!(status.success(), "{name}: {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
        self
    }

    /// The number after `label` on a line of its own, as our client scripts print it.
    #[track_caller]
    pub fn number(&self, label: &str) -> u64 {
        let number = self.stdout.lines().find_map(|l| l.strip_prefix(label)?.trim().parse().ok());
        number.unwrap_or_else(|| panic!("no {label} from {}:\n{}\n{}", self.name, self.stdout, self.stderr))
    }
}

/// Whether any socket of this network namespace listens on `port`: 0A is TCP_LISTEN.
fn listens(port: u16) -> bool {
    is_told("tcp", port, |state| state == "0A")
}

/// Whether any UDP socket of this network namespace is bound to `port`.
fn is_bound(port: u16) -> bool {
    is_told("udp", port, |_| true)
}

/// Whether the kernel's tables of a protocol have a socket with this local port and such a state.
fn is_told(protocol: &str, port: u16, is_so: fn(&str) -> bool) -> bool {
    ["", "6"].iter().any(|version| {
        let table = std::fs::read_to_string(format!("/proc/net/{protocol}{version}")).unwrap_or_default();
        table.lines().skip(1).any(|line| {
            // sl local_address:port rem_address:port st
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next().and_then(|a| a.rsplit(':').next());
            let state = fields.nth(1);
            state.is_some_and(is_so) && local.and_then(|p| u16::from_str_radix(p, 16).ok()) == Some(port)
        })
    })
}
