//! What a switch needs of the kernel connection under a ring, for each kind of connection.
//!
//! Moving bytes is not part of it: recv, send and poll are the same calls on every kind of socket. Everything here is
//! cold: it is asked when a path changes, while a carrier drains, and at the ends of a connection.

mod tcp;

use crate::table::Sock;
use bypath_shm::reason::Reason;
use bypath_sys::sockdiag::Found;
use bypath_sys::{Result, sock};

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

    /// The socket at the other end; `None` if it is not on this host, in this network namespace. `netlink` is a
    /// sock_diag socket.
    ///
    /// # Errors
    /// Errors of the query; ENOTCONN.
    fn peer(&self, s: &Sock, netlink: i32) -> Result<Option<Found>>;

    /// Where the outgoing stream stands.
    ///
    /// # Errors
    /// The kernel does not tell.
    fn standing(&self, s: &Sock) -> Result<Standing>;

    /// Whether every stream byte before `position` has arrived here, and exactly `unread` of them wait to be read.
    fn arrived(&self, s: &Sock, position: u64, unread: usize) -> bool;

    /// Bytes that a flush can surely give to the carrier now.
    fn room(&self, s: &Sock) -> u64 {
        let queued = sock::outq(s.carrier()).unwrap_or(usize::MAX) as u64;
        self.capacity(s.carrier()).saturating_sub(queued)
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

    /// Whether the program's bytes that found the connection dead, as a send in a flush told by `error` (`None` = poll
    /// told), have to be reported to the program, and as which errno.
    fn lost(&self, s: &Sock, error: Option<i32>) -> Option<i32>;

    /// Whether a send reports (and takes) an error that the connection received, before the broken pipe.
    fn send_reports_errors(&self) -> bool;

    /// Ends a connection that is beyond use, as a reset does where the kind knows one.
    fn reset(&self, s: &Sock);

    /// Bytes that the kernel would discard if the connection were reset now.
    fn discardable(&self, s: &Sock) -> usize;

    /// Before the last close with unread ring bytes: the kernel ends the connection as it does when its own queue
    /// holds unread bytes.
    fn close_unread(&self, s: &Sock);
}

/// The kind of carrier under a followed socket.
pub fn of(_s: &Sock) -> &'static dyn Backend {
    &tcp::Tcp
}
