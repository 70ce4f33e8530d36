//! Sockets of datagrams: the kernel's until a bind, a connect or a send sends them to a service, then one end of a pair of SEQPACKET.
//!
//! The kernel's ones have a record, too: what they were registered with is done again with what takes their place.

mod anew;
pub mod calls;
pub mod mail;
mod options;
mod shown;

use super::adopt::open_of;
use super::control::{self, Message};
use super::recipe::Place;
use super::registrations::Registrations;
use super::{ServiceName, is_active};
use crate::hook::EpollEvent;
use crate::rules::{self, Protocol};
use crate::state;
use crate::table::{self, Entry};
use bypath_shm::reason::Reason;
use bypath_shm::region::Slab;
use bypath_shm::service::{ADDRESS, Address, Claim, Op};
use bypath_sys::{Errno, Result, fd, sock};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};

/// Destinations of a socket that the service is asked about before anything is sent there.
const ASKED: u32 = 16;

/// What this process knows of a socket of datagrams.
#[derive(Debug, Default)]
pub struct Record {
    /// Descriptors of this process that mean it.
    descriptors: AtomicU32,
    /// SO_COOKIE; 0: it is the kernel's.
    cookie: AtomicU64,
    /// Number of its service.
    service: AtomicU32,
    /// AF_INET, AF_INET6, 0: not known.
    family: AtomicI32,
    /// As for socket(2); -1: not known.
    protocol: AtomicI32,
    /// A ping socket to its program, and one of UDP to the kernel, which gives this user no others: it is of no use there.
    poses: AtomicBool,
    /// The kernel has it for good.
    settled: AtomicBool,
    /// A service's that was bound to all addresses and any port, and has not been used: it may be the kernel's again.
    undecided: AtomicBool,
    partner: Partner,
    /// Hash of the last destination that the service was asked about.
    reached: AtomicU64,
    asked: AtomicU32,
    /// What was shut down: 1 receiving, 2 sending.
    shut: AtomicU32,
    registrations: Registrations,
    /// What is to be done again when its service was gone.
    recipe: Place,
    /// That was asked for.
    lasts: AtomicBool,
    /// It is gone: a timer has its place.
    away: AtomicBool,
    rings: mail::Rings,
    shown: shown::View,
    next_free: AtomicU32,
}

/// To whom a socket is connected, as far as this process knows.
#[derive(Debug, Default)]
struct Partner {
    /// Odd while it changes.
    version: AtomicU32,
    /// 0: not known, 1: to nobody, 2: to that one.
    known: AtomicU32,
    octets: [AtomicU64; ADDRESS / 8],
}

impl Partner {
    /// Under `state::LIFE`.
    fn set(&self, to: Option<SocketAddr>) {
        self.version.fetch_add(1, AcqRel);
        for (place, octets) in self.octets.iter().zip(Address(to).encode().chunks_exact(8)) {
            place.store(u64::from_ne_bytes(octets.try_into().unwrap_or_default()), Release);
        }
        self.known.store(if to.is_some() { 2 } else { 1 }, Release);
        self.version.fetch_add(1, AcqRel);
    }

    /// Nothing is known any more.
    fn forget(&self) {
        self.known.store(0, Release);
    }

    /// `None`: not known.
    fn get(&self) -> Option<Option<SocketAddr>> {
        let before = self.version.load(Acquire);
        let known = self.known.load(Acquire);
        let mut raw = [0; ADDRESS];
        for (octets, place) in raw.chunks_exact_mut(8).zip(&self.octets) {
            octets.copy_from_slice(&place.load(Acquire).to_ne_bytes());
        }
        let is_whole = before.is_multiple_of(2) && self.version.load(Acquire) == before && known != 0;
        is_whole.then(|| if known == 2 { Address::decode(&raw).0 } else { None })
    }
}

static RECORDS: Slab<Record, 1024, 64> = Slab::new();
static USED: AtomicU32 = AtomicU32::new(0);
static FREE: AtomicU32 = AtomicU32::new(0);

fn record(number: u32) -> Option<&'static Record> {
    RECORDS.get(number as usize)
}

/// The record behind a descriptor.
#[inline]
pub fn of(fd: i32) -> Option<&'static Record> {
    record(table::datagrams(fd)?)
}

/// Whether a socket of this kind can become a service's.
pub fn may_serve(domain: i32, kind: i32, protocol: i32) -> bool {
    let echo = if domain == libc::AF_INET6 { libc::IPPROTO_ICMPV6 } else { libc::IPPROTO_ICMP };
    is_active()
        && matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & 0xf == libc::SOCK_DGRAM
        && (matches!(protocol, 0 | libc::IPPROTO_UDP) || protocol == echo)
}

/// Whether that is a ping socket, and one that can become a service's.
pub fn is_ping(domain: i32, kind: i32, protocol: i32) -> bool {
    may_serve(domain, kind, protocol) && !matches!(protocol, 0 | libc::IPPROTO_UDP)
}

/// `socket()` returned `fd`, a socket that [may become](may_serve) a service's. Under `state::LIFE`.
pub fn made(fd: i32, domain: i32, protocol: i32) {
    if let Some(number) = new_record() {
        if let Some(r) = record(number) {
            r.family.store(domain, Relaxed);
            let protocol = if protocol == 0 { libc::IPPROTO_UDP } else { protocol };
            r.protocol.store(protocol, Relaxed);
            let is = sock::option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL);
            r.poses.store(protocol != libc::IPPROTO_UDP && is == Ok(libc::IPPROTO_UDP), Relaxed);
            r.partner.set(None);
        }
        adopted(fd, number);
    }
}

/// `fd` came from elsewhere, and is the end of a pair of records of a service. Under `state::LIFE`.
pub fn recognised(fd: i32, service: u32, cookie: u64) {
    let is = |r: &Record| r.cookie.load(Relaxed) == cookie && r.descriptors.load(Relaxed) > 0;
    if let Some(known) = (0..USED.load(Acquire)).find(|number| record(*number).is_some_and(is)) {
        return alias(fd, known);
    }
    let Some(number) = new_record() else { return };
    if let Some(r) = record(number) {
        r.cookie.store(cookie, Relaxed);
        r.service.store(service, Relaxed);
        r.rings.reset(true);
        r.shown.begins_with(Reason::Inherited);
    }
    adopted(fd, number);
}

fn adopted(fd: i32, number: u32) {
    alias(fd, number);
    if table::datagrams(fd) != Some(number) {
        discard(number);
    }
}

/// Those that came from elsewhere are asked about, if they were not.
pub fn are_to_last() {
    let all = (0..USED.load(Acquire)).filter_map(record);
    all.filter(|r| r.descriptors.load(Relaxed) > 0).for_each(Record::is_to_last);
}

fn new_record() -> Option<u32> {
    let number = match FREE.load(Relaxed).checked_sub(1) {
        Some(free) => {
            FREE.store(record(free)?.next_free.load(Relaxed), Relaxed);
            free
        }
        None => {
            let next = USED.load(Relaxed);
            RECORDS.ensure(next as usize)?;
            USED.store(next + 1, Release);
            next
        }
    };
    let r = record(number)?;
    r.cookie.store(0, Relaxed);
    r.family.store(0, Relaxed);
    r.protocol.store(-1, Relaxed);
    r.poses.store(false, Relaxed);
    r.settled.store(false, Relaxed);
    r.undecided.store(false, Relaxed);
    r.partner.forget();
    r.reached.store(0, Relaxed);
    r.asked.store(0, Relaxed);
    r.shut.store(0, Relaxed);
    r.rings.reset(false);
    r.shown.reset();
    r.registrations.forget();
    r.lasts.store(false, Relaxed);
    r.away.store(false, Relaxed);
    Some(number)
}

fn discard(number: u32) {
    if let Some(r) = record(number) {
        r.rings.discard(number);
        r.shown.hide();
        r.recipe.give_up();
        r.cookie.store(0, Relaxed);
        r.next_free.store(FREE.swap(number + 1, Relaxed), Relaxed);
    }
}

/// SO_COOKIE of a record's socket, 0 where it is the kernel's.
pub fn cookie(number: u32) -> Option<u64> {
    record(number).map(|r| r.cookie.load(Relaxed))
}

/// One more descriptor for a record. Under `state::LIFE`.
pub fn alias(fd: i32, number: u32) {
    if let Some(r) = record(number)
        && table::set_datagrams(fd, number)
    {
        r.descriptors.fetch_add(1, AcqRel);
    }
}

/// One descriptor less. Under `state::LIFE`.
pub fn release(number: u32) {
    if let Some(r) = record(number)
        && r.descriptors.fetch_sub(1, AcqRel) == 1
    {
        discard(number);
    }
}

/// epoll_ctl on the socket of a record: the set's descriptor and number.
pub fn registers(number: u32, set: (i32, u32), op: i32, fd: i32, event: Option<EpollEvent>) {
    let Some(r) = record(number) else { return };
    r.is_to_last();
    let Some(_life) = state::LIFE.lock(table::tid()) else { return };
    r.registrations.note(set, op, fd, event);
}

/// The call for which a socket becomes a service's.
#[derive(Clone, Copy, Debug)]
enum Call {
    Bind(SocketAddr),
    Connect(SocketAddr),
    Send(SocketAddr),
}

/// Puts `end` in the place of every descriptor of a record, registered as they were. Under `state::LIFE`.
fn replace(r: &Record, number: u32, end: i32) {
    let is_its = |fd| table::datagrams(fd) == Some(number);
    r.registrations.withdraw(is_its);
    table::each(|fd, entry| {
        if matches!(entry, Entry::Datagrams(other) if other == number) {
            let _ = fd::replace(end, fd, fd::is_cloexec(fd) == Ok(true));
        }
    });
    r.registrations.renew(is_its);
}

impl Record {
    fn question(&self, op: Op) -> Message {
        Message::new(op, self.cookie.load(Relaxed))
    }

    /// Whether it is a service's.
    #[inline]
    pub fn is_served(&self) -> bool {
        self.cookie.load(Acquire) != 0
    }

    /// Whether the kernel has it for good.
    pub fn is_settled(&self) -> bool {
        self.settled.load(Relaxed)
    }

    /// Whether it is a ping socket.
    pub fn pings(&self) -> bool {
        self.protocol() != libc::IPPROTO_UDP
    }

    /// What rules know it as: one that pings is of no protocol of theirs.
    fn ruled_as(&self) -> Option<Protocol> {
        (self.protocol() == libc::IPPROTO_UDP).then_some(Protocol::Udp)
    }

    /// The service that a kernel's socket becomes one of by `call`.
    fn meant(&self, fd: i32, call: Call) -> Option<ServiceName> {
        if self.settled.load(Relaxed) || state::is_borrowed() || state::is_sealed() {
            return None;
        }
        let otherwise = state::config()?.netstack;
        let is_v6 = self.family.load(Relaxed) == libc::AF_INET6;
        let name = |address: SocketAddr| Some((address.ip().to_canonical(), address.port()));
        let meant = match call {
            Call::Bind(local) if local.is_ipv6() == is_v6 => {
                rules::service(self.ruled_as(), name(local), None, otherwise)
            }
            Call::Connect(to) | Call::Send(to) if to.is_ipv6() == is_v6 => {
                rules::service(self.ruled_as(), None, name(to), otherwise)
            }
            _ => None,
        };
        let meant = if self.poses.load(Relaxed) { meant.or(otherwise) } else { meant }?;
        // One that was bound is the kernel's already.
        let bound = sock::local_address(fd).ok()?;
        (bound.port == 0 && bound.bytes == [0; 16]).then_some(meant)
    }

    /// Makes the kernel's socket the service's, in every descriptor of this process, and carries out the call.
    ///
    /// # Errors
    /// Those of the call, and ENETDOWN where there is no service. The socket is the kernel's as before then.
    fn adopt(&self, kernel: i32, name: ServiceName, call: Call) -> Result<()> {
        let service = control::number(name).ok_or(Errno::NETDOWN)?;
        let (family, protocol) = (self.family.load(Relaxed), self.protocol.load(Relaxed));
        let (cookie, end) = open_of(service, [family, libc::SOCK_DGRAM, protocol])?;
        if sock::option(end.0, libc::SOL_SOCKET, libc::SO_TYPE) != Ok(libc::SOCK_SEQPACKET) {
            return Err(Errno::PROTO);
        }
        let place = Place::default();
        place.begin();
        options::carry(family, kernel, super::options::set(service, cookie, &place));
        let (op, address) = match call {
            Call::Bind(local) => (Op::Bind, local),
            Call::Connect(to) => (Op::Connect, to),
            Call::Send(to) => (Op::Reach, to),
        };
        let mut question = Message::new(op, cookie).address(address);
        let mut body = question.ask(service)?.body;
        let (answered, claim) = (body.address(), Claim::decode(&mut body));
        let flags = fd::status_flags(kernel).unwrap_or(0);
        fd::set_status_flags(end.0, flags & libc::O_NONBLOCK)?;
        super::options::copy_limits(kernel, end.0);
        let _life = state::LIFE.lock(table::tid()).ok_or(Errno::DEADLK)?;
        let number = table::datagrams(kernel).ok_or(Errno::BADF)?;
        if self.is_served() {
            // Another thread was first.
            return Err(Errno::ALREADY);
        }
        replace(self, number, end.0);
        self.recipe.take(place);
        self.was_made_by(call, answered, claim);
        self.service.store(service, Relaxed);
        if let Call::Connect(to) = call {
            self.partner.set(Some(to));
        }
        if let Call::Send(to) = call {
            self.reached.store(hash(to), Relaxed);
        }
        self.cookie.store(cookie, Release);
        if let Call::Bind(local) = call {
            self.undecided.store(local.ip().is_unspecified() && local.port() == 0, Relaxed);
        }
        Ok(())
    }

    /// Whether an undecided socket is to be the kernel's again, as it is to send to an address that is the kernel's. From here on it is
    /// decided.
    fn is_to_leave(&self, to: SocketAddr) -> bool {
        let otherwise = state::config().and_then(|config| config.netstack);
        self.undecided.swap(false, AcqRel)
            && !self.poses.load(Relaxed)
            && rules::service(self.ruled_as(), None, Some((to.ip().to_canonical(), to.port())), otherwise)
                .is_none()
    }

    /// Puts a socket of the kernel's with the same options in the place of the service's.
    ///
    /// # Errors
    /// EMFILE and its like; nothing has changed then.
    fn leave(&self, fd: i32) -> Result<()> {
        self.leave_rings(Reason::RecalledConnect);
        let new = sock::datagrams(self.family(), self.protocol(), state::floor())?;
        options::carry_back(self.family(), new, |level, name| {
            super::options::of_service(self.service.load(Relaxed), self.cookie.load(Relaxed), level, name)
        });
        let flags = fd::status_flags(fd).unwrap_or(0);
        let _ = fd::set_status_flags(new, flags & libc::O_NONBLOCK);
        super::options::copy_limits(fd, new);
        let life = state::LIFE.lock(table::tid());
        if let (Some(_), Some(number)) = (&life, table::datagrams(fd)) {
            replace(self, number, new);
            self.recipe.give_up();
            self.away.store(false, Release);
            self.settled.store(true, Relaxed);
            self.shown.hide();
            self.cookie.store(0, Release);
        }
        drop(life);
        fd::close(new);
        Ok(())
    }

    /// To whom it is connected; the service is asked where this process does not know.
    fn partner(&self) -> Result<Option<SocketAddr>> {
        if let Some(known) = self.partner.get() {
            return Ok(known);
        }
        let remote = self.names()?[1].0;
        if let Some(_life) = state::LIFE.lock(table::tid()) {
            self.partner.set(remote);
        }
        Ok(remote)
    }

    fn names(&self) -> Result<[Address; 2]> {
        self.told().map(|(names, _)| names)
    }

    /// Its addresses, and what the service says of it.
    fn told(&self) -> Result<([Address; 2], Option<Claim>)> {
        let mut question = self.question(Op::Names);
        let mut body = question.ask(self.service.load(Relaxed))?.body;
        let mut names = || Some([body.address()?, body.address()?]);
        let names = names().ok_or(Errno::PROTO)?;
        // The state is between them.
        let _ = body.u32();
        Ok((names, Claim::decode(&mut body)))
    }

    fn get(&self, level: i32, name: i32) -> Result<i32> {
        let mut question = self.question(Op::Get).number(level).number(name).number(4);
        question.ask(self.service.load(Relaxed))?.body.i32().ok_or(Errno::PROTO)
    }

    fn known_or_asked(&self, place: &AtomicI32, unknown: i32, name: i32) -> i32 {
        let known = place.load(Relaxed);
        if known != unknown {
            return known;
        }
        let Ok(told) = self.get(libc::SOL_SOCKET, name) else { return known };
        place.store(told, Relaxed);
        told
    }

    /// AF_INET or AF_INET6, which is asked where it came from elsewhere; 0: that was in vain.
    pub fn family(&self) -> i32 {
        self.known_or_asked(&self.family, 0, libc::SO_DOMAIN)
    }

    fn protocol(&self) -> i32 {
        self.known_or_asked(&self.protocol, -1, libc::SO_PROTOCOL)
    }

    /// Asks whether a datagram may be sent there, of the first destinations.
    fn reach(&self, to: SocketAddr) -> Result<()> {
        let hash = hash(to);
        if self.reached.load(Relaxed) == hash || self.asked.load(Relaxed) >= ASKED {
            return Ok(());
        }
        self.asked.fetch_add(1, Relaxed);
        self.question(Op::Reach).address(to).ask(self.service.load(Relaxed))?;
        self.reached.store(hash, Relaxed);
        Ok(())
    }
}

/// A number for an address, never 0 (FNV-1a).
fn hash(to: SocketAddr) -> u64 {
    let octets = Address(Some(to)).encode();
    octets
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, octet| (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3))
        | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partner_is_known_unknown_or_nobody() {
        let partner = Partner::default();
        assert_eq!(partner.get(), None);
        for to in [None, Some("10.0.0.1:7".parse().unwrap()), Some("[fe80::1%3]:65535".parse().unwrap())] {
            partner.set(to);
            assert_eq!(partner.get(), Some(to));
        }
        partner.forget();
        assert_eq!(partner.get(), None);
    }

    #[test]
    fn hashes_tell_destinations_apart() {
        let hash = |text: &str| hash(text.parse().unwrap());
        assert_ne!(hash("10.0.0.1:7"), hash("10.0.0.1:9"));
        assert_ne!(hash("10.0.0.1:7"), hash("10.0.0.3:7"));
    }
}
