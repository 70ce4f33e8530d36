//! nginx that becomes another nginx (SIGUSR2): the next image inherits its listening sockets and little of its environment.

use crate::common::bypath;
use crate::ends::asks;
use crate::lab::{Lab, Side, have, script};
use crate::network::{LONG, Tool, octets};
use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};
use std::fs;
use std::time::Instant;

#[track_caller]
fn waits_until(what: &str, is: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !is() {
        assert!(Instant::now() < end, "{what} takes too long");
        std::thread::yield_now();
    }
}

/// An nginx that nobody waits for, in the lab's folder.
struct Server {
    folder: String,
}

impl Server {
    fn begin(lab: &Lab) -> Server {
        let folder = lab.folder.path().display().to_string();
        let www = lab.folder.join("www");
        fs::create_dir(&www).expect("a folder");
        for (name, len) in [("0.bin", 1024), ("1.bin", 300_000), ("2.bin", 1), ("3.bin", 70_001)] {
            fs::write(www.join(name), octets(len)).expect("a file");
        }
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {folder}/{name};"));
        let config = format!(
            "worker_processes 1; user root; pid {folder}/pid; error_log {folder}/errors notice; events {{ worker_connections 512; }}
             http {{ access_log off; sendfile on; keepalive_timeout 60; keepalive_requests 200; add_header X-Worker $pid; {}
               server {{ listen 8000; root {folder}/www; location = /who {{ return 200 $remote_addr; }} location = /file {{ return 200 octets; }} }} }}",
            temporary.concat()
        );
        fs::write(lab.folder.join("nginx.conf"), config).expect("a file");
        // What it starts holds its standard error; it is started by its path, by which it starts the next one.
        let line = format!(
            "exec $(PATH=$PATH:/usr/sbin command -v nginx) -e stderr -p {folder} -c {folder}/nginx.conf 2> {folder}/said"
        );
        lab.done(Side::Stack, &["sh", "-c", &line]);
        lab.listening(&Side::Stack.at(8000));
        Server { folder }
    }

    /// The first process, which the others obey.
    fn master(&self) -> Option<i32> {
        fs::read_to_string(format!("{}/pid", self.folder)).ok()?.trim().parse().ok()
    }

    fn errors(&self) -> String {
        fs::read_to_string(format!("{}/errors", self.folder)).unwrap_or_default()
    }

    /// The next one begins beside it; both numbers.
    fn next(&self) -> (i32, i32) {
        let old = self.master().expect("a number");
        tells(old, Signal::USR2);
        waits_until("the next one", || self.master().is_some_and(|new| new != old));
        (old, self.master().expect("a number"))
    }

    /// The old one ends, gracefully.
    fn ends(old: i32) {
        tells(old, Signal::WINCH);
        tells(old, Signal::QUIT);
        // Whoever its parent is may not have waited for it.
        let is_there = || {
            let stat = fs::read_to_string(format!("/proc/{old}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
        };
        waits_until("the old one's end", || !is_there());
    }
}

fn tells(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a process"), signal).expect("it is there");
}

impl Drop for Server {
    /// Where a test has failed nobody else ends it. All of its processes are of one group, that of the first.
    fn drop(&mut self) {
        let group = self.master().and_then(Pid::from_raw).and_then(|master| getpgid(Some(master)).ok());
        if let Some(group) = group.filter(|_| std::thread::panicking()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// One socket listens at the stack, whoever it was, and none at the kernel's; this process has it.
#[track_caller]
fn one_listens(lab: &Lab, master: i32) {
    one_serves(lab);
    let mut ss = bypath(["ss", "-l", "--json"]);
    ss.env("BYPATH_NETSTACK_DIR", lab.folder.path());
    let shown = Tool::of(ss).end().expect(0).text();
    let shown: Vec<serde_json::Value> = serde_json::from_str(&shown).expect("JSON");
    assert!(shown.iter().any(|row| row["pid"] == master), "{master}: {shown:#?}");
}

#[track_caller]
fn one_serves(lab: &Lab) {
    let listen = lab.told(&["sockets"]).iter().filter(|socket| socket["state"] == "Listen").count();
    assert_eq!(listen, 1, "{:#?}", lab.told(&["sockets"]));
    let kernel = fs::read_to_string("/proc/net/tcp").expect("a table");
    assert!(!kernel.contains(":1F40 00000000:0000 0A"), "{kernel}");
    let curl = ["curl", "--silent", "--noproxy", "*", &format!("http://{}/who", Side::Stack.at(8000))];
    assert_eq!(lab.done(Side::Kernel, &curl).text(), Side::Kernel.address());
}

isolated! {
    fn nginx_becomes_another_one_under_load_and_that_another_one() {
        const NAME: &str = "upgrades::nginx_becomes_another_one_under_load_and_that_another_one";
        if !have(NAME, &["nginx", "wrk", "curl", "python3"]) {
            return;
        }
        let lab = Lab::new("");
        let server = Server::begin(&lab);
        for turn in 0..2 {
            let url = format!("http://{}/0.bin", Side::Stack.at(8000));
            let line = ["wrk", "-t", "1", "-c", "30", "-d", "3s", "--timeout", "30s", "-H", "Connection: close", &url];
            let wrk = lab.start(Side::Kernel, &line);
            let load = script("http_load.py");
            let kept = lab.start(Side::Kernel, &["python3", &load, &Side::Stack.at(8000), "www", "6"]).hears("warm");
            let (old, new) = server.next();
            let kept = kept.hears("workers 2\n");
            Server::ends(old);
            let said = wrk.end().expect(0).text();
            assert!(said.contains("Requests/sec") && !said.contains("Non-2xx") && !said.contains("Socket errors"), "{said}");
            kept.signal(Signal::TERM);
            let said = kept.end().expect(0).text();
            assert!(said.contains("requests "), "turn {turn}: {said}");
            one_listens(&lab, new);
        }
        let errors = server.errors();
        assert_eq!(errors.matches("using inherited sockets from").count(), 2, "{errors}");
        let wrong = ["bind()", "[alert]", "[error]"];
        assert!(!wrong.iter().any(|wrong| errors.contains(wrong)), "{errors}");
        Server::ends(server.master().expect("a number"));
        lab.is_empty();
        lab.end();
    }
}

isolated! {
    fn nginx_becomes_another_one_where_its_service_was_started_again() {
        const NAME: &str = "upgrades::nginx_becomes_another_one_where_its_service_was_started_again";
        if !have(NAME, &["nginx", "curl"]) {
            return;
        }
        let mut lab = Lab::new("");
        let server = Server::begin(&lab);
        lab.kill();
        lab.begin();
        let (old, new) = server.next();
        Server::ends(old);
        let url = format!("http://{}/file", Side::Stack.at(8000));
        asks(&lab, &url);
        one_listens(&lab, new);
        // And again: this one came by an exec and has never listened itself, nor do the workers accept that it starts now.
        lab.kill();
        lab.begin();
        asks(&lab, &url);
        let ended = || server.errors().matches("gracefully shutting down").count();
        let before = ended();
        tells(new, Signal::HUP);
        waits_until("the worker's end", || ended() > before);
        asks(&lab, &url);
        one_serves(&lab);
        assert!(!server.errors().contains("[alert]"), "{}", server.errors());
        Server::ends(new);
        lab.is_empty();
        lab.end();
    }
}

isolated! {
    fn who_inherits_a_socket_of_the_service_has_what_the_program_left_out_and_nobody_else() {
        const NAME: &str = "upgrades::who_inherits_a_socket_of_the_service_has_what_the_program_left_out_and_nobody_else";
        if !have(NAME, &["python3", "env"]) {
            return;
        }
        let lab = Lab::new("");
        let said = lab.done(Side::Stack, &["python3", &script("left_out.py"), Side::Stack.address(), "8006"]).text();
        let all = "BYPATH_NETSTACK BYPATH_NETSTACK_DIR LD_PRELOAD";
        let mut expected: Vec<String> = ["forked", "spawned", "borrowed"].map(|way| format!("{way} nothing")).into();
        expected.extend(["spawned dup2", "borrowed stdin"].map(|way| format!("{way} {all}")));
        for way in ["forked", "spawned", "borrowed"] {
            expected.extend([format!("{way} socket {all}"), format!("{way} others {all} libm.so.6")]);
        }
        expected.push("kept True".to_owned());
        let lines: Vec<_> = said.lines().map(str::trim).collect();
        assert_eq!(lines, expected, "{said}");
        lab.is_empty();
        lab.end();
    }
}
