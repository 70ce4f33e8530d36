//! Bytes and headers: what stands in a frame, a packet, a segment.
//!
//! No system call, no clock, no allocation on the way of a packet; any input is answered with a value or an error,
//! never with a panic.

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
pub use meta::{FrameMeta, VlanTag};
pub use ndp::NdpMessage;
pub use packet::{Headers, Network, Transport};
pub use seq::SeqNumber;
pub use tcp::{TcpFlags, TcpHeader};
pub use tcp_options::{TcpOption, TcpOptions};
pub use udp::UdpHeader;
pub use vlan::VlanTags;
