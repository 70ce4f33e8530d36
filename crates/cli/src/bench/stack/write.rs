//! A UDP write through the whole stack: socket, route, neighbour, IPv4 and Ethernet headers, into a buffer that stands for the
//! device.

use super::figure;
use super::sink::Sink;
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use bypath::wire::meta::ChecksumState;
use bypath::wire::udp::{UdpChecksum, UdpHeader};
use bypath::wire::{
    EtherType, EthernetHeader, FrameMeta, Ipv4Header, MacAddr, checksum, ethernet, ipv4, udp,
};
use bypath_netstack::Engine;
use bypath_stack::Stack;
use bypath_stack::config::Config;
use bypath_stack::iface::{IfaceConfig, IfaceId, Medium, Offload};
use bypath_stack::socket::SocketId;
use bypath_stack::time::Instant;
use bypath_sys::clock::monotonic_ns;
use clap::ValueEnum;
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;

/// Who computes the checksum, and which way the datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Subject {
    /// The stack, into the device's buffer
    Checksum,
    /// The device, which the sink stands for
    Offload,
    /// The stack, through the queue of the interface
    QueuedChecksum,
    /// The device, through the queue
    QueuedOffload,
    /// The stack, of an engine with a link
    EngineChecksum,
    /// The link
    EngineOffload,
}

impl Subject {
    pub const ALL: [Subject; 6] = [
        Subject::Checksum,
        Subject::Offload,
        Subject::QueuedChecksum,
        Subject::QueuedOffload,
        Subject::EngineChecksum,
        Subject::EngineOffload,
    ];

    /// Its name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Subject::Checksum => "checksum",
            Subject::Offload => "offload",
            Subject::QueuedChecksum => "queued-checksum",
            Subject::QueuedOffload => "queued-offload",
            Subject::EngineChecksum => "engine-checksum",
            Subject::EngineOffload => "engine-offload",
        }
    }

    /// The checksum is left to the device.
    pub const fn offloads(self) -> bool {
        matches!(self, Subject::Offload | Subject::QueuedOffload | Subject::EngineOffload)
    }
}

/// Writes between two looks at the clock. After each such stretch its last frame is looked at.
pub const STRETCH: u32 = 1000;
/// Octets of a packet at most: every payload fits into one.
const MTU: usize = 65_535;
/// Nanoseconds that pass for the stack from write to write.
const STEP: u64 = 100;
/// Octets of all headers.
pub const HEADERS: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN;
/// Addresses of this host and of the one that is written to.
pub const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];

/// What the datagrams go through.
enum Way {
    /// The stack, whose frames are written into the buffer: at once, or when it is asked for one.
    Stack { stack: Box<Stack>, iface: IfaceId, queued: bool },
    /// An engine, which has a sink for a link.
    Engine { engine: Box<Engine>, sink: Arc<Sink> },
}

/// A stack with a socket, and a buffer for its frames.
pub struct Writer {
    subject: Subject,
    way: Way,
    socket: SocketId,
    to: SocketAddr,
    payload: Vec<u8>,
    room: Vec<u8>,
    now: u64,
}

/// An address and a neighbour for the interface, and a socket.
fn ready(stack: &mut Stack, iface: IfaceId, now: Instant, to: SocketAddr) -> Result<SocketId, String> {
    let own = "10.0.0.1/24".parse().expect("a prefix");
    stack.add_address(now, iface, own).map_err(|e| e.to_string())?;
    stack.set_neighbor(iface, to.ip(), MACS[1]);
    stack.open_udp().map_err(|e| e.to_string())
}

impl Writer {
    /// For datagrams of `size` octets.
    pub fn new(subject: Subject, size: u32) -> Result<Writer, String> {
        let to: SocketAddr = "10.0.0.2:9".parse().expect("an address");
        let mut room = vec![0; ethernet::HEADER_LEN + MTU];
        let (way, socket) = if matches!(subject, Subject::EngineChecksum | Subject::EngineOffload) {
            let sink = Arc::new(Sink::new(room.len()));
            let mut engine = Box::new(Engine::with_seed(Config::default(), [7; 32]));
            let link = sink.link(MTU, subject.offloads());
            let iface = engine.add_link("sink", Box::new(link)).map_err(|e| e.to_string())?;
            let socket = ready(engine.stack(), iface, Engine::now(), to)?;
            // The announcement of its address.
            engine.flush().map_err(|e| e.to_string())?;
            (Way::Engine { engine, sink }, socket)
        } else {
            let now = Instant::ZERO;
            let mut stack = Box::new(Stack::new(Config::default(), [7; 32]));
            let offload = Offload { checksum: subject.offloads(), segmentation: false };
            let config = IfaceConfig { medium: Medium::Ethernet(MACS[0]), mtu: MTU, offload };
            let iface = stack.add_iface(config).map_err(|e| e.to_string())?;
            let socket = ready(&mut stack, iface, now, to)?;
            while stack.poll_transmit(now, iface, &mut room).is_some() {}
            let queued = matches!(subject, Subject::QueuedChecksum | Subject::QueuedOffload);
            (Way::Stack { stack, iface, queued }, socket)
        };
        let payload = vec![0; size as usize];
        Ok(Writer { subject, way, socket, to, payload, room, now: 0 })
    }

    fn stack(&mut self) -> &mut Stack {
        match &mut self.way {
            Way::Stack { stack, .. } => stack,
            Way::Engine { engine, .. } => engine.stack(),
        }
    }

    /// One write; what belongs to the frame, if it is as long as it should be.
    #[inline]
    fn write(&mut self) -> Option<FrameMeta> {
        self.now += STEP;
        let now = Instant::from_nanos(self.now);
        let (payload, to) = (black_box(&self.payload[..]), Some(self.to));
        let (len, meta) = match &mut self.way {
            Way::Stack { stack, iface, queued } => {
                let mut socket = stack.udp(self.socket)?;
                let straight = if *queued {
                    socket.send(payload, to).ok()?;
                    None
                } else {
                    socket.send_through(now, payload, to, *iface, &mut self.room).ok()?
                };
                let (len, meta) = match straight {
                    Some(frame) => frame,
                    // The first one of a socket is queued while its way is looked for.
                    None => stack.poll_transmit(now, *iface, &mut self.room)?,
                };
                black_box(&self.room[..len]);
                (len, meta)
            }
            Way::Engine { engine, sink } => {
                engine.send(self.socket, payload, to).ok()?;
                (sink.len(), FrameMeta::default())
            }
        };
        (len == payload.len() + HEADERS).then_some(meta)
    }

    /// A stretch of writes, each of which must yield a frame of the right length; the time of them all, in nanoseconds.
    /// Outside of it the payload is made anew before, and the last frame is looked at after.
    pub fn stretch(&mut self) -> Result<u64, String> {
        let salt = self.now / STEP / u64::from(STRETCH);
        for (at, octet) in self.payload.iter_mut().enumerate() {
            *octet = (at as u64 ^ salt).wrapping_add(1) as u8;
        }
        let before = self.stack().counters().udp_sent;
        let mut last = None;
        let begun = monotonic_ns();
        for n in 1..=STRETCH {
            if n == STRETCH
                && let Way::Engine { sink, .. } = &self.way
            {
                sink.keep();
            }
            last = self.write();
            if last.is_none() {
                return Err("a write yielded no frame, or one of a wrong length".into());
            }
        }
        let elapsed = monotonic_ns() - begun;
        let sent = self.stack().counters().udp_sent - before;
        if sent != u64::from(STRETCH) {
            return Err(format!("{sent} datagrams sent in {STRETCH} writes"));
        }
        let mut meta = last.unwrap_or_default();
        if let Way::Engine { sink, .. } = &self.way {
            meta = sink.take(&mut self.room);
        }
        self.look(&meta)?;
        Ok(elapsed)
    }

    /// Whether the frame in the buffer is what its receiver should get. A checksum that was left to the device is completed
    /// as a device does it.
    fn look(&mut self, meta: &FrameMeta) -> Result<(), String> {
        let len = HEADERS + self.payload.len();
        let frame = &mut self.room[..len];
        match (self.subject.offloads(), meta.checksum) {
            (false, ChecksumState::Unknown) => {}
            (true, ChecksumState::Partial { start, offset }) => {
                let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
                let sum = checksum::checksum(&frame[start..]);
                frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
            }
            (_, other) => return Err(format!("checksum of the frame: {other:?}")),
        }
        let failed = |e: bypath::wire::ParseError| e.to_string();
        let (outer, packet) = EthernetHeader::parse(frame).map_err(failed)?;
        let expected = EthernetHeader::new(MACS[1], MACS[0], EtherType::IPV4);
        if outer != expected {
            return Err(format!("Ethernet header: {outer:?}"));
        }
        // This looks at the header's checksum.
        let (inner, datagram) = Ipv4Header::parse(packet).map_err(failed)?;
        if udp::verify(&inner.addresses(), datagram) != UdpChecksum::Fits {
            return Err("a wrong checksum".into());
        }
        let (header, payload) = UdpHeader::parse(datagram).map_err(failed)?;
        if SocketAddr::new(inner.destination.into(), header.destination_port) != self.to {
            return Err(format!("a datagram for {}, {}", inner.destination, header.destination_port));
        }
        if payload == self.payload { Ok(()) } else { Err("wrong octets of payload".into()) }
    }
}

/// Writes of one size, one after the other.
pub struct Write {
    pub subject: Subject,
    pub size: u32,
}

impl Job for Write {
    fn title(&self) -> String {
        format!("device-write {} B {}", self.size, self.subject.name())
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        vec![figure("device-write", self.subject.name(), self.size, None, "ns_per_op")]
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let mut writer = Writer::new(self.subject, self.size)?;
        writer.stretch()?;
        let end = monotonic_ns() + (context.seconds * 1e9) as u64;
        let mut stretches = Vec::new();
        while stretches.is_empty() || monotonic_ns() < end {
            stretches.push(writer.stretch()? as f64 / f64::from(STRETCH));
        }
        let figures = self.figures(context).into_iter().map(|f| (f, Sample::Values(stretches.clone())));
        Ok(Outcome { figures: figures.collect(), note: None })
    }
}
