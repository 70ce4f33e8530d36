//! listen(2) and accept(2): connections go to the program as records with a descriptor, few at a time; the rest waits in the stack.

use super::connect::{drain, fill};
use super::limits::{Counted, Share};
use super::slab::Key;
use super::socket::{Hub, Phase, Socket, inward, outward};
use super::watch::Token;
use crate::Engine;
use bypath_shm::service::{Accepted, Address};
use bypath_stack::Stack;
use bypath_stack::linux::errno::{self, Result};
use bypath_stack::tcp::Options;
use bypath_sys::{Errno, pair, seqpacket, sock};
use std::collections::VecDeque;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Connections that wait in the stack at least, if so many come: it takes longer until a program has one than in the kernel, and who finds no
/// place comes again a second later.
const LEAST: u32 = 128;
/// Connections that wait to be accepted at most: Linux's net.core.somaxconn.
const MOST: u32 = 4096;
/// Connections that one turn takes.
const TURN: usize = 16;
/// A port below is for root and those whom the settings name.
pub const FIRST_FREE: u16 = 1024;

/// A socket that listens.
#[derive(Debug, Default)]
pub struct Listening {
    /// A record for which there was no room, with the program's end.
    waiting: Option<(Accepted, Counted)>,
    /// Connections whose records are in the pair, as far as is known.
    given: VecDeque<u64>,
    /// What one record takes of the pair's memory, as the kernel counts it; 0: not known.
    unit: usize,
    /// Octets that fill the program's end.
    filled: usize,
}

impl Listening {
    /// Records that are in the pair, as far as is known.
    pub fn given(&self) -> usize {
        self.given.len()
    }

    /// What the next record is.
    pub fn share(&self) -> Share {
        if self.given.is_empty() { Share::First } else { Share::Ahead }
    }

    /// Connections of which it is not known that they were accepted.
    fn outstanding(&self) -> impl Iterator<Item = u64> {
        let waiting = self.waiting.as_ref().map(|(record, _)| record.cookie);
        self.given.iter().copied().chain(waiting)
    }
}

impl Hub {
    /// # Errors
    /// As bind(2).
    pub fn bind(&mut self, stack: &mut Stack, key: Key, to: Address, may_low: bool) -> Result<Address> {
        let socket = self.sockets.get(key).ok_or(libc::EBADF)?;
        let to = to.0.ok_or(libc::EAFNOSUPPORT)?;
        if !matches!(socket.phase, Phase::Fresh) {
            return Err(libc::EINVAL);
        }
        let to = inward(socket.v6, to)?;
        if (1..FIRST_FREE).contains(&to.port()) && !may_low {
            return Err(libc::EACCES);
        }
        let mut tcp = stack.tcp(socket.id).ok_or(libc::EBADF)?;
        if socket.v6 && to.is_ipv4() && tcp.options().only_v6 {
            return Err(libc::EINVAL);
        }
        let local = tcp.bind(to).map_err(errno::bind)?;
        if socket.v6 && local.is_ipv6() && !local.ip().is_unspecified() {
            // As Linux has it: nothing else can come to such a socket.
            let options = tcp.options();
            tcp.set_options(Options { only_v6: true, ..options });
        }
        Ok(Address(Some(outward(socket.v6, local))))
    }

    /// # Errors
    /// As listen(2); EBADF: `program` is not the program's end.
    pub fn listen(
        &mut self,
        stack: &mut Stack,
        key: Key,
        backlog: i32,
        program: Option<OwnedFd>,
    ) -> Result<()> {
        let socket = self.sockets.get_mut(key).ok_or(libc::EBADF)?;
        if !matches!(socket.phase, Phase::Fresh | Phase::Listening(_)) {
            return Err(libc::EINVAL);
        }
        if program.as_ref().is_some_and(|program| pair::cookie(program.as_fd()) != Ok(socket.cookie)) {
            return Err(libc::EBADF);
        }
        let mut tcp = stack.tcp(socket.id).ok_or(libc::EBADF)?;
        if socket.v6 && tcp.local().is_none() {
            tcp.bind(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0)).map_err(errno::bind)?;
        }
        // As Linux has it: less than nothing is as much as possible.
        tcp.listen((backlog as u32).clamp(LEAST, MOST) as usize).map_err(errno::listen)?;
        if matches!(socket.phase, Phase::Fresh) {
            pair::set_send_buffer(socket.end.as_fd(), 1).map_err(|e| e.raw_os_error())?;
            // Nobody has room to write where nobody reads.
            let filled = program.map_or(0, |program| fill(program.as_fd()));
            socket.phase = Phase::Listening(Box::new(Listening { filled, ..Listening::default() }));
            socket.is.pair_out = true;
        }
        Ok(())
    }

    /// shutdown(2): who does not read does not listen any more; the pair says end of file to who accepts.
    ///
    /// # Errors
    /// ENOTCONN, EINVAL.
    pub fn shut_listener(&mut self, stack: &mut Stack, key: Key, how: i32) -> Result<()> {
        let socket = self.sockets.get(key).ok_or(libc::EBADF)?;
        match (how, &socket.phase) {
            (libc::SHUT_RD | libc::SHUT_RDWR, Phase::Listening(_)) => {
                self.count_accepted(key);
                if let Some(socket) = self.sockets.get_mut(key) {
                    // Records that are in the pair yet are nobody's.
                    socket.is.unread = true;
                }
                self.release(stack, key);
                Ok(())
            }
            (libc::SHUT_WR, Phase::Listening(_)) => Ok(()),
            (0..=2, _) => Err(libc::ENOTCONN),
            _ => Err(libc::EINVAL),
        }
    }

    /// Gives the program connections, as many as there is room for. True: there may be more.
    pub fn accept(&mut self, engine: &mut Engine, key: Key) -> bool {
        self.count_accepted(key);
        self.look_at_heirs_of(key);
        for n in 0..TURN {
            if n > 0 && self.sockets.get(key).is_some_and(Socket::is_late) {
                break;
            }
            let Some(Socket { end, is, uid, phase: Phase::Listening(listening), .. }) =
                self.sockets.get_mut(key)
            else {
                return false;
            };
            if is.hung_up {
                self.release(engine.stack(), key);
                return false;
            }
            let may_be_sent = self.users.may_be_sent(*uid, listening.share());
            if let Some((record, program)) = &listening.waiting {
                if !may_be_sent {
                    self.on_way.wait(Token::Socket(key));
                    return false;
                }
                match seqpacket::send(end.as_fd(), &record.encode(), Some(program.as_fd())) {
                    Ok(()) => {
                        listening.given.push_back(record.cookie);
                        listening.waiting = None;
                        if self.users.sent(*uid, 1) {
                            self.on_way.sent(Token::Socket(key));
                        }
                        if listening.unit == 0 {
                            listening.unit = sock::outq(end.as_raw_fd()).unwrap_or(0);
                        }
                    }
                    Err(Errno::AGAIN) => {
                        self.tell_room(key, true);
                        return false;
                    }
                    // The program is gone, which an event tells, or its user has too many descriptors on their way.
                    Err(_) => {
                        let cookie = record.cookie;
                        listening.waiting = None;
                        self.reset(engine.stack(), cookie);
                    }
                }
                continue;
            }
            let (uid, id) = (*uid, self.sockets.get(key).map(|socket| socket.id));
            let Some(mut tcp) = id.and_then(|id| engine.stack().tcp(id)) else { return false };
            if !tcp.has_callers() {
                if let Some(socket) = self.sockets.get_mut(key) {
                    socket.is.stack_in = false;
                }
                return false;
            }
            if !may_be_sent {
                self.on_way.wait(Token::Socket(key));
                return false;
            }
            let may = self.users.may_open(uid);
            if !may {
                self.users.refuse(uid);
            }
            if !may || self.take_call(engine, key).is_err() {
                // They wait in the stack until a socket is closed.
                self.starved.insert(key);
                return false;
            }
        }
        true
    }

    /// Takes the next connection of the stack.
    fn take_call(&mut self, engine: &mut Engine, key: Key) -> Result<()> {
        let uid = self.sockets.get(key).ok_or(libc::EBADF)?.uid;
        let pair = self.pair(uid, false)?;
        let Some(listener) = self.sockets.get(key) else { return Err(libc::EBADF) };
        let (uid, v6, wishes) = (listener.uid, listener.v6, listener.wishes.clone());
        let stack = engine.stack();
        let id = stack.tcp(listener.id).ok_or(libc::EBADF)?.accept_to_offer().map_err(errno::accept)?;
        let (local, remote) = match stack.tcp(id) {
            Some(mut tcp) => (tcp.local(), tcp.remote()),
            None => (None, None),
        };
        let shown = |address: Option<SocketAddr>| Address(address.map(|address| outward(v6, address)));
        let record = Accepted { cookie: pair.cookie, local: shown(local), remote: shown(remote) };
        let new = self.insert(stack, id, (pair.end, pair.cookie), (uid, v6), Phase::Open)?;
        if let Some(socket) = self.sockets.get_mut(new) {
            (socket.wishes, socket.of, socket.remote) = (wishes, Some(key), remote);
            let is = &mut socket.is;
            (is.pair_in, is.pair_out, is.stack_in, is.stack_out) = (true, true, true, true);
            is.offered = true;
        }
        self.activate(new);
        if let Some(Socket { phase: Phase::Listening(listening), .. }) = self.sockets.get_mut(key) {
            listening.waiting = Some((record, self.users.counted(uid, pair.program)));
        }
        Ok(())
    }

    /// Finds out which connections programs have accepted: their records are not in the pair any more.
    pub fn count_accepted(&mut self, key: Key) {
        let Some(Socket { end, phase: Phase::Listening(listening), .. }) = self.sockets.get_mut(key) else {
            return;
        };
        // Of one that is gone nothing is left, whatever was accepted.
        if listening.given.is_empty() {
            return;
        }
        let left = match sock::outq(end.as_raw_fd()).unwrap_or(0) {
            0 => 0,
            _ if listening.unit == 0 => return,
            octets => octets.div_ceil(listening.unit),
        };
        let gone = bypath_sys::poll::now(end.as_raw_fd(), 0) as u32 & super::watch::HUP != 0;
        if gone {
            return;
        }
        let Some(socket) = self.sockets.get_mut(key) else { return };
        let Phase::Listening(listening) = &mut socket.phase else { return };
        let accepted = listening.given.len().saturating_sub(left);
        let accepted: Vec<u64> = listening.given.drain(..accepted).collect();
        self.users.received(socket.uid, accepted.len());
        for cookie in accepted {
            let known = self.by_cookie.get(&cookie).copied();
            let Some(key) = known else { continue };
            if let Some(socket) = self.sockets.get_mut(key) {
                socket.of = None;
                self.activate(key);
            }
        }
    }

    /// Whether programs have accepted all connections of a listener that they were given.
    pub fn has_accepted_all(&mut self, key: Key) -> bool {
        self.count_accepted(key);
        match self.sockets.get(key).map(|socket| &socket.phase) {
            Some(Phase::Listening(listening)) => listening.given.is_empty(),
            _ => true,
        }
    }

    /// Whether a listener that waits may be given a connection now.
    pub fn may_have_record(&self, key: Key) -> bool {
        match self.sockets.get(key) {
            Some(Socket { uid, phase: Phase::Listening(listening), .. }) => {
                self.users.may_be_sent(*uid, listening.share())
            }
            _ => true,
        }
    }

    /// A connection hangs up of which it is not known that it was accepted: whether it was not.
    pub fn was_refused(&mut self, key: Key) -> bool {
        let Some(of) = self.sockets.get(key).and_then(|socket| socket.of) else { return false };
        self.count_accepted(of);
        let Some(socket) = self.sockets.get(key) else { return false };
        // What was written to was accepted.
        if sock::inq(socket.end.as_raw_fd()).is_ok_and(|octets| octets > 0) {
            return false;
        }
        match self.sockets.get(of) {
            Some(listener) if socket.of.is_some() => listener.looks_gone() == (true, true),
            Some(_) => false,
            None => socket.is.refused,
        }
    }

    /// A listener is gone: who was not accepted is reset. `unread`: there are such. `end` is the service's, which is closed after this.
    pub fn refuse(&mut self, stack: &mut Stack, listening: Listening, end: &OwnedFd, unread: bool) {
        // What fills the program's end was no program's: it is no error that nobody has read it.
        drain(end.as_fd(), listening.filled);
        for cookie in listening.outstanding().filter(|_| unread) {
            let known = self.by_cookie.get(&cookie).copied();
            if let Some(socket) = known.and_then(|key| self.sockets.get_mut(key)) {
                socket.is.refused = true;
            }
        }
        if let Some((record, _)) = &listening.waiting {
            self.reset(stack, record.cookie);
        }
    }

    fn reset(&mut self, stack: &mut Stack, cookie: u64) {
        let Some(key) = self.by_cookie.get(&cookie).copied() else { return };
        if let Some(mut tcp) = self.sockets.get(key).and_then(|socket| stack.tcp(socket.id)) {
            tcp.abort();
        }
        self.release(stack, key);
    }
}
