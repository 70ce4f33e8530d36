//! The half that reads datagrams.

use super::{Ring, longest};
use crate::{Receiver, failed, lies};
use bypath_shm::dgram::Place;
use bypath_sys::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU8;
use std::time::Duration;

/// What comes from the other process, datagram by datagram. Its end, in whatever way, is told after all that it committed; none
/// of them is there in part.
#[derive(Debug)]
pub struct DatagramReceiver {
    records: Receiver,
    /// The datagram at the head, once it was looked at: its word is not read again.
    shown: Option<Place>,
}

impl DatagramReceiver {
    pub(super) const fn of(records: Receiver) -> DatagramReceiver {
        DatagramReceiver { records, shown: None }
    }

    /// As [`Receiver::set_timeout`].
    pub fn set_timeout(&mut self, limit: Option<Duration>) {
        self.records.set_timeout(limit);
    }

    /// As [`Receiver::set_spin`].
    pub fn set_spin(&mut self, spin: Duration) {
        self.records.set_spin(spin);
    }

    /// Octets of a datagram at most: half of the ring but 8, and 65,527.
    pub fn longest(&self) -> usize {
        longest(self.records.0.slot.size())
    }

    /// The datagram at the head of so many octets; there is none in none.
    #[inline]
    fn find(&mut self, there: usize) -> io::Result<Option<Datagram<'_>>> {
        if there == 0 {
            return Ok(None);
        }
        let half = &self.records.0;
        let place = Place::find(&Ring(half), half.own, there as u64).map_err(|_| lies())?;
        if place.head_len() > 0 || place.len() > self.longest() {
            return Err(lies());
        }
        self.shown = Some(place);
        Ok(Some(Datagram { receiver: self, place }))
    }

    /// The next datagram, where it lies; `None`: the end. It waits for one.
    ///
    /// # Errors
    /// ETIMEDOUT; EINTR; EPROTO: the other end wrote to the memory what no correct one does.
    #[inline]
    pub fn peek(&mut self) -> io::Result<Option<Datagram<'_>>> {
        if let Some(place) = self.shown {
            return Ok(Some(Datagram { receiver: self, place }));
        }
        let there = self.records.at_least(1)?;
        self.find(there)
    }

    /// The same without waiting. The end of a process that was killed is seen after 1024 such calls, or by
    /// [`arm`](DatagramReceiver::arm).
    ///
    /// # Errors
    /// EAGAIN, where [`peek`](DatagramReceiver::peek) would wait; EPROTO.
    #[inline]
    pub fn try_peek(&mut self) -> io::Result<Option<Datagram<'_>>> {
        if let Some(place) = self.shown {
            return Ok(Some(Datagram { receiver: self, place }));
        }
        let there = self.records.at_least_now(1)?;
        self.find(there)
    }

    /// Takes the next datagram: how many octets it has, which may be none; `None`: the end. It waits for one.
    ///
    /// # Errors
    /// EMSGSIZE: it has more octets than `buf`; it stays, and [`peek`](DatagramReceiver::peek) tells how many. Those of `peek`.
    #[inline]
    pub fn receive(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        self.peek()?.map(|datagram| datagram.take(buf)).transpose()
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// EMSGSIZE; those of [`try_peek`](DatagramReceiver::try_peek).
    #[inline]
    pub fn try_receive(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        self.try_peek()?.map(|datagram| datagram.take(buf)).transpose()
    }

    /// To be called before the descriptor is polled: `true`: it will be readable as soon as there is a datagram or the end, or earlier.
    /// `false`: that is so already, and it may not be.
    ///
    /// # Errors
    /// EPROTO.
    pub fn arm(&mut self) -> io::Result<bool> {
        if self.shown.is_some() {
            return Ok(false);
        }
        self.records.arm(1)
    }
}

/// Its descriptor, to be polled for reading after [`DatagramReceiver::arm`]. Nothing else may be done with it.
impl AsFd for DatagramReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.records.as_fd()
    }
}

/// A datagram that has come, in shared memory. It stays until it is released.
///
/// A hostile other end can change its octets while they are looked at, so they are atomic; copy what is looked at twice. How many
/// there are stays.
#[derive(Debug)]
pub struct Datagram<'a> {
    receiver: &'a mut DatagramReceiver,
    place: Place,
}

impl Datagram<'_> {
    /// How many octets it has.
    pub const fn len(&self) -> usize {
        self.place.len()
    }

    /// It has none.
    pub const fn is_empty(&self) -> bool {
        self.place.is_empty()
    }

    /// Where they lie: in one run, or in two where the ring begins anew.
    #[inline]
    pub fn runs(&self) -> [&[AtomicU8]; 2] {
        let half = &self.receiver.records.0;
        half.slot.octets(half.which, self.place.at(), self.place.len())
    }

    /// Copies those from `at` on; how many there were.
    pub fn copy_to(&self, at: usize, buf: &mut [u8]) -> usize {
        let n = buf.len().min(self.len().saturating_sub(at));
        let half = &self.receiver.records.0;
        half.slot.copy_out(half.which, self.place.at() + at as u64, &mut buf[..n]);
        n
    }

    /// Ends the look at it: its room is the writer's again.
    #[inline]
    pub fn release(self) {
        self.receiver.shown = None;
        self.receiver.records.0.release(self.place.span() as usize);
    }

    #[inline]
    fn take(self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.len();
        if n > buf.len() {
            return Err(failed(Errno::MSGSIZE));
        }
        self.copy_to(0, buf);
        self.release();
        Ok(n)
    }
}
