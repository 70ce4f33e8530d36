//! A descriptor of a connection that is taken out of its process by another one (pidfd_getfd): that one reads and writes
//! beside the rings, so they are given up for good.

use crate::{Ran, programs, same, same_while_paths_change};
use bypath_shm::reason::Reason;
use std::path::PathBuf;
use std::sync::OnceLock;

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| programs::compile("taken", &["taken.c"], &[]))
}

/// By a program of its own, and by a process of the same family. Both directions were on rings before, and the bytes of
/// neither are afterwards.
#[track_caller]
fn taken(how: &str) {
    for args in [&[how][..], &[how, "kin"]] {
        let ran = same(program(), args, &[]);
        assert_given_up(&ran, args);
    }
}

/// Whatever a busy machine gave up before counts as well; that nothing comes up afterwards shows in the bytes.
#[track_caller]
fn assert_given_up(ran: &Ran, args: &[&str]) {
    use Reason::*;
    let reasons = [RecalledTaken, RecalledPeer, RecalledPeerClosed, RecalledStalledReader, RecalledRingFull];
    let recalled: u64 = reasons.iter().map(|reason| ran.recalled(*reason)).sum();
    assert!(recalled >= 2, "{args:?}: {}", ran.complaints);
    let ring = ran.ring_bytes();
    // What warms up, and what was under way.
    assert!((1..40_000).contains(&ring), "{args:?}: {ring} bytes through rings");
}

#[test]
fn with_bytes_under_way_in_both_directions() {
    taken("flight");
}

#[test]
fn while_its_owner_is_blocked_in_read() {
    taken("blocked");
}

#[test]
fn while_its_owner_polls() {
    taken("polls");
    taken("epolls");
}

#[test]
fn while_it_is_busy() {
    for args in [&["busy"][..], &["busy", "kin"]] {
        let ran = same(program(), args, &[]);
        assert!(ran.ring_bytes() > 0, "{args:?}: {}", ran.complaints);
    }
}

#[test]
fn while_its_owner_is_stopped() {
    taken("stopped");
}

#[test]
fn and_its_owner_is_killed() {
    for args in [&["killed"][..], &["killed", "kin"]] {
        let ran = same(program(), args, &[]);
        assert!((1..40_000).contains(&ran.ring_bytes()), "{args:?}: {}", ran.complaints);
    }
}

#[test]
fn and_its_owner_ends() {
    taken("heir");
}

#[test]
fn and_its_taker_ends() {
    taken("closed");
}

#[test]
fn by_the_process_at_the_other_end() {
    taken("self");
}

#[test]
fn before_it_came_up() {
    for args in [&["cold"][..], &["cold", "kin"]] {
        let ran = same(program(), args, &[]);
        assert_eq!((ran.ring_bytes(), ran.stayed(Reason::RecalledTaken)), (0, 1), "{args:?}");
    }
}

#[test]
fn while_paths_change() {
    for how in ["flight", "blocked", "epolls", "busy", "stopped", "heir", "closed", "self"] {
        same_while_paths_change(program(), &[how]);
    }
}
