//! Random scripts: proptest picks operations, the model makes them meaningful, the kernel says what is right.
//!
//! `BYPATH_TEST_CASES` sets the number of scripts, `BYPATH_TEST_SEED` the seed (both are fixed by default; a soak runs
//! ten times as many).

use crate::hand::report;
use crate::model::{KINDS, Model, Op};
use crate::programs;
use crate::run::{Combination, Difference, Over, Pair, Under, combinations};
use crate::script::Step;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::cell::{Cell, RefCell};

/// At most one script in so many may be undecided on the kernel itself.
const UNDECIDED_ONE_IN: u32 = 20;

/// Long-lived agents for one combination: starting two processes for each script would take most of the time.
struct Seats {
    combination: Combination,
    pair: Option<Pair>,
}

impl Seats {
    fn pair(&mut self) -> &mut Pair {
        self.pair.get_or_insert_with(|| Pair::start(self.combination))
    }

    /// Back to the start after a script; agents that cannot are replaced, which is a failure of the script
    /// that left them so.
    fn clear(&mut self) -> Result<(), String> {
        let result = self.pair().reset();
        if result.is_err() {
            self.pair = None;
        }
        result
    }

    fn record(&mut self, steps: &[Step]) -> Vec<String> {
        let answers = self.pair().record(steps);
        if answers.len() < steps.len() || self.clear().is_err() {
            self.pair = None;
        }
        answers
    }

    fn compare(&mut self, steps: &[Step], expected: &[String]) -> Result<(), String> {
        let combination = self.combination;
        match self.pair().compare(steps, expected) {
            Ok(()) => self.clear(),
            Err(difference) => {
                let text = report(steps, combination, &difference, self.pair());
                self.pair = None;
                Err(text)
            }
        }
    }

    /// Whether the kernel gives the same answers again, twice.
    fn decided(&mut self, steps: &[Step], expected: &[String]) -> bool {
        (0..2).all(|_| self.compare(steps, expected).is_ok())
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
        Err(_) => otherwise,
    }
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![3 => 1u32..100, 3 => 1u32..5_000, 1 => 1u32..40_000, 1 => 1u32..200_000];
    (0..KINDS, 0u8..6, any::<bool>(), any::<u8>(), size)
        .prop_map(|(kind, connection, server, variant, size)| Op { kind, connection, server, variant, size })
}

/// The script in the form of a hand-written one.
fn as_text(steps: &[Step]) -> String {
    let lines: String = steps.iter().map(|s| format!("        {s}\n")).collect();
    format!("    name_of_the_behaviour, \"covers\", Ring: \"\n{lines}    \";\n")
}

#[test]
fn random_scripts_agree_with_the_kernel() {
    let soak = std::env::var_os("BYPATH_SOAK").is_some_and(|v| v == "1");
    let cases = u32::try_from(number("BYPATH_TEST_CASES", if soak { 10_000 } else { 1_000 }))
        .expect("a number of cases");
    let seed = number("BYPATH_TEST_SEED", 2);
    let mut bytes = [0u8; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 400,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let kernel = RefCell::new(Seats { combination: Combination::KERNEL, pair: None });
    let ours = RefCell::new(
        combinations(seed, Over::Tcp)
            .into_iter()
            .map(|combination| Seats { combination, pair: None })
            .collect::<Vec<_>>(),
    );
    let undecided = Cell::new(0u32);
    let last = RefCell::new(String::new());
    let strategy = (1u8..=3, proptest::collection::vec(op(), 1..40));
    let result = runner.run(&strategy, |(connections, ops)| {
        let steps = Model::script(connections, &ops);
        let mut kernel = kernel.borrow_mut();
        let expected = kernel.record(&steps);
        let wrong = expected.iter().position(|a| a.starts_with('!') || a == "HANGS" || a.starts_with("late"));
        if let Some(step) = wrong {
            let difference =
                Difference { step, expected: "anything else".to_owned(), got: expected[step].clone() };
            let text = report(&steps, Combination::KERNEL, &difference, kernel.pair());
            last.replace(format!("the model made a wrong script\n{text}"));
            return Err(TestCaseError::fail("model"));
        }
        // Side by side: most of a run is waiting for the other process.
        let mut ours = ours.borrow_mut();
        let failures: Vec<String> = std::thread::scope(|scope| {
            let (steps, expected) = (&steps, &expected);
            let runs: Vec<_> =
                ours.iter_mut().map(|seats| scope.spawn(move || seats.compare(steps, expected))).collect();
            runs.into_iter().filter_map(|run| run.join().expect("a run does not panic").err()).collect()
        });
        let Some(text) = failures.first() else { return Ok(()) };
        if !kernel.decided(&steps, &expected) {
            undecided.set(undecided.get() + 1);
            return Ok(());
        }
        last.replace(format!("{text}\nas a hand-written script:\n\n{}", as_text(&steps)));
        Err(TestCaseError::fail("differs"))
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
    println!("{cases} scripts, {} of them not decided by the kernel", undecided.get());
    // A script that the kernel itself answers differently from run to run proves nothing.
    let most = cases / UNDECIDED_ONE_IN + 1;
    assert!(
        undecided.get() <= most,
        "{} scripts are not decided by the kernel (at most {most})",
        undecided.get()
    );
    let everyone = std::iter::once(kernel.into_inner()).chain(ours.into_inner());
    for Seats { combination, pair } in everyone {
        let bytes = pair.expect("agents of the last script").finish().expect("agents end in order");
        println!("{combination:?}: {bytes:?}");
        let required = programs::REQUIRE_RING && combination.both_ours() && combination.client != Under::Lazy;
        assert!(!required || bytes.ring_rx > 0, "{combination:?}: nothing went through a ring");
    }
}
