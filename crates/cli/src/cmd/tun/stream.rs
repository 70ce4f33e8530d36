//! The stream that files are sent as: for each its name, its octets in blocks, and their hash.
//!
//! A name is two octets of length and the name; a block four octets of length and so many octets; a block of none ends the
//! file, and SHA-256 of its octets follows. Nothing is known beforehand: standard input has no length.

use sha2::{Digest, Sha256};
use std::io::{self, Read};

/// Octets of a hash.
pub const HASH: usize = 32;
/// Octets of a block at most.
const BLOCK: usize = 64 * 1024;
/// Octets of a name at most.
pub const LONGEST_NAME: usize = 4096;

/// Makes the stream of files that are opened one after the other.
pub struct Writer<N, R> {
    next: N,
    file: Option<(R, Sha256)>,
    ready: Vec<u8>,
    given: usize,
    ended: bool,
    hash: Sha256,
    /// Octets of files that are in the stream so far.
    pub octets: u64,
}

impl<R: Read, N: FnMut() -> io::Result<Option<(String, R)>>> Writer<N, R> {
    /// `next` opens the next file and tells its name.
    pub fn new(next: N) -> Writer<N, R> {
        let (ready, given, octets) = (Vec::new(), 0, 0);
        Writer { next, file: None, ready, given, ended: false, hash: Sha256::new(), octets }
    }

    /// Fills the buffer with what comes next; less at the end, and where a file has nothing more at present.
    ///
    /// # Errors
    /// Those of the files; `WouldBlock` if one has nothing at present, and there is nothing before.
    pub fn fill(&mut self, mut buffer: &mut [u8]) -> io::Result<usize> {
        let mut len = 0;
        while !buffer.is_empty() {
            if self.given == self.ready.len() {
                match self.more() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock && len > 0 => break,
                    Err(e) => return Err(e),
                }
            }
            let part = &self.ready[self.given..];
            let part = &part[..part.len().min(buffer.len())];
            let (here, rest) = buffer.split_at_mut(part.len());
            here.copy_from_slice(part);
            self.hash.update(part);
            self.given += part.len();
            len += part.len();
            buffer = rest;
        }
        Ok(len)
    }

    /// The hash of everything that was given out.
    pub fn hash(&self) -> [u8; HASH] {
        self.hash.clone().finalize().into()
    }

    /// Makes the next piece ready. False: there is none.
    fn more(&mut self) -> io::Result<bool> {
        self.ready.clear();
        self.given = 0;
        let Some((file, hash)) = &mut self.file else {
            if self.ended {
                return Ok(false);
            }
            let Some((name, file)) = (self.next)()? else {
                self.ended = true;
                return Ok(false);
            };
            self.ready.extend_from_slice(&(name.len() as u16).to_be_bytes());
            self.ready.extend_from_slice(name.as_bytes());
            self.file = Some((file, Sha256::new()));
            return Ok(true);
        };
        self.ready.resize(4 + BLOCK, 0);
        let len = loop {
            match file.read(&mut self.ready[4..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.ready.clear();
                    return Err(e);
                }
                Ok(len) => break len,
            }
        };
        self.ready.truncate(4 + len);
        self.ready[..4].copy_from_slice(&(len as u32).to_be_bytes());
        if len == 0 {
            self.ready.extend_from_slice(&hash.clone().finalize());
            self.file = None;
        } else {
            hash.update(&self.ready[4..]);
            self.octets += len as u64;
        }
        Ok(true)
    }
}

/// What is done with what comes out of a stream.
pub trait Sink {
    /// A file begins.
    ///
    /// # Errors
    /// Why it cannot, as the sender is told.
    fn begin(&mut self, name: &str) -> Result<(), String>;
    /// Octets of it.
    ///
    /// # Errors
    /// As for `begin`.
    fn octets(&mut self, octets: &[u8]) -> Result<(), String>;
    /// It is whole, and its hash fits.
    ///
    /// # Errors
    /// As for `begin`.
    fn end(&mut self) -> Result<(), String>;
}

/// Takes the stream apart, in pieces of any length.
pub struct Reader {
    held: Vec<u8>,
    state: State,
    hash: Sha256,
    file: Sha256,
    /// Files that are whole.
    pub files: u64,
    /// Octets of files.
    pub octets: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Length,
    Name(usize),
    Block,
    Octets(usize),
    Hash,
}

impl Reader {
    pub fn new() -> Reader {
        let (hash, file) = (Sha256::new(), Sha256::new());
        Reader { held: Vec::new(), state: State::Length, hash, file, files: 0, octets: 0 }
    }

    /// The hash of everything so far.
    pub fn hash(&self) -> [u8; HASH] {
        self.hash.clone().finalize().into()
    }

    /// Whether the stream may end here.
    pub fn between_files(&self) -> bool {
        self.state == State::Length && self.held.is_empty()
    }

    /// Takes the next octets.
    ///
    /// # Errors
    /// What is wrong with them, or with the sink.
    pub fn take(&mut self, mut bytes: &[u8], sink: &mut impl Sink) -> Result<(), String> {
        self.hash.update(bytes);
        while !bytes.is_empty() {
            if let State::Octets(left) = self.state {
                let (part, rest) = bytes.split_at(left.min(bytes.len()));
                self.file.update(part);
                self.octets += part.len() as u64;
                sink.octets(part)?;
                let left = left - part.len();
                self.state = if left == 0 { State::Block } else { State::Octets(left) };
                bytes = rest;
                continue;
            }
            let wanted = match self.state {
                State::Length => 2,
                State::Name(len) => len,
                State::Block | State::Octets(_) => 4,
                State::Hash => HASH,
            };
            let (part, rest) = bytes.split_at((wanted - self.held.len()).min(bytes.len()));
            self.held.extend_from_slice(part);
            bytes = rest;
            if self.held.len() == wanted {
                self.whole(sink)?;
                self.held.clear();
            }
        }
        Ok(())
    }

    /// What was awaited is there.
    fn whole(&mut self, sink: &mut impl Sink) -> Result<(), String> {
        let number = self.held.iter().take(4).fold(0usize, |n, &b| n << 8 | usize::from(b));
        self.state = match self.state {
            State::Length if number == 0 || number > LONGEST_NAME => {
                return Err(format!("a name of {number} octets: it has 1 to {LONGEST_NAME}"));
            }
            State::Length => State::Name(number),
            State::Name(_) => {
                let name = str::from_utf8(&self.held).map_err(|_| "a name that is no UTF-8".to_owned())?;
                self.file = Sha256::new();
                sink.begin(name)?;
                State::Block
            }
            State::Block | State::Octets(_) if number == 0 => State::Hash,
            State::Block | State::Octets(_) => State::Octets(number),
            State::Hash => {
                let own: [u8; HASH] = self.file.clone().finalize().into();
                if own[..] != self.held[..] {
                    return Err("a file arrived changed: its hash does not fit".to_owned());
                }
                sink.end()?;
                self.files += 1;
                State::Length
            }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Kept(Vec<(String, Vec<u8>, bool)>);

    impl Sink for Kept {
        fn begin(&mut self, name: &str) -> Result<(), String> {
            self.0.push((name.to_owned(), Vec::new(), false));
            Ok(())
        }
        fn octets(&mut self, octets: &[u8]) -> Result<(), String> {
            self.0.last_mut().unwrap().1.extend_from_slice(octets);
            Ok(())
        }
        fn end(&mut self) -> Result<(), String> {
            self.0.last_mut().unwrap().2 = true;
            Ok(())
        }
    }

    fn files() -> Vec<(String, Vec<u8>)> {
        let octets = |n: usize| (0..n).map(|i| (i * 7 + i / 251) as u8).collect::<Vec<u8>>();
        [0, 1, 65_535, 65_536, 65_537, 300_000].map(|n| (format!("dir/{n}"), octets(n))).to_vec()
    }

    fn stream(step: usize) -> (Vec<u8>, [u8; HASH]) {
        let all = files();
        let mut rest = all.iter();
        let mut writer =
            Writer::new(|| Ok(rest.next().map(|(name, octets)| (name.clone(), io::Cursor::new(octets)))));
        let mut stream = Vec::new();
        loop {
            let mut buffer = vec![0; step];
            let len = writer.fill(&mut buffer).unwrap();
            stream.extend_from_slice(&buffer[..len]);
            if len < step {
                assert_eq!(writer.octets, 496_609);
                return (stream, writer.hash());
            }
        }
    }

    #[test]
    fn files_come_out_as_they_went_in_whatever_the_pieces() {
        let (whole, hash) = stream(1400);
        assert_eq!(stream(7).0, whole);
        for step in [1, 3, 1376, 65_000, 1 << 20] {
            let (mut reader, mut kept) = (Reader::new(), Kept::default());
            for part in whole.chunks(step) {
                reader.take(part, &mut kept).unwrap();
            }
            assert!(reader.between_files() && reader.hash() == hash);
            assert_eq!((reader.files, reader.octets), (6, 496_609));
            let expected: Vec<_> = files().into_iter().map(|(n, o)| (n, o, true)).collect();
            assert!(kept.0 == expected);
        }
    }

    #[test]
    fn what_was_changed_is_found() {
        let (whole, _) = stream(1400);
        for at in [0, 2, 9, 20, 50, 70_000, whole.len() - 1] {
            let mut changed = whole.clone();
            changed[at] ^= 0x40;
            let mut kept = Kept::default();
            let mut reader = Reader::new();
            let taken = reader.take(&changed, &mut kept);
            let same = kept.0.iter().map(|(n, o, _)| (n.clone(), o.clone())).eq(files());
            assert!(taken.is_err() || !reader.between_files() || !same, "{at}");
        }
    }
}
