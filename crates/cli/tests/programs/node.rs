//! Node: `net` server and client, 200 MB there and back, hashed at both ends.

use crate::support::{Scene, ways};
use rustix::process::Signal;

ways! {
    net_echo needs ["node"] => echo;
}

/// Bytes sent, and echoed.
const BYTES: u64 = 200_000_000;

fn echo(scene: &Scene) {
    let mut server = scene.server("node").script("net_echo_server.js").start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let client = scene.client("node").script("net_echo_client.js").arg(port.to_string());
    let report = client.arg(BYTES.to_string()).finish();
    assert_eq!(report.number("echoed "), BYTES);
    server.stop(Signal::TERM);
    scene.prove(2 * BYTES);
}
