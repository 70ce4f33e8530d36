//! Congestion control: how many octets may be on their way (RFC 5681, RFC 9438).
//!
//! What was lost, and when, is found elsewhere (`sent.rs`): here it is only told.

mod cubic;
mod hystart;
mod reno;

use crate::time::Instant;
use alloc::boxed::Box;
use bypath_wire::seq::SeqNumber;
use core::time::Duration;
use cubic::Cubic;
use hystart::HyStart;
use reno::Reno;

/// How a connection finds out how much the path takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RFC 9438, with HyStart++ (RFC 9406).
    #[default]
    Cubic,
    /// RFC 5681.
    Reno,
}

#[derive(Clone, Copy, Debug)]
enum Growth {
    Cubic(Cubic),
    Reno(Reno),
}

/// What was acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Octets, those of SACK blocks not counted.
    pub octets: u32,
    /// `snd.una` now.
    pub una: SeqNumber,
    /// `snd.nxt`.
    pub nxt: SeqNumber,
    /// A round trip that was measured with it.
    pub rtt: Option<Duration>,
    /// SRTT.
    pub srtt: Duration,
    /// Whether the window was what kept octets back: else it does not grow (RFC 9438, 4.2; RFC 7661).
    pub limited: bool,
}

/// State of one connection.
#[derive(Clone, Debug)]
pub struct Congestion {
    cwnd: u32,
    ssthresh: u32,
    smss: u32,
    /// Segments of the initial window; 0: as RFC 6928 has it.
    initial: u16,
    growth: Growth,
    extra: Option<Box<Extra>>,
}

/// What a connection on which nothing happens does not need.
#[derive(Clone, Copy, Debug, Default)]
struct Extra {
    hystart: HyStart,
    /// What it was before the last reduction, should that turn out to have been wrong.
    before: Option<(u32, u32, Growth)>,
}

impl Congestion {
    /// For a new connection: the initial window of RFC 6928, 2.
    pub fn new(algorithm: Algorithm, smss: u32) -> Congestion {
        let growth = match algorithm {
            Algorithm::Cubic => Growth::Cubic(Cubic::default()),
            Algorithm::Reno => Growth::Reno(Reno::default()),
        };
        let cwnd = initial_window(smss);
        Congestion { cwnd, ssthresh: u32::MAX, smss, initial: 0, growth, extra: None }
    }

    /// CWND, octets.
    pub const fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// SSTHRESH, octets; the largest number until something was lost.
    pub const fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    /// Which algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        match self.growth {
            Growth::Cubic(_) => Algorithm::Cubic,
            Growth::Reno(_) => Algorithm::Reno,
        }
    }

    /// Another algorithm goes on with the same window.
    pub fn set_algorithm(&mut self, algorithm: Algorithm) {
        if self.algorithm() != algorithm {
            let fresh = Congestion::new(algorithm, self.smss);
            (self.growth, self.extra) = (fresh.growth, None);
        }
    }

    /// The path takes segments of another length. A window that is still the initial one is the one for that length.
    pub fn set_smss(&mut self, smss: u32) {
        if self.is_initial() {
            self.cwnd = self.initial(smss);
        }
        self.smss = smss;
        self.cwnd = self.cwnd.max(smss);
    }

    /// Segments are of another length from now on, and the window has as many octets as it had.
    pub fn rescale(&mut self, smss: u32) {
        if let Growth::Cubic(cubic) = &mut self.growth {
            cubic.rescale(self.smss, smss);
        }
        self.smss = smss;
        self.cwnd = self.cwnd.max(smss);
    }

    /// So many segments may go at first.
    pub fn set_initial(&mut self, segments: u16) {
        let is_initial = self.is_initial();
        self.initial = segments;
        if is_initial {
            self.cwnd = self.initial(self.smss);
        }
    }

    /// The window is what it was in the beginning.
    fn is_initial(&self) -> bool {
        self.cwnd == self.initial(self.smss) && self.ssthresh == u32::MAX
    }

    fn initial(&self, smss: u32) -> u32 {
        match self.initial {
            0 => initial_window(smss),
            segments => u32::from(segments) * smss,
        }
    }

    fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// Gives back memory: nothing is being recovered, and nothing happens.
    pub fn release(&mut self) {
        self.extra = None;
    }

    /// In slow start.
    pub const fn is_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Something new was acknowledged, and nothing is being recovered.
    pub fn acked(&mut self, now: Instant, acked: &Acked) {
        let slow = self.is_slow_start();
        if let Growth::Cubic(_) = self.growth
            && slow
        {
            self.extra().hystart.acked(acked);
        }
        if !acked.limited {
            if let Growth::Cubic(cubic) = &mut self.growth {
                cubic.paused(now);
            }
            return;
        }
        let mut octets = acked.octets;
        if slow {
            // DEVIATION RFC 9406 4.2: the window grows by all that is acknowledged (RFC 5681, 3.1 (2), with an L of RFC 3465 that is
            // infinite), as in Linux: who puts segments together answers many at once, and would keep the window small.
            let hystart = self.extra.as_ref().map(|extra| extra.hystart).unwrap_or_default();
            let grown = hystart.growth(octets);
            self.cwnd = self.cwnd.saturating_add(grown);
            if hystart.is_over() {
                self.ssthresh = self.cwnd;
                self.extra().hystart = HyStart::default();
                return;
            }
            if self.cwnd <= self.ssthresh {
                return;
            }
            // What went beyond counts for congestion avoidance.
            octets = self.cwnd - self.ssthresh;
            self.cwnd = self.ssthresh;
        }
        self.cwnd = match &mut self.growth {
            Growth::Cubic(cubic) => cubic.acked(now, self.cwnd, self.smss, octets, acked.srtt),
            Growth::Reno(reno) => reno.acked(self.cwnd, self.smss, octets),
        };
    }

    /// Something was lost, or a router marked it, for the first time in this window: `ssthresh` is what is left of it; what
    /// the window becomes is for who recovers.
    pub fn congested(&mut self, now: Instant, flight: u32) {
        let before = Some((self.cwnd, self.ssthresh, self.growth));
        *self.extra() = Extra { hystart: HyStart::default(), before };
        let left = match &mut self.growth {
            Growth::Cubic(cubic) => cubic.congested(now, self.cwnd, self.smss),
            Growth::Reno(_) => flight / 2,
        };
        // RFC 5681, equation 4; RFC 9438, 4.6.
        self.ssthresh = left.max(2 * self.smss);
    }

    /// Nothing was acknowledged in time (RFC 5681, 3.1: the loss window).
    pub fn timed_out(&mut self, now: Instant, flight: u32, again: bool) {
        // RFC 5681, 3.1: when a segment was sent again already, ssthresh stays.
        if !again {
            self.congested(now, flight);
        }
        self.cwnd = self.smss;
        if let Growth::Cubic(cubic) = &mut self.growth {
            cubic.timed_out();
        }
    }

    /// What the recovery of losses lets go (RFC 6937).
    pub fn set_cwnd(&mut self, cwnd: u32) {
        self.cwnd = cwnd.max(self.smss);
    }

    /// The last reduction was for nothing (RFC 4015; RFC 5682): everything is as before it.
    pub fn undo(&mut self) {
        if let Some((cwnd, ssthresh, growth)) = self.extra.as_mut().and_then(|extra| extra.before.take()) {
            self.cwnd = self.cwnd.max(cwnd);
            self.ssthresh = self.ssthresh.max(ssthresh);
            self.growth = growth;
        }
    }

    /// Nothing was sent for that long: what the path takes is not known any more (RFC 5681, 4.1).
    pub fn idle(&mut self, idle: Duration, rto: Duration) {
        if idle > rto {
            self.cwnd = self.cwnd.min(self.initial(self.smss));
            if let Growth::Cubic(cubic) = &mut self.growth {
                cubic.timed_out();
            }
        }
    }
}

/// IW of RFC 6928, 2.
pub(super) fn initial_window(smss: u32) -> u32 {
    (10 * smss).min((2 * smss).max(14_600))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    fn acked(octets: u32, at: u32) -> Acked {
        Acked {
            octets,
            una: SeqNumber(at),
            nxt: SeqNumber(at + 50_000),
            rtt: None,
            srtt: Duration::from_millis(100),
            limited: true,
        }
    }

    #[test]
    fn the_first_window_is_ten_segments_or_what_three_were() {
        assert_eq!(Congestion::new(Algorithm::Reno, 1460).cwnd(), 14_600);
        assert_eq!(Congestion::new(Algorithm::Reno, 536).cwnd(), 5360);
        assert_eq!(Congestion::new(Algorithm::Reno, 8960).cwnd(), 17_920);
    }

    #[test]
    fn reno_doubles_in_slow_start_and_adds_a_segment_a_window_afterwards() {
        let mut c = Congestion::new(Algorithm::Reno, MSS);
        for n in 0..10 {
            c.acked(Instant::ZERO, &acked(MSS, n * MSS));
        }
        assert_eq!(c.cwnd(), 20 * MSS);
        c.congested(Instant::ZERO, 20 * MSS);
        c.set_cwnd(c.ssthresh());
        assert_eq!((c.cwnd(), c.is_slow_start()), (10 * MSS, false));
        for n in 0..10 {
            c.acked(Instant::ZERO, &acked(MSS, n * MSS));
        }
        assert_eq!(c.cwnd(), 11 * MSS);
        c.timed_out(Instant::ZERO, 11 * MSS, false);
        assert_eq!((c.cwnd(), c.ssthresh()), (MSS, 5500));
        // Another time-out of the same octets leaves the threshold alone.
        c.timed_out(Instant::ZERO, MSS, true);
        assert_eq!(c.ssthresh(), 5500);
        c.undo();
        assert_eq!((c.cwnd(), c.ssthresh()), (11 * MSS, 10 * MSS));
    }

    #[test]
    fn a_window_that_was_not_used_does_not_grow() {
        let mut c = Congestion::new(Algorithm::Cubic, MSS);
        let before = c.cwnd();
        c.acked(Instant::ZERO, &Acked { limited: false, ..acked(5 * MSS, 0) });
        assert_eq!(c.cwnd(), before);
        c.set_cwnd(100 * MSS);
        c.idle(Duration::from_secs(2), Duration::from_secs(1));
        assert_eq!(c.cwnd(), 10 * MSS);
    }
}
