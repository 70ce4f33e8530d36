//! Agents that run one script after the other: making hosts for each would take most of the time.

use crate::left_out;
use crate::run::{Combination, Difference, Over, Pair, Under};
use crate::script::Step;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The combinations; the first one is the specification.
const COMBINATIONS: [Combination; 4] = [
    Combination { client: Under::Plain, server: Under::Plain, over: Over::Link },
    Combination { client: Under::Stack, server: Under::Plain, over: Over::Link },
    Combination { client: Under::Plain, server: Under::Stack, over: Over::Link },
    Combination { client: Under::Stack, server: Under::Stack, over: Over::Link },
];

/// Pairs that nobody uses just now, for each combination; those with wide buffers apart.
static FREE: [[Mutex<Vec<Pair>>; 4]; 2] = [const { [const { Mutex::new(Vec::new()) }; 4] }; 2];
static USERS: Mutex<usize> = Mutex::new(0);

/// Somebody runs scripts; with the last one the agents go.
pub struct Seats(());

/// Begins to run scripts.
pub fn open() -> Seats {
    *lock(&USERS) += 1;
    Seats(())
}

impl Drop for Seats {
    fn drop(&mut self) {
        let mut users = lock(&USERS);
        *users -= 1;
        if *users == 0 {
            FREE.iter().flatten().for_each(|free| lock(free).clear());
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(combination: usize, wide: bool) -> Pair {
    let free = lock(&FREE[usize::from(wide)][combination]).pop();
    let over = if wide { Over::WideLink } else { Over::Link };
    free.unwrap_or_else(|| Pair::start(Combination { over, ..COMBINATIONS[combination] }))
}

/// Back to the start; a pair that cannot is thrown away.
fn give_back(combination: usize, wide: bool, mut pair: Pair) {
    if pair.reset().is_ok() {
        lock(&FREE[usize::from(wide)][combination]).push(pair);
    }
}

/// What the kernel answers.
///
/// # Errors
/// It cannot do that over a link.
pub fn record(steps: &[Step]) -> Result<Vec<String>, String> {
    let wide = left_out::is_wide(steps);
    let mut pair = take(0, wide);
    let answers = pair.record(steps);
    if answers.len() == steps.len() {
        give_back(0, wide, pair);
    }
    let is_wrong =
        |answer: &String| ["!", "HANGS", "late", "only "].iter().any(|wrong| answer.starts_with(wrong));
    match answers.iter().position(is_wrong) {
        Some(at) => Err(format!("{} => {}", steps[at], answers[at])),
        None => Ok(answers),
    }
}

/// The first difference of each combination, the kernel's from itself first. They run side by side: most of a run is waiting.
pub fn compare(steps: &[Step], expected: &[String]) -> Vec<Option<String>> {
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..COMBINATIONS.len())
            .map(|combination| scope.spawn(move || run(combination, steps, expected).err()))
            .collect();
        runs.into_iter().map(|run| run.join().expect("a run")).collect()
    })
}

fn run(combination: usize, steps: &[Step], expected: &[String]) -> Result<(), String> {
    let wide = left_out::is_wide(steps);
    let mut pair = take(combination, wide);
    match pair.compare(steps, expected) {
        Ok(()) => {
            give_back(combination, wide, pair);
            Ok(())
        }
        Err(difference) => Err(report(combination, steps, expected, &difference, &pair)),
    }
}

/// The script with the kernel's answers, as far as it went and beyond.
fn report(
    combination: usize,
    steps: &[Step],
    expected: &[String],
    difference: &Difference,
    pair: &Pair,
) -> String {
    let Combination { client, server, .. } = COMBINATIONS[combination];
    let mut lines: Vec<String> =
        steps.iter().zip(expected).map(|(step, answer)| format!("    {step}  =>  {answer}\n")).collect();
    lines[difference.step] = format!(
        "--> {}\n    kernel: {}\n    here:   {}\n",
        steps[difference.step], difference.expected, difference.got
    );
    format!("differs with ({client:?}, {server:?})\n{}{}", lines.concat(), pair.complaints())
}
