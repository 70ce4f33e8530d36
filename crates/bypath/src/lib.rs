//! Bypath for programs: what is meant to be used from outside.
//!
//! | module | what it is |
//! |---|---|
//! | [`l2`] | sockets for Ethernet frames: addresses, VLAN tags and priorities, EtherTypes, timestamps, jumbo frames |
//! | [`xdp`] | one queue of an interface past the kernel's path (AF_XDP), as a link |
//! | [`fault`] | around any link: losses, doubles, reordering, corruption, delays, a rate; by seed |
//! | [`capture`], [`pcapng`] | around any link: a file for Wireshark; and such files by themselves |
//! | [`link`](mod@link) | one level below the socket: many frames with few calls, and what was obtained of what was asked |
//! | [`wire`] | headers from Ethernet to TCP, checksums, frames taken apart and printed |
//! | [`clock`] | the clocks that links are given |
//!
//! A socket by itself takes frames from the kernel:
//!
//! ```no_run
//! use bypath::l2::{self, MacAddr};
//!
//! let mut socket = l2::Socket::builder("eth0").ethertype(0x88B5).vlan(10, 7).open()?;
//! socket.send(MacAddr::BROADCAST, b"who is there?")?;
//! # Ok::<(), l2::Error>(())
//! ```
//!
//! The same socket goes over any link. With AF_XDP the frames of one EtherType leave the kernel's path, and all others stay
//! on it:
//!
//! ```no_run
//! use bypath::l2::{Settings, Socket};
//! use bypath::xdp::{Config, Rule, XdpLink};
//!
//! let rule = Rule::EtherType { ethertype: 0x88B5, vlan: None };
//! let link = XdpLink::open(&Config::new("eth0", &[rule]))?;
//! println!("copied by {:?}; {}", link.obtained().transfer, link.obtained().notes.join("; "));
//! let mut socket = Socket::over(link, Settings { ethertype: Some(0x88B5), ..Settings::default() });
//! # Ok::<(), bypath::l2::Error>(())
//! ```
//!
//! Links go around links. This one, in memory, loses every second frame or so, the same ones each time, and writes what is
//! left into a capture file:
//!
//! ```
//! use bypath::capture::Capture;
//! use bypath::fault::{FaultInjector, Faults};
//! use bypath::l2::{MacAddr, Settings, Socket};
//! use bypath::{clock, link::pair::pair, pcapng};
//!
//! let (here, there) = pair(1500, 64);
//! let lossy = Faults { loss: 0.5, ..Faults::NONE };
//! let link = FaultInjector::new(here, Faults::NONE, lossy, 7, clock::monotonic_ns)?;
//! let settings = Settings { ethertype: Some(0x88B5), ..Settings::default() };
//! let mut from = Socket::over(link, settings);
//! let mut to = Socket::over(Capture::new(there, "there", Vec::new(), 65_535, clock::realtime_ns)?, settings);
//!
//! for _ in 0..50 {
//!     from.send(MacAddr::BROADCAST, b"hello")?;
//! }
//! let arrived = to.receive_batch(50, |frame| assert_eq!(&frame.payload[..5], b"hello"))?;
//! assert_eq!(arrived as u64, 50 - from.link().egress().lost);
//!
//! let (_, file) = to.into_link().finish()?;
//! let blocks = pcapng::Reader::new(&file[..]).all()?;
//! # let frames = blocks.iter().filter(|b| matches!(b, pcapng::reader::Block::Frame(_))).count();
//! # assert_eq!(frames, arrived);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub use bypath_link as link;
pub use bypath_link::{capture, fault, l2, pcapng, xdp};
pub use bypath_wire as wire;

/// Clocks for links that are given one, in nanoseconds.
pub mod clock {
    pub use bypath_sys::clock::{monotonic_ns, realtime_ns};
}
