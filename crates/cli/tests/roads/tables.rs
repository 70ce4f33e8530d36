//! Descriptor tables that are one thread's, or several processes': a number does not tell a socket any more.

use crate::{Ran, programs, same, same_while_paths_change};
use bypath_shm::reason::Reason;
use std::path::PathBuf;
use std::sync::OnceLock;

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| programs::compile("tables", &["tables.c"], &["-pthread"]))
}

/// Bytes went through rings before, and what waited there came by the kernel.
#[track_caller]
fn went_home(how: &str) -> Ran {
    let ran = same(program(), &[how], &[]);
    assert!(ran.ring_bytes() > 3000, "{how}: {} {}", ran.ring_bytes(), ran.complaints);
    assert!(ran.recalled(Reason::RecalledTables) >= 1, "{how}: {}", ran.complaints);
    ran
}

#[test]
fn a_thread_with_descriptors_of_its_own_has_other_connections_by_the_same_numbers() {
    for how in ["thread", "number", "range"] {
        went_home(how);
    }
}

#[test]
fn a_thread_that_is_made_with_descriptors_of_its_own_closes_its_own_ones() {
    for how in ["raw", "raw-number"] {
        went_home(how);
    }
}

#[test]
fn a_process_with_the_same_descriptors_closes_them_for_both() {
    for how in ["clone", "clone-number", "clone3", "memory", "memory-number"] {
        went_home(how);
    }
}

#[test]
fn one_thread_alone_keeps_its_rings() {
    let ran = same(program(), &["alone"], &[]);
    assert_eq!(ran.recalled(Reason::RecalledTables), 0, "{}", ran.complaints);
    assert!(ran.ring_bytes() > 100_000, "{}", ran.ring_bytes());
}

#[test]
fn tables_that_part_while_paths_change() {
    for how in ["thread", "raw", "clone", "memory"] {
        same_while_paths_change(program(), &[how]);
    }
}
