//! Bytes and headers: what stands in a frame, a packet, a segment.
//!
//! No system call, no clock, no allocation on the way of a packet; any input is answered with a value or an error,
//! never with a panic.
//!
//! Headers are values: `parse` reads one from the front of a slice and gives the rest, `emit` writes one to the front of
//! a buffer and gives its length. Lengths and checksums are no fields, they follow from what is there. The payload stays
//! where it is, or is copied once while it is summed. All multi-octet fields are in host byte order.
//!
//! ```
//! use bypath_wire::dissect::First;
//! use bypath_wire::print::Line;
//! use bypath_wire::{EtherType, EthernetHeader, Headers, IpProtocol, Ipv4Header, MacAddr, Network, Transport};
//! use bypath_wire::{UdpHeader, VlanTag, VlanTags};
//!
//! let mut link = EthernetHeader::new(
//!     "02:00:00:00:00:0b".parse()?,
//!     MacAddr([0x02, 0, 0, 0, 0, 0x0a]),
//!     EtherType::IPV4,
//! );
//! link.tags = VlanTags::one(VlanTag { tpid: EtherType::VLAN.0, pcp: 7, dei: false, vid: 10 });
//! let headers = Headers {
//!     link: Some(link),
//!     network: Network::V4(Ipv4Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), IpProtocol::UDP)),
//!     transport: Transport::Udp(UdpHeader { source_port: 5000, destination_port: 6000 }),
//! };
//! let mut frame = [0; 1518];
//! let len = headers.emit(&mut frame, b"hello")?;
//!
//! let (read, packet) = EthernetHeader::parse(&frame[..len])?;
//! assert_eq!(read, link);
//! let (ip, datagram) = Ipv4Header::parse(packet)?;
//! let (udp, payload) = UdpHeader::parse(datagram)?;
//! assert_eq!((ip.ttl, udp.destination_port, payload), (64, 6000, &b"hello"[..]));
//! assert_eq!(
//!     Line::new(&frame[..len], First::Ethernet).without_link().to_string(),
//!     "vlan 10 p 7, IPv4 10.0.0.1.5000 > 10.0.0.2.6000: UDP, length 5"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![no_std]
#![deny(unsafe_code)]

#[cfg(any(test, all(feature = "std", target_arch = "x86_64")))]
extern crate std;

pub mod arp;
mod bytes;
pub mod checksum;
pub mod dissect;
pub mod error;
pub mod ethernet;
pub mod icmpv4;
pub mod icmpv6;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_ext;
pub mod meta;
pub mod ndp;
mod option_bytes;
pub mod packet;
pub mod print;
#[cfg(feature = "roce")]
pub mod roce;
pub mod seq;
pub mod tcp;
pub mod tcp_options;
pub mod udp;
pub mod vlan;

pub use arp::ArpPacket;
pub use error::{EmitError, ParseError, Part};
pub use ethernet::{EtherType, EthernetHeader, MacAddr};
pub use icmpv4::Icmpv4Message;
pub use icmpv6::Icmpv6Message;
pub use ip::{Addresses, Ecn, IpProtocol, TrafficClass};
pub use ipv4::Ipv4Header;
pub use ipv6::Ipv6Header;
pub use meta::{Apart, FrameMeta, VlanTag};
pub use ndp::NdpMessage;
pub use packet::{Headers, Network, Transport};
pub use seq::SeqNumber;
pub use tcp::{TcpFlags, TcpHeader};
pub use tcp_options::{TcpOption, TcpOptions};
pub use udp::UdpHeader;
pub use vlan::VlanTags;
