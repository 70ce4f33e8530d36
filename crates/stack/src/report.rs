//! Each error of the network by itself (RFC 1122, 4.1.3.3), with what it is about: for sockets that want [all](crate::socket::Options::all_errors).

use crate::Stack;
use crate::iface::IfaceId;
use crate::ingress::Packet;
use crate::socket::{Socket, SocketError, SocketId, scoped};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bypath_wire::TrafficClass;
use core::net::{IpAddr, SocketAddr};

/// Reports that wait for a socket at most; what comes later is not kept.
const MOST: usize = 32;
/// What one counts beside its octets: its place in a list that has room for as many again.
const OVERHEAD: usize = 512;
const _: () = assert!(2 * size_of::<Report>() <= OVERHEAD);
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
    /// Octets of memory of its reports.
    pub fn reports_memory(&self) -> usize {
        self.reports.iter().map(weight).sum()
    }
}

/// What a report counts.
const fn weight(report: &Report) -> usize {
    report.octets.capacity() + OVERHEAD
}

impl Stack {
    /// Keeps a report for a socket that wants them. As in Linux (sock_queue_err_skb) it counts against what the socket may have to be read, and beside the
    /// datagrams of its user; one for which there is no room is not kept.
    pub(crate) fn report(&mut self, index: u32, report: impl FnOnce() -> Report) {
        let socket = self.sockets.at_mut(index).1;
        if !socket.options.all_errors {
            return;
        }
        let (report, whom) = (report(), socket.whom);
        let counts = weight(&report);
        let waits = socket.receive.used() + socket.reports_memory();
        let left = self.tcp.users.left_for_datagrams(whom);
        let fits = socket.reports.len() < MOST
            && waits + counts <= socket.receive.most()
            && (whom == 0 || self.unread.of(whom) + counts <= left);
        if fits {
            self.unread.add(whom, counts);
            socket.reports.push_back(report);
        } else {
            self.counters.udp_drop_reports += 1;
        }
    }

    /// The next report of a socket, which is taken. The next call tells the error of the one behind it, or none.
    pub(crate) fn take_report(&mut self, id: SocketId) -> Option<Report> {
        let socket = self.sockets.get_mut(id)?;
        let report = socket.reports.pop_front()?;
        socket.error = socket.reports.front().map(|next| next.error);
        if socket.reports.is_empty() {
            socket.reports = VecDeque::new();
        }
        self.unread.take(socket.whom, weight(&report));
        Some(report)
    }

    /// Its reports are forgotten.
    pub(crate) fn forget_reports(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        self.unread.take(socket.whom, socket.reports_memory());
        socket.reports = VecDeque::new();
    }
}
