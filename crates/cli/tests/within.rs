//! What a receive or a close meets while it is under way: bytes that another takes, takes back or overwrites while they
//! are copied, bytes of the carrier that are not there yet, a reader that comes late.

#[path = "agent/programs.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod programs;

use bypath_shm::stats::{RECORD_SIZE, StatsSnapshot};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// What the program says; it must have ended well.
#[track_caller]
fn within(mode: &str) -> String {
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
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{mode}: {}: {said}{complaints}", output.status);
    said
}

#[test]
fn bytes_that_another_read_takes_while_they_are_copied_come_once() {
    assert_eq!(within("taken"), "whole\n");
}

#[test]
fn bytes_that_are_taken_back_while_they_are_copied_come_once() {
    assert_eq!(within("claimed"), "whole\n");
}

#[test]
fn a_peek_shows_no_bytes_that_were_overwritten_while_they_were_copied() {
    assert_eq!(within("peeked"), "whole\n");
}

#[test]
fn a_peek_shows_no_ring_before_the_last_bytes_of_the_carrier() {
    assert_eq!(within("gap"), "whole\n");
}

#[test]
fn a_close_with_unread_bytes_loses_nothing_that_was_sent() {
    assert_eq!(within("closed"), "whole\n");
}

#[test]
fn who_drains_the_carrier_wakes_who_waits_for_the_ring() {
    assert!((0..100).any(|_| within("siblings") == "whole\n"), "the sleeper always came first");
}

/// What `name` says on the kernel it says under the library, in each of these environments.
#[track_caller]
fn as_on_the_kernel(name: &str, environments: &[(&str, &str)]) {
    let program = programs::compile(name, &[&format!("{name}.c")], &[]);
    let run = |environment: &[(&str, &str)]| {
        let mut command = Command::new(&program);
        for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("BYPATH_")) {
            command.env_remove(variable);
        }
        let output = command.envs(environment.iter().copied()).output().expect("run the program");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{environment:?}: {}: {said}{complaints}", output.status);
        said
    };
    let kernel = run(&[]);
    let library = programs::library().to_str().expect("a plain path");
    for environment in environments {
        let all = [("LD_PRELOAD", library), ("BYPATH_UPGRADE", "eager"), *environment];
        assert_eq!(kernel, run(&all), "{environment:?}");
    }
}

/// A call that sleeps on a descriptor goes on when another thread closes that, as on the kernel.
#[test]
fn a_sleeping_call_keeps_its_connection_when_the_descriptor_is_closed() {
    let profiles = ["balanced", "frugal", "latency"].map(|profile| ("BYPATH_PROFILE", profile));
    as_on_the_kernel("stays", &profiles);
    as_on_the_kernel("stays", &["3", "17"].map(|seed| ("BYPATH_TEST_FLIP", seed)));
}

/// A call that goes in parts has for all of them what its numbers meant at the begin.
#[test]
fn the_parts_of_a_call_go_to_one_connection_and_come_from_one_file() {
    let profiles = ["balanced", "frugal", "latency"].map(|profile| ("BYPATH_PROFILE", profile));
    as_on_the_kernel("pieces", &profiles);
    as_on_the_kernel("pieces", &["3", "17"].map(|seed| ("BYPATH_TEST_FLIP", seed)));
    as_on_the_kernel("pieces", &[("BYPATH_UPGRADE", "off")]);
}

/// What the kernel tells of a descriptor is told, though a one-shot registration of a connection has the same data word.
#[test]
fn registrations_with_one_word_hide_nothing_from_each_other() {
    let program = programs::compile("words", &["words.c"], &[]);
    let run = |environment: &[(&str, &str)]| {
        let mut command = Command::new(&program);
        for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("BYPATH_")) {
            command.env_remove(variable);
        }
        let output = command.envs(environment.iter().copied()).output().expect("run the program");
        assert!(output.status.success(), "{environment:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let kernel = run(&[]);
    assert!(kernel.lines().filter(|l| *l == "the other one again: 1 5:1").count() == 36, "{kernel}");
    let library = programs::library().to_str().expect("a plain path");
    for upgrade in ["eager", "lazy", "off"] {
        assert_eq!(kernel, run(&[("LD_PRELOAD", library), ("BYPATH_UPGRADE", upgrade)]), "{upgrade}");
    }
}

/// Connections on rings that are always ready leave the kernel's descriptors their turns in a small array, and those them.
#[test]
fn descriptors_that_are_always_ready_get_their_turns() {
    let program = programs::compile("turns", &["turns.c"], &[]);
    let run = |room: &str, environment: &[(&str, &str)]| {
        let mut command = Command::new(&program);
        for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("BYPATH_")) {
            command.env_remove(variable);
        }
        let output = command.arg(room).envs(environment.iter().copied()).output().expect("run the program");
        assert!(output.status.success(), "{environment:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let library = programs::library().to_str().expect("a plain path");
    for room in ["1", "2", "3"] {
        let kernel = run(room, &[]);
        assert_eq!(kernel.matches(": enough\n").count(), 4, "{kernel}");
        for upgrade in ["eager", "lazy"] {
            let rings = run(room, &[("LD_PRELOAD", library), ("BYPATH_UPGRADE", upgrade)]);
            assert_eq!(kernel, rings, "{upgrade}, room for {room}");
        }
    }
}

/// Who looks at an epoll set from outside learns of what lies in a ring, also while its sender makes no call.
#[test]
fn a_set_within_another_shows_what_lies_in_its_rings() {
    let program = programs::compile("nested", &["nested.c"], &[]);
    let run = |environment: &[(&str, &str)]| {
        let mut command = Command::new(&program);
        for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("BYPATH_")) {
            command.env_remove(variable);
        }
        let output = command.envs(environment.iter().copied()).output().expect("run the program");
        assert!(output.status.success(), "{environment:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let kernel = run(&[]);
    assert_eq!(kernel.matches(", nothing 0, end 1 0\n").count(), 6, "{kernel}");
    let library = programs::library().to_str().expect("a plain path");
    for upgrade in ["eager", "lazy"] {
        assert_eq!(kernel, run(&[("LD_PRELOAD", library), ("BYPATH_UPGRADE", upgrade)]), "{upgrade}");
    }
}

/// Calls that move nothing: how much there is while a connection changes its path, and lists of empty pieces.
#[test]
fn calls_that_move_nothing_answer_as_the_kernel_does() {
    let program = programs::compile("nothing", &["nothing.c"], &[]);
    let run = |environment: &[(&str, &str)]| {
        let mut command = Command::new(&program);
        for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("BYPATH_")) {
            command.env_remove(variable);
        }
        let output = command.envs(environment.iter().copied()).output().expect("run the program");
        assert!(output.status.success(), "{environment:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let kernel = run(&[]);
    assert!(kernel.contains("counted too few: 0\n"), "{kernel}");
    let library = programs::library().to_str().expect("a plain path");
    for upgrade in ["eager", "lazy"] {
        assert_eq!(kernel, run(&[("LD_PRELOAD", library), ("BYPATH_UPGRADE", upgrade)]), "{upgrade}");
    }
}

/// A thread may have no more than 16 KiB of stack (PTHREAD_STACK_MIN).
#[test]
fn calls_on_connections_fit_on_the_smallest_stack() {
    let program = programs::compile("stack", &["stack.c"], &[]);
    let run = |environment: &[(&str, &str)]| {
        let mut command = Command::new(&program);
        for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("BYPATH_")) {
            command.env_remove(variable);
        }
        command.arg("16384").envs(environment.iter().copied());
        let output = command.output().expect("run the program");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let took = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{environment:?}: {}: {said}{took}", output.status);
        said
    };
    let kernel = run(&[]);
    assert!(kernel.contains("select of many: 1\n") && kernel.contains("sendfile: 50000\n"), "{kernel}");
    let library = programs::library().to_str().expect("a plain path");
    for upgrade in ["eager", "lazy", "off"] {
        assert_eq!(kernel, run(&[("LD_PRELOAD", library), ("BYPATH_UPGRADE", upgrade)]), "{upgrade}");
    }
}

/// Where the library does not see it: datagrams that wait in memory are there for splice and streams.
#[test]
fn what_the_kernel_and_the_c_library_read_themselves_is_there() {
    let program = programs::compile("drawn", &["drawn.c"], &[]);
    let statistics = programs::workshop().join(format!("drawn-{}", std::process::id()));
    let run = |environment: &[(&str, &OsStr)]| {
        let output = Command::new(&program).envs(environment.iter().copied()).output().expect("run it");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{}: {said}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        said
    };
    let kernel = run(&[]);
    assert!(kernel.starts_with("splice 3 one\nsplice 3 two\nsplice 1 a\n"), "{kernel}");
    let ours = run(&[
        ("LD_PRELOAD", programs::library().as_os_str()),
        ("BYPATH_UPGRADE", OsStr::new("eager")),
        ("BYPATH_STATS", statistics.as_os_str()),
    ]);
    let raw = std::fs::read(&statistics).expect("the statistics");
    let _ = std::fs::remove_file(&statistics);
    assert_eq!(ours, kernel);
    let by_ring: u64 =
        raw.chunks(RECORD_SIZE).filter_map(StatsSnapshot::decode).map(|s| s.bytes.ring_tx).sum();
    assert!(by_ring > 1000, "only {by_ring} octets went through memory");
}

/// While paths change at random, with what a system call puts into the carrier among the rest.
#[test]
fn what_is_counted_and_told_is_there() {
    let program = programs::compile("counted", &["counted.c"], &[]);
    // Many seeds: the processes' own turns are as much of a chance.
    for flips in std::iter::once(None).chain((1..=20).map(Some)) {
        let mut command = Command::new(&program);
        command.arg("50000000").env("LD_PRELOAD", programs::library()).env("BYPATH_UPGRADE", "eager");
        command.envs(flips.map(|seed| ("BYPATH_TEST_FLIP", seed.to_string())));
        let output = command.output().expect("run the program");
        let said = String::from_utf8_lossy(&output.stdout);
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (&*said, &*complaints),
            ("all 1, fewer than told 0, nothing 0\n", ""),
            "{flips:?}: {}",
            output.status
        );
    }
}

/// Each connection of a server of several threads is one thread's at a time: the kernel and a ring do not both tell of it.
#[test]
fn a_one_shot_registration_is_told_to_one_thread() {
    let program = programs::compile("oneshot", &["oneshot.c"], &[]);
    let cases = [("4", "edge"), ("1", "level"), ("2", "edge")];
    for (upgrade, (clients, kind)) in ["off", "lazy", "eager"].into_iter().flat_map(|u| cases.map(|c| (u, c)))
    {
        let mut command = Command::new(&program);
        command.args(["1200", clients, kind]);
        command.env("LD_PRELOAD", programs::library()).env("BYPATH_UPGRADE", upgrade);
        let output = command.output().expect("run the program");
        let said = String::from_utf8_lossy(&output.stdout);
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (&*said, &*complaints),
            ("answered 1, shared 0, wrong 0\n", ""),
            "{upgrade} {clients} {kind}: {}",
            output.status
        );
    }
}

/// The kernel goes on with what is registered by the number of a descriptor that came back and was put in its own place: a thread that waits there is told.
#[test]
fn who_waits_for_a_descriptor_that_comes_back_to_its_place_is_told() {
    let program = programs::compile("returned", &["returned.c"], &[]);
    for upgrade in ["off", "lazy", "eager"] {
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", programs::library()).env("BYPATH_UPGRADE", upgrade);
        let output = command.output().expect("run the program");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "told 1, read 4\n".repeat(3), "{upgrade}: {}", output.status);
    }
}
