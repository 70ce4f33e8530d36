//! Servers that are told to read their configuration anew when their service has ended, and when there is another one: the process that does so never accepts.

use crate::ends::asks;
use crate::lab::{Lab, Side, have, script};
use crate::network::{LONG, Tool};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::time::Instant;

/// Sockets of the service that listen, or are of datagrams.
fn standing(lab: &Lab) -> Vec<Value> {
    let all = lab.told(&["sockets"]);
    let stands = |socket: &Value| socket["state"] == "Listen" || socket["protocol"] == "udp";
    all.into_iter().filter(stands).collect()
}

isolated! {
    fn nginx_reads_its_file_anew_without_its_service_and_with_the_next_one() {
        if !have("reloads::nginx_reads_its_file_anew_without_its_service_and_with_the_next_one", &["nginx", "curl"]) {
            return;
        }
        let mut lab = Lab::new("");
        let root = lab.folder.path().display().to_string();
        fs::write(lab.folder.join("file"), "octets").expect("a file");
        // What changes is told to the sockets that there are.
        let configure = |turn: u32| {
            let config = format!(
                "daemon off; worker_processes 1; user root; pid {root}/pid; error_log {root}/errors notice;
                 events {{ worker_connections 64; }}
                 http {{ access_log off;
                   client_body_temp_path {root}/body; proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi;
                   uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
                   server {{ listen 8000 backlog={}; listen 8085 so_keepalive=on fastopen={}; root {root}; }} }}",
                200 + turn, 16 + turn
            );
            fs::write(format!("{root}/nginx.conf"), config).expect("a file");
        };
        configure(0);
        let conf = format!("{root}/nginx.conf");
        let web = lab.start(Side::Stack, &["nginx", "-e", "stderr", "-p", &root, "-c", &conf]);
        let mut reloads = 0;
        let mut reload = |web: &Tool| {
            reloads += 1;
            configure(reloads);
            web.signal(Signal::HUP);
            // A master begins workers when it has done with its sockets.
            let begun = || fs::read_to_string(format!("{root}/errors")).unwrap_or_default().matches("start worker process ").count();
            waits_until(|| begun() > reloads as usize);
        };
        let both = [8000, 8085].map(|port| format!("http://{}/file", Side::Stack.at(port)));
        let served = |lab: &Lab| both.iter().for_each(|url| asks(lab, url));
        lab.listening(&Side::Stack.at(8085));
        served(&lab);
        lab.kill();
        reload(&web);
        lab.begin();
        served(&lab);
        reload(&web);
        served(&lab);
        // And where who reads its file is the first that asks the next one.
        lab.kill();
        lab.begin();
        reload(&web);
        served(&lab);
        web.signal(Signal::QUIT);
        web.end().expect(0);
        let errors = fs::read_to_string(lab.folder.join("errors")).expect("a file");
        let wrong: Vec<_> = errors.lines().filter(|line| line.contains("[alert]") || line.contains("ignored")).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        lab.is_empty();
        lab.end();
    }
}

#[track_caller]
fn waits_until(is: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !is() {
        assert!(Instant::now() < end, "it takes too long");
        std::thread::yield_now();
    }
}

isolated! {
    fn who_never_accepts_is_answered_without_the_service_and_has_the_socket_of_those_who_do() {
        const NAME: &str = "reloads::who_never_accepts_is_answered_without_the_service_and_has_the_socket_of_those_who_do";
        if !have(NAME, &["python3", "curl"]) {
            return;
        }
        let mut lab = Lab::new("");
        let port = 8004;
        let url = format!("http://{}/", Side::Stack.at(port));
        let line = ["python3", &script("idle.py"), Side::Stack.address(), &port.to_string(), "tcp"];
        let mut server: Tool = lab.start(Side::Stack, &line).hears("waits");
        let mut turn = 0;
        let mut reads = |server: Tool| {
            turn += 1;
            server.signal(Signal::USR1);
            (turn, server.hears(&format!("[{turn}, {port}, 1, {}]", 70 + turn)))
        };
        asks(&lab, &url);
        for child_is_first in [true, false] {
            (_, server) = reads(server);
            lab.kill();
            (_, server) = reads(server);
            lab.begin();
            if child_is_first {
                asks(&lab, &url);
            }
            // What was said meanwhile, and what is said now, holds for everybody's.
            let turn;
            (turn, server) = reads(server);
            asks(&lab, &url);
            server.signal(Signal::USR2);
            server = server.hears(&format!("[\"child\", {port}, 1, {}]", 70 + turn));
            let all = standing(&lab);
            assert_eq!(all.len(), 1, "{all:#?}");
        }
        server.signal(Signal::TERM);
        server.end().expect(0);
        lab.is_empty();
        lab.end();
    }
}

isolated! {
    fn a_socket_of_datagrams_that_nobody_receives_from_is_there_again_when_it_is_asked() {
        const NAME: &str = "reloads::a_socket_of_datagrams_that_nobody_receives_from_is_there_again_when_it_is_asked";
        if !have(NAME, &["python3"]) {
            return;
        }
        let mut lab = Lab::new("");
        let line = ["python3", &script("idle.py"), Side::Stack.address(), "8005", "udp"];
        let mut server: Tool = lab.start(Side::Stack, &line).hears("waits");
        for (turn, there) in [(1, true), (2, false), (3, true), (4, false), (5, true)] {
            if !there {
                lab.kill();
            } else if turn > 1 {
                lab.begin();
            }
            server.signal(Signal::USR1);
            server = server.hears(&format!("[{turn}, 8005, {}]", 60 + turn));
            if there {
                let all = standing(&lab);
                assert!(all.len() == 1 && all[0]["local"] == "10.0.0.1:8005", "turn {turn}: {all:#?}");
            }
        }
        server.signal(Signal::TERM);
        server.end().expect(0);
        lab.is_empty();
        lab.end();
    }
}
