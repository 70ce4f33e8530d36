//! Counters that wrap: positions in rings, tickets of sleepers, generations of ends and others begin a little before.

use crate::conversation::{Conversation, MODES};

/// Bytes before the wrap at which positions begin: it comes in the first message, in a dialogue, at the end of one, while
/// rings are filled and taken back, in the second dialogue.
const BEFORE: [&str; 8] = ["1", "3000", "8000", "8200", "20000", "70000", "300000", "1200000"];

#[track_caller]
fn wrap(mode: &str) {
    for (n, before) in BEFORE.into_iter().enumerate() {
        let old = [("BYPATH_TEST_WRAP", before)];
        // Each end counts what it writes: both old, or one.
        let (server, client) = [(&old[..], &old[..]), (&old[..], &[][..]), (&[][..], &old[..])][n % 3];
        let counted = Conversation::start(mode, ["client", "server"][n % 2], server, client).finish();
        if n % 3 == 0 && before.len() < 5 {
            assert!(counted.iter().all(|c| c.bytes.ring_tx > 8200), "{mode}, {before}: {counted:?}");
        }
    }
}

#[test]
fn a_blocking_conversation_goes_on_behind_the_wrap() {
    wrap(MODES[0]);
}

#[test]
fn threads_go_on_behind_the_wrap() {
    wrap(MODES[1]);
}

#[test]
fn poll_goes_on_behind_the_wrap() {
    wrap(MODES[2]);
}

#[test]
fn an_epoll_set_goes_on_behind_the_wrap() {
    wrap(MODES[3]);
}

#[test]
fn edges_go_on_behind_the_wrap() {
    wrap(MODES[4]);
}

/// Rings that are taken back and begun again and again at random, on both sides of the wrap.
#[test]
fn paths_change_on_both_sides_of_the_wrap() {
    for (n, before) in ["100", "9000", "200000", "900000"].into_iter().enumerate() {
        let seeds = [(2 * n).to_string(), (2 * n + 1).to_string()];
        let [server, client] =
            [0, 1].map(|i| [("BYPATH_TEST_WRAP", before), ("BYPATH_TEST_FLIP", seeds[i].as_str())]);
        Conversation::start(MODES[n % 5], "client", &server, &client).finish();
    }
}
