//! The first steps in Rust that README.md shows work as they are typed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The indented blocks of the section under this heading.
fn blocks(text: &str, heading: &str) -> Vec<String> {
    let section = text.split(heading).nth(1).expect("the heading").split("\n#").next().expect("a section");
    let mut blocks = vec![String::new()];
    for line in section.lines() {
        let block = blocks.last_mut().expect("one at least");
        match line.strip_prefix("    ") {
            Some(code) => *block += &format!("{code}\n"),
            // An empty line may stand within a block.
            None if line.is_empty() && !block.is_empty() => block.push('\n'),
            None if block.is_empty() => {}
            None => blocks.push(String::new()),
        }
    }
    blocks.retain(|b| !b.is_empty());
    blocks
}

fn workspace() -> PathBuf {
    // At run time where there is one: two checkouts may share a target directory.
    let here = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).join("../..").canonicalize().expect("workspace")
}

fn skip(reason: &str) {
    use std::io::Write;
    println!("skipped: {reason}");
    if let Some(path) = env::var_os("BYPATH_TEST_SKIPS") {
        let mut file =
            fs::OpenOptions::new().append(true).create(true).open(path).expect("the list of skips");
        writeln!(file, "first_steps_in_rust\t{reason}").expect("the list of skips");
    }
}

#[test]
fn first_steps_in_rust() {
    let mut probe = Command::new("unshare");
    if !probe
        .args(["--user", "--net", "--map-root-user", "ip", "link"])
        .output()
        .is_ok_and(|o| o.status.success())
    {
        return skip("no user and network namespaces, or no `unshare` and `ip`");
    }
    let readme = fs::read_to_string(workspace().join("README.md")).expect("README.md");
    let blocks = blocks(&readme, "\n### From Rust\n");
    let [program, commands] = &blocks[..] else { panic!("a program and commands: {blocks:?}") };

    let place = env::temp_dir().join(format!("bypath-readme-{}", std::process::id()));
    fs::create_dir(&place).expect("a new directory");
    fs::write(place.join("hello.rs"), program).expect("hello.rs");
    std::os::unix::fs::symlink(workspace(), place.join("bypath")).expect("a link to the repository");
    let output = Command::new("timeout")
        .args(["300", "sh", "-euc", commands])
        .current_dir(&place)
        // What was downloaded for the workspace is enough; what was compiled stays for the next time.
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme"))
        .env_remove("CARGO_MANIFEST_DIR")
        .output();
    fs::remove_dir_all(&place).expect("removed");
    let output = output.expect("timeout");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let promised =
        readme.split("It prints `").nth(1).and_then(|t| t.split('`').next()).expect("what it prints");
    assert!(output.status.success() && text.lines().last() == Some(promised), "{text}{errors}");
}

#[test]
fn blocks_are_found_as_meant() {
    let text =
        "# a\n\n    no\n\n### b\n\ntext\n\n    one\n\n      two\n\ntext:\n\n    three\n\n## c\n\n    no\n";
    assert_eq!(blocks(text, "\n### b\n"), ["one\n\n  two\n\n", "three\n"]);
}
