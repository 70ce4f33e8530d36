//! Reading, strictly: what the format does not allow is an error, never a guess. Both byte orders are read; block types
//! that are not known are given out as such.

use super::{
    BYTE_ORDER, COMMENT, Counts, Direction, END_OF_OPTIONS, INTERFACE, INTERFACE_MAC, INTERFACE_NAME,
    INTERFACE_OFFSET, INTERFACE_RESOLUTION, PACKET, PACKET_DROPS, PACKET_FLAGS, Reception, SECTION,
    SECTION_APPLICATION, STATISTICS, STATISTICS_DROPPED, STATISTICS_END, STATISTICS_RECEIVED,
    STATISTICS_START,
};
use crate::MacAddr;
use std::io::{self, Read};

/// No block that anybody writes is longer.
const LONGEST: usize = 16 << 20;
/// Type, length, and the length again.
const FRAMING: usize = 12;

/// Why a file cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read at all.
    #[error("reading the capture file: {0}")]
    Io(#[from] io::Error),
    /// It ends in the middle of a block.
    #[error("the capture file ends inside a block that begins at octet {at}; what is before it is whole")]
    Truncated {
        /// Where the block begins.
        at: u64,
    },
    /// Something in it cannot be.
    #[error("octet {at} of the capture file: {what}")]
    Malformed {
        /// Where the block begins.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// Result of reading.
pub type Result<T> = std::result::Result<T, Error>;

/// A block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// A section begins; its interfaces are counted anew.
    Section {
        /// Who wrote it.
        application: Option<String>,
    },
    /// An interface; the first one of a section has the number 0.
    Interface {
        /// LINKTYPE_...
        link_type: u16,
        /// Octets kept of each frame; 0: all.
        snap: u32,
        /// Its name.
        name: Option<String>,
        /// Its hardware address.
        mac: Option<MacAddr>,
    },
    /// A frame.
    Frame(Frame),
    /// Counters.
    Statistics {
        /// The interface's number.
        interface: u32,
        /// When, in nanoseconds since 1970.
        ns: u64,
        /// The counters.
        counts: Counts,
    },
    /// A block of another type.
    Other(u32),
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The interface's number.
    pub interface: u32,
    /// Nanoseconds since 1970.
    pub ns: u64,
    /// Octets that were kept.
    pub bytes: Vec<u8>,
    /// Octets that it had.
    pub original: u32,
    /// Which way it went.
    pub direction: Direction,
    /// How it was received.
    pub reception: Reception,
    /// Frames lost since the one before, if that is told.
    pub lost: Option<u64>,
    /// Remarks.
    pub comments: Vec<String>,
}

/// What is remembered of an interface.
#[derive(Clone, Copy)]
struct Described {
    snap: u32,
    /// Units of time in a second.
    units: u64,
    /// Seconds to be added.
    offset: i64,
}

/// Reads a file block by block.
pub struct Reader<R> {
    input: R,
    at: u64,
    big: bool,
    begun: bool,
    interfaces: Vec<Described>,
}

impl<R: Read> Reader<R> {
    /// From its first octet.
    pub const fn new(input: R) -> Reader<R> {
        Reader { input, at: 0, big: false, begun: false, interfaces: Vec::new() }
    }

    /// The next block; `None` at the end of the file.
    ///
    /// # Errors
    /// [`Error`]; reading on after one makes no sense.
    #[expect(clippy::should_implement_trait, reason = "an iterator would go on after an error")]
    pub fn next(&mut self) -> Result<Option<Block>> {
        let at = self.at;
        let wrong = |what| Error::Malformed { at, what };
        let mut head = [0; 8];
        match self.fill(&mut head)? {
            0 => return Ok(None),
            8 => {}
            _ => return Err(Error::Truncated { at }),
        }
        let mut order = [0; 4];
        // The same in both byte orders.
        let section = head[..4] == SECTION.to_be_bytes();
        if section {
            if self.fill(&mut order)? < 4 {
                return Err(Error::Truncated { at });
            }
            self.big = match u32::from_be_bytes(order) {
                BYTE_ORDER => true,
                other if other.swap_bytes() == BYTE_ORDER => false,
                _ => return Err(wrong("this is no pcapng file, or its byte order is unknown")),
            };
        } else if !self.begun {
            return Err(wrong("this is no pcapng file: it does not begin with a section"));
        }
        let len = self.word(&head[4..]) as usize;
        if !len.is_multiple_of(4) || !(FRAMING..=LONGEST).contains(&len) || section && len < FRAMING + 16 {
            return Err(wrong("a block of impossible length"));
        }
        let known = if section { 4 } else { 0 };
        let mut body = order[..known].to_vec();
        // As much memory as the file is long, whatever the length says.
        let got = (&mut self.input).take((len - 8 - known) as u64).read_to_end(&mut body)?;
        self.at += got as u64;
        if body.len() < len - 8 {
            return Err(Error::Truncated { at });
        }
        let (body, trailer) = body.split_at(len - FRAMING);
        if self.word(trailer) as usize != len {
            return Err(wrong("a block whose two lengths differ"));
        }
        let block = match self.word(&head) {
            SECTION => self.section(body),
            INTERFACE => self.interface(body),
            PACKET => self.frame(body),
            STATISTICS => self.statistics(body),
            other => Ok(Block::Other(other)),
        };
        block.map(Some).map_err(wrong)
    }

    /// All blocks that are left.
    ///
    /// # Errors
    /// As [`next`](Reader::next).
    pub fn all(mut self) -> Result<Vec<Block>> {
        let mut blocks = Vec::new();
        while let Some(block) = self.next()? {
            blocks.push(block);
        }
        Ok(blocks)
    }

    /// Reads as much as there is.
    fn fill(&mut self, mut room: &mut [u8]) -> io::Result<usize> {
        let wanted = room.len();
        while !room.is_empty() {
            match self.input.read(room) {
                Ok(0) => break,
                Ok(n) => room = &mut room[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let got = wanted - room.len();
        self.at += got as u64;
        Ok(got)
    }

    fn half(&self, bytes: &[u8]) -> u16 {
        let two = [bytes[0], bytes[1]];
        if self.big { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) }
    }

    fn word(&self, bytes: &[u8]) -> u32 {
        let four = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if self.big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
    }

    fn long(&self, bytes: &[u8]) -> std::result::Result<u64, &'static str> {
        let eight = bytes.try_into().map_err(|_| "a counter that is not eight octets long")?;
        Ok(if self.big { u64::from_be_bytes(eight) } else { u64::from_le_bytes(eight) })
    }

    /// Gives each option to `each`.
    fn options<'b>(
        &self,
        mut rest: &'b [u8],
        mut each: impl FnMut(u16, &'b [u8]) -> std::result::Result<(), &'static str>,
    ) -> std::result::Result<(), &'static str> {
        while !rest.is_empty() {
            let [_, _, _, _, ..] = rest else { return Err("an option without a length") };
            let (code, len) = (self.half(rest), usize::from(self.half(&rest[2..])));
            if code == END_OF_OPTIONS {
                let last = len == 0 && rest.len() == 4;
                return if last { Ok(()) } else { Err("something behind the end of the options") };
            }
            let value = rest.get(4..4 + len).ok_or("an option that is longer than its block")?;
            each(code, value)?;
            rest =
                rest.get(4 + len.next_multiple_of(4)..).ok_or("an option that is longer than its block")?;
        }
        Ok(())
    }

    fn section(&mut self, body: &[u8]) -> std::result::Result<Block, &'static str> {
        if self.half(&body[4..]) != 1 {
            return Err("a version of the format that is not known");
        }
        let mut application = None;
        self.options(&body[16..], |code, value| {
            if code == SECTION_APPLICATION {
                application = Some(text(value)?);
            }
            Ok(())
        })?;
        (self.begun, self.interfaces) = (true, Vec::new());
        Ok(Block::Section { application })
    }

    fn interface(&mut self, body: &[u8]) -> std::result::Result<Block, &'static str> {
        let fixed = body.get(..8).ok_or("an interface that is too short")?;
        let (link_type, snap) = (self.half(fixed), self.word(&fixed[4..]));
        let (mut name, mut mac, mut units, mut offset) = (None, None, 1_000_000, 0);
        self.options(&body[8..], |code, value| {
            match code {
                INTERFACE_NAME => name = Some(text(value)?),
                INTERFACE_MAC => {
                    mac = Some(MacAddr(
                        value.try_into().map_err(|_| "an address that is not six octets long")?,
                    ));
                }
                INTERFACE_RESOLUTION => {
                    let [exponent] = *value else { return Err("a resolution that is not one octet") };
                    let base: u64 = if exponent & 0x80 == 0 { 10 } else { 2 };
                    let power = base.checked_pow(u32::from(exponent & 0x7f));
                    units = power.ok_or("a resolution that is too fine")?;
                }
                INTERFACE_OFFSET => offset = self.long(value)? as i64,
                _ => {}
            }
            Ok(())
        })?;
        self.interfaces.push(Described { snap, units, offset });
        Ok(Block::Interface { link_type, snap, name, mac })
    }

    fn described(&self, number: u32) -> std::result::Result<Described, &'static str> {
        self.interfaces.get(number as usize).copied().ok_or("an interface that was not described")
    }

    /// Nanoseconds since 1970 of the two words of a time.
    fn time(&self, words: &[u8], by: Described) -> std::result::Result<u64, &'static str> {
        let units = u128::from(self.word(words)) << 32 | u128::from(self.word(&words[4..]));
        let ns = units * 1_000_000_000 / u128::from(by.units);
        let ns = i128::try_from(ns).map_err(|_| "a time beyond all times")?;
        u64::try_from(ns + i128::from(by.offset) * 1_000_000_000).map_err(|_| "a time beyond all times")
    }

    fn frame(&self, body: &[u8]) -> std::result::Result<Block, &'static str> {
        let fixed = body.get(..20).ok_or("a frame that is too short")?;
        let interface = self.word(fixed);
        let by = self.described(interface)?;
        let ns = self.time(&fixed[4..], by)?;
        let (captured, original) = (self.word(&fixed[12..]), self.word(&fixed[16..]));
        if captured > original {
            return Err("more octets of a frame than it had");
        }
        if by.snap != 0 && captured > by.snap {
            return Err("more octets of a frame than are kept of each");
        }
        let end = (captured as usize).checked_next_multiple_of(4).and_then(|n| n.checked_add(20));
        let padded = end.and_then(|end| body.get(20..end)).ok_or("a frame that is longer than its block")?;
        let mut frame = Frame {
            interface,
            ns,
            bytes: padded[..captured as usize].to_vec(),
            original,
            direction: Direction::Unknown,
            reception: Reception::Unknown,
            lost: None,
            comments: Vec::new(),
        };
        self.options(&body[20 + padded.len()..], |code, value| {
            match code {
                COMMENT => frame.comments.push(text(value)?),
                PACKET_DROPS => frame.lost = Some(self.long(value)?),
                PACKET_FLAGS => {
                    let flags = if value.len() == 4 {
                        self.word(value)
                    } else {
                        return Err("flags that are no word");
                    };
                    (frame.direction, frame.reception) = (direction(flags), reception(flags)?);
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(Block::Frame(frame))
    }

    fn statistics(&self, body: &[u8]) -> std::result::Result<Block, &'static str> {
        let fixed = body.get(..12).ok_or("counters that are too short")?;
        let interface = self.word(fixed);
        let by = self.described(interface)?;
        let ns = self.time(&fixed[4..], by)?;
        let mut counts = Counts::default();
        self.options(&body[12..], |code, value| {
            let time =
                || if value.len() == 8 { self.time(value, by) } else { Err("a time that is not two words") };
            match code {
                STATISTICS_START => counts.start = Some(time()?),
                STATISTICS_END => counts.end = Some(time()?),
                STATISTICS_RECEIVED => counts.received = Some(self.long(value)?),
                STATISTICS_DROPPED => counts.dropped = Some(self.long(value)?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(Block::Statistics { interface, ns, counts })
    }
}

fn text(value: &[u8]) -> std::result::Result<String, &'static str> {
    String::from_utf8(value.to_vec()).map_err(|_| "a text that is no UTF-8")
}

const fn direction(flags: u32) -> Direction {
    match flags & 3 {
        1 => Direction::In,
        2 => Direction::Out,
        _ => Direction::Unknown,
    }
}

const fn reception(flags: u32) -> std::result::Result<Reception, &'static str> {
    Ok(match flags >> 2 & 7 {
        0 => Reception::Unknown,
        1 => Reception::Unicast,
        2 => Reception::Multicast,
        3 => Reception::Broadcast,
        4 => Reception::Promiscuous,
        _ => return Err("a kind of reception that is not known"),
    })
}

#[cfg(test)]
mod tests;
