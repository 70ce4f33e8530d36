//! What a preloaded program carries along: the dependencies of the preload library, and rustix's way to the kernel.

use crate::common::workspace;
use std::collections::BTreeSet;
use std::process::Command;

/// Everything that may be in the preload library.
const CLOSURE: &[&str] = &[
    "bitflags",
    "bypath-preload",
    "bypath-shm",
    "bypath-sockets",
    "bypath-sys",
    "libc",
    "linux-raw-sys",
    "rustix",
];
/// What rustix needs for system calls of its own; with its libc backend it would need `libc` and `errno`.
const RUSTIX_NEEDS: &[&str] = &["bitflags", "linux-raw-sys"];

fn cargo_tree(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "-p", "bypath-preload"])
        .args(args)
        .current_dir(workspace())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Package names in the output of `cargo tree --prefix none`.
fn packages(tree: &str) -> BTreeSet<&str> {
    tree.lines().filter_map(|l| l.split_whitespace().next()).collect()
}

/// What is below `name` in the output of `cargo tree --prefix depth --no-dedupe`.
fn below<'a>(tree: &'a str, name: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut inside: Option<u32> = None;
    for line in tree.lines() {
        let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let depth: u32 = line[..digits].parse().expect("a depth");
        let package = line[digits..].split_whitespace().next().expect("a package");
        match inside {
            Some(parent) if depth > parent => {
                found.insert(package);
            }
            _ => inside = (package == name).then_some(depth),
        }
    }
    found
}

/// Signs of rustix's libc backend in the output of `cargo tree -e features`, and in the compiler's flags.
fn libc_backend(features: &str, rust_flags: &str) -> Vec<String> {
    let feature = features.lines().filter(|l| l.contains("rustix feature") && l.contains("use-libc"));
    let flag = rust_flags.split_whitespace().filter(|f| f.contains("rustix_use_libc"));
    feature.chain(flag).map(|l| l.trim().to_owned()).collect()
}

#[test]
fn the_library_carries_exactly_its_closure() {
    let tree = cargo_tree(&["-e", "normal", "--prefix", "none"]);
    assert_eq!(packages(&tree), CLOSURE.iter().copied().collect());
}

#[test]
fn rustix_makes_its_system_calls_itself() {
    let tree = cargo_tree(&["-e", "normal", "--prefix", "depth", "--no-dedupe"]);
    assert_eq!(below(&tree, "rustix"), RUSTIX_NEEDS.iter().copied().collect());
    let features = cargo_tree(&["-e", "features", "--prefix", "none"]);
    assert!(features.contains("rustix feature"), "the features were not found");
    // Code that runs when the binary is loaded, for the command only.
    assert!(!features.contains("bypath-sys feature \"exec\""), "{features}");
    // Packet sockets and namespaces are no business of a preloaded program.
    assert!(!features.contains("bypath-sys feature \"link\""), "{features}");
    let flags: String = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS"]
        .iter()
        .filter_map(|v| std::env::var(v).ok())
        .map(|v| v.replace('\x1f', " ") + " ")
        .collect();
    assert_eq!(libc_backend(&features, &flags), Vec::<String>::new());
}

#[test]
fn another_dependency_is_found() {
    let tree =
        "bypath-preload v0.1.0 (/x)\nbypath-sys v0.1.0 (/y)\nsmallvec v1.0.0\nbypath-sys v0.1.0 (/y) (*)\n";
    assert_eq!(packages(tree).into_iter().collect::<Vec<_>>(), ["bypath-preload", "bypath-sys", "smallvec"]);
}

#[test]
fn the_libc_backend_is_found() {
    let tree =
        "0bypath-preload v0.1.0\n1rustix v1.1\n2bitflags v2\n2errno v0.3\n3libc v0.2\n1libc v0.2\n10x v1\n";
    assert_eq!(below(tree, "rustix").into_iter().collect::<Vec<_>>(), ["bitflags", "errno", "libc"]);
    let features = "rustix feature \"std\"\nrustix feature \"use-libc\"\nx feature \"use-libc\"\n";
    assert_eq!(
        libc_backend(features, "-C debuginfo=1 --cfg rustix_use_libc"),
        ["rustix feature \"use-libc\"", "rustix_use_libc"]
    );
}
