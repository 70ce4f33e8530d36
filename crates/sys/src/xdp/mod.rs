//! AF_XDP sockets: frames between a device queue and memory of ours, past the kernel's packets.
//!
//! A socket has memory of its own (`umem`) and four rings (`ring`): to give the kernel chunks to receive into, to get
//! frames, to give it frames to send, to get their chunks back. Which frames come here is decided by a program
//! ([`program`], [`crate::bpf`]). Memory is not shared between sockets, and the device is asked for no metadata.
//!
//! Safe code sees a chunk only while it is ours, as a slice for the length of a closure. The kernel is trusted; what it
//! writes is still checked: positions against the ring's size, chunks against whose they are, lengths against the chunk.
//! A ring that breaks this answers every call with EPROTO.

pub mod program;
mod ring;
mod umem;

use crate::syscall::{check, syscall};
use crate::{Errno, Result, sock};
use ring::{CONTINUED, Descriptor, Offsets, Ours, Ring, Theirs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use umem::Umem;

/// Octets that the kernel keeps free in front of every received frame (XDP_PACKET_HEADROOM).
pub const HEADROOM: usize = 256;

/// What a socket is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Octets of a chunk: 2048 or 4096. A received frame lies in one, behind [`HEADROOM`], or in several.
    pub chunk: usize,
    /// Chunks to receive into, rounded up to a power of two.
    pub receive: u32,
    /// Frames that may be on their way out at once.
    pub send: u32,
    /// Octets of the longest frame.
    pub longest: usize,
    /// Octets that [`Socket::put`] has room for besides the longest frame.
    pub spare: usize,
}

/// Who copies frames between the device and our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The kernel.
    Copy,
    /// Nobody: the device reads and writes our memory.
    ZeroCopy,
}

/// What a socket is bound to, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The interface's number.
    pub index: u32,
    /// The device queue, from 0.
    pub queue: u32,
    /// `None`: zero-copy where the driver can, copies elsewhere.
    pub transfer: Option<Transfer>,
    /// The kernel tells when it must be woken (Linux 5.4); otherwise it is woken for every batch.
    pub need_wakeup: bool,
    /// Frames may lie in several chunks (Linux 6.6).
    pub multi_buffer: bool,
}

/// Frames that did not come through, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Received, but too long for a chunk, or for another reason than those below.
    pub dropped: u64,
    /// Chunks given to be received into that the kernel refused.
    pub invalid_fill: u64,
    /// Frames given to be sent that the kernel refused.
    pub invalid_send: u64,
    /// Received, but we had not read the ones before.
    pub ring_full: u64,
    /// Times at which there was no chunk to receive into.
    pub fill_empty: u64,
}

/// Writes a frame, and says where it begins and how many octets it has; `None` for no frame.
pub type Writer<'a> = dyn FnMut(&mut [u8]) -> Option<(usize, usize)> + 'a;

/// An AF_XDP socket with its memory and rings.
pub struct Socket {
    fill: Ring<u64, Ours>,
    completion: Ring<u64, Theirs>,
    receive: Ring<Descriptor, Theirs>,
    transmit: Ring<Descriptor, Ours>,
    umem: Umem,
    /// First chunk that frames are sent from; those before are received into.
    first_slot: usize,
    /// Chunks of each frame that is sent: consecutive, so that it is written as one slice.
    pieces: usize,
    /// Pieces of each slot that the kernel has.
    outstanding: Vec<u32>,
    free: Vec<u32>,
    /// A frame of several chunks as far as it was read.
    partial: Vec<u8>,
    longest: usize,
    overlong: bool,
    cut: u64,
    wakeup: bool,
    broken: bool,
    fd: OwnedFd,
}

impl Socket {
    /// Opens one that receives nothing before [`bind`](Socket::bind).
    ///
    /// # Errors
    /// EAFNOSUPPORT without AF_XDP in the kernel; EPERM without CAP_NET_RAW; ENOBUFS beyond the limit of locked memory;
    /// EINVAL for a wrong wish; ENOMEM, EMFILE, ENFILE.
    pub fn open(wish: &Wish) -> Result<Socket> {
        let valid = wish.chunk.is_power_of_two()
            && (2048..=4096).contains(&wish.chunk)
            && (1..=1 << 20).contains(&wish.receive)
            && (1..=1 << 20).contains(&wish.send)
            && (1..=1 << 20).contains(&wish.longest)
            && wish.spare <= wish.chunk;
        if !valid {
            return Err(Errno::INVAL);
        }
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: integers only.
        let fd =
            check(unsafe { syscall(libc::SYS_socket, [libc::AF_XDP as usize, kind as usize, 0, 0, 0, 0]) })?;
        // SAFETY: the kernel made this descriptor for us just now.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let receive = wish.receive.next_power_of_two();
        let pieces = (wish.longest + wish.spare).div_ceil(wish.chunk);
        let send = (wish.send as usize * pieces).next_power_of_two() as u32;
        let mut umem = Umem::new(receive as usize + wish.send as usize * pieces, wish.chunk)?;
        register(fd.as_fd(), &umem)?;
        // The kernel shows a frame before it shows that it has taken the frame's chunk: with as many places as chunks,
        // there would for a moment be none to give the chunk back.
        let places = 2 * receive;
        for (name, size) in [
            (libc::XDP_UMEM_FILL_RING, places),
            (libc::XDP_UMEM_COMPLETION_RING, send),
            (libc::XDP_RX_RING, receive),
            (libc::XDP_TX_RING, send),
        ] {
            sock::set_option(fd.as_raw_fd(), libc::SOL_XDP, name, &size.to_ne_bytes())?;
        }
        let [rx, tx, fr, cr] = offsets(fd.as_fd())?;
        let mut fill: Ring<u64, Ours> = Ring::map(fd.as_fd(), libc::XDP_UMEM_PGOFF_FILL_RING, fr, places)?;
        fill.room()?;
        for chunk in 0..receive as usize {
            umem.give(chunk);
            fill.put(umem.start_of(chunk));
        }
        fill.publish();
        Ok(Socket {
            fill,
            completion: Ring::map(fd.as_fd(), libc::XDP_UMEM_PGOFF_COMPLETION_RING, cr, send)?,
            receive: Ring::map(fd.as_fd(), libc::XDP_PGOFF_RX_RING as u64, rx, receive)?,
            transmit: Ring::map(fd.as_fd(), libc::XDP_PGOFF_TX_RING as u64, tx, send)?,
            umem,
            first_slot: receive as usize,
            pieces,
            outstanding: vec![0; wish.send as usize],
            free: (0..wish.send).rev().collect(),
            partial: Vec::with_capacity(wish.longest),
            longest: wish.longest,
            overlong: false,
            cut: 0,
            wakeup: false,
            broken: false,
            fd,
        })
    }

    /// Binds to a queue of an interface, and says who copies.
    ///
    /// # Errors
    /// EBUSY while another socket has the queue, or had it until a moment ago; EINVAL for a queue that is not there, and
    /// where the kernel does not know multi-buffer; EOPNOTSUPP or EPROTONOSUPPORT where the driver cannot do what was asked;
    /// ENODEV; ENETDOWN.
    pub fn bind(&mut self, to: &Binding) -> Result<Transfer> {
        let mut flags = match to.transfer {
            None => 0,
            Some(Transfer::Copy) => libc::XDP_COPY,
            Some(Transfer::ZeroCopy) => libc::XDP_ZEROCOPY,
        };
        if to.need_wakeup {
            flags |= libc::XDP_USE_NEED_WAKEUP;
        }
        if to.multi_buffer {
            flags |= libc::XDP_USE_SG;
        }
        // struct sockaddr_xdp: family, flags, index, queue, descriptor of a socket to share memory with.
        let mut address = [0u8; 16];
        address[..2].copy_from_slice(&(libc::AF_XDP as u16).to_ne_bytes());
        address[2..4].copy_from_slice(&flags.to_ne_bytes());
        address[4..8].copy_from_slice(&to.index.to_ne_bytes());
        address[8..12].copy_from_slice(&to.queue.to_ne_bytes());
        // SAFETY: the kernel reads the sixteen bytes of a local.
        check(unsafe {
            syscall(libc::SYS_bind, [self.raw(), address.as_ptr() as usize, address.len(), 0, 0, 0])
        })?;
        self.wakeup = to.need_wakeup;
        let options = sock::option(self.fd.as_raw_fd(), libc::SOL_XDP, libc::XDP_OPTIONS)? as u32;
        let zero = options & libc::XDP_OPTIONS_ZEROCOPY != 0;
        Ok(if zero { Transfer::ZeroCopy } else { Transfer::Copy })
    }

    /// Lets waiting calls work in the device's queue themselves, for up to `microseconds`, `budget` frames at a time, and
    /// keeps its interrupts away meanwhile (SO_PREFER_BUSY_POLL, SO_BUSY_POLL, SO_BUSY_POLL_BUDGET; Linux 5.11). Helps with
    /// zero-copy drivers, with `gro_flush_timeout` and `napi_defer_hard_irqs` of the interface set.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN; ENOPROTOOPT on older kernels; EINVAL for a budget beyond 65535.
    pub fn busy_poll(&self, microseconds: u32, budget: u32) -> Result<()> {
        // asm-generic/socket.h
        const SO_BUSY_POLL: i32 = 46;
        const SO_PREFER_BUSY_POLL: i32 = 69;
        const SO_BUSY_POLL_BUDGET: i32 = 70;
        for (name, value) in
            [(SO_PREFER_BUSY_POLL, 1), (SO_BUSY_POLL, microseconds), (SO_BUSY_POLL_BUDGET, budget)]
        {
            sock::set_option(self.fd.as_raw_fd(), libc::SOL_SOCKET, name, &value.to_ne_bytes())?;
        }
        Ok(())
    }

    fn raw(&self) -> usize {
        self.fd.as_raw_fd() as usize
    }

    /// Gives up to `most` frames that are there to `each`, and returns how many. It makes no system call.
    ///
    /// # Errors
    /// EPROTO if a ring is broken.
    pub fn receive(&mut self, most: usize, each: &mut dyn FnMut(&[u8])) -> Result<usize> {
        let given = self.whole().and_then(|()| self.take(most, each));
        self.noting(given)
    }

    /// A ring that was found broken stays so.
    fn whole(&self) -> Result<()> {
        if self.broken { Err(Errno::PROTO) } else { Ok(()) }
    }

    fn noting<T>(&mut self, result: Result<T>) -> Result<T> {
        self.broken |= matches!(result, Err(Errno::PROTO));
        result
    }

    fn take(&mut self, most: usize, each: &mut dyn FnMut(&[u8])) -> Result<usize> {
        let mut given = 0;
        if self.receive.available()? == 0 {
            return Ok(0);
        }
        let places = self.fill.room()?;
        for _ in 0..places {
            if given == most {
                break;
            }
            let Some(piece) = self.receive.next() else { break };
            let len = piece.len as usize;
            let chunk = self.umem.take(piece.address).ok_or(Errno::PROTO)?;
            let bytes = self.umem.bytes(piece.address, len).ok_or(Errno::PROTO)?;
            let goes_on = piece.options & CONTINUED != 0;
            if !goes_on && self.partial.is_empty() && !self.overlong {
                each(bytes);
                given += 1;
            } else {
                self.overlong |= self.partial.len() + len > self.longest;
                if !self.overlong {
                    self.partial.extend_from_slice(bytes);
                }
                if !goes_on {
                    if self.overlong {
                        self.cut += 1;
                    } else {
                        each(&self.partial);
                        given += 1;
                    }
                    self.partial.clear();
                    self.overlong = false;
                }
            }
            self.umem.give(chunk);
            self.fill.put(self.umem.start_of(chunk));
        }
        self.receive.release();
        self.fill.publish();
        Ok(given)
    }

    /// Whether the kernel waits to be woken before it receives on.
    pub fn receive_needs_wakeup(&self) -> bool {
        self.wakeup && self.fill.needs_wakeup()
    }

    /// Lets the kernel receive, and asks how the interface is.
    ///
    /// # Errors
    /// ENETDOWN while the interface is down; ENXIO when it was removed.
    pub fn wake_receive(&self) -> Result<()> {
        // SAFETY: a null buffer of no length.
        let woken = check(unsafe {
            syscall(libc::SYS_recvfrom, [self.raw(), 0, 0, libc::MSG_DONTWAIT as usize, 0, 0])
        });
        match woken {
            Ok(_) | Err(Errno::AGAIN | Errno::BUSY) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Lets `fill` write the next frame that is to be sent into all the room there is, and say where it begins and how
    /// long it is; `None` for no frame. Returns its length; `None` also while no room is free. Sent by
    /// [`kick`](Socket::kick).
    ///
    /// # Errors
    /// EPROTO if a ring is broken; EINVAL if `fill` says what cannot be.
    pub fn put(&mut self, fill: &mut Writer<'_>) -> Result<Option<usize>> {
        if !self.has_room()? {
            return Ok(None);
        }
        let Some(&slot) = self.free.last() else { return Ok(None) };
        let first = self.first_slot + slot as usize * self.pieces;
        let room = self.umem.chunks_mut(first, self.pieces).ok_or(Errno::PROTO)?;
        let whole = room.len();
        let Some((start, len)) = fill(room) else { return Ok(None) };
        let end = start.checked_add(len).filter(|&end| len > 0 && end <= whole).ok_or(Errno::INVAL)?;
        self.free.pop();
        let size = self.umem.chunk();
        let mut at = start;
        while at < end {
            let next = end.min((at / size + 1) * size);
            self.umem.give(first + at / size);
            self.outstanding[slot as usize] += 1;
            self.transmit.put(Descriptor {
                address: self.umem.start_of(first) + at as u64,
                len: (next - at) as u32,
                options: if next < end { CONTINUED } else { 0 },
            });
            at = next;
        }
        self.transmit.publish();
        Ok(Some(len))
    }

    /// Whether [`put`](Socket::put) has room. Takes back what was sent.
    ///
    /// # Errors
    /// EPROTO if a ring is broken.
    pub fn has_room(&mut self) -> Result<bool> {
        self.whole()?;
        if self.free.is_empty() {
            let done = self.complete();
            self.noting(done)?;
        }
        Ok(!self.free.is_empty() && self.room()? as usize >= self.pieces)
    }

    /// Places in the transmit ring.
    fn room(&mut self) -> Result<u32> {
        let room = self.whole().and_then(|()| self.transmit.room());
        self.noting(room)
    }

    /// Takes back the chunks of frames that were sent.
    fn complete(&mut self) -> Result<()> {
        if self.completion.available()? == 0 {
            return Ok(());
        }
        while let Some(address) = self.completion.next() {
            let chunk = self.umem.take(address).ok_or(Errno::PROTO)?;
            let slot = chunk.checked_sub(self.first_slot).ok_or(Errno::PROTO)? / self.pieces;
            let left = &mut self.outstanding[slot];
            *left = left.checked_sub(1).ok_or(Errno::PROTO)?;
            if *left == 0 {
                self.free.push(slot as u32);
            }
        }
        self.completion.release();
        Ok(())
    }

    /// Frames that the kernel has not taken.
    ///
    /// # Errors
    /// EPROTO if a ring is broken.
    pub fn pending(&mut self) -> Result<usize> {
        self.pieces_pending()?;
        Ok(self.transmit.waiting().filter(|piece| piece.options & CONTINUED == 0).count())
    }

    fn pieces_pending(&mut self) -> Result<u32> {
        self.room()?;
        Ok(self.transmit.pending())
    }

    /// Lets the kernel send what was put, as far as it can now; where it reads the ring by itself, nothing is done.
    ///
    /// # Errors
    /// ENETDOWN while the interface is down; ENXIO when it was removed; EPROTO if a ring is broken. What is left stays
    /// pending.
    pub fn kick(&mut self) -> Result<()> {
        let mut before = self.pieces_pending()?;
        while before > 0 && (!self.wakeup || self.transmit.needs_wakeup()) {
            let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
            // SAFETY: a null buffer of no length.
            let sent = check(unsafe { syscall(libc::SYS_sendto, [self.raw(), 0, 0, flags, 0, 0]) });
            let after = self.pieces_pending()?;
            match sent {
                // The kernel takes some dozens at a time, and says EAGAIN (copying) or nothing.
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS) if after < before => before = after,
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Received frames left out because they were longer than the longest that was wished for.
    pub const fn cut(&self) -> u64 {
        self.cut
    }

    /// What the kernel counted.
    ///
    /// # Errors
    /// None that a bound socket has.
    pub fn counts(&self) -> Result<Counts> {
        // struct xdp_statistics; before Linux 5.9 its first half.
        let mut value = [0u8; 48];
        sock::option_bytes(self.fd.as_raw_fd(), libc::SOL_XDP, libc::XDP_STATISTICS, &mut value)?;
        let word = |n: usize| u64::from_ne_bytes(value[8 * n..8 * n + 8].try_into().unwrap_or([0; 8]));
        Ok(Counts {
            dropped: word(0),
            invalid_fill: word(1),
            invalid_send: word(2),
            ring_full: word(3),
            fill_empty: word(4),
        })
    }

    /// Octets of memory that frames lie in.
    pub const fn memory(&self) -> usize {
        self.umem.len()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn register(socket: BorrowedFd<'_>, umem: &Umem) -> Result<()> {
    // struct xdp_umem_reg: address, length, chunk size, headroom, flags, length of transmit metadata.
    let mut value = [0u8; 32];
    value[..8].copy_from_slice(&umem.address().to_ne_bytes());
    value[8..16].copy_from_slice(&(umem.len() as u64).to_ne_bytes());
    value[16..20].copy_from_slice(&(umem.chunk() as u32).to_ne_bytes());
    // The kernel pins the pages: they stay until the socket is gone, whatever becomes of the mapping.
    sock::set_option(socket.as_raw_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &value)
}

/// Of the receive, transmit, fill and completion ring.
fn offsets(socket: BorrowedFd<'_>) -> Result<[Offsets; 4]> {
    // struct xdp_mmap_offsets: four times producer, consumer, entries, flags. Before Linux 5.4 there were no flags.
    let mut value = [0u8; 128];
    let len = sock::option_bytes(socket.as_raw_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, &mut value)?;
    if len != value.len() {
        return Err(Errno::AFNOSUPPORT);
    }
    let word = |n: usize| u64::from_ne_bytes(value[8 * n..8 * n + 8].try_into().unwrap_or([0; 8]));
    Ok([0, 4, 8, 12].map(|n| Offsets {
        producer: word(n),
        consumer: word(n + 1),
        entries: word(n + 2),
        flags: word(n + 3),
    }))
}
