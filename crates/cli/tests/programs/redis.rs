//! Redis: its own benchmark plain and pipelined, transactions, publish and subscribe, and a snapshot taken
//! by a forked child while clients write.

use crate::support::{Process, Scene, ways};
use rustix::process::Signal;
use std::path::Path;

ways! {
    benchmark needs ["redis-server", "redis-benchmark"] => |scene| benchmark(scene, "-c 50 -n 200000", 200_000);
    pipelined_benchmark needs ["redis-server", "redis-benchmark"] =>
        |scene| benchmark(scene, "-c 50 -n 1600000 -P 16", 1_600_000);
    large_values needs ["redis-server", "redis-benchmark"] =>
        |scene| benchmark(scene, "-c 8 -n 20000 -d 20000", 20_000);
    transactions needs ["redis-server", "python3"] => |scene| client_script(scene, "transactions");
    publish_and_subscribe needs ["redis-server", "python3"] => |scene| client_script(scene, "pubsub");
    snapshot_while_writing needs ["redis-server", "python3"] => snapshot;
}

fn serve(scene: &Scene, dir: &Path) -> (Process, u16) {
    let port = scene.port();
    let server = scene.server("redis-server").args("--bind 127.0.0.1 --appendonly no --dir").arg(dir);
    let mut server = server.arg("--save").arg("").arg("--port").arg(port.to_string()).start();
    server.listening(port);
    (server, port)
}

fn benchmark(scene: &Scene, options: &str, requests: u64) {
    let (server, port) = serve(scene, &scene.path(""));
    let client = scene.client("redis-benchmark").args("-h 127.0.0.1 --csv -t set,get -p");
    let report = client.arg(port.to_string()).args(options).finish();
    server.stop(Signal::TERM).ok();
    // One line each for SET and GET: "SET","91743.12",... An error reply ends the benchmark.
    for test in ["SET", "GET"] {
        let start = format!("\"{test}\",\"");
        let line = report.stdout.lines().find_map(|l| l.strip_prefix(&start));
        let rate = line.and_then(|l| l.split('"').next()?.parse::<f64>().ok());
        assert!(rate.is_some_and(|r| r > 0.0), "{}", report.stdout);
    }
    // A SET is at least 30 bytes on the wire, its answer 5; a GET and its answer are not smaller.
    scene.prove(requests * 2 * 35);
}

fn client_script(scene: &Scene, part: &str) {
    let (server, port) = serve(scene, &scene.path(""));
    let client = scene.client("python3").script("redis_client.py").arg(part).arg(port.to_string()).finish();
    server.stop(Signal::TERM).ok();
    scene.prove(client.number("payload "));
}

fn snapshot(scene: &Scene) {
    let (server, port) = serve(scene, &scene.path(""));
    let client = scene.client("python3").script("redis_client.py").arg("snapshot").arg(port.to_string());
    let client = client.finish();
    server.stop(Signal::TERM).ok();
    scene.prove(client.number("payload "));

    // A second server reads the file that the forked child wrote.
    let (server, port) = serve(scene, &scene.path(""));
    let check = scene.plain("python3").script("redis_client.py").arg("restored").arg(port.to_string());
    check.finish();
    server.stop(Signal::TERM).ok();
}
