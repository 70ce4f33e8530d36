//! A TCP/IP stack without IO: frames go in and come out, time is an argument, news is polled.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod iface;
pub mod ip;
pub mod limit;
pub mod neighbor;
pub mod prefix;
pub mod queue;
pub mod route;
pub mod time;
pub mod timer;
pub mod udp;
