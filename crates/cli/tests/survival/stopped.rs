//! Ends that are stopped (SIGSTOP), at marked points or anywhere: whoever is at their other end waits as long as it asked for and
//! has its other connections; once they go on nothing is missing.

use crate::common::skip;
use crate::conversation::{Conversation, MODES};
use crate::program::{Place, Program};
use crate::programs;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// Longer than anything in the library waits for an end that does not answer, but for what the carrier is to take.
const HELD: Duration = Duration::from_millis(300);
/// Of a call that ends by its time: what a busy machine may add to that.
const LATE: f64 = 1500.0;
/// ... and what it was asked to wait.
const ASKED: f64 = 200.0;

/// Waits until a program is stopped; false: it has ended.
fn is_stopped(program: &Program) -> bool {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(program.pid()), options).expect("waitid").expect("a state");
    status.stopped()
}

fn go_on(pid: Pid) {
    kill_process(pid, Signal::CONT).expect("SIGCONT");
}

/// Stops `side` at `point` in a conversation; false if it did not get there.
fn stop(point: &str, side: &str, mode: &str, first: &str, count: u32) -> bool {
    let at = format!("{point}:{count}");
    let stops = [("BYPATH_TEST_STOP", at.as_str())];
    let of = |name: &str| if name == side { &stops[..] } else { &[] };
    let talk = Conversation::start(mode, first, of("server"), of("client"));
    let stopped = if side == "server" { &talk.server } else { &talk.client };
    let was_stopped = is_stopped(stopped);
    if was_stopped {
        // Time is the subject: that whoever waits for it gives nothing up, nor what is its. Nothing tells that this has not happened.
        std::thread::sleep(HELD);
        go_on(stopped.pid());
    }
    talk.finish();
    was_stopped
}

/// Every point, and who speaks first where only one side gets there; passes.
const POINTS: [(&str, Option<bool>, &[u32]); 15] = [
    ("listening", None, &[1]),
    ("hello-sent", Some(false), &[1]),
    ("slot-allocated", Some(true), &[1]),
    ("welcome-sent", Some(true), &[1]),
    ("welcome-taken", Some(false), &[1]),
    ("consented", None, &[1, 2]),
    ("ring-begun", None, &[1, 2]),
    ("drained", None, &[1, 2]),
    ("copied-in", None, &[1, 60]),
    ("published", None, &[20]),
    ("unlocked", None, &[7]),
    ("copied-out", None, &[1, 60]),
    ("committed", None, &[20]),
    ("claimed", None, &[1]),
    ("mid-flush", None, &[1]),
];

#[track_caller]
fn at_each_point(side: &str) {
    let other = if side == "server" { "client" } else { "server" };
    let mut modes = MODES.into_iter().cycle();
    for (point, speaks, counts) in POINTS {
        let first = if speaks == Some(false) { other } else { side };
        for &count in counts {
            let mode = modes.next().expect("a mode");
            // On a machine that stands still for long a rendezvous may go the other way round once.
            let reached = (0..3).any(|_| stop(point, side, mode, first, count));
            assert!(reached, "the {side} never passed {point}:{count}, {mode}, {first} first");
        }
    }
}

#[test]
fn a_client_stopped_at_any_point_goes_on() {
    at_each_point("client");
}

#[test]
fn a_server_stopped_at_any_point_goes_on() {
    at_each_point("server");
}

fn program() -> &'static str {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let path = PROGRAM.get_or_init(|| programs::compile("stopped", &["stopped.c"], &[]));
    path.to_str().expect("a plain path")
}

/// What a command came to.
#[derive(Debug)]
struct Came {
    bytes: i64,
    errno: i32,
    ms: f64,
}

/// One that is to be stopped, one in the middle that talks to it and to another one.
struct Three {
    still: Program,
    middle: Program,
    other: Program,
    what: String,
    _place: Place,
}

impl Three {
    fn start(what: &str, environment: &[(&str, &str)]) -> Three {
        let place = Place::new();
        let start = |name: &str, words: &[&str], environment: &[(&str, &str)]| {
            Program::start(&place, name, &[&[program()], words].concat(), environment)
        };
        let mut still = start("still", &["peer"], environment);
        let mut other = start("other", &["peer"], &[]);
        let ports = [still.expect("port"), other.expect("port")];
        let mut middle = start("middle", &["middle", &ports[0], &ports[1]], &[]);
        for one in [&mut still, &mut other, &mut middle] {
            one.expect("ready");
        }
        Three { still, middle, other, what: what.to_owned(), _place: place }
    }

    #[track_caller]
    fn came(program: &mut Program) -> Came {
        let line = program.line();
        let mut words = line.split(' ');
        let mut next = || words.next().unwrap_or_else(|| panic!("{line:?}"));
        Came {
            bytes: next().parse().expect("bytes"),
            errno: next().parse().expect("errno"),
            ms: next().parse().expect("milliseconds"),
        }
    }

    #[track_caller]
    fn middle(&mut self, line: &str) -> Came {
        self.middle.tell(line);
        Self::came(&mut self.middle)
    }

    /// The call ended as one on the kernel does: by its time.
    #[track_caller]
    fn timed_out(&self, line: &str, came: &Came) {
        assert_eq!(came.errno, libc::EAGAIN, "{}, {line}: {came:?}", self.what);
        assert!((ASKED - 20.0..ASKED + LATE).contains(&came.ms), "{}, {line}: {came:?}", self.what);
    }

    /// All calls of who waits for the one that stands still: bytes received and sent.
    #[track_caller]
    fn wait_for_it(&mut self) -> (i64, i64) {
        let got = self.middle("recv 0 100000000 200");
        self.timed_out("recv", &got);
        let seen = self.middle("poll 0 200");
        assert!(seen.bytes == 0 && seen.ms < ASKED + LATE, "{}, poll: {seen:?}", self.what);
        self.other.tell("echo 0 50");
        let talked = self.middle("talk 1 50");
        assert_eq!((talked.bytes, talked.errno), (0, 0), "{}, talk: {talked:?}", self.what);
        assert_eq!(Self::came(&mut self.other).errno, 0);
        // Once it is full: by its time, whether nothing went or something.
        let sent = self.middle("send 0 100000000 200");
        self.timed_out("send", &sent);
        let more = self.middle("recv 0 100000000 200");
        self.timed_out("recv again", &more);
        (got.bytes + more.bytes, sent.bytes)
    }

    /// Everybody comes to the end.
    #[track_caller]
    fn finish(self) {
        for one in [self.still, self.middle, self.other] {
            one.finish();
        }
    }
}

/// Stopped at `point` while it does `command`, for which the one in the middle does `before`.
#[track_caller]
fn while_it(point: &str, command: &str, before: &str) {
    // A direction is taken back once; messages are many, and some of them the dialogue's.
    let pass = if ["claimed", "mid-flush"].contains(&point) { 1 } else { 60 };
    let at = format!("{point}:{pass}");
    let mut three = Three::start(point, &[("BYPATH_TEST_STOP", &at)]);
    let upgraded = [&three.still, &three.middle].map(|p| p.stats().upgraded);
    assert!(upgraded == [1, 2] || !programs::REQUIRE_RING, "{point}: {upgraded:?}");
    let mut expected = 0;
    if !before.is_empty() {
        expected += three.middle(before).bytes;
    }
    three.still.tell(command);
    assert!(is_stopped(&three.still), "{point}: it has ended");
    let (got, sent) = three.wait_for_it();
    expected += sent;
    go_on(three.still.pid());
    // What was stopped goes to its end; what is still on the way arrives.
    let gives = command.starts_with("give");
    let total: i64 = command.rsplit(' ').next().expect("a number").parse().expect("a number");
    let mut taken = 0;
    if gives {
        let rest = three.middle(&format!("take 0 {}", total - got));
        assert_eq!(rest.bytes, total - got, "{point}: {rest:?}");
    }
    let came = Three::came(&mut three.still);
    assert_eq!((came.bytes, came.errno), (total, 0), "{point}: {came:?}");
    if !gives {
        taken += total;
    }
    three.still.tell(&format!("take 0 {}", expected - taken));
    let rest = Three::came(&mut three.still);
    assert_eq!(rest.bytes, expected - taken, "{point}: {rest:?}");
    three.finish();
}

#[test]
fn who_waits_for_one_stopped_in_a_send_waits_as_long_as_it_asked() {
    for point in ["copied-in", "published", "unlocked"] {
        while_it(point, "give 0 20000", "");
    }
}

#[test]
fn who_waits_for_one_stopped_in_a_receive_waits_as_long_as_it_asked() {
    for point in ["copied-out", "committed"] {
        while_it(point, "take 0 20000", "give 0 20000");
    }
}

#[test]
fn who_waits_for_one_stopped_while_it_takes_bytes_back_waits_as_long_as_it_asked() {
    for point in ["claimed", "mid-flush"] {
        while_it(point, "give 0 1000000", "");
    }
}

/// Outside of any call; then the one in the middle ends the connection in one way or another, which takes no time either.
#[test]
fn an_end_that_is_stopped_holds_up_no_ending() {
    const SENT: i64 = 30_000;
    for ending in ["shut 0", "close 0", "exit"] {
        let mut three = Three::start(ending, &[]);
        kill_process(three.still.pid(), Signal::STOP).expect("SIGSTOP");
        assert!(is_stopped(&three.still));
        let given = three.middle(&format!("give 0 {SENT}"));
        assert_eq!(given.bytes, SENT, "{ending}: {given:?}");
        let Three { mut still, mut middle, other, _place, .. } = three;
        let mut middle = if ending == "exit" {
            let begin = std::time::Instant::now();
            middle.finish();
            assert!(begin.elapsed().as_secs_f64() * 1e3 < LATE, "{ending}: {:?}", begin.elapsed());
            None
        } else {
            middle.tell(ending);
            let came = Three::came(&mut middle);
            assert!(came.errno == 0 && came.ms < LATE, "{ending}: {came:?}");
            Some(middle)
        };
        go_on(still.pid());
        // Everything, and then the end.
        still.tell(&format!("take 0 {}", SENT + 1));
        let came = Three::came(&mut still);
        assert_eq!((came.bytes, came.errno), (SENT, 0), "{ending}");
        for one in [Some(still), middle.take(), Some(other)].into_iter().flatten() {
            one.finish();
        }
    }
}

/// Many connections of one process, whose other ends are stopped.
struct Many {
    peer: Program,
    caller: Program,
    _place: Place,
}

impl Many {
    fn start(count: u64, environment: &[(&str, &str)]) -> Many {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        let path = PROGRAM.get_or_init(|| programs::compile("unanswered", &["unanswered.c"], &[]));
        let path = path.to_str().expect("a plain path");
        let (place, number) = (Place::new(), count.to_string());
        let mut peer = Program::start(&place, "peer", &[path, "peer", &number], environment);
        let port = peer.expect("port");
        let mut caller = Program::start(&place, "caller", &[path, "caller", &port, &number], environment);
        peer.expect("ready");
        caller.expect("ready");
        let upgraded = [&peer, &caller].map(|p| p.stats().upgraded);
        assert!(upgraded == [count; 2] || !programs::REQUIRE_RING, "{upgraded:?}");
        kill_process(peer.pid(), Signal::STOP).expect("SIGSTOP");
        assert!(is_stopped(&peer));
        Many { peer, caller, _place: place }
    }

    /// How long the call took (ms).
    #[track_caller]
    fn took(&mut self, what: &str) -> f64 {
        let begin = std::time::Instant::now();
        self.caller.tell(what);
        let line = self.caller.line();
        let all = begin.elapsed().as_secs_f64() * 1e3;
        // Who has become another program does not know.
        if line == "done" { all } else { line.parse().expect("milliseconds") }
    }

    #[track_caller]
    fn finish(self) {
        go_on(self.peer.pid());
        self.caller.finish();
        self.peer.finish();
    }
}

#[test]
fn ends_that_are_stopped_are_waited_for_together_before_an_exec_a_spawn_a_fork_and_when_passed() {
    const MANY: u64 = 40;
    // A family has 64 places: who is forked when they are taken shares nothing.
    for what in ["exec", "spawn", "fork 70", "pass"] {
        let mut many = Many::start(MANY, &[]);
        let took = many.took(what);
        // One after the other they are 50 ms each: two seconds.
        assert!(took < 1000.0, "{what}: {took} ms");
        many.finish();
    }
}

#[test]
fn carriers_that_are_full_are_waited_for_together() {
    // The carriers stay small: the rings' octets do not fit.
    let mut many = Many::start(4, &[("BYPATH_TEST_NARROW", "1"), ("BYPATH_RING_SIZE", "1M")]);
    many.caller.tell("fill");
    let bytes: u64 = many.caller.line().parse().expect("bytes");
    let took = many.took("spawn");
    // One after the other they are two seconds each; none at all would be that the carriers have taken everything.
    assert!((1000.0..4000.0).contains(&took), "{took} ms for {bytes} bytes");
    many.finish();
}

/// A close with something unread resets the connection, before which what was sent is to be there: two seconds are waited for that, however many
/// connections there are.
#[test]
fn ends_that_do_not_read_hold_up_closes_and_an_exit_for_two_seconds_in_all() {
    let environment = [("BYPATH_TEST_UNREAD", "1"), ("BYPATH_RING_SIZE", "1M")];
    for what in ["close", "exit"] {
        let mut many = Many::start(5, &environment);
        many.caller.tell("fill");
        let bytes: u64 = many.caller.line().parse().expect("bytes");
        let took = if what == "close" {
            many.took(what)
        } else {
            let begin = std::time::Instant::now();
            let Many { peer, caller, _place } = many;
            caller.finish();
            go_on(peer.pid());
            peer.finish();
            assert!(
                (1.0..5.0).contains(&begin.elapsed().as_secs_f64()),
                "{what}: {:?} for {bytes} bytes",
                begin.elapsed()
            );
            continue;
        };
        assert!((1000.0..5000.0).contains(&took), "{what}: {took} ms for {bytes} bytes");
        many.finish();
    }
}

/// Of another time namespace, whose start times differ.
#[test]
fn a_writer_of_another_time_namespace_that_is_stopped_is_not_taken_for_dead() {
    let name = "stopped::a_writer_of_another_time_namespace_that_is_stopped_is_not_taken_for_dead";
    let is_done = |program: &str, args: &[&str]| {
        Command::new(program).args(args).status().is_ok_and(|status| status.success())
    };
    if !is_done("python3", &["-V"]) || !is_done("unshare", &["--time", "true"]) {
        return skip(name, "no python3, no unshare, or no time namespace may be made");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/scripts/processes.py");
    let mut program = Command::new("python3");
    program.arg(script).arg("written_in_two_times").env("LD_PRELOAD", programs::library());
    // Its first process writes less than 1000 times, and the one that is to be stopped so often.
    let output = program.env("BYPATH_TEST_STOP", "copied-in:1000").output().expect("python3 runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said == "stopped\n10000 10\ndone\n", "{output:?}");
}
