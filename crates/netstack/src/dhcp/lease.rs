//! What a server grants.

use super::message::{Reply, option};
use bypath_stack::time::Instant;
use std::net::Ipv4Addr;
use std::time::Duration;

/// A route of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The network, its host bits 0.
    pub network: Ipv4Addr,
    /// 0 to 32.
    pub prefix_len: u8,
    /// Through whom; 0.0.0.0 = directly on the link (RFC 3442).
    pub router: Ipv4Addr,
}

/// An address for some time, with what goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address.
    pub address: Ipv4Addr,
    /// Length of its network's prefix, 1 to 32.
    pub prefix_len: u8,
    /// The server's identity and address.
    pub server: Ipv4Addr,
    /// Routes beside that of the address's own network, the default one among them.
    pub routes: Vec<Route>,
    /// Resolvers of names, the best first.
    pub name_servers: Vec<Ipv4Addr>,
    /// Domain in which names are looked for.
    pub domain: Option<String>,
    /// The largest packet of the link, from 576 octets.
    pub mtu: Option<u16>,
    /// When the server is asked for more time (T1); `None`: the lease does not end.
    pub renews: Option<Instant>,
    /// When any server is (T2).
    pub rebinds: Option<Instant>,
    /// When the address must not be used any more.
    pub expires: Option<Instant>,
}

impl Lease {
    /// What a server offers or grants, if it can be used.
    pub(super) fn of(reply: &Reply, now: Instant) -> Option<Lease> {
        let address = reply.address;
        let mask = reply.address_in(option::SUBNET_MASK).unwrap_or_else(|| natural_mask(address));
        let prefix_len = prefix_len_of(mask)?;
        if !is_for_a_host(address, prefix_len) {
            return None;
        }
        let seconds = reply.number_in(option::LEASE_TIME)?;
        let (renews, rebinds, expires) = times(
            now,
            seconds,
            reply.number_in(option::RENEWAL_TIME),
            reply.number_in(option::REBINDING_TIME),
        )?;
        Some(Lease {
            address,
            prefix_len,
            server: reply.server,
            routes: routes_of(reply),
            name_servers: reply.addresses_in(option::NAME_SERVER),
            domain: reply.octets(option::DOMAIN_NAME).and_then(text),
            // RFC 2132 section 5.1 allows 68; with less than 576 no host can be reached as it should.
            mtu: reply
                .octets(option::MTU)
                .and_then(|o| Some(u16::from_be_bytes(o.try_into().ok()?)))
                .filter(|mtu| *mtu >= 576),
            renews,
            rebinds,
            expires,
        })
    }

    /// Whether it is the same but for its times.
    pub(super) fn is_like(&self, other: &Lease) -> bool {
        let untimed = |l: &Lease| Lease { renews: None, rebinds: None, expires: None, ..l.clone() };
        untimed(self) == untimed(other)
    }
}

type Times = (Option<Instant>, Option<Instant>, Option<Instant>);

/// T1, T2 and the end. `None`: a lease of no time is none.
fn times(now: Instant, seconds: u32, renews: Option<u32>, rebinds: Option<u32>) -> Option<Times> {
    // RFC 2131 section 3.3: all ones are for ever.
    if seconds == u32::MAX {
        return Some((None, None, None));
    }
    if seconds == 0 {
        return None;
    }
    // RFC 2131 section 4.4.5: half, and seven eighths, unless the server says otherwise and makes sense.
    let whole = u64::from(seconds) * 1000;
    let (mut t1, mut t2) = (whole / 2, whole * 7 / 8);
    if let Some(given) = rebinds.map(|s| u64::from(s) * 1000).filter(|t| *t < whole && *t > 0) {
        t2 = given;
        t1 = t1.min(t2);
    }
    if let Some(given) = renews.map(|s| u64::from(s) * 1000).filter(|t| *t <= t2 && *t > 0) {
        t1 = given;
    }
    let at = |ms| Some(now + Duration::from_millis(ms));
    Some((at(t1), at(t2), at(whole)))
}

/// Classless routes if there are any (RFC 3442: routers are passed over then), else the default route.
fn routes_of(reply: &Reply) -> Vec<Route> {
    if let Some(routes) = reply.octets(option::CLASSLESS_ROUTES).and_then(classless) {
        return routes;
    }
    let default = |router| Route { network: Ipv4Addr::UNSPECIFIED, prefix_len: 0, router };
    reply.addresses_in(option::ROUTER).first().copied().map(default).into_iter().collect()
}

/// RFC 3442: a prefix's length, as many octets of it as that takes, a router. `None` if it ends within one.
fn classless(mut octets: &[u8]) -> Option<Vec<Route>> {
    let mut routes = Vec::new();
    while let Some((&prefix_len, rest)) = octets.split_first() {
        let significant = usize::from(prefix_len.div_ceil(8));
        if prefix_len > 32 {
            return None;
        }
        let (prefix, rest) = rest.split_at_checked(significant)?;
        let (router, rest) = rest.split_at_checked(4)?;
        let mut network = [0; 4];
        network[..significant].copy_from_slice(prefix);
        let network = Ipv4Addr::from_bits(u32::from_be_bytes(network) & mask_of(prefix_len));
        routes.push(Route { network, prefix_len, router: Ipv4Addr::from(<[u8; 4]>::try_from(router).ok()?) });
        octets = rest;
    }
    Some(routes)
}

fn mask_of(prefix_len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix_len)).unwrap_or(0)
}

/// Only ones, then only zeros.
fn prefix_len_of(mask: Ipv4Addr) -> Option<u8> {
    let bits = mask.to_bits();
    let len = bits.leading_ones() as u8;
    (bits != 0 && bits == mask_of(len)).then_some(len)
}

/// RFC 2132 section 3.3 has a default for no mask: that of the address's class.
fn natural_mask(address: Ipv4Addr) -> Ipv4Addr {
    Ipv4Addr::from_bits(mask_of(match address.octets()[0] {
        0..128 => 8,
        128..192 => 16,
        _ => 24,
    }))
}

/// Whether a host can have the address.
fn is_for_a_host(address: Ipv4Addr, prefix_len: u8) -> bool {
    let host = address.to_bits() & !mask_of(prefix_len);
    // RFC 3021: with 31 or 32 bits of prefix every address is a host's.
    let of_the_network = prefix_len < 31 && (host == 0 || host == !mask_of(prefix_len));
    let first = address.octets()[0];
    !(of_the_network || first == 0 || first == 127 || first >= 224)
}

/// Text that can be shown: servers may end it with a zero.
fn text(octets: &[u8]) -> Option<String> {
    let end = octets.iter().position(|b| *b == 0).unwrap_or(octets.len());
    let text = std::str::from_utf8(&octets[..end]).ok()?;
    let plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
    plain.then(|| text.to_owned())
}
