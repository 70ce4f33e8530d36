//! What processes of one family share about their sockets, and one of them that means harm.

use crate::stage::{Side, Stage, installed};
use crate::support::{missing, skip};
use bypath_shm::family::ENDS_OFFSET;
use rustix::process::Signal;

/// It may lose connections. It ends neither by a signal nor not at all (`finish`).
#[test]
fn a_child_that_writes_nonsense_ends_no_more_than_connections() {
    const SEEDS: u64 = 12;
    if let Some(reason) = missing(&["python3"]) {
        return skip("users::relatives::a_child_that_writes_nonsense_ends_no_more_than_connections", &reason);
    }
    let stage = Stage::new();
    let server = stage.program(&Side::default(), "server.stats", &installed("python3"));
    let mut server = server.arg(stage.scene.path("echo_server.py")).arg("threads").start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let mut lost = 0;
    for seed in 0..SEEDS {
        let side = Side { options: &[("upgrade", "eager")], ..Side::default() };
        let parent = stage.program(&side, "client.stats", &installed("python3")).script("sibling.py");
        lost += parent.args(&format!("{port} {seed} {ENDS_OFFSET}")).finish().number("lost ");
    }
    server.stop(Signal::TERM);
    assert!(lost > 0, "nothing was found to be wrong: this test shows nothing");
}
