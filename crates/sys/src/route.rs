//! What the kernel's routes say beside where they lead (rtnetlink(7), metrics of ip-route(8)).

use crate::netif::by_name;
use crate::netlink::{Netlink, Request, attributes};
use crate::{Errno, Result};
use std::net::IpAddr;

const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_METRICS: u16 = 8;
const RTAX_MTU: u16 = 2;
const RTAX_ADVMSS: u16 = 8;
const RTAX_INITCWND: u16 = 11;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RTN_UNICAST: u8 = 1;
/// `struct rtmsg`.
const ROUTE: usize = 12;

/// `None`: the route says nothing of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Octets of a packet.
    pub mtu: Option<u32>,
    /// MSS that others are told.
    pub advmss: Option<u32>,
    /// Segments of the first congestion window.
    pub initcwnd: Option<u32>,
}

fn octets(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(v4) => (libc::AF_INET as u8, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6 as u8, v6.octets().to_vec()),
    }
}

/// `struct rtmsg`: family, lengths of destination and source, TOS, table, protocol, scope, type, flags.
fn header(family: u8, len: u8, table: u8, protocol: u8, kind: u8) -> [u8; ROUTE] {
    [family, len, 0, 0, table, protocol, 0, kind, 0, 0, 0, 0]
}

fn parse(body: &[u8]) -> Metrics {
    let word = |value: &[u8]| value.try_into().ok().map(u32::from_ne_bytes);
    let mut found = Metrics::default();
    let all = attributes(body.get(ROUTE..).unwrap_or(&[])).filter(|(kind, _)| *kind == RTA_METRICS);
    for (kind, value) in all.flat_map(|(_, metrics)| attributes(metrics)) {
        match kind {
            RTAX_MTU => found.mtu = word(value),
            RTAX_ADVMSS => found.advmss = word(value),
            RTAX_INITCWND => found.initcwnd = word(value),
            _ => {}
        }
    }
    found
}

/// Those of the route that packets to `to` take, in the network namespace of the socket.
///
/// # Errors
/// ENETUNREACH, EHOSTUNREACH: there is none; those of the socket.
pub fn metrics(netlink: &Netlink, to: IpAddr) -> Result<Metrics> {
    let (family, octets) = octets(to);
    let fixed = header(family, octets.len() as u8 * 8, 0, 0, 0);
    let request = Request::new(RTM_GETROUTE, 0, &fixed).attribute(RTA_DST, &octets);
    let mut found = None;
    netlink.ask(request, &mut |kind, body| {
        if kind == RTM_NEWROUTE {
            found = Some(parse(body));
        }
    })?;
    found.ok_or(Errno::PROTO)
}

/// Makes the route to one address, or another one of it: by the interface `name`, whose neighbours it reaches.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN; ENODEV; ENETDOWN: the interface is down.
pub fn put(netlink: &Netlink, to: IpAddr, name: &str, metrics: Metrics) -> Result<()> {
    let (family, octets) = octets(to);
    let fixed = header(family, octets.len() as u8 * 8, RT_TABLE_MAIN, RTPROT_STATIC, RTN_UNICAST);
    let index = by_name(name)?.index;
    let all = [(RTAX_MTU, metrics.mtu), (RTAX_ADVMSS, metrics.advmss), (RTAX_INITCWND, metrics.initcwnd)];
    let request = Request::new(RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &fixed)
        .attribute(RTA_DST, &octets)
        .attribute(RTA_OIF, &index.to_ne_bytes())
        .nested(RTA_METRICS, |request| {
            let said = all.iter().filter_map(|(kind, value)| value.map(|value| (*kind, value)));
            said.fold(request, |request, (kind, value)| request.attribute(kind, &value.to_ne_bytes()))
        });
    netlink.change(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_route_says_nothing() {
        for octets in [&[][..], &[0; 5], &[0; ROUTE], &[0xff; 40]] {
            assert_eq!(parse(octets), Metrics::default());
        }
    }

    #[test]
    fn metrics_of_other_kinds_and_lengths_are_passed_over() {
        let request = Request::new(RTM_NEWROUTE, 0, &[0; ROUTE]).nested(RTA_METRICS, |request| {
            let word = |n: u32| n.to_ne_bytes();
            request
                .attribute(1, &word(4))
                .attribute(RTAX_MTU, &word(640))
                .attribute(RTAX_ADVMSS, &[1, 2])
                .attribute(RTAX_INITCWND, &word(11))
        });
        let expected = Metrics { mtu: Some(640), advmss: None, initcwnd: Some(11) };
        assert_eq!(parse(request.body()), expected);
    }
}
