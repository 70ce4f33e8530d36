//! Between the kernel's facts about a frame and [`FrameMeta`].

use bypath_sys::packet::frame::{Arrival, Departure, Tag, VnetHeader};
use bypath_wire::meta::{Addressed, ChecksumState, Gso, GsoKind, Timestamp, TimestampSource, VlanTag};
use bypath_wire::{FrameMeta, MacAddr};

// linux/virtio_net.h
const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_VALID: u8 = 2;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// What the kernel told about a received frame, which begins with its destination. `stamped`: the time is wanted.
pub(super) fn received(frame: &[u8], a: &Arrival, stamped: bool) -> FrameMeta {
    let vnet = a.vnet.unwrap_or_default();
    let checksum = if vnet.flags & NEEDS_CHECKSUM != 0 {
        ChecksumState::Partial { start: vnet.checksum_start, offset: vnet.checksum_offset }
    } else if vnet.flags & CHECKSUM_VALID != 0 || a.checksum_valid || a.checksum_missing && a.vnet.is_none() {
        ChecksumState::Verified
    } else {
        ChecksumState::Unknown
    };
    let kind = match vnet.gso_type & !GSO_ECN {
        GSO_TCP4 => Some(GsoKind::Tcp4),
        GSO_TCP6 => Some(GsoKind::Tcp6),
        GSO_UDP => Some(GsoKind::Udp),
        _ => None,
    };
    FrameMeta {
        checksum,
        gso: kind.map(|kind| Gso {
            kind,
            size: vnet.gso_size,
            header_len: vnet.header_len,
            ecn: vnet.gso_type & GSO_ECN != 0,
        }),
        vlan: a.tag.map(|t| VlanTag::from_tci(t.tpid, t.tci)),
        timestamp: a.stamp.filter(|_| stamped).map(|s| Timestamp {
            ns: s.ns,
            source: if s.hardware { TimestampSource::Hardware } else { TimestampSource::Software },
        }),
        addressed: match a.kind {
            0 => Addressed::Host,
            1 => Addressed::Broadcast,
            // The kernel compares with the device's own, and loopback has none.
            2 if frame.starts_with(&MacAddr::BROADCAST.0) => Addressed::Broadcast,
            2 => Addressed::Multicast,
            3 => Addressed::OtherHost,
            4 => Addressed::Outgoing,
            _ => Addressed::Unknown,
        },
    }
}

/// What is asked of the kernel for a frame. `timed`: the time is one at which to send.
pub(super) fn to_send(meta: &FrameMeta, timed: bool) -> Departure {
    let mut vnet = VnetHeader::default();
    if let ChecksumState::Partial { start, offset } = meta.checksum {
        (vnet.flags, vnet.checksum_start, vnet.checksum_offset) = (NEEDS_CHECKSUM, start, offset);
    }
    if let Some(gso) = meta.gso {
        let kind = match gso.kind {
            GsoKind::Tcp4 => GSO_TCP4,
            GsoKind::Tcp6 => GSO_TCP6,
            GsoKind::Udp => GSO_UDP,
        };
        vnet.gso_type = kind | if gso.ecn { GSO_ECN } else { 0 };
        (vnet.gso_size, vnet.header_len) = (gso.size, gso.header_len);
    }
    Departure {
        tag: meta.vlan.map(|t| Tag { tpid: t.tpid, tci: t.tci() }),
        vnet,
        at: meta.timestamp.filter(|_| timed).map(|t| t.ns),
    }
}

/// Whether a frame can only be sent with a virtio-net header.
pub(super) fn needs_offload(meta: &FrameMeta) -> bool {
    meta.gso.is_some() || matches!(meta.checksum, ChecksumState::Partial { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_comes_back_as_it_was() {
        let meta = FrameMeta {
            checksum: ChecksumState::Partial { start: 34, offset: 16 },
            gso: Some(Gso { kind: GsoKind::Tcp6, size: 1440, header_len: 74, ecn: true }),
            vlan: Some(VlanTag { tpid: 0x88a8, pcp: 5, dei: true, vid: 77 }),
            timestamp: Some(Timestamp { ns: 5, source: TimestampSource::Software }),
            addressed: Addressed::Host,
        };
        let sent = to_send(&meta, true);
        assert_eq!(sent.at, Some(5));
        let stamp = bypath_sys::packet::frame::Stamp { ns: 5, hardware: false };
        let arrival =
            Arrival { vnet: Some(sent.vnet), tag: sent.tag, stamp: Some(stamp), ..Arrival::default() };
        const FRAME: [u8; 60] = [2; 60];
        assert_eq!(received(&FRAME, &arrival, true), meta);
        assert_eq!(received(&FRAME, &arrival, false).timestamp, None);
        assert_eq!(to_send(&meta, false).at, None);
        assert!(needs_offload(&meta) && !needs_offload(&FrameMeta::default()));
    }
}
