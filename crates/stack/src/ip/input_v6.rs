//! IPv6 packets that came in: RFC 8200, 4.

use super::reassembly::{Fragment, Key, Reason};
use crate::Stack;
use crate::icmp::Fault;
use crate::iface::IfaceId;
use crate::ingress::{Origin, Packet};
use crate::path::Reach;
use bypath_wire::icmpv6::parameter;
use bypath_wire::ipv6_ext::{
    Extension, ExtensionHeader, ExtensionWalk, Ipv6OptionKind, Ipv6Options, UnknownAction,
};
use bypath_wire::{IpProtocol, Ipv6Header, ParseError, icmpv6, ipv6, udp};
use core::net::{IpAddr, Ipv6Addr};

impl Stack {
    pub(crate) fn input_v6(&mut self, origin: &Origin<'_>, packet: &[u8]) {
        self.counters.ipv6_received += 1;
        let Ok((header, payload)) = Ipv6Header::parse(packet) else {
            self.counters.ipv6_drop_malformed += 1;
            return;
        };
        let Some((reach, foreign)) = self.accept_v6(origin, &header) else { return };
        let accepted = Packet {
            now: origin.now,
            through: origin.through,
            addresses: header.addresses(),
            reach,
            hops: header.hop_limit,
            class: header.class,
            link_group: origin.link_group,
            looped: origin.looped,
            foreign,
            checksum: origin.meta.checksum,
            gso: origin.meta.gso,
            timestamp: origin.meta.timestamp,
            quote: &packet[..ipv6::HEADER_LEN + payload.len()],
            router_alert: false,
        };
        self.upper_v6(&accepted, header.next_header, payload, false);
    }

    /// Walks the extension headers. `whole`: of a datagram made of fragments, whose first headers were walked already.
    pub(super) fn upper_v6(&mut self, packet: &Packet<'_>, next: IpProtocol, payload: &[u8], whole: bool) {
        let mut packet = *packet;
        let mut walk = ExtensionWalk::new(next, payload);
        // Where the next header's number stands, in octets of the packet.
        let mut named_at = 6;
        while let Some(step) = walk.next() {
            let Ok(header) = step else {
                self.counters.ipv6_drop_extension += 1;
                if let Err(ParseError::ExtensionOrder { .. }) = step {
                    // RFC 8200, 4: hop-by-hop options elsewhere are an unknown next header.
                    self.parameter_problem(&packet, parameter::NEXT_HEADER, named_at);
                }
                return;
            };
            let begins = ipv6::HEADER_LEN + header.at;
            match header.extension {
                Extension::HopByHop(options) | Extension::DestinationOptions(options) => {
                    if !self.options_v6(&mut packet, options, begins) {
                        return;
                    }
                }
                // RFC 8200, 4.4: with no segments left it is ignored; else it is not known (RFC 5095 for type 0).
                Extension::Routing { segments_left: 0, .. } => {}
                Extension::Routing { .. } => {
                    self.counters.ipv6_drop_routing += 1;
                    return self.parameter_problem(&packet, parameter::FIELD, begins as u32 + 2);
                }
                Extension::Fragment(fragment) if !fragment.is_atomic() => {
                    return self.fragment_v6(&packet, &header, &walk, payload, whole);
                }
                // RFC 6946, 4: alone in its datagram.
                Extension::Fragment(_) => {}
                // RFC 4302: what it protects cannot be checked here, nor read past.
                Extension::Authentication { .. } => {
                    self.counters.ipv6_drop_extension += 1;
                    return self.parameter_problem(&packet, parameter::NEXT_HEADER, named_at);
                }
            }
            named_at = begins as u32;
        }
        let (protocol, _, rest) = walk.rest();
        let fault = Fault::Parameter { code: parameter::NEXT_HEADER, pointer: named_at };
        self.upper(&packet, protocol, rest, fault);
    }

    fn parameter_problem(&mut self, packet: &Packet<'_>, code: u8, pointer: u32) {
        let fault = Fault::Parameter { code, pointer };
        self.icmp_error(packet.now, Some(packet.through), packet.link_group, packet.quote, fault);
    }

    fn fragment_v6(
        &mut self,
        packet: &Packet<'_>,
        header: &ExtensionHeader<'_>,
        walk: &ExtensionWalk<'_>,
        payload: &[u8],
        whole: bool,
    ) {
        let Extension::Fragment(fragment) = header.extension else { return };
        // A fragment of a fragment is nobody's work.
        if whole {
            self.counters.ipv6_drop_extension += 1;
            return;
        }
        if fragment.offset == 0 && !has_all_headers(walk.clone()) {
            // RFC 7112, 5.
            self.counters.fragments_drop_headers += 1;
            return self.parameter_problem(packet, parameter::INCOMPLETE_CHAIN, 0);
        }
        let (source, destination) = (packet.addresses.source(), packet.addresses.destination());
        let key = Key { source, destination, identification: fragment.identification, protocol: None };
        let octets = &payload[header.at + header.len..];
        let part = Fragment {
            offset: fragment.offset.into(),
            more: fragment.more,
            octets,
            packet: packet.quote,
            protocol: header.next_header,
        };
        // RFC 8200, 4.5: a length that is no multiple of 8, or leads beyond the longest packet, is told.
        match self.add_fragment(packet, key, &part) {
            Some(Reason::Length) if !octets.is_empty() => {
                self.parameter_problem(packet, parameter::FIELD, 4);
            }
            Some(Reason::TooLong) => {
                let at = (ipv6::HEADER_LEN + header.at + 2) as u32;
                self.parameter_problem(packet, parameter::FIELD, at);
            }
            _ => {}
        }
    }

    #[inline]
    fn accept_v6(&mut self, origin: &Origin<'_>, header: &Ipv6Header) -> Option<(Reach, bool)> {
        let Origin { through, looped, .. } = *origin;
        // What we send to ourselves has left its link.
        let link = Some(through).filter(|_| !looped);
        let (source, destination) = (header.source, header.destination);
        // RFC 4291, 2.5.3 and 2.7: not from a group; ::1 on no link. IPv4 addresses are in IPv4 packets (RFC 4942, 2.2).
        let own = || !source.is_unspecified() && self.is_local(IpAddr::V6(source), link);
        let mapped = |ip: Ipv6Addr| ip.to_ipv4_mapped().is_some();
        let martian = !looped && (source.is_loopback() || destination.is_loopback() || own());
        if source.is_multicast() || mapped(source) || mapped(destination) || martian {
            self.counters.ipv6_drop_source += 1;
            return None;
        }
        let accepted = if destination.is_multicast() {
            self.hears_v6(through, destination).then_some((Reach::Group, false))
        } else if self.is_local(IpAddr::V6(destination), link) {
            Some((Reach::Host, false))
        } else {
            let taken = self.forwards(header.next_header) && !destination.is_unspecified();
            (taken && through != IfaceId::LOOPBACK && !origin.link_group).then_some((Reach::Host, true))
        };
        if accepted.is_none() {
            self.counters.ipv6_drop_not_local += 1;
        }
        accepted
    }

    fn hears_v6(&self, iface: IfaceId, group: Ipv6Addr) -> bool {
        // RFC 4291, 2.8: every node is in the groups of all nodes, of scope 1 and 2.
        let all_nodes = group.segments() == [0xff02, 0, 0, 0, 0, 0, 0, 1]
            || group.segments() == [0xff01, 0, 0, 0, 0, 0, 0, 1];
        all_nodes || self.is_member(iface, IpAddr::V6(group))
    }

    /// Whether the options let the packet pass (RFC 8200, 4.2). `begins`: where their header does, in octets of the packet.
    fn options_v6(&mut self, packet: &mut Packet<'_>, options: Ipv6Options<'_>, begins: usize) -> bool {
        for option in options {
            let Ok(option) = option else {
                self.counters.ipv6_drop_option += 1;
                return false;
            };
            if let Ipv6OptionKind::RouterAlert(_) = option.kind {
                packet.router_alert = true;
            }
            let group = packet.reach == Reach::Group;
            let tell = match option.action() {
                UnknownAction::Skip => continue,
                UnknownAction::Discard => false,
                UnknownAction::DiscardAndTell => true,
                UnknownAction::DiscardAndTellUnlessGroup => !group,
            };
            self.counters.ipv6_drop_option += 1;
            if tell {
                self.parameter_problem(packet, parameter::OPTION, (begins + option.at) as u32);
            }
            return false;
        }
        true
    }
}

/// Whether a first fragment holds all headers down to the transport's (RFC 7112, 5).
fn has_all_headers(mut walk: ExtensionWalk<'_>) -> bool {
    if walk.by_ref().any(|step| step.is_err()) {
        return false;
    }
    let (protocol, _, rest) = walk.rest();
    let least = match protocol {
        IpProtocol::UDP => udp::HEADER_LEN,
        IpProtocol::TCP => 20,
        IpProtocol::ICMPV6 => icmpv6::HEADER_LEN,
        _ => 0,
    };
    rest.len() >= least
}
