//! Reading and writing at places that are known to be there.

use crate::error::{EmitError, ParseError, Part};

/// The first `N` octets.
pub(crate) fn head<const N: usize>(bytes: &[u8], part: Part) -> Result<&[u8; N], ParseError> {
    bytes.first_chunk().ok_or(ParseError::Truncated { part, need: N, have: bytes.len() })
}

/// The first `len` octets, and the rest.
pub(crate) fn split(bytes: &[u8], len: usize, part: Part) -> Result<(&[u8], &[u8]), ParseError> {
    bytes.split_at_checked(len).ok_or(ParseError::Truncated { part, need: len, have: bytes.len() })
}

/// Room for `len` octets.
pub(crate) fn room(buffer: &mut [u8], len: usize, part: Part) -> Result<&mut [u8], EmitError> {
    let have = buffer.len();
    buffer.get_mut(..len).ok_or(EmitError::Room { part, need: len, have })
}

/// Room for `N` octets.
pub(crate) fn room_of<const N: usize>(buffer: &mut [u8], part: Part) -> Result<&mut [u8; N], EmitError> {
    let have = buffer.len();
    buffer.first_chunk_mut().ok_or(EmitError::Room { part, need: N, have })
}

/// A value that its field can hold.
pub(crate) fn fits(part: Part, field: &'static str, found: u32, most: u32) -> Result<(), EmitError> {
    if found > most { Err(EmitError::Field { part, field, found, most }) } else { Ok(()) }
}

/// Big-endian, from an array whose length the compiler knows.
macro_rules! be16 {
    ($bytes:expr, $at:literal) => {
        u16::from_be_bytes([$bytes[$at], $bytes[$at + 1]])
    };
}

/// Big-endian, from an array whose length the compiler knows.
macro_rules! be32 {
    ($bytes:expr, $at:literal) => {
        u32::from_be_bytes([$bytes[$at], $bytes[$at + 1], $bytes[$at + 2], $bytes[$at + 3]])
    };
}

pub(crate) use {be16, be32};

/// Sixteen octets in the middle of an array.
pub(crate) fn sixteen<const N: usize>(bytes: &[u8; N], at: usize) -> [u8; 16] {
    let mut out = [0; 16];
    if let Some(from) = bytes.get(at..at + 16) {
        out.copy_from_slice(from);
    }
    out
}
