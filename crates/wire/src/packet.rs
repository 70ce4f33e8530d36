//! Whole packets: the headers of all layers with their lengths, types and checksums made to fit, around a payload that
//! is copied behind them or already stands there.

use crate::error::{EmitError, Part};
use crate::ethernet::{EtherType, EthernetHeader};
use crate::icmpv4::{self, Icmpv4Message};
use crate::icmpv6::{self, Icmpv6Message};
use crate::ip::{Addresses, IpProtocol};
use crate::ipv4::Ipv4Header;
use crate::ipv6::Ipv6Header;
use crate::meta::ChecksumState;
use crate::tcp::{self, TcpHeader};
use crate::udp::{self, UdpHeader};

/// A header of the network layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4.
    V4(Ipv4Header),
    /// IPv6, without extension headers.
    V6(Ipv6Header),
}

/// A header of the transport layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp(UdpHeader),
    /// TCP.
    Tcp(TcpHeader),
    /// ICMP; on IPv4 only.
    Icmpv4(Icmpv4Message),
    /// ICMPv6; on IPv6 only.
    Icmpv6(Icmpv6Message),
    /// None: the payload is the network header's, of the protocol that it names.
    None,
}

/// The headers of a packet, from the outside to the inside. EtherType and protocol are set to what follows, whatever
/// the given headers say; other fields are theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Ethernet with its tags; none on a link of packets, a TUN device say.
    pub link: Option<EthernetHeader>,
    /// IPv4 or IPv6.
    pub network: Network,
    /// What the network carries.
    pub transport: Transport,
}

impl Network {
    /// Octets of the header.
    pub fn len(&self) -> usize {
        match self {
            Network::V4(header) => header.len(),
            Network::V6(_) => crate::ipv6::HEADER_LEN,
        }
    }

    /// Never: a header has octets.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Source and destination.
    pub const fn addresses(&self) -> Addresses {
        match self {
            Network::V4(header) => header.addresses(),
            Network::V6(header) => header.addresses(),
        }
    }

    /// What Ethernet calls it.
    pub const fn ethertype(&self) -> EtherType {
        match self {
            Network::V4(_) => EtherType::IPV4,
            Network::V6(_) => EtherType::IPV6,
        }
    }
}

impl Transport {
    /// Octets of the header.
    pub fn len(&self) -> usize {
        match self {
            Transport::Udp(_) => udp::HEADER_LEN,
            Transport::Tcp(header) => header.len(),
            Transport::Icmpv4(_) => icmpv4::HEADER_LEN,
            Transport::Icmpv6(_) => icmpv6::HEADER_LEN,
            Transport::None => 0,
        }
    }

    /// No header at all.
    pub const fn is_empty(&self) -> bool {
        matches!(self, Transport::None)
    }

    /// What the network header calls it; `otherwise` if there is none.
    const fn protocol(&self, otherwise: IpProtocol) -> IpProtocol {
        match self {
            Transport::Udp(_) => IpProtocol::UDP,
            Transport::Tcp(_) => IpProtocol::TCP,
            Transport::Icmpv4(_) => IpProtocol::ICMP,
            Transport::Icmpv6(_) => IpProtocol::ICMPV6,
            Transport::None => otherwise,
        }
    }
}

impl Headers {
    /// Octets of all headers: where the payload begins.
    pub fn len(&self) -> usize {
        self.transport_at() + self.transport.len()
    }

    /// Never: there is a network header.
    pub const fn is_empty(&self) -> bool {
        false
    }

    fn transport_at(&self) -> usize {
        self.link.map_or(0, |link| link.len()) + self.network.len()
    }

    /// Writes headers and payload to the front of the buffer, computing the checksum while copying; answers the octets
    /// of all. Padding of short frames is the sender's matter.
    ///
    /// # Errors
    /// [`EmitError::Room`]; [`EmitError::TooLong`] and [`EmitError::Field`] of the single headers;
    /// [`EmitError::Mismatch`] for ICMP under the other family.
    pub fn emit(&self, buffer: &mut [u8], payload: &[u8]) -> Result<usize, EmitError> {
        let rest = self.emit_outer(buffer, payload.len())?;
        let addresses = &self.network.addresses();
        let len = match &self.transport {
            Transport::Udp(header) => header.emit_with(rest, addresses, payload)?,
            Transport::Tcp(header) => header.emit_with(rest, addresses, payload)?,
            Transport::Icmpv4(message) => message.emit_with(rest, payload)?,
            Transport::Icmpv6(message) => message.emit_with(rest, addresses, payload)?,
            Transport::None => {
                let part = self.network_part();
                crate::bytes::room(rest, payload.len(), part)?.copy_from_slice(payload);
                payload.len()
            }
        };
        Ok(self.transport_at() + len)
    }

    /// Writes the headers in front of a payload that stands in the buffer from [`Headers::len`] on, `payload_len`
    /// octets long, and computes the checksum; answers the octets of all.
    ///
    /// # Errors
    /// As [`Headers::emit`]; [`EmitError::Room`] too if the buffer ends before the payload does.
    pub fn emit_in_front(&self, buffer: &mut [u8], payload_len: usize) -> Result<usize, EmitError> {
        let segment = self.emit_headers(buffer, payload_len)?;
        let addresses = &self.network.addresses();
        match self.transport {
            Transport::Udp(_) => udp::fill(addresses, segment),
            Transport::Tcp(_) => tcp::fill(addresses, segment),
            Transport::Icmpv4(_) => icmpv4::fill(segment),
            Transport::Icmpv6(_) => icmpv6::fill(addresses, segment),
            Transport::None => {}
        }
        Ok(self.len() + payload_len)
    }

    /// As [`Headers::emit_in_front`], but the device completes the checksum of UDP and TCP: the payload is not read.
    /// Answers the octets of all, and what the device is to be told. ICMP is computed here.
    ///
    /// # Errors
    /// As [`Headers::emit_in_front`].
    pub fn emit_for_device(
        &self,
        buffer: &mut [u8],
        payload_len: usize,
    ) -> Result<(usize, ChecksumState), EmitError> {
        let offset = match self.transport {
            Transport::Udp(_) => 6,
            Transport::Tcp(_) => tcp::CHECKSUM_OFFSET,
            _ => {
                let len = self.emit_in_front(buffer, payload_len)?;
                return Ok((len, ChecksumState::Unknown));
            }
        };
        let segment = self.emit_headers(buffer, payload_len)?;
        let addresses = &self.network.addresses();
        match self.transport {
            Transport::Udp(_) => udp::fill_partial(addresses, segment),
            _ => tcp::fill_partial(addresses, segment),
        }
        // Headers are at most 14 + 16 + 60 octets.
        let start = self.transport_at() as u16;
        Ok((self.len() + payload_len, ChecksumState::Partial { start, offset }))
    }

    /// All headers, the checksum of the transport's zero; answers transport header and payload.
    fn emit_headers<'b>(&self, buffer: &'b mut [u8], payload_len: usize) -> Result<&'b mut [u8], EmitError> {
        let rest = self.emit_outer(buffer, payload_len)?;
        let len = match &self.transport {
            Transport::Udp(header) => header.emit(rest, payload_len)?,
            Transport::Tcp(header) => header.emit(rest)?,
            Transport::Icmpv4(message) => message.emit(rest)?,
            Transport::Icmpv6(message) => message.emit(rest)?,
            Transport::None => 0,
        };
        crate::bytes::room(rest, len + payload_len, self.network_part())
    }

    /// Link and network header; answers what is left of the buffer.
    fn emit_outer<'b>(&self, buffer: &'b mut [u8], payload_len: usize) -> Result<&'b mut [u8], EmitError> {
        match (&self.network, &self.transport) {
            (Network::V6(_), Transport::Icmpv4(_)) => return Err(EmitError::Mismatch { part: Part::Icmpv4 }),
            (Network::V4(_), Transport::Icmpv6(_)) => return Err(EmitError::Mismatch { part: Part::Icmpv6 }),
            _ => {}
        }
        let mut at = 0;
        if let Some(link) = self.link {
            at = EthernetHeader { ethertype: self.network.ethertype(), ..link }.emit(buffer)?;
        }
        let behind = self.transport.len() + payload_len;
        let rest = buffer.get_mut(at..).unwrap_or(&mut []);
        let len = match self.network {
            Network::V4(header) => {
                let protocol = self.transport.protocol(header.protocol);
                Ipv4Header { protocol, ..header }.emit(rest, behind)?
            }
            Network::V6(header) => {
                let next_header = self.transport.protocol(header.next_header);
                Ipv6Header { next_header, ..header }.emit(rest, behind)?
            }
        };
        Ok(rest.get_mut(len..).unwrap_or(&mut []))
    }

    const fn network_part(&self) -> Part {
        match self.network {
            Network::V4(_) => Part::Ipv4,
            Network::V6(_) => Part::Ipv6,
        }
    }
}

#[cfg(test)]
mod tests;
