//! Records in which datagrams go between programs and the netstack service, one in each record of a SEQPACKET pair.
//! docs/netstack-service.md is their specification.
//!
//! A record that begins with [`MAGIC`] is *headed*: this header, then the datagram. Any other one is *naked*: the datagram alone.

use crate::service::{ADDRESS, Address, Body};

/// The first octets of a headed record.
pub const MAGIC: [u8; 8] = *b"BYPADGR1";
/// Octets of a header.
pub const HEADER: usize = 112;
/// Octets of a datagram at most: what IPv6 carries in a packet of 65,535 octets behind its header, without that of UDP.
pub const LONGEST: usize = 65_527;
/// Octets of a record at most.
pub const RECORD: usize = HEADER + LONGEST;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A datagram.
    Datagram = 1,
    /// An error waits for the socket's next call.
    Error = 2,
}

/// What is told beside a datagram: of one that came, what the socket wants to be told; of one that is to be sent, what the
/// program has said of it.
pub mod tell {
    /// IP_PKTINFO: the address here, and the interface.
    pub const INFO: u32 = 1;
    /// IP_RECVTTL: routers that it may pass.
    pub const HOPS: u32 = 2;
    /// IP_RECVTOS: its traffic class.
    pub const CLASS: u32 = 4;
    /// SO_TIMESTAMP: when it came, in microseconds.
    pub const STAMP: u32 = 8;
    /// SO_TIMESTAMPNS: when it came, in nanoseconds.
    pub const STAMP_NS: u32 = 16;
    /// UDP_GRO, and UDP_SEGMENT: octets of each of several datagrams.
    pub const SEGMENT: u32 = 32;
    /// IPV6_RECVPKTINFO.
    pub const INFO_V6: u32 = 64;
    /// IPV6_RECVHOPLIMIT.
    pub const HOPS_V6: u32 = 128;
    /// IPV6_RECVTCLASS.
    pub const CLASS_V6: u32 = 256;
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// [`tell`] bits.
    pub tells: u32,
    /// Of one that came: who sent it. Of one to be sent: to whom; none: to whom the socket is connected. Of an error: none.
    pub peer: Address,
    /// The address here; of one to be sent none, if the program does not say it.
    pub local: Address,
    /// Number of the interface; 0: not said.
    pub interface: u32,
    /// Routers that it could still have passed, or may pass.
    pub hops: u32,
    /// Its traffic class.
    pub class: u32,
    /// Octets of each of several datagrams; 0: it is one.
    pub segment: u32,
    /// When it came, in nanoseconds since 1970; 0: not known.
    pub stamp: u64,
}

impl Header {
    /// Of a datagram, with nothing beside it.
    pub const fn datagram(peer: Address) -> Header {
        Header {
            kind: Kind::Datagram,
            tells: 0,
            peer,
            local: Address(None),
            interface: 0,
            hops: 0,
            class: 0,
            segment: 0,
            stamp: 0,
        }
    }

    /// Of an error, which `ERROR` tells.
    pub const fn error() -> Header {
        Header { kind: Kind::Error, ..Header::datagram(Address(None)) }
    }

    /// Its octets.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        let mut put = |at: usize, octets: &[u8]| out[at..at + octets.len()].copy_from_slice(octets);
        put(0, &MAGIC);
        put(8, &(self.kind as u32).to_ne_bytes());
        put(12, &self.tells.to_ne_bytes());
        put(16, &self.peer.encode());
        put(48, &self.local.encode());
        put(80, &self.interface.to_ne_bytes());
        put(84, &self.hops.to_ne_bytes());
        put(88, &self.class.to_ne_bytes());
        put(92, &self.segment.to_ne_bytes());
        put(96, &self.stamp.to_ne_bytes());
        out
    }

    /// What the octets say; `None`: they are no header, or one of a kind that is not known.
    pub fn decode(raw: &[u8; HEADER]) -> Option<Header> {
        let mut fields = Body(raw);
        if fields.take::<8>()? != MAGIC {
            return None;
        }
        let kind = match fields.u32()? {
            1 => Kind::Datagram,
            2 => Kind::Error,
            _ => return None,
        };
        Some(Header {
            kind,
            tells: fields.u32()?,
            peer: fields.address()?,
            local: fields.address()?,
            interface: fields.u32()?,
            hops: fields.u32()?,
            class: fields.u32()?,
            segment: fields.u32()?,
            stamp: fields.u64()?,
        })
    }
}

/// Octets of a [`Failure`].
pub const FAILURE: usize = HEADER + 16 + ADDRESS;

/// An error of the network with what it is about; the first octets of the datagram stand behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// To whom the datagram went ([`Header::peer`]), and of the message that says what became of it: to which address it came, through which interface,
    /// and what the socket wants to be told of that.
    pub header: Header,
    /// What is wrong.
    pub errno: u32,
    /// Octets of a packet that gets there, if it was too long.
    pub info: u32,
    /// SO_EE_ORIGIN_*: who says it.
    pub origin: u8,
    /// Type of the ICMP message.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// Whose message it is.
    pub from: Address,
}

impl Failure {
    /// Its octets.
    pub fn encode(&self) -> [u8; FAILURE] {
        let mut out = [0; FAILURE];
        let mut put = |at: usize, octets: &[u8]| out[HEADER + at..][..octets.len()].copy_from_slice(octets);
        put(0, &self.errno.to_ne_bytes());
        put(4, &self.info.to_ne_bytes());
        put(8, &[self.origin, self.kind, self.code]);
        put(16, &self.from.encode());
        out[..HEADER].copy_from_slice(&self.header.encode());
        out
    }

    /// What the octets say, and those behind it; `None`: they are none.
    pub fn decode(raw: &[u8]) -> Option<(Failure, &[u8])> {
        let (head, rest) = raw.split_first_chunk::<HEADER>()?;
        let mut fields = Body(rest.get(..FAILURE - HEADER)?);
        let (header, errno, info) = (Header::decode(head)?, fields.u32()?, fields.u32()?);
        let [origin, kind, code, ..] = fields.take::<8>()?;
        let from = fields.address()?;
        Some((Failure { header, errno, info, origin, kind, code, from }, &rest[FAILURE - HEADER..]))
    }
}

/// Whether a datagram cannot go naked: it would be taken for a headed one, or for the end.
pub fn needs_header(octets: &[u8]) -> bool {
    octets.is_empty() || octets.starts_with(&MAGIC)
}

const _: () = assert!(80 + 4 * 4 + 8 + 8 == HEADER && 16 + 2 * ADDRESS == 80);

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            kind: Kind::Error,
            tells: 0x0101_0101,
            peer: Address(Some("10.0.0.2:80".parse().unwrap())),
            local: Address(Some("[fe80::1%3]:4000".parse().unwrap())),
            interface: 0x0202_0202,
            hops: 0x0303_0303,
            class: 0x0404_0404,
            segment: 0x0505_0505,
            stamp: 0x0606_0606_0606_0606,
        }
    }

    #[test]
    fn headers_come_back_and_nothing_else_is_one() {
        let header = header();
        assert_eq!(Header::decode(&header.encode()), Some(header));
        let mut other = header.encode();
        other[8] = 3;
        assert_eq!(Header::decode(&other), None);
        assert_eq!(Header::decode(&[0; HEADER]), None);
        assert!(
            needs_header(b"") && needs_header(&other) && !needs_header(b"BYPADGR") && !needs_header(b"x")
        );
    }

    #[test]
    fn failures_come_back_and_nothing_shorter_is_one() {
        let from = Address(Some("10.0.0.9:0".parse().unwrap()));
        let failure = Failure { header: header(), errno: 111, info: 1400, origin: 2, kind: 3, code: 4, from };
        let all = [&failure.encode()[..], b"octets"].concat();
        assert_eq!(Failure::decode(&all), Some((failure, &b"octets"[..])));
        assert_eq!(Failure::decode(&all[..FAILURE - 1]), None);
        let text = include_str!("../../../docs/netstack-service.md");
        for (name, at, octets) in [
            ("errno", 112, &111u32.to_ne_bytes()[..]),
            ("info", 116, &1400u32.to_ne_bytes()),
            ("origin", 120, &[2]),
            ("kind", 121, &[3]),
            ("code", 122, &[4]),
            ("from", 128, &from.encode()),
        ] {
            let row = format!("| `Failure.{name}` | {at} | {} |", octets.len());
            assert!(text.lines().any(|line| line.starts_with(&row)), "no row {row}");
            assert_eq!(all[at..at + octets.len()], *octets);
        }
    }

    #[test]
    fn the_specification_has_these_numbers() {
        let text = include_str!("../../../docs/netstack-service.md");
        let octets = header().encode();
        let field = |name: &str| -> &[u8] {
            let head = format!("| `Datagram.{name}` |");
            let row = text.lines().find(|line| line.starts_with(&head));
            let row = row.unwrap_or_else(|| panic!("no row for {name}"));
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            let (from, len): (usize, usize) = (cells[2].parse().unwrap(), cells[3].parse().unwrap());
            &octets[from..from + len]
        };
        assert_eq!(field("magic"), MAGIC);
        assert_eq!(field("kind"), 2u32.to_ne_bytes());
        assert_eq!(field("tells"), [1; 4]);
        assert_eq!(field("peer"), header().peer.encode());
        assert_eq!(field("local"), header().local.encode());
        assert_eq!(field("interface"), [2; 4]);
        assert_eq!(field("hops"), [3; 4]);
        assert_eq!(field("class"), [4; 4]);
        assert_eq!(field("segment"), [5; 4]);
        assert_eq!(field("stamp"), [6; 8]);
        assert_eq!(field("pad"), [0; 8]);
        for (name, bit) in [
            ("IP_PKTINFO", tell::INFO),
            ("IP_RECVTTL", tell::HOPS),
            ("IP_RECVTOS", tell::CLASS),
            ("SO_TIMESTAMP", tell::STAMP),
            ("SO_TIMESTAMPNS", tell::STAMP_NS),
            ("UDP_GRO", tell::SEGMENT),
            ("IPV6_RECVPKTINFO", tell::INFO_V6),
            ("IPV6_RECVHOPLIMIT", tell::HOPS_V6),
            ("IPV6_RECVTCLASS", tell::CLASS_V6),
        ] {
            let row = format!("| {bit} | `{name}` |");
            assert!(text.lines().any(|line| line.starts_with(&row)), "no row {row}");
        }
    }
}
