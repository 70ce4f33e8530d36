//! The header in front of everything that the tools say to each other: docs/l2-tools.md.

/// Octets of the header.
pub const SIZE: usize = 24;
/// What it begins with: `BY`.
const MAGIC: u16 = 0x4259;
/// The only version there is.
const VERSION: u8 = 1;

/// The first fragment of a message.
pub const FIRST: u16 = 1;
/// The last fragment of a message.
pub const END_OF_MESSAGE: u16 = 2;
/// Of a stream: the server sent it.
pub const OF_SERVER: u16 = 4;
/// Of an acknowledgement: the receiver ends, and takes no more.
pub const LEAVES: u16 = 8;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Is to be sent back.
    Request = 1,
    /// Was sent back.
    Reply = 2,
    /// One of a cyclic sender's.
    Cycle = 3,
    /// Who listens? And: this sender lives.
    Hello = 4,
    /// A fragment of a message.
    Data = 5,
    /// How far the data arrived.
    Ack = 6,
    /// There is no more data.
    End = 7,
    /// A piece of a stream, whose position `seq` and `message` are.
    Stream = 8,
}

impl Kind {
    fn of(value: u8) -> Option<Kind> {
        const ALL: [Kind; 8] = [
            Kind::Request,
            Kind::Reply,
            Kind::Cycle,
            Kind::Hello,
            Kind::Data,
            Kind::Ack,
            Kind::End,
            Kind::Stream,
        ];
        ALL.into_iter().find(|k| *k as u8 == value)
    }
}

/// The header's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// Chosen at random by whoever began.
    pub session: u64,
    /// Number of the frame within its session.
    pub seq: u32,
    /// Number of the message within its session.
    pub message: u32,
    /// [`FIRST`], [`END_OF_MESSAGE`], [`OF_SERVER`], [`LEAVES`].
    pub flags: u16,
}

impl Header {
    /// A header without flags and message.
    pub const fn new(kind: Kind, session: u64, seq: u32) -> Header {
        Header { kind, session, seq, message: 0, flags: 0 }
    }

    /// Header and body, appended to `out`. `body` has at most 65,535 octets.
    pub fn write(&self, body: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC.to_be_bytes());
        out.extend_from_slice(&[VERSION, self.kind as u8]);
        out.extend_from_slice(&self.session.to_be_bytes());
        out.extend_from_slice(&self.seq.to_be_bytes());
        out.extend_from_slice(&self.message.to_be_bytes());
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&(body.len() as u16).to_be_bytes());
        out.extend_from_slice(body);
    }

    /// A frame's payload of its own.
    pub fn frame(&self, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(SIZE + body.len());
        self.write(body, &mut out);
        out
    }

    /// Reads a frame's payload: header and body, without the padding. `None` for what is not of this protocol.
    pub fn parse(payload: &[u8]) -> Option<(Header, &[u8])> {
        let (header, rest) = payload.split_first_chunk::<SIZE>()?;
        let field = |at: usize, octets: usize| {
            header[at..at + octets].iter().fold(0u64, |value, b| value << 8 | u64::from(*b))
        };
        if field(0, 2) != u64::from(MAGIC) || header[2] != VERSION {
            return None;
        }
        let body = rest.get(..field(22, 2) as usize)?;
        let parsed = Header {
            kind: Kind::of(header[3])?,
            session: field(4, 8),
            seq: field(12, 4) as u32,
            message: field(16, 4) as u32,
            flags: field(20, 2) as u16,
        };
        Some((parsed, body))
    }
}

/// The body's octet `at` of a frame whose content is to be checked.
fn pattern(seq: u32, at: usize) -> u8 {
    (seq as usize).wrapping_mul(31).wrapping_add(at.wrapping_mul(7)) as u8
}

/// `len` octets that belong to frame `seq`.
pub fn fill(seq: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| pattern(seq, at)).collect()
}

/// Whether these octets are those of frame `seq`.
pub fn is_filled(seq: u32, octets: &[u8]) -> bool {
    octets.iter().enumerate().all(|(at, octet)| *octet == pattern(seq, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header =
        Header { kind: Kind::Data, session: 0x0102_0304_0506_0708, seq: 9, message: 10, flags: FIRST };

    #[test]
    fn octets_stand_where_the_documentation_says() {
        let expected = [
            &[0x42, 0x59, 1, 5][..],
            &[1, 2, 3, 4, 5, 6, 7, 8],
            &[0, 0, 0, 9, 0, 0, 0, 10],
            &[0, 1, 0, 2],
            b"hi",
        ]
        .concat();
        assert_eq!(HEADER.frame(b"hi"), expected);
    }

    #[test]
    fn padding_is_left_out() {
        let mut padded = HEADER.frame(b"hi");
        padded.resize(46, 0);
        assert_eq!(Header::parse(&padded), Some((HEADER, &b"hi"[..])));
    }

    #[test]
    fn what_is_not_of_this_protocol_is_none() {
        let good = HEADER.frame(b"hi");
        for len in 0..good.len() {
            assert_eq!(Header::parse(&good[..len]), None, "{len}");
        }
        for at in 0..4 {
            let mut bad = good.clone();
            bad[at] ^= 0x88;
            assert_eq!(Header::parse(&bad), None, "{at}");
        }
        let mut long = good;
        long[22] = 0xff;
        assert_eq!(Header::parse(&long), None);
    }

    #[test]
    fn a_changed_octet_of_the_fill_is_seen() {
        let mut octets = fill(3, 100);
        assert!(is_filled(3, &octets) && !is_filled(4, &octets));
        octets[99] ^= 1;
        assert!(!is_filled(3, &octets));
    }
}
