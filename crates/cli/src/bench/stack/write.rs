//! A UDP write through the whole stack: socket, route, neighbour, IPv4 and Ethernet headers, into a buffer that stands for the
//! device.

use super::figure;
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use bypath::wire::meta::ChecksumState;
use bypath::wire::udp::{UdpChecksum, UdpHeader};
use bypath::wire::{
    EtherType, EthernetHeader, FrameMeta, Ipv4Header, MacAddr, checksum, ethernet, ipv4, udp,
};
use bypath_stack::Stack;
use bypath_stack::config::Config;
use bypath_stack::iface::{IfaceConfig, IfaceId, Medium, Offload};
use bypath_stack::socket::SocketId;
use bypath_stack::time::Instant;
use bypath_sys::clock::monotonic_ns;
use clap::ValueEnum;
use std::hint::black_box;
use std::net::SocketAddr;

/// Who computes the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Subject {
    /// The stack
    Checksum,
    /// The device, which the sink stands for
    Offload,
}

impl Subject {
    pub const ALL: [Subject; 2] = [Subject::Checksum, Subject::Offload];

    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Checksum => "checksum",
            Subject::Offload => "offload",
        }
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

/// A stack with a socket, and a buffer for its frames.
pub struct Writer {
    subject: Subject,
    stack: Stack,
    iface: IfaceId,
    socket: SocketId,
    to: SocketAddr,
    payload: Vec<u8>,
    room: Vec<u8>,
    now: u64,
}

impl Writer {
    /// For datagrams of `size` octets.
    pub fn new(subject: Subject, size: u32) -> Result<Writer, String> {
        let now = Instant::ZERO;
        let mut stack = Stack::new(Config::default(), [7; 32]);
        let offload = Offload { checksum: subject == Subject::Offload, segmentation: false };
        let config = IfaceConfig { medium: Medium::Ethernet(MACS[0]), mtu: MTU, offload };
        let iface = stack.add_iface(config).map_err(|e| e.to_string())?;
        let own = "10.0.0.1/24".parse().expect("a prefix");
        stack.add_address(now, iface, own).map_err(|e| e.to_string())?;
        let to: SocketAddr = "10.0.0.2:9".parse().expect("an address");
        stack.set_neighbor(iface, to.ip(), MACS[1]);
        let socket = stack.open_udp().map_err(|e| e.to_string())?;
        let mut room = vec![0; ethernet::HEADER_LEN + MTU];
        // The announcement of its address.
        while stack.poll_transmit(now, iface, &mut room).is_some() {}
        let payload = vec![0; size as usize];
        Ok(Writer { subject, stack, iface, socket, to, payload, room, now: 0 })
    }

    /// One write; the frame, if it is as long as it should be.
    #[inline]
    fn write(&mut self) -> Option<FrameMeta> {
        self.now += STEP;
        let now = Instant::from_nanos(self.now);
        let mut socket = self.stack.udp(self.socket)?;
        socket.send(black_box(&self.payload), Some(self.to)).ok()?;
        let (len, meta) = self.stack.poll_transmit(now, self.iface, &mut self.room)?;
        black_box(&self.room[..len]);
        (len == self.payload.len() + HEADERS).then_some(meta)
    }

    /// A stretch of writes, each of which must yield a frame of the right length; the time of them all, in nanoseconds.
    /// Outside of it the payload is made anew before, and the last frame is looked at after.
    pub fn stretch(&mut self) -> Result<u64, String> {
        let salt = self.now / STEP / u64::from(STRETCH);
        for (at, octet) in self.payload.iter_mut().enumerate() {
            *octet = (at as u64 ^ salt).wrapping_add(1) as u8;
        }
        let before = self.stack.counters().udp_sent;
        let mut last = None;
        let begun = monotonic_ns();
        for _ in 0..STRETCH {
            last = self.write();
            if last.is_none() {
                return Err("a write yielded no frame, or one of a wrong length".into());
            }
        }
        let elapsed = monotonic_ns() - begun;
        let sent = self.stack.counters().udp_sent - before;
        if sent != u64::from(STRETCH) {
            return Err(format!("{sent} datagrams sent in {STRETCH} writes"));
        }
        self.look(&last.unwrap_or_default())?;
        Ok(elapsed)
    }

    /// Whether the frame in the buffer is what its receiver should get. A checksum that was left to the device is completed
    /// as a device does it.
    fn look(&mut self, meta: &FrameMeta) -> Result<(), String> {
        let len = HEADERS + self.payload.len();
        let frame = &mut self.room[..len];
        match (self.subject, meta.checksum) {
            (Subject::Checksum, ChecksumState::Unknown) => {}
            (Subject::Offload, ChecksumState::Partial { start, offset }) => {
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
