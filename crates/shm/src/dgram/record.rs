//! How a datagram stands in a ring: a word, a head, the datagram itself, and nothing up to the next multiple of [`ALIGN`].

use super::Octets;
use crate::direction::Poisoned;

/// Records begin at multiples of this.
pub const ALIGN: u64 = 8;
/// Octets of the word before each record.
pub const WORD: u64 = size_of::<Record>() as u64;
/// Octets of a head at most: addresses, and what is told beside a datagram.
pub const HEADS: usize = 256;
/// Octets of a datagram at most: what IPv6 carries in a packet of 65,535 octets behind its header, without that of UDP.
pub const LONGEST: usize = 65_527;
/// [`Record::mark`]: a position that is none of a record is most likely found out.
pub const MARK: u16 = 0xb6d7;

#[cfg(not(loom))]
const _: () = assert!(LONGEST == crate::datagram::LONGEST && HEADS >= crate::datagram::HEADER);
const _: () = assert!(WORD == ALIGN && LONGEST <= u32::MAX as usize && HEADS <= u16::MAX as usize);

/// The word before each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    /// Octets of the datagram; it may have none.
    pub octets: u32,
    /// Octets of the head between this word and the datagram; 0: there is none.
    pub head: u16,
    /// [`MARK`].
    pub mark: u16,
}

impl Record {
    /// The word of a datagram without a head. It has [`LONGEST`] octets at most.
    pub const fn plain(octets: usize) -> Record {
        Record { octets: octets as u32, head: 0, mark: MARK }
    }

    /// Its octets.
    pub const fn encode(self) -> [u8; WORD as usize] {
        let [a, b, c, d] = self.octets.to_ne_bytes();
        let ([e, f], [g, h]) = (self.head.to_ne_bytes(), self.mark.to_ne_bytes());
        [a, b, c, d, e, f, g, h]
    }

    /// What the octets say, whatever that is.
    pub const fn decode(raw: [u8; WORD as usize]) -> Record {
        let [a, b, c, d, e, f, g, h] = raw;
        Record {
            octets: u32::from_ne_bytes([a, b, c, d]),
            head: u16::from_ne_bytes([e, f]),
            mark: u16::from_ne_bytes([g, h]),
        }
    }
}

/// Octets of a ring that a record takes: its word, `head` and `octets` of the datagram, and what follows up to the next record.
pub const fn span(head: usize, octets: usize) -> u64 {
    WORD + (head as u64 + octets as u64).next_multiple_of(ALIGN)
}

/// Where a record stands whose lengths were checked: all of it lies between head and tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    start: u64,
    head: usize,
    octets: usize,
}

impl Place {
    /// The record at `start`, where `available` octets are; its word is read once, and may be anybody's.
    ///
    /// # Errors
    /// There is none, or a longer one than there can be.
    #[inline]
    pub fn find(ring: &impl Octets, start: u64, available: u64) -> Result<Place, Poisoned> {
        if !(start | available).is_multiple_of(ALIGN) || !(WORD..=ring.size()).contains(&available) {
            return Err(Poisoned);
        }
        // Once: what is checked is what is used.
        let mut word = [0; WORD as usize];
        ring.get(start, &mut word);
        let record = Record::decode(word);
        let (head, octets) = (usize::from(record.head), record.octets as usize);
        if record.mark != MARK || head > HEADS || octets > LONGEST || span(head, octets) > available {
            return Err(Poisoned);
        }
        Ok(Place { start, head, octets })
    }

    /// Position of the head.
    pub const fn head_at(&self) -> u64 {
        self.start.wrapping_add(WORD)
    }

    /// Octets of the head.
    pub const fn head_len(&self) -> usize {
        self.head
    }

    /// Position of the datagram.
    pub const fn at(&self) -> u64 {
        self.head_at().wrapping_add(self.head as u64)
    }

    /// Octets of the datagram.
    pub const fn len(&self) -> usize {
        self.octets
    }

    /// Whether it has no octets: a datagram all the same.
    pub const fn is_empty(&self) -> bool {
        self.octets == 0
    }

    /// Position of what follows.
    pub const fn end(&self) -> u64 {
        self.start.wrapping_add(span(self.head, self.octets))
    }

    /// Octets of the ring that it takes.
    pub const fn span(&self) -> u64 {
        span(self.head, self.octets)
    }

    /// Copies the head out, as much of it as there is room for; returns how much that is.
    pub fn copy_head(&self, ring: &impl Octets, to: &mut [u8]) -> usize {
        let n = self.head.min(to.len());
        ring.get(self.head_at(), &mut to[..n]);
        n
    }

    /// Copies the datagram out, as much of it as there is room for; returns how much that is.
    pub fn copy(&self, ring: &impl Octets, to: &mut [u8]) -> usize {
        let n = self.octets.min(to.len());
        ring.get(self.at(), &mut to[..n]);
        n
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_come_back() {
        let record = Record { octets: 0x0102_0304, head: 0x0506, mark: 0x0708 };
        assert_eq!(Record::decode(record.encode()), record);
    }

    #[test]
    fn a_record_takes_whole_words() {
        assert_eq!([span(0, 0), span(0, 1), span(0, 8), span(3, 6)], [8, 16, 16, 24]);
        assert_eq!(span(HEADS, LONGEST), 8 + 256 + 65_528);
    }

    #[test]
    fn a_record_at_the_last_position_goes_round() {
        let last = Place { start: 0u64.wrapping_sub(ALIGN), head: 8, octets: 8 };
        assert_eq!((last.head_at(), last.at(), last.end()), (0, 8, 16));
    }
}
