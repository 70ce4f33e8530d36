//! The inbox's bitmap: a mark is found by a drain under way, or leaves the top set.

use crate::{check, check_three};
use bypath_shm::marks::Marks;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::*;
use loom::thread;

type Small = Marks<2, 65>;

fn drained(marks: &Small) -> Vec<u32> {
    let mut all = Vec::new();
    marks.drain(|n| all.push(n));
    all
}

#[test]
fn no_mark_is_lost_to_a_drain_under_way() {
    check(|| {
        let marks = Arc::new(Small::new());
        let marker = {
            let marks = marks.clone();
            thread::spawn(move || {
                marks.mark(3);
                marks.mark(4100);
            })
        };
        let mut seen = drained(&marks);
        marker.join().unwrap();
        if marks.is_marked() {
            seen.extend(drained(&marks));
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [3, 4100]);
    });
}

/// Two mark the same number, a third process drains between.
#[test]
fn a_mark_that_was_set_already_is_still_found() {
    check_three(|| {
        let marks = Arc::new(Small::new());
        let markers = [(); 2].map(|()| {
            let marks = marks.clone();
            thread::spawn(move || marks.mark(3))
        });
        let first = drained(&marks).len();
        for m in markers {
            m.join().unwrap();
        }
        let rest = if marks.is_marked() { drained(&marks).len() } else { 0 };
        assert!(first + rest >= 1);
        assert_eq!(marks.low[0].load(SeqCst), 0, "a mark below an empty top");
    });
}

/// A marker killed after its first step, while the top is set for other news: the next mark of the same number
/// must be found.
#[test]
fn a_marker_killed_half_way_hides_no_later_mark() {
    check_three(|| {
        let marks = Arc::new(Small::new());
        marks.mark(4100);
        let killed = {
            let marks = marks.clone();
            thread::spawn(move || {
                marks.low[0].fetch_or(1 << 3, SeqCst);
            })
        };
        let alive = {
            let marks = marks.clone();
            thread::spawn(move || marks.mark(3))
        };
        let mut seen = drained(&marks);
        killed.join().unwrap();
        alive.join().unwrap();
        if marks.is_marked() {
            seen.extend(drained(&marks));
        }
        assert!(seen.contains(&3) && seen.contains(&4100), "{seen:?}");
    });
}
