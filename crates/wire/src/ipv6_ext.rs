//! IPv6 extension headers (RFC 8200, 4): hop-by-hop and destination options, routing, fragment, and the
//! authentication header's frame (RFC 4302, 2), in any number up to [`MOST_HEADERS`].
//!
//! Nothing is acted on here: whether an unknown option discards the packet is in [`Ipv6Option::action`], where a
//! parameter problem points to is in [`ExtensionHeader`]'s place.

use crate::bytes::{be16, be32, head, room, room_of, split};
use crate::error::{EmitError, ParseError, Part};
use crate::ip::IpProtocol;

/// The most headers that are walked: no packet needs more than one of each kind, and destination options twice.
pub const MOST_HEADERS: usize = 8;
/// Octets of a fragment header.
pub const FRAGMENT_LEN: usize = 8;

/// One extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension<'a> {
    /// For every router on the way (RFC 8200, 4.3).
    HopByHop(Ipv6Options<'a>),
    /// For the destination, or for each one that a routing header names (RFC 8200, 4.6).
    DestinationOptions(Ipv6Options<'a>),
    /// A way to go (RFC 8200, 4.4).
    Routing {
        /// How `data` is to be read.
        kind: u8,
        /// Stations still to come.
        segments_left: u8,
        /// Everything behind the first four octets.
        data: &'a [u8],
    },
    /// Part of a packet that was cut (RFC 8200, 4.5).
    Fragment(FragmentHeader),
    /// Authentication (RFC 4302); not verified.
    Authentication {
        /// Everything behind the first two octets.
        data: &'a [u8],
    },
}

/// An extension header and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionHeader<'a> {
    /// What it says.
    pub extension: Extension<'a>,
    /// What follows it.
    pub next_header: IpProtocol,
    /// Where it begins, in octets behind the fixed header.
    pub at: usize,
    /// Octets.
    pub len: usize,
}

/// A fragment header (RFC 8200, 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Where this fragment belongs, in octets: a multiple of 8, at most 65528.
    pub offset: u16,
    /// Other fragments come behind this one.
    pub more: bool,
    /// Tells the fragments of one packet from those of others.
    pub identification: u32,
}

impl FragmentHeader {
    /// The whole packet in one fragment (RFC 6946): to be treated alone.
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Writes the header to the front of the buffer; answers its [`FRAGMENT_LEN`].
    ///
    /// # Errors
    /// [`EmitError::Room`]; [`EmitError::Field`] for an offset that is no multiple of 8.
    pub fn emit(&self, buffer: &mut [u8], next_header: IpProtocol) -> Result<usize, EmitError> {
        let found = self.offset as u32;
        if !found.is_multiple_of(8) {
            let most = found & !7;
            return Err(EmitError::Field { part: Part::Extension, field: "fragment offset", found, most });
        }
        let room: &mut [u8; FRAGMENT_LEN] = room_of(buffer, Part::Extension)?;
        room[0] = next_header.0;
        room[1] = 0;
        room[2..4].copy_from_slice(&(self.offset | self.more as u16).to_be_bytes());
        room[4..8].copy_from_slice(&self.identification.to_be_bytes());
        Ok(FRAGMENT_LEN)
    }
}

/// Writes hop-by-hop or destination options to the front of the buffer: `options` as they stand in the header, padded
/// with PadN or Pad1 to a multiple of 8 octets. Answers how many octets the header took.
///
/// # Errors
/// [`EmitError::TooLong`] for more than 2046 octets of options; [`EmitError::Room`].
pub fn emit_options(buffer: &mut [u8], next_header: IpProtocol, options: &[u8]) -> Result<usize, EmitError> {
    let len = (2 + options.len()).next_multiple_of(8);
    emit_framed(buffer, next_header, len, |rest| {
        let (front, padding) = rest.split_at_mut(options.len());
        front.copy_from_slice(options);
        match padding {
            [] => {}
            [one] => *one = 0,
            [kind, count, zeros @ ..] => {
                (*kind, *count) = (1, zeros.len() as u8);
                zeros.fill(0);
            }
        }
    })
}

/// Writes a routing header to the front of the buffer. `data` is everything behind the first four octets. Answers how
/// many octets the header took.
///
/// # Errors
/// [`EmitError::Field`] if 4 octets and `data` are no multiple of 8; [`EmitError::TooLong`] for more than 2044 octets
/// of data; [`EmitError::Room`].
pub fn emit_routing(
    buffer: &mut [u8],
    next_header: IpProtocol,
    kind: u8,
    segments_left: u8,
    data: &[u8],
) -> Result<usize, EmitError> {
    let len = 4 + data.len();
    if !len.is_multiple_of(8) {
        let (found, most) = (data.len() as u32, (data.len() & !7) as u32);
        return Err(EmitError::Field { part: Part::Extension, field: "routing data length", found, most });
    }
    emit_framed(buffer, next_header, len, |rest| {
        let (front, back) = rest.split_at_mut(2);
        front.copy_from_slice(&[kind, segments_left]);
        back.copy_from_slice(data);
    })
}

/// Next header, length, and what `fill` puts behind them.
fn emit_framed(
    buffer: &mut [u8],
    next_header: IpProtocol,
    len: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Result<usize, EmitError> {
    if len > 2048 {
        return Err(EmitError::TooLong { part: Part::Extension, found: len, most: 2048 });
    }
    let room = room(buffer, len, Part::Extension)?;
    let (front, rest) = room.split_at_mut(2);
    front.copy_from_slice(&[next_header.0, (len / 8 - 1) as u8]);
    fill(rest);
    Ok(len)
}

/// Walks the extension headers of a packet: an iterator that ends before the first header that is none, or with the
/// first error. Afterwards [`ExtensionWalk::rest`] is what they stand before.
#[derive(Clone, Debug)]
pub struct ExtensionWalk<'a> {
    next: IpProtocol,
    payload: &'a [u8],
    at: usize,
    count: usize,
    stopped: bool,
}

impl<'a> ExtensionWalk<'a> {
    /// Begins behind the fixed header, with its `next_header` and its payload.
    pub const fn new(next_header: IpProtocol, payload: &'a [u8]) -> ExtensionWalk<'a> {
        ExtensionWalk { next: next_header, payload, at: 0, count: 0, stopped: false }
    }

    /// What follows the headers walked so far, and where it begins, in octets behind the fixed header.
    pub fn rest(&self) -> (IpProtocol, usize, &'a [u8]) {
        (self.next, self.at, self.payload.get(self.at..).unwrap_or(&[]))
    }

    fn step(&mut self) -> Option<Result<ExtensionHeader<'a>, ParseError>> {
        let (at, rest) = (self.at, self.payload.get(self.at..)?);
        let read = match self.next {
            IpProtocol::HOP_BY_HOP if at > 0 => Err(ParseError::ExtensionOrder { at }),
            IpProtocol::HOP_BY_HOP
            | IpProtocol::DESTINATION_OPTIONS
            | IpProtocol::ROUTING
            | IpProtocol::FRAGMENT
            | IpProtocol::AUTHENTICATION
                if self.count == MOST_HEADERS =>
            {
                Err(ParseError::TooManyExtensions)
            }
            IpProtocol::HOP_BY_HOP => {
                framed(rest, 8).map(|(body, len)| (Extension::HopByHop(Ipv6Options(body)), len))
            }
            IpProtocol::DESTINATION_OPTIONS => {
                framed(rest, 8).map(|(body, len)| (Extension::DestinationOptions(Ipv6Options(body)), len))
            }
            IpProtocol::ROUTING => framed(rest, 8).map(|(body, len)| match *body {
                [kind, segments_left, ref data @ ..] => {
                    (Extension::Routing { kind, segments_left, data }, len)
                }
                _ => (Extension::Routing { kind: 0, segments_left: 0, data: &[] }, len),
            }),
            // The length counts words of four octets there, and two of them less (RFC 4302, 2.2).
            IpProtocol::AUTHENTICATION => {
                framed(rest, 4).map(|(data, len)| (Extension::Authentication { data }, len))
            }
            IpProtocol::FRAGMENT => fragment(rest).map(|f| (Extension::Fragment(f), FRAGMENT_LEN)),
            _ => return None,
        };
        Some(read.map(|(extension, len)| {
            let next_header = IpProtocol(rest.first().copied().unwrap_or(IpProtocol::NO_NEXT.0));
            ExtensionHeader { extension, next_header, at, len }
        }))
    }
}

impl<'a> Iterator for ExtensionWalk<'a> {
    type Item = Result<ExtensionHeader<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.stopped {
            return None;
        }
        let item = self.step()?;
        match &item {
            Ok(header) => {
                self.at += header.len;
                self.next = header.next_header;
                self.count += 1;
                // What follows in a later fragment is the middle of something.
                self.stopped = matches!(header.extension, Extension::Fragment(f) if f.offset != 0);
            }
            Err(_) => self.stopped = true,
        }
        Some(item)
    }
}

/// Everything behind the first two octets of a header, and the header's length. Its length field counts units of
/// `unit` octets, without the first eight octets.
fn framed(bytes: &[u8], unit: usize) -> Result<(&[u8], usize), ParseError> {
    let fixed: &[u8; 8] = head(bytes, Part::Extension)?;
    let len = 8 + fixed[1] as usize * unit;
    let (header, _) = split(bytes, len, Part::Extension)?;
    Ok((&header[2..], len))
}

fn fragment(bytes: &[u8]) -> Result<FragmentHeader, ParseError> {
    let fixed: &[u8; FRAGMENT_LEN] = head(bytes, Part::Extension)?;
    let place = be16!(fixed, 2);
    let (offset, more) = (place & 0xfff8, place & 1 == 1);
    Ok(FragmentHeader { offset, more, identification: be32!(fixed, 4) })
}

/// Options of a hop-by-hop or destination options header, as they stand there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Options<'a>(pub &'a [u8]);

impl<'a> Ipv6Options<'a> {
    /// One option after the other, padding included, up to the first impossible length.
    pub const fn iter(&self) -> Ipv6OptionIter<'a> {
        Ipv6OptionIter { bytes: self.0, at: 0 }
    }
}

impl<'a> IntoIterator for Ipv6Options<'a> {
    type Item = Result<Ipv6Option<'a>, ParseError>;
    type IntoIter = Ipv6OptionIter<'a>;

    fn into_iter(self) -> Ipv6OptionIter<'a> {
        self.iter()
    }
}

/// What a host does with an option that it does not know (RFC 8200, 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownAction {
    /// Goes on behind it.
    Skip,
    /// Drops the packet.
    Discard,
    /// Drops the packet and says so (parameter problem, code 2), to groups too.
    DiscardAndTell,
    /// Drops the packet and says so, unless it was sent to a group.
    DiscardAndTellUnlessGroup,
}

/// What an IPv6 option says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv6OptionKind<'a> {
    /// One octet of nothing.
    Pad1,
    /// Octets of nothing: how many are behind the length.
    PadN(u8),
    /// Routers are to look into the packet (RFC 2711).
    RouterAlert(u16),
    /// The payload's length where 16 bits do not suffice (RFC 2675).
    Jumbo(u32),
    /// Any other.
    Other {
        /// Action, change flag and number.
        kind: u8,
        /// Octets behind the length.
        data: &'a [u8],
    },
}

/// An option and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Option<'a> {
    /// What it says.
    pub kind: Ipv6OptionKind<'a>,
    /// Where it begins, in octets from the header's first one: what a parameter problem adds to the header's place.
    pub at: usize,
}

impl Ipv6Option<'_> {
    /// What to do with it if it is not known.
    pub const fn action(&self) -> UnknownAction {
        match self.kind {
            Ipv6OptionKind::Other { kind, .. } => match kind >> 6 {
                0 => UnknownAction::Skip,
                1 => UnknownAction::Discard,
                2 => UnknownAction::DiscardAndTell,
                _ => UnknownAction::DiscardAndTellUnlessGroup,
            },
            Ipv6OptionKind::Jumbo(_) => UnknownAction::DiscardAndTellUnlessGroup,
            _ => UnknownAction::Skip,
        }
    }
}

/// See [`Ipv6Options::iter`].
#[derive(Clone, Debug)]
pub struct Ipv6OptionIter<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Ipv6OptionIter<'a> {
    type Item = Result<Ipv6Option<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        let here = self.at;
        let (kind, len) = match *self.bytes.get(here..)? {
            [] => return None,
            [0, ..] => (Ipv6OptionKind::Pad1, 1),
            [kind, len, ref rest @ ..] if len as usize <= rest.len() => {
                let data = &rest[..len as usize];
                let kind = match (kind, data) {
                    (1, _) => Ipv6OptionKind::PadN(len),
                    (5, [a, b]) => Ipv6OptionKind::RouterAlert(u16::from_be_bytes([*a, *b])),
                    (0xc2, [a, b, c, d]) => Ipv6OptionKind::Jumbo(u32::from_be_bytes([*a, *b, *c, *d])),
                    _ => Ipv6OptionKind::Other { kind, data },
                };
                (kind, 2 + len as usize)
            }
            [kind, ..] => {
                self.at = self.bytes.len();
                return Some(Err(ParseError::Option { part: Part::Extension, kind, at: here }));
            }
        };
        self.at = here + len;
        // Next header and length stand before the first option.
        Some(Ok(Ipv6Option { kind, at: here + 2 }))
    }
}

#[cfg(test)]
mod tests;
