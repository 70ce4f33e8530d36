//! vsftpd: files both ways, and downloads that are aborted by urgent data on the control connection, which the
//! server learns of by SIGURG.

use crate::support::{Process, Scene, Way, assert_same, ring_required, sample, skip, ways};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;

ways! {
    files needs ["vsftpd", "python3"] => |scene| as_the_launching_user(scene, 0, "use_sendfile=NO\n", 95);
    aborts needs ["vsftpd", "python3"] => |scene| as_the_launching_user(scene, 4, "use_sendfile=NO\n", 80);
    files_by_sendfile needs ["vsftpd", "python3"] => |scene| as_the_launching_user(scene, 0, "", 95);
    aborts_of_sendfile needs ["vsftpd", "python3"] => |scene| as_the_launching_user(scene, 4, "", 80);
    with_its_own_users needs ["vsftpd", "python3"] => with_its_own_users;
}

fn serve(scene: &Scene, settings: &str) -> (Process, u16) {
    let port = scene.port();
    fs::create_dir_all(scene.path("root/files")).expect("a fresh directory");
    let dir = scene.path("");
    let dir = dir.display();
    let config = format!(
        "listen=YES\nlisten_address=127.0.0.1\nlisten_port={port}\nbackground=NO\nanon_root={dir}/root\n\
         anonymous_enable=YES\nno_anon_password=YES\nanon_upload_enable=YES\nwrite_enable=YES\n\
         anon_world_readable_only=NO\nsecure_chroot_dir={dir}/empty\nasync_abor_enable=YES\n{settings}"
    );
    fs::write(scene.path("vsftpd.conf"), config).expect("the configuration");
    fs::create_dir(scene.path("empty")).expect("a fresh directory");
    let mut server = scene.server("vsftpd").arg(scene.path("vsftpd.conf")).start();
    server.listening(port);
    (server, port)
}

/// A client's session. Returns how many bytes went through the data connections that were not aborted.
fn session(scene: &Scene, server: Process, port: u16, directory: &str, aborts: usize) -> u64 {
    let mib = if scene.way() == Way::Both && aborts == 0 { 256 } else { 128 };
    let file = sample(mib);
    let client = scene.client("python3").script("ftp.py").arg(port.to_string()).arg(directory).arg(&file);
    let said = client.arg(aborts.to_string()).finish();
    assert_eq!(said.stdout.matches("aborted after").count(), aborts, "{said:?}");
    server.stop(Signal::TERM);
    assert_same(&file, &scene.path("root/files/up"));
    assert_same(&file, &scene.path("down"));
    (2 * mib as u64) << 20
}

/// One process for each session. The control connection is its descriptor 0, so on the kernel. Each download starts
/// there, and some end early.
fn as_the_launching_user(scene: &Scene, aborts: usize, settings: &str, share: u64) {
    let (server, port) = serve(scene, &format!("run_as_launching_user=YES\n{settings}"));
    let files = scene.path("root/files");
    let payload = session(scene, server, port, &files.display().to_string(), aborts);
    scene.prove_share(payload, share);
}

/// Two processes for each session, one of them without privileges in a root directory of its own, which gets its data
/// connections by SCM_RIGHTS and is another user: on the kernel.
fn with_its_own_users(scene: &Scene) {
    if !rustix::process::geteuid().is_root() {
        return skip("vsftpd::with_its_own_users", "needs root");
    }
    let (server, port) = serve(scene, "ftp_username=sshd\n");
    let files = scene.path("root/files");
    fs::set_permissions(&files, fs::Permissions::from_mode(0o777)).expect("a mode");
    let payload = session(scene, server, port, "files", 4);
    if scene.way() == Way::OnlyClient && ring_required() {
        scene.totals().assert_kernel_only(payload);
    }
}
