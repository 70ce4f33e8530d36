//! What a UDP datagram costs in smoltcp, and what TCP moves: the work of `bypath bench stack`, printed in the same rows.
//!
//! Egress and ingress are polled alone, without the other half: the cheapest way that smoltcp offers.

mod tcp;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium};
use smoltcp::socket::udp;
use smoltcp::time::Instant;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, IpAddress, IpCidr,
    IpEndpoint, IpProtocol, Ipv4Address, Ipv4Packet, Ipv4Repr, UdpPacket, UdpRepr,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The system's allocator, counting.
struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);
static OCTETS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Relaxed);
        OCTETS.fetch_add(layout.size() as u64, Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const OWN_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);
const PEER_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 2]);
const OWN: Ipv4Address = Ipv4Address::new(10, 0, 0, 1);
const PEER: Ipv4Address = Ipv4Address::new(10, 0, 0, 200);
const HEADERS: usize = 14 + 20 + 8;
const SIZE: usize = 64;
/// Addresses of ours: as many as it takes.
const ADDRESSES: u32 = 8;

/// A sink; or one frame that is to be received.
struct Sink {
    mtu: usize,
    offload: bool,
    room: Vec<u8>,
    len: usize,
    frames: u64,
    incoming: Option<usize>,
    source: Vec<Vec<u8>>,
}

struct Rx<'a>(&'a [u8]);
struct Tx<'a> {
    room: &'a mut [u8],
    len: &'a mut usize,
    frames: &'a mut u64,
}

impl phy::RxToken for Rx<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl phy::TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        *self.len = len;
        *self.frames += 1;
        let result = f(&mut self.room[..len]);
        black_box(&self.room[..len]);
        result
    }
}

impl Device for Sink {
    type RxToken<'a> = Rx<'a>;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Rx<'_>, Tx<'_>)> {
        let frame = &self.source[self.incoming.take()?];
        Some((Rx(frame), Tx { room: &mut self.room, len: &mut self.len, frames: &mut self.frames }))
    }

    fn transmit(&mut self, _: Instant) -> Option<Tx<'_>> {
        Some(Tx { room: &mut self.room, len: &mut self.len, frames: &mut self.frames })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu;
        capabilities.checksum = ChecksumCapabilities::default();
        if self.offload {
            capabilities.checksum.udp = Checksum::None;
        }
        capabilities
    }
}

struct Host {
    device: Sink,
    iface: Interface,
    sockets: SocketSet<'static>,
    now: i64,
    nanos: u64,
}

impl Host {
    fn new(mtu: usize, offload: bool) -> Host {
        let mut device = Sink {
            mtu: mtu + 14,
            offload,
            room: vec![0; 65_549],
            len: 0,
            frames: 0,
            incoming: None,
            source: Vec::new(),
        };
        let mut iface = Interface::new(Config::new(OWN_MAC.into()), &mut device, Instant::ZERO);
        iface.update_ip_addrs(|list| {
            for n in 0..ADDRESSES {
                list.push(IpCidr::new(own(n).into(), 24)).expect("room");
            }
        });
        Host { device, iface, sockets: SocketSet::new(Vec::new()), now: 0, nanos: 0 }
    }

    fn socket(&mut self, address: Ipv4Address, port: u16, octets: usize) -> SocketHandle {
        let buffer = |octets| udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 4], vec![0; octets]);
        let mut socket = udp::Socket::new(buffer(octets), buffer(octets));
        socket.bind((IpAddress::from(address), port)).expect("bound");
        self.sockets.add(socket)
    }

    /// 100 ns pass.
    fn step(&mut self) -> Instant {
        self.nanos += 100;
        if self.nanos >= 1000 {
            self.nanos = 0;
            self.now += 1;
        }
        Instant::from_micros(self.now)
    }

    /// Hears where the peer is: its request, which makes it known.
    fn meet(&mut self) {
        let arp = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr: PEER_MAC,
            source_protocol_addr: PEER,
            target_hardware_addr: EthernetAddress([0; 6]),
            target_protocol_addr: OWN,
        };
        let mut frame = vec![0; 14 + arp.buffer_len()];
        let mut outer = EthernetFrame::new_unchecked(&mut frame);
        outer.set_src_addr(PEER_MAC);
        outer.set_dst_addr(EthernetAddress::BROADCAST);
        outer.set_ethertype(EthernetProtocol::Arp);
        arp.emit(&mut ArpPacket::new_unchecked(outer.payload_mut()));
        self.device.source = vec![frame];
        self.device.incoming = Some(0);
        let now = self.step();
        self.iface.poll_ingress_single(now, &mut self.device, &mut self.sockets);
    }
}

fn own(n: u32) -> Ipv4Address {
    Ipv4Address::new(10, 0, 0, 1 + n as u8)
}

trait Measured {
    /// Nanoseconds for `n` operations, each looked at.
    fn stretch(&mut self, n: u32) -> u64;
}

struct Writer {
    host: Host,
    socket: SocketHandle,
    payload: Vec<u8>,
    offload: bool,
    salt: u8,
}

impl Writer {
    fn new(offload: bool, len: usize) -> Writer {
        let mut host = Host::new(65_535, offload);
        let socket = host.socket(OWN, 9, 212_992);
        host.meet();
        Writer { host, socket, payload: vec![0; len], offload, salt: 0 }
    }

    fn look(&self) {
        let frame =
            EthernetFrame::new_checked(&self.host.device.room[..self.host.device.len]).expect("a frame");
        assert_eq!((frame.src_addr(), frame.dst_addr()), (OWN_MAC, PEER_MAC));
        let packet = Ipv4Packet::new_checked(frame.payload()).expect("a packet");
        assert!(packet.verify_checksum(), "IPv4 checksum");
        let datagram = UdpPacket::new_checked(packet.payload()).expect("a datagram");
        assert!(
            self.offload || datagram.checksum() != 0 && datagram.verify_checksum(&OWN.into(), &PEER.into())
        );
        assert_eq!(datagram.payload(), self.payload);
    }
}

impl Measured for Writer {
    fn stretch(&mut self, n: u32) -> u64 {
        self.salt = self.salt.wrapping_add(1);
        for (at, octet) in self.payload.iter_mut().enumerate() {
            *octet = at as u8 ^ self.salt;
        }
        let before = self.host.device.frames;
        let to = IpEndpoint::new(PEER.into(), 9);
        let begun = std::time::Instant::now();
        for _ in 0..n {
            let now = self.host.step();
            let host = &mut self.host;
            let socket = host.sockets.get_mut::<udp::Socket>(self.socket);
            socket.send_slice(black_box(&self.payload), to).expect("sent");
            host.iface.poll_egress(now, &mut host.device, &mut host.sockets);
            assert_eq!(host.device.len, HEADERS + self.payload.len());
        }
        let elapsed = begun.elapsed().as_nanos() as u64;
        assert_eq!(self.host.device.frames - before, u64::from(n));
        self.look();
        elapsed
    }
}

struct Receiver {
    host: Host,
    socket: SocketHandle,
    next: usize,
}

impl Receiver {
    fn new(idle: u32) -> Receiver {
        let mut host = Host::new(1500, false);
        let mut socket = None;
        for n in 0..idle {
            // In the middle: on average it goes through half of them.
            if n == idle / 2 {
                socket = Some(host.socket(OWN, 7, 212_992));
            }
            host.socket(own(n % ADDRESSES), (1024 + n / ADDRESSES) as u16, 64);
        }
        let socket = socket.expect("one idle socket at least");
        host.meet();
        host.device.source = (0..64).map(frame).collect();
        Receiver { host, socket, next: 0 }
    }
}

fn frame(salt: u8) -> Vec<u8> {
    let payload: Vec<u8> = (0..SIZE as u8).map(|n| n.wrapping_mul(3) ^ salt).collect();
    let mut octets = vec![0; HEADERS + SIZE];
    let mut frame = EthernetFrame::new_unchecked(&mut octets);
    frame.set_src_addr(PEER_MAC);
    frame.set_dst_addr(OWN_MAC);
    frame.set_ethertype(EthernetProtocol::Ipv4);
    let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
    let header = Ipv4Repr {
        src_addr: PEER,
        dst_addr: OWN,
        next_header: IpProtocol::Udp,
        payload_len: 8 + SIZE,
        hop_limit: 64,
    };
    header.emit(&mut packet, &ChecksumCapabilities::default());
    let mut datagram = UdpPacket::new_unchecked(packet.payload_mut());
    UdpRepr { src_port: 9, dst_port: 7 }.emit(
        &mut datagram,
        &PEER.into(),
        &OWN.into(),
        SIZE,
        |room| room.copy_from_slice(&payload),
        &ChecksumCapabilities::default(),
    );
    octets
}

impl Measured for Receiver {
    fn stretch(&mut self, n: u32) -> u64 {
        let begun = std::time::Instant::now();
        for _ in 0..n {
            let now = self.host.step();
            let host = &mut self.host;
            self.next = (self.next + 1) % host.device.source.len();
            host.device.incoming = Some(self.next);
            host.iface.poll_ingress_single(now, &mut host.device, &mut host.sockets);
            let socket = host.sockets.get_mut::<udp::Socket>(self.socket);
            let mut room = [0; SIZE];
            let (len, from) = socket.recv_slice(&mut room).expect("a datagram");
            assert!(len == SIZE && from.endpoint.port == 9);
            assert!(room[..] == host.device.source[self.next][HEADERS..]);
        }
        begun.elapsed().as_nanos() as u64
    }
}

fn measure(name: &str, subject: &mut dyn Measured, stretch: u32, seconds: f64) {
    subject.stretch(stretch);
    let (mut times, mut taken) = (Vec::new(), [0; 2]);
    let begun = std::time::Instant::now();
    while times.is_empty() || begun.elapsed().as_secs_f64() < seconds {
        let before = [&CALLS, &OCTETS].map(|n| n.load(Relaxed));
        let elapsed = subject.stretch(stretch);
        for (sum, (now, before)) in taken.iter_mut().zip([&CALLS, &OCTETS].into_iter().zip(before)) {
            *sum += now.load(Relaxed) - before;
        }
        times.push(elapsed as f64 / f64::from(stretch));
    }
    times.sort_by(f64::total_cmp);
    let n = times.len() as u64 * u64::from(stretch);
    let [calls, octets] = taken.map(|sum| sum / n);
    let median = times[times.len() / 2];
    println!("{name:<30} {n:>10} {median:>10.1} ns/op {octets:>6} B/op {calls:>4} allocs/op");
}

fn main() {
    let argument = |name: &str, usual: f64| {
        let mut words = std::env::args().skip_while(|word| word != name).skip(1);
        words.next().map_or(usual, |word| word.parse().expect("a number"))
    };
    if std::env::args().any(|word| word == "--kernel-peer") {
        let core = |name, usual| argument(name, usual) as usize;
        return tcp::kernel_peer(argument("--seconds", 0.2), [core("--core", 1.0), core("--peer-core", 0.0)]);
    }
    let (seconds, most) = (argument("--seconds", 0.2), argument("--idle", 100_000.0));
    for offload in [false, true] {
        let subject = if offload { "offload" } else { "checksum" };
        for len in (0..12).map(|n| 1 << n) {
            let name = format!("WritePacket/{subject}/{len}");
            measure(&name, &mut Writer::new(offload, len), 1000, seconds);
        }
    }
    // It goes through all sockets for each datagram.
    for (idle, stretch) in [(1, 1000), (100, 500), (10_000, 5), (100_000, 1), (1_000_000, 1)] {
        if f64::from(idle) <= most {
            measure(&format!("ReceiveUDP/idle-{idle}"), &mut Receiver::new(idle), stretch, seconds);
        }
    }
    tcp::pairs(seconds);
}
