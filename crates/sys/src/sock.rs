//! Sockets: data, options, TCP counters, addresses.

use crate::syscall::{check, syscall};
use crate::user::{IoVec, UserControl, UserVec};
use crate::{Errno, Result, turn};
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd};

/// `struct msghdr` of the kernel.
#[repr(C)]
pub(crate) struct MsgHdr {
    pub(crate) name: usize,
    pub(crate) namelen: u32,
    pub(crate) iov: usize,
    pub(crate) iovlen: usize,
    pub(crate) control: usize,
    pub(crate) controllen: usize,
    pub(crate) flags: i32,
}

/// One that names these pieces of memory, and so many octets of what comes along, from an address on.
pub(crate) fn header(iov: &[IoVec], (control, controllen): (usize, usize)) -> MsgHdr {
    MsgHdr {
        name: 0,
        namelen: 0,
        iov: iov.as_ptr() as usize,
        iovlen: iov.len(),
        control,
        controllen,
        flags: 0,
    }
}

fn msg(n: libc::c_long, fd: i32, iov: &[IoVec], flags: i32) -> Result<usize> {
    let mut hdr = header(iov, (0, 0));
    // SAFETY: the kernel checks the addresses in the list; the list itself is a live slice.
    check(unsafe { syscall(n, [fd as usize, &raw mut hdr as usize, flags as usize, 0, 0, 0]) })
}

/// A stream socket of `family` as a program gets it, above `floor`, close-on-exec.
///
/// # Errors
/// As socket(2).
pub fn stream(family: i32, floor: i32) -> Result<i32> {
    of_kind(family, libc::SOCK_STREAM, 0, floor)
}

/// The same, of datagrams of a protocol; 0: UDP.
///
/// # Errors
/// As socket(2).
pub fn datagrams(family: i32, protocol: i32, floor: i32) -> Result<i32> {
    of_kind(family, libc::SOCK_DGRAM, protocol, floor)
}

fn of_kind(family: i32, kind: i32, protocol: i32, floor: i32) -> Result<i32> {
    let kind = kind | libc::SOCK_CLOEXEC;
    turn::high(floor, || {
        // SAFETY: integers only.
        check(unsafe {
            syscall(libc::SYS_socket, [family as usize, kind as usize, protocol as usize, 0, 0, 0])
        })
        .map(|made| made as i32)
    })
}

/// The same of one's own.
///
/// # Errors
/// As socket(2).
pub fn own_stream(family: i32) -> Result<OwnedFd> {
    let new = stream(family, 0)?;
    // SAFETY: it was made just now and is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

/// A UDP socket of `family`.
///
/// # Errors
/// As socket(2).
pub fn own_datagrams(family: i32) -> Result<OwnedFd> {
    let new = datagrams(family, 0, 3)?;
    // SAFETY: it was made just now and is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

/// recvmsg without address and control data.
///
/// # Errors
/// As recvmsg(2).
pub fn recv(fd: i32, buf: UserVec<'_>, flags: i32) -> Result<usize> {
    msg(libc::SYS_recvmsg, fd, buf.elements(), flags)
}

/// recvmsg without address. What the kernel has to say beside the bytes is in `control` afterwards, unless it fails.
///
/// # Errors
/// As recvmsg(2).
pub fn recv_with(fd: i32, buf: UserVec<'_>, flags: i32, control: &mut UserControl) -> Result<usize> {
    let mut hdr = header(buf.elements(), control.room());
    // SAFETY: the kernel checks the addresses in the list and of the control messages; the list itself is a live slice.
    let n = check(unsafe {
        syscall(libc::SYS_recvmsg, [fd as usize, &raw mut hdr as usize, flags as usize, 0, 0, 0])
    })?;
    control.stored(hdr.controllen, hdr.flags);
    Ok(n)
}

/// sendmsg without address and control data. Raises SIGPIPE as the kernel does unless MSG_NOSIGNAL.
///
/// # Errors
/// As sendmsg(2).
pub fn send(fd: i32, buf: UserVec<'_>, flags: i32) -> Result<usize> {
    msg(libc::SYS_sendmsg, fd, buf.elements(), flags)
}

/// Reads an integer option.
///
/// # Errors
/// As getsockopt(2).
pub fn option(fd: i32, level: i32, name: i32) -> Result<i32> {
    let mut value = [0u8; 4];
    option_bytes(fd, level, name, &mut value)?;
    Ok(i32::from_ne_bytes(value))
}

/// Reads an option into `value`; returns the length.
///
/// # Errors
/// As getsockopt(2).
pub fn option_bytes(fd: i32, level: i32, name: i32, value: &mut [u8]) -> Result<usize> {
    let mut len = value.len() as u32;
    // SAFETY: the kernel writes at most `len` bytes and the length.
    check(unsafe {
        syscall(
            libc::SYS_getsockopt,
            [
                fd as usize,
                level as usize,
                name as usize,
                value.as_mut_ptr() as usize,
                &raw mut len as usize,
                0,
            ],
        )
    })?;
    Ok(len as usize)
}

/// Reads a 64-bit option (SO_COOKIE).
///
/// # Errors
/// As getsockopt(2).
pub fn option_u64(fd: i32, level: i32, name: i32) -> Result<u64> {
    let mut value = [0u8; 8];
    option_bytes(fd, level, name, &mut value)?;
    Ok(u64::from_ne_bytes(value))
}

/// The network namespace of a socket, by the number that no other one has: where the thread was that made it, and not where this one is.
///
/// # Errors
/// ENOPROTOOPT before Linux 5.14; otherwise as getsockopt(2).
pub fn network_namespace(fd: i32) -> Result<u64> {
    // asm-generic/socket.h.
    const SO_NETNS_COOKIE: i32 = 71;
    option_u64(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE)
}

/// Reads a time option (SO_RCVTIMEO, SO_SNDTIMEO) in nanoseconds, 0 = none.
///
/// # Errors
/// As getsockopt(2).
pub fn option_time(fd: i32, name: i32) -> Result<u64> {
    let mut value = [0u8; 16];
    option_bytes(fd, libc::SOL_SOCKET, name, &mut value)?;
    let word = |at: usize| u64::from_ne_bytes(value[at..at + 8].try_into().unwrap_or([0; 8]));
    Ok(word(0).saturating_mul(1_000_000_000).saturating_add(word(8) * 1000))
}

/// Sets an option from bytes.
///
/// # Errors
/// As setsockopt(2).
pub fn set_option(fd: i32, level: i32, name: i32, value: &[u8]) -> Result<()> {
    // SAFETY: the kernel reads the slice.
    check(unsafe {
        syscall(
            libc::SYS_setsockopt,
            [fd as usize, level as usize, name as usize, value.as_ptr() as usize, value.len(), 0],
        )
    })
    .map(|_| ())
}

fn ioctl_int(fd: i32, request: u64) -> Result<i32> {
    let mut n = 0i32;
    // SAFETY: the requests of this file write one int.
    check(unsafe {
        syscall(libc::SYS_ioctl, [fd as usize, request as usize, &raw mut n as usize, 0, 0, 0])
    })?;
    Ok(n)
}

/// Bytes that can be read from the carrier now (SIOCINQ).
///
/// # Errors
/// EINVAL on a listening socket, EBADF.
pub fn inq(fd: i32) -> Result<usize> {
    ioctl_int(fd, libc::FIONREAD).map(|n| n.max(0) as usize)
}

/// The next byte is the urgent one (SIOCATMARK).
pub fn is_at_mark(fd: i32) -> bool {
    const SIOCATMARK: u64 = 0x8905;
    ioctl_int(fd, SIOCATMARK) == Ok(1)
}

/// How many of the next `want` bytes MSG_PEEK shows now on a TCP socket. Nothing is copied.
///
/// # Errors
/// As recv(2), with MSG_DONTWAIT.
pub fn peek_length(fd: i32, want: usize) -> Result<usize> {
    let nowhere = [IoVec { base: 0, len: want }];
    msg(libc::SYS_recvmsg, fd, &nowhere, libc::MSG_PEEK | libc::MSG_TRUNC | libc::MSG_DONTWAIT)
}

/// Receives up to `want` octets of an AF_UNIX stream, a megabyte at most, that nobody wants to see; it has no MSG_TRUNC.
///
/// # Errors
/// As recvmsg(2).
pub fn count(fd: i32, want: usize, flags: i32) -> Result<usize> {
    const PIECE: usize = 4096;
    const PIECES: usize = 256;
    let mut scratch = [0u8; PIECE];
    let base = scratch.as_mut_ptr() as usize;
    let pieces: [IoVec; PIECES] =
        std::array::from_fn(|n| IoVec { base, len: want.saturating_sub(n * PIECE).min(PIECE) });
    // All of them are the same memory.
    msg(libc::SYS_recvmsg, fd, &pieces, flags)
}

/// Bytes in the carrier's send queue, sent or not, that the other end has not acknowledged (SIOCOUTQ).
///
/// # Errors
/// EINVAL on a listening socket, EBADF.
pub fn outq(fd: i32) -> Result<usize> {
    ioctl_int(fd, libc::TIOCOUTQ).map(|n| n.max(0) as usize)
}

/// Memory that the send queue takes, with all that is needed beside the bytes: what SO_SNDBUF bounds (SO_MEMINFO). Of AF_UNIX it is 0.
///
/// # Errors
/// EBADF, ENOTSOCK.
pub fn send_memory(fd: i32) -> Result<usize> {
    const WMEM_QUEUED: usize = 5;
    memory(fd, WMEM_QUEUED)
}

/// The same of the receive queue: what SO_RCVBUF bounds.
///
/// # Errors
/// EBADF, ENOTSOCK.
pub fn receive_memory(fd: i32) -> Result<usize> {
    const RMEM_ALLOC: usize = 0;
    memory(fd, RMEM_ALLOC)
}

/// One of the numbers of SO_MEMINFO.
fn memory(fd: i32, number: usize) -> Result<usize> {
    let mut all = [0u8; 9 * 4];
    option_bytes(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut all)?;
    let word = all.chunks_exact(4).nth(number).and_then(|word| word.first_chunk().copied());
    Ok(u32::from_ne_bytes(word.unwrap_or_default()) as usize)
}

/// Bytes in the carrier's send queue that were not sent yet (SIOCOUTQNSD). None of a connection that is over: of one that was reset the kernel goes on counting
/// what it has thrown away.
///
/// # Errors
/// EINVAL on a listening socket, EBADF.
pub fn unsent(fd: i32) -> Result<usize> {
    const SIOCOUTQNSD: u64 = 0x894b;
    const CLOSED: u8 = 7;
    match ioctl_int(fd, SIOCOUTQNSD)? {
        1.. if tcp_counts(fd).is_ok_and(|now| now.state == CLOSED) => Ok(0),
        n => Ok(n.max(0) as usize),
    }
}

/// What TCP_INFO tells about the bytes of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCounts {
    /// TCP state (1 = established).
    pub state: u8,
    /// Stream bytes ever written by this end: sent minus retransmitted plus not yet sent.
    pub written: u64,
    /// Stream bytes ever received in order by this end; a FIN counts one.
    pub received: u64,
}

/// TCP_INFO's byte counters.
///
/// # Errors
/// As getsockopt(2); EINVAL where the kernel is too old to report them (before 4.19).
pub fn tcp_counts(fd: i32) -> Result<TcpCounts> {
    // Offsets in struct tcp_info of linux/tcp.h.
    const BYTES_RECEIVED: usize = 128;
    const NOTSENT: usize = 144;
    const BYTES_SENT: usize = 200;
    const BYTES_RETRANS: usize = 208;
    let mut info = [0u8; 216];
    let len = option_bytes(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    if len < 216 {
        return Err(Errno::INVAL);
    }
    let word = |at: usize| u64::from_ne_bytes(info[at..at + 8].try_into().unwrap_or([0; 8]));
    let notsent = u32::from_ne_bytes(info[NOTSENT..NOTSENT + 4].try_into().unwrap_or([0; 4]));
    Ok(TcpCounts {
        state: info[0],
        written: word(BYTES_SENT).wrapping_sub(word(BYTES_RETRANS)).wrapping_add(u64::from(notsent)),
        received: word(BYTES_RECEIVED),
    })
}

/// A socket address: AF_INET or AF_INET6, port in host order, address bytes in network order (IPv4 in the
/// first four), scope id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// AF_INET or AF_INET6.
    pub family: u16,
    /// Port in host byte order.
    pub port: u16,
    /// Address bytes in network order.
    pub bytes: [u8; 16],
    /// IPv6 scope (interface) or 0.
    pub scope: u32,
}

impl From<SocketAddr> for Address {
    fn from(of: SocketAddr) -> Address {
        let mut bytes = [0; 16];
        let (family, scope) = match of {
            SocketAddr::V4(of) => {
                bytes[..4].copy_from_slice(&of.ip().octets());
                (libc::AF_INET, 0)
            }
            SocketAddr::V6(of) => {
                bytes = of.ip().octets();
                (libc::AF_INET6, of.scope_id())
            }
        };
        Address { family: family as u16, port: of.port(), bytes, scope }
    }
}

fn address(call: libc::c_long, fd: i32) -> Result<Address> {
    let mut raw = [0u8; 28];
    let mut len = raw.len() as u32;
    // SAFETY: the kernel writes at most `len` bytes.
    check(unsafe {
        syscall(call, [fd as usize, raw.as_mut_ptr() as usize, &raw mut len as usize, 0, 0, 0])
    })?;
    let family = u16::from_ne_bytes([raw[0], raw[1]]);
    let port = u16::from_be_bytes([raw[2], raw[3]]);
    let mut bytes = [0u8; 16];
    let mut scope = 0;
    match i32::from(family) {
        libc::AF_INET => bytes[..4].copy_from_slice(&raw[4..8]),
        libc::AF_INET6 => {
            bytes.copy_from_slice(&raw[8..24]);
            scope = u32::from_ne_bytes(raw[24..28].try_into().unwrap_or([0; 4]));
        }
        _ => return Err(Errno::AFNOSUPPORT),
    }
    Ok(Address { family, port, bytes, scope })
}

/// getsockname.
///
/// # Errors
/// As getsockname(2); EAFNOSUPPORT for other families.
pub fn local_address(fd: i32) -> Result<Address> {
    address(libc::SYS_getsockname, fd)
}

/// getpeername.
///
/// # Errors
/// ENOTCONN and others as getpeername(2).
pub fn remote_address(fd: i32) -> Result<Address> {
    address(libc::SYS_getpeername, fd)
}

/// The address as connect and sendto take it, and how long that is.
fn raw_address(to: &Address) -> ([u8; 28], usize) {
    let mut raw = [0u8; 28];
    raw[..2].copy_from_slice(&to.family.to_ne_bytes());
    raw[2..4].copy_from_slice(&to.port.to_be_bytes());
    if i32::from(to.family) == libc::AF_INET {
        raw[4..8].copy_from_slice(&to.bytes[..4]);
        return (raw, 16);
    }
    raw[8..24].copy_from_slice(&to.bytes);
    raw[24..].copy_from_slice(&to.scope.to_ne_bytes());
    (raw, 28)
}

/// connect of a socket of datagrams.
///
/// # Errors
/// As connect(2).
pub fn connect(fd: i32, to: &Address) -> Result<()> {
    let (raw, len) = raw_address(to);
    // SAFETY: the kernel reads `len` bytes of a local.
    check(unsafe { syscall(libc::SYS_connect, [fd as usize, raw.as_ptr() as usize, len, 0, 0, 0]) })
        .map(|_| ())
}

/// sendmsg to an address, as sockaddr has it.
///
/// # Errors
/// As sendmsg(2).
pub fn send_to(fd: i32, buf: UserVec<'_>, to: &[u8], flags: i32) -> Result<usize> {
    let mut hdr = header(buf.elements(), (0, 0));
    hdr.name = to.as_ptr() as usize;
    hdr.namelen = to.len() as u32;
    // SAFETY: the kernel checks the addresses in the list; list and address are live slices.
    check(unsafe {
        syscall(libc::SYS_sendmsg, [fd as usize, &raw const hdr as usize, flags as usize, 0, 0, 0])
    })
}

/// As [`send_to`], of a socket of datagrams of `family` that sends from this address of the host, whichever its own is (IP_PKTINFO; of IPv6, which
/// has IPv4 mapped, IPV6_PKTINFO).
///
/// # Errors
/// As sendmsg(2); EINVAL where the host has no such address.
pub fn send_from(
    fd: i32,
    family: i32,
    buf: UserVec<'_>,
    to: &[u8],
    from: [u8; 16],
    flags: i32,
) -> Result<usize> {
    /// A control message, and its data, as the kernel lays them out.
    #[repr(C, align(8))]
    struct Control {
        len: usize,
        level: i32,
        kind: i32,
        data: [u8; 24],
    }
    const HEAD: usize = 16;
    let is_v4 = family == libc::AF_INET;
    let (level, kind, len) = match is_v4 {
        true => (libc::IPPROTO_IP, libc::IP_PKTINFO, size_of::<libc::in_pktinfo>()),
        false => (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, size_of::<libc::in6_pktinfo>()),
    };
    let mut control = Control { len: HEAD + len, level, kind, data: [0; 24] };
    // in_pktinfo: interface, source, destination; in6_pktinfo: source, interface.
    match is_v4 {
        true => control.data[4..8].copy_from_slice(&from[12..]),
        false => control.data[..16].copy_from_slice(&from),
    }
    let mut hdr = header(buf.elements(), (&raw const control as usize, (HEAD + len).next_multiple_of(8)));
    hdr.name = to.as_ptr() as usize;
    hdr.namelen = to.len() as u32;
    // SAFETY: the kernel checks the addresses in the list; list, address and control message are live.
    check(unsafe {
        syscall(libc::SYS_sendmsg, [fd as usize, &raw const hdr as usize, flags as usize, 0, 0, 0])
    })
}

/// bind.
///
/// # Errors
/// As bind(2).
pub fn bind(fd: i32, to: &Address) -> Result<()> {
    let (raw, len) = raw_address(to);
    // SAFETY: the kernel reads `len` bytes of a local.
    check(unsafe { syscall(libc::SYS_bind, [fd as usize, raw.as_ptr() as usize, len, 0, 0, 0]) }).map(|_| ())
}

/// connect to nobody: a socket of datagrams whose port the kernel has chosen gives it back.
///
/// # Errors
/// As connect(2).
pub fn disconnect(fd: i32) -> Result<()> {
    connect(fd, &Address { family: libc::AF_UNSPEC as u16, port: 0, bytes: [0; 16], scope: 0 })
}

/// shutdown(2), result ignored: ends a connection that is beyond use.
pub fn shutdown(fd: i32, how: i32) {
    // SAFETY: integers only.
    unsafe { syscall(libc::SYS_shutdown, [fd as usize, how as usize, 0, 0, 0, 0]) };
}

/// Looks at the next record without taking it and without waiting: how long it is, whatever fits.
///
/// # Errors
/// EAGAIN when there is none.
pub fn peek_record(fd: i32, bytes: &mut [u8]) -> Result<usize> {
    let iov = [IoVec { base: bytes.as_mut_ptr() as usize, len: bytes.len() }];
    msg(libc::SYS_recvmsg, fd, &iov, libc::MSG_PEEK | libc::MSG_TRUNC | libc::MSG_DONTWAIT)
}

/// Takes the next record, of which nothing is wanted.
pub fn drop_record(fd: i32) {
    let _ = take_record(fd);
}

/// The same, if there is one.
///
/// # Errors
/// As recvmsg(2) that does not wait.
pub fn take_record(fd: i32) -> Result<()> {
    msg(libc::SYS_recvmsg, fd, &[], libc::MSG_DONTWAIT).map(drop)
}

/// Looks at the first bytes of the carrier without taking them and without waiting.
///
/// # Errors
/// EAGAIN when there is nothing; a pending error of the socket (which this takes).
pub fn peek(fd: i32, bytes: &mut [u8]) -> Result<usize> {
    let iov = [IoVec { base: bytes.as_mut_ptr() as usize, len: bytes.len() }];
    msg(libc::SYS_recvmsg, fd, &iov, libc::MSG_PEEK | libc::MSG_DONTWAIT)
}
