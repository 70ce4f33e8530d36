//! UDP headers (RFC 768; RFC 8200, 8.1 and RFC 6935 for the checksum under IPv6).

use crate::bytes::{be16, head, room, room_of};
use crate::checksum::Sum;
use crate::error::{EmitError, ParseError, Part};
use crate::ip::{Addresses, IpProtocol};

/// Octets of a header.
pub const HEADER_LEN: usize = 8;
/// The most octets behind it.
pub const MOST_PAYLOAD: usize = 65535 - HEADER_LEN;

/// The header of a UDP datagram. Length and checksum are not in it: they follow from what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpHeader {
    /// The sender's port; 0 if no answer is wanted.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
}

/// What a datagram's checksum says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpChecksum {
    /// It fits.
    Fits,
    /// The sender computed none. Under IPv6 such a datagram is dropped, but for tunnels that agreed on it (RFC 6935).
    Absent,
    /// It does not fit.
    Wrong,
}

impl UdpHeader {
    /// The header of a datagram, and its payload: what the length field covers, no more.
    ///
    /// The checksum is not looked at: [`verify`] does, where nobody has done it before.
    ///
    /// # Errors
    /// [`ParseError::Truncated`]; [`ParseError::Length`] if the length field says less than 8.
    pub fn parse(datagram: &[u8]) -> Result<(UdpHeader, &[u8]), ParseError> {
        let (header, len) = UdpHeader::parse_header(datagram)?;
        let have = datagram.len();
        let payload = datagram.get(HEADER_LEN..len).ok_or(ParseError::Truncated {
            part: Part::Udp,
            need: len,
            have,
        })?;
        Ok((header, payload))
    }

    /// The header alone, of a datagram that may be cut off behind it, and the length that it announces, at least 8.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if the header is; [`ParseError::Length`].
    pub fn parse_header(datagram: &[u8]) -> Result<(UdpHeader, usize), ParseError> {
        let fixed: &[u8; HEADER_LEN] = head(datagram, Part::Udp)?;
        let found = be16!(fixed, 4) as usize;
        if found < HEADER_LEN {
            return Err(ParseError::Length { part: Part::Udp, found, least: HEADER_LEN });
        }
        Ok((UdpHeader { source_port: be16!(fixed, 0), destination_port: be16!(fixed, 2) }, found))
    }

    /// Writes the header to the front of the buffer, for a payload of `payload_len` octets behind it; answers its
    /// [`HEADER_LEN`]. The checksum is zero until [`fill`] puts it in.
    ///
    /// # Errors
    /// [`EmitError::Room`]; [`EmitError::TooLong`] beyond [`MOST_PAYLOAD`].
    #[inline]
    pub fn emit(&self, buffer: &mut [u8], payload_len: usize) -> Result<usize, EmitError> {
        if payload_len > MOST_PAYLOAD {
            return Err(EmitError::TooLong { part: Part::Udp, found: payload_len, most: MOST_PAYLOAD });
        }
        let room: &mut [u8; HEADER_LEN] = room_of(buffer, Part::Udp)?;
        room[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        room[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        room[4..6].copy_from_slice(&((HEADER_LEN + payload_len) as u16).to_be_bytes());
        room[6..8].fill(0);
        Ok(HEADER_LEN)
    }

    /// Writes header and payload to the front of the buffer and sums while copying; answers the octets of both.
    ///
    /// # Errors
    /// As [`UdpHeader::emit`], and [`EmitError::Room`] for the payload.
    #[inline]
    pub fn emit_with(
        &self,
        buffer: &mut [u8],
        addresses: &Addresses,
        payload: &[u8],
    ) -> Result<usize, EmitError> {
        let len = HEADER_LEN + payload.len();
        if payload.len() > MOST_PAYLOAD {
            return Err(EmitError::TooLong { part: Part::Udp, found: payload.len(), most: MOST_PAYLOAD });
        }
        let (header, behind) = room(buffer, len, Part::Udp)?.split_at_mut(HEADER_LEN);
        let sum = addresses.pseudo_header(IpProtocol::UDP, len);
        self.emit_summed(room_of(header, Part::Udp)?, behind, sum, payload);
        Ok(len)
    }

    /// Writes the header, of a datagram whose pseudo header has the sum `pseudo`, and the payload behind it, of which there is
    /// as much room: both are summed on the way. Payloads beyond [`MOST_PAYLOAD`] spoil the length field.
    #[inline(always)]
    pub fn emit_summed(&self, header: &mut [u8; HEADER_LEN], behind: &mut [u8], pseudo: Sum, payload: &[u8]) {
        let len = (HEADER_LEN + payload.len()) as u16;
        let ports = (self.source_port as u32) << 16 | self.destination_port as u32;
        let sum = pseudo.long(ports).word(len).copy(behind, payload);
        self.emit_checked(header, len, transmitted(sum));
    }

    /// Writes the header of a datagram of `len` octets altogether, with a checksum that is known.
    #[inline(always)]
    pub fn emit_checked(&self, header: &mut [u8; HEADER_LEN], len: u16, check: u16) {
        let fields = [self.source_port, self.destination_port, len, check];
        for (octets, field) in header.as_chunks_mut::<2>().0.iter_mut().zip(fields) {
            *octets = field.to_be_bytes();
        }
    }
}

/// A computed zero is sent as all ones: zero says that there is no checksum (RFC 768).
#[inline]
fn transmitted(sum: Sum) -> u16 {
    match sum.finish() {
        0 => 0xffff,
        check => check,
    }
}

/// Computes the checksum of a datagram and puts it in. Octets beyond 65535 and what is no header stay as they are.
pub fn fill(addresses: &Addresses, datagram: &mut [u8]) {
    if datagram.len() >= HEADER_LEN {
        datagram[6..8].fill(0);
        let sum = addresses.pseudo_header(IpProtocol::UDP, datagram.len()).bytes(datagram);
        datagram[6..8].copy_from_slice(&transmitted(sum).to_be_bytes());
    }
}

/// Puts the sum of the pseudo header where the checksum belongs: a device completes it
/// ([`ChecksumState::Partial`](crate::meta::ChecksumState::Partial) with offset 6).
#[inline]
pub fn fill_partial(addresses: &Addresses, datagram: &mut [u8]) {
    if datagram.len() >= HEADER_LEN {
        let sum = addresses.pseudo_header(IpProtocol::UDP, datagram.len());
        datagram[6..8].copy_from_slice(&sum.folded().to_be_bytes());
    }
}

/// Looks whether the checksum of a whole datagram fits. Octets behind its length field's end are left out; one that
/// is cut off, or is no datagram, is [`UdpChecksum::Wrong`].
pub fn verify(addresses: &Addresses, datagram: &[u8]) -> UdpChecksum {
    let Ok((_, len)) = UdpHeader::parse_header(datagram) else {
        return UdpChecksum::Wrong;
    };
    let Some(datagram) = datagram.get(..len) else {
        return UdpChecksum::Wrong;
    };
    if datagram[6..8] == [0, 0] {
        return UdpChecksum::Absent;
    }
    if addresses.pseudo_header(IpProtocol::UDP, len).bytes(datagram).is_valid() {
        UdpChecksum::Fits
    } else {
        UdpChecksum::Wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    const V4: Addresses =
        Addresses::V4 { source: Ipv4Addr::new(10, 0, 0, 1), destination: Ipv4Addr::new(10, 0, 0, 2) };
    const V6: Addresses = Addresses::V6 { source: Ipv6Addr::LOCALHOST, destination: Ipv6Addr::LOCALHOST };
    const HEADER: UdpHeader = UdpHeader { source_port: 5353, destination_port: 53 };

    #[test]
    fn header_and_payload_are_written_and_read() {
        for addresses in [V4, V6] {
            for len in [0, 1, 2, 63, 64, 65, 1472] {
                let payload = &[0x5a; 1472][..len];
                let mut datagram = [0xee; 1480];
                assert_eq!(HEADER.emit_with(&mut datagram, &addresses, payload), Ok(8 + len));
                assert_eq!(verify(&addresses, &datagram), UdpChecksum::Fits, "padding counts for nothing");
                assert_eq!(UdpHeader::parse(&datagram), Ok((HEADER, payload)));
                let mut again = datagram;
                again[6..8].fill(0x77);
                fill(&addresses, &mut again[..8 + len]);
                assert_eq!(again, datagram);
            }
        }
    }

    #[test]
    fn a_sum_of_zero_is_sent_as_all_ones() {
        let mut datagram = [0; 10];
        HEADER.emit_with(&mut datagram, &V4, &[0, 0]).unwrap();
        // The payload word that makes the sum over everything all ones, hence the checksum zero.
        let word = u16::from_be_bytes([datagram[6], datagram[7]]);
        HEADER.emit_with(&mut datagram, &V4, &word.to_be_bytes()).unwrap();
        assert_eq!(datagram[6..8], [0xff, 0xff]);
        assert_eq!(verify(&V4, &datagram), UdpChecksum::Fits);
    }

    #[test]
    fn no_checksum_is_told_from_a_wrong_one() {
        let mut datagram = [0; 12];
        HEADER.emit(&mut datagram, 4).unwrap();
        assert_eq!(verify(&V4, &datagram), UdpChecksum::Absent);
        fill_partial(&V4, &mut datagram);
        assert_eq!(verify(&V4, &datagram), UdpChecksum::Wrong);
        // What a device does with the partial sum.
        let check = Sum::new().bytes(&datagram).finish();
        datagram[6..8].copy_from_slice(&check.to_be_bytes());
        assert_eq!(verify(&V4, &datagram), UdpChecksum::Fits);
        assert_eq!(verify(&V4, &datagram[..11]), UdpChecksum::Wrong);
        assert_eq!(verify(&V4, &[]), UdpChecksum::Wrong);
    }

    #[test]
    fn lengths_are_checked() {
        let mut datagram = [0; 12];
        HEADER.emit(&mut datagram, 4).unwrap();
        let truncated = ParseError::Truncated { part: Part::Udp, need: 12, have: 11 };
        assert_eq!(UdpHeader::parse(&datagram[..11]), Err(truncated));
        datagram[5] = 7;
        let short = ParseError::Length { part: Part::Udp, found: 7, least: 8 };
        assert_eq!(UdpHeader::parse(&datagram), Err(short));
        assert_eq!(HEADER.emit(&mut datagram, 65527), Ok(8));
        let too_long = EmitError::TooLong { part: Part::Udp, found: 65528, most: 65527 };
        assert_eq!(HEADER.emit(&mut datagram, 65528), Err(too_long));
        let room = EmitError::Room { part: Part::Udp, need: 13, have: 12 };
        assert_eq!(HEADER.emit_with(&mut datagram, &V4, &[0; 5]), Err(room));
        fill(&V4, &mut datagram[..7]);
        fill_partial(&V4, &mut datagram[..7]);
    }
}
