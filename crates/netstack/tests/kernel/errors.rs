//! What ICMP says of datagrams: the stack tells its sockets what the kernel tells its own.

use crate::{Config, Offloads, at, host, isolated, kernels, ours};
use bypath_netstack::{Host, UdpSocket};
use bypath_stack::socket::SocketError;
use bypath_wire::{IpProtocol, Ipv4Header, Ipv6Header, icmpv4};
use nix::errno::Errno;
use nix::sys::socket::{
    self, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, getsockopt, sockopt,
};
use std::net::{IpAddr, SocketAddr, UdpSocket as KernelSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Types and codes of errors.
const V4: [(u8, u8); 20] = [
    (3, 0),
    (3, 1),
    (3, 2),
    (3, 3),
    (3, 5),
    (3, 6),
    (3, 7),
    (3, 8),
    (3, 9),
    (3, 10),
    (3, 11),
    (3, 12),
    (3, 13),
    (3, 14),
    (3, 15),
    (3, 16),
    (4, 0),
    (11, 0),
    (11, 1),
    (12, 0),
];
const V6: [(u8, u8); 13] =
    [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (1, 7), (3, 0), (3, 1), (4, 0), (4, 1), (4, 2)];

/// An ICMP error about a datagram.
fn error(kind: (u8, u8), from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let mut message = vec![kind.0, kind.1, 0, 0, 0, 0, 0, 0];
    let mut udp = Vec::new();
    for field in [from.port(), to.port(), 9, 0] {
        udp.extend(field.to_be_bytes());
    }
    udp.push(7);
    let mut header = [0; 60];
    let len = match (from.ip(), to.ip()) {
        (IpAddr::V4(s), IpAddr::V4(d)) => Ipv4Header::new(s, d, IpProtocol::UDP).emit(&mut header, udp.len()),
        (IpAddr::V6(s), IpAddr::V6(d)) => Ipv6Header::new(s, d, IpProtocol::UDP).emit(&mut header, udp.len()),
        _ => panic!("two kinds"),
    };
    message.extend(&header[..len.expect("it fits")]);
    message.extend(udp);
    if from.is_ipv4() {
        icmpv4::fill(&mut message);
    }
    message
}

fn raw(v4: bool) -> OwnedFd {
    let (family, protocol) = if v4 {
        (AddressFamily::Inet, SockProtocol::Icmp)
    } else {
        (AddressFamily::Inet6, SockProtocol::IcmpV6)
    };
    socket::socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).expect("a raw socket")
}

/// Errors that the stack has read.
fn received(host: &Host) -> u64 {
    host.with(|engine| engine.stack().counters().icmp_received)
}

fn told_by_the_stack(
    host: &Host,
    raw: &OwnedFd,
    kind: (u8, u8),
    socket: &UdpSocket,
    to: SocketAddr,
) -> Option<Errno> {
    let from = socket.local_addr().expect("an address");
    let message = error(kind, from, to);
    let before = received(host);
    let there = SockaddrStorage::from(SocketAddr::new(from.ip(), 0));
    socket::sendto(raw.as_raw_fd(), &message, &there, MsgFlags::empty()).expect("sent");
    let end = Instant::now() + Duration::from_secs(20);
    while received(host) == before {
        assert!(Instant::now() < end, "no error came");
        std::thread::yield_now();
    }
    let error = host.with(|engine| engine.stack().udp(socket.id()).expect("a socket").take_error());
    error.map(|error| match error {
        SocketError::PortUnreachable => Errno::ECONNREFUSED,
        SocketError::HostUnreachable => Errno::EHOSTUNREACH,
        SocketError::NetUnreachable => Errno::ENETUNREACH,
        SocketError::ProtocolUnreachable => Errno::ENOPROTOOPT,
        SocketError::Prohibited => Errno::EACCES,
        SocketError::Parameter => Errno::EPROTO,
        other => panic!("{other}"),
    })
}

fn told_by_the_kernel(raw: &OwnedFd, kind: (u8, u8), socket: &KernelSocket, to: SocketAddr) -> Option<Errno> {
    let from = socket.local_addr().expect("an address");
    let message = error(kind, from, to);
    let there = SockaddrStorage::from(SocketAddr::new(from.ip(), 0));
    // To itself: it has been read when the call returns.
    socket::sendto(raw.as_raw_fd(), &message, &there, MsgFlags::empty()).expect("sent");
    let error = getsockopt(socket, sockopt::SocketError).expect("an option");
    // The stack has no words of their own for these.
    let plain = |error| match Errno::from_raw(error) {
        Errno::EHOSTDOWN | Errno::ENONET | Errno::EOPNOTSUPP => Errno::EHOSTUNREACH,
        error => error,
    };
    (error != 0).then(|| plain(error))
}

isolated! {
    fn sockets_are_told_what_the_kernel_tells_its_own() {
        let (host, _) = host(Config::default(), Offloads::ALL);
        for (own, kernel, kinds) in [("10.9.0.2", "10.9.0.1", &V4[..]), ("[fd09::2]", "[fd09::1]", &V6[..])] {
            let raw = raw(at(&format!("{own}:1")).is_ipv4());
            // Somebody whom nobody disturbs.
            let others = kernels(&format!("{kernel}:9"));
            let to = others.local_addr().expect("an address");
            for connected in [true, false] {
                for all in [false, true] {
                    let stacks = ours(&host, &format!("{own}:0"));
                    let kernels = kernels(&format!("{kernel}:0"));
                    stacks.set_options(|options| options.all_errors = all).expect("an option");
                    if all && to.is_ipv4() {
                        socket::setsockopt(&kernels, sockopt::Ipv4RecvErr, &true).expect("an option");
                    } else if all {
                        socket::setsockopt(&kernels, sockopt::Ipv6RecvErr, &true).expect("an option");
                    }
                    if connected {
                        stacks.connect(to).expect("a way");
                        kernels.connect(to).expect("a way");
                    }
                    for kind in kinds {
                        let stack = told_by_the_stack(&host, &raw, *kind, &stacks, to);
                        let kernel = told_by_the_kernel(&raw, *kind, &kernels, to);
                        assert_eq!(stack, kernel, "{kind:?} connected {connected} all {all}");
                    }
                }
            }
        }
    }
}
