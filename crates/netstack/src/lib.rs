//! Runs the stack: [`Engine`] carries frames between it and links, [`Host`] does so on a thread for sockets that block,
//! [`UdpForwarder`] gets what is for others, and [`dhcp`] gets addresses.

#![forbid(unsafe_code)]

pub mod dhcp;
mod engine;
mod forward;
mod host;
mod leasing;

pub use engine::{Engine, Error, News};
pub use forward::{Forwarded, UdpForwarder};
pub use host::{Host, UdpSocket};
