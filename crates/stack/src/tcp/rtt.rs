//! How long a round trip takes, and how long to wait for an acknowledgement (RFC 6298).

use core::time::Duration;

/// Until a round trip was measured (RFC 6298, 2.1).
const INITIAL_RTO: Duration = Duration::from_secs(1);
/// After a SYN or its answer was lost and nothing was measured: what data begin with (RFC 6298, 5.7).
const RTO_AFTER_LOST_SYN: Duration = Duration::from_secs(3);
/// The shortest. DEVIATION RFC 6298 2.4: 1 s there; Linux's TCP_RTO_MIN, as delayed ACKs of today take less.
const MIN_RTO: Duration = Duration::from_millis(200);
/// The longest (RFC 6298, 2.5: at least 60 s); Linux's TCP_RTO_MAX.
const MAX_RTO: Duration = Duration::from_secs(120);

/// The estimator of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Rtt {
    /// SRTT; `None`: not measured yet.
    srtt: Option<Duration>,
    rttvar: Duration,
    /// Without backing off.
    base: Duration,
    /// How often it was doubled.
    backoff: u32,
}

impl Default for Rtt {
    fn default() -> Rtt {
        Rtt { srtt: None, rttvar: Duration::ZERO, base: INITIAL_RTO, backoff: 0 }
    }
}

impl Rtt {
    /// A round trip was measured, on octets that were sent once (Karn's algorithm: RFC 6298, 3).
    pub fn measured(&mut self, rtt: Duration) {
        match self.srtt {
            // RFC 6298, 2.2: SRTT <- R, RTTVAR <- R/2.
            None => {
                self.srtt = Some(rtt);
                self.rttvar = rtt / 2;
            }
            // RFC 6298, 2.3: RTTVAR first, with alpha 1/8 and beta 1/4.
            Some(srtt) => {
                let off = srtt.abs_diff(rtt);
                self.rttvar = self.rttvar * 3 / 4 + off / 4;
                self.srtt = Some(srtt * 7 / 8 + rtt / 8);
            }
        }
        let srtt = self.srtt.unwrap_or_default();
        // The variance counts for the shortest time at least, as in Linux: round trips that hardly differ say nothing of an answer
        // that is delayed, and 200 ms are what a delayed one may take.
        self.base = (srtt + (self.rttvar * 4).max(MIN_RTO)).min(MAX_RTO);
        self.backoff = 0;
    }

    /// RTO: how long to wait for an acknowledgement.
    pub fn rto(&self) -> Duration {
        (self.base * (1 << self.backoff.min(16))).min(MAX_RTO)
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
        self.backoff
    }

    /// The handshake is done: what was lost of it makes the first RTO of the data longer (RFC 6298, 5.7).
    pub fn established(&mut self) {
        if self.srtt.is_none() && self.backoff > 0 {
            self.base = RTO_AFTER_LOST_SYN;
        }
        self.backoff = 0;
    }

    /// SRTT, if something was measured.
    pub const fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// RTTVAR.
    pub const fn rttvar(&self) -> Duration {
        self.rttvar
    }
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
        (0..50).for_each(|_| rtt.measured(Duration::from_micros(20)));
        assert_eq!(rtt.rto(), MIN_RTO + Duration::from_micros(20));
        rtt.measured(Duration::from_secs(1000));
        assert_eq!(rtt.rto(), MAX_RTO);
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
    }
}
