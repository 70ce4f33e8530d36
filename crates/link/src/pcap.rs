//! Reading capture files of the older kind (draft-ietf-opsawg-pcap), strictly: times in microseconds or nanoseconds, both
//! byte orders. [`crate::pcapng`] reads and writes the newer kind.

use std::io::{self, Read};

/// Octets of the file's header.
const HEADER: usize = 24;
/// Octets in front of a frame.
const RECORD: usize = 16;
/// No frame that anybody writes is longer.
const LONGEST: u32 = 16 << 20;

/// Why a file cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read at all.
    #[error("reading the capture file: {0}")]
    Io(#[from] io::Error),
    /// It is none.
    #[error("this is no capture file of the kind pcap: it begins with {0:#010x}")]
    Other(u32),
    /// It ends in the middle of a frame.
    #[error("the capture file ends inside the frame that begins at octet {at}; what is before it is whole")]
    Truncated {
        /// Where the frame begins.
        at: u64,
    },
    /// Something in it cannot be.
    #[error("octet {at} of the capture file: {what}")]
    Malformed {
        /// Where the frame begins.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Nanoseconds since 1970.
    pub ns: u64,
    /// Octets that were kept.
    pub bytes: Vec<u8>,
    /// Octets that it had.
    pub original: u32,
}

/// Reads a file frame by frame.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    at: u64,
    big: bool,
    /// Nanoseconds in a unit of the lower part of a time.
    unit: u64,
    link_type: u16,
}

impl<R: Read> Reader<R> {
    /// Whether a file that begins so is of this kind.
    pub const fn begins(first: [u8; 4]) -> bool {
        kind(first).is_some()
    }

    /// Reads the file's header.
    ///
    /// # Errors
    /// [`Error`].
    pub fn new(mut input: R) -> Result<Reader<R>, Error> {
        let mut header = [0; HEADER];
        if fill(&mut input, &mut header)? != HEADER {
            return Err(Error::Truncated { at: 0 });
        }
        let first = [header[0], header[1], header[2], header[3]];
        let (big, unit) = kind(first).ok_or(Error::Other(u32::from_be_bytes(first)))?;
        let mut reader = Reader { input, at: HEADER as u64, big, unit, link_type: 0 };
        let version = (reader.half(&header, 4), reader.half(&header, 6));
        if version != (2, 4) {
            return Err(Error::Malformed { at: 4, what: "a version other than 2.4" });
        }
        // The upper half says what follows each frame, if anything does: part of it.
        reader.link_type = reader.word(&header, 20) as u16;
        Ok(reader)
    }

    /// LINKTYPE_... of all frames.
    pub const fn link_type(&self) -> u16 {
        self.link_type
    }

    /// The next frame; `None` at the end of the file.
    ///
    /// # Errors
    /// [`Error`]; reading on after one makes no sense.
    #[expect(clippy::should_implement_trait, reason = "an iterator would go on after an error")]
    pub fn next(&mut self) -> Result<Option<Frame>, Error> {
        let at = self.at;
        let mut record = [0; RECORD];
        match fill(&mut self.input, &mut record)? {
            0 => return Ok(None),
            RECORD => {}
            _ => return Err(Error::Truncated { at }),
        }
        let [seconds, fraction, kept, original] = [0, 4, 8, 12].map(|o| self.word(&record, o));
        if kept > LONGEST {
            return Err(Error::Malformed { at, what: "a frame of more than 16 MiB" });
        }
        if kept > original {
            return Err(Error::Malformed { at, what: "more octets kept than there were" });
        }
        let ns = u64::from(fraction) * self.unit;
        if ns >= 1_000_000_000 {
            return Err(Error::Malformed { at, what: "a fraction of a second that is more than one" });
        }
        let mut bytes = vec![0; kept as usize];
        if fill(&mut self.input, &mut bytes)? != bytes.len() {
            return Err(Error::Truncated { at });
        }
        self.at += (RECORD + bytes.len()) as u64;
        Ok(Some(Frame { ns: u64::from(seconds) * 1_000_000_000 + ns, bytes, original }))
    }

    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }

    fn half(&self, bytes: &[u8], at: usize) -> u16 {
        let half = [bytes[at], bytes[at + 1]];
        if self.big { u16::from_be_bytes(half) } else { u16::from_le_bytes(half) }
    }
}

/// Whether the first octets are big-endian, and the unit of time.
const fn kind(first: [u8; 4]) -> Option<(bool, u64)> {
    match u32::from_be_bytes(first) {
        0xa1b2_c3d4 => Some((true, 1000)),
        0xd4c3_b2a1 => Some((false, 1000)),
        0xa1b2_3c4d => Some((true, 1)),
        0x4d3c_b2a1 => Some((false, 1)),
        _ => None,
    }
}

/// Reads until the buffer is full or the input ends; answers how much there was.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while at < buffer.len() {
        match input.read(&mut buffer[at..]) {
            Ok(0) => break,
            Ok(n) => at += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file with frames of these octets, each at 7.5 s.
    fn file(big: bool, magic: u32, fraction: u32, frames: &[&[u8]]) -> Vec<u8> {
        let word = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
        let half = |v: u16| if big { v.to_be_bytes() } else { v.to_le_bytes() };
        let mut file = [word(magic), [half(2), half(4)].concat().try_into().unwrap()].concat();
        file.extend([word(0), word(0), word(65_535), word(101)].concat());
        for frame in frames {
            let len = frame.len() as u32;
            file.extend([word(7), word(fraction), word(len), word(len + 1)].concat());
            file.extend(*frame);
        }
        file
    }

    #[test]
    fn all_four_kinds_are_read() {
        for (big, magic, fraction) in [
            (true, 0xa1b2_c3d4, 500_000),
            (false, 0xa1b2_c3d4, 500_000),
            (true, 0xa1b2_3c4d, 500_000_000),
            (false, 0xa1b2_3c4d, 500_000_000),
        ] {
            let octets = file(big, magic, fraction, &[b"one", b"", b"three"]);
            assert!(Reader::<&[u8]>::begins(*octets.first_chunk().unwrap()));
            let mut reader = Reader::new(&octets[..]).unwrap();
            assert_eq!(reader.link_type(), 101);
            for expected in [&b"one"[..], b"", b"three"] {
                let original = expected.len() as u32 + 1;
                let frame = Frame { ns: 7_500_000_000, bytes: expected.to_vec(), original };
                assert_eq!(reader.next().unwrap(), Some(frame));
            }
            assert_eq!(reader.next().unwrap(), None);
        }
    }

    #[test]
    fn what_cannot_be_is_an_error_and_never_a_panic() {
        let whole = file(false, 0xa1b2_c3d4, 0, &[b"one", b"three"]);
        for len in 0..whole.len() {
            let mut read = 0;
            let result = Reader::new(&whole[..len]).and_then(|mut reader| {
                while reader.next()?.is_some() {
                    read += 1;
                }
                Ok(())
            });
            // Between frames it is whole.
            let between = [24, 24 + 19].contains(&len);
            assert_eq!(result.is_ok(), between, "{len}");
            assert_eq!(read, usize::from(len >= 24 + 19));
        }
        let says = |octets: &[u8]| match Reader::new(octets).map(|mut r| r.next()) {
            Err(e) | Ok(Err(e)) => e.to_string(),
            Ok(Ok(other)) => panic!("{other:?}"),
        };
        assert!(says(&[7; 24]).contains("0x07070707"));
        let mut version = whole.clone();
        version[4] = 3;
        assert!(says(&version).contains("version"));
        let changed = |at: usize, octets: [u8; 4]| {
            let mut file = whole.clone();
            file[at..at + 4].copy_from_slice(&octets);
            says(&file)
        };
        assert!(changed(32, u32::MAX.to_le_bytes()).contains("16 MiB"));
        assert!(changed(36, [2, 0, 0, 0]).contains("more octets kept"));
        assert!(changed(28, 1_000_000u32.to_le_bytes()).contains("fraction"));
    }

    /// Reads on to the end or an error: how many frames there were, and their octets.
    fn all(octets: &[u8]) -> (u64, usize) {
        let Ok(mut reader) = Reader::new(octets) else { return (0, 0) };
        let (mut frames, mut sum) = (0, 0);
        while let Ok(Some(frame)) = reader.next() {
            assert!(frame.bytes.len() <= frame.original as usize);
            (frames, sum) = (frames + 1, sum + frame.bytes.len());
        }
        (frames, sum)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(5000) })]

        #[test]
        fn any_octets_are_read_without_harm(
            big: bool, nanoseconds: bool,
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(), is_cut: bool,
        ) {
            let magic = if nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
            let parts: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let mut octets = file(big, magic, 7, &parts);
            let whole = (parts.len() as u64, parts.iter().map(|part| part.len()).sum());
            prop_assert_eq!(all(&octets), whole);
            for (at, value) in changes {
                let at = at.index(octets.len());
                octets[at] = value;
            }
            if is_cut {
                octets.truncate(cut.index(octets.len()));
            }
            let (frames, sum) = all(&octets);
            // Nothing comes out that did not go in.
            prop_assert!(sum + frames as usize * RECORD <= octets.len().saturating_sub(HEADER));
        }

        #[test]
        fn noise_is_read_without_harm(noise in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut octets = file(false, 0xa1b2_c3d4, 0, &[]);
            octets.extend(&noise);
            let (frames, sum) = all(&octets);
            prop_assert!(sum + frames as usize * RECORD <= noise.len());
            let _ = all(&noise);
        }
    }
}
