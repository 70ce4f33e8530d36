//! Raw sockets: packets of one protocol, without their IP headers (raw(7); RFC 3542, 3).

use crate::Stack;
use crate::egress::{Fragmentation, Kind as Out, Outgoing};
use crate::icmp::quoted::Quoted;
use crate::iface::IfaceId;
use crate::ingress::Packet;
use crate::path::{Reach, Unreachable};
use crate::socket::{
    Datagram, Kind, OVERHEAD, Options, ReceiveError, Received, SendError, Socket, SocketId, TooMany, scoped,
};
use crate::udp::leaves_no_link;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bypath_wire::meta::ChecksumState;
use bypath_wire::{Addresses, IpProtocol, icmpv6};
use core::net::{IpAddr, SocketAddr};

/// Packets that are remembered for the errors about them; those of the last round-trip time or so.
const REMEMBERED: usize = 256;
/// Octets of each: as many as every error quotes (RFC 792). Of an echo request these are its identifier, number and checksum.
const BEGINNING: usize = 8;

/// Octets of memory that an empty queue keeps: after a flood it has no more.
const KEPT: usize = 1 << 20;

/// Raw sockets by protocol.
#[derive(Debug, Default)]
pub(crate) struct Raws {
    by: Vec<(IpProtocol, u32)>,
    /// What they sent last.
    sent: VecDeque<Sent>,
}

/// A packet that was sent, as far as an error about it is told from one that somebody made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    addresses: Addresses,
    protocol: IpProtocol,
    beginning: [u8; BEGINNING],
    /// Octets of it that there are.
    len: usize,
}

impl Sent {
    fn new(addresses: Addresses, protocol: IpProtocol, octets: &[u8]) -> Sent {
        let (mut beginning, len) = ([0; BEGINNING], octets.len().min(BEGINNING));
        beginning[..len].copy_from_slice(&octets[..len]);
        Sent { addresses, protocol, beginning, len }
    }
}

impl Raws {
    pub fn is_empty(&self) -> bool {
        self.by.is_empty()
    }

    /// Whether one of them sent the quoted packet lately.
    pub fn has_sent(&self, quoted: &Quoted<'_>) -> bool {
        let about = Sent::new(quoted.addresses, quoted.protocol, quoted.payload);
        quoted.offset == 0 && self.sent.contains(&about)
    }

    fn remember(&mut self, sent: Sent) {
        if self.sent.len() == REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back(sent);
    }

    pub fn remove(&mut self, protocol: IpProtocol, index: u32) {
        self.by.retain(|one| *one != (protocol, index));
    }
}

/// A raw socket, to be used for some calls.
#[derive(Debug)]
pub struct Raw<'a> {
    stack: &'a mut Stack,
    id: SocketId,
    protocol: IpProtocol,
}

impl Stack {
    /// A socket that gets a copy of each packet to us that carries this protocol, over IPv4 and IPv6.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn open_raw(&mut self, protocol: IpProtocol) -> Result<SocketId, TooMany> {
        let id = self.open(Kind::Raw(protocol))?;
        self.raw.by.push((protocol, id.index()));
        self.raw.sent.reserve_exact(REMEMBERED - self.raw.sent.len());
        Ok(id)
    }

    /// A raw socket; `None`: it was closed, or is none.
    pub fn raw(&mut self, id: SocketId) -> Option<Raw<'_>> {
        match self.sockets.get(id)?.kind {
            Kind::Raw(protocol) => Some(Raw { stack: self, id, protocol }),
            Kind::Udp => None,
        }
    }

    /// Copies a packet to all raw sockets of its protocol. True: there is one.
    #[inline]
    pub(crate) fn input_raw(&mut self, packet: &Packet<'_>, protocol: IpProtocol, payload: &[u8]) -> bool {
        let mut taken = false;
        // RFC 3542, 3.1: of ICMPv6 nothing with a wrong checksum is seen.
        if protocol == IpProtocol::ICMPV6
            && !self.raw.by.is_empty()
            && packet.checksum != ChecksumState::Verified
            && !icmpv6::verify(&packet.addresses, payload)
        {
            return false;
        }
        for at in 0..self.raw.by.len() {
            let (other, index) = self.raw.by[at];
            if other == protocol {
                taken = true;
                self.copy_raw(packet, index, payload);
            }
        }
        taken
    }

    fn copy_raw(&mut self, packet: &Packet<'_>, index: u32, payload: &[u8]) {
        let (from, to) = (packet.addresses.source(), packet.addresses.destination());
        let (_, socket) = self.sockets.at_mut(index);
        let hears = socket.local.is_none_or(|local| local.ip() == to)
            && socket.remote.is_none_or(|remote| remote.ip() == from)
            && socket.options.iface.is_none_or(|iface| iface == packet.through);
        if !hears {
            return;
        }
        let datagram = Datagram {
            from: scoped(from, 0, packet.through),
            to: scoped(to, 0, packet.through),
            iface: packet.through,
            hop_limit: packet.hops,
            class: packet.class,
            segment: None,
            timestamp: packet.timestamp,
            looped: packet.looped,
        };
        if self.deliver(index, datagram, payload) {
            self.counters.raw_delivered += 1;
        } else {
            self.counters.raw_drop_queue_full += 1;
        }
    }
}

impl Raw<'_> {
    fn socket(&mut self) -> &mut Socket {
        self.stack.sockets.at_mut(self.id.index()).1
    }

    /// What it wants.
    pub fn options(&mut self) -> Options {
        self.socket().options
    }

    /// Wants something else.
    pub fn set_options(&mut self, options: Options) {
        self.socket().options = options;
    }

    /// Whose it is, and what it sends, as [`Udp::set_user`](crate::Udp::set_user) has it.
    pub fn set_user(&mut self, user: u32) {
        let whom = self.stack.whom(user);
        self.socket().whom = whom;
    }

    /// Octets that wait to be read, and to be sent, at most, 64 more counted for each packet.
    pub fn set_octets(&mut self, receive: usize, send: usize) {
        let most = self.stack.config.most_octets;
        let socket = self.socket();
        socket.receive.set_most(receive.min(most));
        socket.send_most = send.min(most);
    }

    /// Hears only what is addressed to this address, and sends from it; `None`: all of ours.
    pub fn bind(&mut self, local: Option<IpAddr>) {
        self.socket().local = local.map(|ip| SocketAddr::new(ip, 0));
    }

    /// Hears only of this host; `None`: all.
    pub fn connect(&mut self, remote: Option<IpAddr>) {
        self.socket().remote = remote.map(|ip| SocketAddr::new(ip, 0));
    }

    /// Sends a packet that carries `octets`; `iface`: through this one, as link-local addresses and groups need it. Of ICMPv6 the
    /// checksum is computed here (RFC 3542, 3.1).
    ///
    /// # Errors
    /// [`SendError`]; nothing is sent.
    pub fn send(&mut self, octets: &[u8], to: IpAddr, iface: Option<IfaceId>) -> Result<(), SendError> {
        let protocol = self.protocol;
        let socket = self.socket();
        let (options, source, whom) = (socket.options, socket.local.map(|local| local.ip()), socket.whom);
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        if socket.unsent > 0 && socket.unsent + octets.len() + OVERHEAD > socket.send_most {
            socket.blocked = true;
            return Err(SendError::Full);
        }
        if source.is_some_and(|source| source.is_ipv4() != to.is_ipv4()) {
            return Err(SendError::Kind);
        }
        let iface = iface.or(options.iface);
        if source.is_some_and(|source| !self.stack.is_local(source, iface)) {
            return Err(Unreachable::NotOurs.into());
        }
        let path = self.stack.path(to, iface, source)?;
        leaves_no_link(&path)?;
        if path.reach == Reach::Broadcast && !options.broadcast {
            return Err(SendError::Broadcast);
        }
        let (addresses, headers) = match (path.source, to) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => (Addresses::V4 { source, destination }, 20),
            (IpAddr::V6(source), IpAddr::V6(destination)) => (Addresses::V6 { source, destination }, 40),
            _ => return Err(SendError::Kind),
        };
        let never = options.fragmentation == Fragmentation::Never;
        let most = if never { path.mtu as usize - headers } else { 65_535 - 20 };
        if octets.len() > most {
            return Err(SendError::TooLong { len: octets.len(), most });
        }
        let group = path.reach == Reach::Group;
        let own = options.hop_limit.unwrap_or(self.stack.config.hop_limit);
        let outgoing = Outgoing {
            iface: path.iface,
            hop: self.stack.hop_to(&path, to),
            addresses,
            hops: if group { options.group_hop_limit } else { own },
            class: options.class,
            fragmentation: options.fragmentation,
            mtu: path.mtu,
            kind: Out::Ip { protocol, router_alert: false },
            owner: Some(self.id),
            whom,
        };
        let mut beginning = None;
        let sent = self.stack.enqueue(outgoing, octets.len(), |room| {
            room.copy_from_slice(octets);
            if protocol == IpProtocol::ICMPV6 {
                icmpv6::fill(&addresses, room);
            }
            beginning = Some(Sent::new(addresses, protocol, room));
        });
        if let Some(beginning) = beginning {
            self.stack.raw.remember(beginning);
        }
        if sent {
            self.socket().unsent += octets.len() + OVERHEAD;
        }
        Ok(())
    }

    /// The next packet: as much as fits into `room`.
    ///
    /// # Errors
    /// [`ReceiveError`].
    pub fn receive(&mut self, room: &mut [u8]) -> Result<Received, ReceiveError> {
        let socket = self.socket();
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        let (&datagram, octets) = socket.receive.front().ok_or(ReceiveError::Empty)?;
        let len = octets.len();
        let fits = len.min(room.len());
        room[..fits].copy_from_slice(&octets[..fits]);
        socket.receive.pop();
        if socket.receive.memory() > KEPT {
            socket.receive.shrink();
        }
        Ok(Received { len, datagram })
    }
}
