//! Records.

use crate::common::TempDir;
use crate::{measure, median, record, run};
use serde_json::Value;

const UDP: [&str; 4] = ["udp-sendto", "udp-connected", "udp-mmsg", "udp-gso"];
const RAW: [&str; 2] = ["raw-plain", "raw-ring"];
const LINKS: [&str; 2] = ["lo", "veth"];

/// Measured, or not possible here with a reason.
fn is_told(record: &Value) -> bool {
    match record["status"].as_str() {
        // The machine may be busy.
        Some("ok" | "lossy") => record["median"].is_f64(),
        Some("skipped") => record["subject"] == "xdp" && record["reason"].is_string(),
        _ => false,
    }
}

#[test]
fn throughput_has_a_record_for_every_link_subject_and_metric() {
    let args = ["--case", "throughput", "--size", "50", "--size", "1400"];
    let Some(records) = measure("throughput", &args) else { return };
    for link in LINKS {
        for size in [50, 1400] {
            for subject in UDP.iter().chain(&RAW).chain(&["xdp"]) {
                for (metric, unit) in [
                    ("received_bytes_per_s", "B/s"),
                    ("received_frames_per_s", "1/s"),
                    ("loss_ratio", "1"),
                    ("corrupt_frames", "frames"),
                    ("cpu_ns_per_frame_tx", "ns"),
                    ("cpu_ns_per_frame_rx", "ns"),
                ] {
                    let fields =
                        [("case", "throughput"), ("link", link), ("subject", subject), ("metric", metric)];
                    let record = record(&records, &fields, Some(size));
                    assert!(record["bench"] == "raw" && record["unit"] == unit, "{record}");
                    assert!(is_told(record), "{record}");
                    if record["status"] != "skipped" {
                        let least =
                            if metric == "loss_ratio" || metric == "corrupt_frames" { 0.0 } else { 1.0 };
                        assert!(median(record) >= least, "{record}");
                        assert!(metric != "corrupt_frames" || median(record) == 0.0, "{record}");
                    }
                }
            }
            let of = |subject, metric| {
                let fields =
                    [("case", "throughput"), ("link", link), ("subject", subject), ("metric", metric)];
                record(&records, &fields, Some(size))
            };
            // What only sends has received nothing, and says so.
            for subject in ["raw-sender-only", "udp-sender-only"] {
                assert!(median(of(subject, "sent_frames_per_s")) > 1.0);
                assert_eq!(median(of(subject, "received_frames_per_s")), 0.0);
                assert_eq!(median(of(subject, "loss_ratio")), 1.0);
                let reason = of(subject, "sent_bytes_per_s")["reason"].as_str().unwrap_or_default();
                assert!(reason.starts_with("sent, not received"), "{reason}");
            }
        }
    }
}

#[test]
fn round_trips_are_measured_blocking_and_spinning() {
    let args = ["--case", "round-trip", "--size", "50", "--size", "1500", "--trips", "30"];
    let Some(records) = measure("round_trips", &args) else { return };
    for link in LINKS {
        for size in [50, 1500] {
            for (subject, mode) in [
                ("udp-sendto", "block"),
                ("raw-plain", "block"),
                ("udp-sendto", "spin"),
                ("udp-connected", "spin"),
                ("raw-plain", "spin"),
                ("raw-ring", "spin"),
                ("xdp", "spin"),
            ] {
                let fields = [("case", "round-trip"), ("link", link), ("subject", subject), ("mode", mode)];
                let record = record(&records, &fields, Some(size));
                assert!(record["metric"] == "round_trip_ns" && record["unit"] == "ns", "{record}");
                let one_core = mode == "spin" && record["status"] == "skipped";
                assert!(is_told(record) || one_core, "{record}");
                if record["status"] == "ok" {
                    // None is lost on these links.
                    assert!(
                        record["n"] == 30 && record["mean"].is_f64() && record["p50"].is_f64(),
                        "{record}"
                    );
                    assert!(median(record) > 500.0, "{record}");
                }
            }
        }
    }
}

#[test]
fn opening_closing_and_the_bare_program_are_measured() {
    let args = ["--case", "open-close", "--case", "prototype", "--link", "veth", "--quick"];
    let Some(records) = measure("open_close", &args) else { return };
    for subject in ["udp-sendto", "udp-connected", "raw-plain", "raw-ring", "xdp"] {
        for metric in ["open_ns", "close_ns"] {
            let fields = [("case", "open-close"), ("link", "veth"), ("subject", subject), ("metric", metric)];
            assert!(is_told(record(&records, &fields, None)));
        }
    }
    for subject in RAW {
        for mode in ["library", "c"] {
            for metric in ["cpu_ns_per_frame", "cpu_ns_per_frame_tx", "cpu_ns_per_frame_rx"] {
                let fields =
                    [("case", "prototype"), ("subject", subject), ("mode", mode), ("metric", metric)];
                let record = record(&records, &fields, Some(1400));
                assert!(median(record) > 1.0, "{record}");
            }
        }
    }
}

#[test]
fn what_lost_too_much_has_a_status_of_its_own_and_is_not_compared() {
    let what = [
        "--case",
        "throughput",
        "--link",
        "lo",
        "--size",
        "200",
        "--subject",
        "udp-sendto",
        "--subject",
        "raw-plain",
    ];
    let Some(records) = measure("lossy", &[&what[..], &["--inject-loss", "50"]].concat()) else { return };
    assert_eq!(records.len(), 12);
    for record in &records {
        // Two in a hundred, and what a busy machine adds.
        assert_eq!(record["status"], "lossy", "{record}");
        assert!(
            median(record) >= 0.0 && record["reason"].as_str().is_some_and(|r| r.contains(" % lost")),
            "{record}"
        );
    }
    let folder = TempDir::new();
    let place = folder.path().to_str().expect("UTF-8");
    let args = [&what[..], &["--inject-loss", "50", "--report", place]].concat();
    let ended = run("lossy", &args).expect("as before").expect(0);
    let text = ended.text();
    for subject in ["udp-sendto", "raw-plain"] {
        let row = text.lines().find(|l| l.contains(subject)).expect("a row");
        // With neither side is anything compared.
        assert!(row.contains(" % LOSSY") && !row.trim_end().ends_with(".00"), "{row}");
    }
    assert!(text.contains("lossy: throughput lo, "), "{text}");
    let csv = std::fs::read_to_string(folder.join("throughput.csv")).expect("a file");
    let page = std::fs::read_to_string(folder.join("report.html")).expect("a file");
    assert!(page.contains(" % LOSSY</td>"), "{page}");
    assert!(csv.lines().skip(1).all(|l| l.ends_with(",lossy")), "{csv}");
}

#[test]
fn lost_and_spoilt_frames_are_counted_as_such() {
    let subjects = ["udp-sendto", "udp-mmsg", "udp-gso", "raw-plain", "raw-ring"];
    let mut args = vec!["--case", "throughput", "--link", "lo", "--size", "200"];
    subjects.iter().for_each(|s| args.extend(["--subject", s]));
    args.extend(["--inject-loss", "4", "--inject-corruption", "10"]);
    let Some(records) = measure("lost_and_spoilt", &args) else { return };
    for subject in subjects {
        let of = |metric| median(record(&records, &[("subject", subject), ("metric", metric)], Some(200)));
        // Every fourth; a few of the last four are not reached. More may be lost where the machine is busy.
        assert!((0.2..0.9).contains(&of("loss_ratio")), "{subject}: {}", of("loss_ratio"));
        assert!(of("corrupt_frames") >= 1.0, "{subject}");
        for record in records.iter().filter(|r| r["subject"] == subject) {
            let reason = record["reason"].as_str().unwrap_or_default();
            assert!(record["status"] == "corrupt" && reason.contains("arrived changed"), "{record}");
        }
        // Spoilt ones are not among those received: of twenty numbers five are lost, and one of the others is spoilt.
        assert!(of("received_frames_per_s") > 0.0, "{subject}");
    }
}

isolated! {
    fn who_is_not_root_is_told_what_af_xdp_needs() {
        let args = ["--case", "throughput", "--link", "veth", "--size", "100", "--subject", "xdp", "--subject", "raw-plain"];
        let records = measure("not_root", &args).expect("namespaces within namespaces");
        let of = |subject| {
            record(&records, &[("subject", subject), ("metric", "received_bytes_per_s")], Some(100))
        };
        assert!(["ok", "lossy"].contains(&of("raw-plain")["status"].as_str().unwrap_or_default()));
        assert_eq!(of("xdp")["status"], "skipped");
        let reason = of("xdp")["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("CAP_BPF") || reason.contains("no AF_XDP"), "{reason}");
    }
}
