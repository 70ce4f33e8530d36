//! A connection that goes on in another program image of its process: over rings where it can be shown that this image
//! alone holds it, through the kernel otherwise, and every byte in its place.

use crate::{Ran, programs, same, same_while_paths_change};
use std::path::PathBuf;
use std::sync::OnceLock;

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| programs::compile("heir", &["heir.c"], &[]))
}

/// Bytes that the program sends before its first exec, at most, and after it, at least (`exchange` in heir.c).
const BEFORE: u64 = 700_000;
const AFTER: u64 = 8_000_000;

/// Ring bytes that came to the peer, the second process of a run.
fn arrived(ran: &Ran) -> u64 {
    ran.counted.get(1).map_or(0, |peer| peer.bytes.ring_rx)
}

/// Runs it with early and with usual upgrades.
#[track_caller]
fn both(how: &str, check: impl Fn(&Ran)) {
    for upgrade in ["eager", "lazy"] {
        check(&same(program(), &[how], &[("BYPATH_UPGRADE", upgrade)]));
    }
}

/// Runs of which one has to do: an attempt that comes to nothing is made again a little later, when a fast machine has sent all.
const RUNS: usize = 5;

/// Nearly all of what follows the exec goes through rings.
#[track_caller]
fn comes_up_again_with(how: &str, environment: &[(&str, &str)]) {
    let mut runs = (0..RUNS).map(|_| arrived(&same(program(), &[how], environment)));
    assert!(runs.any(|octets| octets > AFTER * 9 / 10), "{how}, {environment:?}");
}

/// The same with early and with usual upgrades.
#[track_caller]
fn comes_up_again(how: &str) {
    for upgrade in ["eager", "lazy"] {
        comes_up_again_with(how, &[("BYPATH_UPGRADE", upgrade)]);
    }
}

/// Nothing that follows the exec does.
#[track_caller]
fn stays(how: &str) {
    both(how, |ran| assert!(arrived(ran) < BEFORE, "{how}: {}", arrived(ran)));
}

#[test]
fn the_next_image_goes_on() {
    comes_up_again("once");
}

#[test]
fn with_bytes_under_way_both_ways() {
    comes_up_again("flight");
}

#[test]
fn the_one_after_that_as_well() {
    both("twice", |ran| assert!(arrived(ran) > 3 * AFTER * 9 / 10, "{}", arrived(ran)));
}

#[test]
fn a_shell_between_that_runs_under_bypath_too() {
    comes_up_again("shell");
}

#[test]
fn under_another_number() {
    comes_up_again("moved");
}

#[test]
fn after_closing_everything_else() {
    comes_up_again("range");
}

#[test]
fn from_standard_input_once_that_is_something_else() {
    comes_up_again("standard");
}

#[test]
fn once_the_parent_has_let_go() {
    both("late", |ran| assert!(arrived(ran) > AFTER * 3 / 4, "{}", arrived(ran)));
}

#[test]
fn forks_of_the_next_image_share_it() {
    comes_up_again("fork");
}

#[test]
fn a_plain_program_between() {
    programs::compile("plain", &["plain.c"], &["-static"]);
    stays("static");
    stays("child");
}

#[test]
fn an_image_without_the_library() {
    stays("cleared");
}

#[test]
fn others_may_hold_it() {
    for how in ["spawned", "vforked", "passed"] {
        stays(how);
    }
}

#[test]
fn an_exec_that_fails() {
    both("failed", |ran| assert!(arrived(ran) > BEFORE, "{}", arrived(ran)));
}

#[test]
fn the_parent_goes_on_when_the_next_image_of_its_child_is_gone() {
    for how in ["helper", "helper-closes"] {
        comes_up_again(how);
    }
    for how in ["helper-forks", "helper-spawns"] {
        stays(how);
    }
}

#[test]
fn a_child_under_a_filter_lets_go_when_it_ends() {
    comes_up_again("sandbox");
    stays("sandbox-forks");
    both("sandbox-late", |ran| assert!(arrived(ran) > 2 * AFTER * 9 / 10, "{}", arrived(ran)));
    both("sandbox-late-forks", |ran| assert!(arrived(ran) < AFTER + AFTER / 2 + BEFORE, "{}", arrived(ran)));
}

#[test]
fn a_variable_that_was_used_already() {
    both("stale", |ran| {
        assert!((AFTER * 9 / 10..AFTER + BEFORE + AFTER / 2).contains(&arrived(ran)), "{}", arrived(ran))
    });
}

#[test]
fn variables_that_lead_nowhere() {
    for kind in 0..9 {
        stays(&format!("hostile{kind}"));
    }
    let nothing = "x".repeat(5000);
    for text in ["", ",", "0:0:0:0:0:0:0,", "1:2:3:4:5:6:7,8:9:a", "\u{ff}:", &nothing] {
        comes_up_again_with("once", &[("BYPATH_DEED", text)]);
    }
}

#[test]
fn places_of_heirs_are_free_when_they_are_gone() {
    // What each of them sends is 600 KB.
    let ran = same(program(), &["many"], &[]);
    let sent: u64 = ran.counted.iter().map(|image| image.bytes.ring_tx).sum();
    assert!(sent > 80 * 500_000, "{sent}");
}

#[test]
fn while_paths_change() {
    for how in ["once", "flight", "twice", "late", "fork", "sandbox", "sandbox-late"] {
        same_while_paths_change(program(), &[how]);
    }
}

#[test]
fn a_spawned_program_writes_behind_what_found_no_room() {
    let program = programs::compile("behind", &["behind.c"], &[]);
    for narrow in ["0", "1"] {
        let ran = same(&program, &[], &[("BYPATH_TEST_NARROW", narrow)]);
        assert!(ran.ring_bytes() > 100_000, "{narrow}: {}", ran.ring_bytes());
    }
}
