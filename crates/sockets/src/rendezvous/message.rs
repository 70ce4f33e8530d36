//! Messages of the rendezvous and of the control channel: words of eight octets.

use bypath_shm::inbox::{BELL, MESSAGE_VERSION, MESSAGE_WORDS};

/// Protocol version; also part of the rendezvous name.
pub const VERSION: u64 = MESSAGE_VERSION;
/// Words of a message.
pub const WORDS: usize = MESSAGE_WORDS;
/// Bytes of a message on the control channel and at the rendezvous.
pub const MESSAGE_SIZE: usize = WORDS * 8;

pub const HELLO: u64 = 0x6f6c6c6548;
pub const WELCOME: u64 = 0x656d6f636c6557;
pub const NO: u64 = 0x6f4e;

pub type Message = [u64; WORDS];

pub fn to_bytes(m: &Message) -> [u8; MESSAGE_SIZE] {
    let mut b = [0; MESSAGE_SIZE];
    for (chunk, word) in b.chunks_exact_mut(8).zip(m) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    b
}

pub fn from_bytes(b: &[u8]) -> Option<Message> {
    if b.len() != MESSAGE_SIZE {
        return None;
    }
    let mut m = [0; WORDS];
    for (word, chunk) in m.iter_mut().zip(b.chunks_exact(8)) {
        *word = u64::from_ne_bytes(chunk.try_into().ok()?);
    }
    (m[1] == VERSION).then_some(m)
}

/// BELL {number}, with the eventfd.
pub fn bell_message(number: u32) -> [u8; MESSAGE_SIZE] {
    let mut m = [0; WORDS];
    m[0] = BELL;
    m[1] = VERSION;
    m[2] = u64::from(number);
    to_bytes(&m)
}
