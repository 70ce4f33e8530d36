//! The half that reads.

use crate::half::Half;
use crate::{failed, lies};
use bypath_shm::atomic::Ordering::*;
use bypath_sys::Errno;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU8;
use std::time::Duration;

/// What comes from the other process. Its end, in whatever way, is the end of the stream: after all octets that it committed.
#[derive(Debug)]
pub struct Receiver(pub(crate) Half);

impl Receiver {
    /// How long a call waits at most; `None`: for ever, which is how it begins.
    pub fn set_timeout(&mut self, limit: Option<Duration>) {
        self.0.set_timeout(limit);
    }

    /// How long a call that waits looks before it sleeps: 50 us to begin with, nothing where there is one processor.
    pub fn set_spin(&mut self, spin: Duration) {
        self.0.set_spin(spin);
    }

    /// Octets of the ring, of each direction.
    pub fn capacity(&self) -> usize {
        self.0.slot.size() as usize
    }

    #[inline]
    fn cached(&self) -> usize {
        (self.0.other - self.0.own) as usize
    }

    #[inline]
    pub(crate) fn look(half: &mut Half) -> io::Result<usize> {
        // Acquire pairs with the Release of `publish`: the octets are there.
        let tail = half.direction().t.tail.load(Acquire);
        let there = tail.wrapping_sub(half.own);
        // Nothing that was committed is taken back: what was shown stays, and `other` is never behind it.
        if there > half.slot.size() || there < half.other.wrapping_sub(half.own) {
            return Err(lies());
        }
        half.other = tail;
        if there == 0 {
            // The lines of what comes next then come together with the tail, and not after it.
            half.slot.expect(half.which, tail);
        }
        Ok(there as usize)
    }

    /// At least so many octets, or the last ones before the end.
    #[inline]
    pub(crate) fn at_least(&mut self, least: usize) -> io::Result<usize> {
        let cached = self.cached();
        if cached >= least {
            return Ok(cached);
        }
        match Self::look(&mut self.0)? {
            n if n >= least => Ok(n),
            _ => self.0.wait(least, Self::look),
        }
    }

    pub(crate) fn at_least_now(&mut self, least: usize) -> io::Result<usize> {
        let cached = self.cached();
        if cached >= least {
            return Ok(cached);
        }
        let there = Self::look(&mut self.0)?;
        if there >= least {
            self.0.idle = 0;
            return Ok(there);
        }
        self.0.look_after_writer(there);
        self.0.in_vain();
        // What was written before the other end went is there now.
        if self.0.gone { Self::look(&mut self.0) } else { Err(failed(Errno::AGAIN)) }
    }

    fn least(&self, least: usize) -> io::Result<usize> {
        if (1..=self.capacity() / 2).contains(&least) { Ok(least) } else { Err(failed(Errno::INVAL)) }
    }

    /// What has come, where it lies: at least `least` octets (1 to half of the ring), and fewer only before the end of the stream;
    /// none at the end. It waits for them.
    ///
    /// # Errors
    /// ETIMEDOUT; EINTR; EINVAL for `least`; EPROTO: the other end wrote to the memory what no correct one does.
    #[inline]
    pub fn peek(&mut self, least: usize) -> io::Result<Octets<'_>> {
        let least = self.least(least)?;
        self.at_least(least).map(|len| Octets { half: &mut self.0, len })
    }

    /// The same without waiting. The end of a process that was killed is seen after 1024 such calls, or by
    /// [`arm`](Receiver::arm).
    ///
    /// # Errors
    /// EAGAIN, where [`peek`](Receiver::peek) would wait; EINVAL, EPROTO.
    #[inline]
    pub fn try_peek(&mut self, least: usize) -> io::Result<Octets<'_>> {
        let least = self.least(least)?;
        self.at_least_now(least).map(|len| Octets { half: &mut self.0, len })
    }

    /// Reads what there is, without waiting; 0: the end of the stream.
    ///
    /// # Errors
    /// Those of [`try_peek`](Receiver::try_peek).
    #[inline]
    pub fn try_read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let there = if buf.is_empty() { 0 } else { self.at_least_now(1)? };
        Ok(self.take(there, buf))
    }

    #[inline]
    fn take(&mut self, there: usize, buf: &mut [u8]) -> usize {
        let n = buf.len().min(there);
        self.0.slot.copy_out(self.0.which, self.0.own, &mut buf[..n]);
        self.0.release(n);
        n
    }

    /// To be called before the descriptor is polled: `true`: it will be readable as soon as there are `least` octets or the stream
    /// has ended, or earlier. `false`: that is so already, and it may not be.
    ///
    /// # Errors
    /// EINVAL, EPROTO.
    pub fn arm(&mut self, least: usize) -> io::Result<bool> {
        let least = self.least(least)?;
        self.0.arm(least, Self::look)
    }
}

impl Half {
    /// Gives `n` octets' room back to the writer.
    #[inline]
    pub fn release(&mut self, n: usize) {
        let before = self.own;
        self.own += n as u64;
        self.tell_processor();
        // Release pairs with the Acquire of `space`: they have been read.
        self.direction().h.head.store(self.own, Release);
        // Who waits for room found the ring more than half full: it is looked after before the ring is empty, or, if this half
        // waits for more before that, by `look_after_writer`.
        if self.quarter_passed(before) {
            self.wake();
        }
    }
}

impl Read for Receiver {
    #[inline]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let there = if buf.is_empty() { 0 } else { self.at_least(1)? };
        Ok(self.take(there, buf))
    }
}

/// Its descriptor, to be polled for reading after [`Receiver::arm`]. Nothing else may be done with it.
impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }
}

/// Octets that have come, in shared memory. They stay until they are released.
///
/// A hostile other end can change them while they are looked at, so they are atomic; copy what is looked at twice.
#[derive(Debug)]
pub struct Octets<'a> {
    half: &'a mut Half,
    len: usize,
}

impl Octets<'_> {
    /// How many.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// None: the end of the stream.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where they lie: in one run, or in two where the ring begins anew.
    #[inline]
    pub fn runs(&self) -> [&[AtomicU8]; 2] {
        self.half.slot.octets(self.half.which, self.half.own, self.len)
    }

    /// Copies those from `at` on; how many there were.
    pub fn copy_to(&self, at: usize, buf: &mut [u8]) -> usize {
        let n = buf.len().min(self.len.saturating_sub(at));
        self.half.slot.copy_out(self.half.which, self.half.own + at as u64, &mut buf[..n]);
        n
    }

    /// Ends the look at the first `n` of them: their room is the writer's again.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn release(self, n: usize) {
        assert!(n <= self.len, "{n} octets of {} are released", self.len);
        self.half.release(n);
    }
}
