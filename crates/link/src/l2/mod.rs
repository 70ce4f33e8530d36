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
//! # AF_XDP
//!
//! With [`Mode::XDP`] frames of the EtherTypes asked for, of the VLAN asked for, tagged or not, go from one queue of the
//! device to this socket, past the kernel's path; all others stay on it. Which queue, [`Builder::queue`] says, and it is
//! queue 0 unless asked: a device that spreads frames over several (`ethtool -l eth0`) needs one queue
//! (`ethtool -L eth0 combined 1`), or [`crate::xdp::XdpLink::open_queues`]. What is taken nobody else receives, whomever
//! it is addressed to: no packet socket, no capture on this host. One socket has a queue, and one program an interface: a second socket is refused. The
//! program goes when the socket is closed, and when the process dies.
//!
//! It needs the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF of the whole machine; root of a user namespace has only
//! its own. Tags are part of the frame: where a device takes them out it says so, and opening fails if VLANs matter. There
//! are no timestamps, no fanout, no send times, no looking at sent frames, and no sending alone: asking for one of them is an
//! error that says what to do. What was obtained (zero-copy or copied, in the driver or behind it) is in [`Obtained::xdp`].
//!
//! ```no_run
//! use bypath_link::l2::{Mode, Socket};
//!
//! let mut socket = Socket::builder("eth0").ethertype(0x88B5).vlan(10, 7).mode(Mode::XDP).open()?;
//! if let Some(xdp) = &socket.obtained().xdp {
//!     println!("{:?}, looked at by {:?}; {}", xdp.transfer, xdp.place, xdp.notes.join("; "));
//! }
//! # Ok::<(), bypath_link::Error>(())
//! ```
//!
//! # Padding
//!
//! An Ethernet frame has at least 60 octets without its frame check sequence: 46 of payload. Shorter ones are padded with
//! zeroes when they are sent, here already, so that they arrive alike on every kind of interface; a tag does not count, so
//! that 46 octets are left when it is taken out. A receiver cannot tell padding from payload: a payload that may be shorter
//! must carry its length. [`Builder::padding`] switches this off; loopback and veth then carry shorter frames, and drivers of
//! real devices pad them. (Linux as receiver throws frames away that have a tag and less than two octets behind the
//! EtherType.)
//!
//! # Waiting
//!
//! A socket waits as long as it takes, or [`Builder::timeout`], which is kept to the nanosecond as far as the system does.
//! [`Builder::spin`] looks without a pause instead of sleeping: the quickest, and a processor's whole time. It reads the clock
//! at every eighth look: the wait is never shorter, and longer by the time of sixteen looks.
//! [`Builder::nonblocking`] never waits.

mod builder;
mod frame;
mod link;
mod socket;
mod xdp;

pub use crate::packet::{Clock, Fanout, Mode, Obtained, Vlan};
pub use crate::xdp::{BusyPoll, Place, Transfer};
pub use crate::{Error, Interface, MacAddr, Result, Statistics, Timestamps, interface::list as interfaces};
pub use builder::Builder;
pub use bypath_wire::meta::{Addressed, Timestamp, TimestampSource, VlanTag};
pub use frame::{Frame, Header, Received};
pub use link::AnyLink;
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
