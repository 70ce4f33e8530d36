//! Sixteen processes with two hundred connections each, all of them up at once, everybody talking to everybody.

use crate::program::{Place, Program, field};
use crate::programs;

const PROCESSES: usize = 16;
/// Connections of each pair of processes.
const EACH: usize = 14;
const CONNECTIONS: usize = (PROCESSES - 1) * EACH;
/// Octets on each connection, both ways.
const BYTES: usize = 20_000;

#[test]
fn all_talk_to_all_at_once() {
    const { assert!(CONNECTIONS >= 200) };
    let program = programs::compile("crowd", &["crowd.c"], &[]);
    let program = program.to_str().expect("a plain path");
    let place = Place::new();
    let numbers = [PROCESSES, EACH, BYTES].map(|n| n.to_string());
    let mut all: Vec<Program> = (0..PROCESSES)
        .map(|index| {
            let words = [program, &index.to_string(), &numbers[0], &numbers[1], &numbers[2]];
            Program::start(&place, &format!("process-{index}"), &words, &[])
        })
        .collect();
    let ports: Vec<String> = all.iter_mut().map(|one| one.expect("port")).collect();
    all.iter_mut().for_each(|one| one.tell(&ports.join(" ")));
    for one in &mut all {
        let report = one.expect("done");
        assert_eq!(field(&report, "connections"), CONNECTIONS.to_string());
        assert_eq!(field(&report, "received"), (CONNECTIONS * BYTES).to_string());
    }
    // Every one of them is open now.
    for one in &all {
        let counted = one.stats();
        let came = (counted.connections, counted.upgraded);
        assert!(came == (CONNECTIONS as u64, CONNECTIONS as u64) || !programs::REQUIRE_RING, "{counted:?}");
        let (ring, kernel) = (counted.bytes.ring_tx, counted.bytes.kernel_tx);
        assert!(ring > kernel || !programs::REQUIRE_RING, "{counted:?}");
    }
    all.into_iter().for_each(Program::finish);
}
