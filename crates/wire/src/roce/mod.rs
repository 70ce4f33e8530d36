//! RoCEv2: InfiniBand's transport in UDP datagrams (IBTA volume 1, chapter 9; annex A17). docs/roce.md has the tables.
//!
//! [`Packet::parse`] reads a packet with all its checks, [`Envelope::frame`] writes one. Reliable connections, unreliable
//! connections, unreliable datagrams and congestion notifications are known; reliable datagrams and extended reliable
//! connections are not.
//!
//! ```
//! use bypath_wire::roce::{Bth, Envelope, Extended, Headers, Opcode, Operation, Packet, Psn, Qpn};
//! use bypath_wire::{IpProtocol, Ipv4Header, Network};
//!
//! let ip = Ipv4Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), IpProtocol::UDP);
//! let bth = Bth::new(Opcode::rc(Operation::SendOnly), Qpn::new(0x11), Psn::new(100));
//! let headers = Headers { bth, extended: Extended::None };
//! let mut buffer = [0; 1500];
//! let len = Envelope::new(Network::V4(ip), 0xc000).emit(&mut buffer, &headers, b"hello")?;
//! // IP 20, UDP 8, BTH 12, payload 5 and padding 3, ICRC 4.
//! assert_eq!(len, 52);
//!
//! let packet = Packet::parse(&buffer[..len]).expect("a packet");
//! assert_eq!((packet.headers, packet.payload), (headers, &b"hello"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bth;
pub mod extended;
pub mod icrc;
mod number;
pub mod opcode;
pub mod packet;
mod print;

pub use bth::Bth;
pub use extended::{Aeth, AtomicEth, Deth, Extended, Nak, Reth, Syndrome};
pub use number::{Psn, Qpn};
pub use opcode::{Amount, Extension, Opcode, Operation, Service};
pub use packet::{Envelope, Headers, Packet, Refused, UdpSum};

/// The UDP port of RoCEv2.
pub const PORT: u16 = 4791;
/// The largest path MTU.
pub const MOST_MTU: usize = 4096;
