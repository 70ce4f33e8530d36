//! Address resolution for IPv4 over Ethernet (RFC 826). Other hardware and protocols are refused: nobody has them.

use crate::bytes::{be16, head, room_of};
use crate::error::{EmitError, ParseError, Part};
use crate::ethernet::MacAddr;
use core::net::Ipv4Addr;

/// Octets of a packet.
pub const PACKET_LEN: usize = 28;

/// What a packet wants, in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArpOperation(pub u16);

impl ArpOperation {
    /// Who has this address?
    pub const REQUEST: ArpOperation = ArpOperation(1);
    /// I have it.
    pub const REPLY: ArpOperation = ArpOperation(2);
}

/// An ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpPacket {
    /// Request or reply.
    pub operation: ArpOperation,
    /// The sender's device.
    pub sender_mac: MacAddr,
    /// The sender's address; unspecified in a probe (RFC 5227, 2.1.1).
    pub sender_ip: Ipv4Addr,
    /// The asked one's device; means nothing in a request.
    pub target_mac: MacAddr,
    /// The address asked for.
    pub target_ip: Ipv4Addr,
}

impl ArpPacket {
    /// Asks who has an address.
    pub const fn request(sender_mac: MacAddr, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> ArpPacket {
        let target_mac = MacAddr::UNSPECIFIED;
        ArpPacket { operation: ArpOperation::REQUEST, sender_mac, sender_ip, target_mac, target_ip }
    }

    /// The answer to a request, from the device that has the address.
    pub const fn reply(&self, mac: MacAddr) -> ArpPacket {
        ArpPacket {
            operation: ArpOperation::REPLY,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// Announces the sender's own address (RFC 5227, 3).
    pub fn is_announcement(&self) -> bool {
        self.sender_ip == self.target_ip
    }

    /// Asks whether an address is free before it is taken (RFC 5227, 1.1).
    pub fn is_probe(&self) -> bool {
        self.operation == ArpOperation::REQUEST && self.sender_ip.is_unspecified()
    }

    /// Reads a packet; what follows it is padding.
    ///
    /// # Errors
    /// [`ParseError::Truncated`]; [`ParseError::Field`] for other hardware, protocols or address lengths.
    pub fn parse(packet: &[u8]) -> Result<ArpPacket, ParseError> {
        let bytes: &[u8; PACKET_LEN] = head(packet, Part::Arp)?;
        let wrong = |field, found| ParseError::Field { part: Part::Arp, field, found };
        let &[h0, h1, p0, p1, hlen, plen, _, _, addresses @ ..] = bytes;
        match (u16::from_be_bytes([h0, h1]), u16::from_be_bytes([p0, p1]), hlen, plen) {
            (1, 0x0800, 6, 4) => {}
            (1, 0x0800, 6, _) => return Err(wrong("protocol address length", plen.into())),
            (1, 0x0800, _, _) => return Err(wrong("hardware address length", hlen.into())),
            (1, protocol, _, _) => return Err(wrong("protocol", protocol.into())),
            (hardware, ..) => return Err(wrong("hardware", hardware.into())),
        }
        let [a0, a1, a2, a3, a4, a5, b0, b1, b2, b3, c0, c1, c2, c3, c4, c5, d0, d1, d2, d3] = addresses;
        Ok(ArpPacket {
            operation: ArpOperation(be16!(bytes, 6)),
            sender_mac: MacAddr([a0, a1, a2, a3, a4, a5]),
            sender_ip: Ipv4Addr::new(b0, b1, b2, b3),
            target_mac: MacAddr([c0, c1, c2, c3, c4, c5]),
            target_ip: Ipv4Addr::new(d0, d1, d2, d3),
        })
    }

    /// Writes the packet to the front of the buffer; answers its [`PACKET_LEN`].
    ///
    /// # Errors
    /// [`EmitError::Room`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let room: &mut [u8; PACKET_LEN] = room_of(buffer, Part::Arp)?;
        room[..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
        room[6..8].copy_from_slice(&self.operation.0.to_be_bytes());
        room[8..14].copy_from_slice(&self.sender_mac.0);
        room[14..18].copy_from_slice(&self.sender_ip.octets());
        room[18..24].copy_from_slice(&self.target_mac.0);
        room[24..28].copy_from_slice(&self.target_ip.octets());
        Ok(PACKET_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);

    #[test]
    fn a_request_is_answered() {
        let (ours, theirs) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let request = ArpPacket::request(A, ours, theirs);
        let reply = request.reply(B);
        assert_eq!((reply.sender_mac, reply.sender_ip), (B, theirs));
        assert_eq!((reply.target_mac, reply.target_ip), (A, ours));
        assert!(!request.is_probe() && !request.is_announcement());
        assert!(ArpPacket::request(A, Ipv4Addr::UNSPECIFIED, ours).is_probe());
        assert!(ArpPacket::request(A, ours, ours).is_announcement());
    }

    #[test]
    fn other_hardware_and_protocols_are_refused_by_name() {
        let mut good = [0; PACKET_LEN];
        ArpPacket::request(A, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST).emit(&mut good).unwrap();
        for (at, field) in
            [(1, "hardware"), (2, "protocol"), (4, "hardware address length"), (5, "protocol address length")]
        {
            let mut bad = good;
            bad[at] += 3;
            let found = match ArpPacket::parse(&bad) {
                Err(ParseError::Field { field, .. }) => field,
                other => panic!("{other:?}"),
            };
            assert_eq!(found, field);
        }
    }
}
