//! Two devices on a link in memory, in virtual time.

mod faults;
mod hostile;
mod refusals;
mod repeats;
mod transfers;

use super::*;
use crate::fault::{FaultInjector, Faults};
use crate::pair::{End, pair};
use bypath_wire::roce::{
    Aeth, Bth, Envelope, Extended, Headers, Nak, Opcode, Operation, Packet, Psn, Qpn, Reth, Syndrome,
};
use bypath_wire::{EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv6Header, Network};
use std::cell::Cell;
use std::rc::Rc;

pub const ONE: Qpn = Qpn::new(0x11);
pub const TWO: Qpn = Qpn::new(0x22);
/// Both ends begin shortly before the PSNs wrap.
pub const PSN: [Psn; 2] = [Psn::new(0xff_fff0), Psn::new(0xff_fffe)];
/// Keys of regions.
pub const HERE: u32 = 0x1111;
pub const THERE: u32 = 0x2222;
/// Where the other end's region begins.
pub const BASE: u64 = 0x7f00_0000_1000;

/// The time of a simulation, in ns.
pub type Clock = Rc<Cell<u64>>;
type Lossy = FaultInjector<End, Box<dyn FnMut() -> u64>>;

/// Octets of every value, in no simple order.
pub fn octets(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|n| ((n + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// The way of a packet.
pub fn way(side: usize, v6: bool, link: bool) -> Envelope {
    let (from, to) = (side as u8 + 1, 2 - side as u8);
    let network = if v6 {
        let address = |n: u8| (0xfd00 << 112 | u128::from(n)).into();
        Network::V6(Ipv6Header::new(address(from), address(to), IpProtocol::UDP))
    } else {
        Network::V4(Ipv4Header::new([10, 0, 0, from].into(), [10, 0, 0, to].into(), IpProtocol::UDP))
    };
    let mac = |n: u8| crate::MacAddr([2, 0, 0, 0, 0, n]);
    let ethernet = EthernetHeader::new(mac(to), mac(from), EtherType::IPV4);
    Envelope { link: link.then_some(ethernet), ..Envelope::new(network, 0xc000 + u16::from(from)) }
}

/// Two devices, each with a queue pair that is connected to the other's.
pub struct Pair {
    pub ends: [Device; 2],
    links: [Lossy; 2],
    pub clock: Clock,
    /// Events of either end.
    pub events: [Vec<What>; 2],
}

impl Pair {
    /// Connected by RC.
    pub fn new(config: Config, faults: Faults, seed: u64) -> Pair {
        Pair::of(config, faults, seed, false, true)
    }

    pub fn of(config: Config, faults: Faults, seed: u64, v6: bool, reliable: bool) -> Pair {
        let clock: Clock = Rc::default();
        let (a, b) = pair(config.mtu.octets() as usize + 100, 256);
        let lossy = |end: End, seed: u64| {
            let clock = Rc::clone(&clock);
            let clock: Box<dyn FnMut() -> u64> = Box::new(move || clock.get());
            FaultInjector::new(end, Faults::NONE, faults, seed, clock).expect("faults that can be")
        };
        let links = [lossy(a, seed * 2), lossy(b, seed * 2 + 1)];
        let ends = [0, 1].map(|side| {
            let mut device = Device::new();
            let (local, remote) = if side == 0 { (ONE, TWO) } else { (TWO, ONE) };
            let envelope = way(side, v6, true);
            let made = if reliable {
                device.connect(local, remote, envelope, config, PSN[side], PSN[1 - side])
            } else {
                device.connect_unreliably(local, remote, envelope, config, PSN[side])
            };
            made.expect("a queue pair");
            device
        });
        Pair { ends, links, clock, events: [Vec::new(), Vec::new()] }
    }

    /// Regions of both ends.
    pub fn with_memory(mut self, here: Vec<u8>, there: Vec<u8>, access: Access) -> Pair {
        self.ends[0].memory.register(HERE, here, 0, Access::LOCAL).expect("a free key");
        self.ends[1].memory.register(THERE, there, BASE, access).expect("a free key");
        self
    }

    /// Gives [`TWO`] a receive buffer in its region.
    pub fn receive(&mut self, id: u64, offset: u64, len: u32) {
        let to = Local { key: THERE, address: BASE + offset, len };
        self.ends[1].receive(TWO, Receive { id, to }).expect("a place for a buffer");
    }

    pub fn post(&mut self, id: u64, request: Request) {
        self.ends[0].post(ONE, id, request).expect("a place for a request");
    }

    /// Moves what can be moved at this time.
    pub fn settle(&mut self) {
        loop {
            let mut moved = 0;
            for side in 0..2 {
                let (device, link) = (&mut self.ends[side], &mut self.links[side]);
                let carried = carry(device, link, self.clock.get(), 64).expect("a link that works");
                moved += carried.received + carried.sent;
                while let Some(event) = device.poll_event() {
                    self.events[side].push(event.what);
                }
            }
            if moved == 0 {
                return;
            }
        }
    }

    /// Goes on to the next time at which something is due. False: nothing is.
    pub fn step(&mut self) -> bool {
        let due = self.links.iter().filter_map(FaultInjector::next_due);
        let due = due.chain(self.ends.iter().filter_map(Device::poll_timeout)).min();
        let Some(due) = due else { return false };
        self.clock.set(self.clock.get().max(due));
        let now = self.clock.get();
        self.ends.iter_mut().for_each(|device| device.handle_timeout(now));
        true
    }

    /// Goes on until nothing is due; not for longer than a simulated hour.
    pub fn run(&mut self) {
        self.settle();
        while self.step() {
            self.settle();
            assert!(self.clock.get() < 3_600_000_000_000, "it does not end: {:?}", self.ends[0].counters());
        }
    }

    /// Both ends' counters.
    pub fn counters(&self) -> [Counters; 2] {
        [*self.ends[0].counters(), *self.ends[1].counters()]
    }

    pub fn here(&self) -> &[u8] {
        region(&self.ends[0], HERE, 0)
    }

    pub fn there(&self) -> &[u8] {
        region(&self.ends[1], THERE, BASE)
    }
}

/// All octets of a region.
fn region(device: &Device, key: u32, base: u64) -> &[u8] {
    let fits = |len: u32| device.memory.octets(Local { key, address: base, len }).is_ok();
    // Bisection: the largest part that is there.
    let (mut low, mut high) = (0u32, 1 << 26);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    device.memory.octets(Local { key, address: base, len: low }).expect("a region")
}

/// Part of this end's region.
pub fn local(address: u64, len: u32) -> Local {
    Local { key: HERE, address, len }
}

/// A place in the other end's region.
pub fn remote(offset: u64) -> Remote {
    Remote { key: THERE, address: BASE + offset }
}

pub fn send(address: u64, len: u32) -> Request {
    Request::Send { from: local(address, len), beside: Beside::Nothing }
}

pub fn write(address: u64, len: u32, offset: u64) -> Request {
    Request::Write { from: local(address, len), to: remote(offset), immediate: None }
}

pub fn read(offset: u64, address: u64, len: u32) -> Request {
    Request::Read { from: remote(offset), to: local(address, len) }
}

pub fn done(id: u64) -> What {
    What::Over { id, result: Ok(Done::Done) }
}

pub fn failed(id: u64, failure: Failure) -> What {
    What::Over { id, result: Err(failure) }
}

pub fn config(mtu: u32) -> Config {
    Config { mtu: Mtu::new(mtu).expect("a path MTU"), ..Config::DEFAULT }
}

/// A packet from the first end to the second one's queue pair, made by hand.
pub fn by_hand(operation: Operation, psn: Psn, extended: Extended, payload: &[u8]) -> Vec<u8> {
    changed(operation, psn, extended, payload, |_, _| ())
}

/// The same, with something changed before it is made.
pub fn changed(
    operation: Operation,
    psn: Psn,
    extended: Extended,
    payload: &[u8],
    change: impl FnOnce(&mut Headers, &mut Envelope),
) -> Vec<u8> {
    let mut headers = Headers { bth: Bth::new(Opcode::rc(operation), TWO, psn), extended };
    let mut envelope = way(0, false, false);
    headers.bth.ack_request = true;
    change(&mut headers, &mut envelope);
    let mut buffer = vec![0; payload.len() + 200];
    let len = envelope.emit(&mut buffer, &headers, payload).expect("a packet");
    buffer.truncate(len);
    buffer
}

/// All that a device sends now, without its Ethernet headers.
pub fn sent(device: &mut Device, now: u64) -> Vec<(Headers, Vec<u8>)> {
    let mut buffer = vec![0; device.longest()];
    let mut packets = Vec::new();
    while let Some(len) = device.poll_transmit(now, &mut buffer) {
        let from = if buffer[12] == 0x08 || buffer[12] == 0x86 { 14 } else { 0 };
        let packet = Packet::parse(&buffer[from..len]).expect("a packet");
        packets.push((packet.headers, packet.payload.to_vec()));
    }
    packets
}

pub fn aeth(syndrome: Syndrome, msn: u32) -> Extended {
    Extended::Aeth(Aeth { syndrome, msn })
}

pub fn reth(offset: u64, length: u32) -> Extended {
    Extended::Reth(Reth { address: BASE.wrapping_add(offset), key: THERE, length })
}

pub fn nak(nak: Nak) -> Syndrome {
    Syndrome::Nak(nak)
}
