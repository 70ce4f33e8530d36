//! TCP against the kernel's, in both roles.

mod ends;
mod faults;
mod in_process;
mod programs;
mod rarities;
mod reuse;
mod streams;
mod wires;
mod wishes;

use crate::{LONGEST, at};
use bypath_link::Link;
use bypath_link::fault::{FaultInjector, Faults};
use bypath_link::l2::interfaces;
use bypath_link::packet::{self, Mode, PacketLink};
use bypath_link::tun::{Device, Offloads};
use bypath_netstack::{Engine, Host, TcpListener, TcpStream};
use bypath_stack::config::Config;
use bypath_stack::tcp::Settings;
use bypath_sys::netns::{self, Namespace};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage, setsockopt, sockopt};
use nix::sys::time::TimeVal;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener as KernelListener, TcpStream as KernelStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

/// What is between the stack and the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wire {
    /// A TAP device.
    Tap(Offloads),
    /// A pair of interfaces: packet sockets on one, the kernel of another namespace on the other one. What is left to the device,
    /// or nothing is.
    Veth { offload: bool },
}

const WIRES: [Wire; 4] = [
    Wire::Tap(Offloads::ALL),
    Wire::Tap(Offloads::NONE),
    Wire::Veth { offload: true },
    Wire::Veth { offload: false },
];

/// A host of the stack, 10.9.0.2 and fd09::2; the kernel is 10.9.0.1 and fd09::1.
struct Net {
    host: Option<Host>,
    /// Where the own end of the pair is, and the other one.
    pair: Option<[Namespace; 2]>,
}

impl Net {
    /// The calling thread, and what it starts, is the kernel's end from now on. `None`: a program that it takes is not there.
    fn open(wire: Wire, mtu: u32, faults: Option<[Faults; 2]>, config: Config) -> Option<Net> {
        Net::open_as(wire, mtu, faults, config, |engine| Host::run(engine).expect("a thread"))
    }

    /// The same; `run` runs the engine.
    fn open_as(
        wire: Wire,
        mtu: u32,
        faults: Option<[Faults; 2]>,
        config: Config,
        run: impl FnOnce(Engine) -> Host,
    ) -> Option<Net> {
        let address = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let v6 = mtu >= 1280;
        let kernels: &[_] = if v6 {
            &[(address("10.9.0.1"), 24), (address("fd09::1"), 64)]
        } else {
            &[(address("10.9.0.1"), 24)]
        };
        let mut pair = None;
        let link: Box<dyn Link + Send> = match wire {
            Wire::Tap(offloads) => {
                let device = Device::tap("mine").offloads(offloads).mtu(mtu);
                let device = kernels.iter().fold(device, |device, (ip, prefix)| device.address(*ip, *prefix));
                with_faults(device.open().expect("a device"), faults)
            }
            Wire::Veth { offload } => {
                let home = Namespace::current().expect("this namespace");
                let there = Namespace::new().expect("a namespace");
                there.run(crate::use_addresses_at_once).expect("the other end");
                netns::veth("left", "right", Some(&there)).expect("a veth pair");
                let up = |name: &str| {
                    netns::set_mtu(name, mtu).expect("an MTU");
                    netns::set_up(name, true).expect("an interface that is up");
                    offload || plain(name)
                };
                let usable = there.run(|| {
                    netns::set_up("lo", true).expect("loopback");
                    let usable = up("right");
                    for (ip, prefix) in kernels {
                        netns::add_address("right", *ip, *prefix).expect("an address");
                    }
                    usable
                });
                if !usable.expect("the other end") || !up("left") {
                    netns::remove("left").expect("the pair");
                    return None;
                }
                they_run();
                let ethertypes = vec![0x0800, 0x0806, 0x86dd];
                let config =
                    packet::Config { mode: Mode::MMSG, offload, ethertypes, ..packet::Config::new("left") };
                let link = PacketLink::open(&config).expect("a link");
                there.enter().expect("the other end");
                they_run();
                netns::settle_addresses("right", 5_000_000_000).expect("addresses");
                pair = Some([home, there]);
                with_faults(link, faults)
            }
        };
        let mut engine = Engine::new(Config { dad_transmits: 0, ..config });
        let iface = engine.add_link("mine", link).expect("an interface");
        for own in ["10.9.0.2/24", "fd09::2/64"].iter().filter(|own| v6 || !own.contains(':')) {
            let prefix = own.parse().expect("an address");
            engine.stack().add_address(Engine::now(), iface, prefix).expect("an address");
        }
        Some(Net { host: Some(run(engine)), pair })
    }

    fn host(&self) -> &Host {
        self.host.as_ref().expect("as long as this is")
    }

    /// Runs `f` at the stack's end of the pair.
    fn at_home<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        match &self.pair {
            Some([home, _]) => home.run(f).expect("the own end"),
            None => f(),
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.host = None;
        if let Some([home, _]) = &self.pair {
            home.enter().expect("where it began");
            netns::remove("left").expect("the pair");
        }
    }
}

fn with_faults(link: impl Link + Send + 'static, faults: Option<[Faults; 2]>) -> Box<dyn Link + Send> {
    let clock = bypath_sys::clock::monotonic_ns as fn() -> u64;
    match faults {
        None => Box::new(link),
        Some([ingress, egress]) => {
            Box::new(FaultInjector::new(link, ingress, egress, 7, clock).expect("faults"))
        }
    }
}

/// Leaves nothing to a device. False: there is no program for it.
fn plain(name: &str) -> bool {
    let ethtool =
        Command::new("ethtool").args(["-K", name, "tx", "off", "tso", "off", "gso", "off"]).output();
    ethtool.is_ok_and(|output| {
        assert!(output.status.success(), "ethtool: {}", String::from_utf8_lossy(&output.stderr));
        true
    })
}

/// Waits until all interfaces of this namespace carry frames: for a while after they are up they do not.
fn they_run() {
    let end = Instant::now() + LONGEST;
    while !interfaces().expect("interfaces").iter().all(|i| !i.up || i.loopback || i.flags & 0x40 != 0) {
        assert!(Instant::now() < end, "the interfaces do not run");
        std::thread::yield_now();
    }
}

/// Octets of a stream, which tell their position.
fn piece(from: usize, len: usize) -> &'static [u8] {
    // A prime: no other distance looks the same.
    const PERIOD: usize = 65_521;
    static OCTETS: OnceLock<Vec<u8>> = OnceLock::new();
    let octets = OCTETS.get_or_init(|| {
        (0..PERIOD + MOST)
            .map(|n| ((n % PERIOD) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0])
            .collect()
    });
    &octets[from % PERIOD..][..len]
}

/// Octets of one piece at most.
const MOST: usize = 4_000_000;

/// Writes so many octets, up to `most` at a time.
fn write_all(mut to: impl Write, octets: usize, most: usize) {
    let mut written = 0;
    while written < octets {
        let len = (octets - written).min(most);
        to.write_all(piece(written, len)).expect("written");
        written += len;
    }
}

/// Reads up to the end, which comes after so many octets.
#[track_caller]
fn read_all(mut from: impl Read, octets: usize) {
    let mut room = vec![0; 200_000];
    let mut read = 0;
    loop {
        let n = from.read(&mut room).unwrap_or_else(|e| panic!("{read} of {octets} octets, then {e}"));
        if n == 0 {
            break;
        }
        assert!(room[..n] == *piece(read, n), "octets from {read} on");
        read += n;
    }
    assert_eq!(read, octets);
}

/// Which connection.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Role {
    v6: bool,
    ours_calls: bool,
}

const ROLES: [Role; 4] = [
    Role { v6: false, ours_calls: false },
    Role { v6: false, ours_calls: true },
    Role { v6: true, ours_calls: false },
    Role { v6: true, ours_calls: true },
];

/// The ends of a connection that the kernel has asked the stack for, or the other way round.
fn pair(host: &Host, v6: bool, ours_calls: bool) -> (TcpStream, KernelStream) {
    pair_with(host, Role { v6, ours_calls }, |_| {}, |_| {})
}

/// The same with what the stack's end wants, and with options of the kernel's.
fn pair_with(
    host: &Host,
    role: Role,
    wishes: impl FnOnce(&mut Settings),
    options: impl FnOnce(&OwnedFd),
) -> (TcpStream, KernelStream) {
    let (own, kernel) = if role.v6 { ("[fd09::2]:0", "[fd09::1]:0") } else { ("10.9.0.2:0", "10.9.0.1:0") };
    let socket = kernel_socket(at(kernel));
    options(&socket);
    let pair = if role.ours_calls {
        socket::listen(&socket, socket::Backlog::new(16).expect("a number"))
            .expect("a listener of the kernel");
        let listener = KernelListener::from(socket);
        let to = listener.local_addr().expect("an address");
        let own =
            TcpStream::connect_with(host, to, None, Some(LONGEST), |_, s| wishes(s)).expect("a connection");
        (own, listener.accept().expect("a connection").0)
    } else {
        let listener =
            TcpListener::bind_with(host, at(own), 16, |_, s| wishes(s)).expect("a listener of the stack");
        listener.set_timeout(Some(LONGEST));
        let kernel = kernel_calls(socket, listener.local_addr().expect("an address"));
        let (own, from) = listener.accept().expect("a connection");
        assert_eq!(from, kernel.local_addr().expect("an address"));
        assert_eq!(own.peer_addr().expect("an address"), from);
        (own, kernel)
    };
    patient(&pair);
    pair
}

/// A socket of the kernel's that is bound to this address.
fn kernel_socket(at: SocketAddr) -> OwnedFd {
    let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
    setsockopt(&socket, sockopt::ReuseAddr, &true).expect("an option");
    setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(LONGEST.as_secs() as i64, 0))
        .expect("a time-out");
    socket::bind(socket.as_raw_fd(), &SockaddrStorage::from(at)).expect("a port");
    socket
}

fn kernel_calls(socket: OwnedFd, to: SocketAddr) -> KernelStream {
    socket::connect(socket.as_raw_fd(), &SockaddrStorage::from(to)).expect("a connection");
    KernelStream::from(socket)
}

fn patient((own, kernel): &(TcpStream, KernelStream)) {
    own.set_timeout(Some(LONGEST));
    kernel.set_read_timeout(Some(LONGEST)).expect("a time-out");
    kernel.set_write_timeout(Some(LONGEST)).expect("a time-out");
}

/// So many octets both ways at once.
fn exchange(own: &TcpStream, kernel: &KernelStream, octets: usize) {
    exchange_in(own, kernel, octets, 100_000);
}

/// The same, written in pieces of `most`.
fn exchange_in(own: &TcpStream, kernel: &KernelStream, octets: usize, most: usize) {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            write_all(own, octets, most);
            own.shutdown(Shutdown::Write).expect("a connection");
        });
        scope.spawn(move || {
            write_all(kernel, octets, most);
            kernel.shutdown(Shutdown::Write).expect("a connection");
        });
        scope.spawn(move || read_all(own, octets));
        read_all(kernel, octets);
    });
}

/// All of them at once. What one of them does wrong is told with its name.
fn exchange_all(pairs: &[(String, (TcpStream, KernelStream))], octets: usize) {
    std::thread::scope(|scope| {
        let all: Vec<_> = pairs
            .iter()
            .map(|(name, (own, kernel))| (name, scope.spawn(move || exchange(own, kernel, octets))))
            .collect();
        let failed: Vec<_> =
            all.into_iter().filter_map(|(name, one)| one.join().is_err().then_some(name)).collect();
        assert!(failed.is_empty(), "{failed:?}");
    });
    for (name, (own, _)) in pairs {
        let statistics = own.statistics().expect("a connection");
        assert_eq!(statistics.octets_received, octets as u64, "{name}");
    }
}

/// A setting of the kernel's, in this namespace alone. False: it has none such.
fn set(name: &str, value: &str) -> bool {
    std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value).is_ok()
}

/// A count of this namespace's kernel.
fn counted(name: &str) -> u64 {
    // Names in one line, numbers in the next one.
    for file in ["snmp", "netstat"] {
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).expect("counters");
        let lines: Vec<&str> = text.lines().collect();
        for two in lines.chunks_exact(2) {
            let place = two[0].split(' ').position(|n| n == name);
            if let Some(number) = place.and_then(|place| two[1].split(' ').nth(place)) {
                return number.parse().expect("a number");
            }
        }
    }
    panic!("no {name}");
}

/// Waits until nothing is left of any connection but `sockets` that are open.
#[track_caller]
fn nothing_is_left(host: &Host, sockets: usize) {
    let end = Instant::now() + LONGEST;
    loop {
        let usage = host.with(|engine| engine.stack().usage());
        let left = (usage.connections, usage.half_open, usage.orphans, usage.connection_octets);
        if left == (sockets, 0, 0, 0) {
            return;
        }
        assert!(Instant::now() < end, "{usage:?}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
