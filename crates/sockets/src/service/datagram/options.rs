//! Options of a kernel's socket of datagrams that becomes a service's.

use crate::service::options::all_set;
use bypath_sys::{fd, sock};
use std::sync::OnceLock;

/// Options that a program may have set before. IPv6 ones are those of AF_INET6.
const CARRIED: &[(i32, i32)] = {
    use libc::*;
    &[
        (SOL_SOCKET, SO_REUSEADDR),
        (SOL_SOCKET, SO_REUSEPORT),
        (SOL_SOCKET, SO_BROADCAST),
        (SOL_SOCKET, SO_DONTROUTE),
        (SOL_SOCKET, SO_PRIORITY),
        (SOL_SOCKET, SO_MARK),
        (SOL_SOCKET, SO_SNDBUF),
        (SOL_SOCKET, SO_RCVBUF),
        (SOL_SOCKET, SO_TIMESTAMP),
        (SOL_SOCKET, SO_TIMESTAMPNS),
        (SOL_SOCKET, SO_RXQ_OVFL),
        (SOL_SOCKET, SO_BINDTODEVICE),
        (IPPROTO_UDP, UDP_SEGMENT),
        (IPPROTO_UDP, UDP_GRO),
        (IPPROTO_IP, IP_TOS),
        (IPPROTO_IP, IP_TTL),
        (IPPROTO_IP, IP_PKTINFO),
        (IPPROTO_IP, IP_RECVTTL),
        (IPPROTO_IP, IP_RECVTOS),
        (IPPROTO_IP, IP_RECVERR),
        (IPPROTO_IP, IP_MTU_DISCOVER),
        (IPPROTO_IP, IP_MULTICAST_TTL),
        (IPPROTO_IP, IP_MULTICAST_LOOP),
        (IPPROTO_IP, IP_MULTICAST_IF),
        (IPPROTO_IP, IP_MULTICAST_ALL),
        (IPPROTO_IP, IP_FREEBIND),
        (IPPROTO_IPV6, IPV6_V6ONLY),
        (IPPROTO_IPV6, IPV6_TCLASS),
        (IPPROTO_IPV6, IPV6_UNICAST_HOPS),
        (IPPROTO_IPV6, IPV6_RECVPKTINFO),
        (IPPROTO_IPV6, IPV6_RECVHOPLIMIT),
        (IPPROTO_IPV6, IPV6_RECVTCLASS),
        (IPPROTO_IPV6, IPV6_RECVERR),
        (IPPROTO_IPV6, IPV6_MTU_DISCOVER),
        (IPPROTO_IPV6, IPV6_MULTICAST_HOPS),
        (IPPROTO_IPV6, IPV6_MULTICAST_LOOP),
        (IPPROTO_IPV6, IPV6_MULTICAST_IF),
    ]
};

type Value = ([u8; 16], usize);

fn read(fd: i32, (level, name): (i32, i32)) -> Option<Value> {
    let mut value = [0; 16];
    sock::option_bytes(fd, level, name, &mut value).ok().map(|len| (value, len.min(16)))
}

/// What a new socket of the kernel's has, of AF_INET and of AF_INET6.
static NEW: [OnceLock<[Option<Value>; CARRIED.len()]>; 2] = [const { OnceLock::new() }; 2];

fn of_new(family: i32) -> &'static [Option<Value>; CARRIED.len()] {
    NEW[usize::from(family == libc::AF_INET6)].get_or_init(|| {
        let Ok(new) = sock::datagrams(family, 0, crate::state::floor()) else { return [None; CARRIED.len()] };
        let values = std::array::from_fn(|i| read(new, CARRIED[i]));
        fd::close(new);
        values
    })
}

/// Calls `set` with what a program has set on the kernel's socket, as it is set on a service's one.
pub fn carry(family: i32, kernel: i32, set: impl Fn(i32, i32, &[u8])) {
    let others = || all_set().filter(|option| !CARRIED.contains(option));
    let new = others().next().and_then(|_| sock::datagrams(family, 0, crate::state::floor()).ok());
    let set_here = new.iter().flat_map(|new| others().map(|option| (option, read(*new, option))));
    for (option, was) in CARRIED.iter().copied().zip(of_new(family).iter().copied()).chain(set_here) {
        let (level, name) = option;
        if level == libc::IPPROTO_IPV6 && family == libc::AF_INET {
            continue;
        }
        let Some((mut value, mut len)) = read(kernel, option).filter(|now| Some(*now) != was) else {
            continue;
        };
        if level == libc::SOL_SOCKET && matches!(name, libc::SO_SNDBUF | libc::SO_RCVBUF) {
            // The kernel doubles it.
            let size = i32::from_ne_bytes([value[0], value[1], value[2], value[3]]);
            value[..4].copy_from_slice(&(size / 2).to_ne_bytes());
        }
        if level == libc::SOL_SOCKET && name == libc::SO_BINDTODEVICE {
            len = value[..len].iter().position(|octet| *octet == 0).unwrap_or(len);
        }
        set(level, name, &value[..len]);
    }
    new.into_iter().for_each(fd::close);
}

/// The other way round: what a service's socket has that a new one of the kernel's has not, for which it asks `now`.
pub fn carry_back(family: i32, kernel: i32, now: impl Fn(i32, i32) -> Option<Value>) {
    for (&(level, name), was) in CARRIED.iter().zip(of_new(family)) {
        let is_of_family = level != libc::IPPROTO_IPV6 || family == libc::AF_INET6;
        let Some((mut value, len)) = now(level, name).filter(|now| is_of_family && Some(*now) != *was) else {
            continue;
        };
        if level == libc::SOL_SOCKET && matches!(name, libc::SO_SNDBUF | libc::SO_RCVBUF) {
            let size = i32::from_ne_bytes([value[0], value[1], value[2], value[3]]);
            value[..4].copy_from_slice(&(size / 2).to_ne_bytes());
        }
        let _ = sock::set_option(kernel, level, name, &value[..len]);
    }
}
