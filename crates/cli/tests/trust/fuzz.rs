//! Attacks by seed, one after the other, on one victim: see `attack.rs` for what they do. After each the victim has noticed that
//! this connection is over, lives, has told of no octet that cannot have been sent, and serves its honest clients as ever.
//!
//! `BYPATH_TRUST_SECONDS` says for how long (10; in a soak 150), `BYPATH_TEST_SEED` where seeds begin. A victim's schedule is not
//! repeated by a seed; what is done to it is.

use crate::attack::{Attack, Reached};
use crate::victim::Victim;
use std::time::{Duration, Instant};

/// Seeds under which something was found once.
const FOUND: [u64; 1] = [144];
/// Descriptors that a peer which is gone may leave, until the next sweep.
pub const LEFT: usize = 64;

pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// How long one victim is attacked.
pub fn seconds() -> u64 {
    let is_soak = std::env::var_os("BYPATH_SOAK").is_some_and(|v| v == "1");
    number("BYPATH_TRUST_SECONDS").unwrap_or(if is_soak { 150 } else { 10 })
}

fn attacks(mode: &str) {
    let first = number("BYPATH_TEST_SEED").unwrap_or(1);
    let mut victim = Victim::start(mode);
    let before = victim.server.descriptors();
    let end = Instant::now() + Duration::from_secs(seconds());
    let mut reached = Reached::default();
    let (mut rounds, mut seeds) = (0, FOUND.into_iter().chain(first..));
    while Instant::now() < end || rounds < FOUND.len() as u64 {
        let seed = seeds.next().expect("another seed");
        let what = format!("{mode}, seed {seed}");
        let one = Attack::new(victim.port, victim.server.pid(), seed).run();
        victim.server.expect("end", &what);
        victim.serves(&what);
        victim.server.is_well(&what);
        reached.mapped += one.mapped;
        reached.ring_out += one.ring_out;
        reached.ring_in += one.ring_in;
        rounds += 1;
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
