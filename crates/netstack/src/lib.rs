//! Runs the stack: [`Engine`] carries frames between it and links, [`Host`] does so on a thread for sockets that block
//! ([`UdpSocket`], [`TcpListener`], [`TcpStream`]), or within their calls ([`Host::in_process`]), and, with the feature `tokio`, for tasks (`tokio::UdpSocket` and its like),
//! [`UdpForwarder`] and [`TcpForwarder`] get what is for others, and
//! [`dhcp`] gets addresses. [`Setup`] is the short way to all of it. [`service`] gives the stack to programs of other processes.

#![forbid(unsafe_code)]

mod descriptor;
pub mod dhcp;
mod engine;
mod forward;
mod host;
mod in_process;
mod leasing;
mod ping;
pub mod service;
mod setup;
mod signal;
mod socket;
mod tap;
mod tasks;
mod tcp;
pub mod text;
#[cfg(feature = "tokio")]
pub mod tokio;
mod udp;

pub use engine::{Engine, Error, News};
pub use forward::{Forwarded, UdpForwarder};
pub use host::Host;
pub use ping::{Ping, PingCounts, PingEvent, Pinger};
pub use setup::{LinkName, NoLinkName, Opened, Setup, SetupError, Way};
pub use tap::{Filter, Tap, TapCounts};
pub use tcp::{Incoming, TcpCall, TcpForwarder, TcpListener, TcpStream};
pub use udp::UdpSocket;
