//! IPv4 headers with options (RFC 791; RFC 1122, 3.2.1; RFC 6864 for the identification).

use crate::bytes::{be16, be32, head, room, room_of, split};
use crate::checksum::{self, Sum, checksum};
use crate::error::{EmitError, ParseError, Part};
use crate::ip::{Addresses, IpProtocol, TrafficClass};
use crate::option_bytes::{OptionBytes, next_tlv};
use core::fmt;
use core::net::Ipv4Addr;

/// Octets of a header without options.
pub const HEADER_LEN: usize = 20;
/// The most octets of a packet, header included.
pub const MOST_LEN: usize = 65535;
/// Every host takes packets of this size, in fragments or not (RFC 1122, 3.3.2).
pub const LEAST_REASSEMBLED: usize = 576;

/// The header of an IPv4 packet. Lengths and the checksum are not in it: they follow from what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Header {
    /// Type of service.
    pub class: TrafficClass,
    /// Tells the fragments of one packet from those of others.
    pub identification: u16,
    /// Routers must not cut this packet.
    pub dont_fragment: bool,
    /// Other fragments come behind this one.
    pub more_fragments: bool,
    /// Where this fragment belongs, in octets: a multiple of 8, at most 65528.
    pub fragment_offset: u16,
    /// Routers that it may still pass.
    pub ttl: u8,
    /// What it carries.
    pub protocol: IpProtocol,
    /// From whom.
    pub source: Ipv4Addr,
    /// To whom.
    pub destination: Ipv4Addr,
    /// Options, as they stand there.
    pub options: Ipv4Options,
}

/// What the length fields of a header say, and whether its checksum fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Extent {
    /// Octets of the header with its options.
    pub header_len: usize,
    /// Octets of the packet, at least `header_len`.
    pub total_len: usize,
    /// The header's checksum fits.
    pub checksum_fits: bool,
}

impl Ipv4Header {
    /// A whole packet without options: not to be cut, 64 routers away at most.
    pub const fn new(source: Ipv4Addr, destination: Ipv4Addr, protocol: IpProtocol) -> Ipv4Header {
        Ipv4Header {
            class: TrafficClass(0),
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol,
            source,
            destination,
            options: Ipv4Options::new(),
        }
    }

    /// Octets of the header with its options.
    pub fn len(&self) -> usize {
        HEADER_LEN + self.options.0.padded().len()
    }

    /// Never: a header has octets.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Source and destination.
    pub const fn addresses(&self) -> Addresses {
        Addresses::V4 { source: self.source, destination: self.destination }
    }

    /// Part of a packet that was cut.
    pub const fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }

    /// The header of a packet, and its payload without what may follow as padding of the link.
    ///
    /// Options are not looked into: [`Ipv4Options::iter`] does.
    ///
    /// # Errors
    /// As [`Ipv4Header::parse_header`]; [`ParseError::Truncated`] if the packet is shorter than its total length;
    /// [`ParseError::Checksum`].
    pub fn parse(packet: &[u8]) -> Result<(Ipv4Header, &[u8]), ParseError> {
        let (header, extent) = Ipv4Header::parse_header(packet)?;
        if !extent.checksum_fits {
            return Err(ParseError::Checksum { part: Part::Ipv4 });
        }
        let (packet, _) = split(packet, extent.total_len, Part::Ipv4)?;
        Ok((header, &packet[extent.header_len..]))
    }

    /// The header alone, of a packet that may be cut off behind it, as one quoted by ICMP is.
    ///
    /// # Errors
    /// [`ParseError::Version`]; [`ParseError::Truncated`] if the header is; [`ParseError::Length`] if the header
    /// length is below 20 or the total length below the header's.
    pub fn parse_header(packet: &[u8]) -> Result<(Ipv4Header, Ipv4Extent), ParseError> {
        let fixed: &[u8; HEADER_LEN] = head(packet, Part::Ipv4)?;
        if fixed[0] >> 4 != 4 {
            return Err(ParseError::Version { part: Part::Ipv4, found: fixed[0] >> 4 });
        }
        let header_len = (fixed[0] & 15) as usize * 4;
        let wrong = |found, least| ParseError::Length { part: Part::Ipv4, found, least };
        if header_len < HEADER_LEN {
            return Err(wrong(header_len, HEADER_LEN));
        }
        let total_len = be16!(fixed, 2) as usize;
        if total_len < header_len {
            return Err(wrong(total_len, header_len));
        }
        let (whole, _) = split(packet, header_len, Part::Ipv4)?;
        let flags = be16!(fixed, 6);
        let header = Ipv4Header {
            class: TrafficClass(fixed[1]),
            identification: be16!(fixed, 4),
            dont_fragment: flags & 0x4000 != 0,
            more_fragments: flags & 0x2000 != 0,
            fragment_offset: (flags & 0x1fff) << 3,
            ttl: fixed[8],
            protocol: IpProtocol(fixed[9]),
            source: Ipv4Addr::from_bits(be32!(fixed, 12)),
            destination: Ipv4Addr::from_bits(be32!(fixed, 16)),
            options: Ipv4Options(OptionBytes::from_slice(&whole[HEADER_LEN..]).unwrap_or(OptionBytes::new())),
        };
        let sum = Sum::new().array(fixed).bytes(&whole[HEADER_LEN..]);
        Ok((header, Ipv4Extent { header_len, total_len, checksum_fits: sum.is_valid() }))
    }

    /// Writes the header to the front of the buffer, for a payload of `payload_len` octets behind it; answers how
    /// many octets the header took. Total length and checksum are filled in, options padded with zeros.
    ///
    /// # Errors
    /// [`EmitError::Room`] for the header; [`EmitError::TooLong`] beyond [`MOST_LEN`]; [`EmitError::Field`] for a
    /// fragment offset that is no multiple of 8.
    #[inline(always)]
    pub fn emit(&self, buffer: &mut [u8], payload_len: usize) -> Result<usize, EmitError> {
        let len = self.len();
        let most = MOST_LEN - len;
        if payload_len > most {
            return Err(EmitError::TooLong { part: Part::Ipv4, found: payload_len, most });
        }
        let found = self.fragment_offset as u32;
        if !found.is_multiple_of(8) {
            return Err(EmitError::Field {
                part: Part::Ipv4,
                field: "fragment offset",
                found,
                most: found & !7,
            });
        }
        if len == HEADER_LEN {
            let room: &mut [u8; HEADER_LEN] = room_of(buffer, Part::Ipv4)?;
            self.emit_plain(room, payload_len as u16);
            return Ok(HEADER_LEN);
        }
        self.emit_options(room(buffer, len, Part::Ipv4)?, payload_len);
        Ok(len)
    }

    const fn flags(&self) -> u16 {
        (self.dont_fragment as u16) << 14 | (self.more_fragments as u16) << 13
    }

    /// A header with options, of which `room` has exactly the length.
    #[inline(never)]
    fn emit_options(&self, room: &mut [u8], payload_len: usize) {
        let len = room.len();
        let (fixed, options) = room.split_at_mut(HEADER_LEN);
        options.copy_from_slice(self.options.0.padded());
        fixed[0] = 4 << 4 | (len / 4) as u8;
        fixed[1] = self.class.0;
        fixed[2..4].copy_from_slice(&((len + payload_len) as u16).to_be_bytes());
        fixed[4..6].copy_from_slice(&self.identification.to_be_bytes());
        fixed[6..8].copy_from_slice(&(self.flags() | self.fragment_offset >> 3).to_be_bytes());
        fixed[8] = self.ttl;
        fixed[9] = self.protocol.0;
        fixed[10..12].fill(0);
        fixed[12..16].copy_from_slice(&self.source.octets());
        fixed[16..20].copy_from_slice(&self.destination.octets());
        let check = checksum(room);
        room[10..12].copy_from_slice(&check.to_be_bytes());
    }

    /// Writes the header as [`emit`](Ipv4Header::emit) does, but without its options and without a look at what may be wrong:
    /// total lengths beyond [`MOST_LEN`] and odd fragment offsets lose bits. Summed while it is in registers.
    #[inline(always)]
    pub fn emit_plain(&self, room: &mut [u8; HEADER_LEN], payload_len: u16) {
        let pair = |high: u16, low: u16| (high as u32) << 16 | low as u32;
        let lifetime = pair((self.ttl as u16) << 8 | self.protocol.0 as u16, 0);
        let words = [
            pair(0x4500 | self.class.0 as u16, payload_len.wrapping_add(HEADER_LEN as u16)),
            pair(self.identification, self.flags() | self.fragment_offset >> 3),
            lifetime,
            self.source.to_bits(),
            self.destination.to_bits(),
        ];
        // RFC 1071, 2: words of 32 bits add up as those of 16 do, once they are folded.
        let sum = words.iter().fold(0u64, |sum, word| sum + *word as u64);
        let sum = (sum >> 32) + (sum & 0xffff_ffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let check = !((sum >> 16) + sum) as u16;
        let [first, second, _, source, destination] = words;
        let words = [first, second, lifetime | check as u32, source, destination];
        for (octets, word) in room.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *octets = word.to_be_bytes();
        }
    }
}

/// Makes the header's total length, of `packet` from its first octet, `total_len`, and mends the checksum: for packets
/// that a device cut or joined. False, and nothing is changed, if there is no header.
pub fn set_total_len(packet: &mut [u8], total_len: u16) -> bool {
    let Some(fixed) = packet.first_chunk_mut::<HEADER_LEN>() else {
        return false;
    };
    let check = checksum::update(be16!(fixed, 10), be16!(fixed, 2), total_len);
    fixed[2..4].copy_from_slice(&total_len.to_be_bytes());
    fixed[10..12].copy_from_slice(&check.to_be_bytes());
    true
}

/// One router fewer may be passed: decrements the time to live and mends the checksum (RFC 1812, 5.3.1). Answers what
/// is left, and None if there is no header or nothing to decrement; such a packet is not forwarded.
pub fn decrement_ttl(packet: &mut [u8]) -> Option<u8> {
    let fixed = packet.first_chunk_mut::<HEADER_LEN>()?;
    let left = fixed[8].checked_sub(1)?;
    let old = be16!(fixed, 8);
    fixed[8] = left;
    let check = checksum::update(be16!(fixed, 10), old, be16!(fixed, 8));
    fixed[10..12].copy_from_slice(&check.to_be_bytes());
    Some(left)
}

/// Options of an IPv4 header, kept as octets: up to 40 of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ipv4Options(OptionBytes);

impl Ipv4Options {
    /// No options.
    pub const fn new() -> Ipv4Options {
        Ipv4Options(OptionBytes::new())
    }

    /// Octets as they stand in a header. None if there are more than 40.
    pub fn from_bytes(bytes: &[u8]) -> Option<Ipv4Options> {
        OptionBytes::from_slice(bytes).map(Ipv4Options)
    }

    /// Adds an option. False, and nothing added, if it does not fit.
    #[must_use]
    pub fn push(&mut self, option: &Ipv4Option) -> bool {
        match *option {
            Ipv4Option::Nop => self.0.extend(&[1]),
            Ipv4Option::RouterAlert(value) => {
                let [a, b] = value.to_be_bytes();
                self.0.extend(&[148, 4, a, b])
            }
            Ipv4Option::Other { kind, data } => {
                let before = self.0;
                let len = data.len() + 2;
                let fits = len <= 40 && self.0.extend(&[kind, len as u8]) && self.0.extend(data);
                if !fits {
                    self.0 = before;
                }
                fits
            }
        }
    }

    /// The octets.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    /// One option after the other, up to the end of the list or the first impossible length.
    pub fn iter(&self) -> Ipv4OptionIter<'_> {
        Ipv4OptionIter { bytes: self.as_bytes(), at: 0 }
    }
}

impl Default for Ipv4Options {
    fn default() -> Ipv4Options {
        Ipv4Options::new()
    }
}

impl fmt::Debug for Ipv4Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'a> IntoIterator for &'a Ipv4Options {
    type Item = Result<Ipv4Option<'a>, ParseError>;
    type IntoIter = Ipv4OptionIter<'a>;

    fn into_iter(self) -> Ipv4OptionIter<'a> {
        self.iter()
    }
}

/// An option of an IPv4 header (RFC 791, 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv4Option<'a> {
    /// Nothing: aligns the next one.
    Nop,
    /// Routers are to look into the packet (RFC 2113).
    RouterAlert(u16),
    /// Any other.
    Other {
        /// Copied flag, class and number.
        kind: u8,
        /// Octets behind the length.
        data: &'a [u8],
    },
}

/// See [`Ipv4Options::iter`].
#[derive(Clone, Debug)]
pub struct Ipv4OptionIter<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Ipv4OptionIter<'a> {
    type Item = Result<Ipv4Option<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        match next_tlv(self.bytes, self.at)? {
            Ok((option, next)) => {
                self.at = next;
                Some(Ok(match (option.kind, option.data) {
                    (1, _) => Ipv4Option::Nop,
                    (148, [a, b]) => Ipv4Option::RouterAlert(u16::from_be_bytes([*a, *b])),
                    (kind, data) => Ipv4Option::Other { kind, data },
                }))
            }
            Err((kind, at)) => {
                self.at = self.bytes.len();
                Some(Err(ParseError::Option { part: Part::Ipv4, kind, at }))
            }
        }
    }
}

#[cfg(test)]
mod tests;
