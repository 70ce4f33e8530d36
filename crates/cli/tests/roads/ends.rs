//! The table of ends outlives the connections in it: a server that forks a child for each connection follows them all,
//! however many come, and no two processes take one place for theirs.

use crate::{Ran, programs, same};
use std::path::PathBuf;
use std::sync::OnceLock;

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| programs::compile("ends", &["ends.c"], &[]))
}

/// End numbers that the server's family has used.
fn numbers(ran: &Ran) -> u32 {
    let told = ran.complaints.lines().find_map(|line| line.strip_prefix("ends-used ")?.parse().ok());
    told.unwrap_or_else(|| panic!("no number of ends: {}", ran.complaints))
}

#[track_caller]
fn few_numbers(how: &str) {
    let ran = same(program(), &[how, "1200", "4"], &[]);
    assert!(numbers(&ran) < 600, "{how}: {} numbers", numbers(&ran));
    assert!(ran.ring_bytes() > 100_000, "{how}: {} bytes went through rings", ran.ring_bytes());
}

#[test]
fn numbers_that_children_close_are_used_again() {
    few_numbers("closes");
}

#[test]
fn numbers_that_children_leave_at_their_end_are_used_again() {
    few_numbers("exits");
}

#[test]
fn numbers_of_killed_children_are_used_again() {
    few_numbers("killed");
}

#[test]
fn numbers_are_used_again_while_paths_change() {
    for seed in ["3", "17"] {
        let ran = same(program(), &["mixed", "1200", "4"], &[("BYPATH_TEST_FLIP", seed)]);
        assert!(numbers(&ran) < 600, "{} numbers", numbers(&ran));
    }
}

/// In a soak (BYPATH_SOAK=1) more connections than there are numbers.
#[test]
fn many_connections_one_after_the_other() {
    let soak = std::env::var("BYPATH_SOAK").as_deref() == Ok("1");
    let ran = same(program(), &["mixed", if soak { "70000" } else { "2000" }, "4"], &[]);
    assert!(numbers(&ran) < 1000, "{} numbers", numbers(&ran));
    assert!(ran.ring_bytes() > 100_000, "{} bytes went through rings", ran.ring_bytes());
}

#[test]
fn what_a_family_without_room_holds_is_nobody_elses() {
    let ran = same(program(), &["crowd", "80"], &[]);
    // The parent's own eighty, of which the client is the other end.
    let most = ran.counted.iter().map(|process| process.upgraded).max();
    let parent = ran.counted.first().map(|process| process.upgraded);
    assert!(
        parent == Some(80) && most >= Some(80),
        "{parent:?} of the parent's came up, {most:?} of the client's"
    );
}

/// What was there is read once, though it is just being taken back.
#[test]
fn what_is_there_when_reading_is_shut_down_is_read_once() {
    let program = programs::compile("half", &["half.c"], &[]);
    for octets in ["1", "60000"] {
        let ran = same(&program, &["200", octets], &[]);
        assert!(ran.ring_bytes() > 100_000, "{} bytes went through rings", ran.ring_bytes());
    }
}
