//! Sending datagrams: the way, the limits, and into the queue of the interface.

use super::{Udp, source_of, speaks};
use crate::egress::{Fragmentation, Kind, Outgoing};
use crate::iface::IfaceId;
use crate::path::{Path, Reach};
use crate::socket::{OVERHEAD, SendError, Way, unscoped};
use bypath_wire::{Addresses, TrafficClass, ipv4, ipv6, udp};
use core::net::{IpAddr, SocketAddr};

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
        self.send_with(octets, &SendTo { to, ..SendTo::default() })
    }

    /// Sends a datagram, or several.
    ///
    /// # Errors
    /// [`SendError`]; nothing is sent.
    pub fn send_with(&mut self, octets: &[u8], message: &SendTo) -> Result<(), SendError> {
        let socket = self.socket();
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        let to = message.to.or(socket.remote).ok_or(SendError::NoDestination)?;
        let known = socket.way;
        let way = match known {
            // A way that the message itself chooses is not remembered.
            Some(way)
                if way.generation == self.stack.generation
                    && way.to == to
                    && message.source.is_none()
                    && message.iface.is_none() =>
            {
                way
            }
            _ => self.find(to, message)?,
        };
        let socket = self.stack.sockets.at_mut(self.id.index()).1;
        let (options, path) = (socket.options, way.path);
        let Some(local) = socket.local else { return Err(SendError::NoDestination) };
        let forwards = self.stack.forwarder == Some(self.id);
        let source_port = message.source_port.filter(|_| forwards).unwrap_or(local.port());
        let (addresses, headers) = match (path.source, to.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                (Addresses::V4 { source, destination }, ipv4::HEADER_LEN + udp::HEADER_LEN)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                (Addresses::V6 { source, destination }, ipv6::HEADER_LEN + udp::HEADER_LEN)
            }
            _ => return Err(SendError::Kind),
        };
        let mtu = match options.fragmentation {
            Fragmentation::Anywhere => self.stack.ifaces[path.iface.at()].shape.mtu as u32,
            _ => path.mtu,
        };
        // 65,535 octets: in IPv4 with its header, in IPv6 without.
        let beside = if path.source.is_ipv6() { ipv6::HEADER_LEN } else { 0 };
        let longest = 65_535 + beside - headers;
        let one = message.segment.map_or(octets.len(), |segment| octets.len().min(segment.into()));
        let whole = options.fragmentation == Fragmentation::Never || message.segment.is_some();
        let most = if whole { longest.min((mtu as usize).saturating_sub(headers)) } else { longest };
        if message.segment == Some(0) || message.segment.is_some() && one > most {
            return Err(SendError::Segment);
        }
        if one > most || octets.len() > longest {
            return Err(SendError::TooLong { len: octets.len(), most: longest.min(most) });
        }
        if socket.unsent > 0 && socket.unsent + octets.len() + OVERHEAD > socket.send_most {
            socket.blocked = true;
            return Err(SendError::Full);
        }
        let own = if path.reach == Reach::Group {
            options.group_hop_limit
        } else {
            options.hop_limit.unwrap_or(self.stack.config.hop_limit)
        };
        let outgoing = Outgoing {
            iface: path.iface,
            hop: way.hop,
            addresses,
            hops: message.hop_limit.unwrap_or(own),
            class: message.class.unwrap_or(options.class),
            fragmentation: options.fragmentation,
            mtu,
            kind: Kind::Udp { source: source_port, destination: to.port(), segment: 0 },
            owner: Some(self.id),
        };
        match message.segment {
            Some(segment) if octets.len() > usize::from(segment) => {
                self.send_many(&outgoing, octets, segment)
            }
            _ => self.push(&outgoing, octets),
        }
        let looped = path.reach == Reach::Group && options.group_loop;
        if looped && self.stack.is_member(path.iface, to.ip()) || path.reach == Reach::Broadcast {
            let segment = message.segment.map_or(octets.len(), usize::from).max(1);
            for part in octets.chunks(segment) {
                self.stack.enqueue_looped(outgoing, part.len(), |room| room.copy_from_slice(part));
            }
            if octets.is_empty() {
                self.stack.enqueue_looped(outgoing, 0, |_| {});
            }
        }
        Ok(())
    }

    /// One frame that the link cuts, or a datagram each.
    fn send_many(&mut self, outgoing: &Outgoing, octets: &[u8], segment: u16) {
        let offload = self.stack.ifaces[outgoing.iface.at()].shape.offload;
        if offload.segmentation && offload.checksum {
            let Kind::Udp { source, destination, .. } = outgoing.kind else { return };
            let kind = Kind::Udp { source, destination, segment };
            return self.push(&Outgoing { kind, ..*outgoing }, octets);
        }
        for part in octets.chunks(segment.into()) {
            self.push(outgoing, part);
        }
    }

    #[inline]
    fn push(&mut self, outgoing: &Outgoing, octets: &[u8]) {
        // A queue that is full drops, as the kernel's do: the counter says so.
        if self.stack.enqueue(*outgoing, octets.len(), |room| room.copy_from_slice(octets)) {
            self.socket().unsent += octets.len() + OVERHEAD;
            self.stack.counters.udp_sent += 1;
        }
    }

    /// The way to a destination, remembered unless the message chose it.
    #[cold]
    fn find(&mut self, to: SocketAddr, message: &SendTo) -> Result<Way, SendError> {
        let given = to;
        let (to, scope) = unscoped(to);
        if to.port() == 0 {
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
        let for_group = options.group_iface.filter(|_| to.ip().is_multicast());
        let iface = message.iface.or(scope).or(bound).or(for_group);
        let source = message.source.or(source_of(local.ip()));
        // RFC 2131, 4.1: who has no address yet asks everybody on a link from 0.0.0.0.
        let asks =
            message.source.is_some_and(|ip| ip.is_unspecified()) && iface.is_some() && is_everybody(to.ip());
        if let Some(source) = message.source
            && !asks
            && self.stack.forwarder != Some(self.id)
            && !self.stack.is_local(source, iface)
        {
            return Err(crate::path::Unreachable::NotOurs.into());
        }
        let path: Path = self.stack.path(to.ip(), iface, source)?;
        if path.reach == Reach::Broadcast && !options.broadcast {
            return Err(SendError::Broadcast);
        }
        let hop = self.stack.hop_to(&path, to.ip());
        let way = Way { generation: self.stack.generation, to: given, path, hop };
        if message.source.is_none() && message.iface.is_none() {
            self.socket().way = Some(way);
        }
        Ok(way)
    }
}
