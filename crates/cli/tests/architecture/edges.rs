//! Edges between the crates of the workspace (normal dependencies).

use crate::common::workspace;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// Who may depend on whom. `preload` is a face: nothing depends on it.
const ALLOWED: &[(&str, &[&str])] = &[
    ("bypath-wire", &[]),
    ("bypath-sys", &[]),
    ("bypath-stack", &["bypath-wire"]),
    ("bypath-sim", &["bypath-stack", "bypath-link", "bypath-wire"]),
    ("bypath-link", &["bypath-sys", "bypath-wire"]),
    ("bypath-shm", &["bypath-sys"]),
    ("bypath-channel", &["bypath-shm", "bypath-sys"]),
    ("bypath-sockets", &["bypath-shm", "bypath-sys"]),
    (
        "bypath-netstack",
        &["bypath-sockets", "bypath-stack", "bypath-link", "bypath-shm", "bypath-sys", "bypath-wire"],
    ),
    ("bypath-preload", &["bypath-sockets", "bypath-sys"]),
    ("bypath", LIBRARIES),
    ("bypath-capi", FACE),
    ("bypath-cli", FACE),
    ("bypath-packetdrill", &["bypath-stack", "bypath-wire", "bypath-sys"]),
];
const LIBRARIES: &[&str] = &[
    "bypath-wire",
    "bypath-sys",
    "bypath-stack",
    "bypath-link",
    "bypath-shm",
    "bypath-channel",
    "bypath-sockets",
    "bypath-netstack",
];
const FACE: &[&str] = &[
    "bypath",
    "bypath-wire",
    "bypath-sys",
    "bypath-stack",
    "bypath-link",
    "bypath-shm",
    "bypath-channel",
    "bypath-sockets",
    "bypath-netstack",
];

/// What is wrong with the edges in the output of `cargo metadata --no-deps`.
fn violations(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().expect("packages");
    let name = |v: &Value| v["name"].as_str().expect("a name").to_owned();
    let members: BTreeSet<String> = packages.iter().map(name).collect();
    let mut wrong = Vec::new();
    for package in packages {
        let from = name(package);
        let Some((_, allowed)) = ALLOWED.iter().find(|(n, _)| *n == from) else {
            wrong.push(format!("{from} has no line in the table of allowed edges"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let to = name(dependency);
            // A build script may not reach for a sibling either; tests may.
            let for_tests = dependency["kind"] == "dev";
            if members.contains(&to) && !for_tests && !allowed.contains(&to.as_str()) {
                wrong.push(format!("{from} -> {to}"));
            }
            if for_tests && to == "bypath-preload" {
                wrong.push(format!("{from} -> {to} (its symbols would interpose the test)"));
            }
        }
    }
    wrong
}

#[test]
fn crates_depend_only_on_those_below() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps"])
        .current_dir(workspace())
        .output()
        .expect("cargo starts");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("metadata");
    assert!(metadata["packages"].as_array().expect("packages").len() >= 5);
    assert_eq!(violations(&metadata), Vec::<String>::new());
}

#[test]
fn a_forbidden_edge_is_found() {
    let edge = |to: &str, kind: Value| serde_json::json!({ "name": to, "kind": kind });
    let metadata = serde_json::json!({ "packages": [
        { "name": "bypath-sys", "dependencies": [edge("bypath-shm", Value::Null), edge("libc", Value::Null)] },
        { "name": "bypath-shm", "dependencies": [edge("bypath-sys", Value::Null)] },
        { "name": "bypath-cli", "dependencies": [
            edge("bypath-preload", Value::Null), edge("bypath-shm", Value::Null), edge("bypath-shm", "dev".into())
        ] },
        { "name": "bypath-preload", "dependencies": [edge("bypath-shm", "build".into())] },
        { "name": "bypath-sockets", "dependencies": [edge("bypath-preload", "dev".into())] },
        { "name": "bypath-new", "dependencies": [] },
    ] });
    assert_eq!(
        violations(&metadata),
        [
            "bypath-sys -> bypath-shm",
            "bypath-cli -> bypath-preload",
            "bypath-preload -> bypath-shm",
            "bypath-sockets -> bypath-preload (its symbols would interpose the test)",
            "bypath-new has no line in the table of allowed edges",
        ]
    );
}
