//! A peer of another user where there is little room: what comes of him takes a thread of its own, and memory.

use crate::agents;
use crate::stage::{Counted, Side, Stage, installed, open_to_all};
use crate::support::{missing, ring_required, skip};
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

const CONNECTIONS: u64 = 8;

fn stage(test: &str) -> Option<Stage> {
    let reason = missing(&["setpriv", "prlimit"]).or_else(|| {
        (!rustix::process::geteuid().is_root())
            .then(|| "needs root to start programs as other users".to_owned())
    });
    match reason {
        Some(reason) => {
            skip(&format!("users::strained::{test}"), &reason);
            None
        }
        None => Some(Stage::new()),
    }
}

fn narrow(stage: &Stage) -> PathBuf {
    static COMPILED: OnceLock<PathBuf> = OnceLock::new();
    let program = stage.scene.path("narrow");
    let compiled = COMPILED.get_or_init(|| agents::compile("narrow", &["narrow.c"], &[]));
    fs::copy(compiled, &program).expect("copy the program");
    open_to_all(&program, 0o755);
    program
}

/// Threads with the smallest stacks on both sides, of these users (of this test alone: the kernel counts their threads).
fn played(test: &str, users: [u32; 2], limit: Option<&str>) -> Option<Counted> {
    let stage = stage(test)?;
    let program = narrow(&stage);
    let options = [("upgrade", "eager"), ("allow-uid", "any")];
    let of = |uid, stats: &str| {
        let before = limit.map(|limit| vec![installed("prlimit").into(), limit.into(), "--".into()]);
        let side = Side { options: &options, before: before.unwrap_or_default(), ..Side::user(uid) };
        stage.program(&side, stats, &program)
    };
    let mut server = of(users[0], "server.stats").words(["serve", &CONNECTIONS.to_string()]).start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let client = of(users[1], "client.stats").words(["call", &CONNECTIONS.to_string(), &port.to_string()]);
    let payload = client.finish().number("payload ");
    server.wait();
    Some(Counted { payload, ..stage.counted() })
}

#[test]
fn the_smallest_stacks_are_large_enough() {
    let test = "the_smallest_stacks_are_large_enough";
    let Some(counted) = played(test, [65011, 65012], None) else { return };
    let upgraded = (counted.server.upgraded, counted.client.upgraded);
    assert!(!ring_required() || upgraded == (CONNECTIONS, CONNECTIONS), "{counted:#?}");
}

/// What he sends is received by a thread apart or not at all, and the connection stays on the kernel until there may be one.
#[test]
fn where_there_may_be_no_other_thread_connections_stay_on_the_kernel() {
    let test = "where_there_may_be_no_other_thread_connections_stay_on_the_kernel";
    // The threads of the program are all that there may be.
    if let Some(counted) = played(test, [65013, 65014], Some("--nproc=9")) {
        counted.assert_kernel(None, None);
    }
}
