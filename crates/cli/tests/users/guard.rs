//! The performance guard: what a slow ring, made so by the test, comes to.

use crate::agents;
use crate::stage::{Counted, Side, Stage, installed};
use crate::support::{missing, ring_required, skip};
use rustix::process::Signal;

/// Messages of 1 KiB.
const ROUNDS: u64 = 6000;

/// So many messages between a server and a client whose receives take longer (`BYPATH_TEST_SLOW`); `None` = skipped.
fn slowed(test: &str, guard: &str, slow: &str) -> Option<Counted> {
    if let Some(reason) = missing(&["python3"]) {
        skip(&format!("users::guard::{test}"), &reason);
        return None;
    }
    let stage = Stage::new();
    let options = [("guard", guard)];
    let (server, port) = stage.echo_server(&Side { options: &options, ..Side::default() });
    let slowed = Side { options: &options, library: Some(agents::library().to_owned()), ..Side::default() };
    let client = stage.program(&slowed, "client.stats", &installed("python3"));
    let client = client.env("BYPATH_TEST_SLOW", slow).arg(stage.scene.path("ping.py"));
    let client = client.args(&format!("{port} {ROUNDS}"));
    let report = client.finish();
    server.stop(Signal::TERM);
    let counted = Counted { payload: report.number("payload "), ..stage.counted() };
    ring_required().then_some(counted)
}

fn recalled(counted: &Counted) -> u64 {
    [&counted.client, &counted.server].iter().filter_map(|side| side.recalled.get("recalled-slower")).sum()
}

#[test]
fn a_slow_ring_is_left() {
    let Some(counted) = slowed("a_slow_ring_is_left", "on", "3000") else { return };
    let client = &counted.client;
    assert!(recalled(&counted) >= 1, "{counted:#?}");
    assert!(client.ring_rx > 0 && client.kernel_rx > client.ring_rx, "{counted:#?}");
}

#[test]
fn without_the_guard_it_is_not() {
    let Some(counted) = slowed("without_the_guard_it_is_not", "off", "300") else { return };
    assert_eq!(recalled(&counted), 0, "{counted:#?}");
    counted.assert_ring();
}

/// The first 280 messages by ring, and then those by the kernel: after the while on the kernel the ring gets its chance, and keeps it.
#[test]
fn a_ring_that_was_slow_for_a_time_comes_again() {
    let Some(counted) = slowed("a_ring_that_was_slow_for_a_time_comes_again", "on", "3000:280:300") else {
        return;
    };
    assert!(recalled(&counted) >= 1, "{counted:#?}");
    assert!(counted.client.ring_rx > ROUNDS * 1024 / 4, "{counted:#?}");
}
