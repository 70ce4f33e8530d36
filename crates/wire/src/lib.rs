//! Bytes and headers: what stands in a frame, a packet, a segment.
//!
//! No system call, no clock, no allocation on the way of a packet; any input is answered with a value or an error,
//! never with a panic.

#![no_std]
#![deny(unsafe_code)]

#[cfg(any(test, all(feature = "std", target_arch = "x86_64")))]
extern crate std;

pub mod checksum;
pub mod meta;

pub use meta::FrameMeta;
