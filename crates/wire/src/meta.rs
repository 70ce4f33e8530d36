//! What travels beside a frame's bytes between a link and whoever uses it: checksum state, segmentation, VLAN tag,
//! time.

/// Facts about one frame that its bytes do not tell. The default says: nothing is known, nothing is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameMeta {
    /// Who computes or has verified the transport checksum.
    pub checksum: ChecksumState,
    /// The frame is to be cut into segments (sent), or was put together from segments (received).
    pub gso: Option<Gso>,
    /// The outermost VLAN tag where the device took it out of the frame, or is to put it in.
    pub vlan: Option<VlanTag>,
    /// When the frame was received or sent.
    pub timestamp: Option<Timestamp>,
    /// Whom the frame was addressed to, as the device saw it (received frames).
    pub addressed: Addressed,
    /// Frames that the link had dropped, since it was made, when it put this one into its queue; `None`: it does not tell
    /// (received frames).
    pub dropped: Option<u64>,
}

/// A frame whose end lies elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Apart<'a> {
    /// Octets of its beginning, its headers among them, which were written to where whoever asked for it wanted them.
    pub len: usize,
    /// What follows, in up to two pieces.
    pub behind: (&'a [u8], &'a [u8]),
    /// Facts about the whole frame.
    pub meta: FrameMeta,
}

impl Apart<'_> {
    /// Octets of the whole frame.
    pub const fn whole(&self) -> usize {
        self.len + self.behind.0.len() + self.behind.1.len()
    }

    /// Writes what follows behind the beginning. False: there is no room for it.
    pub fn join(&self, room: &mut [u8]) -> bool {
        let (one, two) = self.behind;
        let Some(end) = room.get_mut(self.len..self.whole()) else { return false };
        let (a, b) = end.split_at_mut(one.len());
        a.copy_from_slice(one);
        b.copy_from_slice(two);
        true
    }
}

/// State of the transport checksum (virtio 1.2, 5.1.6.2 and 5.1.6.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumState {
    /// Received: not verified. Sent: the bytes are final.
    #[default]
    Unknown,
    /// Received: the device or the sender on the same machine vouches for it.
    Verified,
    /// Only the pseudo header's sum stands in the field: the sum over everything from `start` on belongs into the two
    /// octets at `start + offset`. Octets, counted from the frame's first one.
    Partial {
        /// Where the sum begins.
        start: u16,
        /// Where the sum is stored, counted from `start`.
        offset: u16,
    },
}

/// Segmentation of a frame that is larger than the medium's (virtio 1.2, 5.1.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// What the frame carries.
    pub kind: GsoKind,
    /// Payload octets of each segment but the last.
    pub size: u16,
    /// Octets of all headers, which each segment repeats.
    pub header_len: u16,
    /// The segments' ECN bits need care: CWR stands in the first segment only (TCP).
    pub ecn: bool,
}

/// What a frame that is to be segmented carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams over IPv4 or IPv6 (USO).
    Udp,
}

/// A VLAN tag (IEEE 802.1Q, 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// Tag protocol identifier: 0x8100 (802.1Q) or 0x88A8 (802.1ad).
    pub tpid: u16,
    /// Priority code point, 0 to 7.
    pub pcp: u8,
    /// Drop eligible indicator.
    pub dei: bool,
    /// VLAN identifier, 0 to 4095; 0 is a priority tag, 4095 is reserved.
    pub vid: u16,
}

impl VlanTag {
    /// From the tag control information, in host byte order.
    pub const fn from_tci(tpid: u16, tci: u16) -> VlanTag {
        VlanTag { tpid, pcp: (tci >> 13) as u8, dei: tci & 0x1000 != 0, vid: tci & 0xfff }
    }

    /// The tag control information, in host byte order. Bits beyond a field's width are cut off.
    pub const fn tci(&self) -> u16 {
        (self.pcp as u16 & 7) << 13 | (self.dei as u16) << 12 | self.vid & 0xfff
    }
}

/// When a frame passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// Nanoseconds: since 1970 (UTC) by software, by the device's own clock where it is a hardware stamp.
    pub ns: u64,
    /// Who took the time.
    pub source: TimestampSource,
}

/// Who took a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampSource {
    /// The kernel, when it got the frame.
    Software,
    /// The device.
    Hardware,
}

/// Whom a received frame was addressed to (packet(7), `sll_pkttype`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressed {
    /// Not known, or a frame to be sent.
    #[default]
    Unknown,
    /// The device itself.
    Host,
    /// Everybody.
    Broadcast,
    /// A group.
    Multicast,
    /// Another host: seen because the device is promiscuous, or delivers everything (lo, veth).
    OtherHost,
    /// Sent by this host, and looped back to be seen.
    Outgoing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_control_information_has_its_bits_where_802_1q_puts_them() {
        let tag = VlanTag { tpid: 0x8100, pcp: 7, dei: false, vid: 10 };
        assert_eq!(tag.tci(), 0xe00a);
        for tci in 0..=u16::MAX {
            assert_eq!(VlanTag::from_tci(0x88a8, tci).tci(), tci);
        }
    }
}
