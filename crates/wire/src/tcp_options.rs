//! Options of TCP headers: MSS (RFC 9293, 3.7.1), window scale and timestamps (RFC 7323), SACK (RFC 2018); others are
//! kept as they are.

use crate::error::{ParseError, Part};
use crate::option_bytes::{OptionBytes, next_tlv};
use crate::seq::SeqNumber;
use core::fmt;

/// The most octets of options in a header.
pub const MOST_LEN: usize = crate::option_bytes::MOST;
/// The most blocks that a SACK option has.
pub const MOST_SACK_BLOCKS: usize = 4;
/// The largest shift of a window that counts; larger ones count as this (RFC 7323, 2.3).
pub const MOST_WINDOW_SHIFT: u8 = 14;

/// A range of octets that arrived: from `left` up to but without `right` (RFC 2018, 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlock {
    /// The first octet.
    pub left: SeqNumber,
    /// The one behind the last.
    pub right: SeqNumber,
}

/// The blocks of a SACK option, in its order: the most recent first.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [SackBlock; MOST_SACK_BLOCKS],
    len: u8,
}

impl SackBlocks {
    /// No blocks.
    pub const fn new() -> SackBlocks {
        SackBlocks {
            blocks: [SackBlock { left: SeqNumber(0), right: SeqNumber(0) }; MOST_SACK_BLOCKS],
            len: 0,
        }
    }

    /// Adds a block behind the others. False: there are [`MOST_SACK_BLOCKS`] already.
    #[must_use]
    pub fn push(&mut self, block: SackBlock) -> bool {
        let Some(place) = self.blocks.get_mut(self.len as usize) else {
            return false;
        };
        *place = block;
        self.len += 1;
        true
    }

    /// The blocks.
    pub fn as_slice(&self) -> &[SackBlock] {
        &self.blocks[..self.len as usize]
    }

    /// From the option's data; None if that is no whole number of blocks from one to four.
    fn from_data(data: &[u8]) -> Option<SackBlocks> {
        let (chunks, rest) = data.as_chunks::<8>();
        let mut blocks = SackBlocks::new();
        for &[a, b, c, d, e, f, g, h] in chunks {
            let left = SeqNumber(u32::from_be_bytes([a, b, c, d]));
            let right = SeqNumber(u32::from_be_bytes([e, f, g, h]));
            if !blocks.push(SackBlock { left, right }) {
                return None;
            }
        }
        (rest.is_empty() && blocks.len > 0).then_some(blocks)
    }
}

impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// Nothing: aligns the next one.
    Nop,
    /// The largest segment that the sender takes, in octets of payload; with SYN only.
    MaxSegmentSize(u16),
    /// The sender's windows are shifted by so many bits; with SYN only. More than [`MOST_WINDOW_SHIFT`] is kept.
    WindowScale(u8),
    /// The sender takes SACK; with SYN only.
    SackPermitted,
    /// What arrived out of order.
    Sack(SackBlocks),
    /// The sender's clock, and the other side's last one.
    Timestamps {
        /// TSval.
        value: u32,
        /// TSecr: counts with ACK only.
        echo: u32,
    },
    /// Any other, and those above with a length that is not theirs.
    Other {
        /// The option's number.
        kind: u8,
        /// Octets behind the length.
        data: &'a [u8],
    },
}

/// Options of a header, kept as octets: up to 40 of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TcpOptions(OptionBytes);

/// The options that every TCP looks for, out of one header. Of one that is there twice the last counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownTcpOptions {
    /// See [`TcpOption::MaxSegmentSize`].
    pub mss: Option<u16>,
    /// See [`TcpOption::WindowScale`].
    pub window_scale: Option<u8>,
    /// See [`TcpOption::SackPermitted`].
    pub sack_permitted: bool,
    /// See [`TcpOption::Sack`].
    pub sack: SackBlocks,
    /// See [`TcpOption::Timestamps`]: TSval, TSecr.
    pub timestamps: Option<(u32, u32)>,
    /// An option had an impossible length; those before it are here.
    pub broken: bool,
}

impl TcpOptions {
    /// No options.
    pub const fn new() -> TcpOptions {
        TcpOptions(OptionBytes::new())
    }

    /// Two octets of padding and timestamps: what stands in most segments (RFC 7323, appendix A).
    #[inline]
    pub fn timestamps(value: u32, echo: u32) -> TcpOptions {
        let mut options = OptionBytes::new();
        let ([a, b, c, d], [e, f, g, h]) = (value.to_be_bytes(), echo.to_be_bytes());
        let _fits = options.extend(&[1, 1, 8, 10, a, b, c, d, e, f, g, h]);
        TcpOptions(options)
    }

    /// Octets as they stand in a header. None if there are more than [`MOST_LEN`].
    pub fn from_bytes(bytes: &[u8]) -> Option<TcpOptions> {
        OptionBytes::from_slice(bytes).map(TcpOptions)
    }

    /// Adds an option. False, and nothing added, if it does not fit.
    #[must_use]
    pub fn push(&mut self, option: &TcpOption) -> bool {
        let before = self.0;
        let fits = match *option {
            TcpOption::Nop => self.0.extend(&[1]),
            TcpOption::MaxSegmentSize(size) => self.tlv(2, &[&size.to_be_bytes()]),
            TcpOption::WindowScale(shift) => self.tlv(3, &[&[shift]]),
            TcpOption::SackPermitted => self.tlv(4, &[]),
            TcpOption::Sack(blocks) => {
                let blocks = blocks.as_slice();
                self.0.extend(&[5, 2 + 8 * blocks.len() as u8])
                    && blocks.iter().all(|b| {
                        self.0.extend(&b.left.0.to_be_bytes()) && self.0.extend(&b.right.0.to_be_bytes())
                    })
            }
            TcpOption::Timestamps { value, echo } => {
                self.tlv(8, &[&value.to_be_bytes(), &echo.to_be_bytes()])
            }
            TcpOption::Other { kind, data } => self.tlv(kind, &[data]),
        };
        if !fits {
            self.0 = before;
        }
        fits
    }

    fn tlv(&mut self, kind: u8, data: &[&[u8]]) -> bool {
        let len = 2 + data.iter().map(|d| d.len()).sum::<usize>();
        len <= MOST_LEN && self.0.extend(&[kind, len as u8]) && data.iter().all(|d| self.0.extend(d))
    }

    /// The octets.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// The octets and zeros up to a multiple of four, as they stand in a header.
    pub fn padded(&self) -> &[u8] {
        self.0.padded()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    /// One option after the other, up to the end of the list or the first impossible length.
    pub fn iter(&self) -> TcpOptionIter<'_> {
        TcpOptionIter { bytes: self.as_bytes(), at: 0 }
    }

    /// What every TCP looks for.
    pub fn known(&self) -> KnownTcpOptions {
        let mut known = KnownTcpOptions::default();
        // Nearly every segment of a connection has these twelve octets (RFC 7323, appendix A).
        if let &[1, 1, 8, 10, a, b, c, d, e, f, g, h] = self.as_bytes() {
            let both = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
            known.timestamps = Some(both);
            return known;
        }
        for option in self {
            match option {
                Ok(TcpOption::MaxSegmentSize(size)) => known.mss = Some(size),
                Ok(TcpOption::WindowScale(shift)) => known.window_scale = Some(shift),
                Ok(TcpOption::SackPermitted) => known.sack_permitted = true,
                Ok(TcpOption::Sack(blocks)) => known.sack = blocks,
                Ok(TcpOption::Timestamps { value, echo }) => known.timestamps = Some((value, echo)),
                Ok(TcpOption::Nop | TcpOption::Other { .. }) => {}
                Err(_) => known.broken = true,
            }
        }
        known
    }
}

impl Default for TcpOptions {
    fn default() -> TcpOptions {
        TcpOptions::new()
    }
}

impl fmt::Debug for TcpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'a> IntoIterator for &'a TcpOptions {
    type Item = Result<TcpOption<'a>, ParseError>;
    type IntoIter = TcpOptionIter<'a>;

    fn into_iter(self) -> TcpOptionIter<'a> {
        self.iter()
    }
}

/// See [`TcpOptions::iter`].
#[derive(Clone, Debug)]
pub struct TcpOptionIter<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for TcpOptionIter<'a> {
    type Item = Result<TcpOption<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (option, next) = match next_tlv(self.bytes, self.at)? {
            Ok(found) => found,
            Err((kind, at)) => {
                self.at = self.bytes.len();
                return Some(Err(ParseError::Option { part: Part::Tcp, kind, at }));
            }
        };
        self.at = next;
        let other = TcpOption::Other { kind: option.kind, data: option.data };
        Some(Ok(match (option.kind, option.data) {
            (1, _) => TcpOption::Nop,
            (2, [a, b]) => TcpOption::MaxSegmentSize(u16::from_be_bytes([*a, *b])),
            (3, [shift]) => TcpOption::WindowScale(*shift),
            (4, []) => TcpOption::SackPermitted,
            (5, data) => SackBlocks::from_data(data).map_or(other, TcpOption::Sack),
            (8, &[a, b, c, d, e, f, g, h]) => TcpOption::Timestamps {
                value: u32::from_be_bytes([a, b, c, d]),
                echo: u32::from_be_bytes([e, f, g, h]),
            },
            _ => other,
        }))
    }
}
