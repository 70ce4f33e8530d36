//! CUBIC's growth (RFC 9438): a cubic function of the time since the last loss, around the window at which that happened.

use crate::time::Instant;
use core::time::Duration;

/// C of RFC 9438, 5.
const C: f64 = 0.4;
/// beta_cubic of RFC 9438, 4.6.
const BETA: f64 = 0.7;
/// alpha_cubic of RFC 9438, 4.3: 3 (1 - beta) / (1 + beta).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// Windows are in segments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cubic {
    /// W_max: the window at which something was lost last.
    w_max: f64,
    /// cwnd_prior: the window then, before fast convergence.
    prior: f64,
    /// When congestion avoidance began.
    epoch: Option<Instant>,
    /// K: how long it takes from there to W_max, in seconds.
    k: f64,
    /// W_est: what Reno would have.
    w_est: f64,
    /// The part of an octet that the window has grown.
    fraction: f64,
    /// Since when the window has not been used.
    paused: Option<Instant>,
}

impl Cubic {
    /// The window after this acknowledgement, octets.
    pub fn acked(&mut self, now: Instant, cwnd: u32, smss: u32, octets: u32, srtt: Duration) -> u32 {
        let smss = f64::from(smss);
        let window = f64::from(cwnd) / smss;
        let acked = f64::from(octets) / smss;
        // RFC 9438, 4.2: time in which the window did not limit the sender does not count.
        if let (Some(paused), Some(epoch)) = (self.paused.take(), self.epoch) {
            self.epoch = Some(epoch + now.since(paused));
        }
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                self.begin(now, window);
                now
            }
        };
        let t = now.since(epoch).as_secs_f64();
        // RFC 9438, 4.3, equation 4; once it reaches the window of the last loss, it grows as Reno does.
        let alpha = if self.w_est >= self.prior { 1.0 } else { ALPHA };
        self.w_est += alpha * acked / window;
        let mut grown = if self.at(t) < self.w_est {
            (self.w_est - window).max(0.0)
        } else {
            // RFC 9438, 4.4: the target is where it will be a round trip from now, and no more than half as much again.
            let target = self.at(t + srtt.as_secs_f64()).clamp(window, 1.5 * window);
            (target - window) / window * acked
        };
        grown = grown * smss + self.fraction;
        let whole = grown as u32;
        self.fraction = grown - f64::from(whole);
        cwnd.saturating_add(whole)
    }

    fn begin(&mut self, now: Instant, window: f64) {
        self.epoch = Some(now);
        self.w_est = window;
        if window < self.w_max {
            // RFC 9438, 4.2, equation 2.
            self.k = cube_root((self.w_max - window) / C);
        } else {
            (self.k, self.w_max) = (0.0, window);
        }
    }

    /// W_cubic(t) of RFC 9438, 4.2, equation 1.
    fn at(&self, t: f64) -> f64 {
        let d = t - self.k;
        C * d * d * d + self.w_max
    }

    /// What is left of the window after a loss, octets.
    pub fn congested(&mut self, _now: Instant, cwnd: u32, smss: u32) -> u32 {
        let window = f64::from(cwnd) / f64::from(smss);
        // RFC 9438, 4.7: somebody else wants a part of the path.
        let converges = window < self.w_max;
        *self = Cubic {
            w_max: if converges { window * (1.0 + BETA) / 2.0 } else { window },
            prior: window,
            ..Cubic::default()
        };
        (f64::from(cwnd) * BETA) as u32
    }

    /// Segments are of another length: as many octets are fewer of them.
    pub fn rescale(&mut self, before: u32, now: u32) {
        let ratio = f64::from(before) / f64::from(now);
        (self.w_max, self.prior) = (self.w_max * ratio, self.prior * ratio);
        self.epoch = None;
    }

    /// Congestion avoidance begins anew (RFC 9438, 4.8).
    pub fn timed_out(&mut self) {
        (self.epoch, self.paused) = (None, None);
    }

    /// The window was not used.
    pub fn paused(&mut self, now: Instant) {
        self.paused.get_or_insert(now);
    }
}

/// By Newton's way: `core` has no `cbrt`.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    // A third of the exponent is near enough to begin with.
    let mut root = f64::from_bits(x.to_bits() / 3 + (1023_u64 << 52) / 3 * 2);
    for _ in 0..5 {
        root -= (root * root * root - x) / (3.0 * root * root);
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots_are_right() {
        for x in [1e-9, 0.001, 0.5, 1.0, 2.0, 27.0, 1e6, 12_345.678, 1e12] {
            let root = cube_root(x);
            assert!((root / x.cbrt() - 1.0).abs() < 1e-12, "{x}: {root}");
        }
        assert_eq!(cube_root(0.0), 0.0);
    }

    #[test]
    fn the_window_comes_back_to_where_it_was_after_k_and_lingers_there() {
        const MSS: u32 = 1000;
        let mut cubic = Cubic::default();
        let before = 1000 * MSS;
        let mut cwnd = cubic.congested(Instant::ZERO, before, MSS);
        assert_eq!(cwnd, 700 * MSS);
        // RFC 9438, equation 2: the third root of 300 / 0.4 s.
        let k = 9.0856;
        let rtt = Duration::from_millis(100);
        let mut seen = std::vec::Vec::new();
        for round in 0..150u64 {
            let now = Instant::from_nanos(round * 100_000_000);
            let mut acked = cwnd;
            while acked > 0 {
                let octets = acked.min(10 * MSS);
                cwnd = cubic.acked(now, cwnd, MSS, octets, rtt);
                acked -= octets;
            }
            seen.push(cwnd / MSS);
        }
        let at = |seconds: f64| seen[(seconds * 10.0) as usize];
        assert!((880..=920).contains(&at(2.7)), "{}: most of it comes back soon", at(2.7));
        assert!((990..=1010).contains(&at(k)), "{}", at(k));
        assert!((1000..=1012).contains(&at(k + 2.0)), "{}: it lingers", at(k + 2.0));
        assert!(at(14.0) > 1040, "{}: then it looks for more", at(14.0));
    }

    #[test]
    fn a_second_loss_before_it_was_back_leaves_room_for_others() {
        let mut cubic = Cubic::default();
        assert_eq!(cubic.congested(Instant::ZERO, 100_000, 1000), 70_000);
        assert_eq!(cubic.congested(Instant::ZERO, 80_000, 1000), 56_000);
        assert!((cubic.w_max - 68.0).abs() < 1e-9, "{}", cubic.w_max);
    }
}
