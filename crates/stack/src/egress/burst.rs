//! A segment of many octets that is cut here, where the link does not cut: the headers are written once, and each frame has a copy
//! in which number, length and checksums are its own.

use super::Outgoing;
use super::segment::header;
use super::write::{Frame, ip_header, link_header};
use crate::iface::{IfaceId, Shape};
use crate::tcp::output::Segment;
use bypath_wire::checksum::Sum;
use bypath_wire::meta::ChecksumState;
use bypath_wire::seq::SeqNumber;
use bypath_wire::tcp::{self, CHECKSUM_OFFSET, TcpFlags};
use bypath_wire::{Addresses, IpProtocol, MacAddr};

/// Octets of Ethernet header with a tag, IPv6 header, and TCP header with all options.
const HEADERS: usize = 18 + 40 + 60;

/// What is left of a segment that is being cut.
#[derive(Debug)]
pub(crate) struct Burst {
    /// Whose it is, as far as that can be told without a look: its place, and its initial sequence number.
    pub index: u32,
    pub iss: SeqNumber,
    /// The number of the next octet, and how many there are.
    pub next: SeqNumber,
    pub left: u32,
    cut: u32,
    /// What stands in the last segment alone.
    last: TcpFlags,
    iface: IfaceId,
    pub addresses: Addresses,
    /// The headers, without what differs.
    headers: [u8; HEADERS],
    link: u8,
    ip: u8,
    len: u8,
    /// The device completes the checksum.
    partial: bool,
    /// Of IPv4's header without a length, and of TCP's without a number.
    ip_sum: Sum,
    tcp_sum: Sum,
}

/// Flags of the last segment alone.
const LAST: TcpFlags = TcpFlags::from_bits(TcpFlags::FIN.bits() | TcpFlags::PSH.bits());

impl Burst {
    /// Begins to cut. `None`: not even one fits into a frame of the link.
    pub fn new(
        shape: &Shape,
        outgoing: &Outgoing,
        mac: MacAddr,
        ports: (u16, u16),
        segment: &Segment,
        (index, iss): (u32, SeqNumber),
    ) -> Option<Burst> {
        let options = segment.options.padded();
        let tcp = tcp::HEADER_LEN + options.len();
        let mut headers = [0; HEADERS];
        let link = link_header(shape, outgoing, mac, &mut headers).ok()?;
        let ip = ip_header(outgoing, IpProtocol::TCP, 0, 0, false, &mut headers[link..]).ok()?;
        // Number and flags of the last segment come when they are written.
        let first = Segment { seq: SeqNumber(0), flags: segment.flags.without(LAST), ..*segment };
        header(headers.get_mut(link + ip..link + ip + tcp)?, ports, &first, options);
        if ip + tcp + segment.cut > shape.mtu {
            return None;
        }
        let len = link + ip + tcp;
        headers[link + length_at(&outgoing.addresses)..][..2].fill(0);
        if matches!(outgoing.addresses, Addresses::V4 { .. }) {
            headers[link + 10..link + 12].fill(0);
        }
        Some(Burst {
            index,
            iss,
            next: segment.seq,
            left: segment.len as u32,
            cut: segment.cut as u32,
            last: TcpFlags::from_bits(segment.flags.bits() & LAST.bits()),
            iface: outgoing.iface,
            addresses: outgoing.addresses,
            link: link as u8,
            ip: ip as u8,
            len: len as u8,
            partial: shape.offload.checksum,
            ip_sum: Sum::new().bytes(&headers[link..link + ip]),
            tcp_sum: outgoing.addresses.pseudo_header(IpProtocol::TCP, 0).bytes(&headers[link + ip..len]),
            headers,
        })
    }

    /// Octets of the next segment.
    #[inline]
    pub const fn next_len(&self) -> u32 {
        if self.left < self.cut { self.left } else { self.cut }
    }

    /// Writes the next segment. `None`: there is no room for it, and it is lost.
    #[inline]
    pub fn write(&mut self, (first, second): (&[u8], &[u8]), room: &mut [u8]) -> Option<Frame> {
        let octets = self.next_len();
        let (seq, is_last) = (self.next, octets == self.left);
        self.next += octets;
        self.left -= octets;
        let (link, ip, len) = (usize::from(self.link), usize::from(self.ip), usize::from(self.len));
        let all = len + octets as usize;
        let (headers, behind) = room.get_mut(..all)?.split_at_mut(len);
        headers.copy_from_slice(&self.headers[..len]);
        let segment = (all - link - ip) as u16;
        let at = link + length_at(&self.addresses);
        if matches!(self.addresses, Addresses::V4 { .. }) {
            let total = segment + u16::from(self.ip);
            headers[at..at + 2].copy_from_slice(&total.to_be_bytes());
            let sum = self.ip_sum.word(total).finish();
            headers[link + 10..link + 12].copy_from_slice(&sum.to_be_bytes());
        } else {
            headers[at..at + 2].copy_from_slice(&segment.to_be_bytes());
        }
        let tcp = &mut headers[link + ip..];
        tcp[4..8].copy_from_slice(&seq.0.to_be_bytes());
        let last = if is_last { self.last.bits() } else { 0 };
        tcp[13] |= last as u8;
        let (one, two) = behind.split_at_mut(first.len());
        let (checksum, sum) = if self.partial {
            one.copy_from_slice(first);
            two.copy_from_slice(second);
            let start = u16::from(self.link) + u16::from(self.ip);
            let sum = self.addresses.pseudo_header(IpProtocol::TCP, usize::from(segment)).folded();
            (ChecksumState::Partial { start, offset: CHECKSUM_OFFSET }, sum)
        } else {
            let mut sum = self.tcp_sum.word(segment).long(seq.0).word(last).copy(one, first);
            if !two.is_empty() {
                sum = sum.copy(two, second);
            }
            (ChecksumState::Unknown, sum.finish())
        };
        let field = usize::from(CHECKSUM_OFFSET);
        tcp[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        // RFC 3168, 6.1.2: it is told once.
        if self.headers[link + ip + 13] & TcpFlags::CWR.bits() as u8 != 0 {
            self.headers[link + ip + 13] &= !(TcpFlags::CWR.bits() as u8);
            self.tcp_sum = self.tcp_sum.word(!TcpFlags::CWR.bits());
        }
        Some(Frame { len: all, checksum, gso: None, iface: self.iface })
    }
}

/// Where in an IP header the length stands.
const fn length_at(addresses: &Addresses) -> usize {
    match addresses {
        Addresses::V4 { .. } => 2,
        Addresses::V6 { .. } => 4,
    }
}
