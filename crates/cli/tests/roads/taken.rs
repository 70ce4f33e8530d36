//! A descriptor of a connection that is taken out of its process by another one (pidfd_getfd): that one reads and writes
//! beside the rings, so they are given up for good.

use crate::{Ran, programs, same, same_while_paths_change, skip};
use bypath_shm::reason::Reason;
use bypath_shm::stats::{RECORD_SIZE, StatsSnapshot};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
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

/// Root takes it of a process of one user, and the other end is another one's, who allows that: the owner asks for it.
#[test]
fn of_a_connection_between_two_other_users() {
    if !rustix::process::geteuid().is_root() {
        return skip("taken::of_a_connection_between_two_other_users", "only root becomes other users");
    }
    // Where those users may write.
    let stats = std::env::temp_dir().join(format!("bypath-taken-{}.stats", std::process::id()));
    for how in ["flight", "blocked", "polls", "epolls", "busy", "cold", "heir", "closed"] {
        std::fs::write(&stats, "").expect("a file");
        std::fs::set_permissions(&stats, Permissions::from_mode(0o666)).expect("our file");
        let settings = [("BYPATH_ALLOW_UID", "any"), ("BYPATH_STATS", stats.to_str().expect("a plain path"))];
        let ran = same(program(), &[how, "users"], &settings);
        let raw = std::fs::read(&stats).expect("what they counted");
        let counted = raw.chunks(RECORD_SIZE).filter_map(StatsSnapshot::decode);
        let ring: u64 = counted.map(|s| s.bytes.ring_tx).sum();
        assert_eq!(ring > 0, how != "cold", "{how}: {ring} {}", ran.complaints);
    }
    std::fs::remove_file(&stats).expect("our file");
}
