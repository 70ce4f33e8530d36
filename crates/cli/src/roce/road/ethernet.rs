//! Packets as frames of an interface, with an address of our own. Neighbours are asked for by ARP, and answered; of whom a
//! RoCEv2 packet comes, the hardware address is known from it.

use super::{Road, between, own_port, receive_by, send_by};
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
    neighbours: HashMap<IpAddr, MacAddr>,
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
        let mut neighbours = HashMap::new();
        if let Some(mac) = to {
            // Whoever it is.
            neighbours.insert(IpAddr::from([0, 0, 0, 0]), mac);
        }
        Ok(Ethernet {
            link,
            interface: found,
            address,
            neighbours,
            asked: VecDeque::new(),
            port: own_port(),
            full: false,
        })
    }
}

/// Looks at a frame that is not for the device alone: who is where, and who asks.
fn look(
    frame: &[u8],
    mac: MacAddr,
    address: IpAddr,
    neighbours: &mut HashMap<IpAddr, MacAddr>,
    asked: &mut VecDeque<[u8; ARP_FRAME]>,
) {
    let Ok((header, packet)) = EthernetHeader::parse(frame) else { return };
    let mut know = |ip: IpAddr, mac: MacAddr| {
        if neighbours.len() < MOST || neighbours.contains_key(&ip) {
            neighbours.insert(ip, mac);
        }
    };
    match (header.ethertype, address) {
        (EtherType::ARP, IpAddr::V4(own)) => {
            let Ok(arp) = ArpPacket::parse(packet) else { return };
            if arp.target_ip != own {
                return;
            }
            if !arp.is_probe() {
                know(arp.sender_ip.into(), arp.sender_mac);
            }
            if arp.operation == ArpOperation::REQUEST && asked.len() < MOST {
                let to = EthernetHeader::new(arp.sender_mac, mac, EtherType::ARP);
                asked.extend(arp_frame(&to, &arp.reply(mac)));
            }
        }
        (EtherType::IPV4, IpAddr::V4(own)) => {
            if let Ok((ip, datagram)) = Ipv4Header::parse(packet)
                && ip.destination == own
                && is_roce(ip.protocol, datagram)
            {
                know(ip.source.into(), header.source);
            }
        }
        (EtherType::IPV6, IpAddr::V6(own)) => {
            if let Ok((ip, datagram)) = Ipv6Header::parse(packet)
                && ip.destination == own
                && is_roce(ip.next_header, datagram)
            {
                know(ip.source.into(), header.source);
            }
        }
        _ => {}
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

    fn mtu(&self) -> usize {
        self.interface.mtu as usize
    }

    fn window(&self) -> u32 {
        256
    }

    fn way(&mut self, to: IpAddr) -> Result<Option<Envelope>, Failure> {
        let any = IpAddr::from([0, 0, 0, 0]);
        let mac = self.interface.mac;
        let known = self.neighbours.get(&to).or_else(|| self.neighbours.get(&any)).copied();
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
            // Those of one conversation are from somebody who is known, most of the time.
            if frame.len() < 100 || neighbours.is_empty() {
                look(frame, mac, address, neighbours, asked);
            }
            if let Ok((header, packet)) = EthernetHeader::parse(frame)
                && matches!(header.ethertype, EtherType::IPV4 | EtherType::IPV6)
            {
                device.handle(now, packet);
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
