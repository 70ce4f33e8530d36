//! Options, as the kernel's sockets tell them.

use crate::{Running, at, isolated, kernels};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::os::fd::AsRawFd;

const SOL: i32 = libc::SOL_SOCKET;
const TCP: i32 = libc::IPPROTO_TCP;

/// Set, or only asked for; every one is told as the kernel tells it.
const SAME: &[(i32, i32, Option<i32>)] = &[
    (SOL, libc::SO_TYPE, None),
    (SOL, libc::SO_DOMAIN, None),
    (SOL, libc::SO_PROTOCOL, None),
    (SOL, libc::SO_ACCEPTCONN, None),
    (SOL, libc::SO_ERROR, None),
    (SOL, libc::SO_LINGER, None),
    (SOL, libc::SO_SNDBUF, None),
    (SOL, libc::SO_RCVLOWAT, None),
    (SOL, libc::SO_RCVTIMEO, None),
    (SOL, libc::SO_TYPE, Some(1)),
    (SOL, libc::SO_ERROR, Some(1)),
    (SOL, libc::SO_REUSEADDR, Some(1)),
    (SOL, libc::SO_REUSEPORT, Some(1)),
    (SOL, libc::SO_KEEPALIVE, Some(1)),
    (SOL, libc::SO_SNDBUF, Some(50_000)),
    (SOL, libc::SO_SNDBUF, Some(1)),
    (SOL, libc::SO_RCVBUF, Some(50_000)),
    (SOL, libc::SO_RCVBUF, Some(1)),
    (SOL, libc::SO_PRIORITY, Some(3)),
    (SOL, libc::SO_OOBINLINE, Some(1)),
    (TCP, libc::TCP_NODELAY, Some(1)),
    (TCP, libc::TCP_CORK, Some(1)),
    (TCP, libc::TCP_MAXSEG, None),
    (TCP, libc::TCP_MAXSEG, Some(1000)),
    (TCP, libc::TCP_MAXSEG, Some(10)),
    (TCP, libc::TCP_KEEPIDLE, None),
    (TCP, libc::TCP_KEEPINTVL, None),
    (TCP, libc::TCP_KEEPCNT, None),
    (TCP, libc::TCP_KEEPIDLE, Some(30)),
    (TCP, libc::TCP_KEEPINTVL, Some(0)),
    (TCP, libc::TCP_KEEPCNT, Some(128)),
    (TCP, libc::TCP_USER_TIMEOUT, Some(3000)),
    (TCP, libc::TCP_USER_TIMEOUT, Some(-1)),
    (TCP, libc::TCP_SYNCNT, Some(3)),
    (TCP, libc::TCP_INFO, Some(1)),
    (libc::IPPROTO_IP, libc::IP_TOS, Some(0x10)),
    (libc::IPPROTO_IP, libc::IP_TTL, None),
    (libc::IPPROTO_IP, libc::IP_TTL, Some(3)),
    (libc::IPPROTO_IP, libc::IP_TTL, Some(0)),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, None),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, Some(1)),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, Some(256)),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, Some(8)),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, None),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, Some(9)),
    (TCP, 9999, None),
    (TCP, 9999, Some(1)),
    (9999, 1, None),
];

isolated! {
    fn options_are_set_and_told_as_the_kernel_does() {
        let running = Running::new();
        let program = running.program();
        for v6 in [false, true] {
            for (level, name, value) in SAME {
                let own = program.open(v6).expect("a socket");
                let family = if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
                let kernel = socket(family, SockType::Stream, SockFlag::empty(), None).expect("a socket");
                let mut expected = 0;
                if let Some(value) = value {
                    let octets = value.to_ne_bytes();
                    let set = bypath_sys::sock::set_option(kernel.as_raw_fd(), *level, *name, &octets);
                    expected = set.err().map_or(0, |e| e.raw_os_error());
                    assert_eq!(own.set(*level, *name, &octets), expected, "{v6} {level} {name} {value:?}");
                }
                let mut room = [0; 128];
                let told = bypath_sys::sock::option_bytes(kernel.as_raw_fd(), *level, *name, &mut room);
                let told = told.map(|len| room[..len].to_vec()).map_err(|e| e.raw_os_error());
                // TCP_INFO is longer in the kernel, and knows more.
                if (*level, *name) != (TCP, libc::TCP_INFO) {
                    assert_eq!(own.get(*level, *name), told, "{v6} {level} {name} {value:?} {expected}");
                }
            }
        }
    }
}

isolated! {
    fn what_a_listener_wants_its_connections_want() {
        let running = Running::new();
        let program = running.program();
        let (listener, to) = program.listener(at("10.9.0.2:0"));
        assert_eq!(listener.set(TCP, libc::TCP_NODELAY, &1i32.to_ne_bytes()), 0);
        assert_eq!(listener.set(SOL, libc::SO_KEEPALIVE, &1i32.to_ne_bytes()), 0);
        assert_eq!(listener.get(SOL, libc::SO_ACCEPTCONN), Ok(1i32.to_ne_bytes().to_vec()));
        let _kernel = std::net::TcpStream::connect(to).expect("a connection");
        let (own, _) = listener.accept();
        assert_eq!(own.get(TCP, libc::TCP_NODELAY), Ok(1i32.to_ne_bytes().to_vec()));
        assert_eq!(own.get(SOL, libc::SO_KEEPALIVE), Ok(1i32.to_ne_bytes().to_vec()));
        let info = own.get(TCP, libc::TCP_INFO).expect("numbers");
        assert_eq!((info[0], info.len()), (1, 104));
    }
}

isolated! {
    fn a_link_by_its_name() {
        let running = Running::new();
        let program = running.program();
        let (listener, to) = kernels("10.9.0.1:0");
        let own = program.open(false).expect("a socket");
        assert_eq!(own.set(SOL, libc::SO_BINDTODEVICE, b"nobody\0"), libc::ENODEV);
        assert_eq!(own.set(SOL, libc::SO_BINDTODEVICE, b"mine\0"), 0);
        assert_eq!(own.connect(to), 0);
        drop(listener.accept().expect("a connection"));
    }
}
