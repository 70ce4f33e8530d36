//! SEQPACKET sockets at a path: where a service is asked. Nothing waits in the calls of this file.

use crate::syscall::{check, syscall};
use crate::{Errno, Result, unix};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

fn new() -> Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: integers only.
    let made =
        check(unsafe { syscall(libc::SYS_socket, [libc::AF_UNIX as usize, kind as usize, 0, 0, 0, 0]) })?;
    // SAFETY: the kernel made it for us just now.
    Ok(unsafe { OwnedFd::from_raw_fd(made as i32) })
}

/// sockaddr_un of a path.
fn address(path: &Path) -> Result<([u8; 110], usize)> {
    let (octets, mut raw) = (OsStr::as_bytes(path.as_os_str()), [0u8; 110]);
    raw[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
    if octets.len() > 107 || octets.contains(&0) {
        return Err(Errno::NAMETOOLONG);
    }
    raw[2..2 + octets.len()].copy_from_slice(octets);
    Ok((raw, 3 + octets.len()))
}

fn at(call: libc::c_long, path: &Path) -> Result<OwnedFd> {
    let ((raw, len), socket) = (address(path)?, new()?);
    // SAFETY: the kernel reads `len` bytes of a local.
    check(unsafe { syscall(call, [socket.as_raw_fd() as usize, raw.as_ptr() as usize, len, 0, 0, 0]) })?;
    Ok(socket)
}

/// A socket that has the path's name; who connects waits for [`listen`].
///
/// # Errors
/// EADDRINUSE: there is something at the path; ENAMETOOLONG: it has more than 107 octets; EACCES, ENOENT.
pub fn bind(path: &Path) -> Result<OwnedFd> {
    at(libc::SYS_bind, path)
}

/// Who connects is taken from now on, so many waiting.
///
/// # Errors
/// As listen(2).
pub fn listen(socket: BorrowedFd<'_>, backlog: i32) -> Result<()> {
    // SAFETY: integers only.
    check(unsafe { syscall(libc::SYS_listen, [socket.as_raw_fd() as usize, backlog as usize, 0, 0, 0, 0]) })
        .map(|_| ())
}

/// Connects to a path.
///
/// # Errors
/// ENOENT; ECONNREFUSED: nobody listens there any more; EAGAIN: too many wait; EACCES; ENAMETOOLONG; EPROTOTYPE: it is of another kind.
pub fn connect(path: &Path) -> Result<OwnedFd> {
    at(libc::SYS_connect, path)
}

/// What stands at a path, whatever comes to stand there later.
#[derive(Debug)]
pub struct Standing {
    file: File,
    /// Whose it is. What has a second name (a hard link) is nobody's: where fs.protected_hardlinks is 0 everybody may give one to what others have.
    pub owner: u32,
    /// It is a socket.
    pub is_socket: bool,
    /// It is a link, and leads there.
    pub link: Option<PathBuf>,
}

impl Standing {
    /// Looks at it, and follows no link.
    ///
    /// # Errors
    /// As open(2).
    pub fn at(path: &Path) -> Result<Standing> {
        let raw = |e: std::io::Error| Errno::from_raw_os_error(e.raw_os_error().unwrap_or(libc::EIO));
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(raw)?;
        let about = file.metadata().map_err(raw)?;
        let link = about.file_type().is_symlink().then(|| leads(&file, path)).transpose()?;
        let owner = if about.nlink() > 1 { crate::process::OVERFLOW_UID } else { about.uid() };
        Ok(Standing { file, owner, is_socket: about.file_type().is_socket(), link })
    }
}

/// Where an open link at `path` leads.
fn leads(link: &File, path: &Path) -> Result<PathBuf> {
    let mut room = [0u8; 4096];
    let words =
        [link.as_raw_fd() as usize, c"".as_ptr() as usize, room.as_mut_ptr() as usize, room.len(), 0, 0];
    // SAFETY: the name is NUL terminated, and the room outlives the call.
    let len = check(unsafe { syscall(libc::SYS_readlinkat, words) })?;
    let to = Path::new(OsStr::from_bytes(&room[..len.min(room.len())]));
    Ok(path.parent().unwrap_or(Path::new("/")).join(to))
}

/// Connects to the socket that stands at a path, or to which a link leads there that is of a user of whom `follows` says so. Others' lead nowhere: through a file
/// system that its owner serves the way takes as long as he likes.
///
/// # Errors
/// Those of [`connect`]; ELOOP: it is another one's link; ENOTSOCK.
pub fn connect_led(path: &Path, follows: impl Fn(u32) -> bool) -> Result<OwnedFd> {
    let standing = Standing::at(path)?;
    match &standing.link {
        Some(to) if follows(standing.owner) => connect(to),
        Some(_) => Err(Errno::LOOP),
        None if !standing.is_socket => Err(Errno::NOTSOCK),
        None => match connect(Path::new(&format!("/proc/self/fd/{}", standing.file.as_raw_fd()))) {
            // Without /proc.
            Err(Errno::NOENT) if follows(standing.owner) => connect(path),
            connected => connected,
        },
    }
}

/// Takes one waiting connection; `None`: there is none.
///
/// # Errors
/// EMFILE and others as accept4(2).
pub fn accept(listener: BorrowedFd<'_>) -> Result<Option<OwnedFd>> {
    let taken = unix::accept(listener.as_raw_fd(), 3)?;
    // SAFETY: the kernel made it for us just now.
    Ok(taken.map(|taken| unsafe { OwnedFd::from_raw_fd(taken) }))
}

/// The next message and its descriptors, as far as it fits; `None`: there is none. No octets: the other end is gone, or sent none.
///
/// # Errors
/// ECONNRESET; EMFILE: the descriptors could not be kept.
pub fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> Result<Option<(usize, Vec<OwnedFd>)>> {
    Ok(unix::recv(socket.as_raw_fd(), room, 3)?.map(owned))
}

/// The octets alone of the next message on a socket that nobody but the calling thread reads.
///
/// # Errors
/// Those of [`receive`].
pub fn receive_octets(socket: BorrowedFd<'_>, room: &mut [u8]) -> Result<Option<usize>> {
    unix::recv_octets(socket.as_raw_fd(), room, 3)
}

/// As [`receive`] of whom the caller relies on, who may send any kind of descriptor.
///
/// # Errors
/// Those of [`receive`].
pub fn receive_relied_on(socket: BorrowedFd<'_>, room: &mut [u8]) -> Result<Option<(usize, Vec<OwnedFd>)>> {
    Ok(unix::recv_relied_on(socket.as_raw_fd(), room, 3)?.map(owned))
}

fn owned(got: unix::Received) -> (usize, Vec<OwnedFd>) {
    // SAFETY: they were received just now and are nobody else's.
    let own = |fd: &i32| unsafe { OwnedFd::from_raw_fd(*fd) };
    (got.len, got.fds[..got.fd_count].iter().map(own).collect())
}

/// The same with all descriptors that came along, of which none is closed.
///
/// # Errors
/// ECONNRESET.
#[cfg(feature = "link")]
pub fn receive_all(socket: BorrowedFd<'_>, room: &mut [u8]) -> Result<Option<unix::Whole>> {
    unix::recv_all(socket.as_raw_fd(), room)
}

/// The first octets of the next message, which stays, with what came along; how many, `None`: there is none.
///
/// # Errors
/// ECONNRESET.
pub fn peek(socket: BorrowedFd<'_>, room: &mut [u8]) -> Result<Option<usize>> {
    let flags = (libc::MSG_PEEK | libc::MSG_DONTWAIT) as usize;
    let to = [socket.as_raw_fd() as usize, room.as_mut_ptr() as usize, room.len(), flags, 0, 0];
    // SAFETY: the kernel writes into the slice.
    match check(unsafe { syscall(libc::SYS_recvfrom, to) }) {
        Err(Errno::AGAIN) => Ok(None),
        seen => seen.map(Some),
    }
}

/// Whether descriptors come along with the next message, which stays; `None`: there is none. Of a socket at which it is told who has sent a message
/// ([`unix::tell_senders`]).
#[cfg(feature = "link")]
pub fn brings_descriptors(socket: BorrowedFd<'_>) -> Option<bool> {
    unix::brings_descriptors_beside_sender(socket.as_raw_fd())
}

/// Sends a message, with a descriptor or without.
///
/// # Errors
/// EAGAIN: there is no room; EPIPE, ECONNRESET; ETOOMANYREFS: too many descriptors are on their way.
pub fn send(socket: BorrowedFd<'_>, octets: &[u8], with: Option<BorrowedFd<'_>>) -> Result<()> {
    send_with(socket, octets, with.as_slice())
}

/// As [`send`], in the name of [`principal`](crate::process::principal).
///
/// # Errors
/// Those of [`send`].
pub fn ask(socket: BorrowedFd<'_>, octets: &[u8], with: Option<BorrowedFd<'_>>) -> Result<()> {
    let numbers = with.map(|fd| fd.as_raw_fd());
    unix::send_as_principal(socket.as_raw_fd(), octets, numbers.as_slice())
}

/// Sends a message with up to [`unix::MAX_FDS`] descriptors.
///
/// # Errors
/// Those of [`send`]; EINVAL: more descriptors.
pub fn send_with(socket: BorrowedFd<'_>, octets: &[u8], with: &[BorrowedFd<'_>]) -> Result<()> {
    let mut numbers = [-1; unix::MAX_FDS];
    for (number, fd) in numbers.get_mut(..with.len()).ok_or(Errno::INVAL)?.iter_mut().zip(with) {
        *number = fd.as_raw_fd();
    }
    unix::send(socket.as_raw_fd(), octets, &numbers[..with.len()])
}

/// A connected pair; neither end waits.
///
/// # Errors
/// EMFILE, ENFILE, ENOMEM.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0i32; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
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

#[cfg(all(test, feature = "link"))]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn messages_and_descriptors_come_one_by_one() {
        let path = std::env::temp_dir().join(format!("bypath-seqpacket-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        assert_eq!(connect(&path).err(), Some(Errno::NOENT));
        let listener = bind(&path).unwrap();
        assert_eq!(bind(&path).err(), Some(Errno::ADDRINUSE));
        assert_eq!(connect(&path).err(), Some(Errno::CONNREFUSED));
        listen(listener.as_fd(), 4).unwrap();
        assert!(accept(listener.as_fd()).unwrap().is_none());
        let caller = connect(&path).unwrap();
        let called = accept(listener.as_fd()).unwrap().unwrap();
        let (a, b) = crate::pair::new().unwrap();
        send(caller.as_fd(), b"with", Some(a.as_fd())).unwrap();
        send(caller.as_fd(), b"without", None).unwrap();
        let mut room = [0; 16];
        assert_eq!((peek(called.as_fd(), &mut room[..2]), &room[..2]), (Ok(Some(2)), &b"wi"[..]));
        let (len, fds) = receive(called.as_fd(), &mut room).unwrap().unwrap();
        assert_eq!((&room[..len], fds.len()), (&b"with"[..], 1));
        crate::pair::send(fds[0].as_fd(), b"x").unwrap();
        assert_eq!(crate::pair::receive(b.as_fd(), &mut room), Ok(1));
        let (len, fds) = receive(called.as_fd(), &mut room).unwrap().unwrap();
        assert_eq!((&room[..len], fds.len()), (&b"without"[..], 0));
        assert!(receive(called.as_fd(), &mut room).unwrap().is_none());
        assert_eq!(peek(called.as_fd(), &mut room), Ok(None));
        drop(caller);
        assert_eq!(receive(called.as_fd(), &mut room).unwrap().unwrap().0, 0);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(bind(Path::new(&"x".repeat(108))).err(), Some(Errno::NAMETOOLONG));
    }

    #[test]
    fn descriptors_that_would_come_are_seen_and_do_not_come() {
        let (sender, reader) = pair().unwrap();
        unix::tell_senders(reader.as_raw_fd()).unwrap();
        assert_eq!(brings_descriptors(reader.as_fd()), None);
        for (octets, with) in [(&b"x"[..], false), (b"x", true), (b"", true), (b"", false)] {
            send(sender.as_fd(), octets, with.then(|| sender.as_fd())).unwrap();
            for _ in 0..2 {
                assert_eq!(brings_descriptors(reader.as_fd()), Some(with));
            }
            assert_eq!(
                receive_all(reader.as_fd(), &mut [0; 4]).unwrap().unwrap().fds.len(),
                usize::from(with)
            );
        }
    }

    #[test]
    fn a_link_leads_somewhere_only_for_whom_it_may() {
        let name = |end: &str| std::env::temp_dir().join(format!("bypath-led-{}-{end}", std::process::id()));
        let [path, link, file] = ["socket", "link", "file"].map(name);
        let listener = bind(&path).unwrap();
        listen(listener.as_fd(), 8).unwrap();
        std::os::unix::fs::symlink(path.file_name().unwrap(), &link).unwrap();
        std::fs::write(&file, "").unwrap();
        let (own, nobody) = (|owner: u32| owner == crate::process::euid(), |_: u32| false);
        assert!(connect_led(&path, own).is_ok() && connect_led(&path, nobody).is_ok());
        assert!(connect_led(&link, own).is_ok());
        assert_eq!(connect_led(&link, nobody).err(), Some(Errno::LOOP));
        assert_eq!(connect_led(&file, own).err(), Some(Errno::NOTSOCK));
        assert_eq!(connect_led(&name("none"), own).err(), Some(Errno::NOENT));
        // A second name could be anybody's.
        let twice = name("twice");
        std::fs::hard_link(&link, &twice).unwrap();
        assert_eq!(connect_led(&twice, own).err(), Some(Errno::LOOP));
        assert_eq!(Standing::at(&link).unwrap().owner, crate::process::OVERFLOW_UID);
        std::fs::remove_file(&twice).unwrap();
        assert!(connect_led(&link, own).is_ok());
        // It is what stood there when it was looked at.
        let standing = Standing::at(&path).unwrap();
        std::fs::rename(&link, &path).unwrap();
        assert!(standing.is_socket && standing.link.is_none());
        assert_eq!(Standing::at(&path).unwrap().link, Some(path.clone()));
        [path, file].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
}
