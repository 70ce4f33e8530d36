//! Datagrams that came in (RFC 768; RFC 1122, 4.1).

use super::demux::Arrival;
use crate::Stack;
use crate::icmp::Fault;
use crate::ingress::Packet;
use crate::path::Reach;
use crate::socket::{Datagram, scoped};
use bypath_wire::meta::{ChecksumState, GsoKind};
use bypath_wire::udp::{UdpChecksum, verify};
use bypath_wire::{UdpHeader, meta::Gso};
use core::net::SocketAddr;

impl Stack {
    pub(crate) fn input_udp(&mut self, packet: &Packet<'_>, datagram: &[u8]) {
        let Ok((header, payload)) = UdpHeader::parse(datagram) else {
            self.counters.udp_drop_malformed += 1;
            return;
        };
        if !checksum_fits(packet, datagram) {
            self.counters.udp_drop_checksum += 1;
            return;
        }
        let from = SocketAddr::new(packet.addresses.source(), header.source_port);
        let to = SocketAddr::new(packet.addresses.destination(), header.destination_port);
        let arrival = Arrival { from, to, through: packet.through };
        if packet.foreign {
            if let Some(id) = self.udp_forwarder() {
                self.take(packet, &arrival, id.index(), payload);
            }
            return;
        }
        if packet.reach != Reach::Host {
            return self.take_by_all(packet, &arrival, payload);
        }
        match self.demux.lookup(&arrival) {
            Some(index) => self.take(packet, &arrival, index, payload),
            None => {
                self.counters.udp_drop_no_socket += 1;
                let (through, quote) = (Some(packet.through), packet.quote);
                // RFC 1122, 4.1.3.1.
                self.icmp_error(packet.now, through, packet.link_group, quote, Fault::PortUnreachable);
            }
        }
    }

    /// To a group or everybody: all who listen get it.
    #[cold]
    fn take_by_all(&mut self, packet: &Packet<'_>, arrival: &Arrival, payload: &[u8]) {
        let mut taken = false;
        // The tables are not changed meanwhile, but they cannot be borrowed while a socket's queue is written to.
        let mut hearers = core::mem::take(&mut self.hearers);
        hearers.extend(self.demux.each(arrival));
        for index in hearers.drain(..) {
            let whom = self.demux.binding(index).map_or(0, |binding| binding.whom);
            if !self.copies.may_have(packet.now, whom) {
                self.counters.udp_drop_queue_full += 1;
                taken = true;
                continue;
            }
            let (_, socket) = self.sockets.at_mut(index);
            let group = arrival.to.ip();
            let joined = packet.reach == Reach::Broadcast
                || if group.is_ipv4() { socket.options.group_all } else { socket.options.group_all_v6 }
                || socket.groups.contains(&(packet.through, group));
            if joined {
                self.take(packet, arrival, index, payload);
                taken = true;
            }
        }
        self.hearers = hearers;
        if !taken {
            self.counters.udp_drop_no_socket += 1;
        }
    }

    /// Gives a datagram to a socket; one that was put together from several as these, unless it wants them in one piece.
    #[inline]
    fn take(&mut self, packet: &Packet<'_>, arrival: &Arrival, index: u32, payload: &[u8]) {
        let through = packet.through;
        let datagram = Datagram {
            from: scoped(arrival.from.ip(), arrival.from.port(), through),
            to: scoped(arrival.to.ip(), arrival.to.port(), through),
            iface: through,
            hop_limit: packet.hops,
            class: packet.class,
            segment: None,
            timestamp: packet.timestamp,
            looped: packet.looped,
        };
        let size = match packet.gso {
            Some(Gso { kind: GsoKind::Udp, size, .. }) if size > 0 && payload.len() > size.into() => size,
            _ => return self.count_delivery(index, datagram, payload),
        };
        if self.sockets.at_mut(index).1.options.gro {
            return self.count_delivery(index, Datagram { segment: Some(size), ..datagram }, payload);
        }
        for part in payload.chunks(size.into()) {
            self.count_delivery(index, datagram, part);
        }
    }

    #[inline]
    fn count_delivery(&mut self, index: u32, datagram: Datagram, payload: &[u8]) {
        if self.deliver(index, datagram, payload) {
            self.counters.udp_delivered += 1;
        } else {
            self.counters.udp_drop_queue_full += 1;
        }
    }
}

#[inline]
fn checksum_fits(packet: &Packet<'_>, datagram: &[u8]) -> bool {
    match packet.checksum {
        // The sender's machine is ours, or the device looked.
        ChecksumState::Verified | ChecksumState::Partial { .. } => true,
        ChecksumState::Unknown => match verify(&packet.addresses, datagram) {
            UdpChecksum::Fits => true,
            UdpChecksum::Wrong => false,
            // RFC 8200, 8.1: under IPv6 there must be one.
            UdpChecksum::Absent => packet.addresses.source().is_ipv4(),
        },
    }
}
