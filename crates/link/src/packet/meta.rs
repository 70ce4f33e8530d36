//! Between the kernel's facts about a frame and [`FrameMeta`].

use crate::vnet;
use bypath_sys::packet::frame::{Arrival, Departure, Tag};
use bypath_wire::meta::{Addressed, ChecksumState, Timestamp, TimestampSource, VlanTag};
use bypath_wire::{FrameMeta, MacAddr};

/// What the kernel told about a received frame, which begins with its destination. `stamped`: the time is wanted.
pub(super) fn received(frame: &[u8], a: &Arrival, stamped: bool) -> FrameMeta {
    let (told, gso) = vnet::told(&a.vnet.unwrap_or_default());
    let vouched = a.checksum_valid || a.checksum_missing && a.vnet.is_none();
    let checksum = if told == ChecksumState::Unknown && vouched { ChecksumState::Verified } else { told };
    FrameMeta {
        checksum,
        gso,
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
        dropped: None,
    }
}

/// What is asked of the kernel for a frame. `timed`: the time is one at which to send.
pub(super) fn to_send(meta: &FrameMeta, timed: bool) -> Departure {
    Departure {
        tag: meta.vlan.map(|t| Tag { tpid: t.tpid, tci: t.tci() }),
        vnet: vnet::asked(meta),
        at: meta.timestamp.filter(|_| timed).map(|t| t.ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bypath_wire::meta::{Gso, GsoKind};

    #[test]
    fn what_is_sent_comes_back_as_it_was() {
        let meta = FrameMeta {
            checksum: ChecksumState::Partial { start: 34, offset: 16 },
            gso: Some(Gso { kind: GsoKind::Tcp6, size: 1440, header_len: 74, ecn: true }),
            vlan: Some(VlanTag { tpid: 0x88a8, pcp: 5, dei: true, vid: 77 }),
            timestamp: Some(Timestamp { ns: 5, source: TimestampSource::Software }),
            addressed: Addressed::Host,
            dropped: None,
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
    }
}
