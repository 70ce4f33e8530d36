//! Tests in namespaces of their own, and tests that cannot run.

use bypath_sys::netns;
use std::io::Write;
use std::process::Command;

/// Runs `body` in a process that was started in namespaces of its own.
pub fn in_namespace(path: &str, body: impl FnOnce()) {
    started_by(netns::isolated, path, body);
}

/// The same, but root keeps his rights over the whole machine: other users are there, too.
#[allow(dead_code, reason = "few tests have other users")]
pub fn apart(path: &str, body: impl FnOnce()) {
    started_by(netns::apart, path, body);
}

fn started_by(make: impl FnOnce(&mut Command) -> &mut Command, path: &str, body: impl FnOnce()) {
    const INSIDE: &str = "BYPATH_TEST_NAMESPACE";
    let name = name_of(path);
    if std::env::var_os(INSIDE).is_some_and(|inside| inside == name) {
        return body();
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, name);
    match make(&mut command).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
            // A part that was left out inside is told outside.
            text.lines().filter(|l| l.starts_with("skipped: ")).for_each(|l| println!("{l}"));
        }
        Err(e) => skip(name, &format!("no user and network namespaces: {e}")),
    }
}

/// The name without the crate's, as libtest has it.
pub(crate) fn name_of(path: &str) -> &str {
    path.split_once("::").map_or(path, |(_, name)| name)
}

/// Says that a test did not run, and why.
pub fn skip(name: &str, reason: &str) {
    println!("skipped: {name}: {reason}");
    if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS") {
        let mut file =
            std::fs::OpenOptions::new().append(true).create(true).open(path).expect("the list of skips");
        file.write_all(format!("{name}\t{reason}\n").as_bytes()).expect("the list of skips");
    }
}
