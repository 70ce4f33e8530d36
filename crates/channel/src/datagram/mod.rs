//! Channels of datagrams: the same rings, with records in them ([`bypath_shm::dgram`]) in place of octets without bounds.
//!
//! There is one reader, so it moves the head by a store, and one writer: of the module of the rings only the records and what is
//! checked of them are used here. A writer waits for room where a socket of datagrams would lose some.

mod receiver;
mod sender;

pub use receiver::{Datagram, DatagramReceiver};
pub use sender::{DatagramRoom, DatagramSender};

use crate::half::Half;
use crate::remote::Halves;
use bypath_shm::dgram::{LONGEST, Octets, WORD};
use std::time::Duration;

/// Both directions of a channel of datagrams. The halves are independent of each other: [`split`](Datagrams::split) gives them to
/// two threads.
///
/// ```
/// use bypath_channel::Datagrams;
///
/// let (mut here, remote) = Datagrams::pair(Datagrams::RING)?;
/// let mut there = remote.open_datagrams()?;
/// here.sender.send(b"one")?;
/// here.sender.send(b"")?;
/// drop(here);
/// let mut room = [0; 100];
/// assert_eq!(there.receiver.receive(&mut room)?, Some(3));
/// assert_eq!(there.receiver.receive(&mut room)?, Some(0));
/// assert_eq!(there.receiver.receive(&mut room)?, None);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Datagrams {
    /// What goes to the other process.
    pub sender: DatagramSender,
    /// What comes from there.
    pub receiver: DatagramReceiver,
}

impl Datagrams {
    /// Octets of each ring where nothing else is wished.
    pub const RING: u32 = crate::Channel::RING;

    /// The two halves.
    pub fn split(self) -> (DatagramSender, DatagramReceiver) {
        (self.sender, self.receiver)
    }

    /// How long both halves wait at most; `None`: for ever, which is how they begin.
    pub fn set_timeout(&mut self, limit: Option<Duration>) {
        self.sender.set_timeout(limit);
        self.receiver.set_timeout(limit);
    }

    /// How long both halves look before they sleep: [`Receiver::set_spin`](crate::Receiver::set_spin).
    pub fn set_spin(&mut self, spin: Duration) {
        self.sender.set_spin(spin);
        self.receiver.set_spin(spin);
    }
}

impl From<Halves> for Datagrams {
    fn from((sender, receiver): Halves) -> Datagrams {
        Datagrams { sender: DatagramSender::of(sender), receiver: DatagramReceiver::of(receiver) }
    }
}

/// Octets of a datagram at most, in a ring of so many: a record takes half of it. A writer then sleeps only where more than half
/// is used, and is woken in time (docs/adr/0022).
const fn longest(ring: u64) -> usize {
    let half = (ring / 2 - WORD) as usize;
    if half < LONGEST { half } else { LONGEST }
}

/// The ring of a half, as records are looked for in it.
struct Ring<'a>(&'a Half);

impl Octets for Ring<'_> {
    #[inline]
    fn size(&self) -> u64 {
        self.0.slot.size()
    }

    #[inline]
    fn put(&self, position: u64, from: &[u8]) {
        self.0.slot.copy_in(self.0.which, position, from);
    }

    #[inline]
    fn get(&self, position: u64, to: &mut [u8]) {
        self.0.slot.copy_out(self.0.which, position, to);
    }
}
