//! Datagrams in.

use super::reassembly::Key;
use super::{Datagram, Received, Udp};
use crate::tun::Refused;
use crate::tun::device::Patience;
use crate::{Error, FrameMeta, Result};
use bypath_sys::clock;
use bypath_wire::meta::{ChecksumState, GsoKind};
use bypath_wire::udp::{UdpChecksum, verify};
use bypath_wire::{
    Addresses, IpProtocol, Ipv4Header, Ipv6Header, TrafficClass, UdpHeader, icmpv4, icmpv6, ipv6_ext,
};
use std::net::{IpAddr, SocketAddr};

const UDP: usize = bypath_wire::udp::HEADER_LEN;

/// A packet that was read, and what of it was not given out yet.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    place: Place,
    /// The first octet that was not given out.
    at: usize,
    end: usize,
    /// Octets of each datagram but the last.
    size: usize,
    source: SocketAddr,
    class: TrafficClass,
    ttl: u8,
}

/// Where its octets are.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the device's buffer.
    Frame { len: usize },
    /// Put together from fragments.
    Whole((usize, usize)),
}

/// What a packet is.
enum Packet {
    Datagrams(Held),
    Fragment { key: Key, offset: usize, more: bool, from: usize, to: usize, class: TrafficClass, ttl: u8 },
    Unreachable(SocketAddr),
    Other,
    Malformed,
    Corrupt,
}

impl Udp {
    /// Waits for a datagram and copies it into `buffer`, as much as there is room for.
    ///
    /// # Errors
    /// [`Error::TimedOut`], or [`Error::WouldBlock`] with a time of zero; [`Refused::Unreachable`] once when somebody's
    /// host answered that nobody takes what was sent; [`Error::Gone`]; [`Error::Interrupted`].
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<Received> {
        let mut got = None;
        self.receive_batch(1, |d| {
            let len = d.payload.len().min(buffer.len());
            buffer[..len].copy_from_slice(&d.payload[..len]);
            let Datagram { payload, source, class, ttl } = d;
            got = Some(Received { len, whole: payload.len(), source, class, ttl });
        })?;
        got.ok_or(Error::WouldBlock)
    }

    /// Waits for datagrams, and gives up to `most` that are there to `each`, in order; returns how many. Those of a
    /// super-packet come out of one read, and nothing is copied.
    ///
    /// # Errors
    /// Those of [`receive`](Udp::receive).
    pub fn receive_batch(&mut self, most: usize, mut each: impl FnMut(Datagram<'_>)) -> Result<usize> {
        let mut given = 0;
        let mut patience = Patience::new(self.timeout);
        while given < most {
            if self.held.is_none() {
                match self.next_packet() {
                    Ok(true) => {}
                    // Both come again.
                    Ok(false) | Err(_) if given > 0 => break,
                    Ok(false) => {
                        self.sleep(&mut patience)?;
                        continue;
                    }
                    Err(e) => {
                        self.unreachable = None;
                        return Err(e);
                    }
                }
            }
            given += self.give(most - given, &mut each);
        }
        Ok(given)
    }

    fn sleep(&self, patience: &mut Patience) -> Result<()> {
        if self.timeout.is_some_and(|t| t.is_zero()) {
            return Err(Error::WouldBlock);
        }
        self.device.wait(patience.left()?).map(|_| ())
    }

    /// Gives out what is held.
    fn give(&mut self, most: usize, each: &mut dyn FnMut(Datagram<'_>)) -> usize {
        let Some(mut held) = self.held.take() else { return 0 };
        let bytes = match held.place {
            Place::Frame { len } => self.device.frame(len),
            Place::Whole(place) => self.reassembly.bytes(place),
        };
        let mut given = 0;
        while given < most {
            let end = held.end.min(held.at + held.size);
            let Held { source, class, ttl, .. } = held;
            each(Datagram { payload: &bytes[held.at..end], source, class, ttl });
            given += 1;
            held.at = end;
            if end == held.end {
                return given;
            }
        }
        self.held = Some(held);
        given
    }

    /// Reads packets until one is to be given out. False: there is none.
    fn next_packet(&mut self) -> Result<bool> {
        loop {
            // Until it is told: the call may have datagrams to give out first.
            if let Some(peer) = self.unreachable {
                return Err(Refused::Unreachable { peer }.into());
            }
            let Some((len, meta)) = self.device.read()? else { return Ok(false) };
            match self.look(len, &meta) {
                Packet::Datagrams(held) => {
                    self.held = Some(held);
                    return Ok(true);
                }
                Packet::Fragment { key, offset, more, from, to, class, ttl } => {
                    self.counts.fragments += 1;
                    let bytes = &self.device.frame(len)[from..to];
                    let Some(whole) = self.reassembly.add(clock::monotonic_ns(), key, offset, bytes, more)
                    else {
                        continue;
                    };
                    let datagram = self.reassembly.bytes(whole);
                    match self.datagram(
                        datagram,
                        key,
                        Place::Whole(whole),
                        0,
                        &FrameMeta::default(),
                        class,
                        ttl,
                    ) {
                        Packet::Datagrams(held) => {
                            self.held = Some(held);
                            return Ok(true);
                        }
                        other => self.count(&other),
                    }
                }
                Packet::Unreachable(peer) => {
                    self.counts.others += 1;
                    self.unreachable = Some(peer);
                }
                other => self.count(&other),
            }
        }
    }

    const fn count(&mut self, packet: &Packet) {
        match packet {
            Packet::Other => self.counts.others += 1,
            Packet::Malformed => self.counts.malformed += 1,
            Packet::Corrupt => self.counts.corrupt += 1,
            Packet::Datagrams(_) | Packet::Fragment { .. } | Packet::Unreachable(_) => {}
        }
    }

    /// What the packet is that was read.
    fn look(&self, len: usize, meta: &FrameMeta) -> Packet {
        let frame = self.device.frame(len);
        match (bypath_wire::ip::version(frame), self.local) {
            (Some(4), SocketAddr::V4(_)) => self.look_v4(frame, meta),
            (Some(6), SocketAddr::V6(_)) => self.look_v6(frame, meta),
            (Some(4 | 6), _) => Packet::Other,
            _ => Packet::Malformed,
        }
    }

    fn look_v4(&self, frame: &[u8], meta: &FrameMeta) -> Packet {
        let Ok((ip, payload)) = Ipv4Header::parse(frame) else { return Packet::Malformed };
        if self.local.ip() != ip.destination {
            return Packet::Other;
        }
        let from = ip.len();
        let identification = u32::from(ip.identification);
        let key = Key { source: ip.source.into(), destination: ip.destination.into(), identification };
        match ip.protocol {
            IpProtocol::UDP if ip.is_fragment() => Packet::Fragment {
                key,
                offset: usize::from(ip.fragment_offset),
                more: ip.more_fragments,
                from,
                to: from + payload.len(),
                class: ip.class,
                ttl: ip.ttl,
            },
            IpProtocol::UDP => {
                let place = Place::Frame { len: frame.len() };
                self.datagram(payload, key, place, from, meta, ip.class, ip.ttl)
            }
            // Destination unreachable, port unreachable (RFC 792), and four octets before what was sent.
            IpProtocol::ICMP if ip.is_fragment() => Packet::Other,
            IpProtocol::ICMP if meta.checksum == ChecksumState::Unknown && !icmpv4::is_intact(payload) => {
                Packet::Corrupt
            }
            IpProtocol::ICMP => match payload {
                [3, 3, _, _, _, _, _, _, quoted @ ..] => match Ipv4Header::parse_header(quoted) {
                    Ok((sent, extent)) if sent.protocol == IpProtocol::UDP => {
                        let (from, to) = (sent.source.into(), sent.destination.into());
                        self.complained(from, to, quoted.get(extent.header_len..))
                    }
                    _ => Packet::Other,
                },
                _ => Packet::Other,
            },
            _ => Packet::Other,
        }
    }

    fn look_v6(&self, frame: &[u8], meta: &FrameMeta) -> Packet {
        let Ok((ip, payload)) = Ipv6Header::parse(frame) else { return Packet::Malformed };
        if self.local.ip() != ip.destination {
            return Packet::Other;
        }
        let from = bypath_wire::ipv6::HEADER_LEN;
        let mut key = Key { source: ip.source.into(), destination: ip.destination.into(), identification: 0 };
        match ip.next_header {
            IpProtocol::UDP => {
                let place = Place::Frame { len: frame.len() };
                self.datagram(payload, key, place, from, meta, ip.class, ip.hop_limit)
            }
            IpProtocol::FRAGMENT => {
                let Some((head, rest)) = payload.split_first_chunk::<{ ipv6_ext::FRAGMENT_LEN }>() else {
                    return Packet::Malformed;
                };
                if head[0] != IpProtocol::UDP.0 {
                    return Packet::Other;
                }
                let place = u16::from_be_bytes([head[2], head[3]]);
                key.identification = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
                let from = from + head.len();
                let (offset, more) = (usize::from(place & !7), place & 1 != 0);
                let (class, ttl) = (ip.class, ip.hop_limit);
                Packet::Fragment { key, offset, more, from, to: from + rest.len(), class, ttl }
            }
            // Destination unreachable, port unreachable (RFC 4443, 3.1).
            IpProtocol::ICMPV6
                if meta.checksum == ChecksumState::Unknown
                    && !icmpv6::verify(
                        &Addresses::V6 { source: ip.source, destination: ip.destination },
                        payload,
                    ) =>
            {
                Packet::Corrupt
            }
            IpProtocol::ICMPV6 => match payload {
                [1, 4, _, _, _, _, _, _, quoted @ ..] => match Ipv6Header::parse_header(quoted) {
                    Ok((sent, _)) if sent.next_header == IpProtocol::UDP => {
                        self.complained(sent.source.into(), sent.destination.into(), quoted.get(from..))
                    }
                    _ => Packet::Other,
                },
                _ => Packet::Other,
            },
            _ => Packet::Other,
        }
    }

    /// What a host says about a datagram of ours.
    fn complained(&self, from: IpAddr, to: IpAddr, datagram: Option<&[u8]>) -> Packet {
        match UdpHeader::parse_header(datagram.unwrap_or(&[])) {
            Ok((sent, _)) if (from, sent.source_port) == (self.local.ip(), self.local.port()) => {
                Packet::Unreachable(SocketAddr::new(to, sent.destination_port))
            }
            _ => Packet::Other,
        }
    }

    /// A datagram, or several in a super-packet, which begins at `from` of its place.
    #[expect(
        clippy::too_many_arguments,
        reason = "they are a packet's facts, each known to one of two callers"
    )]
    fn datagram(
        &self,
        datagram: &[u8],
        key: Key,
        place: Place,
        from: usize,
        meta: &FrameMeta,
        class: TrafficClass,
        ttl: u8,
    ) -> Packet {
        let Ok((udp, payload)) = UdpHeader::parse(datagram) else { return Packet::Malformed };
        if udp.destination_port != self.local.port() {
            return Packet::Other;
        }
        if meta.checksum == ChecksumState::Unknown {
            let addresses = match (key.source, key.destination) {
                (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 { source, destination },
                (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6 { source, destination },
                _ => return Packet::Malformed,
            };
            match verify(&addresses, datagram) {
                UdpChecksum::Fits => {}
                UdpChecksum::Absent if self.local.is_ipv4() => {}
                _ => return Packet::Corrupt,
            }
        }
        let at = from + UDP;
        let size = match meta.gso {
            Some(gso) if gso.kind == GsoKind::Udp && gso.size > 0 => usize::from(gso.size),
            _ => payload.len(),
        };
        let source = SocketAddr::new(key.source, udp.source_port);
        Packet::Datagrams(Held { place, at, end: at + payload.len(), size, source, class, ttl })
    }
}
