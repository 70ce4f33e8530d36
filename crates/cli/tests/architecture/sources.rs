//! Where `unsafe` may stand: the inventory of ARCHITECTURE.md.

use crate::common::workspace;
use proc_macro2::{TokenStream, TokenTree};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates that may be unsafe anywhere in `src`.
const UNSAFE_CRATES: &[&str] = &["sys", "preload", "capi", "packetdrill"];

/// Whether the file at this path (relative to the workspace) may contain `unsafe`.
fn may_be_unsafe(path: &str) -> bool {
    let Some((name, file)) = path.strip_prefix("crates/").and_then(|p| p.split_once("/src/")) else {
        return false;
    };
    UNSAFE_CRATES.contains(&name)
        || name == "shm" && !file.contains('/') && (file.starts_with("region") || file.starts_with("ring"))
        || (name, file) == ("wire", "checksum/x86.rs")
}

/// Whether `unsafe` is among the tokens of a source text; comments and strings are none.
fn is_unsafe(source: &str) -> bool {
    fn any(tokens: TokenStream) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(word) => word == "unsafe",
            TokenTree::Group(group) => any(group.stream()),
            _ => false,
        })
    }
    any(source.parse().expect("a Rust source file"))
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn unsafe_stands_only_where_it_is_listed() {
    let root = workspace();
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("crates")).expect("crates") {
        let sources = entry.expect("an entry").path().join("src");
        if sources.is_dir() {
            rust_files(&sources, &mut files);
        }
    }
    let path =
        |f: &PathBuf| f.strip_prefix(&root).expect("below the root").to_str().expect("UTF-8").to_owned();
    let (allowed, others): (Vec<_>, Vec<_>) = files.iter().partition(|f| may_be_unsafe(&path(f)));
    let unsafe_in = |files: &[&PathBuf]| -> Vec<String> {
        let has = |f: &&&PathBuf| is_unsafe(&fs::read_to_string(f).expect("a source file"));
        files.iter().filter(has).map(|f| path(f)).collect()
    };
    assert!(others.len() > 10, "the sources were not found: {others:?}");
    assert!(!unsafe_in(&allowed).is_empty(), "the search finds no unsafe where there is some");
    assert_eq!(unsafe_in(&others), Vec::<String>::new());
}

#[test]
fn crates_without_unsafe_say_so() {
    for file in ["cli/src/main.rs", "link/src/lib.rs", "bypath/src/lib.rs"] {
        let text = fs::read_to_string(workspace().join("crates").join(file)).expect("a source file");
        assert!(text.contains("#![forbid(unsafe_code)]"), "{file}");
    }
    let wire = fs::read_to_string(workspace().join("crates/wire/src/lib.rs")).expect("lib.rs");
    assert!(wire.contains("#![no_std]") && wire.contains("#![deny(unsafe_code)]"));
}

#[test]
fn the_list_is_read_as_meant() {
    for yes in [
        "crates/sys/src/mem.rs",
        "crates/preload/src/io/mod.rs",
        "crates/shm/src/region.rs",
        "crates/shm/src/ring_bytes.rs",
        "crates/wire/src/checksum/x86.rs",
    ] {
        assert!(may_be_unsafe(yes), "{yes}");
    }
    for no in [
        "crates/shm/src/direction.rs",
        "crates/shm/src/other/ring.rs",
        "crates/wire/src/checksum.rs",
        "crates/sockets/src/region.rs",
        "crates/system/src/mem.rs",
        "crates/cli/build.rs",
    ] {
        assert!(!may_be_unsafe(no), "{no}");
    }
}

#[test]
fn tokens_are_told_from_comments_and_strings() {
    assert!(is_unsafe("fn f() { if x { unsafe { g() } } }"));
    assert!(is_unsafe("unsafe impl Send for X {}"));
    assert!(!is_unsafe("//! unsafe\n/// unsafe\nfn f() { /* unsafe */ g(\"unsafe\", r#\"unsafe\"#, 'u') }"));
    assert!(!is_unsafe("#![forbid(unsafe_code)]"));
}
