//! Sockets that carry datagrams: their places, options, queues and errors.

use crate::Stack;
pub use crate::egress::Fragmentation;
use crate::egress::Outgoing;
use crate::event::Ready;
use crate::iface::IfaceId;
use crate::path::Unreachable;
use crate::queue::Queue;
use crate::report::Report;
use crate::share::Whom;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bypath_wire::meta::Timestamp;
use bypath_wire::{IpProtocol, TrafficClass};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A socket of a stack. An id is not used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId {
    index: u32,
    generation: u32,
}

/// What a socket wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Routers that its packets may pass; `None`: as `Config` says.
    pub hop_limit: Option<u8>,
    /// The same for packets to groups (RFC 1112, 6.1).
    pub group_hop_limit: u8,
    /// Its packets' traffic class.
    pub class: TrafficClass,
    /// What happens to packets that are too long.
    pub fragmentation: Fragmentation,
    /// It may send to everybody: SO_BROADCAST.
    pub broadcast: bool,
    /// It gets what was put together from segments in one piece: UDP_GRO.
    pub gro: bool,
    /// It sends and hears through this interface only: SO_BINDTODEVICE.
    pub iface: Option<IfaceId>,
    /// It sends to groups through this one: IP_MULTICAST_IF.
    pub group_iface: Option<IfaceId>,
    /// What it sends to groups that are joined here comes here, too: IP_MULTICAST_LOOP.
    pub group_loop: bool,
    /// It hears all groups of IPv4 that somebody joined, not its own alone: IP_MULTICAST_ALL.
    pub group_all: bool,
    /// The same of groups of IPv6: IPV6_MULTICAST_ALL.
    pub group_all_v6: bool,
    /// It is told of errors that may pass, such as a host that cannot be reached just now, and of all errors if it has no partner:
    /// IP_RECVERR. They are told as others are, and each by itself in a [`Report`].
    pub all_errors: bool,
    /// IPV6_V6ONLY.
    pub only_v6: bool,
    /// A socket of IPv6 (AF_INET6), also where it is bound to an address of IPv4: one of IPv4 goes before it. Looked at when it is bound.
    pub of_v6: bool,
    /// SO_REUSEADDR.
    pub reuse_address: bool,
    /// SO_REUSEPORT.
    pub reuse_port: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            hop_limit: None,
            group_hop_limit: 1,
            class: TrafficClass(0),
            fragmentation: Fragmentation::Here,
            broadcast: false,
            gro: false,
            iface: None,
            group_iface: None,
            group_loop: true,
            group_all: true,
            group_all_v6: true,
            all_errors: false,
            only_v6: false,
            of_v6: false,
            reuse_address: false,
            reuse_port: false,
        }
    }
}

/// What a network said of what a socket sent (RFC 1122, 4.1.3.3): told once, by the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// Nobody listens on the port: ECONNREFUSED.
    #[error("nobody listens on that port there")]
    PortUnreachable,
    /// EHOSTUNREACH.
    #[error("the host cannot be reached")]
    HostUnreachable,
    /// ENETUNREACH.
    #[error("the network cannot be reached")]
    NetUnreachable,
    /// ENOPROTOOPT.
    #[error("the host does not take that protocol")]
    ProtocolUnreachable,
    /// EACCES.
    #[error("an administrator forbids it")]
    Prohibited,
    /// EMSGSIZE.
    #[error("packets to there have {mtu} octets at most")]
    TooBig {
        /// Octets of a packet.
        mtu: u32,
    },
    /// EPROTO.
    #[error("a host did not understand the packet's header")]
    Parameter,
}

/// A datagram that was received, without its octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Who sent it. A link-local address has its interface as scope.
    pub from: SocketAddr,
    /// To which address and port.
    pub to: SocketAddr,
    /// Through which interface.
    pub iface: IfaceId,
    /// Routers that it could still have passed.
    pub hop_limit: u8,
    /// Its traffic class.
    pub class: TrafficClass,
    /// Octets of each of the datagrams that it was put together from.
    pub segment: Option<u16>,
    /// When its frame came.
    pub timestamp: Option<Timestamp>,
    /// A socket of this stack sent it, whatever it says.
    pub looped: bool,
}

/// What was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Octets of the datagram; those that did not fit into the buffer are lost.
    pub len: usize,
    /// What is known of it.
    pub datagram: Datagram,
}

/// Where the datagrams of a socket go as they come, in place of its own queue: memory that another thread or process reads.
///
/// Octets are handed over once, by copy, and never read again: the memory may be anybody's. It has its own bound.
pub trait Inbox: core::fmt::Debug + Send {
    /// Takes a datagram. False: there is no room; it is dropped, and counted.
    fn take(&mut self, about: &Datagram, octets: &[u8]) -> bool;
}

/// Nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// EAGAIN.
    #[error("no datagram has come")]
    Empty,
    /// What the network said of an earlier send.
    #[error(transparent)]
    Network(#[from] SocketError),
}

/// Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// EAGAIN; an event tells when there is room.
    #[error("as much as the socket may have is still to be sent")]
    Full,
    /// EMSGSIZE.
    #[error("{len} octets are more than the {most} that a datagram to there has")]
    TooLong {
        /// Octets given.
        len: usize,
        /// Octets at most.
        most: usize,
    },
    /// EDESTADDRREQ.
    #[error("the socket is connected to nobody, and no destination was given")]
    NoDestination,
    /// EAFNOSUPPORT.
    #[error("the socket and the destination are not of one kind, IPv4 or IPv6")]
    Kind,
    /// EINVAL.
    #[error("port 0 is nobody's")]
    Port,
    /// EACCES.
    #[error("a socket that sends to everybody must say that it may")]
    Broadcast,
    /// EINVAL.
    #[error("segments are of 1 octet or more, fit into packets, and are 128 at most")]
    Segment,
    /// EINVAL: as Linux has it for IPv6.
    #[error("the socket is bound to another interface than the one that the message names")]
    Interface,
    /// ENETUNREACH, or EADDRNOTAVAIL.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// No port is free for it: EAGAIN.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// What the network said of an earlier send.
    #[error(transparent)]
    Network(#[from] SocketError),
    /// EBADF.
    #[error("the socket was closed")]
    Closed,
}

/// A socket that cannot be bound like this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// EADDRINUSE.
    #[error(transparent)]
    InUse(#[from] crate::udp::demux::InUse),
    /// EADDRINUSE, of a port that many share.
    #[error(transparent)]
    Crowded(#[from] crate::udp::demux::Crowded),
    /// EADDRNOTAVAIL.
    #[error("the address is not one of ours")]
    NotOurs,
    /// EADDRINUSE, of all ports.
    #[error("all ports from which one could be chosen are in use")]
    NoPort,
    /// EINVAL.
    #[error("the socket is bound already")]
    Bound,
}

/// The stack has as many sockets as it may: `Config::sockets`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stack has {most} sockets, and no more")]
pub struct TooMany {
    /// Sockets at most.
    pub most: usize,
}

/// The way to a destination, as long as nothing changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub generation: u64,
    pub to: SocketAddr,
    /// What packets that go it have in common.
    pub outgoing: Outgoing,
    /// Octets that a datagram has at most.
    pub longest: u32,
    /// Octets that a datagram has at most that is not cut.
    pub uncut: u32,
    /// Copies go to ourselves.
    pub looped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Udp,
    Raw(IpProtocol),
}

#[derive(Debug)]
pub(crate) struct Socket {
    pub kind: Kind,
    pub whom: Whom,
    pub options: Options,
    pub local: Option<SocketAddr>,
    /// Where its owner bound it, who did not leave that to a send or a connect.
    pub chosen: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
    pub way: Option<Way>,
    pub receive: Queue<Datagram>,
    /// What comes goes there instead.
    pub inbox: Option<Box<dyn Inbox>>,
    /// Octets that are still to be sent.
    pub unsent: usize,
    pub send_most: usize,
    /// A send found no room.
    pub blocked: bool,
    pub error: Option<SocketError>,
    /// Errors one by one, for who wants them.
    pub reports: VecDeque<Report>,
    pub ready: Ready,
    pub groups: Vec<(IfaceId, IpAddr)>,
    /// Datagrams that did not fit.
    pub dropped: u64,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    socket: Option<Socket>,
}

/// All sockets, by number.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// Octets of a datagram that a socket without one has room for, however many its user has: most that are asked for, such as a name server's, are not longer.
const SMALL: usize = 2048;

/// A user whose queues have more memory than this part of his share gets it back from each that is empty.
const KEPT: usize = 8;

/// What a datagram that is to be sent counts beside its octets.
pub(crate) const OVERHEAD: usize = 64;

impl Sockets {
    pub fn insert(&mut self, most: usize, socket: Socket) -> Result<SocketId, TooMany> {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.socket = Some(socket);
            return Ok(SocketId { index, generation: slot.generation });
        }
        if self.slots.len() >= most.min(TCP as usize) {
            return Err(TooMany { most });
        }
        self.slots.push(Slot { generation: 0, socket: Some(socket) });
        Ok(SocketId { index: (self.slots.len() - 1) as u32, generation: 0 })
    }

    pub fn remove(&mut self, id: SocketId) -> Option<Socket> {
        let slot = self.slots.get_mut(id.index as usize).filter(|s| s.generation == id.generation)?;
        let socket = slot.socket.take()?;
        slot.generation += 1;
        // A place whose numbers are used up stays empty.
        if slot.generation < u32::MAX {
            self.free.push(id.index);
        }
        Some(socket)
    }

    #[inline]
    pub fn get(&self, id: SocketId) -> Option<&Socket> {
        let slot = self.slots.get(id.index as usize).filter(|s| s.generation == id.generation)?;
        slot.socket.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        let slot = self.slots.get_mut(id.index as usize).filter(|s| s.generation == id.generation)?;
        slot.socket.as_mut()
    }

    /// Where the tables find it, as long as it is there.
    pub fn place(&self, id: SocketId) -> Option<u32> {
        self.get(id).map(|_| id.index)
    }

    /// The socket at a place that the tables name.
    ///
    /// # Panics
    /// If there is none: a socket leaves the tables before its place.
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> (SocketId, &mut Socket) {
        let slot = &mut self.slots[index as usize];
        let id = SocketId { index, generation: slot.generation };
        (id, slot.socket.as_mut().expect("a socket that is in the tables"))
    }

    /// A packet of a socket leaves its interface's queue: it does not count against its bound any more.
    #[inline]
    pub fn sent(&mut self, id: SocketId, len: usize, ready: &mut VecDeque<SocketId>) {
        let Some(socket) = self.get_mut(id) else { return };
        socket.unsent -= len + OVERHEAD;
        if socket.blocked && socket.unsent <= socket.send_most / 2 {
            socket.blocked = false;
            socket.tell(id, ready, |news| news.writable = true);
        }
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Socket {
    /// Octets of memory of what it has not received.
    pub fn unread_memory(&self) -> usize {
        self.receive.memory() + self.reports_memory()
    }

    /// Puts it on the list of those that are ready, unless it is there.
    #[inline]
    pub fn tell(&mut self, id: SocketId, ready: &mut VecDeque<SocketId>, change: impl FnOnce(&mut Ready)) {
        let was = self.ready;
        change(&mut self.ready);
        if was == Ready::default() && self.ready != was {
            ready.push_back(id);
        }
    }
}

/// In the index of a socket of TCP, whose places are in another table.
const TCP: u32 = 1 << 31;

impl SocketId {
    pub(crate) const fn index(self) -> u32 {
        self.index
    }

    pub(crate) const fn of_tcp(index: u32, generation: u32) -> SocketId {
        SocketId { index: index | TCP, generation }
    }

    /// Place and generation of a socket of TCP.
    pub(crate) const fn tcp(self) -> Option<(u32, u32)> {
        if self.index & TCP == 0 { None } else { Some((self.index & !TCP, self.generation)) }
    }
}

impl Stack {
    pub(crate) fn open(&mut self, kind: Kind) -> Result<SocketId, TooMany> {
        let socket = Socket {
            kind,
            whom: 0,
            options: Options::default(),
            local: None,
            chosen: None,
            remote: None,
            way: None,
            receive: Queue::new(self.config.receive_octets),
            inbox: None,
            unsent: 0,
            send_most: self.config.send_octets,
            blocked: false,
            error: None,
            reports: VecDeque::new(),
            ready: Ready::default(),
            groups: Vec::new(),
            dropped: 0,
        };
        self.sockets.insert(self.config.sockets, socket)
    }

    /// Closes a socket; its groups are left, what it has still to send is sent. An id of no socket is ignored.
    ///
    /// A connection lives on without it until what was written has arrived and both sides have finished, or is reset: see
    /// [`Tcp`](crate::Tcp).
    pub fn close(&mut self, id: SocketId) {
        if id.tcp().is_some() {
            return self.close_tcp(id);
        }
        let Some(socket) = self.sockets.remove(id) else { return };
        self.forwarder = self.forwarder.filter(|forwarder| *forwarder != id);
        if self.demux.remove(id.index).is_some() {
            self.ports.take(socket.whom, 1);
        }
        if socket.kind == Kind::Udp {
            self.unread.take(socket.whom, socket.unread_memory());
        }
        if let Kind::Raw(protocol) = socket.kind {
            self.raw.remove(protocol, id.index);
        }
        for (iface, group) in socket.groups {
            self.leave(iface, group, socket.whom);
        }
    }

    /// Sockets that are open, but those of TCP.
    pub fn sockets(&self) -> usize {
        self.sockets.len()
    }

    /// Tells a socket what the network said. `passes`: another datagram may get there (RFC 1122, 4.2.3.9 has such for TCP).
    pub(crate) fn socket_failed(&mut self, index: u32, error: SocketError, passes: bool) {
        let (id, socket) = self.sockets.at_mut(index);
        if passes && !socket.options.all_errors {
            return;
        }
        socket.error = Some(error);
        socket.tell(id, &mut self.ready, |news| news.error = true);
    }

    /// Gives a socket a datagram. False: it has no room.
    #[inline]
    pub(crate) fn deliver(&mut self, index: u32, datagram: Datagram, octets: &[u8]) -> bool {
        let (id, socket) = self.sockets.at_mut(index);
        let queue = &mut socket.receive;
        let fits = match &mut socket.inbox {
            // Nobody in particular, and what one socket has for several users.
            None if socket.whom == 0 || socket.kind != Kind::Udp => {
                queue.push(datagram, octets.len(), |room| room.copy_from_slice(octets)).is_ok()
            }
            None => {
                let (whom, before) = (socket.whom, queue.memory());
                let may = queue.is_empty() && octets.len() <= SMALL
                    || self.unread.of(whom) < self.tcp.users.left_for_datagrams(whom);
                let fits =
                    may && queue.push(datagram, octets.len(), |room| room.copy_from_slice(octets)).is_ok();
                self.unread.add(whom, queue.memory() - before);
                fits
            }
            Some(inbox) => inbox.take(&datagram, octets),
        };
        if fits {
            socket.tell(id, &mut self.ready, |news| news.readable = true);
        } else {
            socket.dropped += 1;
        }
        fits
    }
}

impl Stack {
    /// A user whose memory for what he has not received is counted wrongly, by his place.
    pub(crate) fn wrong_unread(&self) -> Option<Whom> {
        let sockets = || self.sockets.slots.iter().filter_map(|slot| slot.socket.as_ref());
        let memory = |whom: Whom| {
            let own = sockets().filter(|socket| socket.whom == whom && socket.kind == Kind::Udp);
            own.map(Socket::unread_memory).sum::<usize>()
        };
        (1..=self.whoms.len() as Whom).find(|whom| memory(*whom) != self.unread.of(*whom))
    }

    /// The first datagram of a UDP socket is forgotten. Of a user who has much memory none is kept for what is still to come.
    #[inline]
    pub(crate) fn received(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        socket.receive.pop();
        let whom = socket.whom;
        if whom != 0
            && socket.receive.is_empty()
            && self.unread.of(whom) > self.tcp.users.datagram_octets() / KEPT
        {
            self.unread.take(whom, socket.receive.memory());
            socket.receive.shrink();
        }
    }
}

/// An address of somebody on a link, with the link's scope where that is part of it (RFC 4007, 6).
pub(crate) fn scoped(ip: IpAddr, port: u16, iface: IfaceId) -> SocketAddr {
    match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddr::V6(core::net::SocketAddrV6::new(v6, port, 0, iface.scope()))
        }
        ip => SocketAddr::new(ip, port),
    }
}

/// The interface that an address names, and the address without it. As Linux has it: a scope says something of the addresses of a link, or of an
/// interface, alone (RFC 4007, 4); that of any other address is ignored.
pub fn unscoped(address: SocketAddr) -> (SocketAddr, Option<IfaceId>) {
    let iface = match address {
        SocketAddr::V6(v6) if has_scope(v6.ip()) => IfaceId::from_scope(v6.scope_id()),
        _ => None,
    };
    (SocketAddr::new(address.ip(), address.port()), iface)
}

/// Whether an address means something on one link alone (RFC 4291, 2.5.6 and 2.7).
const fn has_scope(ip: &Ipv6Addr) -> bool {
    ip.is_unicast_link_local() || ip.is_multicast() && matches!(ip.octets()[1] & 0xf, 1 | 2)
}
