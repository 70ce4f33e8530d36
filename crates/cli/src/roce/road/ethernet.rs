//! Packets as frames of an interface, with an address of our own. Neighbours are asked for by ARP, and answered; of whom a
//! RoCEv2 packet comes, the hardware address is known from it.

use super::{Road, between, is_to, own_port, receive_by, send_by};
use crate::output::Failure;
use crate::raw;
use bypath::l2::{Interface, MacAddr};
use bypath::link::Link;
use bypath::link::packet::{Config, Mode, PacketLink};
use bypath::roce::Device;
use bypath::wire::arp::{ArpOperation, ArpPacket};
use bypath::wire::roce::{Envelope, PORT};
use bypath::wire::{EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv6Header, TrafficClass};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// Neighbours that are remembered at most, and frames of ARP that wait at most.
const MOST: usize = 64;
/// Octets of an Ethernet header and an ARP packet.
const ARP_FRAME: usize = 42;

/// An interface, and an address on it.
pub struct Ethernet {
    link: PacketLink,
    interface: Interface,
    address: IpAddr,
    /// Whoever it is that is sent to, if that was told.
    to: Option<MacAddr>,
    neighbours: Neighbours,
    /// Frames of ARP that wait.
    asked: VecDeque<[u8; ARP_FRAME]>,
    port: u16,
    full: bool,
}

impl Ethernet {
    pub fn open(interface: &str, address: IpAddr, to: Option<MacAddr>) -> Result<Ethernet, Failure> {
        let found = Interface::named(interface).map_err(raw::failed)?;
        let ethertypes = vec![EtherType::IPV4.0, EtherType::IPV6.0, EtherType::ARP.0];
        let config = Config { mode: Mode::MMSG, ethertypes, ..Config::new(interface) };
        let link = PacketLink::open(&config).map_err(raw::failed)?;
        Ok(Ethernet {
            link,
            interface: found,
            address,
            to,
            neighbours: Neighbours::default(),
            asked: VecDeque::new(),
            port: own_port(),
            full: false,
        })
    }
}

/// Who is where.
#[derive(Default)]
struct Neighbours {
    known: HashMap<IpAddr, MacAddr>,
    /// The last one that was heard.
    last: Option<(IpAddr, MacAddr)>,
}

impl Neighbours {
    /// One takes the place of another if there are too many: who is asked for again answers again.
    fn know(&mut self, ip: IpAddr, mac: MacAddr) {
        if self.known.len() >= MOST
            && !self.known.contains_key(&ip)
            && let Some(other) = self.known.keys().next().copied()
        {
            self.known.remove(&other);
            self.last = None;
        }
        self.known.insert(ip, mac);
    }

    /// Hears ARP; what is to be answered.
    fn hear(&mut self, packet: &[u8], own: IpAddr, mac: MacAddr) -> Option<[u8; ARP_FRAME]> {
        let arp = ArpPacket::parse(packet).ok().filter(|arp| own == arp.target_ip)?;
        if !arp.is_probe() {
            self.know(arp.sender_ip.into(), arp.sender_mac);
        }
        if arp.operation != ArpOperation::REQUEST {
            return None;
        }
        arp_frame(&EthernetHeader::new(arp.sender_mac, mac, EtherType::ARP), &arp.reply(mac))
    }

    /// Knows from whom a RoCEv2 packet comes. Those of one conversation come from one, most of the time.
    fn see(&mut self, packet: &[u8], mac: MacAddr) {
        let (source, is_roce) = if let Ok((ip, datagram)) = Ipv4Header::parse(packet) {
            (ip.source.into(), is_roce(ip.protocol, datagram))
        } else if let Ok((ip, datagram)) = Ipv6Header::parse(packet) {
            (ip.source.into(), is_roce(ip.next_header, datagram))
        } else {
            return;
        };
        if is_roce && self.last != Some((source, mac)) {
            self.last = Some((source, mac));
            self.know(source, mac);
        }
    }
}

fn is_roce(protocol: IpProtocol, datagram: &[u8]) -> bool {
    protocol == IpProtocol::UDP && datagram.get(2..4) == Some(&PORT.to_be_bytes())
}

fn arp_frame(header: &EthernetHeader, packet: &ArpPacket) -> Option<[u8; ARP_FRAME]> {
    let mut frame = [0; ARP_FRAME];
    let len = header.emit(&mut frame).ok()?;
    packet.emit(&mut frame[len..]).ok()?;
    Some(frame)
}

impl Road for Ethernet {
    fn name(&self) -> String {
        format!("interface {}, address {}", self.interface.name, self.address)
    }

    fn interface(&self) -> String {
        self.interface.name.clone()
    }

    fn mtu(&self) -> usize {
        self.interface.mtu as usize
    }

    fn window(&self) -> u32 {
        256
    }

    fn way(&mut self, to: IpAddr) -> Result<Option<Envelope>, Failure> {
        let mac = self.interface.mac;
        let known = self.neighbours.known.get(&to).copied().or(self.to);
        let network = between(self.address, to, TrafficClass(0))?;
        match (self.address, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) if known.is_none() && self.asked.len() < MOST => {
                let header = EthernetHeader::new(MacAddr::BROADCAST, mac, EtherType::ARP);
                self.asked.extend(arp_frame(&header, &ArpPacket::request(mac, from, to)));
            }
            (IpAddr::V6(_), _) if known.is_none() => {
                let text = format!("the hardware address of {to} is not known: give it with --to-mac");
                return Err(Failure::new(2, text));
            }
            _ => {}
        }
        let link = known.map(|known| EthernetHeader::new(known, mac, network.ethertype()));
        Ok(link.map(|link| Envelope { link: Some(link), ..Envelope::new(network, self.port) }))
    }

    fn receive(&mut self, device: &mut Device, now: u64) -> Result<usize, Failure> {
        let (mac, address) = (self.interface.mac, self.address);
        let (neighbours, asked) = (&mut self.neighbours, &mut self.asked);
        receive_by(&mut self.link, &mut |frame, _| {
            let Ok((header, packet)) = EthernetHeader::parse(frame) else { return };
            match header.ethertype {
                EtherType::ARP if asked.len() < MOST => asked.extend(neighbours.hear(packet, address, mac)),
                EtherType::IPV4 | EtherType::IPV6 if is_to(packet, address) => {
                    neighbours.see(packet, header.source);
                    device.handle(now, packet);
                }
                _ => {}
            }
        })
    }

    fn send(&mut self, device: &mut Device, now: u64) -> Result<usize, Failure> {
        let asked = &mut self.asked;
        let (sent, full) = send_by(&mut self.link, &mut |room| {
            let Some(frame) = asked.pop_front() else { return device.poll_transmit(now, room) };
            room.get_mut(..ARP_FRAME)?.copy_from_slice(&frame);
            Some(ARP_FRAME)
        })?;
        self.full = full;
        Ok(sent)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.descriptor()
    }

    fn is_full(&self) -> bool {
        self.full
    }
}
