//! The headers in front of a datagram: virtio-net, IP, UDP.

use super::{Checksum, Udp};
use crate::{Error, Result};
use bypath_sys::packet::frame::VnetHeader;
use bypath_wire::checksum::Sum;
use bypath_wire::ipv6_ext::FragmentHeader;
use bypath_wire::{Addresses, IpProtocol, Ipv4Header, Ipv6Header, UdpHeader};
use std::net::SocketAddr;

/// Octets of the longest headers: virtio-net, IPv6, its fragment header, UDP.
pub const MOST: usize = VnetHeader::SIZE + 40 + 8 + 8;
/// Where the checksum stands in a UDP header.
pub const CHECKSUM_AT: usize = 6;
const UDP: usize = bypath_wire::udp::HEADER_LEN;

/// A piece of an IP packet that is cut.
#[derive(Clone, Copy)]
pub struct Piece {
    /// Where it belongs, in octets.
    pub offset: usize,
    /// Others come behind it.
    pub more: bool,
}

impl Udp {
    /// Both ends.
    pub(super) fn addresses(&self, to: SocketAddr) -> Result<Addresses> {
        match (self.local, to) {
            (SocketAddr::V4(from), SocketAddr::V4(to)) => {
                Ok(Addresses::V4 { source: *from.ip(), destination: *to.ip() })
            }
            (SocketAddr::V6(from), SocketAddr::V6(to)) => {
                Ok(Addresses::V6 { source: *from.ip(), destination: *to.ip() })
            }
            (from, to) => Err(Error::Invalid(format!(
                "{to} cannot be reached from {from}: both are IPv4 addresses, or both IPv6"
            ))),
        }
    }

    /// Writes virtio-net and IP header for `len` octets behind them; answers their octets.
    pub(super) fn network_header(
        &self,
        buffer: &mut [u8],
        addresses: &Addresses,
        len: usize,
        vnet: &VnetHeader,
        piece: Option<Piece>,
    ) -> Result<usize> {
        let (front, ip) = buffer.split_at_mut(VnetHeader::SIZE);
        front.copy_from_slice(&vnet.encode());
        let written = match *addresses {
            Addresses::V4 { source, destination } => {
                let mut header = Ipv4Header::new(source, destination, IpProtocol::UDP);
                (header.class, header.ttl) = (self.class, self.ttl);
                header.dont_fragment = self.whole;
                header.identification = self.identification as u16;
                if let Some(piece) = piece {
                    header.fragment_offset = piece.offset as u16;
                    header.more_fragments = piece.more;
                }
                header.emit(ip, len)
            }
            Addresses::V6 { source, destination } => {
                let (next, extra) = match piece {
                    Some(_) => (IpProtocol::FRAGMENT, bypath_wire::ipv6_ext::FRAGMENT_LEN),
                    None => (IpProtocol::UDP, 0),
                };
                let mut header = Ipv6Header::new(source, destination, next);
                (header.class, header.hop_limit) = (self.class, self.ttl);
                header.emit(ip, len + extra).and_then(|at| match piece {
                    None => Ok(at),
                    Some(Piece { offset, more }) => {
                        let identification = self.identification;
                        let fragment = FragmentHeader { offset: offset as u16, more, identification };
                        fragment.emit(&mut ip[at..], IpProtocol::UDP).map(|extra| at + extra)
                    }
                })
            }
        };
        written.map(|ip| VnetHeader::SIZE + ip).map_err(|e| Error::Invalid(e.to_string()))
    }

    /// Writes the UDP header for a payload of `len` octets. Its checksum is zero.
    pub(super) fn udp_header(&self, buffer: &mut [u8], to: SocketAddr, len: usize) -> Result<()> {
        let header = UdpHeader { source_port: self.local.port(), destination_port: to.port() };
        header.emit(buffer, len).map(|_| ()).map_err(|e| Error::Invalid(e.to_string()))
    }

    /// Writes all headers of a datagram that is sent in one packet, with `segment` as a super-packet of datagrams of that
    /// size; answers their octets. An own checksum is not in it yet.
    #[inline]
    pub(super) fn headers_for(
        &mut self,
        buffer: &mut [u8],
        addresses: &Addresses,
        to: SocketAddr,
        len: usize,
        segment: Option<usize>,
    ) -> Result<usize> {
        let template = match &self.template {
            Some(template) if template.to == to => template,
            _ => {
                let made = self.template_for(addresses, to)?;
                self.template.insert(made)
            }
        };
        let head = template.head;
        let ip = if self.local.is_ipv4() { 20 } else { 40 };
        let end = VnetHeader::SIZE + ip + UDP;
        let place = &mut buffer[..end];
        place.copy_from_slice(&head[..end]);
        if let Some(size) = segment {
            place[..VnetHeader::SIZE].copy_from_slice(
                &VnetHeader {
                    flags: 1,
                    gso_type: 5,
                    header_len: (ip + UDP) as u16,
                    gso_size: size as u16,
                    checksum_start: ip as u16,
                    checksum_offset: CHECKSUM_AT as u16,
                }
                .encode(),
            );
        }
        let (front, udp) = place[VnetHeader::SIZE..].split_at_mut(ip);
        let datagram = (UDP + len) as u16;
        if ip == 20 {
            let (whole, identification) = (20 + datagram, self.identification as u16);
            front[2..4].copy_from_slice(&whole.to_be_bytes());
            front[4..6].copy_from_slice(&identification.to_be_bytes());
            let check = template.network.word(whole).word(identification).finish();
            front[10..12].copy_from_slice(&check.to_be_bytes());
        } else {
            front[4..6].copy_from_slice(&datagram.to_be_bytes());
        }
        udp[4..6].copy_from_slice(&datagram.to_be_bytes());
        if self.checksum == Checksum::Kernel {
            let partial = template.pseudo.word(datagram).folded();
            udp[CHECKSUM_AT..].copy_from_slice(&partial.to_be_bytes());
        }
        Ok(end)
    }

    /// What all datagrams to one receiver have in common.
    #[cold]
    fn template_for(&self, addresses: &Addresses, to: SocketAddr) -> Result<Template> {
        let ip = self.headers() - UDP;
        let mut vnet = VnetHeader::default();
        if self.checksum == Checksum::Kernel {
            vnet.flags = 1;
            (vnet.checksum_start, vnet.checksum_offset) = (ip as u16, CHECKSUM_AT as u16);
        }
        let mut head = [0; MOST];
        let at = self.network_header(&mut head, addresses, 0, &vnet, None)?;
        self.udp_header(&mut head[at..], to, 0)?;
        if self.local.is_ipv4() {
            // Length, identification and checksum are each packet's own.
            let own = &mut head[VnetHeader::SIZE..];
            own[2..6].fill(0);
            own[10..12].fill(0);
        }
        let network = Sum::new().bytes(&head[VnetHeader::SIZE..at]);
        Ok(Template { to, head, network, pseudo: addresses.pseudo_header(IpProtocol::UDP, 0) })
    }
}

/// Headers of a datagram to one receiver, without what differs from one to the next.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    to: SocketAddr,
    head: [u8; MOST],
    /// Sum of the IP header.
    network: Sum,
    /// Sum of the pseudo header.
    pseudo: Sum,
}

/// The checksum as it is sent: a computed zero is all ones (RFC 768).
pub fn transmitted(sum: Sum) -> [u8; 2] {
    match sum.finish() {
        0 => [0xff, 0xff],
        check => check.to_be_bytes(),
    }
}
