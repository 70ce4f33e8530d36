//! Messages and what comes along with them.

#[cfg(feature = "link")]
use super::Credentials;
use crate::sock;
use crate::syscall::{check, syscall};
use crate::user::IoVec;
use crate::{Errno, Result, fd, process};
#[cfg(feature = "link")]
use std::os::fd::{FromRawFd, OwnedFd};

/// Most descriptors in one message.
pub const MAX_FDS: usize = 4;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Control<const MOST: usize = MAX_FDS> {
    pub(super) len: usize,
    level: i32,
    kind: i32,
    fds: [i32; MOST],
}

/// Most descriptors that the kernel takes with one message (SCM_MAX_FD). Whoever has room for fewer has the kernel close the rest, and
/// waits for what is closed.
pub const ALL_FDS: usize = 253;

const CONTROL_HEADER: usize = 16;

/// Sends one message with up to [`MAX_FDS`] descriptors, without waiting and without SIGPIPE.
///
/// # Errors
/// EAGAIN when the queue is full, EPIPE, ECONNRESET, ETOOMANYREFS; EPERM: the other end takes no descriptors, or not yet.
pub fn send(s: i32, bytes: &[u8], fds: &[i32]) -> Result<()> {
    let mut control: Control =
        Control { len: 0, level: libc::SOL_SOCKET, kind: libc::SCM_RIGHTS, fds: [0; MAX_FDS] };
    control.fds.get_mut(..fds.len()).ok_or(Errno::INVAL)?.copy_from_slice(fds);
    control.len = CONTROL_HEADER + 4 * fds.len();
    send_along(s, bytes, &control, if fds.is_empty() { 0 } else { control.len.next_multiple_of(8) })
}

/// With so many octets of `along`.
fn send_along<T>(s: i32, bytes: &[u8], along: &T, len: usize) -> Result<()> {
    let iov = [IoVec { base: bytes.as_ptr() as usize, len: bytes.len() }];
    let control = if len == 0 { 0 } else { std::ptr::from_ref(along) as usize };
    let hdr = sock::header(&iov, (control, len.min(size_of::<T>())));
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: all addresses are of locals that outlive the call.
    check(unsafe {
        syscall(libc::SYS_sendmsg, [s as usize, &raw const hdr as usize, flags as usize, 0, 0, 0])
    })
    .map(|_| ())
}

/// As [`send`], in the name of [`process::principal`]: the kernel would name the real user.
///
/// # Errors
/// Those of [`send`].
pub fn send_as_principal(s: i32, bytes: &[u8], fds: &[i32]) -> Result<()> {
    let mut along = Named {
        sender: Control {
            len: CONTROL_HEADER + 12,
            level: libc::SOL_SOCKET,
            kind: libc::SCM_CREDENTIALS,
            fds: [process::pid() as i32, process::principal() as i32, process::real_gid() as i32, 0],
        },
        files: Control {
            len: CONTROL_HEADER + 4 * fds.len(),
            level: libc::SOL_SOCKET,
            kind: libc::SCM_RIGHTS,
            fds: [0; MAX_FDS],
        },
    };
    along.files.fds.get_mut(..fds.len()).ok_or(Errno::INVAL)?.copy_from_slice(fds);
    let files = if fds.is_empty() { 0 } else { along.files.len.next_multiple_of(8) };
    match send_along(s, bytes, &along, size_of_val(&along.sender) + files) {
        // A user who has no name in this user namespace cannot say it.
        Err(Errno::INVAL | Errno::PERM) => send(s, bytes, fds),
        sent => sent,
    }
}

#[repr(C)]
struct Named {
    sender: Control<4>,
    files: Control,
}

/// One received message.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Bytes received; 0 = the other end is gone.
    pub len: usize,
    /// Descriptors received, now ours, close-on-exec and above the floor.
    pub fds: [i32; MAX_FDS],
    /// How many.
    pub fd_count: usize,
}

/// Copies the bytes of the next message and leaves it, with its descriptors, where it is; `None` if there is none.
pub fn peek(s: i32, bytes: &mut [u8]) -> Option<usize> {
    let flags = (libc::MSG_DONTWAIT | libc::MSG_PEEK) as usize;
    // SAFETY: the buffer outlives the call.
    check(unsafe {
        syscall(libc::SYS_recvfrom, [s as usize, bytes.as_mut_ptr() as usize, bytes.len(), flags, 0, 0])
    })
    .ok()
}

/// Whether a message is left unread, be it one of descriptors alone, at an end to which nothing more can be sent ([`refuse`](super::refuse)), and from which nobody receives.
pub fn has_unread(s: i32) -> bool {
    // Who has sent it is told of an empty message, too, and there is no room for that; of the end there is nothing to tell.
    let tells = tell_senders(s);
    let mut hdr = sock::header(&[], (0, 0));
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
    // SAFETY: the header outlives the call, and names no memory.
    let looked = check(unsafe {
        syscall(libc::SYS_recvmsg, [s as usize, &raw mut hdr as usize, flags as usize, 0, 0, 0])
    });
    tells.is_err() || looked.is_err() || hdr.flags & libc::MSG_CTRUNC != 0
}

/// One message with all that came along.
#[cfg(feature = "link")]
#[derive(Debug)]
pub struct Whole {
    /// Bytes received; 0: the other end is gone, or sent none.
    pub len: usize,
    /// Descriptors received, close-on-exec.
    pub fds: Vec<OwnedFd>,
    /// More came along, and there was no room for it.
    pub is_cut: bool,
    /// Who has sent it, where [`tell_senders`] has asked for that: his real user id, or which of his he says ([`send_as_principal`]).
    pub sender: Option<Credentials>,
}

/// Of each message that comes from now on, here or, of a listener, to what it accepts, it is told who has sent it: a connection may have been
/// passed on, or be of a process that has become another user since.
///
/// # Errors
/// As setsockopt(2).
pub fn tell_senders(s: i32) -> Result<()> {
    sock::set_option(s, libc::SOL_SOCKET, libc::SO_PASSCRED, &1i32.to_ne_bytes())
}

/// Receives one message without waiting, and closes nothing; `None` if there is none yet.
///
/// # Errors
/// ECONNRESET and others as recvmsg(2).
#[cfg(feature = "link")]
pub fn recv_all(s: i32, bytes: &mut [u8]) -> Result<Option<Whole>> {
    let mut along = Along([0; ALONG]);
    let Some((len, all, is_cut)) = recv_raw(s, bytes, &mut along)? else { return Ok(None) };
    let mut whole = Whole { len, fds: Vec::new(), is_cut, sender: None };
    let mut rest = &along.0[..all.min(ALONG)];
    while let Some((kind, data, next)) = part(rest) {
        let words = data.chunks_exact(4).map(|word| i32::from_ne_bytes(word.try_into().unwrap_or([0; 4])));
        match kind {
            // SAFETY: they were received just now and are nobody else's.
            libc::SCM_RIGHTS => whole.fds.extend(words.map(|file| unsafe { OwnedFd::from_raw_fd(file) })),
            libc::SCM_CREDENTIALS => {
                let mut words = words.map(|word| word as u32);
                whole.sender = words.next().zip(words.next()).map(|(pid, uid)| Credentials { pid, uid });
            }
            _ => {}
        }
        rest = next;
    }
    Ok(Some(whole))
}

/// Who has sent a message (a header, three words, a gap), and all descriptors that can come along.
#[cfg(feature = "link")]
const ALONG: usize = 2 * CONTROL_HEADER + CONTROL_HEADER + 4 * ALL_FDS;

#[cfg(feature = "link")]
#[repr(C, align(8))]
struct Along([u8; ALONG]);

/// The first of what came along (cmsg(3)), its kind and data, and what follows it.
#[cfg(feature = "link")]
fn part(along: &[u8]) -> Option<(i32, &[u8], &[u8])> {
    let (head, _) = along.split_at_checked(CONTROL_HEADER)?;
    let len = usize::from_ne_bytes(head[..8].try_into().ok()?);
    let word = |at: usize| head[at..at + 4].try_into().map(i32::from_ne_bytes).unwrap_or(0);
    let data = along.get(CONTROL_HEADER..len).filter(|_| word(8) == libc::SOL_SOCKET)?;
    Some((word(12), data, along.get(len.next_multiple_of(8)..).unwrap_or_default()))
}

/// Whether descriptors come with the next message; `None` if there is none.
pub(super) fn brings_descriptors(s: i32) -> Option<bool> {
    let mut hdr = sock::header(&[], (0, 0));
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
    // SAFETY: the header outlives the call, and names no memory.
    let seen = check(unsafe {
        syscall(libc::SYS_recvmsg, [s as usize, &raw mut hdr as usize, flags as usize, 0, 0, 0])
    });
    (seen != Err(Errno::AGAIN)).then_some(hdr.flags & libc::MSG_CTRUNC != 0)
}

/// The same of a socket at which it is told who has sent a message ([`tell_senders`]).
#[cfg(feature = "link")]
pub(crate) fn brings_descriptors_beside_sender(s: i32) -> Option<bool> {
    // As much as is told of the sender: for a descriptor there is no room left.
    let mut along = [0u64; 2 * CONTROL_HEADER / 8];
    let mut hdr = sock::header(&[], (along.as_mut_ptr() as usize, size_of_val(&along)));
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
    // SAFETY: the header and the room that it names outlive the call.
    let seen = check(unsafe {
        syscall(libc::SYS_recvmsg, [s as usize, &raw mut hdr as usize, flags as usize, 0, 0, 0])
    });
    (seen != Err(Errno::AGAIN)).then_some(hdr.flags & libc::MSG_CTRUNC != 0)
}

impl Received {
    /// False: not all of them.
    pub(super) fn moves_high(&mut self, low: &[i32], floor: i32) -> bool {
        for &one in low {
            if let Ok(high) = fd::move_high(one, floor) {
                self.fds[self.fd_count] = high;
                self.fd_count += 1;
            }
        }
        self.fd_count == low.len()
    }
}

impl<const MOST: usize> Control<MOST> {
    pub(super) const fn new() -> Control<MOST> {
        Control { len: 0, level: 0, kind: 0, fds: [-1; MOST] }
    }

    /// Of what came along, `all` octets, the descriptors: those that are wanted, and more.
    pub(super) fn files(&self, all: usize) -> (&[i32], &[i32]) {
        let is_theirs = all >= CONTROL_HEADER
            && self.level == libc::SOL_SOCKET
            && self.kind == libc::SCM_RIGHTS
            && self.len >= CONTROL_HEADER;
        let count = if is_theirs { ((self.len - CONTROL_HEADER) / 4).min(MOST) } else { 0 };
        self.fds[..count].split_at(count.min(MAX_FDS))
    }
}

/// Length, octets of what came along, and whether there was no room for some.
#[inline]
pub(super) fn recv_raw<T>(s: i32, bytes: &mut [u8], along: &mut T) -> Result<Option<(usize, usize, bool)>> {
    let iov = [IoVec { base: bytes.as_mut_ptr() as usize, len: bytes.len() }];
    let mut hdr = sock::header(&iov, (std::ptr::from_mut(along) as usize, size_of::<T>()));
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: all addresses are of locals that outlive the call.
    let r = check(unsafe {
        syscall(libc::SYS_recvmsg, [s as usize, &raw mut hdr as usize, flags as usize, 0, 0, 0])
    });
    match r {
        // Where there is no room for any of the descriptors the kernel says nothing else of them.
        Ok(n) => Ok(Some((n, hdr.controllen, hdr.flags & libc::MSG_CTRUNC != 0))),
        Err(Errno::AGAIN) => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::super::refuse;
    use super::super::tests::pair;
    use super::*;

    #[test]
    fn what_is_unread_is_told_from_the_end() {
        for (said, is_unread) in [(None, false), (Some(&b""[..]), true), (Some(b"octets"), true)] {
            for is_closed in [false, true] {
                let [own, other] = pair();
                said.iter().for_each(|octets| send(other, octets, &[]).unwrap());
                if is_closed {
                    fd::close(other);
                }
                refuse(own);
                assert_eq!(has_unread(own), is_unread, "{said:?}, closed: {is_closed}");
                fd::close(own);
            }
        }
    }
}
