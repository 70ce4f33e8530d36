//! nginx: four workers, files by sendfile and without, and small files over connections that
//! are kept. (nginx_load.rs has it under load.)

use crate::support::{Process, Scene, Way, assert_same, ring_required, sample, ways};
use rustix::process::Signal;
use std::fs;

ways! {
    download needs ["nginx", "curl"] => |scene| download(scene, "on");
    download_without_sendfile needs ["nginx", "curl"] => |scene| download(scene, "off");
    download_by_threads needs ["nginx", "curl"] => |scene| download(scene, "on; aio threads; aio_write on");
    small_files_over_one_connection needs ["nginx", "curl"] => small_files;
}

fn serve(scene: &Scene, sendfile: &str) -> (Process, u16) {
    let port = scene.port();
    let root = scene.path("www");
    fs::create_dir(&root).expect("a fresh directory");
    fs::hard_link(sample(240), root.join("file"))
        .or_else(|_| fs::copy(sample(240), root.join("file")).map(drop))
        .expect("the sample");
    for n in 1..=200 {
        fs::write(root.join(format!("small-{n}")), small(n)).expect("a small file");
    }
    let dir = scene.path("");
    let dir = dir.display();
    // The worker keeps the user of the master, which otherwise it leaves when started by root.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let config = format!(
        "daemon off; worker_processes 4; {user} pid {dir}/pid; error_log stderr warn;
         events {{ worker_connections 64; }}
         http {{
           access_log off; sendfile {sendfile}; keepalive_timeout 60;
           client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
           uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
           server {{ listen 127.0.0.1:{port}; root {dir}/www; }}
         }}"
    );
    fs::write(scene.path("nginx.conf"), config).expect("the configuration");
    let server = scene
        .server("nginx")
        .args("-e stderr -p")
        .arg(scene.path(""))
        .arg("-c")
        .arg(scene.path("nginx.conf"));
    let mut server = server.start();
    server.listening(port);
    (server, port)
}

/// Content of the small file `n`: its number and a length of its own.
fn small(n: usize) -> String {
    format!("{n:>8}").repeat(1 + n % 37)
}

fn download(scene: &Scene, sendfile: &str) {
    let (server, port) = serve(scene, sendfile);
    let got = scene.path("got");
    let client = scene.client("curl").args("--silent --show-error --fail --output").arg(&got);
    client.arg(format!("http://127.0.0.1:{port}/file")).finish();
    server.stop(Signal::QUIT).ok();
    assert_same(&sample(240), &got);
    scene.prove(240 << 20);
}

fn small_files(scene: &Scene) {
    let (server, port) = serve(scene, "on");
    let client = scene.client("curl").args("--silent --show-error --fail --output got-#1");
    client.arg(format!("http://127.0.0.1:{port}/small-[1-200]")).finish();
    server.stop(Signal::QUIT).ok();
    for n in 1..=200 {
        let got = fs::read_to_string(scene.path(&format!("got-{n}"))).expect("curl's output");
        assert_eq!(got, small(n), "file {n}");
    }
    // The first requests come before the upgrade, and these are few bytes.
    if scene.way() == Way::Both && ring_required() {
        let totals = scene.totals();
        assert!(totals.ring_tx * 10 > totals.sent() * 8, "{totals:#?}");
    } else {
        scene.prove_plain_peer();
    }
}
