//! Attacks by seed on one victim, one to four of them at once: see `attack.rs` for what they do. After each the victim has noticed that
//! these connections are over, lives, has told of no octet that cannot have been sent, and serves its honest clients as ever.
//!
//! `BYPATH_TRUST_SECONDS` says for how long (10; in a soak 150), `BYPATH_TEST_SEED` where seeds begin. A victim's schedule is not
//! repeated by a seed; what is done to it is.

use crate::attack::{Attack, Reached};
use crate::victim::Victim;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Seeds under which something was found once, those together that were at it together.
const FOUND: [&[u64]; 2] = [&[144], &[263, 264, 265]];
/// Descriptors that a peer which is gone may leave, until the next sweep.
pub const LEFT: usize = 64;

pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

fn is_soak() -> bool {
    std::env::var_os("BYPATH_SOAK").is_some_and(|v| v == "1")
}

/// How long one victim is attacked.
pub fn seconds() -> u64 {
    number("BYPATH_TRUST_SECONDS").unwrap_or(if is_soak() { 150 } else { 10 })
}

/// In a soak one kind of victim is attacked after the other, however many threads run tests, so that its time is one with all processors.
pub fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    is_soak().then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// How many attacks there are at once, time after time: one, two, three, four.
pub fn at_once(time: u64) -> usize {
    1 + time as usize % 4
}

/// One for each of them, all at once.
pub fn together<S: Copy + Send + Sync, T: Send>(all: &[S], one: impl Fn(S) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = all.iter().map(|which| scope.spawn(|| one(*which))).collect();
        threads.into_iter().map(|thread| thread.join().expect("an attack that comes to its end")).collect()
    })
}

fn attacks(mode: &str) {
    let _turn = turn();
    let first = number("BYPATH_TEST_SEED").unwrap_or(1);
    let mut victim = Victim::start(mode);
    let before = victim.server.descriptors();
    let end = Instant::now() + Duration::from_secs(seconds());
    let mut reached = Reached::default();
    let (mut rounds, mut times, mut seeds) = (0, 0, first..);
    let mut found = FOUND.into_iter();
    loop {
        let now = match found.next() {
            Some(again) => again.to_vec(),
            None if Instant::now() >= end => break,
            None => {
                times += 1;
                seeds.by_ref().take(at_once(times - 1)).collect()
            }
        };
        let what = format!("{mode}, seeds {now:?}");
        let (port, pid) = (victim.port, victim.server.pid());
        let all = together(&now, |seed| Attack::new(port, pid, seed).run());
        for one in all {
            victim.server.expect("end", &what);
            reached.mapped += one.mapped;
            reached.ring_out += one.ring_out;
            reached.ring_in += one.ring_in;
            rounds += 1;
        }
        victim.serves(&what);
        victim.server.is_well(&what);
    }
    println!("{rounds} attacks on {mode}, {reached:?}");
    // An attack that does not get as far as memory attacks nothing.
    assert!(reached.mapped * 2 > rounds && reached.ring_out * 8 > rounds && reached.ring_in * 8 > rounds);
    let left = victim.server.descriptors().saturating_sub(before);
    assert!(left <= LEFT, "{left} descriptors are left");
}

#[test]
fn threads_survive_hostile_peers() {
    attacks("threads");
}

#[test]
fn an_epoll_set_survives_hostile_peers() {
    attacks("epoll");
}
