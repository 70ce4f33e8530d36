//! HyStart++ (RFC 9406): slow start ends when round trips become longer, before something is lost.

use super::Acked;
use bypath_wire::seq::SeqNumber;
use core::time::Duration;

/// Constants of RFC 9406, 4.3.
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: u32 = 4;
const CSS_ROUNDS: u32 = 5;
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    SlowStart,
    /// Conservative slow start: since so many rounds, as round trips were longer than this.
    Css {
        rounds: u32,
        baseline: Duration,
    },
    Over,
}

/// State of one slow start.
#[derive(Clone, Copy, Debug, Default)]
pub struct HyStart {
    phase: Phase,
    /// The round ends when this is acknowledged.
    window_end: Option<SeqNumber>,
    last_min: Option<Duration>,
    current_min: Option<Duration>,
    samples: u32,
}

impl HyStart {
    /// Something was acknowledged.
    pub fn acked(&mut self, acked: &Acked) {
        if self.window_end.is_none_or(|end| acked.una.at_or_after(end)) {
            self.round(acked.nxt);
        }
        let Some(rtt) = acked.rtt else { return };
        self.current_min = Some(self.current_min.map_or(rtt, |min| min.min(rtt)));
        self.samples += 1;
        let (Some(current), true) = (self.current_min, self.samples >= N_RTT_SAMPLE) else { return };
        match self.phase {
            Phase::SlowStart => {
                let Some(last) = self.last_min else { return };
                let thresh = (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                if current >= last + thresh {
                    self.phase = Phase::Css { rounds: 0, baseline: current };
                }
            }
            // It was not the path that had become longer.
            Phase::Css { baseline, .. } if current < baseline => self.phase = Phase::SlowStart,
            _ => {}
        }
    }

    fn round(&mut self, nxt: SeqNumber) {
        let is_first = self.window_end.is_none();
        self.window_end = Some(nxt);
        if is_first {
            return;
        }
        self.last_min = self.current_min.take();
        self.samples = 0;
        if let Phase::Css { rounds, .. } = &mut self.phase {
            *rounds += 1;
            if *rounds >= CSS_ROUNDS {
                self.phase = Phase::Over;
            }
        }
    }

    /// By how much the window grows instead of by this.
    pub fn growth(&self, octets: u32) -> u32 {
        if let Phase::Css { .. } = self.phase { octets / CSS_GROWTH_DIVISOR } else { octets }
    }

    /// Congestion avoidance begins.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of ten acknowledgements.
    fn round(h: &mut HyStart, n: u32, rtt: Duration) {
        for ack in 0..10 {
            h.acked(&Acked {
                octets: 1000,
                una: SeqNumber(n * 10_000 + ack * 1000),
                nxt: SeqNumber((n + 1) * 10_000),
                rtt: Some(rtt),
                srtt: rtt,
                limited: true,
            });
        }
    }

    #[test]
    fn rounds_that_take_longer_end_slow_start_slowly() {
        let mut h = HyStart::default();
        round(&mut h, 0, Duration::from_millis(40));
        round(&mut h, 1, Duration::from_millis(44));
        assert_eq!(h.growth(1000), 1000, "40 ms / 8 is more than the 4 ms");
        round(&mut h, 2, Duration::from_millis(50));
        assert_eq!((h.growth(1000), h.is_over()), (250, false));
        (3..7).for_each(|n| round(&mut h, n, Duration::from_millis(51)));
        assert!(!h.is_over());
        round(&mut h, 7, Duration::from_millis(51));
        assert!(h.is_over());
    }

    #[test]
    fn a_longer_round_that_was_chance_is_forgotten() {
        let mut h = HyStart::default();
        round(&mut h, 0, Duration::from_millis(40));
        round(&mut h, 1, Duration::from_millis(60));
        assert_eq!(h.growth(1000), 250);
        round(&mut h, 2, Duration::from_millis(41));
        assert_eq!(h.growth(1000), 1000);
    }
}
