//! `bypath bench roce` as a user meets it. No figure is judged: these tests ask whether the bench works, and what it leaves
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

/// Runs the bench; `None` where there are no namespaces, which is said.
fn run(test: &str, args: &[&str]) -> Option<Ended> {
    let ended = tool(&[&["bench", "roce", "--quick", "--seconds", "0.03"], args].concat());
    if ended.code() == Some(1) && ended.stderr.contains("no private network namespaces") {
        network::skip(&format!("bench_roce::{test}"), &ended.stderr);
        return None;
    }
    Some(ended)
}

#[test]
fn there_is_a_record_for_every_case_and_size() {
    let Some(ended) = run("records", &["--json"]) else { return };
    let document: Value = serde_json::from_slice(&ended.expect(0).stdout).expect("JSON");
    let records = document["results"].as_array().expect("an array");
    let expected = [("build", "ipv4"), ("build", "ipv6"), ("rdma-write", "raw")];
    assert_eq!(records.len(), expected.len() * 3);
    for (case, subject) in expected {
        for size in [256, 1024, 4096] {
            let fits = |r: &&Value| r["case"] == case && r["subject"] == subject && r["size"] == size;
            let found: Vec<_> = records.iter().filter(fits).collect();
            assert_eq!(found.len(), 1, "{case} {subject} {size}");
            let record = found[0];
            assert_eq!((&record["bench"], &record["status"]), (&"roce".into(), &"ok".into()), "{record}");
            assert_eq!(record["metric"], "bytes_per_s");
            assert!(record["median"].as_f64().expect("a number") > 1000.0, "{record}");
        }
    }
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
        let Some(ended) = run("report", &["--case", "build", "--report", &place]) else { return };
        let text = ended.expect(0).text();
        assert!(text.contains("build, IPv4, GB/s") && text.contains("report.html"), "{text}");
    }
    let page = read("report.html");
    assert!(page.contains("<p>before</p>") && page.contains("RoCEv2"));
    assert_eq!(page.matches("<h1 id=\"roce\">").count(), 1);
    assert!(read("roce.csv").lines().any(|l| l.starts_with("build,ipv4,,4096,bytes_per_s,")));
    let document: Value = serde_json::from_str(&read("roce.json")).expect("JSON");
    assert_eq!(document["schema"], 1);
}

#[test]
fn wrong_values_are_told() {
    tool(&["bench", "roce", "--case", "no"]).expect(2);
    tool(&["bench", "roce", "--rounds", "0"]).expect(2);
}
