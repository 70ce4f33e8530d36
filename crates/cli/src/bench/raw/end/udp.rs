//! UDP sockets, each used in one of four ways.

use super::frame::{Content, Numbers};
use super::{Control, Trouble};
use crate::bench::raw::order::{Carrier, Place};
use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg, setsockopt, sockopt::RcvBuf,
    sockopt::RcvBufForce, sockopt::UdpGroSegment, sockopt::UdpGsoSegment,
};
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

/// Octets of receive queue asked for, by the kernel's count.
pub const QUEUE: usize = 64 << 20;
/// Datagrams of one call.
pub const BATCH: usize = 32;
/// Longest time in a call: how often an end looks at its orders.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Octets of what is cut into datagrams: what IPv4 can say about one datagram, with some room.
const SUPER: usize = 65_000;
/// The kernel cuts into at most so many (UDP_MAX_SEGMENTS before Linux 6.6).
const MOST_SEGMENTS: usize = 64;

/// A socket at the own address, with a long receive queue.
pub fn open(control: &Control, notes: &mut Vec<String>) -> Result<UdpSocket, Trouble> {
    let socket = UdpSocket::bind(local(control))
        .map_err(|e| Trouble::Failed(format!("cannot bind a UDP socket to {}: {e}", control.ip)))?;
    let queue = QUEUE / 2;
    if setsockopt(&socket, RcvBufForce, &queue).is_err() {
        setsockopt(&socket, RcvBuf, &queue)?;
        let got = nix::sys::socket::getsockopt(&socket, RcvBuf)?;
        if got < QUEUE {
            notes.push(format!(
                "a receive queue of {got} octets instead of {QUEUE}: sysctl -w net.core.rmem_max={queue}"
            ));
        }
    }
    socket.set_read_timeout(Some(LOOK_EVERY))?;
    Ok(socket)
}

/// The own address; on an interface of its own where addresses need one.
fn local(control: &Control) -> SocketAddr {
    address(control, control.ip, 0)
}

/// A place's address as this end says it: link-local ones need the interface.
pub fn remote(control: &Control, to: Place) -> SocketAddr {
    address(control, to.ip, to.port)
}

fn address(control: &Control, ip: std::net::IpAddr, port: u16) -> SocketAddr {
    match ip {
        std::net::IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            let index = bypath::link::Interface::named(&control.iface).map_or(0, |i| i.index);
            std::net::SocketAddrV6::new(v6, port, 0, index).into()
        }
        ip => SocketAddr::new(ip, port),
    }
}

/// Sends numbered datagrams.
pub struct Sender {
    socket: UdpSocket,
    carrier: Carrier,
    to: SocketAddr,
    content: Content,
    /// One after another, for as many datagrams as one call sends.
    buffer: Vec<u8>,
    headers: MultiHeaders<SockaddrStorage>,
}

impl Sender {
    /// Over this socket.
    pub fn new(
        control: &Control,
        socket: UdpSocket,
        carrier: Carrier,
        to: Place,
        content: Content,
    ) -> Result<Sender, Trouble> {
        let size = content.size();
        let to = remote(control, to);
        let count = match carrier {
            Carrier::UdpGso => (SUPER / size).min(MOST_SEGMENTS),
            Carrier::UdpMmsg => BATCH,
            _ => 1,
        };
        if carrier == Carrier::UdpGso {
            setsockopt(&socket, UdpGsoSegment, &(size as i32))
                .map_err(|e| Trouble::Impossible(format!("the kernel has no UDP_SEGMENT: {}", e.desc())))?;
        }
        if carrier != Carrier::UdpSendto {
            socket.connect(to)?;
        }
        let headers = MultiHeaders::preallocate(BATCH, None);
        Ok(Sender { socket, carrier, to, content, buffer: vec![0; size * count], headers })
    }

    /// Sends some; returns how many.
    ///
    /// # Errors
    /// Those of the system, but for what only says that nobody listens.
    pub fn send(&mut self, numbers: &mut Numbers) -> Result<(), Trouble> {
        let size = self.content.size();
        match self.carrier {
            Carrier::UdpSendto | Carrier::UdpConnected => {
                for _ in 0..BATCH {
                    numbers.write(&self.content, &mut self.buffer);
                    let sent = match self.carrier {
                        Carrier::UdpSendto => self.socket.send_to(&self.buffer, self.to),
                        _ => self.socket.send(&self.buffer),
                    };
                    counted(sent.map(|_| ()), numbers, 1)?;
                }
                Ok(())
            }
            Carrier::UdpMmsg => {
                self.buffer.chunks_exact_mut(size).for_each(|b| numbers.write(&self.content, b));
                let slices: Vec<[IoSlice<'_>; 1]> =
                    self.buffer.chunks_exact(size).map(|b| [IoSlice::new(b)]).collect();
                let mut from = 0;
                while from < slices.len() {
                    let nowhere = vec![None::<SockaddrStorage>; slices.len() - from];
                    let sent = sendmmsg(
                        self.socket.as_raw_fd(),
                        &mut self.headers,
                        &slices[from..],
                        nowhere,
                        [],
                        MsgFlags::empty(),
                    );
                    match sent {
                        Ok(results) => from += results.count().max(1),
                        Err(e) => {
                            counted(Err(e.into()), numbers, 1)?;
                            from += 1;
                        }
                    }
                }
                Ok(())
            }
            _ => {
                self.buffer.chunks_exact_mut(size).for_each(|b| numbers.write(&self.content, b));
                let count = self.buffer.len() / size;
                let sent = self.socket.send(&self.buffer).map(|_| ());
                counted(sent, numbers, count)
            }
        }
    }
}

/// What was not sent is not counted as sent.
fn counted(sent: std::io::Result<()>, numbers: &mut Numbers, count: usize) -> Result<(), Trouble> {
    match sent {
        Ok(()) => Ok(()),
        // Nobody listens: the datagram went, and an earlier one was answered.
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => Ok(()),
        Err(e) if e.raw_os_error() == Some(nix::errno::Errno::ENOBUFS as i32) => {
            (0..count).for_each(|_| numbers.take_back());
            Ok(())
        }
        Err(e) if e.kind() == ErrorKind::Interrupted => Ok(()),
        Err(e) => Err(Trouble::Failed(format!("cannot send a datagram: {e}"))),
    }
}

/// Receives datagrams.
pub struct Receiver {
    socket: UdpSocket,
    carrier: Carrier,
    size: usize,
    buffer: Vec<u8>,
    headers: MultiHeaders<()>,
}

impl Receiver {
    /// Over this socket.
    pub fn new(socket: UdpSocket, carrier: Carrier, size: usize) -> Result<Receiver, Trouble> {
        let buffer = match carrier {
            Carrier::UdpGso => {
                setsockopt(&socket, UdpGroSegment, &true)
                    .map_err(|e| Trouble::Impossible(format!("the kernel has no UDP_GRO: {}", e.desc())))?;
                vec![0; 1 << 16]
            }
            Carrier::UdpMmsg => vec![0; (size + 1) * BATCH],
            _ => vec![0; size + 1],
        };
        Ok(Receiver { socket, carrier, size, buffer, headers: MultiHeaders::preallocate(BATCH, None) })
    }

    /// Gives what one call takes to `each`, after at most [`LOOK_EVERY`]; returns how many datagrams that were.
    ///
    /// # Errors
    /// Those of the system.
    pub fn receive(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Trouble> {
        match self.carrier {
            Carrier::UdpMmsg => {
                let Receiver { buffer, headers, socket, size, .. } = self;
                let mut slices: Vec<[IoSliceMut<'_>; 1]> =
                    buffer.chunks_exact_mut(*size + 1).map(|b| [IoSliceMut::new(b)]).collect();
                // What is there; without MSG_WAITFORONE it would wait until all places are filled.
                let got = recvmmsg(socket.as_raw_fd(), headers, &mut slices, MsgFlags::MSG_WAITFORONE, None);
                let lengths: Vec<usize> = match got {
                    Ok(results) => results.map(|r| r.bytes).collect(),
                    Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(0),
                    Err(e) => return Err(e.into()),
                };
                for (datagram, len) in self.buffer.chunks_exact(self.size + 1).zip(&lengths) {
                    each(&datagram[..*len]);
                }
                Ok(lengths.len())
            }
            carrier => {
                let got = match carrier {
                    Carrier::UdpSendto => self.socket.recv_from(&mut self.buffer).map(|(len, _)| len),
                    _ => self.socket.recv(&mut self.buffer),
                };
                match got {
                    Ok(len) if carrier == Carrier::UdpGso => {
                        self.buffer[..len].chunks(self.size).for_each(&mut each);
                        Ok(len.div_ceil(self.size))
                    }
                    Ok(len) => {
                        each(&self.buffer[..len]);
                        Ok(1)
                    }
                    Err(e) if is_nothing(&e) => Ok(0),
                    Err(e) => Err(e.into()),
                }
            }
        }
    }
}

/// Whether an error only says that nothing came.
pub fn is_nothing(e: &std::io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted | ErrorKind::ConnectionRefused
    )
}
