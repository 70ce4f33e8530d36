//! The way in: frames, and the interface that their packets belong to.

use crate::Stack;
use crate::iface::{IfaceId, Medium};
use crate::path::Reach;
use crate::tcp::direct::{Direct, Readers};
use crate::time::Instant;
use bypath_wire::meta::{ChecksumState, Gso, Timestamp};
use bypath_wire::{Addresses, EtherType, EthernetHeader, FrameMeta, TrafficClass, ip};

/// How a packet came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    pub now: Instant,
    pub through: IfaceId,
    /// Its frame was addressed to a group, or everybody.
    pub link_group: bool,
    /// It comes from ourselves.
    pub looped: bool,
    pub meta: &'a FrameMeta,
}

/// A packet that is ours, without its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    pub now: Instant,
    pub through: IfaceId,
    pub addresses: Addresses,
    pub reach: Reach,
    pub hops: u8,
    pub class: TrafficClass,
    pub link_group: bool,
    /// It comes from ourselves.
    pub looped: bool,
    /// To somebody else: for the forwarder.
    pub foreign: bool,
    pub checksum: ChecksumState,
    pub gso: Option<Gso>,
    pub timestamp: Option<Timestamp>,
    /// The packet, or that of the first fragment, as far as it is known: what errors quote.
    pub quote: &'a [u8],
    /// IGMP and MLD want one (RFC 3376, 4; RFC 2710, 3).
    pub router_alert: bool,
}

impl Stack {
    /// Takes a frame that a link received. `iface`: the link's interface, also for frames of VLANs on it.
    pub fn handle_frame(&mut self, now: Instant, iface: IfaceId, frame: &[u8], meta: &FrameMeta) {
        self.handle_frame_for(now, iface, frame, meta, &mut Readers);
    }

    /// The same, where applications take octets of connections as they come. They are offered those of segments that follow each other
    /// and say nothing beside; others are to be read all the same.
    pub fn handle_frame_for(
        &mut self,
        now: Instant,
        iface: IfaceId,
        frame: &[u8],
        meta: &FrameMeta,
        direct: &mut dyn Direct,
    ) {
        if self.predicted(now, iface, frame, meta, direct) {
            return;
        }
        self.tcp.last = None;
        self.handle_other(now, iface, frame, meta);
        if let Some(index) = self.tcp.last {
            self.learn(iface, frame, meta, index);
        }
    }

    /// Takes a frame of which nothing is known.
    fn handle_other(&mut self, now: Instant, iface: IfaceId, frame: &[u8], meta: &FrameMeta) {
        self.counters.link_received += 1;
        let Some(port) = self.ifaces.get(iface.at()) else { return };
        let mut origin = Origin { now, through: iface, link_group: false, looped: false, meta };
        let Medium::Ethernet(own) = port.shape.medium else {
            return self.handle_packet(&origin, frame);
        };
        let Ok((header, packet)) = EthernetHeader::parse(frame) else {
            self.counters.link_drop_short += 1;
            return;
        };
        let tag = meta.vlan.or(header.tags.outermost().copied());
        let tags = header.tags.len() + usize::from(meta.vlan.is_some());
        // An identifier of 0 says a priority and no VLAN (IEEE 802.1Q, 9.6).
        let vid = tag.map_or(0, |tag| tag.vid);
        if vid != 0 || tags > 1 {
            let vlan = port.vlans.iter().find(|(id, _)| *id == vid).filter(|_| tags == 1);
            let Some(&(_, vlan)) = vlan else {
                self.counters.link_drop_vlan += 1;
                return;
            };
            origin.through = vlan;
        }
        // RFC 4862, 5.4.3: a link that gives back what we sent must not make us doubt our own addresses.
        if header.source == own {
            self.counters.link_drop_own += 1;
            return;
        }
        origin.link_group = header.destination.is_multicast();
        if header.destination != own && !origin.link_group {
            self.counters.link_drop_other_station += 1;
            return;
        }
        match header.ethertype {
            EtherType::IPV4 => self.input_v4(&origin, packet),
            EtherType::IPV6 => self.input_v6(&origin, packet),
            EtherType::ARP => self.input_arp(&origin, packet),
            _ => self.counters.link_drop_protocol += 1,
        }
    }

    /// Takes a packet that we sent to ourselves.
    pub(crate) fn handle_looped(&mut self, now: Instant, through: IfaceId, packet: &[u8], meta: &FrameMeta) {
        self.handle_packet(&Origin { now, through, link_group: false, looped: true, meta }, packet);
    }

    fn handle_packet(&mut self, origin: &Origin<'_>, packet: &[u8]) {
        match ip::version(packet) {
            Some(4) => self.input_v4(origin, packet),
            Some(6) => self.input_v6(origin, packet),
            _ => self.counters.link_drop_protocol += 1,
        }
    }
}
