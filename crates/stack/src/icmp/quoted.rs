//! The packet that an error is about, as far as it was quoted.

use bypath_wire::icmpv6::Icmpv6Message;
use bypath_wire::ipv6_ext::{Extension, ExtensionWalk};
use bypath_wire::{Addresses, Icmpv4Message, IpProtocol, Ipv4Header, Ipv6Header, ip, ipv6};

/// A quoted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quoted<'a> {
    pub addresses: Addresses,
    pub protocol: IpProtocol,
    /// Octets of the packet, as its header says.
    pub len: usize,
    /// Where its fragment belongs.
    pub offset: u16,
    /// It is an ICMP error itself, or a redirect.
    pub is_error: bool,
    /// What stands behind its headers.
    pub payload: &'a [u8],
}

impl<'a> Quoted<'a> {
    /// `None`: not even its headers are there.
    pub fn parse(packet: &'a [u8]) -> Option<Quoted<'a>> {
        match ip::version(packet)? {
            4 => Quoted::parse_v4(packet),
            6 => Quoted::parse_v6(packet),
            _ => None,
        }
    }

    fn parse_v4(packet: &'a [u8]) -> Option<Quoted<'a>> {
        let (header, extent) = Ipv4Header::parse_header(packet).ok()?;
        let payload = packet.get(extent.header_len..)?;
        let message = (header.protocol == IpProtocol::ICMP).then(|| Icmpv4Message::parse(payload));
        // What is too short to be told from an error is taken for one.
        let is_error = message.is_some_and(|m| m.map_or(true, |(m, _)| m.is_error()));
        Some(Quoted {
            addresses: header.addresses(),
            protocol: header.protocol,
            len: extent.total_len,
            offset: header.fragment_offset,
            is_error: is_error && header.fragment_offset == 0,
            payload,
        })
    }

    fn parse_v6(packet: &'a [u8]) -> Option<Quoted<'a>> {
        let (header, payload_len) = Ipv6Header::parse_header(packet).ok()?;
        let mut walk = ExtensionWalk::new(header.next_header, packet.get(ipv6::HEADER_LEN..)?);
        let mut offset = 0;
        for step in walk.by_ref() {
            match step {
                Ok(step) => {
                    if let Extension::Fragment(fragment) = step.extension {
                        offset = fragment.offset;
                    }
                }
                // The packet may be cut off there, or be what the error is about.
                Err(_) => break,
            }
        }
        let (protocol, _, payload) = walk.rest();
        let message = (protocol == IpProtocol::ICMPV6).then(|| Icmpv6Message::parse(payload));
        // RFC 4443, 2.4 (e.2): nor about a redirect.
        let is_error = message.is_some_and(|m| m.map_or(true, |(m, _)| m.is_error() || m.kind() == 137));
        Some(Quoted {
            addresses: header.addresses(),
            protocol,
            len: ipv6::HEADER_LEN + payload_len,
            offset,
            is_error: is_error && offset == 0,
            payload,
        })
    }

    /// Source and destination port of UDP or TCP.
    pub fn ports(&self) -> Option<(u16, u16)> {
        let [a, b, c, d] = *self.payload.first_chunk()?;
        Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }
}
