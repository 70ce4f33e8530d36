//! The fixed header of IPv6 (RFC 8200, 3). Extension headers are in [`crate::ipv6_ext`]. Jumbograms (RFC 2675) are not
//! taken apart: their payload length of 0 is what it says.

use crate::bytes::{be16, be32, fits, head, room_of, sixteen, split};
use crate::error::{EmitError, ParseError, Part};
use crate::ip::{Addresses, IpProtocol, TrafficClass};
use core::net::Ipv6Addr;

/// Octets of the fixed header.
pub const HEADER_LEN: usize = 40;
/// The most octets behind it.
pub const MOST_PAYLOAD: usize = 65535;
/// Every link carries packets of this size (RFC 8200, 5).
pub const MIN_MTU: usize = 1280;

/// The fixed header of an IPv6 packet. The payload length is not in it: it follows from what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Header {
    /// Traffic class.
    pub class: TrafficClass,
    /// Packets of one flow have the same (RFC 6437): 20 bits.
    pub flow_label: u32,
    /// What follows: an extension header or the payload.
    pub next_header: IpProtocol,
    /// Routers that it may still pass.
    pub hop_limit: u8,
    /// From whom.
    pub source: Ipv6Addr,
    /// To whom.
    pub destination: Ipv6Addr,
}

impl Ipv6Header {
    /// A packet without class and flow, 64 routers away at most.
    pub const fn new(source: Ipv6Addr, destination: Ipv6Addr, next_header: IpProtocol) -> Ipv6Header {
        let class = TrafficClass(0);
        Ipv6Header { class, flow_label: 0, next_header, hop_limit: 64, source, destination }
    }

    /// Source and destination.
    pub const fn addresses(&self) -> Addresses {
        Addresses::V6 { source: self.source, destination: self.destination }
    }

    /// The header of a packet, and its payload (extension headers first) without what may follow as padding.
    ///
    /// # Errors
    /// As [`Ipv6Header::parse_header`]; [`ParseError::Truncated`] if the packet is shorter than it says.
    pub fn parse(packet: &[u8]) -> Result<(Ipv6Header, &[u8]), ParseError> {
        let (header, payload_len) = Ipv6Header::parse_header(packet)?;
        let (packet, _) = split(packet, HEADER_LEN + payload_len, Part::Ipv6)?;
        Ok((header, &packet[HEADER_LEN..]))
    }

    /// The header alone, of a packet that may be cut off behind it, and the payload length that it announces.
    ///
    /// # Errors
    /// [`ParseError::Version`]; [`ParseError::Truncated`] if the header is.
    pub fn parse_header(packet: &[u8]) -> Result<(Ipv6Header, usize), ParseError> {
        let fixed: &[u8; HEADER_LEN] = head(packet, Part::Ipv6)?;
        let first = be32!(fixed, 0);
        if first >> 28 != 6 {
            return Err(ParseError::Version { part: Part::Ipv6, found: fixed[0] >> 4 });
        }
        let header = Ipv6Header {
            class: TrafficClass((first >> 20) as u8),
            flow_label: first & 0xf_ffff,
            next_header: IpProtocol(fixed[6]),
            hop_limit: fixed[7],
            source: Ipv6Addr::from(sixteen(fixed, 8)),
            destination: Ipv6Addr::from(sixteen(fixed, 24)),
        };
        Ok((header, be16!(fixed, 4) as usize))
    }

    /// Writes the header to the front of the buffer, for `payload_len` octets behind it (extension headers included);
    /// answers its [`HEADER_LEN`].
    ///
    /// # Errors
    /// [`EmitError::Room`]; [`EmitError::TooLong`] beyond [`MOST_PAYLOAD`]; [`EmitError::Field`] for a flow label of
    /// more than 20 bits.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8], payload_len: usize) -> Result<usize, EmitError> {
        if payload_len > MOST_PAYLOAD {
            return Err(EmitError::TooLong { part: Part::Ipv6, found: payload_len, most: MOST_PAYLOAD });
        }
        fits(Part::Ipv6, "flow label", self.flow_label, 0xf_ffff)?;
        self.emit_plain(room_of(buffer, Part::Ipv6)?, payload_len as u16);
        Ok(HEADER_LEN)
    }

    /// Writes the header as [`emit`](Ipv6Header::emit) does, without a look at what may be wrong: a flow label of more than 20
    /// bits spoils the rest.
    #[inline(always)]
    pub fn emit_plain(&self, room: &mut [u8; HEADER_LEN], payload_len: u16) {
        let first = 6 << 28 | (self.class.0 as u32) << 20 | self.flow_label;
        room[..4].copy_from_slice(&first.to_be_bytes());
        room[4..6].copy_from_slice(&payload_len.to_be_bytes());
        room[6] = self.next_header.0;
        room[7] = self.hop_limit;
        room[8..24].copy_from_slice(&self.source.octets());
        room[24..40].copy_from_slice(&self.destination.octets());
    }
}

/// One router fewer may be passed: decrements the hop limit. Answers what is left, and None if there is no header or
/// nothing to decrement; such a packet is not forwarded (RFC 8200, 3).
pub fn decrement_hop_limit(packet: &mut [u8]) -> Option<u8> {
    let fixed = packet.first_chunk_mut::<HEADER_LEN>()?;
    let left = fixed[7].checked_sub(1)?;
    fixed[7] = left;
    Some(left)
}

/// The group on which neighbours ask for an address (RFC 4291, 2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let octets = address.octets();
    let (high, low) = (0xff00 | octets[13] as u16, (octets[14] as u16) << 8 | octets[15] as u16);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, high, low)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    const B: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x11, 0x22ff, 0xfe33, 0x4455);

    #[test]
    fn a_header_is_written_as_rfc_8200_draws_it() {
        let header = Ipv6Header {
            class: TrafficClass(0xb8),
            flow_label: 0x12345,
            ..Ipv6Header::new(A, B, IpProtocol::UDP)
        };
        let mut bytes = [0xee; 48];
        assert_eq!(header.emit(&mut bytes, 7), Ok(40));
        assert_eq!(bytes[..8], [0x6b, 0x81, 0x23, 0x45, 0, 7, 17, 64]);
        assert_eq!((&bytes[8..24], &bytes[24..40]), (&A.octets()[..], &B.octets()[..]));
        assert_eq!(Ipv6Header::parse(&bytes), Ok((header, &[0xee; 7][..])));
        let truncated = ParseError::Truncated { part: Part::Ipv6, need: 47, have: 46 };
        assert_eq!(Ipv6Header::parse(&bytes[..46]), Err(truncated));
        assert_eq!(Ipv6Header::parse_header(&bytes[..40]), Ok((header, 7)));
        assert_eq!(decrement_hop_limit(&mut bytes), Some(63));
        bytes[7] = 0;
        assert_eq!(decrement_hop_limit(&mut bytes), None);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let header = Ipv6Header::new(A, B, IpProtocol::UDP);
        let too_long = EmitError::TooLong { part: Part::Ipv6, found: 65536, most: 65535 };
        assert_eq!(header.emit(&mut [0; 40], 65536), Err(too_long));
        let room = EmitError::Room { part: Part::Ipv6, need: 40, have: 39 };
        assert_eq!(header.emit(&mut [0; 39], 0), Err(room));
        let wide = Ipv6Header { flow_label: 1 << 20, ..header };
        assert!(matches!(wide.emit(&mut [0; 40], 0), Err(EmitError::Field { field: "flow label", .. })));
        let mut bytes = [0; 40];
        header.emit(&mut bytes, 0).unwrap();
        bytes[0] = 0x40;
        assert_eq!(Ipv6Header::parse(&bytes), Err(ParseError::Version { part: Part::Ipv6, found: 4 }));
    }

    #[test]
    fn the_solicited_node_group_of_rfc_4291() {
        let address: Ipv6Addr = "4037::1:800:200e:8c6c".parse().unwrap();
        assert_eq!(solicited_node(address), "ff02::1:ff0e:8c6c".parse::<Ipv6Addr>().unwrap());
    }
}
