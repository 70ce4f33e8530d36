//! `struct sockaddr` and the stack's addresses.

use bypath_stack::linux::errno::Result;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Octets of a `struct sockaddr_in` and of a `struct sockaddr_in6`.
const V4: usize = 16;
const V6: usize = 28;
/// Octets of the latter that an address needs: without the scope (RFC 2133).
const LEAST_V6: usize = 24;

/// Reads one for a socket of this family.
///
/// # Errors
/// EINVAL: it is too short; EAFNOSUPPORT: it is of another family.
pub fn read(octets: &[u8], v6: bool) -> Result<SocketAddr> {
    let Some(family) = octets.first_chunk().map(|two| i32::from(u16::from_ne_bytes(*two))) else {
        return Err(libc::EINVAL);
    };
    if v6 && octets.len() < LEAST_V6 {
        return Err(libc::EINVAL);
    }
    let port = |at: &[u8]| u16::from_be_bytes([at[2], at[3]]);
    match (family, v6) {
        (libc::AF_INET, false) if octets.len() >= V4 => {
            let ip = Ipv4Addr::new(octets[4], octets[5], octets[6], octets[7]);
            Ok(SocketAddr::new(IpAddr::V4(ip), port(octets)))
        }
        (libc::AF_INET6, true) => {
            let mut ip = [0; 16];
            ip.copy_from_slice(&octets[8..24]);
            let scope = octets[LEAST_V6..].first_chunk().map_or(0, |four| u32::from_ne_bytes(*four));
            let v6 = Ipv6Addr::from(ip);
            Ok(match v6.to_ipv4_mapped() {
                Some(v4) => SocketAddr::new(IpAddr::V4(v4), port(octets)),
                None => SocketAddr::V6(SocketAddrV6::new(v6, port(octets), 0, scope)),
            })
        }
        (libc::AF_INET, false) => Err(libc::EINVAL),
        _ => Err(libc::EAFNOSUPPORT),
    }
}

/// Whether it is of AF_UNSPEC.
pub fn is_unspecified(octets: &[u8]) -> bool {
    octets.first_chunk().is_some_and(|two| i32::from(u16::from_ne_bytes(*two)) == libc::AF_UNSPEC)
}

/// Writes one as a socket of this family tells it.
pub fn write(address: SocketAddr, v6: bool) -> Vec<u8> {
    let mut octets = Vec::with_capacity(V6);
    let (ip, scope) = match address {
        SocketAddr::V4(v4) if !v6 => {
            octets.extend((libc::AF_INET as u16).to_ne_bytes());
            octets.extend(v4.port().to_be_bytes());
            octets.extend(v4.ip().octets());
            octets.resize(V4, 0);
            return octets;
        }
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => (Ipv6Addr::UNSPECIFIED, 0),
        SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
        SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
    };
    octets.extend((libc::AF_INET6 as u16).to_ne_bytes());
    octets.extend(address.port().to_be_bytes());
    octets.extend([0; 4]);
    octets.extend(ip.octets());
    octets.extend(scope.to_ne_bytes());
    octets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (text, v6) in [("10.1.2.3:80", false), ("[2001:db8::1]:80", true), ("10.1.2.3:80", true)] {
            let address = text.parse().expect("an address");
            let octets = write(address, v6);
            assert_eq!(octets.len(), if v6 { V6 } else { V4 });
            assert_eq!(read(&octets, v6), Ok(address));
            // Of the other family; one of IPv4 is too short for IPv6, whatever its family.
            let other = if v6 { libc::EAFNOSUPPORT } else { libc::EINVAL };
            assert_eq!(read(&octets, !v6), Err(other));
            assert_eq!(read(&octets[..15], v6), Err(libc::EINVAL));
        }
        assert!(
            is_unspecified(&[0; 16]) && !is_unspecified(&write("10.1.2.3:80".parse().expect("one"), false))
        );
    }
}
