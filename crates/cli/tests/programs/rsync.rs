//! rsync's daemon: a process per connection, forked after the accept, and at the receiving end a second one that
//! shares the connection.

use crate::support::{Process, Scene, assert_same, sample, ways};
use rustix::process::Signal;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

ways! {
    upload needs ["rsync"] => |scene| copy(scene, true);
    download needs ["rsync"] => |scene| copy(scene, false);
}

/// A daemon for the module `all`, the scene's directory.
fn serve(scene: &Scene) -> (Process, u16) {
    let port = scene.port();
    let dir = scene.path("");
    let user = rustix::process::geteuid().as_raw();
    // It otherwise becomes nobody where root starts it.
    let config = format!(
        "use chroot = no\nuid = {user}\ngid = {}\nlock file = {}lock\n[all]\npath = {}\nread only = no\n",
        rustix::process::getegid().as_raw(),
        dir.display(),
        dir.display(),
    );
    fs::write(scene.path("rsyncd.conf"), config).expect("the configuration");
    let server =
        scene.server("rsync").args("--daemon --no-detach --address 127.0.0.1 --log-file /dev/stderr");
    let server = server.arg(format!("--port={port}")).arg("--config").arg(scene.path("rsyncd.conf"));
    let mut server = server.start();
    server.listening(port);
    (server, port)
}

/// A large file, and small ones in directories.
fn tree(scene: &Scene) -> Vec<PathBuf> {
    let root = scene.path("from");
    fs::create_dir(&root).expect("a fresh directory");
    fs::copy(sample(240), root.join("large")).expect("a copy");
    let mut names = vec![PathBuf::from("large")];
    for n in 0..200 {
        let name = PathBuf::from(format!("{}/{n}", n % 7));
        fs::create_dir_all(root.join(format!("{}", n % 7))).expect("a directory");
        fs::write(root.join(&name), format!("{n:>8}").repeat(1 + n * 7 % 500)).expect("a file");
        names.push(name);
    }
    names
}

fn copy(scene: &Scene, upload: bool) {
    let (server, port) = serve(scene);
    let names = tree(scene);
    let far = |name: &str| format!("rsync://127.0.0.1:{port}/all/{name}/");
    let near = |name: &str| format!("{}/", scene.path(name).display());
    let (from, to) = if upload { (near("from"), far("to")) } else { (far("from"), near("to")) };
    let pass = || {
        scene.client("rsync").args("--recursive --checksum").arg(&from).arg(&to).finish();
        for name in &names {
            assert_same(&scene.path("from").join(name), &scene.path("to").join(name));
        }
    };
    pass();
    // What is there already is compared by sums, and only what differs is sent: many short messages both ways.
    let large = OpenOptions::new().write(true).open(scene.path("to").join("large")).expect("the large file");
    for n in 0..100 {
        large.write_all_at(b"altered", n << 20).expect("seven bytes");
    }
    drop(large);
    fs::remove_dir_all(scene.path("to").join("3")).expect("a directory");
    pass();
    server.stop(Signal::TERM);
    scene.prove(240 << 20);
}
