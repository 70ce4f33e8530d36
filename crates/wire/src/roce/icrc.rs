//! The invariant CRC at the end of every RoCEv2 packet (IBTA 7.8.1 and annex A17.3.3).
//!
//! It is the CRC-32 of Ethernet over 64 one bits, which stand for the link's header, the IP header, the UDP header, and
//! everything behind them, with what may change on the way taken as ones: IPv4's type of service, time to live and header
//! checksum; IPv6's traffic class, flow label and hop limit; the UDP checksum; the octet of the BTH that has FECN and BECN
//! in it. It stands in the packet with its lowest octet first.

use super::bth;
use crate::bytes::head;
use crate::error::{ParseError, Part};
use crate::ip::IpProtocol;
use crate::{ip, ipv4, ipv6, udp};

/// Octets of the CRC.
pub const LEN: usize = 4;
/// The 64 one bits.
const ONES: usize = 8;
/// What has masked octets in it, for IPv6: all headers and the ones.
const MOST_MASKED: usize = ONES + ipv6::HEADER_LEN + udp::HEADER_LEN + bth::HEADER_LEN;

/// The CRC of a packet that begins with its IP header and ends in front of the CRC. Its length fields count the CRC
/// already.
///
/// # Errors
/// [`ParseError::Version`]; [`ParseError::Length`] for an IPv4 header with options, [`ParseError::Field`] for an IPv6 header
/// with extension headers behind it, neither of which RoCEv2 has;
/// [`ParseError::Truncated`] if it ends before the BTH does.
pub fn compute(packet: &[u8]) -> Result<u32, ParseError> {
    let mut front = [0xff; MOST_MASKED];
    let ip_len = match ip::version(packet) {
        Some(6) => {
            let fixed: &[u8; ipv6::HEADER_LEN] = head(packet, Part::Ipv6)?;
            if fixed[6] != IpProtocol::UDP.0 {
                let found = fixed[6].into();
                return Err(ParseError::Field { part: Part::Ipv6, field: "next header", found });
            }
            ipv6::HEADER_LEN
        }
        Some(4) => {
            let fixed: &[u8; ipv4::HEADER_LEN] = head(packet, Part::Ipv4)?;
            let found = (fixed[0] & 15) as usize * 4;
            if found != ipv4::HEADER_LEN {
                return Err(ParseError::Length { part: Part::Ipv4, found, least: ipv4::HEADER_LEN });
            }
            ipv4::HEADER_LEN
        }
        version => return Err(ParseError::Version { part: Part::Ipv4, found: version.unwrap_or(0) }),
    };
    let len = ip_len + udp::HEADER_LEN + bth::HEADER_LEN;
    let (headers, rest) = crate::bytes::split(packet, len, Part::Bth)?;
    let masked = &mut front[..ONES + len];
    masked[ONES..].copy_from_slice(headers);
    let packet = &mut masked[ONES..];
    if ip_len == ipv6::HEADER_LEN {
        // Traffic class and flow label: all of the first word but the version.
        packet[0] |= 0x0f;
        packet[1..4].fill(0xff);
        packet[7] = 0xff;
    } else {
        packet[1] = 0xff;
        packet[8] = 0xff;
        packet[10..12].fill(0xff);
    }
    packet[ip_len + 6..ip_len + 8].fill(0xff);
    packet[ip_len + udp::HEADER_LEN + 4] = 0xff;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(masked);
    hasher.update(rest);
    Ok(hasher.finalize())
}

/// Whether the last four octets of a packet, which begins with its IP header and has nothing behind it, are its CRC.
///
/// # Errors
/// As [`compute`].
pub fn is_intact(packet: &[u8]) -> Result<bool, ParseError> {
    let Some((covered, told)) = packet.split_last_chunk::<LEN>() else {
        return Err(ParseError::Truncated { part: Part::Icrc, need: LEN, have: packet.len() });
    };
    Ok(compute(covered)? == u32::from_le_bytes(*told))
}
