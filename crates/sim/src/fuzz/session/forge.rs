//! What an attacker says who knows the ends of a connection, and more or less of its numbers.

use super::app::FORGED;
use crate::fuzz::mend;
use bypath_wire::tcp_options::{SackBlock, SackBlocks};
use bypath_wire::{
    EtherType, EthernetHeader, Headers, Icmpv4Message, Icmpv6Message, IpProtocol, Ipv4Header, Ipv6Header,
    MacAddr, Network, SeqNumber, TcpFlags, TcpHeader, TcpOption, TcpOptions, Transport,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a side of the connection has said last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    /// Its number, and that behind what it said.
    pub seq: SeqNumber,
    pub next: SeqNumber,
    pub ack: SeqNumber,
    pub window: u16,
    pub timestamps: Option<(u32, u32)>,
}

/// How packets of a session look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub v6: bool,
    pub ethernet: bool,
}

/// Octets that decide, one after the other; behind the last one come zeros.
#[derive(Clone, Copy, Debug)]
pub(super) struct Octets<'a>(pub &'a [u8]);

impl Octets<'_> {
    pub fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn pair(&mut self) -> u16 {
        u16::from_le_bytes([self.next(), self.next()])
    }

    /// A number near 0, or anywhere.
    fn delta(&mut self) -> u32 {
        let (how, near) = (self.next(), self.pair() as i16);
        (i32::from(near) << [0, 0, 0, 4, 8, 16, 16, 0][usize::from(how & 7)]) as u32
    }
}

impl Shape {
    /// Octets in front of the packet.
    pub const fn link(self) -> usize {
        if self.ethernet { 14 } else { 0 }
    }

    pub fn address(self, side: usize) -> IpAddr {
        let n = side as u16 + 1;
        if self.v6 {
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n).into()
        } else {
            Ipv4Addr::new(10, 0, 0, n as u8).into()
        }
    }

    pub const fn mac(side: usize) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, side as u8])
    }

    fn emit(
        self,
        from: usize,
        protocol: IpProtocol,
        transport: Transport,
        payload: &[u8],
    ) -> Option<Vec<u8>> {
        let network = match (self.address(from), self.address(1 - from)) {
            (IpAddr::V4(from), IpAddr::V4(to)) => Network::V4(Ipv4Header::new(from, to, protocol)),
            (IpAddr::V6(from), IpAddr::V6(to)) => Network::V6(Ipv6Header::new(from, to, protocol)),
            _ => return None,
        };
        let link = EthernetHeader::new(Shape::mac(1 - from), Shape::mac(from), EtherType::IPV4);
        let headers = Headers { link: self.ethernet.then_some(link), network, transport };
        let mut frame = vec![0; 200 + payload.len()];
        let len = headers.emit(&mut frame, payload).ok()?;
        frame.truncate(len);
        Some(frame)
    }

    /// Its TCP header and octets of payload, if it is a segment.
    pub fn segment(self, frame: &[u8]) -> Option<(TcpHeader, usize)> {
        let packet = frame.get(self.link()..)?;
        let (protocol, segment) = if self.v6 {
            let (header, payload) = Ipv6Header::parse(packet).ok()?;
            (header.next_header, payload)
        } else {
            let (header, payload) = Ipv4Header::parse(packet).ok()?;
            (header.protocol, payload)
        };
        let (header, payload) = TcpHeader::parse(segment).ok().filter(|_| protocol == IpProtocol::TCP)?;
        Some((header, payload.len()))
    }
}

/// A segment that `from` did not send. Whether it begins something, too: then numbers may be anything.
pub(super) fn segment(
    shape: Shape,
    from: usize,
    ports: [u16; 2],
    said: &[Said; 2],
    octets: &mut Octets<'_>,
) -> Option<(Vec<u8>, bool)> {
    const FLAGS: [TcpFlags; 4] = [TcpFlags::ACK, TcpFlags::RST, TcpFlags::FIN, TcpFlags::SYN];
    let (own, other) = (&said[from], &said[1 - from]);
    let (bits, how) = (octets.next(), octets.next());
    let flags = match bits {
        0..128 => FLAGS[usize::from(bits & 3)] | if bits & 4 == 0 { TcpFlags::ACK } else { TcpFlags::NONE },
        _ => TcpFlags::from_bits(u16::from(bits) << 1 & 0x1ff | 0x10),
    };
    let seq = [own.next, other.ack, own.seq, SeqNumber(0)][usize::from(how & 3)] + octets.delta();
    let ack = [other.next, own.ack, other.seq, SeqNumber(0)][usize::from(how >> 2 & 3)] + octets.delta();
    let mut header = TcpHeader::new(ports[from], ports[1 - from]);
    (header.seq, header.ack, header.flags) = (seq, ack, flags);
    header.window = if how & 0x80 == 0 { own.window } else { octets.pair() };
    let mut options = TcpOptions::new();
    match how >> 4 & 7 {
        0 | 4 => {
            if let Some((value, echo)) = own.timestamps {
                let delta = if how & 0x40 == 0 { 0 } else { octets.delta() };
                options = TcpOptions::timestamps(value.wrapping_add(delta), echo);
            }
        }
        1 | 5 => {
            let mut blocks = SackBlocks::new();
            for _ in 0..=octets.next() & 3 {
                let left = other.next - u32::from(octets.pair());
                let _fits = blocks.push(SackBlock { left, right: left + octets.delta() });
            }
            let _fits = options.push(&TcpOption::Sack(blocks));
        }
        2 => {
            let len = usize::from(octets.next() % 41).min(octets.0.len());
            options = TcpOptions::from_bytes(&octets.0[..len]).unwrap_or_default();
            octets.0 = &octets.0[len..];
        }
        _ => {}
    }
    header.options = options;
    let len = octets.pair() & 0x7ff;
    let payload = vec![FORGED | len as u8; if len < 0x400 { 0 } else { usize::from(len & 0x3ff) * 2 }];
    let frame = shape.emit(from, IpProtocol::TCP, Transport::Tcp(header), &payload)?;
    Some((frame, flags.has(TcpFlags::SYN)))
}

/// What a router would say of a segment of `to`'s.
pub(super) fn complaint(
    shape: Shape,
    to: usize,
    ports: [u16; 2],
    said: &[Said; 2],
    octets: &mut Octets<'_>,
) -> Option<Vec<u8>> {
    let (kind, code) = (octets.next(), octets.next());
    let mut header = TcpHeader::new(ports[to], ports[1 - to]);
    header.seq = [said[to].seq, said[to].next][usize::from(kind >> 7)] + octets.delta();
    let rest = octets.pair();
    let quoted = shape.emit(to, IpProtocol::TCP, Transport::Tcp(header), &[])?;
    let quoted = &quoted[shape.link()..];
    let mut raw = vec![kind & 0x7f, code, 0, 0, 0, 0, 0, 0];
    raw[6..8].copy_from_slice(&rest.to_be_bytes());
    if shape.v6 {
        raw[0] = kind & 3 | 1;
        let message = Icmpv6Message::parse(&raw).ok()?.0;
        return shape.emit(1 - to, IpProtocol::ICMPV6, Transport::Icmpv6(message), quoted);
    }
    raw[0] = [3, 3, 3, 4, 11, 12, 5, 3][usize::from(kind & 7)];
    let message = Icmpv4Message::parse(&raw).ok()?.0;
    shape.emit(1 - to, IpProtocol::ICMP, Transport::Icmpv4(message), quoted)
}

/// Changes octets of a packet, at pairs of a place and what is different there.
pub(super) fn change(shape: Shape, frame: &mut [u8], octets: &mut Octets<'_>) {
    let link = shape.link();
    for [at, change] in octets.0.as_chunks::<2>().0 {
        if let Some(octet) = frame.get_mut(link + usize::from(*at)) {
            *octet ^= change;
        }
    }
    mend::packet(&mut frame[link..]);
}

/// Cuts a frame, or makes it longer; its header knows of it, or does not.
pub(super) fn cut(shape: Shape, frame: &mut Vec<u8>, octets: &mut Octets<'_>) {
    let (how, len, link) = (octets.next(), usize::from(octets.pair()), shape.link());
    frame.resize(link + len % (frame.len() - link + 40), FORGED);
    let (at, before) = if shape.v6 { (link + 4, link + 40) } else { (link + 2, link) };
    let said = if how & 2 == 0 { frame.len().saturating_sub(before) as u16 } else { octets.pair() };
    if how & 1 == 0
        && let Some(place) = frame.get_mut(at..at + 2)
    {
        place.copy_from_slice(&said.to_be_bytes());
    }
    mend::packet(&mut frame[link..]);
}
