//! Packet sockets (packet(7)): whole frames, past the kernel's protocols.
//!
//! No call of this module waits for a frame or for room; [`crate::poll`] does.

pub mod batch;
pub mod filter;
pub mod frame;
pub mod ring;
mod rx_ring;
mod tx_ring;

use crate::syscall::{check, syscall};
use crate::{Errno, Result, sock};
use frame::{Arrival, Departure, HEADROOM};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Set on a packet socket: on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Switch {
    /// Received frames tell their VLAN tag (PACKET_AUXDATA).
    AuxData = libc::PACKET_AUXDATA,
    /// Frames that this host sends are not received (PACKET_IGNORE_OUTGOING, Linux 4.20).
    IgnoreOutgoing = libc::PACKET_IGNORE_OUTGOING,
    /// Sent frames go to the driver without the queueing discipline (PACKET_QDISC_BYPASS).
    QdiscBypass = libc::PACKET_QDISC_BYPASS,
    /// A virtio-net header stands in front of every frame (PACKET_VNET_HDR).
    VnetHeader = libc::PACKET_VNET_HDR,
}

/// What an interface is to receive besides its own address and broadcasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Frames to this group address.
    Multicast([u8; 6]),
    /// Frames to any group.
    AllMulticast,
    /// Everything.
    Promiscuous,
}

/// How frames are spread over the sockets of a fanout group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Fanout {
    /// By flow: frames of one flow to one socket.
    Hash = libc::PACKET_FANOUT_HASH as u16,
    /// In turns.
    RoundRobin = libc::PACKET_FANOUT_LB as u16,
    /// By the processor that received the frame.
    Cpu = libc::PACKET_FANOUT_CPU as u16,
    /// To the first socket that has room.
    Rollover = libc::PACKET_FANOUT_ROLLOVER as u16,
    /// At random.
    Random = libc::PACKET_FANOUT_RND as u16,
    /// By the device queue that the frame came through.
    Queue = libc::PACKET_FANOUT_QM as u16,
}

/// Frames counted since the last look (PACKET_STATISTICS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that passed the filter, dropped ones included.
    pub frames: u32,
    /// Frames dropped because the receive queue or ring was full.
    pub drops: u32,
}

/// A packet socket for whole frames (SOCK_RAW).
pub struct Socket {
    fd: OwnedFd,
}

impl Socket {
    /// Opens one that receives nothing before [`bind`](Socket::bind).
    ///
    /// Its protocol is 0: with another one `bind` would wait 8 ms for the kernel.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW; EMFILE, ENFILE; EAFNOSUPPORT without AF_PACKET in the kernel.
    pub fn open() -> Result<Socket> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: integers only.
        let fd = check(unsafe {
            syscall(libc::SYS_socket, [libc::AF_PACKET as usize, kind as usize, 0, 0, 0, 0])
        })?;
        // SAFETY: the kernel made this descriptor for us just now.
        Ok(Socket { fd: unsafe { OwnedFd::from_raw_fd(fd as i32) } })
    }

    /// Binds to the interface `index`. With `receive` every EtherType is received (a filter chooses: bound to one
    /// EtherType the kernel would take the VLAN tag away without telling), without it none.
    ///
    /// # Errors
    /// ENODEV. An interface that is down is no error here; the next call reports ENETDOWN.
    pub fn bind(&self, index: u32, receive: bool) -> Result<()> {
        // struct sockaddr_ll: family, protocol (network order), index, then what only received addresses tell.
        let mut address = [0u8; 20];
        let protocol = if receive { libc::ETH_P_ALL as u16 } else { 0 };
        address[..2].copy_from_slice(&(libc::AF_PACKET as u16).to_ne_bytes());
        address[2..4].copy_from_slice(&protocol.to_be_bytes());
        address[4..8].copy_from_slice(&index.to_ne_bytes());
        // SAFETY: the kernel reads the twenty bytes of a local.
        check(unsafe {
            syscall(libc::SYS_bind, [self.raw() as usize, address.as_ptr() as usize, address.len(), 0, 0, 0])
        })
        .map(|_| ())
    }

    /// Attaches a filter, in place of the one that was there.
    ///
    /// # Errors
    /// EINVAL for a program that the kernel does not accept; ENOMEM.
    pub fn filter(&self, program: &[filter::Instruction]) -> Result<()> {
        // struct sock_fprog: length in instructions, and where they are.
        let fprog = libc::sock_fprog {
            len: u16::try_from(program.len()).map_err(|_| Errno::INVAL)?,
            filter: program.as_ptr().cast_mut().cast(),
        };
        // SAFETY: the kernel reads the structure and the program, whose layout is that of struct sock_filter.
        check(unsafe {
            syscall(
                libc::SYS_setsockopt,
                [
                    self.raw() as usize,
                    libc::SOL_SOCKET as usize,
                    libc::SO_ATTACH_FILTER as usize,
                    &raw const fprog as usize,
                    size_of::<libc::sock_fprog>(),
                    0,
                ],
            )
        })
        .map(|_| ())
    }

    /// Switches something on or off.
    ///
    /// # Errors
    /// ENOPROTOOPT where the kernel does not know it; EBUSY for [`Switch::VnetHeader`] once there is a ring.
    pub fn switch(&self, what: Switch, on: bool) -> Result<()> {
        self.set(what as i32, &i32::from(on).to_ne_bytes())
    }

    /// Joins (or leaves) on the interface `index`. The socket's end leaves, too.
    ///
    /// # Errors
    /// ENODEV; EADDRNOTAVAIL when leaving what was not joined; EINVAL for an address that is no group's.
    pub fn member(&self, index: u32, what: Membership, join: bool) -> Result<()> {
        let (kind, address) = match what {
            Membership::Multicast(a) => (libc::PACKET_MR_MULTICAST, a),
            Membership::AllMulticast => (libc::PACKET_MR_ALLMULTI, [0; 6]),
            Membership::Promiscuous => (libc::PACKET_MR_PROMISC, [0; 6]),
        };
        // struct packet_mreq: index, type, address length, address.
        let mut mreq = [0u8; 16];
        mreq[..4].copy_from_slice(&index.to_ne_bytes());
        mreq[4..6].copy_from_slice(&(kind as u16).to_ne_bytes());
        mreq[6..8].copy_from_slice(&6u16.to_ne_bytes());
        mreq[8..14].copy_from_slice(&address);
        self.set(if join { libc::PACKET_ADD_MEMBERSHIP } else { libc::PACKET_DROP_MEMBERSHIP }, &mreq)
    }

    /// Frames and drops since the last call.
    ///
    /// # Errors
    /// None that a bound socket has.
    pub fn counts(&self) -> Result<Counts> {
        // struct tpacket_stats, or tpacket_stats_v3, which begins with it.
        let mut value = [0u8; 12];
        sock::option_bytes(self.raw(), libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut value)?;
        let word = |at: usize| u32::from_ne_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]]);
        Ok(Counts { frames: word(0), drops: word(4) })
    }

    /// Lets every frame that is taken by message tell how many the socket had dropped when the frame was queued
    /// (SO_RXQ_OVFL). Frames of a ring do not.
    ///
    /// # Errors
    /// None that a kernel since 2.6.33 has.
    pub fn tell_drops(&self) -> Result<()> {
        sock::set_option(self.raw(), libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &1i32.to_ne_bytes())
    }

    /// Joins the fanout group `id` of this network namespace: its sockets share the frames of one interface.
    ///
    /// # Errors
    /// EINVAL where the group has another mode or interface, or the socket is not bound; ENOSPC in a full group;
    /// EALREADY.
    pub fn fanout(&self, id: u16, mode: Fanout) -> Result<()> {
        self.set(libc::PACKET_FANOUT, &(u32::from(id) | u32::from(mode as u16) << 16).to_ne_bytes())
    }

    /// Asks for the time of arrival of every frame: by the kernel, and by the device where `hardware` is set. What the
    /// device then does is another question: see [`crate::netif::stamp_in_hardware`].
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn timestamps(&self, hardware: bool) -> Result<()> {
        // Without this one the first frames have no stamp: the kernel begins to take the time a little later.
        sock::set_option(self.raw(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1i32.to_ne_bytes())?;
        if hardware {
            let flags = libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
            sock::set_option(self.raw(), libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags.to_ne_bytes())?;
            // The same for the header of a ring's frame.
            let flags = flags | libc::SOF_TIMESTAMPING_SOFTWARE;
            self.set(libc::PACKET_TIMESTAMP, &flags.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Lets frames be sent at a time of `clock` (CLOCK_TAI with the `etf` queueing discipline, CLOCK_MONOTONIC with
    /// `fq`); on a queue that knows no times they are sent at once.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN for other clocks than CLOCK_MONOTONIC; EINVAL for a clock that cannot be used.
    pub fn tx_time(&self, clock: i32) -> Result<()> {
        // struct sock_txtime: clock, flags.
        let mut value = [0u8; 8];
        value[..4].copy_from_slice(&clock.to_ne_bytes());
        sock::set_option(self.raw(), libc::SOL_SOCKET, libc::SO_TXTIME, &value)
    }

    /// Asks for `bytes` of receive queue, beyond the system's limit where that is allowed. Returns what is there now, by
    /// the kernel's count, which includes its own overhead.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn receive_queue(&self, bytes: usize) -> Result<usize> {
        self.queue(bytes, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)
    }

    /// [`receive_queue`](Socket::receive_queue) for frames to be sent.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn send_queue(&self, bytes: usize) -> Result<usize> {
        self.queue(bytes, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)
    }

    fn queue(&self, bytes: usize, force: i32, plain: i32) -> Result<usize> {
        let value = i32::try_from(bytes).unwrap_or(i32::MAX / 2).to_ne_bytes();
        if sock::set_option(self.raw(), libc::SOL_SOCKET, force, &value).is_err() {
            sock::set_option(self.raw(), libc::SOL_SOCKET, plain, &value)?;
        }
        sock::option(self.raw(), libc::SOL_SOCKET, plain).map(|n| n.max(0) as usize)
    }

    /// Takes the pending error, such as ENETDOWN; `None` if there is none.
    pub fn take_error(&self) -> Option<Errno> {
        match sock::option(self.raw(), libc::SOL_SOCKET, libc::SO_ERROR) {
            Ok(0) => None,
            Ok(code) => Some(Errno::from_raw_os_error(code)),
            Err(e) => Some(e),
        }
    }

    /// Takes one frame. `buffer` is for the virtio-net header, if the socket has one, and the frame, which begins at
    /// [`HEADROOM`] of it. A frame that does not fit is cut, which shows in [`Arrival::is_cut`].
    ///
    /// # Errors
    /// EAGAIN if there is none; ENETDOWN once when the interface goes down; EINVAL for a buffer without room.
    pub fn receive(&self, buffer: &mut [u8], vnet: bool) -> Result<Arrival> {
        batch::receive_one(self.fd.as_fd(), buffer, vnet)
    }

    /// Sends one frame: `len` octets from [`HEADROOM`] of `buffer`. The octets before are written to.
    ///
    /// # Errors
    /// EAGAIN without room in the send queue; ENOBUFS where the device's queue dropped it; EMSGSIZE beyond the MTU;
    /// ENETDOWN; ENXIO where the interface is gone; EINVAL for less than a header.
    pub fn send(&self, buffer: &mut [u8], len: usize, how: &Departure, vnet: bool) -> Result<()> {
        batch::send_one(self.fd.as_fd(), buffer, len, how, vnet)
    }

    /// The largest [`Socket::send`] and [`Socket::receive`] need for a frame of `len` octets.
    pub const fn buffer_for(len: usize) -> usize {
        HEADROOM + len
    }

    fn set(&self, name: i32, value: &[u8]) -> Result<()> {
        sock::set_option(self.raw(), libc::SOL_PACKET, name, value)
    }

    fn raw(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
