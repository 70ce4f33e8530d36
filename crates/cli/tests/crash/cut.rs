//! A sender is killed when its last octets wait in its ring, and the receiver passes the connection on to who has no ring: he is told an
//! error, never a clean end, and whoever has the ring reads it to its end (docs/switch-protocol.md, "Endings").

use crate::programs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// What the sender sends last, and what is read of it beforehand where the ring comes up late (agent/cut.c).
const LAST: u32 = 10_000;
const READ: u32 = 200;

/// What they say: (who, how many octets, how the stream ended), in their order.
fn said(way: &str, early: bool, environment: &[(&str, &str)]) -> Vec<(String, u32, String)> {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| programs::compile("cut", &["cut.c"], &[]));
    let mut command = Command::new(program);
    command.arg(way).args(early.then_some("early")).envs(environment.iter().copied());
    let output = command.output().expect("run the program");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{way}: {}\n{text}{complaints}", output.status);
    let line = |line: &str| {
        let (head, end) = line.split_once(" octets, ")?;
        let (who, octets) = head.split_once(' ')?;
        Some((who.to_owned(), octets.parse().ok()?, end.to_owned()))
    };
    text.lines().map(|each| line(each).unwrap_or_else(|| panic!("{way} says {each:?}"))).collect()
}

#[track_caller]
fn cut(way: &str, first: bool, next: bool) {
    let expected = |octets: [u32; 2], ends: [&str; 2]| {
        let lines = [("next", next), ("first", first)].into_iter().zip(octets).zip(ends);
        let lines = lines.filter(|(((_, speaks), _), _)| *speaks);
        lines.map(|(((who, _), octets), end)| (who.to_owned(), octets, end.to_owned())).collect::<Vec<_>>()
    };
    let library = programs::library();
    let library = library.to_str().expect("a plain path");
    for early in [false, true] {
        let had = if early { READ } else { 0 };
        // Who is there first has all of it.
        let by_the_kernel = if next { [LAST, had] } else { [0, LAST] };
        let plain = expected(by_the_kernel, ["end"; 2]);
        assert_eq!(said(way, early, &[]), plain, "{way} on the kernel, early {early}");
        let in_a_ring = expected([had, LAST], ["Connection reset by peer", "end"]);
        for upgrade in ["eager", "lazy"] {
            for round in 0..3 {
                let environment = [("LD_PRELOAD", library), ("BYPATH_UPGRADE", upgrade)];
                let seen = said(way, early, &environment);
                // The ring came up too late, or not before its sender was dead: then all is as on the kernel.
                let is_right = seen == in_a_ring || early && seen == plain;
                assert!(is_right, "{way}, {upgrade}, early {early}, {round}: {seen:?}");
            }
        }
    }
}

#[test]
fn an_image_that_has_no_ring_is_told_no_clean_end() {
    cut("exec", false, true);
}

#[test]
fn an_image_that_has_the_library_is_told_no_clean_end() {
    cut("again", false, true);
}

#[test]
fn who_fails_to_execute_a_program_reads_on_to_the_end() {
    cut("failed", true, false);
}

#[test]
fn a_program_that_is_started_is_told_no_clean_end_and_its_parent_reads_on() {
    cut("spawn", true, true);
}

#[test]
fn who_gets_the_descriptor_is_told_no_clean_end_and_who_gave_it_reads_on() {
    cut("passed", true, true);
}

#[test]
fn who_lets_no_library_follow_it_any_more_is_told_no_clean_end() {
    cut("filter", false, true);
    cut("table", false, true);
}

#[test]
fn splice_finds_no_clean_end_and_who_called_it_reads_on() {
    let of = |next: u32, end: &str| {
        [("next".to_owned(), next, end.to_owned()), ("first".to_owned(), LAST, "end".to_owned())]
    };
    assert_eq!(said("splice", false, &[]), of(LAST, "end"), "on the kernel");
    let library = programs::library().to_str().expect("a plain path");
    for _ in 0..3 {
        let seen = said("splice", false, &[("LD_PRELOAD", library), ("BYPATH_UPGRADE", "eager")]);
        assert_eq!(seen, of(0, "Connection reset by peer"));
    }
}

#[test]
fn who_makes_an_io_uring_reads_on_to_the_end() {
    cut("ring", true, false);
}
