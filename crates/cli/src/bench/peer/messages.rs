//! What stands in a message: a kind, a number, and bytes that follow from the number.
//!
//! Byte 0 is the kind, bytes 1..9 the number (little endian), the rest a pattern. Patterns are written and
//! checked in the phases before and after the timed one, never within it.

use std::io;

/// Smallest message: kind and number.
pub const MIN_SIZE: usize = 9;

/// A message of the checked phases.
pub const CHECKED: u8 = 1;
/// The last message of a checked phase.
pub const CHECKED_LAST: u8 = 2;
/// A message of the timed phase.
pub const TIMED: u8 = 3;
/// The last message of the timed phase.
pub const TIMED_LAST: u8 = 4;

/// Makes `buf` checked message `number`.
pub fn write_checked(buf: &mut [u8], kind: u8, number: u64) {
    buf[0] = kind;
    write_number(buf, number);
    fill(&mut buf[MIN_SIZE..], number);
}

/// Whether `buf` is checked message `number`; `scratch` is as long as `buf`.
///
/// # Errors
/// `InvalidData` that says what differs.
pub fn check(buf: &[u8], number: u64, scratch: &mut [u8]) -> io::Result<()> {
    scratch[0] = buf[0];
    write_number(scratch, number);
    fill(&mut scratch[MIN_SIZE..], number);
    if !matches!(buf[0], CHECKED | CHECKED_LAST) {
        return Err(wrong(format!("message {number} has kind {}", buf[0])));
    }
    match buf.iter().zip(scratch.iter()).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(wrong(format!(
            "wrong byte {at} of {} in message {number}: {:#04x}, expected {:#04x}",
            buf.len(),
            buf[at],
            scratch[at]
        ))),
    }
}

/// The number (or time stamp) in a message.
pub fn number(buf: &[u8]) -> u64 {
    u64::from_le_bytes(buf[1..MIN_SIZE].try_into().expect("8 bytes"))
}

/// Sets it.
pub fn write_number(buf: &mut [u8], number: u64) {
    buf[1..MIN_SIZE].copy_from_slice(&number.to_le_bytes());
}

/// An error about data that are not what was sent.
pub fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn fill(buf: &mut [u8], number: u64) {
    let mut x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in buf.chunks_mut(8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        chunk.copy_from_slice(&x.to_le_bytes()[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_is_found() {
        let mut buf = [0; 64];
        let mut scratch = [0; 64];
        write_checked(&mut buf, CHECKED, 7);
        assert!(check(&buf, 7, &mut scratch).is_ok());
        assert!(check(&buf, 8, &mut scratch).is_err());
        buf[63] ^= 1;
        assert!(check(&buf, 7, &mut scratch).is_err());
    }
}
