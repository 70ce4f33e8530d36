//! Between a virtio-net header and what [`FrameMeta`] says of checksum and segmentation.

use bypath_sys::packet::frame::VnetHeader;
use bypath_wire::FrameMeta;
use bypath_wire::meta::{ChecksumState, Gso, GsoKind};

// linux/virtio_net.h
const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_VALID: u8 = 2;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// What the header of a received frame tells.
pub(crate) fn told(vnet: &VnetHeader) -> (ChecksumState, Option<Gso>) {
    let checksum = if vnet.flags & NEEDS_CHECKSUM != 0 {
        ChecksumState::Partial { start: vnet.checksum_start, offset: vnet.checksum_offset }
    } else if vnet.flags & CHECKSUM_VALID != 0 {
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
    let gso = kind.map(|kind| Gso {
        kind,
        size: vnet.gso_size,
        header_len: vnet.header_len,
        ecn: vnet.gso_type & GSO_ECN != 0,
    });
    (checksum, gso)
}

/// The header that asks for what a frame to be sent leaves to others.
pub(crate) fn asked(meta: &FrameMeta) -> VnetHeader {
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
    vnet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_told_alike() {
        for kind in [GsoKind::Tcp4, GsoKind::Tcp6, GsoKind::Udp] {
            let gso = Some(Gso { kind, size: 1000, header_len: 42, ecn: kind == GsoKind::Tcp4 });
            let checksum = ChecksumState::Partial { start: 20, offset: 6 };
            let meta = FrameMeta { checksum, gso, ..FrameMeta::default() };
            assert_eq!(told(&asked(&meta)), (checksum, gso));
        }
        assert_eq!(told(&asked(&FrameMeta::default())), (ChecksumState::Unknown, None));
        assert_eq!(told(&VnetHeader { flags: 2, ..VnetHeader::default() }).0, ChecksumState::Verified);
        // A kind that nobody defined.
        assert_eq!(told(&VnetHeader { gso_type: 9, ..VnetHeader::default() }).1, None);
    }
}
