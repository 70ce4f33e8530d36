//! Receiving a UDP datagram: a frame is handed in, the stack tells which socket became readable, the socket is read; beside
//! other sockets that are bound and idle.

use super::figure;
use super::write::{HEADERS, MACS};
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use bypath::wire::udp::UdpHeader;
use bypath::wire::{EtherType, EthernetHeader, FrameMeta, IpProtocol, Ipv4Header, ethernet, ipv4, udp};
use bypath_stack::Stack;
use bypath_stack::config::Config;
use bypath_stack::event::Event;
use bypath_stack::iface::{IfaceConfig, IfaceId, Medium, Offload};
use bypath_stack::socket::SocketId;
use bypath_stack::time::Instant;
use bypath_sys::clock::monotonic_ns;
use std::cell::RefCell;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};

/// Idle sockets, with the name of the subject.
pub const IDLE: [(u32, &str); 5] = [
    (1, "idle-1"),
    (100, "idle-100"),
    (10_000, "idle-10000"),
    (100_000, "idle-100000"),
    (1_000_000, "idle-1000000"),
];
/// Octets of payload.
pub const SIZE: u32 = 64;
/// Datagrams between two looks at the clock.
pub const STRETCH: u32 = 1000;
/// Different frames, handed in in turns.
const FRAMES: u8 = 64;
/// Addresses that idle sockets are bound to in turns, as one has ports for 65,535 only. They are another interface's: a packet is
/// compared with all addresses of the one that it came in through, which is not what is asked here.
const ADDRESSES: u8 = 32;
/// Where the frames go to.
const PORT: u16 = 7;
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 200);
const STEP: u64 = 100;

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

const fn elsewhere(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, 1 + n)
}

/// A stack with one socket that gets datagrams, and many that do not.
struct Receiver {
    stack: Stack,
    iface: IfaceId,
    socket: SocketId,
    frames: Vec<Vec<u8>>,
    next: usize,
    now: u64,
}

impl Receiver {
    fn new(idle: u32) -> Result<Receiver, String> {
        let now = Instant::ZERO;
        let mut stack = Stack::new(Config::default(), [7; 32]);
        let config =
            IfaceConfig { medium: Medium::Ethernet(MACS[0]), mtu: 1500, offload: Offload::default() };
        let iface = stack.add_iface(config).map_err(|e| e.to_string())?;
        let other = stack.add_iface(config).map_err(|e| e.to_string())?;
        let addresses = (0..ADDRESSES).map(|n| (other, elsewhere(n)));
        for (iface, address) in std::iter::once((iface, OWN)).chain(addresses) {
            let prefix = format!("{address}/24").parse().expect("a prefix");
            stack.add_address(now, iface, prefix).map_err(|e| e.to_string())?;
        }
        let mut bound = |address: Ipv4Addr, port: u16| -> Result<SocketId, String> {
            let id = stack.open_udp().map_err(|e| e.to_string())?;
            let mut socket = stack.udp(id).ok_or("no socket")?;
            socket.bind(SocketAddr::new(address.into(), port)).map_err(|e| e.to_string())?;
            Ok(id)
        };
        let socket = bound(OWN, PORT)?;
        for n in 0..idle {
            let (address, port) = (n % u32::from(ADDRESSES), 1024 + n / u32::from(ADDRESSES));
            bound(elsewhere(address as u8), port as u16)?;
        }
        let mut room = vec![0; 2000];
        while stack.poll_transmit(now, iface, &mut room).is_some() {}
        let frames = (0..FRAMES).map(frame).collect();
        Ok(Receiver { stack, iface, socket, frames, next: 0, now: 0 })
    }

    /// One datagram; whether it came as it was sent.
    #[inline]
    fn receive(&mut self) -> bool {
        self.now += STEP;
        self.next = (self.next + 1) % self.frames.len();
        let frame = black_box(&self.frames[self.next]);
        self.stack.handle_frame(Instant::from_nanos(self.now), self.iface, frame, &FrameMeta::default());
        let Some(Event::Socket { id, ready }) = self.stack.poll_event() else { return false };
        if id != self.socket || !ready.readable {
            return false;
        }
        let Some(mut socket) = self.stack.udp(id) else { return false };
        let mut room = [0; SIZE as usize];
        let Ok(received) = socket.receive(&mut room) else { return false };
        received.len == room.len() && room[..] == frame[HEADERS..] && received.datagram.from.ip() == PEER
    }

    /// Nanoseconds for a stretch of datagrams.
    fn stretch(&mut self) -> Result<u64, String> {
        let begun = monotonic_ns();
        for _ in 0..STRETCH {
            if !self.receive() {
                return Err("a datagram did not come, or not as it was sent".into());
            }
        }
        Ok(monotonic_ns() - begun)
    }
}

/// A frame for the socket, with a payload of its own.
fn frame(salt: u8) -> Vec<u8> {
    let mut frame = vec![0; HEADERS + SIZE as usize];
    let payload: Vec<u8> = (0..SIZE as u8).map(|n| n.wrapping_mul(3) ^ salt).collect();
    let header = Ipv4Header::new(PEER, OWN, IpProtocol::UDP);
    let (outer, rest) = frame.split_at_mut(ethernet::HEADER_LEN);
    EthernetHeader::new(MACS[0], MACS[1], EtherType::IPV4).emit(outer).expect("room");
    let (inner, datagram) = rest.split_at_mut(ipv4::HEADER_LEN);
    header.emit(inner, datagram.len()).expect("room");
    UdpHeader { source_port: 9, destination_port: PORT }.emit(datagram, payload.len()).expect("room");
    datagram[udp::HEADER_LEN..].copy_from_slice(&payload);
    udp::fill(&header.addresses(), datagram);
    frame
}

/// Datagrams beside so many idle sockets.
pub struct Receive {
    idle: u32,
    subject: &'static str,
    /// Made for the first run, and kept: a million sockets take a while.
    receiver: RefCell<Option<Receiver>>,
}

impl Receive {
    pub fn new((idle, subject): (u32, &'static str)) -> Receive {
        Receive { idle, subject, receiver: RefCell::new(None) }
    }
}

impl Job for Receive {
    fn title(&self) -> String {
        format!("receive-udp {}", self.subject)
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        vec![figure("receive-udp", self.subject, SIZE, Some(self.idle.into()), "ns_per_op")]
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let mut receiver = self.receiver.borrow_mut();
        let receiver = match &mut *receiver {
            Some(receiver) => receiver,
            none => none.insert(Receiver::new(self.idle)?),
        };
        receiver.stretch()?;
        let end = monotonic_ns() + (context.seconds * 1e9) as u64;
        let mut stretches = Vec::new();
        while stretches.is_empty() || monotonic_ns() < end {
            stretches.push(receiver.stretch()? as f64 / f64::from(STRETCH));
        }
        let figures = self.figures(context).into_iter().map(|f| (f, Sample::Values(stretches.clone())));
        Ok(Outcome { figures: figures.collect(), note: None })
    }
}
