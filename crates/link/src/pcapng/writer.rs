//! Writing.

use super::{
    BYTE_ORDER, COMMENT, Counts, Direction, END_OF_OPTIONS, ETHERNET, INTERFACE, INTERFACE_MAC,
    INTERFACE_NAME, INTERFACE_RESOLUTION, PACKET, PACKET_DROPS, PACKET_FLAGS, Reception, SECTION,
    SECTION_APPLICATION, STATISTICS, STATISTICS_DROPPED, STATISTICS_END, STATISTICS_RECEIVED,
    STATISTICS_START,
};
use crate::MacAddr;
use std::io::{self, Write};

/// Octets of an option's value at most; longer texts are cut.
const LONGEST_TEXT: usize = 4096;

/// What is written about one frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame<'a> {
    /// The interface's number, from [`Writer::interface`].
    pub interface: u32,
    /// Nanoseconds since 1970.
    pub ns: u64,
    /// The frame's pieces, which follow each other.
    pub pieces: [&'a [u8]; 3],
    /// Octets that the frame had, where the pieces are only its beginning.
    pub original: Option<u32>,
    /// Which way it went.
    pub direction: Direction,
    /// How it was received.
    pub reception: Reception,
    /// Frames lost between the one before and this one, if that is known.
    pub lost: Option<u64>,
    /// A remark.
    pub comment: Option<&'a str>,
}

/// What is written about an interface.
#[derive(Clone, Copy, Debug)]
pub struct Interface<'a> {
    /// Its name.
    pub name: &'a str,
    /// What its frames begin with: LINKTYPE_..., [`ETHERNET`] for Ethernet frames.
    pub link_type: u16,
    /// Its hardware address.
    pub mac: Option<MacAddr>,
    /// A remark.
    pub comment: Option<&'a str>,
}

/// Writes a capture file: each block by one call of the writer inside, so that what is there is always whole.
pub struct Writer<W> {
    out: W,
    block: Vec<u8>,
    interfaces: u32,
    snap: usize,
}

impl<W: Write> Writer<W> {
    /// Begins a file. Of each frame `snap` octets are written at most.
    ///
    /// # Errors
    /// Those of the writer inside.
    pub fn new(out: W, application: &str, snap: usize) -> io::Result<Writer<W>> {
        let mut writer = Writer { out, block: Vec::with_capacity(2048), interfaces: 0, snap };
        writer.begin(SECTION);
        writer.word(BYTE_ORDER);
        // Version 1.0, and a section whose length is not known.
        writer.block.extend_from_slice(&1u16.to_ne_bytes());
        writer.block.extend_from_slice(&0u16.to_ne_bytes());
        writer.long(u64::MAX);
        writer.text(SECTION_APPLICATION, application);
        writer.end()?;
        Ok(writer)
    }

    /// Describes an interface that carries Ethernet frames, and returns its number.
    ///
    /// # Errors
    /// Those of the writer inside.
    pub fn interface(&mut self, name: &str, mac: Option<MacAddr>) -> io::Result<u32> {
        self.interface_with(name, mac, None)
    }

    /// The same, with a remark.
    ///
    /// # Errors
    /// Those of the writer inside.
    pub fn interface_with(
        &mut self,
        name: &str,
        mac: Option<MacAddr>,
        comment: Option<&str>,
    ) -> io::Result<u32> {
        self.describe(&Interface { name, link_type: ETHERNET, mac, comment })
    }

    /// Describes an interface of any kind, and returns its number.
    ///
    /// # Errors
    /// Those of the writer inside.
    pub fn describe(&mut self, interface: &Interface<'_>) -> io::Result<u32> {
        self.begin(INTERFACE);
        self.block.extend_from_slice(&interface.link_type.to_ne_bytes());
        self.block.extend_from_slice(&[0, 0]);
        // 0: no limit.
        self.word(u32::try_from(self.snap).unwrap_or(0));
        self.text(INTERFACE_NAME, interface.name);
        if let Some(mac) = interface.mac {
            self.option(INTERFACE_MAC, &mac.0);
        }
        // Times are in 10^-9 s.
        self.option(INTERFACE_RESOLUTION, &[9]);
        if let Some(comment) = interface.comment {
            self.text(COMMENT, comment);
        }
        self.end()?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// InvalidInput for an interface that was not described, a frame beyond 4 GiB, and one whose pieces are more than it
    /// had; those of the writer inside.
    pub fn frame(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        self.prepare(frame)?;
        self.commit()
    }

    /// Makes a frame's block, in place of one that was not committed.
    pub(crate) fn prepare(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        let whole: usize = frame.pieces.iter().map(|p| p.len()).sum();
        let (Ok(there), true) = (u32::try_from(whole), frame.interface < self.interfaces) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let original = frame.original.unwrap_or(there);
        if original < there {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let captured = whole.min(self.snap);
        self.begin(PACKET);
        self.word(frame.interface);
        self.time(frame.ns);
        self.word(captured as u32);
        self.word(original);
        let mut left = captured;
        for piece in frame.pieces {
            let len = piece.len().min(left);
            self.block.extend_from_slice(&piece[..len]);
            left -= len;
        }
        self.pad();
        let flags = direction_bits(frame.direction) | reception_bits(frame.reception) << 2;
        if flags != 0 {
            self.option(PACKET_FLAGS, &flags.to_ne_bytes());
        }
        if let Some(lost) = frame.lost {
            self.option(PACKET_DROPS, &lost.to_ne_bytes());
        }
        if let Some(comment) = frame.comment {
            self.text(COMMENT, comment);
        }
        self.close()
    }

    /// Writes the block that was made.
    pub(crate) fn commit(&mut self) -> io::Result<()> {
        self.out.write_all(&self.block)
    }

    /// Writes counters of an interface, as of `ns` since 1970.
    ///
    /// # Errors
    /// InvalidInput for an interface that was not described; those of the writer inside.
    pub fn statistics(&mut self, interface: u32, ns: u64, counts: &Counts) -> io::Result<()> {
        if interface >= self.interfaces {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.begin(STATISTICS);
        self.word(interface);
        self.time(ns);
        for (option, time) in [(STATISTICS_START, counts.start), (STATISTICS_END, counts.end)] {
            if let Some(ns) = time {
                let halves = [((ns >> 32) as u32).to_ne_bytes(), (ns as u32).to_ne_bytes()].concat();
                self.option(option, &halves);
            }
        }
        for (option, count) in [(STATISTICS_RECEIVED, counts.received), (STATISTICS_DROPPED, counts.dropped)]
        {
            if let Some(count) = count {
                self.option(option, &count.to_ne_bytes());
            }
        }
        self.end()
    }

    /// Hands on what the writer inside still has.
    ///
    /// # Errors
    /// Those of the writer inside.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// The writer inside, as long as this writes to it.
    pub const fn inner(&mut self) -> &mut W {
        &mut self.out
    }

    /// The writer inside.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.word(kind);
        // The length: it is known in the end.
        self.word(0);
    }

    fn word(&mut self, value: u32) {
        self.block.extend_from_slice(&value.to_ne_bytes());
    }

    fn long(&mut self, value: u64) {
        self.block.extend_from_slice(&value.to_ne_bytes());
    }

    /// A time is two words, the high one first, whatever the byte order is.
    fn time(&mut self, ns: u64) {
        self.word((ns >> 32) as u32);
        self.word(ns as u32);
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.block.extend_from_slice(&code.to_ne_bytes());
        self.block.extend_from_slice(&(value.len() as u16).to_ne_bytes());
        self.block.extend_from_slice(value);
        self.pad();
    }

    fn text(&mut self, code: u16, text: &str) {
        let mut len = text.len().min(LONGEST_TEXT);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        self.option(code, &text.as_bytes()[..len]);
    }

    fn end(&mut self) -> io::Result<()> {
        self.close()?;
        self.commit()
    }

    /// Completes the block.
    fn close(&mut self) -> io::Result<()> {
        self.option(END_OF_OPTIONS, &[]);
        let len = u32::try_from(self.block.len() + 4).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.word(len);
        self.block[4..8].copy_from_slice(&len.to_ne_bytes());
        Ok(())
    }
}

const fn direction_bits(direction: Direction) -> u32 {
    match direction {
        Direction::Unknown => 0,
        Direction::In => 1,
        Direction::Out => 2,
    }
}

const fn reception_bits(reception: Reception) -> u32 {
    match reception {
        Reception::Unknown => 0,
        Reception::Unicast => 1,
        Reception::Multicast => 2,
        Reception::Broadcast => 3,
        Reception::Promiscuous => 4,
    }
}
