//! Networks: an address and how many of its bits count (RFC 4632, 3.1; RFC 4291, 2.3).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address, or a network, and its length in bits: `10.0.0.2/24`, `fe80::/64`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

impl Prefix {
    /// All of IPv4.
    pub const ALL_V4: Prefix = Prefix { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), len: 0 };
    /// All of IPv6.
    pub const ALL_V6: Prefix = Prefix { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), len: 0 };
    /// Addresses of one link (RFC 4291, 2.5.6).
    pub const LINK_LOCAL_V6: Prefix =
        Prefix { address: IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), len: 64 };

    /// `None`: more bits than the address has.
    pub const fn new(address: IpAddr, len: u8) -> Option<Prefix> {
        if len > bits(&address) { None } else { Some(Prefix { address, len }) }
    }

    /// The address alone.
    pub const fn host(address: IpAddr) -> Prefix {
        Prefix { address, len: bits(&address) }
    }

    /// The address as it was given, with the bits behind the network's.
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// Bits that count, 0 to 32 or 128.
    pub const fn len(self) -> u8 {
        self.len
    }

    /// No bit counts: every address of its kind is inside.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The same without the bits behind the network's.
    #[must_use]
    pub const fn network(self) -> Prefix {
        let address = match self.address {
            IpAddr::V4(a) => IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & mask_v4(self.len))),
            IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask_v6(self.len))),
        };
        Prefix { address, len: self.len }
    }

    /// Whether the address, of the same kind, lies in it.
    #[inline]
    pub const fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()) & mask_v4(self.len) == 0,
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()) & mask_v6(self.len) == 0,
            _ => false,
        }
    }

    /// The first address of a host, with the same length; none where the network's own address is one, too: two hosts have no
    /// others to share (RFC 3021).
    pub const fn first_host(self) -> Option<Prefix> {
        if self.len + 2 > bits(&self.address) {
            return None;
        }
        let address = match self.network().address {
            IpAddr::V4(a) => IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() | 1)),
            IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() | 1)),
        };
        Some(Prefix { address, len: self.len })
    }

    /// The address to which everybody in an IPv4 network listens (RFC 919, 7); none where there is no room for one
    /// (RFC 3021) and in IPv6.
    pub const fn broadcast(self) -> Option<Ipv4Addr> {
        match self.address {
            IpAddr::V4(a) if self.len <= 30 => Some(Ipv4Addr::from_bits(a.to_bits() | !mask_v4(self.len))),
            _ => None,
        }
    }
}

const fn bits(address: &IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

const fn mask_v4(len: u8) -> u32 {
    match len {
        0 => 0,
        len => u32::MAX << (32 - len),
    }
}

const fn mask_v6(len: u8) -> u128 {
    match len {
        0 => 0,
        len => u128::MAX << (128 - len),
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Not an address, a slash and a number of bits that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a network: an address and its bits, as 10.0.0.2/24 or fe80::1/64")]
pub struct NotAPrefix;

impl core::str::FromStr for Prefix {
    type Err = NotAPrefix;

    /// An address without a length is a host.
    fn from_str(text: &str) -> Result<Prefix, NotAPrefix> {
        let Some((address, len)) = text.split_once('/') else {
            return text.parse().map(Prefix::host).map_err(|_| NotAPrefix);
        };
        let address = address.parse().map_err(|_| NotAPrefix)?;
        // No sign, and no zero before a number.
        let plain = len.bytes().all(|b| b.is_ascii_digit()) && (len == "0" || !len.starts_with('0'));
        let len = len.parse().ok().filter(|_| plain).ok_or(NotAPrefix)?;
        Prefix::new(address, len).ok_or(NotAPrefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_lies_in_a_network_if_the_first_bits_are_its() {
        for (network, inside, outside) in [
            ("10.1.2.0/24", "10.1.2.255", "10.1.3.0"),
            ("10.1.2.3/32", "10.1.2.3", "10.1.2.2"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::1"),
            ("::/0", "ffff::", "1.2.3.4"),
            ("::1/128", "::1", "::2"),
        ] {
            assert!(prefix(network).contains(inside.parse().unwrap()), "{network}");
            assert!(!prefix(network).contains(outside.parse().unwrap()), "{network}");
        }
    }

    #[test]
    fn text_is_read_as_it_is_written_and_nothing_else_is_read() {
        for text in ["10.0.0.2/24", "0.0.0.0/0", "fe80::1/64", "::/0", "1.2.3.4/32"] {
            assert_eq!(format!("{}", prefix(text)), text);
        }
        assert_eq!(prefix("1.2.3.4"), prefix("1.2.3.4/32"));
        for text in [
            "",
            "/",
            "10.0.0.0/",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/+8",
            "10.0.0.0/08",
            "10.0.0.0/8/9",
            "x/8",
        ] {
            assert_eq!(text.parse::<Prefix>(), Err(NotAPrefix), "{text}");
        }
    }

    #[test]
    fn network_and_broadcast_follow_from_the_length() {
        assert_eq!(prefix("10.1.2.3/20").network(), prefix("10.1.0.0/20"));
        assert_eq!(prefix("2001:db8::5/64").network(), prefix("2001:db8::/64"));
        assert_eq!(prefix("10.1.2.3/20").broadcast(), Some(Ipv4Addr::new(10, 1, 15, 255)));
        assert_eq!(prefix("10.1.2.3/20").first_host(), Some(prefix("10.1.0.1/20")));
        assert_eq!(prefix("fd09::7/64").first_host(), Some(prefix("fd09::1/64")));
        for none in ["10.0.0.0/31", "10.0.0.0/32", "fd09::/127"] {
            assert_eq!(prefix(none).first_host(), None, "{none}");
        }
        assert_eq!([prefix("10.0.0.0/31").broadcast(), prefix("::/64").broadcast()], [None, None]);
    }
}
