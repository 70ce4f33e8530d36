//! Random scripts, as those of `differential`: proptest picks operations, the model makes them meaningful, the kernel at both
//! ends says what is right.
//!
//! `BYPATH_TEST_CASES` sets the number of scripts, `BYPATH_TEST_SEED` the seed; a soak runs fifty times as many.

use crate::model::{KINDS, Model, Op};
use crate::script::Step;
use crate::stage::Stage;
use crate::{hand, known, udp_model};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::cell::{Cell, RefCell};

/// At most one script in so many may be undecided on the kernel itself.
const UNDECIDED_ONE_IN: u32 = 10;
const FULL_DUPLEX: u8 = 19;

fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
        Err(_) => otherwise,
    }
}

/// What is on its way fits the windows of a link, whatever is read.
fn op() -> impl Strategy<Value = Op> {
    (0..KINDS, 0u8..6, any::<bool>(), any::<u8>(), prop_oneof![1u32..100, 1u32..2_000]).prop_map(
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
    hand::alone(concat!(module_path!(), "::random_scripts_agree_with_the_kernel"), random_scripts);
}

fn random_scripts() {
    let strategy = (1u8..=3, proptest::collection::vec(op(), 1..25));
    agree("random", 40, &strategy, |(connections, ops)| Model::script(connections, &ops));
}

/// Sizes stay below what queues hold, and what is fragmented is rare.
fn datagrams() -> impl Strategy<Value = udp_model::Op> {
    let size = prop_oneof![1 => Just(0u32), 8 => 1u32..100, 4 => 1u32..1400, 1 => 1u32..9000];
    (0..udp_model::KINDS, any::<bool>(), any::<u8>(), any::<u8>(), any::<u8>(), size)
        .prop_map(|(kind, server, socket, to, variant, size)| udp_model::Op {
            kind,
            server,
            socket,
            to,
            variant,
            size,
        })
        .prop_filter("a link delivers later than the call returns", known::is_decided_over_a_link)
}

#[test]
fn random_scripts_of_datagrams_agree_with_the_kernel() {
    hand::alone(concat!(module_path!(), "::random_scripts_of_datagrams_agree_with_the_kernel"), || {
        let strategy = (0u8..=4, proptest::collection::vec(datagrams(), 1..25));
        agree("random datagrams", 20, &strategy, |(warm, ops)| udp_model::Model::script(warm, &ops));
    });
}

/// Runs random scripts as they are picked, and tells how many the kernel did not decide.
fn agree<S: Strategy>(what: &str, usual: u64, strategy: &S, script: impl Fn(S::Value) -> Vec<Step>) {
    let soak = std::env::var_os("BYPATH_SOAK").is_some_and(|v| v == "1");
    let cases = u32::try_from(number("BYPATH_TEST_CASES", if soak { 50 * usual } else { usual }))
        .expect("a number of cases");
    let seed = number("BYPATH_TEST_SEED", 2);
    let stage = Stage::new(hand::has_taps(what));
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
    let result = runner.run(strategy, |picked| {
        let steps = known::adapted(script(picked));
        let fail = |why: String| {
            last.replace(format!("{why}\nthe script:\n{}", as_text(&steps)));
            Err(TestCaseError::fail("differs"))
        };
        let expected = match stage.record(&steps) {
            Ok(expected) => expected,
            Err(why) => return fail(format!("the model made a wrong script: {why}")),
        };
        let mut differences = stage.compare(&steps, &expected, true).into_iter();
        let kernel = differences.next().flatten();
        let Some(difference) = differences.flatten().next() else { return Ok(()) };
        // What the kernel itself answers differently from time to time proves nothing.
        if kernel.is_some() || !stage.is_decided(&steps, &expected) {
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
    hand::tell(&format!("{what}: {cases} scripts, {undecided} of them not decided by the kernel\n"));
    let most = cases / UNDECIDED_ONE_IN + 1;
    assert!(undecided <= most, "{undecided} scripts are not decided by the kernel (at most {most})");
    stage.end();
}
