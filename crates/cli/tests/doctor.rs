//! `bypath doctor` on this host: what it says of interfaces, and of none.

mod common;

use common::{bypath, stderr, stdout};
use serde_json::Value;
use std::process::Output;

fn doctor(arguments: &[&str]) -> Output {
    bypath(["doctor"]).args(arguments).output().expect("bypath starts")
}

/// Says that a part of a test is left out, and why; also in the list of the tests' closing summary.
fn skip(name: &str, reason: &str) {
    eprintln!("skipped: {name}: {reason}");
    if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).expect("the list");
        std::io::Write::write_all(&mut file, format!("{name}\t{reason}\n").as_bytes()).expect("the list");
    }
}

/// The state of a check in a report.
fn state<'a>(report: &'a Value, check: &str) -> &'a str {
    let findings = report["findings"].as_array().expect("findings");
    let found: Vec<_> = findings.iter().filter(|f| f["check"] == check).collect();
    assert_eq!(found.len(), 1, "{check}: {report}");
    found[0]["state"].as_str().expect("a state")
}

#[test]
fn the_status_says_whether_something_hurts() {
    let output = doctor(&["lo", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["interface"]["name"], &report["interface"]["index"]), (&"lo".into(), &1.into()));
    assert_eq!((state(&report, "kind"), state(&report, "coalescing")), ("good", "good"));
    let findings = report["findings"].as_array().expect("findings");
    let hurts = findings.iter().any(|f| f["state"] == "hurts");
    assert_eq!(output.status.code(), Some(if hurts { 3 } else { 0 }), "{report}");
    for f in findings.iter().filter(|f| f["state"] == "hurts") {
        assert!(f["why"].is_string(), "{f}");
    }
}

#[test]
fn every_check_is_printed_if_all_are_asked_for() {
    let report: Value = serde_json::from_slice(&doctor(&["lo", "--json"]).stdout).expect("JSON");
    let text = stdout(&doctor(&["lo", "--all"]));
    assert!(text.starts_with("lo: number 1, 00:00:00:00:00:00, MTU "), "{text}");
    for f in report["findings"].as_array().expect("findings") {
        let check = f["check"].as_str().expect("a code");
        assert!(text.lines().any(|l| l.split_whitespace().nth(1) == Some(check)), "{check}:\n{text}");
    }
}

#[test]
fn without_an_interface_the_host_is_looked_at() {
    let report: Value = serde_json::from_slice(&doctor(&["--json"]).stdout).expect("JSON");
    assert!(report.get("interface").is_none());
    for check in ["processors", "halting", "governor", "rt-throttling", "packet-sockets", "receive-queue"] {
        state(&report, check);
    }
    // What rings need, which an interface has nothing to do with.
    for check in [
        "kernel",
        "descriptors",
        "allowed-processors",
        "idle-driver",
        "seccomp",
        "ptrace",
        "pid-namespace",
        "user-namespace",
        "mount-namespace",
        "network-namespace",
        "processor-quota",
        "memory-limit",
        "file-size",
        "address-space",
        "congestion-control",
        "datagram-queue",
    ] {
        state(&report, check);
    }
    assert_eq!((state(&report, "kernel"), state(&report, "shared-memory")), ("good", "good"));
    assert_eq!(state(&report, "sock-diag"), "good");
    assert_ne!(state(&report, "rt-throttling"), "hurts");
    let of_lo: Value = serde_json::from_slice(&doctor(&["lo", "--json"]).stdout).expect("JSON");
    assert!(!of_lo.to_string().contains("shared-memory"));
}

#[test]
fn what_a_shell_may_not_is_found() {
    let shell = |limits: &str| {
        let command = format!("{limits}; exec {} doctor --json", common::BYPATH);
        let output = std::process::Command::new("sh").args(["-c", &command]).output().expect("sh starts");
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    assert_eq!(state(&shell("ulimit -n 512"), "descriptors"), "note");
    assert_eq!(state(&shell("ulimit -f 1000"), "file-size"), "hurts");
    assert_eq!(state(&shell("ulimit -v 900000"), "address-space"), "note");
    // In a container everything is one of its own, and its own process 1 has the same.
    let contained = std::process::Command::new("unshare")
        .args(["-Ur", "-p", "-m", "-f", "--mount-proc", common::BYPATH, "doctor", "--json"])
        .output()
        .expect("unshare starts");
    if stderr(&contained).starts_with("unshare: ") {
        skip("doctor::what_a_shell_may_not_is_found", "no user namespaces for this user");
        return;
    }
    let report: Value = serde_json::from_slice(&contained.stdout).unwrap_or_else(|_| panic!("{contained:?}"));
    assert_eq!((state(&report, "pid-namespace"), state(&report, "user-namespace")), ("note", "note"));
}

#[test]
fn an_interface_that_is_none_is_answered_with_those_there_are() {
    let output = doctor(&["no-such-device"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("no-such-device: no such interface; there are:") && text.contains("lo"), "{text}");
    let output = doctor(&["a-name-of-16-oct"]);
    assert_eq!((output.status.code(), stderr(&output).contains("15 characters at most")), (Some(1), true));
}
