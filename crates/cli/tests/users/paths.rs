//! `bypath recall` and `bypath upgrade` on running programs.

use crate::stage::{Side, Stage, installed};
use crate::support::{Process, bypath, missing, ring_required, skip};
use rustix::process::Signal;
use serde_json::Value;
use std::process::{Command, Output};

fn stage(test: &str) -> Option<Stage> {
    if let Some(reason) = missing(&["python3"]) {
        skip(&format!("users::paths::{test}"), &reason);
        return None;
    }
    Some(Stage::new())
}

fn command(words: &[&str]) -> Output {
    Command::new(bypath()).args(words).output().expect("bypath starts")
}

/// The records that a command prints with `--json`, and its exit status.
fn records(words: &[&str]) -> (Vec<Value>, Option<i32>) {
    let output = command(words);
    let records =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{words:?}: {e}: {output:?}"));
    (records, output.status.code())
}

/// The one connection of a process, as `bypath ss` shows it.
fn connection(process: &Process) -> Value {
    let (mut all, _) = records(&["ss", "--json", "--pid", &process.pid().to_string()]);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

fn connections(process: &Process) -> usize {
    records(&["ss", "--json", "--pid", &process.pid().to_string()]).0.len()
}

fn ring_bytes(c: &Value) -> u64 {
    c["bytes"]["ring_tx"].as_u64().unwrap() + c["bytes"]["ring_rx"].as_u64().unwrap()
}

/// A client that talks a while and then waits, and its server, which waits on its epoll set.
struct Talk {
    server: Process,
    client: Process,
    payload: u64,
}

impl Talk {
    fn begin(stage: &Stage) -> Talk {
        let (server, port) = stage.echo_server(&Side::default());
        let client = stage.program(&Side::default(), "client.stats", &installed("python3"));
        let mut client = client.script("steps.py").arg(port.to_string()).start();
        let payload = client.ready(|line| line.strip_prefix("payload ")?.parse().ok());
        Talk { server, client, payload }
    }

    fn step(&mut self) {
        self.client.signal(Signal::USR1);
        let payload = self.payload;
        let more = |line: &str| line.strip_prefix("payload ")?.parse().ok().filter(|n| *n > payload);
        self.payload = self.client.ready(more);
    }

    fn end(self) {
        self.client.stop(Signal::TERM);
        self.server.stop(Signal::TERM);
    }
}

#[test]
fn a_connection_goes_back_and_comes_again() {
    let Some(stage) = stage("a_connection_goes_back_and_comes_again") else { return };
    let mut talk = Talk::begin(&stage);
    if !ring_required() {
        return talk.end();
    }
    assert_eq!(connection(&talk.server)["path"], "ring");
    let fd = connection(&talk.server)["fd"].to_string();
    let subject = format!("{}:{fd}", talk.server.pid());
    // It sleeps on its epoll set, and is woken.
    let (answer, status) = records(&["recall", "--json", "--wait", "20", &subject]);
    assert_eq!((status, answer.len()), (Some(0), 1), "{answer:#?}");
    let a = &answer[0];
    assert_eq!((&a["before"], &a["path"], &a["result"]), (&"ring".into(), &"kernel".into(), &"done".into()));
    assert_eq!(a["reason"], "recalled-command");
    talk.step();
    let before = ring_bytes(&connection(&talk.server));
    talk.step();
    talk.step();
    let now = connection(&talk.server);
    assert_eq!((ring_bytes(&now), &now["path"]), (before, &"kernel".into()), "{now:#?}");

    let (answer, _) = records(&["upgrade", "--json", "--wait", "0", &subject]);
    assert_eq!(answer.len(), 1, "{answer:#?}");
    talk.step();
    talk.step();
    let now = connection(&talk.server);
    assert_eq!(now["path"], "ring", "{now:#?}");
    assert!(ring_bytes(&now) > before, "{now:#?}");
    let (answer, status) = records(&["upgrade", "--json", &subject]);
    assert_eq!((status, &answer[0]["result"]), (Some(0), &"done".into()), "{answer:#?}");
    talk.end();
}

#[test]
fn a_process_in_another_call_does_it_later() {
    let Some(stage) = stage("a_process_in_another_call_does_it_later") else { return };
    let mut talk = Talk::begin(&stage);
    if !ring_required() {
        return talk.end();
    }
    let pid = talk.client.pid().to_string();
    let (answer, status) = records(&["recall", "--json", "--wait", "0.1", &pid]);
    assert_eq!((status, &answer[0]["result"]), (Some(4), &"asked".into()), "{answer:#?}");
    talk.step();
    let now = connection(&talk.client);
    assert_eq!(
        (&now["path"], &now["tx"]["reason"]),
        (&"kernel".into(), &"recalled-command".into()),
        "{now:#?}"
    );
    let (answer, status) = records(&["recall", "--json", "--wait", "0", &pid]);
    assert_eq!((answer.len(), status), (1, Some(4)), "{answer:#?}");
    talk.end();
}

/// Both ends are taken back and upgraded again and again under a stream in both directions.
#[test]
fn a_stream_survives_it_at_any_time() {
    let Some(stage) = stage("a_stream_survives_it_at_any_time") else { return };
    let (server, port) = stage.echo_server(&Side::default());
    let client = stage.program(&Side::default(), "client.stats", &installed("python3"));
    let mut client = client.script("steps.py").arg(port.to_string()).arg("stream").start();
    client.ready(|line| (line == "begun").then_some(()));
    while ring_required() && connections(&client).min(connections(&server)) < 1 {
        std::thread::yield_now();
    }
    let rounds = 30;
    for _ in 0..rounds {
        for pid in [client.pid(), server.pid()] {
            for verb in ["recall", "upgrade"] {
                let output = command(&[verb, "--wait", "0.02", &pid.to_string()]);
                assert!(matches!(output.status.code(), Some(0 | 4)) || !ring_required(), "{output:?}");
            }
        }
    }
    client.signal(Signal::USR1);
    let payload = client.wait().ok().number("payload ");
    server.stop(Signal::TERM);
    if !ring_required() {
        return;
    }
    let counted = stage.counted();
    let recalled = |t: &crate::support::Totals| t.recalled.get("recalled-command").copied().unwrap_or(0);
    let times = recalled(&counted.client) + recalled(&counted.server);
    assert!(times >= rounds, "{times} recalls in {rounds} rounds, {payload} bytes: {counted:#?}");
    assert!(counted.client.ring_tx > 0 && counted.server.ring_tx > 0, "{counted:#?}");
}

#[test]
fn who_cannot_be_asked_is_told_of() {
    let says = |words: &[&str], status: i32, part: &str| {
        let output = command(words);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{words:?}: {text}");
        assert!(text.contains(part), "{words:?}: {text}");
    };
    let own = std::process::id().to_string();
    for verb in ["recall", "upgrade"] {
        says(&[verb], 2, "PID[:FD]");
        says(&[verb, "x"], 2, "expected a process id");
        says(&[verb, "--wait=-1", "1"], 2, "--wait");
        says(&[verb, "2147483647"], 3, "there is no process");
        says(&[verb, &own], 1, "is not under Bypath");
    }
    let Some(stage) = stage("who_cannot_be_asked_is_told_of") else { return };
    let talk = Talk::begin(&stage);
    if ring_required() {
        says(&["recall", &format!("{}:1", talk.client.pid())], 1, "is no connection that Bypath follows");
    }
    talk.end();
}
