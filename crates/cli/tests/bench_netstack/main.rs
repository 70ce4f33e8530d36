//! `bypath bench netstack` as a user meets it. No figure is judged: these tests ask whether the bench works, and what it leaves
//! behind.

#[path = "../common/bench.rs"]
mod bench;
#[path = "../common/mod.rs"]
mod common;
#[macro_use]
#[path = "../l2_tools/network.rs"]
#[allow(dead_code, unused_macros, reason = "a part is used")]
mod network;

use common::TempDir;
use network::tool;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Child, Stdio};
use std::time::Instant;

/// A record of a run.
struct Records(Vec<Value>);

impl Records {
    /// The median of the only one that there is; `None` where it was skipped, which is said.
    #[track_caller]
    fn median(&self, case: &str, subject: &str, mode: Option<&str>, metric: &str, unit: &str) -> Option<f64> {
        let fits = |r: &&Value| {
            let words = r["case"] == case && r["subject"] == subject && r["metric"] == metric;
            words && r["mode"].as_str() == mode && r["unit"] == unit
        };
        let found: Vec<_> = self.0.iter().filter(fits).collect();
        assert_eq!(found.len(), 1, "{case} {subject} {mode:?} {metric}: {found:#?}");
        assert_eq!(found[0]["bench"], "netstack");
        // Devices, AF_XDP and redis are not everywhere; two cores are not, either.
        if found[0]["status"] == "skipped"
            && (["tap", "xdp"].contains(&subject) || case == "redis" || mode == Some("spin"))
        {
            network::skip(&format!("bench_netstack::{case}"), &found[0]["reason"].to_string());
            return None;
        }
        assert_eq!(found[0]["status"], "ok", "{}", found[0]);
        Some(found[0]["median"].as_f64().expect("a number"))
    }

    /// The main figure, and the time of the processors of each process: none takes nothing.
    #[track_caller]
    fn has(&self, case: &str, subject: &str, [metric, unit, cpu]: [&str; 3]) {
        let Some(figure) = self.median(case, subject, None, metric, unit) else { return };
        assert!(figure > 1.0, "{case} {subject}: {figure}");
        let service = ["packet", "tap", "xdp"].contains(&subject).then_some("service");
        for who in ["program", "peer"].into_iter().chain(service) {
            let ns = self.median(case, subject, Some(who), cpu, "ns").expect("not skipped");
            assert!(ns > 0.0, "{case} {subject} {who}: {ns}");
        }
    }
}

const SUBJECTS: [&str; 5] = ["kernel-veth", "packet", "tap", "xdp", "in-process"];

#[test]
fn there_is_a_record_for_every_case_of_two_programs() {
    let cases = ["pingpong", "bulk-send", "bulk-receive", "churn"];
    let mut args = vec!["--rounds", "1", "--json"];
    args.extend(cases.iter().flat_map(|case| ["--case", case]));
    let Some(ended) = bench::run("netstack", "pairs", &args) else { return };
    let records = Records(bench::records(ended));
    for subject in SUBJECTS {
        for spin in ["spin", "block"] {
            let ns = records.median("pingpong", subject, Some(spin), "round_trip_ns", "ns");
            assert!(ns.is_none_or(|ns| ns > 1000.0), "{subject} {spin}: {ns:?}");
        }
        for case in ["bulk-send", "bulk-receive"] {
            records.has(case, subject, ["bits_per_s", "bit/s", "cpu_ns_per_byte"]);
        }
        records.has("churn", subject, ["connections_per_s", "1/s", "cpu_ns_per_request"]);
    }
    // Five subjects, of which three have a service: for each of five rows a figure, and the times of two or three processes.
    assert_eq!(records.0.len(), 5 * (5 + 2 * 5 + 3));
}

#[test]
fn there_is_a_record_for_what_rests_and_for_redis() {
    let args = [
        "--rounds",
        "1",
        "--json",
        "--case",
        "idle",
        "--case",
        "redis",
        "--connections",
        "50",
        "--busy-poll",
        "50",
    ];
    let Some(ended) = bench::run("netstack", "idle", &args) else { return };
    let records = Records(bench::records(ended));
    for subject in ["packet", "tap", "xdp"] {
        let share = records.median("idle", subject, None, "idle_cpu_share", "cores");
        assert!(share.is_none_or(|share| (0.0..0.5).contains(&share)), "{subject}: {share:?}");
    }
    for subject in &SUBJECTS[..4] {
        records.has("redis", subject, ["requests_per_s", "1/s", "cpu_ns_per_request"]);
    }
    assert_eq!(records.0.len(), 3 + 4 * 3 + 3);
    let noted =
        |r: &&Value| r["reason"].as_str().is_some_and(|reason| reason.contains("looks for work for 50 us"));
    assert!(records.0.iter().any(|r| r["subject"] == "packet" && noted(&r)), "{:#?}", records.0);
    assert!(!records.0.iter().any(|r| r["subject"] == "kernel-veth" && noted(&r)));
}

#[test]
fn the_section_joins_a_page_that_is_there() {
    let words = ["x KERNEL", "program has core", "bulk-send, packet", ">= 0.5 x kernel-veth"];
    let mut args = vec!["--rounds", "2", "--case", "bulk-send"];
    args.extend(["--subject", "kernel-veth", "--subject", "packet"]);
    if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
        network::skip("bench_netstack::report", "one core only: the report says nothing of two");
        return;
    }
    bench::joins_a_page(
        "netstack",
        &args,
        &words,
        "The netstack service",
        "bulk-send,packet,,65536,bits_per_s,",
    );
}

/// The processes below this one.
fn descendants(pid: u32) -> BTreeSet<u32> {
    let (mut found, mut open) = (BTreeSet::new(), vec![pid]);
    while let Some(pid) = open.pop() {
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let new = children.split_whitespace().filter_map(|c| c.parse().ok());
            open.extend(new.filter(|child| found.insert(*child)));
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
    let end = Instant::now() + network::LONG;
    while !there() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::yield_now();
    }
}

/// Starts a bench that would go on for long, ends it by this signal when both programs talk, and looks that nothing is left.
fn ends_by(test: &str, signal: Signal) {
    let folder = TempDir::new();
    let args = ["bench", "netstack", "--case", "bulk-send", "--subject", "packet", "--seconds", "3600"];
    let mut command = common::bypath(args);
    command.env("TMPDIR", folder.path()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut bench = command.spawn().expect("bypath starts");
    let mut all = BTreeSet::new();
    let ended = |bench: &mut Child| bench.try_wait().expect("a status").is_some();
    // The bench in its namespaces, the service, and two programs.
    until("the programs of the bench", || {
        all = descendants(bench.id());
        all.len() >= 4 || ended(&mut bench)
    });
    if ended(&mut bench) {
        let output = bench.wait_with_output().expect("output");
        return network::skip(&format!("bench_netstack::{test}"), &String::from_utf8_lossy(&output.stderr));
    }
    kill_process(Pid::from_child(&bench), signal).expect("a process");
    let status = bench.wait().expect("a status");
    if signal != Signal::KILL {
        assert_eq!(status.code(), Some(3), "{status}");
    }
    // Namespaces and interfaces have no names, and go with the last of these processes.
    until("the end of all", || !all.iter().any(|pid| runs(*pid)));
    if signal != Signal::KILL {
        let left: Vec<_> = std::fs::read_dir(folder.path()).expect("a directory").flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn signals_leave_nothing_behind() {
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        ends_by("signals", signal);
    }
}

#[test]
fn wrong_values_are_told() {
    for args in [
        &["bench", "netstack", "--connections", "0"][..],
        &["bench", "netstack", "--subject", "no"],
        &["bench", "netstack", "--case", "no"],
    ] {
        tool(args).expect(2);
    }
}
