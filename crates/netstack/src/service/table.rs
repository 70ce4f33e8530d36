//! Which options there are, and what is done with each. docs/netstack-service.md has the same table, with what differs from the kernel's
//! own sockets; the walk through all of them (crates/cli/tests/netstack_client/options.rs) compares.

pub use super::datagram::options::name as name_of_datagrams;
use What::{Acts, Kept, KeptHere, Refused, Told};

/// What an option is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It acts; `options.rs` says how.
    Acts,
    /// It is told, and can be set to what it is. This errno where the kernel would let it be another.
    Told(i32),
    /// It is kept and told again, and has no effect. The kernel says what can be set (`model.rs`).
    Kept,
    /// The same of a number, at first this one, for which the kernel wants rights that the service has given up.
    KeptHere(i32),
    /// It cannot be asked for: the first; and not be set: the second.
    Refused(i32, i32),
}

impl What {
    /// As the page has it: options that ...
    pub const fn word(self) -> &'static str {
        match self {
            Acts => "act",
            Told(_) => "are told",
            Kept | KeptHere(_) => "are kept, told again, and have no effect",
            Refused(..) => "are refused",
        }
    }
}

const SOL: i32 = libc::SOL_SOCKET;
const TCP: i32 = libc::IPPROTO_TCP;
const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;
const NONE: i32 = libc::ENOPROTOOPT;
const INVAL: i32 = libc::EINVAL;
const PERM: i32 = libc::EPERM;

/// What is done with an option; `None`: there is none.
pub fn find(level: i32, name: i32) -> Option<What> {
    TABLE.iter().find(|row| (row.0, row.1) == (level, name)).map(|row| row.3)
}

/// Every option that is known. Others are ENOPROTOOPT. Numbers are asm-generic/socket.h's and linux/tcp.h, in.h, in6.h's.
#[rustfmt::skip]
pub const TABLE: &[(i32, i32, &str, What)] = &[
    (SOL, 1, "SO_DEBUG", Kept),
    (SOL, 2, "SO_REUSEADDR", Acts),
    (SOL, 3, "SO_TYPE", Told(NONE)),
    (SOL, 4, "SO_ERROR", Told(NONE)),
    (SOL, 5, "SO_DONTROUTE", Kept),
    (SOL, 6, "SO_BROADCAST", Kept),
    (SOL, 7, "SO_SNDBUF", Acts),
    (SOL, 8, "SO_RCVBUF", Acts),
    (SOL, 9, "SO_KEEPALIVE", Acts),
    (SOL, 10, "SO_OOBINLINE", Kept),
    (SOL, 11, "SO_NO_CHECK", Kept),
    (SOL, 12, "SO_PRIORITY", KeptHere(0)),
    (SOL, 13, "SO_LINGER", Acts),
    (SOL, 14, "SO_BSDCOMPAT", Kept),
    (SOL, 15, "SO_REUSEPORT", Acts),
    (SOL, 17, "SO_PEERCRED", Told(NONE)),
    (SOL, 18, "SO_RCVLOWAT", Kept),
    (SOL, 19, "SO_SNDLOWAT", Told(NONE)),
    (SOL, 20, "SO_RCVTIMEO", Kept),
    (SOL, 21, "SO_SNDTIMEO", Kept),
    (SOL, 25, "SO_BINDTODEVICE", Acts),
    (SOL, 26, "SO_ATTACH_FILTER", Refused(NONE, NONE)),
    (SOL, 27, "SO_DETACH_FILTER", Refused(NONE, libc::ENOENT)),
    (SOL, 28, "SO_PEERNAME", Refused(libc::ENOTCONN, NONE)),
    (SOL, 29, "SO_TIMESTAMP", Kept),
    (SOL, 30, "SO_ACCEPTCONN", Told(NONE)),
    (SOL, 32, "SO_SNDBUFFORCE", Refused(NONE, PERM)),
    (SOL, 33, "SO_RCVBUFFORCE", Refused(NONE, PERM)),
    (SOL, 35, "SO_TIMESTAMPNS", Kept),
    (SOL, 36, "SO_MARK", KeptHere(0)),
    (SOL, 37, "SO_TIMESTAMPING", Kept),
    (SOL, 38, "SO_PROTOCOL", Told(NONE)),
    (SOL, 39, "SO_DOMAIN", Told(NONE)),
    (SOL, 40, "SO_RXQ_OVFL", Kept),
    (SOL, 41, "SO_WIFI_STATUS", Kept),
    (SOL, 42, "SO_PEEK_OFF", Kept),
    (SOL, 43, "SO_NOFCS", Kept),
    (SOL, 44, "SO_LOCK_FILTER", Kept),
    (SOL, 45, "SO_SELECT_ERR_QUEUE", Kept),
    (SOL, 46, "SO_BUSY_POLL", Kept),
    (SOL, 47, "SO_MAX_PACING_RATE", Kept),
    (SOL, 48, "SO_BPF_EXTENSIONS", Told(NONE)),
    (SOL, 49, "SO_INCOMING_CPU", Kept),
    (SOL, 50, "SO_ATTACH_BPF", Refused(NONE, INVAL)),
    (SOL, 51, "SO_ATTACH_REUSEPORT_CBPF", Refused(NONE, INVAL)),
    (SOL, 52, "SO_ATTACH_REUSEPORT_EBPF", Refused(NONE, INVAL)),
    (SOL, 53, "SO_CNX_ADVICE", Kept),
    (SOL, 55, "SO_MEMINFO", Told(NONE)),
    (SOL, 56, "SO_INCOMING_NAPI_ID", Told(NONE)),
    (SOL, 57, "SO_COOKIE", Told(NONE)),
    (SOL, 59, "SO_PEERGROUPS", Told(NONE)),
    (SOL, 60, "SO_ZEROCOPY", Told(libc::EOPNOTSUPP)),
    (SOL, 61, "SO_TXTIME", Told(PERM)),
    (SOL, 62, "SO_BINDTOIFINDEX", Acts),
    (SOL, 63, "SO_TIMESTAMP_NEW", Kept),
    (SOL, 64, "SO_TIMESTAMPNS_NEW", Kept),
    (SOL, 65, "SO_TIMESTAMPING_NEW", Kept),
    (SOL, 66, "SO_RCVTIMEO_NEW", Kept),
    (SOL, 67, "SO_SNDTIMEO_NEW", Kept),
    (SOL, 68, "SO_DETACH_REUSEPORT_BPF", Refused(NONE, INVAL)),
    (SOL, 69, "SO_PREFER_BUSY_POLL", Kept),
    (SOL, 70, "SO_BUSY_POLL_BUDGET", Kept),
    (SOL, 71, "SO_NETNS_COOKIE", Told(NONE)),
    (SOL, 72, "SO_BUF_LOCK", Kept),
    (SOL, 73, "SO_RESERVE_MEM", Kept),
    (SOL, 74, "SO_TXREHASH", Kept),
    (SOL, 75, "SO_RCVMARK", KeptHere(0)),
    (SOL, 77, "SO_PEERPIDFD", Told(NONE)),
    (SOL, 80, "SO_DEVMEM_DONTNEED", Refused(NONE, INVAL)),
    (SOL, 82, "SO_RCVPRIORITY", Kept),
    (TCP, 1, "TCP_NODELAY", Acts),
    (TCP, 2, "TCP_MAXSEG", Acts),
    (TCP, 3, "TCP_CORK", Acts),
    (TCP, 4, "TCP_KEEPIDLE", Acts),
    (TCP, 5, "TCP_KEEPINTVL", Acts),
    (TCP, 6, "TCP_KEEPCNT", Acts),
    (TCP, 7, "TCP_SYNCNT", Kept),
    (TCP, 8, "TCP_LINGER2", Kept),
    (TCP, 9, "TCP_DEFER_ACCEPT", Kept),
    (TCP, 10, "TCP_WINDOW_CLAMP", Kept),
    (TCP, 11, "TCP_INFO", Told(NONE)),
    (TCP, 12, "TCP_QUICKACK", Kept),
    (TCP, 13, "TCP_CONGESTION", Acts),
    (TCP, 14, "TCP_MD5SIG", Refused(NONE, INVAL)),
    (TCP, 16, "TCP_THIN_LINEAR_TIMEOUTS", Kept),
    (TCP, 17, "TCP_THIN_DUPACK", Kept),
    (TCP, 18, "TCP_USER_TIMEOUT", Acts),
    (TCP, 19, "TCP_REPAIR", Told(PERM)),
    (TCP, 20, "TCP_REPAIR_QUEUE", Told(PERM)),
    (TCP, 21, "TCP_QUEUE_SEQ", Told(PERM)),
    (TCP, 22, "TCP_REPAIR_OPTIONS", Refused(NONE, INVAL)),
    (TCP, 23, "TCP_FASTOPEN", Kept),
    (TCP, 24, "TCP_TIMESTAMP", Told(PERM)),
    (TCP, 25, "TCP_NOTSENT_LOWAT", Kept),
    (TCP, 26, "TCP_CC_INFO", Told(NONE)),
    (TCP, 27, "TCP_SAVE_SYN", Told(NONE)),
    (TCP, 28, "TCP_SAVED_SYN", Told(NONE)),
    (TCP, 29, "TCP_REPAIR_WINDOW", Told(PERM)),
    (TCP, 30, "TCP_FASTOPEN_CONNECT", Told(libc::EOPNOTSUPP)),
    (TCP, 31, "TCP_ULP", Told(libc::ENOENT)),
    (TCP, 32, "TCP_MD5SIG_EXT", Refused(NONE, INVAL)),
    (TCP, 33, "TCP_FASTOPEN_KEY", Told(NONE)),
    (TCP, 34, "TCP_FASTOPEN_NO_COOKIE", Kept),
    (TCP, 35, "TCP_ZEROCOPY_RECEIVE", Refused(INVAL, NONE)),
    (TCP, 36, "TCP_INQ", Told(NONE)),
    (TCP, 37, "TCP_TX_DELAY", Told(NONE)),
    (TCP, 42, "TCP_AO_REPAIR", Refused(NONE, NONE)),
    (TCP, 43, "TCP_IS_MPTCP", Told(NONE)),
    (TCP, 44, "TCP_RTO_MAX_MS", Told(NONE)),
    (TCP, 45, "TCP_RTO_MIN_US", Told(NONE)),
    (TCP, 46, "TCP_DELACK_MAX_US", Told(NONE)),
    (IP, 1, "IP_TOS", Acts),
    (IP, 2, "IP_TTL", Acts),
    (IP, 3, "IP_HDRINCL", Told(NONE)),
    (IP, 4, "IP_OPTIONS", Told(NONE)),
    (IP, 5, "IP_ROUTER_ALERT", Told(NONE)),
    (IP, 6, "IP_RECVOPTS", Kept),
    (IP, 7, "IP_RETOPTS", Kept),
    (IP, 8, "IP_PKTINFO", Kept),
    (IP, 9, "IP_PKTOPTIONS", Told(NONE)),
    (IP, 10, "IP_MTU_DISCOVER", Kept),
    (IP, 11, "IP_RECVERR", Kept),
    (IP, 12, "IP_RECVTTL", Kept),
    (IP, 13, "IP_RECVTOS", Kept),
    (IP, 14, "IP_MTU", Told(NONE)),
    (IP, 15, "IP_FREEBIND", Kept),
    (IP, 17, "IP_XFRM_POLICY", Refused(NONE, INVAL)),
    (IP, 18, "IP_PASSSEC", Kept),
    (IP, 19, "IP_TRANSPARENT", Told(PERM)),
    (IP, 20, "IP_ORIGDSTADDR", Kept),
    (IP, 21, "IP_MINTTL", Told(NONE)),
    (IP, 22, "IP_NODEFRAG", Told(NONE)),
    (IP, 23, "IP_CHECKSUM", Kept),
    (IP, 24, "IP_BIND_ADDRESS_NO_PORT", Kept),
    (IP, 25, "IP_RECVFRAGSIZE", Kept),
    (IP, 26, "IP_RECVERR_RFC4884", Kept),
    (IP, 32, "IP_MULTICAST_IF", Kept),
    (IP, 33, "IP_MULTICAST_TTL", Kept),
    (IP, 34, "IP_MULTICAST_LOOP", Kept),
    (IP, 35, "IP_ADD_MEMBERSHIP", Refused(NONE, libc::EPROTO)),
    (IP, 36, "IP_DROP_MEMBERSHIP", Refused(NONE, libc::EPROTO)),
    (IP, 37, "IP_UNBLOCK_SOURCE", Refused(NONE, INVAL)),
    (IP, 38, "IP_BLOCK_SOURCE", Refused(NONE, INVAL)),
    (IP, 39, "IP_ADD_SOURCE_MEMBERSHIP", Refused(NONE, INVAL)),
    (IP, 40, "IP_DROP_SOURCE_MEMBERSHIP", Refused(NONE, INVAL)),
    (IP, 41, "IP_MSFILTER", Refused(INVAL, INVAL)),
    (IP, 42, "MCAST_JOIN_GROUP", Refused(NONE, INVAL)),
    (IP, 43, "MCAST_BLOCK_SOURCE", Refused(NONE, INVAL)),
    (IP, 44, "MCAST_UNBLOCK_SOURCE", Refused(NONE, INVAL)),
    (IP, 45, "MCAST_LEAVE_GROUP", Refused(NONE, INVAL)),
    (IP, 46, "MCAST_JOIN_SOURCE_GROUP", Refused(NONE, INVAL)),
    (IP, 47, "MCAST_LEAVE_SOURCE_GROUP", Refused(NONE, INVAL)),
    (IP, 48, "MCAST_MSFILTER", Refused(INVAL, INVAL)),
    (IP, 49, "IP_MULTICAST_ALL", Kept),
    (IP, 50, "IP_UNICAST_IF", Told(libc::EADDRNOTAVAIL)),
    (IP, 51, "IP_LOCAL_PORT_RANGE", Told(NONE)),
    (IP, 52, "IP_PROTOCOL", Told(NONE)),
    (IP, 80, "SO_ORIGINAL_DST", Refused(libc::ENOENT, NONE)),
    (IPV6, 1, "IPV6_ADDRFORM", Refused(NONE, libc::EADDRNOTAVAIL)),
    (IPV6, 2, "IPV6_2292PKTINFO", Kept),
    (IPV6, 3, "IPV6_2292HOPOPTS", Kept),
    (IPV6, 4, "IPV6_2292DSTOPTS", Kept),
    (IPV6, 5, "IPV6_2292RTHDR", Kept),
    (IPV6, 6, "IPV6_2292PKTOPTIONS", Told(NONE)),
    (IPV6, 8, "IPV6_2292HOPLIMIT", Kept),
    (IPV6, 11, "IPV6_FLOWINFO", Kept),
    (IPV6, 16, "IPV6_UNICAST_HOPS", Acts),
    (IPV6, 17, "IPV6_MULTICAST_IF", Told(NONE)),
    (IPV6, 18, "IPV6_MULTICAST_HOPS", Told(NONE)),
    (IPV6, 19, "IPV6_MULTICAST_LOOP", Kept),
    (IPV6, 20, "IPV6_ADD_MEMBERSHIP", Told(libc::EPROTO)),
    (IPV6, 21, "IPV6_DROP_MEMBERSHIP", Told(libc::EPROTO)),
    (IPV6, 22, "IPV6_ROUTER_ALERT", Told(NONE)),
    (IPV6, 23, "IPV6_MTU_DISCOVER", Kept),
    (IPV6, 24, "IPV6_MTU", Told(NONE)),
    (IPV6, 25, "IPV6_RECVERR", Kept),
    (IPV6, 26, "IPV6_V6ONLY", Acts),
    (IPV6, 27, "IPV6_JOIN_ANYCAST", Refused(NONE, libc::EADDRNOTAVAIL)),
    (IPV6, 28, "IPV6_LEAVE_ANYCAST", Refused(NONE, libc::ENOENT)),
    (IPV6, 29, "IPV6_MULTICAST_ALL", Kept),
    (IPV6, 30, "IPV6_ROUTER_ALERT_ISOLATE", Kept),
    (IPV6, 31, "IPV6_RECVERR_RFC4884", Kept),
    (IPV6, 32, "IPV6_FLOWLABEL_MGR", Refused(INVAL, INVAL)),
    (IPV6, 33, "IPV6_FLOWINFO_SEND", Kept),
    (IPV6, 35, "IPV6_XFRM_POLICY", Refused(NONE, INVAL)),
    (IPV6, 42, "IPV6_MCAST_JOIN_GROUP", Refused(NONE, INVAL)),
    (IPV6, 43, "IPV6_MCAST_BLOCK_SOURCE", Refused(NONE, INVAL)),
    (IPV6, 44, "IPV6_MCAST_UNBLOCK_SOURCE", Refused(NONE, INVAL)),
    (IPV6, 45, "IPV6_MCAST_LEAVE_GROUP", Refused(NONE, INVAL)),
    (IPV6, 46, "IPV6_MCAST_JOIN_SOURCE_GROUP", Refused(NONE, INVAL)),
    (IPV6, 47, "IPV6_MCAST_LEAVE_SOURCE_GROUP", Refused(NONE, INVAL)),
    (IPV6, 48, "IPV6_MCAST_MSFILTER", Refused(INVAL, INVAL)),
    (IPV6, 49, "IPV6_RECVPKTINFO", Kept),
    (IPV6, 50, "IPV6_PKTINFO", Refused(NONE, NONE)),
    (IPV6, 51, "IPV6_RECVHOPLIMIT", Kept),
    (IPV6, 53, "IPV6_RECVHOPOPTS", Kept),
    (IPV6, 54, "IPV6_HOPOPTS", Told(PERM)),
    (IPV6, 55, "IPV6_RTHDRDSTOPTS", Told(PERM)),
    (IPV6, 56, "IPV6_RECVRTHDR", Kept),
    (IPV6, 57, "IPV6_RTHDR", Told(PERM)),
    (IPV6, 58, "IPV6_RECVDSTOPTS", Kept),
    (IPV6, 59, "IPV6_DSTOPTS", Told(PERM)),
    (IPV6, 60, "IPV6_RECVPATHMTU", Kept),
    (IPV6, 61, "IPV6_PATHMTU", Told(NONE)),
    (IPV6, 62, "IPV6_DONTFRAG", Kept),
    (IPV6, 66, "IPV6_RECVTCLASS", Kept),
    (IPV6, 67, "IPV6_TCLASS", Acts),
    (IPV6, 70, "IPV6_AUTOFLOWLABEL", Kept),
    (IPV6, 72, "IPV6_ADDR_PREFERENCES", Kept),
    (IPV6, 73, "IPV6_MINHOPCOUNT", Told(NONE)),
    (IPV6, 74, "IPV6_ORIGDSTADDR", Kept),
    (IPV6, 75, "IPV6_TRANSPARENT", Told(PERM)),
    (IPV6, 76, "IPV6_UNICAST_IF", Told(libc::EADDRNOTAVAIL)),
    (IPV6, 77, "IPV6_RECVFRAGSIZE", Kept),
    (IPV6, 78, "IPV6_FREEBIND", Kept),
    (IPV6, 80, "IP6T_SO_ORIGINAL_DST", Refused(libc::ENOENT, NONE)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_option_stands_there_twice() {
        for (n, row) in TABLE.iter().enumerate() {
            assert!(TABLE[..n].iter().all(|other| (other.0, other.1) != (row.0, row.1)), "{}", row.2);
        }
    }

    #[test]
    fn the_page_says_what_is_done_with_each_option() {
        let text = include_str!("../../../../docs/netstack-service.md");
        let row = |head: &str| {
            let row = text.lines().find(|line| line.starts_with(&format!("| {head} |")));
            row.unwrap_or_else(|| panic!("no row {head}"))
        };
        for (_, _, name, what) in TABLE {
            assert!(
                row(what.word()).contains(&format!("`{name}`")),
                "{name} is not in the row: {}",
                what.word()
            );
        }
        let rows = [Acts, Told(0), Kept, Refused(0, 0)].map(|what| row(what.word()).matches('`').count() / 2);
        assert_eq!(rows.iter().sum::<usize>(), TABLE.len());
    }
}
