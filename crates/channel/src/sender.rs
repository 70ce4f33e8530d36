//! The half that writes.

use crate::half::Half;
use crate::{failed, lies};
use bypath_sys::Errno;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU8;
use std::time::Duration;

/// What goes to the other process. Dropping it ends the stream there.
#[derive(Debug)]
pub struct Sender(pub(crate) Half);

impl Sender {
    /// How long a call waits at most; `None`: for ever, which is how it begins.
    pub fn set_timeout(&mut self, limit: Option<Duration>) {
        self.0.set_timeout(limit);
    }

    /// As [`Receiver::set_spin`](crate::Receiver::set_spin).
    pub fn set_spin(&mut self, spin: Duration) {
        self.0.set_spin(spin);
    }

    /// Octets of the ring, of each direction.
    pub fn capacity(&self) -> usize {
        self.0.slot.size() as usize
    }

    #[inline]
    fn cached(&self) -> usize {
        (self.0.slot.size() - (self.0.own - self.0.other)) as usize
    }

    #[inline]
    pub(crate) fn look(half: &mut Half) -> io::Result<usize> {
        let size = half.slot.size();
        let room = half.direction().space(half.own, size).map_err(|_| lies())?;
        // Nobody has read what was never written, or takes back that it has read.
        let head = half.own.checked_sub(size - room).filter(|head| *head >= half.other).ok_or_else(lies)?;
        half.other = head;
        Ok(room as usize)
    }

    /// Room for at least so many octets.
    #[inline]
    pub(crate) fn at_least(&mut self, least: usize) -> io::Result<usize> {
        let cached = self.cached();
        let room = match cached >= least && !self.0.gone {
            true => return Ok(cached),
            false => Self::look(&mut self.0)?,
        };
        let room = if room >= least { room } else { self.0.wait(least, Self::look)? };
        if self.0.gone { Err(failed(Errno::PIPE)) } else { Ok(room) }
    }

    pub(crate) fn at_least_now(&mut self, least: usize) -> io::Result<usize> {
        let cached = self.cached();
        if cached >= least && !self.0.gone {
            return Ok(cached);
        }
        let room = Self::look(&mut self.0)?;
        if room < least {
            self.0.in_vain();
        }
        match () {
            () if self.0.gone => Err(failed(Errno::PIPE)),
            () if room < least => Err(failed(Errno::AGAIN)),
            () => {
                self.0.idle = 0;
                Ok(room)
            }
        }
    }

    fn least(&self, least: usize) -> io::Result<usize> {
        if (1..=self.capacity() / 2).contains(&least) { Ok(least) } else { Err(failed(Errno::INVAL)) }
    }

    /// Room for at least `least` octets (1 to half of the ring), where they will lie. It waits for it.
    ///
    /// # Errors
    /// EPIPE: the other end reads no more, which is seen at the latest when the ring is full; ETIMEDOUT; EINTR; EINVAL for
    /// `least`; EPROTO: the other end wrote to the memory what no correct one does.
    #[inline]
    pub fn reserve(&mut self, least: usize) -> io::Result<Room<'_>> {
        let least = self.least(least)?;
        self.at_least(least).map(|len| Room { half: &mut self.0, len })
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// EAGAIN, where [`reserve`](Sender::reserve) would wait; EPIPE, EINVAL, EPROTO.
    #[inline]
    pub fn try_reserve(&mut self, least: usize) -> io::Result<Room<'_>> {
        let least = self.least(least)?;
        self.at_least_now(least).map(|len| Room { half: &mut self.0, len })
    }

    /// Writes as much as there is room for, without waiting.
    ///
    /// # Errors
    /// Those of [`try_reserve`](Sender::try_reserve).
    #[inline]
    pub fn try_write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let room = if buf.is_empty() { 0 } else { self.at_least_now(1)? };
        Ok(self.put(room, buf))
    }

    #[inline]
    fn put(&mut self, room: usize, buf: &[u8]) -> usize {
        let n = buf.len().min(room);
        self.0.slot.copy_in(self.0.which, self.0.own, &buf[..n]);
        self.0.commit(n);
        n
    }

    /// To be called before the descriptor is polled (for reading, as it is a bell): `true`: it will be readable when there is room
    /// for `least` octets, or earlier, or the other end is gone. `false`: that is so already, and it may not be. The reader tells of room
    /// as it comes to a multiple of a quarter of the ring, or waits for more octets than there are.
    ///
    /// # Errors
    /// EINVAL, EPROTO.
    pub fn arm(&mut self, least: usize) -> io::Result<bool> {
        let least = self.least(least)?;
        self.0.arm(least, Self::look)
    }
}

impl Half {
    /// Shows `n` octets to the reader.
    #[inline]
    pub fn commit(&mut self, n: usize) {
        if n == 0 {
            return;
        }
        let before = self.own;
        self.own += n as u64;
        self.tell_processor();
        self.direction().publish(self.own);
        self.wake();
        if self.quarter_passed(before) {
            self.ask();
        }
    }
}

impl Write for Sender {
    #[inline]
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let room = if buf.is_empty() { 0 } else { self.at_least(1)? };
        Ok(self.put(room, buf))
    }

    /// Nothing: what was written can be read.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Its descriptor, to be polled for reading after [`Sender::arm`]. Nothing else may be done with it.
impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }
}

/// Room in shared memory, to be filled and committed. Nothing is sent if it is dropped.
#[derive(Debug)]
pub struct Room<'a> {
    half: &'a mut Half,
    len: usize,
}

impl Room<'_> {
    /// For how many octets.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Never.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where they will lie: in one run, or in two where the ring begins anew.
    #[inline]
    pub fn runs(&self) -> [&[AtomicU8]; 2] {
        self.half.slot.octets(self.half.which, self.half.own, self.len)
    }

    /// Copies octets to the places from `at` on; how many there was room for.
    pub fn put(&mut self, at: usize, octets: &[u8]) -> usize {
        let n = octets.len().min(self.len.saturating_sub(at));
        self.half.slot.copy_in(self.half.which, self.half.own + at as u64, &octets[..n]);
        n
    }

    /// Sends the first `n` octets.
    ///
    /// # Panics
    /// If there is room for fewer.
    #[inline]
    pub fn commit(self, n: usize) {
        assert!(n <= self.len, "{n} octets are committed in room for {}", self.len);
        self.half.commit(n);
    }
}

#[cfg(test)]
mod tests {
    use crate::Channel;
    use bypath_shm::direction::{Head, Path, position};
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn who_has_read_what_was_never_written_lies() {
        let (mut here, _there) = Channel::pair(4096).unwrap();
        let before_the_beginning = Head::new(position::back(0, 8), Path::Ring);
        here.sender.0.direction().h.head.store(before_the_beginning.raw(), Relaxed);
        let told = super::Sender::look(&mut here.sender.0).map_err(|e| e.raw_os_error());
        assert_eq!(told, Err(Some(libc::EPROTO)));
    }
}
