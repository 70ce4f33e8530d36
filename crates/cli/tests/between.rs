//! What another thread or process does between two looks of one call: no byte is lost, out of order, or left where nobody
//! looks for it.

#[path = "agent/programs.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod programs;

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Tries on a machine so busy that the connection is not on a ring when it should be.
const TRIES: u32 = 10;

/// What the program says whose call has `mode` happen at its first pass of `place`.
#[track_caller]
fn between(place: &str, mode: &str) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| programs::compile("between", &["between.c"], &[]));
    for _ in 0..TRIES {
        let mut command = Command::new(program);
        for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("BYPATH_")) {
            command.env_remove(variable);
        }
        let output = command
            .arg(mode)
            .env("LD_PRELOAD", programs::library())
            .env("BYPATH_UPGRADE", "eager")
            .env("BYPATH_TEST_RAISE", place)
            // The handler runs where it stands.
            .env("BYPATH_TEST_DEFER", "0")
            .output()
            .expect("run the program");
        let said = String::from_utf8_lossy(&output.stdout);
        let complaints = String::from_utf8_lossy(&output.stderr);
        if said == "whole\n" && output.status.success() {
            return;
        }
        assert!(said == "never\n", "{mode}: {}: {said}{complaints}", output.status);
    }
    panic!("{mode}: the call never passed {place}");
}

#[test]
fn what_is_sent_just_before_the_end_comes_before_it() {
    between("ring-empty", "ended");
}

#[test]
fn what_goes_into_a_ring_just_before_unseen_bytes_comes_before_them() {
    between("ring-empty", "foreign");
}

#[test]
fn a_send_that_is_about_to_enter_the_kernel_is_overtaken_by_no_ring() {
    between("counted", "overtaken");
}

#[test]
fn a_receive_that_is_about_to_enter_the_kernel_sees_the_ring() {
    between("cold", "late");
}
