//! The stack against the kernel, through a TAP device in a network namespace of each test's own.

#[path = "../../../link/tests/common/namespace.rs"]
mod namespace;

mod churn;
mod errors;
mod forward;
mod groups;
mod paths;
mod routers;
mod segments;
mod setups;
mod tcp;

use bypath_link::tun::{Device, Offloads};
use bypath_netstack::{Engine, Host, UdpSocket};
use bypath_stack::config::Config;
use bypath_stack::iface::IfaceId;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Longest wait for what must come.
const LONGEST: Duration = Duration::from_secs(20);

/// A test that runs in a user and network namespace of its own, if devices can be made there.
macro_rules! isolated {
    (fn $name:ident() $body:block) => {
        #[test]
        fn $name() {
            let path = concat!(module_path!(), "::", stringify!($name));
            $crate::namespace::in_namespace(path, || {
                if let Err(e) = bypath_link::tun::Device::tap("probe%d").open() {
                    return $crate::namespace::skip(path, &format!("no TAP devices: {e}"));
                }
                bypath_sys::netns::set_up("lo", true).expect("loopback");
                $crate::use_addresses_at_once();
                $body
            });
        }
    };
}
use isolated;

/// Interfaces that are made in this namespace from now on do not ask for their addresses first, which takes a second or two.
fn use_addresses_at_once() {
    // Where there is no such setting they are waited for.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
}

/// A host with 10.9.0.2 and fd09::2 on the device `mine`, whose other end the kernel has with 10.9.0.1 and fd09::1.
fn host(config: Config, offloads: Offloads) -> (Host, IfaceId) {
    let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
    let device =
        Device::tap("mine").address(ip("10.9.0.1"), 24).address(ip("fd09::1"), 64).offloads(offloads);
    let mut engine = Engine::new(Config { dad_transmits: 0, ..config });
    let iface = engine.add_link("mine", Box::new(device.open().expect("a device"))).expect("an interface");
    for address in ["10.9.0.2/24", "fd09::2/64", "fe80::2/64"] {
        let prefix = address.parse().expect("an address");
        engine.stack().add_address(Engine::now(), iface, prefix).expect("an address");
    }
    (Host::run(engine).expect("a thread"), iface)
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

fn ours(host: &Host, address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(host, at(address)).expect("a socket of the stack");
    socket.set_timeout(Some(LONGEST));
    socket
}

fn kernels(address: &str) -> std::net::UdpSocket {
    let socket = std::net::UdpSocket::bind(at(address)).expect("a socket of the kernel");
    socket.set_read_timeout(Some(LONGEST)).expect("a time-out");
    socket
}

/// Octets that tell a position.
fn octets(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n ^ ((n >> 8) * 31)) as u8).collect()
}
