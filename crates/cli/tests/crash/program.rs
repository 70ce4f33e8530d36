//! One program of a test: preloaded, perhaps doomed to die at a point, and what it left behind.
//!
//! Waiting needs no deadline here: each program ends itself by SIGALRM (`LIFETIME` in crash.h), and a test that sees
//! that fails.

use crate::programs;
use bypath_shm::stats::{RECORD_SIZE, StatsSnapshot};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// SIGKILL.
const KILL: i32 = 9;

/// A directory for the files of a test, removed with it.
pub struct Place(PathBuf);

impl Place {
    pub fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("crash-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = programs::workshop().join(name);
        std::fs::create_dir_all(&path).expect("create the test's directory");
        Place(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The directory.
    pub fn text(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }

    /// Makes a named pipe.
    pub fn pipe(&self, name: &str) {
        let status = Command::new("mkfifo").arg(self.path(name)).status().expect("run mkfifo");
        assert!(status.success(), "mkfifo: {status}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running program.
pub struct Program {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    stats: PathBuf,
}

impl Program {
    /// Starts `words[0]` with the library on both paths of its life; `environment` adds to its settings.
    pub fn start(place: &Place, name: &str, words: &[&str], environment: &[(&str, &str)]) -> Program {
        let stats = place.path(&format!("{name}.stats"));
        let mut command = Command::new(words[0]);
        for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("BYPATH_")) {
            command.env_remove(variable);
        }
        let mut child = command
            .args(&words[1..])
            .env("LD_PRELOAD", programs::library())
            .env("BYPATH_UPGRADE", "eager")
            .env("BYPATH_STATS", &stats)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start the program");
        let input = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Program { name: name.to_owned(), child, input, lines, stats }
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Whether there is something of it to be read.
    pub fn has_spoken(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut one = [PollFd::new(self.lines.get_ref(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_there = poll(&mut one, Some(&now)).is_ok() && one[0].revents().contains(PollFlags::IN);
        is_there || !self.lines.buffer().is_empty()
    }

    /// The next line that it prints.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("read a line");
        if line.is_empty() {
            let (status, complaints) = self.end();
            panic!("the {} ended without a line: {status}\n{complaints}", self.name);
        }
        line.trim().to_owned()
    }

    /// The next line without its first words, which must be `label`.
    #[track_caller]
    pub fn expect(&mut self, label: &str) -> String {
        let line = self.line();
        let rest = line.strip_prefix(label);
        rest.unwrap_or_else(|| panic!("the {} says {line:?}, not {label:?}", self.name)).trim().to_owned()
    }

    /// Gives it a line to read.
    pub fn tell(&mut self, line: &str) {
        // Whoever died reads nothing: what it says then is looked at elsewhere.
        let _ = writeln!(self.input.as_mut().expect("piped"), "{line}");
    }

    fn end(&mut self) -> (ExitStatus, String) {
        drop(self.input.take());
        let mut complaints = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut complaints).expect("read its complaints");
        }
        (self.child.wait().expect("wait for the program"), complaints)
    }

    /// Waits for its end, which must be in order.
    #[track_caller]
    pub fn finish(mut self) {
        let (status, complaints) = self.end();
        assert!(status.success(), "the {} failed: {status}\n{complaints}", self.name);
    }

    /// Waits for its end. True if it was killed; false if it came through, which it says by status 3.
    #[track_caller]
    pub fn was_killed(mut self) -> bool {
        let (status, complaints) = self.end();
        let killed = status.signal() == Some(KILL);
        assert!(killed || status.code() == Some(3), "the {} failed: {status}\n{complaints}", self.name);
        killed
    }

    /// Its counters so far.
    #[track_caller]
    pub fn stats(&self) -> StatsSnapshot {
        let own = self.family_stats().into_iter().find(|s| s.pid == self.child.id());
        own.expect("a record of the program")
    }

    /// The counters of all processes of its family.
    pub fn family_stats(&self) -> Vec<StatsSnapshot> {
        let raw = std::fs::read(&self.stats).expect("the statistics");
        raw.chunks(RECORD_SIZE).filter_map(StatsSnapshot::decode).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a program noted before it died.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub returned: u64,
    pub attempted: u64,
    pub received: u64,
}

impl Progress {
    /// The record number `index` of a file.
    pub fn read(path: &Path, index: usize) -> Progress {
        let raw = std::fs::read(path).expect("the progress");
        let word = |i: usize| {
            let at = (4 * index + i) * 8;
            u64::from_ne_bytes(raw[at..at + 8].try_into().expect("8 bytes"))
        };
        Progress { returned: word(0), attempted: word(1), received: word(2) }
    }
}

/// The value of `name=VALUE` in a report.
#[track_caller]
pub fn field<'a>(report: &'a str, name: &str) -> &'a str {
    let found = report.split_whitespace().find_map(|w| w.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {name} in {report:?}"))
}
