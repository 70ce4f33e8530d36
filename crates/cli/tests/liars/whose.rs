//! Whose a view is: what one user says is not taken for another one's, whoever has it open.

use crate::common::{bypath, stderr, stdout};
use crate::lab::{LONG, Running, has, skip};
use crate::liar::{Liar, copy, within};
use serde_json::Value;
use std::os::unix::fs::fchown;
use std::process::Command;

const STRANGER: u32 = 12345;

/// Whether this process may be several users; if not, says that the test is left out.
fn may_be_others(name: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(name, "only root has other users' processes");
    }
    is_root
}

fn connections_of(pid: u32) -> Vec<Value> {
    let output = within(LONG, bypath(["ss", "--json", "--pid", &pid.to_string()]));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {}", stderr(&output)))
}

/// As a program that takes descriptors from anybody.
#[test]
fn a_region_that_somebody_else_made_is_not_its_holders() {
    if !may_be_others("whose::a_region_that_somebody_else_made_is_not_its_holders") {
        return;
    }
    let liar = Liar::new();
    liar.has_end(0, 77, 78);
    assert_eq!(connections_of(std::process::id()).len(), 1);
    fchown(copy(&liar), Some(STRANGER), None).expect("root gives away");
    assert_eq!(connections_of(std::process::id()), [] as [Value; 0]);
    let text = stdout(&within(LONG, bypath(["metrics"])));
    assert!(!text.contains("command=\"liar\""), "{text}");
}

/// As by su, which waits for a password.
#[test]
fn who_runs_a_program_of_roots_has_no_label_of_roots() {
    let name = "whose::who_runs_a_program_of_roots_has_no_label_of_roots";
    if !has(name, &["setpriv", "sleep"]) || !may_be_others(name) {
        return;
    }
    let liar = Liar::new();
    fchown(copy(&liar), Some(STRANGER), None).expect("root gives away");
    let mut other = Command::new("setpriv");
    other.args(["--ruid", &STRANGER.to_string(), "sleep", "1000"]).stdout(copy(&liar));
    let other = Running(other.spawn().expect("setpriv starts"));
    crate::lab::until("another user runs it", || {
        crate::lab::status(other.0.id(), "Uid").starts_with("12345\t0\t")
    });
    liar.has_member(1, other.0.id());
    let text = stdout(&within(LONG, bypath(["metrics"])));
    assert!(text.contains("bypath_processes{user=\"12345\",command=\"liar\"} 1\n"), "{text}");
    assert!(!text.contains("user=\"0\",command=\"liar\""), "{text}");
}
