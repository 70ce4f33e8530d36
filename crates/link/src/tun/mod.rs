//! TUN and TAP devices: interfaces whose other end is this program, and UDP over them with headers made by hand.
//!
//! A packet that is written into a [`Device`] arrives at the kernel as if from a network; what the kernel sends through the
//! interface is read from it. A TUN device carries IP packets, a TAP device Ethernet frames. Both are a [`Link`](crate::Link).
//!
//! ```no_run
//! use bypath_link::tun::{Device, Mode, Udp};
//!
//! // The kernel has 10.9.0.1 and reaches 10.9.0.0/24 through the device: 10.9.0.2 is us.
//! let device = Device::tun("tun%d").address("10.9.0.1".parse().unwrap(), 24).mtu(9000).open()?;
//! println!("{} with {:?}", device.name(), device.obtained().offloads);
//!
//! let mut udp = Udp::over(device, "10.9.0.2:7000".parse().unwrap()).mode(Mode::Super).open()?;
//! let to = "10.9.0.1:9000".parse().unwrap();
//! udp.send(to, b"one datagram")?;
//! udp.send_batch(to, [&[1u8; 1000][..]; 60])?; // one system call
//! let mut buffer = [0; 65_535];
//! let answer = udp.receive(&mut buffer)?;
//! println!("{} says {:?}", answer.source, &buffer[..answer.len]);
//! # Ok::<(), bypath_link::Error>(())
//! ```
//!
//! # Who may
//!
//! Making a device takes CAP_NET_ADMIN in the network namespace, and a `/dev/net/tun` that may be opened (distributions have
//! it open to everybody). Root of a user namespace of one's own has both: `unshare --user --net --map-root-user PROGRAM`. A
//! persistent device that belongs to a user needs nothing: [`Builder::attach`].
//!
//! # Super-packets
//!
//! The costly thing is the way through the kernel's network stack, once per packet. A super-packet goes that way once
//! with up to [`udp::MOST_SEGMENTS`] datagrams of one size, and is cut where the way ends: at the socket, or not at all when
//! that asked for UDP_GRO. It takes Linux 6.2; [`Obtained::offloads`] tells.

mod builder;
mod device;
mod refused;
pub mod udp;

pub use builder::Builder;
pub use device::{Device, Kind, Obtained, Offloads};
pub use refused::Refused;
pub use udp::{Checksum, Datagram, Mode, Received, Udp};
