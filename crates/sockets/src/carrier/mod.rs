//! What a switch needs of the kernel connection under a ring, for each kind of connection.
//!
//! Moving bytes is not part of it: recv, send and poll are the same calls on every kind of socket. Everything here is
//! cold: it is asked when a path changes, while a carrier drains, and at the ends of a connection.

mod tcp;
mod unix;

use crate::fault;
use crate::table::{Sock, flag};
use bypath_shm::reason::Reason;
use bypath_sys::sockdiag::Found;
use bypath_sys::{Errno, Result, sock};

/// What a carrier says about its outgoing stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Stream bytes that this end gave to the carrier so far.
    pub given: u64,
    /// Whether and how the stream goes on.
    pub course: Course,
}

/// How far the life of a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// Both directions are open.
    Open,
    /// The other end has finished its sending side; ours is open.
    PeerFinished,
    /// Not connected yet, or over.
    Over,
}

/// One kind of kernel connection that can underlie a ring.
pub trait Backend: Sync {
    /// Whether options in force on the socket exclude an upgrade.
    ///
    /// # Errors
    /// The reason why.
    fn eligible(&self, fd: i32) -> std::result::Result<(), Reason>;

    /// Writes the names of both ends into the shared record, if this kind has names that an observer can read; false
    /// if the socket is not a connected one.
    fn record_names(&self, s: &Sock) -> bool;

    /// The socket at the other end. `netlink` is a sock_diag socket.
    ///
    /// # Errors
    /// `PeerRemote`: it is not on this host, in this network namespace. `PeerUnproven`: what the kernel knows of both does not agree.
    /// `OtherNamespace`: this is not the socket's one. `NotConnected`, `ForbiddenCall`.
    fn peer(&self, s: &Sock, netlink: i32) -> std::result::Result<Found, Reason>;

    /// Where the outgoing stream stands.
    ///
    /// # Errors
    /// The kernel does not tell.
    fn standing(&self, s: &Sock) -> Result<Standing>;

    /// Whether every stream byte before `position` has arrived here, and exactly `unread` of them wait to be read.
    fn arrived(&self, s: &Sock, position: u64, unread: usize) -> bool;

    /// Bytes that were given to this end of the carrier, and taken from it, by whomever; exact while both directions are
    /// open.
    ///
    /// # Errors
    /// The kernel does not tell.
    fn moved(&self, _s: &Sock) -> Result<(u64, u64)> {
        Err(Errno::OPNOTSUPP)
    }

    /// Stream bytes that have arrived here, read or not; the end of the stream may count one.
    ///
    /// # Errors
    /// The kernel does not tell.
    fn received(&self, s: &Sock) -> Result<u64>;

    /// The next byte is the urgent one (SIOCATMARK): a read ends there, whatever it was to wait for.
    fn is_at_mark(&self, s: &Sock) -> bool {
        sock::is_at_mark(s.carrier())
    }

    /// A look at `want` bytes without taking them ends at the urgent one, before there are so many.
    fn has_mark_within(&self, _s: &Sock, _want: usize) -> bool {
        false
    }

    /// What was read is acknowledged now, where the other end may hold back its next bytes for that: what this end sends
    /// goes through a ring and carries no acknowledgement.
    fn acknowledge(&self, _s: &Sock) {}

    /// Bytes that a flush can surely give to the carrier now.
    fn room(&self, s: &Sock) -> u64 {
        let queued = sock::outq(s.carrier()).unwrap_or(usize::MAX);
        // A carrier that takes nothing more may have half as many bytes as it has room for.
        let memory = sock::send_memory(s.carrier()).unwrap_or(0);
        self.capacity(s.carrier()).saturating_sub(queued.max(memory) as u64)
    }

    /// Bytes that an empty carrier can buffer.
    fn capacity(&self, fd: i32) -> u64 {
        let size = sock::option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF).unwrap_or(0);
        u64::try_from(size).unwrap_or(0)
    }

    /// Before a flush: what it sends must not be held back. True if [`Backend::relax`] must follow it.
    fn urge(&self, s: &Sock) -> bool;

    /// After a flush that was urged.
    fn relax(&self, s: &Sock);

    /// Lets the carrier take `bytes` more than it holds, whatever its buffer, or what may wait there unsent (TCP_NOTSENT_LOWAT), was made by the
    /// program, as far as the system allows. Returns what [`Backend::narrow`] is to be called with, if that went.
    fn widen(&self, s: &Sock, bytes: u64) -> Option<Buffer> {
        if fault::is_narrow() {
            return None;
        }
        let number = |level, name| sock::option(s.carrier(), level, name).ok();
        let unsent = number(libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT).filter(|_| set_unsent(s, -1));
        let size = number(libc::SOL_SOCKET, libc::SO_SNDBUF)?;
        let queued = sock::outq(s.carrier()).unwrap_or(0) as u64;
        let mut before = Buffer { size: Some(size), locks: number(libc::SOL_SOCKET, SO_BUF_LOCK), unsent };
        // The kernel doubles it, for its own bookkeeping.
        let wide = i32::try_from(bytes + queued).unwrap_or(i32::MAX / 2).max(size / 2);
        if set_buffer(s, libc::SO_SNDBUFFORCE, wide) {
            return Some(before);
        }
        // A buffer that has grown by itself may be larger than what may be asked for, and would shrink.
        let most = bypath_sys::unix::most_send_buffer(crate::state::floor()).unwrap_or(0);
        if most <= size || !set_buffer(s, libc::SO_SNDBUF, wide) {
            before.size = None;
        }
        (before.size.is_some() || unsent.is_some()).then_some(before)
    }

    /// Lets a carrier that was widened take one piece more although the host has no memory left for TCP (`tcp_mem`), nor its control group.
    /// The kernel refuses what would not fill the buffer then, and gives what goes past its end (`__sk_mem_raise_allocated` in
    /// net/core/sock.c): so that is just behind what is queued. False if it cannot be there.
    fn press(&self, s: &Sock, before: &mut Buffer) -> bool {
        let size = sock::option(s.carrier(), libc::SOL_SOCKET, libc::SO_SNDBUF);
        let queued = sock::send_memory(s.carrier()).map(i32::try_from);
        let (Ok(size), Ok(Ok(queued @ 1..))) = (size, queued) else { return false };
        before.size.get_or_insert(size);
        // The kernel doubles it.
        set_buffer(s, libc::SO_SNDBUFFORCE, queued / 2 + 1) || set_buffer(s, libc::SO_SNDBUF, queued / 2 + 1)
    }

    /// The buffer is again as the program made it; what is in it stays.
    fn narrow(&self, s: &Sock, before: Buffer) {
        if let Some(unsent) = before.unsent {
            set_unsent(s, unsent);
        }
        let Some(size) = before.size else { return };
        let _ = set_buffer(s, libc::SO_SNDBUFFORCE, size / 2) || set_buffer(s, libc::SO_SNDBUF, size / 2);
        if let Some(locks) = before.locks {
            // It goes on growing by itself if it did.
            let _ = sock::set_option(s.carrier(), libc::SOL_SOCKET, SO_BUF_LOCK, &locks.to_ne_bytes());
        }
    }

    /// Whether the program's bytes that found the connection dead, as a send in a flush told by `error` (`None` = poll
    /// told), have to be reported to the program, and as which errno.
    fn lost(&self, s: &Sock, error: Option<i32>) -> Option<i32>;

    /// Whether a send reports (and takes) an error that the connection received, before the broken pipe.
    fn send_reports_errors(&self) -> bool;

    /// Whether a shut down connection goes on as TCP does: the other end's bytes are still taken after this end's
    /// receiving side, and a writer that waits for room learns of the sending side's from poll.
    fn shutdown_is_gentle(&self) -> bool;

    /// Whether it can be seen, after the other end's FIN, that this end is gone: by the carrier, or by [`Backend::is_left`].
    fn tells_after_fin(&self, s: &Sock) -> bool;

    /// Whether nobody has the other end any more, which has sent its FIN, as far as is known. Under [`state::LIFE`].
    fn is_left(&self, s: &Sock) -> bool;

    /// Ends a connection that is beyond use, as a reset does where the kind knows one.
    fn reset(&self, s: &Sock);

    /// Whoever reads from it is told an error from now on, and not its end. False if the kind knows no such thing.
    fn dissolve(&self, s: &Sock) -> bool;

    /// Whether the other end has ended its stream, where this one has shut that down: what is there to read does not tell.
    fn has_finished(&self, s: &Sock) -> bool;

    /// Bytes that the kernel would discard if the connection were reset now.
    fn discardable(&self, s: &Sock) -> usize;

    /// Before the last close with unread ring bytes: the kernel ends the connection as it does when its own queue
    /// holds unread bytes.
    fn close_unread(&self, s: &Sock);
}

fn set_unsent(s: &Sock, octets: i32) -> bool {
    sock::set_option(s.carrier(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &octets.to_ne_bytes()).is_ok()
}

fn set_buffer(s: &Sock, name: i32, size: i32) -> bool {
    sock::set_option(s.carrier(), libc::SOL_SOCKET, name, &size.to_ne_bytes()).is_ok()
}

/// linux/socket.h: which buffers the program has given a size (bit 0: sending), and do not grow by themselves.
const SO_BUF_LOCK: i32 = 72;

/// A send buffer before [`Backend::widen`].
#[derive(Debug)]
pub struct Buffer {
    /// SO_SNDBUF, if that is another one now.
    size: Option<i32>,
    locks: Option<i32>,
    /// TCP_NOTSENT_LOWAT, where there is such a thing; 0: what the system has.
    unsent: Option<i32>,
}

/// Why the kernel has not told of the other end.
fn untold(e: Errno) -> Reason {
    if e == Errno::NOTCONN { Reason::NotConnected } else { Reason::ForbiddenCall }
}

/// The kind of carrier under a followed socket.
pub fn of(s: &Sock) -> &'static dyn Backend {
    if s.has(flag::LOCAL) { &unix::Unix } else { &tcp::Tcp }
}

/// Whether the kernel counts the bytes of this carrier, so that those of un-hooked calls are known too.
#[inline]
pub fn is_counted(s: &Sock) -> bool {
    !s.has(flag::LOCAL)
}

/// The kind of a followed socket.
pub fn kind(s: &Sock) -> Kind {
    if s.has(flag::LOCAL) { Kind::Local } else { Kind::Tcp }
}

/// The kinds of socket that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP over IPv4 or IPv6.
    Tcp,
    /// An AF_UNIX stream.
    Local,
}

/// What a call of `socket()` with these arguments made, if it is followed.
pub fn made(domain: i32, kind: i32, protocol: i32) -> Option<Kind> {
    if kind & 0xf != libc::SOCK_STREAM {
        return None;
    }
    match domain {
        libc::AF_INET | libc::AF_INET6 => {
            (protocol == 0 || protocol == libc::IPPROTO_TCP).then_some(Kind::Tcp)
        }
        libc::AF_UNIX => fault::follows_unix().then_some(Kind::Local),
        _ => None,
    }
}

/// What an accepted socket is, if it is followed.
pub fn accepted(fd: i32) -> Option<Kind> {
    let is = |name, value| sock::option(fd, libc::SOL_SOCKET, name) == Ok(value);
    if is(libc::SO_PROTOCOL, libc::IPPROTO_TCP) {
        return Some(Kind::Tcp);
    }
    let local =
        fault::follows_unix() && is(libc::SO_DOMAIN, libc::AF_UNIX) && is(libc::SO_TYPE, libc::SOCK_STREAM);
    local.then_some(Kind::Local)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn only_tcp_is_followed_unless_a_test_asks_for_more() {
        use libc::{AF_INET, AF_INET6, AF_UNIX, IPPROTO_TCP, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_STREAM};
        assert_eq!(made(AF_INET, SOCK_STREAM, 0), Some(Kind::Tcp));
        assert_eq!(made(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_TCP), Some(Kind::Tcp));
        assert_eq!(made(AF_INET, SOCK_STREAM, libc::IPPROTO_SCTP), None);
        assert_eq!(made(AF_INET, SOCK_DGRAM, 0), None);
        assert_eq!(made(AF_UNIX, SOCK_STREAM, 0), None);

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(accepted(listener.accept().unwrap().0.as_raw_fd()), Some(Kind::Tcp));

        let path = std::env::temp_dir().join(format!("bypath-carrier-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let _client = UnixStream::connect(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(accepted(listener.accept().unwrap().0.as_raw_fd()), None);
    }
}
