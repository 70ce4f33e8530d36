//! A seccomp filter that a program installs late: it does not know what rings need.

use crate::{Ran, programs, ran, same, same_while_paths_change, skip};
use bypath_shm::reason::Reason;
use std::path::PathBuf;
use std::sync::OnceLock;

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| programs::compile("filter", &["filter.c"], &[]))
}

/// Runs one way; `None` = there are no filters here.
#[track_caller]
fn confined(how: &str) -> Option<Ran> {
    let status = std::fs::read_to_string("/proc/self/status").expect("our own state");
    if !status.contains("Seccomp:") {
        skip(&format!("roads::filter::{how}"), "the kernel has no seccomp");
        return None;
    }
    Some(same(program(), &[how], &[]))
}

/// Bytes went through rings before. That none of what rings need is called afterwards is the filter's own check.
#[track_caller]
fn went_home(how: &str) -> Option<Ran> {
    let ran = confined(how)?;
    assert!(ran.ring_bytes() > 3000, "{how}: {} {}", ran.ring_bytes(), ran.complaints);
    Some(ran)
}

#[test]
fn installed_by_prctl() {
    went_home("prctl");
}

#[test]
fn installed_by_number() {
    went_home("number");
}

/// What waits elsewhere for numbers that the library has for a moment asks nobody there.
#[test]
fn numbers_are_replaced_and_closed_under_it() {
    went_home("replaces");
}

#[test]
fn strict_mode() {
    went_home("strict");
}

#[test]
fn refused_filters_are_questions() {
    let Some(ran) = confined("failing") else { return };
    assert_eq!(ran.recalled(Reason::RecalledSeccomp), 0);
    assert!(ran.ring_bytes() > 100_000, "{}", ran.ring_bytes());
}

#[test]
fn epoll_sets_are_the_programs_again() {
    went_home("epoll");
    went_home("edge");
}

#[test]
fn threads_that_sleep_on_rings_make_their_own_calls() {
    for _ in 0..10 {
        went_home("threads");
    }
}

/// One thread stands at this point for longer than who sleeps is waited for, while another one installs the filter.
#[track_caller]
fn stands_still(how: &str, point: &str) {
    if confined("failing").is_none() {
        return;
    }
    let ran = same(program(), &[how], &[("BYPATH_TEST_RAISE", point), ("BYPATH_TEST_DEFER", "0")]);
    assert!(ran.recalled(Reason::RecalledSeccomp) >= 1, "{how}: {}", ran.complaints);
}

/// A peer takes the page away that a thread touches, or it has no processor: it leaves its call before the filter comes.
#[test]
fn who_is_in_the_middle_of_a_call_is_waited_for() {
    stands_still("slow", "copied-out:0");
}

#[test]
fn two_threads_confine_all_at_once() {
    stands_still("second", "copied-out:0");
}

/// Nor is the kernel asked anything before a read of something else, by who did not know yet that there is nothing to ask for.
#[test]
fn who_was_about_to_say_that_it_has_sent_has_nobody_look() {
    stands_still("dirty", "unlocked:0");
}

#[test]
fn what_another_thread_opened_by_the_number_is_not_read() {
    stands_still("reused", "slept:0");
}

#[test]
fn a_thread_that_was_not_known_before_is_asked_nothing() {
    went_home("later");
}

#[test]
fn a_send_that_waits_is_not_cut_short() {
    went_home("whole");
}

#[test]
fn calls_of_several_parts_go_on() {
    went_home("pieces");
    went_home("messages");
}

#[test]
fn actions_are_installed_afterwards() {
    went_home("actions");
}

#[test]
fn a_confined_process_forks() {
    went_home("fork");
}

#[test]
fn what_finds_no_room_is_waited_for() {
    if confined("failing").is_none() {
        return;
    }
    // One that finds it in a wider carrier, and one that waits.
    for narrow in ["0", "1"] {
        let ran = same(program(), &["full"], &[("BYPATH_TEST_NARROW", narrow)]);
        assert!(ran.recalled(Reason::RecalledSeccomp) >= 1, "{narrow}: {}", ran.complaints);
    }
}

/// Sending again what was in another one's ring may take as long as whoever has that makes it take.
#[test]
fn what_got_room_while_another_was_served_is_sent() {
    if confined("failing").is_none() {
        return;
    }
    let slow =
        [("BYPATH_TEST_NARROW", "1"), ("BYPATH_TEST_RAISE", "mid-flush:0"), ("BYPATH_TEST_DEFER", "0")];
    let ran = same(program(), &["beside"], &slow);
    assert!(ran.recalled(Reason::RecalledSeccomp) >= 2, "{}", ran.complaints);
}

/// What is in a ring goes to the carrier before that has a smaller buffer, or to a wider one.
#[test]
fn who_is_not_read_any_more_lives_on() {
    for how in ["stuck", "stuck-unseen", "stuck-unsent"] {
        let Some(ran) = went_home(how) else { return };
        assert_eq!(ran.recalled(Reason::SmallBuffer), 0, "{how}: {}", ran.complaints);
    }
}

/// What is in a ring finds a place in the carrier also where the host's TCP has no memory left.
#[test]
fn what_the_host_has_no_memory_for_is_sent() {
    let name = "roads::filter::what_the_host_has_no_memory_for_is_sent";
    if std::env::var_os("BYPATH_TEST_TCP_MEM").is_none_or(|v| v != "1") {
        skip(
            name,
            "it takes memory from all TCP connections of the host, some seconds long (BYPATH_TEST_TCP_MEM=1 allows it)",
        );
        return;
    }
    let Some(ran) = went_home("starved") else { return };
    assert_eq!(ran.recalled(Reason::SmallBuffer), 0, "{}", ran.complaints);
}

#[test]
fn a_connection_that_cannot_go_back_is_reset_and_its_process_lives_on() {
    if confined("failing").is_none() {
        return;
    }
    let ran = ran(program(), &["stuck-unseen"], &[("BYPATH_TEST_NARROW", "1"), ("BYPATH_LOG", "error")]);
    assert_eq!(ran.text, "reset\n", "{}", ran.complaints);
    assert!(ran.complaints.contains("connection reset"), "{}", ran.complaints);
    assert_eq!(ran.recalled(Reason::SmallBuffer), 1);
}

#[test]
fn later_connections_are_not_followed() {
    let Some(ran) = went_home("listener") else { return };
    // The earlier one rests on its rings until then.
    assert!(ran.recalled(Reason::RecalledSeccomp) >= 1, "{}", ran.complaints);
}

#[test]
fn filters_while_paths_change() {
    if confined("failing").is_none() {
        return;
    }
    for how in ["prctl", "number", "strict", "epoll", "edge", "threads", "fork"] {
        same_while_paths_change(program(), &[how]);
    }
}
