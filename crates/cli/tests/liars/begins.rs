//! A process of another user executes a program, for which the kernel takes long: whoever asks for what it has open waits as long.

use crate::common::{TempDir, bypath, stderr, stdout, workspace};
use crate::lab::{LONG, Running, Talk, has, status, until};
use crate::liar::{Liar, copy, within};
use crate::slow::has_connection;
use crate::whose::{STRANGER, may_be_others, neighbours};
use bypath_shm::family::wish;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
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
        let mut command = Command::new("python3");
        command.arg(workspace().join("crates/cli/tests/liars/begins.py"));
        command.args([STRANGER.to_string(), MAPPINGS.to_string()]).stdout(copy(liar));
        let beginner = Beginner::start(command);
        liar.has_member(1, beginner.process.0.id());
        beginner
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
        beginner.is_told("begin\n");
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
    beginner.is_told("begin\n");
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
    let mut talk = neighbours(&folder);
    // He has a connection that is followed.
    let script = workspace().join("crates/cli/tests/liars/begins.py");
    std::fs::copy(script, folder.join("begins.py")).expect("our folder");
    let library = folder.join(crate::common::preload_library().file_name().expect("a name"));
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={STRANGER}"), format!("--regid={STRANGER}"), "--clear-groups".into()]);
    command.arg(folder.join("bypath")).args(["run", "--upgrade=eager", "--", "python3"]);
    command.arg(folder.join("begins.py")).args([STRANGER.to_string(), MAPPINGS.to_string(), "pair".into()]);
    command.env("BYPATH_CONFIG", "none").env("BYPATH_LIBRARY", library);
    let mut beginner = Beginner::start(command);
    let file = folder.join("lines");
    let dump = bypath(["dump"]).stdout(File::create(&file).expect("a file")).spawn();
    let _dump = Running(dump.expect("bypath starts"));
    let shown = |what: &str| std::fs::read_to_string(&file).expect("text").matches(what).count();
    until("both are followed", || {
        beginner.is_told("more\n");
        beginner.says("did\n");
        talk.does("echo 1");
        shown("MINE") > 0 && shown("ECHO") > 0
    });
    beginner.is_told("begin\n");
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
