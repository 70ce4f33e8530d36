//! The way out: what interfaces have to send lies in their queues as headers to be and octets; the caller's buffer gets the
//! frame when it asks for one.

use crate::Stack;
use crate::counters::Counters;
use crate::iface::{Iface, IfaceId, Medium, Shape};
use crate::path::{Path, Reach};
use crate::queue::Queue;
use crate::socket::SocketId;
use crate::time::Instant;
use alloc::vec::Vec;
use bypath_wire::ipv4::{Ipv4Option, Ipv4Options};
use bypath_wire::ipv6_ext::{self, FragmentHeader};
use bypath_wire::meta::{ChecksumState, Gso, GsoKind};
use bypath_wire::{
    Addresses, EmitError, EtherType, EthernetHeader, FrameMeta, IpProtocol, Ipv4Header, Ipv6Header, MacAddr,
    TrafficClass, UdpHeader, VlanTags, ipv4, ipv6, udp,
};
use core::net::IpAddr;

/// Whom the frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hop {
    /// The link has no addresses.
    None,
    /// Known already: a group, everybody, who asked.
    Station(MacAddr),
    /// Whoever has this address.
    Neighbor(IpAddr),
}

/// What happens to a packet that is longer than the way takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fragmentation {
    /// It is cut here, and nowhere else: IP_PMTUDISC_WANT.
    #[default]
    Here,
    /// It is refused: IP_PMTUDISC_DO.
    Never,
    /// It is cut here or by routers, and what routers say of paths is ignored: IP_PMTUDISC_DONT.
    Anywhere,
}

/// What stands in the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An ARP packet; no IP header.
    Arp,
    /// A UDP header is to be written; `segment`: octets of each of several datagrams that the link makes of it, 0: it is one.
    Udp { source: u16, destination: u16, segment: u16 },
    /// Everything behind the IP header is there, checksum included.
    Ip { protocol: IpProtocol, router_alert: bool },
}

/// A packet that is to be sent, without its octets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub iface: IfaceId,
    pub hop: Hop,
    pub addresses: Addresses,
    pub hops: u8,
    pub class: TrafficClass,
    pub fragmentation: Fragmentation,
    pub mtu: u32,
    pub kind: Kind,
    /// Whose bound it counts against.
    pub owner: Option<SocketId>,
}

/// A packet that waits for a neighbour's address.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub outgoing: Outgoing,
    pub octets: Vec<u8>,
}

/// A datagram that is being cut.
#[derive(Debug, Default)]
pub(crate) struct Cutting {
    /// Everything behind the IP header.
    octets: Vec<u8>,
    going: Option<(Outgoing, MacAddr, u32)>,
    at: usize,
}

/// A frame that was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub len: usize,
    checksum: ChecksumState,
    gso: Option<Gso>,
    /// Of which interface it is.
    pub iface: IfaceId,
}

impl Frame {
    #[inline]
    fn facts(&self) -> (usize, FrameMeta) {
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

/// What became of a packet.
enum Written {
    Frame(Frame),
    /// It is being cut.
    Cut,
    NoRoom,
}

/// Buffers of packets that waited, kept.
const SPARE: usize = 64;

impl Stack {
    /// The next frame that a link is to send, written to `room`: its length and what belongs to it. `None`: there is none.
    ///
    /// `room` has place for the longest frame: the MTU and 18 octets of Ethernet header and tag; with segmentation 65,553.
    /// Frames of VLANs are those of the interface that they are on.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        link: IfaceId,
        room: &mut [u8],
    ) -> Option<(usize, FrameMeta)> {
        let frame = self.transmit(now, link, room)?;
        self.counters.link_sent += 1;
        Some(frame.facts())
    }

    /// Whether a link has something to send.
    pub fn wants_transmit(&self, link: IfaceId) -> bool {
        self.ifaces.get(link.at()).is_some_and(|port| {
            !port.queue.is_empty() || !port.resolved.is_empty() || port.cutting.going.is_some()
        })
    }

    /// As [`poll_transmit`](Stack::poll_transmit), and of which interface it is.
    #[inline]
    pub(crate) fn transmit(&mut self, now: Instant, link: IfaceId, room: &mut [u8]) -> Option<Frame> {
        loop {
            let port = self.ifaces.get_mut(link.at())?;
            if port.cutting.going.is_some() || !port.resolved.is_empty() {
                match self.transmit_held(now, link, room) {
                    Some(frame) => return Some(frame),
                    None => continue,
                }
            }
            let outgoing = port.queue.front()?.0;
            let (iface, hop) = (outgoing.iface, outgoing.hop);
            let mac = match hop {
                Hop::None => MacAddr::UNSPECIFIED,
                Hop::Station(mac) => mac,
                Hop::Neighbor(address) => match self.ifaces[iface.at()].neighbors.lookup(now, address) {
                    Some(mac) => mac,
                    None => {
                        self.let_wait(now, link, address);
                        continue;
                    }
                },
            };
            let shape = self.ifaces[if link == IfaceId::LOOPBACK { link } else { iface }.at()].shape;
            let port = &mut self.ifaces[link.at()];
            let (outgoing, octets) = port.queue.front()?;
            let written =
                write(&shape, outgoing, mac, octets, &mut port.cutting, &mut self.identification, room);
            let len = octets.len();
            if let Some(owner) = outgoing.owner {
                self.sockets.sent(owner, len, &mut self.ready);
            }
            let counters = &mut self.counters;
            match written {
                Written::Frame(frame) => {
                    *counters.sent(outgoing) += 1;
                    port.queue.pop();
                    return Some(frame);
                }
                Written::Cut => counters.fragments_cut += 1,
                Written::NoRoom => counters.link_drop_no_room += 1,
            }
            port.queue.pop();
        }
    }

    /// What goes before the queue: the next fragment of what is being cut, and packets that waited for a neighbour who answered.
    /// `None`: that was nothing, or could not be sent.
    #[cold]
    fn transmit_held(&mut self, now: Instant, link: IfaceId, room: &mut [u8]) -> Option<Frame> {
        let port = &mut self.ifaces[link.at()];
        if let Some((outgoing, mac, identification)) = port.cutting.going {
            let at = if link == IfaceId::LOOPBACK { link } else { outgoing.iface };
            let shape = self.ifaces[at.at()].shape;
            let cutting = &mut self.ifaces[link.at()].cutting;
            let Some(len) = cutting.next(&shape, &outgoing, mac, identification, room) else {
                self.counters.link_drop_no_room += 1;
                return None;
            };
            *self.counters.sent(&outgoing) += 1;
            let (checksum, iface) = (ChecksumState::Unknown, outgoing.iface);
            return Some(Frame { len, checksum, gso: None, iface });
        }
        let &(iface, address) = port.resolved.front()?;
        let neighbors = &mut self.ifaces[iface.at()].neighbors;
        let Some((waiting, mac)) = neighbors.take_ready(address).zip(neighbors.lookup(now, address)) else {
            self.ifaces[link.at()].resolved.pop_front();
            return None;
        };
        let Waiting { outgoing, octets } = waiting;
        let shape = self.ifaces[iface.at()].shape;
        let cutting = &mut self.ifaces[link.at()].cutting;
        let written = write(&shape, &outgoing, mac, &octets, cutting, &mut self.identification, room);
        self.recycle(octets);
        match written {
            Written::Frame(frame) => {
                *self.counters.sent(&outgoing) += 1;
                return Some(frame);
            }
            Written::Cut => self.counters.fragments_cut += 1,
            Written::NoRoom => self.counters.link_drop_no_room += 1,
        }
        None
    }

    /// Puts a packet of `len` octets behind its IP header into the queue of its interface's link. False: it is full.
    #[inline]
    pub(crate) fn enqueue(&mut self, outgoing: Outgoing, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let link = self.ifaces[outgoing.iface.at()].link;
        self.enqueue_on(link, outgoing, len, fill)
    }

    /// The same to ourselves, as if it came through its interface.
    pub(crate) fn enqueue_looped(&mut self, outgoing: Outgoing, len: usize, fill: impl FnOnce(&mut [u8])) {
        let outgoing = Outgoing { hop: Hop::None, owner: None, mtu: u32::MAX, ..outgoing };
        self.enqueue_on(IfaceId::LOOPBACK, outgoing, len, fill);
    }

    #[inline]
    fn enqueue_on(
        &mut self,
        link: IfaceId,
        outgoing: Outgoing,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let pushed = self.ifaces[link.at()].queue.push(outgoing, len, fill).is_ok();
        if !pushed {
            self.counters.link_drop_queue_full += 1;
        }
        pushed
    }

    /// Queues an IP packet of the stack's own.
    pub(crate) fn enqueue_ip(
        &mut self,
        path: &Path,
        header: IpPacket,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let outgoing = Outgoing {
            iface: path.iface,
            hop: self.hop_to(path, header.addresses.destination()),
            addresses: header.addresses,
            hops: header.hops,
            class: header.class,
            fragmentation: Fragmentation::Here,
            mtu: path.mtu,
            kind: Kind::Ip { protocol: header.protocol, router_alert: header.router_alert },
            owner: None,
        };
        self.enqueue(outgoing, len, fill)
    }

    /// Whom the frame is for that goes this way.
    #[inline]
    pub(crate) fn hop_to(&self, path: &Path, to: IpAddr) -> Hop {
        if self.ifaces[path.iface.at()].shape.medium == Medium::Ip {
            return Hop::None;
        }
        match (path.reach, to) {
            (Reach::Group, IpAddr::V4(group)) => Hop::Station(MacAddr::of_ipv4_group(group)),
            (Reach::Group, IpAddr::V6(group)) => Hop::Station(MacAddr::of_ipv6_group(group)),
            (Reach::Broadcast, _) => Hop::Station(MacAddr::BROADCAST),
            _ => Hop::Neighbor(path.next_hop),
        }
    }

    /// The first packet of a link's queue goes to those that wait for its neighbour's address.
    #[cold]
    fn let_wait(&mut self, now: Instant, link: IfaceId, address: IpAddr) {
        let mut copy = self.spare.pop().unwrap_or_default();
        let Some((&outgoing, octets)) = self.ifaces[link.at()].queue.front() else { return };
        copy.clear();
        copy.extend_from_slice(octets);
        self.ifaces[link.at()].queue.pop();
        if let Some(owner) = outgoing.owner {
            self.sockets.sent(owner, copy.len(), &mut self.ready);
        }
        if self.waiting_octets + copy.len() > self.config.waiting_octets {
            self.counters.neighbor_drop_queue_full += 1;
            return self.give_back(copy);
        }
        self.waiting_octets += copy.len();
        let neighbors = &mut self.ifaces[outgoing.iface.at()].neighbors;
        if let Some(lost) = neighbors.wait(now, address, Waiting { outgoing, octets: copy }) {
            self.counters.neighbor_drop_queue_full += 1;
            self.recycle(lost.octets);
        }
        self.poll_neighbors(now, outgoing.iface);
    }

    /// Keeps the memory of a packet that waited.
    pub(crate) fn recycle(&mut self, octets: Vec<u8>) {
        self.waiting_octets -= octets.len();
        self.give_back(octets);
    }

    fn give_back(&mut self, octets: Vec<u8>) {
        if self.spare.len() < SPARE {
            self.spare.push(octets);
        }
    }
}

impl Counters {
    /// The one that counts this packet when it is sent.
    #[inline]
    const fn sent(&mut self, outgoing: &Outgoing) -> &mut u64 {
        match (outgoing.kind, outgoing.addresses) {
            (Kind::Arp, _) => &mut self.arp_sent,
            (_, Addresses::V4 { .. }) => &mut self.ipv4_sent,
            (_, Addresses::V6 { .. }) => &mut self.ipv6_sent,
        }
    }
}

/// The header of a packet of the stack's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IpPacket {
    pub addresses: Addresses,
    pub protocol: IpProtocol,
    pub hops: u8,
    pub class: TrafficClass,
    pub router_alert: bool,
}

/// Queue of an interface.
pub(crate) const fn queue(octets: usize) -> Queue<Outgoing> {
    Queue::new(octets)
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

    fn next(&mut self, addresses: &Addresses) -> u32 {
        use core::hash::BuildHasher as _;
        let hash = self.hash.hash_one(addresses);
        let count = &mut self.counts[hash as usize % 256];
        *count = count.wrapping_add(1);
        count.wrapping_add((hash >> 32) as u32)
    }
}

/// Octets of the IP header, as far as it does not depend on whether the packet is cut.
const fn header_len(outgoing: &Outgoing) -> usize {
    let alert = matches!(outgoing.kind, Kind::Ip { router_alert: true, .. });
    match outgoing.addresses {
        Addresses::V4 { .. } => ipv4::HEADER_LEN + if alert { 4 } else { 0 },
        Addresses::V6 { .. } => ipv6::HEADER_LEN,
    }
}

#[inline(always)]
fn write(
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
    let port = ifaces.get(link.at())?;
    let first = port.queue.is_empty() && port.resolved.is_empty() && port.cutting.going.is_none();
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
            let transport = udp::HEADER_LEN + octets.len();
            let header = ip_header(outgoing, IpProtocol::UDP, transport, number, false, rest)?;
            let ports = UdpHeader { source_port: source, destination_port: destination };
            let datagram = &mut rest[header..];
            if shape.offload.checksum {
                ports.emit(datagram, octets.len())?;
                copy(&mut datagram[udp::HEADER_LEN..], octets)?;
                udp::fill_partial(&outgoing.addresses, &mut datagram[..transport]);
                // At most 18 and 60 octets.
                checksum = ChecksumState::Partial { start: (link + header) as u16, offset: 6 };
                let header_len = (link + header + udp::HEADER_LEN) as u16;
                let cut = Gso { kind: GsoKind::Udp, size: segment, header_len, ecn: false };
                gso = (segment != 0).then_some(cut);
            } else {
                ports.emit_with(datagram, &outgoing.addresses, octets)?;
            }
            header + transport
        }
    };
    Ok(Frame { len: link + len, checksum, gso, iface: outgoing.iface })
}

#[inline(always)]
fn link_header(
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
    let mut header = EthernetHeader::new(mac, own, ethertype);
    if let Some(tag) = shape.vlan {
        header.tags = VlanTags::one(tag);
    }
    header.emit(room)
}

#[inline(always)]
fn ip_header(
    outgoing: &Outgoing,
    protocol: IpProtocol,
    payload_len: usize,
    number: u16,
    router_alert: bool,
    room: &mut [u8],
) -> Result<usize, EmitError> {
    match outgoing.addresses {
        Addresses::V4 { source, destination } => {
            let mut header = Ipv4Header::new(source, destination, protocol);
            header.class = outgoing.class;
            header.ttl = outgoing.hops;
            header.identification = number;
            header.dont_fragment = outgoing.fragmentation != Fragmentation::Anywhere;
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

fn copy(room: &mut [u8], octets: &[u8]) -> Result<usize, EmitError> {
    let part = bypath_wire::Part::Ipv4;
    let (need, have) = (octets.len(), room.len());
    room.get_mut(..need).ok_or(EmitError::Room { part, need, have })?.copy_from_slice(octets);
    Ok(need)
}

impl Cutting {
    /// Everything behind the IP header, to be cut.
    #[cold]
    fn begin(&mut self, outgoing: &Outgoing, mac: MacAddr, identification: u32, octets: &[u8]) -> Written {
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
    fn next(
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
