//! What a program says by control messages beside a datagram that it sends: some of it changes nothing between two programs of one host, and where it
//! says from which address, that may be the one from which the datagram goes anyway.

use super::address::Name;
use super::told::LOOPBACK;
use libc::{IPPROTO_IP, IPPROTO_IPV6, cmsghdr};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Octets of a control message's header.
const HEADER: usize = size_of::<cmsghdr>();
/// Octets of control messages that are looked at; what has more is the kernel's.
pub const MOST: usize = 128;

/// What a send says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Nothing that matters here.
    Nothing,
    /// It goes from there.
    From(IpAddr),
    /// The kernel is to judge.
    Else,
}

impl Said {
    /// By these control messages, on a socket of `family`. What the kernel might refuse is its own to refuse.
    pub fn parse(raw: &[u8], family: i32) -> Said {
        let mut said = Said::Nothing;
        let mut rest = raw;
        while !rest.is_empty() {
            let Some((kind, data, next)) = message(rest) else { return Said::Else };
            let number = <[u8; 4]>::try_from(data).map(i32::from_ne_bytes);
            let one = match (family, kind, number) {
                (libc::AF_INET, (IPPROTO_IP, libc::IP_PKTINFO), _) => source_v4(data),
                (libc::AF_INET6, (IPPROTO_IPV6, libc::IPV6_PKTINFO), _) => source_v6(data),
                (libc::AF_INET, (IPPROTO_IP, libc::IP_TTL), Ok(1..=255))
                | (libc::AF_INET, (IPPROTO_IP, libc::IP_TOS), Ok(0..=255))
                | (libc::AF_INET6, (IPPROTO_IPV6, libc::IPV6_HOPLIMIT), Ok(1..=255))
                | (libc::AF_INET6, (IPPROTO_IPV6, libc::IPV6_TCLASS), Ok(0..=255)) => Some(said),
                (libc::AF_INET, (IPPROTO_IP, libc::IP_TOS), _) if data.len() == 1 => Some(said),
                _ => None,
            };
            match (said, one) {
                (_, None) => return Said::Else,
                (Said::Nothing, Some(one)) => said = one,
                (_, Some(one)) if one == said => {}
                _ => return Said::Else,
            }
            rest = next;
        }
        said
    }

    /// Whether a datagram to `to` that goes from `source` if nothing is said is as it is said to be.
    pub(super) fn agrees(self, source: [u64; 2], to: &Name) -> bool {
        match self {
            Said::Nothing => true,
            // What is said to a socket of IPv6 is not about its datagrams over IPv4, or in another way.
            Said::From(IpAddr::V6(from)) => {
                !to.is_v4() && Name { ip: source, port: 0 }.address() == IpAddr::V6(from)
            }
            Said::From(from) => to.is_v4() && Name { ip: source, port: 0 }.address() == from,
            Said::Else => false,
        }
    }
}

/// Level, type and data of the first one, and what comes behind it.
type Message<'a> = ((i32, i32), &'a [u8], &'a [u8]);

fn message(raw: &[u8]) -> Option<Message<'_>> {
    let len = usize::from_ne_bytes(raw.get(..8)?.try_into().ok()?);
    let word = |at: usize| Some(i32::from_ne_bytes(raw.get(at..at + 4)?.try_into().ok()?));
    let data = raw.get(HEADER..len)?;
    Some(((word(8)?, word(12)?), data, raw.get(len.next_multiple_of(8)..).unwrap_or(&[])))
}

/// struct in_pktinfo: interface, source, an address that only receivers are told.
fn source_v4(data: &[u8]) -> Option<Said> {
    let info: &[u8; 12] = data.try_into().ok()?;
    of(Ipv4Addr::new(info[4], info[5], info[6], info[7]).into(), info[..4].try_into().ok()?)
}

/// struct in6_pktinfo: source, interface.
fn source_v6(data: &[u8]) -> Option<Said> {
    let info: &[u8; 20] = data.try_into().ok()?;
    let octets: [u8; 16] = info[..16].try_into().ok()?;
    of(Ipv6Addr::from(octets).into(), info[16..].try_into().ok()?)
}

fn of(from: IpAddr, interface: [u8; 4]) -> Option<Said> {
    match u32::from_ne_bytes(interface) {
        _ if from.is_unspecified() => None,
        0 => Some(Said::From(from)),
        LOOPBACK if from.is_loopback() => Some(Said::From(from)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(messages: &[(i32, i32, &[u8])]) -> Vec<u8> {
        let mut raw = Vec::new();
        for (level, kind, data) in messages {
            raw.extend((HEADER + data.len()).to_ne_bytes());
            raw.extend(level.to_ne_bytes());
            raw.extend(kind.to_ne_bytes());
            raw.extend(*data);
            raw.resize(raw.len().next_multiple_of(8), 0);
        }
        raw
    }

    fn info(interface: u32, from: [u8; 4]) -> Vec<u8> {
        [interface.to_ne_bytes(), from, [9; 4]].concat()
    }

    #[test]
    fn a_source_is_what_packet_information_says() {
        let from = IpAddr::from([127, 0, 0, 5]);
        for interface in [0, 1] {
            let raw = control(&[
                (0, libc::IP_PKTINFO, &info(interface, [127, 0, 0, 5])),
                (0, libc::IP_TTL, &7i32.to_ne_bytes()),
            ]);
            assert_eq!(Said::parse(&raw, libc::AF_INET), Said::From(from));
            assert_eq!(Said::parse(&raw, libc::AF_INET6), Said::Else);
        }
        let name = |last: u8| Name::new(Ipv4Addr::new(127, 0, 0, last).to_ipv6_mapped().octets(), 7);
        assert!(Said::From(from).agrees(name(5).ip, &name(1)));
        assert!(!Said::From(from).agrees(name(1).ip, &name(1)));
        let v6 = Ipv6Addr::LOCALHOST;
        let data = [&v6.octets()[..], &[0; 4]].concat();
        let raw = control(&[(IPPROTO_IPV6, libc::IPV6_PKTINFO, &data)]);
        let said = Said::parse(&raw, libc::AF_INET6);
        assert_eq!(said, Said::From(v6.into()));
        assert!(said.agrees(Name::new(v6.octets(), 0).ip, &Name::new(v6.octets(), 7)));
        assert!(!said.agrees(Name::new(v6.octets(), 0).ip, &name(1)));
    }

    #[test]
    fn what_changes_nothing_is_nothing() {
        let seven = 7i32.to_ne_bytes();
        for (level, kind, data, family) in [
            (IPPROTO_IP, libc::IP_TTL, &seven[..], libc::AF_INET),
            (IPPROTO_IP, libc::IP_TOS, &seven[..], libc::AF_INET),
            (IPPROTO_IP, libc::IP_TOS, &seven[..1], libc::AF_INET),
            (IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &seven[..], libc::AF_INET6),
            (IPPROTO_IPV6, libc::IPV6_TCLASS, &seven[..], libc::AF_INET6),
        ] {
            assert_eq!(
                Said::parse(&control(&[(level, kind, data)]), family),
                Said::Nothing,
                "{level} {kind}"
            );
        }
        assert_eq!(Said::parse(&[], libc::AF_INET), Said::Nothing);
    }

    #[test]
    fn what_is_not_known_and_what_is_wrong_is_the_kernels() {
        let seven = 7i32.to_ne_bytes();
        let none = 0i32.to_ne_bytes();
        for (level, kind, data) in [
            (IPPROTO_IP, libc::IP_TTL, &none[..]),
            (IPPROTO_IP, libc::IP_TTL, &seven[..3]),
            (IPPROTO_IP, libc::IP_TOS, &900i32.to_ne_bytes()[..]),
            (IPPROTO_IP, libc::IP_PKTINFO, &info(0, [0; 4])[..]),
            (IPPROTO_IP, libc::IP_PKTINFO, &info(2, [127, 0, 0, 1])[..]),
            (IPPROTO_IP, libc::IP_PKTINFO, &info(1, [10, 0, 0, 1])[..]),
            (IPPROTO_IP, libc::IP_PKTINFO, &info(0, [10, 0, 0, 1])[..11]),
            (libc::IPPROTO_UDP, libc::UDP_SEGMENT, &seven[..2]),
            (libc::SOL_SOCKET, libc::SO_MARK, &seven[..]),
        ] {
            let raw = control(&[(level, kind, data)]);
            assert_eq!(Said::parse(&raw, libc::AF_INET), Said::Else, "{level} {kind} {data:?}");
        }
        let twice = control(&[
            (0, libc::IP_PKTINFO, &info(0, [127, 0, 0, 1])),
            (0, libc::IP_PKTINFO, &info(0, [127, 0, 0, 2])),
        ]);
        assert_eq!(Said::parse(&twice, libc::AF_INET), Said::Else);
        let whole = control(&[(0, libc::IP_TTL, &seven)]);
        for len in 1..whole.len() - 4 {
            assert_eq!(Said::parse(&whole[..len], libc::AF_INET), Said::Else, "{len}");
        }
    }
}
