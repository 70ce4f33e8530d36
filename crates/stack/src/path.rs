//! The way to an address: which interface, which neighbour, from which of our addresses, how long a packet may be.

use crate::Stack;
use crate::iface::{Iface, IfaceId};
use crate::ip::source::{Candidate, select};
use crate::stack::LEAST_MTU;
use crate::{iface, prefix::Prefix};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Through this interface; what is ours goes through the loopback interface.
    pub iface: IfaceId,
    /// By this neighbour.
    pub next_hop: IpAddr,
    /// From this address of ours.
    pub source: IpAddr,
    /// Octets of a packet that get there; of a connection's it may be more.
    pub mtu: u32,
    /// Whom it reaches.
    pub reach: Reach,
}

/// Whom packets reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// One host.
    Host,
    /// Ourselves.
    Own,
    /// Everybody on a link.
    Broadcast,
    /// A group.
    Group,
}

/// Why there is no way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    /// No route leads there.
    #[error("no route leads to that address")]
    Route,
    /// The interface has no address to send from.
    #[error("there is no address of that kind to send from")]
    Source,
    /// There is no such interface.
    #[error("there is no interface of that number")]
    Iface,
    /// A link-local address, and several links: the scope must say which.
    #[error("a link-local address needs the interface's number as its scope")]
    Scope,
    /// Nobody's address.
    #[error("nobody has the unspecified address")]
    Unspecified,
    /// Packets cannot be sent from the given address, as it is not ours.
    #[error("the source address is not one of ours")]
    NotOurs,
}

impl Stack {
    /// The way to `to`; `iface`: through this one only. `source`: from this address only.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub fn path(
        &self,
        to: IpAddr,
        iface: Option<IfaceId>,
        source: Option<IpAddr>,
    ) -> Result<Path, Unreachable> {
        if to.is_unspecified() {
            return Err(Unreachable::Unspecified);
        }
        // A scope comes from whoever wrote the address.
        if iface.is_some_and(|iface| iface.at() >= self.ifaces.len()) {
            return Err(Unreachable::Iface);
        }
        if self.is_local(to, iface) {
            let mtu = self.ifaces[0].shape.mtu as u32;
            let source = source.unwrap_or(to);
            return Ok(Path { iface: IfaceId::LOOPBACK, next_hop: to, source, mtu, reach: Reach::Own });
        }
        let (iface, next_hop, preferred) = self.hop(to, iface)?;
        let out = &self.ifaces[iface.at()];
        let reach = match to {
            _ if to.is_multicast() => Reach::Group,
            IpAddr::V4(v4) if next_hop == to && out.is_broadcast(v4) => Reach::Broadcast,
            _ => Reach::Host,
        };
        let source = match source.or(preferred) {
            Some(source) => source,
            None => self.select_source(to, iface).ok_or(Unreachable::Source)?,
        };
        let mtu = self.narrowest(iface, to, self.destinations.get(to).and_then(|d| d.mtu));
        Ok(Path { iface, next_hop, source, mtu, reach })
    }

    /// Octets of a connection's packet that get there.
    pub(crate) fn segment_mtu(&self, path: &Path, to: IpAddr) -> u32 {
        match path.reach {
            Reach::Own => path.mtu,
            _ => self.narrowest(path.iface, to, self.destinations.get(to).and_then(|d| d.segments)),
        }
    }

    /// What is known of a destination, what the routes say of it, and what the link carries: the least of them.
    fn narrowest(&self, iface: IfaceId, to: IpAddr, known: Option<u32>) -> u32 {
        let told = self.routes.metrics(to).mtu.map_or(u32::MAX, |mtu| mtu.max(LEAST_MTU.into()));
        known.unwrap_or(u32::MAX).min(told).min(self.ifaces[iface.at()].mtu(to.is_ipv6()))
    }

    /// Interface and neighbour, and the source that the route says.
    fn hop(
        &self,
        to: IpAddr,
        iface: Option<IfaceId>,
    ) -> Result<(IfaceId, IpAddr, Option<IpAddr>), Unreachable> {
        if is_link_scoped(to) {
            // RFC 4007, 6: the address alone does not say which link.
            if let Some(iface) = iface {
                return Ok((iface, to, None));
            }
            let speaks =
                |i: &Iface| i.addresses.iter().any(|a| a.is_usable() && a.ip().is_ipv4() == to.is_ipv4());
            let mut those =
                (0u32..).zip(&self.ifaces).skip(1).filter(|(_, i)| speaks(i)).map(|(id, _)| IfaceId(id));
            let first = those.next();
            if to.is_ipv6() {
                return match (first, those.next()) {
                    (Some(one), None) => Ok((one, to, None)),
                    (None, _) => Err(Unreachable::Route),
                    _ => Err(Unreachable::Scope),
                };
            }
            // IPv4: as its routes say, else the first interface.
            if let Some(route) = self.routes.lookup(to, None) {
                return Ok((route.iface, to, route.source));
            }
            return first.map(|first| (first, to, None)).ok_or(Unreachable::Route);
        }
        let found = self.routes.lookup(to, iface);
        if to.is_multicast() {
            let of_kind =
                |i: &Iface| i.addresses.iter().any(|a| a.is_usable() && a.ip().is_ipv4() == to.is_ipv4());
            let speaks = || (0u32..).zip(&self.ifaces).skip(1).find(|(_, i)| of_kind(i));
            let out = iface.or(found.map(|r| r.iface)).or_else(|| speaks().map(|(id, _)| IfaceId(id)));
            return out.map(|out| (out, to, None)).ok_or(Unreachable::Route);
        }
        let route = found.ok_or(Unreachable::Route)?;
        let redirected = self.destinations.get(to).and_then(|d| d.via).filter(|(on, _)| *on == route.iface);
        let next = redirected.map(|(_, via)| via).or(route.via).unwrap_or(to);
        Ok((route.iface, next, route.source))
    }

    fn select_source(&self, to: IpAddr, iface: IfaceId) -> Option<IpAddr> {
        let of = |(id, i): (u32, &'_ Iface)| (IfaceId(id), i.addresses.len());
        let all = (0u32..).zip(&self.ifaces).map(of);
        let candidates =
            all.flat_map(|(id, count)| (0..count).map(move |n| (id, n))).filter_map(|(id, n)| {
                let address = &self.ifaces[id.at()].addresses[n];
                // Those of other links mean nothing there (RFC 6724, 4).
                let near = id == iface || !is_link_scoped(address.ip()) && id != IfaceId::LOOPBACK;
                (near && address.is_usable()).then_some(Candidate {
                    prefix: address.prefix,
                    iface: id,
                    deprecated: address.state == iface::AddressState::Deprecated,
                    temporary: false,
                })
            });
        select(to, iface, candidates).map(|c| c.prefix.address())
    }

    /// Whether packets to this address are ours; `through`: of which link a link-local one is.
    #[inline]
    pub fn is_local(&self, ip: IpAddr, through: Option<IfaceId>) -> bool {
        if ip.is_loopback() && ip.is_ipv4() {
            return true;
        }
        if is_link_scoped(ip) {
            return match through {
                Some(through) => self.ifaces.get(through.at()).is_some_and(|i| i.has(ip)),
                None => self.ifaces.iter().any(|i| i.has(ip)),
            };
        }
        self.local.contains(&ip)
    }

    /// Counts the usable addresses anew, and makes everybody ask for ways again.
    pub(crate) fn addresses_changed(&mut self) {
        self.generation += 1;
        self.local.clear();
        for iface in &mut self.ifaces {
            iface.addresses_changed();
            for address in iface.addresses.iter().filter(|a| a.is_usable()) {
                self.local.insert(address.ip());
            }
        }
    }

    /// The longest of our networks on a link that an address lies in.
    pub(crate) fn network_of(&self, iface: IfaceId, ip: IpAddr) -> Option<Prefix> {
        let addresses = self.ifaces[iface.at()].addresses.iter();
        addresses.filter(|a| a.is_usable() && a.prefix.contains(ip)).map(|a| a.prefix).max_by_key(|p| p.len())
    }
}

/// Addresses that mean something on one link only: RFC 4291, 2.5.6 and 2.7 (groups of scope 1 and 2); 255.255.255.255
/// (RFC 919, 7). Not IPv4's 169.254/16 and 224.0.0/24, which are routed as others are (as Linux has it).
pub(crate) const fn is_link_scoped(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.to_bits() == Ipv4Addr::BROADCAST.to_bits(),
        IpAddr::V6(v6) => is_link_scoped_v6(v6),
    }
}

const fn is_link_scoped_v6(v6: Ipv6Addr) -> bool {
    let [first, second, ..] = v6.octets();
    v6.is_unicast_link_local() || first == 0xff && (second & 0xf) <= 2
}
