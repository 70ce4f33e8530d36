//! One of the two hosts of a session: a stack, and its applications.

use super::app::{End, Trust, settings};
use super::forge::{Octets, Shape};
use crate::attack::PORT;
use crate::check;
use bypath_stack::config::Config;
use bypath_stack::counters::Counters;
use bypath_stack::event::Event;
use bypath_stack::iface::{IfaceConfig, IfaceId, Medium, Offload};
use bypath_stack::socket::SocketId;
use bypath_stack::time::Instant;
use bypath_stack::{Stack, tcp};
use bypath_wire::IpProtocol;
use std::net::SocketAddr;
use std::time::Duration;

/// The largest buffer that an application may want.
const LARGEST: usize = 1 << 19;
/// Calls of `handle_timeout` at one time after which a timer is stuck.
const TIMEOUTS: usize = 1000;

/// What the first piece of an input says of hosts and applications.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wishes {
    pub shape: Shape,
    /// Both call each other.
    pub both_call: bool,
    offload: Offload,
    mtu: usize,
    /// By side: what its application wants, and octets that it writes.
    pub wants: [[u8; 2]; 2],
    pub octets: [usize; 2],
    pub delay: Duration,
    /// They have raw sockets: headers are read and not compared.
    raw: bool,
    /// For buffers.
    memory: usize,
}

impl Wishes {
    pub fn new(mut of: Octets<'_>) -> Wishes {
        let [first, second] = [of.next(), of.next()];
        let v6 = first & 1 != 0;
        let mtu = match first >> 5 & 7 {
            0..4 => 1500,
            4 | 5 => {
                if v6 {
                    1280
                } else {
                    576
                }
            }
            6 => 9000,
            _ => {
                if v6 {
                    1281
                } else {
                    120
                }
            }
        };
        let segmentation = first & 16 != 0;
        let wants = [[of.next(), of.next()], [of.next(), of.next()]];
        let octets = [of.next(), of.next()].map(|octet| usize::from(octet) * usize::from(octet));
        Wishes {
            shape: Shape { v6, ethernet: first & 2 != 0 },
            both_call: first & 4 != 0,
            offload: Offload { checksum: first & 8 != 0 || segmentation, segmentation },
            mtu,
            wants,
            octets,
            delay: Duration::from_micros(100 << (second & 7)),
            raw: second & 8 != 0,
            memory: [1 << 20, 100_000, 20_000, 1 << 20][usize::from(second >> 4 & 3)],
        }
    }

    /// Nothing has to go wrong if few frames are lost.
    pub fn is_generous(&self) -> bool {
        self.memory > 100_000 && !self.wants.iter().any(|[bits, _]| super::app::is_impatient(*bits))
    }
}

pub(super) struct Side {
    n: usize,
    pub stack: Stack,
    config: Config,
    pub iface: IfaceId,
    mtu: usize,
    pub listener: SocketId,
    before: Counters,
    pub ends: Vec<End>,
    /// What applications that are called want, and how much they write.
    wants: [u8; 2],
    octets: usize,
    /// They read nothing for a while.
    pub lazy: bool,
}

impl Side {
    pub fn new(n: usize, now: Instant, wishes: &Wishes) -> Side {
        let config = Config {
            dad_transmits: 0,
            tcp: tcp::Config {
                connections: 12,
                half_open: 3,
                time_wait: 3,
                orphans: 3,
                octets: wishes.memory,
                ..tcp::Config::default()
            },
            ..Config::default()
        };
        let mut stack = Stack::new(config.clone(), [n as u8 + 1; 32]);
        let shape = wishes.shape;
        let medium = if shape.ethernet { Medium::Ethernet(Shape::mac(n)) } else { Medium::Ip };
        let mtu = wishes.mtu;
        let iface = stack.add_iface(IfaceConfig { medium, mtu, offload: wishes.offload }).expect("room");
        let len = if shape.v6 { 64 } else { 24 };
        let own = format!("{}/{len}", shape.address(n)).parse().expect("an address");
        stack.add_address(now, iface, own).expect("room for an address");
        if shape.ethernet {
            stack.set_neighbor(iface, shape.address(1 - n), Shape::mac(1 - n));
        }
        if wishes.raw {
            stack.open_raw(IpProtocol(253)).expect("room for a socket");
        }
        let listener = stack.open_tcp().expect("room for a socket");
        let (before, ends) = (Counters::default(), Vec::new());
        let (wants, octets) = (wishes.wants[n], wishes.octets[n]);
        let mut side =
            Side { n, stack, config, iface, mtu, listener, before, ends, wants, octets, lazy: false };
        side.listens(now);
        side
    }

    fn listens(&mut self, now: Instant) {
        let mut tcp = self.stack.tcp(self.listener).expect("it is there");
        let wanted = settings(self.wants, tcp.settings());
        tcp.set_settings(now, wanted);
        // Connections of a listener before it say so, too.
        let options = tcp::Options { reuse_address: true, ..tcp.options() };
        tcp.set_options(options);
        tcp.bind(SocketAddr::new([0u16; 8].into(), PORT)).expect("a free port");
        tcp.listen(4).expect("nobody else listens");
    }

    /// Listens with another socket from now on.
    pub fn listens_anew(&mut self, now: Instant) {
        self.stack.close(self.listener);
        self.listener = self.stack.open_tcp().expect("room for a socket");
        self.listens(now);
    }

    /// Calls somebody. False: there is no room.
    pub fn calls(&mut self, now: Instant, own: u16, to: SocketAddr, octets: usize) -> bool {
        let Ok(id) = self.stack.open_tcp() else { return false };
        let mut tcp = self.stack.tcp(id).expect("it is there");
        let wanted = settings(self.wants, tcp.settings());
        tcp.set_settings(now, wanted);
        let any: SocketAddr =
            SocketAddr::new(if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() }, own);
        tcp.bind(any).expect("a port of its own");
        tcp.connect(now, to).expect("a way");
        self.ends.push(End::new(id, own, self.n, octets));
        true
    }

    /// Due timers, and what applications are told. Whether there was anything.
    pub fn settle(&mut self, now: Instant, trust: Trust) -> bool {
        let (mut turns, mut busy) = (0, false);
        while self.stack.poll_timeout().is_some_and(|due| due <= now) {
            self.stack.handle_timeout(now);
            self.check();
            turns += 1;
            busy = true;
            assert!(turns < TIMEOUTS, "a timer is stuck");
        }
        while let Some(event) = self.stack.poll_event() {
            busy = true;
            if let Event::Socket { id, .. } = event {
                if id == self.listener {
                    self.accepts(trust);
                }
                self.goes_on(id, trust);
            }
        }
        if busy {
            self.check();
        }
        busy
    }

    fn accepts(&mut self, trust: Trust) {
        while let Ok(id) = self.stack.tcp(self.listener).expect("it listens").accept() {
            let from = self.stack.tcp(id).and_then(|mut tcp| tcp.remote()).expect("a caller");
            let mut end = End::new(id, from.port(), self.n, self.octets);
            end.stray = self.ends.iter().any(|other| other.key == end.key);
            assert!(!end.stray || trust != Trust::All, "somebody calls twice: {end:?}");
            self.ends.push(end);
            self.goes_on(id, trust);
        }
    }

    fn goes_on(&mut self, id: SocketId, trust: Trust) {
        if let Some(end) = self.ends.iter_mut().find(|end| end.id == id) {
            end.goes_on(&mut self.stack, self.lazy, trust);
        }
    }

    /// All applications look for what they can do.
    pub fn all_go_on(&mut self, trust: Trust) {
        for end in &mut self.ends {
            end.goes_on(&mut self.stack, self.lazy, trust);
        }
        self.check();
    }

    /// Its next frame.
    pub fn transmits(&mut self, now: Instant, room: &mut [u8]) -> Option<(usize, bypath_wire::FrameMeta)> {
        let (len, meta) = self.stack.poll_transmit(now, self.iface, room)?;
        self.check();
        Some((len, meta))
    }

    /// How long packets are that it may send.
    pub const fn mtu(&self) -> usize {
        self.mtu
    }

    pub fn check(&mut self) {
        let held = check::stack(&self.stack, &self.config, 2, &self.before);
        held.unwrap_or_else(|wrong| panic!("side {}: {wrong}", self.n));
        self.before = *self.stack.counters();
        let usage = self.stack.usage();
        let most = self.config.tcp.octets + LARGEST + usage.connections * 4096;
        assert!(usage.connection_octets <= most, "more memory than there is: {usage:?}");
    }

    /// Nothing is left but who listens.
    pub fn is_forgotten(&self) -> Result<(), String> {
        let u = self.stack.usage();
        let all =
            (u.connections, u.half_open, u.orphans, u.time_wait, u.connection_octets, u.transmit_octets);
        if all == (1, 0, 0, 0, 0, 0) { Ok(()) } else { Err(format!("something is left: {u:?}")) }
    }
}
