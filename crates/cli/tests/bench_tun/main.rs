//! `bypath bench tun` as a user meets it. No figure is judged: these tests ask whether the bench works, and what it leaves
//! behind.

#[path = "../common/bench.rs"]
mod bench;
#[path = "../common/mod.rs"]
mod common;
#[macro_use]
#[path = "../l2_tools/network.rs"]
#[allow(dead_code, unused_macros, reason = "a part is used")]
mod network;

use network::tool;
use serde_json::Value;

const SUBJECTS: [&str; 5] = ["assemble-write", "writev", "naive-write", "naive-writev", "super"];

#[test]
fn there_is_a_record_for_every_case_subject_and_metric() {
    let args = ["--rounds", "1", "--json", "--size", "1024", "--size", "32768"];
    let Some(ended) = bench::run("tun", "records", &args) else { return };
    let records = bench::records(ended);
    let median = |fields: &[(&str, Value)]| {
        let fits = |r: &&Value| fields.iter().all(|(k, v)| r[*k] == *v);
        let found: Vec<_> = records.iter().filter(fits).collect();
        assert_eq!(found.len(), 1, "{fields:?}: {found:#?}");
        assert!(found[0]["bench"] == "tun" && found[0]["status"] == "ok", "{}", found[0]);
        found[0]["median"].as_f64().expect("a number")
    };
    for size in [1024, 32_768] {
        let of = |case: &str, subject: &str, mode: Value, metric: &str| {
            let fields = [
                ("case", case.into()),
                ("subject", subject.into()),
                ("mode", mode),
                ("metric", metric.into()),
            ];
            median(&[&fields[..], &[("size", size.into())]].concat())
        };
        for subject in SUBJECTS {
            assert!(of("send", subject, Value::Null, "ns_per_packet") > 1.0);
            assert!(of("send", subject, Value::Null, "loss_ratio") <= 0.001);
            assert!(of("burst-20", subject, Value::Null, "total_us") > 0.1);
        }
        for subject in ["single", "super"] {
            assert!(of("receive", subject, Value::Null, "ns_per_packet") > 1.0);
        }
        for (case, subject) in
            SUBJECTS.map(|s| ("send", s)).into_iter().chain([("receive", "single"), ("receive", "super")])
        {
            for side in ["sender", "receiver"] {
                let share = of(case, subject, side.into(), "cpu_share");
                assert!((0.0..1.5).contains(&share), "{case} {subject} {side}: {share}");
            }
        }
        for subject in ["assemble-write", "writev"] {
            assert!(of("send", subject, "c".into(), "ns_per_packet") > 1.0);
        }
    }
    // Many datagrams for one way through the stack: this much holds on any machine.
    let ns = |subject: &str| {
        median(&[
            ("case", "send".into()),
            ("subject", subject.into()),
            ("metric", "ns_per_packet".into()),
            ("mode", Value::Null),
            ("size", 1024.into()),
        ])
    };
    assert!(ns("super") < ns("naive-write"), "{} and {}", ns("super"), ns("naive-write"));
}

#[test]
fn the_section_joins_a_page_that_is_there() {
    let words = ["TUN: sending, ns per packet", "writev hardly matters", "What matters is"];
    let args = ["--rounds", "1", "--size", "1024"];
    bench::joins_a_page("tun", &args, &words, words[1], "send,super,,1024,ns_per_packet,");
}

#[test]
fn wrong_values_are_told() {
    for args in [
        &["bench", "tun", "--size", "15"][..],
        &["bench", "tun", "--size", "70000"],
        &["bench", "tun", "--case", "no"],
    ] {
        tool(args).expect(2);
    }
}
