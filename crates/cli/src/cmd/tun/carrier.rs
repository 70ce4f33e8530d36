//! What carries datagrams: a TUN device, or an ordinary socket.

use super::{How, Link, Way, beside};
use crate::output::Failure;
use crate::raw::{
    self,
    wait::{READ, Stop},
};
use bypath::tun::{Device, Mode, Refused, Udp};
use nix::errno::Errno;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

/// What came.
pub enum Got {
    /// A datagram of so many octets, from there.
    Datagram(usize, SocketAddr),
    /// The other host says that nobody takes datagrams there.
    Unreachable,
    /// Nothing in time, or Ctrl-C.
    Nothing,
}

/// What came of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// All of it is on its way.
    All,
    /// Some is lost, for a reason that may pass: it is sent again like everything that was lost.
    Lost,
    /// The other host says that nobody takes datagrams there.
    Nobody,
}

/// A TUN device, or a socket.
pub enum Means {
    Tun(Box<Udp>),
    Socket(UdpSocket),
}

/// What datagrams go through, and what was wrong with it last.
pub struct Carrier {
    pub means: Means,
    trouble: Option<Errno>,
}

/// The error, if it is one that passes.
fn passes(e: &std::io::Error) -> Option<Errno> {
    e.raw_os_error().map(Errno::from_raw).filter(|errno| raw::passes(*errno))
}

/// The addresses of an interface, with their prefixes, but for those of the link only.
fn addresses(interface: &str) -> nix::Result<Vec<(IpAddr, u8)>> {
    let ip = |address: Option<nix::sys::socket::SockaddrStorage>| {
        let address = address?;
        let v4 = address.as_sockaddr_in().map(|a| IpAddr::from(a.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::from(a.ip())))
    };
    let ones = |mask: IpAddr| match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    let of_link = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let all = nix::ifaddrs::getifaddrs()?.filter(|a| a.interface_name == interface);
    Ok(all
        .filter_map(|a| Some((ip(a.address)?, ip(a.netmask).map_or(0, ones) as u8)))
        .filter(|(ip, _)| !of_link(ip))
        .collect())
}

/// Both ends of the datagrams.
pub struct Ends {
    /// The own one, if it was asked for.
    pub local: Option<SocketAddr>,
    /// The own port where none was asked for; 0: any.
    pub port: u16,
    /// To whom.
    pub to: Option<SocketAddr>,
    /// The kernel's end of a device that is made.
    pub net: (IpAddr, u8),
}

impl Means {
    fn tun(link: &Link, ends: &Ends) -> Result<Means, Failure> {
        // What a device that is there has. Where that cannot be known, it is not what is wrong.
        let found = if link.attach { addresses(&link.device).ok() } else { None };
        let wants_v4 = ends.local.or(ends.to).map_or(ends.net.0.is_ipv4(), |a| a.is_ipv4());
        let has = found.iter().flatten().find(|(ip, _)| ip.is_ipv4() == wants_v4).copied();
        let net = link.net.or(has).unwrap_or(ends.net);
        let local = ends.local.unwrap_or_else(|| SocketAddr::new(beside(net), ends.port));
        if let Some(to) = ends.to {
            if to.ip().is_loopback() {
                let text = format!(
                    "{to}: the kernel takes nothing for this address from a device; send to its end of the device ({}), or give \
                     --via socket",
                    net.0
                );
                return Err(Failure::new(1, text));
            }
            if to.ip() == local.ip() {
                let text = format!("{to}: this is the own end of the device; the kernel's is {}", net.0);
                return Err(Failure::new(1, text));
            }
        }
        let mut device = Device::tun(&link.device);
        if link.attach {
            device = device.attach();
        }
        if !link.attach || link.net.is_some_and(|net| !found.iter().flatten().any(|has| *has == net)) {
            device = device.address(net.0, net.1);
        }
        if let Some(mtu) = link.mtu {
            device = device.mtu(mtu);
        }
        let device = device.open().map_err(raw::failed)?;
        if link.attach && link.net.is_none() && found.is_some() && has.is_none() {
            let (name, (ip, prefix)) = (device.name(), net);
            let text = format!(
                "{name}: the kernel's end of this device has no address of this IP version, so nothing can be answered: give \
                 --net {ip}/{prefix}, or set one once: sudo ip address add {ip}/{prefix} dev {name}"
            );
            return Err(Failure::new(1, text));
        }
        // What nobody asked for is taken where it is to be had.
        let offloads = device.obtained().offloads;
        let own = link.checksum.is_some_and(|who| who != super::Who::Kernel);
        let usual = if offloads.udp && !own { How::Super } else { How::Writev };
        let mode = Mode::from(link.mode.unwrap_or(usual));
        let mut udp = Udp::over(device, local).mode(mode).ttl(link.ttl).dscp(link.dscp);
        udp = udp.dont_fragment(link.dont_fragment).timeout(Duration::ZERO);
        if let Some(who) = link.checksum {
            udp = udp.checksum(who.into());
        }
        Ok(Means::Tun(Box::new(udp.open().map_err(raw::failed)?)))
    }

    fn socket(ends: &Ends) -> Result<Means, Failure> {
        let any: IpAddr = match (ends.to, ends.local) {
            (Some(SocketAddr::V6(_)), _) => std::net::Ipv6Addr::UNSPECIFIED.into(),
            _ => std::net::Ipv4Addr::UNSPECIFIED.into(),
        };
        let local = ends.local.unwrap_or_else(|| SocketAddr::new(any, ends.port));
        let failed = |what: &str, e: std::io::Error| Failure::new(1, format_args!("cannot {what}: {e}"));
        let socket = UdpSocket::bind(local).map_err(|e| {
            let remedy = match e.kind() {
                ErrorKind::AddrInUse => "; another program has this port: give another one, --listen",
                ErrorKind::AddrNotAvailable => {
                    "; this host has no such address (`ip address show` lists them)"
                }
                _ => "",
            };
            Failure::new(1, format_args!("cannot receive at {local}: {e}{remedy}"))
        })?;
        if let Some(to) = ends.to {
            socket.connect(to).map_err(|e| failed(&format!("send to {to}"), e))?;
        }
        // As much as an ordinary user may have, so that a burst finds room.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 8 << 20);
        socket.set_nonblocking(true).map_err(|e| failed("use the socket", e))?;
        Ok(Means::Socket(socket))
    }
}

impl Carrier {
    /// Opens it.
    ///
    /// # Errors
    /// Those of the device or the socket, with the remedy.
    pub fn open(link: &Link, ends: &Ends) -> Result<Carrier, Failure> {
        let means = match link.via {
            Way::Tun => Means::tun(link, ends)?,
            Way::Socket => Means::socket(ends)?,
        };
        Ok(Carrier { means, trouble: None })
    }

    /// In words.
    pub fn describe(&mut self) -> String {
        match &mut self.means {
            Means::Tun(udp) => {
                let (local, mode) = (udp.local(), udp.mode());
                let device = udp.device();
                let offloads = device.obtained().offloads;
                let granted = |on: bool, name: &'static str| if on { name } else { "" };
                let granted = [
                    granted(offloads.checksum, "checksum"),
                    granted(offloads.tcp, "TSO"),
                    granted(offloads.udp, "USO"),
                ];
                let granted: Vec<_> = granted.into_iter().filter(|g| !g.is_empty()).collect();
                format!(
                    "{local} through {} (MTU {}, offloads {}, {})",
                    device.name(),
                    device.mtu(),
                    if granted.is_empty() { "none".to_owned() } else { granted.join(" ") },
                    match mode {
                        Mode::Assemble => "assemble",
                        Mode::Pieces => "writev",
                        Mode::Super => "super",
                    }
                )
            }
            Means::Socket(socket) => {
                let local = socket.local_addr().map_or_else(|_| "a socket".to_owned(), |a| a.to_string());
                format!("{local} through a socket")
            }
        }
    }

    /// Octets of the largest datagram, and of the largest that goes in one packet (of 1500 octets, where nobody tells).
    pub fn most(&self, v6: bool) -> (usize, usize) {
        match &self.means {
            Means::Tun(udp) => (udp.most_payload(), udp.most_uncut()),
            Means::Socket(_) if v6 => (65_535 - 8, 1500 - 48),
            Means::Socket(_) => (65_535 - 28, 1500 - 28),
        }
    }

    /// What was wrong with the way last, as the end of a sentence; nothing if nothing was.
    pub fn trouble(&self) -> String {
        raw::trouble(self.trouble)
    }

    /// Sends datagrams of `size`, which stand behind each other.
    ///
    /// # Errors
    /// Those of the device or the socket that do not pass.
    pub fn send(&mut self, to: SocketAddr, datagrams: &[u8], size: usize) -> Result<Sent, Failure> {
        match &mut self.means {
            Means::Tun(udp) => {
                let mut sent = 0;
                while sent < datagrams.len().max(1) {
                    if datagrams.is_empty() {
                        udp.send(to, &[]).map_err(raw::failed)?;
                        return Ok(Sent::All);
                    }
                    sent += size * udp.send_cut(to, &datagrams[sent..], size).map_err(raw::failed)?;
                }
                Ok(Sent::All)
            }
            Means::Socket(socket) => {
                let connected = socket.peer_addr().is_ok();
                let one = |part: &[u8]| {
                    if connected { socket.send(part) } else { socket.send_to(part, to) }
                };
                let parts = datagrams.chunks(size.max(1)).chain(datagrams.is_empty().then_some(&[][..]));
                let mut sent = Sent::All;
                for part in parts {
                    loop {
                        match one(part) {
                            Ok(_) => break,
                            Err(e) if e.kind() == ErrorKind::ConnectionRefused => return Ok(Sent::Nobody),
                            Err(e) if e.kind() == ErrorKind::Interrupted => {}
                            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                                let mut room =
                                    [rustix::event::PollFd::new(&*socket, rustix::event::PollFlags::OUT)];
                                let _ = rustix::event::poll(&mut room, None);
                            }
                            Err(e) => {
                                let failed = || Failure::new(1, format_args!("cannot send to {to}: {e}"));
                                self.trouble = Some(passes(&e).ok_or_else(failed)?);
                                sent = Sent::Lost;
                                break;
                            }
                        }
                    }
                }
                Ok(sent)
            }
        }
    }

    /// Waits for a datagram until then (ns of the monotonic clock), or for Ctrl-C.
    ///
    /// # Errors
    /// Those of the device or the socket.
    pub fn receive(&mut self, buffer: &mut [u8], until: Option<u64>, stop: &Stop) -> Result<Got, Failure> {
        loop {
            let got = match &mut self.means {
                Means::Tun(udp) => match udp.receive(buffer) {
                    Ok(got) => Some(Got::Datagram(got.len, got.source)),
                    Err(bypath::l2::Error::Tun(Refused::Unreachable { .. })) => Some(Got::Unreachable),
                    Err(bypath::l2::Error::WouldBlock | bypath::l2::Error::Interrupted) => None,
                    Err(e) => return Err(raw::failed(e)),
                },
                Means::Socket(socket) => match socket.recv_from(buffer) {
                    Ok((len, from)) => Some(Got::Datagram(len, from)),
                    Err(e) if e.kind() == ErrorKind::ConnectionRefused => Some(Got::Unreachable),
                    Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
                    // What was told of a datagram that was sent before.
                    Err(e) => {
                        let failed = || Failure::new(1, format_args!("cannot receive: {e}"));
                        self.trouble = Some(passes(&e).ok_or_else(failed)?);
                        None
                    }
                },
            };
            if let Some(got) = got {
                return Ok(got);
            }
            if stop.asked() || until.is_some_and(|end| bypath_sys::clock::monotonic_ns() >= end) {
                return Ok(Got::Nothing);
            }
            match &mut self.means {
                Means::Tun(udp) => stop.wait([(udp.device().as_fd(), READ)], until),
                Means::Socket(socket) => stop.wait([(socket.as_fd(), READ)], until),
            };
        }
    }
}
