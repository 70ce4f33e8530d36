//! What is fuzzed: a stack with all that one has, without a link, so that an input takes microseconds.

use crate::attack::{MAC, PORT, V4, V6};
use crate::check;
use bypath_stack::config::Config;
use bypath_stack::counters::Counters;
use bypath_stack::iface::{IfaceConfig, IfaceId, Medium, Offload};
use bypath_stack::route::Route;
use bypath_stack::socket::SocketId;
use bypath_stack::time::Instant;
use bypath_stack::{Stack, ip, neighbor, tcp};
use bypath_wire::{
    EtherType, EthernetHeader, FrameMeta, Headers, IpProtocol, Ipv4Header, Ipv6Header, MacAddr, Network,
    Transport, UdpHeader,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Interfaces, with the loopback one and that of a VLAN.
const IFACES: usize = 3;
const MTU: usize = 1500;
/// Calls of `handle_timeout` at one time after which a timer is stuck.
const TIMEOUTS: usize = 1000;

pub(super) struct Victim {
    pub stack: Stack,
    config: Config,
    pub iface: IfaceId,
    server: SocketId,
    /// Who listens to [`PORT`] of TCP.
    pub listener: SocketId,
    pub now: Instant,
    /// Frames that it sent, if somebody listens to them.
    pub sent: Option<Vec<Vec<u8>>>,
    before: Counters,
    room: Vec<u8>,
}

impl Victim {
    /// `raw`: it has raw sockets. A stack that has some looks at all headers of each frame.
    pub fn new(raw: bool) -> Victim {
        // Small bounds are reached by small inputs.
        let config = Config {
            dad_transmits: 0,
            tcp: tcp::Config {
                connections: 16,
                half_open: 4,
                time_wait: 4,
                orphans: 2,
                octets: 100_000,
                ..tcp::Config::default()
            },
            destinations: 8,
            groups: 8,
            transmit_octets: 100_000,
            receive_octets: 10_000,
            waiting_octets: 10_000,
            neighbors: neighbor::Config { most: 8, waiting: 4, ..neighbor::Config::default() },
            reassembly: ip::reassembly::Config {
                octets: 200_000,
                most: 8,
                pieces: 8,
                ..ip::reassembly::Config::default()
            },
            ..Config::default()
        };
        let mut stack = Stack::new(config.clone(), [7; 32]);
        let now = Instant::ZERO + Duration::from_secs(10);
        let shape = IfaceConfig { medium: Medium::Ethernet(MAC), mtu: MTU, offload: Offload::default() };
        let iface = stack.add_iface(shape).expect("room for an interface");
        stack.add_vlan(iface, 5, MTU).expect("room for a VLAN");
        for address in ["10.0.0.1/8", "fd00::1/64", "fe80::1/64"] {
            stack.add_address(now, iface, address.parse().expect("an address")).expect("room for it");
        }
        for (to, via) in [("0.0.0.0/0", "10.0.0.254"), ("::/0", "fe80::fe")] {
            let (prefix, via) = (to.parse().expect("a network"), via.parse().ok());
            stack.add_route(Route { prefix, iface, via, metric: 0, source: None }).expect("room for a route");
        }
        stack.autoconfigure(now, iface);
        let server = stack.open_udp().expect("room for a socket");
        let mut udp = stack.udp(server).expect("it is there");
        udp.bind(format!("[::]:{PORT}").parse().expect("an address")).expect("a free port");
        for group in ["239.1.2.3", "ff15::99"] {
            udp.join(now, iface, group.parse().expect("a group")).expect("room for a group");
        }
        for far in ["192.0.2.9:53", "[2001:db8::9]:53"] {
            let partner = stack.open_udp().expect("room for a socket");
            let mut udp = stack.udp(partner).expect("it is there");
            udp.connect(far.parse().expect("an address")).expect("a way");
            let _waits = udp.send(&[1; 2000], None);
        }
        let listener = stack.open_tcp().expect("room for a socket");
        let mut tcp = stack.tcp(listener).expect("it is there");
        tcp.bind(format!("[::]:{PORT}").parse().expect("an address")).expect("a free port");
        tcp.listen(2).expect("nobody else listens");
        for far in ["192.0.2.9:80", "[2001:db8::9]:80"] {
            let caller = stack.open_tcp().expect("room for a socket");
            let mut tcp = stack.tcp(caller).expect("it is there");
            tcp.connect(now, far.parse().expect("an address")).expect("a way");
        }
        for protocol in [IpProtocol::ICMP, IpProtocol(99)].into_iter().filter(|_| raw) {
            stack.open_raw(protocol).expect("room for a socket");
        }
        let before = Counters::default();
        let room = vec![0; 2048];
        let mut victim = Victim { stack, config, iface, server, listener, now, sent: None, before, room };
        victim.settle();
        victim
    }

    /// Takes a frame, and does what follows from it; a while goes by that depends on the frame.
    pub fn takes(&mut self, frame: &[u8]) {
        self.hears(frame);
        // From nothing to 32 s, mostly next to nothing.
        let last = frame.last().copied().unwrap_or(0);
        let wait = if last & 7 == 7 { Duration::from_millis(1 << (last >> 4)) } else { Duration::ZERO };
        self.passes(wait);
    }

    /// Takes a frame, and nothing else happens.
    pub fn hears(&mut self, frame: &[u8]) {
        self.stack.handle_frame(self.now, self.iface, frame, &FrameMeta::default());
        self.check();
    }

    fn check(&mut self) {
        let held = check::stack(&self.stack, &self.config, IFACES, &self.before);
        held.unwrap_or_else(|wrong| panic!("{wrong}"));
        self.before = *self.stack.counters();
    }

    /// Lets time go by, and everything happen in it.
    fn passes(&mut self, time: Duration) {
        let end = self.now + time;
        self.settle();
        for _ in 0..TIMEOUTS {
            let Some(due) = self.stack.poll_timeout().filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    /// Lets everything happen that happens now.
    pub fn settle(&mut self) {
        let mut turns = 0;
        while self.stack.poll_timeout().is_some_and(|due| due <= self.now) {
            self.stack.handle_timeout(self.now);
            turns += 1;
            assert!(turns < TIMEOUTS, "a timer is stuck");
        }
        while self.stack.poll_event().is_some() {}
        while let Some((len, meta)) = self.stack.poll_transmit(self.now, self.iface, &mut self.room) {
            let fits = check::frame(&self.room[..len], &meta, MTU);
            // Tagged frames are four octets longer.
            fits.unwrap_or_else(|wrong| panic!("{wrong}"));
            if let Some(sent) = &mut self.sent {
                sent.push(self.room[..len].to_vec());
            }
        }
        self.check();
    }

    /// After all that was waited for has ended, a datagram of an honest peer is taken and its answer sent.
    pub fn serves(&mut self) {
        self.passes(Duration::from_secs(100));
        let usage = self.stack.usage();
        assert_eq!((usage.fragment_octets, usage.waiting_octets, usage.transmit_octets), (0, 0, 0));
        let peers: [(IpAddr, IpAddr); 2] = [
            (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), V4.into()),
            (IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)), V6.into()),
        ];
        let mut room = [0; 2048];
        for (peer, own) in peers {
            while self.stack.udp(self.server).is_some_and(|mut udp| udp.receive(&mut room).is_ok()) {}
            let station = MacAddr([2, 0, 0, 0, 1, 0]);
            self.stack.set_neighbor(self.iface, peer, station);
            let frame = question(station, peer, own);
            self.hears(&frame);
            let mut udp = self.stack.udp(self.server).expect("it is there");
            let received = udp.receive(&mut room).expect("the question came");
            assert_eq!((&room[..received.len], received.datagram.from.ip()), (&b"question"[..], peer));
            udp.send(b"answer", Some(received.datagram.from)).expect("it can be answered");
            let sent = self.stack.poll_transmit(self.now, self.iface, &mut self.room);
            let (len, _) = sent.expect("the answer is sent");
            assert!(self.room[..6] == station.0 && self.room[..len].ends_with(b"answer"));
            self.settle();
        }
    }
}

fn question(station: MacAddr, peer: IpAddr, own: IpAddr) -> Vec<u8> {
    let network = match (peer, own) {
        (IpAddr::V4(source), IpAddr::V4(to)) => Network::V4(Ipv4Header::new(source, to, IpProtocol::UDP)),
        (IpAddr::V6(source), IpAddr::V6(to)) => Network::V6(Ipv6Header::new(source, to, IpProtocol::UDP)),
        _ => panic!("two kinds"),
    };
    let link = Some(EthernetHeader::new(MAC, station, EtherType::IPV4));
    let transport = Transport::Udp(UdpHeader { source_port: 9, destination_port: PORT });
    let mut frame = vec![0; 200];
    let len = Headers { link, network, transport }.emit(&mut frame, b"question").expect("it fits");
    frame.truncate(len);
    frame
}
