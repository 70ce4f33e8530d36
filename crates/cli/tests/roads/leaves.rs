//! A process that calls exec holds its connections until the exec has happened: who shares them takes them for its own
//! after that, and not before.

use crate::{programs, same};
use std::path::PathBuf;
use std::sync::OnceLock;

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| programs::compile("leaves", &["leaves.c"], &[]))
}

/// Bytes that the parent sends while the other process is about to exec, or has done so.
const MOST: u64 = 3_000_000;

#[test]
fn an_exec_that_fails_was_none() {
    for how in ["fails", "fails-warm"] {
        for upgrade in ["eager", "lazy"] {
            let within = [("BYPATH_TEST_RAISE", "exec-told:0"), ("BYPATH_TEST_DEFER", "0")];
            let ran = same(program(), &[how], &[("BYPATH_UPGRADE", upgrade), within[0], within[1]]);
            // What is on a ring stays there. Nothing comes up while the other process may still hold it.
            let bytes = ran.ring_bytes();
            assert!(how == "fails-warm" || bytes < MOST / 2, "{upgrade}: {bytes} bytes went through rings");
        }
    }
}

#[test]
fn who_remains_goes_on_over_rings_while_the_next_image_lives() {
    for how in ["succeeds", "succeeds-warm"] {
        for upgrade in ["eager", "lazy"] {
            let ran = same(program(), &[how], &[("BYPATH_UPGRADE", upgrade)]);
            let bytes = ran.ring_bytes();
            assert!(bytes > MOST * 9 / 10, "{how}, {upgrade}: {bytes} bytes went through rings");
        }
    }
}
