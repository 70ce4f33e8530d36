//! ICMP for IPv4 (RFC 792; RFC 1191 for the MTU; RFC 1122, 3.2.2).

use crate::bytes::{be16, head, room, room_of};
use crate::checksum::{Sum, checksum, is_valid};
use crate::error::{EmitError, ParseError, Part};
use core::net::Ipv4Addr;

/// Octets of every message's header; what it is about follows.
pub const HEADER_LEN: usize = 8;
/// Octets of the packet behind its header that an error quotes at least (RFC 792).
pub const LEAST_QUOTED: usize = 8;
/// The most octets of an error message with its IPv4 header (RFC 1812, 4.3.2.3).
pub const MOST_ERROR: usize = 576;

/// Why a destination cannot be reached (codes of type 3).
pub mod unreachable {
    /// The network.
    pub const NET: u8 = 0;
    /// The host.
    pub const HOST: u8 = 1;
    /// Nobody takes the protocol there.
    pub const PROTOCOL: u8 = 2;
    /// Nobody listens on the port there.
    pub const PORT: u8 = 3;
    /// The packet is too big and must not be cut.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// An administrator forbids it.
    pub const PROHIBITED: u8 = 13;
}

/// The first eight octets of an ICMP message. The checksum is not in it: it follows from what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmpv4Message {
    /// To be sent back as a reply (type 8).
    EchoRequest {
        /// Who asks.
        identifier: u16,
        /// Which of its requests.
        sequence: u16,
    },
    /// The answer to a request (type 0).
    EchoReply {
        /// As in the request.
        identifier: u16,
        /// As in the request.
        sequence: u16,
    },
    /// A packet was not delivered (type 3).
    Unreachable {
        /// Why: see [`mod@unreachable`].
        code: u8,
        /// Octets that would pass, with [`unreachable::FRAGMENTATION_NEEDED`]; 0: an old router that does not say.
        mtu: u16,
    },
    /// Packets are better sent to another router (type 5).
    Redirect {
        /// For which destinations.
        code: u8,
        /// The other router.
        gateway: Ipv4Addr,
    },
    /// A packet was too long on the way (type 11).
    TimeExceeded {
        /// 0: it passed too many routers. 1: its other fragments did not come.
        code: u8,
    },
    /// A header was wrong (type 12).
    ParameterProblem {
        /// 0: at the pointer. 1: an option is missing. 2: a length is wrong.
        code: u8,
        /// Octets from the quoted packet's first one.
        pointer: u8,
    },
    /// Any other.
    Other {
        /// The message's type.
        kind: u8,
        /// Its code.
        code: u8,
        /// The four octets behind the checksum.
        rest: [u8; 4],
    },
}

impl Icmpv4Message {
    /// Whether it reports an error: then a packet is quoted behind it, and it must not be answered by another error
    /// (RFC 1122, 3.2.2). Source quench (type 4) is one.
    pub const fn is_error(&self) -> bool {
        match self {
            Icmpv4Message::Unreachable { .. }
            | Icmpv4Message::Redirect { .. }
            | Icmpv4Message::TimeExceeded { .. }
            | Icmpv4Message::ParameterProblem { .. } => true,
            Icmpv4Message::Other { kind, .. } => *kind == 4,
            _ => false,
        }
    }

    /// The message's header, and what follows it: echoed data, or the quoted packet. All octets given are the
    /// message's: ICMP has no length field.
    ///
    /// The checksum is not looked at: [`is_intact`] does.
    ///
    /// # Errors
    /// [`ParseError::Truncated`].
    pub fn parse(message: &[u8]) -> Result<(Icmpv4Message, &[u8]), ParseError> {
        let fixed: &[u8; HEADER_LEN] = head(message, Part::Icmpv4)?;
        let &[kind, code, _, _, a, b, c, d] = fixed;
        let (high, low) = (be16!(fixed, 4), be16!(fixed, 6));
        let header = match (kind, code) {
            (8, 0) => Icmpv4Message::EchoRequest { identifier: high, sequence: low },
            (0, 0) => Icmpv4Message::EchoReply { identifier: high, sequence: low },
            (3, _) => Icmpv4Message::Unreachable { code, mtu: low },
            (5, _) => Icmpv4Message::Redirect { code, gateway: Ipv4Addr::new(a, b, c, d) },
            (11, _) => Icmpv4Message::TimeExceeded { code },
            (12, _) => Icmpv4Message::ParameterProblem { code, pointer: a },
            _ => Icmpv4Message::Other { kind, code, rest: [a, b, c, d] },
        };
        Ok((header, &message[HEADER_LEN..]))
    }

    /// Type, code, and the four octets behind the checksum.
    const fn fields(&self) -> (u8, u8, [u8; 4]) {
        match *self {
            Icmpv4Message::EchoRequest { identifier, sequence } => (8, 0, two(identifier, sequence)),
            Icmpv4Message::EchoReply { identifier, sequence } => (0, 0, two(identifier, sequence)),
            Icmpv4Message::Unreachable { code, mtu } => (3, code, two(0, mtu)),
            Icmpv4Message::Redirect { code, gateway } => (5, code, gateway.octets()),
            Icmpv4Message::TimeExceeded { code } => (11, code, [0; 4]),
            Icmpv4Message::ParameterProblem { code, pointer } => (12, code, [pointer, 0, 0, 0]),
            Icmpv4Message::Other { kind, code, rest } => (kind, code, rest),
        }
    }

    /// Writes the header to the front of the buffer; answers its [`HEADER_LEN`]. The checksum is zero until [`fill`]
    /// puts it in.
    ///
    /// # Errors
    /// [`EmitError::Room`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let room: &mut [u8; HEADER_LEN] = room_of(buffer, Part::Icmpv4)?;
        let (kind, code, [a, b, c, d]) = self.fields();
        *room = [kind, code, 0, 0, a, b, c, d];
        Ok(HEADER_LEN)
    }

    /// Writes header and payload to the front of the buffer and sums while copying; answers the octets of both.
    ///
    /// # Errors
    /// [`EmitError::Room`].
    pub fn emit_with(&self, buffer: &mut [u8], payload: &[u8]) -> Result<usize, EmitError> {
        self.emit(buffer)?;
        let len = HEADER_LEN + payload.len();
        let (header, behind) = room(buffer, len, Part::Icmpv4)?.split_at_mut(HEADER_LEN);
        let sum = Sum::new().bytes(header).copy(behind, payload);
        header[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        Ok(len)
    }
}

const fn two(high: u16, low: u16) -> [u8; 4] {
    ((high as u32) << 16 | low as u32).to_be_bytes()
}

/// Computes the checksum of a message and puts it in. What is no header stays as it is.
pub fn fill(message: &mut [u8]) {
    if message.len() >= HEADER_LEN {
        message[2..4].fill(0);
        let check = checksum(message);
        message[2..4].copy_from_slice(&check.to_be_bytes());
    }
}

/// Whether the checksum of a whole message fits.
pub fn is_intact(message: &[u8]) -> bool {
    message.len() >= HEADER_LEN && is_valid(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Icmpv4Message; 7] = [
        Icmpv4Message::EchoRequest { identifier: 0x1234, sequence: 0x5678 },
        Icmpv4Message::EchoReply { identifier: 1, sequence: 2 },
        Icmpv4Message::Unreachable { code: unreachable::FRAGMENTATION_NEEDED, mtu: 1400 },
        Icmpv4Message::Redirect { code: 1, gateway: Ipv4Addr::new(10, 0, 0, 254) },
        Icmpv4Message::TimeExceeded { code: 1 },
        Icmpv4Message::ParameterProblem { code: 0, pointer: 20 },
        Icmpv4Message::Other { kind: 13, code: 0, rest: [0, 1, 0, 2] },
    ];

    #[test]
    fn messages_are_written_and_read() {
        for message in ALL {
            for len in [0, 1, 56, 1465] {
                let payload = &[0x42; 1465][..len];
                let mut bytes = [0xee; 1480];
                assert_eq!(message.emit_with(&mut bytes, payload), Ok(8 + len));
                let bytes = &mut bytes[..8 + len];
                assert!(is_intact(bytes));
                assert_eq!(Icmpv4Message::parse(bytes), Ok((message, payload)));
                let written = bytes.to_vec();
                bytes[2..4].fill(0x99);
                fill(bytes);
                assert_eq!(bytes, written);
                bytes[5] ^= 4;
                assert!(!is_intact(bytes));
            }
        }
    }

    #[test]
    fn errors_are_told_from_questions() {
        assert_eq!(ALL.map(|m| m.is_error()), [false, false, true, true, true, true, false]);
        assert!(Icmpv4Message::Other { kind: 4, code: 0, rest: [0; 4] }.is_error());
    }

    #[test]
    fn short_messages_are_refused() {
        let truncated = ParseError::Truncated { part: Part::Icmpv4, need: 8, have: 7 };
        assert_eq!(Icmpv4Message::parse(&[8, 0, 0, 0, 0, 0, 0]), Err(truncated));
        let room = EmitError::Room { part: Part::Icmpv4, need: 9, have: 8 };
        assert_eq!(ALL[0].emit_with(&mut [0; 8], &[1]), Err(room));
        assert!(!is_intact(&[0xff; 7]));
        fill(&mut [0; 7]);
    }
}
