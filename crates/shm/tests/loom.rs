//! Model checks of the shared-memory protocol under the C11 memory model: the code of `direction` and `marks`
//! itself (and of `mailbox`), in every interleaving (and with every stale value) that loom can produce.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p bypath-shm --test loom --release`. Each model of a rule stands beside a
//! broken twin that must fail, so that a model which checks nothing would be seen.
#![cfg(loom)]

#[path = "loom/bytes.rs"]
mod bytes;
#[path = "loom/datagrams.rs"]
mod datagrams;
#[path = "loom/mailbox.rs"]
mod mailbox;
#[path = "loom/marking.rs"]
mod marking;
#[path = "loom/switch.rs"]
mod switch;
#[path = "loom/waking.rs"]
mod waking;

use bypath_shm::direction::{Direction, Head, Readable};
use loom::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a model's ring.
pub const SIZE: u64 = 2;

/// Checks `f` in every interleaving.
pub fn check(f: impl Fn() + Sync + Send + 'static) {
    loom::model::Builder::new().check(f);
}

/// Checks `f`, a model of three threads, with at most three involuntary switches (all of them take a minute).
pub fn check_three(f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(f);
}

/// A direction in state R at position 0, nothing in the ring.
pub fn on_ring() -> Arc<Direction> {
    let d = Direction::new();
    d.h.head.store(ring_head(0), Relaxed);
    Arc::new(d)
}

/// The head word of state R.
pub fn ring_head(position: u64) -> u64 {
    // Position bits alone: the path Ring is 0 (docs/shm-format.md).
    assert_eq!(Head::new(position, bypath_shm::direction::Path::Ring).position(), position);
    position
}

/// Bytes available in state R; 0 on any other path.
pub fn available(d: &Direction) -> u64 {
    match d.readable(SIZE).expect("no lies") {
        Readable::Ring { available, .. } => available,
        _ => 0,
    }
}
