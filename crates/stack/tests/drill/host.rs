//! The stack that is looked at, with its one link, in virtual time: packets go in, and those that come out wait in order, each
//! with its time. Sums and lengths of what comes out are checked here.

use super::script::Nanos;
use bypath_stack::Stack;
use bypath_stack::config::Config;
use bypath_stack::iface::{IfaceConfig, IfaceId, Medium, Offload};
use bypath_stack::time::Instant;
use bypath_wire::icmpv4::{self, Icmpv4Message};
use bypath_wire::icmpv6::{self, Icmpv6Message};
use bypath_wire::ip::{Ecn, TrafficClass};
use bypath_wire::tcp::TcpHeader;
use bypath_wire::{Addresses, FrameMeta, IpProtocol, Ipv4Header, Ipv6Header, tcp};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Scripts begin at this time of the stack's clock.
const START: Nanos = 1_000_000_000;

const LOCAL_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const REMOTE_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const LOCAL_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const REMOTE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

/// A segment that came out.
pub struct Came {
    pub at: Nanos,
    pub header: TcpHeader,
    pub payload: Vec<u8>,
    pub ecn: u8,
}

pub struct Host {
    pub stack: Stack,
    pub iface: IfaceId,
    pub now: Nanos,
    pub came: VecDeque<Came>,
    pub v6: bool,
    mtu: usize,
}

impl Host {
    pub fn new(config: Config, v6: bool, mtu: usize) -> Host {
        let mut stack = Stack::new(config, [7; 32]);
        let iface =
            stack.add_iface(IfaceConfig { medium: Medium::Ip, mtu, offload: Offload::default() }).unwrap();
        let prefix = if v6 { format!("{LOCAL_V6}/64") } else { format!("{LOCAL_V4}/24") };
        stack.add_address(Instant::ZERO, iface, prefix.parse().unwrap()).unwrap();
        let mut host = Host { stack, iface, now: 0, came: VecDeque::new(), v6, mtu };
        host.settle().unwrap();
        host
    }

    pub fn clock(&self) -> Instant {
        Instant::from_nanos(START + self.now)
    }

    pub fn remote(&self) -> IpAddr {
        if self.v6 { REMOTE_V6.into() } else { REMOTE_V4.into() }
    }

    /// From the other side to the stack.
    fn addresses(&self) -> Addresses {
        if self.v6 {
            Addresses::V6 { source: REMOTE_V6, destination: LOCAL_V6 }
        } else {
            Addresses::V4 { source: REMOTE_V4, destination: LOCAL_V4 }
        }
    }

    /// When something is due next.
    pub fn due(&self) -> Option<Nanos> {
        self.stack.poll_timeout().map(|at| at.as_nanos().saturating_sub(START).max(self.now))
    }

    /// Lets the stack do what is due, and takes what it sends.
    pub fn settle(&mut self) -> Result<(), String> {
        let now = self.clock();
        // Two rounds: what is sent may be due to something else.
        for _ in 0..2 {
            if self.stack.poll_timeout().is_some_and(|due| due <= now) {
                self.stack.handle_timeout(now);
            }
            let mut room = vec![0; 65_600];
            let mut count = 0;
            while let Some((len, _)) = self.stack.poll_transmit(now, self.iface, &mut room) {
                self.take(&room[..len])?;
                count += 1;
                if count > 100_000 {
                    return Err("the stack sends without end".to_string());
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, packet: &[u8]) -> Result<(), String> {
        if packet.len() > self.mtu {
            return Err(format!("a packet of {} octets came", packet.len()));
        }
        let (addresses, protocol, class, payload, whole) = if self.v6 {
            let (header, payload) = Ipv6Header::parse(packet).map_err(|e| e.to_string())?;
            (header.addresses(), header.next_header, header.class, payload, 40 + payload.len())
        } else {
            // Looks at the header's checksum, too.
            let (header, payload) = Ipv4Header::parse(packet).map_err(|e| e.to_string())?;
            let whole = header.len() + payload.len();
            (header.addresses(), header.protocol, header.class, payload, whole)
        };
        if whole != packet.len() {
            return Err(format!("a packet of {} octets came that says it has {whole}", packet.len()));
        }
        if protocol != IpProtocol::TCP {
            return Ok(());
        }
        if addresses != self.addresses().reversed() {
            return Err(format!("a segment came with the addresses {addresses:?}"));
        }
        if !tcp::verify(&addresses, payload) {
            return Err("a segment came with a wrong checksum".to_string());
        }
        let (header, payload) = TcpHeader::parse(payload).map_err(|e| e.to_string())?;
        let came = Came { at: self.now, header, payload: payload.to_vec(), ecn: class.ecn() as u8 };
        self.came.push_back(came);
        Ok(())
    }

    /// A segment from the other side.
    pub fn hand(&mut self, header: &TcpHeader, payload: &[u8], ecn: u8) {
        let addresses = self.addresses();
        let mut segment = vec![0; header.len() + payload.len()];
        header.emit_with(&mut segment, &addresses, payload).unwrap();
        let ecn = [Ecn::NotCapable, Ecn::Capable1, Ecn::Capable0, Ecn::Experienced][usize::from(ecn & 3)];
        self.hand_packet(IpProtocol::TCP, TrafficClass::new(0, ecn), &segment);
    }

    fn hand_packet(&mut self, protocol: IpProtocol, class: TrafficClass, payload: &[u8]) {
        let packet = self.packet(protocol, class, payload, 0, false);
        self.stack.handle_frame(self.clock(), self.iface, &packet, &FrameMeta::default());
    }

    /// A packet from the other side, or from us; so many more octets are cut off.
    fn packet(
        &self,
        protocol: IpProtocol,
        class: TrafficClass,
        payload: &[u8],
        cut_off: usize,
        ours: bool,
    ) -> Vec<u8> {
        let addresses = self.addresses();
        let addresses = if ours { addresses.reversed() } else { addresses };
        let mut packet = vec![0; 40 + payload.len()];
        let len = match addresses {
            Addresses::V4 { source, destination } => {
                let header = Ipv4Header { class, ..Ipv4Header::new(source, destination, protocol) };
                header.emit(&mut packet, payload.len() + cut_off).unwrap()
            }
            Addresses::V6 { source, destination } => {
                let header = Ipv6Header { class, ..Ipv6Header::new(source, destination, protocol) };
                header.emit(&mut packet, payload.len() + cut_off).unwrap()
            }
        };
        packet[len..len + payload.len()].copy_from_slice(payload);
        packet.truncate(len + payload.len());
        packet
    }

    /// An ICMP error about a segment of ours; kinds and codes are those of packetdrill.
    pub fn hand_error(
        &mut self,
        kind: &str,
        code: &str,
        mtu: Option<u32>,
        about: &TcpHeader,
        octets: usize,
    ) -> Result<(), String> {
        let mut segment = vec![0; 60];
        about.emit(&mut segment).unwrap();
        segment.truncate(20);
        let quoted = self.packet(IpProtocol::TCP, TrafficClass::default(), &segment, octets, true);
        let mut message = vec![0; 8 + quoted.len()];
        let mtu = mtu.unwrap_or(0);
        let protocol = if self.v6 {
            let head = match (kind, code) {
                ("packet_too_big", _) => Icmpv6Message::PacketTooBig { mtu },
                ("time_exceeded", _) => Icmpv6Message::TimeExceeded { code: 0 },
                ("unreachable", "admin_prohibited") => {
                    Icmpv6Message::Unreachable { code: icmpv6::unreachable::PROHIBITED }
                }
                ("unreachable", "address_unreachable") => {
                    Icmpv6Message::Unreachable { code: icmpv6::unreachable::ADDRESS }
                }
                ("unreachable", "port_unreachable") => {
                    Icmpv6Message::Unreachable { code: icmpv6::unreachable::PORT }
                }
                ("unreachable", _) => Icmpv6Message::Unreachable { code: icmpv6::unreachable::NO_ROUTE },
                _ => return Err(format!("icmp {kind} {code} is not understood")),
            };
            head.emit_with(&mut message, &self.addresses(), &quoted).unwrap();
            IpProtocol::ICMPV6
        } else {
            let number = match (kind, code) {
                ("unreachable", "net_unreachable") => icmpv4::unreachable::NET,
                ("unreachable", "host_unreachable") => icmpv4::unreachable::HOST,
                ("unreachable", "protocol_unreachable") => icmpv4::unreachable::PROTOCOL,
                ("unreachable", "port_unreachable") => icmpv4::unreachable::PORT,
                ("unreachable", "frag_needed") => icmpv4::unreachable::FRAGMENTATION_NEEDED,
                ("unreachable", "source_route_failed") => 5,
                ("unreachable", "admin_prohibited" | "pkt_filtered") => icmpv4::unreachable::PROHIBITED,
                ("source_quench" | "time_exceeded", _) => 0,
                _ => return Err(format!("icmp {kind} {code} is not understood")),
            };
            let head = match kind {
                "source_quench" => Icmpv4Message::Other { kind: 4, code: 0, rest: [0; 4] },
                "time_exceeded" => Icmpv4Message::TimeExceeded { code: 0 },
                _ => Icmpv4Message::Unreachable { code: number, mtu: mtu as u16 },
            };
            head.emit_with(&mut message, &quoted).unwrap();
            IpProtocol::ICMP
        };
        self.hand_packet(protocol, TrafficClass::default(), &message);
        Ok(())
    }
}
