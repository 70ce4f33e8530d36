//! Each way into the stack is given its corpus, and for a short while what mutations make of it. `docs/simulator.md` says how to
//! make that longer, and how to use cargo-fuzz instead.

use bypath_sim::fuzz::{Drive, TARGETS, Target, corpus, drive};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time that each target has; BYPATH_FUZZ_SECONDS says otherwise.
const SECONDS: u64 = 2;
/// Mutations at most: as many as a fast machine makes in that time.
const ROUNDS: u64 = 20_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// The committed inputs of a target.
fn committed(target: &str) -> Vec<Vec<u8>> {
    let entries =
        fs::read_dir(folder(target)).unwrap_or_else(|error| panic!("the corpus of {target}: {error}"));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("an input")).collect()
}

/// Gives an input to a target; one at which it fails is kept, and named.
fn give(name: &str, target: Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let path = std::env::temp_dir().join(format!("bypath-fuzz-{name}-{:08x}", input.len()));
        fs::write(&path, input).expect("room for the input");
        eprintln!(
            "{name} failed; its input is in {}: fuzz/corpus/{name} is the place for it",
            path.display()
        );
        std::panic::resume_unwind(panic);
    }
}

fn fuzz(name: &str) {
    let (_, target) = TARGETS.into_iter().find(|(other, _)| *other == name).expect("a target");
    let mut inputs = committed(name);
    inputs.extend(corpus::of_a_run().remove(name).into_iter().flatten().map(|(_, input)| input));
    let seconds = number("BYPATH_FUZZ_SECONDS");
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(SECONDS));
    let rounds = if seconds.is_some() { u64::MAX } else { ROUNDS };
    let how = Drive { seed: number("BYPATH_FUZZ_SEED").unwrap_or(20), rounds };
    let done = drive(how, &inputs, |input| give(name, target, input), || Instant::now() < end);
    println!("{name}: {done} inputs, {} of them of the corpus", inputs.len());
}

macro_rules! targets {
    ($($target:ident)*) => {$(
        #[test]
        fn $target() {
            fuzz(stringify!($target));
        }
    )*};
}

targets!(ethernet ipv4 ipv6 arp ndp icmp udp groups fragments segments session);

#[test]
fn each_target_has_a_corpus_made_of_the_attacks() {
    let made = corpus::of_attacks();
    let write = std::env::var_os("BYPATH_FUZZ_WRITE").is_some();
    for (target, _) in TARGETS {
        for (name, input) in &made[target] {
            let path = folder(target).join(name);
            if write {
                fs::create_dir_all(folder(target)).expect("a folder");
                fs::write(&path, input).expect("room for the input");
            }
            let there = fs::read(&path).unwrap_or_default();
            assert!(there == *input, "{}: run this test with BYPATH_FUZZ_WRITE=1", path.display());
        }
    }
}
