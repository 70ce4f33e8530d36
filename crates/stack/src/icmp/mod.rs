//! ICMP (RFC 792) and ICMPv6 (RFC 4443): errors that we send and errors that we get.

mod input;
pub(crate) mod quoted;

use crate::Stack;
use crate::egress::IpPacket;
use crate::iface::IfaceId;
use crate::path::is_link_scoped;
use crate::time::Instant;
use bypath_wire::{
    Addresses, Icmpv4Message, Icmpv6Message, IpProtocol, TrafficClass, icmpv4, icmpv6, ipv4, ipv6,
};
use core::net::IpAddr;
use quoted::Quoted;

/// What was wrong with a packet that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nobody is bound to its port.
    PortUnreachable,
    /// Nobody takes its protocol (IPv4).
    ProtocolUnreachable,
    /// Its fragments did not come in time.
    Reassembly,
    /// Its headers are wrong at `pointer`, in octets of the packet.
    Parameter {
        /// As RFC 792 and RFC 4443, 3.4 have it.
        code: u8,
        /// Octets.
        pointer: u32,
    },
}

impl Stack {
    /// Tells the sender of a packet, of which `quote` is all or the beginning, what is wrong with it; unless it must not be told.
    /// `link_group`: the packet's frame was addressed to more than us.
    pub(crate) fn icmp_error(
        &mut self,
        now: Instant,
        through: Option<IfaceId>,
        link_group: bool,
        quote: &[u8],
        fault: Fault,
    ) {
        let Some(quoted) = Quoted::parse(quote) else { return };
        let (source, destination) = (quoted.addresses.source(), quoted.addresses.destination());
        // RFC 1122, 3.2.2: no error about an error, a later fragment, a packet to or in a frame to more than one, or from
        // nobody. RFC 4443, 2.4 (e): the same, but that an option to be told of is told of to groups, too (2.4 e.3).
        let option = matches!(fault, Fault::Parameter { code: icmpv6::parameter::OPTION, .. });
        let to_groups = option && source.is_ipv6();
        let broadcast = match (destination, through) {
            (IpAddr::V4(v4), Some(through)) => self.ifaces[through.at()].is_broadcast(v4),
            (IpAddr::V4(v4), None) => self.ifaces.iter().any(|iface| iface.is_broadcast(v4)),
            _ => false,
        };
        let group = destination.is_multicast() || link_group || broadcast;
        let from_host = !source.is_unspecified() && !source.is_multicast() && !is_everybody(source);
        if quoted.is_error || quoted.offset != 0 || group && !to_groups || !from_host {
            return;
        }
        let scope = through.filter(|_| is_link_scoped(source));
        let own = Some(destination).filter(|own| self.is_local(*own, through));
        let Ok(path) = self.path(source, scope, own) else { return };
        if !self.icmp_limit.allows(now) {
            self.counters.icmp_drop_rate += 1;
            return;
        }
        let (addresses, protocol) = match (path.source, source) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                (Addresses::V4 { source: from, destination: to }, IpProtocol::ICMP)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                (Addresses::V6 { source: from, destination: to }, IpProtocol::ICMPV6)
            }
            _ => return,
        };
        // As much of the packet as fits (RFC 1812, 4.3.2.3; RFC 4443, 2.4 c).
        let room = match addresses {
            Addresses::V4 { .. } => icmpv4::MOST_ERROR - ipv4::HEADER_LEN - icmpv4::HEADER_LEN,
            Addresses::V6 { .. } => icmpv6::MOST_ERROR - ipv6::HEADER_LEN - icmpv6::HEADER_LEN,
        };
        let quote = &quote[..quote.len().min(room)];
        let len = icmpv4::HEADER_LEN + quote.len();
        // RFC 1812, 4.3.2.5, and RFC 4443: no class but the ordinary one is asked for.
        let class = TrafficClass(0);
        let packet =
            IpPacket { addresses, protocol, hops: self.config.hop_limit, class, router_alert: false };
        let sent = self.enqueue_ip(&path, packet, len, |room| {
            let _fits = match addresses {
                Addresses::V4 { .. } => v4(fault).emit_with(room, quote),
                Addresses::V6 { .. } => v6(fault).emit_with(room, &addresses, quote),
            };
        });
        self.counters.icmp_sent += u64::from(sent);
    }
}

/// Whether an address says "everybody here".
fn is_everybody(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(v4) if v4.is_broadcast())
}

fn v4(fault: Fault) -> Icmpv4Message {
    match fault {
        Fault::PortUnreachable => Icmpv4Message::Unreachable { code: icmpv4::unreachable::PORT, mtu: 0 },
        Fault::ProtocolUnreachable => {
            Icmpv4Message::Unreachable { code: icmpv4::unreachable::PROTOCOL, mtu: 0 }
        }
        Fault::Reassembly => Icmpv4Message::TimeExceeded { code: 1 },
        // Within 60 octets of header.
        Fault::Parameter { code, pointer } => {
            Icmpv4Message::ParameterProblem { code, pointer: pointer as u8 }
        }
    }
}

fn v6(fault: Fault) -> Icmpv6Message {
    match fault {
        Fault::PortUnreachable => Icmpv6Message::Unreachable { code: icmpv6::unreachable::PORT },
        Fault::Reassembly => Icmpv6Message::TimeExceeded { code: 1 },
        Fault::Parameter { code, pointer } => Icmpv6Message::ParameterProblem { code, pointer },
        Fault::ProtocolUnreachable => {
            Icmpv6Message::ParameterProblem { code: icmpv6::parameter::NEXT_HEADER, pointer: 6 }
        }
    }
}
