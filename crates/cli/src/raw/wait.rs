//! Waiting for several descriptors, a time, and Ctrl-C.
//!
//! SIGINT and SIGTERM write to a socket of our own that every wait looks at: none is missed between a look and the sleep.
//! A later one ends the process at once.

use crate::ending;
use crate::output::Failure;
use bypath_sys::clock;
use bypath_sys::poll::{PollFd, ppoll};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// There is something to be read, or an end of the stream.
pub const READ: i16 = 1;
/// There is room to write.
pub const WRITE: i16 = 4;

/// Nothing but its end: nobody reads what is written to it.
pub const GONE: i16 = 2;

/// Longest sleep: the kernel does not wake who waits for a socket whose interface is removed while it is down.
const LONGEST: u64 = 250_000_000;

/// The wish of the user that the command ends.
pub struct Stop {
    asked: Arc<AtomicBool>,
    bell: UnixStream,
}

impl Stop {
    /// From now on SIGINT and SIGTERM are taken as that wish.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn new() -> Result<Stop, Failure> {
        Stop::install().map_err(|e| Failure::new(1, format_args!("cannot watch for Ctrl-C: {e}")))
    }

    fn install() -> std::io::Result<Stop> {
        let asked = Arc::new(AtomicBool::new(false));
        let (bell, ringer) = UnixStream::pair()?;
        ending::watch(&asked)?;
        for signal in ending::SIGNALS {
            signal_hook::low_level::pipe::register(signal, ringer.try_clone()?)?;
        }
        Ok(Stop { asked, bell })
    }

    /// Whether the command is to end.
    pub fn asked(&self) -> bool {
        self.asked.load(SeqCst)
    }

    /// Waits for one of these descriptors, each with what is waited for, for the time `until` (ns of the monotonic clock), or
    /// for Ctrl-C. Which of them are ready; also returns early, with none.
    pub fn wait<const N: usize>(&self, what: [(BorrowedFd<'_>, i16); N], until: Option<u64>) -> [bool; N] {
        let mut fds = [PollFd::default(); 8];
        for (slot, (fd, events)) in fds.iter_mut().zip(&what) {
            // Nothing to wait for: not looked at, as a hang-up would be told in any case.
            *slot =
                PollFd { fd: if *events == 0 { -1 } else { fd.as_raw_fd() }, events: *events, revents: 0 };
        }
        self.sleep_for(&mut fds[..=N], until);
        std::array::from_fn(|n| fds[n].revents != 0)
    }

    /// The same, of any number of descriptors by their numbers.
    pub fn wait_any(&self, what: &mut Vec<PollFd>, until: Option<u64>) {
        what.push(PollFd::default());
        self.sleep_for(what, until);
        what.pop();
    }

    /// The last one's place is the bell's.
    fn sleep_for(&self, fds: &mut [PollFd], until: Option<u64>) {
        let left = until.map_or(LONGEST, |at| at.saturating_sub(clock::monotonic_ns()).min(LONGEST));
        if let Some(last) = fds.last_mut() {
            *last = PollFd { fd: self.bell.as_raw_fd(), events: READ, revents: 0 };
        }
        // An error is a signal, which the bell tells, too.
        let _ = ppoll(fds, Some(left), 0);
    }

    /// Sleeps until this time of the monotonic clock, or Ctrl-C.
    pub fn sleep(&self, until: u64) {
        while !self.asked() && clock::monotonic_ns() < until {
            self.wait([], Some(until));
        }
    }
}
