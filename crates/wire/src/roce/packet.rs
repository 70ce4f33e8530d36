//! Whole packets: read strictly from a UDP payload, written around a payload with all lengths and sums.

use super::{Amount, Bth, Extended, PORT, bth, icrc};
use crate::bytes::{room, split};
use crate::error::{EmitError, ParseError, Part};
use crate::ethernet::EthernetHeader;
use crate::ip::IpProtocol;
use crate::ipv4::Ipv4Header;
use crate::ipv6::{self, Ipv6Header};
use crate::ipv6_ext::{Extension, ExtensionHeader, ExtensionWalk};
use crate::packet::Network;
use crate::udp::{self, UdpHeader};

/// The transport headers of a packet: BTH and what its opcode asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The base transport header.
    pub bth: Bth,
    /// The headers behind it.
    pub extended: Extended,
}

impl Headers {
    /// The headers at the front of a UDP payload, the packet's payload without padding, and the ICRC that it carries,
    /// which is not checked: [`icrc::is_intact`] does. `datagram` is the whole UDP payload.
    ///
    /// What an opcode says about its payload is checked as far as it can be without knowing the path MTU: whether there
    /// may be one, must be one, and may be padding.
    ///
    /// # Errors
    /// [`ParseError::Truncated`]; [`ParseError::Version`] and [`ParseError::Field`] as in [`Bth::parse`] and
    /// [`Extended::parse`]; [`ParseError::Field`] for a pad count or a payload length that cannot be.
    pub fn parse(datagram: &[u8]) -> Result<(Headers, &[u8], u32), ParseError> {
        let (bth, pad, rest) = Bth::parse(datagram)?;
        let (extended, rest) = Extended::parse(bth.opcode.extension(), rest)?;
        let (padded, told) = rest.split_last_chunk::<{ icrc::LEN }>().ok_or(ParseError::Truncated {
            part: Part::Icrc,
            need: icrc::LEN,
            have: rest.len(),
        })?;
        let wrong = |field, found: usize| ParseError::Field { part: Part::Bth, field, found: found as u32 };
        if !padded.len().is_multiple_of(4) {
            return Err(wrong("payload and padding", padded.len()));
        }
        let len = padded.len().checked_sub(pad).ok_or(wrong("pad count", pad))?;
        let fits = match bth.opcode.operation().amount() {
            Amount::None => padded.is_empty(),
            Amount::Whole => pad == 0 && len > 0,
            Amount::Some => len > 0,
            Amount::Any => len > 0 || pad == 0,
        };
        if !fits {
            return Err(wrong(
                if pad > 0 { "pad count" } else { "payload" },
                if pad > 0 { pad } else { len },
            ));
        }
        Ok((Headers { bth, extended }, &padded[..len], u32::from_le_bytes(*told)))
    }

    /// Octets of the headers.
    pub const fn len(&self) -> usize {
        bth::HEADER_LEN + self.extended.kind().len()
    }

    /// Never: a header has octets.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Octets of a UDP payload with these headers: payload, padding and ICRC as well.
    pub const fn datagram_len(&self, payload_len: usize) -> usize {
        self.len() + payload_len.next_multiple_of(4) + icrc::LEN
    }

    /// Writes the headers to the front of the buffer, for a payload of `payload_len` octets; answers their octets.
    ///
    /// # Errors
    /// [`EmitError::Room`]; [`EmitError::Mismatch`] if the extended headers are not those of the opcode, or the opcode
    /// allows no payload, or needs one.
    pub fn emit(&self, buffer: &mut [u8], payload_len: usize) -> Result<usize, EmitError> {
        let allowed = match self.bth.opcode.operation().amount() {
            Amount::None => payload_len == 0,
            Amount::Whole => payload_len > 0 && payload_len.is_multiple_of(4),
            Amount::Some => payload_len > 0,
            Amount::Any => true,
        };
        if self.extended.kind() != self.bth.opcode.extension() || !allowed {
            return Err(EmitError::Mismatch { part: Part::Bth });
        }
        let len = self.bth.emit(buffer, payload_len.wrapping_neg() & 3)?;
        Ok(len + self.extended.emit(buffer.get_mut(len..).unwrap_or(&mut []))?)
    }
}

/// What stands in the checksum of UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpSum {
    /// Zero: none, as adapters send it (annex A17.3.1.3); the ICRC covers more. IPv6 receivers that are not RoCE drop
    /// such datagrams.
    Absent,
    /// The sum.
    Computed,
}

/// Everything around the payload of a packet, from the outside to the inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Ethernet with its tags; none on a link of packets.
    pub link: Option<EthernetHeader>,
    /// IPv4 without options, or IPv6. Its protocol is set to UDP.
    pub network: Network,
    /// The UDP source port: the same for one flow, so that its packets stay on one path.
    pub source_port: u16,
    /// What stands in the checksum of UDP.
    pub sum: UdpSum,
}

impl Envelope {
    /// Without a link header; UDP's checksum is absent under IPv4 and computed under IPv6.
    pub const fn new(network: Network, source_port: u16) -> Envelope {
        let sum = match network {
            Network::V4(_) => UdpSum::Absent,
            Network::V6(_) => UdpSum::Computed,
        };
        Envelope { link: None, network, source_port, sum }
    }

    /// Octets in front of the BTH.
    pub fn len(&self) -> usize {
        self.link.map_or(0, |link| link.len()) + self.network.len() + udp::HEADER_LEN
    }

    /// Never.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes a frame with a payload that is copied; answers its octets.
    ///
    /// # Errors
    /// As [`Envelope::frame`].
    pub fn emit(&self, buffer: &mut [u8], headers: &Headers, payload: &[u8]) -> Result<usize, EmitError> {
        self.frame(buffer, headers, payload.len(), |room| room.copy_from_slice(payload))
    }

    /// Writes a frame whose payload is written into its place by `fill`, which gets room for `payload_len` octets;
    /// answers the frame's octets. Padding, lengths, checksums and the ICRC are filled in.
    ///
    /// # Errors
    /// [`EmitError::Room`] before `fill` is called; [`EmitError::TooLong`]; those of [`Headers::emit`] and of the outer
    /// headers; [`EmitError::Mismatch`] for an IPv4 header with options.
    pub fn frame(
        &self,
        buffer: &mut [u8],
        headers: &Headers,
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<usize, EmitError> {
        let link_len = match self.link {
            Some(link) => EthernetHeader { ethertype: self.network.ethertype(), ..link }.emit(buffer)?,
            None => 0,
        };
        if payload_len > udp::MOST_PAYLOAD {
            return Err(EmitError::TooLong { part: Part::Udp, found: payload_len, most: udp::MOST_PAYLOAD });
        }
        let datagram_len = headers.datagram_len(payload_len);
        let packet = buffer.get_mut(link_len..).unwrap_or(&mut []);
        let behind_ip = udp::HEADER_LEN + datagram_len;
        let ip_len = match self.network {
            Network::V4(header) if !header.options.is_empty() => {
                return Err(EmitError::Mismatch { part: Part::Bth });
            }
            Network::V4(header) => {
                Ipv4Header { protocol: IpProtocol::UDP, ..header }.emit(packet, behind_ip)?
            }
            Network::V6(header) => {
                Ipv6Header { next_header: IpProtocol::UDP, ..header }.emit(packet, behind_ip)?
            }
        };
        let packet = room(packet, ip_len + behind_ip, Part::Bth)?;
        let (covered, check) = packet.split_at_mut(ip_len + behind_ip - icrc::LEN);
        let udp = &mut covered[ip_len..];
        let header = UdpHeader { source_port: self.source_port, destination_port: PORT };
        header.emit(udp, datagram_len)?;
        let roce = &mut udp[udp::HEADER_LEN..];
        let len = headers.emit(roce, payload_len)?;
        let (payload, padding) = roce[len..].split_at_mut(payload_len);
        fill(payload);
        padding.fill(0);
        let crc = icrc::compute(covered).map_err(|_| EmitError::Mismatch { part: Part::Icrc })?;
        check.copy_from_slice(&crc.to_le_bytes());
        if self.sum == UdpSum::Computed {
            udp::fill(&self.network.addresses(), &mut packet[ip_len..]);
        }
        Ok(link_len + ip_len + behind_ip)
    }
}

/// A packet that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// IPv4 or IPv6.
    pub network: Network,
    /// Where it comes from.
    pub source_port: u16,
    /// BTH and what follows it.
    pub headers: Headers,
    /// The payload without padding.
    pub payload: &'a [u8],
}

/// Why a packet is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is no RoCEv2 packet: another protocol, or another port.
    Other,
    /// It is for RoCEv2's port, but with options of IPv4 or extension headers of IPv6, or as a fragment, which RoCEv2 packets
    /// do not have.
    Extended,
    /// It is cut off, or breaks a rule of its format.
    Malformed(ParseError),
    /// The ICRC does not fit.
    Icrc,
}

impl From<ParseError> for Refused {
    fn from(error: ParseError) -> Refused {
        Refused::Malformed(error)
    }
}

impl<'a> Packet<'a> {
    /// Reads a packet that begins with its IP header, and checks the ICRC. UDP's checksum is not looked at: the ICRC covers
    /// more. What follows the IP packet as padding of the link is left out.
    ///
    /// # Errors
    /// [`Refused`]. Fragments, IPv4 options and IPv6 extension headers are not taken: RoCEv2 has none ([`Refused::Extended`],
    /// where the port can be seen).
    pub fn parse(packet: &'a [u8]) -> Result<Packet<'a>, Refused> {
        let (network, total_len) = match crate::ip::version(packet) {
            Some(6) => {
                let (header, len) = Ipv6Header::parse_header(packet)?;
                if header.next_header != IpProtocol::UDP {
                    let behind = packet.get(ipv6::HEADER_LEN..).unwrap_or(&[]);
                    return Err(behind_extensions(header.next_header, behind));
                }
                (Network::V6(header), ipv6::HEADER_LEN + len)
            }
            _ => {
                let (header, extent) = Ipv4Header::parse_header(packet)?;
                if header.protocol != IpProtocol::UDP {
                    return Err(Refused::Other);
                }
                if header.is_fragment() || !header.options.is_empty() {
                    let first = header.fragment_offset == 0;
                    return Err(for_port(first.then(|| packet.get(extent.header_len..)).flatten()));
                }
                if !extent.checksum_fits {
                    return Err(ParseError::Checksum { part: Part::Ipv4 }.into());
                }
                (Network::V4(header), extent.total_len)
            }
        };
        let (packet, _) = split(packet, total_len, Part::Ipv4)?;
        let datagram = &packet[network.len()..];
        let (udp, len) = UdpHeader::parse_header(datagram)?;
        if udp.destination_port != PORT {
            return Err(Refused::Other);
        }
        if len != datagram.len() {
            let found = len as u32;
            return Err(ParseError::Field { part: Part::Udp, field: "length", found }.into());
        }
        let (headers, payload, _) = Headers::parse(&datagram[udp::HEADER_LEN..])?;
        if !icrc::is_intact(packet)? {
            return Err(Refused::Icrc);
        }
        Ok(Packet { network, source_port: udp.source_port, headers, payload })
    }
}

/// Why a packet with extension headers is not taken: they are walked to the port.
#[cold]
fn behind_extensions(next: IpProtocol, bytes: &[u8]) -> Refused {
    let mut walk = ExtensionWalk::new(next, bytes);
    for header in walk.by_ref() {
        match header {
            Ok(ExtensionHeader { extension: Extension::Fragment(fragment), .. }) if fragment.offset > 0 => {
                return Refused::Other;
            }
            Ok(_) => {}
            Err(error) => return Refused::Malformed(error),
        }
    }
    match walk.rest() {
        (IpProtocol::UDP, _, datagram) => for_port(Some(datagram)),
        _ => Refused::Other,
    }
}

/// Why a datagram in such a packet is not taken.
fn for_port(datagram: Option<&[u8]>) -> Refused {
    match datagram.and_then(|d| d.get(2..4)) {
        Some(port) if port == PORT.to_be_bytes() => Refused::Extended,
        _ => Refused::Other,
    }
}
