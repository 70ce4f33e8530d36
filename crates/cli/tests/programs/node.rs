//! Node: `net` server and client, 200 MB there and back, hashed at both ends; the cluster module, whose workers share
//! a listener or get each connection from the primary.

use crate::support::http::{self, Load};
use crate::support::{Scene, ring_required, ways};
use rustix::process::Signal;

ways! {
    net_echo needs ["node"] => echo;
    cluster_that_shares_the_listener needs ["node", "python3"] => |scene| cluster(scene, "none");
    cluster_that_passes_connections needs ["node", "python3"] => |scene| cluster(scene, "rr");
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

/// Files over connections that are kept, and over others for one request each.
fn cluster(scene: &Scene, policy: &str) {
    const WORKERS: usize = 3;
    let dir = http::files(scene, "www");
    let server = scene.server("node").script("cluster.js").arg(policy).arg(WORKERS.to_string()).arg(&dir);
    let mut server = server.start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let mut client = Load::start(scene, port, &dir, 6);
    let newcomers = Load::newcomers(scene, port, &dir);
    client.more(128);
    let workers = client.workers();
    let payload = newcomers.stop().number("payload ") + client.stop().number("payload ");
    server.stop(Signal::TERM).ok();
    if policy == "none" {
        scene.prove(payload);
        return;
    }
    // The primary takes the workers in turn.
    assert_eq!(workers.len(), WORKERS, "{workers:?}");
    if ring_required() {
        // A connection that came by SCM_RIGHTS is not followed by the process that got it, and the primary, that has
        // accepted it, moves no byte.
        let totals = scene.totals();
        assert_eq!((totals.upgraded, totals.ring_tx, totals.ring_rx), (0, 0, 0), "{totals:#?}");
    }
}
