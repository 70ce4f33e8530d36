//! What stands before the payload of every datagram of the tools.

/// Octets of it.
pub const SIZE: usize = 24;
const MAGIC: [u8; 4] = *b"BYTU";
const VERSION: u8 = 1;

/// What a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A sender asks whether somebody receives.
    Hello = 1,
    /// Octets of the stream, from `position` on.
    Data = 2,
    /// The stream ends at `position`; the body is its hash.
    End = 3,
    /// A sender has heard that all arrived.
    Bye = 4,
    /// A receiver has everything before `position`.
    Ack = 5,
    /// A receiver has everything; the body is the hash of what it has, files and octets.
    Done = 6,
    /// A receiver goes no further; the body says why.
    Fail = 7,
}

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    /// An answer is wanted.
    pub answer: bool,
    /// Which transfer it belongs to.
    pub session: u64,
    /// Octets of the stream.
    pub position: u64,
}

impl Header {
    /// As it is sent.
    pub fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.kind as u8;
        bytes[6] = u8::from(self.answer);
        bytes[8..16].copy_from_slice(&self.session.to_be_bytes());
        bytes[16..].copy_from_slice(&self.position.to_be_bytes());
        bytes
    }

    /// The header and what is behind it; `None` for something else.
    pub fn parse(datagram: &[u8]) -> Option<(Header, &[u8])> {
        let (bytes, body) = datagram.split_first_chunk::<SIZE>()?;
        if bytes[..4] != MAGIC || bytes[4] != VERSION || bytes[6] > 1 || bytes[7] != 0 {
            return None;
        }
        let kind = match bytes[5] {
            1 => Kind::Hello,
            2 => Kind::Data,
            3 => Kind::End,
            4 => Kind::Bye,
            5 => Kind::Ack,
            6 => Kind::Done,
            7 => Kind::Fail,
            _ => return None,
        };
        let long = |at: usize| bytes[at..at + 8].iter().fold(0, |n, &b| n << 8 | u64::from(b));
        Some((Header { kind, answer: bytes[6] == 1, session: long(8), position: long(16) }, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        use Kind::{Ack, Bye, Data, Done, End, Fail, Hello};
        for kind in [Hello, Data, End, Bye, Ack, Done, Fail] {
            let header =
                Header { kind, answer: kind == Data, session: 0x0102_0304_0506_0708, position: u64::MAX - 1 };
            let mut bytes = header.encode().to_vec();
            bytes.extend(b"body");
            assert_eq!(Header::parse(&bytes), Some((header, &b"body"[..])));
            for at in 0..8 {
                let mut other = bytes.clone();
                other[at] = 0x77;
                assert_eq!(Header::parse(&other), None, "{at}");
            }
            assert_eq!(Header::parse(&bytes[..SIZE - 1]), None);
        }
    }
}
