//! Settings of the network namespace that scripts change with `sysctl` and `ip route`.

use crate::flags;
use bypath_stack::route::Metrics;
use bypath_stack::tcp::congestion::Algorithm;
use bypath_stack::tcp::{MtuProbing, Settings};
use bypath_sys::netlink::Netlink;
use bypath_sys::route;
use std::fs;
use std::net::IpAddr;

/// What concerns a socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sysctl {
    /// tcp_notsent_lowat.
    pub notsent_lowat: Option<u32>,
    /// tcp_ecn: who calls may ask for it.
    pub ecn_for_callers: bool,
}

fn numbers(name: &str) -> Vec<u64> {
    let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn number(name: &str) -> Option<u64> {
    numbers(name).first().copied()
}

/// What SO_RCVLOWAT cannot go beyond where SO_RCVBUF was not set: half of the most that tcp_rmem lets a buffer have.
pub fn most_least() -> u32 {
    let most = numbers("tcp_rmem").get(2).copied().unwrap_or(6 << 20);
    (most / 2).min(1 << 29) as u32
}

/// Reads them into the settings of a new socket.
pub fn read(settings: &mut Settings) -> Sysctl {
    let is_on = |name: &str, otherwise: bool| number(name).map_or(otherwise, |n| n == 1);
    settings.sack = is_on("tcp_sack", settings.sack);
    settings.timestamps = number("tcp_timestamps").map_or(settings.timestamps, |n| n > 0);
    settings.window_scale = is_on("tcp_window_scaling", settings.window_scale);
    settings.ecn = number("tcp_ecn").is_some_and(|n| n == 1);
    if let Some(octets) = numbers("tcp_rmem").get(2) {
        settings.receive_octets = *octets as usize;
    }
    if let Some(octets) = numbers("tcp_wmem").get(2) {
        settings.send_octets = *octets as usize;
    }
    settings.mtu_probing = match number("tcp_mtu_probing") {
        None | Some(0) => MtuProbing::Off,
        Some(1) => MtuProbing::AfterTimeouts,
        Some(_) => MtuProbing::Always,
    };
    if let Some(octets) = number("tcp_base_mss") {
        settings.base_mss = u16::try_from(octets).unwrap_or(u16::MAX);
    }
    let name = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
    settings.algorithm = flags::algorithm(name.trim()).unwrap_or(Algorithm::Cubic);
    Sysctl {
        ecn_for_callers: number("tcp_ecn").is_none_or(|n| n == 1 || n == 2),
        notsent_lowat: number("tcp_notsent_lowat")
            .and_then(|n| u32::try_from(n).ok())
            .filter(|n| *n != u32::MAX),
    }
}

/// What the namespace's route to an address says of the way; nothing, if there is none.
pub fn metrics(netlink: &Netlink, to: IpAddr) -> Metrics {
    let found = route::metrics(netlink, to).unwrap_or_default();
    let short = |n: Option<u32>| n.and_then(|n| u16::try_from(n).ok());
    Metrics { mtu: found.mtu, mss: short(found.advmss), initial_window: short(found.initcwnd) }
}
