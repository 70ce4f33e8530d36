//! Clocks of the measured programs.

use super::{PeerArgs, PeerResult};
use crate::bench::cpu;
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

/// Name of the figure.
pub const BESIDE: &str = "beside_cpu_ns";

/// Processor time of another process in the timed phase.
pub struct Beside(Option<(u32, u64)>);

impl Beside {
    /// The phase begins.
    pub fn begin(args: &PeerArgs) -> Beside {
        Beside(args.beside.map(|pid| (pid, cpu::of_process(pid))))
    }

    /// It is over.
    pub fn end(&self, result: &mut PeerResult) {
        if let Some((pid, before)) = self.0 {
            result.figures.insert(BESIDE.into(), cpu::of_process(pid).saturating_sub(before) as f64);
        }
    }
}
