//! What programs are told of the stack's links where they ask for interfaces, and their addresses.

use crate::Engine;
use bypath_link::Medium;
use bypath_shm::interface::{HELD_AT_ONCE, Held, Interface};
use bypath_shm::service::Address;
use bypath_stack::iface::AddressState;
use bypath_stack::linux::errno::Result;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// linux/if_arp.h: no hardware addresses.
const ARPHRD_NONE: u16 = 0xfffe;

/// The n-th link, and its addresses from this one on.
///
/// # Errors
/// ENODEV: there are not so many.
pub fn tell(engine: &mut Engine, n: u32, from: u32) -> Result<Vec<u8>> {
    let mut links = engine.links().map(|(iface, name)| (iface, name.to_owned()));
    let (iface, name) = links.nth(n as usize).ok_or(libc::ENODEV)?;
    drop(links);
    let can = engine.capabilities(iface);
    let ethernet = can.as_ref().is_none_or(|can| can.medium == Medium::Ethernet);
    let (kind, of_kind) = if ethernet {
        (libc::ARPHRD_ETHER, libc::IFF_BROADCAST)
    } else {
        (ARPHRD_NONE, libc::IFF_POINTOPOINT | libc::IFF_NOARP)
    };
    let running = if engine.is_gone(iface) { 0 } else { libc::IFF_RUNNING };
    let mut interface = Interface {
        index: iface.scope(),
        flags: (libc::IFF_UP | libc::IFF_MULTICAST | of_kind | running) as u32,
        mtu: engine.mtu(iface).unwrap_or(0) as u32,
        kind,
        mac: can.filter(|_| ethernet).map_or([0; 6], |can| can.mac.0),
        name: [0; 16],
    };
    let shown = &name.as_bytes()[..name.len().min(15)];
    interface.name[..shown.len()].copy_from_slice(shown);
    let mut octets = interface.encode().to_vec();
    let all = engine.stack().addresses(iface).iter().filter(|a| a.state != AddressState::Duplicate);
    for held in all.skip(from as usize).take(HELD_AT_ONCE) {
        let address = match held.prefix.address() {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => SocketAddrV6::new(ip, 0, 0, iface.scope()).into(),
            ip => SocketAddr::new(ip, 0),
        };
        octets.extend(Held { address: Address(Some(address)), prefix: held.prefix.len().into() }.encode());
    }
    Ok(octets)
}
