//! OpenBSD netcat and Nmap's ncat: files through one connection, one way and both ways at once.

use crate::support::{Process, Scene, assert_same, sample, ways};

ways! {
    upload needs ["nc.openbsd"] => upload_with_nc;
    both_directions_at_once needs ["nc.openbsd"] => full_duplex_with_nc;
    ncat_upload needs ["ncat"] => upload_with_ncat;
}

/// The port in nc's "Listening on 127.0.0.1 40433".
fn nc_port(server: &mut Process) -> String {
    server.ready(|line| Some(line.strip_prefix("Listening on ")?.rsplit(' ').next()?.to_owned()))
}

fn upload_with_nc(scene: &Scene) {
    let (sent, received) = (sample(256), scene.path("received"));
    let mut server = scene.server("nc.openbsd").args("-l -v -n 127.0.0.1 0").stdout_to(&received).start();
    let port = nc_port(&mut server);
    scene.client("nc.openbsd").args("-N 127.0.0.1").arg(port).stdin_from(&sent).finish();
    server.wait().ok();
    assert_same(&sent, &received);
    scene.prove(256 << 20);
}

fn full_duplex_with_nc(scene: &Scene) {
    let (up, down) = (sample(256), sample(96));
    let (got_up, got_down) = (scene.path("up"), scene.path("down"));
    let server = scene.server("nc.openbsd").args("-l -v -N -n 127.0.0.1 0");
    let mut server = server.stdin_from(&down).stdout_to(&got_up).start();
    let port = nc_port(&mut server);
    let client = scene.client("nc.openbsd").args("-N 127.0.0.1").arg(port);
    client.stdin_from(&up).stdout_to(&got_down).finish();
    server.wait().ok();
    assert_same(&up, &got_up);
    assert_same(&down, &got_down);
    scene.prove((256 + 96) << 20);
}

fn upload_with_ncat(scene: &Scene) {
    let (sent, received) = (sample(256), scene.path("received"));
    let port = scene.port();
    let server = scene.server("ncat").args("--recv-only -n -l 127.0.0.1").arg(port.to_string());
    let mut server = server.stdout_to(&received).start();
    server.listening(port);
    let client = scene.client("ncat").args("--send-only -n 127.0.0.1").arg(port.to_string());
    client.stdin_from(&sent).finish();
    server.wait().ok();
    assert_same(&sent, &received);
    scene.prove(256 << 20);
}
