//! What the hooks ask about sockets of datagrams. `None` where the real call is to be made.

use super::super::recipe::Recipe;
use super::super::{SocketName, address, meanwhile, options};
use super::{Call, Record, of};
use crate::{state, table};
use bypath_shm::datagram::{FAILURE, Failure, HEADER, Header, Kind, LONGEST};
use bypath_shm::reason::Reason;
use bypath_shm::service::{Address, Claim, ERROR_QUEUE, LEVEL, Op};
use bypath_sys::{Errno, Result, poll, sock};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering::*;

/// Octets of a UDP datagram over IPv4 at most, and of a ping's message there.
const LONGEST_V4: usize = 65_507;
const LONGEST_PING_V4: usize = LONGEST_V4 + 8;

/// The record of a socket of a service.
fn served(fd: i32) -> Option<&'static Record> {
    of(fd).filter(|r| r.is_served() && !state::is_borrowed())
}

/// Whether `fd` is a service's socket of datagrams.
pub fn is_served(fd: i32) -> bool {
    served(fd).is_some()
}

impl Record {
    fn what(&self) -> meanwhile::Socket {
        meanwhile::Socket {
            family: self.family(),
            kind: libc::SOCK_DGRAM,
            protocol: self.protocol(),
            listens: false,
            cookie: self.cookie.load(Relaxed),
        }
    }

    /// An address as its family takes it.
    fn fitting(&self, to: SocketAddr) -> Result<SocketAddr> {
        match (self.family() == libc::AF_INET6, to) {
            (false, SocketAddr::V4(_)) | (true, SocketAddr::V6(_)) => Ok(to),
            // Linux takes these for sends.
            (true, SocketAddr::V4(v4)) => Ok(SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())),
            (false, SocketAddr::V6(_)) => Err(Errno::AFNOSUPPORT),
        }
    }
}

fn family_of(raw: &[u8]) -> Option<i32> {
    raw.first_chunk::<2>().map(|family| i32::from(u16::from_ne_bytes(*family)))
}

/// Before bind.
pub fn bind(fd: i32, raw: &[u8]) -> Option<Result<()>> {
    let r = of(fd)?;
    let local = address::parse(raw);
    if let Some(r) = served(fd) {
        let is_fitting = |local: &SocketAddr| local.is_ipv6() == (r.family() == libc::AF_INET6);
        let local = local.and_then(|local| Some(local).filter(is_fitting).ok_or(Errno::AFNOSUPPORT));
        let bound = |local| {
            let mut question = r.question(Op::Bind).address(local);
            let mut body = question.ask(r.service.load(Relaxed))?.body;
            let now = body.address();
            r.was_made_by(Call::Bind(local), now, Claim::decode(&mut body));
            Ok(())
        };
        return Some(local.and_then(bound));
    }
    let call = Call::Bind(local.ok()?);
    adopted(r, fd, call)
}

/// `None`: it stays the kernel's.
fn adopted(r: &Record, fd: i32, call: Call) -> Option<Result<()>> {
    Some(r.adopt(fd, r.meant(fd, call)?, call))
}

/// Before connect.
pub fn connect(fd: i32, raw: &[u8]) -> Option<Result<()>> {
    let r = of(fd)?;
    let Some(r) = served(fd) else {
        let to = address::parse(raw).ok()?;
        return adopted(r, fd, Call::Connect(anybody_here(to)));
    };
    let disconnects = family_of(raw) == Some(libc::AF_UNSPEC);
    let to = match address::parse(raw) {
        _ if disconnects => None,
        Err(e) => return Some(Err(e)),
        Ok(to) if to.is_ipv4() && r.family() == libc::AF_INET6 => Some(r.fitting(to)),
        Ok(to) => Some(r.fitting(anybody_here(to))),
    };
    let to = match to.transpose() {
        Err(e) => return Some(Err(e)),
        Ok(to) => to,
    };
    if let Some(to) = to
        && r.undecided.load(Relaxed)
        && r.is_to_leave(to)
    {
        return r.leave(fd).err().map(Err);
    }
    if !r.is_there(fd) {
        return Some(Err(Errno::NETDOWN));
    }
    let asked =
        r.question(Op::Connect).octets(&Address(to).encode()).ask(r.service.load(Relaxed)).map(|_| ());
    Some(asked.map(|()| {
        if let Some(_life) = state::LIFE.lock(table::tid()) {
            r.partner.set(to);
        }
        r.show_names();
    }))
}

/// Linux takes the unspecified address for this host.
fn anybody_here(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => {
            SocketAddr::new(Ipv4Addr::LOCALHOST.into(), v4.port())
        }
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => {
            SocketAddr::new(Ipv6Addr::LOCALHOST.into(), v6.port())
        }
        _ => to,
    }
}

/// getsockname, or getpeername.
pub fn name(fd: i32, peer: bool) -> Option<Result<SocketName>> {
    let r = served(fd)?;
    let meanwhile = || {
        let local = r.recipe.get().and_then(Recipe::local);
        Ok([Address(local), Address(r.partner.get().flatten())])
    };
    let names = r.answered(fd, || r.names()).unwrap_or_else(meanwhile);
    Some(names.and_then(|names| match names[usize::from(peer)].0 {
        // As Linux has it: who is connected to port 0 has no partner to be told of.
        Some(address) if peer && address.port() == 0 && r.protocol() == libc::IPPROTO_UDP => {
            Err(Errno::NOTCONN)
        }
        Some(address) => Ok(SocketName::new(address, r.family())),
        None if peer => Err(Errno::NOTCONN),
        None => Ok(SocketName::none(r.family())),
    }))
}

/// One that has ended is made again, where its service is back.
pub fn renew(fd: i32) {
    if let Some(r) = served(fd)
        && (r.is_away() || poll::now(fd, 0) & libc::POLLHUP != 0)
    {
        let _ = r.answered(fd, || r.names());
    }
}

/// What has no meaning for datagrams: listen and accept.
pub fn is_refused(fd: i32) -> Option<Result<()>> {
    served(fd).map(|_| Err(Errno::OPNOTSUPP))
}

/// getsockopt: octets in `room`.
pub fn option(fd: i32, level: i32, name: i32, room: &mut [u8]) -> Option<Result<usize>> {
    let r = served(fd)?;
    if !r.is_there(fd)
        && let Some(recipe) = r.recipe.get()
    {
        return Some(meanwhile::told(&r.what(), recipe, level, name, room));
    }
    let of_socket = level == libc::SOL_SOCKET;
    if options::is_of_descriptor(level, name) && name != libc::SO_TYPE {
        return None;
    }
    let known = match name {
        libc::SO_TYPE if of_socket => Some(Ok(libc::SOCK_DGRAM)),
        libc::SO_DOMAIN if of_socket => Some(Ok(r.family())),
        libc::SO_PROTOCOL if of_socket => Some(Ok(r.protocol())),
        libc::SO_ERROR if of_socket => Some(Ok(r.take_error().map_or(0, Errno::raw_os_error))),
        _ => None,
    };
    let size = room.len() as i32;
    let put = |value: &[u8], room: &mut [u8]| {
        let len = value.len().min(room.len());
        room[..len].copy_from_slice(&value[..len]);
        len
    };
    Some(match known {
        Some(value) => value.map(|value: i32| put(&value.to_ne_bytes(), room)),
        None => {
            let mut ask = || {
                let mut question = r.question(Op::Get).number(level).number(name).number(size);
                question.ask(r.service.load(Relaxed)).map(|answer| put(answer.body.rest(), room))
            };
            match (r.answered(fd, &mut ask), r.recipe.get()) {
                (Some(answer), _) => answer,
                (None, Some(recipe)) => meanwhile::told(&r.what(), recipe, level, name, room),
                (None, None) => Err(Errno::NETDOWN),
            }
        }
    })
}

/// setsockopt; `None` as well where the descriptor has the option.
pub fn set_option(fd: i32, level: i32, name: i32, value: &[u8]) -> Option<Result<()>> {
    let r = served(fd)?;
    if options::is_of_descriptor(level, name) && r.is_there(fd) {
        return None;
    }
    r.is_to_last();
    options::note_errors(level, name);
    let ask = || {
        let question = r.question(Op::Set).number(level).number(name).octets(value);
        { question }.ask(r.service.load(Relaxed)).map(|_| ())
    };
    let set = r.answered(fd, ask).unwrap_or_else(|| meanwhile::judge(&r.what(), level, name, value));
    Some(set.inspect(|()| r.recipe.get().into_iter().for_each(|recipe| recipe.note(level, name, value))))
}

/// shutdown: it is the kernel's, and Linux says beside it that there is no partner.
pub fn shutdown(fd: i32, how: i32) -> Option<Result<()>> {
    let r = served(fd)?;
    if !(0..=2).contains(&how) {
        return Some(Err(Errno::INVAL));
    }
    let partner = r.partner();
    r.shut.fetch_or(how as u32 + 1, AcqRel);
    r.leave_rings(Reason::RecalledShutdown);
    sock::shutdown(fd, how);
    Some(partner.and_then(|partner| partner.map(|_| ()).ok_or(Errno::NOTCONN)))
}

/// SIOCOUTQ of one whose service is away: nothing is on its way. (SIOCOUTQNSD is none of datagrams.)
pub fn queued(fd: i32, sent: bool) -> Option<Result<usize>> {
    served(fd).filter(|r| sent && r.is_away()).map(|_| Ok(0))
}

/// FIONREAD: octets of the next datagram.
pub fn next_len(fd: i32) -> Option<usize> {
    let r = served(fd)?;
    if let Some((header, len)) = r.next_in_ring() {
        return Some(if header.kind == Kind::Datagram { len } else { 0 });
    }
    let mut head = [0; HEADER];
    let Ok(len) = sock::peek_record(fd, &mut head) else { return Some(0) };
    Some(match Header::decode(&head).filter(|_| len >= HEADER) {
        Some(Header { kind: Kind::Datagram, .. }) => len - HEADER,
        Some(_) => 0,
        None => len,
    })
}

/// What is to be done with datagrams on `fd`.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// The program's own call.
    Real,
    /// Records of a service's pair.
    Records(&'static Record),
}

/// Before a send of `len` octets to the address in `raw`, if the program gives one. A header for it; `None`: the program's own call.
///
/// # Errors
/// As sendto(2).
pub fn sending(fd: i32, raw: Option<&[u8]>, len: usize) -> Option<Result<Header>> {
    let r = of(fd)?;
    if state::is_borrowed() {
        return None;
    }
    if !r.is_served() {
        let to = address::parse(raw?).ok().map(anybody_here)?;
        let Some(adopted) = adopted(r, fd, Call::Send(to)) else {
            // A send binds it.
            r.settled.store(true, Relaxed);
            return None;
        };
        if let Err(e) = adopted.or_else(|e| if e == Errno::ALREADY { Ok(()) } else { Err(e) }) {
            return Some(Err(e));
        }
    }
    if r.undecided.load(Relaxed)
        && let Some(to) = raw.and_then(|raw| address::parse(raw).ok()).map(anybody_here)
        && r.is_to_leave(to)
    {
        return r.leave(fd).err().map(Err);
    }
    if !r.is_there(fd) {
        return Some(Err(Errno::NETDOWN));
    }
    r.is_to_last();
    r.counts();
    r.seen(fd);
    Some(r.may_send(fd, raw, len))
}

impl Record {
    fn may_send(&self, fd: i32, raw: Option<&[u8]>, len: usize) -> Result<Header> {
        let is_v6 = self.family() == libc::AF_INET6;
        let most = match (is_v6, self.protocol() == libc::IPPROTO_UDP) {
            (true, _) => LONGEST,
            (false, true) => LONGEST_V4,
            (false, false) => LONGEST_PING_V4,
        };
        if len > most {
            return Err(Errno::MSGSIZE);
        }
        let to = match raw {
            // As Linux has it: of IPv4 it is an address all the same, of IPv6 there is none.
            Some(raw) if family_of(raw) == Some(libc::AF_UNSPEC) && is_v6 => None,
            Some(raw) if family_of(raw) == Some(libc::AF_UNSPEC) && raw.len() >= 16 => {
                let mut own = [0; 16];
                own.copy_from_slice(&raw[..16]);
                own[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                Some(address::parse(&own)?)
            }
            Some(raw) => Some(address::parse(raw).map_err(|e| if is_v6 { Errno::INVAL } else { e })?),
            None => None,
        };
        if self.shut.load(Acquire) & 2 != 0 {
            return Err(Errno::PIPE);
        }
        let partner = self.partner()?;
        let to = to.map(|to| self.fitting(anybody_here(to))).transpose()?;
        if to.is_some_and(|to| to.port() == 0) && self.protocol() == libc::IPPROTO_UDP {
            return Err(Errno::INVAL);
        }
        if to.is_none() && partner.is_none() {
            return Err(Errno::DESTADDRREQ);
        }
        if partner.is_some() {
            self.error_first(fd)?;
        }
        if let Some(to) = to.filter(|to| Some(*to) != partner) {
            self.reach(to)?;
        }
        Ok(Header::datagram(Address(to)))
    }

    /// An error that no datagram came before is the send's.
    fn error_first(&self, fd: i32) -> Result<()> {
        match self.next_in_ring() {
            Some((header, _)) if header.kind == Kind::Error && self.drop_error() => {
                return self.take_error().map_or(Ok(()), Err);
            }
            Some(_) => return Ok(()),
            // It would come there.
            None if self.is_open() => return Ok(()),
            None => {}
        }
        if drop_error(fd) { self.take_error().map_or(Ok(()), Err) } else { Ok(()) }
    }

    /// MSG_ERRQUEUE: the oldest error of the network, given to `f` with the first octets of the datagram that it is about. What says that
    /// there is one goes with it.
    ///
    /// # Errors
    /// EAGAIN: there is none.
    pub fn next_failure<R>(&self, fd: i32, f: impl FnOnce(&Failure, &[u8]) -> R) -> Result<R> {
        let mut question = self.question(Op::Get).number(LEVEL).number(ERROR_QUEUE).number(FAILURE as i32);
        let answer = question.ask(self.service.load(Relaxed)).map_err(|_| Errno::AGAIN)?;
        let (failure, octets) = Failure::decode(answer.body.rest()).ok_or(Errno::AGAIN)?;
        let told = f(&failure, octets);
        if !self.drop_error() {
            drop_error(fd);
        }
        Ok(told)
    }

    /// The error that the service has for the next call, which it has no more then.
    pub fn take_error(&self) -> Option<Errno> {
        let mut question = self.question(Op::Error);
        let errno = question.ask(self.service.load(Relaxed)).ok()?.body.i32()?;
        (1..4096).contains(&errno).then(|| Errno::from_raw_os_error(errno))
    }

    /// After a send that failed: what the program is told.
    pub fn send_failed(&self, fd: i32, errno: Errno) -> Errno {
        match errno {
            Errno::PIPE if self.shut.load(Acquire) & 2 != 0 => Errno::PIPE,
            // Another thread was first: a timer has its place.
            Errno::NOTSOCK if self.is_away() => Errno::NETDOWN,
            // The service is gone.
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN if poll::now(fd, 0) & libc::POLLHUP != 0 => {
                if self.goes_away(fd) {
                    Errno::NETDOWN
                } else {
                    Errno::CONNRESET
                }
            }
            other => other,
        }
    }

    /// Who has sent what came without a header.
    pub fn sender(&self) -> Option<SocketName> {
        let partner = self.partner().ok()??;
        Some(SocketName::new(partner, self.family()))
    }

    /// An address of a header as the program gets it.
    pub fn as_name(&self, address: Address) -> Option<SocketName> {
        Some(SocketName::new(address.0?, self.family()))
    }

    /// Whether it is of IPv6.
    pub fn is_v6(&self) -> bool {
        self.family() == libc::AF_INET6
    }
}

/// Whether programs of this process want to be told of errors apart from datagrams, when they wait.
#[inline]
pub fn are_errors_asked() -> bool {
    options::are_errors_asked()
}

/// Whether what `fd` has first is an error: the kernel says POLLERR then, and not POLLIN.
pub fn has_error(fd: i32) -> bool {
    served(fd).is_some_and(|r| match r.next_in_ring() {
        Some((header, _)) => header.kind == Kind::Error,
        None => is_error_next(fd),
    })
}

/// Whether the pair's next record is an error.
fn is_error_next(fd: i32) -> bool {
    let mut head = [0; HEADER];
    let first = sock::peek_record(fd, &mut head);
    first.is_ok_and(|len| len >= HEADER)
        && Header::decode(&head).is_some_and(|header| header.kind == Kind::Error)
}

/// Takes the pair's next record if it is an error. False: it is none.
fn drop_error(fd: i32) -> bool {
    let is_error = is_error_next(fd);
    if is_error {
        sock::drop_record(fd);
    }
    is_error
}

/// Before a receive.
#[inline]
pub fn receiving(fd: i32) -> Way {
    match served(fd) {
        Some(r) => {
            r.is_to_last();
            r.counts();
            r.seen(fd);
            Way::Records(r)
        }
        None => Way::Real,
    }
}
