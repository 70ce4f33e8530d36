//! Children with a deadline: whatever they do, the bench goes on.

use super::cpu;
use super::peer::{Line, PeerResult};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// Longest time between two looks at whether the user pressed Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How much of a child's standard error is kept for the reason of a failure.
const STDERR_KEPT: usize = 4096;

/// Set by SIGINT and SIGTERM.
static INTERRUPTED: std::sync::LazyLock<Arc<AtomicBool>> = std::sync::LazyLock::new(Arc::default);

/// From now on, Ctrl-C ends the bench in an orderly way: children are killed, files removed. The next one ends it at once.
pub fn catch_interrupts() -> std::io::Result<()> {
    crate::ending::watch(&INTERRUPTED)
}

/// Whether the user asked to stop.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Relaxed)
}

/// A running child. Dropping it kills it.
pub struct Child {
    inner: std::process::Child,
    name: String,
    lines: mpsc::Receiver<String>,
    stderr: Arc<Mutex<Vec<u8>>>,
}

/// How a child ended.
#[derive(Debug)]
pub struct Ended {
    /// What is left of its standard output.
    pub output: Vec<String>,
    /// Processor time of the whole process and of all children it waited for.
    pub cpu_ns: u64,
    /// When its end was seen.
    pub at: Instant,
}

impl Child {
    /// Starts it with its outputs captured and nothing to read.
    pub fn spawn(mut command: Command, name: &str) -> Result<Child, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut inner = command
            .spawn()
            .map_err(|e| format!("{name}: cannot start {}: {e}", command.get_program().display()))?;
        let (send, lines) = mpsc::channel();
        let stdout = inner.stdout.take().expect("piped");
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let (mut pipe, kept) = (inner.stderr.take().expect("piped"), Arc::clone(&stderr));
        std::thread::spawn(move || {
            let mut buf = [0; 1024];
            while let Ok(n @ 1..) = pipe.read(&mut buf) {
                let mut kept = kept.lock().expect("no panic while held");
                kept.extend_from_slice(&buf[..n]);
                let excess = kept.len().saturating_sub(STDERR_KEPT);
                kept.drain(..excess);
            }
        });
        Ok(Child { inner, name: name.to_owned(), lines, stderr })
    }

    /// Its process id (under `bypath run` also that of the program).
    pub fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// Next line of its standard output.
    pub fn line(&mut self, deadline: Instant) -> Result<String, String> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left.min(LOOK_EVERY)) {
                Ok(line) => return Ok(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(self.how_it_ended()),
                Err(mpsc::RecvTimeoutError::Timeout) if interrupted() => return Err("interrupted".into()),
                Err(mpsc::RecvTimeoutError::Timeout) if left.is_zero() => {
                    return Err(format!("{}: no answer in time", self.name));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// The address that a measured program waits at.
    pub fn ready(&mut self, deadline: Instant) -> Result<String, String> {
        match self.message(deadline)? {
            Line::Ready(address) => Ok(address),
            other => Err(format!("{}: unexpected {other:?}", self.name)),
        }
    }

    /// The result of a measured program, which then ends.
    pub fn result(&mut self, deadline: Instant) -> Result<PeerResult, String> {
        let result = match self.message(deadline)? {
            Line::Result(result) => *result,
            other => return Err(format!("{}: unexpected {other:?}", self.name)),
        };
        self.finish(deadline)?;
        Ok(result)
    }

    fn message(&mut self, deadline: Instant) -> Result<Line, String> {
        let line = self.line(deadline)?;
        match serde_json::from_str(&line) {
            Ok(Line::Error(e)) => Err(format!("{}: {e}", self.name)),
            Ok(line) => Ok(line),
            Err(e) => Err(format!("{}: unexpected output {line:?}: {e}", self.name)),
        }
    }

    /// Waits for its end; anything but exit status 0 is an error.
    pub fn finish(&mut self, deadline: Instant) -> Result<Ended, String> {
        let fail = |e: rustix::io::Errno| format!("waiting for a child: {e}");
        let pid = Pid::from_raw(self.inner.id() as i32).expect("not 0");
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(fail)?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left.min(LOOK_EVERY)).map_err(|e| e.to_string())?;
            match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)) {
                Ok(0) if interrupted() => return Err("interrupted".into()),
                Ok(0) if left.is_zero() => return Err(format!("{}: did not end in time", self.name)),
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => break,
                Err(e) => return Err(fail(e)),
            }
        }
        let at = Instant::now();
        // This thread alone waits for children: what is added is this one's.
        let before = cpu::of_ended_children();
        let status = self.inner.wait().map_err(|e| e.to_string())?;
        let cpu_ns = cpu::of_ended_children() - before;
        // Bounded: a child of the child may hold the pipe open.
        let mut output = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(LOOK_EVERY) {
            output.push(line);
        }
        if status.success() {
            Ok(Ended { output, cpu_ns, at })
        } else {
            Err(self.describe(&status.to_string()))
        }
    }

    /// Whether this stands in what is kept of its standard error.
    pub fn has_complained(&self, words: &str) -> bool {
        let stderr = self.stderr.lock().expect("no panic while held");
        String::from_utf8_lossy(&stderr).contains(words)
    }

    /// Asks it to end, and waits for that until `deadline`.
    pub fn stop(&mut self, signal: Signal, deadline: Instant) {
        let pid = Pid::from_raw(self.inner.id() as i32).expect("not 0");
        // Errors mean that it has ended already, or will be killed when dropped.
        let _ = kill_process(pid, signal);
        let _ = self.finish(deadline);
    }

    fn how_it_ended(&mut self) -> String {
        // Its output is closed; give it a moment to end, but no more.
        match self.finish(Instant::now() + Duration::from_secs(2)) {
            Ok(_) => self.describe("ended without a result"),
            Err(e) => e,
        }
    }

    fn describe(&self, what: &str) -> String {
        let stderr = self.stderr.lock().expect("no panic while held");
        let text = String::from_utf8_lossy(&stderr);
        let last: Vec<&str> = text.lines().rev().filter(|l| !l.trim().is_empty()).take(2).collect();
        match last.is_empty() {
            true => format!("{}: {what}", self.name),
            false => {
                format!("{}: {what}: {}", self.name, last.into_iter().rev().collect::<Vec<_>>().join(" | "))
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.inner.kill();
        let _ = self.inner.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Child::spawn(command, "child").unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn a_child_that_hangs_is_reported_and_killed() {
        let mut child = shell("exec sleep 1000");
        let pid = child.pid();
        let error = child.line(Instant::now() + Duration::from_millis(50)).unwrap_err();
        assert!(error.contains("no answer in time"), "{error}");
        let error = child.finish(Instant::now() + Duration::from_millis(50)).unwrap_err();
        assert!(error.contains("did not end in time"), "{error}");
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_child_that_crashes_is_reported_with_its_last_words() {
        let error = shell("echo what went wrong >&2; kill -9 $$").result(soon()).unwrap_err();
        assert!(error.contains("signal: 9"), "{error}");
        let error = shell("exit 3").finish(soon()).unwrap_err();
        assert!(error.contains("exit status: 3"), "{error}");
    }

    #[test]
    fn an_end_without_a_result_is_an_error() {
        let error = shell("exit 0").result(soon()).unwrap_err();
        assert!(error.contains("ended without a result"), "{error}");
        let error = shell("echo nonsense").result(soon()).unwrap_err();
        assert!(error.contains("unexpected output"), "{error}");
    }

    #[test]
    fn an_error_line_is_passed_on() {
        let error = shell(r#"echo '{"error":"wrong byte"}'; exit 1"#).result(soon()).unwrap_err();
        assert_eq!(error, "child: wrong byte");
    }
}
