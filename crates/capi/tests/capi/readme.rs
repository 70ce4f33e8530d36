//! The first steps in C and C++ that README.md shows work as they are typed.

use crate::common::{TempDir, libraries, need, skip, workspace};
use std::fs;
use std::process::Command;

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

/// Puts the programs into a directory beside the repository, and types all commands there.
#[test]
fn first_steps_in_c_and_cpp() {
    const NAME: &str = "readme::first_steps_in_c_and_cpp";
    if !need(NAME, &["pkg-config", "c++", "make"]) {
        return;
    }
    let mut probe = Command::new("unshare");
    if !probe
        .args(["--user", "--net", "--map-root-user", "ip", "link"])
        .output()
        .is_ok_and(|o| o.status.success())
    {
        return skip(NAME, "no user and network namespaces, or no `unshare` and `ip`");
    }
    let readme = fs::read_to_string(workspace().join("README.md")).expect("README.md");
    let (c, cpp) = (blocks(&readme, "\n### From C\n"), blocks(&readme, "\n### From C++\n"));
    let ([c_program, c_commands], [cpp_program, cpp_commands]) = (&c[..], &cpp[..]) else {
        panic!("a program and commands each: {c:?} {cpp:?}")
    };

    let place = TempDir::new();
    fs::write(place.join("hello.c"), c_program).expect("hello.c");
    fs::write(place.join("hello.cpp"), cpp_program).expect("hello.cpp");
    std::os::unix::fs::symlink(workspace(), place.join("bypath")).expect("a link to the repository");
    // An exported variable that is not set is an error of the shell: the library is found by what is typed alone.
    let output = Command::new("timeout")
        .args(["300", "sh", "-euc", &format!("{c_commands}{cpp_commands}")])
        .current_dir(place.path())
        .env("CARGO_TARGET_DIR", libraries().parent().expect("a target directory"))
        // The home directory is a scratch one; cargo's own things are where they were.
        .envs(tool_homes())
        .env("HOME", place.path())
        .env_remove("PKG_CONFIG_PATH")
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .expect("timeout");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let printed: Vec<_> = text.lines().filter(|l| l.starts_with("VLAN")).collect();
    let both = ["VLAN 10 priority 7: 46 octets, hello"; 2];
    assert!(output.status.success() && printed == both, "{text}{errors}");
}

/// Where cargo and rustup keep their things unless told otherwise.
fn tool_homes() -> Vec<(&'static str, std::path::PathBuf)> {
    let home = std::env::home_dir().unwrap_or_default();
    let of = |name: &'static str, usual: &str| {
        (name, std::env::var_os(name).map_or_else(|| home.join(usual), Into::into))
    };
    vec![of("CARGO_HOME", ".cargo"), of("RUSTUP_HOME", ".rustup")]
}
