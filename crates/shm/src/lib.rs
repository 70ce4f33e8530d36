//! Rings and shared structures: everything that lives in memory seen by more than one process.
//!
//! Unsafe code stands in `region`, `region_lasting` and `ring` only. The protocol on one direction is in `direction`; it is written
//! against `atomic`, so that loom can check it.

pub mod atomic;
pub mod dgram;
pub mod direction;
pub mod hold;
pub mod mailbox;
pub mod marks;
pub mod reason;
pub mod stats;

#[cfg(not(loom))]
pub mod arena;
#[cfg(not(loom))]
pub mod datagram;
#[cfg(not(loom))]
pub mod family;
#[cfg(not(loom))]
pub mod inbox;
#[cfg(not(loom))]
pub mod interface;
#[cfg(not(loom))]
pub mod region;
#[cfg(not(loom))]
mod region_lasting;
#[cfg(not(loom))]
pub mod ring;
#[cfg(not(loom))]
pub mod service;
#[cfg(not(loom))]
pub mod view;
