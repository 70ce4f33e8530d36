//! Whose a view is: what one user says is not taken for another one's, whoever has it open.

use crate::common::{bypath, stderr, stdout};
use crate::lab::{LONG, skip};
use crate::liar::{Liar, copy, within};
use serde_json::Value;
use std::os::unix::fs::fchown;

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
