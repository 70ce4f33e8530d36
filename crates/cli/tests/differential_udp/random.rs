//! Random scripts: proptest picks operations, the model makes them meaningful, the kernel says what is right.
//!
//! `BYPATH_TEST_CASES` sets the number of scripts, `BYPATH_TEST_SEED` the seed; a soak runs fifty times as many.

use crate::hand::{is_near, is_wrong, report};
use crate::model::{KINDS, Model, Op};
use crate::programs;
use crate::run::{Combination, Over, Pair, combinations};
use crate::script::Step;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::cell::RefCell;

const CASES: u64 = 120;

/// Long-lived agents for one combination.
struct Seats {
    combination: Combination,
    pair: Option<Pair>,
}

impl Seats {
    fn pair(&mut self) -> &mut Pair {
        self.pair.get_or_insert_with(|| Pair::start(self.combination))
    }

    fn record(&mut self, steps: &[Step]) -> Result<Vec<String>, String> {
        let answers = self.pair().record(steps);
        if let Some(at) = answers.iter().position(|answer| is_wrong(answer)) {
            self.pair = None;
            return Err(format!("the model made a wrong script: {} => {}", steps[at], answers[at]));
        }
        self.pair().reset()?;
        Ok(answers)
    }

    fn compare(&mut self, steps: &[Step], expected: &[String]) -> Result<(), String> {
        let combination = self.combination;
        match self.pair().compare_but(steps, expected, is_near) {
            Ok(()) => self.pair().reset(),
            Err(difference) => {
                let text = report(steps, combination, &difference, self.pair());
                self.pair = None;
                Err(text)
            }
        }
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
        Err(_) => otherwise,
    }
}

fn op() -> impl Strategy<Value = Op> {
    // Together they stay below what a queue holds: what is dropped is compared by hand-written scripts.
    let size = prop_oneof![1 => Just(0u32), 8 => 1u32..100, 4 => 1u32..1500, 1 => 1u32..9000];
    (0..KINDS, any::<bool>(), any::<u8>(), any::<u8>(), any::<u8>(), size)
        .prop_map(|(kind, server, socket, to, variant, size)| Op { kind, server, socket, to, variant, size })
}

/// The script in the form of a hand-written one.
fn as_text(steps: &[Step]) -> String {
    steps.iter().map(|step| format!("        {step}\n")).collect()
}

#[test]
fn random_scripts_agree_with_the_kernel() {
    let soak = std::env::var_os("BYPATH_SOAK").is_some_and(|v| v == "1");
    let cases = number("BYPATH_TEST_CASES", if soak { 50 * CASES } else { CASES });
    let seed = number("BYPATH_TEST_SEED", 2);
    let mut bytes = [0u8; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: u32::try_from(cases).expect("a number of cases"),
        failure_persistence: None,
        max_shrink_iters: 400,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let seats = |combination| Seats { combination, pair: None };
    let kernel_alone = Combination { over: Over::Datagrams, ..Combination::KERNEL };
    let kernel = RefCell::new(seats(kernel_alone));
    let ours = RefCell::new(combinations(seed, Over::Datagrams).into_iter().map(seats).collect::<Vec<_>>());
    let last = RefCell::new(String::new());
    let strategy = (0u8..=4, proptest::collection::vec(op(), 1..40));
    let result = runner.run(&strategy, |(warm, ops)| {
        let steps = Model::script(warm, &ops);
        let fail = |why: String| {
            last.replace(format!("{why}\nas a hand-written script:\n\n{}", as_text(&steps)));
            Err(TestCaseError::fail("differs"))
        };
        let expected = match kernel.borrow_mut().record(&steps) {
            Ok(expected) => expected,
            Err(why) => return fail(why),
        };
        // Side by side: most of a run is waiting for the other process.
        let mut ours = ours.borrow_mut();
        let failures: Vec<String> = std::thread::scope(|scope| {
            let (steps, expected) = (&steps, &expected);
            let runs: Vec<_> =
                ours.iter_mut().map(|seats| scope.spawn(move || seats.compare(steps, expected))).collect();
            runs.into_iter().filter_map(|run| run.join().expect("a run does not panic").err()).collect()
        });
        match failures.into_iter().next() {
            None => Ok(()),
            Some(why) => fail(why),
        }
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
    for Seats { combination, pair } in std::iter::once(kernel.into_inner()).chain(ours.into_inner()) {
        let ended = pair.expect("agents of the last script").finish();
        let bytes = ended.unwrap_or_else(|e| panic!("{combination:?}: {e}"));
        println!("{combination:?}: {bytes:?}");
        let required = programs::REQUIRE_RING && combination.both_ours();
        assert!(!required || bytes.ring_rx > 0, "{combination:?}: nothing went through shared memory");
    }
}
