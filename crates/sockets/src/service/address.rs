//! Socket addresses as programs have them.

use bypath_sys::{Errno, Result};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Octets of a sockaddr_in.
const IN: usize = 16;
/// Octets of a sockaddr_in6.
const IN6: usize = 28;
/// Octets that a sockaddr_in6 has at least: the first form of it had no scope.
const IN6_SHORT: usize = 24;

/// A socket address in the form of the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketName {
    bytes: [u8; IN6],
    len: usize,
}

impl SocketName {
    /// Its octets.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The form that a socket of `family` (0: whichever fits) gives it: IPv4 is mapped into IPv6 there.
    pub fn new(address: SocketAddr, family: i32) -> SocketName {
        let mut bytes = [0u8; IN6];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(a) if family != libc::AF_INET6 => {
                bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                bytes[4..8].copy_from_slice(&a.ip().octets());
                SocketName { bytes, len: IN }
            }
            _ => {
                bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                let (ip, flow, scope) = match address {
                    SocketAddr::V4(a) => (a.ip().to_ipv6_mapped(), 0, 0),
                    SocketAddr::V6(a) => (*a.ip(), a.flowinfo(), a.scope_id()),
                };
                bytes[4..8].copy_from_slice(&flow.to_be_bytes());
                bytes[8..24].copy_from_slice(&ip.octets());
                bytes[24..].copy_from_slice(&scope.to_ne_bytes());
                SocketName { bytes, len: IN6 }
            }
        }
    }

    /// What a socket of `family` has that is not bound, or not connected.
    pub fn none(family: i32) -> SocketName {
        let ip = if family == libc::AF_INET6 {
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            std::net::IpAddr::from(Ipv4Addr::UNSPECIFIED)
        };
        SocketName::new(SocketAddr::new(ip, 0), family)
    }
}

/// The address in a sockaddr.
///
/// # Errors
/// EINVAL: too short; EAFNOSUPPORT: neither AF_INET nor AF_INET6.
pub fn parse(raw: &[u8]) -> Result<SocketAddr> {
    let word = |at: usize| Some([*raw.get(at)?, *raw.get(at + 1)?]);
    let family = u16::from_ne_bytes(word(0).ok_or(Errno::INVAL)?);
    let port = u16::from_be_bytes(word(2).unwrap_or_default());
    let four = |at: usize| <[u8; 4]>::try_from(raw.get(at..at + 4).unwrap_or(&[0; 4])).unwrap_or_default();
    match i32::from(family) {
        libc::AF_INET if raw.len() < IN => Err(Errno::INVAL),
        libc::AF_INET => Ok(SocketAddrV4::new(Ipv4Addr::from(four(4)), port).into()),
        libc::AF_INET6 if raw.len() < IN6_SHORT => Err(Errno::INVAL),
        libc::AF_INET6 => {
            let ip: [u8; 16] = raw[8..24].try_into().unwrap_or_default();
            let (flow, scope) = (u32::from_be_bytes(four(4)), u32::from_ne_bytes(four(24)));
            Ok(SocketAddrV6::new(ip.into(), port, flow, scope).into())
        }
        _ => Err(Errno::AFNOSUPPORT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were() {
        for text in ["10.0.0.2:80", "[fe80::1%3]:65535", "[::]:0", "[::ffff:10.0.0.1]:5"] {
            let address: SocketAddr = text.parse().unwrap();
            let name = SocketName::new(address, 0);
            assert_eq!(parse(name.as_bytes()), Ok(address));
        }
        let mapped = SocketName::new("10.0.0.2:80".parse().unwrap(), libc::AF_INET6);
        assert_eq!(parse(mapped.as_bytes()), Ok("[::ffff:10.0.0.2]:80".parse().unwrap()));
        assert_eq!(parse(SocketName::none(libc::AF_INET).as_bytes()), Ok("0.0.0.0:0".parse().unwrap()));
    }

    #[test]
    fn what_is_too_short_or_of_another_family_is_refused() {
        let v4 = SocketName::new("10.0.0.2:80".parse().unwrap(), 0);
        let v6 = SocketName::new("[::1]:80".parse().unwrap(), 0);
        assert_eq!(parse(&v4.as_bytes()[..15]), Err(Errno::INVAL));
        assert_eq!(parse(&v6.as_bytes()[..23]), Err(Errno::INVAL));
        assert_eq!(parse(&v6.as_bytes()[..24]), Ok("[::1]:80".parse().unwrap()));
        assert_eq!(parse(&[1]), Err(Errno::INVAL));
        assert_eq!(parse(&[0; 16]), Err(Errno::AFNOSUPPORT));
    }
}
