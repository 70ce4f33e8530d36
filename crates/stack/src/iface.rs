//! Interfaces: where frames come from and go to, and the addresses that we have there.

use crate::egress::{Burst, Cutting, Outgoing, Waiting};
use crate::group::Groups;
use crate::neighbor::Neighbors;
use crate::prefix::Prefix;
use crate::queue::Queue;
use crate::share::Shares;
use crate::slaac::Autoconf;
use crate::timer::TimerId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bypath_wire::{MacAddr, VlanTag};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An interface of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfaceId(pub(crate) u32);

impl IfaceId {
    /// The loopback interface, which every stack has.
    pub const LOOPBACK: IfaceId = IfaceId(0);

    /// Its number, from 1 on: what stands in a scope (RFC 4007, 6; `sin6_scope_id`).
    pub const fn scope(self) -> u32 {
        self.0 + 1
    }

    /// The interface of a scope; `None` for 0, which is none.
    pub const fn from_scope(scope: u32) -> Option<IfaceId> {
        match scope {
            0 => None,
            scope => Some(IfaceId(scope - 1)),
        }
    }

    pub(crate) const fn at(self) -> usize {
        self.0 as usize
    }
}

/// What frames begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// An Ethernet header; this is our address there.
    Ethernet(MacAddr),
    /// An IP header: there are no addresses beside it, and nobody asks for any.
    Ip,
}

/// What the link does for us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// It completes transport checksums: [`ChecksumState::Partial`](bypath_wire::meta::ChecksumState::Partial).
    pub checksum: bool,
    /// It cuts TCP segments and UDP datagrams: [`FrameMeta::gso`](bypath_wire::FrameMeta::gso). Needs `checksum`.
    pub segmentation: bool,
}

/// How an interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IfaceConfig {
    /// What frames begin with.
    pub medium: Medium,
    /// Octets of an IP packet at most: 68 to 65535 (RFC 791, 3.2); below 1280 it has no IPv6 (RFC 8200, 5).
    pub mtu: usize,
    /// What the link does for us.
    pub offload: Offload,
}

/// What an address may be used for (RFC 4862, 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// Others are still being asked whether it is theirs: for nothing.
    Tentative {
        /// Times that they are still asked.
        left: u8,
    },
    /// For everything.
    Preferred,
    /// For connections that have it.
    Deprecated,
    /// For nothing: somebody else has it.
    Duplicate,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// With the length of its network.
    pub prefix: Prefix,
    /// What it may be used for.
    pub state: AddressState,
    /// Whose it is where it is [`Duplicate`](AddressState::Duplicate), as far as that was told.
    pub holder: Option<MacAddr>,
    /// Which of all addresses that the stack ever had this is: one that was removed and added again is another one.
    pub serial: u64,
    pub(crate) timer: Option<TimerId>,
    /// Whoever wants it more gets it (RFC 5227, 2.4 (b)).
    pub(crate) yields: bool,
    /// When it was last defended, or told to be another one's, too.
    pub(crate) defended: Option<crate::time::Instant>,
}

impl Address {
    pub(crate) const fn new(prefix: Prefix, state: AddressState) -> Address {
        Address { prefix, state, holder: None, serial: 0, timer: None, yields: false, defended: None }
    }

    /// The address alone.
    pub const fn ip(&self) -> IpAddr {
        self.prefix.address()
    }

    /// Whether packets to it are ours.
    pub const fn is_usable(&self) -> bool {
        matches!(self.state, AddressState::Preferred | AddressState::Deprecated)
    }
}

/// An interface that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoIface {
    /// `Config::ifaces`.
    #[error("the stack has {most} interfaces, and no more")]
    Full {
        /// Interfaces at most.
        most: usize,
    },
    /// IPv4 needs 68 octets; no packet has more than 65535.
    #[error("an MTU is from 68 to 65535, and not more than the link's")]
    Mtu,
    /// 0 and 4095 are no VLANs.
    #[error("a VLAN has an identifier from 1 to 4094")]
    Vid,
    /// There is one already.
    #[error("there is an interface for this VLAN already")]
    Exists,
    /// Tags stand in Ethernet frames; on an interface that is none of a VLAN itself.
    #[error("VLANs are on Ethernet interfaces without a VLAN of their own")]
    Medium,
}

/// An address that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoAddress {
    /// `Config::addresses`.
    #[error("the interface has {most} addresses, and no more")]
    Full {
        /// Addresses at most.
        most: usize,
    },
    /// The interface has it.
    #[error("the interface has this address already")]
    Exists,
    /// A group's, everybody's or nobody's, one of loopback on another link, or one of IPv4 mapped into IPv6.
    #[error("not the address of a single host on a link")]
    NotAHost,
    /// The network itself (RFC 1122, 3.2.1.3; of IPv6 the address that every router has, RFC 4291, 2.6.1).
    #[error("not the address of a single host on a link, but the network's; give one of it, such as {host}")]
    Network {
        /// One of its hosts.
        host: Prefix,
    },
    /// Everybody's in the network.
    #[error(
        "not the address of a single host on a link, but everybody's there (broadcast); give one of the network, such as {host}"
    )]
    Broadcast {
        /// One of its hosts.
        host: Prefix,
    },
    /// There is no such interface.
    #[error("there is no such interface")]
    NoIface,
    /// `Config::routes`: there is none left for the address's network.
    #[error("the table holds {most} routes, and no more")]
    Routes {
        /// Routes at most.
        most: usize,
    },
    /// IPv6 where packets of 1280 octets do not fit (RFC 8200, 5).
    #[error("IPv6 needs an MTU of 1280 octets")]
    Mtu,
}

/// An interface, as far as it writes headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub medium: Medium,
    pub vlan: Option<VlanTag>,
    pub mtu: usize,
    pub offload: Offload,
}

#[derive(Debug)]
pub(crate) struct Iface {
    pub shape: Shape,
    /// Whose frames carry its packets: itself, or the one that its VLAN is on.
    pub link: IfaceId,
    /// VLANs on it, by identifier.
    pub vlans: Vec<(u16, IfaceId)>,
    pub addresses: Vec<Address>,
    /// Which addresses say "everybody here", each once: what follows from its usable addresses.
    pub broadcasts: Vec<Ipv4Addr>,
    pub neighbors: Neighbors<Waiting>,
    pub groups: Groups,
    /// To be sent by this link.
    pub queue: Queue<Outgoing>,
    /// Whose octets these are.
    pub queued: Shares,
    /// Connections that have something to say on this link, in the order of their turns.
    pub talkers: VecDeque<u32>,
    /// What one of them has begun to say.
    pub burst: Option<Burst>,
    /// A packet had its turn last.
    pub heard: bool,
    /// Neighbours that answered, and something waits for them.
    pub resolved: VecDeque<(IfaceId, IpAddr)>,
    pub cutting: Cutting,
    pub autoconf: Autoconf,
    /// Octets of an IPv4 packet on this link, as somebody says.
    pub ipv4_mtu: Option<u32>,
    /// Neighbours that did not answer when they were last asked, and were not heard of since: the latest few.
    pub silent: VecDeque<IpAddr>,
}

impl Iface {
    /// Nothing waits for its link.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.is_quiet() && !self.is_talking()
    }

    /// A connection may have something to say.
    #[inline]
    pub fn is_talking(&self) -> bool {
        self.burst.is_some() || !self.talkers.is_empty()
    }

    /// No packet waits for its link; connections may have something to say.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.queue.is_empty() && self.resolved.is_empty() && self.cutting.going.is_none()
    }

    /// Its usable address `ip`.
    pub fn has(&self, ip: IpAddr) -> bool {
        self.addresses.iter().any(|a| a.is_usable() && a.ip() == ip)
    }

    /// Whether others are being asked for `ip`.
    pub fn asks_for(&self, ip: IpAddr) -> bool {
        self.addresses.iter().any(|a| matches!(a.state, AddressState::Tentative { .. }) && a.ip() == ip)
    }

    /// Octets of a packet of IPv6, or of IPv4, on the link: less than the device takes if somebody said so.
    pub fn mtu(&self, v6: bool) -> u32 {
        let said = if v6 { self.autoconf.mtu } else { self.ipv4_mtu };
        said.unwrap_or(u32::MAX).min(self.shape.mtu as u32)
    }

    /// An IPv4 address that only says "everybody here" (RFC 1122, 3.2.1.3).
    pub fn is_broadcast(&self, to: Ipv4Addr) -> bool {
        to.is_broadcast() || self.broadcasts.contains(&to)
    }

    /// Its addresses, or what they may be used for, are others.
    pub fn addresses_changed(&mut self) {
        self.broadcasts.clear();
        self.broadcasts
            .extend(self.addresses.iter().filter(|a| a.is_usable()).filter_map(|a| a.prefix.broadcast()));
        self.broadcasts.sort_unstable();
        self.broadcasts.dedup();
    }

    /// Whether a station with this address is reached without a router.
    pub fn is_on_link(&self, ip: IpAddr) -> bool {
        self.addresses.iter().any(|a| a.is_usable() && a.prefix.contains(ip))
    }

    /// The address with which it asks neighbours: of the asked one's network if there is one.
    pub fn asking_v4(&self, target: Ipv4Addr) -> Option<Ipv4Addr> {
        let v4 = |a: &Address| match a.ip() {
            IpAddr::V4(ip) if a.is_usable() => Some(ip),
            _ => None,
        };
        let near = self.addresses.iter().filter(|a| a.prefix.contains(IpAddr::V4(target))).find_map(v4);
        near.or_else(|| self.addresses.iter().find_map(v4))
    }

    /// The link-local address.
    pub fn link_local(&self) -> Option<Ipv6Addr> {
        self.addresses.iter().find_map(|a| match a.ip() {
            IpAddr::V6(ip) if a.is_usable() && ip.is_unicast_link_local() => Some(ip),
            _ => None,
        })
    }

    pub const fn mac(&self) -> Option<MacAddr> {
        match self.shape.medium {
            Medium::Ethernet(mac) => Some(mac),
            Medium::Ip => None,
        }
    }
}
