//! `bypath netstack` as a service, as a user starts it, in network namespaces of the tests' own: how it begins, changes, answers and ends.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "the tools for raw Ethernet need more of it")]
#[macro_use]
#[path = "../l2_tools/network.rs"]
mod network;
mod again;
mod begins;
mod counters;
mod ends;
mod programs;
mod questions;
mod several;
mod tasks;
mod told;
mod trouble;
mod typed;
mod unit;
mod views;
mod words;

use bypath::tun::Device;
use common::{TempDir, bypath};
use network::{Ended, Tool};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

/// Whether devices can be made here; says which test is skipped where they cannot.
fn devices(name: &str) -> bool {
    match Device::tap("probe%d").open() {
        Ok(_) => {
            bypath_sys::netns::set_up("lo", true).expect("loopback");
            true
        }
        Err(e) => {
            network::skip(name, &format!("no TAP devices: {e}"));
            false
        }
    }
}

/// A device with the kernel at 10.9.0.1 and fd09::1, and the stack beside it.
const TAP: [&str; 3] = ["--link=tap:mine", "--net=10.9.0.1/24", "--net=fd09::1/64"];

/// `bypath netstack` that finds and makes services in this folder.
fn netstack(folder: &TempDir, args: &[&str]) -> Command {
    let mut command = bypath([&["netstack"], args].concat());
    command.env("BYPATH_NETSTACK_DIR", folder.path());
    command
}

/// A service that has begun.
#[track_caller]
fn service(folder: &TempDir, args: &[&str]) -> Tool {
    Tool::of(netstack(folder, args)).hears("next")
}

/// A question, or a service that ends by itself.
fn asked(folder: &TempDir, args: &[&str]) -> Ended {
    Tool::of(netstack(folder, args)).end()
}

/// Ends a service as systemd does.
#[track_caller]
fn end(service: Tool) -> Ended {
    service.signal(rustix::process::Signal::TERM);
    service.end().expect(0)
}

/// Whether the stack has this address: it refuses what nobody listens for.
fn is_there(address: &str) -> bool {
    let address = SocketAddr::new(address.parse().expect("an address"), 9);
    let refused = TcpStream::connect_timeout(&address, Duration::from_millis(700));
    refused.expect_err("nobody listens").kind() == ErrorKind::ConnectionRefused
}
