//! Clocks of the measured programs.

use nix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC: the same in every process of the host.
pub fn now_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// Processor time of the whole process.
pub fn cpu_ns() -> u64 {
    read(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

fn read(clock: ClockId) -> u64 {
    let t = clock_gettime(clock).expect("a clock that every Linux has");
    t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64
}

/// What one reading of the clock costs: it is taken off each sample.
pub fn clock_cost_ns() -> u64 {
    let mut deltas: Vec<u64> = Vec::with_capacity(1001);
    let mut before = now_ns();
    for _ in 0..1001 {
        let now = now_ns();
        deltas.push(now - before);
        before = now;
    }
    deltas.sort_unstable();
    deltas[500]
}
