//! The example of channels, and what README.md shows of it.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `cargo test` builds the examples beside its tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(|deps| deps.parent()).unwrap().join("examples/channel")
}

#[test]
fn two_programs_send_datagrams() {
    let folder = std::env::temp_dir().join(format!("bypath-example-channel-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let name = folder.join("name");
    let mut listens =
        Command::new(example()).arg("listen").arg(&name).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(listens.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "listening\n");
    let called =
        Command::new(example()).arg("call").arg(&name).args(["hello", "", "there"]).output().unwrap();
    assert!(called.status.success(), "{called:?}");
    assert_eq!(String::from_utf8_lossy(&called.stdout), "5 octets: hello\n0 octets: \n5 octets: there\n");
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(listens.wait().unwrap().success() && rest.is_empty(), "{rest}");
    let wrong = Command::new(example()).output().unwrap();
    assert!(!wrong.status.success() && String::from_utf8_lossy(&wrong.stderr).contains("usage: channel"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_readme_shows_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let example = std::fs::read_to_string(root.join("examples/channel.rs")).unwrap();
    let readme = std::fs::read_to_string(root.join("../../README.md")).unwrap();
    let chapter = readme.split("\n## ").find(|text| text.starts_with("Channels")).expect("a chapter");
    let shown: Vec<&str> = chapter.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    assert!(shown.len() >= 10, "{shown:?}");
    for line in shown {
        assert!(example.lines().any(|there| there.trim() == line.trim()), "not in the example: {line}");
    }
}
