//! The two classic ways as programs often have them: buffers for the longest packet, zeroed for each, one copy more than
//! needed, and the checksum word by word.

use super::stage::{OURS, TO};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// In front: the virtio-net header, which asks for nothing.
const VNET: usize = 10;
const IP: usize = 20;
const UDP: usize = 8;
const LONGEST: usize = 65_536;

/// RFC 1071 word by word, each sum waiting for the one before.
fn add(mut sum: u16, octets: &[u8]) -> u16 {
    for pair in octets.chunks(2) {
        let word = u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]);
        let (added, carry) = sum.overflowing_add(word);
        sum = added + u16::from(carry);
    }
    sum
}

fn octets(address: SocketAddr) -> [u8; 4] {
    match address.ip() {
        std::net::IpAddr::V4(ip) => ip.octets(),
        std::net::IpAddr::V6(_) => [0; 4],
    }
}

/// IP and UDP header; `sum` is that of the payload.
fn headers(len: usize, payload: &[u8]) -> [u8; IP + UDP] {
    let mut head = [0; IP + UDP];
    head[0] = 0x45;
    head[2..4].copy_from_slice(&((IP + UDP + len) as u16).to_be_bytes());
    (head[8], head[9]) = (64, 17);
    head[12..16].copy_from_slice(&octets(OURS));
    head[16..20].copy_from_slice(&octets(TO));
    let check = !add(0, &head[..IP]);
    head[10..12].copy_from_slice(&check.to_be_bytes());
    head[20..22].copy_from_slice(&OURS.port().to_be_bytes());
    head[22..24].copy_from_slice(&TO.port().to_be_bytes());
    head[24..26].copy_from_slice(&((UDP + len) as u16).to_be_bytes());
    let pseudo = add(add(17, &((UDP + len) as u16).to_be_bytes()), &head[12..IP + 6]);
    let check = match !add(pseudo, payload) {
        0 => 0xffff,
        check => check,
    };
    head[26..].copy_from_slice(&check.to_be_bytes());
    head
}

/// Two zeroed buffers, two copies, `write`.
///
/// # Errors
/// Those of the device.
#[inline(never)]
pub fn write(device: BorrowedFd<'_>, payload: &[u8]) -> rustix::io::Result<usize> {
    let mut datagram = [0u8; LONGEST];
    datagram[..payload.len()].copy_from_slice(payload);
    let datagram = std::hint::black_box(&mut datagram);
    let head = headers(payload.len(), &datagram[..payload.len()]);
    let mut packet = [0u8; VNET + IP + UDP + LONGEST];
    packet[VNET..VNET + IP + UDP].copy_from_slice(&head);
    packet[VNET + IP + UDP..][..payload.len()].copy_from_slice(&datagram[..payload.len()]);
    let packet = std::hint::black_box(&mut packet);
    rustix::io::write(device, &packet[..VNET + IP + UDP + payload.len()])
}

/// One zeroed buffer, one copy, `writev`.
///
/// # Errors
/// Those of the device.
#[inline(never)]
pub fn writev(device: BorrowedFd<'_>, payload: &[u8]) -> rustix::io::Result<usize> {
    let mut datagram = [0u8; LONGEST];
    datagram[..payload.len()].copy_from_slice(payload);
    let datagram = std::hint::black_box(&mut datagram);
    let head = headers(payload.len(), &datagram[..payload.len()]);
    let pieces = [IoSlice::new(&[0; VNET]), IoSlice::new(&head), IoSlice::new(&datagram[..payload.len()])];
    rustix::io::writev(device, &pieces)
}
