//! TCP (RFC 9293): connections as values, and the stack's table of them.

mod answer;
mod arrive;
pub mod assembler;
pub mod buffer;
pub mod clock;
pub mod congestion;
mod cookie;
mod depart;
pub mod direct;
mod ecn;
mod ends;
pub mod error;
mod handshake;
mod holders;
pub mod input;
mod leave;
mod listener;
mod mtu;
mod network;
mod open;
pub mod output;
mod poll;
mod predict;
mod rack;
mod recovery;
pub mod rtt;
mod secret;
pub mod sent;
mod settle;
pub mod socket;
pub mod status;
pub(crate) mod table;
pub mod tcb;
#[cfg(test)]
mod tests;
mod time_wait;
mod tune;
mod urgent;
pub(crate) mod users;
mod verify;

pub use mtu::MtuProbing;
pub use status::Statistics;
pub use table::{Config, Options};
pub use tcb::{Failure, Keepalive, Settings, State};
pub use urgent::UrgentError;
pub use users::{Held, Share};
