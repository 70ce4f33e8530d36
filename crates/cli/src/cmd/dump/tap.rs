//! One connection that is followed: what was read of each direction, and what was missed.
//!
//! A reader outside takes part in nothing. Bytes stay in a ring until they are overwritten by those a whole ring later, so
//! after bytes were copied it is asked how far writers may have come meanwhile: what they may have touched counts as missed.

use super::memory::{Place, Words};
use crate::connections::Writer;
use bypath_shm::direction::{Head, Path, position};
use std::net::SocketAddr;

/// How often it is asked whether a writer has finished.
const LOOKS: usize = 200;

/// A connection.
#[derive(Debug)]
pub struct Tap {
    /// In whose memory it is read.
    pub pid: u32,
    /// Where.
    pub place: Place,
    /// Its sockets: that of the dialler and that of the accepter.
    pub cookies: [u64; 2],
    /// Their addresses.
    pub addresses: [SocketAddr; 2],
    /// Their writers' lines, if they can be read.
    pub writers: [Option<Writer>; 2],
    /// Up to where each direction is known.
    pub seen: [Option<u64>; 2],
    /// From where on each ring had memory when it was looked at last.
    pub backed: [u64; 2],
}

/// New bytes of a direction.
#[derive(Debug, PartialEq, Eq)]
pub struct News<'a> {
    /// Position of the first one.
    pub position: u64,
    /// Bytes missed before it.
    pub missed: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// Why it is followed no longer.
#[derive(Debug)]
pub enum Over {
    /// The slot has been given back, or the process is gone.
    Closed,
    /// It may not be read.
    Forbidden,
}

impl From<nix::Error> for Over {
    fn from(e: nix::Error) -> Over {
        if e == nix::Error::EPERM { Over::Forbidden } else { Over::Closed }
    }
}

impl Tap {
    /// Reads what is new in direction `d` (0 from the dialler, 1 from the accepter).
    ///
    /// # Errors
    /// It is over.
    pub fn look<'a>(&mut self, d: usize, room: &'a mut Vec<u8>) -> Result<Option<News<'a>>, Over> {
        let words = self.words(d)?;
        let size = u64::from(self.place.ring);
        let seen = *self.seen[d].get_or_insert_with(|| begin(words, size));
        // A tail behind what was seen, or far ahead, is a liar's, or of another life of the slot.
        let new = words.tail.wrapping_sub(seen);
        if new == 0 || new > u64::MAX / 2 {
            return Ok(None);
        }
        let from = seen.max(words.tail.saturating_sub(size));
        room.resize((words.tail - from) as usize, 0);
        self.place.bytes(self.pid, d, from, room)?;
        let safe = self.safe(d, from, room)?;
        let valid = safe.clamp(from, words.tail);
        self.seen[d] = Some(words.tail);
        let bytes = &room[(valid - from) as usize..];
        Ok(Some(News { position: valid, missed: valid - seen, bytes }))
    }

    fn words(&self, d: usize) -> Result<Words, Over> {
        let words = self.place.words(self.pid, d)?;
        if words.cookies == Some(self.cookies) { Ok(words) } else { Err(Over::Closed) }
    }

    /// The first position whose byte was certainly still there while it was copied.
    fn safe(&mut self, d: usize, from: u64, copied: &[u8]) -> Result<u64, Over> {
        let size = u64::from(self.place.ring);
        let after = self.words(d)?.tail;
        let mut safe = None;
        for _ in 0..LOOKS {
            let line = self.writers[d].as_ref().and_then(Writer::look);
            let words = self.words(d)?;
            // Who was writing while we copied has said how far, once the lock is free or the tail has moved on.
            if line.is_some_and(|(free, _)| free) || words.tail != after {
                safe = Some(words.tail.saturating_sub(size));
                break;
            }
            if line.is_none() {
                break;
            }
        }
        // A writer that is stopped half-way: it may have written anywhere that was free.
        let mut safe = match safe {
            Some(safe) => safe,
            None => Head::from_raw(self.words(d)?.head).position(),
        };
        if let Some((_, backed)) = self.writers[d].as_ref().and_then(Writer::look) {
            // An empty ring's memory was given back: what stood there before reads as zeroes.
            if std::mem::replace(&mut self.backed[d], backed) != backed && copied.iter().all(|b| *b == 0) {
                safe = safe.max(from + copied.len() as u64);
            }
        }
        Ok(safe)
    }
}

/// Where following begins: with what waits in the ring.
fn begin(words: Words, size: u64) -> u64 {
    let head = Head::from_raw(words.head);
    let waits = position::distance(head.position(), words.tail);
    if head.path() == Path::Ring && waits <= size { head.position() } else { words.tail }
}
