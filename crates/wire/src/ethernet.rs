//! Ethernet II frames with their VLAN tags (IEEE 802.3, 3.2; IEEE 802.1Q, 9). No preamble and no frame check sequence:
//! the device adds and removes them.

use crate::bytes::{be16, head, room, room_of};
use crate::error::{EmitError, ParseError, Part};
use crate::meta::VlanTag;
use crate::vlan::{self, VlanTags};
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// Octets of a header without tags.
pub const HEADER_LEN: usize = 14;
/// The least that a frame has on a medium, without the check sequence: shorter ones are padded with zeros.
pub const MIN_FRAME_LEN: usize = 60;
/// The most octets behind the header on a medium without jumbo frames.
pub const MTU: usize = 1500;

/// An address of a device, or of a group of them, in the order of transmission.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Everybody.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);
    /// Nobody: what stands in an ARP request for the address that is looked for. The loopback interface has it.
    pub const UNSPECIFIED: MacAddr = MacAddr([0; 6]);

    /// The six octets.
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }

    /// Everybody's address.
    pub const fn is_broadcast(self) -> bool {
        matches!(self.0, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
    }

    /// A group's address; everybody is a group too.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Given by an administrator or a program, not by the maker.
    pub const fn is_local(self) -> bool {
        self.0[0] & 2 == 2
    }

    /// The group address of an IPv4 group (RFC 1112, 6.4): its lower 23 bits.
    pub const fn of_ipv4_group(group: Ipv4Addr) -> MacAddr {
        let [_, b, c, d] = group.octets();
        MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// The group address of an IPv6 group (RFC 2464, 7): its last four octets.
    pub const fn of_ipv6_group(group: Ipv6Addr) -> MacAddr {
        let octets = group.octets();
        MacAddr([0x33, 0x33, octets[12], octets[13], octets[14], octets[15]])
    }
}

impl fmt::Display for MacAddr {
    /// `02:00:5e:10:00:01`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    /// As it is displayed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<[u8; 6]> for MacAddr {
    fn from(octets: [u8; 6]) -> MacAddr {
        MacAddr(octets)
    }
}

/// The text is no address of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacAddrError;

impl fmt::Display for MacAddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a MAC address; it is six pairs of hexadecimal digits, as in 02:00:5e:10:00:01")
    }
}

impl core::error::Error for MacAddrError {}

impl FromStr for MacAddr {
    type Err = MacAddrError;

    /// Six pairs of hexadecimal digits of either case, with colons or with hyphens between them.
    fn from_str(text: &str) -> Result<MacAddr, MacAddrError> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut octets = [0; 6];
        let mut pairs = text.split(separator);
        for octet in &mut octets {
            let pair = pairs.next().ok_or(MacAddrError)?;
            if pair.len() != 2 || !pair.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(MacAddrError);
            }
            *octet = u8::from_str_radix(pair, 16).map_err(|_| MacAddrError)?;
        }
        if pairs.next().is_some() { Err(MacAddrError) } else { Ok(MacAddr(octets)) }
    }
}

/// What a frame carries, in host byte order. Values below [`EtherType::LEAST`] are lengths (IEEE 802.3, 3.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// The smallest value that is a type.
    pub const LEAST: EtherType = EtherType(0x0600);
    /// IPv4.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// Address resolution.
    pub const ARP: EtherType = EtherType(0x0806);
    /// Audio and video bridging (IEEE 1722).
    pub const AVTP: EtherType = EtherType(0x22f0);
    /// A customer's VLAN tag (IEEE 802.1Q).
    pub const VLAN: EtherType = EtherType(0x8100);
    /// IPv6.
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// PROFINET.
    pub const PROFINET: EtherType = EtherType(0x8892);
    /// EtherCAT.
    pub const ETHERCAT: EtherType = EtherType(0x88a4);
    /// A service's VLAN tag (IEEE 802.1ad), outside of a customer's.
    pub const SERVICE_VLAN: EtherType = EtherType(0x88a8);
    /// Local experiments, the first of two (IEEE 802, 9.2.3).
    pub const LOCAL_EXPERIMENTAL_1: EtherType = EtherType(0x88b5);
    /// Local experiments, the second of two.
    pub const LOCAL_EXPERIMENTAL_2: EtherType = EtherType(0x88b6);
    /// GOOSE (IEC 61850-8-1).
    pub const GOOSE: EtherType = EtherType(0x88b8);
    /// Sampled values (IEC 61850-9-2).
    pub const SAMPLED_VALUES: EtherType = EtherType(0x88ba);
    /// Link layer discovery (IEEE 802.1AB).
    pub const LLDP: EtherType = EtherType(0x88cc);
    /// Precision time protocol (IEEE 1588).
    pub const PTP: EtherType = EtherType(0x88f7);
    /// RDMA over converged Ethernet, version 1.
    pub const ROCE: EtherType = EtherType(0x8915);
    /// Two tags before IEEE 802.1ad had a number; some switches still use it for the outer one.
    pub const OLD_SERVICE_VLAN: EtherType = EtherType(0x9100);
    /// Messages between programs of one host over `lo`. Not registered: for private links only.
    pub const IPC: EtherType = EtherType(0xaaaa);

    /// The frame has a length where others have a type, and an 802.2 header behind it.
    pub const fn is_length(self) -> bool {
        self.0 < EtherType::LEAST.0
    }

    /// A VLAN tag follows.
    pub const fn is_vlan(self) -> bool {
        matches!(self, EtherType::VLAN | EtherType::SERVICE_VLAN | EtherType::OLD_SERVICE_VLAN)
    }

    /// The name, where it is well known.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            EtherType::IPV4 => "IPv4",
            EtherType::ARP => "ARP",
            EtherType::AVTP => "AVTP",
            EtherType::VLAN => "802.1Q",
            EtherType::IPV6 => "IPv6",
            EtherType::PROFINET => "PROFINET",
            EtherType::ETHERCAT => "EtherCAT",
            EtherType::SERVICE_VLAN => "802.1ad",
            EtherType::LOCAL_EXPERIMENTAL_1 => "local experimental 1",
            EtherType::LOCAL_EXPERIMENTAL_2 => "local experimental 2",
            EtherType::GOOSE => "GOOSE",
            EtherType::SAMPLED_VALUES => "sampled values",
            EtherType::LLDP => "LLDP",
            EtherType::PTP => "PTP",
            EtherType::ROCE => "RoCE",
            EtherType::OLD_SERVICE_VLAN => "QinQ",
            EtherType::IPC => "ipc",
            _ => return None,
        })
    }
}

impl fmt::Display for EtherType {
    /// `0x88b5`, or `IPv4 (0x0800)` in the alternate form `{:#}` where the name is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) if f.alternate() => write!(f, "{name} ({:#06x})", self.0),
            _ => write!(f, "{:#06x}", self.0),
        }
    }
}

/// The header of an Ethernet II frame: addresses, VLAN tags, type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetHeader {
    /// To whom.
    pub destination: MacAddr,
    /// From whom.
    pub source: MacAddr,
    /// VLAN tags, the outermost first. None where the device took them out of the frame.
    pub tags: VlanTags,
    /// What follows the tags.
    pub ethertype: EtherType,
}

impl EthernetHeader {
    /// A header without tags.
    pub const fn new(destination: MacAddr, source: MacAddr, ethertype: EtherType) -> EthernetHeader {
        EthernetHeader { destination, source, tags: VlanTags::new(), ethertype }
    }

    /// Octets of the header, tags included.
    pub const fn len(&self) -> usize {
        HEADER_LEN + vlan::TAG_LEN * self.tags.len()
    }

    /// Never: a header has octets.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// The header of a frame, and what follows it, padding included.
    ///
    /// At most [`vlan::MOST_TAGS`] tags are taken; with more, `ethertype` is that of the next tag, and the payload
    /// begins behind it.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if the frame ends in the header or in a tag.
    pub fn parse(frame: &[u8]) -> Result<(EthernetHeader, &[u8]), ParseError> {
        let fixed: &[u8; HEADER_LEN] = head(frame, Part::Ethernet)?;
        let &[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = fixed;
        let mut header = EthernetHeader::new(
            MacAddr([d0, d1, d2, d3, d4, d5]),
            MacAddr([s0, s1, s2, s3, s4, s5]),
            EtherType(be16!(fixed, 12)),
        );
        let mut rest = &frame[HEADER_LEN..];
        while header.ethertype.is_vlan() {
            let bytes: &[u8; vlan::TAG_LEN] = head(rest, Part::Vlan)?;
            let tag = VlanTag::from_tci(header.ethertype.0, be16!(bytes, 0));
            if !header.tags.push(tag) {
                break;
            }
            header.ethertype = EtherType(be16!(bytes, 2));
            rest = &rest[vlan::TAG_LEN..];
        }
        Ok((header, rest))
    }

    /// Writes the header to the front of the buffer; answers how many octets it took. Padding is the sender's matter,
    /// see [`padded_len`].
    ///
    /// # Errors
    /// [`EmitError::Room`]; [`EmitError::Field`] for a tag whose priority or identifier does not fit.
    #[inline(always)]
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        if self.tags.is_empty() {
            let room: &mut [u8; HEADER_LEN] = room_of(buffer, Part::Ethernet)?;
            room[..6].copy_from_slice(&self.destination.0);
            room[6..12].copy_from_slice(&self.source.0);
            room[12..].copy_from_slice(&self.ethertype.0.to_be_bytes());
            return Ok(HEADER_LEN);
        }
        self.emit_tagged(room(buffer, self.len(), Part::Ethernet)?)
    }

    /// A header with tags, of which `room` has exactly the length.
    #[inline(never)]
    fn emit_tagged(&self, room: &mut [u8]) -> Result<usize, EmitError> {
        let (addresses, mut rest) = room.split_at_mut(12);
        addresses[..6].copy_from_slice(&self.destination.0);
        addresses[6..].copy_from_slice(&self.source.0);
        for tag in &self.tags {
            let (here, behind) = rest.split_at_mut(vlan::TAG_LEN);
            here.copy_from_slice(&vlan::tag_bytes(tag)?);
            rest = behind;
        }
        rest.copy_from_slice(&self.ethertype.0.to_be_bytes());
        Ok(self.len())
    }
}

/// Octets of a frame with its padding: at least [`MIN_FRAME_LEN`].
pub const fn padded_len(len: usize) -> usize {
    if len < MIN_FRAME_LEN { MIN_FRAME_LEN } else { len }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let mac = MacAddr([0x02, 0x00, 0x5e, 0x10, 0xab, 0x01]);
        assert_eq!("02:00:5e:10:ab:01".parse(), Ok(mac));
        assert_eq!("02-00-5E-10-AB-01".parse(), Ok(mac));
        assert_eq!(format!("{mac}"), "02:00:5e:10:ab:01");
        for bad in
            ["", "02", "02:00:5e:10:ab", "02:00:5e:10:ab:01:02", "02:00:5e:10:ab:+1", "02:00:5e:10:ab:1"]
        {
            assert_eq!(bad.parse::<MacAddr>(), Err(MacAddrError), "{bad}");
        }
        for bad in ["02:00-5e:10:ab:01", "g2:00:5e:10:ab:01", "02:00:5e:10:ab:01 ", "02:00:5e:10:ab:é"] {
            assert_eq!(bad.parse::<MacAddr>(), Err(MacAddrError), "{bad}");
        }
    }

    #[test]
    fn kinds_of_addresses() {
        assert!(MacAddr::BROADCAST.is_broadcast() && MacAddr::BROADCAST.is_multicast());
        assert!(MacAddr([2, 0, 0, 0, 0, 1]).is_local() && !MacAddr([2, 0, 0, 0, 0, 1]).is_multicast());
        // 224.0.0.251 and 239.128.0.251 share a group address (RFC 1112, 6.4).
        let group = MacAddr([0x01, 0x00, 0x5e, 0, 0, 251]);
        assert_eq!(MacAddr::of_ipv4_group(Ipv4Addr::new(224, 0, 0, 251)), group);
        assert_eq!(MacAddr::of_ipv4_group(Ipv4Addr::new(239, 128, 0, 251)), group);
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        assert_eq!(MacAddr::of_ipv6_group(all_nodes), MacAddr([0x33, 0x33, 0, 0, 0, 1]));
    }

    #[test]
    fn types_are_told_from_lengths_and_have_names() {
        assert!(EtherType(1500).is_length() && !EtherType(0x0600).is_length());
        assert_eq!(format!("{} {:#}", EtherType::IPV4, EtherType::IPV4), "0x0800 IPv4 (0x0800)");
        assert_eq!(format!("{:#}", EtherType(0x1234)), "0x1234");
    }

    #[test]
    fn a_short_frame_is_padded_to_sixty_octets() {
        assert_eq!((padded_len(14), padded_len(60), padded_len(1514)), (60, 60, 1514));
    }
}
