//! Checking one hand-written script on every combination.

use crate::programs;
use crate::run::{Combination, Difference, Over, Pair, combinations};
use crate::script::{Step, parse};

/// Whether a script's datagrams can go through shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// With both ends ours some must.
    Ring,
    /// The script is about something that never does.
    Either,
}

/// A hand-written script.
#[derive(Debug)]
pub struct Script {
    /// The behaviour.
    pub name: &'static str,
    /// Which promise it checks.
    pub covers: &'static str,
    /// Whether shared memory must have been used.
    pub expect: Expect,
    /// The steps.
    pub text: &'static str,
}

/// Declares scripts, a test for each, and the list of them.
macro_rules! scripts {
    ($($name:ident, $covers:literal, $expect:ident: $text:literal;)*) => {
        /// Every script of this file.
        pub const SCRIPTS: &[$crate::hand::Script] = &[$($crate::hand::Script {
            name: stringify!($name),
            covers: $covers,
            expect: $crate::hand::Expect::$expect,
            text: $text,
        },)*];
        $(
            #[test]
            fn $name() {
                let script = SCRIPTS.iter().find(|s| s.name == stringify!($name)).expect("listed");
                $crate::hand::check(script);
            }
        )*
    };
}
pub(crate) use scripts;

/// What is promised about UDP sockets of one host under the library; each needs a script.
const PROMISES: &[&str] = &[
    "IPv4",
    "IPv6",
    "IPv4-mapped",
    "wildcard addresses",
    "any size",
    "zero length",
    "MSG_TRUNC",
    "MSG_PEEK",
    "every libc entry",
    "scatter/gather",
    "connected or not",
    "names and their errors",
    "non-blocking",
    "SO_RCVTIMEO",
    "SO_RCVBUF and what is dropped",
    "packet information",
    "timestamps",
    "ancillary data and the error queue",
    "SO_REUSEPORT",
    "socket options",
    "ioctl",
    "broadcast and multicast",
    "GSO, GRO, corking",
    "poll",
    "select",
    "epoll level",
    "epoll edge",
    "epoll one-shot",
    "asleep in the kernel",
    "threads",
    "order over the switch",
    "many senders",
    "plain senders beside ones on the ring",
    "ECONNREFUSED",
    "close and bind anew",
    "shutdown",
    "dup'ed descriptors",
    "fork",
    "exec",
    "SCM_RIGHTS",
    "what waits when another gets the socket",
    "a recall",
    "several processes on one socket",
    "un-hooked calls",
    "kill -9",
    "SIGSTOP",
];

#[test]
fn every_promise_has_a_script() {
    let files = [
        crate::calls::SCRIPTS,
        crate::ends::SCRIPTS,
        crate::groups::SCRIPTS,
        crate::holders::SCRIPTS,
        crate::names::SCRIPTS,
        crate::options::SCRIPTS,
        crate::order::SCRIPTS,
        crate::recalls::SCRIPTS,
        crate::waiting::SCRIPTS,
    ];
    let all: Vec<&Script> = files.into_iter().flatten().collect();
    for promise in PROMISES {
        assert!(all.iter().any(|s| s.covers == *promise), "no script covers: {promise}");
    }
    for script in all {
        assert!(
            PROMISES.contains(&script.covers),
            "{} covers something unknown: {}",
            script.name,
            script.covers
        );
    }
}

/// Records the script on the kernel, checks that the kernel agrees with itself, then compares the rest.
pub fn check(script: &Script) {
    let kernel_alone = Combination { over: Over::Datagrams, ..Combination::KERNEL };
    let mut steps = parse(script.text);
    steps.extend(["c", "s"].map(|end| Step::new(end, "fds")));
    let mut kernel = Pair::start(kernel_alone);
    let expected = kernel.record(&steps);
    if let Some(at) = expected.iter().position(|answer| is_wrong(answer)) {
        let so_far: String =
            steps.iter().zip(&expected[..=at]).map(|(s, a)| format!("    {s}  =>  {a}\n")).collect();
        panic!(
            "{}: the script itself is wrong in its last step\n{so_far}{}",
            script.name,
            kernel.complaints()
        );
    }
    if std::env::var_os("BYPATH_TEST_SHOW").is_some() {
        steps.iter().zip(&expected).for_each(|(step, answer)| println!("    {step}  =>  {answer}"));
    }
    kernel.finish().unwrap_or_else(|e| panic!("{}: on the kernel: {e}", script.name));
    run(script, &steps, &expected, kernel_alone);
    for combination in combinations(seed_of(script.name), Over::Datagrams) {
        run(script, &steps, &expected, combination);
    }
}

/// Whether an answer says that a script cannot be run, or that something failed that the agent itself checks.
pub fn is_wrong(answer: &str) -> bool {
    const WRONG: &[&str] =
        &["!", "HANGS", "late", "only", "wrong", "ended at", "nobody", "damaged", "out of order", "never"];
    WRONG.iter().any(|wrong| answer.starts_with(wrong))
}

/// Whether a count of what was not dropped is as good as the kernel's: how much memory a datagram takes is its affair.
pub fn is_near(_: &str, expected: &str, got: &str) -> bool {
    let number = |answer: &str| answer.strip_prefix("near ")?.parse::<u32>().ok();
    let Some((expected, got)) = number(expected).zip(number(got)) else { return false };
    expected.abs_diff(got) <= (expected / 10).max(2)
}

fn run(script: &Script, steps: &[Step], expected: &[String], combination: Combination) {
    let mut pair = Pair::start(combination);
    if let Err(difference) = pair.compare_but(steps, expected, is_near) {
        panic!("{} ({})\n{}", script.name, script.covers, report(steps, combination, &difference, &pair));
    }
    let bytes = pair.finish().unwrap_or_else(|e| panic!("{} on {combination:?}: {e}", script.name));
    if programs::REQUIRE_RING && combination.both_ours() && script.expect == Expect::Ring {
        assert!(
            bytes.ring_tx > 0 && bytes.ring_rx > 0,
            "{} on {combination:?}: nothing went through shared memory: {bytes:?}",
            script.name
        );
    }
}

/// A difference as text: the steps up to it, what was expected and what came.
pub fn report(steps: &[Step], combination: Combination, difference: &Difference, pair: &Pair) -> String {
    let mut text = format!("differs from the kernel on {combination:?}\n");
    for step in &steps[..difference.step] {
        text.push_str(&format!("    {step}\n"));
    }
    text.push_str(&format!(
        "--> {}\n    kernel: {}\n    here:   {}\n{}",
        steps[difference.step],
        difference.expected,
        difference.got,
        pair.complaints()
    ));
    text
}

/// A fixed seed, different from script to script.
fn seed_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)) >> 16
}
