//! TCP_INFO: the first 104 octets of Linux's `struct tcp_info`, as far as the stack knows. Lengths are in segments there.

use crate::tcp::{State, Statistics};
use alloc::vec;
use alloc::vec::Vec;

/// Linux's number of a state (tcp_states.h).
pub const fn number(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

/// TCP_LISTEN.
pub const LISTEN: u8 = 10;
/// TCP_INFINITE_SSTHRESH.
const INFINITE: u32 = 0x7FFF_FFFF;
/// Bits of tcpi_options.
const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
const WSCALE: u8 = 4;
const ECN: u8 = 8;

/// What one tells that is over, as it was at its end: nothing waits any more.
pub fn last(of: &Statistics) -> Vec<u8> {
    let over = Statistics { state: State::Closed, unacknowledged: 0, unsent: 0, sacked: 0, lost: 0, ..*of };
    info(Some(&over))
}

/// What a connection tells; none: a socket that has none.
pub fn info(of: Option<&Statistics>) -> Vec<u8> {
    let mut octets = vec![0; 104];
    let Some(s) = of else {
        octets[0] = number(State::Closed);
        return octets;
    };
    let mss = s.mss.saturating_sub(if s.timestamps { 12 } else { 0 }).max(1);
    let segments = |octets: u32| octets.div_ceil(mss);
    let bit = |on: bool, bit: u8| if on { bit } else { 0 };
    octets[0] = number(s.state);
    let scaled = s.shifts.0 > 0 || s.shifts.1 > 0;
    octets[5] = bit(s.timestamps, TIMESTAMPS) | bit(s.sack, SACK) | bit(scaled, WSCALE) | bit(s.ecn, ECN);
    octets[6] = s.shifts.0 | s.shifts.1 << 4;
    let micros = |time: core::time::Duration| time.as_micros() as u32;
    let flight = (s.unacknowledged - s.unsent) as u32;
    let ssthresh = if s.ssthresh >= INFINITE { INFINITE } else { s.ssthresh / s.mss.max(1) };
    for (at, value) in [
        (0, micros(s.rto)),
        (2, mss),
        (3, s.rcv_mss),
        (4, segments(flight)),
        (5, segments(s.sacked)),
        (6, segments(s.lost)),
        (15, micros(s.srtt.unwrap_or_default())),
        (16, micros(s.rttvar)),
        (17, ssthresh),
        (18, s.cwnd / s.mss.max(1)),
        (19, s.mss),
        (23, segments(s.octets_again as u32)),
    ] {
        octets[8 + 4 * at..12 + 4 * at].copy_from_slice(&value.to_ne_bytes());
    }
    octets
}
