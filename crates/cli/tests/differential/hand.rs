//! Checking one hand-written script on every combination.

use super::run::{Combination, Difference, Over, Pair, combinations, on_rings_alone};
use super::script::{Step, parse};
use crate::programs;

/// Whether a script's bytes can be on the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// With both ends ours, bytes must have gone through a ring.
    Ring,
    /// The script is about something that never uses one.
    Either,
}

/// A hand-written script.
#[derive(Debug)]
pub struct Script {
    /// The behaviour.
    pub name: &'static str,
    /// Which promise it checks.
    pub covers: &'static str,
    /// Whether the ring must have been used.
    pub expect: Expect,
    /// The steps.
    pub text: &'static str,
}

/// Declares scripts, a test for each, and the list of them.
macro_rules! scripts {
    (over $over:ident; $($name:ident, $covers:literal, $expect:ident: $text:literal;)*) => {
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
                $crate::hand::check(script, $crate::run::Over::$over);
            }
        )*
    };
    ($($script:tt)*) => {
        $crate::hand::scripts! { over Tcp; $($script)* }
    };
}
pub(crate) use scripts;

/// Records the script on the kernel, checks that the kernel agrees with itself, then compares the rest.
pub fn check(script: &Script, over: Over) {
    let kernel_alone = Combination { over, ..Combination::KERNEL };
    let mut steps = parse(script.text);
    for end in ["c", "s"] {
        steps.push(Step::new(end, "fds"));
    }
    let mut kernel = Pair::start(kernel_alone);
    let expected = kernel.record(&steps);
    let wrong = expected.iter().position(|a| a.starts_with('!') || a == "HANGS" || a.starts_with("late"));
    if let Some(at) = wrong {
        let so_far: String =
            steps.iter().zip(&expected[..=at]).map(|(s, a)| format!("    {s}  =>  {a}\n")).collect();
        panic!(
            "{}: the script itself is wrong in its last step\n{so_far}{}",
            script.name,
            kernel.complaints()
        );
    }
    kernel.finish().unwrap_or_else(|e| panic!("{}: on the kernel: {e}", script.name));
    if !on_rings_alone() {
        run(script, &steps, &expected, kernel_alone);
    }
    for combination in combinations(seed_of(script.name), over) {
        run(script, &steps, &expected, combination);
    }
}

fn run(script: &Script, steps: &[Step], expected: &[String], combination: Combination) {
    let mut pair = Pair::start(combination);
    if let Err(difference) = pair.compare(steps, expected) {
        panic!("{} ({})\n{}", script.name, script.covers, report(steps, combination, &difference, &pair));
    }
    let bytes = pair.finish().unwrap_or_else(|e| panic!("{} on {combination:?}: {e}", script.name));
    if programs::REQUIRE_RING && combination.both_ours() && script.expect == Expect::Ring {
        assert!(
            bytes.ring_tx > 0 && bytes.ring_rx > 0,
            "{} on {combination:?}: nothing went through a ring: {bytes:?}",
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
