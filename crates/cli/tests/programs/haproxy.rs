//! HAProxy before nginx, replaced under load by a new process that takes the listening sockets over
//! (`-x`, SCM_RIGHTS) while the old one finishes what it has.

use crate::nginx_load;
use crate::support::http::{self, Load};
use crate::support::{Process, Scene, Way, ways};
use rustix::process::Signal;
use std::fs;

ways! {
    proxy needs ["haproxy", "nginx", "python3"] => |scene| load(scene, 0);
    hot_restart_under_load needs ["haproxy", "nginx", "python3"] => |scene| load(scene, 3);
}

/// The server behind: under Bypath only where both sides are, so that in mixed ways nobody is upgraded.
fn backend(scene: &Scene) -> (Process, u16) {
    let port = nginx_load::configure(scene, 2, "sendfile off");
    let server = if scene.way() == Way::Both { scene.server("nginx") } else { scene.plain("nginx") };
    let server = nginx_load::configured(scene, server);
    let mut server = server.start();
    server.listening(port);
    (server, port)
}

fn configure(scene: &Scene, port: u16, backend: u16) {
    let socket = scene.path("control");
    let config = format!(
        "global
           nbthread 2
           stats socket {} mode 600 level admin expose-fd listeners
           hard-stop-after 30s
         defaults
           mode http
           timeout connect 20s
           timeout client 60s
           timeout server 60s
         listen web
           bind 127.0.0.1:{port}
           http-reuse always
           http-response set-header X-Worker %pid
           server one 127.0.0.1:{backend}\n",
        socket.display()
    );
    let lines: Vec<&str> = config.lines().map(str::trim_start).collect();
    fs::write(scene.path("haproxy.cfg"), lines.join("\n") + "\n").expect("the configuration");
}

/// The first process, or the one that replaces `old`.
fn start(scene: &Scene, port: u16, old: Option<&Process>) -> Process {
    let mut server = scene.server("haproxy").args("-db -f").arg(scene.path("haproxy.cfg"));
    if let Some(old) = old {
        server = server.arg("-x").arg(scene.path("control")).arg("-sf").arg(old.pid().to_string());
    }
    let mut server = server.start();
    server.listening(port);
    server
}

fn load(scene: &Scene, restarts: usize) {
    let dir = http::files(scene, "www");
    let (behind, inner) = backend(scene);
    let port = scene.port();
    configure(scene, port, inner);
    let mut proxy = start(scene, port, None);
    let mut client = Load::start(scene, port, &dir, 8);
    let newcomers = Load::newcomers(scene, port, &dir);
    for _ in 0..restarts {
        let before = client.workers();
        let newer = start(scene, port, Some(&proxy));
        client.newer_worker(&before);
        // It ends by itself when its last connection is over.
        std::mem::replace(&mut proxy, newer).wait();
    }
    let mut payload = newcomers.stop().number("payload ");
    client.more(if scene.way() == Way::Both { 192 } else { 16 });
    payload += client.stop().number("payload ");
    proxy.stop(Signal::USR1);
    behind.stop(Signal::QUIT).ok();
    scene.prove(payload);
}
