//! Datagrams of a host whose addresses, links and routes change, and of programs that change hosts: each goes where the kernel would send it.

use crate::support::{Totals, missing, preload_library, skip};
use std::path::Path;
use std::process::{Command, Stdio};

/// What the script says, on the kernel or with the library.
fn said(script: &str, case: &str, statistics: Option<&Path>) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/containers").join(script);
    let mut command = Command::new("python3");
    command.arg(script).arg(case).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BYPATH_")) {
        command.env_remove(name);
    }
    if let Some(file) = statistics {
        command.env("LD_PRELOAD", preload_library()).env("BYPATH_UPGRADE", "eager").env("BYPATH_STATS", file);
    }
    let output = bypath_sys::netns::isolated(&mut command).output().expect("python3");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{case}: {}\n{errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The same on the kernel alone, and with nearly all in memory.
#[track_caller]
fn same(test: &str, cases: &[&str]) {
    same_of("changes.py", test, cases, ("before: arrives from ", 1000));
}

/// So is what that script says, which begins like this; so many at least are in memory, in octets.
#[track_caller]
fn same_of(script: &str, test: &str, cases: &[&str], expected: (&str, u64)) {
    same_that(script, test, cases, expected, |_| ());
}

/// The statistics are looked at, too.
#[track_caller]
fn same_that(script: &str, test: &str, cases: &[&str], (begins, least): (&str, u64), look: impl Fn(&Totals)) {
    let mut probe = Command::new("true");
    let mut works = || bypath_sys::netns::isolated(&mut probe).status().is_ok_and(|s| s.success());
    let reason = missing(&["python3", "ip"])
        .or_else(|| (!works()).then(|| "no namespaces can be made here".to_owned()));
    if let Some(reason) = reason {
        return skip(&format!("containers::changes::{test}"), &reason);
    }
    let file = std::env::temp_dir().join(format!("bypath-changes-{}-{test}", std::process::id()));
    for case in cases {
        let kernel = said(script, case, None);
        assert!(kernel.starts_with(begins), "{case}: {kernel}");
        let ours = said(script, case, Some(&file));
        let totals = Totals::read(&file);
        std::fs::remove_file(&file).expect("the statistics");
        assert_eq!(ours, kernel, "{case}");
        assert!(totals.ring_tx > least, "{case}: too little was in memory: {totals:#?}");
        look(&totals);
    }
}

#[test]
fn addresses_that_go_take_their_datagrams_along() {
    same(
        "addresses_that_go_take_their_datagrams_along",
        &["address", "address of anybody", "another host", "source"],
    );
}

#[test]
fn a_loopback_device_that_is_down_loses_datagrams() {
    same("a_loopback_device_that_is_down_loses_datagrams", &["link"]);
}

#[test]
fn who_sends_nothing_in_pieces_is_told_what_is_too_long() {
    same("who_sends_nothing_in_pieces_is_told_what_is_too_long", &["mtu", "mtu of IPv6"]);
}

#[test]
fn who_leaves_the_network_of_a_socket_sends_to_those_there_by_it() {
    let test = "who_leaves_the_network_of_a_socket_sends_to_those_there_by_it";
    same_of("moves.py", test, &["both"], ("in the other: of one to one, of other to other\n", 20_000));
}

#[test]
fn who_leaves_the_network_of_a_connection_meets_nobody_of_the_other_by_it() {
    let test = "who_leaves_the_network_of_a_connection_meets_nobody_of_the_other_by_it";
    same_that("twins.py", test, &["both"], ("of the right one: 4000\n", 10_000), |totals| {
        // The connection that has been left; and its other end, which nobody answers.
        assert_eq!(totals.refused_for("other-namespace"), 1, "{totals:#?}");
    });
}
