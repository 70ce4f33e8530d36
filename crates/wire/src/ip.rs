//! What IPv4 and IPv6 share: protocol numbers, the traffic class, a pair of addresses.

use crate::checksum::{Sum, pseudo_v4, pseudo_v6};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a packet carries (IANA, Assigned Internet Protocol Numbers). In IPv6 also which extension header follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: IpProtocol = IpProtocol(0);
    /// ICMP for IPv4.
    pub const ICMP: IpProtocol = IpProtocol(1);
    /// Group management for IPv4.
    pub const IGMP: IpProtocol = IpProtocol(2);
    /// An IPv4 packet.
    pub const IPV4: IpProtocol = IpProtocol(4);
    /// TCP.
    pub const TCP: IpProtocol = IpProtocol(6);
    /// UDP.
    pub const UDP: IpProtocol = IpProtocol(17);
    /// An IPv6 packet.
    pub const IPV6: IpProtocol = IpProtocol(41);
    /// IPv6 routing header.
    pub const ROUTING: IpProtocol = IpProtocol(43);
    /// IPv6 fragment header.
    pub const FRAGMENT: IpProtocol = IpProtocol(44);
    /// Encapsulating security payload.
    pub const ESP: IpProtocol = IpProtocol(50);
    /// Authentication header.
    pub const AUTHENTICATION: IpProtocol = IpProtocol(51);
    /// ICMP for IPv6.
    pub const ICMPV6: IpProtocol = IpProtocol(58);
    /// IPv6: nothing follows.
    pub const NO_NEXT: IpProtocol = IpProtocol(59);
    /// IPv6 destination options.
    pub const DESTINATION_OPTIONS: IpProtocol = IpProtocol(60);

    /// The name, where it is well known.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            IpProtocol::HOP_BY_HOP => "hop-by-hop options",
            IpProtocol::ICMP => "ICMP",
            IpProtocol::IGMP => "IGMP",
            IpProtocol::IPV4 => "IPv4",
            IpProtocol::TCP => "TCP",
            IpProtocol::UDP => "UDP",
            IpProtocol::IPV6 => "IPv6",
            IpProtocol::ROUTING => "routing",
            IpProtocol::FRAGMENT => "fragment",
            IpProtocol::ESP => "ESP",
            IpProtocol::AUTHENTICATION => "AH",
            IpProtocol::ICMPV6 => "ICMPv6",
            IpProtocol::NO_NEXT => "nothing",
            IpProtocol::DESTINATION_OPTIONS => "destination options",
            _ => return None,
        })
    }
}

impl fmt::Display for IpProtocol {
    /// The name, or the number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "protocol {}", self.0),
        }
    }
}

/// IPv4's type of service, IPv6's traffic class: six bits of differentiated services (RFC 2474, 3) and two of
/// congestion notification (RFC 3168, 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TrafficClass(pub u8);

impl TrafficClass {
    /// From its two fields; bits beyond their widths are cut off.
    pub const fn new(dscp: u8, ecn: Ecn) -> TrafficClass {
        TrafficClass(dscp << 2 | ecn as u8)
    }

    /// The differentiated services code point, 0 to 63.
    pub const fn dscp(self) -> u8 {
        self.0 >> 2
    }

    /// Congestion notification.
    pub const fn ecn(self) -> Ecn {
        match self.0 & 3 {
            0 => Ecn::NotCapable,
            1 => Ecn::Capable1,
            2 => Ecn::Capable0,
            _ => Ecn::Experienced,
        }
    }

    /// The same with other bits of congestion notification.
    #[must_use]
    pub const fn with_ecn(self, ecn: Ecn) -> TrafficClass {
        TrafficClass::new(self.dscp(), ecn)
    }
}

/// Explicit congestion notification (RFC 3168, 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not take part.
    #[default]
    NotCapable = 0,
    /// ECT(1).
    Capable1 = 1,
    /// ECT(0).
    Capable0 = 2,
    /// A router on the way was congested.
    Experienced = 3,
}

/// Source and destination of a packet, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// From whom.
        source: Ipv4Addr,
        /// To whom.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// From whom.
        source: Ipv6Addr,
        /// To whom. With a routing header that has segments left: the last one's (RFC 8200, 8.1).
        destination: Ipv6Addr,
    },
}

impl Addresses {
    /// From whom.
    pub const fn source(&self) -> IpAddr {
        match *self {
            Addresses::V4 { source, .. } => IpAddr::V4(source),
            Addresses::V6 { source, .. } => IpAddr::V6(source),
        }
    }

    /// To whom.
    pub const fn destination(&self) -> IpAddr {
        match *self {
            Addresses::V4 { destination, .. } => IpAddr::V4(destination),
            Addresses::V6 { destination, .. } => IpAddr::V6(destination),
        }
    }

    /// The way back.
    pub const fn reversed(&self) -> Addresses {
        match *self {
            Addresses::V4 { source, destination } => {
                Addresses::V4 { source: destination, destination: source }
            }
            Addresses::V6 { source, destination } => {
                Addresses::V6 { source: destination, destination: source }
            }
        }
    }

    /// The sum of the pseudo header over `len` octets of transport header and payload. IPv4's length field has 16
    /// bits, so `len` is taken modulo 2^16 there.
    #[inline]
    pub fn pseudo_header(&self, protocol: IpProtocol, len: usize) -> Sum {
        match *self {
            Addresses::V4 { source, destination } => pseudo_v4(source, destination, protocol.0, len as u16),
            Addresses::V6 { source, destination } => pseudo_v6(source, destination, protocol.0, len as u32),
        }
    }
}

/// The version that a packet says it is: 4, 6 or anything up to 15. None for no octets.
pub const fn version(packet: &[u8]) -> Option<u8> {
    match packet {
        [first, ..] => Some(*first >> 4),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_traffic_class_has_its_bits_where_rfc_2474_and_3168_put_them() {
        let expedited = TrafficClass::new(46, Ecn::Capable0);
        assert_eq!(expedited.0, 0xba);
        for octet in 0..=u8::MAX {
            let class = TrafficClass(octet);
            assert_eq!(TrafficClass::new(class.dscp(), class.ecn()), class);
        }
        assert_eq!(expedited.with_ecn(Ecn::Experienced).0, 0xbb);
    }
}
