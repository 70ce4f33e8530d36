//! Bypath for programs: what is meant to be used from outside.
//!
//! | module | what it is |
//! |---|---|
//! | [`l2`] | sockets for Ethernet frames: addresses, VLAN tags and priorities, EtherTypes, timestamps, jumbo frames |
//! | [`xdp`] | one queue of an interface past the kernel's path (AF_XDP), as a link |
//! | [`tun`] | TUN and TAP devices, and UDP over them with headers made by hand: singly, and many with one call |
//! | [`fault`] | around any link: losses, doubles, reordering, corruption, delays, a rate; by seed |
//! | [`capture`], [`pcapng`], [`pcap`] | around any link: a file for Wireshark; and such files by themselves |
//! | [`roce`] | RoCEv2 queue pairs without an adapter: SEND, WRITE, READ, atomic operations, datagrams; over any link |
#![cfg_attr(
    feature = "netstack",
    doc = "| [`netstack`], [`stack`] | a TCP/IP stack of our own on a link: addresses, DHCP, sockets of UDP and TCP that block, or of tokio |"
)]
//! | [`channel`] | bytes between two processes that were written for it, through a ring in shared memory |
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
//! With AF_XDP the frames of its EtherTypes and its VLAN leave the kernel's path, and all others stay on it
//! ([more](l2#af_xdp)):
//!
//! ```no_run
//! use bypath::l2::{Mode, Socket};
//!
//! let mut socket = Socket::builder("eth0").ethertype(0x88B5).vlan(10, 7).mode(Mode::XDP).open()?;
//! if let Some(xdp) = &socket.obtained().xdp {
//!     println!("copied by {:?}; {}", xdp.transfer, xdp.notes.join("; "));
//! }
//! # Ok::<(), bypath::l2::Error>(())
//! ```
//!
//! A TUN device is an interface whose other end is this program. Datagrams with headers made here come out of the kernel's
//! sockets, up to 64 of them for one system call ([more](tun)):
//!
//! ```no_run
//! use bypath::tun::{Device, Mode, Udp};
//!
//! let device = Device::tun("tun%d").address("10.9.0.1".parse()?, 24).open()?;
//! let mut udp = Udp::over(device, "10.9.0.2:7000".parse()?).mode(Mode::Super).open()?;
//! udp.send_batch("10.9.0.1:9000".parse()?, [&b"one"[..], b"two"])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A socket goes over any link, such as one that takes a port from the kernel:
//!
//! ```no_run
//! use bypath::l2::{Settings, Socket};
//! use bypath::xdp::{Config, Rule, XdpLink};
//!
//! let rule = Rule::Port { protocol: 17, port: 9000 };
//! let link = XdpLink::open(&Config::new("eth0", &[rule]))?;
//! let mut socket = Socket::over(link, Settings { ethertype: Some(0x0800), ..Settings::default() });
//! # Ok::<(), bypath::l2::Error>(())
//! ```
//!
//! A TCP/IP stack stands on any link; the kernel carries its frames, and has no part in what they say. Here are two, with a cable
//! in memory between them (feature `netstack`, on by default; feature `tokio`: sockets for tasks):
//!
#![cfg_attr(feature = "netstack", doc = "```")]
#![cfg_attr(not(feature = "netstack"), doc = "```ignore")]
//! use bypath::netstack::{Engine, Host, UdpSocket};
//! use bypath::{link::pair::pair, stack::config::Config};
//!
//! let (here, there) = pair(1500, 64);
//! let host = |link, address: &str| -> Result<Host, Box<dyn std::error::Error>> {
//!     let mut engine = Engine::new(Config::default());
//!     let iface = engine.add_link("cable", Box::new(link))?;
//!     engine.stack().add_address(Engine::now(), iface, address.parse()?)?;
//!     Ok(Host::run(engine)?)
//! };
//! let (alice, bob) = (host(here, "10.0.0.1/24")?, host(there, "10.0.0.2/24")?);
//!
//! let server = UdpSocket::bind(&bob, "0.0.0.0:7".parse()?)?;
//! let client = UdpSocket::bind(&alice, "0.0.0.0:0".parse()?)?;
//! client.send_to(b"hello", "10.0.0.2:7".parse()?)?;
//! let mut buffer = [0; 100];
//! let (len, from) = server.recv_from(&mut buffer)?;
//! assert_eq!(&buffer[..len], b"hello");
//! assert_eq!(from.ip(), std::net::Ipv4Addr::new(10, 0, 0, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Without a thread, calls move the frames themselves, and spin: `netstack::Host::in_process`. Programs ask the service that unmodified
//! programs use, and change it, by `netstack::service::Client`.
//!
//! TCP is that of the standard library, too (`netstack::TcpStream`); `netstack::TcpForwarder` gets connections to anybody:
//!
#![cfg_attr(feature = "netstack", doc = "```")]
#![cfg_attr(not(feature = "netstack"), doc = "```ignore")]
//! use bypath::netstack::{Engine, Host, TcpListener, TcpStream};
//! use bypath::stack::config::Config;
//! use std::io::{Read, Write, copy};
//! use std::net::Shutdown;
//!
//! let host = Host::run(Engine::new(Config::default()))?;
//! let listener = TcpListener::bind(&host, "127.0.0.1:7".parse()?)?;
//! std::thread::spawn(move || {
//!     let (stream, _) = listener.accept()?;
//!     copy(&mut &stream, &mut &stream)
//! });
//! let mut stream = TcpStream::connect(&host, "127.0.0.1:7".parse()?)?;
//! stream.write_all(b"hello")?;
//! stream.shutdown(Shutdown::Write)?;
//! let mut text = String::new();
//! stream.read_to_string(&mut text)?;
//! assert_eq!(text, "hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
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

pub use bypath_channel as channel;
pub use bypath_link as link;
pub use bypath_link::{capture, fault, l2, pcap, pcapng, roce, tun, xdp};
#[cfg(feature = "netstack")]
pub use bypath_netstack as netstack;
#[cfg(feature = "netstack")]
pub use bypath_stack as stack;
pub use bypath_wire as wire;

/// Clocks for links that are given one, in nanoseconds.
pub mod clock {
    pub use bypath_sys::clock::{monotonic_ns, realtime_ns};
}
