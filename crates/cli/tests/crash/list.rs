//! The crash points in the source, in the tests and in the documents are the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).expect("the sources").flatten();
    all.flat_map(|e| if e.path().is_dir() { sources(&e.path()) } else { vec![e.path()] }).collect()
}

/// The names in `fault::point("NAME")`.
fn points_of(source: &str) -> impl Iterator<Item = &str> {
    source.split("fault::point(").skip(1).map(|rest| {
        let name = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
        name.expect("a crash point's name is written where it stands")
    })
}

#[test]
fn every_point_of_the_source_is_tested_and_documented() {
    let mut found = BTreeSet::new();
    for file in sources(&workspace().join("crates/sockets/src")) {
        let source = std::fs::read_to_string(file).expect("a source file");
        for name in points_of(&source) {
            assert!(found.insert(name.to_owned()), "two crash points are called {name}");
        }
    }
    let tested = [crate::pairs::POINTS, crate::recalls::POINTS, crate::meetings::POINTS].concat();
    let tested: BTreeSet<String> = tested.into_iter().map(str::to_owned).collect();
    assert_eq!(
        found, tested,
        "left: in crates/sockets, right: tested in crash/pairs.rs, crash/recalls.rs and crash/meetings.rs"
    );

    let quoted: BTreeSet<String> =
        ["docs/switch-protocol.md", "docs/udp.md"].into_iter().flat_map(points_in).collect();
    assert_eq!(
        found, quoted,
        "left: in crates/sockets, right: quoted in docs/switch-protocol.md and docs/udp.md"
    );
}

/// The names in quotes in the table of a document.
fn points_in(document: &str) -> Vec<String> {
    let text = std::fs::read_to_string(workspace().join(document)).expect("the document");
    let (_, section) = text.split_once("\n## Crash points\n").expect("the section");
    let section = section.split("\n## ").next().expect("its text");
    let rows = section.lines().filter(|line| line.starts_with('|'));
    rows.flat_map(|line| line.split('|').nth(1).unwrap_or("").split('"').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

#[test]
fn points_are_found_in_a_source() {
    let source = "a(); fault::point(\"one\"); if b { fault::point( \"two\"); }";
    assert_eq!(points_of(source).collect::<Vec<_>>(), ["one", "two"]);
}
