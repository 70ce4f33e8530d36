//! Bypath from C: `libbypath.so`, `libbypath.a` and `include/bypath.h`, which is made from these sources.
//!
//! What is here translates: C's values into those of `bypath_link` and `bypath_netstack` and back. Every function goes through
//! [`boundary`], which answers bad arguments and panics with an error.
#![allow(non_camel_case_types, reason = "types have their C names")]
#![allow(clippy::missing_safety_doc, reason = "the header's introduction says what holds for all pointers")]

mod boundary;
mod capture;
mod capture_reader;
mod capture_writer;
mod channel;
mod channel_datagram;
#[cfg(feature = "faults")]
mod fault;
mod handle;
mod in_process;
mod interface;
mod mac;
mod netstack;
mod obtained;
mod options;
mod receive;
mod send;
mod service;
mod shared;
mod socket;
mod status;
mod tcp;
mod tcp_forwarder;
mod tcp_listener;
mod tcp_options;
mod tun;
mod types;
mod udp;
mod unreachable;
mod xdp;
