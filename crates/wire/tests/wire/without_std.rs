//! The crate without the standard library: it builds, and nothing in it is left over.

use std::process::Command;

fn builds(features: &[&str]) {
    let output = Command::new(env!("CARGO"))
        .args(["check", "--package", "bypath-wire", "--lib", "--no-default-features"])
        .args(features)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("warning"), "{said}");
}

#[test]
fn it_builds_without_features_and_without_a_warning() {
    builds(&[]);
}

#[test]
fn it_builds_with_roce_alone() {
    builds(&["--features", "roce"]);
}
