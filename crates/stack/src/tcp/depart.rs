//! The way out: connections that have something to say take turns, and what they say goes from their buffers straight into the
//! caller's frame.

use super::settle::Before;
use super::table::Entry;
use crate::Stack;
use crate::egress::{Behind, Burst, Fragmentation, Frame, Hop, Kind, Outgoing, Segmented, write_segment};
use crate::iface::{IfaceId, Shape};
use crate::time::Instant;
use bypath_wire::ip::Ecn;
use bypath_wire::{IpProtocol, MacAddr};

/// Octets of payload that one frame carries at most which the link cuts: 65,535 without headers of 80 octets.
const MOST: usize = 65_535 - 80;
/// Segments that a connection says on one turn where the link does not cut.
const TURN: usize = 16;
/// Octets of payload that are not copied behind their headers, where that is possible: of fewer the copy costs next to nothing.
const APART: usize = 8 << 10;
/// Octets of Ethernet header and tag, IPv6 header, and a TCP header with all options.
const HEADERS: usize = 18 + 40 + 60;

impl Stack {
    /// The next frame of the connections that have something to say on a link. `None`: the one whose turn it was has nothing, or
    /// cannot say it; others may.
    pub(crate) fn transmit_tcp(
        &mut self,
        now: Instant,
        link: IfaceId,
        apart: bool,
        room: &mut [u8],
    ) -> Option<Frame> {
        if self.ifaces[link.at()].burst.is_some()
            && let Some(frame) = self.transmit_burst(link, room)
        {
            return Some(frame);
        }
        let index = self.ifaces[link.at()].talkers.pop_front()?;
        self.tcp.clock = now;
        let (generation, scarce) = (self.generation, self.tcp.is_full(index, self.config.tcp.octets));
        let entry = self.tcp.entry_mut(index)?;
        entry.listed = false;
        if entry.way.generation != generation {
            self.find_way(now, index);
        }
        let entry = self.tcp.entry_mut(index)?;
        let iface = entry.way.iface;
        if self.ifaces[iface.at()].link != link {
            self.list_or_free(index);
            return None;
        }
        let mac = match entry.way.hop {
            Hop::None => MacAddr::UNSPECIFIED,
            Hop::Station(mac) => mac,
            Hop::Neighbor(address) => match self.ifaces[iface.at()].neighbors.lookup(now, address) {
                Some(mac) => mac,
                None => {
                    let before = Before::of(entry);
                    // What it has to say may be nothing any more.
                    if entry.connection.wants_transmit() && !self.forgets_reset(index) {
                        self.park(now, index, iface, address);
                    } else {
                        self.settle_silently(now, index, &before);
                    }
                    return None;
                }
            },
        };
        let shape = self.ifaces[iface.at()].shape;
        let most = most(entry, &shape, room.len());
        let before = Before::of(entry);
        entry.connection.scarce = scarce;
        let Some(segment) = entry.connection.poll_transmit(now, most) else {
            self.settle_silently(now, index, &before);
            return None;
        };
        let outgoing = Outgoing {
            iface,
            hop: entry.way.hop,
            addresses: entry.ends.addresses,
            hops: entry.options.hop_limit.unwrap_or(self.config.hop_limit).max(1),
            class: entry.options.class.with_ecn(if segment.ect { Ecn::Capable0 } else { Ecn::NotCapable }),
            fragmentation: Fragmentation::Never,
            mtu: u32::MAX,
            kind: Kind::Ip { protocol: IpProtocol::TCP, router_alert: false },
            owner: None,
            whom: 0,
        };
        if segment.len > segment.cut && !(shape.offload.segmentation && shape.offload.checksum) {
            let ports = (entry.ends.local_port, entry.ends.remote_port);
            let whose = (index, entry.connection.first_number());
            let burst = if entry.way.lost {
                None
            } else {
                Burst::new(&shape, &outgoing, mac, ports, &segment, whose)
            };
            match burst {
                Some(_) => {}
                None if entry.way.lost => self.counters.tcp_drop_unreachable += 1,
                None => self.counters.link_drop_no_room += 1,
            }
            self.ifaces[link.at()].burst = burst;
            self.settle(now, index, &before);
            return self.transmit_burst(link, room);
        }
        let segmented = Segmented {
            ports: (entry.ends.local_port, entry.ends.remote_port),
            segment: &segment,
            octets: entry.connection.octets(&segment),
        };
        let apart = apart && shape.offload.checksum && segment.len >= APART;
        let frame = if entry.way.lost {
            None
        } else {
            write_segment(&shape, &outgoing, mac, &segmented, apart, room)
        };
        if apart && frame.is_some() {
            let (iss, len) = (entry.connection.first_number(), segment.len as u32);
            self.behind = Some(Behind { index, iss, seq: segment.seq, len });
        }
        let segments = segment.len.div_ceil(segment.cut.max(1)).max(1) as u64;
        entry.segments_out += segments;
        match &frame {
            Some(_) => {
                self.counters.tcp_sent += segments;
                *self.counters.sent(&outgoing) += 1;
            }
            None if entry.way.lost => self.counters.tcp_drop_unreachable += 1,
            None => self.counters.link_drop_no_room += 1,
        }
        self.settle(now, index, &before);
        frame
    }

    /// The next frame of what a connection has begun to say. `None`: there is none, as the connection has ended meanwhile, or there is
    /// no room for it.
    #[inline]
    fn transmit_burst(&mut self, link: IfaceId, room: &mut [u8]) -> Option<Frame> {
        let burst = self.ifaces[link.at()].burst.as_mut()?;
        let entry =
            self.tcp.entry_mut(burst.index).filter(|entry| entry.connection.first_number() == burst.iss);
        let octets = entry.and_then(|entry| {
            entry.segments_out += 1;
            entry.connection.octets_at(burst.next, burst.next_len())
        });
        let Some(octets) = octets else {
            self.ifaces[link.at()].burst = None;
            return None;
        };
        let frame = burst.write(octets, room);
        match &frame {
            Some(_) => {
                self.counters.tcp_sent += 1;
                *self.counters.sent_by(&burst.addresses) += 1;
            }
            None => self.counters.link_drop_no_room += 1,
        }
        if burst.left == 0 || frame.is_none() {
            self.ifaces[link.at()].burst = None;
        }
        frame
    }

    /// Looks for the way once more.
    #[cold]
    pub(super) fn find_way(&mut self, now: Instant, index: u32) {
        let Some(entry) = self.tcp.entry(index) else { return };
        let found = self.tcp_way(&entry.ends, &entry.options, entry.foreign);
        let generation = self.generation;
        let Some(entry) = self.tcp.entry_mut(index) else { return };
        match found {
            Ok((way, sizes)) => {
                entry.way = way;
                entry.connection.path_changed(now, sizes.path);
            }
            Err(_) => (entry.way.generation, entry.way.lost) = (generation, true),
        }
    }
}

/// Octets of payload that the next frame may have.
#[inline]
fn most(entry: &Entry, shape: &Shape, room: usize) -> usize {
    let one = entry.connection.mss();
    // CWR stands in the first segment alone (RFC 3168, 6.1.2): not all that cut know that.
    if shape.offload.segmentation && shape.offload.checksum && !entry.connection.tells_of_reduction() {
        MOST.min(room.saturating_sub(HEADERS)).max(one)
    } else {
        // What it says on one turn.
        TURN * one
    }
}
