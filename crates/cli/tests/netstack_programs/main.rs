//! Programs as people have them, on `bypath netstack` at one end of a veth pair, with the kernel of another network namespace, or a second
//! service, at its other end: real loads, crowds, faults of the link, and deaths of either.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "the tools for raw Ethernet need more of it")]
#[macro_use]
#[path = "../l2_tools/network.rs"]
mod network;
mod accounts;
mod bereft;
mod between;
mod crowds;
mod datagrams;
mod deaths;
mod dropped;
mod ends;
mod faults;
mod fetches;
mod lab;
mod links;
mod names;
mod pings;
mod reloads;
mod transfers;
mod upgrades;
mod web;
