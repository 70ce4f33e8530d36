//! Namespaces, and the examples to be run in them.

use bypath_sys::netns;
use std::process::Command;
use std::time::Duration;

/// Longest wait for what must come.
pub const LONGEST: Duration = Duration::from_secs(30);

const INSIDE: &str = "BYPATH_TEST_NAMESPACE";

/// One of the examples, which `cargo test` builds beside its tests.
pub fn example(name: &str) -> Command {
    let test = std::env::current_exe().expect("this program");
    let examples = test.parent().and_then(|deps| deps.parent()).expect("a directory").join("examples");
    Command::new(examples.join(name))
}

/// Octets that tell a position.
pub fn octets(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
}

/// Runs a test again in a user and network namespace of its own, and `inside` in there, if devices can be made.
pub fn isolated(name: &str, inside: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        if let Err(e) = bypath::tun::Device::tap("probe%d").open() {
            return skip(name, &format!("no TAP devices: {e}"));
        }
        netns::set_up("lo", true).expect("loopback");
        return inside();
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([name, "--exact", "--nocapture"]).env(INSIDE, "1");
    match netns::isolated(&mut command).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
        }
        Err(e) => skip(name, &format!("no user and network namespaces: {e}")),
    }
}

pub fn skip(name: &str, reason: &str) {
    println!("skipped: {name}: {reason}");
    if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS") {
        use std::io::Write;
        let mut file =
            std::fs::OpenOptions::new().append(true).create(true).open(path).expect("the list of skips");
        file.write_all(format!("{name}\t{reason}\n").as_bytes()).expect("the list of skips");
    }
}
