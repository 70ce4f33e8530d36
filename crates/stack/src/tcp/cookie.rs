//! SYN cookies (RFC 4987, 3.6): the answer to a SYN carries, in its initial sequence number, what must be known of it; nothing
//! is kept until the other side has answered, and so shown that it is where it says.
//!
//! The form is that of Linux: a hash of the ends, the SYN's number, a count of minutes, and an index of MSS, of which 24 bits
//! are hidden by another hash. What else the SYN said goes into the low bits of our timestamp, if there are any.

use super::ends::Ends;
use super::secret::Secret;
use crate::time::Instant;
use bypath_wire::seq::SeqNumber;
use bypath_wire::tcp_options::MOST_WINDOW_SHIFT;

/// Segments that a cookie knows, octets: what hosts and tunnels have (those of Linux, and two for longer frames).
const SIZES: [u16; 8] = [536, 1220, 1300, 1360, 1440, 1460, 4312, 8940];
/// Minutes in which a cookie counts, the one in which it was made included (Linux's MAX_SYNCOOKIE_AGE).
const MINUTES: u32 = 2;
/// Bits of the number that hide the index.
const BITS: u32 = 24;
/// Low bits of a timestamp that say something.
const STAMP_BITS: u32 = 6;
/// No window scale.
const NO_SCALE: u32 = 15;

/// What a timestamp says of a SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub window_scale: Option<u8>,
    pub sack: bool,
    pub ecn: bool,
}

/// The initial sequence number that answers a SYN with the number `irs` and this MSS.
pub(super) fn number(secret: &Secret, now: Instant, ends: &Ends, irs: SeqNumber, mss: u16) -> SeqNumber {
    let count = minutes(now);
    // The largest that is not more than was said.
    let index = SIZES.iter().rposition(|size| *size <= mss).unwrap_or(0) as u32;
    let data = secret.cookie(ends, count.wrapping_add(1), irs).wrapping_add(index) & ((1 << BITS) - 1);
    let open = secret.cookie(ends, 0, irs).wrapping_add(irs.0).wrapping_add(count << BITS);
    SeqNumber(open.wrapping_add(data))
}

/// The MSS of the SYN that was answered with this number, if it was, lately.
pub(super) fn mss(
    secret: &Secret,
    now: Instant,
    ends: &Ends,
    irs: SeqNumber,
    number: SeqNumber,
) -> Option<u16> {
    let rest = number.0.wrapping_sub(secret.cookie(ends, 0, irs)).wrapping_sub(irs.0);
    let age = minutes(now).wrapping_sub(rest >> BITS) & ((1 << (32 - BITS)) - 1);
    if age >= MINUTES {
        return None;
    }
    let then = minutes(now).wrapping_sub(age);
    let index = rest.wrapping_sub(secret.cookie(ends, then.wrapping_add(1), irs)) & ((1 << BITS) - 1);
    SIZES.get(index as usize).copied()
}

/// From one on, as 0 is the open hash's.
const fn minutes(now: Instant) -> u32 {
    (now.as_nanos() / 60_000_000_000) as u32
}

/// A timestamp that says so, not later than `clock` and at most 64 earlier.
pub(super) fn stamp(clock: u32, said: Said) -> u32 {
    let scale = said.window_scale.map_or(NO_SCALE, |scale| scale.min(MOST_WINDOW_SHIFT).into());
    let bits = scale | u32::from(said.sack) << 4 | u32::from(said.ecn) << 5;
    let stamp = clock >> STAMP_BITS << STAMP_BITS | bits;
    if stamp > clock { stamp.wrapping_sub(1 << STAMP_BITS) } else { stamp }
}

/// What it said.
pub(super) fn said(stamp: u32) -> Said {
    let scale = stamp & 15;
    Said {
        window_scale: (scale != NO_SCALE).then_some(scale as u8),
        sack: stamp & 1 << 4 != 0,
        ecn: stamp & 1 << 5 != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iface::IfaceId;
    use crate::random::Random;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_cookie_is_known_for_a_minute_or_two_and_to_its_ends_alone() {
        let secret = Secret::new(&mut Random::new([1; 32]));
        let ends = |port: u16| {
            let remote = std::format!("10.0.0.2:{port}").parse().unwrap();
            Ends::between("10.0.0.1:80".parse().unwrap(), remote, IfaceId::LOOPBACK).unwrap()
        };
        let irs = SeqNumber(4_000_000_000);
        for (given, kept) in [(0, 536), (536, 536), (1459, 1440), (1460, 1460), (8960, 8940), (65_535, 8940)]
        {
            let cookie = number(&secret, at(0), &ends(9), irs, given);
            for seconds in [0, 59, 61, 119] {
                assert_eq!(mss(&secret, at(seconds), &ends(9), irs, cookie), Some(kept));
            }
            assert_eq!(mss(&secret, at(121), &ends(9), irs, cookie), None);
            assert_eq!(mss(&secret, at(0), &ends(8), irs, cookie), None);
            assert_eq!(mss(&secret, at(0), &ends(9), irs + 1, cookie), None);
        }
        // Who guesses is seldom right: 16 of 2^32 numbers count.
        let guessed = (0..100_000u32).filter(|n| {
            mss(&secret, at(600), &ends(9), irs, SeqNumber(n.wrapping_mul(2_654_435_761))).is_some()
        });
        assert_eq!(guessed.count(), 0);
    }

    #[test]
    fn a_timestamp_says_what_a_syn_did_and_is_not_later_than_the_clock() {
        for clock in [0u32, 63, 64, 1000, u32::MAX] {
            for window_scale in [None, Some(0), Some(7), Some(14)] {
                for (sack, ecn) in [(false, false), (true, false), (false, true), (true, true)] {
                    let stamp = stamp(clock, Said { window_scale, sack, ecn });
                    assert!(clock.wrapping_sub(stamp) <= 64, "{clock} {stamp}");
                    assert_eq!(said(stamp), Said { window_scale, sack, ecn });
                }
            }
        }
    }
}
