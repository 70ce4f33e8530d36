//! The internet checksum: RFC 1071, incremental update (RFC 1624), pseudo headers, and copying while summing.
//!
//! A [`Sum`] is the one's complement sum of 16-bit big-endian words; octets are counted from the first one added, so
//! pieces may have any length, odd ones too, and stand at any address. Long pieces go through AVX2 or AVX-512 where
//! the processor has them (feature `std`); the result is the same everywhere. The sum is not keyed and finds
//! accidents only.

#[cfg(all(feature = "std", target_arch = "x86_64"))]
#[allow(unsafe_code)]
mod x86;

use core::net::{Ipv4Addr, Ipv6Addr};

/// Octets that are copied before they are summed; a multiple of eight.
const BLOCK: usize = 4096;
/// Pieces are cut here, so that no sum of 32-bit halves overflows 64 bits.
const MOST: usize = 1 << 30;

/// A one's complement sum that is being collected (RFC 1071, 1).
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Sum of the words as the machine reads them, below 2^33.
    native: u64,
    /// An odd number of octets was added: the next one is a word's second.
    odd: bool,
}

impl Sum {
    /// The empty sum.
    pub const fn new() -> Sum {
        Sum { native: 0, odd: false }
    }

    /// Adds octets, behind those added before.
    #[must_use]
    #[inline]
    pub fn bytes(self, data: &[u8]) -> Sum {
        if data.len() <= MOST {
            return self.with(native_sum(data), data.len());
        }
        data.chunks(MOST).fold(self, |sum, part| sum.with(native_sum(part), part.len()))
    }

    /// Adds octets whose number is known: headers. It is a multiple of four.
    #[must_use]
    #[inline(always)]
    pub fn array<const N: usize>(self, data: &[u8; N]) -> Sum {
        const { assert!(N.is_multiple_of(4)) };
        let words = data.as_chunks::<4>().0.iter();
        self.with(words.fold(0, |sum, word| sum + u64::from(u32::from_ne_bytes(*word))), N)
    }

    /// Adds a 16-bit word given in host byte order. After an odd number of octets its high octet still comes first.
    #[must_use]
    #[inline]
    pub const fn word(self, word: u16) -> Sum {
        self.with(word.to_be() as u64, 2)
    }

    /// Adds a 32-bit word given in host byte order.
    #[must_use]
    #[inline]
    pub const fn long(self, long: u32) -> Sum {
        self.with(long.to_be() as u64, 4)
    }

    /// Copies `from` to `to` and adds the octets, in one pass over the memory. If one is shorter, only as many octets
    /// are copied and added.
    #[must_use]
    #[inline]
    pub fn copy(self, to: &mut [u8], from: &[u8]) -> Sum {
        let len = to.len().min(from.len());
        let (to, from) = (&mut to[..len], &from[..len]);
        if len <= MOST {
            return self.with(native_copy(to, from), len);
        }
        let parts = to.chunks_mut(MOST).zip(from.chunks(MOST));
        parts.fold(self, |sum, (to, from)| sum.with(native_copy(to, from), from.len()))
    }

    #[inline]
    const fn with(self, part: u64, len: usize) -> Sum {
        let part = if self.odd { fold(part).swap_bytes() as u64 } else { half(part) };
        Sum { native: half(self.native + part), odd: self.odd ^ (len & 1 == 1) }
    }

    /// The sum itself, in host byte order: what stands in the field of a packet whose checksum the device completes.
    #[inline]
    pub const fn folded(self) -> u16 {
        u16::from_be(fold(self.native))
    }

    /// The checksum: the complement of the sum, in host byte order, to be stored big-endian.
    #[inline]
    pub const fn finish(self) -> u16 {
        !self.folded()
    }

    /// Whether everything was added that a sender had summed, its checksum included, and nothing changed.
    #[inline]
    pub const fn is_valid(self) -> bool {
        self.folded() == 0xffff
    }
}

/// The checksum of one piece (RFC 1071), in host byte order.
#[inline]
pub fn checksum(data: &[u8]) -> u16 {
    Sum::new().bytes(data).finish()
}

/// Whether a piece that carries its own checksum is unchanged (IPv4 header, ICMP message).
#[inline]
pub fn is_valid(data: &[u8]) -> bool {
    Sum::new().bytes(data).is_valid()
}

/// Copies `from` to `to` while summing; see [`Sum::copy`].
#[inline]
pub fn copy(to: &mut [u8], from: &[u8]) -> Sum {
    Sum::new().copy(to, from)
}

/// The checksum after one word under it changed (RFC 1624, 3, equation 3): `HC' = ~(~HC + ~m + m')`. All values in
/// host byte order. Exact for what a sum over the changed data would give, but that data of zeros only may give
/// 0x0000 instead of 0xffff (RFC 1624, 3 and 5).
#[must_use]
#[inline]
pub const fn update(check: u16, old: u16, new: u16) -> u16 {
    !fold(!check as u64 + !old as u64 + new as u64)
}

/// The checksum after octets under it changed: a field of any even length at an even offset, an IPv6 address say.
/// A longer `new` or `old` counts as the other filled with zeros.
#[must_use]
pub fn update_bytes(check: u16, old: &[u8], new: &[u8]) -> u16 {
    // Subtracting a sum is adding its complement.
    let removed = !Sum::new().bytes(old).folded();
    let added = Sum::new().bytes(new).folded();
    !fold(!check as u64 + removed as u64 + added as u64)
}

/// The sum of IPv4's pseudo header (RFC 793, 3.1; RFC 768). `len` counts the octets of the transport header and what
/// follows it.
#[inline]
pub fn pseudo_v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, len: u16) -> Sum {
    let words = [source.to_bits().to_be(), destination.to_bits().to_be()];
    let rest = [(protocol as u16).to_be(), len.to_be()];
    Sum {
        native: half(words.map(u64::from).iter().sum::<u64>() + rest.map(u64::from).iter().sum::<u64>()),
        odd: false,
    }
}

/// The sum of IPv6's pseudo header (RFC 8200, 8.1). `protocol` is the upper layer's, whatever extension headers
/// stand before it; `len` as for [`pseudo_v4`].
#[inline]
pub fn pseudo_v6(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, len: u32) -> Sum {
    let sum = Sum::new().bytes(&source.octets()).bytes(&destination.octets());
    sum.long(len).long(protocol as u32)
}

/// The sums of plain Rust alone, for machines without wide registers. [`Sum`] gives the same results.
pub mod portable {
    use super::{Sum, copy_here, sum_here};

    /// The one's complement sum of one piece.
    pub fn sum(data: &[u8]) -> Sum {
        Sum::new().with(sum_here(data), data.len())
    }

    /// Copies `from` to `to` while summing; the shorter length counts.
    pub fn copy(to: &mut [u8], from: &[u8]) -> Sum {
        let len = to.len().min(from.len());
        Sum::new().with(copy_here(&mut to[..len], &from[..len]), len)
    }
}

/// Into 33 bits, keeping the value modulo 65535, and nonzero if it was.
const fn half(sum: u64) -> u64 {
    (sum >> 32) + (sum & 0xffff_ffff)
}

/// Into 16 bits, keeping the value modulo 65535, and nonzero if it was.
const fn fold(sum: u64) -> u16 {
    let sum = half(half(sum));
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

#[inline]
fn native_sum(data: &[u8]) -> u64 {
    #[cfg(all(feature = "std", target_arch = "x86_64"))]
    if data.len() >= x86::WIDE {
        return x86::sum(data);
    }
    sum_here(data)
}

#[inline]
fn native_copy(to: &mut [u8], from: &[u8]) -> u64 {
    #[cfg(all(feature = "std", target_arch = "x86_64"))]
    if from.len() >= x86::WIDE {
        return x86::copy(to, from);
    }
    copy_here(to, from)
}

/// The sum of the words that two numbers stand for: all of them added modulo 2^64, and their upper halves. The lower
/// halves add up to less than 2^64, so they follow from both. Three operations a word where two masks would be four,
/// in a loop that compilers make vectors of.
#[inline(always)]
fn joined(all: u64, upper: u64) -> u64 {
    half(all.wrapping_sub(upper << 32)) + half(upper)
}

/// Sums octets on the registers that the caller is compiled for.
#[inline(always)]
fn sum_here(data: &[u8]) -> u64 {
    let (words, rest) = data.as_chunks::<8>();
    let (mut all, mut upper) = (0u64, 0u64);
    for word in words {
        let word = u64::from_ne_bytes(*word);
        all = all.wrapping_add(word);
        upper = upper.wrapping_add(word >> 32);
    }
    joined(all, upper) + sum_tiny(rest)
}

/// As [`sum_here`], while copying: block by block, each summed while it is in the nearest cache. The lengths are equal.
#[inline(always)]
fn copy_here(to: &mut [u8], from: &[u8]) -> u64 {
    if from.len() <= BLOCK {
        to.copy_from_slice(from);
        return sum_here(from);
    }
    let blocks = to.chunks_mut(BLOCK).zip(from.chunks(BLOCK));
    blocks.fold(0, |sum, (to, from)| {
        let sum = half(sum + sum_here(from));
        to.copy_from_slice(from);
        sum
    })
}

/// At most seven octets.
#[inline(always)]
fn sum_tiny(data: &[u8]) -> u64 {
    let (words, rest) = data.as_chunks::<2>();
    let sum = words.iter().fold(0, |sum, word| sum + u16::from_ne_bytes(*word) as u64);
    sum + rest.first().map_or(0, |last| u16::from_ne_bytes([*last, 0]) as u64)
}

#[cfg(test)]
mod tests;
