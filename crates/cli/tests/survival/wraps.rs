//! Counters that wrap: positions in rings, tickets of sleepers, generations of ends and others begin a little before.

use crate::conversation::{Conversation, MODES};
use crate::mailbox::{Reader, Seen, Writer, has_all, meet};
use crate::program::Place;

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

/// Two writers and one reader, whose mailbox is that old; `share`: of what they send so many percent goes through it at least. It is told how much of
/// what was sent behind the place at which they come to it did.
#[track_caller]
fn letters(before: &str, share: u64) {
    /// Octets that a datagram takes in the ring.
    const SPAN: u64 = 96;
    let place = Place::new();
    let old = [("BYPATH_TEST_WRAP", before)];
    let mut reader = Reader::start(&place, "reader", 0, "kept", &old);
    let mut writers: Vec<Writer> = (0..)
        .zip(["bound", "connected"])
        .map(|(id, how)| Writer::start(&place, id, reader.port, how, &[]))
        .collect();
    writers.iter_mut().for_each(|writer| meet(&mut reader, writer));
    let octets: u64 = before.trim_end_matches(":end").parse().expect("a number");
    let (far, met) = (2 * octets / SPAN + 4_000, writers.iter().map(Writer::by_ring).sum::<u64>());
    let mut sent = 0;
    while sent < far {
        for writer in &mut writers {
            writer.sends(50);
            sent += 50;
        }
        while reader.looks() > 0 {}
    }
    for writer in &writers {
        has_all(&mut reader, writer, 0);
        let Seen { disorder, .. } = reader.seen(writer.id);
        assert_eq!(disorder, 0, "{before}, writer {}", writer.id);
    }
    let by_ring = (writers.iter().map(Writer::by_ring).sum::<u64>() - met) / 64;
    assert!(by_ring * 100 >= sent * share, "{before}: {by_ring} of {sent} by the ring");
    writers.into_iter().for_each(|writer| writer.program.finish());
    reader.program.finish();
}

#[test]
fn datagrams_go_on_where_positions_and_epochs_have_more_than_32_bits() {
    for before in ["8", "3000", "70000", "600000"] {
        letters(before, 10);
    }
}

/// There is no ring any more then, and the kernel has what is sent: nothing is lost, nothing twice, and all in its order.
#[test]
fn datagrams_go_on_by_the_kernel_where_a_mailbox_has_no_more_positions() {
    for before in ["3000:end", "70000:end", "600000:end"] {
        letters(before, 0);
    }
}
