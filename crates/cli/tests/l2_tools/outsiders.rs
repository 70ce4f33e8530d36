//! Programs that see for themselves what is on the wire: scapy and tshark.

use super::network::skip;
use std::process::{Command, Stdio};

/// Debian's Python: the one that its scapy package is for.
pub const PYTHON: &str = "/usr/bin/python3";

/// Whether there is scapy with this module; says which test is skipped where there is not.
pub fn has_scapy(test: &str, module: &str) -> bool {
    has(test, PYTHON, &["-c", &format!("import scapy.{module}")], "scapy", "python3-scapy")
}

/// Whether there is tshark.
pub fn has_tshark(test: &str) -> bool {
    has(test, "tshark", &["--version"], "tshark", "tshark")
}

fn has(test: &str, program: &str, args: &[&str], what: &str, package: &str) -> bool {
    let there = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if there.is_ok_and(|s| s.success()) {
        return true;
    }
    skip(test, &format!("{what} is not installed (Debian package {package})"));
    false
}

/// The lines that a program prints, which must succeed.
pub fn lines(command: &mut Command) -> Vec<String> {
    let output = command.output().expect("a program that starts");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}{errors}");
    text.lines().map(str::to_owned).collect()
}
