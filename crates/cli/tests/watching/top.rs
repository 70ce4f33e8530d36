//! `bypath top`, printed once and in a terminal, beside programs that talk, are stopped, and die.

use crate::common::{BYPATH, bypath, stdout};
use crate::lab::{LONG, Running, Talk, has};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

/// What is printed of one process.
fn once(pid: u32) -> Vec<Value> {
    let output = bypath(["top", "--once", "--json", "-d", "0.2", "--filter", "127.0.0.1"])
        .output()
        .expect("bypath starts");
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    all.into_iter().filter(|row| row["pid"] == pid).collect()
}

#[test]
fn programs_that_talk_are_stopped_and_die_are_shown_as_they_are() {
    if !has("top::programs_that_talk_are_stopped_and_die_are_shown_as_they_are", &["python3"]) {
        return;
    }
    let mut talk = Talk::new();
    let rows = once(talk.caller_pid());
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(
        (&rows[0]["path"], &rows[0]["stopped"], &rows[0]["tx_rate"]),
        (&"ring".into(), &false.into(), &0.into())
    );
    let sent = rows[0]["tx"].as_u64().expect("a number");
    talk.begin("resp 20000");
    let rows = once(talk.caller_pid());
    assert!(rows[0]["tx_rate"].as_u64() > Some(0) && rows[0]["spin_percent"].is_number(), "{rows:?}");
    talk.done();
    // 14 octets each; looking has cost the program nothing of it.
    assert_eq!(once(talk.caller_pid())[0]["tx"].as_u64().expect("a number"), sent + 20000 * 14);

    let server = Pid::from_raw(talk.server_pid().cast_signed()).expect("a number");
    kill_process(server, Signal::STOP).expect("a child");
    let begun = Instant::now();
    while once(talk.server_pid())[0]["stopped"] != true {
        assert!(begun.elapsed() < LONG);
    }
    talk.begin("resp 1");
    let rows = once(talk.server_pid());
    assert_eq!(rows[0]["path"], "ring", "{rows:?}");
    kill_process(server, Signal::CONT).expect("a child");
    talk.done();

    kill_process(server, Signal::KILL).expect("a child");
    let begun = Instant::now();
    while !once(talk.server_pid()).is_empty() {
        assert!(begun.elapsed() < LONG);
    }
    assert_eq!(once(talk.caller_pid()).len(), 1);
}

#[test]
fn without_a_terminal_it_says_what_else_to_do() {
    let output = bypath(["top"]).stdin(Stdio::null()).output().expect("bypath starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("bypath top --once"));
    assert!(stdout(&bypath(["top", "--once", "-d", "0.1"]).output().expect("bypath starts")).contains("PID"));
    for bad in ["0", "-1", "x", "1e9"] {
        let output = bypath(["top", "--once", "--interval", bad]).output().expect("bypath starts");
        assert_eq!(output.status.code(), Some(2), "{bad}");
    }
}

/// In a terminal of script(1): a key is answered, and the terminal is given back as it was.
#[test]
fn in_a_terminal_keys_are_answered() {
    if !has("top::in_a_terminal_keys_are_answered", &["script"]) {
        return;
    }
    let command = format!("stty rows 24 cols 80; exec {BYPATH} top -d 0.1");
    let terminal = Command::new("script")
        .args(["-q", "-e", "-c", &command, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script starts");
    let mut terminal = Running(terminal);
    let mut keys = terminal.0.stdin.take().expect("a pipe");
    let mut screen = terminal.0.stdout.take().expect("a pipe");
    let (to, from) = mpsc::channel();
    std::thread::spawn(move || {
        let mut room = [0; 4096];
        while let Ok(n) = screen.read(&mut room)
            && n > 0
            && to.send(room[..n].to_vec()).is_ok()
        {}
    });
    let mut seen = String::new();
    let begun = Instant::now();
    let mut until = |word: &str| {
        while !seen.contains(word) {
            let more = from.recv_timeout(LONG).unwrap_or_else(|_| panic!("no {word:?} in {seen:?}"));
            assert!(begun.elapsed() < LONG, "no {word:?} in {seen:?}");
            seen += &String::from_utf8_lossy(&more);
        }
    };
    // The other screen, the table, the help, and back.
    until("\x1b[?1049h");
    until("COMMAND");
    keys.write_all(b"?").expect("room");
    // Only cells that change are sent: a word, no sentence.
    until("Help");
    keys.write_all(b"xq").expect("room");
    until("\x1b[?1049l");
    assert!(terminal.0.wait().expect("a child").success());
}
