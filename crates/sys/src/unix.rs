//! SEQPACKET sockets with abstract names, and those of a folder: rendezvous and control channel between processes. And the names
//! of AF_UNIX sockets.

use crate::apart::Errand;
use crate::signal::Blocked;
use crate::sock::MsgHdr;
use crate::syscall::{check, syscall};
use crate::{Errno, Result, fd, open_files, process, sock, strangers};
#[cfg(feature = "link")]
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Acquire};

/// Most descriptors in one message.
pub const MAX_FDS: usize = 4;

fn new(floor: i32) -> Result<i32> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: integers only.
    let low =
        check(unsafe { syscall(libc::SYS_socket, [libc::AF_UNIX as usize, kind as usize, 0, 0, 0, 0]) })?
            as i32;
    fd::move_high(low, floor)
}

/// The largest send buffer that SO_SNDBUF gives a socket, as SO_SNDBUF then tells it: twice `net.core.wmem_max`.
///
/// # Errors
/// EMFILE; EPERM or EACCES under a filter.
pub fn most_send_buffer(floor: i32) -> Result<i32> {
    let probe = new(floor)?;
    let all = i32::MAX / 2;
    let size = sock::set_option(probe, libc::SOL_SOCKET, libc::SO_SNDBUF, &all.to_ne_bytes())
        .and_then(|()| sock::option(probe, libc::SOL_SOCKET, libc::SO_SNDBUF));
    fd::close(probe);
    size
}

/// sockaddr_un of an abstract name.
pub(crate) fn name_address(name: &[u8]) -> Option<([u8; 110], usize)> {
    let mut raw = [0u8; 110];
    raw[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
    raw.get_mut(3..3 + name.len())?.copy_from_slice(name);
    (name.len() <= 107).then_some((raw, 3 + name.len()))
}

/// sockaddr_un of a path.
fn path_address(path: &[u8]) -> Option<([u8; 110], usize)> {
    let mut raw = [0u8; 110];
    raw[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
    raw.get_mut(2..2 + path.len())?.copy_from_slice(path);
    (path.len() <= 107).then_some((raw, 3 + path.len()))
}

/// A socket without a name.
///
/// # Errors
/// EMFILE; EPERM or EACCES under a filter.
pub fn unnamed(floor: i32) -> Result<i32> {
    new(floor)
}

/// asm-generic/socket.h, since Linux 6.16: 0 where nobody may send descriptors, who gets EPERM then. Who is accepted has it as his listener.
const SO_PASSRIGHTS: i32 = 83;

/// Whether who is at the other end may send descriptors: not, and what he sends is his to close. Older kernels let everybody.
pub fn take_descriptors(s: i32, takes: bool) {
    let _ = sock::set_option(s, libc::SOL_SOCKET, SO_PASSRIGHTS, &i32::from(takes).to_ne_bytes());
}

/// Binds a non-blocking listener to the abstract `name` (without its leading NUL). Who calls there can send no descriptors before
/// [`take_descriptors`] says so of the accepted socket.
///
/// # Errors
/// EADDRINUSE when somebody holds the name; EMFILE; EPERM or EACCES under a filter.
pub fn listen(name: &[u8], floor: i32) -> Result<i32> {
    bound(&name_address(name).ok_or(Errno::NAMETOOLONG)?, floor)
}

/// As [`listen`], at a path.
///
/// # Errors
/// Those of [`listen`], and of bind(2) for paths.
pub(crate) fn listen_at(path: &[u8], floor: i32) -> Result<i32> {
    bound(&path_address(path).ok_or(Errno::NAMETOOLONG)?, floor)
}

fn bound((addr, len): &([u8; 110], usize), floor: i32) -> Result<i32> {
    let s = new(floor)?;
    take_descriptors(s, false);
    // SAFETY: the kernel reads `len` bytes of an array that outlives the call.
    let bound =
        check(unsafe { syscall(libc::SYS_bind, [s as usize, addr.as_ptr() as usize, *len, 0, 0, 0]) })
            // SAFETY: integers only.
            .and_then(|_| check(unsafe { syscall(libc::SYS_listen, [s as usize, 4, 0, 0, 0, 0]) }));
    if let Err(e) = bound {
        fd::close(s);
        return Err(e);
    }
    Ok(s)
}

/// Connects to an abstract name, without waiting.
///
/// # Errors
/// ECONNREFUSED when nobody listens there, EAGAIN when its queue is full, EMFILE, EPERM, EACCES.
pub fn connect(name: &[u8], floor: i32) -> Result<i32> {
    connected(&name_address(name).ok_or(Errno::NAMETOOLONG)?, floor, true)
}

/// The same; who listens there, who may be anybody, can send no descriptors before [`take_descriptors`] says so.
///
/// # Errors
/// Those of [`connect`].
pub fn dial(name: &[u8], floor: i32) -> Result<i32> {
    connected(&name_address(name).ok_or(Errno::NAMETOOLONG)?, floor, false)
}

/// As [`dial`], to a path.
///
/// # Errors
/// Those of [`connect`], and of connect(2) for paths.
pub(crate) fn dial_at(path: &[u8], floor: i32) -> Result<i32> {
    connected(&path_address(path).ok_or(Errno::NAMETOOLONG)?, floor, false)
}

fn connected((addr, len): &([u8; 110], usize), floor: i32, takes: bool) -> Result<i32> {
    let s = new(floor)?;
    if !takes {
        take_descriptors(s, false);
    }
    // SAFETY: the kernel reads `len` bytes of an array that outlives the call.
    match check(unsafe { syscall(libc::SYS_connect, [s as usize, addr.as_ptr() as usize, *len, 0, 0, 0]) }) {
        Ok(_) => Ok(s),
        Err(e) => {
            fd::close(s);
            Err(e)
        }
    }
}

/// The abstract name, without its NUL, of the AF_UNIX socket at the other end of `s`, in `room`; `None` if it has none, or
/// `s` is no such socket.
pub fn peer_name(s: i32, room: &mut [u8; 110]) -> Option<&[u8]> {
    let mut len = room.len() as u32;
    // SAFETY: the kernel writes at most `len` bytes, and the length.
    let asked = check(unsafe {
        syscall(
            libc::SYS_getpeername,
            [s as usize, room.as_mut_ptr() as usize, &raw mut len as usize, 0, 0, 0],
        )
    });
    asked.ok()?;
    let is_abstract = room[..2] == (libc::AF_UNIX as u16).to_ne_bytes() && room[2] == 0;
    room.get(3..len as usize).filter(|_| is_abstract)
}

/// Takes one waiting connection; `None` if there is none, or somebody replaces a descriptor just now.
///
/// # Errors
/// As accept4(2).
pub fn accept(listener: i32, floor: i32) -> Result<Option<i32>> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let Some(_turn) = strangers::Turn::to_take() else { return Ok(None) };
    // SAFETY: integers and null pointers only.
    match check(unsafe { syscall(libc::SYS_accept4, [listener as usize, 0, 0, flags as usize, 0, 0]) }) {
        Ok(n) => fd::move_high(n as i32, floor).map(Some),
        Err(Errno::AGAIN) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Nobody can call at a listener, or send to a socket, any more; who has called already can be accepted, and what was sent be received.
pub fn refuse(socket: i32) {
    // SAFETY: integers only.
    unsafe { syscall(libc::SYS_shutdown, [socket as usize, libc::SHUT_RDWR as usize, 0, 0, 0, 0]) };
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process id in our pid namespace (0 = not visible).
    pub pid: u32,
    /// Effective user id when it connected or listened.
    pub uid: u32,
}

/// SO_PEERCRED.
///
/// # Errors
/// ENOTCONN.
pub fn peer_credentials(s: i32) -> Result<Credentials> {
    let mut raw = [0u8; 12];
    crate::sock::option_bytes(s, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut raw)?;
    let word = |at: usize| u32::from_ne_bytes(raw[at..at + 4].try_into().unwrap_or([0; 4]));
    Ok(Credentials { pid: word(0), uid: word(4) })
}

/// asm-generic/socket.h, since Linux 6.5.
const SO_PEERPIDFD: i32 = 77;

/// A number of the process at the other end that no other process ever has, where [`Credentials::pid`] does not see it: the inode of
/// its pidfd; `None` where the kernel has none such (before 6.9), or it has ended.
pub fn peer_process(s: i32) -> Option<u64> {
    let pidfd = sock::option(s, libc::SOL_SOCKET, SO_PEERPIDFD).ok()?;
    let inode = process::pidfd_number(pidfd);
    fd::close(pidfd);
    inode
}

/// Whether this process is at the other end, which may have been closed since: not one that had its process id before. Before Linux 6.5 the id is
/// all that there is to be known.
pub fn is_of_this_process(s: i32) -> bool {
    if !peer_credentials(s).is_ok_and(|maker| maker.pid == process::pid()) {
        return false;
    }
    match sock::option(s, libc::SOL_SOCKET, SO_PEERPIDFD) {
        Ok(pidfd) => {
            // Without a number that is its own there is none of a process that has ended.
            let is_it = process::pidfd_number(pidfd).is_none_or(|number| process::number() == Some(number));
            fd::close(pidfd);
            is_it
        }
        Err(e) => e == Errno::NOPROTOOPT,
    }
}

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control<const MOST: usize = MAX_FDS> {
    len: usize,
    level: i32,
    kind: i32,
    fds: [i32; MOST],
}

/// Most descriptors that the kernel takes with one message (SCM_MAX_FD). Whoever has room for fewer has the kernel close the rest, and
/// waits for what is closed.
pub const ALL_FDS: usize = 253;

/// What other threads may open meanwhile.
const SPARE_FDS: u64 = 16;

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
    let iov = crate::user::IoVec { base: bytes.as_ptr() as usize, len: bytes.len() };
    let hdr = MsgHdr {
        name: 0,
        namelen: 0,
        iov: &raw const iov as usize,
        iovlen: 1,
        control: if len == 0 { 0 } else { std::ptr::from_ref(along) as usize },
        controllen: len.min(size_of::<T>()),
        flags: 0,
    };
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

/// Whether a message is left unread, be it one of descriptors alone, at an end to which nothing more can be sent ([`refuse`]), and from which nobody receives.
pub fn has_unread(s: i32) -> bool {
    // Who has sent it is told of an empty message, too, and there is no room for that; of the end there is nothing to tell.
    let tells = tell_senders(s);
    let mut hdr = MsgHdr { name: 0, namelen: 0, iov: 0, iovlen: 0, control: 0, controllen: 0, flags: 0 };
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
fn brings_descriptors(s: i32) -> Option<bool> {
    let mut hdr = MsgHdr { name: 0, namelen: 0, iov: 0, iovlen: 0, control: 0, controllen: 0, flags: 0 };
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
    let mut hdr = MsgHdr {
        name: 0,
        namelen: 0,
        iov: 0,
        iovlen: 0,
        control: along.as_mut_ptr() as usize,
        controllen: size_of_val(&along),
        flags: 0,
    };
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
    // SAFETY: the header and the room that it names outlive the call.
    let seen = check(unsafe {
        syscall(libc::SYS_recvmsg, [s as usize, &raw mut hdr as usize, flags as usize, 0, 0, 0])
    });
    (seen != Err(Errno::AGAIN)).then_some(hdr.flags & libc::MSG_CTRUNC != 0)
}

fn is_of_another_user(s: i32) -> bool {
    !peer_credentials(s).is_ok_and(|other| other.uid == process::euid())
}

/// Of what cannot be told it is assumed.
fn has_room_for_all() -> bool {
    fd::count_free().is_none_or(|free| free >= ALL_FDS as u64 + SPARE_FDS)
}

/// Receives one message without waiting; `None` if there is none yet, or somebody replaces a descriptor just now.
///
/// What another user sends comes to a thread apart (`apart.rs`) first, and is passed on if it is sealed memory and eventfds: a number of the program's table is
/// never that of anything else, not for a moment.
///
/// # Errors
/// ECONNRESET and others as recvmsg(2); EMFILE when the descriptors, or one of them, could not be kept: all are closed, and the message is gone.
/// EMFILE also where another user is at the other end, no thread may be made as it must be, and there is not room for as many as he can send along: the kernel would
/// close the others within the call. The message stays then.
pub fn recv(s: i32, bytes: &mut [u8], floor: i32) -> Result<Option<Received>> {
    let brings = match brings_descriptors(s) {
        None => return Ok(None),
        Some(brings) => brings,
    };
    if is_of_another_user(s) {
        if let Some(outcome) = recv_apart(s, bytes, floor) {
            return outcome;
        }
        if brings && !has_room_for_all() {
            return Err(Errno::MFILE);
        }
    }
    recv_here(s, bytes, floor)
}

/// The same of whom the caller has chosen to rely on, as a program does on its netstack service: what he sends, sockets too, comes into the program's table at
/// once, whoever he is.
///
/// # Errors
/// Those of [`recv`]; EMFILE where another user is at the other end also while there is not room for as many as can come along.
pub fn recv_relied_on(s: i32, bytes: &mut [u8], floor: i32) -> Result<Option<Received>> {
    match brings_descriptors(s) {
        None => Ok(None),
        Some(true) if is_of_another_user(s) && !has_room_for_all() => Err(Errno::MFILE),
        Some(_) => recv_here(s, bytes, floor),
    }
}

/// The same into the program's table. By itself, so that a small stack has this room or that.
#[inline(never)]
fn recv_here(s: i32, bytes: &mut [u8], floor: i32) -> Result<Option<Received>> {
    let mut control = Control::<ALL_FDS>::new();
    let mut got = Received { len: 0, fds: [-1; MAX_FDS], fd_count: 0 };
    let Some(turn) = strangers::Turn::to_take() else { return Ok(None) };
    let Some((len, all, mut failed)) = recv_raw(s, bytes, &mut control)? else { return Ok(None) };
    got.len = len;
    let (wanted, more) = control.files(all);
    failed |= !more.is_empty() || !got.moves_high(wanted, floor);
    drop(turn);
    strangers::close(more);
    // Nobody tells an empty message from the end: what came with it is nobody's.
    if failed || len == 0 {
        strangers::close(&got.fds[..got.fd_count]);
        got.fd_count = 0;
    }
    if failed { Err(Errno::MFILE) } else { Ok(Some(got)) }
}

impl Received {
    /// False: not all of them.
    fn moves_high(&mut self, low: &[i32], floor: i32) -> bool {
        for &one in low {
            if let Ok(high) = fd::move_high(one, floor) {
                self.fds[self.fd_count] = high;
                self.fd_count += 1;
            }
        }
        self.fd_count == low.len()
    }
}

impl Control<ALL_FDS> {
    const fn new() -> Control<ALL_FDS> {
        Control { len: 0, level: 0, kind: 0, fds: [-1; ALL_FDS] }
    }

    /// Of what came along, `all` octets, the descriptors: those that are wanted, and more.
    fn files(&self, all: usize) -> (&[i32], &[i32]) {
        let is_theirs = all >= CONTROL_HEADER
            && self.level == libc::SOL_SOCKET
            && self.kind == libc::SCM_RIGHTS
            && self.len >= CONTROL_HEADER;
        let count = if is_theirs { ((self.len - CONTROL_HEADER) / 4).min(ALL_FDS) } else { 0 };
        self.fds[..count].split_at(count.min(MAX_FDS))
    }
}

/// The same by a thread apart; `None`: there can be none.
#[cold]
#[inline(never)]
fn recv_apart(s: i32, bytes: &mut [u8], floor: i32) -> Option<Result<Option<Received>>> {
    const SOCKET: usize = 1;
    const TO_US: usize = 2;
    // It is given the lowest free numbers.
    const FIRST: usize = 3;
    // Rather later than into the program's table.
    let Some((ours, theirs)) = packets(floor) else { return Some(Ok(None)) };
    let mut control = Control::<ALL_FDS>::new();
    let iov = crate::user::IoVec { base: bytes.as_mut_ptr() as usize, len: bytes.len() };
    let mut header = MsgHdr {
        name: 0,
        namelen: 0,
        iov: &raw const iov as usize,
        iovlen: 1,
        control: &raw mut control as usize,
        controllen: size_of_val(&control),
        flags: 0,
    };
    let mut octet = 0u8;
    let passed_on = crate::user::IoVec { base: &raw mut octet as usize, len: 1 };
    let mut pass_header = MsgHdr {
        name: 0,
        namelen: 0,
        iov: &raw const passed_on as usize,
        iovlen: 1,
        control: &raw mut control as usize,
        controllen: 0,
        flags: 0,
    };
    let [received, passed] = [const { AtomicU64::new(0) }; 2];
    let seals = [const { AtomicU64::new(0) }; MAX_FDS];
    let mut errand = Errand::new();
    errand.begin();
    let numbers = (errand.takes(s), errand.takes(theirs));
    debug_assert_eq!(numbers, (SOCKET, TO_US));
    let flags = (libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) as usize;
    errand.calls(libc::SYS_recvmsg, [SOCKET, &raw mut header as usize, flags, 0, 0, 0], &received);
    for (at, seals) in seals.iter().enumerate() {
        errand.calls(libc::SYS_fcntl, [FIRST + at, libc::F_GET_SEALS as usize, 0, 0, 0, 0], seals);
    }
    errand.waits();
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
    errand.calls(libc::SYS_sendmsg, [TO_US, &raw mut pass_header as usize, flags, 0, 0, 0], &passed);
    errand.waits();
    let _blocked = Blocked::all();
    let close_ends = || [ours, theirs].into_iter().for_each(fd::close);
    let Some(tid) = errand.sent() else {
        close_ends();
        return None;
    };
    if !errand.has_arrived(0) {
        errand.is_over();
        close_ends();
        return None;
    }
    let outcome = (|| {
        // SAFETY: the kernel has written there for the other thread, which waits.
        let (control, all, flags) = unsafe {
            (
                (&raw const control).read_volatile(),
                (&raw const header.controllen).read_volatile(),
                (&raw const header.flags).read_volatile(),
            )
        };
        let len = match check(received.load(Acquire) as isize) {
            Err(Errno::AGAIN) => return Ok(None),
            other => other?,
        };
        let mut got = Received { len, fds: [-1; MAX_FDS], fd_count: 0 };
        let (wanted, more) = control.files(all);
        if flags & libc::MSG_CTRUNC != 0 || !more.is_empty() {
            return Err(Errno::MFILE);
        }
        // Nobody tells an empty message from the end: what came with it is nobody's.
        if wanted.is_empty() || len == 0 {
            return Ok(Some(got));
        }
        // A plain file of a file system in memory has none of these.
        let length = i64::from(libc::F_SEAL_SHRINK | libc::F_SEAL_GROW);
        let is_memory = |at: usize| {
            let seals = seals[at].load(Acquire) as i64;
            seals >= 0 && seals & length == length
        };
        let is_good = |at: usize, file: i32| {
            file == (FIRST + at) as i32
                && (is_memory(at) || open_files::is_of_thread(tid, file, strangers::EVENTFD))
        };
        if !wanted.iter().enumerate().all(|(at, file)| is_good(at, *file)) {
            return Err(Errno::MFILE);
        }
        let count = wanted.len();
        // SAFETY: a word of this function's, which the other thread's next call reads.
        unsafe { (&raw mut pass_header.controllen).write_volatile(control.len) };
        errand.goes_on(0);
        if !errand.has_arrived(1) {
            return Err(Errno::MFILE);
        }
        check(passed.load(Acquire) as isize)?;
        let mut control = Control::<ALL_FDS>::new();
        let Some(_turn) = strangers::Turn::to_take() else { return Err(Errno::MFILE) };
        let Some((_, all, failed)) = recv_raw(ours, &mut [0], &mut control)? else {
            return Err(Errno::MFILE);
        };
        let (passed_on, _) = control.files(all);
        if !got.moves_high(passed_on, floor) || failed || got.fd_count != count {
            got.fds[..got.fd_count].iter().for_each(|file| fd::close(*file));
            return Err(Errno::MFILE);
        }
        Ok(Some(got))
    })();
    errand.ends();
    errand.is_over();
    close_ends();
    strangers::leave(tid);
    Some(outcome)
}

/// Two ends for one message.
fn packets(floor: i32) -> Option<(i32, i32)> {
    let mut ends = [0i32; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let arguments = [libc::AF_UNIX as usize, kind as usize, 0, ends.as_mut_ptr() as usize, 0, 0];
    let _turn = strangers::Turn::to_take()?;
    // SAFETY: the kernel writes two descriptors to a local.
    check(unsafe { syscall(libc::SYS_socketpair, arguments) }).ok()?;
    match ends.map(|end| fd::move_high(end, floor)) {
        [Ok(ours), Ok(theirs)] => Some((ours, theirs)),
        other => {
            other.into_iter().flatten().for_each(fd::close);
            None
        }
    }
}

/// Length, octets of what came along, and whether there was no room for some.
#[inline]
fn recv_raw<T>(s: i32, bytes: &mut [u8], along: &mut T) -> Result<Option<(usize, usize, bool)>> {
    let iov = crate::user::IoVec { base: bytes.as_mut_ptr() as usize, len: bytes.len() };
    let mut hdr = MsgHdr {
        name: 0,
        namelen: 0,
        iov: &raw const iov as usize,
        iovlen: 1,
        control: std::ptr::from_mut(along) as usize,
        controllen: size_of::<T>(),
        flags: 0,
    };
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
pub(crate) mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    /// Two ends.
    pub(crate) fn pair() -> [i32; 2] {
        let mut ends = [0; 2];
        // SAFETY: the kernel writes two numbers.
        let made = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, ends.as_mut_ptr()) };
        assert_eq!(made, 0);
        ends
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn what_another_user_sends_is_known_before_it_has_a_number_here() {
        const FLOOR: i32 = 700;
        let [ours, theirs] = pair();
        let mut room = [0u8; 8];
        let mut heard = |s| {
            recv_apart(s, &mut room, FLOOR)
                .expect("a thread apart")
                .map(|got| got.map(|got| (got.len, got.fd_count, got.fds)))
        };
        assert_eq!(heard(ours), Ok(None));
        send(theirs, b"alone", &[]).unwrap();
        assert_eq!(heard(ours).unwrap().unwrap().1, 0);
        let memory = crate::mem::memfd(c"test", 4096, FLOOR).unwrap();
        let bell = crate::eventfd::create(FLOOR).unwrap();
        send(theirs, b"both", &[memory, bell]).unwrap();
        let (len, count, fds) = heard(ours).unwrap().unwrap();
        assert_eq!((len, count), (4, 2));
        assert!(fds[..2].iter().all(|file| *file >= FLOOR));
        assert_eq!(fd::identity(fds[0]), fd::identity(memory));
        assert!(open_files::is(fds[1], strangers::EVENTFD));
        fds[..2].iter().for_each(|file| fd::close(*file));
        let (reader, writer) = std::io::pipe().unwrap();
        let [reader, writer] = [reader.into_raw_fd(), writer.into_raw_fd()];
        for bad in [&[writer][..], &[memory, writer], &[bell, memory, bell, writer]] {
            send(theirs, b"bad", bad).unwrap();
            assert_eq!(heard(ours), Err(Errno::MFILE), "{bad:?}");
        }
        fd::close(writer);
        // Nothing of it is left anywhere.
        let is_over = || crate::poll::now(reader, libc::POLLIN) & libc::POLLHUP != 0;
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !is_over() && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(is_over());
        fd::close(theirs);
        assert!(matches!(heard(ours), Ok(Some((0, 0, _)))));
        [ours, memory, bell, reader].into_iter().for_each(fd::close);
    }

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
