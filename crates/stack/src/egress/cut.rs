//! Datagrams cut into fragments (RFC 791, 3.2; RFC 8200, 4.5).

use super::write::{Written, copy, header_len, ip_header, link_header};
use super::{Kind, Outgoing};
use crate::iface::Shape;
use alloc::vec::Vec;
use bypath_wire::ipv6_ext::{self, FragmentHeader};
use bypath_wire::{Addresses, EmitError, IpProtocol, Ipv4Header, MacAddr, UdpHeader, udp};

/// A datagram that is being cut.
#[derive(Debug, Default)]
pub(crate) struct Cutting {
    /// Everything behind the IP header.
    octets: Vec<u8>,
    pub going: Option<(Outgoing, MacAddr, u32)>,
    at: usize,
}

impl Cutting {
    /// Everything behind the IP header, to be cut.
    #[cold]
    pub(super) fn begin(
        &mut self,
        outgoing: &Outgoing,
        mac: MacAddr,
        identification: u32,
        octets: &[u8],
    ) -> Written {
        self.octets.clear();
        match outgoing.kind {
            Kind::Udp { source, destination, .. } => {
                self.octets.resize(udp::HEADER_LEN + octets.len(), 0);
                let ports = UdpHeader { source_port: source, destination_port: destination };
                if ports.emit_with(&mut self.octets, &outgoing.addresses, octets).is_err() {
                    return Written::NoRoom;
                }
            }
            _ => self.octets.extend_from_slice(octets),
        }
        self.going = Some((*outgoing, mac, identification));
        self.at = 0;
        Written::Cut
    }

    /// The next fragment; `None`: it does not fit, and the datagram is given up.
    pub fn next(
        &mut self,
        shape: &Shape,
        outgoing: &Outgoing,
        mac: MacAddr,
        identification: u32,
        room: &mut [u8],
    ) -> Option<usize> {
        let written = self.fragment(shape, outgoing, mac, identification, room);
        if written.is_err() || self.at >= self.octets.len() {
            self.going = None;
        }
        written.ok()
    }

    fn fragment(
        &mut self,
        shape: &Shape,
        outgoing: &Outgoing,
        mac: MacAddr,
        identification: u32,
        room: &mut [u8],
    ) -> Result<usize, EmitError> {
        let link = link_header(shape, outgoing, mac, room)?;
        let rest = &mut room[link..];
        let protocol = match outgoing.kind {
            Kind::Ip { protocol, .. } => protocol,
            _ => IpProtocol::UDP,
        };
        let v6 = matches!(outgoing.addresses, Addresses::V6 { .. });
        let headers = header_len(outgoing) + if v6 { ipv6_ext::FRAGMENT_LEN } else { 0 };
        // All but the last one carry a multiple of eight octets (RFC 791, 3.2; RFC 8200, 4.5).
        let most = shape.mtu.min(outgoing.mtu as usize).saturating_sub(headers).max(8) & !7;
        let end = (self.at + most).min(self.octets.len());
        let more = end < self.octets.len();
        let part = &self.octets[self.at..end];
        let header = match outgoing.addresses {
            Addresses::V4 { source, destination } => {
                let header = Ipv4Header {
                    class: outgoing.class,
                    identification: identification as u16,
                    dont_fragment: false,
                    more_fragments: more,
                    fragment_offset: self.at as u16,
                    ttl: outgoing.hops,
                    ..Ipv4Header::new(source, destination, protocol)
                };
                header.emit(rest, part.len())?
            }
            Addresses::V6 { .. } => {
                let len = ipv6_ext::FRAGMENT_LEN + part.len();
                let header = ip_header(outgoing, IpProtocol::FRAGMENT, len, 0, false, rest)?;
                let fragment = FragmentHeader { offset: self.at as u16, more, identification };
                header + fragment.emit(&mut rest[header..], protocol)?
            }
        };
        let len = copy(&mut rest[header..], part)?;
        self.at = end;
        Ok(link + header + len)
    }
}

/// Numbers of packets that are cut: another sequence for each pair of ends, so that nobody learns from his packets how many
/// others get (RFC 7739, 5.1), and no two packets of a pair have the same for long (RFC 6864, 4.3).
#[derive(Debug)]
pub(crate) struct Identification {
    counts: [u32; 256],
    hash: foldhash::quality::FixedState,
}

impl Identification {
    pub fn new(random: &mut crate::random::Random) -> Identification {
        let hash = foldhash::quality::FixedState::with_seed(random.next_u64());
        Identification { counts: core::array::from_fn(|_| random.next_u32()), hash }
    }

    pub fn next(&mut self, addresses: &Addresses) -> u32 {
        use core::hash::BuildHasher as _;
        let hash = self.hash.hash_one(addresses);
        let count = &mut self.counts[hash as usize % 256];
        *count = count.wrapping_add(1);
        count.wrapping_add((hash >> 32) as u32)
    }
}
