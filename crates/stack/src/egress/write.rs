//! Frames written: headers in front of the octets, into the caller's buffer.

use super::cut::{Cutting, Identification};
use super::{Fragmentation, Hop, Kind, Outgoing};
use crate::counters::Counters;
use crate::iface::{Iface, IfaceId, Medium, Shape};
use crate::time::Instant;
use bypath_wire::ipv4::{Ipv4Option, Ipv4Options};
use bypath_wire::meta::{ChecksumState, Gso, GsoKind};
use bypath_wire::{
    Addresses, EmitError, EtherType, EthernetHeader, FrameMeta, IpProtocol, Ipv4Header, Ipv6Header, MacAddr,
    UdpHeader, VlanTags, ipv4, ipv6, udp,
};
use core::net::Ipv4Addr;

/// A frame that was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub len: usize,
    pub checksum: ChecksumState,
    pub gso: Option<Gso>,
    /// Of which interface it is.
    pub iface: IfaceId,
}

impl Frame {
    #[inline]
    pub fn facts(&self) -> (usize, FrameMeta) {
        let &Frame { len, checksum, gso, .. } = self;
        (len, FrameMeta { checksum, gso, ..FrameMeta::default() })
    }

    /// What [`Stack::poll_transmit`] says of a frame that did not come from there.
    #[inline]
    pub fn counted(&self, counters: &mut Counters, outgoing: &Outgoing) -> (usize, FrameMeta) {
        *counters.sent(outgoing) += 1;
        counters.link_sent += 1;
        self.facts()
    }
}

impl Counters {
    /// The one that counts this packet when it is sent.
    #[inline]
    pub(crate) const fn sent(&mut self, outgoing: &Outgoing) -> &mut u64 {
        match outgoing.kind {
            Kind::Arp => &mut self.arp_sent,
            _ => self.sent_by(&outgoing.addresses),
        }
    }

    /// The one that counts packets of IP between such addresses.
    #[inline]
    pub(crate) const fn sent_by(&mut self, addresses: &Addresses) -> &mut u64 {
        match addresses {
            Addresses::V4 { .. } => &mut self.ipv4_sent,
            Addresses::V6 { .. } => &mut self.ipv6_sent,
        }
    }
}

/// What became of a packet.
pub(super) enum Written {
    Frame(Frame),
    /// It is being cut.
    Cut,
    NoRoom,
}

/// Octets of the IP header, as far as it does not depend on whether the packet is cut.
pub(super) const fn header_len(outgoing: &Outgoing) -> usize {
    let alert = matches!(outgoing.kind, Kind::Ip { router_alert: true, .. });
    match outgoing.addresses {
        Addresses::V4 { .. } => ipv4::HEADER_LEN + if alert { 4 } else { 0 },
        Addresses::V6 { .. } => ipv6::HEADER_LEN,
    }
}

#[inline(always)]
pub(super) fn write(
    shape: &Shape,
    outgoing: &Outgoing,
    mac: MacAddr,
    octets: &[u8],
    cutting: &mut Cutting,
    identification: &mut Identification,
    room: &mut [u8],
) -> Written {
    let (transport, many) = match outgoing.kind {
        Kind::Udp { segment, .. } => (udp::HEADER_LEN, segment != 0),
        Kind::Ip { .. } => (0, false),
        Kind::Arp => (0, true),
    };
    let mtu = shape.mtu.min(outgoing.mtu as usize);
    if !many && header_len(outgoing) + transport + octets.len() > mtu {
        let number = identification.next(&outgoing.addresses);
        return cutting.begin(outgoing, mac, number, octets);
    }
    // RFC 6864, 4.1: the identification of a packet that nobody may cut means nothing.
    let number = match outgoing.fragmentation {
        Fragmentation::Anywhere => identification.next(&outgoing.addresses) as u16,
        _ => 0,
    };
    match whole(shape, outgoing, mac, number, octets, room) {
        Ok(frame) => Written::Frame(frame),
        Err(_) => Written::NoRoom,
    }
}

/// Writes a packet that need not be cut past the queue of `link`; `None`: something goes before it, or its neighbour is not known.
#[inline]
pub(crate) fn through(
    ifaces: &mut [Iface],
    now: Instant,
    outgoing: &Outgoing,
    link: IfaceId,
    octets: &[u8],
    room: &mut [u8],
) -> Option<Frame> {
    let first = ifaces.get(link.at())?.is_idle();
    let own = ifaces.get_mut(outgoing.iface.at())?;
    // The number of a packet that routers may cut comes from elsewhere.
    if !first || own.link != link || outgoing.fragmentation == Fragmentation::Anywhere {
        return None;
    }
    let mac = match outgoing.hop {
        Hop::None => MacAddr::UNSPECIFIED,
        Hop::Station(mac) => mac,
        Hop::Neighbor(address) => own.neighbors.lookup(now, address)?,
    };
    whole(&own.shape, outgoing, mac, 0, octets, room).ok()
}

/// A packet that is not cut.
#[inline(always)]
fn whole(
    shape: &Shape,
    outgoing: &Outgoing,
    mac: MacAddr,
    number: u16,
    octets: &[u8],
    room: &mut [u8],
) -> Result<Frame, EmitError> {
    let link = link_header(shape, outgoing, mac, room)?;
    let rest = &mut room[link..];
    let (mut checksum, mut gso) = (ChecksumState::Unknown, None);
    let len = match outgoing.kind {
        Kind::Arp => copy(rest, octets)?,
        Kind::Ip { protocol, router_alert } => {
            let header = ip_header(outgoing, protocol, octets.len(), number, router_alert, rest)?;
            header + copy(&mut rest[header..], octets)?
        }
        Kind::Udp { source, destination, segment } => {
            let ports = UdpHeader { source_port: source, destination_port: destination };
            let partial = shape.offload.checksum;
            let header = udp(outgoing, &ports, number, partial, octets, rest)?;
            if partial {
                // At most 18 and 40 octets.
                checksum = ChecksumState::Partial { start: (link + header) as u16, offset: 6 };
                let header_len = (link + header + udp::HEADER_LEN) as u16;
                let cut = Gso { kind: GsoKind::Udp, size: segment, header_len, ecn: false };
                gso = (segment != 0).then_some(cut);
            }
            header + udp::HEADER_LEN + octets.len()
        }
    };
    Ok(Frame { len: link + len, checksum, gso, iface: outgoing.iface })
}

/// IP and UDP header and payload of a datagram that is not cut: octets of the IP header. Both headers are one piece of memory of a
/// length that is known, so that nothing is asked of it twice.
#[inline(always)]
fn udp(
    outgoing: &Outgoing,
    ports: &UdpHeader,
    number: u16,
    partial: bool,
    octets: &[u8],
    room: &mut [u8],
) -> Result<usize, EmitError> {
    let len = udp::HEADER_LEN + octets.len();
    match outgoing.addresses {
        Addresses::V4 { source, destination } => {
            let (headers, behind) = headers::<{ ipv4::HEADER_LEN + udp::HEADER_LEN }>(octets.len(), room)?;
            let (ip, udp) = headers.split_at_mut(ipv4::HEADER_LEN);
            let (Some(ip), Some(udp)) = (ip.first_chunk_mut(), udp.first_chunk_mut()) else {
                unreachable!("lengths that are constant")
            };
            ipv4_header(outgoing, source, destination, number).emit_plain(ip, len as u16);
            transport(outgoing, ports, partial, octets, udp, behind);
            Ok(ipv4::HEADER_LEN)
        }
        Addresses::V6 { source, destination } => {
            let (headers, behind) = headers::<{ ipv6::HEADER_LEN + udp::HEADER_LEN }>(octets.len(), room)?;
            let (ip, udp) = headers.split_at_mut(ipv6::HEADER_LEN);
            let (Some(ip), Some(udp)) = (ip.first_chunk_mut(), udp.first_chunk_mut()) else {
                unreachable!("lengths that are constant")
            };
            let mut header = Ipv6Header::new(source, destination, IpProtocol::UDP);
            (header.class, header.hop_limit) = (outgoing.class, outgoing.hops);
            header.emit_plain(ip, len as u16);
            transport(outgoing, ports, partial, octets, udp, behind);
            Ok(ipv6::HEADER_LEN)
        }
    }
}

/// Room for headers of `N` octets, and for a payload, of which there is as much as fits behind them.
#[inline(always)]
fn headers<const N: usize>(len: usize, room: &mut [u8]) -> Result<(&mut [u8; N], &mut [u8]), EmitError> {
    // What UDP and IP can say of a length: 65,535 octets in IPv4 with its header, in IPv6 without.
    let most = if N > ipv4::HEADER_LEN + udp::HEADER_LEN { udp::MOST_PAYLOAD } else { ipv4::MOST_LEN - N };
    if len > most {
        return Err(EmitError::TooLong { part: bypath_wire::Part::Udp, found: len, most });
    }
    let have = room.len();
    let room = room.get_mut(..N + len).and_then(<[u8]>::split_first_chunk_mut);
    room.ok_or(EmitError::Room { part: bypath_wire::Part::Udp, need: N + len, have })
}

#[inline(always)]
fn transport(
    outgoing: &Outgoing,
    ports: &UdpHeader,
    partial: bool,
    octets: &[u8],
    header: &mut [u8; udp::HEADER_LEN],
    behind: &mut [u8],
) {
    let len = udp::HEADER_LEN + octets.len();
    let pseudo = outgoing.addresses.pseudo_header(IpProtocol::UDP, len);
    if partial {
        behind.copy_from_slice(octets);
        ports.emit_checked(header, len as u16, pseudo.folded());
    } else {
        ports.emit_summed(header, behind, pseudo, octets);
    }
}

#[inline(always)]
fn ipv4_header(outgoing: &Outgoing, source: Ipv4Addr, destination: Ipv4Addr, number: u16) -> Ipv4Header {
    let mut header = Ipv4Header::new(source, destination, IpProtocol::UDP);
    header.class = outgoing.class;
    header.ttl = outgoing.hops;
    header.identification = number;
    header.dont_fragment = outgoing.fragmentation != Fragmentation::Anywhere;
    header
}

#[inline(always)]
pub(super) fn link_header(
    shape: &Shape,
    outgoing: &Outgoing,
    mac: MacAddr,
    room: &mut [u8],
) -> Result<usize, EmitError> {
    let Medium::Ethernet(own) = shape.medium else { return Ok(0) };
    let ethertype = match (outgoing.kind, outgoing.addresses) {
        (Kind::Arp, _) => EtherType::ARP,
        (_, Addresses::V4 { .. }) => EtherType::IPV4,
        (_, Addresses::V6 { .. }) => EtherType::IPV6,
    };
    let Some(tag) = shape.vlan else {
        return EthernetHeader::new(mac, own, ethertype).emit(room);
    };
    let mut header = EthernetHeader::new(mac, own, ethertype);
    header.tags = VlanTags::one(tag);
    header.emit(room)
}

#[inline(always)]
pub(super) fn ip_header(
    outgoing: &Outgoing,
    protocol: IpProtocol,
    payload_len: usize,
    number: u16,
    router_alert: bool,
    room: &mut [u8],
) -> Result<usize, EmitError> {
    match outgoing.addresses {
        Addresses::V4 { source, destination } => {
            let mut header = ipv4_header(outgoing, source, destination, number);
            header.protocol = protocol;
            if router_alert {
                // RFC 2113.
                let mut options = Ipv4Options::new();
                let _fits = options.push(&Ipv4Option::RouterAlert(0));
                header.options = options;
            }
            header.emit(room, payload_len)
        }
        Addresses::V6 { source, destination } => {
            let mut header = Ipv6Header::new(source, destination, protocol);
            (header.class, header.hop_limit) = (outgoing.class, outgoing.hops);
            header.emit(room, payload_len)
        }
    }
}

pub(super) fn copy(room: &mut [u8], octets: &[u8]) -> Result<usize, EmitError> {
    let part = bypath_wire::Part::Ipv4;
    let (need, have) = (octets.len(), room.len());
    room.get_mut(..need).ok_or(EmitError::Room { part, need, have })?.copy_from_slice(octets);
    Ok(need)
}
