//! SEQPACKET sockets with abstract names, and those of a folder: rendezvous and control channel between processes, and their messages. And the names
//! of AF_UNIX sockets.

mod message;
mod receive;

pub use message::*;
pub use receive::{recv, recv_octets, recv_relied_on};

use crate::syscall::{check, syscall};
use crate::turn::{self, Turn};
use crate::{Errno, Result, fd, poll, process, sock};

fn new(floor: i32) -> Result<i32> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    turn::high(floor, || {
        // SAFETY: integers only.
        check(unsafe { syscall(libc::SYS_socket, [libc::AF_UNIX as usize, kind as usize, 0, 0, 0, 0]) })
            .map(|made| made as i32)
    })
}

/// Two ends of one connection, at the lowest free numbers.
///
/// # Errors
/// EMFILE, ENFILE; EPERM under a filter.
pub(crate) fn pair() -> Result<[i32; 2]> {
    let mut ends = [0i32; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let arguments = [libc::AF_UNIX as usize, kind as usize, 0, ends.as_mut_ptr() as usize, 0, 0];
    // SAFETY: the kernel writes two descriptors to a local.
    check(unsafe { syscall(libc::SYS_socketpair, arguments) })?;
    Ok(ends)
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

/// Whether he may; on older kernels everybody may.
pub(crate) fn takes_descriptors(s: i32) -> bool {
    sock::option(s, libc::SOL_SOCKET, SO_PASSRIGHTS) != Ok(0)
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
    // Mostly there is none. A turn blocks signals for a moment, and who unblocks some gets what was sent to the process and is on its way to another thread of it.
    if poll::now(listener, libc::POLLIN) == 0 {
        return Ok(None);
    }
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let Some(_turn) = Turn::to_take() else { return Ok(None) };
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
    let _turn = Turn::to_make();
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
    let _turn = Turn::to_make();
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

#[cfg(test)]
pub(crate) mod tests {
    /// Two ends.
    pub(crate) fn pair() -> [i32; 2] {
        let mut ends = [0; 2];
        // SAFETY: the kernel writes two numbers.
        let made = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, ends.as_mut_ptr()) };
        assert_eq!(made, 0);
        ends
    }
}
