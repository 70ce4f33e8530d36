//! Perl's IO::Socket: an echo server for one connection at a time, and its client.

use crate::support::{Scene, ways};
use rustix::process::Signal;

ways! {
    io_socket_echo needs ["perl"] => echo;
}

fn echo(scene: &Scene) {
    let mut server = scene.server("perl").script("echo.pl").arg("server").start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let client = scene.client("perl").script("echo.pl").arg("client").arg(port.to_string()).finish();
    server.stop(Signal::TERM);
    scene.prove(client.number("payload "));
}
