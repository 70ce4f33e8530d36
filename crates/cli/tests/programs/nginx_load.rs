//! nginx with four worker processes under load: keep-alive, sendfile on and off, threads, and reloaded while clients
//! ask on.

use crate::support::http::{self, Load};
use crate::support::{Process, Program, Scene, ways};
use rustix::process::Signal;
use std::fs;

ways! {
    keep_alive needs ["nginx", "python3"] => |scene| load(scene, "sendfile off");
    keep_alive_with_sendfile needs ["nginx", "python3"] => |scene| load(scene, "sendfile on");
    keep_alive_with_threads needs ["nginx", "python3"] => |scene| load(scene, "sendfile off; aio threads; directio 1");
    wrk_keep_alive needs ["nginx", "wrk"] => wrk;
    reloaded needs ["nginx", "python3"] => |scene| reload(scene, "sendfile off");
    reloaded_with_sendfile needs ["nginx", "python3"] => |scene| reload(scene, "sendfile on");
}

/// Writes the configuration: so many workers, these directives, `www` is served on the port that it returns.
pub fn configure(scene: &Scene, workers: usize, directives: &str) -> u16 {
    let port = scene.port();
    let dir = scene.path("");
    let dir = dir.display();
    // The worker keeps the user of the master, which otherwise it leaves when started by root.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let config = format!(
        "daemon off; worker_processes {workers}; {user} pid {dir}/nginx.pid; error_log stderr warn;
         events {{ worker_connections 256; }}
         http {{
           access_log off; {directives}; keepalive_timeout 60; keepalive_requests 1000000; add_header X-Worker $pid;
           client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
           uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
           server {{ listen 127.0.0.1:{port}; root {dir}/www; }}
         }}"
    );
    fs::write(scene.path("nginx.conf"), config).expect("the configuration");
    port
}

/// `nginx` (under Bypath or not) with that configuration, still without further arguments.
pub fn configured<'a>(scene: &Scene, nginx: Program<'a>) -> Program<'a> {
    nginx.args("-e stderr -p").arg(scene.path("")).arg("-c").arg(scene.path("nginx.conf"))
}

fn start(scene: &Scene, directives: &str) -> (Process, u16) {
    let port = configure(scene, 4, directives);
    let mut server = configured(scene, scene.server("nginx")).start();
    server.listening(port);
    (server, port)
}

fn load(scene: &Scene, directives: &str) {
    let dir = http::files(scene, "www");
    let (server, port) = start(scene, directives);
    let mut client = Load::start(scene, port, &dir, 8);
    client.more(64);
    let report = client.stop();
    server.stop(Signal::QUIT).ok();
    scene.prove(report.number("payload "));
}

/// Reloaded three times while eight connections ask on and others are opened for one request each.
fn reload(scene: &Scene, directives: &str) {
    let dir = http::files(scene, "www");
    let (server, port) = start(scene, directives);
    let mut client = Load::start(scene, port, &dir, 8);
    let newcomers = Load::newcomers(scene, port, &dir);
    for _ in 0..3 {
        let before = client.workers();
        configured(scene, scene.server("nginx")).args("-s reload").finish();
        client.newer_worker(&before);
    }
    let payload = newcomers.stop().number("payload ");
    client.more(384);
    let payload = payload + client.stop().number("payload ");
    server.stop(Signal::QUIT).ok();
    scene.prove(payload);
}

/// wrk counts what is not answered, or not with 200.
fn wrk(scene: &Scene) {
    http::files(scene, "www");
    let (server, port) = start(scene, "sendfile off");
    let client = scene.client("wrk").args("-t 2 -c 16 -d 2s");
    let report = client.arg(format!("http://127.0.0.1:{port}/0.bin")).finish().stdout;
    server.stop(Signal::QUIT).ok();
    assert!(!report.contains("Socket errors") && !report.contains("Non-2xx"), "{report}");
    // "  123456 requests in 2.00s, 150.00MB read"
    let requests = report.lines().find_map(|l| l.trim().split_once(" requests in ")?.0.parse::<u64>().ok());
    scene.prove(requests.unwrap_or_else(|| panic!("no count of requests: {report}")) * 1024);
}
