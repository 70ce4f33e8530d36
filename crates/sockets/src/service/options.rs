//! Options: where they act, and those of a kernel's socket that becomes a service's.

use super::control::Message;
use super::recipe::Place;
use bypath_shm::service::Op;
use bypath_sys::{fd, sock};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// asm-generic/socket.h: with times of 64 bits.
const SO_RCVTIMEO_NEW: i32 = 66;
/// See above.
const SO_SNDTIMEO_NEW: i32 = 67;

/// What an option's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Octets as they are.
    Plain,
    /// Half of what is read is set: the kernel doubles it.
    Doubled,
    /// Text with its NUL, or without.
    Text,
}

/// Options that a program may have set before its socket becomes a service's. IPv6 ones are those of AF_INET6.
const CARRIED: &[(i32, i32, Shape)] = {
    use Shape::*;
    use libc::*;
    &[
        (SOL_SOCKET, SO_REUSEADDR, Plain),
        (SOL_SOCKET, SO_REUSEPORT, Plain),
        (SOL_SOCKET, SO_KEEPALIVE, Plain),
        (SOL_SOCKET, SO_LINGER, Plain),
        (SOL_SOCKET, SO_DONTROUTE, Plain),
        (SOL_SOCKET, SO_PRIORITY, Plain),
        (SOL_SOCKET, SO_MARK, Plain),
        (SOL_SOCKET, SO_SNDBUF, Doubled),
        (SOL_SOCKET, SO_RCVBUF, Doubled),
        (SOL_SOCKET, SO_BINDTODEVICE, Text),
        (IPPROTO_TCP, TCP_NODELAY, Plain),
        (IPPROTO_TCP, TCP_CORK, Plain),
        (IPPROTO_TCP, TCP_MAXSEG, Plain),
        (IPPROTO_TCP, TCP_KEEPIDLE, Plain),
        (IPPROTO_TCP, TCP_KEEPINTVL, Plain),
        (IPPROTO_TCP, TCP_KEEPCNT, Plain),
        (IPPROTO_TCP, TCP_SYNCNT, Plain),
        (IPPROTO_TCP, TCP_LINGER2, Plain),
        (IPPROTO_TCP, TCP_DEFER_ACCEPT, Plain),
        (IPPROTO_TCP, TCP_WINDOW_CLAMP, Plain),
        (IPPROTO_TCP, TCP_QUICKACK, Plain),
        (IPPROTO_TCP, TCP_USER_TIMEOUT, Plain),
        (IPPROTO_TCP, TCP_FASTOPEN, Plain),
        (IPPROTO_TCP, TCP_NOTSENT_LOWAT, Plain),
        (IPPROTO_TCP, TCP_CONGESTION, Text),
        (IPPROTO_IP, IP_TOS, Plain),
        (IPPROTO_IP, IP_TTL, Plain),
        (IPPROTO_IP, IP_MTU_DISCOVER, Plain),
        (IPPROTO_IP, IP_FREEBIND, Plain),
        (IPPROTO_IP, IP_TRANSPARENT, Plain),
        (IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, Plain),
        (IPPROTO_IPV6, IPV6_V6ONLY, Plain),
        (IPPROTO_IPV6, IPV6_UNICAST_HOPS, Plain),
        (IPPROTO_IPV6, IPV6_TCLASS, Plain),
        (IPPROTO_IPV6, IPV6_MTU_DISCOVER, Plain),
    ]
};

/// An option's value: the longest of them is a name.
pub type Value = ([u8; 16], usize);

fn read(fd: i32, level: i32, name: i32) -> Option<Value> {
    let mut value = [0; 16];
    sock::option_bytes(fd, level, name, &mut value).ok().map(|len| (value, len.min(16)))
}

/// What a new socket of the kernel's has, of AF_INET and of AF_INET6.
static NEW: [OnceLock<[Option<Value>; CARRIED.len()]>; 2] = [const { OnceLock::new() }; 2];

fn of_new(family: i32) -> &'static [Option<Value>; CARRIED.len()] {
    NEW[usize::from(family == libc::AF_INET6)].get_or_init(|| {
        let Ok(new) = sock::stream(family, crate::state::floor()) else { return [None; CARRIED.len()] };
        let values = std::array::from_fn(|i| read(new, CARRIED[i].0, CARRIED[i].1));
        fd::close(new);
        values
    })
}

/// Levels of options that a program may set.
const LEVELS: [i32; 4] = [libc::IPPROTO_IP, libc::SOL_SOCKET, libc::IPPROTO_TCP, libc::IPPROTO_IPV6];
/// Bits: which options of each level, up to 255, this process has ever set on a socket of the kernel's.
static SET: [[AtomicU64; 4]; LEVELS.len()] = [const { [const { AtomicU64::new(0) }; 4] }; LEVELS.len()];

/// This process sets an option of a socket of the kernel's, which may become a service's.
pub fn note(level: i32, name: i32) {
    note_errors(level, name);
    if let (Some(level), Ok(name)) = (LEVELS.iter().position(|l| *l == level), u8::try_from(name)) {
        SET[level][usize::from(name >> 6)].fetch_or(1 << (name & 63), Relaxed);
    }
}

/// Those that were set, but for [`CARRIED`], which are looked at always: whoever started this process may have set them.
fn others_set() -> impl Iterator<Item = (i32, i32)> {
    all_set().filter(|(level, name)| !CARRIED.iter().any(|row| (row.0, row.1) == (*level, *name)))
}

/// Those that this process has set, but for the descriptor's own.
pub fn all_set() -> impl Iterator<Item = (i32, i32)> {
    let words = LEVELS.iter().zip(&SET).flat_map(|(level, words)| {
        words.iter().enumerate().map(move |(n, word)| (*level, n as i32 * 64, word.load(Relaxed)))
    });
    let all = words.filter(|(_, _, word)| *word != 0).flat_map(|(level, first, word)| {
        (0..64).filter(move |bit| word & 1 << bit != 0).map(move |bit| (level, first + bit))
    });
    all.filter(|(level, name)| !is_of_descriptor(*level, *name))
}

/// What a kernel's socket has, as it is set.
pub fn of_kernel(fd: i32, level: i32, name: i32) -> Option<Value> {
    read(fd, level, name)
}

/// What a service's socket has.
pub fn of_service(service: u32, cookie: u64, level: i32, name: i32) -> Option<Value> {
    let mut value = [0; 16];
    let mut question = Message::new(Op::Get, cookie).number(level).number(name).number(16);
    let told = question.ask(service).ok()?.body.rest();
    let len = told.len().min(16);
    value[..len].copy_from_slice(&told[..len]);
    Some((value, len))
}

/// Calls `set` with what a program has set on a socket, whose options `now` tells, as it is set on another one.
pub fn carry(family: i32, now: impl Fn(i32, i32) -> Option<Value>, mut set: impl FnMut(i32, i32, &[u8])) {
    let new = of_new(family);
    let any = others_set().next().and_then(|_| sock::stream(family, crate::state::floor()).ok());
    let others = any.iter().flat_map(|a_new| {
        others_set().map(|(level, name)| (level, name, Shape::Plain, read(*a_new, level, name)))
    });
    let usual = CARRIED.iter().zip(new).map(|(&(level, name, shape), was)| (level, name, shape, *was));
    for (level, name, shape, was) in usual.chain(others) {
        let now = now(level, name);
        let Some((mut value, len)) = now.filter(|now| was.is_some_and(|was| was != *now)) else { continue };
        if shape == Shape::Doubled {
            let size = i32::from_ne_bytes([value[0], value[1], value[2], value[3]]);
            value[..4].copy_from_slice(&(size / 2).to_ne_bytes());
        }
        let text = value[..len].iter().position(|b| *b == 0).filter(|_| shape == Shape::Text);
        set(level, name, &value[..text.unwrap_or(len)]);
    }
    any.into_iter().for_each(fd::close);
}

/// Sets an option of a service's socket, and keeps it in mind. What the stack does not know, or does not allow, is as if it had never been
/// set: the program was told that it is.
pub fn set(service: u32, cookie: u64, place: &Place) -> impl Fn(i32, i32, &[u8]) {
    move |level, name, value| {
        let question = Message::new(Op::Set, cookie).number(level).number(name);
        if let (Ok(_), Some(recipe)) = (question.octets(value).ask(service), place.get()) {
            recipe.note(level, name, value);
        }
    }
}

/// Whether an option is the descriptor's own: it is about calls, or about the descriptor.
pub fn is_of_descriptor(level: i32, name: i32) -> bool {
    level == libc::SOL_SOCKET && (is_given_on(level, name) || matches!(name, libc::SO_COOKIE | libc::SO_TYPE))
}

/// Whether it is, and accepted connections have what their listener has.
pub fn is_given_on(level: i32, name: i32) -> bool {
    let others = [libc::SO_PEEK_OFF, libc::SO_OOBINLINE];
    is_limit(level, name) || level == libc::SOL_SOCKET && others.contains(&name)
}

/// Whether an option limits what a call waits for.
pub fn is_limit(level: i32, name: i32) -> bool {
    use libc::{SO_RCVLOWAT, SO_RCVTIMEO, SO_SNDTIMEO};
    let limits = [SO_RCVTIMEO, SO_SNDTIMEO, SO_RCVLOWAT, SO_RCVTIMEO_NEW, SO_SNDTIMEO_NEW];
    level == libc::SOL_SOCKET && limits.contains(&name)
}

/// The number under which an option is kept that has two: times of 64 bits are those of the old structure here.
pub fn usual(level: i32, name: i32) -> i32 {
    match name {
        SO_RCVTIMEO_NEW if level == libc::SOL_SOCKET => libc::SO_RCVTIMEO,
        SO_SNDTIMEO_NEW if level == libc::SOL_SOCKET => libc::SO_SNDTIMEO,
        _ => name,
    }
}

/// This process asks for errors of the network one by one, of some socket of datagrams.
static ERRORS: AtomicBool = AtomicBool::new(false);

/// It may do so by this option.
pub fn note_errors(level: i32, name: i32) {
    if matches!(
        (level, name),
        (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
    ) {
        ERRORS.store(true, Relaxed);
    }
}

/// Whether it has.
pub fn are_errors_asked() -> bool {
    ERRORS.load(Relaxed)
}

/// This process has said for a socket who hears of urgent octets.
static OWNED: AtomicBool = AtomicBool::new(false);

/// It says so.
pub fn note_owner() {
    OWNED.store(true, Relaxed);
}

/// A service's socket takes the place of the kernel's: who hears of urgent octets is the same.
pub fn copy_owner(from: i32, to: i32) {
    if OWNED.load(Relaxed) {
        fd::copy_owner(from, to);
    }
}

/// Each limit that differs from a new socket's, and what else is [given on](is_given_on).
pub fn limits(from: i32, mut set: impl FnMut(i32, &[u8])) {
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        if let Some((value, len)) = read(from, libc::SOL_SOCKET, name).filter(|(v, _)| *v != [0; 16]) {
            set(name, &value[..len]);
        }
    }
    if let Ok(least @ 2..) = sock::option(from, libc::SOL_SOCKET, libc::SO_RCVLOWAT) {
        set(libc::SO_RCVLOWAT, &least.to_ne_bytes());
    }
    if sock::option(from, libc::SOL_SOCKET, libc::SO_OOBINLINE) == Ok(1) {
        set(libc::SO_OOBINLINE, &1i32.to_ne_bytes());
    }
    let peek = sock::option(from, libc::SOL_SOCKET, libc::SO_PEEK_OFF).ok();
    if let Some(at) = peek.filter(|at| *at != -1) {
        set(libc::SO_PEEK_OFF, &at.to_ne_bytes());
    }
}

/// Gives a descriptor the limits of another one; whether there were any.
pub fn copy_limits(from: i32, to: i32) -> bool {
    let mut any = false;
    limits(from, |name, value| {
        any = true;
        let _ = sock::set_option(to, libc::SOL_SOCKET, name, value);
    });
    any
}
