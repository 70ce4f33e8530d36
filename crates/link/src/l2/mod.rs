//! Raw Ethernet for people: a socket that sends and receives frames with their addresses, VLAN tag and priority.
//!
//! ```no_run
//! use bypath_link::{MacAddr, l2};
//!
//! let mut socket = l2::Socket::builder("eth0").ethertype(l2::ETHERTYPE_HYBRID).vlan(10, 7).open()?;
//! socket.send(MacAddr::BROADCAST, b"who is there?")?;
//! let mut buffer = [0; 1500];
//! let answer = socket.receive(&mut buffer)?;
//! println!("{} says {:?}", answer.source, &buffer[..answer.len]);
//! # Ok::<(), bypath_link::Error>(())
//! ```
//!
//! # What is received
//!
//! Frames of the EtherTypes asked for, addressed to this interface, to everybody, or to a group that was joined, and of the
//! VLAN asked for. The kernel leaves out everything else. Frames that this host sends are not received.
//!
//! # Padding
//!
//! An Ethernet frame has at least 60 octets without its frame check sequence: 46 of payload. Shorter ones are padded with
//! zeroes when they are sent, here already, so that they arrive alike on every kind of interface; a tag does not count, so
//! that 46 octets are left when it is taken out. A receiver cannot tell padding from payload: a payload that may be shorter
//! must carry its length. [`Builder::padding`] switches this off; loopback and veth then carry shorter frames, and drivers of
//! real devices pad them.
//!
//! # Waiting
//!
//! A socket waits as long as it takes, or [`Builder::timeout`], which is kept to the nanosecond as far as the system does.
//! [`Builder::spin`] looks without a pause instead of sleeping: the quickest, and a processor's whole time.
//! [`Builder::nonblocking`] never waits.

mod builder;
mod frame;
mod socket;

pub use crate::packet::{Clock, Fanout, Mode, Obtained, Vlan};
pub use crate::{Error, Interface, MacAddr, Result, Statistics, Timestamps, interface::list as interfaces};
pub use builder::Builder;
pub use bypath_wire::meta::{Addressed, Timestamp, TimestampSource, VlanTag};
pub use frame::{Frame, Header, Received};
pub use socket::{Settings, Socket, Wait};

/// EtherType of the hybrid protocol's data frames: IEEE 802, local experimental EtherType 1.
pub const ETHERTYPE_HYBRID: u16 = 0x88b5;
/// EtherType of messages between programs on one host.
pub const ETHERTYPE_IPC: u16 = 0xaaaa;
/// Tag protocol identifier of a VLAN tag (IEEE 802.1Q).
pub const TPID_VLAN: u16 = 0x8100;
/// Tag protocol identifier of a service tag, the outer one of two (IEEE 802.1ad).
pub const TPID_SERVICE: u16 = 0x88a8;
/// VLAN of the hybrid protocol unless another is asked for.
pub const DEFAULT_VLAN: u16 = 10;
/// Priority of the hybrid protocol unless another is asked for: the highest.
pub const DEFAULT_PRIORITY: u8 = 7;
/// Octets of a header without a tag.
pub const HEADER: usize = 14;
/// Least octets of a frame without tag and frame check sequence.
pub const SHORTEST: usize = 60;
/// Least octets of payload.
pub const SHORTEST_PAYLOAD: usize = SHORTEST - HEADER;
