//! The tools for raw Ethernet, as a user starts them, on veth pairs and loopback in network namespaces of the tests' own.

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
mod network;
mod bridge;
mod captures;
mod chat;
mod cycles;
mod frames;
mod liars;
mod messages;
mod outsiders;
mod rings;
mod rounds;
mod trouble;
