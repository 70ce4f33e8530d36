//! Which options of a UDP socket go together with a mailbox. What is not known to is a reason to stay on the kernel.

use super::told::{TIMESTAMP_NEW, TIMESTAMPNS_NEW};
use bypath_shm::reason::Reason;
use bypath_sys::sock;
use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_SOCKET};

/// What the program set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that is received is another one by it, nor are roads.
    None,
    /// How much may wait to be read.
    Room,
    /// How long a datagram may be that the kernel sends.
    Length,
    /// What is told beside a datagram.
    Tells,
    /// If it is on, others may get what is meant for this socket.
    Shares,
    /// Who of those that share a port gets what is the program's choice.
    Steers,
    /// The socket stays on the kernel.
    Stays(Reason),
}

/// Options of sockets (asm-generic/socket.h) that say nothing about datagrams between two programs of one host: limits of time, priorities,
/// what TCP has.
const OF_SOCKETS: &[i32] = {
    use libc::*;
    &[
        SO_DEBUG,
        SO_DONTROUTE,
        SO_BROADCAST,
        SO_SNDBUF,
        SO_KEEPALIVE,
        SO_OOBINLINE,
        SO_NO_CHECK,
        SO_PRIORITY,
        SO_LINGER,
        SO_RCVLOWAT,
        SO_SNDLOWAT,
        SO_RCVTIMEO,
        SO_SNDTIMEO,
        SO_SNDBUFFORCE,
        SO_BUSY_POLL,
        66, // SO_RCVTIMEO_NEW
        67, // SO_SNDTIMEO_NEW
        69, // SO_PREFER_BUSY_POLL
        70, // SO_BUSY_POLL_BUDGET
    ]
};

/// Options of IP (linux/in.h): what stands in headers that nobody here looks at, groups, and how groups are sent to.
const OF_IP: &[i32] = {
    use libc::*;
    &[
        IP_TOS,
        IP_TTL,
        IP_FREEBIND,
        IP_MULTICAST_IF,
        IP_MULTICAST_TTL,
        IP_MULTICAST_LOOP,
        IP_ADD_MEMBERSHIP,
        IP_DROP_MEMBERSHIP,
        IP_UNBLOCK_SOURCE,
        IP_BLOCK_SOURCE,
        IP_ADD_SOURCE_MEMBERSHIP,
        IP_DROP_SOURCE_MEMBERSHIP,
        41,
        42,
        43,
        44,
        45,
        46,
        47,
        48,
        49,
        24, // IP_BIND_ADDRESS_NO_PORT
    ]
};

/// The same of IPv6 (linux/in6.h).
const OF_IPV6: &[i32] = {
    use libc::*;
    &[
        IPV6_UNICAST_HOPS,
        IPV6_MULTICAST_IF,
        IPV6_MULTICAST_HOPS,
        IPV6_MULTICAST_LOOP,
        IPV6_ADD_MEMBERSHIP,
        IPV6_DROP_MEMBERSHIP,
        IPV6_V6ONLY,
        IPV6_TCLASS,
        42,
        43,
        44,
        45,
        46,
        47,
        48,
        29, // IPV6_MULTICAST_ALL
        70, // IPV6_AUTOFLOWLABEL
    ]
};

/// What an option does.
pub fn effect(level: i32, name: i32) -> Effect {
    let (known, name) = match level {
        SOL_SOCKET => match name {
            libc::SO_RCVBUF | libc::SO_RCVBUFFORCE => return Effect::Room,
            libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS | TIMESTAMP_NEW | TIMESTAMPNS_NEW => {
                return Effect::Tells;
            }
            libc::SO_REUSEADDR | libc::SO_REUSEPORT => return Effect::Shares,
            libc::SO_INCOMING_CPU | libc::SO_ATTACH_REUSEPORT_CBPF | libc::SO_ATTACH_REUSEPORT_EBPF => {
                return Effect::Steers;
            }
            libc::SO_BINDTODEVICE | 62 => return Effect::Stays(Reason::BoundDevice),
            other => (OF_SOCKETS, other),
        },
        IPPROTO_IP if name == libc::IP_PKTINFO => return Effect::Tells,
        IPPROTO_IPV6 if name == libc::IPV6_RECVPKTINFO => return Effect::Tells,
        IPPROTO_IP if name == libc::IP_MTU_DISCOVER => return Effect::Length,
        IPPROTO_IPV6 if matches!(name, libc::IPV6_MTU_DISCOVER | libc::IPV6_DONTFRAG) => {
            return Effect::Length;
        }
        IPPROTO_IP => (OF_IP, name),
        IPPROTO_IPV6 => (OF_IPV6, name),
        _ => (&[][..], name),
    };
    if known.contains(&name) { Effect::None } else { Effect::Stays(Reason::SocketOption) }
}

/// Whether the kernel refuses to send in pieces, or asks nobody whether it has to, what is longer than a packet may be.
pub fn refuses_pieces(fd: i32) -> bool {
    // linux/in.h: 0 never, 1 where it has to. Others are: do not, whatever others say; the interface's.
    let refuses = |level, name| sock::option(fd, level, name).is_ok_and(|how| how > libc::IP_PMTUDISC_WANT);
    refuses(IPPROTO_IP, libc::IP_MTU_DISCOVER)
        || refuses(IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER)
        || sock::option(fd, IPPROTO_IPV6, libc::IPV6_DONTFRAG).is_ok_and(|on| on != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_stays_on_the_kernel() {
        assert_eq!(effect(SOL_SOCKET, libc::SO_RCVTIMEO), Effect::None);
        assert_eq!(effect(SOL_SOCKET, libc::SO_RCVBUF), Effect::Room);
        assert_eq!(effect(IPPROTO_IP, libc::IP_MTU_DISCOVER), Effect::Length);
        assert_eq!(effect(IPPROTO_IPV6, libc::IPV6_DONTFRAG), Effect::Length);
        assert_eq!(effect(SOL_SOCKET, libc::SO_REUSEPORT), Effect::Shares);
        assert_eq!(effect(SOL_SOCKET, libc::SO_INCOMING_CPU), Effect::Steers);
        for (level, name) in [
            (SOL_SOCKET, libc::SO_TIMESTAMP),
            (SOL_SOCKET, TIMESTAMPNS_NEW),
            (IPPROTO_IP, libc::IP_PKTINFO),
            (IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        ] {
            assert_eq!(effect(level, name), Effect::Tells, "{level} {name}");
        }
        for (level, name) in [
            (SOL_SOCKET, libc::SO_ATTACH_FILTER),
            (SOL_SOCKET, libc::SO_RXQ_OVFL),
            (SOL_SOCKET, libc::SO_MARK),
            (SOL_SOCKET, libc::SO_TIMESTAMPING),
            (IPPROTO_IP, libc::IP_RECVERR),
            (IPPROTO_IP, libc::IP_RECVTTL),
            (IPPROTO_IPV6, libc::IPV6_PKTINFO),
            (IPPROTO_IPV6, libc::IPV6_2292PKTINFO),
            (IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
            (libc::IPPROTO_UDP, libc::UDP_SEGMENT),
            (libc::IPPROTO_UDP, libc::UDP_GRO),
            (12345, 1),
        ] {
            assert_eq!(effect(level, name), Effect::Stays(Reason::SocketOption), "{level} {name}");
        }
    }
}
