//! What tests of several files share.

use std::io::Write;

/// Says that a test did not run, and why.
pub fn skip(name: &str, reason: &str) {
    eprintln!("skipped: {name}: {reason}");
    if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS") {
        let list = std::fs::OpenOptions::new().append(true).create(true).open(path);
        list.and_then(|mut list| list.write_all(format!("{name}\t{reason}\n").as_bytes()))
            .expect("the list of skips");
    }
}
