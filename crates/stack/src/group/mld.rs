//! MLD on the wire: version 2 (RFC 3810), and 1 for the routers that speak that (RFC 2710).

use super::igmp::record;
use super::{Version, float};
use crate::Stack;
use crate::egress::IpPacket;
use crate::iface::IfaceId;
use crate::ingress::Packet;
use crate::path::{Path, Reach};
use bypath_wire::{Addresses, IpProtocol, TrafficClass, icmpv6, ipv6_ext};
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

/// Routers that speak version 2 (RFC 3810, 5.2.14).
const REPORTS_V2: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// All routers of the link.
const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

const QUERY: u8 = 130;
const REPORT_V1: u8 = 131;
const DONE: u8 = 132;
const REPORT_V2: u8 = 143;
/// The option of RFC 2711 with the value for MLD.
const ROUTER_ALERT: [u8; 4] = [5, 2, 0, 0];
/// Octets of hop-by-hop options with it.
const ALERT_LEN: usize = 8;

impl Stack {
    pub(super) fn report_mld(
        &mut self,
        iface: IfaceId,
        group: Ipv6Addr,
        version: Version,
        member: bool,
        changed: bool,
    ) {
        let mut message = [0; 28];
        let (to, len) = match (version, member) {
            (Version::Newest, _) => {
                (message[0], message[7], message[8]) = (REPORT_V2, 1, record(member, changed));
                message[12..28].copy_from_slice(&group.octets());
                (REPORTS_V2, 28)
            }
            (_, member) => {
                message[0] = if member { REPORT_V1 } else { DONE };
                message[8..24].copy_from_slice(&group.octets());
                (if member { group } else { ROUTERS }, 24)
            }
        };
        let own = &self.ifaces[iface.at()];
        // RFC 3590, 4: from nobody while there is no link-local address.
        let source = own.link_local().unwrap_or(Ipv6Addr::UNSPECIFIED);
        let addresses = Addresses::V6 { source, destination: to };
        let message = &mut message[..len];
        icmpv6::fill(&addresses, message);
        let path = Path {
            iface,
            next_hop: IpAddr::V6(to),
            source: IpAddr::V6(source),
            mtu: own.shape.mtu as u32,
            reach: Reach::Group,
        };
        let class = TrafficClass(0);
        let header =
            IpPacket { addresses, protocol: IpProtocol::HOP_BY_HOP, hops: 1, class, router_alert: false };
        let sent = self.enqueue_ip(&path, header, ALERT_LEN + len, |room| {
            let _fits = ipv6_ext::emit_options(room, IpProtocol::ICMPV6, &ROUTER_ALERT);
            room[ALERT_LEN..].copy_from_slice(message);
        });
        self.counters.group_sent += u64::from(sent);
    }

    pub(crate) fn input_mld(&mut self, packet: &Packet<'_>, message: &[u8]) {
        self.counters.group_received += 1;
        let Addresses::V6 { source, .. } = packet.addresses else { return };
        // RFC 3810, 6.2: from this link, with the alert.
        let near = source.is_unicast_link_local() && packet.hops == 1 && packet.router_alert;
        let fixed = message.first_chunk::<24>().filter(|_| near);
        let group = fixed.and_then(|fixed| fixed.last_chunk::<16>()).map(|octets| Ipv6Addr::from(*octets));
        let (Some(fixed), Some(group)) = (fixed, group) else {
            // Reports of others who have no address yet are none of our business.
            self.counters.group_drop_malformed += u64::from(message.first() == Some(&QUERY));
            return;
        };
        let (now, iface) = (packet.now, packet.through);
        match fixed[0] {
            QUERY => {
                let about = Some(IpAddr::V6(group)).filter(|_| !group.is_unspecified());
                let code = u32::from(u16::from_be_bytes([fixed[4], fixed[5]]));
                // RFC 3810, 8.1: 24 octets are version 1.
                let millis = if message.len() >= 28 {
                    float(code, 12)
                } else {
                    self.ifaces[iface.at()].groups.old_v6.heard(now, false);
                    code
                };
                self.queried(now, iface, false, about, Duration::from_millis(millis.into()));
            }
            REPORT_V1 => self.reported_by_other(now, iface, IpAddr::V6(group)),
            _ => {}
        }
    }
}
