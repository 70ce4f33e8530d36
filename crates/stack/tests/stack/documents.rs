//! docs/rfc.md agrees with the sources: each RFC that is cited there is in it, and each test that it names exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What is in the Rust files of a folder.
fn sources(folder: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all += &sources(&path);
        } else if path.extension().is_some_and(|e| e == "rs") {
            all += &fs::read_to_string(&path).expect("a source");
        }
    }
    all
}

/// Whole numbers that stand in a text.
fn numbers(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty()).collect()
}

#[test]
fn the_list_of_rfcs_agrees_with_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let list = fs::read_to_string(root.join("docs/rfc.md")).expect("the list");
    let code = sources(&root.join("crates/stack/src")) + &sources(&root.join("crates/netstack/src"));
    let cited: BTreeSet<&str> = code
        .split("RFC ")
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or(""))
        .collect();
    let named = numbers(&list);
    let missing: Vec<_> = cited.iter().filter(|n| !n.is_empty() && !named.contains(*n)).collect();
    assert!(cited.len() > 50 && missing.is_empty(), "not in docs/rfc.md: {missing:?}");

    let tests = ["crates/stack", "crates/sim", "crates/netstack", "crates/cli/tests/netstack_tools"];
    let tests: String = tests.map(|folder| sources(&root.join(folder))).concat();
    let is_a_name = |n: &&str| n.contains('_') && n.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let names: Vec<_> = list.split('`').skip(1).step_by(2).filter(is_a_name).collect();
    let gone: Vec<_> = names.iter().filter(|n| !tests.contains(&format!("fn {n}("))).collect();
    assert!(names.len() > 40 && gone.is_empty(), "no such tests: {gone:?}");
}
