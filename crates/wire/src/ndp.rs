//! Neighbour discovery (RFC 4861, 4) with its options; RFC 8106 for DNS servers.
//!
//! A message is refused as a whole if an option's length is zero or leads beyond it (RFC 4861, 4.6). That the hop limit
//! is 255, the code 0 and the checksum right is for whoever has the packet to look at (RFC 4861, 6.1 and 7.1).

use crate::bytes::{be16, be32, head, room, sixteen};
use crate::error::{EmitError, ParseError, Part};
use crate::ethernet::MacAddr;
use core::net::Ipv6Addr;

/// The hop limit that every message has, so that none comes from afar.
pub const HOP_LIMIT: u8 = 255;
/// The most octets that an option has.
pub const MOST_OPTION: usize = 255 * 8;

/// A message of neighbour discovery without its options. The checksum is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdpMessage {
    /// Routers, show yourselves (type 133).
    RouterSolicitation,
    /// A router shows itself (type 134).
    RouterAdvertisement {
        /// What to put into packets' hop limits; 0: it does not say.
        hop_limit: u8,
        /// M: addresses are given out by DHCPv6.
        managed: bool,
        /// O: other settings are given out by DHCPv6.
        other: bool,
        /// Prf: before or behind other routers.
        preference: RouterPreference,
        /// Seconds for which it is a default router; 0: it is none.
        lifetime: u16,
        /// Milliseconds for which a neighbour counts as reachable; 0: it does not say.
        reachable_ms: u32,
        /// Milliseconds between two solicitations; 0: it does not say.
        retransmit_ms: u32,
    },
    /// Who has this address? (type 135)
    NeighborSolicitation {
        /// The address asked for.
        target: Ipv6Addr,
    },
    /// I have it (type 136).
    NeighborAdvertisement {
        /// R: the sender is a router.
        router: bool,
        /// S: an answer to a solicitation.
        solicited: bool,
        /// O: replaces what was known.
        replace: bool,
        /// The address that it has.
        target: Ipv6Addr,
    },
    /// Packets to a destination are better sent elsewhere (type 137).
    Redirect {
        /// Where to.
        target: Ipv6Addr,
        /// The packets' destination.
        destination: Ipv6Addr,
    },
}

/// How a default router stands among others (RFC 4191, 2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum RouterPreference {
    /// Like most; also what the reserved value counts as.
    #[default]
    Medium = 0,
    /// Before others.
    High = 1,
    /// Behind others.
    Low = 3,
}

impl RouterPreference {
    /// From its two bits; higher ones are not looked at.
    const fn from_bits(bits: u8) -> RouterPreference {
        match bits & 3 {
            1 => RouterPreference::High,
            3 => RouterPreference::Low,
            _ => RouterPreference::Medium,
        }
    }
}

impl NdpMessage {
    /// The message's type.
    pub const fn kind(&self) -> u8 {
        match self {
            NdpMessage::RouterSolicitation => 133,
            NdpMessage::RouterAdvertisement { .. } => 134,
            NdpMessage::NeighborSolicitation { .. } => 135,
            NdpMessage::NeighborAdvertisement { .. } => 136,
            NdpMessage::Redirect { .. } => 137,
        }
    }

    /// Octets of the message without options.
    pub const fn len(&self) -> usize {
        match self {
            NdpMessage::RouterSolicitation => 8,
            NdpMessage::RouterAdvertisement { .. } => 16,
            NdpMessage::NeighborSolicitation { .. } | NdpMessage::NeighborAdvertisement { .. } => 24,
            NdpMessage::Redirect { .. } => 40,
        }
    }

    /// Never: a message has octets.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// The message at the beginning of an ICMPv6 message, and its options, of which each has a possible length.
    ///
    /// # Errors
    /// [`ParseError::Field`] for a type that is not one of these five; [`ParseError::Truncated`];
    /// [`ParseError::Option`].
    pub fn parse(message: &[u8]) -> Result<(NdpMessage, NdpOptions<'_>), ParseError> {
        let fixed: &[u8; 8] = head(message, Part::Ndp)?;
        let parsed = match fixed[0] {
            133 => NdpMessage::RouterSolicitation,
            134 => {
                let bytes: &[u8; 16] = head(message, Part::Ndp)?;
                NdpMessage::RouterAdvertisement {
                    hop_limit: bytes[4],
                    managed: bytes[5] & 0x80 != 0,
                    other: bytes[5] & 0x40 != 0,
                    preference: RouterPreference::from_bits(bytes[5] >> 3),
                    lifetime: be16!(bytes, 6),
                    reachable_ms: be32!(bytes, 8),
                    retransmit_ms: be32!(bytes, 12),
                }
            }
            135 => NdpMessage::NeighborSolicitation { target: target(message)? },
            136 => NdpMessage::NeighborAdvertisement {
                router: fixed[4] & 0x80 != 0,
                solicited: fixed[4] & 0x40 != 0,
                replace: fixed[4] & 0x20 != 0,
                target: target(message)?,
            },
            137 => {
                let bytes: &[u8; 40] = head(message, Part::Ndp)?;
                let destination = Ipv6Addr::from(sixteen(bytes, 24));
                NdpMessage::Redirect { target: target(message)?, destination }
            }
            kind => return Err(ParseError::Field { part: Part::Ndp, field: "type", found: kind.into() }),
        };
        let options = NdpOptions(message.get(parsed.len()..).unwrap_or(&[]));
        match options.walk().find_map(|o| o.err()) {
            Some(error) => Err(error),
            None => Ok((parsed, options)),
        }
    }

    /// Writes the message to the front of the buffer and its options behind it; answers the octets of all. The checksum
    /// is zero until [`crate::icmpv6::fill`] puts it in.
    ///
    /// # Errors
    /// [`EmitError::Room`]; what [`NdpOption::emit`] refuses.
    pub fn emit(&self, buffer: &mut [u8], options: &[NdpOption]) -> Result<usize, EmitError> {
        let mut len = self.len();
        let (fixed, rest) = room(buffer, len, Part::Ndp)?.split_at_mut(8);
        fixed.copy_from_slice(&[self.kind(), 0, 0, 0, 0, 0, 0, 0]);
        match *self {
            NdpMessage::RouterSolicitation => {}
            NdpMessage::RouterAdvertisement {
                hop_limit,
                managed,
                other,
                preference,
                lifetime,
                reachable_ms,
                retransmit_ms,
            } => {
                fixed[4] = hop_limit;
                fixed[5] = (managed as u8) << 7 | (other as u8) << 6 | (preference as u8) << 3;
                fixed[6..8].copy_from_slice(&lifetime.to_be_bytes());
                rest[..4].copy_from_slice(&reachable_ms.to_be_bytes());
                rest[4..].copy_from_slice(&retransmit_ms.to_be_bytes());
            }
            NdpMessage::NeighborSolicitation { target } => rest.copy_from_slice(&target.octets()),
            NdpMessage::NeighborAdvertisement { router, solicited, replace, target } => {
                fixed[4] = (router as u8) << 7 | (solicited as u8) << 6 | (replace as u8) << 5;
                rest.copy_from_slice(&target.octets());
            }
            NdpMessage::Redirect { target, destination } => {
                rest[..16].copy_from_slice(&target.octets());
                rest[16..].copy_from_slice(&destination.octets());
            }
        }
        for option in options {
            len += option.emit(buffer.get_mut(len..).unwrap_or(&mut []))?;
        }
        Ok(len)
    }
}

fn target(message: &[u8]) -> Result<Ipv6Addr, ParseError> {
    let bytes: &[u8; 24] = head(message, Part::Ndp)?;
    Ok(Ipv6Addr::from(sixteen(bytes, 8)))
}

/// An option of neighbour discovery (RFC 4861, 4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdpOption<'a> {
    /// The sender's device.
    SourceLinkLayer(MacAddr),
    /// The target's device.
    TargetLinkLayer(MacAddr),
    /// A network on this link.
    Prefix(PrefixInformation),
    /// The beginning of the packet that a redirect is about.
    RedirectedHeader(&'a [u8]),
    /// The link's MTU.
    Mtu(u32),
    /// DNS servers (RFC 8106, 5.1): seconds, and 16 octets for each address.
    DnsServers {
        /// Seconds for which they may be used.
        lifetime: u32,
        /// Their addresses.
        addresses: &'a [[u8; 16]],
    },
    /// Any other, and those above with a length that is not theirs.
    Other {
        /// The option's number.
        kind: u8,
        /// Octets behind the length: six, or eight more each time.
        data: &'a [u8],
    },
}

/// A network on the link (RFC 4861, 4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixInformation {
    /// How many bits of the prefix count, 0 to 128.
    pub len: u8,
    /// L: its addresses are on this link.
    pub on_link: bool,
    /// A: hosts may make themselves addresses of it.
    pub autonomous: bool,
    /// Seconds for which it counts as on link; all ones: for ever.
    pub valid_s: u32,
    /// Seconds for which addresses made of it are preferred; all ones: for ever.
    pub preferred_s: u32,
    /// The prefix; bits behind `len` mean nothing.
    pub prefix: Ipv6Addr,
}

impl NdpOption<'_> {
    /// Writes the option to the front of the buffer; answers its octets, a multiple of eight.
    ///
    /// # Errors
    /// [`EmitError::Room`]; [`EmitError::TooLong`] beyond [`MOST_OPTION`]; [`EmitError::Field`] for an
    /// [`NdpOption::Other`] whose data are not six octets or a multiple of eight more, or a prefix longer than 128.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        match *self {
            NdpOption::SourceLinkLayer(mac) => framed(buffer, 1, &[&mac.0]),
            NdpOption::TargetLinkLayer(mac) => framed(buffer, 2, &[&mac.0]),
            NdpOption::Prefix(p) => {
                crate::bytes::fits(Part::Ndp, "prefix length", p.len.into(), 128)?;
                let flags = (p.on_link as u8) << 7 | (p.autonomous as u8) << 6;
                let times = [p.valid_s.to_be_bytes(), p.preferred_s.to_be_bytes()];
                framed(buffer, 3, &[&[p.len, flags], times.as_flattened(), &[0; 4], &p.prefix.octets()])
            }
            NdpOption::RedirectedHeader(packet) => {
                // Cut to whole units of eight octets: the option has no other length.
                framed(buffer, 4, &[&[0; 6], &packet[..packet.len() & !7]])
            }
            NdpOption::Mtu(mtu) => framed(buffer, 5, &[&[0; 2], &mtu.to_be_bytes()]),
            NdpOption::DnsServers { lifetime, addresses } => {
                framed(buffer, 25, &[&[0; 2], &lifetime.to_be_bytes(), addresses.as_flattened()])
            }
            NdpOption::Other { kind, data } => framed(buffer, kind, &[data]),
        }
    }
}

fn framed(buffer: &mut [u8], kind: u8, parts: &[&[u8]]) -> Result<usize, EmitError> {
    let data = parts.iter().map(|p| p.len()).sum::<usize>();
    let len = 2 + data;
    if len > MOST_OPTION {
        return Err(EmitError::TooLong { part: Part::Ndp, found: len, most: MOST_OPTION });
    }
    if !len.is_multiple_of(8) {
        let (found, most) = (data as u32, (len & !7).saturating_sub(2) as u32);
        return Err(EmitError::Field { part: Part::Ndp, field: "option length", found, most });
    }
    let (front, mut rest) = room(buffer, len, Part::Ndp)?.split_at_mut(2);
    front.copy_from_slice(&[kind, (len / 8) as u8]);
    for part in parts {
        let (here, behind) = rest.split_at_mut(part.len());
        here.copy_from_slice(part);
        rest = behind;
    }
    Ok(len)
}

/// Options of a message, as they stand there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdpOptions<'a>(&'a [u8]);

impl<'a> NdpOptions<'a> {
    /// One option after the other.
    pub fn iter(&self) -> impl Iterator<Item = NdpOption<'a>> + use<'a> {
        self.walk().filter_map(|option| option.ok())
    }

    /// The device named by the option of the sender's.
    pub fn source_link_layer(&self) -> Option<MacAddr> {
        self.iter().find_map(|o| if let NdpOption::SourceLinkLayer(mac) = o { Some(mac) } else { None })
    }

    /// The device named by the option of the target's.
    pub fn target_link_layer(&self) -> Option<MacAddr> {
        self.iter().find_map(|o| if let NdpOption::TargetLinkLayer(mac) = o { Some(mac) } else { None })
    }

    fn walk(&self) -> Walk<'a> {
        Walk { bytes: self.0, at: 0 }
    }
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Walk<'a> {
    type Item = Result<NdpOption<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (at, rest) = (self.at, self.bytes.get(self.at..)?);
        let kind = *rest.first()?;
        let len = rest.get(1).map_or(0, |units| *units as usize * 8);
        let data = rest.get(2..len).filter(|_| len > 0);
        let Some(data) = data else {
            self.at = self.bytes.len();
            return Some(Err(ParseError::Option { part: Part::Ndp, kind, at }));
        };
        self.at = at + len;
        Some(Ok(option(kind, data)))
    }
}

fn option(kind: u8, data: &[u8]) -> NdpOption<'_> {
    let other = NdpOption::Other { kind, data };
    match (kind, data) {
        (1, &[a, b, c, d, e, f]) => NdpOption::SourceLinkLayer(MacAddr([a, b, c, d, e, f])),
        (2, &[a, b, c, d, e, f]) => NdpOption::TargetLinkLayer(MacAddr([a, b, c, d, e, f])),
        (3, _) => match data.as_array::<30>() {
            Some(p) if p[0] <= 128 => NdpOption::Prefix(PrefixInformation {
                len: p[0],
                on_link: p[1] & 0x80 != 0,
                autonomous: p[1] & 0x40 != 0,
                valid_s: be32!(p, 2),
                preferred_s: be32!(p, 6),
                prefix: Ipv6Addr::from(sixteen(p, 14)),
            }),
            _ => other,
        },
        (4, [_, _, _, _, _, _, packet @ ..]) => NdpOption::RedirectedHeader(packet),
        (5, &[_, _, a, b, c, d]) => NdpOption::Mtu(u32::from_be_bytes([a, b, c, d])),
        (25, &[_, _, a, b, c, d, ref servers @ ..]) => match servers.as_chunks::<16>() {
            (addresses @ [_, ..], []) => {
                NdpOption::DnsServers { lifetime: u32::from_be_bytes([a, b, c, d]), addresses }
            }
            _ => other,
        },
        _ => other,
    }
}

#[cfg(test)]
mod tests;
