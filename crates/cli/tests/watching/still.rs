//! Programs that do nothing for whoever looks at them: they are stopped, or their other end has died.

use crate::common::{BYPATH, stdout};
use crate::lab::{LONG, Talk, has, signal, status, until};
use rustix::process::Signal;
use serde_json::Value;

/// What a command prints; it does not wait for who is stopped.
pub fn said(arguments: &[&str]) -> String {
    let seconds = LONG.as_secs().to_string();
    let mut command = std::process::Command::new("timeout");
    command.args([&seconds, BYPATH]).args(arguments).env("BYPATH_CONFIG", "none");
    let output = command.output().expect("timeout starts");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    stdout(&output)
}

fn json(arguments: &[&str]) -> Vec<Value> {
    let list: Value = serde_json::from_str(&said(arguments)).expect("JSON");
    list.as_array().expect("a list").clone()
}

/// Each view of a process that has one connection, on rings.
fn views(pid: u32) -> (Value, String, Value) {
    let number = pid.to_string();
    let ss = json(&["ss", "--json", "--pid", &number]);
    let top = json(&["top", "--once", "--json", "-d", "0.1", "pid", &number]);
    assert_eq!((ss.len(), top.len()), (1, 1), "{ss:?} {top:?}");
    (ss[0].clone(), said(&["why", &number]), top[0].clone())
}

/// A request is sent, of 14 octets: *1, $4, PING. Who sent it is stopped: it would take back a ring that nobody reads.
fn ask(talk: &mut Talk) {
    let caller = talk.caller_pid();
    talk.begin("ask 1");
    until("it has sent, and is stopped", || status(caller, "State").starts_with('T'));
    assert_eq!(views(caller).0["ring_fill"]["tx"], 14);
}

#[test]
fn every_view_of_a_stopped_program_is_shown_and_what_waits_for_it() {
    if !has("still::every_view_of_a_stopped_program_is_shown_and_what_waits_for_it", &["python3"]) {
        return;
    }
    let mut talk = Talk::new();
    let (server, caller) = (talk.server_pid(), talk.caller_pid());
    signal(server, Signal::STOP);
    ask(&mut talk);
    let (ss, why, top) = views(server);
    assert_eq!((&ss["path"], &ss["ring_fill"]["rx"]), (&"ring".into(), &14.into()), "{ss}");
    assert!(why.contains("1 connection, 1 through shared memory"), "{why}");
    assert_eq!((&top["path"], &top["stopped"]), (&"ring".into(), &true.into()), "{top}");
    let why = said(&["why", &caller.to_string()]);
    assert!(why.contains("14 of 256.0K in the outgoing ring wait to be read"), "{why}");
    // Begun only now: what waits is there, from the memory of who is stopped as of who is not.
    for pid in [server, caller] {
        let line = said(&["dump", "--count", "1", "pid", &pid.to_string()]);
        assert!(line.contains("14 at ") && line.contains("PING"), "{line}");
    }
    signal(server, Signal::CONT);
    signal(caller, Signal::CONT);
    talk.done();
    talk.does("hear 1");
    talk.does("resp 10");
}

#[test]
fn after_a_crash_the_survivor_is_shown_and_what_nobody_will_read() {
    if !has("still::after_a_crash_the_survivor_is_shown_and_what_nobody_will_read", &["python3"]) {
        return;
    }
    let mut talk = Talk::new();
    let (server, caller) = (talk.server_pid(), talk.caller_pid());
    signal(server, Signal::STOP);
    // The survivor is stopped, too: it would notice.
    ask(&mut talk);
    signal(server, Signal::KILL);
    let of_server = format!("/proc/{server}/maps");
    until("it is dead", || std::fs::read_to_string(&of_server).map_or(true, |maps| maps.is_empty()));
    let (ss, why, top) = views(caller);
    let remote = format!("127.0.0.1:{}", talk.port);
    assert_eq!((&ss["path"], &ss["remote"]), (&"ring".into(), &remote.as_str().into()), "{ss}");
    assert!(ss["bytes"]["ring_tx"].as_u64() > Some(14), "{ss}");
    assert!(why.contains(&remote) && why.contains("shared memory"), "{why}");
    assert_eq!((&top["path"], &top["stopped"]), (&"ring".into(), &true.into()), "{top}");
    let line = said(&["dump", "--count", "1", "pid", &caller.to_string()]);
    assert!(line.contains(&format!(" > {remote}: 14 at ")) && line.contains("PING"), "{line}");
    // Of the dead nothing is shown any more.
    assert!(json(&["ss", "--json", "pid", &server.to_string()]).is_empty());
    assert!(json(&["top", "--once", "--json", "-d", "0.1", "pid", &server.to_string()]).is_empty());
    signal(caller, Signal::CONT);
    talk.done();
    talk.begin("hear 1");
    until("the survivor has noticed", || talk.caller_ended());
}
