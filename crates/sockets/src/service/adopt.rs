//! A socket of the kernel's becomes one of a service.

use super::control::{self, Answer, Message};
use super::recipe::Place;
use super::{Record, ServiceName, options, record, shown, stage, told};
use crate::rules::{self, Protocol};
use crate::table::{self, Entry, Sock};
use crate::{epoll, life, log, state};
use bypath_shm::reason::Reason;
use bypath_shm::service::{Address, Op, of_end_name};
use bypath_sys::{Errno, Result, fd, sock, unix};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, Ordering::*};

/// The call for which a socket becomes a service's.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// bind.
    Bind(SocketAddr),
    /// listen, without bind before it.
    Listen(i32),
    /// connect.
    Connect(SocketAddr),
}

/// The service that `s` becomes a socket of by `call`; `None`: it stays the kernel's.
pub fn meant(s: &'static Sock, call: Call) -> Option<ServiceName> {
    let otherwise = state::config()?.netstack;
    // Only a socket that nothing was done with: another name is the kernel's already.
    let bound = sock::local_address(s.carrier()).ok()?;
    if s.is_warm() || bound.port != 0 || bound.bytes != [0; 16] {
        return None;
    }
    let family = i32::from(bound.family);
    let name = |address: SocketAddr| Some((address.ip().to_canonical(), address.port()));
    let fits = |address: SocketAddr| address.is_ipv4() == (family == libc::AF_INET);
    match call {
        Call::Bind(local) if fits(local) => rules::service(Some(Protocol::Tcp), name(local), None, otherwise),
        // No address at all is this host, which is loopback.
        Call::Connect(remote) if remote.ip().to_canonical().is_unspecified() => None,
        Call::Connect(remote) if fits(remote) => {
            rules::service(Some(Protocol::Tcp), None, name(remote), otherwise)
        }
        Call::Listen(_) => {
            let any = super::address::parse(super::SocketName::none(family).as_bytes()).ok()?;
            rules::service(Some(Protocol::Tcp), name(any), None, otherwise)
        }
        // The kernel says what is wrong.
        Call::Bind(_) | Call::Connect(_) => None,
    }
}

/// Makes the socket behind `s` the service's, in every descriptor of this process, and carries out the call. A connection is
/// begun by it.
///
/// # Errors
/// Those of the call, and ENETDOWN where there is no service. The socket is the kernel's as before then.
pub fn adopt(s: &'static Sock, name: ServiceName, call: Call) -> Result<&'static Record> {
    let service = control::number(name).ok_or(Errno::NETDOWN)?;
    let kernel = s.carrier();
    let family = sock::option(kernel, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
    let (cookie, end, is_begun) = match call {
        Call::Connect(remote) => dial(service, kernel, family, remote)?,
        _ => open(service, family).map(|(cookie, end)| (cookie, end, false))?,
    };
    let place = Place::default();
    if !matches!(call, Call::Connect(_)) {
        place.begin();
    }
    let stage = match is_begun {
        true => stage::CONNECTING,
        false => begin((service, cookie), end.0, kernel, family, call, &place)?,
    };
    if fd::status_flags(kernel).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0) {
        fd::set_status_flags(end.0, libc::O_NONBLOCK)?;
    }
    let limited = options::copy_limits(kernel, end.0);
    options::copy_owner(kernel, end.0);
    let record = replace(s, end.0, service, cookie, family, stage)?;
    if limited {
        record.told.store(told::LIMITS, Relaxed);
    }
    if let (Call::Connect(remote), Some(s)) = (call, table::sock(kernel)) {
        shown::address(&s.end().remote, Some(remote), family);
    }
    record.recipe.take(place);
    if let Call::Listen(backlog) = call {
        record.is_to_last(Some(backlog));
    }
    Ok(record)
}

/// Descriptors of services' sockets that no program has yet, -1: none. A child that another thread forks meanwhile has no use for them.
static UNDERWAY: [AtomicI32; 64] = [const { AtomicI32::new(-1) }; 64];

/// One of them, which is closed with this.
#[derive(Debug)]
pub(super) struct End(pub i32);

impl End {
    pub fn new(fd: i32) -> End {
        // Where all places are taken it is not noted.
        let note = |place: &AtomicI32| place.compare_exchange(-1, fd, AcqRel, Relaxed).is_ok();
        let _ = UNDERWAY.iter().any(note);
        End(fd)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // First: the number may be somebody else's as soon as it is closed.
        for place in &UNDERWAY {
            let _ = place.compare_exchange(self.0, -1, AcqRel, Relaxed);
        }
        fd::close(self.0);
    }
}

/// In a forked child: those of other threads are closed. The one that forked has none.
pub fn enter_child() {
    for place in &UNDERWAY {
        let fd = place.load(Relaxed);
        if fd >= 0 {
            fd::close(fd);
            place.store(-1, Relaxed);
        }
    }
}

/// Every descriptor of a socket that no program has yet.
pub fn descriptors(mut f: impl FnMut(i32)) {
    UNDERWAY.iter().for_each(|place| f(place.load(Relaxed)));
}

/// Whether another descriptor of this process has room beside `fd`.
///
/// # Errors
/// EMFILE.
pub fn is_room(fd: i32) -> Result<()> {
    fd::dup_high(fd, 0).map(|number| drop(End::new(number)))
}

/// A new socket of the service: its cookie, and the descriptor, which is ours.
fn open(service: u32, family: i32) -> Result<(u64, End)> {
    open_of(service, [family, libc::SOCK_STREAM, 0])
}

/// The same of this domain, type and protocol.
pub(super) fn open_of(service: u32, what: [i32; 3]) -> Result<(u64, End)> {
    // A service may end.
    log::keep();
    let mut question = opening(what);
    opened(&question.ask(service)?)
}

fn opening(what: [i32; 3]) -> Message {
    Message::new(Op::Open, 0).number(what[0]).number(what[1]).number(what[2])
}

/// The socket that was asked for: its cookie, and the descriptor.
pub(super) fn opened(answer: &Answer<'_>) -> Result<(u64, End)> {
    let (cookie, end) = (answer.socket, End::new(*answer.files.numbers().first().ok_or(Errno::PROTO)?));
    let mut room = [0; 110];
    let is_named = unix::peer_name(end.0, &mut room).and_then(of_end_name).is_some_and(|(_, c)| c == cookie);
    let is_its = sock::option_u64(end.0, libc::SOL_SOCKET, libc::SO_COOKIE) == Ok(cookie);
    if is_named && is_its { Ok((cookie, end)) } else { Err(Errno::PROTO) }
}

/// A new socket of the service with the options of the kernel's, whose connection is asked for by the same question: its cookie, the
/// descriptor, and whether it was begun; otherwise it is a new one without options.
///
/// # Errors
/// As connect(2), but for EINPROGRESS.
fn dial(service: u32, kernel: i32, family: i32, remote: SocketAddr) -> Result<(u64, End, bool)> {
    log::keep();
    let what = [family, libc::SOCK_STREAM, 0];
    let mut question = opening(what).address(remote);
    let mut fits = true;
    let now = |level, name| options::of_kernel(kernel, level, name);
    options::carry(family, now, |level, name, value| fits &= question.option(level, name, value));
    if !fits {
        question = opening(what);
    }
    let mut answer = question.ask(service)?;
    let is_begun = match answer.body.i32() {
        Some(libc::EINPROGRESS) => true,
        Some(errno @ 1..4096) => {
            answer.files.close();
            return Err(Errno::from_raw_os_error(errno));
        }
        _ => false,
    };
    opened(&answer).map(|(cookie, end)| (cookie, end, is_begun))
}

/// Carries the call out on a socket that no program has yet; returns its [`stage`] after that.
fn begin(
    (service, cookie): (u32, u64),
    end: i32,
    kernel: i32,
    family: i32,
    call: Call,
    place: &Place,
) -> Result<u32> {
    let now = |level, name| options::of_kernel(kernel, level, name);
    options::carry(family, now, options::set(service, cookie, place));
    match call {
        Call::Bind(local) => {
            let mut question = Message::new(Op::Bind, cookie).address(local);
            let bound = question.ask(service)?.body.address();
            place.get().into_iter().for_each(|recipe| recipe.is_bound(bound.unwrap_or(Address(Some(local)))));
            Ok(stage::UNKNOWN)
        }
        Call::Listen(backlog) => {
            Message::new(Op::Listen, cookie).number(backlog).with(end).ask(service)?;
            Ok(stage::LISTENING)
        }
        Call::Connect(remote) => connect(service, cookie, end, remote).map(|()| stage::CONNECTING),
    }
}

/// Begins a connection of the socket with this cookie and this descriptor.
///
/// # Errors
/// As connect(2), but for EINPROGRESS.
pub fn connect(service: u32, cookie: u64, fd: i32, remote: SocketAddr) -> Result<()> {
    match Message::new(Op::Connect, cookie).address(remote).with(fd).ask(service) {
        Ok(_) | Err(Errno::INPROGRESS) => Ok(()),
        Err(e) => Err(e),
    }
}

/// A cold socket that no other process holds has become the netstack service's socket `record`: it is followed on as that. Under
/// [`state::LIFE`].
fn becomes_service(s: &'static Sock, record: u32) {
    s.set(table::flag::LOCAL);
    s.end().cookie.store(0, Relaxed);
    super::attach(s, record);
}

/// Puts `end` in the place of every descriptor that means `s`.
fn replace(
    s: &'static Sock,
    end: i32,
    service: u32,
    cookie: u64,
    family: i32,
    stage: u32,
) -> Result<&'static Record> {
    let life = state::LIFE.lock(table::tid()).ok_or(Errno::DEADLK)?;
    let number = super::new_record(service, cookie, family, stage).ok_or(Errno::NOBUFS)?;
    epoll::withdraw(s);
    table::each(|fd, entry| {
        if matches!(entry, Entry::Sock(other) if std::ptr::eq(other, s)) {
            let cloexec = fd::is_cloexec(fd) == Ok(true);
            let _ = fd::replace(end, fd, cloexec);
        }
    });
    // Other processes that hold the kernel's socket go on with that.
    if state::get().is_some_and(|state| s.is_sole_holder(state)) {
        becomes_service(s, number);
        epoll::renew(s);
    } else {
        life::replaced_by_service(s, number);
    }
    drop(life);
    record(number).ok_or(Errno::NOBUFS)
}

/// States of TCP in which the kernel resets a connection that is dissolved (include/net/tcp_states.h).
const RESET: u32 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 8;

/// connect(2) to AF_UNSPEC: the connection of `r` is reset, or its callers are, and a new socket of the service with the same options, and the
/// address that the program has given it, is in its place.
///
/// # Errors
/// ENETDOWN, EMFILE and such: the socket is what it was. EADDRINUSE: somebody else has come to have the address, and it has none.
pub fn dissolve(fd: i32, r: &'static Record) -> Result<()> {
    let (service, old) = (r.service.load(Relaxed), r.cookie.load(Relaxed));
    let state = r.names()?.1;
    let (family, bound) = (r.family(), r.bound());
    let (cookie, end) = open(service, family)?;
    let place = Place::default();
    place.begin();
    let now = |level, name| options::of_service(service, old, level, name);
    options::carry(family, now, options::set(service, cookie, &place));
    // Who waits in it for octets is told so, too, whoever is first.
    r.error.store(if RESET >> state & 1 != 0 { libc::ECONNRESET } else { 0 }, Release);
    match Message::new(Op::Connect, old).octets(&Address(None).encode()).with(fd).ask(service) {
        // Its service has forgotten it already, or it has come to nothing.
        Ok(_) | Err(Errno::INVAL | Errno::BADF | Errno::AFNOSUPPORT) => {}
        Err(e) => {
            r.error.store(0, Relaxed);
            return Err(e);
        }
    }
    let is_bound = bound.map_or(Ok(()), |local| {
        let now = Message::new(Op::Bind, cookie).address(local).ask(service)?.body.address();
        place.get().into_iter().for_each(|recipe| recipe.is_bound(now.unwrap_or(Address(Some(local)))));
        Ok(())
    });
    fd::set_status_flags(end.0, fd::status_flags(fd)? & libc::O_NONBLOCK)?;
    options::copy_limits(fd, end.0);
    options::copy_owner(fd, end.0);
    let _life = state::LIFE.lock(table::tid()).ok_or(Errno::DEADLK)?;
    match table::sock(fd).filter(|s| s.is_warm() || s.meeting.load(Relaxed)) {
        None => r.give_place((fd, old), end.0)?,
        // Rings of one connection are not the next one's.
        Some(s) => leave_rings(s, (fd, old), end.0)?,
    }
    r.cookie.store(cookie, Relaxed);
    r.recipe.take(place);
    let kept = if is_bound.is_ok() { told::LIMITS | told::BOUND | told::PORT } else { told::LIMITS };
    r.told.fetch_and(kept, Relaxed);
    r.enter(stage::UNKNOWN);
    if let Some(s) = table::sock(fd) {
        shown::address(&s.end().remote, None, family);
        shown::address(&s.end().local, None, family);
    }
    is_bound
}

/// Has `to` stand in every place of a socket with rings, which is followed no more. Under [`state::LIFE`].
///
/// # Errors
/// EBADF: it was closed meanwhile.
fn leave_rings(s: &'static Sock, (fd, cookie): (i32, u64), to: i32) -> Result<()> {
    let number = table::served(fd).ok_or(Errno::BADF)?;
    if record(number).is_none_or(|r| r.cookie.load(Relaxed) != cookie) {
        return Err(Errno::BADF);
    }
    s.keep_on_kernel(Reason::RecalledConnect);
    epoll::withdraw(s);
    table::each(|fd, entry| {
        if matches!(entry, Entry::Sock(other) if std::ptr::eq(other, s)) {
            let _ = fd::replace(to, fd, fd::is_cloexec(fd) == Ok(true));
        }
    });
    life::replaced_by_service(s, number);
    Ok(())
}

/// Puts another socket of the service, with the same options, in the place of `r`, which was refused: it begins this
/// connection. What a socket that is not followed is registered with by epoll it is not any more.
///
/// # Errors
/// Those of connect(2) and ENETDOWN. The socket is what it was then.
pub fn renew(fd: i32, r: &'static Record, remote: SocketAddr) -> Result<()> {
    let (service, family) = (r.service.load(Relaxed), r.family.load(Relaxed) as i32);
    let old = r.cookie.load(Relaxed);
    let (cookie, end) = open(service, family)?;
    let now = |level, name| options::of_service(service, old, level, name);
    options::carry(family, now, options::set(service, cookie, &Place::default()));
    if let Some(local) = r.bound() {
        Message::new(Op::Bind, cookie).address(local).ask(service)?;
    }
    connect(service, cookie, end.0, remote)?;
    fd::set_status_flags(end.0, fd::status_flags(fd)? & libc::O_NONBLOCK)?;
    options::copy_limits(fd, end.0);
    let _life = state::LIFE.lock(table::tid()).ok_or(Errno::DEADLK)?;
    r.give_place((fd, old), end.0)?;
    r.cookie.store(cookie, Relaxed);
    r.told.fetch_and(told::LIMITS | told::BOUND | told::PORT, Relaxed);
    r.error.store(0, Relaxed);
    r.stage.store(stage::CONNECTING, Release);
    if let Some(s) = table::sock(fd) {
        shown::address(&s.end().remote, Some(remote), family);
        shown::address(&s.end().local, None, family);
    }
    Ok(())
}
