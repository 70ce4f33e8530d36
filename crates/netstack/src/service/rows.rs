//! What is asked of a service beside its sockets, and what its answers mean. Each is JSON; docs/netstack-service.md says the same in a table.

use crate::{Filter, Ping};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// What a service does beside telling of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum Question {
    /// Echo requests from its stack.
    Ping(Ping),
    /// Frames of its links.
    Capture {
        /// Of this one; `None`: of all.
        #[serde(default)]
        interface: Option<String>,
        /// So many at most.
        #[serde(default)]
        count: Option<u64>,
        /// Octets of each that are written at most; 0 or none: all.
        #[serde(default)]
        snap: Option<usize>,
        /// Which.
        #[serde(default)]
        filter: Filter,
    },
    /// Something is to be otherwise.
    Change(Change),
}

/// A change of addresses, routes, neighbours. Without an interface it is of the first link, or where something is taken away, of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Change {
    /// One more address.
    AddAddress {
        /// With its network's prefix, such as `10.9.0.3/24`.
        address: String,
        /// Of this interface.
        #[serde(default)]
        interface: Option<String>,
        /// Others are asked first whether they have it, which takes IPv4 4 to 7 seconds, and IPv6, which always asks, one. It is waited for
        /// what they say; if it is theirs, it is not ours.
        #[serde(default)]
        claim: bool,
    },
    /// One address fewer. Connections from it end.
    RemoveAddress {
        /// Which.
        address: IpAddr,
        /// Of this interface; `None`: of the first link.
        #[serde(default)]
        interface: Option<String>,
    },
    /// One more route.
    AddRoute {
        /// A network, such as `10.0.0.0/8`, or `default`.
        to: String,
        /// By this router; `None`: it is on the link.
        #[serde(default)]
        via: Option<IpAddr>,
        /// Through this interface.
        #[serde(default)]
        interface: Option<String>,
        /// Of several the smallest is taken.
        #[serde(default)]
        metric: u32,
    },
    /// Routes fewer: those that are as is said.
    RemoveRoute {
        /// A network, or `default`.
        to: String,
        /// By this router.
        #[serde(default)]
        via: Option<IpAddr>,
        /// Through this interface.
        #[serde(default)]
        interface: Option<String>,
    },
    /// Hardware addresses are forgotten, and asked for again.
    FlushNeighbors {
        /// Whose; `None`: all.
        #[serde(default)]
        address: Option<IpAddr>,
        /// Of this interface.
        #[serde(default)]
        interface: Option<String>,
    },
}

/// The service itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct ServiceRow {
    /// Programs find it by this name.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Its network namespace: the inode of /proc/PID/ns/net.
    #[serde(default)]
    pub namespace: Option<u64>,
    /// Of the protocol.
    pub version: u32,
    /// Open sockets.
    pub sockets: u64,
    /// Connections for questions, one for each process that uses it, and this one.
    pub processes: u64,
    /// Sockets of one user at most.
    pub sockets_per_user: u64,
    /// Octets of one user that wait in the stack at most.
    pub octets_per_user: u64,
}

/// A socket.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct SocketRow {
    /// Its name: 16 hexadecimal digits.
    pub cookie: String,
    /// The user whose it is.
    pub uid: u32,
    /// `tcp`, `udp` or `ping`.
    pub protocol: String,
    /// `ipv4` or `ipv6`.
    pub domain: String,
    /// As RFC 9293 has it, such as `Established`; `Listen`, `Closed`.
    pub state: String,
    /// Its own address.
    #[serde(default)]
    pub local: Option<SocketAddr>,
    /// The other end's.
    #[serde(default)]
    pub remote: Option<SocketAddr>,
    /// How octets come from the program: `ring`, or `pair`, the descriptor itself.
    #[serde(default)]
    pub from_program: Option<String>,
    /// How they go to it.
    #[serde(default)]
    pub to_program: Option<String>,
    /// Octets that the program has not read.
    #[serde(default)]
    pub unread: Option<u64>,
    /// Octets that were sent and not acknowledged. With `unsent`, they are what the kernel's `ss` has as Send-Q.
    #[serde(default)]
    pub unacknowledged: Option<u64>,
    /// Octets that were not sent yet.
    #[serde(default)]
    pub unsent: Option<u64>,
    /// Of datagrams: those that were lost here.
    #[serde(default)]
    pub dropped: Option<u64>,
    /// Smoothed round-trip time (us).
    #[serde(default)]
    pub srtt_us: Option<u64>,
    /// Congestion window (octets).
    #[serde(default)]
    pub cwnd: Option<u64>,
    /// Octets of a segment at most.
    #[serde(default)]
    pub mss: Option<u64>,
    /// Octets that came in order.
    #[serde(default)]
    pub octets_received: Option<u64>,
    /// Octets that the other end has acknowledged.
    #[serde(default)]
    pub octets_acknowledged: Option<u64>,
    /// Octets that were sent more than once.
    #[serde(default)]
    pub octets_again: Option<u64>,
}

/// A counter.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct CounterRow {
    /// The layer, and what was counted; with `_drop_` in it and a reason: what ended there.
    pub name: String,
    /// How much.
    pub value: u64,
    /// `total`: since the service began; `now`: it goes up and down.
    pub kind: String,
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct AddressRow {
    /// Of which interface.
    pub interface: String,
    /// With its network's prefix.
    pub address: String,
    /// `tentative`: others are still asked; `preferred`; `deprecated`: for connections that are open; `duplicate`: another host's.
    pub state: String,
    /// Whose it is where it is `duplicate`: a hardware address, if it was told.
    #[serde(default)]
    pub holder: Option<String>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct RouteRow {
    /// Which network; `0.0.0.0/0` and `::/0`: all others.
    pub destination: String,
    /// By this router; `None`: it is on the link.
    pub via: Option<IpAddr>,
    /// Through which interface.
    pub interface: String,
    /// Of several the smallest is taken.
    pub metric: u32,
    /// From this address.
    pub source: Option<IpAddr>,
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct NeighborRow {
    /// On which interface.
    pub interface: String,
    /// Its address.
    pub address: IpAddr,
    /// Its hardware address; `None`: it is still asked for.
    pub mac: Option<String>,
    /// As RFC 4861, 7.3.2 has it, such as `reachable`.
    pub state: String,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct LinkRow {
    /// Its name.
    pub interface: String,
    /// Its number in the stack.
    pub index: u32,
    /// Its hardware address; `None`: it has none.
    #[serde(default)]
    pub mac: Option<String>,
    /// Octets of a packet at most.
    pub mtu: Option<u64>,
    /// Its interface has gone.
    pub gone: bool,
    /// Frames that came.
    pub received: u64,
    /// Their octets.
    pub received_octets: u64,
    /// Frames that the link had no room for.
    pub dropped: u64,
    /// Frames longer than any room.
    pub cut: u64,
    /// Frames that were taken to be sent.
    pub sent: u64,
    /// Their octets.
    pub sent_octets: u64,
    /// Taken, and not sent after all.
    pub refused: u64,
}
