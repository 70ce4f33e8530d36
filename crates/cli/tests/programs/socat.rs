//! socat: a file one way, and an echo server that forks and executes `cat` for each connection.

use crate::support::{Scene, assert_same, sample, ways};
use rustix::process::Signal;

ways! {
    upload needs ["socat"] => upload;
    forking_echo_server needs ["socat"] => echo;
}

fn upload(scene: &Scene) {
    let (sent, received) = (sample(256), scene.path("received"));
    let port = scene.port();
    let server = scene.server("socat").arg("-u").arg(format!("TCP-LISTEN:{port},bind=127.0.0.1"));
    let mut server = server.arg(format!("CREATE:{}", received.display())).start();
    server.listening(port);
    let client = scene.client("socat").arg("-u").arg(format!("OPEN:{}", sent.display()));
    client.arg(format!("TCP:127.0.0.1:{port}")).finish();
    server.wait().ok();
    assert_same(&sent, &received);
    scene.prove(256 << 20);
}

fn echo(scene: &Scene) {
    let (sent, received) = (sample(256), scene.path("received"));
    let port = scene.port();
    let server = scene.server("socat").arg(format!("TCP-LISTEN:{port},bind=127.0.0.1,fork")).arg("EXEC:cat");
    let mut server = server.start();
    server.listening(port);
    // -t: how long the other direction may go on after the end of the file.
    let client = scene.client("socat").args("-t 60 -").arg(format!("TCP:127.0.0.1:{port}"));
    client.stdin_from(&sent).stdout_to(&received).finish();
    server.stop(Signal::TERM);
    assert_same(&sent, &received);
    scene.prove(256 << 20);
}
