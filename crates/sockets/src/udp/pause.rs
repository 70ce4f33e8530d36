//! A sender that has gone by the kernel waits a little until the receiver has read that, and opens its gate again.
//!
//! While the gate is closed each datagram costs the sender one call of the kernel, and the receiver two: it asks whether there is more before it opens. So a sender that goes on as fast
//! as it can is ahead for good, once the receiver was kept from its processor for a moment, and the kernel's queue loses what it has no room for.

use super::route::Route;
use crate::state;
use bypath_shm::mailbox::phase;
use bypath_sys::clock;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// So long (microseconds) a receiver is waited for that is awake...
const FIRST_US: u64 = 4;
/// ... that has read on since the last look...
const ON_US: u64 = 30;
/// ... and altogether: longer than a full queue takes.
const LONGEST_US: u64 = 2000;
/// Waits in vain are followed by 2^n sends without one, up to this n...
const IN_VAIN: u32 = 10;
/// ... and by 2^n at once after the longest: others send there, too, and never stop.
const AFTER_LONGEST: u32 = 13;
/// Between two looks: the line is the receiver's, who writes there at each datagram.
const PAUSES: u32 = 8;

impl Route {
    /// Waits for the receiver with this gate, if it is awake, for as long as it reads on, and nobody wants this thread. Whether the gate is open for this sender.
    pub(super) fn pause(&self, gate: &AtomicU64, is_wanted: impl Fn() -> bool) -> bool {
        let mut at = gate.load(Relaxed);
        // Who sleeps changes nothing; who reads what the kernel has begins a new epoch each time.
        let reads_on = self.gate_before.load(Relaxed) != at;
        self.gate_before.store(at, Relaxed);
        if !reads_on && !matches!(at & 3, phase::OPENING | phase::OPEN) {
            return false;
        }
        let left_out = self.pauses_left_out.load(Relaxed);
        if left_out > 0 {
            self.pauses_left_out.store(left_out - 1, Relaxed);
            return false;
        }
        let (start, per_us) = (clock::ticks(), state::ticks_per_us());
        let (mut since, mut now, mut patience) = (start, start, FIRST_US);
        let is_longest = |now: u64| now.wrapping_sub(start) >= LONGEST_US * per_us;
        while now.wrapping_sub(since) < patience * per_us && !is_longest(now) && !is_wanted() {
            let seen = gate.load(Acquire);
            if seen & 3 == phase::OPEN && seen >> 2 > self.left.load(Relaxed) {
                self.pauses_in_vain.store(0, Relaxed);
                return true;
            }
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            now = clock::ticks();
            if seen != at {
                (at, since, patience) = (seen, now, ON_US);
            }
        }
        let in_vain = match self.pauses_in_vain.load(Relaxed) {
            _ if is_longest(now) => AFTER_LONGEST,
            before => (before + 1).min(IN_VAIN),
        };
        self.pauses_in_vain.store(in_vain, Relaxed);
        self.pauses_left_out.store(1 << in_vain, Relaxed);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    #[test]
    fn who_reads_on_is_waited_for() {
        let (gate, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let waited = std::thread::scope(|scope| {
            // Reads fifty datagrams of the kernel's, and then opens for one sender, again and again.
            scope.spawn(|| {
                for epoch in (1u64..).take_while(|_| !is_over.load(Relaxed)) {
                    let phase = if epoch.is_multiple_of(50) { phase::OPEN } else { phase::OPENING };
                    gate.store(epoch << 2 | phase, Release);
                    let start = clock::ticks();
                    while clock::ticks().wrapping_sub(start) < 5 * state::ticks_per_us() {
                        std::hint::spin_loop();
                    }
                }
            });
            let (route, end) = (Route::default(), Instant::now() + Duration::from_secs(30));
            let waited = std::iter::repeat_with(|| {
                let before = gate.load(Relaxed) >> 2;
                route.left.store(before, Relaxed);
                route.pauses_left_out.store(0, Relaxed);
                let is_open = route.pause(&gate, || false);
                assert!(!is_open || route.pauses_in_vain.load(Relaxed) == 0);
                if is_open { (gate.load(Relaxed) >> 2) - before } else { 0 }
            });
            // Either may be kept from its processor meanwhile.
            let waited = waited.take_while(|_| Instant::now() < end).find(|epochs| *epochs > 20);
            is_over.store(true, Relaxed);
            waited
        });
        assert!(waited.is_some(), "nobody was waited for as long as he read on");
    }

    #[test]
    fn who_sleeps_or_stands_still_is_not() {
        let (gate, route) = (AtomicU64::new(7 << 2 | phase::CLOSED), Route::default());
        route.left.store(7, Relaxed);
        route.gate_before.store(gate.load(Relaxed), Relaxed);
        assert!(!route.pause(&gate, || false));
        assert_eq!(route.pauses_in_vain.load(Relaxed), 0, "it was waited for");
        gate.store(7 << 2 | phase::OPEN, Relaxed);
        for in_vain in 1..=3 {
            assert!(!route.pause(&gate, || false), "not for who is behind something of the kernel's");
            assert_eq!(route.pauses_in_vain.load(Relaxed), in_vain);
            for left in (0..1u32 << in_vain).rev() {
                assert!(!route.pause(&gate, || false));
                assert_eq!(route.pauses_left_out.load(Relaxed), left);
            }
        }
        gate.store(8 << 2 | phase::OPEN, Relaxed);
        assert!(route.pause(&gate, || false));
        assert_eq!(route.pauses_in_vain.load(Relaxed), 0);
    }
}
