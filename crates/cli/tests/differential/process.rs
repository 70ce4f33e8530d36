//! One scripted process: a line out, a line back, with a deadline.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longer than any deadline inside the agent: only a call that hangs takes this long.
const PATIENCE: Duration = Duration::from_secs(25);

/// What came back for a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The agent's line.
    Line(String),
    /// The process ended instead of answering.
    Died(String),
    /// Nothing, for longer than anything may take.
    Hung,
}

/// An agent: started by the driver, or forked or spawned by another agent.
pub struct Agent {
    /// `None` for processes started by an agent.
    child: Option<Child>,
    pid: u32,
    program: PathBuf,
    to: File,
    lines: Receiver<String>,
}

impl Agent {
    /// Starts `program` with its pipes on standard input and output; what it or the library complains about
    /// goes to `complaints`.
    pub fn start(program: &Path, environment: &HashMap<String, String>, complaints: &Path) -> Agent {
        let mut command = Command::new(program);
        command.env_remove("LD_PRELOAD");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BYPATH_")) {
            command.env_remove(name);
        }
        command.envs(environment);
        Agent::of(command, program, complaints)
    }

    /// The same by a command that becomes the program.
    pub fn of(mut command: Command, program: &Path, complaints: &Path) -> Agent {
        let complaints = File::create(complaints).expect("create the file for complaints");
        let mut child = command
            .env("AGENT_PATH", program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(complaints)
            .spawn()
            .expect("start the agent");
        let to = File::from(OwnedFd::from(child.stdin.take().expect("piped")));
        let from = File::from(OwnedFd::from(child.stdout.take().expect("piped")));
        let pid = child.id();
        Agent { child: Some(child), pid, program: program.to_owned(), to, lines: read_lines(move || from) }
    }

    /// Opens the named pipes that a fork or spawn made at `path`; the child opens them too.
    pub fn adopt(program: &Path, path: &Path, pid: u32) -> Option<Agent> {
        let answers = path.with_extension("out");
        let lines = read_lines(move || File::open(&answers).expect("open the child's pipe"));
        let end = Instant::now() + PATIENCE;
        let to = loop {
            // Non-blocking: a child that never comes must not stop the driver.
            let file =
                OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path.with_extension("in"));
            match file {
                Ok(file) => break file,
                Err(_) if Instant::now() > end => return None,
                Err(_) => std::thread::sleep(Duration::from_micros(200)),
            }
        };
        Some(Agent { child: None, pid, program: program.to_owned(), to, lines })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends one command and waits for its line.
    pub fn ask(&mut self, command: &str) -> Answer {
        if self.to.write_all(format!("{command}\n").as_bytes()).is_err() {
            return Answer::Died(self.status());
        }
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Answer::Line(line),
            Err(RecvTimeoutError::Timeout) => Answer::Hung,
            Err(RecvTimeoutError::Disconnected) => Answer::Died(self.status()),
        }
    }

    /// Sends a signal (`STOP`, `CONT`, `KILL`) to the process.
    pub fn signal(&self, signal: &str) {
        let command = format!("kill -{signal} {}", self.pid);
        let _ = Command::new("sh").args(["-c", &command]).stderr(Stdio::null()).status();
    }

    /// Whether the process has stopped (SIGSTOP).
    pub fn is_stopped(&self) -> bool {
        self.state() == Some('T')
    }

    /// Whether it has not ended.
    fn is_running(&self) -> bool {
        self.state().is_some_and(|state| !matches!(state, 'Z' | 'X'))
    }

    /// As proc(5) has it; `None`: it is gone.
    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        stat.rsplit(')').next()?.trim_start().chars().next()
    }

    /// Waits for the end of a process that was told to end; how it ended.
    pub fn status(&mut self) -> String {
        let end = Instant::now() + PATIENCE;
        let Some(child) = &mut self.child else {
            // Its pipes are closed before it is gone; and who kills it then changes what its parent is told.
            while self.is_running() && Instant::now() < end {
                std::thread::sleep(Duration::from_micros(200));
            }
            return "ended".to_owned();
        };
        loop {
            match child.try_wait().expect("wait for the agent") {
                Some(status) => {
                    return match (status.code(), status.signal()) {
                        (Some(code), _) => format!("exit {code}"),
                        (_, Some(signal)) => format!("signal {signal}"),
                        _ => "unknown".to_owned(),
                    };
                }
                None if Instant::now() > end => return "does not end".to_owned(),
                None => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }
}

/// Passes on the lines of a file that `open` opens (a named pipe waits there for its other end).
fn read_lines(open: impl FnOnce() -> File + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(open()).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

impl Drop for Agent {
    fn drop(&mut self) {
        match &mut self.child {
            Some(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            // Not our child: make sure that it still is the process we mean.
            None => {
                let exe = std::fs::read_link(format!("/proc/{}/exe", self.pid));
                if exe.is_ok_and(|e| e == self.program) {
                    self.signal("KILL");
                }
            }
        }
    }
}
