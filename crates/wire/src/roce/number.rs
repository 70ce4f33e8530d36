//! Numbers of 24 bits: queue pairs, and packets in their circle.

use core::fmt;
use core::ops::{Add, Sub};

const MASK: u32 = 0xff_ffff;

/// A packet sequence number, modulo 2^24 (IBTA 9.7.2).
///
/// There is no `Ord`: of three numbers around the circle each can be before the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// The lower 24 bits of a number.
    pub const fn new(value: u32) -> Psn {
        Psn(value & MASK)
    }

    /// 0 to 2^24 - 1.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Packets from `earlier` to here, modulo 2^24.
    pub const fn since(self, earlier: Psn) -> u32 {
        self.0.wrapping_sub(earlier.0) & MASK
    }

    /// Whether this one comes first: the other one is 1 to 2^23 - 1 ahead. The valid half of IBTA 9.7.2 is what is at or
    /// after the expected one, the duplicate half what is before it.
    pub const fn before(self, other: Psn) -> bool {
        let ahead = other.since(self);
        ahead != 0 && ahead < 1 << 23
    }

    /// Whether this one is among the `len` that begin with `start`.
    pub const fn is_within(self, start: Psn, len: u32) -> bool {
        self.since(start) < len
    }
}

impl Add<u32> for Psn {
    type Output = Psn;

    fn add(self, packets: u32) -> Psn {
        Psn::new(self.0.wrapping_add(packets))
    }
}

impl Sub<u32> for Psn {
    type Output = Psn;

    fn sub(self, packets: u32) -> Psn {
        Psn::new(self.0.wrapping_sub(packets))
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a queue pair: 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qpn(u32);

impl Qpn {
    /// The lower 24 bits of a number.
    pub const fn new(value: u32) -> Qpn {
        Qpn(value & MASK)
    }

    /// 0 to 2^24 - 1.
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The three octets of a 24-bit field.
pub(super) const fn octets(value: u32) -> [u8; 3] {
    let [_, a, b, c] = value.to_be_bytes();
    [a, b, c]
}

/// Big-endian, 24 bits.
macro_rules! be24 {
    ($bytes:expr, $at:literal) => {
        u32::from_be_bytes([0, $bytes[$at], $bytes[$at + 1], $bytes[$at + 2]])
    };
}

pub(super) use be24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_on_either_side_of_the_wrap() {
        for start in [0, 1, 0x7f_ffff, 0x80_0000, 0xff_fffe, 0xff_ffff].map(Psn::new) {
            for ahead in [1, 2, 1000, 0x7f_ffff] {
                let end = start + ahead;
                assert!(start.before(end) && !end.before(start));
                assert_eq!((end.since(start), end - ahead), (ahead, start));
            }
            assert!(!start.before(start));
            // Opposite: before neither way.
            assert!(!start.before(start + 0x80_0000) && !(start + 0x80_0000).before(start));
        }
    }

    #[test]
    fn a_window_may_wrap_and_more_than_24_bits_are_cut() {
        let start = Psn::new(0xff_fff0);
        assert!(start.is_within(start, 1) && (start + 31).is_within(start, 32));
        assert!(!(start + 32).is_within(start, 32) && !(start - 1).is_within(start, 32));
        assert_eq!((Psn::new(0x1234_5678).value(), Qpn::new(u32::MAX).value()), (0x34_5678, 0xff_ffff));
    }
}
