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
