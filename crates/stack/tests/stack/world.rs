//! Hosts on one Ethernet, in virtual time: the same seed does the same. After each event everything is checked that must
//! always hold.

use bypath_stack::config::Config;
use bypath_stack::counters::Counters;
use bypath_stack::event::Event;
use bypath_stack::iface::{IfaceConfig, IfaceId, Medium, Offload};
use bypath_stack::socket::{ReceiveError, Received, SocketId};
use bypath_stack::tcp::direct::Direct;
use bypath_stack::time::Instant;
use bypath_stack::{Raw, Stack, Udp};
use bypath_wire::meta::ChecksumState;
use bypath_wire::{
    EtherType, EthernetHeader, FrameMeta, IpProtocol, Ipv4Header, Ipv6Header, MacAddr, tcp, udp,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Duration;

/// What happens to frames on the way; parts of one.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub loss: f64,
    pub duplication: f64,
    /// So much longer some take than others, in nanoseconds: they overtake each other.
    pub jitter: u64,
}

/// An application that takes octets of a socket as they come.
pub struct Taker {
    pub socket: SocketId,
    /// It has room for so many at once, one after the other.
    pub rooms: Vec<usize>,
    pub asked: usize,
    /// What it was given, and what it has read beside, in the order of the stream.
    pub got: Vec<u8>,
    /// Octets that it was given.
    pub given: usize,
}

impl Direct for Taker {
    fn room(&mut self, socket: SocketId) -> usize {
        assert_eq!(socket, self.socket);
        self.asked += 1;
        self.rooms[self.asked % self.rooms.len()]
    }

    fn take(&mut self, socket: SocketId, octets: &[u8]) {
        assert_eq!(socket, self.socket);
        assert!(octets.len() <= self.rooms[self.asked % self.rooms.len()]);
        self.got.extend_from_slice(octets);
        self.given += octets.len();
    }
}

/// A host: its stack, its one interface, and what was told of it.
pub struct Host {
    pub stack: Stack,
    pub iface: IfaceId,
    pub mac: MacAddr,
    pub events: Vec<Event>,
    /// An application that takes octets as they come.
    pub taker: Option<Taker>,
    before: Counters,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at: u64,
    order: u64,
    to: usize,
    frame: Vec<u8>,
    partial: Option<(u16, u16)>,
}

pub struct World {
    pub hosts: Vec<Host>,
    pub faults: Faults,
    /// Frames in the order in which they were sent: host and octets.
    pub trace: Vec<(usize, Vec<u8>)>,
    /// Octets behind the Ethernet header.
    pub mtu: usize,
    now: u64,
    order: u64,
    flights: BinaryHeap<Reverse<Flight>>,
    random: u64,
}

/// One way between two hosts.
const LATENCY: u64 = 50_000;

impl World {
    /// `count` hosts: 10.0.0.1/24, fd00::1/64 and fe80::1/64, and so on; tentative addresses are ready.
    pub fn new(count: u8, seed: u64) -> World {
        World::with(count, seed, &Config::default(), Offload::default(), 1500)
    }

    pub fn with(count: u8, seed: u64, config: &Config, offload: Offload, mtu: usize) -> World {
        let hosts = (1..=count).map(|n| {
            let mac = MacAddr([2, 0, 0, 0, 0, n]);
            let mut stack = Stack::new(config.clone(), [n ^ seed as u8; 32]);
            let iface = stack.add_iface(IfaceConfig { medium: Medium::Ethernet(mac), mtu, offload }).unwrap();
            for network in ["10.0.0.", "fd00::", "fe80::"] {
                if network == "10.0.0." || mtu >= 1280 {
                    let len = if network == "10.0.0." { 24 } else { 64 };
                    let prefix = format!("{network}{n}/{len}").parse().unwrap();
                    stack.add_address(Instant::ZERO, iface, prefix).unwrap();
                }
            }
            Host { stack, iface, mac, events: Vec::new(), taker: None, before: Counters::default() }
        });
        let mut world = World {
            hosts: hosts.collect(),
            faults: Faults::default(),
            trace: Vec::new(),
            mtu,
            now: 0,
            order: 0,
            flights: BinaryHeap::new(),
            random: seed | 1,
        };
        world.run(Duration::from_secs(4));
        world.trace.clear();
        for host in &mut world.hosts {
            host.events.clear();
            host.before = *host.stack.counters();
        }
        world
    }

    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn chance(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Lets time go on, and everything happen in it.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time.as_nanos() as u64;
        let mut at_once = 0;
        loop {
            self.settle();
            let due = self.hosts.iter().filter_map(|h| h.stack.poll_timeout()).map(|t| t.as_nanos());
            let next = due.chain(self.flights.peek().map(|Reverse(f)| f.at)).min();
            let Some(next) = next.map(|next| next.max(self.now)).filter(|next| *next <= end) else { break };
            at_once = if next == self.now { at_once + 1 } else { 0 };
            assert!(at_once < 100_000, "time does not go on");
            self.now = next;
            while let Some(Reverse(flight)) = self.flights.peek()
                && flight.at <= self.now
            {
                let Some(Reverse(flight)) = self.flights.pop() else { break };
                let checksum = match flight.partial {
                    Some((start, offset)) => ChecksumState::Partial { start, offset },
                    None => ChecksumState::Unknown,
                };
                self.hand(flight.to, &flight.frame, &FrameMeta { checksum, ..FrameMeta::default() });
            }
        }
        self.now = end;
    }

    /// Hands a frame to a host.
    pub fn hand(&mut self, to: usize, frame: &[u8], meta: &FrameMeta) {
        let now = self.now();
        let host = &mut self.hosts[to];
        match &mut host.taker {
            None => host.stack.handle_frame(now, host.iface, frame, meta),
            Some(taker) => host.stack.handle_frame_for(now, host.iface, frame, meta, taker),
        }
        check(&host.stack);
    }

    /// Due timers, frames that are to be sent, and news, of all hosts.
    fn settle(&mut self) {
        let now = self.now();
        for from in 0..self.hosts.len() {
            let host = &mut self.hosts[from];
            if host.stack.poll_timeout().is_some_and(|due| due <= now) {
                host.stack.handle_timeout(now);
                check(&host.stack);
            }
            host.events.extend(std::iter::from_fn(|| host.stack.poll_event()));
            let mut room = vec![0; 65_553];
            loop {
                let host = &mut self.hosts[from];
                let Some((len, meta)) = host.stack.poll_transmit(now, host.iface, &mut room) else { break };
                check(&host.stack);
                check_frame(&room[..len], &meta, self.mtu);
                self.trace.push((from, room[..len].to_vec()));
                self.send(from, &room[..len], &meta);
            }
        }
    }

    fn send(&mut self, from: usize, frame: &[u8], meta: &FrameMeta) {
        let partial = match meta.checksum {
            ChecksumState::Partial { start, offset } => Some((start, offset)),
            _ => None,
        };
        for to in (0..self.hosts.len()).filter(|to| *to != from) {
            if self.chance() < self.faults.loss {
                continue;
            }
            let copies = if self.chance() < self.faults.duplication { 2 } else { 1 };
            for _ in 0..copies {
                let late = (self.chance() * self.faults.jitter as f64) as u64;
                let (at, order) = (self.now + LATENCY + late, self.order);
                self.order += 1;
                self.flights.push(Reverse(Flight { at, order, to, frame: frame.to_vec(), partial }));
            }
        }
    }

    /// A UDP socket, bound.
    pub fn bound(&mut self, host: usize, local: &str) -> SocketId {
        let stack = &mut self.hosts[host].stack;
        let id = stack.open_udp().unwrap();
        stack.udp(id).unwrap().bind(local.parse().unwrap()).unwrap();
        id
    }

    /// A UDP socket, connected.
    pub fn connected(&mut self, host: usize, remote: &str) -> SocketId {
        let stack = &mut self.hosts[host].stack;
        let id = stack.open_udp().unwrap();
        stack.udp(id).unwrap().connect(remote.parse().unwrap()).unwrap();
        id
    }

    pub fn udp(&mut self, host: usize, id: SocketId) -> Udp<'_> {
        self.hosts[host].stack.udp(id).unwrap()
    }

    pub fn raw(&mut self, host: usize, id: SocketId) -> Raw<'_> {
        self.hosts[host].stack.raw(id).unwrap()
    }

    pub fn send_to(&mut self, host: usize, id: SocketId, octets: &[u8], to: &str) {
        self.udp(host, id).send(octets, Some(to.parse().unwrap())).unwrap();
    }

    /// What a socket has received: from whom, and octets.
    pub fn received(&mut self, host: usize, id: SocketId) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut room = vec![0; 65_536];
        let mut udp = self.udp(host, id);
        let next = || match udp.receive(&mut room) {
            Ok(Received { len, datagram }) => Some((datagram.from, room[..len].to_vec())),
            Err(ReceiveError::Empty) => None,
            Err(error) => panic!("{error}"),
        };
        std::iter::from_fn(next).collect()
    }

    pub fn millis(&mut self, millis: u64) {
        self.run(Duration::from_millis(millis));
    }

    pub fn secs(&mut self, secs: u64) {
        self.run(Duration::from_secs(secs));
    }

    /// A counter of a host.
    pub fn count(&self, host: usize, name: &str) -> u64 {
        let found = self.hosts[host].stack.counters().iter().find(|(other, _)| *other == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }

    /// Drops since the world began. Reports to routers are nobody's here.
    pub fn drops(&self, host: usize) -> Vec<(&'static str, u64)> {
        let host = &self.hosts[host];
        let since = host.stack.counters().iter().zip(host.before.iter());
        let since = since.map(|((name, count), (_, before))| (name, count - before));
        since.filter(|(name, count)| *count > 0 && name.contains("_drop_")).collect()
    }
}

/// What always holds of a stack.
pub fn check(stack: &Stack) {
    let (config, usage) = (Config::default(), stack.usage());
    assert!(usage.waiting_octets <= config.waiting_octets, "{usage:?}");
    assert!(usage.fragment_octets <= config.reassembly.octets, "{usage:?}");
    assert!(usage.fragmented <= config.reassembly.most, "{usage:?}");
    assert!(usage.destinations <= config.destinations, "{usage:?}");
    assert!(usage.transmit_octets <= 3 * config.transmit_octets, "{usage:?}");
    assert!(usage.neighbors <= 3 * config.neighbors.most, "{usage:?}");
    assert!(usage.ready <= usage.sockets + usage.connections + 2048, "{usage:?}");
}

/// What always holds of a frame that was sent: lengths and checksums fit.
fn check_frame(frame: &[u8], meta: &FrameMeta, mtu: usize) {
    let (link, packet) = EthernetHeader::parse(frame).expect("an Ethernet header");
    assert!(packet.len() <= mtu || meta.gso.is_some(), "{} octets", packet.len());
    let (addresses, protocol, fragment, payload) = match link.ethertype {
        EtherType::ARP => return,
        EtherType::IPV4 => {
            let (header, payload) = Ipv4Header::parse(packet).expect("an IPv4 header");
            assert_eq!(header.len() + payload.len(), packet.len());
            assert_ne!(header.ttl, 0);
            (header.addresses(), header.protocol, header.is_fragment(), payload)
        }
        EtherType::IPV6 => {
            let (header, payload) = Ipv6Header::parse(packet).expect("an IPv6 header");
            assert_eq!(40 + payload.len(), packet.len());
            assert_ne!(header.hop_limit, 0);
            (header.addresses(), header.next_header, false, payload)
        }
        other => panic!("{other:?}"),
    };
    if protocol == IpProtocol::TCP && !fragment && meta.checksum == ChecksumState::Unknown {
        assert!(tcp::verify(&addresses, payload), "a wrong checksum");
    }
    if protocol == IpProtocol::UDP && !fragment && meta.checksum == ChecksumState::Unknown {
        assert_eq!(udp::verify(&addresses, payload), udp::UdpChecksum::Fits);
    }
}
