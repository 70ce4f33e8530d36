//! How long a round trip takes, and how long to wait for an acknowledgement (RFC 6298).

use core::time::Duration;

/// In nanoseconds, as all numbers here.
const SECOND: u64 = 1_000_000_000;
/// Until a round trip was measured (RFC 6298, 2.1).
const INITIAL_RTO: u64 = SECOND;
/// After a SYN or its answer was lost and nothing was measured: what data begin with (RFC 6298, 5.7).
const RTO_AFTER_LOST_SYN: u64 = 3 * SECOND;
/// The shortest. DEVIATION RFC 6298 2.4: 1 s there; Linux's TCP_RTO_MIN, as delayed ACKs of today take less.
const MIN_RTO: u64 = SECOND / 5;
/// The longest (RFC 6298, 2.5: at least 60 s); Linux's TCP_RTO_MAX.
const MAX_RTO: u64 = 120 * SECOND;

/// The estimator of one connection. Times are in nanoseconds: half of what a `Duration` takes.
#[derive(Clone, Copy, Debug)]
pub struct Rtt {
    /// SRTT, if something was measured.
    srtt: u64,
    rttvar: u64,
    /// Without backing off.
    base: u64,
    measured: bool,
    /// How often it was doubled.
    backoff: u8,
}

impl Default for Rtt {
    fn default() -> Rtt {
        Rtt { srtt: 0, rttvar: 0, base: INITIAL_RTO, measured: false, backoff: 0 }
    }
}

impl Rtt {
    /// A round trip was measured, on octets that were sent once (Karn's algorithm: RFC 6298, 3).
    pub fn measured(&mut self, rtt: Duration) {
        let rtt = nanos(rtt);
        if self.measured {
            // RFC 6298, 2.3: RTTVAR first, with alpha 1/8 and beta 1/4.
            self.rttvar = self.rttvar - self.rttvar / 4 + self.srtt.abs_diff(rtt) / 4;
            self.srtt = self.srtt - self.srtt / 8 + rtt / 8;
        } else {
            // RFC 6298, 2.2: SRTT <- R, RTTVAR <- R/2.
            (self.srtt, self.rttvar, self.measured) = (rtt, rtt / 2, true);
        }
        // The variance counts for the shortest time at least, as in Linux: round trips that hardly differ say nothing of an answer
        // that is delayed, and 200 ms are what a delayed one may take.
        self.base = (self.srtt + (self.rttvar * 4).max(MIN_RTO)).min(MAX_RTO);
        self.backoff = 0;
    }

    /// RTO: how long to wait for an acknowledgement.
    #[inline]
    pub fn rto(&self) -> Duration {
        Duration::from_nanos((self.base << self.backoff.min(16)).min(MAX_RTO))
    }

    /// It was not long enough (RFC 6298, 5.5).
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }

    /// Something new was acknowledged, of which no round trip is known: what a path takes now is not what it took when it did
    /// not answer.
    pub fn answered(&mut self) {
        self.backoff = 0;
    }

    /// How often it was doubled since something was acknowledged.
    pub const fn backoff(&self) -> u32 {
        self.backoff as u32
    }

    /// The handshake is done: what was lost of it makes the first RTO of the data longer (RFC 6298, 5.7).
    pub fn established(&mut self) {
        if !self.measured && self.backoff > 0 {
            self.base = RTO_AFTER_LOST_SYN;
        }
        self.backoff = 0;
    }

    /// SRTT, if something was measured.
    pub const fn srtt(&self) -> Option<Duration> {
        if self.measured { Some(Duration::from_nanos(self.srtt)) } else { None }
    }

    /// RTTVAR.
    pub const fn rttvar(&self) -> Duration {
        Duration::from_nanos(self.rttvar)
    }
}

/// No round trip takes longer than a day.
fn nanos(rtt: Duration) -> u64 {
    rtt.min(Duration::from_secs(86_400)).as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_first_measurement_counts_whole_and_later_ones_in_part() {
        let mut rtt = Rtt::default();
        assert_eq!((rtt.rto(), rtt.srtt()), (ms(1000), None));
        rtt.measured(ms(400));
        assert_eq!((rtt.srtt(), rtt.rttvar(), rtt.rto()), (Some(ms(400)), ms(200), ms(1200)));
        rtt.measured(ms(800));
        assert_eq!((rtt.srtt(), rtt.rttvar(), rtt.rto()), (Some(ms(450)), ms(250), ms(1450)));
    }

    #[test]
    fn it_is_neither_too_short_nor_too_long() {
        let mut rtt = Rtt::default();
        rtt.measured(Duration::from_micros(20));
        assert_eq!(rtt.rto(), Duration::from_micros(200_020));
        rtt.measured(Duration::from_secs(1000));
        assert_eq!(rtt.rto(), Duration::from_secs(120));
        let mut rtt = Rtt::default();
        let waits: std::vec::Vec<u64> = (0..9)
            .map(|_| {
                let rto = rtt.rto().as_secs();
                rtt.back_off();
                rto
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 120, 120]);
    }

    #[test]
    fn an_answer_ends_backing_off_and_a_lost_syn_makes_the_first_wait_longer() {
        let mut rtt = Rtt::default();
        rtt.back_off();
        rtt.established();
        assert_eq!((rtt.rto(), rtt.backoff()), (Duration::from_secs(3), 0));
        rtt.measured(ms(100));
        rtt.back_off();
        assert_eq!(rtt.rto(), ms(600));
        rtt.answered();
        assert_eq!(rtt.rto(), ms(300));
        // Round trips that do not differ leave room for an answer that is delayed.
        (0..100).for_each(|_| rtt.measured(ms(500)));
        assert!(rtt.rto() >= ms(699), "{:?}", rtt.rto());
    }
}
