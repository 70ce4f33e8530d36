//! What a stack may use: every table and every queue has its bound here.

use crate::{ip, neighbor, tcp};
use core::ops::RangeInclusive;

/// Bounds and settings of a stack. Reaching a bound drops or refuses, counts, and goes on.
#[derive(Clone, Debug)]
pub struct Config {
    /// Interfaces at most, the loopback interface included.
    pub ifaces: usize,
    /// Addresses of one interface at most.
    pub addresses: usize,
    /// Routes at most.
    pub routes: usize,
    /// Destinations of which a router said something (a path MTU, a better router), at most.
    pub destinations: usize,
    /// Groups of one interface at most; a user of the stack is in no more of them than he leaves.
    pub groups: usize,
    /// Sockets at most, those of TCP not counted.
    pub sockets: usize,
    /// Neighbours of each interface.
    pub neighbors: neighbor::Config,
    /// Octets of memory of all datagrams that wait for a neighbour's address, 256 more counted for each; a user has no more of them than he leaves.
    pub waiting_octets: usize,
    /// TCP.
    pub tcp: tcp::Config,
    /// Datagrams in the making.
    pub reassembly: ip::reassembly::Config,
    /// Octets of datagrams that one interface has still to send, 64 more counted for each; a user has no more of them than he leaves.
    pub transmit_octets: usize,
    /// Octets of datagrams of one socket that are still to be sent, if it says nothing else.
    pub send_octets: usize,
    /// Octets of datagrams that a socket has not read, if it says nothing else.
    pub receive_octets: usize,
    /// The most that a socket may say.
    pub most_octets: usize,
    /// ICMP errors a second (RFC 1812, 4.3.2.8; RFC 4443, 2.4 f).
    pub icmp_rate: u32,
    /// ICMP errors at once.
    pub icmp_burst: u32,
    /// Routers that a packet may pass, if its socket says nothing else.
    pub hop_limit: u8,
    /// Times that an IPv6 address is asked for before it is used: DupAddrDetectTransmits (RFC 4862, 5.1). 0: it is used at once.
    pub dad_transmits: u8,
    /// Times that an IPv4 address is asked for before it is used, if that is wanted
    /// ([`claim_address`](crate::Stack::claim_address)): PROBE_NUM (RFC 5227, 1.1). 0: it is used at once.
    pub acd_probes: u8,
    /// Ports of sockets that choose none (RFC 6056, 3.2). A user of the stack has no more sockets of UDP that are bound than he leaves of these.
    pub ephemeral: RangeInclusive<u16>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            ifaces: 64,
            addresses: 64,
            routes: 256,
            destinations: 4096,
            groups: 512,
            sockets: 1 << 20,
            neighbors: neighbor::Config::default(),
            waiting_octets: 4 << 20,
            tcp: tcp::Config::default(),
            reassembly: ip::reassembly::Config::default(),
            transmit_octets: 4 << 20,
            // net.core.wmem_default and rmem_default of Linux.
            send_octets: 212_992,
            receive_octets: 212_992,
            most_octets: 64 << 20,
            // net.ipv4.icmp_msgs_per_sec and icmp_msgs_burst of Linux.
            icmp_rate: 1000,
            icmp_burst: 50,
            hop_limit: 64,
            dad_transmits: 1,
            acd_probes: 3,
            // As many as can be (RFC 6056, 3.2), from where Linux begins (net.ipv4.ip_local_port_range).
            ephemeral: 32_768..=65_535,
        }
    }
}
