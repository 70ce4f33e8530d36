//! A TCP/IP stack without IO: frames go in and come out, time is an argument, news is polled.
//!
//! ```
//! use bypath_stack::config::Config;
//! use bypath_stack::iface::{IfaceConfig, Medium, Offload};
//! use bypath_stack::time::Instant;
//! use bypath_stack::Stack;
//! use bypath_wire::FrameMeta;
//!
//! let now = Instant::ZERO;
//! let ip = IfaceConfig { medium: Medium::Ip, mtu: 1500, offload: Offload::default() };
//! let mut stacks = [("10.0.0.1/24", 1), ("10.0.0.2/24", 2)].map(|(address, seed)| {
//!     let mut stack = Stack::new(Config::default(), [seed; 32]);
//!     let iface = stack.add_iface(ip).unwrap();
//!     stack.add_address(now, iface, address.parse().unwrap()).unwrap();
//!     (stack, iface)
//! });
//! let [(a, a_iface), (b, b_iface)] = &mut stacks;
//!
//! let server = b.open_udp()?;
//! b.udp(server).unwrap().bind("0.0.0.0:7".parse()?)?;
//! let client = a.open_udp()?;
//! a.udp(client).unwrap().send(b"hello", Some("10.0.0.2:7".parse()?))?;
//!
//! let mut frame = [0; 1518];
//! let (len, _) = a.poll_transmit(now, *a_iface, &mut frame).unwrap();
//! b.handle_frame(now, *b_iface, &frame[..len], &FrameMeta::default());
//!
//! let mut room = [0; 100];
//! let received = b.udp(server).unwrap().receive(&mut room)?;
//! assert_eq!(&room[..received.len], b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod config;
pub mod counters;
pub mod destination;
mod egress;
pub mod event;
mod forward;
pub mod group;
mod icmp;
pub mod iface;
mod ingress;
pub mod ip;
pub mod limit;
pub mod linux;
mod ndp;
pub mod neighbor;
pub mod path;
pub mod prefix;
pub mod queue;
pub mod random;
mod raw;
mod readiness;
pub mod report;
mod resolve;
pub mod route;
mod share;
mod slaac;
pub mod socket;
mod stack;
pub mod tcp;
pub mod time;
pub mod timer;
pub mod udp;

pub use egress::Fragmentation;
pub use raw::Raw;
pub use stack::{Stack, Usage};
pub use tcp::socket::Tcp;
pub use udp::{SendTo, Udp};
