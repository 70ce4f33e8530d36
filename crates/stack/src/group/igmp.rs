//! IGMP on the wire: version 3 (RFC 3376), and 2 and 1 for the routers that speak those (RFC 2236, RFC 1112).

use super::{Version, float};
use crate::Stack;
use crate::egress::IpPacket;
use crate::iface::IfaceId;
use crate::ingress::Packet;
use crate::path::{Path, Reach};
use bypath_wire::meta::ChecksumState;
use bypath_wire::{Addresses, IpProtocol, TrafficClass, checksum};
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

/// Routers that speak version 3 (RFC 3376, 4.2.14).
const REPORTS_V3: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// All routers.
const ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);

const QUERY: u8 = 0x11;
const REPORT_V1: u8 = 0x12;
const REPORT_V2: u8 = 0x16;
const LEAVE: u8 = 0x17;
const REPORT_V3: u8 = 0x22;

/// Kinds of group records (RFC 3376, 4.2.12). "Exclude nothing" is a membership.
pub(super) const MODE_IS_EXCLUDE: u8 = 2;
pub(super) const CHANGE_TO_INCLUDE: u8 = 3;
pub(super) const CHANGE_TO_EXCLUDE: u8 = 4;

pub(super) const fn record(member: bool, changed: bool) -> u8 {
    match (member, changed) {
        (true, true) => CHANGE_TO_EXCLUDE,
        (true, false) => MODE_IS_EXCLUDE,
        (false, _) => CHANGE_TO_INCLUDE,
    }
}

impl Stack {
    pub(super) fn report_igmp(
        &mut self,
        iface: IfaceId,
        group: Ipv4Addr,
        version: Version,
        member: bool,
        changed: bool,
    ) {
        let [a, b, c, d] = group.octets();
        let (to, mut message, len) = match (version, member) {
            (Version::Newest, _) => {
                let kind = record(member, changed);
                (REPORTS_V3, [REPORT_V3, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, 0, a, b, c, d], 16)
            }
            (Version::Second, true) => (group, [REPORT_V2, 0, 0, 0, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0], 8),
            (Version::Second, false) => (ROUTERS, [LEAVE, 0, 0, 0, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0], 8),
            (Version::First, true) => (group, [REPORT_V1, 0, 0, 0, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0], 8),
            // RFC 1112 has no word for it.
            (Version::First, false) => return,
        };
        let message = &mut message[..len];
        let check = checksum::checksum(message);
        message[2..4].copy_from_slice(&check.to_be_bytes());
        let own = &self.ifaces[iface.at()];
        // RFC 3376, 4.2.13: from 0.0.0.0 if there is no address yet.
        let source = own.asking_v4(to).unwrap_or(Ipv4Addr::UNSPECIFIED);
        let path = Path {
            iface,
            next_hop: IpAddr::V4(to),
            source: IpAddr::V4(source),
            mtu: own.shape.mtu as u32,
            reach: Reach::Group,
        };
        let header = IpPacket {
            addresses: Addresses::V4 { source, destination: to },
            protocol: IpProtocol::IGMP,
            hops: 1,
            // RFC 3376, 4: internetwork control.
            class: TrafficClass(0xc0),
            router_alert: version != Version::First,
        };
        let sent = self.enqueue_ip(&path, header, len, |room| room.copy_from_slice(message));
        self.counters.group_sent += u64::from(sent);
    }

    pub(crate) fn input_igmp(&mut self, packet: &Packet<'_>, message: &[u8]) {
        self.counters.group_received += 1;
        let [kind, code, _, _, a, b, c, d] = match message.first_chunk::<8>() {
            Some(fixed) if packet.checksum == ChecksumState::Verified || checksum::is_valid(message) => {
                *fixed
            }
            _ => {
                self.counters.group_drop_malformed += 1;
                return;
            }
        };
        let (now, iface) = (packet.now, packet.through);
        let group = Ipv4Addr::new(a, b, c, d);
        match kind {
            QUERY => {
                let about = Some(IpAddr::V4(group)).filter(|_| !group.is_unspecified());
                let tenths = if message.len() >= 12 {
                    // RFC 3376, 4.1.1.
                    float(code.into(), 4)
                } else {
                    // RFC 3376, 7.1: version 1 has no time there, and answers take ten seconds.
                    let first = code == 0;
                    self.ifaces[iface.at()].groups.old_v4.heard(now, first);
                    if first { 100 } else { code.into() }
                };
                self.queried(now, iface, true, about, Duration::from_millis(100) * tenths);
            }
            REPORT_V1 | REPORT_V2 => self.reported_by_other(now, iface, IpAddr::V4(group)),
            LEAVE | REPORT_V3 => {}
            _ => self.counters.group_drop_malformed += 1,
        }
    }
}
