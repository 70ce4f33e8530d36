//! `bypath bench tun` as a user meets it. No figure is judged: these tests ask whether the bench works, and what it leaves
//! behind.

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
#[path = "../l2_tools/network.rs"]
#[allow(dead_code, unused_macros, reason = "a part is used")]
mod network;

use common::TempDir;
use network::{Ended, tool};
use serde_json::Value;

/// Runs the bench; `None` where there are no namespaces or no devices, which is said.
fn run(test: &str, args: &[&str]) -> Option<Ended> {
    let ended = tool(&[&["bench", "tun", "--rounds", "1", "--seconds", "0.03"], args].concat());
    let missing = ["no private network namespaces", "/dev/net/tun: "];
    if ended.code() == Some(1) && missing.iter().any(|m| ended.stderr.contains(m)) {
        network::skip(&format!("bench_tun::{test}"), &ended.stderr);
        return None;
    }
    Some(ended)
}

const SUBJECTS: [&str; 5] = ["assemble-write", "writev", "naive-write", "naive-writev", "super"];

#[test]
fn there_is_a_record_for_every_case_subject_and_metric() {
    let Some(ended) = run("records", &["--json", "--size", "1024", "--size", "32768"]) else { return };
    let document: Value = serde_json::from_slice(&ended.expect(0).stdout).expect("JSON");
    let records = document["results"].as_array().expect("an array");
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
    let folder = TempDir::new();
    let place = folder.path().to_str().expect("UTF-8").to_owned();
    let read =
        |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    std::fs::write(folder.join("report.html"), "<html><body>\n<p>before</p>\n</body></html>\n")
        .expect("a page");
    for _ in 0..2 {
        let Some(ended) = run("report", &["--size", "1024", "--report", &place]) else { return };
        let text = ended.expect(0).text();
        for words in
            ["TUN: sending, ns per packet", "writev hardly matters", "What matters is", "report.html"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
    let page = read("report.html");
    assert!(page.contains("<p>before</p>") && page.contains("writev hardly matters"));
    assert_eq!(page.matches("<h1 id=\"tun\">").count(), 1);
    assert!(read("tun.csv").lines().any(|l| l.starts_with("send,super,,1024,ns_per_packet,")));
    let document: Value = serde_json::from_str(&read("tun.json")).expect("JSON");
    assert_eq!(document["schema"], 1);
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
