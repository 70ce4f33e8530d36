//! Replacements that take long, or are never over. A program of its own: other tests would be waited for, too.

use bypath_sys::turn::{Replacing, Turn};
use std::mem::ManuallyDrop;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Less than those are waited for.
const LONG: Duration = Duration::from_millis(15);

fn takes() -> Duration {
    let begun = Instant::now();
    drop(Turn::to_make());
    begun.elapsed()
}

fn takes_at_best() -> Duration {
    (0..20).map(|_| takes()).min().expect("some")
}

#[test]
fn who_replaces_for_long_is_waited_for_once_and_others_are_still_waited_for() {
    assert!(takes_at_best() < LONG);
    // By siglongjmp(3), for one.
    let lost = ManuallyDrop::new(Replacing::begin());
    assert!(takes() >= LONG, "it was not waited for");
    assert!(takes_at_best() < LONG, "it is waited for each time");
    let ((begun, has_begun), (end, may_end)) = (channel(), channel::<()>());
    let other = thread::spawn(move || {
        let replacing = Replacing::begin();
        begun.send(()).expect("the test");
        may_end.recv().expect("the test");
        drop(replacing);
    });
    has_begun.recv().expect("the other");
    assert!(takes() >= LONG, "another one was not waited for");
    assert!(takes_at_best() < LONG);
    end.send(()).expect("the other");
    other.join().expect("the other");
    let again = ManuallyDrop::new(Replacing::begin());
    assert!(takes() >= LONG, "one that came later was not waited for");
    drop(ManuallyDrop::into_inner(again));
    drop(ManuallyDrop::into_inner(lost));
    assert!(takes_at_best() < LONG);
}
