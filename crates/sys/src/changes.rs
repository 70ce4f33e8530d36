//! Word of the kernel that the network has changed: links, addresses, routes, rules of routing (rtnetlink(7)).

use crate::syscall::{check, syscall};
use crate::{Errno, Result, fd, sock, turn};

/// A group's bit, by its number (linux/rtnetlink.h: RTNLGRP_*).
const fn group(number: u32) -> u32 {
    1 << (number - 1)
}

/// Most that are taken at once.
const MOST: u32 = 64;

/// LINK; of IPv4 IFADDR, ROUTE and RULE; of IPv6 the same.
const GROUPS: u32 = group(1) | group(5) | group(7) | group(8) | group(9) | group(11) | group(19);

/// Opens a socket above `floor` that is told of all changes in this network namespace from now on. Of more than a few that nobody has read it keeps only
/// that there were some.
///
/// # Errors
/// EMFILE; EPERM under a filter.
pub fn watch(floor: i32) -> Result<i32> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let watch = turn::high(floor, || {
        // SAFETY: integers only.
        check(unsafe {
            syscall(
                libc::SYS_socket,
                [libc::AF_NETLINK as usize, kind as usize, libc::NETLINK_ROUTE as usize, 0, 0, 0],
            )
        })
        .map(|made| made as i32)
    })?;
    let _ = sock::set_option(watch, libc::SOL_SOCKET, libc::SO_RCVBUF, &1i32.to_ne_bytes());
    // struct sockaddr_nl: family, padding, port (the kernel chooses one), groups.
    let mut address = [0u8; 12];
    address[..2].copy_from_slice(&(libc::AF_NETLINK as u16).to_ne_bytes());
    address[8..].copy_from_slice(&GROUPS.to_ne_bytes());
    let arguments = [watch as usize, address.as_ptr() as usize, address.len(), 0, 0, 0];
    // SAFETY: the kernel reads the address.
    check(unsafe { syscall(libc::SYS_bind, arguments) }).inspect_err(|_| fd::close(watch))?;
    Ok(watch)
}

/// Whether anything has changed since this was asked last.
pub fn any(watch: i32) -> bool {
    let mut any = false;
    for _ in 0..MOST {
        match sock::take_record(watch) {
            // The latter: more than there was room for.
            Ok(()) | Err(Errno::NOBUFS) => any = true,
            Err(Errno::AGAIN) => return any,
            Err(Errno::INTR) => {}
            // Nothing is known.
            Err(_) => return true,
        }
    }
    true
}

/// The MTU of the loopback device of the namespace of this socket; `None` where it is not up, which loses what is sent there.
pub fn loopback_mtu(socket: i32) -> Option<u32> {
    // struct ifreq: a name of 16 octets, then what is asked for.
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"lo");
    let mut ask = |what: libc::Ioctl| {
        let arguments = [socket as usize, what as usize, request.as_mut_ptr() as usize, 0, 0, 0];
        // SAFETY: the kernel reads and writes an ifreq, which is as long.
        check(unsafe { syscall(libc::SYS_ioctl, arguments) }).ok()?;
        Some([request[16], request[17], request[18], request[19]])
    };
    let [low, high, ..] = ask(libc::SIOCGIFFLAGS)?;
    let is_up = i32::from(i16::from_ne_bytes([low, high])) & libc::IFF_UP != 0;
    if is_up { ask(libc::SIOCGIFMTU).map(u32::from_ne_bytes) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_changes_by_itself_and_the_loopback_is_up() {
        let Ok(watch) = watch(3) else { return };
        any(watch);
        let socket = sock::datagrams(libc::AF_INET, 0, 3).unwrap();
        assert!(loopback_mtu(socket).is_some_and(|mtu| mtu >= 68));
        assert_eq!(loopback_mtu(-1), None);
        assert!(any(-1), "of what cannot be asked nothing is known");
        [watch, socket].into_iter().for_each(fd::close);
    }
}
