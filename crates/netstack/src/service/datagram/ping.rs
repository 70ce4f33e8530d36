//! Ping sockets: ICMP echo for programs without rights. Each has an identifier, as a port, and gets the replies to it. The stack has one raw
//! socket of each kind for all of them.

use crate::Engine;
use crate::service::debts::Payer;
use crate::service::slab::Key;
use crate::service::socket::{Hub, Phase, inward};
use bypath_shm::datagram::{Header, tell};
use bypath_stack::Stack;
use bypath_stack::linux::errno::{self, Result};
use bypath_stack::socket::{Received, SendError, SocketId, unscoped};
use bypath_sys::clock;
use bypath_wire::{IpProtocol, TrafficClass, icmpv4};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Octets of an echo's header.
const ECHO: usize = 8;
/// Identifiers of a kind; 0 is none.
const IDENTS: usize = 65_535;
/// Octets that wait in the stack's socket of a kind, each way.
const OCTETS: usize = 16 << 20;
/// Request and reply, of ICMP and of ICMPv6.
const REQUEST: [u8; 2] = [8, 128];
const REPLY: [u8; 2] = [0, 129];

/// What a ping socket has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ping {
    /// Its identifier; 0: it has none yet.
    pub ident: u16,
    /// It sends from this address of ours, and hears of what is sent there.
    pub source: Option<IpAddr>,
    pub remote: Option<SocketAddr>,
}

impl Ping {
    /// Its own address, with its identifier as port.
    pub fn local(&self, v6: bool) -> Option<SocketAddr> {
        let ip = self.source.unwrap_or(super::unspecified(v6));
        (self.ident != 0).then_some(SocketAddr::new(ip, self.ident))
    }
}

/// All ping sockets.
#[derive(Debug, Default)]
pub struct Pings {
    /// The stack's, of ICMP and ICMPv6.
    raw: [Option<SocketId>; 2],
    by_ident: [HashMap<u16, Key>; 2],
    last: u16,
}

impl Pings {
    /// The stack's socket of a kind.
    fn raw(&mut self, stack: &mut Stack, v6: bool) -> Result<SocketId> {
        let raw = &mut self.raw[usize::from(v6)];
        if let Some(id) = *raw {
            return Ok(id);
        }
        let protocol = if v6 { IpProtocol::ICMPV6 } else { IpProtocol::ICMP };
        let id = stack.open_raw(protocol).map_err(|_| libc::ENFILE)?;
        if let Some(mut raw) = stack.raw(id) {
            // It is everybody's: what each may send bounds the share that he has of the link's queue, and all that comes in one turn is taken.
            raw.set_octets(OCTETS, OCTETS);
        }
        *raw = Some(id);
        Ok(id)
    }

    /// Whether a socket of the stack is one of these.
    pub fn has(&self, id: SocketId) -> bool {
        self.raw.contains(&Some(id))
    }

    /// A socket is gone.
    fn remove(&mut self, stack: &mut Stack, v6: bool, ident: u16) {
        let all = &mut self.by_ident[usize::from(v6)];
        all.remove(&ident);
        if all.is_empty()
            && let Some(raw) = self.raw[usize::from(v6)].take()
        {
            stack.close(raw);
        }
    }

    /// An identifier that nobody has.
    fn free(&mut self, v6: bool) -> Result<u16> {
        for _ in 0..u16::MAX {
            self.last = self.last.wrapping_add(1).max(1);
            if !self.by_ident[usize::from(v6)].contains_key(&self.last) {
                return Ok(self.last);
            }
        }
        Err(libc::EAGAIN)
    }
}

impl Hub {
    fn ping(&mut self, key: Key) -> Result<(bool, &mut Ping)> {
        match self.sockets.get_mut(key).map(|socket| (socket.v6, &mut socket.phase)) {
            Some((v6, Phase::Datagrams(of))) => of.ping.as_mut().map(|ping| (v6, ping)).ok_or(libc::EINVAL),
            _ => Err(libc::EBADF),
        }
    }

    /// A ping socket is gone.
    pub fn forget_ping(&mut self, stack: &mut Stack, uid: u32, v6: bool, ident: u16) {
        self.pings.remove(stack, v6, ident);
        if ident != 0 {
            self.users.change(uid, |usage| usage.pings[usize::from(v6)] -= 1);
        }
    }

    /// Gives a ping socket an identifier, if it has none.
    fn identify(&mut self, stack: &mut Stack, key: Key, wanted: u16) -> Result<()> {
        let (v6, ping) = self.ping(key)?;
        if ping.ident != 0 {
            return Ok(());
        }
        let uid = self.sockets.get(key).ok_or(libc::EBADF)?.uid;
        let of_kind = &self.pings.by_ident[usize::from(v6)];
        if !self.users.may_ping(uid, v6, IDENTS - of_kind.len()) {
            return Err(if wanted == 0 { libc::EAGAIN } else { libc::EADDRINUSE });
        }
        let ident = match wanted {
            0 => self.pings.free(v6)?,
            taken if of_kind.contains_key(&taken) => return Err(libc::EADDRINUSE),
            free => free,
        };
        self.pings.raw(stack, v6)?;
        self.pings.by_ident[usize::from(v6)].insert(ident, key);
        self.users.change(uid, |usage| usage.pings[usize::from(v6)] += 1);
        self.ping(key)?.1.ident = ident;
        Ok(())
    }

    /// # Errors
    /// As bind(2).
    pub fn bind_ping(
        &mut self,
        stack: &mut Stack,
        key: Key,
        to: SocketAddr,
    ) -> Result<bypath_shm::service::Address> {
        let (v6, ping) = self.ping(key)?;
        if ping.ident != 0 {
            return Err(libc::EINVAL);
        }
        let any = to.ip().is_unspecified();
        if !any && !stack.is_local(to.ip(), None) {
            return Err(libc::EADDRNOTAVAIL);
        }
        self.identify(stack, key, to.port())?;
        let (_, ping) = self.ping(key)?;
        ping.source = Some(to.ip()).filter(|_| !any);
        Ok(bypath_shm::service::Address(ping.local(v6)))
    }

    /// # Errors
    /// As connect(2).
    pub fn connect_ping(&mut self, stack: &mut Stack, key: Key, to: Option<SocketAddr>) -> Result<()> {
        if let Some(to) = to {
            let path = stack.path(to.ip(), None, self.ping(key)?.1.source);
            let path = path.map_err(|e| errno::send(SendError::Unreachable(e)))?;
            self.identify(stack, key, 0)?;
            self.ping(key)?.1.source.get_or_insert(path.source);
        }
        self.ping(key)?.1.remote = to;
        Ok(())
    }

    /// # Errors
    /// As sendto(2): EINVAL where it is no echo request.
    pub fn send_ping(&mut self, engine: &mut Engine, key: Key, header: &Header, octets: &[u8]) -> Result<()> {
        let stack = engine.stack();
        self.identify(stack, key, 0)?;
        let (v6, ping) = self.ping(key)?;
        let ping = *ping;
        let to =
            header.peer.0.map(|to| inward(v6, to)).transpose()?.or(ping.remote).ok_or(libc::EDESTADDRREQ)?;
        if octets.len() < ECHO || octets[0] != REQUEST[usize::from(v6)] || octets[1] != 0 {
            return Err(libc::EINVAL);
        }
        let mut message = octets.to_vec();
        message[4..6].copy_from_slice(&ping.ident.to_be_bytes());
        if !v6 {
            icmpv4::fill(&mut message);
        }
        let raw = self.pings.raw(stack, v6)?;
        let socket = self.sockets.get(key).ok_or(libc::EBADF)?;
        let mut options = stack.udp(socket.id).ok_or(libc::EBADF)?.options();
        let said = |bits: u32| header.tells & bits != 0;
        if said(tell::HOPS | tell::HOPS_V6) {
            options.hop_limit = u8::try_from(header.hops).ok().filter(|hops| *hops > 0);
        }
        if said(tell::CLASS | tell::CLASS_V6) {
            options.class = TrafficClass(header.class as u8);
        }
        let (to, scope) = unscoped(to);
        let uid = socket.uid;
        let mut raw = stack.raw(raw).ok_or(libc::EBADF)?;
        raw.set_user(uid);
        raw.set_options(options);
        raw.bind(ping.source);
        let sent = raw.send(&message, to.ip(), scope).map_err(errno::send);
        raw.bind(None);
        raw.set_options(Default::default());
        sent
    }

    /// Replies go to whose they are; what there is no room for is lost.
    pub fn hear_pings(&mut self, stack: &mut Stack, id: SocketId) {
        let v6 = self.pings.raw[1] == Some(id);
        let mut room = std::mem::take(&mut self.record);
        room.resize(bypath_shm::datagram::RECORD, 0);
        while let Some(Ok(Received { len, datagram })) = stack.raw(id).map(|mut raw| raw.receive(&mut room)) {
            let message = &room[..len.min(room.len())];
            if message.len() < ECHO || message[0] != REPLY[usize::from(v6)] || message[1] != 0 {
                continue;
            }
            let ident = u16::from_be_bytes([message[4], message[5]]);
            let Some(key) = self.pings.by_ident[usize::from(v6)].get(&ident).copied() else { continue };
            let Ok((_, ping)) = self.ping(key) else { continue };
            let ping = *ping;
            let hears = ping.remote.is_none_or(|remote| remote.ip() == datagram.from.ip())
                && ping.source.is_none_or(|source| source == datagram.to.ip());
            let Some(socket) = self.sockets.get_mut(key).filter(|_| hears) else { continue };
            let near = socket.rings.as_ref().and_then(|rings| self.neighbours.get(rings.with));
            let near = near.filter(|near| near.stranger().is_none_or(|sharer| !sharer.is_barred()));
            let uid = socket.uid;
            let payer = if self.users.counts(uid) { Payer::User(uid) } else { Payer::Socket(key) };
            if self.debts.owes(payer) {
                if let Phase::Datagrams(of) = &mut socket.phase {
                    of.dropped += 1;
                }
                continue;
            }
            let meter = self.debts.begin(payer, clock::monotonic_ns());
            let mut give = || socket.give(near, &datagram, message, ping.remote.is_some());
            let given = match near {
                Some(near) => near.watched(give),
                None => give(),
            };
            self.debts.end(&meter);
            if let (Err(_), Phase::Datagrams(of)) = (given, &mut socket.phase) {
                of.dropped += 1;
            }
            self.watch_reader(key);
        }
        self.record = room;
    }
}
