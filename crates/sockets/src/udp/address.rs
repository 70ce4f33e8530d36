//! Names of UDP sockets: an address, IPv4 as IPv6 maps it, and a port.

use bypath_sys::sock::Address;
use std::net::{IpAddr, Ipv6Addr};

/// Octets of a socket address at most (`struct sockaddr_in6`).
pub const LONGEST: usize = 28;
const V4: usize = 16;
/// `struct sockaddr_in6` without its scope, as old programs pass it.
const V6_SHORT: usize = 24;
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// Address and port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Name {
    /// The address's octets, in the order of memory.
    pub ip: [u64; 2],
    /// Host byte order.
    pub port: u16,
}

impl Name {
    /// Of sixteen octets in network order.
    pub fn new(octets: [u8; 16], port: u16) -> Name {
        let [a, b]: [[u8; 8]; 2] = halves(octets);
        Name { ip: [u64::from_ne_bytes(a), u64::from_ne_bytes(b)], port }
    }

    /// Of a socket address that a program passes to a socket of `family`; `None`: the kernel is to judge. The unspecified
    /// address means this host.
    #[inline]
    pub fn parse(raw: &[u8], family: i32) -> Option<Name> {
        let given = i32::from(u16::from_ne_bytes([*raw.first()?, *raw.get(1)?]));
        if given != family {
            return None;
        }
        let port = u16::from_be_bytes([*raw.get(2)?, *raw.get(3)?]);
        let mut octets = [0; 16];
        if family == libc::AF_INET && raw.len() >= V4 {
            octets[..12].copy_from_slice(&MAPPED);
            octets[12..].copy_from_slice(&raw[4..8]);
            if octets[12..] == [0; 4] {
                octets[12..].copy_from_slice(&[127, 0, 0, 1]);
            }
        } else if family == libc::AF_INET6 && raw.len() >= V6_SHORT {
            octets.copy_from_slice(&raw[8..24]);
            if octets == [0; 16] {
                octets[15] = 1;
            }
        } else {
            return None;
        }
        Some(Name::new(octets, port))
    }

    /// Of what getsockname or getpeername told.
    pub fn of(address: &Address) -> Name {
        let mut octets = address.bytes;
        if i32::from(address.family) == libc::AF_INET {
            octets[..12].copy_from_slice(&MAPPED);
            octets[12..].copy_from_slice(&address.bytes[..4]);
        }
        Name::new(octets, address.port)
    }

    /// Its octets in network order.
    pub fn octets(&self) -> [u8; 16] {
        let mut octets = [0; 16];
        octets[..8].copy_from_slice(&self.ip[0].to_ne_bytes());
        octets[8..].copy_from_slice(&self.ip[1].to_ne_bytes());
        octets
    }

    /// The address, IPv4 as such.
    pub fn address(&self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from(self.octets())).to_canonical()
    }

    /// Whether it is of IPv4.
    pub fn is_v4(&self) -> bool {
        self.octets()[..12] == MAPPED
    }

    /// Whether it stands for every address.
    pub fn is_unspecified(&self) -> bool {
        self.address().is_unspecified()
    }

    /// In the form of sock_diag, getsockname and the view: IPv4 in the first four octets.
    pub fn to_address(self) -> Address {
        let octets = self.octets();
        let mut bytes = [0; 16];
        let family = if self.is_v4() {
            bytes[..4].copy_from_slice(&octets[12..]);
            libc::AF_INET
        } else {
            bytes = octets;
            libc::AF_INET6
        };
        Address { family: family as u16, port: self.port, bytes, scope: 0 }
    }

    /// As a socket of `family` tells it: how many octets.
    #[inline]
    pub fn emit(&self, family: i32, to: &mut [u8; LONGEST]) -> usize {
        let octets = self.octets();
        *to = [0; LONGEST];
        to[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        to[2..4].copy_from_slice(&self.port.to_be_bytes());
        if family == libc::AF_INET {
            to[4..8].copy_from_slice(&octets[12..]);
            V4
        } else {
            to[8..24].copy_from_slice(&octets);
            LONGEST
        }
    }

    /// A number for it, never 0.
    pub fn hash(&self) -> u64 {
        let mixed = self.ip[0].rotate_left(17) ^ self.ip[1] ^ u64::from(self.port) << 40;
        mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
    }
}

fn halves(octets: [u8; 16]) -> [[u8; 8]; 2] {
    let (mut a, mut b) = ([0; 8], [0; 8]);
    a.copy_from_slice(&octets[..8]);
    b.copy_from_slice(&octets[8..]);
    [a, b]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Vec<u8> {
        let address: std::net::SocketAddr = text.parse().unwrap();
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let mut raw = vec![0; if address.is_ipv4() { 16 } else { 28 }];
        raw[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        raw[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address.ip() {
            IpAddr::V4(v4) => raw[4..8].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => raw[8..24].copy_from_slice(&v6.octets()),
        }
        raw
    }

    #[test]
    fn what_a_program_passes_comes_out_as_the_kernel_tells_it() {
        for (text, family) in [
            ("127.0.0.1:7", libc::AF_INET),
            ("[::1]:65535", libc::AF_INET6),
            ("[::ffff:1.2.3.4]:9", libc::AF_INET6),
        ] {
            let given = raw(text);
            let name = Name::parse(&given, family).unwrap();
            let mut out = [0; LONGEST];
            let len = name.emit(family, &mut out);
            assert_eq!(&out[..len], &given[..], "{text}");
        }
        let mapped = Name::parse(&raw("[::ffff:1.2.3.4]:9"), libc::AF_INET6).unwrap();
        assert_eq!(mapped, Name::parse(&raw("1.2.3.4:9"), libc::AF_INET).unwrap());
        assert_eq!(mapped.to_address().family, libc::AF_INET as u16);
    }

    #[test]
    fn everybody_here_is_this_host() {
        let v4 = Name::parse(&raw("0.0.0.0:7"), libc::AF_INET).unwrap();
        assert_eq!(v4.address(), "127.0.0.1".parse::<IpAddr>().unwrap());
        let v6 = Name::parse(&raw("[::]:7"), libc::AF_INET6).unwrap();
        assert_eq!(v6.address(), "::1".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn what_the_kernel_has_to_judge_is_no_name() {
        let v4 = raw("127.0.0.1:7");
        for (given, family) in [
            (&v4[..15], libc::AF_INET),
            (&v4[..], libc::AF_INET6),
            (&v4[..1], libc::AF_INET),
            (&[][..], libc::AF_INET),
            (&raw("[::1]:7")[..23], libc::AF_INET6),
            (&[0; 16][..], libc::AF_INET),
        ] {
            assert_eq!(Name::parse(given, family), None);
        }
    }
}
