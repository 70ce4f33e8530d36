//! `bypath bench roce` as a user meets it. No figure is judged: these tests ask whether the bench works, and what it leaves
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

#[test]
fn there_is_a_record_for_every_case_and_size() {
    let Some(ended) = bench::run("roce", "records", &["--quick", "--json"]) else { return };
    let records = bench::records(ended);
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
    let words = ["build, IPv4, GB/s"];
    bench::joins_a_page(
        "roce",
        &["--quick", "--case", "build"],
        &words,
        "RoCEv2",
        "build,ipv4,,4096,bytes_per_s,",
    );
}

#[test]
fn wrong_values_are_told() {
    tool(&["bench", "roce", "--case", "no"]).expect(2);
    tool(&["bench", "roce", "--rounds", "0"]).expect(2);
}
