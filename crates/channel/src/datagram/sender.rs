//! The half that writes datagrams.

use super::{Ring, longest};
use crate::half::Half;
use crate::{Sender, failed};
use bypath_shm::dgram::{Octets, Record, WORD, span};
use bypath_sys::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU8;
use std::time::Duration;

/// What goes to the other process, datagram by datagram. Dropping it tells the end there.
#[derive(Debug)]
pub struct DatagramSender(Sender);

impl DatagramSender {
    pub(super) const fn of(records: Sender) -> DatagramSender {
        DatagramSender(records)
    }

    /// As [`Sender::set_timeout`].
    pub fn set_timeout(&mut self, limit: Option<Duration>) {
        self.0.set_timeout(limit);
    }

    /// As [`Receiver::set_spin`](crate::Receiver::set_spin).
    pub fn set_spin(&mut self, spin: Duration) {
        self.0.set_spin(spin);
    }

    /// Octets of a datagram at most: half of the ring but 8, and 65,527.
    pub fn longest(&self) -> usize {
        longest(self.0.0.slot.size())
    }

    /// Octets of the ring that a datagram takes.
    #[inline]
    fn takes(&self, octets: usize) -> io::Result<usize> {
        if octets <= self.longest() { Ok(span(0, octets) as usize) } else { Err(failed(Errno::MSGSIZE)) }
    }

    /// Sends a datagram; it may be empty. It waits for room, and loses nothing.
    ///
    /// # Errors
    /// EMSGSIZE: it is longer than [`longest`](DatagramSender::longest); EPIPE: the other end reads no more, which is seen at the latest
    /// when the ring is full; ETIMEDOUT; EINTR; EPROTO: the other end wrote to the memory what no correct one does.
    #[inline]
    pub fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        let takes = self.takes(datagram.len())?;
        self.0.at_least(takes)?;
        self.put(datagram);
        Ok(())
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// EAGAIN, where [`send`](DatagramSender::send) would wait; EMSGSIZE, EPIPE, EPROTO.
    #[inline]
    pub fn try_send(&mut self, datagram: &[u8]) -> io::Result<()> {
        let takes = self.takes(datagram.len())?;
        self.0.at_least_now(takes)?;
        self.put(datagram);
        Ok(())
    }

    #[inline]
    fn put(&mut self, datagram: &[u8]) {
        let half = &mut self.0.0;
        // In their order: the reader asks for the first line all the time.
        half.put_word(datagram.len());
        half.slot.copy_in(half.which, half.own + WORD, datagram);
        half.commit(span(0, datagram.len()) as usize);
    }

    /// Room for a datagram of at most `most` octets, where it will lie. It waits for it.
    ///
    /// # Errors
    /// Those of [`send`](DatagramSender::send).
    #[inline]
    pub fn reserve(&mut self, most: usize) -> io::Result<DatagramRoom<'_>> {
        let takes = self.takes(most)?;
        self.0.at_least(takes)?;
        Ok(DatagramRoom { half: &mut self.0.0, most })
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// Those of [`try_send`](DatagramSender::try_send).
    #[inline]
    pub fn try_reserve(&mut self, most: usize) -> io::Result<DatagramRoom<'_>> {
        let takes = self.takes(most)?;
        self.0.at_least_now(takes)?;
        Ok(DatagramRoom { half: &mut self.0.0, most })
    }

    /// To be called before the descriptor is polled (for reading, as it is a bell): `true`: it will be readable when there is room
    /// for a datagram of `octets`, or earlier, or the other end is gone. `false`: that is so already, and it may not be.
    ///
    /// # Errors
    /// EMSGSIZE, EPROTO.
    pub fn arm(&mut self, octets: usize) -> io::Result<bool> {
        let takes = self.takes(octets)?;
        self.0.0.arm(takes, Sender::look)
    }
}

impl Half {
    /// The word before a datagram, which nobody sees until that is committed.
    #[inline]
    fn put_word(&self, octets: usize) {
        Ring(self).put(self.own, &Record::plain(octets).encode());
    }
}

/// Its descriptor, to be polled for reading after [`DatagramSender::arm`]. Nothing else may be done with it.
impl AsFd for DatagramSender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Room for a datagram in shared memory, to be filled and committed. Nothing is sent if it is dropped.
#[derive(Debug)]
pub struct DatagramRoom<'a> {
    half: &'a mut Half,
    most: usize,
}

impl DatagramRoom<'_> {
    /// For how many octets.
    pub const fn len(&self) -> usize {
        self.most
    }

    /// Room for a datagram without octets.
    pub const fn is_empty(&self) -> bool {
        self.most == 0
    }

    /// Where they will lie: in one run, or in two where the ring begins anew.
    #[inline]
    pub fn runs(&self) -> [&[AtomicU8]; 2] {
        self.half.slot.octets(self.half.which, self.half.own + WORD, self.most)
    }

    /// Copies octets to the places from `at` on; how many there was room for.
    pub fn put(&mut self, at: usize, octets: &[u8]) -> usize {
        let n = octets.len().min(self.most.saturating_sub(at));
        self.half.slot.copy_in(self.half.which, self.half.own + WORD + at as u64, &octets[..n]);
        n
    }

    /// Sends a datagram of the first `n` octets.
    ///
    /// # Panics
    /// If there is room for fewer.
    #[inline]
    pub fn commit(self, n: usize) {
        assert!(n <= self.most, "{n} octets are committed in room for {}", self.most);
        self.half.put_word(n);
        self.half.commit(span(0, n) as usize);
    }
}
