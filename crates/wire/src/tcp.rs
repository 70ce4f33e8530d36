//! TCP headers (RFC 9293, 3.1). Options are in [`crate::tcp_options`].

use crate::bytes::{be16, be32, head, room, split};
use crate::error::{EmitError, ParseError, Part};
use crate::ip::{Addresses, IpProtocol};
use crate::seq::SeqNumber;
use crate::tcp_options::TcpOptions;
use core::fmt;
use core::ops::{BitOr, BitOrAssign};

/// Octets of a header without options.
pub const HEADER_LEN: usize = 20;
/// Where the checksum stands in the header: what
/// [`ChecksumState::Partial`](crate::meta::ChecksumState::Partial) names.
pub const CHECKSUM_OFFSET: u16 = 16;

/// Control bits of a segment.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TcpFlags(u16);

impl TcpFlags {
    /// None.
    pub const NONE: TcpFlags = TcpFlags(0);
    /// The sender sends no more.
    pub const FIN: TcpFlags = TcpFlags(0x001);
    /// The sequence number is the first of its stream.
    pub const SYN: TcpFlags = TcpFlags(0x002);
    /// The connection is over at once.
    pub const RST: TcpFlags = TcpFlags(0x004);
    /// Not to be kept back from the application.
    pub const PSH: TcpFlags = TcpFlags(0x008);
    /// The acknowledgement number counts.
    pub const ACK: TcpFlags = TcpFlags(0x010);
    /// The urgent pointer counts.
    pub const URG: TcpFlags = TcpFlags(0x020);
    /// Congestion was experienced (RFC 3168, 6.1).
    pub const ECE: TcpFlags = TcpFlags(0x040);
    /// The congestion window was reduced (RFC 3168, 6.1).
    pub const CWR: TcpFlags = TcpFlags(0x080);
    /// Accurate congestion notification; once the nonce sum (RFC 3540).
    pub const AE: TcpFlags = TcpFlags(0x100);

    const ALL: u16 = 0x1ff;

    /// All flags of `other` are set.
    pub const fn has(self, other: TcpFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Some flag of `other` is set.
    pub const fn has_any(self, other: TcpFlags) -> bool {
        self.0 & other.0 != 0
    }

    /// These flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 & !other.0)
    }

    /// The bits as they stand in the header's thirteenth and fourteenth octet; reserved ones are never set.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// From bits; reserved ones are cut off (RFC 9293, 3.1: ignored when received).
    pub const fn from_bits(bits: u16) -> TcpFlags {
        TcpFlags(bits & TcpFlags::ALL)
    }
}

impl BitOr for TcpFlags {
    type Output = TcpFlags;

    fn bitor(self, other: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 | other.0)
    }
}

impl BitOrAssign for TcpFlags {
    fn bitor_assign(&mut self, other: TcpFlags) {
        *self = *self | other;
    }
}

impl fmt::Display for TcpFlags {
    /// As tcpdump prints them: `S`, `S.`, `P.`, `F.`, `R`, `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LETTERS: [(TcpFlags, &str); 9] = [
            (TcpFlags::FIN, "F"),
            (TcpFlags::SYN, "S"),
            (TcpFlags::RST, "R"),
            (TcpFlags::PSH, "P"),
            (TcpFlags::ACK, "."),
            (TcpFlags::URG, "U"),
            (TcpFlags::ECE, "E"),
            (TcpFlags::CWR, "W"),
            (TcpFlags::AE, "e"),
        ];
        if *self == TcpFlags::NONE {
            return f.write_str("none");
        }
        LETTERS.iter().filter(|(flag, _)| self.has(*flag)).try_for_each(|(_, letter)| f.write_str(letter))
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TcpFlags({self})")
    }
}

/// The header of a TCP segment. The checksum is not in it: it follows from what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpHeader {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// SEG.SEQ: of the first octet of payload, or of SYN.
    pub seq: SeqNumber,
    /// SEG.ACK: the next octet that the sender expects. Counts with [`TcpFlags::ACK`] only.
    pub ack: SeqNumber,
    /// Control bits.
    pub flags: TcpFlags,
    /// SEG.WND as it stands there, not scaled.
    pub window: u16,
    /// SEG.UP: octets from `seq` to the end of urgent data. Counts with [`TcpFlags::URG`] only.
    pub urgent: u16,
    /// Options, as they stand there.
    pub options: TcpOptions,
}

impl TcpHeader {
    /// A header without flags and options.
    pub const fn new(source_port: u16, destination_port: u16) -> TcpHeader {
        TcpHeader {
            source_port,
            destination_port,
            seq: SeqNumber(0),
            ack: SeqNumber(0),
            flags: TcpFlags::NONE,
            window: 0,
            urgent: 0,
            options: TcpOptions::new(),
        }
    }

    /// Octets of the header with its options, padded to a multiple of four.
    pub fn len(&self) -> usize {
        HEADER_LEN + self.options.padded().len()
    }

    /// Never: a header has octets.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// SEG.LEN: octets of sequence space, SYN and FIN counted (RFC 9293, 3.4), modulo 2^32.
    pub fn sequence_len(&self, payload_len: usize) -> u32 {
        let control = self.flags.has(TcpFlags::SYN) as u32 + self.flags.has(TcpFlags::FIN) as u32;
        (payload_len as u32).wrapping_add(control)
    }

    /// The header of a segment, and its payload. All octets given are the segment's: TCP has no length field.
    ///
    /// The checksum is not looked at: [`verify`] does, where nobody has done it before. Options are not looked into:
    /// [`TcpOptions::iter`] does.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if header or options are; [`ParseError::Length`] for a data offset below 20 octets.
    pub fn parse(segment: &[u8]) -> Result<(TcpHeader, &[u8]), ParseError> {
        let (mut header, len) = TcpHeader::parse_fixed(segment)?;
        let (whole, payload) = split(segment, len, Part::Tcp)?;
        header.options = TcpOptions::from_bytes(&whole[HEADER_LEN..]).unwrap_or_default();
        Ok((header, payload))
    }

    /// The first 20 octets alone, without options, and the header's announced length: enough for a segment that is
    /// quoted by ICMP.
    ///
    /// # Errors
    /// As [`TcpHeader::parse`], but options may be cut off.
    pub fn parse_fixed(segment: &[u8]) -> Result<(TcpHeader, usize), ParseError> {
        let fixed: &[u8; HEADER_LEN] = head(segment, Part::Tcp)?;
        let found = (fixed[12] >> 4) as usize * 4;
        if found < HEADER_LEN {
            return Err(ParseError::Length { part: Part::Tcp, found, least: HEADER_LEN });
        }
        let header = TcpHeader {
            source_port: be16!(fixed, 0),
            destination_port: be16!(fixed, 2),
            seq: SeqNumber(be32!(fixed, 4)),
            ack: SeqNumber(be32!(fixed, 8)),
            flags: TcpFlags::from_bits(be16!(fixed, 12)),
            window: be16!(fixed, 14),
            urgent: be16!(fixed, 18),
            options: TcpOptions::new(),
        };
        Ok((header, found))
    }

    /// Writes the header to the front of the buffer; answers how many octets it took. The checksum is zero until
    /// [`fill`] puts it in.
    ///
    /// # Errors
    /// [`EmitError::Room`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let len = self.len();
        let (fixed, options) = room(buffer, len, Part::Tcp)?.split_at_mut(HEADER_LEN);
        options.copy_from_slice(self.options.padded());
        fixed[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        fixed[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        fixed[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        fixed[12..14].copy_from_slice(&((len as u16 / 4) << 12 | self.flags.bits()).to_be_bytes());
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        fixed[16..18].fill(0);
        fixed[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        Ok(len)
    }

    /// Writes header and payload to the front of the buffer and sums while copying; answers the octets of both.
    ///
    /// # Errors
    /// [`EmitError::Room`].
    pub fn emit_with(
        &self,
        buffer: &mut [u8],
        addresses: &Addresses,
        payload: &[u8],
    ) -> Result<usize, EmitError> {
        let header_len = self.emit(buffer)?;
        let len = header_len + payload.len();
        let (header, behind) = room(buffer, len, Part::Tcp)?.split_at_mut(header_len);
        let sum = addresses.pseudo_header(IpProtocol::TCP, len).bytes(header).copy(behind, payload);
        header[16..18].copy_from_slice(&sum.finish().to_be_bytes());
        Ok(len)
    }
}

/// Computes the checksum of a segment and puts it in. What is no header stays as it is.
pub fn fill(addresses: &Addresses, segment: &mut [u8]) {
    if segment.len() >= HEADER_LEN {
        segment[16..18].fill(0);
        let sum = addresses.pseudo_header(IpProtocol::TCP, segment.len()).bytes(segment);
        segment[16..18].copy_from_slice(&sum.finish().to_be_bytes());
    }
}

/// Puts the sum of the pseudo header where the checksum belongs: a device completes it
/// ([`ChecksumState::Partial`](crate::meta::ChecksumState::Partial) with [`CHECKSUM_OFFSET`]).
pub fn fill_partial(addresses: &Addresses, segment: &mut [u8]) {
    if segment.len() >= HEADER_LEN {
        let sum = addresses.pseudo_header(IpProtocol::TCP, segment.len());
        segment[16..18].copy_from_slice(&sum.folded().to_be_bytes());
    }
}

/// Whether the checksum of a whole segment fits.
pub fn verify(addresses: &Addresses, segment: &[u8]) -> bool {
    segment.len() >= HEADER_LEN
        && addresses.pseudo_header(IpProtocol::TCP, segment.len()).bytes(segment).is_valid()
}

#[cfg(test)]
mod tests;
