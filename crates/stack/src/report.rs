//! Each error of the network by itself (RFC 1122, 4.1.3.3), with what it is about: for sockets that want [all](crate::socket::Options::all_errors).

use crate::Stack;
use crate::iface::IfaceId;
use crate::ingress::Packet;
use crate::socket::{Socket, SocketError, scoped};
use alloc::vec::Vec;
use bypath_wire::TrafficClass;
use core::net::{IpAddr, SocketAddr};

/// Reports that wait for a socket at most; what comes later is not kept.
const MOST: usize = 32;
/// Octets of a datagram that are kept at most: what a router quotes over IPv4 (RFC 1812, 4.3.2.3).
const MOST_OCTETS: usize = 548;

/// One error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What is wrong.
    pub error: SocketError,
    /// Type of the ICMP message, or of the one that would say it.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// Who says it: a router, the other host, or the own one.
    pub from: IpAddr,
    /// To whom the datagram went.
    pub to: SocketAddr,
    /// The own address, to which it was told.
    pub own: IpAddr,
    /// Through which interface.
    pub iface: IfaceId,
    /// Routers that the message could still have passed.
    pub hop_limit: u8,
    /// Its traffic class.
    pub class: TrafficClass,
    /// The first octets of the datagram, as far as they were quoted.
    pub octets: Vec<u8>,
}

impl Report {
    /// Of an ICMP message, `about` its type and code, that quotes `octets` of a datagram.
    pub(crate) fn of(
        packet: &Packet<'_>,
        error: SocketError,
        about: (u8, u8),
        to: SocketAddr,
        octets: &[u8],
    ) -> Report {
        Report {
            error,
            kind: about.0,
            code: about.1,
            from: packet.addresses.source(),
            to: scoped(to.ip(), to.port(), packet.through),
            own: packet.addresses.destination(),
            iface: packet.through,
            hop_limit: packet.hops,
            class: packet.class,
            octets: octets[..octets.len().min(MOST_OCTETS)].to_vec(),
        }
    }

    /// Of a datagram that found no neighbour: what a router would say (RFC 792; RFC 4443, 3.1).
    pub(crate) fn of_neighbor(own: IpAddr, to: SocketAddr, iface: IfaceId, octets: &[u8]) -> Report {
        let (kind, code) = if to.is_ipv4() { (3, 1) } else { (1, 3) };
        Report {
            error: SocketError::HostUnreachable,
            kind,
            code,
            from: own,
            to: scoped(to.ip(), to.port(), iface),
            own,
            iface,
            hop_limit: 64,
            class: TrafficClass(0),
            octets: octets[..octets.len().min(MOST_OCTETS)].to_vec(),
        }
    }
}

impl Socket {
    /// The next report, which is taken. The next call tells the error of the one behind it, or none.
    pub fn take_report(&mut self) -> Option<Report> {
        let report = self.reports.pop_front()?;
        self.error = self.reports.front().map(|next| next.error);
        Some(report)
    }
}

impl Stack {
    /// Keeps a report for a socket that wants them.
    pub(crate) fn report(&mut self, index: u32, report: impl FnOnce() -> Report) {
        let socket = self.sockets.at_mut(index).1;
        if socket.options.all_errors && socket.reports.len() < MOST {
            socket.reports.push_back(report());
        }
    }
}
