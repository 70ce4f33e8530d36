//! The way out: what interfaces have to send lies in their queues as headers to be and octets; the caller's buffer gets the
//! frame when it asks for one.

mod apart;
mod burst;
mod cut;
mod segment;
mod write;

use crate::Stack;
use crate::iface::{IfaceId, Medium};
use crate::path::{Path, Reach};
use crate::queue::Queue;
use crate::share::Whom;
use crate::socket::{OVERHEAD, SocketId};
use crate::time::Instant;
use alloc::vec::Vec;
pub(crate) use apart::Behind;
pub(crate) use burst::Burst;
use bypath_wire::meta::ChecksumState;
use bypath_wire::{Addresses, FrameMeta, IpProtocol, MacAddr, TrafficClass};
use core::net::IpAddr;
pub(crate) use cut::{Cutting, Identification};
pub(crate) use segment::{Segmented, write_segment};
pub(crate) use write::{Frame, through};
use write::{Written, write};

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
    /// Whose share.
    pub whom: Whom,
}

/// What waits for a neighbour's address.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// A packet.
    Packet(Outgoing, Vec<u8>),
    /// Connections, which keep what they have to say.
    Connections,
}

/// Buffers of packets that waited, kept, and how long each of them is at most: long ones go back as soon as nothing waits in them.
const SPARE: usize = 64;
const SPARE_OCTETS: usize = 2048;
/// What a packet that waits counts beside its memory: its place in a list that has room for as many again.
const WAITS: usize = 256;
const _: () = assert!(2 * size_of::<Waiting>() <= WAITS);

/// What a packet that waits counts.
const fn weight(octets: &Vec<u8>) -> usize {
    octets.capacity() + WAITS
}

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
        let frame = self.transmit(now, link, false, room)?;
        self.counters.link_sent += 1;
        Some(frame.facts())
    }

    /// Whether a link has something to send.
    pub fn wants_transmit(&self, link: IfaceId) -> bool {
        self.ifaces.get(link.at()).is_some_and(|port| !port.is_idle())
    }

    /// As [`poll_transmit`](Stack::poll_transmit), and of which interface it is; `apart`: `behind` may tell where its end lies.
    #[inline]
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        link: IfaceId,
        apart: bool,
        room: &mut [u8],
    ) -> Option<Frame> {
        loop {
            let port = self.ifaces.get_mut(link.at())?;
            // Connections and packets take turns.
            if port.is_talking() && (port.heard || port.is_quiet()) {
                port.heard = false;
                match self.transmit_tcp(now, link, apart, room) {
                    Some(frame) => return Some(frame),
                    None => continue,
                }
            }
            port.heard = true;
            if port.cutting.going.is_some() || !port.resolved.is_empty() {
                match self.transmit_held(now, link, room) {
                    Some(frame) => return Some(frame),
                    None => continue,
                }
            }
            let &Outgoing { iface, hop, .. } = port.queue.front()?.0;
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
            let counters = &mut self.counters;
            match written {
                Written::Frame(_) => *counters.sent(outgoing) += 1,
                Written::Cut => counters.fragments_cut += 1,
                Written::NoRoom => counters.link_drop_no_room += 1,
            }
            let (whom, len) = (outgoing.whom, octets.len());
            if let Some(owner) = outgoing.owner {
                self.sockets.sent(owner, len, &mut self.ready);
            }
            port.queue.pop();
            port.queued.take(whom, len + OVERHEAD);
            if let Written::Frame(frame) = written {
                return Some(frame);
            }
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
        let Waiting::Packet(outgoing, octets) = waiting else {
            self.unpark(iface, address);
            return None;
        };
        let shape = self.ifaces[iface.at()].shape;
        let cutting = &mut self.ifaces[link.at()].cutting;
        let written = write(&shape, &outgoing, mac, &octets, cutting, &mut self.identification, room);
        self.recycle(outgoing.whom, octets);
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
        let port = &mut self.ifaces[link.at()];
        let (whom, counted) = (outgoing.whom, len + OVERHEAD);
        let pushed = (port.queue.is_empty() || port.queued.may_have(whom, counted, port.queue.free()))
            && port.queue.push(outgoing, len, fill).is_ok();
        if pushed {
            port.queued.add(whom, counted);
        } else {
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
            whom: 0,
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
        let Some((&outgoing, octets)) = self.ifaces[link.at()].queue.front() else { return };
        let (len, whom) = (octets.len(), outgoing.whom);
        // Memory of another one that was as long: what is held is counted.
        let at = self.spare.iter().rposition(|kept| (len..=2 * len).contains(&kept.capacity()));
        let counts = at.map_or(len, |at| self.spare[at].capacity()) + WAITS;
        let free = self.config.waiting_octets.saturating_sub(self.waiting_octets);
        let copy = self.waiting.may_have(whom, counts, free).then(|| {
            let mut copy = at.map_or_else(|| Vec::with_capacity(len), |at| self.spare.swap_remove(at));
            copy.clear();
            copy.extend_from_slice(octets);
            copy
        });
        let port = &mut self.ifaces[link.at()];
        port.queue.pop();
        port.queued.take(whom, len + OVERHEAD);
        if let Some(owner) = outgoing.owner {
            self.sockets.sent(owner, len, &mut self.ready);
        }
        let Some(copy) = copy else {
            self.counters.neighbor_drop_queue_full += 1;
            return;
        };
        self.waiting_octets += weight(&copy);
        self.waiting.add(whom, weight(&copy));
        let neighbors = &mut self.ifaces[outgoing.iface.at()].neighbors;
        if let Some(gone) = neighbors.wait(now, address, whom, Waiting::Packet(outgoing, copy)) {
            self.gave_way(now, outgoing.iface, address, gone);
        }
        self.poll_neighbors(now, outgoing.iface);
    }

    /// Something made room for something else that waits for the same neighbour, or there is no room for any more neighbours.
    #[cold]
    pub(crate) fn gave_way(&mut self, now: Instant, iface: IfaceId, address: IpAddr, gone: Waiting) {
        self.counters.neighbor_drop_queue_full += 1;
        match gone {
            Waiting::Packet(outgoing, octets) => self.recycle(outgoing.whom, octets),
            Waiting::Connections if self.ifaces[iface.at()].neighbors.state(address).is_some() => {
                self.unpark(iface, address);
            }
            Waiting::Connections => self.unpark_for_now(now, iface, address),
        }
    }

    /// A packet waits no more; its memory is kept, if it is not long.
    pub(crate) fn recycle(&mut self, whom: Whom, octets: Vec<u8>) {
        self.waiting_octets -= weight(&octets);
        self.waiting.take(whom, weight(&octets));
        if self.spare.len() < SPARE && (1..=SPARE_OCTETS).contains(&octets.capacity()) {
            self.spare.push(octets);
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
