//! How the bench ends, the far end on another host, and what is refused.

use crate::common::{BYPATH, TempDir};
use crate::network::{LONG, Tool, tool};
use bypath::l2;
use bypath_sys::netns;
use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// The processes below this one.
fn descendants(pid: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut open = vec![pid];
    while let Some(pid) = open.pop() {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|c| c.parse().ok()) {
                if found.insert(child) {
                    open.push(child);
                }
            }
        }
    }
    found
}

/// Whether a process runs; one that has ended and was not waited for does not.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn until(what: &str, mut there: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !there() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::yield_now();
    }
}

/// Starts a bench that would go on for long, ends it by this signal, and looks that nothing is left.
fn ends_by(test: &str, signal: rustix::process::Signal) {
    let folder = TempDir::new();
    let mut command = crate::common::bypath(["bench", "raw", "--case", "round-trip", "--size", "50"]);
    command.args(["--link", "veth", "--trips", "100000000"]).env("TMPDIR", folder.path());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut bench = command.spawn().expect("bypath starts");
    let mut all = BTreeSet::new();
    // The bench in its namespaces, and two ends.
    until("the ends of the bench", || {
        all = descendants(bench.id());
        all.len() >= 3 || bench.try_wait().expect("a status").is_some()
    });
    if bench.try_wait().expect("a status").is_some() {
        let output = bench.wait_with_output().expect("output");
        crate::network::skip(&format!("bench_raw::{test}"), &String::from_utf8_lossy(&output.stderr));
        return;
    }
    let pid = rustix::process::Pid::from_child(&bench);
    rustix::process::kill_process(pid, signal).expect("a process");
    let status = bench.wait().expect("a status");
    if signal != rustix::process::Signal::KILL {
        assert_eq!(status.code(), Some(3), "{status}");
    }
    // Namespaces and interfaces are those of these processes: they have no names, and go with the last of them.
    until("the end of all", || !all.iter().any(|pid| runs(*pid)));
    if signal != rustix::process::Signal::KILL {
        let left: Vec<_> = std::fs::read_dir(folder.path()).expect("a directory").flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    ends_by("ctrl_c", rustix::process::Signal::INT);
}

#[test]
fn a_bench_that_is_killed_takes_its_ends_along() {
    ends_by("killed", rustix::process::Signal::KILL);
}

/// Ends a bench by this signal when there are figures of the first rounds: they are told, and nothing is judged by them.
fn is_told_in_part(test: &str, signal: rustix::process::Signal) {
    let folder = TempDir::new();
    let (report, json) = (folder.path().join("out"), folder.path().join("records.json"));
    let mut command =
        crate::common::bypath(["bench", "raw", "--case", "throughput", "--size", "50", "--link", "lo"]);
    command.args([
        "--subject",
        "udp-sendto",
        "--subject",
        "raw-plain",
        "--rounds",
        "1000",
        "--seconds",
        "0.1",
    ]);
    command.arg("--report").arg(&report).arg(format!("--json={}", json.display()));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut bench = command.spawn().expect("bypath starts");
    // A packet socket that is open is a run of raw-plain, after one of udp-sendto. Once it was closed, both have figures.
    for open in [true, false, true] {
        until("a run of raw-plain", || {
            // All are in the namespace of the bench inside, but not the one outside.
            let is_open = descendants(bench.id()).iter().any(|pid| {
                let sockets = std::fs::read_to_string(format!("/proc/{pid}/net/packet")).unwrap_or_default();
                sockets.lines().count() > 1
            });
            is_open == open || bench.try_wait().expect("a status").is_some()
        });
    }
    let ended = bench.try_wait().expect("a status").is_some();
    if !ended {
        let pid = rustix::process::Pid::from_child(&bench);
        // Twice: timeout(1) sends one to the command and one to its group.
        for _ in 0..2 {
            rustix::process::kill_process(pid, signal).expect("a process");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    let output = bench.wait_with_output().expect("output");
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if ended && said.contains("no private network namespaces") {
        crate::network::skip(&format!("bench_raw::{test}"), &said);
        return;
    }
    assert_eq!(output.status.code(), Some(3), "{text}{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert!(
        text.contains("udp-sendto") && !text.contains("targets met") && !text.contains("TARGET"),
        "{text}"
    );
    let page = std::fs::read_to_string(report.join("report.html")).expect("a report");
    assert!(page.contains("udp-sendto") && !page.contains("Targets"), "{page}");
    let document: serde_json::Value =
        serde_json::from_slice(&std::fs::read(json).expect("records")).expect("JSON");
    let records = document["results"].as_array().expect("an array");
    for subject in ["udp-sendto", "raw-plain"] {
        let measured = |r: &serde_json::Value| r["subject"] == subject && r["median"].is_f64();
        assert!(records.iter().any(measured), "{subject}: {document}");
    }
}

#[test]
fn what_was_measured_before_ctrl_c_is_told_and_not_judged() {
    is_told_in_part("told_in_part_int", rustix::process::Signal::INT);
}

#[test]
fn what_was_measured_before_sigterm_is_told_and_not_judged() {
    is_told_in_part("told_in_part_term", rustix::process::Signal::TERM);
}

/// A far end in a namespace of its own, and addresses at both ends of the veth pair to it.
fn far() -> (netns::Namespace, Child) {
    let namespace = netns::Namespace::new().expect("a namespace");
    netns::veth("left", "right", Some(&namespace)).expect("a veth pair");
    let prepare = |name: &str, last: u8| {
        netns::set_up(name, true).expect("an interface that is up");
        netns::add_address(name, [198, 51, 100, last].into(), 24).expect("an address");
    };
    prepare("left", 1);
    let mut command = Command::new(BYPATH);
    command.args(["bench", "serve", "--iface", "right"]).stderr(Stdio::piped());
    let inside = namespace.run(|| {
        prepare("right", 2);
        command.spawn().expect("bypath starts")
    });
    let mut serve = inside.expect("inside");
    let mut line = String::new();
    let mut said = std::io::BufReader::new(serve.stderr.take().expect("a pipe"));
    std::io::BufRead::read_line(&mut said, &mut line).expect("a line");
    assert!(line.contains("waiting on right"), "{line}");
    // Nobody else reads it.
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    (namespace, serve)
}

isolated! {
    fn another_host_is_found_by_ip_and_by_hardware_address() {
        let (namespace, mut serve) = far();
        let mac = namespace.run(|| l2::Interface::named("right").expect("an interface").mac.to_string());
        let mac = mac.expect("inside");
        for peer in ["198.51.100.2", &mac] {
            let args = ["bench", "raw", "--iface", "left", "--peer", peer, "--rounds", "1", "--seconds", "0.03",
                "--size", "100", "--trips", "20", "--subject", "udp-sendto", "--subject", "raw-plain",
                "--subject", "raw-ring", "--json"];
            let ended = tool(&args).expect(0);
            let document: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("JSON");
            let records = document["results"].as_array().expect("an array");
            for (case, subject, metric) in [
                ("throughput", "udp-sendto", "received_frames_per_s"),
                ("throughput", "raw-plain", "received_frames_per_s"),
                ("throughput", "raw-ring", "received_frames_per_s"),
                ("round-trip", "udp-sendto", "round_trip_ns"),
                ("round-trip", "raw-ring", "round_trip_ns"),
                ("open-close", "raw-plain", "close_ns"),
            ] {
                let fits = |r: &&serde_json::Value| {
                    r["case"] == case && r["subject"] == subject && r["metric"] == metric && r["link"] == "peer"
                };
                let record = records.iter().find(fits).unwrap_or_else(|| panic!("{case} {subject} {metric}"));
                // The machine may be busy: what is lost then is said.
                let lossy = case == "throughput" && record["status"] == "lossy";
                assert!(record["status"] == "ok" || lossy, "{record}");
            }
        }
        let pid = rustix::process::Pid::from_child(&serve);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a process");
        assert!(serve.wait().expect("a status").success());
    }
}

isolated! {
    fn a_peer_that_is_not_there_is_told_with_what_to_do() {
        netns::veth("left", "right", None).expect("a veth pair");
        netns::set_up("left", true).expect("up");
        netns::set_up("right", true).expect("up");
        let ended = tool(&["bench", "raw", "--iface", "left", "--peer", "02:00:00:00:00:09"]).expect(1);
        assert!(ended.stderr.contains("does not answer") && ended.stderr.contains("bench serve"), "{}", ended.stderr);
        let ended = tool(&["bench", "raw", "--iface", "nil0", "--peer", "127.0.0.1"]).expect(1);
        assert!(ended.stderr.contains("nil0") && ended.stderr.contains("left"), "{}", ended.stderr);
    }
}

isolated! {
    fn without_namespaces_it_says_what_to_do() {
        std::fs::write("/proc/sys/user/max_net_namespaces", "0").expect("a limit of this namespace");
        let ended = tool(&["bench", "raw", "--quick"]).expect(1);
        let said = &ended.stderr;
        assert!(said.contains("no private network namespaces") && said.contains("sysctl -w"), "{said}");
    }
}

#[test]
fn the_help_says_what_the_exit_status_means() {
    for command in ["raw", "serve"] {
        let ended = tool(&["bench", command, "--help"]).expect(0);
        assert!(ended.text().contains("Exit status: 0 "), "{}", ended.text());
    }
}

#[test]
fn wrong_usage_is_told() {
    for (args, what) in [
        (&["--peer", "192.0.2.1"][..], "--iface"),
        (&["--size", "20"], "46..=65000"),
        (&["--case", "roundtrip"], "round-trip"),
        (&["--inject-loss", "1"], "from 2 on"),
    ] {
        let ended = Tool::start(&[&["bench", "raw"], args].concat()).end().expect(2);
        assert!(ended.stderr.contains(what), "{}", ended.stderr);
    }
}

isolated! {
    fn an_address_that_cannot_be_served_is_told_with_what_to_do() {
        crate::network::veth();
        crate::network::address("left", "10.0.0.1");
        let serve = |at: &str| tool(&["bench", "serve", "--iface", "left", "--listen", at]).expect(1).stderr;
        let told = serve("192.0.2.9");
        assert!(told.contains("cannot listen on 192.0.2.9:7709") && told.contains("left has: 10.0.0.1"), "{told}");
        let _taken = std::net::TcpListener::bind(("10.0.0.1", 7709)).unwrap();
        let told = serve("10.0.0.1");
        assert!(told.contains("another program has this port") && told.contains("--listen 10.0.0.1:7710"), "{told}");
    }
}
