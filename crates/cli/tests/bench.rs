//! `bypath bench` as a user meets it. No figure is judged: these tests ask whether the bench works, not how fast
//! anything is.

use serde_json::Value;
use std::process::{Command, Output};

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bypath")).arg("bench").args(args).output().expect("bypath starts")
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
    let subjects = ["--subject", "kernel-tcp", "--subject", "unix"];
    for (case, metric) in [
        ("pingpong", "one_way_ns"),
        ("sleep", "one_way_ns"),
        ("stream", "messages_per_s"),
        ("bulk", "bytes_per_s"),
        ("churn", "connections_per_s"),
        ("oversubscribed", "messages_per_s"),
        ("idle", "epoll_wait_ns"),
        ("foreign-call", "ns_per_call"),
    ] {
        let mut args = vec!["loopback", "--json", "--rounds", "2", "--seconds", "0.02", "--case", case];
        args.extend(subjects);
        args.extend(["--connections", "50", "--quick"]);
        let output = bench(&args);
        let records = records(&output);
        assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr));
        let of_metric: Vec<_> = records.iter().filter(|r| r["metric"] == metric).collect();
        assert!(!of_metric.is_empty(), "{case} has no {metric}");
        for record in of_metric {
            assert_eq!((&record["bench"], &record["case"]), (&"loopback".into(), &case.into()));
            let spins_on_one_core = record["status"] == "skipped" && record["mode"] == "spin";
            assert!(spins_on_one_core || record["status"] == "ok", "{record}");
            if !spins_on_one_core {
                assert!(record["median"].as_f64().is_some_and(|m| m > 0.0), "{record}");
                assert_eq!(record["run_medians"].as_array().map(Vec::len), Some(2), "{record}");
            }
        }
    }
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
fn a_missing_program_is_skipped_with_its_package() {
    let output = Command::new(env!("CARGO_BIN_EXE_bypath"))
        .args(["bench", "apps", "--quick", "--case", "sockperf", "--case", "redis", "--json"])
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
