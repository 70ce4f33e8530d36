//! What the two halves have in common: one direction of the shared slot, and a socket whose other end the other process has.
//!
//! The socket carries no data. An octet on it wakes a sleeper, and its end says that the other process is gone, however it
//! went: the kernel closes what a killed process had. Everything that is read from shared memory may be a lie; what follows from
//! a lie is an error, or one look too many.

use crate::{failed, lies};
use bypath_shm::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};
use bypath_shm::direction::{Direction, wait};
#[cfg(test)]
use bypath_shm::direction::{Head, Path};
use bypath_shm::region::OwnSlot;
use bypath_sys::{Errno, clock, pair, poll, thread};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long is looked before sleeping: longer than another processor takes for an answer, shorter than a sleep costs.
const SPIN: Duration = Duration::from_micros(50);
/// Looks between two readings of the clock, about a microsecond: who reads it does not look.
const CLOCK_EVERY: u32 = 512;
/// Looks that found nothing before the kernel is asked whether the other end is still there.
const ASK_EVERY: u32 = 1024;

/// One half. Positions are counts of octets since the beginning.
#[derive(Debug)]
pub(crate) struct Half {
    pub slot: Arc<OwnSlot>,
    /// Which ring, and whose: a half writes, or reads.
    pub which: usize,
    writes: bool,
    /// Where this end stands.
    pub own: u64,
    /// Where the other end stood when it was last looked at.
    pub other: u64,
    pub bell: OwnedFd,
    /// The other end is gone.
    pub gone: bool,
    /// Looks in vain, of calls that do not wait, since the last one that was not.
    pub idle: u32,
    /// Number of the last sleep: who wakes an earlier one cannot erase it.
    ticket: u32,
    spin: u64,
    pub limit: Option<u64>,
}

/// What a look shows: so many octets, or room for so many.
type Shown = io::Result<usize>;

impl Half {
    pub fn new(slot: Arc<OwnSlot>, which: usize, writes: bool, bell: OwnedFd) -> Half {
        // The processor's number is glibc's to tell.
        thread::init();
        let mut half = Half {
            slot,
            which,
            writes,
            own: 0,
            other: 0,
            bell,
            gone: false,
            idle: 0,
            ticket: 0,
            spin: 0,
            limit: None,
        };
        half.set_spin(SPIN);
        half
    }

    /// As one that has written, or read, so much, and has slept as often as its tickets can tell but for a few times; the ring is empty.
    #[cfg(test)]
    pub fn age(&mut self, position: u64) {
        (self.own, self.other) = (position, position);
        (self.ticket, self.idle) = (u32::MAX - 2, u32::MAX - 2);
        let direction = self.direction();
        direction.t.tail.store(position, Relaxed);
        direction.h.head.store(Head::new(position, Path::Ring).raw(), Release);
    }

    #[inline]
    pub fn direction(&self) -> &Direction {
        &self.slot.control().direction[self.which]
    }

    /// A quarter of the ring: how often the other end is looked after.
    #[inline]
    pub fn quarter_passed(&self, before: u64) -> bool {
        (before ^ self.own) & !(self.slot.size() / 4 - 1) != 0
    }

    pub fn set_spin(&mut self, spin: Duration) {
        self.spin = u64::try_from(spin.as_nanos()).unwrap_or(u64::MAX);
    }

    pub fn set_timeout(&mut self, limit: Option<Duration>) {
        self.limit = limit.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Where this half says that it sleeps.
    fn place(&self) -> &AtomicU64 {
        let direction = self.direction();
        if self.writes { &direction.wa.wait[0] } else { &direction.ra.wait[0] }
    }

    /// Where this end says on which processor it runs, and where the other one does.
    #[inline]
    fn processors(&self) -> [&AtomicU32; 2] {
        let direction = self.direction();
        let both = [&direction.t.cpu, &direction.h.cpu];
        if self.writes { both } else { [both[1], both[0]] }
    }

    /// Says on which processor this end runs; called with the line at hand.
    #[inline]
    pub fn tell_processor(&self) {
        self.processors()[0].store(thread::cpu(), Relaxed);
    }

    /// Whether the other end, when it was last heard of, ran on the processor that this one has: it can do nothing while this
    /// one looks.
    fn is_on_its_processor(&self) -> bool {
        match thread::cpu() {
            // An old glibc, which does not tell.
            u32::MAX => thread::processors() == 1,
            own => own == self.processors()[1].load(Relaxed),
        }
    }

    /// Wakes the other end if it sleeps. Everything that it waits for was published before.
    #[inline]
    pub fn wake(&mut self) {
        // Pairs with the fence in `arm`: we see the sleeper, or it sees what we published.
        fence(SeqCst);
        let direction = self.direction();
        let place = if self.writes { &direction.ra.wait[0] } else { &direction.wa.wait[0] };
        if place.load(Relaxed) != 0 {
            self.ring();
        }
    }

    /// To be called by who is shown less than it waits for. A reader does not go on to the next quarter then, and less than half of the
    /// ring is used: there is room for whatever a writer waits for, and nobody else tells it. A reader that is shown nothing has told
    /// it, as the last quarter was not far.
    #[inline]
    pub fn look_after_writer(&mut self, shown: usize) {
        if !self.writes && shown > 0 {
            self.wake();
        }
    }

    #[cold]
    fn ring(&mut self) {
        let direction = self.direction();
        let places = if self.writes { &direction.ra.wait[..1] } else { &direction.wa.wait[..1] };
        let mut answer = Ok(1);
        // A full socket has rung already.
        wait::wake(places, |_| answer = pair::send(self.bell.as_fd(), b"!"));
        if !matches!(answer, Ok(_) | Err(Errno::AGAIN)) {
            self.gone = true;
        }
    }

    /// Silences the bell, and notices that the other end is gone.
    #[cold]
    pub fn ask(&mut self) {
        let mut rung = [0; 64];
        // It may have ended with octets of ours unread, which the kernel tells as an error, once.
        match pair::receive(self.bell.as_fd(), &mut rung) {
            Ok(0) => self.gone = true,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.gone = true,
        }
    }

    /// A look that found nothing: now and then the kernel is asked, too.
    #[inline]
    pub fn in_vain(&mut self) {
        self.idle = self.idle.wrapping_add(1);
        if self.idle.is_multiple_of(ASK_EVERY) {
            self.ask();
        }
    }

    /// Says that this half is going to sleep until the bell rings; `false`: there is no reason to sleep, as a look
    /// shows `least`, or the other end is gone.
    pub fn arm(&mut self, least: usize, look: impl Fn(&mut Half) -> Shown) -> io::Result<bool> {
        self.ask();
        // One sleeper: whatever stands there is of an earlier sleep, or a lie.
        self.ticket = self.ticket.wrapping_add(1);
        self.place().store(wait::word(1, self.ticket), Relaxed);
        // Pairs with the fence in `wake`.
        fence(SeqCst);
        match look(self) {
            Ok(shown) if shown < least && !self.gone => {
                self.look_after_writer(shown);
                Ok(true)
            }
            shown => {
                self.disarm();
                shown.map(|_| false)
            }
        }
    }

    fn disarm(&self) {
        self.place().store(0, Relaxed);
    }

    /// Waits until a look shows `least`, or the other end is gone; what the last look showed.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR, EPROTO.
    #[cold]
    pub fn wait(&mut self, least: usize, look: impl Fn(&mut Half) -> Shown) -> Shown {
        let mut began = 0;
        let spins = self.spin > 0 && !self.is_on_its_processor();
        for looks in 1u32.. {
            let shown = look(self)?;
            if shown >= least || self.gone {
                return Ok(shown);
            }
            // It may look for ever.
            self.look_after_writer(shown);
            if !spins || looks.is_multiple_of(CLOCK_EVERY) {
                let now = clock::monotonic_ns();
                began = if began == 0 { now } else { began };
                let spent = now - began >= self.spin.min(self.limit.unwrap_or(u64::MAX));
                if !spins || spent || self.is_on_its_processor() {
                    break;
                }
            }
            if looks.is_multiple_of(ASK_EVERY) {
                self.ask();
            }
        }
        let deadline = self.limit.map(|limit| began.saturating_add(limit));
        while self.arm(least, &look)? {
            let left = deadline.map(|deadline| deadline.saturating_sub(clock::monotonic_ns()));
            let mut one = [poll::PollFd { fd: self.bell.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
            let slept = poll::ppoll(&mut one, left, 0);
            self.disarm();
            let shown = look(self)?;
            if shown >= least {
                return Ok(shown);
            }
            slept.map_err(failed)?;
            // Also where the bell rings for nothing, time after time.
            if left == Some(0) {
                return Err(failed(Errno::TIMEDOUT));
            }
        }
        let shown = look(self)?;
        // What was enough a moment ago still is: an honest end takes nothing back.
        if shown >= least || self.gone { Ok(shown) } else { Err(lies()) }
    }
}

#[cfg(test)]
mod tests {
    use crate::Channel;
    use std::cell::Cell;
    use std::time::Duration;

    #[test]
    fn what_was_there_and_is_not_any_more_is_a_lie() {
        let (mut here, _there) = Channel::pair(4096).unwrap();
        here.set_spin(Duration::ZERO);
        // Nothing as the call comes, enough as it is about to sleep, and nothing when that is to be used.
        let shown = Cell::new([0, 1000, 0].iter());
        let look = |_: &mut super::Half| {
            let mut rest = shown.take();
            let next = rest.next().copied().unwrap_or(0);
            shown.set(rest);
            Ok(next)
        };
        let told = here.sender.0.wait(1000, look).map_err(|e| e.raw_os_error());
        assert_eq!(told, Err(Some(libc::EPROTO)));
    }
}
