//! What the hooks ask about sockets of a service. `None` where the socket is none, and no such call makes it one: it is the
//! kernel's then, or a ring's.

use super::adopt::{self, Call};
use super::anew::is_gone;
use super::connecting::{is_nonblocking, wait_within};
use super::control::Message;
use super::recipe::Recipe;
use super::{
    Record, SocketName, address, datagram, hold, meanwhile, options, recognise, record, rest, rings, said,
    shown, stage, told,
};
use crate::carrier::Kind;
use crate::hook::{self, Reason};
use crate::table::{self, Entry, Sock};
use crate::wait::Deadline;
use crate::{log, state, stream};
use bypath_shm::service::{
    ACCEPTED, Accepted, Address, Claim, FOLLOWED, LEVEL, Op, UNACKNOWLEDGED, UNSENT, URGENT,
};
use bypath_sys::{Errno, Result, fd as sys, poll, sock, strangers};
use std::net::SocketAddr;
use std::sync::atomic::Ordering::*;

pub use super::connecting::{connect, dissolves, is_connected};
pub use super::is_active;
pub use super::rest::unread;

/// States as TCP_INFO tells them (include/net/tcp_states.h).
const SYN_SENT: u32 = 2;
const SYN_RECV: u32 = 3;
pub(super) const CLOSE: u32 = 7;
const LISTEN: u32 = 10;

/// Octets of an option's value at most.
pub const LONGEST_OPTION: usize = 512;

/// Whether `fd` is known as a socket of a service.
#[inline]
pub fn is_served(fd: i32) -> bool {
    table::served(fd).is_some() || datagram::calls::is_served(fd)
}

/// The record of a socket of a service; one that nothing is known of is looked at.
pub(super) fn served(fd: i32) -> Option<&'static Record> {
    if let Some(known) = super::of(fd) {
        return Some(known);
    }
    (table::entry(fd).is_none() && recognise::recognise(fd)).then(|| super::of(fd)).flatten()
}

/// What `NAMES` answers.
#[derive(Debug)]
pub(super) struct Told {
    /// Its own address, and the other end's.
    pub names: [Address; 2],
    pub state: u32,
    pub claim: Option<Claim>,
}

impl Record {
    pub(super) fn question(&self, op: Op) -> Message {
        Message::new(op, self.cookie.load(Relaxed))
    }

    pub(super) fn service(&self) -> u32 {
        self.service.load(Relaxed)
    }

    pub(super) fn stage(&self) -> u32 {
        self.stage.load(Acquire)
    }

    pub(super) fn enter(&self, stage: u32) {
        self.stage.store(stage, Release);
    }

    /// The error that it has for its next call, which it has no more then.
    pub(super) fn take_error(&self) -> Result<Option<Errno>> {
        let kept = self.error.swap(0, AcqRel);
        if kept != 0 {
            return Ok(Some(Errno::from_raw_os_error(kept)));
        }
        let mut question = self.question(Op::Error);
        let answer = question.ask(self.service()).map(|mut answer| answer.body.i32());
        let errno = match answer {
            // It was shown that this process holds the socket, and knows of none: it is another service than the socket's.
            Err(Errno::PERM | Errno::ACCESS) if question.was_refused() => return Err(Errno::BADF),
            answer => answer?.ok_or(Errno::PROTO)?,
        };
        Ok((1..4096).contains(&errno).then(|| Errno::from_raw_os_error(errno)))
    }

    /// Whether it is known without asking that it has no error for its next call: its descriptor shows nothing but room. A connection that
    /// was refused, reset or lost shows its end, once there is nothing to be read before it.
    pub(super) fn is_well(&self, fd: i32) -> bool {
        let is_connected = matches!(self.stage(), stage::CONNECTING | stage::CONNECTED);
        let has_rings = || table::sock(fd).is_none_or(Sock::is_warm);
        let shown = || poll::now(fd, libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP);
        is_connected && self.error.load(Acquire) == 0 && !has_rings() && shown() == libc::POLLOUT
    }

    /// What the service says of it.
    pub(super) fn told(&self) -> Result<Told> {
        let mut question = self.question(Op::Names);
        let mut body = question.ask(self.service())?.body;
        let mut told = || {
            let (names, state) = ([body.address()?, body.address()?], body.u32()?);
            Some(Told { names, state, claim: Claim::decode(&mut body) })
        };
        told().ok_or(Errno::PROTO)
    }

    /// Both addresses, and the state of TCP.
    pub(super) fn names(&self) -> Result<([Address; 2], u32)> {
        self.told().map(|told| (told.names, told.state))
    }

    /// Both addresses, unless that takes longer than views are worth.
    pub(super) fn names_within(&self) -> Option<[Address; 2]> {
        let mut question = self.question(Op::Names).within(rings::LONGEST_NS);
        let mut body = question.ask(self.service()).ok()?.body;
        Some([body.address()?, body.address()?])
    }

    /// Its family, which is asked where it came from elsewhere.
    pub(super) fn family(&self) -> i32 {
        match self.family.load(Relaxed) {
            0 => {
                let local = self.names().ok().and_then(|(names, _)| names[0].0);
                let family = if local.is_some_and(|a| a.is_ipv6()) { libc::AF_INET6 } else { libc::AF_INET };
                if local.is_some() {
                    self.family.store(family as u32, Relaxed);
                }
                family
            }
            known => known as i32,
        }
    }

    pub(super) fn is_listening(&self) -> bool {
        self.look();
        self.stage() == stage::LISTENING
    }

    /// What another holder may have made of it is asked.
    pub(super) fn look(&self) -> Option<u32> {
        if self.stage() != stage::UNKNOWN {
            return None;
        }
        let (names, state) = self.names().ok()?;
        match state {
            // One that has another end was connected, whatever is still to be read of it.
            CLOSE if names[1].0.is_some() => self.enter(stage::CONNECTED),
            CLOSE => {}
            LISTEN => self.enter(stage::LISTENING),
            SYN_SENT | SYN_RECV => self.enter(stage::CONNECTING),
            _ => self.enter(stage::CONNECTED),
        }
        Some(state)
    }
}

impl Record {
    /// A socket that takes its place gets its address, too, and the port if it is one that was asked for.
    fn is_bound(&self, local: SocketAddr) {
        self.told.fetch_or(told::BOUND | if local.port() != 0 { told::PORT } else { 0 }, Relaxed);
    }

    /// Its own address, as the program gave it.
    pub fn bound(&self) -> Option<SocketAddr> {
        let told = self.told.load(Relaxed);
        let mut local = if told & told::BOUND != 0 { self.names().ok()?.0[0].0? } else { return None };
        if told & told::PORT == 0 {
            local.set_port(0);
        }
        Some(local)
    }

    /// Whether the connection is over.
    fn is_closed(&self, fd: i32) -> bool {
        poll::now(fd, 0) & libc::POLLHUP != 0 && self.names().is_ok_and(|(_, state)| state == CLOSE)
    }
}

impl Record {
    /// Its connection was refused, and something else is to be done with it: a socket that is new takes its place. What cannot be had now
    /// says what is asked for then.
    fn is_new_again(&'static self, fd: i32) {
        if self.stage() == stage::REFUSED {
            let _ = adopt::dissolve(fd, self);
        }
    }
}

/// A descriptor that came along with a message may be a socket of a service.
pub fn came(fd: i32) {
    let _ = served(fd);
}

/// Before bind.
pub fn bind(fd: i32, raw: &[u8]) -> Option<Result<()>> {
    let local = address::parse(raw);
    if let Some(r) = served(fd) {
        r.is_new_again(fd);
        let bound = |local| {
            let mut question = r.question(Op::Bind).address(local);
            let now = question.ask(r.service())?.body.address();
            r.is_bound(local);
            let recipe = r.recipe.begin();
            recipe.into_iter().for_each(|recipe| recipe.is_bound(now.unwrap_or(Address(Some(local)))));
            Ok(())
        };
        return Some(local.and_then(|local| bound(for_family(local, r)?)));
    }
    if datagram::of(fd).is_some() {
        return datagram::calls::bind(fd, raw);
    }
    let Some(Entry::Sock(s)) = table::entry(fd) else { return None };
    let local = local.ok()?;
    let call = Call::Bind(local);
    Some(adopt::adopt(s, adopt::meant(s, call)?, call).map(|r| r.is_bound(local)))
}

/// An address as a socket of a service takes it.
pub(super) fn for_family(address: SocketAddr, r: &Record) -> Result<SocketAddr> {
    let fits = address.is_ipv6() == (r.family() == libc::AF_INET6);
    if fits { Ok(address) } else { Err(Errno::AFNOSUPPORT) }
}

/// Before listen.
pub fn listen(fd: i32, backlog: i32) -> Option<Result<()>> {
    if let Some(r) = served(fd) {
        let ask = || {
            let mut question = r.question(Op::Listen).number(backlog).with(fd);
            question.ask(r.service()).map(|mut answer| Claim::decode(&mut answer.body))
        };
        let Some(listens) = r.answered(fd, ask) else {
            r.recipe.get().into_iter().for_each(|recipe| recipe.listens(backlog));
            return Some(Ok(()));
        };
        return Some(listens.map(|claim| {
            r.enter(stage::LISTENING);
            r.is_heard();
            r.is_to_last(Some(backlog));
            r.recipe.get().into_iter().for_each(|recipe| recipe.is_claimed(claim));
        }));
    }
    if let Some(refused) = datagram::calls::is_refused(fd) {
        return Some(refused);
    }
    let Some(Entry::Sock(s)) = table::entry(fd) else { return None };
    let call = Call::Listen(backlog);
    Some(adopt::adopt(s, adopt::meant(s, call)?, call).map(|_| ()))
}

/// getsockname, or getpeername.
pub fn name(fd: i32, peer: bool) -> Option<Result<SocketName>> {
    let Some(r) = served(fd) else { return datagram::calls::name(fd, peer) };
    let meanwhile = || Ok(([Address(r.recipe.get().and_then(Recipe::local)), Address(None)], LISTEN));
    Some(r.answered(fd, || r.names()).unwrap_or_else(meanwhile).and_then(|(names, state)| {
        if peer && matches!(state, SYN_SENT | CLOSE | LISTEN) {
            return Err(Errno::NOTCONN);
        }
        let family = r.family();
        match names[usize::from(peer)].0 {
            Some(address) => Ok(SocketName::new(address, family)),
            None if peer => Err(Errno::NOTCONN),
            None => Ok(SocketName::none(family)),
        }
    }))
}

/// Before accept: whether `fd` is a socket of a service that listens, and there is a descriptor for what comes. The kernel asks that first,
/// too: a connection for which there is none goes on waiting.
pub fn accept_begin(fd: i32) -> Option<Result<()>> {
    let Some(r) = served(fd) else { return datagram::calls::is_refused(fd) };
    if r.is_listening() && r.recipe.get().is_none() {
        r.is_to_last(None);
    }
    if r.stage() == stage::AWAY
        && let Err(e) = wait_for_service(fd, r)
    {
        return Some(Err(e));
    }
    // Where the table is full the kernel says so before it waits, and keeps the connection.
    Some(if r.is_listening() { adopt::is_room(fd) } else { Err(Errno::INVAL) })
}

/// Waits until a socket listens again whose service is gone.
///
/// # Errors
/// EAGAIN: it does not wait, or its time is over. ENETDOWN: it would, but has been told that there was something. EBADF: it was closed
/// meanwhile.
fn wait_for_service(fd: i32, r: &Record) -> Result<()> {
    let waits = !is_nonblocking(fd);
    let was_told = poll::now(fd, libc::POLLIN) != 0;
    let deadline = Deadline::after(r.recipe.get().map_or(0, |recipe| recipe.limit(libc::SO_RCVTIMEO)));
    loop {
        if !super::of(fd).is_some_and(|now| std::ptr::eq(now, r)) {
            return Err(Errno::BADF);
        }
        if r.listens_again(fd) {
            let is_any = !was_told || !waits || poll::now(fd, libc::POLLIN) != 0;
            return if is_any { Ok(()) } else { Err(Errno::NETDOWN) };
        }
        match (r.stage(), waits) {
            (stage::AWAY, false) => return Err(Errno::AGAIN),
            (stage::AWAY, true) if was_told => return Err(Errno::NETDOWN),
            (stage::AWAY, true) => wait_within(fd, deadline)?,
            _ => return Ok(()),
        }
    }
}

/// An accept of `fd` has met the end of the pair: what the program is told.
pub fn listener_ended(fd: i32) -> Errno {
    match super::of(fd) {
        Some(r) if r.waits_for_service(fd) => {
            if is_nonblocking(fd) {
                Errno::AGAIN
            } else {
                Errno::NETDOWN
            }
        }
        // It does not listen any more.
        _ => Errno::INVAL,
    }
}

/// Whether `fd` is known as a socket of a service that listens: nothing is asked.
pub fn is_listening(fd: i32) -> bool {
    super::of(fd).is_some_and(|r| matches!(r.stage(), stage::LISTENING | stage::AWAY))
}

/// `raw` came by a receive on the listening socket `listener`, and `fd` with it, if there was room for it. Returns the other end's
/// address. `flags` are accept4's.
///
/// # Errors
/// ECONNABORTED: that is no connection; EMFILE: its descriptor had no place. Nothing is left open then.
pub fn accepted(listener: i32, raw: &[u8], fd: Option<i32>, flags: i32) -> Result<SocketName> {
    let raw = <&[u8; ACCEPTED]>::try_from(raw).ok();
    let Some(fd) = fd else { return Err(raw.map_or(Errno::CONNABORTED, |_| Errno::MFILE)) };
    let known = raw.and_then(Accepted::decode).and_then(|told| follow(listener, told, fd, flags));
    known.ok_or_else(|| {
        strangers::close_files(&[fd]);
        Errno::CONNABORTED
    })
}

fn follow(listener: i32, told: Accepted, fd: i32, flags: i32) -> Option<SocketName> {
    // First: what cannot be told is not entered anywhere.
    let remote = told.remote.0?;
    if sock::option_u64(fd, libc::SOL_SOCKET, libc::SO_COOKIE) != Ok(told.cookie) {
        return None;
    }
    let from = super::of(listener)?;
    if flags & libc::SOCK_NONBLOCK != 0 {
        sys::set_status_flags(fd, libc::O_NONBLOCK).ok()?;
    }
    from.is_heard_for_others();
    let limited = from.told.load(Relaxed) & told::LIMITS != 0 && options::copy_limits(listener, fd);
    let family = from.family();
    let life = state::LIFE.lock(table::tid())?;
    if table::entry(fd).is_some() {
        crate::life::lose(fd);
    }
    let number = super::new_record(from.service(), told.cookie, family, stage::CONNECTED)?;
    record(number)?.heard.store(from.heard.load(Relaxed), Relaxed);
    match table::follow(fd, Kind::Local, flags & libc::SOCK_NONBLOCK != 0) {
        Some(s) => {
            super::attach(s, number);
            shown::address(&s.end().remote, told.remote.0, family);
        }
        None => super::alias(fd, number),
    }
    drop(life);
    if limited {
        record(number)?.told.store(told::LIMITS, Relaxed);
    }
    Some(SocketName::new(remote, family))
}

impl Record {
    fn what(&self) -> meanwhile::Socket {
        meanwhile::Socket {
            family: self.family(),
            kind: libc::SOCK_STREAM,
            protocol: libc::IPPROTO_TCP,
            listens: true,
            cookie: self.cookie.load(Relaxed),
        }
    }

    /// getsockopt of one that listens while its service is away; `None`: it is none that waits for it.
    #[cold]
    fn option_meanwhile(&self, level: i32, name: i32, room: &mut [u8]) -> Option<Result<usize>> {
        let recipe = self.recipe.get().filter(|_| matches!(self.stage(), stage::AWAY | stage::LISTENING))?;
        Some(meanwhile::told(&self.what(), recipe, level, name, room))
    }
}

/// getsockopt: octets in `room`.
pub fn option(fd: i32, level: i32, name: i32, room: &mut [u8]) -> Option<Result<usize>> {
    let asks_what_it_is = level != libc::SOL_SOCKET
        || matches!(name, libc::SO_DOMAIN | libc::SO_PROTOCOL | libc::SO_ACCEPTCONN | libc::SO_ERROR);
    let r = if asks_what_it_is { served(fd) } else { super::of(fd) };
    let Some(r) = r else { return datagram::calls::option(fd, level, name, room) };
    if !r.is_there(fd) {
        return r.option_meanwhile(level, name, room);
    }
    if options::is_of_descriptor(level, name) {
        return None;
    }
    let known = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => Some(Ok(r.family())),
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => Some(Ok(libc::IPPROTO_TCP)),
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => Some(Ok(r.is_listening().into())),
        (libc::SOL_SOCKET, libc::SO_ERROR) if r.is_well(fd) => {
            let error = table::sock(fd).and_then(stream::take_error);
            Some(Ok(error.map_or(0, Errno::raw_os_error)))
        }
        (libc::SOL_SOCKET, libc::SO_ERROR) => match r.take_error() {
            // What the pair says beside it came of the same.
            Ok(error) => {
                let _ = sock::option(fd, level, name);
                let error = error.or_else(|| table::sock(fd).and_then(stream::take_error));
                Some(Ok(error.map_or(0, Errno::raw_os_error)))
            }
            Err(_) => match r.option_meanwhile(level, name, room) {
                // A connection whose service is gone has its end for an error.
                None => Some(Ok(ended(fd, false).map_or(0, Errno::raw_os_error))),
                told => return told,
            },
        },
        _ => hold::of(fd, level, name).map(Ok),
    };
    let size = room.len().min(LONGEST_OPTION) as i32;
    let put = |value: &[u8], room: &mut [u8]| {
        let len = value.len().min(room.len());
        room[..len].copy_from_slice(&value[..len]);
        len
    };
    Some(match known {
        Some(value) => value.map(|value| put(&value.to_ne_bytes(), room)),
        None => {
            let mut ask = || {
                let mut question = r.question(Op::Get).number(level).number(name).number(size);
                question.ask(r.service()).map(|answer| put(answer.body.rest(), room))
            };
            match r.answered(fd, &mut ask) {
                Some(answer) => answer,
                None => return r.option_meanwhile(level, name, room),
            }
        }
    })
}

/// What SIOCOUTQ tells of a socket, or SIOCOUTQNSD: octets that were not acknowledged, or not `sent`.
pub fn queued(fd: i32, sent: bool) -> Option<Result<usize>> {
    let Some(r) = served(fd) else { return datagram::calls::queued(fd, sent) };
    let name = if sent { UNACKNOWLEDGED } else { UNSENT };
    let mut question = r.question(Op::Get).number(LEVEL).number(name).number(4);
    let mut ask = || question.ask(r.service()).map(|mut answer| answer.body.u32().unwrap_or(0) as usize);
    // Of one that is away nobody is asked.
    let told = if r.stage() == stage::AWAY { Err(Errno::INVAL) } else { ask() };
    let is_over = told == Err(Errno::INVAL) || is_gone(&told);
    // A connection that is over has nothing on its way, and one whose service is gone is over.
    Some(match is_over {
        true if is_listening(fd) || r.is_listening() => Err(Errno::INVAL),
        true => Ok(0),
        false => told,
    })
}

/// Before a send with MSG_MORE: what is short waits for octets that follow.
#[cold]
pub fn follows(fd: i32, octets: usize) {
    if let Some(r) = super::of(fd).filter(|r| matches!(r.stage(), stage::CONNECTED | stage::UNKNOWN)) {
        let octets = octets.min(i32::MAX as usize) as i32;
        // Where it cannot be said they go at once.
        let _ = r.question(Op::Set).number(LEVEL).number(FOLLOWED).number(octets).ask(r.service());
    }
}

/// Before a send with MSG_OOB: the octet goes by the pair, as an urgent one, and the service looks for it there.
///
/// # Errors
/// ENOTCONN, EPIPE: there is no connection; EOPNOTSUPP: the service knows of no urgent octets.
#[cold]
pub fn urges(fd: i32) -> Result<()> {
    let Some(r) = super::of(fd) else { return Ok(()) };
    if r.told.load(Relaxed) & told::URGENT != 0 {
        return Ok(());
    }
    hook::recall(fd, Reason::RecalledOob, true);
    let mut question = r.question(Op::Set).number(LEVEL).number(URGENT).number(1);
    match question.ask(r.service()) {
        Ok(_) => {
            r.told.fetch_or(told::URGENT, Relaxed);
            Ok(())
        }
        Err(Errno::NOPROTOOPT) => Err(Errno::OPNOTSUPP),
        // What became of the connection the send finds out.
        Err(_) => Ok(()),
    }
}

/// Octets in the pair that FIONREAD does not count: an urgent one that is kept apart, and those behind it, which AF_UNIX counts.
pub fn behind_mark(fd: i32) -> usize {
    let has = |name, value| sock::option(fd, libc::SOL_SOCKET, name) == Ok(value);
    match sock::inq(fd) {
        Ok(queued @ 1..)
            if super::of(fd).is_some() && has(libc::SO_OOBINLINE, 0) && has(libc::SO_PEEK_OFF, -1) =>
        {
            let peek = libc::MSG_PEEK | libc::MSG_DONTWAIT;
            let before = if sock::is_at_mark(fd) { Ok(0) } else { sock::count(fd, queued, peek) };
            queued.saturating_sub(before.unwrap_or(0))
        }
        _ => 0,
    }
}

/// Before the last close of a connection of which the program has not read everything that it was given.
pub fn leaves_unread(number: u32) {
    if let Some(r) = record(number) {
        let mut reset = [0; 8];
        reset[..4].copy_from_slice(&1i32.to_ne_bytes());
        let _ = r
            .question(Op::Set)
            .number(libc::SOL_SOCKET)
            .number(libc::SO_LINGER)
            .octets(&reset)
            .ask(r.service());
    }
}

/// Before setsockopt on a socket that is the kernel's so far.
pub fn noted(level: i32, name: i32) {
    options::note(level, name);
}

/// This process says of a socket who hears of urgent octets.
pub fn owner_noted() {
    options::note_owner();
}

/// setsockopt; `None` as well where the descriptor has the option.
pub fn set_option(fd: i32, level: i32, name: i32, value: &[u8]) -> Option<Result<()>> {
    let Some(r) = super::of(fd) else { return datagram::calls::set_option(fd, level, name, value) };
    if options::is_of_descriptor(level, name) {
        if options::is_given_on(level, name) {
            r.told.fetch_or(told::LIMITS, Relaxed);
        }
        if r.is_there(fd) {
            return None;
        }
    }
    r.is_new_again(fd);
    let note = || r.recipe.get().into_iter().for_each(|recipe| recipe.note(level, name, value));
    if hold::set(fd, level, name, value) || said::set(fd, r, level, name, value) {
        return Some(Ok(()));
    }
    let ask = || {
        let mut question = r.question(Op::Set).number(level).number(name).octets(value);
        question.ask(r.service()).map(|_| r.is_heard())
    };
    let set = r.answered(fd, ask).unwrap_or_else(|| meanwhile::judge(&r.what(), level, name, value));
    Some(set.inspect(|()| note()))
}

/// shutdown of a socket that listens, or has no connection; others are shut down by the kernel.
pub fn shutdown(fd: i32, how: i32) -> Option<Result<()>> {
    let Some(r) = served(fd) else { return datagram::calls::shutdown(fd, how) };
    if !(0..=2).contains(&how) {
        return Some(Err(Errno::INVAL));
    }
    match (r.look(), r.stage()) {
        (_, stage::AWAY) => {
            // Nobody is to know of it.
            r.recipe.give_up();
            r.enter(stage::UNKNOWN);
            Some(Ok(()))
        }
        (_, stage::LISTENING) => {
            r.recipe.give_up();
            Some(r.question(Op::Shutdown).number(how).ask(r.service()).map(|_| r.enter(stage::UNKNOWN)))
        }
        (Some(CLOSE), stage::UNKNOWN) if !is_over(fd) => Some(Err(Errno::NOTCONN)),
        (_, stage::REFUSED) => Some(Err(Errno::NOTCONN)),
        _ if r.is_closed(fd) => Some(Err(Errno::NOTCONN)),
        _ => {
            let sides = [told::DEAF, told::MUTE, told::DEAF | told::MUTE][how as usize];
            if sides & told::DEAF != 0 {
                // Where it cannot be said, the pair takes no more, and a shutdown of both sides is a close.
                let _ = r.question(Op::Shutdown).number(how).with(fd).ask(r.service());
                rest::begin();
            }
            r.told.fetch_or(sides, Relaxed);
            None
        }
    }
}

/// Whether there was a connection.
fn is_over(fd: i32) -> bool {
    poll::now(fd, libc::POLLRDHUP) != 0
}

/// Before octets move on `fd`.
///
/// # Errors
/// ENOTCONN, or EPIPE where they are sent: there is no connection.
#[inline]
pub fn may_move(fd: i32, sending: bool) -> Result<()> {
    match super::of(fd) {
        Some(r) if !matches!(r.stage(), stage::CONNECTING | stage::CONNECTED) => unconnected(fd, r, sending),
        _ => Ok(()),
    }
}

#[cold]
fn unconnected(fd: i32, r: &Record, sending: bool) -> Result<()> {
    let state = r.look();
    let is_closed = state == Some(CLOSE) && r.stage() == stage::UNKNOWN;
    let is_none =
        matches!(r.stage(), stage::LISTENING | stage::AWAY | stage::REFUSED) || is_closed && !is_over(fd);
    if is_none && matches!(r.stage(), stage::UNKNOWN | stage::REFUSED) {
        // Of a connection that was dissolved.
        match r.error.swap(0, AcqRel) {
            0 => {}
            errno => return Err(Errno::from_raw_os_error(errno)),
        }
    }
    match sending {
        _ if !is_none => Ok(()),
        true => Err(Errno::PIPE),
        false => Err(Errno::NOTCONN),
    }
}

/// The end of what comes was met on `fd`, or a broken pipe: the error behind it, if there is one and nobody was told.
#[cold]
pub fn ended(fd: i32, sending: bool) -> Option<Errno> {
    let r = super::of(fd)?;
    let shown = poll::now(fd, libc::POLLRDHUP);
    if !sending && shown & (libc::POLLRDHUP | libc::POLLHUP) == 0 {
        // A receive of nothing; or of a connection that another thread dissolves.
        let dissolved = r.error.compare_exchange(libc::ECONNRESET, 0, AcqRel, Relaxed).is_ok();
        return dissolved.then_some(Errno::CONNRESET);
    }
    let bit = if sending { told::PIPE } else { told::END };
    if r.told.fetch_or(bit, AcqRel) & bit != 0 {
        return None;
    }
    if !sending && shown == libc::POLLRDHUP && r.error.load(Acquire) == 0 {
        // The other side has finished, and that is all: of a connection that failed the service takes nothing any more before it tells the
        // end, so that the pair has hung up by then.
        return None;
    }
    let error = match r.take_error() {
        // The end came before it, and that is what is read; the next call that looks is told.
        Ok(Some(Errno::PIPE)) if !sending => {
            r.error.store(libc::EPIPE, Release);
            return None;
        }
        Ok(error) => error,
        // This user cannot reach a service to ask. A pair that was shut both ways in good order looks like one that is gone.
        Err(Errno::PERM | Errno::ACCESS) if sending || r.told.load(Relaxed) & told::MUTE != 0 => None,
        // A service that is gone has closed nothing in good order.
        Err(_) if state::is_sealed() || state::is_borrowed() => None,
        Err(e) => {
            log::line(crate::config::LogLevel::Debug, format_args!("the end of descriptor {fd}: {e}"));
            Some(Errno::CONNRESET)
        }
    };
    if error.is_some() {
        // Told once, whichever way.
        r.told.fetch_or(told::END | told::PIPE, AcqRel);
    }
    error
}
