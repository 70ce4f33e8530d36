//! Servers that root starts and that then are somebody else, on a service that is for root alone: nginx as distributions have it.

use crate::accounts::{is_root, nobody};
use crate::common::bypath;
use crate::lab::{Lab, Side, have, script};
use crate::network::{LONG, Tool, apart, octets};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

/// nginx at port 80, its workers nobody's.
fn nginx(lab: &Lab) -> Tool {
    let dir = lab.folder.path().display().to_string();
    let [user, group] = nobody();
    fs::set_permissions(lab.folder.path(), PermissionsExt::from_mode(0o755)).expect("root's right");
    let www = lab.folder.join("www");
    fs::create_dir(&www).expect("a folder");
    for (name, len) in [("0.bin", 1024), ("1.bin", 300_000), ("2.bin", 1), ("3.bin", 70_001)] {
        fs::write(www.join(name), octets(len)).expect("a file");
    }
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {dir}/{name};"));
    let config = format!(
        "daemon off; worker_processes 2; user {user} {group}; pid {dir}/pid; error_log {dir}/errors warn; events {{ worker_connections 512; }}
         http {{ access_log off; sendfile on; keepalive_timeout 60; keepalive_requests 1000000; add_header X-Worker $pid; {}
           server {{ listen 80; root {dir}/www; }} }}",
        temporary.concat()
    );
    fs::write(lab.folder.join("nginx.conf"), config).expect("a file");
    let conf = format!("{dir}/nginx.conf");
    let web = lab.start(Side::Stack, &["nginx", "-e", "stderr", "-p", &dir, "-c", &conf]);
    lab.listening(&Side::Stack.at(80));
    web
}

/// The server ends; neither it nor the library had anything to say but that the service was gone.
fn ends(lab: &Lab, web: Tool) {
    web.signal(Signal::QUIT);
    let said = web.end().expect(0).stderr;
    for wrong in ["not for this user", "may not be", "setsockopt", "Permission"] {
        assert!(!said.contains(wrong), "{said}");
    }
    let errors = fs::read_to_string(lab.folder.join("errors")).unwrap_or_default();
    assert!(errors.is_empty(), "{errors}");
}

/// Connections of the server's that go by rings both ways, as the service says; all of them are root's.
fn on_rings(lab: &Lab) -> usize {
    let all = lab.told(&["sockets"]);
    assert!(all.iter().all(|socket| socket["uid"] == 0), "{all:#?}");
    let is_ring = |end: &str, socket: &serde_json::Value| socket[end] == "ring";
    all.iter().filter(|s| is_ring("from_program", s) && is_ring("to_program", s)).count()
}

/// The server is reloaded again and again while others call, for each request or for many: no call is refused or reset.
fn reloaded_without_loss(lab: &Lab, web: &Tool, meanwhile: impl FnOnce()) {
    let url = format!("http://{}/0.bin", Side::Stack.at(80));
    let line =
        ["wrk", "-t", "1", "-c", "30", "-d", "3s", "--timeout", "30s", "-H", "Connection: close", &url];
    let wrk = lab.start(Side::Kernel, &line);
    let load = script("http_load.py");
    let kept = lab.start(Side::Kernel, &["python3", &load, &Side::Stack.at(80), "www", "6"]);
    let mut kept = kept.hears("warm");
    meanwhile();
    for _ in 0..3 {
        let workers = kept.heard().matches("serving ").count();
        web.signal(Signal::HUP);
        kept = kept.hears(&format!("workers {}\n", workers + 1));
    }
    let said = wrk.end().expect(0).text();
    assert!(
        said.contains("Requests/sec") && !said.contains("Non-2xx") && !said.contains("Socket errors"),
        "{said}"
    );
    kept.signal(Signal::TERM);
    let said = kept.end().expect(0).text();
    assert!(said.contains("requests "), "{said}");
}

#[test]
fn nginx_has_rings_and_is_reloaded_under_load() {
    const NAME: &str = "dropped::nginx_has_rings_and_is_reloaded_under_load";
    if !is_root(NAME) || !have(NAME, &["nginx", "wrk", "python3"]) {
        return;
    }
    apart(concat!(module_path!(), "::nginx_has_rings_and_is_reloaded_under_load"), || {
        let lab = Lab::new("");
        let web = nginx(&lab);
        reloaded_without_loss(&lab, &web, || {
            let end = Instant::now() + LONG;
            while on_rings(&lab) == 0 {
                assert!(Instant::now() < end, "no connection has rings: {:#?}", lab.told(&["sockets"]));
            }
        });
        ends(&lab, web);
        lab.is_empty();
        lab.end();
    });
}

#[test]
fn nginx_has_its_port_again_after_a_restart_under_load() {
    const NAME: &str = "dropped::nginx_has_its_port_again_after_a_restart_under_load";
    if !is_root(NAME) || !have(NAME, &["nginx", "wrk", "curl", "python3"]) {
        return;
    }
    apart(concat!(module_path!(), "::nginx_has_its_port_again_after_a_restart_under_load"), || {
        let mut lab = Lab::new("");
        let web = nginx(&lab);
        let url = format!("http://{}/1.bin", Side::Stack.at(80));
        let curl = ["curl", "--silent", "--noproxy", "*", "--max-time", "5", &url];
        for turn in 0..3 {
            let load =
                lab.start(Side::Kernel, &["wrk", "-t", "1", "-c", "20", "-d", "2s", "--timeout", "1s", &url]);
            let end = Instant::now() + LONG;
            while lab.told(&["sockets"]).len() < 10 {
                assert!(Instant::now() < end, "nobody calls");
            }
            lab.kill();
            lab.begin();
            // Its requests fail; what counts is that nginx serves again.
            load.end();
            let end = Instant::now() + LONG;
            loop {
                let got = lab.start(Side::Kernel, &curl).quiet().end();
                if got.code() == Some(0) {
                    assert!(got.stdout == octets(300_000), "other octets came");
                    break;
                }
                assert!(Instant::now() < end, "nobody answers");
            }
            // Workers that begin now inherit what the first service left of the socket: they have the listener that the others have.
            reloaded_without_loss(&lab, &web, || {});
            let all = lab.told(&["sockets"]);
            let listen = all.iter().filter(|socket| socket["state"] == "Listen").count();
            assert!(listen == 1 && all.iter().all(|socket| socket["uid"] == 0), "turn {turn}: {all:#?}");
            let mut ss = bypath(["ss", "-l", "--json"]);
            ss.env("BYPATH_NETSTACK_DIR", lab.folder.path());
            let shown = Tool::of(ss).end().expect(0).text();
            let shown: Vec<serde_json::Value> = serde_json::from_str(&shown).expect("JSON");
            let pids: Vec<_> = shown.iter().map(|row| row["pid"].as_u64().expect("a process")).collect();
            assert!(pids.len() >= 2 && !pids.contains(&lab.service().id().into()), "{pids:?}");
        }
        ends(&lab, web);
        lab.is_empty();
        lab.end();
    });
}
