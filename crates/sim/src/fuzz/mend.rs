//! Checksums of packets that were changed, so that they get past them.

use bypath_wire::{Addresses, checksum, tcp};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Of an IPv4 header, and of the TCP segment behind it or an IPv6 header, as far as lengths say where they are.
pub(super) fn packet(packet: &mut [u8]) {
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            header(packet);
            if let Some((addresses, segment)) = segment_v4(packet) {
                tcp::fill(&addresses, segment);
            }
        }
        Some(6) => {
            if let Some((addresses, segment)) = segment_v6(packet) {
                tcp::fill(&addresses, segment);
            }
        }
        _ => {}
    }
}

/// Octets of an IPv4 header: those that it says, if there are so many; else of one without options.
fn header_len(packet: &[u8]) -> usize {
    let said = packet.first().map_or(0, |first| usize::from(first & 15) * 4);
    if (20..=packet.len()).contains(&said) { said } else { 20.min(packet.len()) }
}

/// Of an IPv4 header alone.
pub(super) fn header(packet: &mut [u8]) {
    let len = header_len(packet);
    if len >= 20 {
        packet[10..12].fill(0);
        let sum = checksum::checksum(&packet[..len]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

fn segment_v4(packet: &mut [u8]) -> Option<(Addresses, &mut [u8])> {
    let (begin, head) = (header_len(packet), packet.first_chunk::<20>()?);
    let end = packet.len().min(u16::from_be_bytes([head[2], head[3]]).into());
    let address = |at: usize| Ipv4Addr::from_octets([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let addresses = Addresses::V4 { source: address(12), destination: address(16) };
    Some((addresses, packet.get_mut(begin..end).filter(|segment| segment.len() >= tcp::HEADER_LEN)?))
}

fn segment_v6(packet: &mut [u8]) -> Option<(Addresses, &mut [u8])> {
    let head = packet.first_chunk::<40>()?;
    let end = packet.len().min(40 + usize::from(u16::from_be_bytes([head[4], head[5]])));
    let address = |at: usize| head[at..].first_chunk().map(|octets| Ipv6Addr::from_octets(*octets));
    let addresses = Addresses::V6 { source: address(8)?, destination: address(24)? };
    Some((addresses, packet.get_mut(40..end).filter(|segment| segment.len() >= tcp::HEADER_LEN)?))
}
