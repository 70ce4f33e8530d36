//! The first steps in Rust, C and C++ that README.md shows.

use crate::blocks::blocks;
use crate::common::{Place, need, shell, target, texts, workspace};
use std::{env, fs};

fn readme() -> String {
    fs::read_to_string(workspace().join("README.md")).expect("README.md")
}

/// The program and the commands under a heading.
fn program_and_commands(readme: &str, heading: &str) -> [String; 2] {
    let found: Vec<_> = blocks(readme).into_iter().filter(|b| b.heading == heading).map(|b| b.text).collect();
    found.try_into().unwrap_or_else(|found| panic!("{heading}: a program and commands: {found:?}"))
}

#[test]
fn first_steps_in_rust() {
    if !need("readme::first_steps_in_rust", &[]) {
        return;
    }
    let readme = readme();
    let [program, commands] = program_and_commands(&readme, "From Rust");
    let place = Place::new("readme-rust");
    place.write("hello.rs", &program);
    let output = shell(&["sh", "-euc", &commands], place.path()).output().expect("timeout");
    let (text, errors) = texts(&output);
    let promised =
        readme.split("It prints `").nth(1).and_then(|t| t.split('`').next()).expect("what it prints");
    assert!(output.status.success() && text.lines().last() == Some(promised), "{text}{errors}");
}

/// Puts the programs into a directory beside the repository, and types all commands there.
#[test]
fn first_steps_in_c_and_cpp() {
    if !need("readme::first_steps_in_c_and_cpp", &["pkg-config", "cc", "c++", "make"]) {
        return;
    }
    let readme = readme();
    let [c_program, c_commands] = program_and_commands(&readme, "From C");
    let [cpp_program, cpp_commands] = program_and_commands(&readme, "From C++");
    let place = Place::new("readme-c");
    place.write("hello.c", &c_program);
    place.write("hello.cpp", &cpp_program);
    // An exported variable that is not set is an error of the shell: the library is found by what is typed alone.
    let output = shell(&["sh", "-euc", &format!("{c_commands}{cpp_commands}")], place.path())
        .env("CARGO_TARGET_DIR", target())
        // The home directory is a scratch one; cargo's own things are where they were.
        .envs(tool_homes())
        .env("HOME", place.path())
        .output()
        .expect("timeout");
    let (text, errors) = texts(&output);
    let printed: Vec<_> = text.lines().filter(|l| l.starts_with("VLAN")).collect();
    let both = ["VLAN 10 priority 7: 46 octets, hello"; 2];
    assert!(output.status.success() && printed == both, "{text}{errors}");
}

/// Where cargo and rustup keep their things unless told otherwise.
fn tool_homes() -> Vec<(&'static str, std::path::PathBuf)> {
    let home = env::home_dir().unwrap_or_default();
    let of = |name: &'static str, usual: &str| {
        (name, env::var_os(name).map_or_else(|| home.join(usual), Into::into))
    };
    vec![of("CARGO_HOME", ".cargo"), of("RUSTUP_HOME", ".rustup")]
}
