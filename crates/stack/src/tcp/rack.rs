//! What RACK knows of time (RFC 8985, 5.2): how long the last round trip took, and how much segments overtake each other.

use crate::time::Instant;
use bypath_wire::seq::SeqNumber;
use core::time::Duration;

/// Round trips for which more overtaking is believed after a segment was sent again for nothing (RFC 8985, 6.2, step 4).
const PERSIST: u8 = 16;
/// For how long a shortest round trip counts: the path may have changed.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(300);
/// DupThresh of RFC 8985, 3.2.
pub const DUP_THRESH: u32 = 3;

/// State of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rack {
    /// RACK.xmit_ts and RACK.end_seq: of what was sent last among all that arrived.
    newest: Option<(Instant, SeqNumber)>,
    /// RACK.rtt, nanoseconds.
    rtt: u64,
    /// The shortest round trip, nanoseconds, and when it was seen.
    min_rtt: u64,
    min_rtt_at: Option<Instant>,
    /// RACK.fack: the highest that arrived.
    fack: Option<SeqNumber>,
    reordering_seen: bool,
    /// RACK.reo_wnd_mult, less one.
    more: u8,
    persist: u8,
    /// RACK.dsack_round.
    dsack_round: Option<SeqNumber>,
}

impl Rack {
    /// A segment arrived that was sent last at that time.
    pub fn arrived(&mut self, now: Instant, sent: Instant, end: SeqNumber, again: bool) {
        let rtt = now.as_nanos().saturating_sub(sent.as_nanos());
        // RFC 8985, 6.2, step 2: too soon for the copy that was sent last.
        if again && self.min_rtt_at.is_some() && rtt < self.min_rtt {
            return;
        }
        let shortest = |seen: Instant| rtt <= self.min_rtt || now.since(seen) > MIN_RTT_WINDOW;
        if !again && self.min_rtt_at.is_none_or(shortest) {
            (self.min_rtt, self.min_rtt_at) = (rtt, Some(now));
        }
        self.rtt = rtt;
        if self.newest.is_none_or(|(at, newest)| sent > at || sent == at && end.after(newest)) {
            self.newest = Some((sent, end));
        }
        // Step 3.
        match self.fack {
            Some(fack) if end.before(fack) => self.reordering_seen |= !again,
            _ => self.fack = Some(end),
        }
    }

    /// Whether that was sent before the newest that arrived.
    pub fn is_before(&self, sent: Instant, end: SeqNumber) -> bool {
        self.newest.is_some_and(|(at, newest)| at > sent || at == sent && newest.after(end))
    }

    /// RACK.rtt.
    pub const fn rtt(&self) -> Duration {
        Duration::from_nanos(self.rtt)
    }

    /// The shortest round trip of the last minutes.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt_at.map(|_| Duration::from_nanos(self.min_rtt))
    }

    /// Something that was sent again had arrived before (RFC 8985, 6.2, step 4).
    pub fn dsack(&mut self, una: SeqNumber, nxt: SeqNumber) {
        if self.dsack_round.is_some_and(|round| una.at_or_after(round)) {
            self.dsack_round = None;
        }
        if self.dsack_round.is_none() {
            self.dsack_round = Some(nxt);
            self.more = self.more.saturating_add(1);
            self.persist = PERSIST;
        }
    }

    /// A recovery has ended.
    pub fn recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.more = 0;
        }
    }

    /// RACK.reo_wnd: for how long a segment may be overtaken. `sacked`: segments that arrived beyond gaps.
    pub fn window(&self, recovering: bool, sacked: u32, srtt: Duration) -> Duration {
        if !self.reordering_seen && (recovering || sacked >= DUP_THRESH) {
            return Duration::ZERO;
        }
        let min = self.min_rtt().unwrap_or(srtt);
        (min / 4 * (u32::from(self.more) + 1)).min(srtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn nothing_is_waited_for_until_segments_were_seen_to_overtake_each_other() {
        let srtt = Duration::from_millis(40);
        let mut rack = Rack::default();
        rack.arrived(at(40), at(0), SeqNumber(100), false);
        assert_eq!(rack.window(false, 2, srtt), Duration::from_millis(10));
        assert_eq!(
            (rack.window(false, 3, srtt), rack.window(true, 0, srtt)),
            (Duration::ZERO, Duration::ZERO)
        );
        rack.arrived(at(42), at(2), SeqNumber(300), false);
        rack.arrived(at(43), at(1), SeqNumber(200), false);
        assert_eq!(rack.window(true, 9, srtt), Duration::from_millis(10));
        // Each round in which something was sent for nothing lets them overtake further, up to a round trip.
        rack.dsack(SeqNumber(300), SeqNumber(900));
        rack.dsack(SeqNumber(400), SeqNumber(990));
        assert_eq!(rack.window(true, 9, srtt), Duration::from_millis(20));
        rack.dsack(SeqNumber(900), SeqNumber(1200));
        rack.dsack(SeqNumber(1200), SeqNumber(1500));
        rack.dsack(SeqNumber(1500), SeqNumber(1900));
        assert_eq!(rack.window(true, 9, srtt), srtt);
        (0..16).for_each(|_| rack.recovered());
        assert_eq!(rack.window(true, 9, srtt), Duration::from_millis(10));
    }

    #[test]
    fn an_answer_that_came_too_soon_for_a_copy_tells_nothing_of_it() {
        let mut rack = Rack::default();
        rack.arrived(at(40), at(0), SeqNumber(100), false);
        rack.arrived(at(60), at(50), SeqNumber(200), true);
        assert_eq!(rack.rtt(), Duration::from_millis(40));
        assert!(rack.is_before(at(0), SeqNumber(50)) && !rack.is_before(at(50), SeqNumber(200)));
    }
}
