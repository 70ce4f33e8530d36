//! sockperf over TCP: ping-pong with its own check of the data, and one-way throughput.

use crate::support::{Process, Scene, ways};
use rustix::process::Signal;

ways! {
    ping_pong needs ["sockperf"] => ping_pong;
    throughput needs ["sockperf"] => throughput;
}

fn serve(scene: &Scene) -> (Process, String) {
    let port = scene.port();
    let server = scene.server("sockperf").args("server --tcp -i 127.0.0.1 -p").arg(port.to_string());
    let mut server = server.start();
    server.listening(port);
    (server, port.to_string())
}

fn ping_pong(scene: &Scene) {
    let (server, port) = serve(scene);
    let client = scene.client("sockperf").args("ping-pong --tcp --mps 5000000 -i 127.0.0.1 -p").arg(port);
    let report = client.args("-t 2 -m 64 --data-integrity").finish();
    server.stop(Signal::INT);
    let no_loss = "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0";
    assert!(report.stdout.contains(no_loss), "{}", report.stdout);
    let received = after(&report.stdout, "ReceivedMessages=");
    assert!(received > 1000, "{}", report.stdout);
    // Each message goes there and back.
    scene.prove(received * 2 * 64);
}

fn throughput(scene: &Scene) {
    let (server, port) = serve(scene);
    let client = scene.client("sockperf").args("throughput --tcp -i 127.0.0.1 -p").arg(port);
    let report = client.args("-t 2 -m 1400").finish();
    server.stop(Signal::INT);
    let sent = after(&report.stdout, "Total of ");
    assert!(sent > 10_000, "{}", report.stdout);
    // The server is stopped at once: what it had not read by then is not counted on its side.
    scene.prove(sent * 1400 / 10 * 9);
}

/// The number that follows `label` in sockperf's report.
#[track_caller]
fn after(report: &str, label: &str) -> u64 {
    let rest = report.split_once(label).unwrap_or_else(|| panic!("no {label:?} in\n{report}")).1;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().unwrap_or_else(|e| panic!("{label}: {e} in\n{report}"))
}
