//! Channels of bytes, or of datagrams, between two processes that were written for them: a ring in shared memory for each direction,
//! and no socket on the way.
//!
//! | file | what it has |
//! |---|---|
//! | `receiver.rs`, `sender.rs` | the two halves: octets that are looked at or written where they lie, or copied |
//! | `datagram/` | the same for datagrams |
//! | `half.rs` | what both halves do: spin a little, then sleep; notice that the other end is gone |
//! | `remote.rs` | the end that is for the other process: its three descriptors, sent or inherited |
//! | `name.rs`, `place.rs` | channels that are found by a name |
//!
//! What it deliberately does not do: cross machines, or join users.
//!
//! ```
//! use bypath_channel::Channel;
//! use std::io::{Read, Write};
//!
//! let (mut here, remote) = Channel::pair(Channel::RING)?;
//! // The other process gets it by `remote.send(&socket)`, or inherits `remote.into_fds()`; here, a thread has it.
//! let there = std::thread::spawn(move || -> std::io::Result<()> {
//!     let mut there = remote.open()?;
//!     let mut word = [0; 5];
//!     there.read_exact(&mut word)?;
//!     there.write_all(&word)
//! });
//! here.write_all(b"hello")?;
//! let mut all = String::new();
//! here.read_to_string(&mut all)?;
//! assert_eq!(all, "hello");
//! there.join().unwrap()?;
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

mod datagram;
mod half;
mod name;
mod place;
mod receiver;
mod remote;
mod sender;
#[cfg(test)]
mod wraps;

pub use datagram::{Datagram, DatagramReceiver, DatagramRoom, DatagramSender, Datagrams};
pub use name::Listener;
pub use receiver::{Octets, Receiver};
pub use remote::Remote;
pub use sender::{Room, Sender};

use bypath_sys::Errno;
use std::io::{self, Read, Write};
use std::time::Duration;

/// Both directions. The halves are independent of each other: [`split`](Channel::split) gives them to two threads.
#[derive(Debug)]
pub struct Channel {
    /// What goes to the other process.
    pub sender: Sender,
    /// What comes from there.
    pub receiver: Receiver,
}

impl Channel {
    /// Octets of each ring where nothing else is wished.
    pub const RING: u32 = 256 * 1024;

    /// The two halves.
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }

    /// How long both halves wait at most; `None`: for ever, which is how they begin.
    pub fn set_timeout(&mut self, limit: Option<Duration>) {
        self.sender.set_timeout(limit);
        self.receiver.set_timeout(limit);
    }

    /// How long both halves look before they sleep: [`Receiver::set_spin`].
    pub fn set_spin(&mut self, spin: Duration) {
        self.sender.set_spin(spin);
        self.receiver.set_spin(spin);
    }
}

impl From<remote::Halves> for Channel {
    fn from((sender, receiver): remote::Halves) -> Channel {
        Channel { sender, receiver }
    }
}

impl Read for Channel {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.receiver.read(buf)
    }
}

impl Write for Channel {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.sender.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An error with its errno.
fn failed(e: Errno) -> io::Error {
    io::Error::from_raw_os_error(e.raw_os_error())
}

/// The other end wrote what no correct one writes: EPROTO.
#[cold]
fn lies() -> io::Error {
    failed(Errno::PROTO)
}
