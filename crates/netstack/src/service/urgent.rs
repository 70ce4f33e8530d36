//! Urgent octets (MSG_OOB): AF_UNIX has them, too, so the pair's are those of the connection. The program has the kernel's own answers:
//! POLLPRI, SIGURG, SIOCATMARK, SO_OOBINLINE, and one octet apart from the others.
//!
//! In the stack they stay in line, so that none is lost while the pair is full. An octet that is urgent goes to the program when its turn comes,
//! so one that is announced beyond what the pair holds is not told of before.

use super::slab::Key;
use super::socket::{Hub, Phase, Socket};
use bypath_stack::Tcp;
use bypath_stack::linux::errno::Result;
use bypath_stack::tcp::error::WriteError;
use bypath_sys::{pair, sock};
use std::os::fd::{AsFd, AsRawFd};

/// What the stack said of an octet, and how many came from the pair.
pub type Taken = (std::result::Result<usize, WriteError>, bypath_sys::Result<usize>);

impl Hub {
    /// The program is about to write an urgent octet: this is known before it does.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn urges(&mut self, key: Key) -> Result<()> {
        let socket = self
            .sockets
            .get_mut(key)
            .filter(|socket| matches!(socket.phase, Phase::Open | Phase::Connecting(_)));
        socket.ok_or(libc::ENOTCONN)?.urges();
        Ok(())
    }
}

impl Socket {
    /// Octets of the program may be urgent.
    pub const fn urges(&mut self) {
        self.is.urgent = true;
    }

    /// Takes the next octet from the pair to the stack if it is an urgent one: what the stack says, and how many came. `None`: it is none.
    pub fn take_urgent(&self, tcp: &mut Tcp<'_>) -> Option<Taken> {
        let end = self.end.as_fd();
        // First: where there is nothing, an urgent one could come before it is read as any other.
        let octet = match pair::look(end) {
            Ok(Some(octet)) => octet,
            Ok(None) => return Some((Ok(0), Ok(0))),
            Err(errno) => return Some((Ok(0), Err(errno))),
        };
        if !sock::is_at_mark(self.end.as_raw_fd()) {
            return None;
        }
        Some(match tcp.write_urgent(&[octet], self.followed > 1) {
            Ok(1..) => (Ok(1), pair::receive(end, &mut [0])),
            Ok(0) => (Err(WriteError::Full), Ok(0)),
            Err(error) => (Err(error), Ok(0)),
        })
    }
}

/// Whether the next octet for the program is urgent.
pub fn is_next(tcp: &mut Tcp<'_>) -> bool {
    tcp.mark() == Some(0) && tcp.unread() > 0
}
