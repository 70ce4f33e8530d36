//! A recall that is asked for at each point of a send: the bytes of that send reach a reader that only knows the kernel,
//! without another call of their writer.

#[path = "agent/programs.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod programs;

use std::process::Command;

/// Asked for at pass `count` of `point`.
#[track_caller]
fn asked_at(point: &str, count: u32) {
    let program = programs::compile(&format!("asked-{point}"), &["asked.c"], &[]);
    let mut command = Command::new(program);
    for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("BYPATH_")) {
        command.env_remove(variable);
    }
    let output = command
        .env("LD_PRELOAD", programs::library())
        .env("BYPATH_UPGRADE", "eager")
        .env("BYPATH_TEST_RAISE", format!("{point}:{count}"))
        // The handler runs where it stands.
        .env("BYPATH_TEST_DEFER", "0")
        .output()
        .expect("run the program");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said == "whole\n",
        "{point}:{count}: {}: {said}{complaints}",
        output.status
    );
}

#[test]
fn before_the_bytes_are_visible() {
    asked_at("copied-in", 1);
    asked_at("copied-in", 100);
}

#[test]
fn before_the_lock_is_given_back() {
    asked_at("published", 1);
    asked_at("published", 100);
}

#[test]
fn before_the_look_at_what_is_asked() {
    asked_at("unlocked", 1);
    asked_at("unlocked", 100);
}
