//! `bypath netstack`, as a user starts it, against the kernel, in network namespaces of the tests' own.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "the tools for raw Ethernet need more of it")]
#[macro_use]
#[path = "../l2_tools/network.rs"]
mod network;
mod crowds;
mod http;
mod leases;
mod pings;
mod trouble;
mod udp;

use bypath::tun::Device;

/// Whether devices can be made here; says which test is skipped where they cannot.
fn devices(name: &str) -> bool {
    match Device::tap("probe%d").open() {
        Ok(_) => true,
        Err(e) => {
            network::skip(name, &format!("no TAP devices: {e}"));
            false
        }
    }
}
