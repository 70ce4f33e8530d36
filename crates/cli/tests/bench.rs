//! `bypath bench` as a user meets it. No figure is judged: these tests ask whether the bench works, not how fast
//! anything is.

mod common;

use common::preload_library;
use serde_json::Value;
use std::io::Write as _;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// What `--quick` begins no run after.
const QUICK_LIMIT: Duration = Duration::from_secs(24);

fn bench(args: &[&str]) -> Output {
    common::bypath(["bench"]).args(args).output().expect("bypath starts")
}

/// With the library of this build for what runs under Bypath.
fn bench_with_library(args: &[&str]) -> Output {
    let mut command = common::bypath(["bench"]);
    command.env("BYPATH_LIBRARY", preload_library()).args(args).output().expect("bypath starts")
}

fn records(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {text}\n{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(document["schema"], 1);
    assert!(document["machine"]["cpu"].is_string() && document["machine"]["cores"].is_u64());
    document["results"].as_array().expect("an array").clone()
}

#[test]
fn every_case_of_loopback_measures_the_kernels_paths() {
    let subjects = ["--subject", "kernel-tcp", "--subject", "kernel-udp", "--subject", "unix"];
    for (case, metric) in [
        ("pingpong", "one_way_ns"),
        ("sleep", "one_way_ns"),
        ("stream", "messages_per_s"),
        ("bulk", "bytes_per_s"),
        ("udp-pingpong", "one_way_ns"),
        ("udp-stream", "messages_per_s"),
        ("churn", "connections_per_s"),
        ("oversubscribed", "messages_per_s"),
        ("idle", "epoll_wait_ns"),
        ("foreign-call", "ns_per_call"),
        ("fork", "fork_ns"),
        ("fork", "fork_exec_ns"),
    ] {
        let mut args = vec!["loopback", "--json", "--rounds", "2", "--seconds", "0.02", "--case", case];
        args.extend(subjects);
        args.extend(["--connections", "50", "--quick"]);
        let begun = Instant::now();
        let output = bench(&args);
        // Where others have the processors --quick leaves out what it has no time for, and nothing anywhere else.
        let has_time = begun.elapsed() < QUICK_LIMIT;
        let records = records(&output);
        assert!(
            output.status.success(),
            "{case}: {}{:#?}",
            String::from_utf8_lossy(&output.stderr),
            records.iter().filter(|r| r["status"] == "failed").map(|r| &r["reason"]).collect::<Vec<_>>()
        );
        let of_metric: Vec<_> = records.iter().filter(|r| r["metric"] == metric).collect();
        assert!(!of_metric.is_empty(), "{case} has no {metric}");
        for record in of_metric {
            assert_eq!((&record["bench"], &record["case"]), (&"loopback".into(), &case.into()));
            let is_skipped = record["status"] == "skipped";
            let spins_on_one_core = is_skipped && record["mode"] == "spin";
            let is_late = is_skipped && record["reason"] == "the time of --quick was used up" && !has_time;
            assert!(spins_on_one_core || is_late || record["status"] == "ok", "{record}");
            if !is_skipped {
                assert!(record["median"].as_f64().is_some_and(|m| m > 0.0), "{record}");
                let runs = record["run_medians"].as_array().map(Vec::len);
                assert!(runs == Some(2) || runs == Some(1) && !has_time, "{record}");
            }
        }
    }
}

#[test]
fn forking_is_measured_without_and_with_an_upgraded_connection() {
    let args = ["loopback", "--json", "--rounds", "1", "--seconds", "0.02", "--case", "fork"];
    let output = bench_with_library(&args);
    let records = records(&output);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for metric in ["fork_ns", "fork_exec_ns"] {
        for (subject, connections) in [("kernel-tcp", 0), ("bypath", 0), ("kernel-tcp", 1), ("bypath", 1)] {
            let fits =
                |r: &&Value| r["metric"] == metric && r["subject"] == subject && r["burst"] == connections;
            let record =
                records.iter().find(fits).unwrap_or_else(|| panic!("{metric}, {subject}: no record"));
            // A reason would say that the connection was not upgraded.
            assert!(record["status"] == "ok" && record["reason"].is_null(), "{record}");
            assert!(record["n"].as_u64().is_some_and(|n| n >= 20) && record["unit"] == "ns", "{record}");
        }
    }
}

#[test]
fn datagrams_are_measured_beside_the_kernels_and_the_floor() {
    let args = ["loopback", "--json", "--rounds", "1", "--seconds", "0.02", "--size", "64"];
    let output =
        bench_with_library(&[&args[..], &["--case", "udp-pingpong", "--case", "udp-stream"]].concat());
    let records = records(&output);
    assert!(output.status.success(), "{records:#?}{}", String::from_utf8_lossy(&output.stderr));
    for subject in ["kernel-udp", "bypath", "channel", "floor"] {
        for (case, metric) in
            [("udp-pingpong", "one_way_ns"), ("udp-stream", "messages_per_s"), ("udp-stream", "loss_ratio")]
        {
            let fits = |r: &&Value| r["case"] == case && r["metric"] == metric && r["subject"] == subject;
            let found: Vec<_> = records.iter().filter(fits).collect();
            assert!(!found.is_empty(), "{subject}: no {metric} of {case}");
            for record in found.into_iter().filter(|r| r["status"] != "skipped") {
                let value = record["median"].as_f64().expect("a figure");
                assert!(
                    if metric == "loss_ratio" { (0.0..1.0).contains(&value) } else { value > 0.0 },
                    "{record}"
                );
                assert!(record["cc"].is_null(), "{record}");
                // Whose programs sleep is the machine's affair; that Bypath has counted them is not.
                assert_ne!(record["reason"], "no bytes were counted by Bypath", "{record}");
            }
        }
    }
}

#[test]
fn what_looks_on_is_measured_beside_nobody() {
    let output =
        bench_with_library(&["loopback", "--json", "--rounds", "1", "--seconds", "0.1", "--case", "watched"]);
    let records = records(&output);
    assert!(output.status.success(), "{records:#?}{}", String::from_utf8_lossy(&output.stderr));
    let rates: Vec<_> = records.iter().filter(|r| r["metric"] == "bytes_per_s").collect();
    let who: Vec<_> = rates.iter().map(|r| r["link"].as_str().unwrap_or_default()).collect();
    assert_eq!(who, ["nobody", "top", "metrics", "dump"]);
    for rate in rates {
        assert!(rate["median"].as_f64().is_some_and(|m| m > 0.0), "{rate}");
        assert_ne!(rate["reason"], "no bytes were counted by Bypath", "{rate}");
    }
}

/// One round of an application: each subject has all metrics, or says what is missing.
fn measures(app: &str, metrics: &[(&str, &str)]) {
    let args = ["apps", "--json", "--rounds", "1", "--seconds", "0.02", "--case", app];
    let output = bench_with_library(&args);
    let records = records(&output);
    assert!(output.status.success(), "{app}: {records:#?}");
    if let Some(record) = records.iter().find(|r| r["status"] == "skipped") {
        let reason = record["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("Debian package: ") || reason.contains("mkdir"), "{record}");
        if let Some(file) = std::env::var_os("BYPATH_TEST_SKIPS") {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(file);
            file.expect("the list of skips")
                .write_all(format!("bench::{app}\t{reason}\n").as_bytes())
                .expect("the list of skips");
        }
        return;
    }
    for (metric, unit) in metrics {
        for subject in ["kernel-tcp", "bypath"] {
            let record = records.iter().find(|r| r["metric"] == *metric && r["subject"] == subject);
            let record = record.unwrap_or_else(|| panic!("{app}, {subject}: no {metric}: {records:#?}"));
            assert_eq!(record["unit"], *unit, "{record}");
            assert!(record["median"].as_f64().is_some_and(|m| m > 0.0), "{record}");
        }
    }
}

const REQUESTS: [(&str, &str); 2] = [("requests_per_s", "1/s"), ("cpu_ns_per_request", "ns")];
const BYTES: [(&str, &str); 2] = [("bytes_per_s", "B/s"), ("cpu_s_per_gb", "s/GB")];

#[test]
fn servers_of_requests_are_measured_with_their_processor_time() {
    for app in ["memcached", "nginx"] {
        measures(app, &REQUESTS);
    }
}

#[test]
fn postgres_is_measured_with_the_processor_time_of_its_workers() {
    measures("postgres", &REQUESTS);
}

#[test]
fn transfers_are_measured_with_their_processor_time() {
    for app in ["scp", "rsync", "rsync-ssh"] {
        measures(app, &BYTES);
    }
    measures("iperf3", &[("bits_per_s", "bit/s"), ("cpu_s_per_gb", "s/GB")]);
}

#[test]
fn the_bare_ring_stands_beside_a_plain_one() {
    let args = ["loopback", "--json", "--quick", "--rounds", "1", "--case", "pingpong", "--case", "stream"];
    let output = bench(&[&args[..], &["--subject", "floor", "--subject", "pipe"]].concat());
    let records = records(&output);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for link in ["shm", "shm-c"] {
        let found = records.iter().filter(|r| r["subject"] == "floor" && r["link"] == link);
        assert!(found.clone().count() >= 2, "{link} is missing");
        for record in found {
            assert!(record["status"] == "ok" || record["reason"].is_string(), "{record}");
        }
    }
}

#[test]
fn channels_of_octets_are_measured_beside_the_bare_ring() {
    let args = ["loopback", "--json", "--rounds", "1", "--seconds", "0.02", "--case", "pingpong"];
    let args = [&args[..], &["--size", "14", "--size", "1400", "--subject", "channel", "--subject", "floor"]];
    let output = bench(&args.concat());
    let records = records(&output);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for size in [14, 1400] {
        for subject in ["floor", "channel"] {
            let fits = |r: &&Value| {
                [&r["subject"], &r["mode"], &r["metric"]] == [subject, "spin", "one_way_ns"]
                    && r["size"] == size
            };
            let record = records.iter().find(fits).unwrap_or_else(|| panic!("{subject}: {records:#?}"));
            assert!(record["median"].as_f64().is_some_and(|ns| ns > 0.0), "{record}");
        }
    }
}

#[test]
fn a_missing_program_is_skipped_with_its_package() {
    let output = Command::new(env!("CARGO_BIN_EXE_bypath"))
        .args(["bench", "apps", "--quick", "--json"])
        .args(["--case", "sockperf", "--case", "redis", "--case", "scp", "--case", "rsync"])
        .env("PATH", "/nonexistent")
        .output()
        .expect("bypath starts");
    let records = records(&output);
    assert!(output.status.success() && !records.is_empty());
    for record in records {
        assert_eq!(record["status"], "skipped");
        let reason = record["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("Debian package: "), "{reason}");
        assert!(record["median"].is_null() && record["n"].is_null());
    }
}

#[test]
fn text_names_each_subject_and_the_targets() {
    let output = bench(&["loopback", "--quick", "--rounds", "1", "--case", "bulk", "--subject", "unix"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("unix") && text.contains("bytes_per_s"), "{text}");
    let wrong = bench(&["loopback", "--case", "pingpnog"]);
    let error = String::from_utf8_lossy(&wrong.stderr);
    assert!(!wrong.status.success() && error.contains("pingpong"), "{error}");
}
