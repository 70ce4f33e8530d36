//! Which of our addresses a packet carries whose sender chose none (RFC 6724, 5; for IPv4 RFC 1122, 3.3.4.3).

use crate::iface::IfaceId;
use crate::prefix::Prefix;
use core::cmp::Ordering;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One of our addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// With the length of its network.
    pub prefix: Prefix,
    /// Whose it is.
    pub iface: IfaceId,
    /// Its preferred lifetime is over: it serves connections that have it, and others if there is no other one.
    pub deprecated: bool,
    /// One of those that change, so that nobody is followed by his address (RFC 8981).
    pub temporary: bool,
}

/// The best of `candidates`, which may be used, as the source of packets to `to` through `iface`.
pub fn select(
    to: IpAddr,
    iface: IfaceId,
    candidates: impl IntoIterator<Item = Candidate>,
) -> Option<Candidate> {
    let of_kind = candidates.into_iter().filter(|c| c.prefix.address().is_ipv4() == to.is_ipv4());
    // The first one of equals.
    of_kind
        .reduce(|best, next| if compare(to, iface, &next, &best) == Ordering::Greater { next } else { best })
}

/// Which of two suits better; greater: the first.
fn compare(to: IpAddr, iface: IfaceId, a: &Candidate, b: &Candidate) -> Ordering {
    let by = |what: &dyn Fn(&Candidate) -> bool| what(a).cmp(&what(b));
    let address = |c: &Candidate| c.prefix.address();
    match to {
        IpAddr::V4(to_v4) => by(&|c| address(c) == to)
            .then_with(|| by(&|c| is_link_local(address(c)) == to_v4.is_link_local()))
            .then_with(|| by(&|c| c.iface == iface))
            .then_with(|| by(&|c| c.prefix.contains(to))),
        IpAddr::V6(to_v6) => {
            let v6 = |c: &Candidate| match address(c) {
                IpAddr::V6(address) => address,
                IpAddr::V4(address) => address.to_ipv6_mapped(),
            };
            // The rules of RFC 6724, 5; 4 (mobile hosts) and 5.5 (what routers advertise) do not come up.
            by(&|c| address(c) == to)
                .then_with(|| by_scope(scope(v6(a)), scope(v6(b)), scope(to_v6)))
                .then_with(|| by(&|c| !c.deprecated))
                .then_with(|| by(&|c| c.iface == iface))
                .then_with(|| by(&|c| label(v6(c)) == label(to_v6)))
                .then_with(|| by(&|c| c.temporary))
                .then_with(|| {
                    let common = |c: &Candidate| {
                        let bits = (v6(c).to_bits() ^ to_v6.to_bits()).leading_zeros();
                        bits.min(c.prefix.len().into())
                    };
                    common(a).cmp(&common(b))
                })
        }
    }
}

/// Rule 2: the smallest scope that reaches so far.
fn by_scope(a: u8, b: u8, to: u8) -> Ordering {
    match a.cmp(&b) {
        Ordering::Less if a < to => Ordering::Less,
        Ordering::Less => Ordering::Greater,
        Ordering::Greater if b < to => Ordering::Greater,
        Ordering::Greater => Ordering::Less,
        Ordering::Equal => Ordering::Equal,
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.is_link_local())
}

/// How far an address reaches (RFC 6724, 3.1; RFC 4291, 2.7): 2 the link, 5 the site, 14 everywhere.
const fn scope(address: Ipv6Addr) -> u8 {
    let [first, second, ..] = address.octets();
    match (first, second) {
        (0xff, second) => second & 0xf,
        _ if address.is_loopback() => 2,
        (0xfe, 0x80..=0xbf) => 2,
        (0xfe, 0xc0..=0xff) => 5,
        _ => match address.to_ipv4_mapped() {
            Some(v4) => scope_v4(v4),
            None => 14,
        },
    }
}

const fn scope_v4(address: Ipv4Addr) -> u8 {
    if address.is_loopback() || address.is_link_local() { 2 } else { 14 }
}

/// The labels of the default policy table (RFC 6724, 2.1): who talks to its own kind is understood best.
const fn label(address: Ipv6Addr) -> u8 {
    let [a, b, c, d, e, f, g, _] = address.segments();
    match (a, b) {
        (0, 0) if address.is_loopback() => 0,
        (0, 0) if c == 0 && d == 0 && e == 0 && f == 0xffff => 4,
        (0, 0) if c == 0 && d == 0 && e == 0 && f == 0 && g != 0 => 3,
        (0x2002, _) => 2,
        (0x2001, 0) => 5,
        (0xfc00..=0xfdff, _) => 13,
        (0xfec0..=0xfeff, _) => 11,
        (0x3ffe, _) => 12,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const OUT: IfaceId = IfaceId(0);
    const OTHER: IfaceId = IfaceId(1);

    fn candidate(text: &str) -> Candidate {
        let iface = if text.ends_with('*') { OTHER } else { OUT };
        let text = text.trim_end_matches('*');
        let (temporary, text) = (text.ends_with('t'), text.trim_end_matches('t'));
        let (deprecated, text) = (text.ends_with('d'), text.trim_end_matches('d'));
        Candidate { prefix: text.parse().unwrap(), iface, deprecated, temporary }
    }

    /// Addresses ("*": of another interface, "d": deprecated, "t": temporary), a destination, and which one is taken, in either
    /// order.
    fn check(addresses: [&str; 2], to: &str, expected: usize) {
        let mut candidates: Vec<_> = addresses.map(candidate).into();
        let expected = candidates[expected];
        for _ in 0..2 {
            assert_eq!(
                select(to.parse().unwrap(), OUT, candidates.clone()),
                Some(expected),
                "{addresses:?} to {to}"
            );
            candidates.reverse();
        }
    }

    /// RFC 6724, 10.1, and what else the rules say.
    #[test]
    fn ipv6_sources_are_those_of_the_rfc() {
        for (addresses, to, expected) in [
            (["2001:db8:3::1/64", "fe80::1/64"], "2001:db8:1::1", 0),
            (["2001:db8:3::1/64", "fe80::1/64"], "ff05::1", 0),
            (["2001:db8:1::1/64d", "2001:db8:2::1/64"], "2001:db8:1::1", 0),
            (["fe80::1/64d", "2001:db8:2::1/64"], "fe80::1", 0),
            (["2001:db8:1::2/64", "2001:db8:3::2/64"], "2001:db8:1::1", 0),
            (["2001:db8:1::2/64", "fc00:0:0:1::2/64"], "fc00:0:0:1::1", 1),
            (["2002:c633:6401::2/48", "2001:db8:1::2/64"], "2002:c633:6401::1", 0),
            (["2001:db8:1::d5e3:7953:13eb:22e8/64t", "2001:db8:1::2/64"], "2001:db8:1::1", 0),
            // Loopback and the link's own.
            (["::1/128", "2001:db8::1/64"], "::1", 0),
            (["fe80::1/64", "2001:db8::1/64"], "ff02::fb", 0),
            // Deprecated, and of another interface.
            (["2001:db8:1::2/64d", "2001:db8:9::2/64"], "2001:db8:1::1", 1),
            (["2001:db8:1::2/64*", "2001:db8:9::2/64"], "2001:db8:1::1", 1),
            (["2001:db8:1::2/64*", "fe80::1/64"], "2001:db8:1::1", 0),
        ] {
            check(addresses, to, expected);
        }
    }

    #[test]
    fn ipv4_sources_are_of_the_interface_and_the_network() {
        for (addresses, to, expected) in [
            (["10.0.0.1/24", "10.1.0.1/24"], "10.1.0.9", 1),
            (["10.0.0.1/24*", "10.1.0.1/24"], "10.0.0.9", 1),
            (["10.0.0.1/24", "10.1.0.1/24"], "10.0.0.1", 0),
            (["169.254.3.4/16", "10.1.0.1/24"], "8.8.8.8", 1),
            (["169.254.3.4/16", "10.1.0.1/24"], "169.254.9.9", 0),
        ] {
            check(addresses, to, expected);
        }
        // Of equals the first; of another kind none.
        let both = [candidate("10.0.0.1/24"), candidate("10.0.0.2/24")];
        assert_eq!(select("10.0.0.9".parse().unwrap(), OUT, both), Some(both[0]));
        assert_eq!(select("::1".parse().unwrap(), OUT, both), None);
    }
}
