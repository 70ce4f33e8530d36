//! Frames of an engine's links for who looks on: pcapng in a queue with a bound, so that nobody who reads slowly holds the engine up. What does
//! not fit is dropped and counted, and the next frame that fits tells how many went before it.

use bypath_link::pcapng::writer::{Frame, Interface};
use bypath_link::pcapng::{Counts, Direction, ETHERNET, RAW_IP, Reception, Writer};
use bypath_link::{Capabilities, FrameMeta, Medium};
use bypath_stack::iface::IfaceId;
use bypath_sys::clock;
use bypath_wire::dissect::{First, Header, dissect};
use bypath_wire::meta::{Addressed, TimestampSource};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::net::IpAddr;

/// Octets that wait for their reader at most.
const MOST: usize = 8 << 20;
/// Octets of a block beside those of its frame, at most.
const BLOCK: usize = 128;
/// Octets of a frame in which headers are looked for.
const HEADERS: usize = 256;
/// Octets of both addresses of an Ethernet frame.
const ADDRESSES: usize = 12;

/// Which frames are wanted; all that is said has to be true of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// From or to this host; in ARP, too.
    pub host: Option<IpAddr>,
    /// From or to this port of TCP or UDP. Fragments behind the first one have none.
    pub port: Option<u16>,
    /// Number of the protocol in IP: 1 ICMP, 6 TCP, 17 UDP, 58 ICMPv6.
    pub protocol: Option<u8>,
}

impl Filter {
    /// Whether a frame is wanted.
    pub fn takes(&self, frame: &[u8], first: First) -> bool {
        if *self == Filter::default() {
            return true;
        }
        let (mut host, mut port, mut protocol) =
            (self.host.is_none(), self.port.is_none(), self.protocol.is_none());
        let mut has = |number: u8| protocol |= self.protocol == Some(number);
        for layer in dissect(&frame[..frame.len().min(HEADERS)], first).take_while(|layer| !layer.quoted) {
            let mut between = |ends: [IpAddr; 2]| host |= self.host.is_some_and(|host| ends.contains(&host));
            match layer.header {
                Header::Arp(arp) => between([arp.sender_ip.into(), arp.target_ip.into()]),
                Header::Ipv4(ip, _) => {
                    between([ip.source.into(), ip.destination.into()]);
                    has(ip.protocol.0);
                }
                Header::Ipv6(ip) => {
                    between([ip.source.into(), ip.destination.into()]);
                    has(ip.next_header.0);
                }
                Header::Extension(extension) => has(extension.next_header.0),
                Header::Udp(udp, _) => {
                    port |= self.port.is_some_and(|p| [udp.source_port, udp.destination_port].contains(&p))
                }
                Header::Tcp(tcp, _) => {
                    port |= self.port.is_some_and(|p| [tcp.source_port, tcp.destination_port].contains(&p))
                }
                _ => {}
            }
        }
        host && port && protocol
    }
}

/// How much was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapCounts {
    /// Frames that were written.
    pub frames: u64,
    /// Their octets.
    pub octets: u64,
    /// Wanted ones for which there was no room.
    pub dropped: u64,
}

/// One who looks on.
pub struct Tap {
    writer: Writer<VecDeque<u8>>,
    /// Which interfaces it sees, in the order in which the file has them, and what their frames begin with.
    interfaces: Vec<(IfaceId, First)>,
    filter: Filter,
    /// Frames that are still wanted.
    left: u64,
    counts: TapCounts,
    /// Dropped since the last frame that was written.
    lost: u64,
    /// The beginning of a frame with its tag where it stands on the wire.
    head: Vec<u8>,
    begun: u64,
    ended: bool,
}

/// A frame that passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passing<'a> {
    pub iface: IfaceId,
    /// It comes in.
    pub ingress: bool,
    pub head: &'a [u8],
    pub behind: (&'a [u8], &'a [u8]),
    pub meta: &'a FrameMeta,
}

impl Tap {
    /// Of these interfaces, named; `count` frames at most, of each so many octets.
    ///
    /// `None`: there are none to be seen.
    ///
    /// # Errors
    /// None: it writes into memory.
    pub(crate) fn new<'a>(
        links: impl Iterator<Item = (IfaceId, &'a str, Capabilities)>,
        filter: Filter,
        count: Option<u64>,
        snap: usize,
    ) -> io::Result<Option<Tap>> {
        let application = concat!("bypath ", env!("CARGO_PKG_VERSION"));
        let mut writer = Writer::new(VecDeque::new(), application, snap)?;
        let mut interfaces = Vec::new();
        for (iface, name, can) in links {
            let (first, link_type, mac) = match can.medium {
                Medium::Ethernet => (First::Ethernet, ETHERNET, Some(can.mac)),
                Medium::Ip => (First::Ip, RAW_IP, None),
            };
            writer.describe(&Interface { name, link_type, mac, comment: None })?;
            interfaces.push((iface, first));
        }
        if interfaces.is_empty() {
            return Ok(None);
        }
        Ok(Some(Tap {
            writer,
            interfaces,
            filter,
            left: count.unwrap_or(u64::MAX),
            counts: TapCounts::default(),
            lost: 0,
            head: Vec::new(),
            begun: clock::realtime_ns(),
            ended: false,
        }))
    }

    /// Writes a frame, if it is wanted and there is room.
    pub(crate) fn see(&mut self, frame: &Passing<'_>) {
        let Some(interface) = self.interfaces.iter().position(|(iface, _)| *iface == frame.iface) else {
            return;
        };
        if self.ended || self.left == 0 || !self.filter.takes(frame.head, self.interfaces[interface].1) {
            return;
        }
        let len = frame.head.len() + frame.behind.0.len() + frame.behind.1.len();
        if self.writer.inner().len() + len + BLOCK > MOST {
            self.counts.dropped += 1;
            self.lost += 1;
            return;
        }
        self.head.clear();
        match frame.meta.vlan {
            Some(vlan) if frame.head.len() >= ADDRESSES => {
                self.head.extend_from_slice(&frame.head[..ADDRESSES]);
                self.head.extend_from_slice(&vlan.tpid.to_be_bytes());
                self.head.extend_from_slice(&vlan.tci().to_be_bytes());
                self.head.extend_from_slice(&frame.head[ADDRESSES..]);
            }
            _ => self.head.extend_from_slice(frame.head),
        }
        let ns = match frame.meta.timestamp {
            // A device's clock may begin anywhere.
            Some(t) if frame.ingress && t.source == TimestampSource::Software => t.ns,
            _ => clock::realtime_ns(),
        };
        let reception = match frame.meta.addressed {
            _ if !frame.ingress => Reception::Unknown,
            Addressed::Host => Reception::Unicast,
            Addressed::Broadcast => Reception::Broadcast,
            Addressed::Multicast => Reception::Multicast,
            Addressed::OtherHost => Reception::Promiscuous,
            Addressed::Unknown | Addressed::Outgoing => Reception::Unknown,
        };
        let block = Frame {
            interface: interface as u32,
            ns,
            pieces: [&self.head, frame.behind.0, frame.behind.1],
            direction: if frame.ingress { Direction::In } else { Direction::Out },
            reception,
            lost: Some(self.lost).filter(|lost| *lost > 0),
            ..Frame::default()
        };
        // Memory takes everything.
        if self.writer.frame(&block).is_ok() {
            (self.lost, self.left) = (0, self.left - 1);
            self.counts.frames += 1;
            self.counts.octets += len as u64;
        }
    }

    /// As many frames as were wanted have been written.
    pub const fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Ends the file: nothing more is written but what was counted.
    pub fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            let now = clock::realtime_ns();
            let TapCounts { frames, dropped, .. } = self.counts;
            let counts = Counts {
                start: Some(self.begun),
                end: Some(now),
                received: Some(frames + dropped),
                dropped: Some(dropped),
            };
            // Of one interface, as of all: they are counted together.
            let _always = self.writer.statistics(0, now, &counts);
        }
    }

    /// What was counted.
    pub const fn counts(&self) -> TapCounts {
        self.counts
    }

    /// Whether octets wait.
    pub fn is_empty(&mut self) -> bool {
        self.writer.inner().is_empty()
    }

    /// Hands on octets that wait, as far as `to` takes them with one call.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn hand_on(&mut self, mut to: impl Write) -> io::Result<usize> {
        let waiting = self.writer.inner();
        let n = to.write(waiting.as_slices().0)?;
        waiting.drain(..n);
        Ok(n)
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap").field("counts", &self.counts).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bypath_wire::{EtherType, EthernetHeader, IpProtocol, Ipv4Header, MacAddr};

    /// A datagram of UDP from 10.0.0.1:1000 to 10.0.0.2:53.
    fn frame() -> Vec<u8> {
        let mut all = vec![0; 14 + 20 + 8 + 4];
        let link = EthernetHeader::new(MacAddr([2; 6]), MacAddr([4; 6]), EtherType::IPV4);
        link.emit(&mut all).expect("room");
        let ip = Ipv4Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), IpProtocol::UDP);
        ip.emit(&mut all[14..], 12).expect("room");
        all[34..38].copy_from_slice(&[1000u16.to_be_bytes(), 53u16.to_be_bytes()].concat());
        all[38..40].copy_from_slice(&12u16.to_be_bytes());
        all
    }

    #[test]
    fn a_filter_takes_what_it_names() {
        let frame = frame();
        let takes = |filter: Filter| filter.takes(&frame, First::Ethernet);
        let (none, host) = (Filter::default(), |text: &str| text.parse().ok());
        assert!(takes(none) && takes(Filter { host: host("10.0.0.2"), ..none }));
        assert!(takes(Filter { port: Some(53), protocol: Some(17), host: host("10.0.0.1") }));
        assert!(
            !takes(Filter { host: host("10.0.0.3"), ..none }) && !takes(Filter { protocol: Some(6), ..none })
        );
        assert!(!takes(Filter { port: Some(54), protocol: Some(17), ..none }));
        assert!(Filter { port: Some(1000), ..none }.takes(&frame[14..], First::Ip));
        assert!(!Filter { port: Some(1000), ..none }.takes(&frame[..30], First::Ethernet));
    }
}
