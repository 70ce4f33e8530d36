//! The JVM: blocking streams and NIO channels, compiled once per test.

use crate::support::{Scene, ways};
use rustix::process::Signal;
use std::path::Path;

ways! {
    echo needs ["java", "javac"] => echo;
}

fn echo(scene: &Scene) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/scripts/Echo.java");
    scene.plain("javac").arg("-d").arg(scene.path("")).arg(source).finish();
    let mut server = scene.server("java").args("-XX:+UseSerialGC -cp . Echo server").start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let client =
        scene.client("java").args("-XX:+UseSerialGC -cp . Echo client").arg(port.to_string()).finish();
    server.stop(Signal::TERM);
    scene.prove(client.number("payload "));
}
