//! What a receive or a close meets while it is under way: bytes that another takes, takes back or overwrites while they
//! are copied, bytes of the carrier that are not there yet, a reader that comes late.

#[path = "agent/programs.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod programs;

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

#[track_caller]
fn within(mode: &str) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| programs::compile("within", &["within.c"], &[]));
    let mut command = Command::new(program);
    for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("BYPATH_")) {
        command.env_remove(variable);
    }
    let output = command
        .arg(mode)
        .env("LD_PRELOAD", programs::library())
        .env("BYPATH_UPGRADE", "eager")
        .output()
        .expect("run the program");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said == "whole\n", "{mode}: {}: {said}{complaints}", output.status);
}

#[test]
fn bytes_that_another_read_takes_while_they_are_copied_come_once() {
    within("taken");
}

#[test]
fn bytes_that_are_taken_back_while_they_are_copied_come_once() {
    within("claimed");
}

#[test]
fn a_peek_shows_no_bytes_that_were_overwritten_while_they_were_copied() {
    within("peeked");
}

#[test]
fn a_peek_shows_no_ring_before_the_last_bytes_of_the_carrier() {
    within("gap");
}

#[test]
fn a_close_with_unread_bytes_loses_nothing_that_was_sent() {
    within("closed");
}

#[test]
fn who_drains_the_carrier_wakes_who_waits_for_the_ring() {
    within("siblings");
}
