//! Many connections: all of them come up, their memory stays below the ceiling and is given back when they rest.

use crate::stage::{Counted, Side, Stage, installed};
use crate::support::{Outcome, missing, ring_required, skip};
use rustix::process::Signal;

/// An echo server and one client with many connections, both as `side` says.
fn crowd(test: &str, side: &Side, arguments: &str, check: impl Fn(&Outcome, &Counted)) {
    if let Some(reason) = missing(&["python3"]) {
        return skip(&format!("users::many::{test}"), &reason);
    }
    let stage = Stage::new();
    let (server, port) = stage.echo_server(side);
    let client = stage.program(side, "client.stats", &installed("python3"));
    let report = client.script("crowd.py").arg(port.to_string()).args(arguments).finish();
    server.stop(Signal::TERM);
    let counted = Counted { payload: report.number("payload "), ..stage.counted() };
    if ring_required() {
        check(&report, &counted);
    }
}

#[test]
fn all_come_up_at_once() {
    // Every connection reaches the threshold at the same time, and few descriptors are free for the rendezvous.
    crowd("all_come_up_at_once", &Side::default(), "600 30 512", |_, counted| {
        assert_eq!((counted.client.connections, counted.server.connections), (600, 600));
        assert_eq!((counted.client.upgraded, counted.server.upgraded), (600, 600), "{counted:#?}");
    });
}

#[test]
fn more_rings_than_memory() {
    // Forty rings would take 10 MiB when full: empty ones are given back, or connections go back to the kernel. Sixteen
    // find room at once whoever comes first; the more turns they take the more come up.
    let side = Side { options: &[("memory-limit", "1M")], ..Side::default() };
    crowd("more_rings_than_memory", &side, "40 60 60000", |_, counted| {
        assert!(counted.client.upgraded >= 16, "{counted:#?}");
        assert!(counted.client.ring_tx > 0 && counted.server.ring_tx > 0, "{counted:#?}");
    });
}

#[test]
fn rings_that_rest_hold_no_memory() {
    crowd("rings_that_rest_hold_no_memory", &Side::default(), "20 60 60000 rest", |report, counted| {
        counted.assert_ring();
        let (busy, resting) = (report.number("busy-kilobytes "), report.number("resting-kilobytes "));
        assert!(busy > 20 * 64, "{busy} KiB while busy: were the rings used?");
        assert!(resting <= 20 * 8, "{resting} KiB at rest");
    });
}
