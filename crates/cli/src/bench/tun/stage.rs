//! A device, and a socket of the kernel at its other end.

use crate::bench::context::Trouble;
use crate::bench::record::Figure;
use bypath::tun::{Device, Udp};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// The kernel's end (RFC 2544: networks for benchmarks).
pub const KERNEL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 1));
/// Our end.
pub const OURS: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 2)), 7000);
/// Where the kernel's socket is.
pub const TO: SocketAddr = SocketAddr::new(KERNEL, 9000);
/// No datagram that is measured is cut.
pub const MTU: u32 = 65_535;
/// Octets of receive queue asked for.
const QUEUE: usize = 8 << 20;
/// Datagrams of a stretch at most: of the classic shape.
pub const STRETCH: usize = 20;

/// A device of its own.
///
/// # Errors
/// What is missing, and what to do.
pub fn device() -> Result<Device, String> {
    Device::tun("bench%d").mtu(MTU).address(KERNEL, 24).open().map_err(|e| e.to_string())
}

/// Our end over a device.
pub fn udp(device: Device, mode: bypath::tun::Mode) -> Result<Udp, Trouble> {
    let udp = Udp::over(device, OURS).mode(mode).timeout(std::time::Duration::ZERO).open();
    udp.map_err(|e| match e {
        bypath::link::Error::Tun(bypath::tun::Refused::NoSuperPackets { .. }) => {
            Trouble::Skipped(e.to_string())
        }
        e => Trouble::Failed(e.to_string()),
    })
}

/// The kernel's socket, with octets of queue as the kernel counts them.
pub struct Socket {
    pub socket: UdpSocket,
    pub queue: usize,
    buffer: Vec<u8>,
    size: usize,
    next: u64,
    /// Datagrams that were what was sent, in order.
    pub good: u64,
    /// Others.
    pub wrong: u64,
}

impl Socket {
    /// At the kernel's end; with `together` it takes super-packets as they are.
    ///
    /// # Errors
    /// The device is not there; there is no UDP_GRO.
    pub fn open(size: usize, together: bool) -> Result<Socket, Trouble> {
        let socket = UdpSocket::bind(TO).map_err(|e| Trouble::Failed(format!("cannot bind to {TO}: {e}")))?;
        socket.set_nonblocking(true).map_err(|e| Trouble::Failed(e.to_string()))?;
        if setsockopt(&socket, sockopt::RcvBufForce, &QUEUE).is_err() {
            // As much as an ordinary user may have.
            let _ = setsockopt(&socket, sockopt::RcvBuf, &QUEUE);
        }
        let queue = getsockopt(&socket, sockopt::RcvBuf).map_err(|e| Trouble::Failed(e.desc().into()))?;
        if together {
            setsockopt(&socket, sockopt::UdpGroSegment, &true)
                .map_err(|e| Trouble::Skipped(format!("the kernel has no UDP_GRO: {}", e.desc())))?;
        }
        let buffer = vec![0; 1 << 16];
        Ok(Socket { socket, queue, buffer, size, next: 0, good: 0, wrong: 0 })
    }

    /// Packets of `octets` that fit into the queue for sure: the kernel counts what it holds them in.
    pub fn stretch(&self, octets: usize) -> usize {
        (self.queue / 2 / (4096 + 2 * octets)).clamp(1, STRETCH)
    }

    /// Takes everything that is there, and looks at each datagram: length, number, filling.
    pub fn drain(&mut self) -> Result<(), Trouble> {
        loop {
            match self.socket.recv(&mut self.buffer) {
                Ok(len) => {
                    for datagram in self.buffer[..len].chunks(self.size) {
                        let number = number(datagram);
                        let sound =
                            datagram.len() == self.size && datagram[8..].iter().all(|&b| b == FILLING);
                        if sound && number.is_some_and(|n| n >= self.next) {
                            self.good += 1;
                            self.next = number.unwrap_or(0) + 1;
                        } else {
                            self.wrong += 1;
                        }
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(Trouble::Failed(format!("cannot receive: {e}"))),
            }
        }
    }
}

/// What stands behind a datagram's number.
pub const FILLING: u8 = 0x5a;

/// A datagram's number.
pub fn number(datagram: &[u8]) -> Option<u64> {
    datagram.first_chunk().map(|n| u64::from_ne_bytes(*n))
}

/// A figure of this benchmark.
pub fn figure(
    case: &str,
    subject: &'static str,
    mode: Option<&'static str>,
    size: usize,
    metric: &'static str,
) -> Figure {
    Figure {
        bench: "tun",
        case: case.into(),
        subject,
        link: Some("tun".into()),
        mode,
        size: Some(size as u64),
        burst: None,
        profile: None,
        cc: None,
        metric,
    }
}

/// Nanoseconds of this thread's processor.
pub fn thread_ns() -> u64 {
    use nix::sys::time::TimeValLike as _;
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(0, |t| t.num_nanoseconds() as u64)
}
