//! ICMP for IPv6 (RFC 4443). Neighbour discovery is in [`crate::ndp`].

use crate::bytes::{be16, be32, head, room, room_of};
use crate::error::{EmitError, ParseError, Part};
use crate::ip::{Addresses, IpProtocol};

/// Octets of every message's header as taken here: type, code, checksum, and four more.
pub const HEADER_LEN: usize = 8;
/// An error message, its IPv6 header included, is no longer than this (RFC 4443, 2.4 c): IPv6's least MTU.
pub const MOST_ERROR: usize = 1280;

/// Why a destination cannot be reached (codes of type 1).
pub mod unreachable {
    /// No way there.
    pub const NO_ROUTE: u8 = 0;
    /// An administrator forbids it.
    pub const PROHIBITED: u8 = 1;
    /// The source's address is not valid so far.
    pub const BEYOND_SCOPE: u8 = 2;
    /// The host.
    pub const ADDRESS: u8 = 3;
    /// Nobody listens on the port there.
    pub const PORT: u8 = 4;
}

/// What is wrong with a header (codes of type 4).
pub mod parameter {
    /// A field.
    pub const FIELD: u8 = 0;
    /// An unknown next header.
    pub const NEXT_HEADER: u8 = 1;
    /// An unknown option.
    pub const OPTION: u8 = 2;
    /// The first fragment has not all headers (RFC 7112).
    pub const INCOMPLETE_CHAIN: u8 = 3;
}

/// The first eight octets of an ICMPv6 message. The checksum is not in it: it follows from what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmpv6Message {
    /// A packet was not delivered (type 1).
    Unreachable {
        /// Why: see [`mod@unreachable`].
        code: u8,
    },
    /// A packet is too big for a link (type 2).
    PacketTooBig {
        /// Octets that would pass.
        mtu: u32,
    },
    /// A packet was too long on the way (type 3).
    TimeExceeded {
        /// 0: it passed too many routers. 1: its other fragments did not come.
        code: u8,
    },
    /// A header was wrong (type 4).
    ParameterProblem {
        /// What: see [`parameter`].
        code: u8,
        /// Octets from the quoted packet's first one.
        pointer: u32,
    },
    /// To be sent back as a reply (type 128).
    EchoRequest {
        /// Who asks.
        identifier: u16,
        /// Which of its requests.
        sequence: u16,
    },
    /// The answer to a request (type 129).
    EchoReply {
        /// As in the request.
        identifier: u16,
        /// As in the request.
        sequence: u16,
    },
    /// Any other: neighbour discovery too ([`crate::ndp::NdpMessage::parse`] reads it).
    Other {
        /// The message's type.
        kind: u8,
        /// Its code.
        code: u8,
        /// The four octets behind the checksum.
        rest: [u8; 4],
    },
}

impl Icmpv6Message {
    /// Whether it reports an error: then a packet is quoted behind it, and it must not be answered by another error
    /// (RFC 4443, 2.1 and 2.4 e).
    pub const fn is_error(&self) -> bool {
        self.kind() < 128
    }

    /// The message's type.
    pub const fn kind(&self) -> u8 {
        self.fields().0
    }

    /// The message's header, and what follows it. All octets given are the message's: ICMPv6 has no length field.
    ///
    /// The checksum is not looked at: [`verify`] does.
    ///
    /// # Errors
    /// [`ParseError::Truncated`].
    pub fn parse(message: &[u8]) -> Result<(Icmpv6Message, &[u8]), ParseError> {
        let fixed: &[u8; HEADER_LEN] = head(message, Part::Icmpv6)?;
        let &[kind, code, _, _, a, b, c, d] = fixed;
        let (identifier, sequence) = (be16!(fixed, 4), be16!(fixed, 6));
        let header = match (kind, code) {
            (1, _) => Icmpv6Message::Unreachable { code },
            // RFC 4443, 3.2: the code is ignored by the receiver.
            (2, _) => Icmpv6Message::PacketTooBig { mtu: be32!(fixed, 4) },
            (3, _) => Icmpv6Message::TimeExceeded { code },
            (4, _) => Icmpv6Message::ParameterProblem { code, pointer: be32!(fixed, 4) },
            (128, 0) => Icmpv6Message::EchoRequest { identifier, sequence },
            (129, 0) => Icmpv6Message::EchoReply { identifier, sequence },
            _ => Icmpv6Message::Other { kind, code, rest: [a, b, c, d] },
        };
        Ok((header, &message[HEADER_LEN..]))
    }

    /// Type, code, and the four octets behind the checksum.
    const fn fields(&self) -> (u8, u8, [u8; 4]) {
        const fn two(high: u16, low: u16) -> [u8; 4] {
            ((high as u32) << 16 | low as u32).to_be_bytes()
        }
        match *self {
            Icmpv6Message::Unreachable { code } => (1, code, [0; 4]),
            Icmpv6Message::PacketTooBig { mtu } => (2, 0, mtu.to_be_bytes()),
            Icmpv6Message::TimeExceeded { code } => (3, code, [0; 4]),
            Icmpv6Message::ParameterProblem { code, pointer } => (4, code, pointer.to_be_bytes()),
            Icmpv6Message::EchoRequest { identifier, sequence } => (128, 0, two(identifier, sequence)),
            Icmpv6Message::EchoReply { identifier, sequence } => (129, 0, two(identifier, sequence)),
            Icmpv6Message::Other { kind, code, rest } => (kind, code, rest),
        }
    }

    /// Writes the header to the front of the buffer; answers its [`HEADER_LEN`]. The checksum is zero until [`fill`]
    /// puts it in.
    ///
    /// # Errors
    /// [`EmitError::Room`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let room: &mut [u8; HEADER_LEN] = room_of(buffer, Part::Icmpv6)?;
        let (kind, code, [a, b, c, d]) = self.fields();
        *room = [kind, code, 0, 0, a, b, c, d];
        Ok(HEADER_LEN)
    }

    /// Writes header and payload to the front of the buffer and sums while copying; answers the octets of both. Under
    /// IPv4 addresses the sum is nonsense: ICMPv6 is IPv6's.
    ///
    /// # Errors
    /// [`EmitError::Room`].
    pub fn emit_with(
        &self,
        buffer: &mut [u8],
        addresses: &Addresses,
        payload: &[u8],
    ) -> Result<usize, EmitError> {
        self.emit(buffer)?;
        let len = HEADER_LEN + payload.len();
        let (header, behind) = room(buffer, len, Part::Icmpv6)?.split_at_mut(HEADER_LEN);
        let sum = addresses.pseudo_header(IpProtocol::ICMPV6, len).bytes(header).copy(behind, payload);
        header[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        Ok(len)
    }
}

/// Computes the checksum of a message and puts it in. What is no header stays as it is.
pub fn fill(addresses: &Addresses, message: &mut [u8]) {
    if message.len() >= 4 {
        message[2..4].fill(0);
        let sum = addresses.pseudo_header(IpProtocol::ICMPV6, message.len()).bytes(message);
        message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    }
}

/// Whether the checksum of a whole message fits.
pub fn verify(addresses: &Addresses, message: &[u8]) -> bool {
    message.len() >= 4 && addresses.pseudo_header(IpProtocol::ICMPV6, message.len()).bytes(message).is_valid()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv6Addr;

    const ADDRESSES: Addresses = Addresses::V6 {
        source: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
        destination: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2),
    };
    const ALL: [Icmpv6Message; 7] = [
        Icmpv6Message::Unreachable { code: unreachable::PORT },
        Icmpv6Message::PacketTooBig { mtu: 1280 },
        Icmpv6Message::TimeExceeded { code: 0 },
        Icmpv6Message::ParameterProblem { code: parameter::OPTION, pointer: 0x1_0002 },
        Icmpv6Message::EchoRequest { identifier: 0x1234, sequence: 0x5678 },
        Icmpv6Message::EchoReply { identifier: 1, sequence: 2 },
        Icmpv6Message::Other { kind: 143, code: 0, rest: [0, 0, 0, 1] },
    ];

    #[test]
    fn messages_are_written_and_read() {
        for message in ALL {
            for len in [0, 1, 56, 1232] {
                let payload = &[0x42; 1232][..len];
                let mut bytes = [0xee; 1240];
                assert_eq!(message.emit_with(&mut bytes, &ADDRESSES, payload), Ok(8 + len));
                let bytes = &mut bytes[..8 + len];
                assert!(verify(&ADDRESSES, bytes));
                assert_eq!(Icmpv6Message::parse(bytes), Ok((message, payload)));
                let written = bytes.to_vec();
                bytes[2..4].fill(0x99);
                fill(&ADDRESSES, bytes);
                assert_eq!(bytes, written);
                bytes[5] ^= 4;
                assert!(!verify(&ADDRESSES, bytes));
            }
        }
    }

    #[test]
    fn errors_are_told_from_questions() {
        assert_eq!(ALL.map(|m| m.is_error()), [true, true, true, true, false, false, false]);
    }

    #[test]
    fn short_messages_are_refused() {
        let truncated = ParseError::Truncated { part: Part::Icmpv6, need: 8, have: 7 };
        assert_eq!(Icmpv6Message::parse(&[128, 0, 0, 0, 0, 0, 0]), Err(truncated));
        let room = EmitError::Room { part: Part::Icmpv6, need: 9, have: 8 };
        assert_eq!(ALL[0].emit_with(&mut [0; 8], &ADDRESSES, &[1]), Err(room));
    }
}
