//! What can be wrong with bytes that are read, and with values that are to be written.

use core::fmt;

/// A kind of header, in messages and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Ethernet II.
    Ethernet,
    /// An 802.1Q or 802.1ad tag.
    Vlan,
    /// Address resolution for IPv4.
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6, the fixed header.
    Ipv6,
    /// An IPv6 extension header.
    Extension,
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// ICMP for IPv4.
    Icmpv4,
    /// ICMP for IPv6.
    Icmpv6,
    /// A message or an option of neighbour discovery.
    Ndp,
    /// RoCE's base transport header.
    Bth,
    /// Address, key and length of RDMA.
    Reth,
    /// RoCE's acknowledgement.
    Aeth,
    /// Q_Key and source of a RoCE datagram.
    Deth,
    /// Immediate data of RoCE.
    ImmDt,
    /// A RoCE atomic operation.
    AtomicEth,
    /// The answer to a RoCE atomic operation.
    AtomicAckEth,
    /// A key that RoCE invalidates.
    Ieth,
    /// RoCE's congestion notification.
    Cnp,
    /// The CRC at the end of a RoCE packet.
    Icrc,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Part::Ethernet => "Ethernet",
            Part::Vlan => "VLAN tag",
            Part::Arp => "ARP",
            Part::Ipv4 => "IPv4",
            Part::Ipv6 => "IPv6",
            Part::Extension => "IPv6 extension",
            Part::Udp => "UDP",
            Part::Tcp => "TCP",
            Part::Icmpv4 => "ICMP",
            Part::Icmpv6 => "ICMPv6",
            Part::Ndp => "neighbour discovery",
            Part::Bth => "BTH",
            Part::Reth => "RETH",
            Part::Aeth => "AETH",
            Part::Deth => "DETH",
            Part::ImmDt => "ImmDt",
            Part::AtomicEth => "AtomicETH",
            Part::AtomicAckEth => "AtomicAckETH",
            Part::Ieth => "IETH",
            Part::Cnp => "CNP",
            Part::Icrc => "ICRC",
        })
    }
}

/// Why bytes are not what they should be. Offsets count octets from the first one of the part named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The bytes end too early: `need` octets are announced or required, `have` are there.
    Truncated {
        /// What is cut off.
        part: Part,
        /// Octets that must be there.
        need: usize,
        /// Octets that are there.
        have: usize,
    },
    /// The version field says something else.
    Version {
        /// Which header.
        part: Part,
        /// What the field says.
        found: u8,
    },
    /// A length field says less than the header itself takes.
    Length {
        /// Which header.
        part: Part,
        /// Octets that the field announces.
        found: usize,
        /// The least that it may announce.
        least: usize,
    },
    /// A field has a value that this header cannot have.
    Field {
        /// Which header.
        part: Part,
        /// The field's name in the specification.
        field: &'static str,
        /// What it says.
        found: u32,
    },
    /// The header's own checksum does not fit.
    Checksum {
        /// Which header.
        part: Part,
    },
    /// An option's length is impossible, or leads beyond its header.
    Option {
        /// Which header.
        part: Part,
        /// The option's kind.
        kind: u8,
        /// Where the option begins, in octets from the first option.
        at: usize,
    },
    /// More extension headers than [`crate::ipv6_ext::MOST_HEADERS`].
    TooManyExtensions,
    /// A hop-by-hop header that does not follow the fixed header (RFC 8200, 4.1).
    ExtensionOrder {
        /// Where it begins, in octets behind the fixed header.
        at: usize,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::Truncated { part, need, have } => {
                write!(f, "{part}: needs {need} octets, {have} are there")
            }
            ParseError::Version { part, found } => write!(f, "{part}: the version field says {found}"),
            ParseError::Length { part, found, least } => {
                write!(f, "{part}: a length of {found}, at least {least} is needed")
            }
            ParseError::Field { part, field, found } => write!(f, "{part}: {field} is {found}"),
            ParseError::Checksum { part } => write!(f, "{part}: wrong checksum"),
            ParseError::Option { part, kind, at } => {
                write!(f, "{part}: option {kind} at octet {at} has an impossible length")
            }
            ParseError::TooManyExtensions => write!(f, "too many IPv6 extension headers"),
            ParseError::ExtensionOrder { at } => {
                write!(f, "IPv6 hop-by-hop options at octet {at}, not at the front")
            }
        }
    }
}

impl core::error::Error for ParseError {}

/// Why a header cannot be written. Nothing useful stands in the buffer then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// The buffer is too small.
    Room {
        /// What does not fit.
        part: Part,
        /// Octets that it takes.
        need: usize,
        /// Octets that the buffer has.
        have: usize,
    },
    /// What follows the header is longer than its length field can say.
    TooLong {
        /// Which header.
        part: Part,
        /// Octets to be announced.
        found: usize,
        /// The most that can be.
        most: usize,
    },
    /// A value does not fit its field.
    Field {
        /// Which header.
        part: Part,
        /// The field's name in the specification.
        field: &'static str,
        /// The value.
        found: u32,
        /// The largest that fits.
        most: u32,
    },
    /// The layers do not belong together: an IPv4 header with ICMPv6, say.
    Mismatch {
        /// The layer that does not fit under or over its neighbour.
        part: Part,
    },
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmitError::Room { part, need, have } => {
                write!(f, "{part}: takes {need} octets, the buffer has {have}")
            }
            EmitError::TooLong { part, found, most } => {
                write!(f, "{part}: {found} octets are to follow, {most} is the most it can announce")
            }
            EmitError::Field { part, field, found, most } => {
                write!(f, "{part}: {field} {found} does not fit, {most} is the most")
            }
            EmitError::Mismatch { part } => write!(f, "{part} does not belong on the layer below it"),
        }
    }
}

impl core::error::Error for EmitError {}
