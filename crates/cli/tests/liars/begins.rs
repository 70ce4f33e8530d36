//! A process of another user executes a program, for which the kernel takes long: whoever asks for what it has open waits as long.

use crate::common::{BYPATH, TempDir, bypath, preload_library, run, stderr, stdout, workspace};
use crate::lab::{LONG, Running, Talk, has, status, until};
use crate::liar::{Liar, copy, within};
use crate::slow::has_connection;
use crate::whose::{STRANGER, connections_of, may_be_others};
use bypath_shm::family::wish;
use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

/// For which it takes some seconds.
const MAPPINGS: usize = 400;

/// Such a process.
struct Beginner {
    process: Running,
    said: BufReader<std::process::ChildStderr>,
}

impl Beginner {
    /// Has the liar's region open, and stands in it at place 1.
    fn of(liar: &Liar) -> Beginner {
        let mut command = Beginner::command();
        command.stdout(copy(liar));
        let beginner = Beginner::start(command);
        liar.has_member(1, beginner.process.0.id());
        beginner
    }

    fn command() -> Command {
        let mut command = Command::new("python3");
        command.arg(workspace().join("crates/cli/tests/liars/begins.py"));
        command.args([STRANGER.to_string(), MAPPINGS.to_string()]);
        command
    }

    fn start(mut command: Command) -> Beginner {
        let process = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut process = Running(process);
        let said = BufReader::new(process.0.stderr.take().expect("a pipe"));
        let mut beginner = Beginner { process, said };
        beginner.says("ready\n");
        beginner
    }

    #[track_caller]
    fn says(&mut self, wanted: &str) {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("a line");
        assert_eq!(line, wanted);
    }

    fn is_told(&mut self, line: &str) {
        self.process.0.stdin.as_mut().expect("a pipe").write_all(line.as_bytes()).expect("it reads");
    }

    fn begins(&mut self) {
        self.is_told("begin\n");
    }

    /// Whether the kernel is not done with what the old program had: then it gives the new name.
    fn goes_on(&self) -> bool {
        status(self.process.0.id(), "Name").contains("python3")
    }
}

/// Whether this can be tried; if not, says so.
fn may_try(name: &str) -> bool {
    has(name, &["setpriv", "sleep", "python3"]) && may_be_others(name)
}

#[test]
fn a_process_that_executes_a_program_holds_nobody_up_who_looks() {
    if !may_try("begins::a_process_that_executes_a_program_holds_nobody_up_who_looks") {
        return;
    }
    let liar = Liar::new();
    let mut talk = Talk::new();
    talk.does("echo 1");
    for command in ["ss", "metrics"] {
        let mut beginner = Beginner::of(&liar);
        has_connection(&liar, 0, 1 << 18);
        beginner.begins();
        let output = within(LONG, bypath([command]));
        assert!(beginner.goes_on(), "{command} has waited for it");
        let (shown, said) = (stdout(&output), stderr(&output));
        assert!(output.status.success() && shown.contains("python3"), "{shown} {said}");
        if command == "ss" {
            assert!(shown.contains(&talk.port.to_string()), "{shown}");
            assert!(said.contains(&format!("user {STRANGER} has programs that begin")), "{said}");
        }
    }
}

#[test]
fn a_process_that_executes_a_program_keeps_nobody_from_being_asked() {
    if !may_try("begins::a_process_that_executes_a_program_keeps_nobody_from_being_asked") {
        return;
    }
    let honest = Liar::new();
    honest.has_end(0, 100, 0);
    honest.family.ends[0].local.set(2, 1000, [127; 16]);
    honest.family.ends[0].remote.set(2, 80, [127; 16]);
    // He says that he has it, too.
    let mut beginner = Beginner::of(&honest);
    honest.family.ends[0].holders.store(3, Relaxed);
    beginner.begins();
    let output = within(LONG, bypath(["recall", "--wait", "0", &std::process::id().to_string()]));
    assert!(beginner.goes_on(), "it has waited for it: {}", stderr(&output));
    assert_eq!(honest.family.ends[0].wish.load(Relaxed), wish::RECALL, "{}", stderr(&output));
}

#[test]
fn what_goes_through_rings_is_seen_while_a_process_executes_a_program() {
    if !may_try("begins::what_goes_through_rings_is_seen_while_a_process_executes_a_program") {
        return;
    }
    let folder = TempDir::new();
    let mut talk = Talk::new();
    // He has a connection that could be followed.
    let script = workspace().join("crates/cli/tests/liars/begins.py");
    let its = [Path::new(BYPATH), preload_library(), &script];
    let its = its.map(|from| {
        let to = folder.join(from.file_name().expect("a name"));
        std::fs::copy(from, &to).expect("our folder");
        to
    });
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("our folder");
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={STRANGER}"), format!("--regid={STRANGER}"), "--clear-groups".into()]);
    command.arg(&its[0]).args(["run", "--upgrade=eager", "--", "python3"]);
    command.arg(&its[2]).args([STRANGER.to_string(), MAPPINGS.to_string(), "pair".into()]);
    command.env("BYPATH_CONFIG", "none").env("BYPATH_LIBRARY", &its[1]);
    let mut beginner = Beginner::start(command);
    let file = folder.join("lines");
    let dump = bypath(["dump"]).stdout(File::create(&file).expect("a file")).spawn();
    let _dump = Running(dump.expect("bypath starts"));
    let shown = |what: &str| std::fs::read_to_string(&file).expect("text").matches(what).count();
    until("it is followed", || {
        beginner.is_told("more\n");
        beginner.says("did\n");
        talk.does("echo 1");
        shown("ECHO") > 0
    });
    beginner.begins();
    let (mut exchanges, mut before) = (0, shown("ECHO"));
    while beginner.goes_on() {
        talk.does("echo 1");
        let is_seen = || shown("ECHO") > before;
        while !is_seen() && beginner.goes_on() {
            std::thread::yield_now();
        }
        (exchanges, before) = (exchanges + usize::from(is_seen()), shown("ECHO"));
    }
    println!("{exchanges} exchanges were seen meanwhile");
    assert!(exchanges > 3, "{exchanges}");
}

/// Whoever has a connection, a program that takes a descriptor of it looks for the other end, at processes of everybody's whom it trusts.
#[test]
fn who_takes_a_descriptor_does_not_wait_while_a_stranger_executes_a_program() {
    if !may_try("begins::who_takes_a_descriptor_does_not_wait_while_a_stranger_executes_a_program") {
        return;
    }
    // It has the lowest number: it would be looked at before the other end is found.
    let mut stranger = Beginner::start(Beginner::command());
    let mut talk = Talk::new();
    let descriptor = connections_of(talk.caller_pid())[0]["fd"].to_string();
    let mut take = run(["--", "python3"]);
    take.arg(workspace().join("crates/cli/tests/liars/take.py"));
    take.args([&talk.caller_pid().to_string(), &descriptor, "later"]);
    let mut take = Running(take.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut said = BufReader::new(take.0.stdout.take().expect("a pipe")).lines();
    let mut line = move || said.next().expect("a line").expect("a line");
    // Its own start is not what it is measured by.
    assert_eq!(line(), "ready");
    stranger.begins();
    take.0.stdin.as_mut().expect("a pipe").write_all(b"take\n").expect("it reads");
    std::thread::scope(|threads| {
        let said = threads.spawn(line);
        // Who has the connection answers at its next call on it: otherwise he is waited for, for two seconds.
        while !said.is_finished() {
            talk.does("echo 1");
        }
        assert_eq!(said.join().expect("a line"), "taken");
    });
    assert!(stranger.goes_on(), "it has waited for it");
    talk.does("resp 10");
}

const RECEIVES: &str = "
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('127.0.0.1', 0))
print('%016x' % struct.unpack('Q', s.getsockopt(socket.SOL_SOCKET, 57, 8))[0], s.getsockname()[1], flush=True)
sys.stdin.read()
";

const SENDS: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(1000):
    s.sendto(bytes(100), ('127.0.0.1', int(sys.argv[1])))
print('sent', flush=True)
";

/// He has taken the name at which a receiver would let itself be called.
#[test]
fn who_sends_datagrams_does_not_wait_while_a_stranger_executes_a_program() {
    if !may_try("begins::who_sends_datagrams_does_not_wait_while_a_stranger_executes_a_program") {
        return;
    }
    let mut receiver = Command::new("python3");
    receiver.args(["-c", RECEIVES]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut receiver = Running(receiver.spawn().expect("python3 starts"));
    let mut line = String::new();
    let said = receiver.0.stdout.as_mut().expect("a pipe");
    BufReader::new(said).read_line(&mut line).expect("a line");
    let (cookie, port) = line.trim().split_once(' ').expect("two words");
    let mut stranger = Beginner::start(Beginner::command());
    stranger.is_told(&format!("listen bypath/1/udp/{cookie}\n"));
    stranger.says("did\n");
    stranger.begins();
    let mut sender = run(["--upgrade=eager", "--log=debug", "--", "python3", "-c", SENDS]);
    sender.arg(port);
    let output = within(LONG, sender);
    assert!(stranger.goes_on(), "it has waited for it: {}", stderr(&output));
    assert_eq!(stdout(&output), "sent\n", "{}", stderr(&output));
    assert!(stderr(&output).contains("by the kernel: other-user"), "{}", stderr(&output));
}
