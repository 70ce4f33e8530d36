//! Packet links and raw Ethernet sockets on veth pairs and loopback, in network namespaces of the tests' own.

#[macro_use]
mod common;
mod choose;
mod close;
mod interop;
mod losses;
mod modes;
mod offload;
mod place;
mod trouble;
mod vlan;
