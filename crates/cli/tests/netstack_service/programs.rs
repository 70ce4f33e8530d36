//! Programs as people have them, on the stack by `bypath run --netstack`, with the kernel at the other end of a TAP device: as clients
//! and as servers.

use crate::common::{TempDir, run};
use crate::network::{Ended, LONG, Tool, octets, skip};
use crate::{TAP, asked, devices, end, service};
use rustix::process::Signal;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

const SIZE: usize = 20_000_000;

/// Whether all of these programs are there; says which test is skipped where one is not.
fn have(test: &str, programs: &[&str]) -> bool {
    let is_there = |program: &&&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).chain(["/usr/sbin".into()]).any(|dir| dir.join(program).exists())
    };
    match programs.iter().find(|program| !is_there(program)) {
        None => devices(test),
        Some(missing) => {
            skip(test, &format!("{missing} is not installed"));
            false
        }
    }
}

/// A program on the stack.
fn on_stack(folder: &TempDir, line: &[&str]) -> Command {
    let mut command = run([&["--netstack", "--"], line].concat());
    command.env("BYPATH_NETSTACK_DIR", folder.path()).current_dir(folder.path());
    command
}

/// A program on the kernel.
fn on_kernel(folder: &TempDir, line: &[&str]) -> Command {
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).current_dir(folder.path());
    command
}

/// Waits until somebody listens there.
#[track_caller]
fn listening(address: &str) {
    let end = Instant::now() + LONG;
    while TcpStream::connect_timeout(&address.parse().expect("an address"), Duration::from_secs(5)).is_err() {
        assert!(Instant::now() < end, "nobody listens at {address}");
        std::thread::yield_now();
    }
}

#[track_caller]
fn done(command: Command) -> Ended {
    Tool::of(command).end().expect(0)
}

/// Who is where: a program, its address, and the program at the other end.
type Place = fn(&TempDir, &[&str]) -> Command;
const PLACES: [(Place, &str, Place); 2] =
    [(on_stack, "10.9.0.2", on_kernel), (on_kernel, "10.9.0.1", on_stack)];

/// A folder with a file to be fetched, and a service for it.
fn stage() -> (TempDir, Tool) {
    stage_on(&TAP)
}

/// The same with a service on this link.
fn stage_on(link: &[&str]) -> (TempDir, Tool) {
    let folder = TempDir::new();
    std::fs::write(folder.join("file"), octets(SIZE)).expect("a file");
    std::fs::write(folder.join("small"), octets(700)).expect("a file");
    let running = service(&folder, link);
    (folder, running)
}

#[track_caller]
fn came(folder: &TempDir, name: &str) {
    let got = std::fs::read(folder.join(name)).expect("a file");
    assert!(got == octets(SIZE), "{} octets came, or others", got.len());
    std::fs::remove_file(folder.join(name)).expect("a file");
}

isolated! {
    fn curl_and_wget_fetch_from_python_in_both_roles() {
        if !have("programs::curl_and_wget_fetch_from_python_in_both_roles", &["curl", "wget", "python3"]) {
            return;
        }
        let (folder, running) = stage();
        fetches_in_both_roles(&folder);
        end(running);
    }
}

#[track_caller]
fn fetches_in_both_roles(folder: &TempDir) {
    for (server, at, client) in PLACES {
        let web = Tool::of(server(folder, &["python3", "-u", "-m", "http.server", "8000"]));
        listening(&format!("{at}:8000"));
        let url = format!("http://{at}:8000/file");
        let curl = ["curl", "--silent", "--show-error", "--fail", "--noproxy", "*", "--output", "got", &url];
        done(client(folder, &curl));
        came(folder, "got");
        done(client(folder, &["wget", "--quiet", "--no-proxy", "--tries=1", "--output-document=got", &url]));
        came(folder, "got");
        // The other end has the address of the other stack.
        let other = if at == "10.9.0.2" { "10.9.0.1" } else { "10.9.0.2" };
        let web = web.says(&format!("{other} - - ")).says(&format!("{other} - - "));
        assert_eq!(web.said.matches("GET /file").count(), 2, "{}", web.said);
        web.signal(Signal::KILL);
        web.end();
    }
}

isolated! {
    fn they_do_so_over_a_tun_device() {
        if !have("programs::they_do_so_over_a_tun_device", &["curl", "wget", "python3"]) {
            return;
        }
        let (folder, running) = stage_on(&["--link=tun:mine", "--net=10.9.0.1/24"]);
        fetches_in_both_roles(&folder);
        assert!(end(running).text().contains("link        tun:mine"));
    }
}

isolated! {
    fn nc_sends_and_ends_in_both_roles() {
        if !have("programs::nc_sends_and_ends_in_both_roles", &["nc"]) {
            return;
        }
        let (folder, running) = stage();
        for (server, at, client) in PLACES {
            let listener = Tool::of(server(&folder, &["nc", "-n", "-v", "-l", "-N", "8000"])).says("Listening on").give(b"answer");
            let caller = Tool::of(client(&folder, &["nc", "-n", "-N", at, "8000"])).give(&octets(1_000_000));
            let (asked, answered) = (listener.end().expect(0), caller.end().expect(0));
            assert!(asked.stdout == octets(1_000_000), "{} octets", asked.stdout.len());
            assert_eq!(answered.text(), "answer");
        }
        end(running);
    }
}

isolated! {
    fn nobody_listens_and_nobody_is_there() {
        if !have("programs::nobody_listens_and_nobody_is_there", &["curl"]) {
            return;
        }
        let (folder, running) = stage();
        let curl = |url: &str| Tool::of(on_stack(&folder, &["curl", "--silent", "--show-error", "--noproxy", "*", "--max-time", "20", url])).end();
        let refused = curl("http://10.9.0.1:9/").expect(7);
        assert!(refused.stderr.contains("Could") && refused.stderr.contains("connect"), "{}", refused.stderr);
        curl("http://10.8.0.1/").expect(7);
        end(running);
    }
}

isolated! {
    fn nginx_and_wrk_under_load_in_both_roles() {
        if !have("programs::nginx_and_wrk_under_load_in_both_roles", &["nginx", "wrk", "curl"]) {
            return;
        }
        let (folder, running) = stage();
        let root = folder.path().display().to_string();
        let config = format!(
            "daemon off; worker_processes 2; user root; pid {root}/pid; error_log stderr warn;
             events {{ worker_connections 256; }}
             http {{ access_log off; sendfile on; keepalive_timeout 60;
               client_body_temp_path {root}/body; proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi;
               uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
               server {{ listen 8000 backlog=128; root {root}; }} }}"
        );
        std::fs::write(folder.join("nginx.conf"), config).expect("a file");
        let conf = format!("{root}/nginx.conf");
        for (server, at, client) in PLACES {
            let web = Tool::of(server(&folder, &["/usr/sbin/nginx", "-e", "stderr", "-p", &root, "-c", &conf]));
            listening(&format!("{at}:8000"));
            let url = format!("http://{at}:8000/file");
            done(client(&folder, &["curl", "--silent", "--show-error", "--fail", "--noproxy", "*", "--output", "got", &url]));
            came(&folder, "got");
            let url = format!("http://{at}:8000/small");
            for close in ["X-Bypath: stays", "Connection: close"] {
                let said = done(client(&folder, &["wrk", "-t", "2", "-c", "50", "-d", "2s", "--timeout", "30s", "-H", close, &url])).text();
                assert!(said.contains("Requests/sec") && !said.contains("Non-2xx") && !said.contains("Socket errors"), "{said}");
            }
            web.signal(Signal::QUIT);
            web.end().expect(0);
        }
        // What programs had is gone with them.
        let end_of_wait = Instant::now() + LONG;
        while !asked(&folder, &["sockets"]).expect(0).stderr.contains("no sockets") {
            assert!(Instant::now() < end_of_wait, "sockets are left");
        }
        end(running);
    }
}

isolated! {
    fn a_service_that_is_not_there_keeps_a_program_from_starting() {
        if !have("programs::a_service_that_is_not_there_keeps_a_program_from_starting", &["curl"]) {
            return;
        }
        let folder = TempDir::new();
        let ended = Tool::of(on_stack(&folder, &["true"])).end().expect(125);
        for words in ["no netstack service named default is running", "start one: bypath netstack --link"] {
            assert!(ended.stderr.contains(words), "{}", ended.stderr);
        }
        let running = service(&folder, &[&TAP[..], &["--name=lab"]].concat());
        let ended = Tool::of(on_stack(&folder, &["true"])).end().expect(125);
        assert!(ended.stderr.contains("there are: lab"), "{}", ended.stderr);
        let mut command = run(["--netstack=lab", "--", "true"]);
        command.env("BYPATH_NETSTACK_DIR", folder.path());
        assert_eq!(done(command).stderr, "");

        // Rules come first.
        let rules = folder.join("rules.toml");
        std::fs::write(&rules, "[[rules]]\nremote-port = 22\naction = \"kernel\"\n[[rules]]\naction = \"netstack:other\"\n").expect("a file");
        let mut command = run(["--netstack=lab", "--config", rules.to_str().expect("a path"), "--", "true"]);
        command.env("BYPATH_NETSTACK_DIR", folder.path()).env_remove("BYPATH_CONFIG");
        let said = done(command).stderr;
        assert!(said.contains("--netstack is for what no rule is about") && said.contains("rule 1 (line 1): kernel"), "{said}");
        let words = "no netstack service named other is running (there are: lab); name that one, or start one: bypath netstack --name other";
        assert!(said.contains(words), "{said}");
        end(running);
    }
}

isolated! {
    fn a_second_signal_ends_it_at_once() {
        if !have("programs::a_second_signal_ends_it_at_once", &["nc"]) {
            return;
        }
        let (folder, running) = stage();
        // A listener that does not read, so that what is sent to it cannot go.
        let listener = std::net::TcpListener::bind("10.9.0.1:8000").expect("a port");
        let caller = Tool::of(on_stack(&folder, &["nc", "10.9.0.1", "8000"])).give(&octets(30_000_000));
        let (_stream, _) = listener.accept().expect("a call");
        let end_of_wait = Instant::now() + LONG;
        let told = || {
            let all = asked(&folder, &["sockets", "--json"]).stdout;
            serde_json::from_slice::<serde_json::Value>(&all).expect("JSON")
        };
        // Until its window is shut: nothing is on its way, and nothing changes. How much waits here then depends on how far the send buffer has grown.
        let mut before = told();
        loop {
            let all = told();
            let octets = |name: &str| all[0][name].as_u64();
            if octets("unsent") > Some(0) && octets("unacknowledged") == Some(0) && all == before {
                break;
            }
            assert!(Instant::now() < end_of_wait, "everything is sent: {all}");
            before = all;
        }
        // What comes within a second of the first one is the same wish. The thread that counts it is there for that alone.
        let is_same_wish = || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", running.id())).expect("threads");
            let mut names = tasks.map(|task| std::fs::read_to_string(task.expect("a thread").path().join("comm")));
            names.any(|name| name.is_ok_and(|name| name == "signals\n"))
        };
        assert!(is_same_wish(), "no thread counts");
        running.signal(Signal::TERM);
        while is_same_wish() {
            std::thread::yield_now();
        }
        running.signal(Signal::TERM);
        running.end().expect(130);
        caller.signal(Signal::KILL);
        caller.end();
    }
}
