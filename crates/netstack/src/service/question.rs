//! One question: its body is examined in full before anything is done, and it is answered at once.

use super::Settings;
use super::datagram::Datagrams;
use super::datagram::ping::Ping;
use super::interfaces;
use super::options::{Of, of_remains};
use super::remains::{Graves, Remains};
use super::slab::Key;
use super::socket::{Hub, Phase, Socket, outward};
use crate::Engine;
use bypath_shm::service::{
    Address, Body, ERROR_QUEUE, FOLLOWED, HEADER, LEFT, LEVEL, MESSAGE, Op, RingsWanted, TAKE_BACK,
    UNACKNOWLEDGED, UNSENT, URGENT, VERSION, Wanted,
};
use bypath_sockets::service::said;
use bypath_stack::linux::errno::{Errno, Result};
use bypath_stack::linux::info;
use bypath_sys::{process, sock};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

/// Octets of a value that SET and GET carry at most.
const LONGEST_VALUE: usize = 256;

/// What is answered.
pub(super) struct Answer {
    pub socket: u64,
    pub body: Vec<u8>,
    pub with: Vec<OwnedFd>,
    pub errno: Errno,
}

impl Answer {
    pub const fn of(socket: u64, body: Vec<u8>) -> Answer {
        Answer { socket, body, with: Vec::new(), errno: 0 }
    }
}

/// An option that is set on a socket as it is opened.
struct Given<'a> {
    level: i32,
    name: i32,
    value: &'a [u8],
}

impl<'a> Given<'a> {
    /// All of a body; `None`: that makes no sense.
    fn decode_all(mut body: Body<'a>) -> Option<Vec<Given<'a>>> {
        let mut all = Vec::new();
        while !body.rest().is_empty() {
            let (level, name, len) = (body.i32()?, body.i32()?, body.u32()? as usize);
            let (value, rest) = body.rest().split_at_checked(len).filter(|_| len <= LONGEST_VALUE)?;
            body = Body(rest);
            all.push(Given { level, name, value });
        }
        Some(all)
    }
}

/// Bits of a socket's type that are no type.
const FLAGS: i32 = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

const fn is_stream(kind: i32) -> bool {
    kind & !FLAGS == libc::SOCK_STREAM
}

/// A message that makes no sense: who sent it is not listened to any more.
pub(super) struct Nonsense;

pub(super) type Answered = std::result::Result<Result<Answer>, Nonsense>;

/// One question.
pub(super) struct Asks<'a> {
    pub hub: &'a mut Hub,
    pub engine: &'a mut Engine,
    pub settings: &'a Settings,
    pub uid: u32,
    /// He has shown that he holds the socket.
    pub holds: bool,
    pub socket: u64,
}

impl Asks<'_> {
    /// Examines the body, and does what it asks for.
    pub fn ask(mut self, op: Op, mut body: Body<'_>, fds: Vec<OwnedFd>) -> Answered {
        let b = &mut body;
        let plain = |done: Result<()>, socket: u64| Ok(done.map(|()| Answer::of(socket, Vec::new())));
        let socket = self.socket;
        match op {
            Op::Hello => {
                let version = b.u32().ok_or(Nonsense)?;
                Ok(Ok(self.hello(version)))
            }
            Op::Open => {
                let asked = (b.i32().ok_or(Nonsense)?, b.i32().ok_or(Nonsense)?, b.i32().ok_or(Nonsense)?);
                // Other octets at the end are not known here.
                match b.address().filter(|to| to.0.is_some() && is_stream(asked.1)) {
                    Some(to) => {
                        let options = Given::decode_all(body).ok_or(Nonsense)?;
                        Ok(self.open_and_connect(asked, to, &options))
                    }
                    None => Ok(self.open(asked)),
                }
            }
            Op::Bind => {
                let to = b.address().ok_or(Nonsense)?;
                Ok(self.live().and_then(|key| self.bind(key, to)))
            }
            Op::Listen => {
                let backlog = b.i32().ok_or(Nonsense)?;
                let program = fds.into_iter().next();
                Ok(self.settled().and_then(|key| {
                    self.hub.listen(self.engine.stack(), key, backlog, program)?;
                    Ok(Answer::of(socket, self.hub.claim(self.engine.stack(), key)))
                }))
            }
            Op::Connect => {
                let to = b.address().ok_or(Nonsense)?;
                let program = fds.into_iter().next();
                Ok(self.settled().and_then(|key| {
                    if self.hub.is_of_datagrams(key) {
                        self.hub.connect_datagrams(self.engine.stack(), key, to)?;
                        return Ok(Answer::of(socket, Vec::new()));
                    }
                    if to.0.is_none() {
                        self.hub.dissolve(self.engine.stack(), key)?;
                        return Ok(Answer::of(socket, Vec::new()));
                    }
                    if self.hub.sockets.get(key).is_some_and(|socket| socket.again.is_some()) {
                        // It was one that listened.
                        return Err(libc::EACCES);
                    }
                    let errno = self.hub.connect(self.engine, key, to, program)?;
                    Ok(Answer { errno, ..Answer::of(socket, Vec::new()) })
                }))
            }
            Op::Names => Ok(self.names()),
            Op::Set | Op::Say => {
                let (level, name) = (b.i32().ok_or(Nonsense)?, b.i32().ok_or(Nonsense)?);
                let value = body.rest();
                let is_said = said::may_be(level, name) || (level, name) == (LEVEL, LEFT);
                if value.len() > LONGEST_VALUE || op == Op::Say && !is_said {
                    return Err(Nonsense);
                }
                let done = self.live_to_set(op, (level, name), value).and_then(|key| {
                    match self.hub.is_of_datagrams(key) {
                        true => self.hub.set_of_datagrams(self.engine, key, level, name, value),
                        false if level == LEVEL => self.own(key, name, value),
                        false => self.with(key, |mut of| of.set(level, name, value)),
                    }
                });
                plain(done, socket)
            }
            Op::Get => {
                let (level, name) = (b.i32().ok_or(Nonsense)?, b.i32().ok_or(Nonsense)?);
                let size = b.u32().ok_or(Nonsense)? as usize;
                // Of those who look at octets: behind so many others.
                let skip = b.u32().unwrap_or(0) as usize;
                Ok(self.get(level, name, (size, skip)).map(|value| Answer::of(socket, value)))
            }
            Op::Error => Ok(self.error().map(|errno| Answer::of(socket, errno.to_ne_bytes().to_vec()))),
            Op::Shutdown => {
                let how = b.i32().ok_or(Nonsense)?;
                let program = fds.into_iter().next();
                let done = self.live().and_then(|key| {
                    let stack = self.engine.stack();
                    if self.hub.is_open(key) {
                        return self.hub.shut(stack, key, how, program);
                    }
                    self.hub.shut_listener(stack, key, how)
                });
                plain(done, socket)
            }
            Op::Reach => {
                let to = b.address().ok_or(Nonsense)?;
                plain(self.settled().and_then(|key| self.hub.reach(self.engine.stack(), key, to)), socket)
            }
            Op::Rings => {
                let wanted = RingsWanted::decode(b).ok_or(Nonsense)?;
                Ok(self.settled().and_then(|key| self.rings(key, wanted, fds)))
            }
            Op::Again => {
                let wanted = Wanted::decode(b).ok_or(Nonsense)?;
                Ok(self.again(&wanted, fds.first()))
            }
            Op::Interfaces => {
                let (n, from) = (b.u32().ok_or(Nonsense)?, b.u32().ok_or(Nonsense)?);
                Ok(interfaces::tell(self.engine, n, from).map(|octets| Answer::of(0, octets)))
            }
            Op::Query => Err(Nonsense),
        }
    }

    fn hello(&self, version: u32) -> Answer {
        let pid = process::pid();
        let body = [&VERSION.to_ne_bytes()[..], &pid.to_ne_bytes(), self.hub.name.as_bytes()].concat();
        let errno = if version == VERSION { 0 } else { libc::EPROTONOSUPPORT };
        Answer { errno, ..Answer::of(0, body) }
    }

    pub fn open(&mut self, (domain, kind, protocol): (i32, i32, i32)) -> Result<Answer> {
        let v6 = match domain {
            libc::AF_INET => false,
            libc::AF_INET6 => true,
            _ => return Err(libc::EAFNOSUPPORT),
        };
        if kind & !FLAGS == libc::SOCK_DGRAM {
            return self.open_datagrams(v6, protocol);
        }
        if !is_stream(kind) || !matches!(protocol, 0 | libc::IPPROTO_TCP) {
            return Err(libc::EPROTONOSUPPORT);
        }
        if !self.hub.users.may_open(self.uid) {
            // Of what was closed before it may not be known yet.
            self.hub.ends_first(self.engine);
            if !self.hub.users.may_open(self.uid) {
                self.hub.users.refuse(self.uid);
                return Err(libc::EMFILE);
            }
        }
        let pair = self.hub.pair(self.uid, true)?;
        let stack = self.engine.stack();
        let id = stack.open_tcp().map_err(|_| libc::ENFILE)?;
        self.hub.insert(stack, id, (pair.end, pair.cookie), (self.uid, v6), Phase::Fresh)?;
        Ok(Answer { with: vec![pair.program], ..Answer::of(pair.cookie, Vec::new()) })
    }

    /// A new socket that is asked for a connection at once; what it has no option for is left out. The answer has a descriptor where the connection
    /// is under way.
    fn open_and_connect(
        &mut self,
        what: (i32, i32, i32),
        to: Address,
        options: &[Given<'_>],
    ) -> Result<Answer> {
        let opened = self.open(what)?;
        let key = *self.hub.by_cookie.get(&opened.socket).ok_or(libc::EBADF)?;
        for option in options.iter().filter(|option| option.level != LEVEL) {
            let _ = self.with(key, |mut of| of.set(option.level, option.name, option.value));
        }
        let program = opened.with.first().map(OwnedFd::try_clone).and_then(std::io::Result::ok);
        let begun = program
            .ok_or(libc::EMFILE)
            .and_then(|program| self.hub.begin_connection(self.engine, key, to, program));
        let errno = begun.err().unwrap_or(libc::EINPROGRESS);
        if errno != libc::EINPROGRESS {
            self.hub.release(self.engine.stack(), key);
        }
        let with = if errno == libc::EINPROGRESS { opened.with } else { Vec::new() };
        Ok(Answer { with, ..Answer::of(opened.socket, errno.to_ne_bytes().to_vec()) })
    }

    fn open_datagrams(&mut self, v6: bool, protocol: i32) -> Result<Answer> {
        let own_echo = if v6 { libc::IPPROTO_ICMPV6 } else { libc::IPPROTO_ICMP };
        let ping = match protocol {
            0 | libc::IPPROTO_UDP => None,
            protocol if protocol == own_echo => Some(Ping::default()),
            _ => return Err(libc::EPROTONOSUPPORT),
        };
        if !self.hub.users.may_open(self.uid) {
            self.hub.users.refuse(self.uid);
            return Err(libc::EMFILE);
        }
        let pair = self.hub.pair_of_records(self.uid)?;
        let stack = self.engine.stack();
        let id = stack.open_udp().map_err(|_| libc::ENFILE)?;
        let phase = Phase::Datagrams(Datagrams::new(ping));
        let key = self.hub.insert(stack, id, (pair.end, pair.cookie), (self.uid, v6), phase)?;
        if let Some(socket) = self.hub.sockets.get_mut(key) {
            (socket.is.pair_in, socket.is.pair_out) = (true, true);
        }
        Ok(Answer { with: vec![pair.program], ..Answer::of(pair.cookie, Vec::new()) })
    }

    /// Whether this user may ask about a socket of that one: as with the kernel's, who holds it may.
    fn may(&self, uid: u32) -> Result<()> {
        if self.uid == uid || self.uid == 0 || self.holds { Ok(()) } else { Err(libc::EPERM) }
    }

    /// The socket that is asked about, if the service has its end yet.
    fn live(&mut self) -> Result<Key> {
        let Some(key) = self.hub.by_cookie.get(&self.socket).copied() else {
            let uid = self.grave()?.uid;
            self.may(uid)?;
            return Err(libc::EINVAL);
        };
        let uid = self.hub.sockets.get(key).ok_or(libc::EBADF)?.uid;
        self.may(uid)?;
        if let Some(socket) = self.hub.sockets.get_mut(key) {
            // Who asks about it has it.
            socket.of = None;
        }
        Ok(key)
    }

    /// The same, of an option: what was said of it otherwise is done before.
    fn live_for(&mut self, level: i32, name: i32) -> Result<Key> {
        let key = self.live()?;
        if !matches!((level, name), (libc::IPPROTO_TCP, libc::TCP_CORK | libc::TCP_NODELAY)) {
            return Ok(key);
        }
        self.hub.settle_hold(self.engine, key);
        self.live()
    }

    /// The same, of an option that is to be set.
    fn live_to_set(&mut self, op: Op, (level, name): (i32, i32), value: &[u8]) -> Result<Key> {
        let key = self.live()?;
        let on = value.first_chunk().is_some_and(|value| i32::from_ne_bytes(*value) != 0);
        let holds = match (level, name) {
            (libc::IPPROTO_TCP, libc::TCP_CORK) => on,
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => !on,
            _ => return Ok(key),
        };
        // What holds is said by who has nothing in the pair: what is there now was written behind it.
        self.hub.before_hold(self.engine, key, holds, holds && op == Op::Say);
        self.live()
    }

    /// The same, if it is where it is to be: what stands in place of another one does nothing else before.
    fn settled(&mut self) -> Result<Key> {
        let key = self.live()?;
        let again = self.hub.sockets.get(key).ok_or(libc::EBADF)?.again;
        if again.is_none_or(|again| again.is_there()) { Ok(key) } else { Err(libc::EACCES) }
    }

    fn grave(&mut self) -> Result<&mut Remains> {
        let graves: &mut Graves = &mut self.hub.graves;
        graves.get_mut(self.socket).ok_or(libc::EBADF)
    }

    /// What is left of a socket, if this user may ask.
    fn remains(&mut self) -> Result<&mut Remains> {
        let uid = self.grave()?.uid;
        self.may(uid)?;
        self.grave()
    }

    fn is_live(&self) -> bool {
        self.hub.by_cookie.contains_key(&self.socket)
    }

    fn with<R>(&mut self, key: Key, f: impl FnOnce(Of<'_>) -> Result<R>) -> Result<R> {
        let socket = self.hub.sockets.get_mut(key).ok_or(libc::EBADF)?;
        f(Of { engine: self.engine, id: socket.id, v6: socket.v6, wishes: &mut socket.wishes })
    }

    fn names(&mut self) -> Result<Answer> {
        let mut claim = Vec::new();
        let (local, remote, state) = if self.is_live() {
            let key = self.live()?;
            claim = self.hub.claim(self.engine.stack(), key);
            let socket = self.hub.sockets.get(key).ok_or(libc::EBADF)?;
            let (local, remote) = socket.ends(self.engine.stack());
            let shown = |address: Option<SocketAddr>| Address(address.map(|a| outward(socket.v6, a)));
            let state =
                match (&socket.phase, self.engine.stack().tcp(socket.id).and_then(|mut tcp| tcp.state())) {
                    (Phase::Listening(_), _) => info::LISTEN,
                    // As Linux has it.
                    (Phase::Datagrams(_), _) if remote.is_some() => {
                        info::number(bypath_stack::tcp::State::Established)
                    }
                    (_, Some(state)) => info::number(state),
                    (_, None) => info::number(bypath_stack::tcp::State::Closed),
                };
            (shown(local), shown(remote.or(socket.remote)), state)
        } else {
            let remains = self.remains()?;
            (remains.local, remains.remote, info::number(bypath_stack::tcp::State::Closed))
        };
        let state = u32::from(state).to_ne_bytes();
        Ok(Answer::of(self.socket, [&local.encode()[..], &remote.encode(), &state, &claim].concat()))
    }

    fn get(&mut self, level: i32, name: i32, (room, skip): (usize, usize)) -> Result<Vec<u8>> {
        if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) {
            let mut errno = self.error()?.to_ne_bytes().to_vec();
            errno.truncate(room);
            return Ok(errno);
        }
        if self.is_live() {
            let key = self.live_for(level, name)?;
            if self.hub.is_of_datagrams(key) {
                match (level, name) {
                    (LEVEL, TAKE_BACK) => return self.hub.take_mail_back(key),
                    (LEVEL, ERROR_QUEUE) => return self.hub.next_error(self.engine.stack(), key),
                    _ => {}
                }
                return self.hub.of_datagrams(self.engine, key, (level, name), room);
            }
            if level == LEVEL {
                return match name {
                    UNACKNOWLEDGED | UNSENT => self.queue(key, name),
                    _ => self.hub.rest(self.engine, key, name, (room, skip)),
                };
            }
            return self.with(key, |mut of| of.get(level, name, room));
        }
        let remains = self.remains()?;
        remains.keep_options();
        of_remains(remains, (level, name), room)
    }

    /// Sets what is ours: what the program says of octets that it is about to write.
    fn own(&mut self, key: Key, name: i32, value: &[u8]) -> Result<()> {
        let octets = value.try_into().map(u32::from_ne_bytes).map_err(|_| libc::EINVAL)?;
        match name {
            FOLLOWED => self.hub.followed(self.engine, key, octets as usize),
            LEFT => {
                self.hub.leave_connecting(self.socket);
                Ok(())
            }
            URGENT => self.hub.urges(key),
            _ => Err(libc::ENOPROTOOPT),
        }
    }

    /// What is on its way: what the service has not read counts, too.
    fn queue(&mut self, key: Key, name: i32) -> Result<Vec<u8>> {
        let socket = self.hub.sockets.get(key).ok_or(libc::EBADF)?;
        let waiting = sock::inq(socket.end.as_raw_fd()).unwrap_or(0);
        let mut tcp = self.engine.stack().tcp(socket.id).ok_or(libc::EBADF)?;
        let (unacknowledged, unsent) = match tcp.statistics() {
            _ if tcp.is_listening() => return Err(libc::EINVAL),
            Some(s) => (s.unacknowledged, s.unsent),
            None => (0, 0),
        };
        let octets = match name {
            UNACKNOWLEDGED => unacknowledged + waiting,
            UNSENT => unsent + waiting,
            _ => return Err(libc::ENOPROTOOPT),
        };
        Ok((octets as u32).to_ne_bytes().to_vec())
    }

    /// SO_ERROR: it is told once.
    fn error(&mut self) -> Result<Errno> {
        if !self.is_live() {
            return Ok(std::mem::take(&mut self.remains()?.errno));
        }
        let key = self.live()?;
        let Some(Socket { errno, .. }) = self.hub.sockets.get_mut(key) else { return Err(libc::EBADF) };
        Ok(std::mem::take(errno))
    }
}

const _: () = assert!(HEADER + LONGEST_VALUE < MESSAGE);
