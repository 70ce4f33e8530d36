//! TUN and TAP devices in network namespaces of the tests' own; the kernel's sockets, tshark and scapy look at what is
//! written.

#[macro_use]
mod common;
mod allocations;
mod device;
mod frames;
mod outside;
mod trouble;
mod udp;
