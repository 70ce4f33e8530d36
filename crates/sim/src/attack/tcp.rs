//! Segments of peers that are not as we are: each field is what the attacker wants.

use super::{EVIL_V4, MAC, V4, v4};
use bypath_wire::{
    Addresses, EthernetHeader, IpProtocol, Ipv4Header, MacAddr, SeqNumber, TcpFlags, TcpHeader, TcpOption,
    TcpOptions,
};
use std::net::Ipv4Addr;

/// The attacker.
pub const ATTACKER: Ipv4Addr = EVIL_V4;
/// Its station.
pub const ATTACKERS_MAC: MacAddr = super::EVIL;

/// A segment to the victim, in its frame.
pub fn segment(from: (Ipv4Addr, u16), to: u16, header: &TcpHeader, payload: &[u8]) -> Vec<u8> {
    let header = TcpHeader { source_port: from.1, destination_port: to, ..*header };
    let addresses = Addresses::V4 { source: from.0, destination: V4 };
    let mut octets = vec![0; header.len() + payload.len()];
    let _fits = header.emit_with(&mut octets, &addresses, payload);
    v4(&Ipv4Header::new(from.0, V4, IpProtocol::TCP), &octets)
}

/// A header with these flags and numbers, and a window of 65,535.
pub fn header(flags: TcpFlags, seq: SeqNumber, ack: SeqNumber) -> TcpHeader {
    let mut header = TcpHeader::new(0, 0);
    (header.flags, header.seq, header.ack, header.window) = (flags, seq, ack, 65_535);
    header
}

/// A SYN that says this MSS, and lets blocks be sent.
pub fn call(seq: SeqNumber, mss: u16) -> TcpHeader {
    let mut syn = header(TcpFlags::SYN, seq, SeqNumber(0));
    let mut options = TcpOptions::new();
    let _fits = options.push(&TcpOption::MaxSegmentSize(mss))
        && options.push(&TcpOption::Nop)
        && options.push(&TcpOption::WindowScale(7))
        && options.push(&TcpOption::SackPermitted);
    syn.options = options;
    syn
}

/// The segment in a frame that the victim sent to the attacker, and octets of its payload.
pub fn heard(frame: &[u8]) -> Option<(TcpHeader, usize)> {
    let (link, packet) = EthernetHeader::parse(frame).ok()?;
    let (ip, octets) = Ipv4Header::parse(packet).ok()?;
    if link.source != MAC || ip.destination != EVIL_V4 || ip.protocol != IpProtocol::TCP {
        return None;
    }
    TcpHeader::parse(octets).ok().map(|(header, payload)| (header, payload.len()))
}

/// That the segment with this number, of a connection of the victim's with somebody, did not get there: because of `code`, with
/// `mtu` where that says it.
pub fn complaint(code: u8, mtu: u16, ports: (u16, u16), to: Ipv4Addr, seq: SeqNumber) -> Vec<u8> {
    let mut quoted = [0; 8];
    quoted[..2].copy_from_slice(&ports.0.to_be_bytes());
    quoted[2..4].copy_from_slice(&ports.1.to_be_bytes());
    quoted[4..].copy_from_slice(&seq.0.to_be_bytes());
    let inner = Ipv4Header::new(V4, to, IpProtocol::TCP);
    let mut message = vec![3, code, 0, 0, 0, 0, 0, 0];
    message[6..8].copy_from_slice(&mtu.to_be_bytes());
    let mut packet = vec![0; inner.len() + 8];
    let _fits = inner.emit(&mut packet, 1460);
    packet[inner.len()..].copy_from_slice(&quoted);
    message.extend_from_slice(&packet);
    let sum = bypath_wire::checksum::checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    v4(&Ipv4Header::new(EVIL_V4, V4, IpProtocol::ICMP), &message)
}
