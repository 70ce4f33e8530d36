//! Bytes and headers: what stands in a frame, a packet, a segment.
//!
//! No system call, no clock, no allocation on the way of a packet; any input is answered with a value or an error,
//! never with a panic.

#![no_std]
#![deny(unsafe_code)]

pub mod meta;

pub use meta::FrameMeta;
