//! stunnel at both ends of a connection between curl and nginx: plain, encrypted, plain.

use crate::support::{Process, Program, Scene, Way, assert_same, sample, ways};
use rustix::process::Signal;
use std::fs;

ways! {
    download needs ["stunnel4", "openssl", "nginx", "curl"] => download;
}

/// A program beside the two stunnels: under Bypath only where both are, so that in mixed ways nobody is upgraded.
fn beside<'a>(scene: &'a Scene, program: &str) -> Program<'a> {
    if scene.way() == Way::Both { scene.server(program) } else { scene.plain(program) }
}

fn nginx(scene: &Scene) -> (Process, u16) {
    let port = scene.port();
    fs::create_dir(scene.path("www")).expect("a fresh directory");
    fs::copy(sample(240), scene.path("www/file")).expect("a copy");
    let dir = scene.path("");
    let dir = dir.display();
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let config = format!(
        "daemon off; worker_processes 1; {user} pid {dir}/pid; error_log stderr warn;
         events {{ worker_connections 64; }}
         http {{
           access_log off; sendfile off;
           client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
           uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
           server {{ listen 127.0.0.1:{port}; root {dir}/www; }}
         }}"
    );
    fs::write(scene.path("nginx.conf"), config).expect("the configuration");
    let server = beside(scene, "nginx").args("-e stderr -p").arg(scene.path(""));
    let mut server = server.arg("-c").arg(scene.path("nginx.conf")).start();
    server.listening(port);
    (server, port)
}

/// One stunnel, from a port of its own to `to`.
fn stunnel(scene: &Scene, name: &str, program: Program<'_>, to: u16, settings: &str) -> (Process, u16) {
    let port = scene.port();
    let config = format!(
        "foreground = yes\npid =\nsyslog = no\n[{name}]\naccept = 127.0.0.1:{port}\nconnect = 127.0.0.1:{to}\n{settings}"
    );
    let file = scene.path(name);
    fs::write(&file, config).expect("the configuration");
    let mut process = program.arg(&file).start();
    process.listening(port);
    (process, port)
}

fn download(scene: &Scene) {
    let (key, cert) = (scene.path("key.pem"), scene.path("cert.pem"));
    let make =
        scene.plain("openssl").args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes");
    make.args("-days 2 -subj /CN=localhost -keyout").arg(&key).arg("-out").arg(&cert).finish();
    let (nginx, web) = nginx(scene);
    let settings = format!("cert = {}\nkey = {}\n", cert.display(), key.display());
    let (far, tls) = stunnel(scene, "far", scene.server("stunnel4"), web, &settings);
    let settings = format!("client = yes\nverifyPeer = yes\nCAfile = {}\n", cert.display());
    let (near, entry) = stunnel(scene, "near", scene.client("stunnel4"), tls, &settings);
    let got = scene.path("got");
    let curl = beside(scene, "curl").args("--silent --show-error --fail --output").arg(&got);
    curl.arg(format!("http://127.0.0.1:{entry}/file")).finish();
    for stunnel in [near, far] {
        stunnel.stop(Signal::TERM);
    }
    nginx.stop(Signal::QUIT).ok();
    assert_same(&sample(240), &got);
    scene.prove(if scene.way() == Way::Both { 3 } else { 1 } * (240 << 20));
}
