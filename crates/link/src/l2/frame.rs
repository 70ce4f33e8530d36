//! A frame as its user sees it.

use super::{HEADER, SHORTEST, TPID_SERVICE, TPID_VLAN};
use crate::MacAddr;
use bypath_wire::FrameMeta;
use bypath_wire::meta::{Addressed, Timestamp, VlanTag};

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// To whom.
    pub destination: MacAddr,
    /// From whom.
    pub source: MacAddr,
    /// The outermost VLAN tag.
    pub vlan: Option<VlanTag>,
    /// The second tag of two.
    pub inner_vlan: Option<VlanTag>,
    /// What the payload is; below 0x0600 the payload's length (IEEE 802.3). That of a tag where there is a third one, or the
    /// frame ends inside one.
    pub ethertype: u16,
    /// What follows the EtherType, padding included.
    pub payload: &'a [u8],
    /// When it arrived.
    pub timestamp: Option<Timestamp>,
    /// Whom it was addressed to, as the device saw it.
    pub addressed: Addressed,
    /// Frames that the socket had dropped, since it was opened, when it put this one into its queue; `None`: its mode does
    /// not tell (rings and AF_XDP: see [`statistics`](super::Socket::statistics)).
    pub dropped: Option<u64>,
}

fn half(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]))
}

impl<'a> Frame<'a> {
    /// Reads a frame's header; `None` for one that is shorter than that.
    pub fn parse(octets: &'a [u8], meta: &FrameMeta) -> Option<Frame<'a>> {
        let mac = |at: usize| octets.get(at..at + 6).and_then(|b| b.try_into().ok()).map(MacAddr);
        let (destination, source) = (mac(0)?, mac(6)?);
        let mut tags = [meta.vlan, None];
        let mut at = HEADER - 2;
        let mut count = usize::from(meta.vlan.is_some());
        let mut ethertype = half(octets, at)?;
        while count < tags.len() && (ethertype == TPID_VLAN || ethertype == TPID_SERVICE) {
            let (Some(tci), Some(next)) = (half(octets, at + 2), half(octets, at + 4)) else { break };
            tags[count] = Some(VlanTag::from_tci(ethertype, tci));
            count += 1;
            at += 4;
            ethertype = next;
        }
        Some(Frame {
            destination,
            source,
            vlan: tags[0],
            inner_vlan: tags[1],
            ethertype,
            payload: &octets[at + 2..],
            timestamp: meta.timestamp,
            addressed: meta.addressed,
            dropped: meta.dropped,
        })
    }
}

/// A received frame whose payload was copied.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Octets of payload in the buffer.
    pub len: usize,
    /// Octets of payload that the frame had, padding included: more than `len` if the buffer was too short.
    pub whole: usize,
    /// To whom.
    pub destination: MacAddr,
    /// From whom.
    pub source: MacAddr,
    /// The outermost VLAN tag.
    pub vlan: Option<VlanTag>,
    /// The second tag of two.
    pub inner_vlan: Option<VlanTag>,
    /// What the payload is.
    pub ethertype: u16,
    /// When it arrived.
    pub timestamp: Option<Timestamp>,
    /// Whom it was addressed to, as the device saw it.
    pub addressed: Addressed,
}

impl Received {
    /// Copies a frame's payload.
    pub(super) fn copy(frame: &Frame<'_>, buffer: &mut [u8]) -> Received {
        let len = frame.payload.len().min(buffer.len());
        buffer[..len].copy_from_slice(&frame.payload[..len]);
        Received {
            len,
            whole: frame.payload.len(),
            destination: frame.destination,
            source: frame.source,
            vlan: frame.vlan,
            inner_vlan: frame.inner_vlan,
            ethertype: frame.ethertype,
            timestamp: frame.timestamp,
            addressed: frame.addressed,
        }
    }
}

/// What stands before the payload of a frame to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// To whom.
    pub destination: MacAddr,
    /// From whom.
    pub source: MacAddr,
    /// The VLAN tag.
    pub vlan: Option<VlanTag>,
    /// A second tag, behind the first.
    pub inner_vlan: Option<VlanTag>,
    /// What the payload is.
    pub ethertype: u16,
    /// When it is to be sent, in ns of the clock given to the builder; `None`: at once.
    pub at: Option<u64>,
}

impl Header {
    /// Octets in front of the payload, but for the first tag, which travels beside.
    pub(super) fn octets(&self) -> usize {
        HEADER + if self.second().is_some() { 4 } else { 0 }
    }

    /// The tag that is among the octets: the second one.
    fn second(&self) -> Option<VlanTag> {
        self.vlan.and(self.inner_vlan)
    }

    /// Writes header, payload and padding, and returns the octets of all; more than `slot` has, if it does not fit.
    pub(super) fn write(&self, slot: &mut [u8], payload: &[u8], pad: bool) -> usize {
        let start = self.octets();
        let len = start + payload.len();
        let padded = if pad { len.max(SHORTEST) } else { len };
        if padded > slot.len() {
            return padded;
        }
        slot[..6].copy_from_slice(&self.destination.0);
        slot[6..12].copy_from_slice(&self.source.0);
        if let Some(tag) = self.second() {
            slot[12..14].copy_from_slice(&tag.tpid.to_be_bytes());
            slot[14..16].copy_from_slice(&tag.tci().to_be_bytes());
        }
        slot[start - 2..start].copy_from_slice(&self.ethertype.to_be_bytes());
        slot[start..len].copy_from_slice(payload);
        slot[len..padded].fill(0);
        padded
    }

    /// The facts beside the octets.
    pub(super) fn meta(&self) -> FrameMeta {
        let stamp = |ns| Timestamp { ns, source: bypath_wire::meta::TimestampSource::Software };
        FrameMeta {
            vlan: self.vlan.or(self.inner_vlan),
            timestamp: self.at.map(stamp),
            ..FrameMeta::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(tpid: u16, vid: u16) -> VlanTag {
        VlanTag { tpid, pcp: 5, dei: true, vid }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for (vlan, inner_vlan) in [
            (None, None),
            (Some(tag(TPID_VLAN, 10)), None),
            (Some(tag(TPID_SERVICE, 20)), Some(tag(TPID_VLAN, 10))),
        ] {
            let header = Header {
                destination: MacAddr([1; 6]),
                source: MacAddr([2; 6]),
                vlan,
                inner_vlan,
                ethertype: 0x88b5,
                at: None,
            };
            let mut slot = [0xee; 100];
            let len = header.write(&mut slot, b"hello", true);
            assert_eq!(len, 60);
            let frame = Frame::parse(&slot[..len], &header.meta()).unwrap();
            assert_eq!((frame.destination, frame.source), (header.destination, header.source));
            assert_eq!((frame.vlan, frame.inner_vlan, frame.ethertype), (vlan, inner_vlan, 0x88b5));
            assert_eq!(&frame.payload[..5], b"hello");
            assert!(frame.payload[5..].iter().all(|&b| b == 0));
            assert_eq!(header.write(&mut slot, b"hello", false), header.octets() + 5);
            assert_eq!(header.write(&mut slot, &[0; 100], true), header.octets() + 100);
        }
    }

    #[test]
    fn no_octets_whatever_are_read_beyond() {
        let mut state = 20u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..20_000 {
            let mut octets: Vec<u8> = (0..random() % 40).map(|_| random() as u8).collect();
            for at in [12, 16, 20] {
                if let Some(place) = octets.get_mut(at..at + 2).filter(|_| random() % 2 == 0) {
                    place.copy_from_slice(if random() % 2 == 0 { &[0x81, 0] } else { &[0x88, 0xa8] });
                }
            }
            let vlan = (random() % 2 == 0).then(|| tag(TPID_VLAN, 1));
            let frame = Frame::parse(&octets, &FrameMeta { vlan, ..FrameMeta::default() });
            let tags =
                |f: &Frame<'_>| [f.vlan, f.inner_vlan].iter().flatten().count() - usize::from(vlan.is_some());
            match frame {
                Some(f) => assert_eq!(f.payload.len() + HEADER + 4 * tags(&f), octets.len()),
                None => assert!(octets.len() < HEADER),
            }
        }
    }

    #[test]
    fn a_frame_that_ends_inside_a_tag_has_the_tags_ethertype() {
        let mut octets = vec![2; 12];
        octets.extend([0x88, 0xa8, 0x20, 7, 0x81, 0, 0, 10, 0x81, 0, 0, 11, 0x88, 0xb5, 1, 2, 3]);
        for len in 0..HEADER {
            assert!(Frame::parse(&octets[..len], &FrameMeta::default()).is_none(), "{len}");
        }
        // Length; VLANs of the two tags; EtherType; octets behind it.
        for (len, outer, inner, ethertype, behind) in [
            (14, None, None, 0x88a8, 0),
            (17, None, None, 0x88a8, 3),
            (18, Some(7), None, 0x8100, 0),
            (21, Some(7), None, 0x8100, 3),
            (22, Some(7), Some(10), 0x8100, 0),
            (29, Some(7), Some(10), 0x8100, 7),
        ] {
            let frame = Frame::parse(&octets[..len], &FrameMeta::default()).expect("a header");
            let vid = |tag: Option<VlanTag>| tag.map(|tag| tag.vid);
            assert_eq!((vid(frame.vlan), vid(frame.inner_vlan)), (outer, inner), "{len}");
            assert_eq!((frame.ethertype, frame.payload.len()), (ethertype, behind), "{len}");
        }
    }
}
