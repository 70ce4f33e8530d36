//! What views see of sockets of a service: its name, and both addresses as the program gets them.

use super::{Record, SocketName, control};
use bypath_shm::family::{Addr, End, Label};
use std::net::SocketAddr;

/// The name of a service, by its number.
pub fn name(place: &Label, service: u32) {
    place.set(control::name(service).as_ref().map_or("", |name| name.as_str()));
}

/// An address as a socket of `family` gives it to its program; none: it is not known.
pub fn address(place: &Addr, address: Option<SocketAddr>, family: i32) {
    let Some(address) = address else { return place.set(0, 0, [0; 16]) };
    let name = SocketName::new(address, family);
    let raw = name.as_bytes();
    let family = u16::from_ne_bytes([raw[0], raw[1]]);
    let mut octets = [0; 16];
    match i32::from(family) {
        libc::AF_INET6 => octets.copy_from_slice(&raw[8..24]),
        _ => octets[..4].copy_from_slice(&raw[4..8]),
    }
    place.set(family, address.port(), octets);
}

impl Record {
    /// Both addresses of a connection are asked for, once.
    pub fn show_names(&self, end: &End) {
        if end.local.name().is_some() && end.remote.name().is_some() {
            return;
        }
        let Some([local, remote]) = self.names_within() else { return };
        let family = self.family();
        address(&end.local, local.0, family);
        address(&end.remote, remote.0, family);
    }
}
