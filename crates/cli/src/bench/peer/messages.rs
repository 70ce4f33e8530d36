//! What stands in a message: a kind, a number, and bytes that follow from the number.
//!
//! Byte 0 is the kind, bytes 1..9 the number (little endian), the rest a pattern. A shorter message has the first of these: one
//! byte is a kind. Patterns are written and checked in the phases before and after the timed one, never within it.

use std::io;

/// Kind and number: all of the smallest message that has both.
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
    write_rest(buf, number);
}

/// Whether `buf` is checked message `number`; `scratch` is as long as `buf`.
///
/// # Errors
/// `InvalidData` that says what differs.
pub fn check(buf: &[u8], number: u64, scratch: &mut [u8]) -> io::Result<()> {
    scratch[0] = buf[0];
    write_rest(scratch, number);
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

fn write_rest(buf: &mut [u8], number: u64) {
    if buf.len() < MIN_SIZE {
        let len = buf.len() - 1;
        buf[1..].copy_from_slice(&number.to_le_bytes()[..len]);
        return;
    }
    write_number(buf, number);
    fill(&mut buf[MIN_SIZE..], number);
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

    #[test]
    fn short_messages_have_what_there_is_room_for() {
        let (mut buf, mut scratch) = ([0; 3], [0; 3]);
        write_checked(&mut buf, CHECKED_LAST, 0x0102);
        assert_eq!(buf, [CHECKED_LAST, 2, 1]);
        assert!(check(&buf, 0x0102, &mut scratch).is_ok() && check(&buf, 0x0103, &mut scratch).is_err());
        write_checked(&mut buf[..1], TIMED, 7);
        assert!(check(&buf[..1], 7, &mut scratch[..1]).is_err(), "a kind of the timed phase");
    }
}
