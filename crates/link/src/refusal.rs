//! What keeps a frame from being accepted by an interface, whatever it goes through.

use crate::{Error, Interface};
use bypath_wire::FrameMeta;
use bypath_wire::meta::ChecksumState;

const HEADER: usize = 14;
const TAG: usize = 4;

/// What keeps a frame from being accepted.
pub enum Refusal {
    /// Octets of a frame that is less than a header.
    TooShort(usize),
    TooLong {
        payload: usize,
        limit: usize,
    },
    /// It leaves to the link what the link does not do.
    Offload,
}

/// Octets of payload of a frame with one tag. Devices carry a tag beside the MTU; loopback, to which it is payload like any
/// other, does not.
pub const fn tagged(mtu: usize, loopback: bool) -> usize {
    if loopback { mtu.saturating_sub(TAG) } else { mtu }
}

/// Whether a frame can only be sent by a link that computes checksums or cuts segments.
fn needs_offload(meta: &FrameMeta) -> bool {
    meta.gso.is_some() || matches!(meta.checksum, ChecksumState::Partial { .. })
}

/// Whether a frame of `len` octets, as many as there is room for of them in `frame`, may go.
pub fn examine(
    frame: &[u8],
    len: usize,
    meta: &FrameMeta,
    mtu: usize,
    loopback: bool,
    offload: bool,
) -> Result<(), Refusal> {
    let Some(kind) = frame.get(12..HEADER) else { return Err(Refusal::TooShort(len)) };
    if needs_offload(meta) && !offload {
        return Err(Refusal::Offload);
    }
    let tag_in_bytes = meta.vlan.is_none() && (kind == [0x81, 0x00] || kind == [0x88, 0xa8]);
    let payload = len - HEADER - if tag_in_bytes { TAG.min(len - HEADER) } else { 0 };
    let limit = if tag_in_bytes || meta.vlan.is_some() { tagged(mtu, loopback) } else { mtu };
    if payload > limit && meta.gso.is_none() || len > frame.len() {
        return Err(Refusal::TooLong { payload, limit });
    }
    Ok(())
}

impl Refusal {
    /// As the user is told. `mtu` is that of now, `longest` what the link's buffers were made for, `offload` what such a
    /// frame is told.
    pub fn error(self, interface: &Interface, mtu: usize, longest: usize, offload: &str) -> Error {
        match self {
            Refusal::TooShort(len) => Error::TooShort { len },
            Refusal::Offload => Error::Invalid(offload.to_owned()),
            Refusal::TooLong { payload, limit } => {
                let interface = interface.name.clone();
                let room = longest - HEADER - 2 * TAG;
                if payload <= mtu && payload > room {
                    return Error::Grown { interface, payload, room };
                }
                Error::TooLong { interface, payload, mtu: mtu.min(limit) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bypath_wire::meta::{Gso, GsoKind, VlanTag};

    fn limit(len: usize, bytes: [u8; 2], meta: FrameMeta, loopback: bool, offload: bool) -> Option<usize> {
        let mut frame = vec![0; len];
        frame[12..14].copy_from_slice(&bytes);
        match examine(&frame, len, &meta, 100, loopback, offload) {
            Err(Refusal::TooLong { limit, .. }) => Some(limit),
            Ok(()) => None,
            Err(_) => panic!("{len}: another refusal"),
        }
    }

    #[test]
    fn a_tag_counts_on_loopback_only_and_a_second_one_everywhere() {
        let none = FrameMeta::default();
        let tagged = FrameMeta { vlan: Some(VlanTag { tpid: 0x8100, pcp: 0, dei: false, vid: 1 }), ..none };
        for (loopback, most) in [(false, 100), (true, 96)] {
            assert_eq!(limit(114, [0x88, 0xb5], none, loopback, false), None);
            assert_eq!(limit(115, [0x88, 0xb5], none, loopback, false), Some(100));
            // Beside the octets, or among them.
            assert_eq!(limit(14 + most, [0x88, 0xb5], tagged, loopback, false), None);
            assert_eq!(limit(15 + most, [0x88, 0xb5], tagged, loopback, false), Some(most));
            assert_eq!(limit(18 + most, [0x81, 0], none, loopback, false), None);
            assert_eq!(limit(19 + most, [0x88, 0xa8], none, loopback, false), Some(most));
            // One beside and one among them.
            assert_eq!(limit(14 + most, [0x81, 0], tagged, loopback, false), None);
            assert_eq!(limit(15 + most, [0x81, 0], tagged, loopback, false), Some(most));
        }
    }

    #[test]
    fn what_is_left_to_the_link_is_refused_where_the_link_does_not_do_it() {
        let segments = Gso { kind: GsoKind::Udp, size: 50, header_len: 42, ecn: false };
        let checksum = ChecksumState::Partial { start: 34, offset: 6 };
        let whole = FrameMeta { gso: Some(segments), checksum, ..FrameMeta::default() };
        let part = FrameMeta { checksum, ..FrameMeta::default() };
        for meta in [whole, part] {
            assert!(matches!(examine(&[0; 60], 60, &meta, 100, false, false), Err(Refusal::Offload)));
        }
        assert_eq!(limit(1000, [8, 0], whole, false, true), None);
        assert_eq!(limit(1000, [8, 0], part, false, true), Some(100));
        assert!(matches!(examine(&[0; 13], 13, &part, 100, false, true), Err(Refusal::TooShort(13))));
    }
}
