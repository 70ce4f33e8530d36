//! TCP of smoltcp: between two of its stacks, and with a socket of the kernel over TAP and TUN.

use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{
    self, Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, TunTapInterface,
};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, IpListenEndpoint};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Octets of a write, and of a read at most.
const CHUNK: usize = 64 << 10;
/// Octets of each buffer: larger ones leave the cache.
const BUFFER: usize = 512 << 10;
/// Octets between two looks at the clock, at least.
const STRETCH: u64 = 4 << 20;
const WARM: u64 = 16 << 20;
/// Octets after which the stream repeats itself.
const PERIOD: usize = 4093;
const GLANCE: usize = 16;

/// A cable in one direction.
#[derive(Default)]
struct Wire {
    frames: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

type Shared = Rc<RefCell<Wire>>;

/// One end of it.
struct End {
    out: Shared,
    inwards: Shared,
    mtu: usize,
    sums: bool,
}

struct Rx<'a>(Vec<u8>, &'a Shared);
struct Tx<'a>(&'a Shared);

impl phy::RxToken for Rx<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        let result = f(&self.0);
        self.1.borrow_mut().spare.push(self.0);
        result
    }
}

impl phy::TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = self.0.borrow_mut().spare.pop().unwrap_or_default();
        frame.resize(len, 0);
        let result = f(&mut frame);
        self.0.borrow_mut().frames.push_back(frame);
        result
    }
}

impl Device for End {
    type RxToken<'a> = Rx<'a>;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Rx<'_>, Tx<'_>)> {
        let frame = self.inwards.borrow_mut().frames.pop_front()?;
        Some((Rx(frame, &self.inwards), Tx(&self.out)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Tx<'_>> {
        // As many as our stack says at once.
        (self.out.borrow().frames.len() < 64).then_some(Tx(&self.out))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + 14;
        capabilities.checksum = ChecksumCapabilities::default();
        if !self.sums {
            capabilities.checksum.tcp = Checksum::None;
        }
        capabilities
    }
}

struct Side<D: Device> {
    device: D,
    iface: Interface,
    sockets: SocketSet<'static>,
}

fn now() -> Instant {
    Instant::now()
}

fn address(n: u8) -> IpAddress {
    IpAddress::v4(198, 18, 0, n)
}

fn socket(octets: usize) -> Socket<'static> {
    let mut socket = Socket::new(SocketBuffer::new(vec![0; octets]), SocketBuffer::new(vec![0; octets]));
    // Small ones are for small things: what ends a connection is answered at once.
    if octets < BUFFER {
        socket.set_ack_delay(None);
    }
    socket
}

impl<D: Device> Side<D> {
    fn new(mut device: D, hardware: HardwareAddress, own: u8) -> Side<D> {
        let mut config = Config::new(hardware);
        config.random_seed = u64::from(own);
        let mut iface = Interface::new(config, &mut device, now());
        iface.update_ip_addrs(|list| list.push(IpCidr::new(address(own), 24)).expect("room"));
        Side { device, iface, sockets: SocketSet::new(Vec::new()) }
    }

    fn poll(&mut self) -> bool {
        self.iface.poll(now(), &mut self.device, &mut self.sockets) != PollResult::None
    }

    fn get(&mut self, socket: SocketHandle) -> &mut Socket<'static> {
        self.sockets.get_mut(socket)
    }

    fn connect(&mut self, socket: SocketHandle, to: (IpAddress, u16), port: u16) {
        let own: IpListenEndpoint = port.into();
        let socket = self.sockets.get_mut::<Socket>(socket);
        socket.connect(self.iface.context(), to, own).expect("called");
    }
}

struct Pair {
    client: Side<End>,
    server: Side<End>,
    ids: [SocketHandle; 2],
    octets: Vec<u8>,
    room: Vec<u8>,
    /// Else octets are looked at where they lie.
    copied: bool,
    written: u64,
    read: u64,
    port: u16,
}

fn pattern(len: usize) -> Vec<u8> {
    let period: Vec<u8> = (0..PERIOD as u64).map(|n| (n * n * 31 + n * 7 + (n >> 8)) as u8).collect();
    period.iter().copied().cycle().take(PERIOD + len).collect()
}

fn place(at: u64) -> usize {
    (at % PERIOD as u64) as usize
}

impl Pair {
    fn new(mtu: usize, sums: bool, octets: usize) -> Pair {
        let (a, b) = (Shared::default(), Shared::default());
        let end = |out: &Shared, inwards: &Shared| End { out: out.clone(), inwards: inwards.clone(), mtu, sums };
        let mac = |n| EthernetAddress([2, 0, 0, 0, 0, n]).into();
        let mut client = Side::new(end(&a, &b), mac(1), 1);
        let mut server = Side::new(end(&b, &a), mac(2), 2);
        let ids = [client.sockets.add(socket(octets)), server.sockets.add(socket(octets))];
        let mut pair = Pair {
            client,
            server,
            ids,
            octets: pattern(CHUNK),
            room: vec![0; CHUNK],
            copied: false,
            written: 0,
            read: 0,
            port: 1024,
        };
        pair.open();
        pair
    }

    fn carry(&mut self) {
        self.client.poll();
        self.server.poll();
    }

    fn open(&mut self) {
        self.port = if self.port >= 60_000 { 1024 } else { self.port + 1 };
        self.server.get(self.ids[1]).listen(80).expect("listens");
        self.client.connect(self.ids[0], (address(2), 80), self.port);
        for _ in 0..10 {
            self.carry();
            if self.client.get(self.ids[0]).state() == State::Established {
                self.carry();
                return;
            }
        }
        panic!("no connection");
    }

    fn step(&mut self, all: bool) {
        let at = place(self.written);
        let n = self.client.get(self.ids[0]).send_slice(&self.octets[at..at + CHUNK]).expect("open");
        self.written += n as u64;
        self.carry();
        while self.server.get(self.ids[1]).can_recv() {
            let (octets, at) = (&self.octets, place(self.read));
            let look = |got: &[u8]| {
                let len = if all { got.len() } else { got.len().min(GLANCE) };
                assert!(got[..len] == octets[at..at + len], "wrong octets");
                got.len()
            };
            let socket = self.server.get(self.ids[1]);
            let n = if self.copied {
                let n = socket.recv_slice(&mut self.room).expect("open");
                look(&self.room[..n])
            } else {
                let all = socket.recv(|got| {
                    let n = look(&got[..got.len().min(CHUNK)]);
                    (n, n)
                });
                all.expect("open")
            };
            self.read += n as u64;
        }
    }

    /// Gigabits a second.
    fn stretch(&mut self, least: u64, all: bool) -> f64 {
        let (begun, before) = (std::time::Instant::now(), self.read);
        while self.read - before < least {
            self.step(all);
            assert!(begun.elapsed().as_secs() < 20, "nothing moves");
        }
        (self.read - before) as f64 * 8.0 / begun.elapsed().as_nanos() as f64
    }

    fn trip(&mut self, octet: u8) {
        let mut room = [0; 2];
        self.client.get(self.ids[0]).send_slice(&[octet]).expect("open");
        self.carry();
        assert_eq!((self.server.get(self.ids[1]).recv_slice(&mut room).expect("open"), room[0]), (1, octet));
        self.server.get(self.ids[1]).send_slice(&[!octet]).expect("open");
        self.server.poll();
        self.client.poll();
        assert_eq!((self.client.get(self.ids[0]).recv_slice(&mut room).expect("open"), room[0]), (1, !octet));
    }

    /// Opened, an octet, closed. A socket in TIME-WAIT is not kept: it could not be used for ten seconds.
    fn life(&mut self, octet: u8) {
        let mut room = [0; 2];
        self.client.get(self.ids[0]).send_slice(&[octet]).expect("open");
        self.client.get(self.ids[0]).close();
        self.carry();
        assert_eq!((self.server.get(self.ids[1]).recv_slice(&mut room).expect("open"), room[0]), (1, octet));
        self.server.get(self.ids[1]).close();
        for _ in 0..10 {
            self.server.poll();
            self.client.poll();
            if !self.server.get(self.ids[1]).is_open() && self.client.get(self.ids[0]).state() == State::TimeWait {
                break;
            }
        }
        assert_eq!(self.client.get(self.ids[0]).state(), State::TimeWait);
        self.client.sockets.remove(self.ids[0]);
        self.ids[0] = self.client.sockets.add(socket(2048));
        self.open();
    }
}

fn median(seconds: f64, mut stretch: impl FnMut() -> f64) -> (usize, f64) {
    let begun = std::time::Instant::now();
    let mut all = Vec::new();
    while all.is_empty() || begun.elapsed().as_secs_f64() < seconds {
        all.push(stretch());
    }
    all.sort_by(f64::total_cmp);
    (all.len(), all[all.len() / 2])
}

fn row(name: &str, (n, median): (usize, f64), unit: &str) {
    println!("{name:<30} {n:>10} {median:>10.2} {unit}");
}

/// Between two stacks.
pub fn pairs(seconds: f64) {
    for (name, mtu, sums) in
        [("mtu-1500", 1500, true), ("mtu-65535", 65_535, true), ("mtu-65535-nosum", 65_535, false)]
    {
        for (copied, how) in [(false, ""), (true, "-copied")] {
            let mut pair = Pair::new(mtu, sums, BUFFER);
            pair.copied = copied;
            pair.stretch(WARM, true);
            row(&format!("PairStream/{name}{how}"), median(seconds, || pair.stretch(STRETCH, false)), "Gb/s");
        }
    }
    let mut pair = Pair::new(1500, true, 2048);
    let trips = median(seconds, || {
        let begun = std::time::Instant::now();
        (0..100).for_each(|n| pair.trip(n));
        begun.elapsed().as_nanos() as f64 / 100.0
    });
    row("PairPingpong/mtu-1500", trips, "ns");
    let mut pair = Pair::new(1500, true, 2048);
    let lives = median(seconds, || {
        let begun = std::time::Instant::now();
        (0..100).for_each(|n| pair.life(n));
        100_000.0 / begun.elapsed().as_micros() as f64
    });
    row("PairChurn/mtu-1500", lives, "k/s");
}

fn pin(core: usize) {
    // SAFETY: a set on the stack, for the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// The kernel's end: reads and counts, or writes.
fn peer(listener: &TcpListener, sends: bool, seconds: f64, over: &AtomicBool) -> Vec<f64> {
    let (mut stream, _) = listener.accept().expect("a caller");
    let octets = pattern(4 * CHUNK);
    let patience = Some(std::time::Duration::from_millis(100));
    stream.set_write_timeout(patience).expect("a time");
    if sends {
        let mut written = 0u64;
        while !over.load(Relaxed) {
            let at = place(written);
            written += stream.write(&octets[at..at + 4 * CHUNK]).unwrap_or(0) as u64;
        }
        return Vec::new();
    }
    let mut room = vec![0; 4 * CHUNK];
    let mut meter = Meter::new(seconds);
    loop {
        let n = stream.read(&mut room).expect("octets");
        if n == 0 || !meter.took(&octets, &room[..n]) {
            over.store(true, Relaxed);
            return meter.all;
        }
    }
}

struct Meter {
    seconds: f64,
    read: u64,
    before: u64,
    since: Option<std::time::Instant>,
    begun: Option<std::time::Instant>,
    all: Vec<f64>,
}

impl Meter {
    fn new(seconds: f64) -> Meter {
        Meter { seconds, read: 0, before: 0, since: None, begun: None, all: Vec::new() }
    }

    fn took(&mut self, octets: &[u8], got: &[u8]) -> bool {
        let len = if self.read < WARM { got.len() } else { got.len().min(GLANCE) };
        let at = place(self.read);
        assert!(got[..len] == octets[at..at + len], "wrong octets");
        self.read += got.len() as u64;
        if self.read < WARM {
            return true;
        }
        let now = std::time::Instant::now();
        let Some(since) = self.since else {
            (self.before, self.since, self.begun) = (self.read, Some(now), Some(now));
            return true;
        };
        if self.read - self.before < STRETCH {
            return true;
        }
        self.all.push((self.read - self.before) as f64 * 8.0 / (now - since).as_nanos() as f64);
        (self.before, self.since) = (self.read, Some(now));
        self.begun.is_none_or(|begun| (now - begun).as_secs_f64() < self.seconds)
    }
}

/// With a socket of the kernel: in namespaces of one's own. One core for smoltcp, the other one for the kernel's end.
pub fn kernel_peer(seconds: f64, cores: [usize; 2]) {
    for (name, medium) in [("tap", Medium::Ethernet), ("tun", Medium::Ip)] {
        for sends in [true, false] {
            let device = TunTapInterface::new("rival0", medium).expect("a device");
            for words in [
                &["addr", "add", "198.18.0.1/24", "dev", "rival0"][..],
                &["link", "set", "rival0", "up"],
            ] {
                assert!(Command::new("ip").args(words).status().expect("ip").success());
            }
            let fd = device.as_raw_fd();
            let hardware = match medium {
                Medium::Ethernet => EthernetAddress([2, 0, 0, 0, 0, 2]).into(),
                _ => HardwareAddress::Ip,
            };
            assert!(device.capabilities().max_transmission_unit >= 1500);
            let mut side = Side::new(device, hardware, 2);
            let listener = TcpListener::bind("198.18.0.1:7000").expect("listens");
            let over = Arc::new(AtomicBool::new(false));
            let theirs = Arc::clone(&over);
            let thread = std::thread::spawn(move || {
                pin(cores[1]);
                peer(&listener, !sends, seconds, &theirs)
            });
            pin(cores[0]);
            let id = side.sockets.add(socket(4 * BUFFER));
            side.connect(id, (address(1), 7000), 40_000);
            let octets = pattern(4 * CHUNK);
            let (mut written, mut room, mut meter) = (0u64, vec![0; 4 * CHUNK], Meter::new(seconds));
            while !over.load(Relaxed) {
                let moved = side.poll();
                let socket = side.get(id);
                let mut idle = true;
                if sends && socket.can_send() {
                    let at = place(written);
                    let n = socket.send_slice(&octets[at..at + 4 * CHUNK]).expect("open");
                    (written, idle) = (written + n as u64, n == 0);
                }
                while socket.can_recv() {
                    let n = socket.recv_slice(&mut room).expect("open");
                    idle = false;
                    if !meter.took(&octets, &room[..n]) {
                        over.store(true, Relaxed);
                        break;
                    }
                }
                if !moved && idle {
                    let _ = phy::wait(fd, Some(Duration::from_millis(20)));
                }
            }
            side.get(id).abort();
            side.poll();
            let theirs = thread.join().expect("the peer");
            let mut all = if sends { theirs } else { meter.all };
            all.sort_by(f64::total_cmp);
            let direction = if sends { "Send" } else { "Receive" };
            row(&format!("KernelPeer{direction}/{name}"), (all.len(), all[all.len() / 2]), "Gb/s");
        }
    }
}
