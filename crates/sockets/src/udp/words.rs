//! What two ends say to each other as one asks for the other's mailbox, and under which name he does.

/// Version of these messages.
pub(super) const VERSION: u64 = 4;
pub(super) const WORDS: usize = 12;
pub(super) const SIZE: usize = WORDS * 8;
pub(super) const HELLO: u64 = 0x6f6c_6c65_4875;
pub(super) const WELCOME: u64 = 0x656d_6f63_6c65_5775;
pub(super) const NO: u64 = 0x006f_4e75;

pub(super) type Message = [u64; WORDS];

pub(super) fn encode(message: &Message) -> [u8; SIZE] {
    let mut raw = [0; SIZE];
    for (to, word) in raw.chunks_exact_mut(8).zip(message) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    raw
}

pub(super) fn decode(raw: &[u8]) -> Option<Message> {
    if raw.len() != SIZE {
        return None;
    }
    let mut message = [0; WORDS];
    for (word, from) in message.iter_mut().zip(raw.chunks_exact(8)) {
        *word = u64::from_ne_bytes(from.try_into().ok()?);
    }
    (message[1] == VERSION).then_some(message)
}

pub(super) fn name(cookie: u64) -> ([u8; 29], usize) {
    let mut n = *b"bypath/1/udp/0000000000000000";
    for (i, digit) in n[13..].iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(cookie >> (60 - 4 * i)) as usize & 15];
    }
    let len = n.len();
    (n, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_another_length_or_version_say_nothing() {
        let mut message = [0; WORDS];
        [message[0], message[1]] = [HELLO, VERSION];
        assert_eq!(decode(&encode(&message)), Some(message));
        message[1] = VERSION + 1;
        assert_eq!(decode(&encode(&message)), None);
        assert_eq!(decode(&[0; SIZE - 1]), None);
    }

    #[test]
    fn a_name_is_the_cookie_in_digits() {
        let (name, len) = name(0xab);
        assert_eq!(&name[..len], b"bypath/1/udp/00000000000000ab");
    }
}
