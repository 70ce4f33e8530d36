//! Random scripts, as those of `differential`: proptest picks operations, the model makes them meaningful, the kernel at both
//! ends says what is right.
//!
//! `BYPATH_TEST_CASES` sets the number of scripts, `BYPATH_TEST_SEED` the seed.

use crate::model::{KINDS, Model, Op};
use crate::script::Step;
use crate::{hand, left_out, link, seats};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::cell::{Cell, RefCell};
use std::io::Write;

/// At most one script in so many may be undecided on the kernel itself.
const UNDECIDED_ONE_IN: u32 = 10;
/// Kinds of the model that make other descriptors of a connection, which the table has no calls for.
const DUPLICATES: [u8; 2] = [25, 26];
const FULL_DUPLEX: u8 = 19;

fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
        Err(_) => otherwise,
    }
}

/// What is on its way fits the windows of a link, whatever is read.
fn op() -> impl Strategy<Value = Op> {
    let kind = (0..KINDS).prop_filter("a call of the table", |kind| !DUPLICATES.contains(kind));
    (kind, 0u8..6, any::<bool>(), any::<u8>(), prop_oneof![1u32..100, 1u32..2_000]).prop_map(
        |(kind, connection, server, variant, size)| {
            // Both ends read there.
            let size = if kind == FULL_DUPLEX { size * 50 } else { size };
            Op { kind, connection, server, variant, size }
        },
    )
}

fn as_text(steps: &[Step]) -> String {
    steps.iter().map(|step| format!("        {step}\n")).collect()
}

#[test]
fn random_scripts_agree_with_the_kernel() {
    if let Some(why) = link::missing() {
        return hand::skip("differential_stack random", &why);
    }
    let _seats = seats::open();
    let cases = u32::try_from(number("BYPATH_TEST_CASES", 40)).expect("a number of cases");
    let seed = number("BYPATH_TEST_SEED", 2);
    let mut bytes = [0u8; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 100,
        max_shrink_time: 30_000,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let (undecided, last) = (Cell::new(0u32), RefCell::new(String::new()));
    let strategy = (1u8..=3, proptest::collection::vec(op(), 1..25));
    let result = runner.run(&strategy, |(connections, ops)| {
        let steps = Model::script(connections, &ops);
        let fail = |why: String| {
            last.replace(format!("{why}\nthe script:\n{}", as_text(&steps)));
            Err(TestCaseError::fail("differs"))
        };
        if let Some(why) = left_out::reason("", &steps) {
            return fail(format!("a random script that cannot run: {why}"));
        }
        let expected = match seats::record(&steps) {
            Ok(expected) => expected,
            Err(why) => return fail(format!("the model made a wrong script: {why}")),
        };
        let mut differences = seats::compare(&steps, &expected).into_iter();
        let kernel = differences.next().flatten();
        let Some(difference) = differences.flatten().next() else { return Ok(()) };
        // What the kernel itself answers differently from time to time proves nothing.
        if kernel.is_some() || (0..2).any(|_| seats::compare(&steps, &expected)[0].is_some()) {
            undecided.set(undecided.get() + 1);
            return Ok(());
        }
        fail(difference)
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(..)) => {
            panic!(
                "seed {seed}, smallest failing script (rerun: BYPATH_TEST_SEED={seed}):\n{}",
                last.borrow()
            )
        }
        Err(e) => panic!("seed {seed}: {e}"),
    }
    let undecided = undecided.get();
    // Past libtest, which keeps what tests that pass have printed.
    let told = format!("random: {cases} scripts, {undecided} of them not decided by the kernel\n");
    let _ = std::io::stderr().write_all(told.as_bytes());
    let most = cases / UNDECIDED_ONE_IN + 1;
    assert!(undecided <= most, "{undecided} scripts are not decided by the kernel (at most {most})");
}
