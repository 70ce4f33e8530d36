//! What stands beside a frame's bytes on its way between the kernel and us.

/// `struct virtio_net_hdr` of linux/virtio_net.h: who computes the checksum, and into what the frame is to be cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// Bit 0: the checksum is to be computed; bit 1: it was verified.
    pub flags: u8,
    /// 0 = none, 1 = TCP over IPv4, 4 = TCP over IPv6, 5 = UDP; bit 7: ECN.
    pub gso_type: u8,
    /// Octets of headers.
    pub header_len: u16,
    /// Payload octets of each segment.
    pub gso_size: u16,
    /// Where the sum begins.
    pub checksum_start: u16,
    /// Where the sum is stored, counted from there.
    pub checksum_offset: u16,
}

impl VnetHeader {
    /// Octets of its encoding.
    pub const SIZE: usize = 10;

    /// As the kernel reads it: this machine's byte order.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        let words = [self.header_len, self.gso_size, self.checksum_start, self.checksum_offset];
        for (at, word) in words.into_iter().enumerate() {
            bytes[2 + 2 * at..4 + 2 * at].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// From the kernel's encoding.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> VnetHeader {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        VnetHeader {
            flags: bytes[0],
            gso_type: bytes[1],
            header_len: word(2),
            gso_size: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }
}

/// A VLAN tag that is not among the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Tag protocol identifier, 0x8100 or 0x88A8.
    pub tpid: u16,
    /// Tag control information: priority, drop eligible, VLAN.
    pub tci: u16,
}

/// Time of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Nanoseconds since 1970 by the kernel, of the device's clock by the device.
    pub ns: u64,
    /// Taken by the device.
    pub hardware: bool,
}

/// A received frame's facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Octets that are there.
    pub len: usize,
    /// Octets that the frame had.
    pub whole: usize,
    /// PACKET_HOST, PACKET_BROADCAST, ... (packet(7)).
    pub kind: u8,
    /// The outermost tag, which the kernel took out.
    pub tag: Option<Tag>,
    /// When it was received.
    pub stamp: Option<Stamp>,
    /// The header in front, where the socket has [`super::Switch::VnetHeader`].
    pub vnet: Option<VnetHeader>,
    /// The kernel vouches for the checksum.
    pub checksum_valid: bool,
    /// The checksum is not computed yet: the sender on this machine left it to a device.
    pub checksum_missing: bool,
    /// Frames that the socket had dropped, ever, when this one was queued, modulo 2^32 ([`super::Socket::tell_drops`]);
    /// `None`: not told, or none.
    pub dropped: Option<u32>,
}

impl Arrival {
    /// Whether octets at its end are missing.
    pub const fn is_cut(&self) -> bool {
        self.len < self.whole
    }

    /// Takes over what TP_STATUS_... bits tell.
    pub(super) fn status(&mut self, status: u32, tci: u16, tpid: u16) {
        if status & libc::TP_STATUS_VLAN_VALID != 0 {
            let tpid =
                if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { tpid } else { libc::ETH_P_8021Q as u16 };
            self.tag = Some(Tag { tpid, tci });
        }
        self.checksum_valid = status & libc::TP_STATUS_CSUM_VALID != 0;
        self.checksum_missing = status & libc::TP_STATUS_CSUMNOTREADY != 0;
    }
}

/// What is asked for a frame that is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Departure {
    /// Put into the frame behind its addresses.
    pub tag: Option<Tag>,
    /// The header in front, where the socket has [`super::Switch::VnetHeader`].
    pub vnet: VnetHeader,
    /// When it is to be sent, in ns of the clock given to [`super::Socket::tx_time`].
    pub at: Option<u64>,
}

/// Octets before a frame in every buffer: room for a tag and a virtio-net header. The IP header behind an Ethernet
/// header is then aligned to four octets.
pub const HEADROOM: usize = 22;

/// Octets of the longest frame that there are buffers for: what the largest MTU, 65,536, or a super-frame has, with two tags.
pub const LONGEST: usize = 65_600;

/// Addresses of an Ethernet header, behind which a tag goes.
const ADDRESSES: usize = 12;
const TAG: usize = 4;

/// Completes the frame of `len` octets at [`HEADROOM`] of `buffer`: tag and virtio-net header go in front. Returns where
/// what the kernel is to read begins.
pub(crate) fn complete(buffer: &mut [u8], len: usize, how: &Departure, vnet: bool) -> usize {
    let mut start = HEADROOM;
    let tag = how.tag.filter(|_| len >= ADDRESSES);
    if let Some(tag) = tag {
        buffer.copy_within(start..start + ADDRESSES, start - TAG);
        start -= TAG;
        buffer[start + ADDRESSES..][..2].copy_from_slice(&tag.tpid.to_be_bytes());
        buffer[start + ADDRESSES + 2..][..2].copy_from_slice(&tag.tci.to_be_bytes());
    }
    if vnet {
        let mut header = how.vnet;
        if tag.is_some() {
            // Both count from the frame's first octet.
            let by = |n: u16| if n == 0 { 0 } else { n.saturating_add(TAG as u16) };
            header.header_len = by(header.header_len);
            header.checksum_start = by(header.checksum_start);
        }
        start -= VnetHeader::SIZE;
        buffer[start..][..VnetHeader::SIZE].copy_from_slice(&header.encode());
    }
    start
}

/// Makes a completed frame what it was before: the kernel did not take it, and it is completed once more.
pub(crate) fn undo(buffer: &mut [u8], len: usize, how: &Departure) {
    if how.tag.is_some() && len >= ADDRESSES {
        buffer.copy_within(HEADROOM - TAG..HEADROOM - TAG + ADDRESSES, HEADROOM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_between_addresses_and_type() {
        let mut buffer = vec![0u8; HEADROOM];
        buffer.extend((1..=20).collect::<Vec<u8>>());
        let how = Departure { tag: Some(Tag { tpid: 0x8100, tci: 0xe00a }), ..Departure::default() };
        let start = complete(&mut buffer, 20, &how, false);
        let expected =
            [(1..=12).collect::<Vec<u8>>(), vec![0x81, 0, 0xe0, 0x0a], (13..=20).collect()].concat();
        assert_eq!(buffer[start..], expected);
        undo(&mut buffer, 20, &how);
        assert_eq!(buffer[HEADROOM..], (1..=20).collect::<Vec<u8>>());
    }

    #[test]
    fn the_header_in_front_counts_the_tag() {
        let vnet = VnetHeader {
            flags: 1,
            gso_type: 1,
            header_len: 54,
            gso_size: 1400,
            checksum_start: 34,
            checksum_offset: 16,
        };
        let how = Departure { tag: Some(Tag { tpid: 0x8100, tci: 1 }), vnet, at: None };
        let mut buffer = vec![0u8; HEADROOM + 60];
        let start = complete(&mut buffer, 60, &how, true);
        let header = VnetHeader::decode(buffer[start..][..VnetHeader::SIZE].try_into().unwrap());
        assert_eq!(header, VnetHeader { header_len: 58, checksum_start: 38, ..vnet });
        let start = complete(&mut buffer, 60, &Departure { tag: None, ..how }, true);
        assert_eq!(start, HEADROOM - VnetHeader::SIZE);
        assert_eq!(VnetHeader::decode(buffer[start..][..VnetHeader::SIZE].try_into().unwrap()), vnet);
    }
}
