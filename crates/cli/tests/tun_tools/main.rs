//! `bypath tun`, as a user starts it, in network namespaces of the tests' own.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "the tools for raw Ethernet need more of it")]
#[macro_use]
#[path = "../l2_tools/network.rs"]
mod network;
mod files;
mod liars;
mod trouble;

use bypath::tun::Device;
use std::path::{Path, PathBuf};

/// Whether TUN devices can be made here; says which test is skipped where they cannot.
fn devices(name: &str) -> bool {
    match Device::tun("probe%d").open() {
        Ok(_) => true,
        Err(e) => {
            network::skip(name, &format!("no TUN devices: {e}"));
            false
        }
    }
}

/// The network that the tests want: loopback, and the kernel as a router between devices.
fn routes() {
    bypath_sys::netns::set_up("lo", true).expect("loopback");
    for path in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
        std::fs::write(format!("/proc/sys/{path}"), "1").expect("a setting of this namespace");
    }
}

/// A directory that is removed with everything in it.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bypath-tun-tools-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a new directory");
        Place(path)
    }

    fn join(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }

    fn file(&self, name: &str, octets: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(&path, octets).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The files below a directory, by name, with what is in them.
fn tree(root: &Path) -> Vec<(String, Vec<u8>)> {
    fn walk(root: &Path, at: &Path, all: &mut Vec<(String, Vec<u8>)>) {
        for entry in std::fs::read_dir(at).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(root, &path, all);
            } else {
                let name = path.strip_prefix(root).expect("below").to_str().expect("UTF-8").to_owned();
                all.push((name, std::fs::read(&path).expect("a file")));
            }
        }
    }
    let mut all = Vec::new();
    walk(root, root, &mut all);
    all.sort();
    all
}

/// No device of the tools is left.
fn nothing_is_left() {
    let names: Vec<_> = bypath::l2::interfaces().expect("interfaces").into_iter().map(|i| i.name).collect();
    assert_eq!(names, ["lo"]);
}
