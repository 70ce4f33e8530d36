//! UDP (RFC 768).

pub mod demux;
mod input;
mod port;
mod send;

use crate::Stack;
use crate::iface::IfaceId;
use crate::path::{Path, Reach, Unreachable};
use crate::report::Report;
use crate::socket::{
    BindError, Datagram, Inbox, Kind, Options, ReceiveError, Received, SendError, Socket, SocketError,
    SocketId, TooMany, unscoped,
};
use alloc::boxed::Box;
use core::net::{IpAddr, SocketAddr};
use demux::Binding;
pub use send::SendTo;

/// A UDP socket, to be used for some calls.
#[derive(Debug)]
pub struct Udp<'a> {
    pub(crate) stack: &'a mut Stack,
    pub(crate) id: SocketId,
}

impl Stack {
    /// A new UDP socket, bound to nothing; of IPv4, IPv6 or both, as it will be bound.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn open_udp(&mut self) -> Result<SocketId, TooMany> {
        self.open(Kind::Udp)
    }

    /// A UDP socket; `None`: it was closed, or is no UDP socket.
    #[inline]
    pub fn udp(&mut self, id: SocketId) -> Option<Udp<'_>> {
        let is_udp = self.sockets.get(id).is_some_and(|s| s.kind == Kind::Udp);
        is_udp.then_some(Udp { stack: self, id })
    }

    /// Whether a socket can be bound to this address: any, one of ours, a group's, or a link's broadcast address. As in Linux that
    /// goes for TCP, too, though nothing comes there.
    pub(crate) fn may_bind(&self, ip: IpAddr, iface: Option<IfaceId>) -> bool {
        ip.is_unspecified() || ip.is_multicast() || self.is_local(ip, iface) || self.is_everybodys(ip)
    }

    /// A broadcast address of a link.
    pub(crate) fn is_everybodys(&self, ip: IpAddr) -> bool {
        matches!(ip, IpAddr::V4(v4) if self.ifaces.iter().any(|i| i.is_broadcast(v4)))
    }
}

impl Udp<'_> {
    #[inline]
    fn socket(&mut self) -> &mut Socket {
        self.stack.sockets.at_mut(self.id.index()).1
    }

    /// What it wants.
    pub fn options(&mut self) -> Options {
        self.socket().options
    }

    /// Wants something else. Its interface is looked at when it is bound.
    pub fn set_options(&mut self, options: Options) {
        let id = self.id.index();
        self.stack.demux.share(id, options.reuse_address, options.reuse_port);
        let socket = self.socket();
        socket.options = options;
        socket.way = None;
        if !options.all_errors {
            self.stack.forget_reports(self.id);
        }
    }

    /// Whose it is, by a number that the application has for him. Of what all sockets have together a user has no more than he leaves: of the octets
    /// that a link has still to send, of those that wait for a neighbour's address, of neighbours that are asked for, of groups, and of ports. To be
    /// said before it is bound or joins any: one that is, or is in a group, stays whose it is.
    pub fn set_user(&mut self, user: u32) {
        let whom = self.stack.whom(user);
        let socket = self.socket();
        if socket.groups.is_empty() && socket.local.is_none() {
            let before = core::mem::replace(&mut socket.whom, whom);
            socket.way = None;
            let memory = socket.unread_memory();
            self.stack.unread.take(before, memory);
            self.stack.unread.add(whom, memory);
        }
    }

    /// Octets that wait to be read at most, 64 more counted for each datagram.
    pub fn set_receive_octets(&mut self, octets: usize) {
        let most = octets.min(self.stack.config.most_octets);
        self.socket().receive.set_most(most);
    }

    /// Octets that wait to be sent at most, 64 more counted for each datagram.
    pub fn set_send_octets(&mut self, octets: usize) {
        let most = octets.min(self.stack.config.most_octets);
        self.socket().send_most = most;
    }

    /// Where it is bound; after a connect with the address from which it sends.
    pub fn local(&mut self) -> Option<SocketAddr> {
        self.socket().local
    }

    /// To whom it is connected.
    pub fn remote(&mut self) -> Option<SocketAddr> {
        self.socket().remote
    }

    /// Binds it: to one of our addresses, a group, or the unspecified address, which stands for all. Port 0: one that is free. Of a
    /// [user](Udp::set_user) [so many](demux::SHARERS) have one address and port at most, if all say that they share it.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind(&mut self, local: SocketAddr) -> Result<SocketAddr, BindError> {
        let bound = self.bind_for_now(local)?;
        // As Linux has it: a port that was left to us is nobody's choice.
        self.socket().chosen = Some(bound).filter(|_| local.port() != 0);
        Ok(bound)
    }

    /// The same, until it is [disconnected](Udp::disconnect): as a send or a connect does where nobody has bound it.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind_for_now(&mut self, local: SocketAddr) -> Result<SocketAddr, BindError> {
        let (local, scope) = unscoped(local);
        let socket = self.socket();
        if socket.local.is_some() {
            return Err(BindError::Bound);
        }
        let options = socket.options;
        let iface = options.iface.or(scope);
        let ip = local.ip();
        let stack = &mut *self.stack;
        if !stack.may_bind(ip, iface) {
            return Err(BindError::NotOurs);
        }
        let whom = stack.sockets.get(self.id).map_or(0, |socket| socket.whom);
        let binding = Binding {
            iface,
            only_v6: options.only_v6,
            of_v6: options.of_v6 || local.is_ipv6(),
            reuse_address: options.reuse_address,
            reuse_port: options.reuse_port,
            whom,
            ..Binding::new(local)
        };
        let free = stack.config.ephemeral.len().saturating_sub(stack.demux.len());
        if !stack.ports.may_have(whom, usize::from(whom != 0), free) {
            return Err(BindError::NoPort);
        }
        let binding = match local.port() {
            0 => stack.free_port(&binding).ok_or(BindError::NoPort)?,
            _ => binding,
        };
        stack.demux.bind(self.id.index(), binding)?;
        stack.ports.add(whom, 1);
        self.socket().local = Some(binding.local);
        Ok(binding.local)
    }

    /// Sends to this partner alone from now on, and hears of it alone.
    ///
    /// # Errors
    /// [`SendError`], but for [`SendError::Full`].
    pub fn connect(&mut self, remote: SocketAddr) -> Result<(), SendError> {
        let (given, (remote, scope)) = (remote, unscoped(remote));
        // Where the scope says nothing nobody is told of it.
        let given = if scope.is_some() { given } else { remote };
        self.bind_for(remote.ip())?;
        let id = self.id.index();
        let socket = self.socket();
        let (options, Some(local), chosen) = (socket.options, socket.local, socket.chosen) else {
            return Err(SendError::NoDestination);
        };
        if !speaks(&options, local.ip(), remote.ip()) {
            return Err(SendError::Kind);
        }
        let Some(&bound) = self.stack.demux.binding(id) else { return Err(SendError::NoDestination) };
        let iface = bound.iface.or(scope);
        let source = self.stack.source_of(local.ip());
        if source.is_some_and(|source| !self.stack.is_local(source, iface)) {
            return Err(Unreachable::NotOurs.into());
        }
        let path = self.stack.path(remote.ip(), iface, source)?;
        leaves_no_link(&path)?;
        if path.reach == Reach::Broadcast && !options.broadcast {
            return Err(SendError::Broadcast);
        }
        // Who is bound to a group's address, or everybody's, hears nothing else, as in Linux: the address from which it sends may be another's.
        let ip = if local.ip().is_unspecified() { path.source } else { local.ip() };
        let local = SocketAddr::new(ip, local.port());
        let claim = chosen.map(|chosen| chosen.ip());
        self.stack.demux.connect(id, local, Some(remote), claim).map_err(BindError::from)?;
        let socket = self.socket();
        (socket.local, socket.remote, socket.error, socket.way) = (Some(local), Some(given), None, None);
        Ok(())
    }

    /// It has no partner any more, and is bound as its owner has bound it: to nothing, where he has not.
    ///
    /// # Errors
    /// [`BindError::Crowded`]: as many sockets as may are bound so without a partner; it keeps its own.
    pub fn disconnect(&mut self) -> Result<(), BindError> {
        let id = self.id.index();
        let socket = self.socket();
        let (chosen, whom) = (socket.chosen, socket.whom);
        match chosen {
            Some(local) => self.stack.demux.connect(id, local, None, None)?,
            None if self.stack.demux.remove(id).is_some() => self.stack.ports.take(whom, 1),
            None => {}
        }
        let socket = self.socket();
        (socket.local, socket.remote, socket.way) = (chosen, None, None);
        Ok(())
    }

    /// Whether a datagram to `to` finds a way; the socket is bound by that, as by a send. The longest packet of that way.
    ///
    /// # Errors
    /// [`SendError`], but for [`SendError::Full`].
    pub fn reach(&mut self, to: SocketAddr) -> Result<u32, SendError> {
        let generation = self.stack.generation;
        let known = self.socket().way.filter(|way| way.generation == generation && way.to == to);
        let way = match known {
            Some(way) => way,
            None => self.find(to, &SendTo::default())?,
        };
        Ok(way.outgoing.mtu)
    }

    /// The next datagram: as much as fits into `room`.
    ///
    /// # Errors
    /// [`ReceiveError`].
    #[inline]
    pub fn receive(&mut self, room: &mut [u8]) -> Result<Received, ReceiveError> {
        let (&datagram, octets) = self.peek()?;
        let len = octets.len();
        let fits = len.min(room.len());
        room[..fits].copy_from_slice(&octets[..fits]);
        self.stack.received(self.id);
        Ok(Received { len, datagram })
    }

    /// The next datagram as it lies there; it stays.
    ///
    /// # Errors
    /// [`ReceiveError`].
    pub fn peek(&mut self) -> Result<(&Datagram, &[u8]), ReceiveError> {
        let socket = self.socket();
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        socket.receive.front().ok_or(ReceiveError::Empty)
    }

    /// There is an error to be fetched.
    pub fn has_failed(&mut self) -> bool {
        self.socket().error.is_some()
    }

    /// Octets that wait to be read, 64 more counted for each datagram, and octets that wait to be sent.
    pub fn queued(&mut self) -> (usize, usize) {
        let socket = self.socket();
        (socket.receive.used(), socket.unsent)
    }

    /// Octets of the next datagram, if there is one; an error stays.
    pub fn next_len(&mut self) -> Option<usize> {
        self.socket().receive.front().map(|(_, octets)| octets.len())
    }

    /// What comes from now on goes into `inbox`, or into the socket's own queue again. What is in that can still be received.
    pub fn receive_into(&mut self, inbox: Option<Box<dyn Inbox>>) {
        self.socket().inbox = inbox;
    }

    /// The error that the next call would tell; it is forgotten: SO_ERROR.
    pub fn take_error(&mut self) -> Option<SocketError> {
        self.socket().error.take()
    }

    /// The oldest error that was not asked for, which is forgotten: MSG_ERRQUEUE. What [`take_error`](Udp::take_error) tells is the next
    /// one's then.
    pub fn take_report(&mut self) -> Option<Report> {
        self.stack.take_report(self.id)
    }

    /// Octets of memory of the reports that were not asked for.
    pub fn report_octets(&mut self) -> usize {
        self.socket().reports_memory()
    }

    /// Datagrams that did not fit into its queue.
    pub fn dropped(&mut self) -> u64 {
        self.socket().dropped
    }

    /// Joins a group on an interface (RFC 1112, 7.1; RFC 3493, 5.2).
    ///
    /// # Errors
    /// [`NoGroup`](crate::group::NoGroup).
    pub fn join(
        &mut self,
        now: crate::time::Instant,
        iface: IfaceId,
        group: IpAddr,
    ) -> Result<(), crate::group::NoGroup> {
        if self.socket().groups.contains(&(iface, group)) {
            return Err(crate::group::NoGroup::Joined);
        }
        let whom = self.socket().whom;
        self.stack.join(now, iface, group, whom)?;
        self.socket().groups.push((iface, group));
        Ok(())
    }

    /// Leaves a group; false: it was not in it.
    pub fn leave(&mut self, iface: IfaceId, group: IpAddr) -> bool {
        let groups = &mut self.socket().groups;
        let Some(at) = groups.iter().position(|joined| *joined == (iface, group)) else { return false };
        groups.swap_remove(at);
        let whom = self.socket().whom;
        self.stack.leave(iface, group, whom);
        true
    }

    /// Binds it, if it is not, so that it can send to `to`.
    fn bind_for(&mut self, to: IpAddr) -> Result<(), BindError> {
        if self.socket().local.is_some() {
            return Ok(());
        }
        let unspecified: IpAddr = match to {
            IpAddr::V4(_) => core::net::Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => core::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        self.bind_for_now(SocketAddr::new(unspecified, 0)).map(|_| ())
    }
}

/// Whether a socket that is bound like this sends to this address: one that is bound to all addresses of IPv6 sends to IPv4 as well.
fn speaks(options: &Options, local: IpAddr, to: IpAddr) -> bool {
    local.is_ipv4() == to.is_ipv4() || local.is_ipv6() && local.is_unspecified() && !options.only_v6
}

/// A loopback address is on no link (RFC 1122, 3.2.1.3 g; RFC 4291, 2.5.3).
pub(crate) fn leaves_no_link(path: &Path) -> Result<(), Unreachable> {
    if path.source.is_loopback() && path.iface != IfaceId::LOOPBACK {
        Err(Unreachable::Source)
    } else {
        Ok(())
    }
}

impl Stack {
    /// The address from which a socket sends that is bound like this, if that says it: nobody sends from a group, or as everybody
    /// on a network.
    fn source_of(&self, local: IpAddr) -> Option<IpAddr> {
        let everybody = |v4| self.ifaces.iter().any(|i| i.is_broadcast(v4));
        let host = match local {
            IpAddr::V4(v4) => !everybody(v4),
            IpAddr::V6(_) => true,
        };
        Some(local).filter(|ip| host && !ip.is_unspecified() && !ip.is_multicast())
    }
}
