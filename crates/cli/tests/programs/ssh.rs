//! OpenSSH: a command with its input and output, scp and sftp both ways, and rsync over it.
//!
//! sshd executes itself anew for each connection, with the connection as descriptors 0 and 1, which it moves elsewhere; its
//! first child, under a seccomp filter, shares the connection until the user is known.

use crate::support::{Process, Program, Scene, Way, assert_same, ring_required, sample, ways};
use rustix::process::Signal;
use std::fs;
use std::path::Path;

ways! {
    command_with_input_and_output needs ["sshd", "ssh", "ssh-keygen"] => command;
    copies_by_scp needs ["sshd", "ssh", "ssh-keygen", "scp"] => scp;
    copies_by_sftp needs ["sshd", "ssh", "ssh-keygen", "sftp"] => sftp;
    rsync_over_it needs ["sshd", "ssh", "ssh-keygen", "rsync"] => rsync;
}

/// Percent of the bytes that go through rings with both sides under Bypath. Where root logs in one process of sshd goes on
/// with the connection alone; for another user two processes share it to its end.
fn share() -> u64 {
    if rustix::process::geteuid().is_root() { 95 } else { 0 }
}

/// A server with keys and settings of its own for the user who runs the test, and the settings of its clients.
fn serve(scene: &Scene) -> Process {
    let port = scene.port();
    for key in ["host", "user"] {
        scene.plain("ssh-keygen").args("-q -t ed25519 -N").arg("").arg("-f").arg(scene.path(key)).finish();
    }
    let host = fs::read_to_string(scene.path("host.pub")).expect("the host's key");
    fs::write(scene.path("known"), format!("[127.0.0.1]:{port} {host}")).expect("the known host");
    let dir = scene.path("");
    let dir = dir.display();
    let daemon = format!(
        "ListenAddress 127.0.0.1:{port}\nHostKey {dir}/host\nAuthorizedKeysFile {dir}/user.pub\nStrictModes no\n\
         PidFile none\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n"
    );
    fs::write(scene.path("sshd_config"), daemon).expect("the server's settings");
    let client = format!(
        "Host *\nHostName 127.0.0.1\nPort {port}\nIdentityFile {dir}/user\nIdentitiesOnly yes\nBatchMode yes\n\
         UserKnownHostsFile {dir}/known\nGlobalKnownHostsFile none\nStrictHostKeyChecking yes\n"
    );
    fs::write(scene.path("ssh_config"), client).expect("the clients' settings");
    if rustix::process::geteuid().is_root() {
        // Where it locks its unprivileged half in. The service's start makes it, not the package.
        fs::create_dir_all("/run/sshd").expect("sshd's directory");
    }
    let mut server = scene.server("sshd").args("-D -e -f").arg(scene.path("sshd_config")).start();
    server.listening(port);
    server
}

/// One of the clients, with the settings of the test.
fn client<'a>(scene: &'a Scene, program: &str) -> Program<'a> {
    scene.client(program).arg("-F").arg(scene.path("ssh_config"))
}

/// The proof that `connections` carried `payload` bytes, through rings by the share that can be.
fn prove(scene: &Scene, server: Process, connections: usize, payload: u64) {
    server.stop(Signal::TERM).ok();
    if !ring_required() {
        return;
    }
    let totals = scene.totals();
    match scene.way() {
        Way::Both => {
            scene.prove_share_of(&totals, payload, share());
        }
        Way::OnlyServer => {
            assert!(totals.records > connections, "{totals:#?}");
            totals.assert_kernel_only(payload);
        }
        Way::OnlyClient => totals.assert_kernel_only(payload),
    }
}

fn command(scene: &Scene) {
    let server = serve(scene);
    let (file, back) = (sample(64), scene.path("back"));
    client(scene, "ssh").arg("it").arg("exec cat").stdin_from(&file).stdout_to(&back).finish();
    assert_same(&file, &back);
    let said = client(scene, "ssh").arg("it").arg("echo to the error output >&2; exit 7").start().wait();
    assert_eq!(said.status.code(), Some(7), "{said:?}");
    assert!(said.stderr.contains("to the error output"), "{said:?}");
    prove(scene, server, 2, 2 * (64 << 20));
}

/// The path of a file as scp's other end sees it.
fn there(path: &Path) -> String {
    format!("it:{}", path.display())
}

fn scp(scene: &Scene) {
    let server = serve(scene);
    let (file, up, down) = (sample(64), scene.path("up"), scene.path("down"));
    client(scene, "scp").arg(&file).arg(there(&up)).finish();
    assert_same(&file, &up);
    // -O: the older protocol, by a scp at the other end.
    client(scene, "scp").arg("-O").arg(there(&up)).arg(&down).finish();
    assert_same(&file, &down);
    prove(scene, server, 2, 2 * (64 << 20));
}

fn sftp(scene: &Scene) {
    let server = serve(scene);
    let (file, up, down) = (sample(64), scene.path("up"), scene.path("down"));
    let batch = format!("put {} {}\nget {} {}\n", file.display(), up.display(), up.display(), down.display());
    fs::write(scene.path("batch"), batch).expect("the batch");
    client(scene, "sftp").arg("-b").arg(scene.path("batch")).arg("it").finish();
    assert_same(&file, &up);
    assert_same(&file, &down);
    prove(scene, server, 1, 2 * (64 << 20));
}

fn rsync(scene: &Scene) {
    let server = serve(scene);
    let (file, up, down) = (sample(64), scene.path("up"), scene.path("down"));
    let over = format!("ssh -F {}", scene.path("ssh_config").display());
    let copy = || scene.client("rsync").args("--checksum --rsh").arg(&over);
    copy().arg(&file).arg(there(&up)).finish();
    assert_same(&file, &up);
    copy().arg(there(&up)).arg(&down).finish();
    assert_same(&file, &down);
    prove(scene, server, 2, 2 * (64 << 20));
}
