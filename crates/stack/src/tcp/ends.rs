//! The two ends of a connection: what tells it from all others.

use crate::iface::IfaceId;
use crate::path::is_link_scoped;
use crate::socket::scoped;
use bypath_wire::Addresses;
use core::hash::{Hash, Hasher};
use core::net::{IpAddr, SocketAddr};

/// Addresses and ports of both ends, seen from here: the source is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub addresses: Addresses,
    pub local_port: u16,
    pub remote_port: u16,
    /// Of which interface they are, where an address means something on one link only; else 0.
    scope: u32,
}

impl Ends {
    pub const fn new(addresses: Addresses, local_port: u16, remote_port: u16, through: IfaceId) -> Ends {
        let near = is_link_scoped(addresses.source()) || is_link_scoped(addresses.destination());
        Ends { addresses, local_port, remote_port, scope: if near { through.scope() } else { 0 } }
    }

    /// `None`: they are not of one kind.
    pub fn between(local: SocketAddr, remote: SocketAddr, through: IfaceId) -> Option<Ends> {
        let addresses = match (local.ip(), remote.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 { source, destination },
            (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6 { source, destination },
            _ => return None,
        };
        Some(Ends::new(addresses, local.port(), remote.port(), through))
    }

    /// The interface that they are of, if they are of one alone.
    pub const fn iface(&self) -> Option<IfaceId> {
        IfaceId::from_scope(self.scope)
    }

    pub fn local(&self) -> SocketAddr {
        self.shown(self.addresses.source(), self.local_port)
    }

    pub fn remote(&self) -> SocketAddr {
        self.shown(self.addresses.destination(), self.remote_port)
    }

    fn shown(&self, ip: IpAddr, port: u16) -> SocketAddr {
        match self.iface() {
            Some(iface) => scoped(ip, port, iface),
            None => SocketAddr::new(ip, port),
        }
    }
}

impl Hash for Ends {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.addresses {
            Addresses::V4 { source, destination } => {
                state.write_u64(u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits()));
            }
            Addresses::V6 { source, destination } => {
                state.write_u128(source.to_bits());
                state.write_u128(destination.to_bits());
            }
        }
        let ports = u64::from(self.local_port) << 16 | u64::from(self.remote_port);
        state.write_u64(u64::from(self.scope) << 32 | ports);
    }
}
