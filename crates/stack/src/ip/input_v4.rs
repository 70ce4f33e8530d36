//! IPv4 packets that came in: RFC 791; RFC 1122, 3.2.1.

use super::reassembly::{Fragment, Key};
use crate::Stack;
use crate::icmp::Fault;
use crate::iface::IfaceId;
use crate::ingress::{Origin, Packet};
use crate::path::Reach;
use bypath_wire::ipv4::Ipv4Option;
use bypath_wire::{IpProtocol, Ipv4Header, ParseError, ipv4};
use core::net::{IpAddr, Ipv4Addr};

/// Loose and strict source and record route (RFC 791, 3.1).
const SOURCE_ROUTES: [u8; 2] = [131, 137];

impl Stack {
    pub(crate) fn input_v4(&mut self, origin: &Origin<'_>, packet: &[u8]) {
        self.counters.ipv4_received += 1;
        let Ok((header, extent)) = Ipv4Header::parse_header(packet) else {
            self.counters.ipv4_drop_malformed += 1;
            return;
        };
        // RFC 1122, 3.2.1.2: a packet with a wrong checksum is dropped silently.
        if !extent.checksum_fits {
            self.counters.ipv4_drop_checksum += 1;
            return;
        }
        // What follows the total length is the link's padding.
        let Some(packet) = packet.get(..extent.total_len) else {
            self.counters.ipv4_drop_malformed += 1;
            return;
        };
        let Some((reach, foreign)) = self.accept_v4(origin, &header) else { return };
        let mut accepted = Packet {
            now: origin.now,
            through: origin.through,
            addresses: header.addresses(),
            reach,
            hops: header.ttl,
            class: header.class,
            link_group: origin.link_group,
            looped: origin.looped,
            foreign,
            checksum: origin.meta.checksum,
            gso: origin.meta.gso,
            timestamp: origin.meta.timestamp,
            quote: packet,
            router_alert: false,
        };
        if !header.options.is_empty() && !self.options_v4(&mut accepted, &header) {
            return;
        }
        let payload = &packet[extent.header_len..];
        if header.is_fragment() {
            let key = Key {
                source: IpAddr::V4(header.source),
                destination: IpAddr::V4(header.destination),
                identification: header.identification.into(),
                protocol: Some(header.protocol),
            };
            let fragment = Fragment {
                offset: header.fragment_offset.into(),
                more: header.more_fragments,
                octets: payload,
                packet,
                protocol: header.protocol,
            };
            self.add_fragment(&accepted, key, &fragment);
            return;
        }
        self.upper_v4(&accepted, header.protocol, payload);
    }

    pub(super) fn upper_v4(&mut self, packet: &Packet<'_>, protocol: IpProtocol, payload: &[u8]) {
        self.upper(packet, protocol, payload, Fault::ProtocolUnreachable);
    }

    /// Whom a packet reaches if it is ours, and whether it is somebody else's and we take it for him.
    #[inline]
    fn accept_v4(&mut self, origin: &Origin<'_>, header: &Ipv4Header) -> Option<(Reach, bool)> {
        let Origin { through, looped, .. } = *origin;
        // What we send to ourselves has left its link.
        let link = Some(through).filter(|_| !looped);
        let (source, destination) = (header.source, header.destination);
        let iface = &self.ifaces[through.at()];
        // RFC 1122, 3.2.1.3: nobody sends from a group, from everybody, from nobody, or from 127/8 over a link. From our own
        // address nobody sends but we ("land").
        // "This host on this network", to everybody, is who asks for an address.
        let from_host = !source.is_multicast()
            && (!source.is_unspecified() || destination.is_broadcast())
            && !iface.is_broadcast(source);
        let martian = !looped
            && (source.is_loopback() || destination.is_loopback() || self.is_local(IpAddr::V4(source), link));
        if !from_host || martian {
            self.counters.ipv4_drop_source += 1;
            return None;
        }
        let accepted = if self.is_local(IpAddr::V4(destination), link) {
            // RFC 1122, 3.3.6: a frame to everybody does not carry a packet to one host.
            (!origin.link_group).then_some((Reach::Host, false))
        } else if iface.is_broadcast(destination) {
            Some((Reach::Broadcast, false))
        } else if destination.is_multicast() {
            self.hears_v4(through, destination).then_some((Reach::Group, false))
        } else {
            let taken = self.forwards(header.protocol);
            (taken && through != IfaceId::LOOPBACK && !origin.link_group).then_some((Reach::Host, true))
        };
        if accepted.is_none() {
            self.counters.ipv4_drop_not_local += 1;
        }
        accepted
    }

    fn hears_v4(&self, iface: IfaceId, group: Ipv4Addr) -> bool {
        // RFC 1112, 4: all hosts are members of 224.0.0.1.
        group == Ipv4Addr::new(224, 0, 0, 1) || self.is_member(iface, IpAddr::V4(group))
    }

    /// Whether the options can be (RFC 1122, 3.2.1.8); none of them is acted on.
    fn options_v4(&mut self, packet: &mut Packet<'_>, header: &Ipv4Header) -> bool {
        for option in &header.options {
            match option {
                Ok(Ipv4Option::RouterAlert(_)) => packet.router_alert = true,
                // RFC 7126, 4.3 and 4.4: attackers only have a use for these.
                Ok(Ipv4Option::Other { kind, .. }) if SOURCE_ROUTES.contains(&kind) => {
                    self.counters.ipv4_drop_source_route += 1;
                    return false;
                }
                Ok(_) => {}
                Err(error) => {
                    self.counters.ipv4_drop_option += 1;
                    let at = if let ParseError::Option { at, .. } = error { at } else { 0 };
                    let pointer = (ipv4::HEADER_LEN + at) as u32;
                    let fault = Fault::Parameter { code: 0, pointer };
                    self.icmp_error(packet.now, Some(packet.through), packet.link_group, packet.quote, fault);
                    return false;
                }
            }
        }
        true
    }
}
