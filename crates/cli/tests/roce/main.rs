//! `bypath roce`, as a user starts it, in network namespaces of the tests' own: over UDP sockets, raw Ethernet, and between
//! the two; scapy and tshark as witnesses of what is on the wire.

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
#[path = "../l2_tools/network.rs"]
#[allow(dead_code, reason = "this test uses a part")]
mod network;
mod decode;
#[path = "../l2_tools/outsiders.rs"]
mod outsiders;
mod transfers;
mod trouble;
mod witnesses;

use crate::common::TempDir;
use crate::network::{Ended, Tool};
use std::path::PathBuf;

/// A file with octets of every value.
fn file(directory: &TempDir, name: &str, len: usize) -> (PathBuf, Vec<u8>) {
    let octets = network::octets(len);
    let path = directory.join(name);
    std::fs::write(&path, &octets).expect("a file");
    (path, octets)
}

/// A receiver that has begun.
fn receiver(args: &[&str]) -> Tool {
    Tool::start(&[&["roce", "recv"], args].concat()).says("receiving by")
}

/// A sender that ends.
fn send(args: &[&str]) -> Ended {
    Tool::start(&[&["roce", "send"], args].concat()).end()
}

/// Standard output as JSON.
fn json(ended: &Ended) -> serde_json::Value {
    serde_json::from_slice(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", ended.text(), ended.stderr))
}

fn text(path: &std::path::Path) -> &str {
    path.to_str().expect("UTF-8")
}
