//! What `ss`, `why`, `top` and `metrics` say of sockets of a service: whose they are, and their addresses as the program has them.

use crate::common::{TempDir, bypath, run, stdout, workspace};
use crate::network::{LONG, Tool, skip};
use crate::{TAP, devices, end, service};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Whether a service and Python can be had.
fn have(test: &str) -> bool {
    if Command::new("python3").arg("--version").output().is_err() {
        skip(test, "python3 is not installed");
        return false;
    }
    devices(test)
}

/// A program that is called, on the kernel, and the one that calls it, on the stack.
struct Talk {
    server: Tool,
    caller: Tool,
    /// The caller's names: its own, and the other end's.
    names: [String; 2],
}

impl Talk {
    fn new(folder: &TempDir, kind: &str, flags: &[&str]) -> Talk {
        Talk::to("10.9.0.1", folder, kind, flags)
    }

    /// The server is at this address: the kernel's, the stack's, or loopback.
    fn to(at: &str, folder: &TempDir, kind: &str, flags: &[&str]) -> Talk {
        let script = workspace().join("crates/cli/tests/netstack_service/talk.py");
        let on_stack = || {
            let mut command = run([flags, &["--netstack=lab", "--", "python3"]].concat());
            command.env("BYPATH_NETSTACK_DIR", folder.path());
            command
        };
        let mut server = if at == "10.9.0.1" { Command::new("python3") } else { on_stack() };
        server.arg(&script).args([kind, "serve"]);
        // At every address a server is the stack's alone.
        let local = at == "127.0.0.1";
        if local {
            server.arg(at);
        }
        let server = Tool::of(server).hears("\n");
        let port = server.heard().trim().to_owned();
        let mut caller = on_stack();
        caller.arg(&script).args([kind, "call", at, &port]);
        let caller = Tool::of(caller).hears("\n");
        let names: Vec<String> = caller.heard().split_whitespace().map(str::to_owned).collect();
        let names: [String; 2] = names.try_into().expect("two names");
        let own = if local { "127.0.0.1:" } else { "10.9.0.2:" };
        assert!(names[0].starts_with(own) && names[1] == format!("{at}:{port}"), "{names:?}");
        Talk { server, caller, names }
    }

    /// So many trips there and back.
    #[track_caller]
    fn does(self, trips: u32) -> Talk {
        let mut caller = self.caller;
        let count = |caller: &Tool| caller.heard().matches("done").count();
        let before = count(&caller);
        caller.write(format!("{trips}\n").as_bytes());
        while count(&caller) == before {
            caller = caller.hears_more();
        }
        Talk { caller, ..self }
    }

    fn pid(&self) -> String {
        self.caller.id().to_string()
    }

    fn end(self) {
        for tool in [self.caller, self.server] {
            tool.signal(Signal::KILL);
            tool.end();
        }
    }
}

fn rows(args: &[&str]) -> Vec<Value> {
    let output = bypath(args).output().expect("bypath starts");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {output:?}"))
}

fn said(args: &[&str]) -> String {
    stdout(&bypath(args).output().expect("bypath starts"))
}

isolated! {
    fn what_goes_by_the_descriptor_is_named_so_and_who_listens_is_shown() {
        if !have("views::what_goes_by_the_descriptor_is_named_so_and_who_listens_is_shown") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &[&TAP[..], &["--name=lab"]].concat());
        let asks = |args: &[&str]| {
            let output = bypath(args).env("BYPATH_NETSTACK_DIR", folder.path()).output().expect("bypath starts");
            assert!(output.status.success(), "{args:?}: {output:?}");
            stdout(&output)
        };
        let list = |args: &[&str]| serde_json::from_str::<Vec<Value>>(&asks(args)).expect("JSON");
        assert!(list(&["ss", "-l", "--json"]).is_empty());
        // Both are on the stack: one calls the other through it, without rings.
        let talk = Talk::to("10.9.0.2", &folder, "tcp", &["--upgrade=off"]).does(20);
        let pid = talk.pid();
        let rows = list(&["ss", "--json", "--pid", &pid]);
        assert_eq!((rows.len(), &rows[0]["path"]), (1, &json!("netstack:pair")), "{rows:?}");
        let bytes = &rows[0]["bytes"];
        assert_eq!((&bytes["kernel_tx"], &bytes["kernel_rx"]), (&json!(0), &json!(0)), "{bytes}");
        assert!(bytes["pair_tx"].as_u64() > Some(0) && bytes["pair_rx"].as_u64() > Some(0), "{bytes}");
        let text = asks(&["ss", "--pid", &pid]);
        assert!(text.contains("SENT PAIR") && text.contains("RCVD PAIR"), "{text}");
        let metrics = asks(&["metrics"]);
        let value = |path: &str| -> u64 {
            let is = |line: &&str| line.starts_with("bypath_bytes_total") && line.contains(&format!("path=\"{path}\"")) && line.contains("python3");
            metrics.lines().filter(is).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
        };
        assert!(value("netstack:pair") > 0 && value("kernel") == 0, "{metrics}");

        talk.end();
        let listens = "import socket, sys; s = socket.create_server(('10.9.0.2', 0)); print(s.getsockname()[1], s.fileno(), flush=True); sys.stdin.read()";
        let mut server = run(["--netstack=lab", "--", "python3", "-c", listens]);
        server.env("BYPATH_NETSTACK_DIR", folder.path());
        let server = Tool::of(server).hears("\n");
        let (pid, told) = (server.id(), server.heard());
        let (port, fd) = told.trim().split_once(' ').expect("two numbers");
        let rows = list(&["ss", "-l", "--json"]);
        assert_eq!(rows.len(), 1, "{rows:?}");
        let row = &rows[0];
        assert_eq!((&row["pid"], &row["fd"], &row["service"]), (&json!(pid), &json!(fd.parse::<i32>().expect("a number")), &json!("lab")));
        assert_eq!(row["local"], format!("10.9.0.2:{port}"), "{row}");
        assert!(list(&["ss", "-l", "--json", "--pid=1"]).is_empty());
        assert!(list(&["ss", "-l", "--json", "sport", "=", "1"]).is_empty());
        assert_eq!(list(&["ss", "-l", "--json", "sport", "=", port]).len(), 1);
        let text = asks(&["ss", "-l"]);
        assert!(text.contains("python3") && text.contains(&pid.to_string()) && text.contains("lab"), "{text}");
        for subject in [pid.to_string(), format!("{pid}:{fd}")] {
            let why = asks(&["why", &subject]);
            assert!(why.contains(&format!("Descriptor {fd}: listens at 10.9.0.2:{port}, on the netstack service lab")), "{why}");
        }
        server.signal(Signal::KILL);
        server.end();
        end(running);
    }
}

isolated! {
    fn who_listens_is_found_among_sockets_without_number() {
        if !have("views::who_listens_is_found_among_sockets_without_number") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &[&TAP[..], &["--name=lab"]].concat());
        let listens = "import socket, sys; s = socket.create_server(('10.9.0.2', 0)); print(s.fileno(), flush=True); sys.stdin.read()";
        let mut server = run(["--netstack=lab", "--", "python3", "-c", listens]);
        server.env("BYPATH_NETSTACK_DIR", folder.path());
        let server = Tool::of(server).hears("\n");
        // Anybody may have some, also a program that has no right to anything.
        let crowds = [0; 4].map(|_| {
            let mut many = Command::new("python3");
            many.arg("-c").arg(
                "import resource, socket, sys\n\
                 most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
                 resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n\
                 held = [socket.socketpair() for _ in range(min(6000, most // 2 - 50))]\n\
                 print(len(held), flush=True)\n\
                 sys.stdin.read()",
            );
            Tool::of(many)
        });
        let crowds = crowds.map(|crowd| crowd.hears("\n"));
        let pairs: u32 = crowds.iter().map(|crowd| crowd.heard().trim().parse::<u32>().expect("a number")).sum();
        for _ in 0..3 {
            let mut ss = bypath(["ss", "-l", "--json"]);
            let output = ss.env("BYPATH_NETSTACK_DIR", folder.path()).output().expect("bypath starts");
            let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
            assert_eq!(rows.len(), 1, "{rows:?}");
            assert_eq!(rows[0]["pid"], server.id(), "beside {pairs} pairs: {rows:?}");
            assert_eq!(rows[0]["fd"].to_string(), server.heard().trim());
            assert!(!String::from_utf8_lossy(&output.stderr).contains("too many"), "{output:?}");
        }
        crowds.into_iter().chain([server]).for_each(|tool| {
            tool.signal(Signal::KILL);
            tool.end();
        });
        end(running);
    }
}

isolated! {
    fn connections_have_their_addresses_path_and_service() {
        if !have("views::connections_have_their_addresses_path_and_service") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &[&TAP[..], &["--name=lab"]].concat());
        let mut talk = Talk::new(&folder, "tcp", &["--upgrade=eager"]);
        let pid = talk.pid();
        let begun = Instant::now();
        let row = loop {
            talk = talk.does(20);
            let all = rows(&["ss", "--json", "--pid", &pid]);
            assert_eq!(all.len(), 1, "{all:?}");
            if all[0]["path"] == "netstack:ring" {
                break all[0].clone();
            }
            assert!(begun.elapsed() < LONG, "never on a ring: {all:?}");
        };
        assert_eq!([&row["local"], &row["remote"]], [&json!(talk.names[0]), &json!(talk.names[1])], "{row}");
        assert_eq!(row["service"], "lab");
        assert_eq!(row["tx"], json!({ "path": "ring", "reason": "ring" }));
        for filter in ["path netstack", "path ring and host 10.9.0.1"] {
            let filter: Vec<&str> = filter.split(' ').collect();
            assert_eq!(rows(&[&["ss", "--json", "--pid", &pid], &filter[..]].concat()).len(), 1, "{filter:?}");
        }
        assert!(rows(&["ss", "--json", "path", "kernel", "and", "pid", &pid]).is_empty());
        let text = said(&["ss", "--pid", &pid]);
        assert!(text.contains("netstack:ring") && text.contains("bypath netstack sockets --name lab"), "{text}");

        let why = said(&["why", &pid]);
        let first = format!("{} to {}, on the netstack service lab", talk.names[0], talk.names[1]);
        for words in [&first, "shares with the service", "bypath netstack sockets --name lab --json (this one: "] {
            assert!(why.contains(words), "{words}: {why}");
        }
        assert!(!why.contains("bypath run -- PROGRAM"), "{why}");
        // The cookie is the service's.
        let cookie = why.split("(this one: ").nth(1).expect("a cookie")[..16].to_owned();
        let mut sockets = bypath(["netstack", "sockets", "--name=lab", "--json"]);
        let sockets = sockets.env("BYPATH_NETSTACK_DIR", folder.path()).output().expect("bypath starts");
        let sockets: Vec<Value> = serde_json::from_slice(&sockets.stdout).expect("JSON");
        let its = sockets.iter().find(|s| s["cookie"] == *cookie).expect("the socket");
        assert_eq!(its["local"], talk.names[0]);

        let top = rows(&["top", "--once", "--json", "-d", "0.1", "pid", &pid]);
        assert_eq!((&top[0]["path"], &top[0]["service"]), (&json!("netstack:ring"), &json!("lab")), "{top:?}");
        assert_eq!(top[0]["remote"], *talk.names[1]);
        // Where its octets are seen.
        let dump = bypath(["dump", "--seconds", "0.3", "--pid", &pid]).output().expect("bypath starts");
        let noted = crate::common::stderr(&dump);
        assert!(dump.status.success() && noted.contains("bypath netstack capture --name lab -w FILE"), "{noted}");
        assert_eq!(noted.matches("note: of sockets of").count(), 1, "{noted}");

        let metrics = said(&["metrics"]);
        assert!(metrics.contains("path=\"netstack:ring\",reason=\"ring\""), "{metrics}");
        talk.end();
        end(running);
    }
}

isolated! {
    fn loopback_has_rings_of_the_two_programs_beside_those_of_the_service() {
        if !have("views::loopback_has_rings_of_the_two_programs_beside_those_of_the_service") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &[&TAP[..], &["--name=lab"]].concat());
        let talks = [("127.0.0.1", "ring", Value::Null), ("10.9.0.1", "netstack:ring", json!("lab"))].map(|(at, path, of)| {
            (Talk::to(at, &folder, "tcp", &["--upgrade=eager"]), path, of)
        });
        let begun = Instant::now();
        let talks = talks.map(|(mut talk, path, of)| {
            let row = loop {
                talk = talk.does(20);
                let all = rows(&["ss", "--json", "--pid", &talk.pid()]);
                assert_eq!(all.len(), 1, "{all:?}");
                if all[0]["path"] == path {
                    break all[0].clone();
                }
                assert!(begun.elapsed() < LONG, "never {path}: {all:?}");
            };
            assert_eq!([&row["local"], &row["remote"]], [&json!(talk.names[0]), &json!(talk.names[1])], "{row}");
            assert_eq!(row["service"], of, "{row}");
            assert!(by_ring(&talk.pid()).iter().all(|octets| *octets > 0), "{row}");
            talk
        });
        // So it is seen by who is called; and the service has never heard of it.
        let all = rows(&["ss", "--json", "--pid", &talks[0].server.id().to_string()]);
        assert_eq!((all.len(), &all[0]["path"], &all[0]["remote"]), (1, &json!("ring"), &json!(talks[0].names[0])), "{all:?}");
        let sockets: Vec<Value> = serde_json::from_slice(&crate::asked(&folder, &["sockets", "--name=lab", "--json"]).expect(0).stdout).expect("JSON");
        let locals: Vec<_> = sockets.iter().map(|s| &s["local"]).collect();
        assert_eq!(locals, [&json!(talks[1].names[0])], "{sockets:?}");
        talks.into_iter().for_each(Talk::end);
        end(running);
    }
}

isolated! {
    fn what_has_no_ring_goes_by_the_pair_and_nobody_is_told_to_start_the_other_end() {
        if !have("views::what_has_no_ring_goes_by_the_pair_and_nobody_is_told_to_start_the_other_end") {
            return;
        }
        let folder = TempDir::new();
        let file = folder.join("lab.toml");
        std::fs::write(&file, "[limits]\nring-octets = 0\n").expect("a file");
        let config = format!("--config={}", file.display());
        let running = service(&folder, &[&TAP[..], &["--name=lab", &config]].concat());
        let talk = Talk::new(&folder, "tcp", &["--upgrade=eager"]).does(50);
        let pid = talk.pid();
        let row = &rows(&["ss", "--json", "--pid", &pid])[0];
        assert_eq!((&row["path"], &row["tx"]["path"]), (&json!("netstack:pair"), &json!("pair")), "{row}");
        assert_eq!([&row["local"], &row["remote"]], [&json!(talk.names[0]), &json!(talk.names[1])], "{row}");
        let why = said(&["why", &pid]);
        assert!(why.contains("ring-octets = 0") && why.contains("the descriptor, because"), "{why}");
        assert!(!why.contains("the kernel"), "{why}");
        talk.end();

        // Of one that has carried next to nothing it is known to whom it goes.
        let talk = Talk::new(&folder, "tcp", &[]).does(1);
        let row = &rows(&["ss", "--json", "--pid", &talk.pid()])[0];
        assert_eq!((&row["path"], &row["remote"]), (&json!("netstack:pair"), &json!(talk.names[1])), "{row}");
        talk.end();
        end(running);
    }
}

/// What a connection of a process has moved by rings: sent, received.
fn by_ring(pid: &str) -> [u64; 2] {
    let row = &rows(&["ss", "--json", "--pid", pid])[0];
    ["ring_tx", "ring_rx"].map(|way| row["bytes"][way].as_u64().expect("a number"))
}

/// Octets of a capture from each of these two names since a time, and what is wrong with all of it.
fn captured(file: &Path, names: [&String; 2], since: f64) -> ([u64; 2], Vec<String>) {
    let tshark = |filter: &str, fields: &[&str]| {
        let mut command = Command::new("tshark");
        command.args(["-n", "-o", "tcp.check_checksum:TRUE", "-Y", filter, "-T", "fields"]);
        for field in fields {
            command.args(["-e", field]);
        }
        command.arg("-r");
        let output = command.arg(file).env("HOME", "/nonexistent").output().expect("tshark starts");
        stdout(&output).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let octets = names.map(|name| {
        let (ip, port) = name.rsplit_once(':').expect("a name");
        let since = format!("ip.src=={ip} && tcp.srcport=={port} && frame.time_epoch >= {since}");
        tshark(&since, &["tcp.len"]).iter().map(|len| len.parse::<u64>().expect("a length")).sum()
    });
    let wrong = "tcp.checksum.status==0 || tcp.analysis.retransmission || tcp.analysis.out_of_order || !tcp";
    let fields = ["frame.number", "ip.src", "tcp.seq", "tcp.ack", "tcp.len", "_ws.expert.message"];
    (octets, tshark(wrong, &fields))
}

/// So many trips are looked at, of five octets each.
const TRIPS: u32 = 500;
const OCTETS: u64 = 5 * TRIPS as u64;

/// Follows a conversation by `dump` with this filter, until all trips go by the rings of these programs and what is shown where is decided. Octets
/// of as many further trips that the file has, each way, and those missed.
fn dumped(folder: &TempDir, mut talk: Talk, pids: &[&str], filter: &[&str]) -> (Talk, [u64; 2], u64) {
    /// `dump` looks for connections five times a second.
    const DECIDED: Duration = Duration::from_millis(600);
    let begun = Instant::now();
    let file = folder.join("rings.pcapng");
    let mut dump = bypath(["dump", "-w"]);
    let dump = Tool::of({
        dump.arg(&file).args(filter);
        dump
    });
    let length = || std::fs::metadata(&file).map_or(0, |m| m.len());
    while length() == 0 {
        assert!(begun.elapsed() < LONG, "never begun");
    }
    let empty = length();
    let (mut whole_since, mut before) = (None, None);
    let since = loop {
        assert!(begun.elapsed() < LONG, "never on rings for long enough, with {} octets", length());
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs_f64();
        talk = talk.does(TRIPS);
        let after: Vec<_> = pids.iter().map(|pid| by_ring(pid)).collect();
        let is_whole = before.as_ref().is_some_and(|before: &Vec<[u64; 2]>| {
            before
                .iter()
                .flatten()
                .zip(after.iter().flatten())
                .all(|(before, after)| after - before == OCTETS)
        });
        let now = Instant::now();
        whole_since = is_whole.then(|| whole_since.unwrap_or(now));
        if length() > empty && whole_since.is_some_and(|since| now - since > DECIDED) {
            break since;
        }
        before = Some(after);
    };
    dump.signal(Signal::INT);
    let said = dump.end().expect(0).stderr;
    let missed = said.lines().last().and_then(|l| l.split(", ").nth(1)?.split(' ').next()?.parse().ok());
    let (octets, wrong) = captured(&file, [&talk.names[0], &talk.names[1]], since);
    assert!(wrong.is_empty(), "{wrong:?}: {said}");
    (talk, octets, missed.expect("a count"))
}

isolated! {
    fn dump_shows_what_goes_by_the_rings_of_a_connection() {
        const NAME: &str = "views::dump_shows_what_goes_by_the_rings_of_a_connection";
        if Command::new("tshark").arg("--version").output().is_err() {
            return skip(NAME, "tshark is not installed (Debian package tshark)");
        }
        if !have(NAME) {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &[&TAP[..], &["--name=lab"]].concat());
        let is_whole = |seen: [u64; 2], missed| {
            assert!(seen.iter().all(|seen| seen + missed >= OCTETS), "{seen:?} and {missed} of {OCTETS}");
            // Of one trip that was read late there may be more.
            assert!(seen.iter().all(|seen| *seen <= OCTETS + 5), "{seen:?} of {OCTETS}: something is there twice");
        };
        let talk = Talk::new(&folder, "tcp", &["--upgrade=eager"]);
        let pid = talk.pid();
        let (talk, seen, missed) = dumped(&folder, talk, &[&pid], &["--pid", &pid]);
        is_whole(seen, missed);
        talk.end();

        // Both ends are programs on the stack: each direction is shown once.
        let talk = Talk::to("10.9.0.2", &folder, "tcp", &["--upgrade=eager"]);
        let port = talk.names[1].rsplit_once(':').expect("a name").1.to_owned();
        let pids = [talk.pid(), talk.server.id().to_string()];
        let (talk, seen, missed) = dumped(&folder, talk, &[&pids[0], &pids[1]], &["port", &port]);
        is_whole(seen, missed);
        talk.end();
        end(running);
    }
}

isolated! {
    fn what_listens_is_known_as_the_services() {
        if !have("views::what_listens_is_known_as_the_services") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &[&TAP[..], &["--name=lab"]].concat());
        let mut listener = run(["--netstack=lab", "--", "python3", "-c"]);
        listener.arg("import socket, sys; s = socket.create_server(('10.9.0.2', 8000)); print(s.fileno(), flush=True); s.accept()");
        listener.env("BYPATH_NETSTACK_DIR", folder.path());
        let listener = Tool::of(listener).hears("\n");
        let pid = listener.id();
        assert!(rows(&["ss", "--json", "--pid", &pid.to_string()]).is_empty());
        let subject = format!("{pid}:{}", listener.heard().trim());
        let why = bypath(["why", &subject]).output().expect("bypath starts");
        let said = stdout(&why);
        assert_eq!(why.status.code(), Some(1), "{said}");
        assert!(said.contains("is a socket of the netstack service lab") && said.contains("sockets --name lab"), "{said}");
        listener.signal(Signal::KILL);
        listener.end();
        end(running);
    }
}

isolated! {
    fn datagrams_have_their_addresses_path_and_service() {
        if !have("views::datagrams_have_their_addresses_path_and_service") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &[&TAP[..], &["--name=lab"]].concat());
        let talk = Talk::new(&folder, "udp", &["--upgrade=eager"]).does(1000);
        let pid = talk.pid();
        assert!(rows(&["ss", "--json", "--pid", &pid]).is_empty());
        let all = rows(&["ss", "-u", "--json", "--pid", &pid]);
        assert_eq!(all.len(), 1, "{all:?}");
        let row = &all[0];
        assert_eq!([&row["local"], &row["remote"]], [&json!(talk.names[0]), &json!(talk.names[1])], "{row}");
        assert_eq!((&row["path"], &row["service"]), (&json!("netstack:ring"), &json!("lab")), "{row}");
        let count = |way: &str| {
            let path = |path: &str| row["datagrams"][format!("{path}_{way}")].as_u64().expect("a number");
            assert_eq!(path("kernel"), 0, "{row}");
            path("ring") + path("pair")
        };
        // Those before it was shown are not counted.
        assert!((990..=1000).contains(&count("tx")) && (990..=1000).contains(&count("rx")), "{row}");
        let why = said(&["why", &pid]);
        let first = format!("UDP, {} to {}, on the netstack service lab", talk.names[0], talk.names[1]);
        assert!(why.contains(&first) && why.contains("netstack sockets --name lab"), "{why}");
        talk.end();
        end(running);
    }
}
