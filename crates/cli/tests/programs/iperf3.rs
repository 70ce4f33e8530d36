//! iperf3: one stream each way, four streams each way.
//!
//! Counts only: iperf3 does not check content, and its `-F` drops bytes of a file whenever a write is partial,
//! on plain kernel TCP too.

use crate::support::{Scene, ways};
use serde_json::Value;

ways! {
    forward needs ["iperf3"] => |scene| transfer(scene, "");
    reverse needs ["iperf3"] => |scene| transfer(scene, "-R");
    parallel needs ["iperf3"] => |scene| transfer(scene, "-P 4");
    parallel_reverse needs ["iperf3"] => |scene| transfer(scene, "-R -P 4");
}

/// Bytes asked for; large against what is still on the kernel before the upgrade: a sender on a loaded machine fills
/// the kernel's buffers, up to 8 MiB for each of four streams, while it waits for its peer's answer.
const BYTES: u64 = 2 << 30;

fn transfer(scene: &Scene, options: &str) {
    let port = scene.port();
    let mut server = scene.server("iperf3").args("-s -1 -B 127.0.0.1 -p").arg(port.to_string()).start();
    server.listening(port);
    let client = scene.client("iperf3").args("-c 127.0.0.1 -J -p").arg(port.to_string());
    let report = client.arg("-n").arg(BYTES.to_string()).args(options).finish();
    server.wait().ok();

    let report: Value = serde_json::from_str(&report.stdout).expect("iperf3 prints JSON");
    assert!(report.get("error").is_none(), "{report:#}");
    let bytes = |sum: &str| report["end"][sum]["bytes"].as_u64().expect("a sum has bytes");
    assert!(bytes("sum_sent") >= BYTES, "{report:#}");
    // The sender counts what it wrote; the receiver stops counting when the test is declared over.
    assert!(bytes("sum_received") >= bytes("sum_sent") / 10 * 8, "{report:#}");
    scene.prove(bytes("sum_received"));
}
