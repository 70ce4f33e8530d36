//! A frame with a piece of the stream: the tools' header, a checksum, the octets.

use crate::raw::header::{self, Header, Kind};

/// Octets in front of the piece.
pub const OVERHEAD: usize = header::SIZE + CHECKSUM;
const CHECKSUM: usize = 4;
/// Longest piece: the header's length is two octets.
pub const LONGEST: usize = u16::MAX as usize - CHECKSUM;

/// A piece of the stream of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The conversation.
    pub session: u64,
    /// Whether the server sent it; the client, otherwise.
    pub of_server: bool,
    /// Where its first octet stands.
    pub position: u64,
    /// The octets.
    pub octets: &'a [u8],
}

impl Piece<'_> {
    const fn header(&self) -> Header {
        Header {
            kind: Kind::Stream,
            session: self.session,
            seq: (self.position >> 32) as u32,
            message: self.position as u32,
            flags: if self.of_server { header::OF_SERVER } else { 0 },
        }
    }

    fn checksum(&self) -> [u8; CHECKSUM] {
        let mut sum = Crc::new();
        sum.update(&self.session.to_be_bytes());
        sum.update(&self.position.to_be_bytes());
        sum.update(&[u8::from(self.of_server)]);
        sum.update(self.octets);
        sum.value().to_be_bytes()
    }

    /// A frame's payload, appended to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let at = out.len();
        self.header().write(&[], out);
        out.extend_from_slice(&self.checksum());
        out.extend_from_slice(self.octets);
        let len = (CHECKSUM + self.octets.len()) as u16;
        out[at + header::SIZE - 2..at + header::SIZE].copy_from_slice(&len.to_be_bytes());
    }
}

/// What a frame is.
#[derive(Debug, PartialEq, Eq)]
pub enum Read<'a> {
    /// A piece of a stream.
    Piece(Piece<'a>),
    /// One with changed octets.
    Corrupt,
    /// Not of this protocol.
    Foreign,
}

/// Reads a frame's payload.
pub fn read(payload: &[u8]) -> Read<'_> {
    let Some((h, body)) = Header::parse(payload).filter(|(h, _)| h.kind == Kind::Stream) else {
        return Read::Foreign;
    };
    let Some((sum, octets)) = body.split_first_chunk::<CHECKSUM>() else { return Read::Corrupt };
    let piece = Piece {
        session: h.session,
        of_server: h.flags & header::OF_SERVER != 0,
        position: u64::from(h.seq) << 32 | u64::from(h.message),
        octets,
    };
    if piece.checksum() == *sum { Read::Piece(piece) } else { Read::Corrupt }
}

/// CRC-32 of IEEE 802.3 (reflected 0x04c11db7).
struct Crc(u32);

impl Crc {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut n = 0;
        while n < 256 {
            let (mut value, mut bit) = (n as u32, 0);
            while bit < 8 {
                value = if value & 1 != 0 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
                bit += 1;
            }
            table[n] = value;
            n += 1;
        }
        table
    };

    const fn new() -> Crc {
        Crc(!0)
    }

    fn update(&mut self, octets: &[u8]) {
        for octet in octets {
            self.0 = self.0 >> 8 ^ Crc::TABLE[usize::from(self.0 as u8 ^ octet)];
        }
    }

    const fn value(&self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_checksum_is_the_usual_one() {
        // The check value of CRC-32/ISO-HDLC in the catalogue of parametrised CRC algorithms.
        let mut sum = Crc::new();
        sum.update(b"123456789");
        assert_eq!(sum.value(), 0xcbf4_3926);
    }

    proptest! {
        #[test]
        fn pieces_are_read_as_written(session: u64, position: u64, of_server: bool, pad in 0usize..40,
            octets in prop::collection::vec(any::<u8>(), 0..200), flip: prop::sample::Index) {
            let piece = Piece { session, of_server, position, octets: &octets };
            let mut frame = Vec::new();
            piece.write(&mut frame);
            let len = frame.len();
            frame.resize(len + pad, 0);
            prop_assert_eq!(read(&frame), Read::Piece(piece));
            // Whatever bit is changed, it is not taken for another piece, but where nothing is said: unused flags, padding.
            let bit = flip.index(len * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
            match read(&frame) {
                Read::Piece(other) => prop_assert!(other == piece && (20..22).contains(&(bit / 8))),
                Read::Corrupt | Read::Foreign => {}
            }
        }

        #[test]
        fn octets_whatever_are_read_without_harm(octets in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = read(&octets);
        }
    }
}
