//! Sequence numbers: 32 bits that wrap (RFC 1982; RFC 9293, 3.4).

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A place in a stream of octets, modulo 2^32.
///
/// There is no `Ord`: of three numbers around the circle each can be before the next. [`SeqNumber::before`] compares
/// two that are less than 2^31 apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// Octets from `earlier` to here, modulo 2^32.
    pub const fn since(self, earlier: SeqNumber) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Octets from `other` to here: negative if this one is before it. At a distance of exactly 2^31 the answer is
    /// `i32::MIN` both ways.
    pub const fn distance(self, other: SeqNumber) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// Whether this one comes first. Two numbers 2^31 apart are not before each other (RFC 1982, 3.2 leaves it open).
    pub const fn before(self, other: SeqNumber) -> bool {
        other.distance(self) > 0
    }

    /// Whether this one comes first, or they are equal.
    pub const fn at_or_before(self, other: SeqNumber) -> bool {
        other.distance(self) >= 0
    }

    /// Whether this one comes second.
    pub const fn after(self, other: SeqNumber) -> bool {
        other.before(self)
    }

    /// Whether this one comes second, or they are equal.
    pub const fn at_or_after(self, other: SeqNumber) -> bool {
        other.at_or_before(self)
    }

    /// The one that comes second; this one if neither does.
    pub const fn later(self, other: SeqNumber) -> SeqNumber {
        if self.before(other) { other } else { self }
    }

    /// The one that comes first; this one if neither does.
    pub const fn earlier(self, other: SeqNumber) -> SeqNumber {
        if other.before(self) { other } else { self }
    }

    /// Whether this one lies in the `len` octets that begin with `start`.
    pub const fn is_within(self, start: SeqNumber, len: u32) -> bool {
        self.since(start) < len
    }
}

impl Add<u32> for SeqNumber {
    type Output = SeqNumber;

    fn add(self, octets: u32) -> SeqNumber {
        SeqNumber(self.0.wrapping_add(octets))
    }
}

impl AddAssign<u32> for SeqNumber {
    fn add_assign(&mut self, octets: u32) {
        *self = *self + octets;
    }
}

impl Sub<u32> for SeqNumber {
    type Output = SeqNumber;

    fn sub(self, octets: u32) -> SeqNumber {
        SeqNumber(self.0.wrapping_sub(octets))
    }
}

impl fmt::Display for SeqNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDGES: [u32; 8] = [0, 1, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, 0xffff_fffe, 0xffff_ffff, 12345];

    #[test]
    fn order_holds_on_either_side_of_the_wrap() {
        for start in EDGES.map(SeqNumber) {
            for ahead in [1, 2, 1000, 0x7fff_ffff] {
                let end = start + ahead;
                assert!(start.before(end) && end.after(start) && start.at_or_before(end));
                assert!(!end.before(start) && !start.after(end) && !end.at_or_before(start));
                assert_eq!((end.since(start), end.distance(start)), (ahead, ahead as i32));
                assert_eq!(start.distance(end), -(ahead as i32));
                assert_eq!((start.later(end), end.earlier(start)), (end, start));
                assert_eq!(end - ahead, start);
            }
            assert!(!start.before(start) && start.at_or_before(start) && start.at_or_after(start));
        }
    }

    #[test]
    fn the_opposite_side_of_the_circle_is_neither_before_nor_after() {
        for start in EDGES.map(SeqNumber) {
            let opposite = start + 0x8000_0000;
            assert!(!start.before(opposite) && !opposite.before(start));
            assert!(!start.after(opposite) && !opposite.after(start));
            assert_eq!(start.later(opposite), start);
        }
    }

    #[test]
    fn a_window_may_wrap() {
        let start = SeqNumber(0xffff_fff0);
        assert!(start.is_within(start, 1) && (start + 31).is_within(start, 32));
        assert!(!(start + 32).is_within(start, 32) && !(start - 1).is_within(start, 32));
        assert!(!start.is_within(start, 0));
    }
}
