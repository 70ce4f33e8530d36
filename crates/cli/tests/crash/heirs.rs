//! A connection shared by a process and its child, one of them killed: the other takes over what it left half done.

use crate::program::{Place, Program, Progress, field};
use crate::programs;
use std::path::PathBuf;
use std::sync::OnceLock;

/// What the survivor writes at the end, and what the peer sends to readers (`BULK` in heirs.c).
const BULK: u64 = 300_000;
/// What the peer answers in the dialogue (`MESSAGE * ROUNDS`).
const REPLIES: u64 = 200 * 40;

fn program() -> &'static str {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let path = PROGRAM.get_or_init(|| programs::compile("heirs", &["heirs.c"], &[]));
    path.to_str().expect("a plain path")
}

/// The victim is killed at its pass `count` of `point` while it does its duty. `old`: bytes before the wrap at which positions
/// begin.
#[track_caller]
fn inherit(victim: &str, action: &str, point: &str, count: u32, old: Option<&str>) {
    let place = Place::new();
    place.pipe("to-peer");
    place.pipe("to-family");
    let duty = format!("{victim}-{action}");
    let parent_dies = victim == "parent";
    let kill = if parent_dies { format!("{point}:{count}") } else { format!("{point}:{count}:child") };
    let raise = format!("{point}:{count}");
    // The handler forks where it stands: the child has half of what its parent did.
    let age: Vec<_> = old.map(|bytes| ("BYPATH_TEST_WRAP", bytes)).into_iter().collect();
    let mut doom = vec![("BYPATH_TEST_KILL", kill.as_str()), ("BYPATH_TEST_DEFER", "0")];
    doom.extend(&age);
    if parent_dies {
        doom.push(("BYPATH_TEST_RAISE", &raise));
    }

    let mut peer = Program::start(&place, "peer", &[program(), "peer", &duty, place.text()], &age);
    let port = peer.expect("port");
    let words = [program(), "family", &duty, place.text(), &port];
    let mut family = Program::start(&place, "family", &words, &doom);
    let read = family.expect("survivor");
    let arrived = peer.expect("peer");
    let ring_tx: u64 = family.family_stats().iter().map(|s| s.bytes.ring_tx).sum();
    if parent_dies {
        assert!(family.was_killed(), "{duty} at {kill}");
    } else {
        family.finish();
    }
    peer.finish();

    let progress = [0, 1].map(|who| Progress::read(&place.path("family.progress"), who));
    let context = format!("{duty} at {kill}, {age:?}: {read}; {arrived}; parent and child: {progress:?}");
    let number = |report: &str, name: &str| field(report, name).parse::<u64>().expect("a number");
    let dead = usize::from(!parent_dies);
    // Of the dead: everything that a call had returned as sent, nothing that it had not asked for.
    let got = [number(&arrived, "parent"), number(&arrived, "child")];
    assert!(got[dead] >= progress[dead].returned, "lost: {context}");
    assert!(got[dead] <= progress[dead].attempted, "{context}");
    // Of the survivor: everything.
    assert_eq!(got[1 - dead], progress[1 - dead].returned, "{context}");
    if !["departs", "falls"].contains(&action) {
        assert!(got[1 - dead] >= BULK, "{context}");
    }
    // A ring that was begun is used: nobody reads the carrier behind it.
    assert!(ring_tx > 0 || point != "ring-begun", "{context}");
    // What the peer sent was read to its end, wherever the dead one left off.
    assert_eq!(number(&read, "received"), number(&arrived, "sent"), "{context}");
    let sent = if action == "reads" { REPLIES + BULK } else { 0 };
    assert!(number(&arrived, "sent") >= sent, "{context}");
}

macro_rules! heirs {
    ($($test:ident $victim:literal $action:literal $point:literal $counts:expr;)*) => {$(
        #[test]
        fn $test() {
            for count in $counts {
                inherit($victim, $action, $point, count, None);
                // The wrap comes in what is written once the dialogue is over: in the ring that somebody takes over.
                inherit($victim, $action, $point, count, Some("20000"));
            }
        }
    )*};
}

heirs! {
    child_copied_in "child" "writes" "copied-in" [1, 50];
    child_published "child" "writes" "published" [1, 50];
    child_unlocked "child" "writes" "unlocked" [1, 50];
    child_claimed "child" "stalls" "claimed" [1];
    child_mid_flush "child" "stalls" "mid-flush" [1];
    child_claimed_last "child" "departs" "claimed" [1];
    child_mid_flush_last "child" "departs" "mid-flush" [1];
    child_claimed_beside_a_sleeper "child" "falls" "claimed" [1];
    child_mid_flush_beside_a_sleeper "child" "falls" "mid-flush" [1];
    child_copied_out "child" "reads" "copied-out" [1, 20];
    child_committed "child" "reads" "committed" [1, 20];
    parent_consented "parent" "writes" "consented" [1];
    parent_ring_begun "parent" "writes" "ring-begun" [1];
    parent_drained "parent" "writes" "drained" [1];
    parent_copied_in "parent" "writes" "copied-in" [1, 20, 200];
    parent_published "parent" "writes" "published" [1, 20, 200];
    parent_unlocked "parent" "writes" "unlocked" [1, 20, 200];
    parent_claimed "parent" "stalls" "claimed" [1];
    parent_mid_flush "parent" "stalls" "mid-flush" [1];
    parent_claimed_last "parent" "departs" "claimed" [1];
    parent_mid_flush_last "parent" "departs" "mid-flush" [1];
    parent_copied_out "parent" "reads" "copied-out" [1, 60];
    parent_committed "parent" "reads" "committed" [1, 60];
}
