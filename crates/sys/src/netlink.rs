//! rtnetlink: as much of it as lists interfaces and makes those of a test network; and lists of sockets.

use crate::syscall::{check, syscall};
use crate::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `struct nlmsghdr`.
const HEADER: usize = 16;

/// A request under construction: header, fixed part, attributes.
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// A message of type `kind` with further `flags` (NLM_F_...) and its fixed part.
    pub fn new(kind: u16, flags: i32, fixed: &[u8]) -> Request {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&((flags | libc::NLM_F_REQUEST) as u16).to_ne_bytes());
        bytes[8..12].copy_from_slice(&1u32.to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Request { bytes }
    }

    /// Appends an attribute.
    #[must_use]
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Request {
        self.put(kind, value);
        self
    }

    /// Appends an attribute that holds what `fill` appends.
    #[must_use]
    pub fn nested(mut self, kind: u16, fill: impl FnOnce(Request) -> Request) -> Request {
        let at = self.bytes.len();
        self.put(kind, &[]);
        self = fill(self);
        let len = (self.bytes.len() - at) as u16;
        self.bytes[at..at + 2].copy_from_slice(&len.to_ne_bytes());
        self
    }

    /// Appends bytes that are no attribute, such as the fixed part inside a nested one.
    #[must_use]
    pub fn fixed(mut self, bytes: &[u8]) -> Request {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// The fixed part and the attributes.
    #[cfg(test)]
    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[HEADER..]
    }

    fn put(&mut self, kind: u16, value: &[u8]) {
        self.bytes.extend_from_slice(&((value.len() + 4) as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The attributes in `bytes`: type without its flag bits, and value. Ends at the first that does not fit.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [a, b, c, d, ..] = *bytes else { return None };
        let (len, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind & 0x3fff, value))
    })
}

/// A netlink socket of the calling thread's network namespace, for routes.
#[derive(Debug)]
pub struct Netlink(OwnedFd);

impl Netlink {
    /// Opens one, close-on-exec.
    ///
    /// # Errors
    /// EMFILE, ENFILE; EPERM or EACCES under a filter.
    pub fn open() -> Result<Netlink> {
        Netlink::of(libc::NETLINK_ROUTE)
    }

    fn of(protocol: i32) -> Result<Netlink> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: integers only.
        let fd = check(unsafe {
            syscall(libc::SYS_socket, [libc::AF_NETLINK as usize, kind as usize, protocol as usize, 0, 0, 0])
        })?;
        // SAFETY: the kernel made this descriptor for us just now.
        Ok(Netlink(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// The socket, which ioctls on interfaces may be asked through.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Sends a request that changes something, and waits for the kernel's answer to it.
    ///
    /// # Errors
    /// What the kernel answers: EPERM without CAP_NET_ADMIN, EEXIST, ENODEV, EOPNOTSUPP, ...
    pub fn change(&self, mut request: Request) -> Result<()> {
        let flags = u16::from_ne_bytes([request.bytes[6], request.bytes[7]]) | libc::NLM_F_ACK as u16;
        request.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.ask(request, &mut |_, _| {})
    }

    /// Sends a request and gives each answer (type, fixed part and attributes) to `each`.
    ///
    /// # Errors
    /// What the kernel answers; EPROTO for an answer that makes no sense; EINTR where what is listed changed meanwhile.
    pub fn ask(&self, request: Request, each: &mut dyn FnMut(u16, &[u8])) -> Result<()> {
        self.ask_while(request, &mut |kind, body| {
            each(kind, body);
            true
        })
        .map(|_| ())
    }

    /// As [`ask`](Netlink::ask), as long as `each` says so: whether that was to the end. If not, no more can be asked here.
    fn ask_while(&self, mut request: Request, each: &mut dyn FnMut(u16, &[u8]) -> bool) -> Result<bool> {
        /// NLM_F_DUMP_INTR: the list was changed while it was read.
        const INTERRUPTED: u16 = 0x10;
        let len = request.bytes.len() as u32;
        request.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        let fd = self.0.as_raw_fd() as usize;
        // SAFETY: the kernel reads the request.
        check(unsafe {
            syscall(libc::SYS_sendto, [fd, request.bytes.as_ptr() as usize, request.bytes.len(), 0, 0, 0])
        })?;
        let several = u16::from_ne_bytes([request.bytes[6], request.bytes[7]]) & libc::NLM_F_DUMP as u16 != 0;
        let acknowledged =
            u16::from_ne_bytes([request.bytes[6], request.bytes[7]]) & libc::NLM_F_ACK as u16 != 0;
        let mut buf = vec![0u8; 64 * 1024];
        let mut interrupted = false;
        loop {
            // SAFETY: the kernel writes into the vector.
            let len = check(unsafe {
                syscall(libc::SYS_recvfrom, [fd, buf.as_mut_ptr() as usize, buf.len(), 0, 0, 0])
            })?;
            let mut rest = &buf[..len];
            while rest.len() >= HEADER {
                let size = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
                let kind = u16::from_ne_bytes([rest[4], rest[5]]);
                interrupted |= u16::from_ne_bytes([rest[6], rest[7]]) & INTERRUPTED != 0;
                let body = rest.get(HEADER..size).ok_or(Errno::PROTO)?;
                match i32::from(kind) {
                    libc::NLMSG_DONE => return if interrupted { Err(Errno::INTR) } else { Ok(true) },
                    libc::NLMSG_ERROR => {
                        let code = body.get(..4).and_then(|b| b.try_into().ok()).map(i32::from_ne_bytes);
                        return match code.ok_or(Errno::PROTO)? {
                            0 => Ok(true),
                            code => Err(Errno::from_raw_os_error(code.wrapping_neg())),
                        };
                    }
                    libc::NLMSG_NOOP => {}
                    _ => {
                        if !each(kind, body) {
                            return Ok(false);
                        }
                        if !several && !acknowledged {
                            return Ok(true);
                        }
                    }
                }
                rest = rest.get(size.next_multiple_of(4)..).unwrap_or(&[]);
            }
        }
    }
}

/// All AF_UNIX sockets of the calling thread's network namespace, in one pass: `each` is told the inode and the cookie of each one that a
/// process holds, and says whether there is time for more. Whether they were all.
///
/// # Errors
/// As [`Netlink::open`]; what the kernel answers, ENOENT where it lists no such sockets (without CONFIG_UNIX_DIAG).
pub fn unix_sockets(each: &mut dyn FnMut(u32, u64) -> bool) -> Result<bool> {
    const NETLINK_SOCK_DIAG: i32 = 4;
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    // struct unix_diag_req (linux/unix_diag.h): of all states, and nothing but what each answer has.
    let mut fixed = [0u8; 24];
    fixed[0] = libc::AF_UNIX as u8;
    fixed[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
    let request = Request::new(SOCK_DIAG_BY_FAMILY, libc::NLM_F_DUMP, &fixed);
    Netlink::of(NETLINK_SOCK_DIAG)?.ask_while(request, &mut |_, body| {
        // struct unix_diag_msg: family, type, state, pad, inode, cookie.
        let word =
            |at: usize| body.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
        let (inode, cookie) = (word(4), u64::from(word(8)) | u64::from(word(12)) << 32);
        inode == 0 || each(inode, cookie)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_af_unix_are_listed_once_each() {
        use std::collections::HashMap;
        use std::os::unix::net::UnixStream;
        let pair = UnixStream::pair().unwrap();
        let own = [&pair.0, &pair.1].map(|end| {
            let inode = crate::fd::identity(end.as_raw_fd()).unwrap().1 as u32;
            (inode, crate::sock::option_u64(end.as_raw_fd(), libc::SOL_SOCKET, libc::SO_COOKIE).unwrap())
        });
        let mut all = HashMap::<_, Vec<_>>::new();
        let whole = unix_sockets(&mut |inode, cookie| {
            all.entry(inode).or_default().push(cookie);
            true
        });
        assert_eq!(whole, Ok(true));
        assert!(own.iter().all(|(inode, cookie)| all[inode] == [*cookie]), "{own:?}");
        let mut told = 0;
        let whole = unix_sockets(&mut |_, _| {
            told += 1;
            told < 2
        });
        assert_eq!((whole, told), (Ok(false), 2));
    }

    #[test]
    fn attributes_are_read_as_they_were_put() {
        let request = Request::new(16, 0, &[1; 16])
            .attribute(3, b"eth0\0")
            .nested(18, |r| r.attribute(1, b"veth").nested(2, |r| r.fixed(&[9; 4]).attribute(7, &[5])));
        let all: Vec<_> = attributes(&request.bytes[HEADER + 16..]).collect();
        assert_eq!(all[0], (3, b"eth0\0".as_slice()));
        assert_eq!(all.len(), 2);
        let inner: Vec<_> = attributes(all[1].1).collect();
        assert_eq!(inner[0], (1, b"veth".as_slice()));
        assert_eq!(attributes(&inner[1].1[4..]).collect::<Vec<_>>(), [(7, [5u8].as_slice())]);
    }

    #[test]
    fn broken_attributes_end_the_list() {
        assert_eq!(attributes(&[3, 0, 1, 0]).count(), 0);
        assert_eq!(attributes(&[0; 16]).count(), 0);
        assert_eq!(attributes(&[200, 0, 1, 0, 9, 9]).count(), 0);
        assert_eq!(attributes(&[5, 0, 1, 0, 9, 9]).collect::<Vec<_>>(), [(1, [9u8].as_slice())]);
    }
}
