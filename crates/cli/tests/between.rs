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

/// What the program says whose calls have `mode` happen where they pass `place` (or several, separated by commas).
#[track_caller]
fn said(place: &str, mode: &str) -> String {
    let places: Vec<String> = place.split(',').map(|place| format!("{place}:0")).collect();
    static PROGRAMS: [OnceLock<PathBuf>; 5] = [const { OnceLock::new() }; 5];
    let (at, name) = match mode {
        "forked" | "forked-edge" | "marked" | "passed" | "kept" => (1, "between_others"),
        _ if mode.starts_with("meant-") => (2, "meant"),
        "reused" | "inherited" | "peeked" | "owing" | "elsewhere" | "half" | "half-unseen" | "replaced"
        | "dissolved" | "parted" | "long" => (3, "reused"),
        "recalled" => (4, "recalled"),
        _ => (0, "between"),
    };
    let build = || programs::compile(name, &[&format!("{name}.c")], &["-Wno-unused-function"]);
    let program = PROGRAMS[at].get_or_init(build);
    let mut command = Command::new(program);
    for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("BYPATH_")) {
        command.env_remove(variable);
    }
    let output = command
        .arg(mode)
        .env("LD_PRELOAD", programs::library())
        .env("BYPATH_UPGRADE", "eager")
        .env("BYPATH_TEST_RAISE", places.join(","))
        // The handler runs where it stands.
        .env("BYPATH_TEST_DEFER", "0")
        .output()
        .expect("run the program");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    let known = ["whole\n", "never\n"].contains(&&*said) && output.status.success();
    assert!(known, "{mode}: {}: {said}{complaints}", output.status);
    said.trim().to_owned()
}

/// It happens, and nothing is lost by it.
#[track_caller]
fn between(place: &str, mode: &str) {
    assert!((0..TRIES).any(|_| said(place, mode) == "whole"), "{mode}: the call never passed {place}");
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
fn what_was_told_is_found_while_it_changes_its_path() {
    between("claimed,carrier-empty", "owed");
}

#[test]
fn a_send_that_is_about_to_enter_the_kernel_is_overtaken_by_no_ring() {
    between("counted", "overtaken");
}

#[test]
fn a_receive_that_is_about_to_enter_the_kernel_sees_the_ring() {
    between("cold", "late");
}

#[test]
fn only_who_is_alone_takes_a_lock_by_plain_stores() {
    for (place, modes) in [("alone", &["company", "sibling"][..]), ("alone-in-process", &["company"])] {
        between(place, "alone");
        for mode in modes {
            assert_eq!(said(place, mode), "never", "{place}: {mode}");
        }
    }
}

#[test]
fn a_send_that_a_handler_left_keeps_no_lock() {
    between("copied-in", "jumped");
}

#[test]
fn bytes_that_come_before_a_sleep_end_it() {
    between("to-sleep", "read");
    between("word-entered", "read");
    between("to-poll", "polled");
    between("to-epoll", "epolled");
    between("to-epoll", "epolled-idle");
    between("edge-looked", "epolled-edge");
}

#[test]
fn a_ring_that_begins_before_a_sleep_ends_it() {
    between("to-sleep", "begun");
    between("to-sleep", "drained");
}

#[test]
fn what_is_demanded_before_a_sleep_is_given_back_in_it() {
    between("to-poll", "demanded");
}

#[test]
fn a_poll_that_is_about_to_enter_the_kernel_keeps_it_from_a_ring() {
    between("poll-enters", "cold-poll");
}

#[test]
fn an_end_that_the_kernel_told_of_is_found() {
    between("none", "edge");
}

#[test]
fn a_receive_of_a_closed_connection_takes_nothing_of_another() {
    between("copied-out", "reused");
    between("copied-out", "inherited");
    between("none", "peeked");
    between("claimed", "owing");
}

#[test]
fn the_end_of_a_closed_connection_is_none_of_another() {
    between("polled", "elsewhere");
}

#[test]
fn a_look_for_more_than_half_a_ring_sleeps_until_there_is_more() {
    between("none", "half");
    between("none", "half-unseen");
}

#[test]
fn a_receive_of_a_dissolved_connection_has_nothing() {
    between("copied-out", "dissolved");
}

#[test]
fn what_was_begun_for_one_connection_is_not_sent_on_another() {
    between("attended", "parted");
    between("attended", "long");
}

#[test]
fn a_call_that_took_a_connection_back_is_not_for_what_has_its_number_by_then() {
    for call in [
        "splice",
        "splice-from",
        "sendfile",
        "urgent",
        "urgent-read",
        "control",
        "passes",
        "passed-on",
        "option",
        "asynchronous",
        "shutdown",
        "print",
        "stream",
        "submit",
        "peek",
        "dissolve",
        "duplicate",
        "register",
    ] {
        between("taken-back", &format!("meant-{call}"));
    }
    between("foreign-looked", "meant-foreign");
}

#[test]
fn a_number_that_is_replaced_is_never_closed() {
    between("to-sleep", "replaced");
    between("ring-empty", "replaced");
    between("to-sleep", "kept");
}

#[test]
fn a_forked_process_finds_bytes_by_an_epoll_set_of_its_own() {
    between("to-epoll", "forked");
    between("to-epoll", "forked-edge");
}

#[test]
fn bytes_of_both_paths_together_reach_the_low_water_mark() {
    between("drained", "marked");
}

#[test]
fn what_others_do_to_the_options_of_a_socket_that_they_got_counts() {
    between("to-sleep", "passed");
}

#[test]
fn what_is_recalled_comes_in_its_order_to_who_receives_meanwhile() {
    between("taken-out", "recalled");
}
