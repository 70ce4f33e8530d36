//! busybox: dynamic (Debian's busybox), where nc is on rings, or static (busybox-static), which is not touched.

use crate::support::{Program, Scene, Way, assert_same, bypath, find_program, ring_required, sample, ways};
use rustix::process::Signal;
use std::process::Command;

ways! {
    upload_with_nc needs ["busybox", "mkfifo"] => nc;
    download_with_wget_from_httpd needs ["busybox"] => |scene| httpd(scene, "busybox", "wget -q -O");
    download_with_curl_from_httpd needs ["busybox", "curl"] => |scene| httpd(scene, "curl", "-sSf -o");
}

/// Whether the installed one is static: `bypath run` refuses it if told to.
fn is_static() -> bool {
    let mut run = Command::new(bypath());
    run.args(["run", "--on-unsupported", "error", "--library"]).arg(crate::support::preload_library());
    let run = run.env("BYPATH_CONFIG", "none").arg("--").arg(busybox()).arg("true");
    let output = run.output().expect("bypath starts");
    let refused = String::from_utf8_lossy(&output.stderr).contains("statically linked");
    assert!(refused != output.status.success(), "{output:?}");
    refused
}

fn busybox() -> std::path::PathBuf {
    find_program("busybox").expect("in the test's needs")
}

/// nc ends when either side has nothing more to say: the server's input is a pipe that stays open.
fn nc(scene: &Scene) {
    let (sent, received, port) = (sample(240), scene.path("received"), scene.port().to_string());
    scene.plain("mkfifo").arg("open").finish();
    let server = scene.server("sh").words(["-c", "exec \"$0\" nc -l -p \"$1\" <>open"]).arg(busybox());
    let mut server = server.arg(&port).stdout_to(&received).start();
    server.listening(port.parse().expect("a port"));
    scene.client("busybox").args("nc 127.0.0.1").arg(port).stdin_from(&sent).finish();
    server.wait().ok();
    assert_same(&sent, &received);
    prove(scene, 240 << 20);
}

/// httpd gives each connection to a child as its descriptors 0 and 1, and wget reads through a stream of the C library:
/// both stay on the kernel.
fn httpd(scene: &Scene, client: &str, options: &str) {
    let (file, got, port) = (sample(64), scene.path("got"), scene.port());
    let server = scene.server("busybox").args("httpd -f -p").arg(format!("127.0.0.1:{port}")).arg("-h");
    let mut server = server.arg(file.parent().expect("a file has a directory")).start();
    server.listening(port);
    let name = file.file_name().expect("a sample has a name").to_string_lossy();
    let client: Program<'_> = scene.client(client).args(options).arg(&got);
    client.arg(format!("http://127.0.0.1:{port}/{name}")).finish();
    server.stop(Signal::TERM);
    assert_same(&file, &got);
    let dynamic = !is_static() || (scene.way() != Way::OnlyServer && options.starts_with("-s"));
    if ring_required() && dynamic {
        // Nobody counts what the C library moves for a stream.
        let seen = if scene.way() == Way::OnlyClient && options.starts_with("wget") { 0 } else { 64 << 20 };
        scene.totals_of_the_preloaded().assert_kernel_only(seen);
    }
}

fn prove(scene: &Scene, payload: u64) {
    if !is_static() {
        scene.prove(payload);
    } else if ring_required() {
        let totals = scene.totals_of_the_preloaded();
        assert_eq!(totals.connections, 0, "a static program was followed: {totals:#?}");
    }
}
