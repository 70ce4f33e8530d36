//! Channels that are found by a name: a socket that hands out ends, and is left alone afterwards.

use crate::place::{self, Place};
use crate::remote::{Halves, Kind, pair};
use crate::{Channel, Datagrams, Remote, failed};
use bypath_sys::name_lock::NameLock;
use bypath_sys::{Errno, Result, clock, kept_folder, poll, process, seqpacket, strangers, unix};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

/// Processes that wait to be accepted.
const BACKLOG: i32 = 128;

/// A name of this user's at which channels are made.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    place: Place,
    /// Which file it is: somebody may have put another one in its place.
    file: (u64, u64),
    ring: u32,
    limit: Option<u64>,
}

impl Listener {
    /// Takes a name. One without a slash stands in `$XDG_RUNTIME_DIR/bypath/channel`, or where there is no such variable in
    /// `/tmp/bypath-UID/channel`; one with a slash is a path, whose folder must be this user's, and nobody else's to write to.
    /// What a process that was killed has left is replaced.
    ///
    /// # Errors
    /// EADDRINUSE: somebody listens there, or it is no socket; ENAMETOOLONG: the name has more than 80 octets, without its folder; EINVAL: it cannot be
    /// a name; EACCES: the folder is not this user's alone, or `.NAME.lock` there is not. Of kind `PermissionDenied`, with what can be done:
    /// `$XDG_RUNTIME_DIR` is another user's. ENOENT, too, where there is no `/proc`.
    pub fn bind(name: &str) -> io::Result<Listener> {
        let place = place::socket(name, true)?;
        let path = &place.path;
        // Two that start at once look at it one after the other.
        let _alone = NameLock::of(path)?;
        let socket = match seqpacket::bind(path) {
            Err(Errno::ADDRINUSE) => {
                if !is_left(path)? {
                    return Err(failed(Errno::ADDRINUSE));
                }
                fs::remove_file(path)?;
                seqpacket::bind(path)
            }
            bound => bound,
        }
        .map_err(failed)?;
        kept_folder::set_mode(path, 0o600)?;
        seqpacket::listen(socket.as_fd(), BACKLOG).map_err(failed)?;
        let file = identity(path)?;
        Ok(Listener { socket, place, file, ring: Channel::RING, limit: None })
    }

    /// The rings of channels from now on: a power of two from 4 KiB to 1 MiB.
    pub const fn set_ring(&mut self, ring: u32) {
        self.ring = ring;
    }

    /// How long [`accept`](Listener::accept) waits at most; `None`: for ever.
    pub fn set_timeout(&mut self, limit: Option<Duration>) {
        self.limit = limit.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The next process that wants a channel. Processes of other users are sent away; root's, too, unless this is root.
    ///
    /// # Errors
    /// ETIMEDOUT; EINTR; those of [`Channel::pair`].
    pub fn accept(&self) -> io::Result<Channel> {
        self.next(Kind::Octets).map(Channel::from)
    }

    /// The same; it gets a channel of datagrams.
    ///
    /// # Errors
    /// Those of [`accept`](Listener::accept).
    pub fn accept_datagrams(&self) -> io::Result<Datagrams> {
        self.next(Kind::Datagrams).map(Datagrams::from)
    }

    fn next(&self, kind: Kind) -> io::Result<Halves> {
        let deadline = self.limit.map(|limit| clock::monotonic_ns().saturating_add(limit));
        loop {
            if let Some(halves) = self.next_now(kind, deadline)? {
                return Ok(halves);
            }
            let left = deadline.map(|deadline| deadline.saturating_sub(clock::monotonic_ns()));
            let mut one = [poll::PollFd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
            if poll::ppoll(&mut one, left, 0).map_err(failed)? == 0 || left == Some(0) {
                return Err(failed(Errno::TIMEDOUT));
            }
        }
    }

    /// The next one that waits already; `None`: there is none, or none was left of those that waited as this was called.
    ///
    /// # Errors
    /// Those of [`Channel::pair`].
    pub fn try_accept(&self) -> io::Result<Option<Channel>> {
        self.next_now(Kind::Octets, None).map(|halves| halves.map(Channel::from))
    }

    /// The same; it gets a channel of datagrams.
    ///
    /// # Errors
    /// Those of [`Channel::pair`].
    pub fn try_accept_datagrams(&self) -> io::Result<Option<Datagrams>> {
        self.next_now(Kind::Datagrams, None).map(|halves| halves.map(Datagrams::from))
    }

    fn next_now(&self, kind: Kind, deadline: Option<u64>) -> io::Result<Option<Halves>> {
        // All that wait now; who calls meanwhile makes the descriptor readable anew. Each costs the memory of a channel, and may have gone.
        for _ in 0..=BACKLOG {
            let Some(caller) = seqpacket::accept(self.socket.as_fd()).map_err(failed)? else { break };
            let made = is_own(&caller)
                .then(|| pair(kind, self.ring).map(|(halves, remote)| (halves, remote.send(&caller))))
                .transpose();
            leave(caller);
            // Who went away meanwhile is no reason to stop.
            if let Some((halves, Ok(()))) = made? {
                return Ok(Some(halves));
            }
            if deadline.is_some_and(|deadline| clock::monotonic_ns() >= deadline) {
                break;
            }
        }
        Ok(None)
    }
}

/// Readable when somebody waits.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if identity(&self.place.path).is_ok_and(|file| file == self.file) {
            let _ = fs::remove_file(&self.place.path);
        }
    }
}

impl Channel {
    /// A channel with the process that listens at a name of this user's ([`Listener::bind`]); waits for it so long, or for ever.
    ///
    /// # Errors
    /// ENOENT, ECONNREFUSED: nobody listens there; EAGAIN: too many wait; EACCES: the folder is not this user's alone, or the listener
    /// another user's; ETIMEDOUT; ECONNRESET: the listener ended; EPROTOTYPE: it gives channels of datagrams; ENAMETOOLONG, EINVAL, EPROTO,
    /// EMFILE, ENOMEM.
    pub fn connect(name: &str, limit: Option<Duration>) -> io::Result<Channel> {
        call(name, limit)?.open()
    }
}

impl Datagrams {
    /// As [`Channel::connect`], with one that uses [`Listener::accept_datagrams`].
    ///
    /// # Errors
    /// Those of [`Channel::connect`].
    pub fn connect(name: &str, limit: Option<Duration>) -> io::Result<Datagrams> {
        call(name, limit)?.open_datagrams()
    }
}

fn call(name: &str, limit: Option<Duration>) -> io::Result<Remote> {
    let place = place::socket(name, false)?;
    let socket = seqpacket::connect(&place.path).map_err(failed)?;
    let got = if is_own(&socket) { Remote::receive(&socket, limit) } else { Err(failed(Errno::ACCESS)) };
    leave(socket);
    got
}

/// Ends a connection, in which there may be what nobody has asked for.
fn leave(socket: OwnedFd) {
    strangers::close(&[socket.into_raw_fd()]);
}

/// Whether what is at a path is a socket that a dead process has left.
fn is_left(path: &Path) -> io::Result<bool> {
    // What is no socket refuses connections, too.
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    Ok(matches!(seqpacket::connect(path), Err(Errno::CONNREFUSED)))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|m| (m.dev(), m.ino()))
}

/// Whether this user's process is at the other end.
fn is_own(socket: &OwnedFd) -> bool {
    let peer: Result<_> = unix::peer_credentials(socket.as_raw_fd());
    let own = process::euid();
    // In a namespace that does not know this user it does not know the others, either.
    own != process::OVERFLOW_UID && peer.is_ok_and(|peer| peer.uid == own)
}
