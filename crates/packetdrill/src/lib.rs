//! Sockets as a C library has them, over a stack whose packets the caller takes and gives: a plug-in for packetdrill.
//!
//! [`host::Host`] is a machine with one link: POSIX's socket calls with Linux's errno, and the packets that leave and come.
//! `interface` hands it to packetdrill (`--so_filename`); tests in Rust call it themselves. Time is real, or the caller's:
//! see [`flags::Time`].

mod address;
mod clock;
mod connect;
mod file;
pub mod flags;
pub mod host;
mod interface;
pub mod io;
mod machine;
mod memory;
mod options;
mod pipe;
mod readiness;
mod sysctl;
mod waiting;

pub use interface::{Interface, packetdrill_interface_init};
