//! `bypath bench raw` as a user meets it. No figure is judged: these tests ask whether the bench works, whether it notices
//! what is lost and what is wrong, and what it leaves behind.

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
#[path = "../l2_tools/network.rs"]
#[allow(dead_code, reason = "a part is used")]
mod network;

mod ends; //    Ctrl-C, kill -9, other hosts, refusals
mod figures; // records and what is in them
mod report; //  its files

use network::{Ended, tool};
use serde_json::Value;

/// Runs `bypath bench raw`; its records. `None` where there are no private namespaces, which is said.
fn measure(test: &str, args: &[&str]) -> Option<Vec<Value>> {
    let ended = run(test, &[&["--json"], args].concat())?.expect(0);
    let document: Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    assert_eq!(document["schema"], 1);
    assert!(document["machine"]["cpu"].is_string(), "{document}");
    Some(document["results"].as_array().expect("an array").clone())
}

fn run(test: &str, args: &[&str]) -> Option<Ended> {
    let ended = tool(&[&["bench", "raw", "--rounds", "1", "--seconds", "0.03"], args].concat());
    if ended.code() == Some(1) && ended.stderr.contains("no private network namespaces") {
        network::skip(&format!("bench_raw::{test}"), &ended.stderr);
        return None;
    }
    Some(ended)
}

/// The one record that has these fields.
#[track_caller]
fn record<'r>(records: &'r [Value], fields: &[(&str, &str)], size: Option<u64>) -> &'r Value {
    let fits = |r: &&Value| fields.iter().all(|(k, v)| r[*k] == *v) && size.is_none_or(|s| r["size"] == s);
    let found: Vec<_> = records.iter().filter(fits).collect();
    assert_eq!(found.len(), 1, "{fields:?} {size:?}: {found:#?}");
    found[0]
}

fn median(record: &Value) -> f64 {
    record["median"].as_f64().unwrap_or_else(|| panic!("no median: {record}"))
}
