//! Packets through a UDP socket: the kernel makes the IP header. docs/roce.md says how the ICRC can be right all the same.

use super::{BATCH, Road, between};
use crate::output::Failure;
use crate::raw;
use bypath::roce::Device;
use bypath::wire::roce::{Envelope, PORT};
use bypath::wire::{Ipv4Header, Ipv6Header, Network, TrafficClass, UdpHeader};
use bypath_sys::sock;
use nix::errno::Errno;
use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};
use std::collections::HashMap;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Longest header in front of a UDP datagram's payload: IPv6 and UDP.
const FRONT: usize = 48;
/// Octets of the longest payload that is received.
const LONGEST: usize = 9216;
/// Peers that are remembered at most.
const PEERS: usize = 256;
/// Octets of the receive queue that are asked for.
const QUEUE: usize = 4 << 20;

/// The address that the routes choose for packets to `peer`.
pub fn source_towards(peer: IpAddr) -> Result<IpAddr, Failure> {
    let any: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let found = UdpSocket::bind((any, 0)).and_then(|socket| {
        // Nothing is sent by this.
        socket.connect((peer, PORT))?;
        socket.local_addr()
    });
    found.map(|address| address.ip()).map_err(|e| {
        Failure::new(1, format_args!("there is no way to {peer}: {e}; look at `ip route get {peer}`"))
    })
}

/// A UDP socket on port 4791.
pub struct Udp {
    socket: UdpSocket,
    bound: IpAddr,
    mtu: usize,
    /// The interface whose MTU that is.
    interface: String,
    /// Room for headers, and a datagram behind them.
    incoming: Vec<u8>,
    control: Vec<u8>,
    /// A packet that waits for room, if its length is not 0.
    outgoing: Vec<u8>,
    waiting: usize,
    /// It is not known beforehand whom it reaches: who cannot be reached is one of them, and no error.
    many: bool,
    /// The last error in sending that passes.
    trouble: Option<Errno>,
    /// Without an address of its own: under which one each peer knows this host.
    known_as: HashMap<IpAddr, IpAddr>,
}

impl Udp {
    /// `many`: whoever comes is to be reached, not one peer.
    pub fn open(bind: IpAddr, many: bool) -> Result<Udp, Failure> {
        let socket = bound(bind).map_err(|e| {
            let why = match e.kind() {
                ErrorKind::AddrInUse => {
                    "another program has it; is `bypath roce recv` running already? On one host the two ends need \
                     addresses of their own, such as --bind 127.0.0.1 and --bind 127.0.0.2"
                }
                ErrorKind::AddrNotAvailable => "this host does not have that address; see `ip address`",
                _ => "see ip(7)",
            };
            Failure::new(1, format_args!("cannot use {bind} port {PORT}: {e}: {why}"))
        })?;
        Udp::with(socket, bind, many)
            .map_err(|e| Failure::new(1, format_args!("cannot set up the UDP socket: {e}")))
    }

    /// Whoever comes, by IPv4 and, if this host has it, IPv6.
    pub fn open_any() -> Result<Udp, Failure> {
        match Udp::open(Ipv6Addr::UNSPECIFIED.into(), true) {
            Err(_) if UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_err() => {
                Udp::open(Ipv4Addr::UNSPECIFIED.into(), true)
            }
            opened => opened,
        }
    }

    fn with(socket: UdpSocket, bound: IpAddr, many: bool) -> std::io::Result<Udp> {
        socket.set_nonblocking(true)?;
        let _ = setsockopt(&socket, sockopt::RcvBuf, &QUEUE);
        let fd = socket.as_raw_fd();
        let set = |level, name, value: i32| -> std::io::Result<()> {
            sock::set_option(fd, level, name, &value.to_ne_bytes())
                .map_err(|e| std::io::Error::from_raw_os_error(e.raw_os_error()))
        };
        // Without an address of its own a socket for IPv6 has IPv4, too.
        if bound.is_ipv4() || bound.is_unspecified() {
            // "Don't fragment" always, whatever is known of the path: then the identification is 0 on a socket that is
            // not connected, and the ICRC is right.
            set(nix::libc::IPPROTO_IP, nix::libc::IP_MTU_DISCOVER, nix::libc::IP_PMTUDISC_PROBE)?;
            setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
            setsockopt(&socket, sockopt::IpRecvTos, &true)?;
        }
        if bound.is_ipv6() {
            set(nix::libc::IPPROTO_IPV6, nix::libc::IPV6_MTU_DISCOVER, nix::libc::IPV6_PMTUDISC_PROBE)?;
            setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
            setsockopt(&socket, sockopt::Ipv6RecvTClass, &true)?;
        }
        let (mtu, interface) = mtu_of(bound);
        let incoming = vec![0; FRONT + LONGEST];
        let control = nix::cmsg_space!(nix::libc::in6_pktinfo, nix::libc::in_pktinfo, i32, i32);
        Ok(Udp {
            socket,
            bound,
            mtu,
            interface,
            incoming,
            control,
            outgoing: vec![0; FRONT + LONGEST],
            waiting: 0,
            many,
            trouble: None,
            known_as: HashMap::new(),
        })
    }

    /// Sends what is behind the headers of the packet that waits, `at` octets of them, from the address that is in them.
    fn send_one(&self, to: IpAddr, at: usize) -> Result<(), Errno> {
        let packet = &self.outgoing[..self.waiting];
        let payload = [IoSlice::new(packet.get(at..).unwrap_or(&[]))];
        let to = match to {
            IpAddr::V4(to) if self.bound.is_ipv6() => to.to_ipv6_mapped().into(),
            to => to,
        };
        let to = SockaddrStorage::from(SocketAddr::new(to, PORT));
        let send = |control: &[ControlMessage<'_>]| {
            sendmsg(self.socket.as_raw_fd(), &payload, control, MsgFlags::empty(), Some(&to)).map(|_| ())
        };
        if !self.bound.is_unspecified() {
            return send(&[]);
        }
        match Ipv4Header::parse_header(packet) {
            Ok((header, _)) => {
                let of = |address: Ipv4Addr| in_addr { s_addr: address.to_bits().to_be() };
                let any = of(Ipv4Addr::UNSPECIFIED);
                let info = in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: of(header.source), ipi_addr: any };
                send(&[ControlMessage::Ipv4PacketInfo(&info)])
            }
            Err(_) => {
                let source =
                    Ipv6Header::parse_header(packet).map_or(Ipv6Addr::UNSPECIFIED, |(h, _)| h.source);
                let address = in6_addr { s6_addr: source.octets() };
                let info = in6_pktinfo { ipi6_addr: address, ipi6_ifindex: 0 };
                send(&[ControlMessage::Ipv6PacketInfo(&info)])
            }
        }
    }

    /// Receives one datagram, puts the headers in front that it had, and gives it to the device. False: there is none.
    fn receive_one(&mut self, device: &mut Device, now: u64) -> Result<bool, Errno> {
        let (front, room) = self.incoming.split_at_mut(FRONT);
        let mut slices = [IoSliceMut::new(room)];
        let message = recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut slices,
            Some(&mut self.control),
            MsgFlags::empty(),
        );
        let message = match message {
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(false),
            // What an ICMP message told, of a packet sent before.
            Err(Errno::ECONNREFUSED) => return Ok(true),
            Err(e) if raw::passes(e) => return Ok(true),
            other => other?,
        };
        let len = message.bytes;
        let (mut destination, mut class) = (self.bound, 0);
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    destination = Ipv4Addr::from_bits(u32::from_be(info.ipi_addr.s_addr)).into();
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    destination = Ipv6Addr::from(info.ipi6_addr.s6_addr).to_canonical();
                }
                ControlMessageOwned::Ipv4Tos(tos) => class = tos,
                ControlMessageOwned::Ipv6TClass(tclass) => class = tclass as u8,
                _ => {}
            }
        }
        let Some(source) = message.address.as_ref().and_then(socket_address) else { return Ok(true) };
        let known = &mut self.known_as;
        if self.bound.is_unspecified() && (known.len() < PEERS || known.contains_key(&source.ip())) {
            known.insert(source.ip(), destination);
        }
        // The header that the kernel wrote.
        let network = between(source.ip(), destination, TrafficClass(class));
        let Ok(network) = network else { return Ok(true) };
        let udp = UdpHeader { source_port: source.port(), destination_port: PORT };
        let at = FRONT - network.len() - 8;
        let behind = 8 + len;
        let emitted = match network {
            Network::V4(header) => header.emit(&mut front[at..], behind),
            Network::V6(header) => header.emit(&mut front[at..], behind),
        };
        let emitted = emitted.and_then(|n| udp.emit(&mut front[at + n..], len));
        if emitted.is_ok() {
            device.handle(now, &self.incoming[at..FRONT + len]);
        }
        Ok(true)
    }
}

/// A socket on the port. The one for any address of IPv6 takes IPv4, too, whatever the host's default is.
fn bound(bind: IpAddr) -> std::io::Result<UdpSocket> {
    if bind != IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        return UdpSocket::bind((bind, PORT));
    }
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind as name, socket_with, sockopt};
    let socket = socket_with(AddressFamily::INET6, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    name(&socket, &SocketAddr::new(bind, PORT))?;
    Ok(socket.into())
}

/// An address as std has it.
fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some((v4.ip(), v4.port()).into());
    }
    address.as_sockaddr_in6().map(|v6| (v6.ip().to_canonical(), v6.port()).into())
}

/// The MTU of the interface that has the address, and its name; the smallest one of those that others are reached by, if it
/// is any.
fn mtu_of(address: IpAddr) -> (usize, String) {
    let all = bypath::l2::interfaces().unwrap_or_default();
    let named = nix::ifaddrs::getifaddrs().ok().and_then(|mut all| {
        let has = |a: &nix::ifaddrs::InterfaceAddress| {
            a.address.as_ref().and_then(socket_address).is_some_and(|a| a.ip() == address)
        };
        all.find(has).map(|found| found.interface_name)
    });
    let fits = |i: &&bypath::l2::Interface| match &named {
        Some(name) => i.name == *name,
        None => i.up && i.loopback == address.is_loopback(),
    };
    let least = all.iter().filter(fits).min_by_key(|i| i.mtu);
    least.map_or((1500, "lo".to_owned()), |i| (i.mtu as usize, i.name.clone()))
}

impl Road for Udp {
    fn name(&self) -> String {
        let both = if self.bound == IpAddr::V6(Ipv6Addr::UNSPECIFIED) { ", IPv4 and IPv6" } else { "" };
        format!("UDP socket {}{both}", SocketAddr::new(self.bound, PORT))
    }

    fn interface(&self) -> String {
        self.interface.clone()
    }

    fn mtu(&self) -> usize {
        self.mtu.min(LONGEST)
    }

    fn window(&self) -> u32 {
        32
    }

    fn way(&mut self, to: IpAddr) -> Result<Option<Envelope>, Failure> {
        let from = match self.known_as.get(&to) {
            Some(known) => *known,
            None if self.bound.is_unspecified() => source_towards(to)?,
            None => self.bound,
        };
        let network = between(from, to, TrafficClass(0))
            .map_err(|e| Failure::new(2, format_args!("{e}; give --bind")))?;
        Ok(Some(Envelope::new(network, PORT)))
    }

    fn receive(&mut self, device: &mut Device, now: u64) -> Result<usize, Failure> {
        for n in 0..BATCH {
            match self.receive_one(device, now) {
                Ok(true) => {}
                Ok(false) => return Ok(n),
                Err(e) => return Err(Failure::new(1, format_args!("cannot receive: {e}"))),
            }
        }
        Ok(BATCH)
    }

    fn send(&mut self, device: &mut Device, now: u64) -> Result<usize, Failure> {
        for n in 0..BATCH {
            if self.waiting == 0 {
                match device.poll_transmit(now, &mut self.outgoing) {
                    Some(len) => self.waiting = len,
                    None => return Ok(n),
                }
            }
            let packet = &self.outgoing[..self.waiting];
            let (to, at) = match Ipv4Header::parse_header(packet) {
                Ok((header, extent)) => (header.destination.into(), extent.header_len + 8),
                Err(_) => {
                    let to = Ipv6Header::parse_header(packet)
                        .map_or(Ipv6Addr::UNSPECIFIED, |(h, _)| h.destination);
                    (IpAddr::V6(to), FRONT)
                }
            };
            match self.send_one(to, at) {
                Ok(()) => self.waiting = 0,
                Err(Errno::EAGAIN) => return Ok(n),
                Err(Errno::EINTR) => {}
                // Lost as on any network: it is sent again.
                Err(Errno::ECONNREFUSED) => self.waiting = 0,
                Err(e) if raw::passes(e) => {
                    self.trouble = Some(e);
                    self.waiting = 0;
                }
                Err(Errno::EINVAL) if self.many => self.waiting = 0,
                Err(Errno::EMSGSIZE) => {
                    let text = format!(
                        "a packet of {} octets is too long for the way to {to}; use a smaller path MTU: --mtu 1024, or raise \
                         the MTU of the interfaces",
                        self.waiting
                    );
                    return Err(Failure::new(1, text));
                }
                Err(e) => return Err(Failure::new(1, format_args!("cannot send to {to}: {}", e.desc()))),
            }
        }
        Ok(BATCH)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn is_full(&self) -> bool {
        self.waiting > 0
    }

    fn trouble(&self) -> String {
        raw::trouble(self.trouble)
    }
}
