//! `bypath bench stack` as a user meets it. No time is judged: these tests ask whether the bench works, and what it leaves
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
use serde_json::Value;

#[test]
fn there_is_a_record_for_every_case_of_udp_subject_and_metric() {
    let args = ["--quick", "--json", "--case", "device-write", "--case", "receive-udp"];
    let Some(ended) = bench::run("stack", "records", &args) else { return };
    let records = bench::records(ended);
    let of = |case: &str, subject: &str, size: u32, metric: &str| {
        let fits = |r: &&Value| {
            r["case"] == case && r["subject"] == subject && r["size"] == size && r["metric"] == metric
        };
        let found: Vec<_> = records.iter().filter(fits).collect();
        assert_eq!(found.len(), 1, "{case} {subject} {size} {metric}: {found:#?}");
        assert_eq!(
            (&found[0]["bench"], &found[0]["status"]),
            (&"stack".into(), &"ok".into()),
            "{}",
            found[0]
        );
        (found[0]["median"].as_f64().expect("a number"), found[0]["unit"].clone())
    };
    let subjects =
        ["checksum", "offload", "queued-checksum", "queued-offload", "engine-checksum", "engine-offload"];
    for subject in subjects {
        for size in (0..12).map(|n| 1 << n) {
            let (ns, unit) = of("device-write", subject, size, "ns_per_op");
            assert!(ns > 1.0 && unit == "ns", "{subject} {size}: {ns} {unit}");
            // This is no matter of speed: it holds on any machine.
            assert_eq!(of("device-write", subject, size, "allocs_per_op"), (0.0, "1".into()));
            assert_eq!(of("device-write", subject, size, "bytes_per_op"), (0.0, "B".into()));
        }
    }
    for idle in [1, 100, 10_000, 100_000, 1_000_000] {
        let (ns, _) = of("receive-udp", &format!("idle-{idle}"), 64, "ns_per_op");
        assert!(ns > 1.0, "{idle}: {ns}");
    }
    assert_eq!(records.len(), subjects.len() * 12 * 3 + 5);
}

/// Cases of TCP, in a run of their own: --quick begins nothing after 24 seconds.
#[test]
fn there_is_a_record_for_every_case_of_tcp() {
    let cases = ["pair-stream", "pair-pingpong", "pair-churn", "memory", "receive-tcp"];
    let mut args = vec!["--quick", "--json"];
    args.extend(cases.iter().flat_map(|case| ["--case", case]));
    let Some(ended) = bench::run("stack", "tcp", &args) else { return };
    let records = bench::records(ended);
    let of = |case: &str, subject: &str, metric: &str, unit: &str| {
        let fits = |r: &&Value| {
            r["case"] == case && r["subject"] == subject && r["metric"] == metric && r["unit"] == unit
        };
        let found: Vec<_> = records.iter().filter(fits).collect();
        assert_eq!(found.len(), 1, "{case} {subject} {metric}: {found:#?}");
        assert_eq!(
            (&found[0]["bench"], &found[0]["status"]),
            (&"stack".into(), &"ok".into()),
            "{}",
            found[0]
        );
        found[0]["median"].as_f64().expect("a number")
    };
    for subject in ["mtu-1500", "mtu-65535", "mtu-65535-nosum"] {
        for subject in [subject.to_owned(), format!("{subject}-copied")] {
            assert!(of("pair-stream", &subject, "bits_per_s", "bit/s") > 1e6, "{subject}");
        }
    }
    assert!(of("pair-pingpong", "mtu-1500", "round_trip_ns", "ns") > 1.0);
    assert!(of("pair-churn", "mtu-1500", "connections_per_s", "1/s") > 1.0);
    // This is no matter of speed, either: all connections are there, and none has its buffers.
    let octets = of("memory", "idle", "bytes_per_connection", "B");
    assert!((100.0..2048.0).contains(&octets), "{octets}");
    for idle in [1, 100, 10_000, 100_000, 1_000_000] {
        assert!(of("receive-tcp", &format!("idle-{idle}"), "ns_per_op", "ns") > 1.0, "{idle}");
    }
    assert_eq!(records.len(), 6 + 1 + 1 + 1 + 5);
}

/// Streams between the stack and the kernel, each in namespaces of its own.
#[test]
fn there_is_a_record_for_every_way_to_the_kernel() {
    let cases = ["kernel-peer-send", "kernel-peer-receive"];
    let args = ["--quick", "--json", "--case", cases[0], "--case", cases[1]];
    let Some(ended) = bench::run("stack", "kernel_peer", &args) else { return };
    let records = bench::records(ended);
    let metrics = [("bits_per_s", None), ("cpu_s_per_gb", Some("own")), ("cpu_s_per_gb", Some("peer"))];
    for case in cases {
        for subject in ["tap", "tun", "packet", "kernel-veth"] {
            for (metric, mode) in metrics {
                let fits = |r: &&Value| {
                    let words = r["case"] == case && r["subject"] == subject && r["metric"] == metric;
                    words && r["mode"].as_str() == mode
                };
                let found: Vec<_> = records.iter().filter(fits).collect();
                assert_eq!(found.len(), 1, "{case} {subject} {metric}: {found:#?}");
                if found[0]["status"] == "skipped" {
                    network::skip("bench_stack::kernel_peer", &found[0]["reason"].to_string());
                    continue;
                }
                assert_eq!(found[0]["status"], "ok", "{}", found[0]);
                assert!(found[0]["median"].as_f64().expect("a number") > 0.0, "{}", found[0]);
            }
        }
    }
    assert_eq!(records.len(), 2 * 4 * 3);
}

#[test]
fn the_section_joins_a_page_that_is_there() {
    let words = ["WritePacket/checksum/2048", "ns/op", "0 B/op", "0 allocs/op"];
    let args = ["--quick", "--case", "device-write", "--size", "2048"];
    bench::joins_a_page("stack", &args, &words, "The TCP/IP stack", "device-write,checksum,,2048,ns_per_op,");
}

/// An allocation that nobody should see counted as none: the process that counts looks first whether it can.
#[test]
fn a_process_whose_allocations_are_not_counted_says_so() {
    let folder = TempDir::new();
    let counts = folder.join("counts");
    std::fs::write(&counts, [0; 16]).expect("a file");
    let mut command = common::bypath(["bench", "allocations", "--subject", "checksum", "--size", "64"]);
    command.env("BYPATH_BENCH_COUNTS", &counts);
    let out = command.output().expect("started");
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && stderr.contains("cannot be counted here"), "{stderr}");
}

#[test]
fn a_profile_shows_what_writes_call() {
    let missing = |program: &str| std::process::Command::new(program).arg("--version").output().is_err();
    if missing("addr2line") || missing("cc") {
        network::skip("bench_stack::profile", "no addr2line or no cc");
        return;
    }
    let folder = TempDir::new();
    let file = folder.join("writes.svg");
    let place = file.to_str().expect("UTF-8");
    let args = ["--quick", "--case", "device-write", "--size", "64", "--profile", place];
    let Some(ended) = bench::run("stack", "profile", &args) else { return };
    ended.expect(0);
    let svg = std::fs::read_to_string(&file).expect("a picture");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    for name in ["Writer::stretch", "send_through"] {
        assert!(svg.contains(name), "{name}: {svg}");
    }
}

#[test]
fn wrong_values_are_told() {
    for args in [
        &["bench", "stack", "--size", "0"][..],
        &["bench", "stack", "--size", "65508"],
        &["bench", "stack", "--case", "no"],
    ] {
        tool(args).expect(2);
    }
    let away = "/nonexistent/writes.svg";
    let args = ["bench", "stack", "--quick", "--case", "device-write", "--size", "1", "--profile", away];
    let ended = tool(&args);
    assert!(ended.code() == Some(1) && ended.stderr.contains(away), "{}", ended.stderr);
}
