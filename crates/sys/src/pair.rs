//! Pairs of AF_UNIX sockets, of streams and of records. Neither end waits in the calls of this file.

use crate::syscall::{check, syscall};
use crate::user::{IoVec, UserVec};
use crate::{Errno, Result, sock, unix};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const SO_COOKIE: i32 = 57;
const SO_PASSRIGHTS: i32 = 83;

/// Two ends, close-on-exec; their calls wait unless they are told otherwise.
///
/// # Errors
/// EMFILE, ENFILE, ENOMEM.
pub fn new() -> Result<(OwnedFd, OwnedFd)> {
    of(libc::SOCK_STREAM)
}

/// The same, between which records keep their bounds.
///
/// # Errors
/// Those of [`new`].
pub fn of_records() -> Result<(OwnedFd, OwnedFd)> {
    of(libc::SOCK_SEQPACKET)
}

fn of(kind: i32) -> Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0i32; 2];
    let kind = kind | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes two descriptors to a local.
    check(unsafe {
        syscall(
            libc::SYS_socketpair,
            [libc::AF_UNIX as usize, kind as usize, 0, ends.as_mut_ptr() as usize, 0, 0],
        )
    })?;
    // SAFETY: the kernel made both for us just now.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// No descriptors can be sent to this end any more; whether the kernel knows that (Linux 6.16).
pub fn refuse_descriptors(end: BorrowedFd<'_>) -> bool {
    sock::set_option(end.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, &0i32.to_ne_bytes()).is_ok()
}

/// Gives an end an abstract name, which the other end's getpeername(2) tells.
///
/// # Errors
/// EADDRINUSE, ENAMETOOLONG, ENOMEM.
pub fn name(end: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    let (address, len) = unix::name_address(name).ok_or(Errno::NAMETOOLONG)?;
    // SAFETY: the kernel reads `len` bytes of a local.
    check(unsafe {
        syscall(libc::SYS_bind, [end.as_raw_fd() as usize, address.as_ptr() as usize, len, 0, 0, 0])
    })
    .map(|_| ())
}

/// SO_COOKIE: a number that no other socket of this kernel has.
///
/// # Errors
/// ENOTSOCK: it is no socket.
pub fn cookie(end: BorrowedFd<'_>) -> Result<u64> {
    sock::option_u64(end.as_raw_fd(), libc::SOL_SOCKET, SO_COOKIE)
}

/// Octets that came, as many as there are and fit; 0: the other end writes no more.
///
/// # Errors
/// EAGAIN: there are none; ECONNRESET: the other end was closed and had not read everything.
pub fn receive(end: BorrowedFd<'_>, room: &mut [u8]) -> Result<usize> {
    let flags = libc::MSG_DONTWAIT as usize;
    // SAFETY: the kernel writes into the slice.
    check(unsafe {
        syscall(
            libc::SYS_recvfrom,
            [end.as_raw_fd() as usize, room.as_mut_ptr() as usize, room.len(), flags, 0, 0],
        )
    })
}

/// Writes octets, as many as there is room for; how many.
///
/// # Errors
/// EAGAIN: there is no room; EPIPE: the other end reads no more, or was closed.
pub fn send(end: BorrowedFd<'_>, octets: &[u8]) -> Result<usize> {
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
    // SAFETY: the kernel reads the slice.
    check(unsafe {
        syscall(
            libc::SYS_sendto,
            [end.as_raw_fd() as usize, octets.as_ptr() as usize, octets.len(), flags, 0, 0],
        )
    })
}

/// Writes one urgent octet, where the kernel has such (CONFIG_AF_UNIX_OOB), and else one as any other.
///
/// # Errors
/// Those of [`send`].
pub fn send_urgent(end: BorrowedFd<'_>, octet: u8) -> Result<usize> {
    let (octets, flags) = ([octet], libc::MSG_OOB | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    let iov = [IoVec { base: octets.as_ptr() as usize, len: 1 }];
    // SAFETY: the kernel reads a live local.
    match sock::send(end.as_raw_fd(), unsafe { UserVec::new(&iov) }, flags) {
        Err(Errno::OPNOTSUPP) => send(end, &octets),
        sent => sent,
    }
}

/// The next octet, which stays; `None`: there is none now.
///
/// # Errors
/// Those of [`receive`].
pub fn look(end: BorrowedFd<'_>) -> Result<Option<u8>> {
    let mut octet = [0u8];
    let iov = [IoVec { base: octet.as_mut_ptr() as usize, len: 1 }];
    // SAFETY: the kernel writes to a live local.
    let seen =
        sock::recv(end.as_raw_fd(), unsafe { UserVec::new(&iov) }, libc::MSG_PEEK | libc::MSG_DONTWAIT)?;
    Ok((seen == 1).then_some(octet[0]))
}

/// Urgent octets are read in their place from now on.
pub fn keep_urgent_in_line(end: BorrowedFd<'_>) {
    // Every socket has this option.
    let _ = sock::set_option(end.as_raw_fd(), libc::SOL_SOCKET, libc::SO_OOBINLINE, &1i32.to_ne_bytes());
}

/// Sends a record of these parts.
///
/// # Errors
/// EAGAIN: there is no room; EPIPE, ECONNRESET: the other end reads no more, or was closed; EMSGSIZE: the buffer is smaller.
pub fn send_record(end: BorrowedFd<'_>, parts: [&[u8]; 2]) -> Result<()> {
    let iov = parts.map(|part| IoVec { base: part.as_ptr() as usize, len: part.len() });
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the kernel reads live slices.
    sock::send(end.as_raw_fd(), unsafe { UserVec::new(&iov) }, flags).map(|_| ())
}

/// Sets SO_SNDBUF; the kernel doubles it, and has a least one.
///
/// # Errors
/// As setsockopt(2).
pub fn set_send_buffer(end: BorrowedFd<'_>, octets: i32) -> Result<()> {
    sock::set_option(end.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, &octets.to_ne_bytes())
}

/// SO_SNDBUF, as the kernel tells it.
///
/// # Errors
/// As getsockopt(2).
pub fn send_buffer(end: BorrowedFd<'_>) -> Result<i32> {
    sock::option(end.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn an_end_is_told_what_became_of_the_other_one() {
        let (a, b) = new().unwrap();
        assert_eq!(receive(b.as_fd(), &mut [0; 8]), Err(Errno::AGAIN));
        assert_eq!(send(a.as_fd(), b"octets"), Ok(6));
        let mut room = [0; 8];
        assert_eq!((receive(b.as_fd(), &mut room), &room[..6]), (Ok(6), &b"octets"[..]));
        assert_ne!(cookie(a.as_fd()).unwrap(), cookie(b.as_fd()).unwrap());
        assert_eq!(send(b.as_fd(), b"unread"), Ok(6));
        drop(a);
        assert_eq!(receive(b.as_fd(), &mut room), Err(Errno::CONNRESET));
        assert_eq!(receive(b.as_fd(), &mut room), Ok(0));
        assert_eq!(send(b.as_fd(), b"x"), Err(Errno::PIPE));
    }

    #[test]
    fn records_keep_their_bounds() {
        let (a, b) = of_records().unwrap();
        send_record(a.as_fd(), [b"head", b"and more"]).unwrap();
        send_record(a.as_fd(), [b"", b""]).unwrap();
        send_record(a.as_fd(), [b"x", b""]).unwrap();
        let mut room = [0; 6];
        assert_eq!((receive(b.as_fd(), &mut room), &room), (Ok(6), b"headan"));
        assert_eq!([receive(b.as_fd(), &mut room), receive(b.as_fd(), &mut room)], [Ok(0), Ok(1)]);
        assert_eq!(receive(b.as_fd(), &mut room), Err(Errno::AGAIN));
        drop(b);
        assert_eq!(send_record(a.as_fd(), [b"x", b""]), Err(Errno::PIPE));
    }

    #[test]
    fn a_name_is_one_ends_and_has_a_longest() {
        let (a, b) = new().unwrap();
        let own = format!("bypath-test-{}", cookie(a.as_fd()).unwrap());
        name(b.as_fd(), own.as_bytes()).unwrap();
        assert_eq!(name(a.as_fd(), own.as_bytes()), Err(Errno::ADDRINUSE));
        assert_eq!(name(a.as_fd(), &[b'x'; 200]), Err(Errno::NAMETOOLONG));
    }

    #[test]
    fn a_small_buffer_is_filled_by_few_octets() {
        let (a, b) = new().unwrap();
        let usual = send_buffer(a.as_fd()).unwrap();
        set_send_buffer(a.as_fd(), 1).unwrap();
        let mut filled = 0;
        while send(a.as_fd(), b"x").is_ok() {
            filled += 1;
            assert!(filled < 64);
        }
        set_send_buffer(a.as_fd(), usual / 2).unwrap();
        assert_eq!(send_buffer(a.as_fd()), Ok(usual));
        assert_eq!(receive(b.as_fd(), &mut [0; 64]), Ok(filled));
    }
}
