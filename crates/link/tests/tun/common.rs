//! Namespaces, devices and payloads for the tests.

use bypath_link::Error;
use bypath_link::tun::{Builder, Device, Refused, Udp, udp};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

#[path = "../common/namespace.rs"]
mod namespace;
pub use namespace::skip;

/// What no test should need.
pub const LONG: Duration = Duration::from_secs(20);

/// A test that runs in a user and network namespace of its own, with TUN devices.
macro_rules! isolated {
    ($(#[$meta:meta])* fn $name:ident() $body:block) => {
        #[test]
        $(#[$meta])*
        fn $name() {
            $crate::common::in_namespace(concat!(module_path!(), "::", stringify!($name)), || $body);
        }
    };
}

/// As `namespace::in_namespace`, where there are TUN devices.
pub fn in_namespace(path: &str, body: impl FnOnce()) {
    namespace::in_namespace(path, || match Device::tun("probe%d").open() {
        Err(Error::Tun(e @ (Refused::Missing { .. } | Refused::Forbidden { .. }))) => {
            skip(namespace::name_of(path), &format!("no TUN devices: {e}"));
        }
        Err(e) => panic!("no device: {e}"),
        Ok(probe) => {
            drop(probe);
            body();
        }
    });
}

/// The kernel's end, and ours, of either family.
pub const FAMILIES: [(&str, &str); 2] = [("10.9.0.1", "10.9.0.2"), ("fd09::1", "fd09::2")];

/// A device with addresses of both families.
pub fn device(mtu: u32) -> Builder {
    let [(v4, _), (v6, _)] = FAMILIES.map(|(a, b)| (ip(a), ip(b)));
    let device = Device::tun("tun%d").mtu(mtu).address(v4, 24);
    if mtu < 1280 { device } else { device.address(v6, 64) }
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A socket of the kernel at its end of this family.
pub fn kernel(family: usize) -> UdpSocket {
    let socket = UdpSocket::bind((ip(FAMILIES[family].0), 0)).expect("a socket");
    socket.set_read_timeout(Some(LONG)).expect("a timeout");
    socket
}

/// Our end of this family.
pub fn ours(family: usize) -> SocketAddr {
    SocketAddr::new(ip(FAMILIES[family].1), 7000)
}

/// Our end over this device.
pub fn over(device: Device, family: usize, with: impl Fn(udp::Builder) -> udp::Builder) -> Udp {
    with(Udp::over(device, ours(family)).timeout(LONG)).open().expect("a sender")
}

/// A payload that no other number or length has.
pub fn payload(number: u32, len: usize) -> Vec<u8> {
    let mut state = u64::from(number) << 20 ^ len as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_ne_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Sets a value below /proc/sys of this namespace.
pub fn sysctl(path: &str, value: &str) {
    std::fs::write(format!("/proc/sys/{path}"), value).unwrap_or_else(|e| panic!("{path}: {e}"));
}
