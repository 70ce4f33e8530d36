//! Calls that move bytes inside the kernel, tell of them by other means than readiness, or come by number.

use crate::{Ran, programs, same, same_while_paths_change};
use bypath_shm::reason::Reason;
use std::path::PathBuf;
use std::sync::OnceLock;

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| programs::compile("moves", &["moves.c"], &[]))
}

#[track_caller]
fn moves(how: &str) -> Ran {
    same(program(), &[how], &[])
}

#[test]
fn splice_and_its_kin() {
    let ran = moves("splice");
    // The direction that a splice uses is the kernel's for it, and comes up again between.
    assert!(ran.recalled(Reason::RecalledSplice) >= 2);
    assert!(ran.ring_bytes() > 3000);
}

#[test]
fn sends_without_a_copy_are_the_kernels() {
    let ran = moves("zerocopy");
    assert!(ran.recalled(Reason::RecalledOption) >= 1);
    assert!(ran.ring_bytes() > 100_000, "{}", ran.ring_bytes());
}

#[test]
fn signal_driven_input_is_the_kernels() {
    let ran = moves("async");
    assert!(ran.recalled(Reason::RecalledOption) >= 1);
    assert!(ran.ring_bytes() > 3000);
}

#[test]
fn calls_by_number_stay_on_rings() {
    let ran = moves("numbers");
    assert!(ran.ring_bytes() > 100_000, "{}", ran.ring_bytes());
}

#[test]
fn a_descriptor_taken_from_oneself_is_one_more() {
    let ran = moves("pidfd");
    assert!(ran.ring_bytes() > 100_000, "{}", ran.ring_bytes());
}

#[test]
fn moves_while_paths_change() {
    for how in ["splice", "zerocopy", "async", "numbers", "pidfd"] {
        same_while_paths_change(program(), &[how]);
    }
}
