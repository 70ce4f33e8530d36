//! Sending datagrams: the way, the limits, and into the queue of the interface.

use super::{Udp, leaves_no_link, speaks};
use crate::Stack;
use crate::egress::{Fragmentation, Kind, Outgoing, through};
use crate::iface::IfaceId;
use crate::path::{Path, Reach, Unreachable};
use crate::socket::{OVERHEAD, Options, SendError, Way, unscoped};
use crate::time::Instant;
use bypath_wire::{Addresses, FrameMeta, TrafficClass, ipv4, ipv6, udp};
use core::net::{IpAddr, SocketAddr};

/// Datagrams that a link cuts out of one frame at most: Linux's UDP_MAX_SEGMENTS before 6.7. Its devices refuse more.
const MOST_SEGMENTS: usize = 64;

/// Segments of one send at most: as many as Linux takes.
const AT_ONCE: usize = 128;

/// RFC 919, 7.
fn is_everybody(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(v4) if v4.is_broadcast())
}

/// What a datagram has that differs from the socket's others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendTo {
    /// To whom; `None`: to whom the socket is connected.
    pub to: Option<SocketAddr>,
    /// From this address of ours: IP_PKTINFO. The forwarder may send from any.
    pub source: Option<IpAddr>,
    /// From another port than its own: the forwarder only.
    pub source_port: Option<u16>,
    /// Through this interface: IP_PKTINFO.
    pub iface: Option<IfaceId>,
    /// Routers that it may pass: IP_TTL.
    pub hop_limit: Option<u8>,
    /// Its traffic class: IP_TOS.
    pub class: Option<TrafficClass>,
    /// The octets are several datagrams, of so many octets each but for the last one: UDP_SEGMENT.
    pub segment: Option<u16>,
}

impl Udp<'_> {
    /// Sends a datagram to `to`, or to whom the socket is connected.
    ///
    /// # Errors
    /// [`SendError`]; nothing is sent.
    #[inline]
    pub fn send(&mut self, octets: &[u8], to: Option<SocketAddr>) -> Result<(), SendError> {
        let generation = self.stack.generation;
        let socket = self.stack.sockets.at_mut(self.id.index()).1;
        let to = to.or(socket.remote);
        if let Some(way) = &socket.way
            && way.generation == generation
            && to == Some(way.to)
            && socket.error.is_none()
            && !way.looped
            && octets.len() <= way.longest as usize
            && (socket.unsent == 0 || socket.unsent + octets.len() + OVERHEAD <= socket.send_most)
        {
            let outgoing = way.outgoing;
            self.push(outgoing, octets);
            return Ok(());
        }
        self.send_with(octets, &SendTo { to, ..SendTo::default() })
    }

    /// Whose next frame a datagram to `to` could be without a queue, as far as is known: the link to give to
    /// [`send_through`](Udp::send_through). `None`: the way was not looked for yet, or something goes first.
    #[inline]
    pub fn straight(&mut self, to: Option<SocketAddr>) -> Option<IfaceId> {
        let stack = &mut *self.stack;
        let socket = stack.sockets.at_mut(self.id.index()).1;
        let way = socket.way.as_ref()?;
        let known = way.generation == stack.generation && to.or(socket.remote) == Some(way.to) && !way.looped;
        let link = stack.ifaces.get(way.outgoing.iface.at())?.link;
        (known && stack.ifaces.get(link.at())?.is_idle()).then_some(link)
    }

    /// Sends a datagram straight into the next frame of `link`, of which `room` is the buffer, as
    /// [`poll_transmit`](crate::Stack::poll_transmit) would write it: one copy fewer. The frame's length and what belongs to it;
    /// `None`: something else goes first, the way leads elsewhere or the neighbour is not known, and it was queued.
    ///
    /// # Errors
    /// [`SendError`]; nothing is sent.
    #[inline]
    pub fn send_through(
        &mut self,
        now: Instant,
        octets: &[u8],
        to: Option<SocketAddr>,
        link: IfaceId,
        room: &mut [u8],
    ) -> Result<Option<(usize, FrameMeta)>, SendError> {
        let stack = &mut *self.stack;
        let socket = stack.sockets.at_mut(self.id.index()).1;
        let to = to.or(socket.remote);
        if let Some(way) = &socket.way
            && way.generation == stack.generation
            && to == Some(way.to)
            && socket.error.is_none()
            && !way.looped
            && octets.len() <= way.uncut as usize
            && let Some(frame) = through(&mut stack.ifaces, now, &way.outgoing, link, octets, room)
        {
            stack.counters.udp_sent += 1;
            return Ok(Some(frame.counted(&mut stack.counters, &way.outgoing)));
        }
        self.send(octets, to)?;
        Ok(None)
    }

    /// Sends a datagram, or several.
    ///
    /// # Errors
    /// [`SendError`]; nothing is sent.
    #[inline(never)]
    pub fn send_with(&mut self, octets: &[u8], message: &SendTo) -> Result<(), SendError> {
        let generation = self.stack.generation;
        let socket = self.socket();
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        let to = message.to.or(socket.remote).ok_or(SendError::NoDestination)?;
        // A way that the message itself chooses is not remembered.
        let chooses = message.source.is_some() || message.iface.is_some();
        let known = socket.way.filter(|way| way.generation == generation && way.to == to && !chooses);
        let way = match known {
            Some(way) => way,
            None => self.find(to, message)?,
        };
        if octets.len() > way.longest as usize {
            return Err(SendError::TooLong { len: octets.len(), most: way.longest as usize });
        }
        let mut outgoing = way.outgoing;
        outgoing.hops = message.hop_limit.map_or(outgoing.hops, |hops| hops.max(1));
        outgoing.class = message.class.unwrap_or(outgoing.class);
        let socket = self.socket();
        if socket.unsent > 0 && socket.unsent + octets.len() + OVERHEAD > socket.send_most {
            socket.blocked = true;
            return Err(SendError::Full);
        }
        if message.segment.is_some() || message.source_port.is_some() || way.looped {
            return self.send_special(outgoing, octets, message, way.uncut as usize, way.looped);
        }
        self.push(outgoing, octets);
        Ok(())
    }

    /// Several datagrams, one from another port, or one of which we get a copy.
    #[cold]
    fn send_special(
        &mut self,
        mut outgoing: Outgoing,
        octets: &[u8],
        message: &SendTo,
        uncut: usize,
        looped: bool,
    ) -> Result<(), SendError> {
        if let (Some(port), Kind::Udp { source, .. }) = (message.source_port, &mut outgoing.kind)
            && self.stack.forwarder == Some(self.id)
        {
            *source = port;
        }
        let segment = message.segment.map_or(octets.len(), usize::from);
        let is_cut = |most: usize| octets.len().min(segment) <= uncut && octets.len() <= most;
        if message.segment.is_some() && (segment == 0 || !is_cut(segment * AT_ONCE)) {
            return Err(SendError::Segment);
        }
        match message.segment {
            // To a group on this host alone (RFC 1112, 6.1).
            _ if outgoing.hops == 0 => {}
            Some(segment) if octets.len() > usize::from(segment) => self.send_many(outgoing, octets, segment),
            _ => self.push(outgoing, octets),
        }
        // What does not leave goes nowhere if nobody here is in the group, either.
        let heard = self.stack.hears(&outgoing);
        if looped && heard {
            for part in octets.chunks(segment.max(1)) {
                self.stack.enqueue_looped(outgoing, part.len(), |room| room.copy_from_slice(part));
            }
            if octets.is_empty() {
                self.stack.enqueue_looped(outgoing, 0, |_| {});
            }
        }
        Ok(())
    }

    /// Frames that the link cuts, or a datagram each.
    fn send_many(&mut self, outgoing: Outgoing, octets: &[u8], segment: u16) {
        let offload = self.stack.ifaces[outgoing.iface.at()].shape.offload;
        // A frame counts once in the queues that it waits in: of datagrams that are less than what each counts for it would hold very many.
        if offload.segmentation && offload.checksum && usize::from(segment) >= OVERHEAD {
            let Kind::Udp { source, destination, .. } = outgoing.kind else { return };
            let kind = Kind::Udp { source, destination, segment };
            for frame in octets.chunks(usize::from(segment) * MOST_SEGMENTS) {
                let one = frame.len() <= segment.into();
                self.push(if one { outgoing } else { Outgoing { kind, ..outgoing } }, frame);
            }
            return;
        }
        for part in octets.chunks(segment.into()) {
            self.push(outgoing, part);
        }
    }

    #[inline]
    fn push(&mut self, outgoing: Outgoing, octets: &[u8]) {
        // A queue that is full drops, as the kernel's do: the counter says so.
        if self.stack.enqueue(outgoing, octets.len(), |room| room.copy_from_slice(octets)) {
            self.socket().unsent += octets.len() + OVERHEAD;
            self.stack.counters.udp_sent += 1;
        }
    }

    /// The way to a destination, remembered unless the message chose it.
    #[cold]
    pub(super) fn find(&mut self, given: SocketAddr, message: &SendTo) -> Result<Way, SendError> {
        let (to, scope) = unscoped(given);
        // Linux lets a socket be connected to it.
        if to.port() == 0 && self.socket().remote != Some(given) {
            return Err(SendError::Port);
        }
        self.bind_for(to.ip())?;
        let socket = self.socket();
        let (options, Some(local)) = (socket.options, socket.local) else {
            return Err(SendError::NoDestination);
        };
        if !speaks(&options, local.ip(), to.ip()) {
            return Err(SendError::Kind);
        }
        let bound = self.stack.demux.binding(self.id.index()).and_then(|b| b.iface);
        if to.is_ipv6() && message.iface.zip(bound).is_some_and(|(iface, bound)| iface != bound) {
            return Err(SendError::Interface);
        }
        let for_group = options.group_iface.filter(|_| to.ip().is_multicast());
        let iface = message.iface.or(scope).or(bound).or(for_group);
        let source = message.source.or(self.stack.source_of(local.ip()));
        // RFC 2131, 4.1: who has no address yet asks everybody on a link from 0.0.0.0.
        let asks =
            message.source.is_some_and(|ip| ip.is_unspecified()) && iface.is_some() && is_everybody(to.ip());
        // An address that the socket was bound to may have gone since.
        if let Some(source) = source
            && !asks
            && self.stack.forwarder != Some(self.id)
            && !self.stack.is_local(source, iface)
        {
            return Err(Unreachable::NotOurs.into());
        }
        let path = self.stack.path(to.ip(), iface, source)?;
        leaves_no_link(&path)?;
        if path.reach == Reach::Broadcast && !options.broadcast {
            return Err(SendError::Broadcast);
        }
        let way = self.way(given, &options, local, to, path).ok_or(SendError::Kind)?;
        if message.source.is_none() && message.iface.is_none() {
            self.socket().way = Some(way);
        }
        Ok(way)
    }

    /// What packets that go this way have in common. `None`: source and destination are not of one kind.
    fn way(
        &self,
        given: SocketAddr,
        options: &Options,
        local: SocketAddr,
        to: SocketAddr,
        path: Path,
    ) -> Option<Way> {
        let (addresses, network) = match (path.source, to.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                (Addresses::V4 { source, destination }, ipv4::HEADER_LEN)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                (Addresses::V6 { source, destination }, ipv6::HEADER_LEN)
            }
            _ => return None,
        };
        let stack = &*self.stack;
        let mtu = match options.fragmentation {
            Fragmentation::Anywhere => stack.ifaces[path.iface.at()].mtu(to.is_ipv6()),
            _ => path.mtu,
        };
        // 65,535 octets: in IPv4 with its header, in IPv6 without.
        let headers = network + udp::HEADER_LEN;
        let beside = if addresses.source().is_ipv6() { ipv6::HEADER_LEN } else { 0 };
        let longest = 65_535 + beside - headers;
        let uncut = longest.min((mtu as usize).saturating_sub(headers));
        let never = options.fragmentation == Fragmentation::Never;
        let group = path.reach == Reach::Group;
        let hops = options.hop_limit.unwrap_or(stack.config.hop_limit);
        let outgoing = Outgoing {
            iface: path.iface,
            hop: stack.hop_to(&path, to.ip()),
            addresses,
            hops: if group { options.group_hop_limit } else { hops.max(1) },
            class: options.class,
            fragmentation: options.fragmentation,
            mtu,
            kind: Kind::Udp { source: local.port(), destination: to.port(), segment: 0 },
            owner: Some(self.id),
            whom: stack.sockets.get(self.id).map_or(0, |socket| socket.whom),
        };
        let heard = group && options.group_loop && stack.is_member(path.iface, to.ip());
        Some(Way {
            generation: stack.generation,
            to: given,
            outgoing,
            longest: if never { uncut } else { longest } as u32,
            uncut: uncut as u32,
            looped: heard || path.reach == Reach::Broadcast || group && options.group_hop_limit == 0,
        })
    }
}

impl Stack {
    /// Whether somebody here may be among the receivers of a packet to many.
    fn hears(&self, outgoing: &Outgoing) -> bool {
        let to = outgoing.addresses.destination();
        !to.is_multicast() || self.is_member(outgoing.iface, to)
    }
}
