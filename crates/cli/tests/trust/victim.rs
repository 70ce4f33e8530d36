//! The program that is attacked, and an honest one that talks to it meanwhile.

use crate::programs;
use rustix::process::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// Nothing here takes as long as this unless something hangs.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| programs::compile("trust", &["trust.c"], &[]))
}

/// The one that does something after which a ring's octets are none of the stream's.
pub fn late_program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let libraries: &[_] = if Path::new("/usr/include/liburing.h").exists() { &["-luring"] } else { &[] };
    PROGRAM.get_or_init(|| programs::compile_with("late", &["late.c"], &[], libraries))
}

/// The one whose mailboxes are attacked.
pub fn mail_program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| programs::compile("mail", &["mail.c"], &[]))
}

/// A process under the library, and what it says.
pub struct Process {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Process {
    pub fn start(words: &[&str]) -> Process {
        Process::of(program(), words)
    }

    pub fn of(program: &PathBuf, words: &[&str]) -> Process {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", programs::library());
        Process::by(command, words)
    }

    /// By a command that says which library.
    pub fn by(mut command: Command, words: &[&str]) -> Process {
        let mut child = command
            .args(words)
            .env("BYPATH_UPGRADE", "eager")
            .env("BYPATH_LOG", std::env::var_os("BYPATH_LOG").unwrap_or("off".into()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the program");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Process { input: child.stdin.take().expect("piped"), child, lines }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The next line.
    #[track_caller]
    pub fn line(&mut self, what: &str) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: nothing is said: {}", self.describe()),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                panic!("{what}: it ended: {}", self.child.wait().expect("wait"))
            }
        }
    }

    /// The next line, if there is one within that time.
    #[track_caller]
    pub fn line_within(&mut self, time: Duration) -> Option<String> {
        match self.lines.recv_timeout(time) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                panic!("it ended: {}", self.child.wait().expect("wait"))
            }
        }
    }

    /// The same; `None` also where it has ended.
    pub fn next_line(&mut self, time: Duration) -> Option<String> {
        self.lines.recv_timeout(time).ok()
    }

    pub fn tell(&mut self, line: &str) {
        // Who has ended says nothing more, which is noticed where something is to be said.
        let _ = writeln!(self.input, "{line}");
    }

    #[track_caller]
    pub fn expect(&mut self, line: &str, what: &str) {
        assert_eq!(self.line(what), line, "{what}");
    }

    /// It is there, and has said nothing.
    #[track_caller]
    pub fn is_well(&mut self, what: &str) {
        if let Ok(line) = self.lines.try_recv() {
            panic!("{what}: it says: {line}");
        }
        if let Some(status) = self.child.try_wait().expect("wait") {
            panic!("{what}: it ended: {status}");
        }
    }

    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("its descriptors").count()
    }

    pub fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("its threads").count()
    }

    /// How many of its descriptors lead to something of this name.
    pub fn holds(&self, name: &str) -> usize {
        let all =
            std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("its descriptors").flatten();
        all.filter_map(|e| std::fs::read_link(e.path()).ok())
            .filter(|to| to.to_string_lossy().contains(name))
            .count()
    }

    /// How many of its mappings are of something of this name.
    pub fn maps(&self, name: &str) -> usize {
        let all = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id())).expect("its mappings");
        all.lines().filter(|line| line.contains(name)).count()
    }

    /// How long those of its mappings of something of this name are that it can read and write.
    pub fn can_touch(&self, name: &str) -> Vec<usize> {
        let all = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id())).expect("its mappings");
        let length = |line: &str| {
            let (from, to) = line.split_whitespace().next()?.split_once('-')?;
            Some(usize::from_str_radix(to, 16).ok()? - usize::from_str_radix(from, 16).ok()?)
        };
        let those = all.lines().filter(|line| line.contains(name) && line.contains(" rw"));
        those.map(|line| length(line).expect("a range")).collect()
    }

    /// How many of its mappings of something of this name are part of a core dump.
    pub fn dumps(&self, name: &str) -> usize {
        let all = std::fs::read_to_string(format!("/proc/{}/smaps", self.child.id())).expect("its mappings");
        let mut is_it = false;
        let mut seen = [0; 2];
        for line in all.lines() {
            match line.strip_prefix("VmFlags:") {
                Some(flags) if is_it => seen[usize::from(flags.split_whitespace().any(|f| f == "dd"))] += 1,
                Some(_) => {}
                // A range; all other lines begin with a word that ends in a colon.
                None if !line.split_whitespace().next().is_some_and(|w| w.ends_with(':')) => {
                    is_it = line.contains(name);
                }
                None => {}
            }
        }
        assert!(seen != [0; 2], "nothing of this name is mapped");
        seen[0]
    }

    /// Where its threads are.
    pub fn describe(&self) -> String {
        let id = self.child.id();
        let read = |file: String| std::fs::read_to_string(file).unwrap_or_default().trim().to_owned();
        let tasks = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
        tasks
            .map(|task| task.file_name().into_string().unwrap_or_default())
            .map(|t| {
                let at = |name: &str| read(format!("/proc/{id}/task/{t}/{name}"));
                format!("\n  {t}: {} | {}", at("wchan"), at("syscall"))
            })
            .collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that is attacked, with an honest process that talks to it and an honest connection without rings.
pub struct Victim {
    pub server: Process,
    pub port: u16,
    talker: Process,
    plain: TcpStream,
}

impl Victim {
    pub fn start(mode: &str) -> Victim {
        let command = || {
            let mut command = Command::new(program());
            command.env("LD_PRELOAD", programs::library());
            command
        };
        Victim::of(command, mode)
    }

    /// Both programs by such commands.
    pub fn of(command: impl Fn() -> Command, mode: &str) -> Victim {
        let mut server = Process::by(command(), &[mode]);
        let line = server.line("the victim");
        let port = line.strip_prefix("port ").and_then(|port| port.parse().ok()).expect("a port");
        let mut talker = Process::by(command(), &["talk", &format!("{port}")]);
        talker.expect("talking", "the honest process");
        let plain = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).expect("connect");
        plain.set_read_timeout(Some(PATIENCE)).expect("a time");
        Victim { server, port, talker, plain }
    }

    /// Others are served as ever.
    #[track_caller]
    pub fn serves(&mut self, what: &str) {
        self.plain.write_all(b"question").expect("say");
        let mut answer = [0; 8];
        if let Err(e) = self.plain.read_exact(&mut answer) {
            panic!("{what}: nobody answers: {e}: {}", self.server.describe());
        }
        assert_eq!(answer, b"question".map(|octet| octet | 0x80), "{what}");
        self.talker.is_well(&format!("{what}: the honest process"));
    }
}
