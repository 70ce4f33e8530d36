//! VLAN tags: one (802.1Q), two (802.1ad, QinQ) or more, and putting one into or taking it out of a frame in place.

use crate::bytes::{be16, fits};
use crate::error::{EmitError, Part};
use crate::ethernet::EtherType;
use crate::meta::VlanTag;
use core::fmt;

/// Octets that a tag adds to a frame.
pub const TAG_LEN: usize = 4;
/// Tags that an [`EthernetHeader`](crate::ethernet::EthernetHeader) takes: 802.1ad has two.
pub const MOST_TAGS: usize = 4;
/// The largest identifier of a VLAN; 4095 is reserved.
pub const MOST_VID: u16 = 4094;

/// Octets of both addresses, behind which tags stand.
const ADDRESSES: usize = 12;
const NO_TAG: VlanTag = VlanTag::from_tci(0, 0);

/// The tags of a frame, the outermost first.
#[derive(Clone, Copy)]
pub struct VlanTags {
    tags: [VlanTag; MOST_TAGS],
    len: u8,
}

impl VlanTags {
    /// No tag.
    pub const fn new() -> VlanTags {
        VlanTags { tags: [NO_TAG; MOST_TAGS], len: 0 }
    }

    /// One tag.
    pub const fn one(tag: VlanTag) -> VlanTags {
        VlanTags { tags: [tag, NO_TAG, NO_TAG, NO_TAG], len: 1 }
    }

    /// How many.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// None.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a tag inside of those that are there. False: there are [`MOST_TAGS`] already.
    #[must_use]
    pub fn push(&mut self, tag: VlanTag) -> bool {
        let Some(place) = self.tags.get_mut(self.len as usize) else {
            return false;
        };
        *place = tag;
        self.len += 1;
        true
    }

    /// The tags, the outermost first.
    pub fn as_slice(&self) -> &[VlanTag] {
        &self.tags[..self.len()]
    }

    /// The outermost tag.
    pub fn outermost(&self) -> Option<&VlanTag> {
        self.as_slice().first()
    }

    /// The tags, the outermost first.
    pub fn iter(&self) -> core::slice::Iter<'_, VlanTag> {
        self.as_slice().iter()
    }
}

impl Default for VlanTags {
    fn default() -> VlanTags {
        VlanTags::new()
    }
}

impl PartialEq for VlanTags {
    fn eq(&self, other: &VlanTags) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for VlanTags {}

impl fmt::Debug for VlanTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl<'a> IntoIterator for &'a VlanTags {
    type Item = &'a VlanTag;
    type IntoIter = core::slice::Iter<'a, VlanTag>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// A tag as it stands in a frame: protocol identifier, then control information, both big-endian.
pub(crate) fn tag_bytes(tag: &VlanTag) -> Result<[u8; TAG_LEN], EmitError> {
    fits(Part::Vlan, "priority", tag.pcp.into(), 7)?;
    fits(Part::Vlan, "identifier", tag.vid.into(), 4095)?;
    let ([a, b], [c, d]) = (tag.tpid.to_be_bytes(), tag.tci().to_be_bytes());
    Ok([a, b, c, d])
}

/// The outermost tag of a frame, if it has one and is long enough to hold it.
pub fn outermost(frame: &[u8]) -> Option<VlanTag> {
    let bytes: &[u8; TAG_LEN] = frame.get(ADDRESSES..)?.first_chunk()?;
    let tpid = be16!(bytes, 0);
    EtherType(tpid).is_vlan().then(|| VlanTag::from_tci(tpid, be16!(bytes, 2)))
}

/// Puts a tag into a frame that has [`TAG_LEN`] octets of headroom: `buffer` begins with the headroom. Afterwards the
/// whole of `buffer` is the frame. Only the addresses move.
///
/// # Errors
/// [`EmitError::Room`] if there are no addresses behind the headroom; [`EmitError::Field`] for a tag whose priority
/// or identifier does not fit.
pub fn insert(buffer: &mut [u8], tag: &VlanTag) -> Result<(), EmitError> {
    let bytes = tag_bytes(tag)?;
    let need = TAG_LEN + ADDRESSES;
    if buffer.len() < need {
        return Err(EmitError::Room { part: Part::Vlan, need, have: buffer.len() });
    }
    buffer.copy_within(TAG_LEN..need, 0);
    buffer[ADDRESSES..need].copy_from_slice(&bytes);
    Ok(())
}

/// Takes the outermost tag out of a frame: the tag and the frame without it, which begins [`TAG_LEN`] octets later
/// in the same memory. Only the addresses move. None: there is no tag, and nothing is changed.
pub fn remove(frame: &mut [u8]) -> Option<(VlanTag, &mut [u8])> {
    let tag = outermost(frame)?;
    frame.copy_within(..ADDRESSES, TAG_LEN);
    Some((tag, &mut frame[TAG_LEN..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::{EthernetHeader, MacAddr};
    use std::vec::Vec;

    const TAG: VlanTag = VlanTag { tpid: 0x8100, pcp: 7, dei: true, vid: 10 };
    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);

    fn frame(tags: VlanTags) -> Vec<u8> {
        let mut header = EthernetHeader::new(B, A, EtherType::LOCAL_EXPERIMENTAL_1);
        header.tags = tags;
        let mut frame = [0; 64];
        let len = header.emit(&mut frame).unwrap();
        frame[len..len + 5].copy_from_slice(b"hello");
        frame[..len + 5].to_vec()
    }

    #[test]
    fn a_tag_goes_in_and_comes_out_in_place() {
        let plain = frame(VlanTags::new());
        let mut buffer = std::vec![0xee; TAG_LEN];
        buffer.extend(&plain);
        insert(&mut buffer, &TAG).unwrap();
        assert_eq!(buffer, frame(VlanTags::one(TAG)));
        assert_eq!(outermost(&buffer), Some(TAG));
        let (tag, rest) = remove(&mut buffer).unwrap();
        assert_eq!((tag, &*rest), (TAG, &plain[..]));
        assert_eq!(remove(rest), None);
        assert_eq!(rest, plain);
    }

    #[test]
    fn two_tags_are_taken_from_outside_to_inside() {
        let service = VlanTag { tpid: 0x88a8, pcp: 3, dei: false, vid: 4094 };
        let mut tags = VlanTags::one(service);
        assert!(tags.push(TAG));
        let mut bytes = frame(tags);
        assert_eq!(&bytes[12..22], [0x88, 0xa8, 0x6f, 0xfe, 0x81, 0x00, 0xf0, 0x0a, 0x88, 0xb5]);
        let (header, payload) = EthernetHeader::parse(&bytes).unwrap();
        assert_eq!((header.tags, payload), (tags, &b"hello"[..]));
        let (outer, rest) = remove(&mut bytes).unwrap();
        assert_eq!(outer, service);
        assert_eq!(remove(rest).unwrap().0, TAG);
    }

    #[test]
    fn more_tags_than_there_is_room_for_are_payload() {
        let mut bytes = frame(VlanTags::new());
        for vid in 0..6 {
            bytes.splice(0..0, [0; TAG_LEN]);
            insert(&mut bytes, &VlanTag { vid, ..TAG }).unwrap();
        }
        let (header, payload) = EthernetHeader::parse(&bytes).unwrap();
        assert_eq!(header.tags.iter().map(|t| t.vid).collect::<Vec<_>>(), [5, 4, 3, 2]);
        assert_eq!(header.ethertype, EtherType::VLAN);
        assert_eq!(payload.len(), bytes.len() - header.len());
        let mut again = [0; 64];
        let len = header.emit(&mut again).unwrap();
        assert_eq!(&again[..len], &bytes[..len]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut short = [0; TAG_LEN + 11];
        assert_eq!(insert(&mut short, &TAG), Err(EmitError::Room { part: Part::Vlan, need: 16, have: 15 }));
        let mut buffer = [0; 64];
        for bad in [VlanTag { pcp: 8, ..TAG }, VlanTag { vid: 4096, ..TAG }] {
            assert!(matches!(insert(&mut buffer, &bad), Err(EmitError::Field { .. })));
            assert_eq!(buffer, [0; 64]);
        }
        let cut = &mut frame(VlanTags::one(TAG))[..15];
        assert_eq!(remove(cut), None);
    }
}
