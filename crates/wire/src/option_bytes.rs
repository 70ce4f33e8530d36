//! Up to 40 octets of options, as IPv4 and TCP headers have them.

use core::fmt;

/// The most octets: fifteen 32-bit words of a header, less its first five.
pub(crate) const MOST: usize = 40;

/// Octets of options, kept as they are. Octets beyond the length are zero: end-of-list.
#[derive(Clone, Copy)]
pub(crate) struct OptionBytes {
    bytes: [u8; MOST],
    len: u8,
}

impl OptionBytes {
    #[inline]
    pub const fn new() -> OptionBytes {
        OptionBytes { bytes: [0; MOST], len: 0 }
    }

    /// None if there are more than 40.
    pub fn from_slice(slice: &[u8]) -> Option<OptionBytes> {
        let mut options = OptionBytes::new();
        options.extend(slice).then_some(options)
    }

    /// Adds octets; false, and nothing added, if they do not fit.
    #[must_use]
    #[inline]
    pub fn extend(&mut self, slice: &[u8]) -> bool {
        let Some(room) = self.bytes.get_mut(self.len as usize..).and_then(|r| r.get_mut(..slice.len()))
        else {
            return false;
        };
        room.copy_from_slice(slice);
        self.len += slice.len() as u8;
        true
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }

    /// With zeros up to a multiple of four: as they stand in a header.
    #[inline]
    pub fn padded(&self) -> &[u8] {
        &self.bytes[..(self.len as usize).next_multiple_of(4)]
    }
}

impl PartialEq for OptionBytes {
    /// Two that stand in a header as the same octets.
    fn eq(&self, other: &OptionBytes) -> bool {
        self.padded() == other.padded()
    }
}

impl Eq for OptionBytes {}

impl fmt::Debug for OptionBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", self.as_slice())
    }
}

/// One option of the form kind, length, data; the two kinds without a length are 0 (end of list) and 1 (nothing).
pub(crate) struct Tlv<'a> {
    pub kind: u8,
    pub data: &'a [u8],
}

/// The next option of `bytes` from `at` on, and where the one after it begins. `Err`: the option at the place named
/// has a length that is impossible. `None`: the list has ended.
pub(crate) fn next_tlv(bytes: &[u8], at: usize) -> Option<Result<(Tlv<'_>, usize), (u8, usize)>> {
    let rest = bytes.get(at..)?;
    match *rest {
        [] | [0, ..] => None,
        [1, ..] => Some(Ok((Tlv { kind: 1, data: &[] }, at + 1))),
        // No octets begin at 2 and end before it: lengths of 0 and 1 are impossible too.
        [kind, len, ..] => match rest.get(2..len as usize) {
            Some(data) => Some(Ok((Tlv { kind, data }, at + len as usize))),
            None => Some(Err((kind, at))),
        },
        [kind, ..] => Some(Err((kind, at))),
    }
}
