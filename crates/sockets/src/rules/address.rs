//! Addresses and ports as rules name them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Addresses with a common beginning: `127.0.0.0/8`, `::1`. IPv4 addresses mapped into IPv6 count as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Why a text is no [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkError {
    /// It is nothing of the kind.
    Shape,
    /// More bits than the address has.
    Prefix(u8),
    /// Bits are set behind the prefix; the network that was probably meant.
    HostBits(Network),
}

fn mask(bits: u8, of: u8) -> u128 {
    // Kept at the low end: an IPv4 address has 32 bits there.
    let all = if of == 128 { u128::MAX } else { (1 << of) - 1 };
    let rest = u32::from(of - bits);
    if rest == 128 { 0 } else { all >> rest << rest }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => a.to_bits().into(),
        IpAddr::V6(a) => a.to_bits(),
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl Network {
    /// Whether `address` is one of these.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && {
            let mask = mask(self.prefix, width(self.address));
            number(address) & mask == number(self.address) & mask
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkError::Shape)?;
        let width = width(address);
        let prefix = match prefix {
            None => width,
            Some(p) if p.len() <= 3 && p.bytes().all(|b| b.is_ascii_digit()) => {
                let n: u16 = p.parse().map_err(|_| NetworkError::Shape)?;
                u8::try_from(n).ok().filter(|n| *n <= width).ok_or(NetworkError::Prefix(width))?
            }
            Some(_) => return Err(NetworkError::Shape),
        };
        let kept = number(address) & mask(prefix, width);
        let base = match address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(kept as u32)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(kept)),
        };
        if base != address {
            return Err(NetworkError::HostBits(Network { address: base, prefix }));
        }
        // ::ffff:10.0.0.0/104 is 10.0.0.0/8.
        Ok(match (address.to_canonical(), prefix.checked_sub(96)) {
            (IpAddr::V4(v4), Some(bits)) if address.is_ipv6() => Network { address: v4.into(), prefix: bits },
            _ => Network { address, prefix },
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.prefix < width(self.address) {
            write!(f, "/{}", self.prefix)?;
        }
        Ok(())
    }
}

/// Ports from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// Whether `port` is one of these.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl FromStr for Ports {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let port = |s: &str| {
            let digits = !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
            s.parse::<u16>()
                .ok()
                .filter(|n| digits && *n != 0)
                .ok_or("a port from 1 to 65535, or a range such as 8000-8999")
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (port(first)?, port(last)?);
        if first > last {
            return Err("a range of ports, the lower one first");
        }
        Ok(Ports { first, last })
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn networks_contain_what_begins_alike() {
        assert!(within("127.0.0.0/8", "127.255.0.1") && !within("127.0.0.0/8", "128.0.0.1"));
        assert!(within("10.1.2.3", "10.1.2.3") && !within("10.1.2.3", "10.1.2.2"));
        assert!(within("0.0.0.0/0", "255.1.2.3") && !within("0.0.0.0/0", "::1"));
        assert!(within("fd00::/8", "fdff::1") && within("::/0", "::1") && !within("::/0", "1.2.3.4"));
        assert!(within("::1", "::1") && !within("::1", "::2"));
    }

    #[test]
    fn mapped_addresses_are_the_ipv4_ones() {
        assert!(within("127.0.0.0/8", "::ffff:127.0.0.1") && !within("::/0", "::ffff:127.0.0.1"));
        assert!(within("::ffff:127.0.0.1", "127.0.0.1"));
        assert_eq!("::ffff:10.0.0.0/104".parse::<Network>().unwrap().to_string(), "10.0.0.0/8");
    }

    #[test]
    fn bad_networks() {
        let error = |text: &str| text.parse::<Network>().unwrap_err();
        for bad in ["", "localhost", "127.0.0", "1.2.3.4/", "1.2.3.4/x", "::1/+8", "1.2.3.4/0008"] {
            assert_eq!(error(bad), NetworkError::Shape, "{bad}");
        }
        assert_eq!(
            (error("1.2.3.4/33"), error("::/129")),
            (NetworkError::Prefix(32), NetworkError::Prefix(128))
        );
        let NetworkError::HostBits(meant) = error("127.0.0.1/8") else { panic!() };
        assert_eq!(meant.to_string(), "127.0.0.0/8");
    }

    #[test]
    fn ports_and_ranges() {
        let range: Ports = "8000-8999".parse().unwrap();
        assert!(
            range.contains(8000) && range.contains(8999) && !range.contains(7999) && !range.contains(9000)
        );
        assert_eq!(
            ("80".parse::<Ports>().unwrap().to_string(), range.to_string()),
            ("80".into(), "8000-8999".into())
        );
        for bad in ["", "0", "-", "1-", "-1", "65536", "9-8", "+1", "1-2-3", "http"] {
            assert!(bad.parse::<Ports>().is_err(), "{bad}");
        }
    }
}
