//! Sockets of datagrams: UDP, and ping. One record of the pair is one datagram (`bypath_shm::datagram`).

mod errors;
pub mod mail;
pub mod options;
pub mod ping;

use super::listener::FIRST_FREE;
use super::neighbours::Neighbour;
use super::slab::Key;
use super::socket::{Hub, Phase, Socket, inward, outward};
use crate::Engine;
use bypath_shm::datagram::{HEADER, Header, Kind, RECORD, needs_header, tell};
use bypath_shm::service::Address;
use bypath_stack::iface::IfaceId;
use bypath_stack::linux::errno::{self, Errno, Result};
use bypath_stack::socket::{Datagram, Options, SendError};
use bypath_stack::{SendTo, Stack};
use bypath_sys::{pair, poll};
use bypath_wire::TrafficClass;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

/// Records that one turn of a socket moves each way.
const TURN: usize = 64;
/// Records that wait in a pair, at most: it counts some octets for each one.
const MOST_BEFORE: usize = 65_536;
/// Octets that wait in the stack for a program whose pair is full: the pair has the rest of SO_RCVBUF.
const WAITING: usize = 64 << 10;
/// The same where it is not: what comes at once, before the service gives it on. As many as Linux's net.core.rmem_default.
const BURST: usize = 212_992;
/// Octets that wait for their old partner at most while a socket is connected to another one; the rest is lost.
const BEFORE: usize = 1 << 20;
/// What each of them counts beside its octets: its place in a list that has room for as many again, and the allocator's part.
const BESIDE: usize = 128;
const _: () = assert!(2 * size_of::<(SocketAddr, Vec<u8>)>() <= BESIDE);
/// What a pair's buffer has at least, as it is set: the kernel doubles it, and one record has to go in.
pub const LEAST_BUFFER: i32 = RECORD as i32;
/// At most: it is the kernel's memory, and twice as much is what it has if nothing is set, Linux's net.core.wmem_default.
pub const MOST_BUFFER: i32 = 106_496;

/// What a socket of datagrams has beside what the stack keeps.
#[derive(Debug, Default)]
pub struct Datagrams {
    /// What its program wants to be told beside datagrams: [`tell`] bits.
    pub tells: u32,
    /// A record of an error is to be sent.
    owes: bool,
    /// Datagrams for which its pair had no room, or that could not be sent.
    pub dropped: u64,
    /// Its UDP_SEGMENT; 0: none.
    pub segment: u16,
    /// What its program sent before it connected to somebody else, and to whom: goes first.
    before: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Octets of `before`, and [`BESIDE`] for each.
    waiting: usize,
    /// Its rings.
    pub mail: Option<Box<mail::Mail>>,
    /// Of a ping socket.
    pub ping: Option<ping::Ping>,
}

impl Datagrams {
    /// Of a ping socket, or of UDP.
    pub fn new(ping: Option<ping::Ping>) -> Box<Datagrams> {
        Box::new(Datagrams { ping, ..Datagrams::default() })
    }

    /// Octets that wait for their old partner.
    pub const fn kept(&self) -> usize {
        self.waiting
    }

    fn keep(&mut self, partner: SocketAddr, record: &[u8], most: usize) {
        let counts = record.len() + BESIDE;
        if self.waiting + counts > most {
            self.dropped += 1;
            return;
        }
        self.waiting += counts;
        self.before.push_back((partner, record.to_vec()));
    }

    /// The first of `before`, put into `room`: its length, and to whom it goes.
    fn first_before(&mut self, room: &mut [u8]) -> Option<(usize, SocketAddr)> {
        let (partner, record) = self.before.pop_front()?;
        self.waiting -= record.len() + BESIDE;
        if self.before.is_empty() {
            self.before = VecDeque::new();
        }
        room[..record.len()].copy_from_slice(&record);
        Some((record.len(), partner))
    }
}

/// What becomes of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Waits,
    More,
    End,
}

/// What is next in a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Record(usize),
    Nothing,
    End,
}

impl Hub {
    /// Whether a socket is one of datagrams.
    pub fn is_of_datagrams(&self, key: Key) -> bool {
        self.sockets.get(key).is_some_and(|socket| matches!(socket.phase, Phase::Datagrams(_)))
    }

    /// # Errors
    /// As bind(2).
    pub fn bind_datagrams(
        &mut self,
        stack: &mut Stack,
        key: Key,
        to: Address,
        may_low: bool,
    ) -> Result<Address> {
        let socket = self.sockets.get_mut(key).ok_or(libc::EBADF)?;
        let to = inward(socket.v6, to.0.ok_or(libc::EAFNOSUPPORT)?)?;
        if matches!(&socket.phase, Phase::Datagrams(of) if of.ping.is_some()) {
            return self.bind_ping(stack, key, to);
        }
        if (1..FIRST_FREE).contains(&to.port()) && !may_low {
            return Err(libc::EACCES);
        }
        let (id, v6) = (socket.id, socket.v6);
        let mut udp = stack.udp(id).ok_or(libc::EBADF)?;
        if v6 && to.is_ipv4() && udp.options().only_v6 {
            return Err(libc::EINVAL);
        }
        let local = udp.bind(to).map_err(errno::bind)?;
        if local.is_ipv6() && !local.ip().is_unspecified() {
            // As Linux has it: it tells so from then on, also as nobody of IPv4 can send there.
            let options = udp.options();
            udp.set_options(Options { only_v6: true, ..options });
        }
        Ok(Address(Some(outward(v6, local))))
    }

    /// connect(2); no address: as AF_UNSPEC.
    ///
    /// # Errors
    /// As connect(2).
    pub fn connect_datagrams(&mut self, stack: &mut Stack, key: Key, to: Address) -> Result<()> {
        let socket = self.sockets.get_mut(key).ok_or(libc::EBADF)?;
        let to = to.0.map(|to| inward(socket.v6, to)).transpose()?;
        self.keep_before(stack, key);
        let socket = self.sockets.get_mut(key).ok_or(libc::EBADF)?;
        if matches!(&socket.phase, Phase::Datagrams(of) if of.ping.is_some()) {
            return self.connect_ping(stack, key, to);
        }
        let Some(to) = to else {
            return stack.udp(socket.id).ok_or(libc::EBADF)?.disconnect().map_err(errno::bind);
        };
        socket.bind_for(stack)?;
        let mut udp = stack.udp(socket.id).ok_or(libc::EBADF)?;
        udp.connect(to).map_err(|e| of_family(socket.v6, to, e))?;
        socket.errno = 0;
        Ok(())
    }

    /// What waits in the pair of a connected socket goes to the partner that it has now.
    fn keep_before(&mut self, stack: &mut Stack, key: Key) {
        let mut room = std::mem::take(&mut self.record);
        room.resize(RECORD, 0);
        // Of a user who has more octets than he may nothing is kept.
        let full = self.sockets.get(key).is_some_and(|socket| self.is_full(stack, socket.uid));
        let Some(socket) = self.sockets.get_mut(key) else { return };
        let near = socket.rings.as_ref().and_then(|rings| self.neighbours.get(rings.with));
        let kept = socket.keep_before(stack, near, &mut room, if full { 0 } else { BEFORE });
        let (uid, octets) = (socket.uid, socket.count(stack));
        let before = std::mem::replace(&mut socket.counted, octets);
        self.users.count(uid, before, octets);
        if kept {
            self.activate(key);
        }
        self.list_mail(key);
        self.record = room;
    }

    /// Whether a datagram may be sent there.
    ///
    /// # Errors
    /// As sendto(2).
    pub fn reach(&mut self, stack: &mut Stack, key: Key, to: Address) -> Result<()> {
        let socket = self.sockets.get_mut(key).ok_or(libc::EBADF)?;
        let to = inward(socket.v6, to.0.ok_or(libc::EAFNOSUPPORT)?)?;
        match &socket.phase {
            Phase::Datagrams(of) if of.ping.is_some() => stack
                .path(to.ip(), None, None)
                .map(|_| ())
                .map_err(|e| errno::send(SendError::Unreachable(e))),
            Phase::Datagrams(_) => {
                socket.bind_for(stack)?;
                let mut udp = stack.udp(socket.id).ok_or(libc::EBADF)?;
                udp.reach(to).map(|_| ()).map_err(|e| of_family(socket.v6, to, e))
            }
            _ => Err(libc::EOPNOTSUPP),
        }
    }

    /// Moves datagrams both ways. True: there may be more to do.
    pub fn exchange(&mut self, engine: &mut Engine, key: Key) -> bool {
        let Some(sharer) = self.stranger(key) else { return self.move_datagrams(engine, key) };
        if sharer.is_barred() {
            self.release(engine.stack(), key);
            return false;
        }
        sharer.watched(|| self.move_datagrams(engine, key))
    }

    fn move_datagrams(&mut self, engine: &mut Engine, key: Key) -> bool {
        let full = self.sockets.get(key).is_some_and(|socket| self.is_full(engine.stack(), socket.uid));
        let Some(socket) = self.sockets.get_mut(key) else { return false };
        socket.hear_of_errors(engine.stack());
        socket.bound(engine.stack(), full);
        if self.looks {
            socket.look_into_pair(socket.rings.as_ref().and_then(|rings| self.neighbours.get(rings.with)));
        }
        let mut more = false;
        if socket.is.pair_in && !socket.is.held {
            match self.send_all(engine, key) {
                Way::Waits => {}
                Way::More => more = true,
                Way::End => {
                    self.release(engine.stack(), key);
                    return false;
                }
            }
        }
        self.list_mail(key);
        let Some(socket) = self.sockets.get_mut(key) else { return false };
        let near = socket.rings.as_ref().and_then(|rings| self.neighbours.get(rings.with));
        more |= socket.deliver(engine.stack(), near) == Way::More;
        let octets = socket.count(engine.stack());
        let before = std::mem::replace(&mut socket.counted, octets);
        let (uid, wanted) = (socket.uid, !socket.is.pair_out);
        let held = socket.is.held;
        self.users.count(uid, before, octets);
        self.tell_room(key, wanted);
        self.watch_reader(key);
        if held {
            self.starved.insert(key);
        }
        more
    }

    /// From the pair to the stack.
    fn send_all(&mut self, engine: &mut Engine, key: Key) -> Way {
        let mut room = std::mem::take(&mut self.record);
        room.resize(RECORD, 0);
        let way = self.send_some(engine, key, &mut room);
        self.record = room;
        way
    }

    fn send_some(&mut self, engine: &mut Engine, key: Key, room: &mut [u8]) -> Way {
        let mut moved = 0;
        while moved < TURN {
            let Some(socket) = self.sockets.get_mut(key) else { return Way::Waits };
            if moved > 0 && socket.is_late() {
                break;
            }
            // It is told of room, then.
            if !engine.stack().readiness(socket.id).writable {
                return Way::Waits;
            }
            let near = socket.rings.as_ref().and_then(|rings| self.neighbours.get(rings.with));
            let before = socket.datagrams().and_then(|of| of.first_before(room));
            let (len, partner) = match before {
                Some((len, partner)) => (len, Some(partner)),
                None => match socket.next_of_both(near, room) {
                    Next::Record(len) => (len, None),
                    Next::Nothing => return socket.waits(),
                    Next::End => return Way::End,
                },
            };
            let (mut header, octets) = match room.first_chunk::<HEADER>().and_then(Header::decode) {
                Some(header) if len >= HEADER => (header, &room[HEADER..len]),
                _ => (Header::datagram(Address(None)), &room[..len]),
            };
            if let (None, Some(partner)) = (header.peer.0, partner) {
                header.peer = Address(Some(outward(socket.v6, partner)));
            }
            let is_ping = matches!(&socket.phase, Phase::Datagrams(of) if of.ping.is_some());
            let sent = match header.kind {
                Kind::Error => Err(libc::EINVAL),
                _ if socket.again.is_some_and(|again| !again.is_there()) => Err(libc::EACCES),
                Kind::Datagram if is_ping => self.send_ping(engine, key, &header, octets).map(|()| 1),
                Kind::Datagram => socket.send(engine, &header, octets),
            };
            moved += sent.unwrap_or(1);
            if let Ok(many @ 2..) = sent {
                // What one record brings takes long to send: that is a part of its user's turn, and nobody waits behind what many sockets bring.
                (0..many.div_ceil(TURN)).for_each(|_| engine.flush_now());
            }
            if let (Err(errno), Some(socket)) = (sent, self.sockets.get_mut(key)) {
                socket.could_not_send(engine.stack(), errno);
            }
        }
        Way::More
    }
}

impl Socket {
    /// The next record of the pair.
    fn next_record(&mut self, room: &mut [u8]) -> Next {
        loop {
            match pair::receive(self.end.as_fd(), room) {
                // A datagram without octets looks like the end.
                Ok(0) if self.is_over() => {
                    return if self.is.hung_up { Next::End } else { Next::Nothing };
                }
                Ok(len) => return Next::Record(len),
                Err(bypath_sys::Errno::AGAIN) if self.is.hung_up => return Next::End,
                Err(bypath_sys::Errno::AGAIN) => return Next::Nothing,
                // What it had not read is lost, as the kernel's would be.
                Err(_) => self.is.hung_up = true,
            }
        }
    }

    /// What waits in the pair is taken out and kept for the partner that it was sent to. True: there is something.
    fn keep_before(
        &mut self,
        stack: &mut Stack,
        near: Option<&Neighbour>,
        room: &mut [u8],
        most: usize,
    ) -> bool {
        let Some(partner) = self.ends(stack).1 else { return false };
        // What was written before this question is there, whether the kernel has told of it or not.
        self.is.pair_news = true;
        // A pair that is written faster than it is read here ends nothing: what comes later is later.
        for _ in 0..MOST_BEFORE {
            let Next::Record(len) = self.next_of_both(near, room) else { break };
            if let Some(of) = self.datagrams() {
                of.keep(partner, &room[..len], most);
            }
        }
        let kept = self.datagrams().is_some_and(|of| !of.before.is_empty());
        self.is.pair_in |= kept;
        kept
    }

    /// A service that stays awake for a while has the program write into its ring.
    fn look_into_pair(&mut self, near: Option<&Neighbour>) {
        let mail = self.datagrams().and_then(|of| of.mail.as_ref());
        if mail.zip(near).is_some_and(|(mail, near)| mail.is_to_open(near)) {
            (self.is.pair_in, self.is.pair_news) = (true, true);
        }
    }

    fn waits(&mut self) -> Way {
        self.is.pair_in = false;
        Way::Waits
    }

    /// Whether the program sends no more, as the kernel says it now.
    fn is_over(&mut self) -> bool {
        let events = poll::now(self.end.as_raw_fd(), libc::POLLRDHUP) as u32;
        self.is.hung_up |= events & super::watch::HUP != 0;
        events & (super::watch::HUP | super::watch::RDHUP) != 0
    }

    fn datagrams(&mut self) -> Option<&mut Datagrams> {
        match &mut self.phase {
            Phase::Datagrams(of) => Some(of),
            _ => None,
        }
    }

    /// A socket of IPv6 that nobody has bound is bound for both kinds, unless it wants one.
    fn bind_for(&self, stack: &mut Stack) -> Result<()> {
        let mut udp = stack.udp(self.id).ok_or(libc::EBADF)?;
        if self.v6 && udp.local().is_none() {
            let all = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
            // As of a send: no port is free.
            udp.bind_for_now(all).map_err(|_| libc::EAGAIN)?;
        }
        Ok(())
    }

    /// How many datagrams that were.
    fn send(&mut self, engine: &mut Engine, header: &Header, octets: &[u8]) -> Result<usize> {
        let v6 = self.v6;
        let to = header.peer.0.map(|to| inward(v6, to)).transpose()?;
        self.bind_for(engine.stack())?;
        let own = self.datagrams().map_or(0, |of| of.segment);
        let said = |bits: u32| header.tells & bits != 0;
        let segment = if said(tell::SEGMENT) { header.segment as u16 } else { own };
        let message = SendTo {
            to,
            source: match header.local.0.filter(|_| said(tell::INFO | tell::INFO_V6)) {
                Some(local) => Some(inward(v6, local)?.ip()).filter(|ip| !ip.is_unspecified()),
                None => None,
            },
            source_port: None,
            iface: IfaceId::from_scope(header.interface).filter(|_| said(tell::INFO | tell::INFO_V6)),
            hop_limit: u8::try_from(header.hops).ok().filter(|_| said(tell::HOPS | tell::HOPS_V6)),
            class: u8::try_from(header.class)
                .ok()
                .filter(|_| said(tell::CLASS | tell::CLASS_V6))
                .map(TrafficClass),
            segment: (segment > 0).then_some(segment),
        };
        if message == (SendTo { to, ..SendTo::default() }) {
            return engine.send(self.id, octets, to).map(|()| 1).map_err(errno::send);
        }
        let mut udp = engine.stack().udp(self.id).ok_or(libc::EBADF)?;
        udp.send_with(octets, &message).map_err(errno::send)?;
        Ok(message.segment.map_or(1, |segment| octets.len().div_ceil(segment.into()).max(1)))
    }

    /// Who is connected hears of it; others have lost a datagram.
    fn could_not_send(&mut self, stack: &mut Stack, errno: Errno) {
        let connected = self.ends(stack).1.is_some();
        let Some(of) = self.datagrams() else { return };
        of.dropped += 1;
        if connected {
            of.owes = true;
            self.errno = errno;
        }
    }

    /// What the network has said is told by a record, which wakes who waits, and by `ERROR`.
    fn hear_of_errors(&mut self, stack: &mut Stack) {
        let error = stack.udp(self.id).and_then(|mut udp| udp.take_error());
        if let Some(error) = error {
            self.errno = errno::network(error);
            if let Some(of) = self.datagrams() {
                of.owes = true;
            }
        }
    }

    /// Of a user who has more octets than he may nothing waits here.
    fn bound(&mut self, stack: &mut Stack, full: bool) {
        // Of SO_RCVBUF, as it is told, what the pair does not have.
        let rest = 2 * (self.wishes.buffers.1 as usize).saturating_sub(MOST_BUFFER as usize);
        // What is kept for an old partner gets less by being sent.
        let kept = self.datagrams().map_or(0, |of| of.kept());
        self.is.held = full && self.counted.saturating_sub(kept) >= super::stream::OWN;
        if let Some(mut udp) = stack.udp(self.id) {
            udp.set_receive_octets(match (full, self.is.pair_out) {
                (true, _) => 0,
                (false, false) => WAITING + rest,
                (false, true) => BURST.max(WAITING + rest),
            });
        }
    }

    /// From the stack to the pair.
    fn deliver(&mut self, stack: &mut Stack, near: Option<&Neighbour>) -> Way {
        if !self.is.pair_out {
            return Way::Waits;
        }
        if self.datagrams().is_some_and(|of| of.owes_again()) && !self.send_again() {
            self.is.pair_out = false;
            return Way::Waits;
        }
        let owes = self.datagrams().is_some_and(|of| std::mem::take(&mut of.owes));
        if owes
            && self.errno != 0
            && self.tell_program(near, &Header::error(), &[], false) == Err(bypath_sys::Errno::AGAIN)
        {
            if let Some(of) = self.datagrams() {
                of.owes = true;
            }
            self.is.pair_out = false;
            return Way::Waits;
        }
        if !self.is.stack_in {
            return Way::Waits;
        }
        let id = self.id;
        for n in 0..TURN {
            if n > 0 && self.is_late() {
                break;
            }
            let Some(mut udp) = stack.udp(id) else { return Way::Waits };
            if udp.has_failed() {
                // It came meanwhile, and is told first.
                self.hear_of_errors(stack);
                return Way::More;
            }
            let connected = udp.remote().is_some();
            let Ok((datagram, octets)) = udp.peek() else {
                self.is.stack_in = false;
                return Way::Waits;
            };
            match self.give(near, datagram, octets, connected) {
                Ok(()) => {}
                Err(bypath_sys::Errno::AGAIN) => {
                    self.is.pair_out = false;
                    return Way::Waits;
                }
                // It is gone, which an event tells, or reads no more.
                Err(_) => {
                    if let Some(of) = self.datagrams() {
                        of.dropped += 1;
                    }
                }
            }
            // It is taken out: no octets are asked for.
            if let Some(mut udp) = stack.udp(id) {
                let _ = udp.receive(&mut []);
            }
        }
        Way::More
    }

    /// One datagram into the pair: naked, where its program knows all that there is to be known.
    fn give(
        &mut self,
        near: Option<&Neighbour>,
        datagram: &Datagram,
        octets: &[u8],
        connected: bool,
    ) -> bypath_sys::Result<()> {
        let (tells, rings) = self.datagrams().map_or((0, false), |of| (of.tells, of.mail.is_some()));
        let naked = connected && tells == 0 && !needs_header(octets);
        if naked && !rings {
            return self.record_of([octets, &[]]);
        }
        let header = Header {
            tells,
            peer: Address(Some(outward(self.v6, datagram.from))),
            local: Address(Some(outward(self.v6, datagram.to))),
            interface: datagram.iface.scope(),
            hops: datagram.hop_limit.into(),
            class: datagram.class.0.into(),
            segment: datagram.segment.unwrap_or(0).into(),
            stamp: datagram.timestamp.map_or_else(bypath_sys::clock::realtime_ns, |stamp| stamp.ns),
            ..Header::datagram(Address(None))
        };
        self.tell_program(near, &header, octets, naked)
    }

    fn record_of(&self, parts: [&[u8]; 2]) -> bypath_sys::Result<()> {
        pair::send_record(self.end.as_fd(), parts)
    }

    /// Its own address and its partner's, of whatever kind it is, as the stack has them.
    pub fn ends(&self, stack: &mut Stack) -> (Option<SocketAddr>, Option<SocketAddr>) {
        match &self.phase {
            Phase::Datagrams(of) => match &of.ping {
                Some(ping) => (ping.local(self.v6), ping.remote),
                None => stack.udp(self.id).map_or((None, None), |mut udp| (udp.local(), udp.remote())),
            },
            _ => stack.tcp(self.id).map_or((None, None), |mut tcp| (tcp.local(), tcp.remote())),
        }
    }
}

/// What a send answers; of a socket of IPv6 that takes nothing else, IPv4 is a network without a way.
fn of_family(v6: bool, to: SocketAddr, error: SendError) -> Errno {
    if v6 && to.is_ipv4() && error == SendError::Kind { libc::ENETUNREACH } else { errno::send(error) }
}

/// The unspecified address of a kind.
pub fn unspecified(v6: bool) -> std::net::IpAddr {
    if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_without_octets_that_are_kept_for_an_old_partner_are_bounded() {
        let (mut of, partner) = (Datagrams::default(), "10.0.0.1:7".parse().unwrap());
        (0..100_000).for_each(|_| of.keep(partner, &[], BEFORE));
        assert_eq!((of.before.len(), of.kept()), (BEFORE / BESIDE, BEFORE));
        assert!(of.before.capacity() * size_of::<(SocketAddr, Vec<u8>)>() <= BEFORE);
        let sent = std::iter::from_fn(|| of.first_before(&mut [])).count();
        assert_eq!((sent, of.kept(), of.before.capacity()), (BEFORE / BESIDE, 0, 0));
    }
}
