//! Frames by message: one (recvmsg, sendmsg), or many with one system call (recvmmsg, sendmmsg).

use super::frame::{Arrival, Departure, HEADROOM, LONGEST, Stamp, VnetHeader, complete, undo};
use super::ring::spread;
use crate::syscall::{check, syscall};
use crate::{Errno, Result};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Room for everything that a received frame tells beside its bytes: tpacket_auxdata, a timespec, three timespecs,
/// a count.
type ReceiveControl = [u64; 20];
/// A control message with a time.
type SendControl = [u64; 3];
/// `struct sockaddr_ll`, and where the packet type stands in it.
type Name = [u8; 20];
const KIND: usize = 10;
/// `struct cmsghdr`: length, level, type.
const CONTROL_HEADER: usize = 16;
const SO_TXTIME: i32 = 61;

/// The kernel's structures for one message, without any address: those are put in right before a call.
#[derive(Clone, Copy)]
struct Slot<C> {
    control: C,
    name: Name,
}

/// `struct mmsghdr` and the structure it points to.
struct Headers {
    messages: Vec<libc::mmsghdr>,
    pieces: Vec<libc::iovec>,
}

// SAFETY: the addresses in it are those of vectors that it is kept with, which never change, and are followed by calls of the system
// alone that are made with both.
unsafe impl Send for Headers {}
// SAFETY: as above; a shared reference gives away nothing.
unsafe impl Sync for Headers {}

const NO_PIECE: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

fn no_message() -> libc::mmsghdr {
    // SAFETY: integers and pointers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

impl Headers {
    fn new(count: usize) -> Headers {
        Headers { messages: vec![no_message(); count], pieces: vec![NO_PIECE; count] }
    }
}

/// Fills in one message that receives.
fn to_receive(
    message: &mut libc::msghdr,
    piece: &mut libc::iovec,
    slot: &mut Slot<ReceiveControl>,
    buffer: &mut [u8],
    vnet: bool,
) {
    let start = HEADROOM - if vnet { VnetHeader::SIZE } else { 0 };
    let buffer = &mut buffer[start..];
    *piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    message.msg_iov = piece;
    message.msg_iovlen = 1;
    message.msg_name = slot.name.as_mut_ptr().cast();
    message.msg_namelen = size_of::<Name>() as u32;
    message.msg_control = slot.control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<ReceiveControl>() as _;
    message.msg_flags = 0;
}

/// What one received message tells. `room` is the buffer's length.
fn arrival(
    message: &libc::msghdr,
    got: usize,
    slot: &Slot<ReceiveControl>,
    buffer: &[u8],
    vnet: bool,
) -> Arrival {
    let mut found = Arrival { kind: slot.name[KIND], ..Arrival::default() };
    let start = HEADROOM - if vnet { VnetHeader::SIZE } else { 0 };
    if vnet {
        let header = buffer.get(start..HEADROOM).and_then(|b| b.try_into().ok());
        found.vnet = header.map(VnetHeader::decode);
    }
    // With MSG_TRUNC the kernel tells the whole length.
    found.whole = got.saturating_sub(HEADROOM - start);
    found.len = found.whole.min(buffer.len() - HEADROOM);
    let len = message.msg_controllen.min(size_of::<ReceiveControl>());
    let mut control = [0u8; size_of::<ReceiveControl>()];
    for (bytes, word) in control.chunks_exact_mut(8).zip(&slot.control).take(len.div_ceil(8)) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    read_control(&control[..len], &mut found);
    found
}

fn read_control(mut rest: &[u8], found: &mut Arrival) {
    let word =
        |b: &[u8], at: usize| b.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
    let half = |b: &[u8], at: usize| {
        u32::from_ne_bytes(b.get(at..at + 4).and_then(|b| b.try_into().ok()).unwrap_or([0; 4]))
    };
    let time = |b: &[u8], at: usize| word(b, at).wrapping_mul(1_000_000_000).wrapping_add(word(b, at + 8));
    while rest.len() >= CONTROL_HEADER {
        let len = word(rest, 0) as usize;
        let (level, kind) = (half(rest, 8) as i32, half(rest, 12) as i32);
        let Some(value) = rest.get(CONTROL_HEADER..len) else { return };
        match (level, kind) {
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) if value.len() >= 20 => {
                // struct tpacket_auxdata: status, len, snaplen, mac, net, vlan_tci, vlan_tpid.
                let tag = half(value, 16).to_ne_bytes();
                let (tci, tpid) =
                    (u16::from_ne_bytes([tag[0], tag[1]]), u16::from_ne_bytes([tag[2], tag[3]]));
                found.status(half(value, 0), tci, tpid);
            }
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) if found.stamp.is_none() => {
                found.stamp = Some(Stamp { ns: time(value, 0), hardware: false });
            }
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) => {
                // struct scm_timestamping: by the kernel, none, by the device.
                match (time(value, 0), time(value, 32)) {
                    (_, ns @ 1..) => found.stamp = Some(Stamp { ns, hardware: true }),
                    (ns @ 1.., 0) => found.stamp = Some(Stamp { ns, hardware: false }),
                    (0, 0) => {}
                }
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) if value.len() >= 4 => found.dropped = Some(half(value, 0)),
            _ => {}
        }
        rest = rest.get(len.next_multiple_of(8)..).unwrap_or(&[]);
    }
}

/// Fills in one message that sends. `start` is where the kernel begins to read.
fn to_send(
    message: &mut libc::msghdr,
    piece: &mut libc::iovec,
    control: &mut SendControl,
    bytes: &mut [u8],
    at: Option<u64>,
) {
    *piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    message.msg_iov = piece;
    message.msg_iovlen = 1;
    message.msg_control = std::ptr::null_mut();
    message.msg_controllen = 0;
    if let Some(ns) = at {
        // struct cmsghdr: length (a word), level, type; then the time.
        let mut bytes = [0u8; 8];
        bytes[..4].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
        bytes[4..].copy_from_slice(&SO_TXTIME.to_ne_bytes());
        *control = [(CONTROL_HEADER + 8) as u64, u64::from_ne_bytes(bytes), ns];
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of::<SendControl>() as _;
    }
}

/// [`super::Socket::receive`].
pub(super) fn receive_one(fd: BorrowedFd<'_>, buffer: &mut [u8], vnet: bool) -> Result<Arrival> {
    if buffer.len() <= HEADROOM {
        return Err(Errno::INVAL);
    }
    let mut message = no_message().msg_hdr;
    let (mut piece, mut slot) = (NO_PIECE, Slot { control: [0; 20], name: [0; 20] });
    to_receive(&mut message, &mut piece, &mut slot, buffer, vnet);
    let flags = (libc::MSG_DONTWAIT | libc::MSG_TRUNC) as usize;
    // SAFETY: name, control and piece of the message are borrowed locals and the buffer.
    let got = check(unsafe {
        syscall(libc::SYS_recvmsg, [fd.as_raw_fd() as usize, &raw mut message as usize, flags, 0, 0, 0])
    })?;
    Ok(arrival(&message, got, &slot, buffer, vnet))
}

/// [`super::Socket::send`].
pub(super) fn send_one(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    len: usize,
    how: &Departure,
    vnet: bool,
) -> Result<()> {
    if buffer.len() < HEADROOM + len {
        return Err(Errno::INVAL);
    }
    let start = complete(buffer, len, how, vnet);
    let sent = send_completed(fd, &mut buffer[start..HEADROOM + len], how);
    if sent.is_err() {
        undo(buffer, len, how);
    }
    sent
}

fn send_completed(fd: BorrowedFd<'_>, frame: &mut [u8], how: &Departure) -> Result<()> {
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
    if how.at.is_none() {
        let call = [fd.as_raw_fd() as usize, frame.as_ptr() as usize, frame.len(), flags, 0, 0];
        // SAFETY: the kernel reads the slice.
        return check(unsafe { syscall(libc::SYS_sendto, call) }).map(|_| ());
    }
    let mut message = no_message().msg_hdr;
    let (mut piece, mut control) = (NO_PIECE, [0; 3]);
    to_send(&mut message, &mut piece, &mut control, frame, how.at);
    // SAFETY: control and piece of the message are borrowed locals and the buffer.
    check(unsafe {
        syscall(libc::SYS_sendmsg, [fd.as_raw_fd() as usize, &raw const message as usize, flags, 0, 0, 0])
    })
    .map(|_| ())
}

/// Buffers into which many frames are received by one call.
pub struct ReceiveBatch {
    stride: usize,
    bytes: Vec<u8>,
    slots: Vec<Slot<ReceiveControl>>,
    headers: Headers,
    arrivals: Vec<Arrival>,
    vnet: bool,
    /// Headers at the beginning that are to be filled in before the next call: the kernel writes to those that it uses.
    stale: usize,
}

impl ReceiveBatch {
    /// For `count` frames of up to [`LONGEST`] octets, whatever the MTU is now: what is not written to is no memory yet.
    pub fn new(count: usize, vnet: bool) -> ReceiveBatch {
        let stride = spread(HEADROOM + LONGEST);
        ReceiveBatch {
            stride,
            bytes: vec![0; count * stride],
            slots: vec![Slot { control: [0; 20], name: [0; 20] }; count],
            headers: Headers::new(count),
            arrivals: Vec::with_capacity(count),
            vnet,
            stale: count,
        }
    }

    /// The most frames of one call.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Takes up to `most` frames that are there, in place of those before, and returns how many.
    ///
    /// # Errors
    /// EAGAIN if there is none; ENETDOWN once when the interface goes down.
    pub fn receive(&mut self, fd: BorrowedFd<'_>, most: usize) -> Result<usize> {
        self.arrivals.clear();
        let count = most.min(self.count());
        let buffers = self.bytes.chunks_exact_mut(self.stride);
        let Headers { messages, pieces } = &mut self.headers;
        for (((message, piece), slot), buffer) in
            messages.iter_mut().zip(pieces).zip(&mut self.slots).zip(buffers).take(self.stale)
        {
            to_receive(&mut message.msg_hdr, piece, slot, buffer, self.vnet);
        }
        // Of one that fails nothing is known.
        self.stale = self.slots.len().min(1);
        let flags = (libc::MSG_DONTWAIT | libc::MSG_TRUNC) as usize;
        // SAFETY: all messages were filled in above or before an earlier call, with pieces, names, controls and buffers that are
        // borrowed until the call returns; their vectors never change, so that what points to them is right as long as they are.
        let got = check(unsafe {
            syscall(
                libc::SYS_recvmmsg,
                [fd.as_raw_fd() as usize, messages.as_mut_ptr() as usize, count, flags, 0, 0],
            )
        })?;
        self.stale = self.stale.max(got);
        let buffers = self.bytes.chunks_exact(self.stride);
        for ((message, slot), buffer) in messages.iter().zip(&self.slots).zip(buffers).take(got) {
            let found = arrival(&message.msg_hdr, message.msg_len as usize, slot, buffer, self.vnet);
            self.arrivals.push(found);
        }
        Ok(got)
    }

    /// The frames of the last call.
    pub fn frames(&self) -> impl Iterator<Item = (&[u8], &Arrival)> {
        let buffers = self.bytes.chunks_exact(self.stride);
        buffers.zip(&self.arrivals).map(|(buffer, a)| (&buffer[HEADROOM..HEADROOM + a.len], a))
    }
}

/// Frames that are sent by one call. They are kept in order until the kernel took them.
pub struct SendBatch {
    stride: usize,
    bytes: Vec<u8>,
    controls: Vec<SendControl>,
    headers: Headers,
    /// Where each frame begins in its slot, and ends, and when it is to go.
    ready: Vec<(usize, usize, Option<u64>)>,
    /// Frames of `ready` that the kernel took.
    taken: usize,
    vnet: bool,
}

impl SendBatch {
    /// For `count` frames of up to `longest` octets.
    pub fn new(count: usize, longest: usize, vnet: bool) -> SendBatch {
        let stride = (HEADROOM + longest).next_multiple_of(64);
        SendBatch {
            stride,
            bytes: vec![0; count * stride],
            controls: vec![[0; 3]; count],
            headers: Headers::new(count),
            ready: Vec::with_capacity(count),
            taken: 0,
            vnet,
        }
    }

    /// Frames that wait for the kernel.
    pub fn pending(&self) -> usize {
        self.ready.len() - self.taken
    }

    /// Octets of the first pending frame, without a tag that was put in; 0: there is none.
    pub fn first_len(&self) -> usize {
        self.ready.get(self.taken).map_or(0, |&(_, end, _)| end - HEADROOM)
    }

    /// The place for the next frame, `longest` octets or a few more; `None` while the batch is full.
    pub fn slot(&mut self) -> Option<&mut [u8]> {
        let at = self.ready.len() * self.stride;
        self.bytes.get_mut(at..at + self.stride).map(|slot| &mut slot[HEADROOM..])
    }

    /// Adds the frame of `len` octets that was written to [`slot`](SendBatch::slot). False: there is no such slot.
    pub fn add(&mut self, len: usize, how: &Departure) -> bool {
        let at = self.ready.len() * self.stride;
        let Some(slot) = self.bytes.get_mut(at..at + self.stride) else { return false };
        if len > slot.len() - HEADROOM {
            return false;
        }
        self.ready.push((complete(slot, len, how, self.vnet), HEADROOM + len, how.at));
        true
    }

    /// Gives the kernel what is pending, and returns how many frames it took.
    ///
    /// # Errors
    /// Those of [`super::Socket::send`] for the first pending frame, which stays pending.
    pub fn send(&mut self, fd: BorrowedFd<'_>) -> Result<usize> {
        let count = self.pending();
        let buffers = self.bytes.chunks_exact_mut(self.stride).skip(self.taken);
        let Headers { messages, pieces } = &mut self.headers;
        for (((message, piece), control), (buffer, &(start, end, at))) in messages
            .iter_mut()
            .zip(pieces)
            .zip(&mut self.controls)
            .zip(buffers.zip(&self.ready[self.taken..]))
        {
            to_send(&mut message.msg_hdr, piece, control, &mut buffer[start..end], at);
        }
        let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
        // SAFETY: `count` messages were filled in above with pieces, controls and buffers that are borrowed until the
        // call returns.
        let sent = check(unsafe {
            syscall(
                libc::SYS_sendmmsg,
                [fd.as_raw_fd() as usize, messages.as_mut_ptr() as usize, count, flags, 0, 0],
            )
        })?;
        self.skip(sent);
        Ok(sent)
    }

    /// Forgets the first `count` pending frames.
    pub fn skip(&mut self, count: usize) {
        self.taken = (self.taken + count).min(self.ready.len());
        if self.taken == self.ready.len() {
            self.ready.clear();
            self.taken = 0;
        }
    }
}
