//! The way in: from a packet to the connection that its segment is for.

use super::ends::Ends;
use super::input::Arrival;
use super::settle::Before;
use super::table::{NEVER, Owner, Whose};
use super::time_wait::Verdict;
use crate::Stack;
use crate::egress::Hop;
use crate::ingress::Packet;
use crate::path::Reach;
use crate::time::Instant;
use bypath_wire::ip::Ecn;
use bypath_wire::meta::{ChecksumState, Gso, GsoKind};
use bypath_wire::tcp::{TcpFlags, TcpHeader, verify};
use core::time::Duration;

/// So often what is acknowledged shows that a neighbour is there: more often than one is asked (RFC 4861, 10: ReachableTime is
/// 15 s at least, DELAY_FIRST_PROBE_TIME 5 s).
const CONFIRM: Duration = Duration::from_secs(5);

impl Stack {
    pub(crate) fn input_tcp(&mut self, packet: &Packet<'_>, segment: &[u8]) {
        self.counters.tcp_received += 1;
        let Ok((header, payload)) = TcpHeader::parse(segment) else {
            self.counters.tcp_drop_malformed += 1;
            return;
        };
        // The sender's machine is ours, or the device looked.
        if packet.checksum == ChecksumState::Unknown && !verify(&packet.addresses, segment) {
            self.counters.tcp_drop_checksum += 1;
            return;
        }
        // RFC 9293, 3.9.2.3 (MUST-57): "A TCP implementation MUST silently discard an incoming SYN segment that is addressed to
        // a broadcast or multicast address"; nothing else means anything there, either.
        let of_one = packet.reach == Reach::Host && !packet.link_group;
        let nobodys = packet.addresses.source().is_unspecified();
        if !of_one || nobodys {
            self.counters.tcp_drop_address += 1;
            return;
        }
        self.tcp.clock = packet.now;
        let (own, other) = (header.destination_port, header.source_port);
        let ends = Ends::new(packet.addresses.reversed(), own, other, packet.through);
        let options = header.options.known();
        let arrival = Arrival {
            header: &header,
            options: &options,
            payload,
            marked: packet.class.ecn() == Ecn::Experienced,
            segments: segments(packet.gso.as_ref(), segment),
        };
        match self.tcp.find(&ends) {
            Some(Whose::Connection(index)) => {
                self.segment(packet.now, index, &arrival);
                self.tcp.last = Some(index).filter(|_| !packet.foreign);
            }
            Some(Whose::Waiting(place)) => self.segment_of_waiting(packet, &ends, place, &arrival),
            // Who is asked for a connection to port 0 refuses it; nobody calls from there.
            None if other == 0 => self.counters.tcp_drop_address += 1,
            None => self.segment_of_nobody(packet, &ends, &arrival, None),
        }
    }

    /// A segment of a connection.
    #[inline]
    pub(super) fn segment(&mut self, now: Instant, index: u32, arrival: &Arrival<'_>) {
        let full = self.tcp.is_full(index, self.config.tcp.octets);
        let Some(entry) = self.tcp.entry_mut(index) else { return };
        entry.segments_in += u64::from(arrival.segments);
        if let Owner::HalfOpen(listener) = entry.owner {
            // As Linux has it: what would become open while the queue is full stays half open, and is asked once more later.
            let opens = !arrival.header.flags.has_any(TcpFlags::SYN | TcpFlags::RST);
            let listener = self.tcp.index(listener).and_then(|at| self.tcp.listener(at));
            if opens && listener.is_some_and(|l| l.is_full()) {
                self.counters.tcp_drop_accept_full += 1;
                return;
            }
        }
        if full && self.without_memory(now, index, arrival) {
            return;
        }
        let Some(entry) = self.tcp.entry_mut(index) else { return };
        let before = Before::of(entry);
        let (una, challenged) = (entry.connection.snd.una, entry.connection.challenged);
        entry.connection.handle_segment(now, arrival);
        self.counters.tcp_challenges_sent += u64::from(entry.connection.challenged != challenged);
        if entry.connection.snd.una != una && (entry.confirms <= now || entry.confirms == NEVER) {
            self.confirm(now, index);
        }
        self.settle(now, index, &before);
    }

    /// What we sent was acknowledged, so the neighbour by which it went passes on what it gets (RFC 4861, 7.3.1).
    #[cold]
    pub(super) fn confirm(&mut self, now: Instant, index: u32) {
        let Some(entry) = self.tcp.entry_mut(index) else { return };
        let first = core::mem::replace(&mut entry.confirms, now + CONFIRM) == NEVER;
        // Who has only just begun has only just asked for the neighbour, or others have.
        if !first
            && entry.way.generation == self.generation
            && let Hop::Neighbor(address) = entry.way.hop
        {
            self.ifaces[entry.way.iface.at()].neighbors.confirmed(now, address);
        }
    }

    /// There is no memory for all of its octets: the first ones may have a place, and what else stands in the segment counts all the
    /// same. False: it needs none.
    #[cold]
    fn without_memory(&mut self, now: Instant, index: u32, arrival: &Arrival<'_>) -> bool {
        let Some(entry) = self.tcp.entry_mut(index) else { return false };
        let payload = &arrival.payload[..entry.connection.affordable(arrival)];
        if payload.len() == arrival.payload.len() {
            return false;
        }
        self.counters.tcp_drop_memory += 1;
        let mut header = *arrival.header;
        header.flags = header.flags.without(TcpFlags::FIN | TcpFlags::PSH);
        let before = Before::of(entry);
        entry.connection.handle_segment(now, &Arrival { header: &header, payload, ..*arrival });
        // Who sent it hears at once that it has to come again.
        entry.connection.wanted.ack |= entry.connection.is_synchronized();
        self.settle(now, index, &before);
        true
    }

    /// A segment of a connection that was.
    #[cold]
    fn segment_of_waiting(&mut self, packet: &Packet<'_>, ends: &Ends, place: u32, arrival: &Arrival<'_>) {
        let now = packet.now;
        let Some(waiting) = self.tcp.waits.get_mut(place) else { return };
        let until = waiting.until;
        let verdict = waiting.handle(now, arrival.header, arrival.options, arrival.payload.len());
        let waiting = *waiting;
        if waiting.until != until {
            self.tcp.waits.renew(place);
        }
        match verdict {
            Verdict::Nothing => {}
            Verdict::Acknowledge => self.acknowledge_again(now, packet.foreign, &waiting),
            Verdict::Begin(iss) => {
                let listens = self.tcp.listener_for(ends, packet.through).is_some();
                if listens || packet.foreign {
                    self.tcp.forget_waiting(place);
                    self.counters.tcp_time_wait_reused += 1;
                    self.segment_of_nobody(packet, ends, arrival, Some(iss));
                } else {
                    self.acknowledge_again(now, packet.foreign, &waiting);
                }
            }
        }
    }

    /// A segment of no connection: a listener's, or nobody's.
    fn segment_of_nobody(
        &mut self,
        packet: &Packet<'_>,
        ends: &Ends,
        arrival: &Arrival<'_>,
        iss: Option<bypath_wire::seq::SeqNumber>,
    ) {
        let forwarder = self.tcp.forwarder.and_then(|id| self.tcp.index(id));
        if packet.foreign && forwarder.is_none() {
            // Nobody takes what is for others any more, but for connections that are open.
            self.counters.tcp_drop_no_socket += 1;
            return;
        }
        let listener = if packet.foreign { forwarder } else { self.tcp.listener_for(ends, packet.through) };
        match listener {
            Some(listener) => self.call(packet, ends, listener, arrival, iss),
            None => {
                self.counters.tcp_drop_no_socket += 1;
                self.refuse(packet, ends, arrival);
            }
        }
    }
}

/// How many segments a packet was put together from.
#[inline]
pub(super) fn segments(gso: Option<&Gso>, segment: &[u8]) -> u32 {
    match gso {
        Some(Gso { kind: GsoKind::Tcp4 | GsoKind::Tcp6, size, .. }) if *size > 0 => {
            let header = segment.get(12).map_or(0, |octet| usize::from(octet >> 4) * 4);
            segment.len().saturating_sub(header).div_ceil((*size).into()).max(1) as u32
        }
        _ => 1,
    }
}
