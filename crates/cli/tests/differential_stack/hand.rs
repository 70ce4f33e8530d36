//! Checking the hand-written scripts of one file, and telling which were left out.

use crate::script::{Step, parse};
use crate::{left_out, link, seats};
use std::collections::BTreeMap;
use std::io::Write;

/// Whether a script's bytes can be on a ring, which there is none of here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// They can.
    Ring,
    /// They cannot.
    Either,
}

/// A hand-written script.
#[derive(Debug)]
pub struct Script {
    /// The behaviour.
    pub name: &'static str,
    /// Which promise it checks.
    pub covers: &'static str,
    /// Whether it is about rings.
    pub expect: Expect,
    /// The steps.
    pub text: &'static str,
}

/// Declares the list of scripts of a file, and a test of all of them.
macro_rules! scripts {
    (over $over:ident; $($name:ident, $covers:literal, $expect:ident: $text:literal;)*) => {
        $crate::hand::scripts! { $($name, $covers, $expect: $text;)* }
    };
    ($($name:ident, $covers:literal, $expect:ident: $text:literal;)*) => {
        const SCRIPTS: &[$crate::hand::Script] = &[$($crate::hand::Script {
            name: stringify!($name),
            covers: $covers,
            expect: $crate::hand::Expect::$expect,
            text: $text,
        },)*];

        #[test]
        fn every_script_answers_as_the_kernels_do() {
            $crate::hand::check(module_path!(), SCRIPTS);
        }
    };
}
pub(crate) use scripts;

enum Outcome {
    Equal,
    LeftOut(String),
    Differs(Vec<String>),
}

/// Runs the scripts, or those whose names contain `BYPATH_TEST_SCRIPT`; what differs fails, what is left out is told.
pub fn check(file: &str, scripts: &[Script]) {
    let file = file.rsplit("::").next().unwrap_or(file);
    if let Some(why) = link::missing() {
        return skip(&format!("differential_stack {file}"), &why);
    }
    let _seats = seats::open();
    let only = std::env::var("BYPATH_TEST_SCRIPT").unwrap_or_default();
    let (mut equal, mut left, mut differ) = (0, BTreeMap::<String, Vec<&str>>::new(), Vec::new());
    for script in scripts.iter().filter(|script| script.name.contains(&only)) {
        match outcome(script) {
            Outcome::Equal => equal += 1,
            Outcome::LeftOut(why) => left.entry(why).or_default().push(script.name),
            Outcome::Differs(how) => differ.extend(
                how.iter()
                    .map(|how| format!("{} ({}, {:?}) {how}\n", script.name, script.covers, script.expect)),
            ),
        }
    }
    // Past libtest, which keeps what tests that pass have printed.
    let count: usize = left.values().map(Vec::len).sum();
    let left: String = left.iter().map(|(why, names)| format!("    {why}: {}\n", names.join(" "))).collect();
    let told = format!("{file}: {equal} scripts are equal, {count} left out\n{left}");
    let _ = std::io::stderr().write_all(told.as_bytes());
    assert!(differ.is_empty(), "{file}: {} differences\n{}", differ.len(), differ.join("\n"));
}

fn outcome(script: &Script) -> Outcome {
    let mut steps = parse(script.text);
    steps.extend(["c", "s"].map(|end| Step::new(end, "fds")));
    if let Some(why) = left_out::reason(script.name, &steps) {
        return Outcome::LeftOut(why);
    }
    let expected = match seats::record(&steps) {
        Ok(expected) => expected,
        Err(why) => return Outcome::LeftOut(format!("over a link the kernel cannot: {why}")),
    };
    let mut differences = seats::compare(&steps, &expected).into_iter();
    if let Some(how) = differences.next().flatten() {
        let how = how.lines().skip_while(|line| !line.starts_with("-->")).collect::<Vec<_>>();
        return Outcome::LeftOut(format!("the kernel is not equal to itself: {}", how.join(" ")));
    }
    let differences: Vec<_> = differences.flatten().collect();
    if differences.is_empty() { Outcome::Equal } else { Outcome::Differs(differences) }
}

/// Tells that a test is skipped, also to the closing summary of all tests.
pub fn skip(name: &str, why: &str) {
    eprintln!("skipped {name}: {why}");
    if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
    {
        let _ = writeln!(file, "{name}\t{why}");
    }
}
