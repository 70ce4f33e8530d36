//! ppoll.

use crate::Result;
use crate::syscall::{check, syscall};

/// One entry, laid out as `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PollFd {
    /// Descriptor, negative = ignored.
    pub fd: i32,
    /// Requested events.
    pub events: i16,
    /// Returned events.
    pub revents: i16,
}

/// Waits for events on `fds`, at most `timeout_ns` (`None` = for ever), with the signal mask at address
/// `sigmask` (a kernel sigset of eight bytes, 0 = unchanged). Returns the number of entries with events.
///
/// # Errors
/// EINTR after a signal handler ran; EFAULT for a bad mask address; EINVAL beyond RLIMIT_NOFILE entries.
pub fn ppoll(fds: &mut [PollFd], timeout_ns: Option<u64>, sigmask: usize) -> Result<usize> {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let ts_addr = match timeout_ns {
        Some(ns) => {
            ts.tv_sec = (ns / 1_000_000_000) as libc::time_t;
            ts.tv_nsec = (ns % 1_000_000_000) as libc::c_long;
            &raw mut ts as usize
        }
        None => 0,
    };
    // SAFETY: the kernel writes revents of the slice and the remaining time; the mask address is checked by it.
    check(unsafe { syscall(libc::SYS_ppoll, [fds.as_mut_ptr() as usize, fds.len(), ts_addr, sigmask, 8, 0]) })
}

/// The events pending on one descriptor now, out of `events` plus POLLERR, POLLHUP, POLLNVAL.
pub fn now(fd: i32, events: i16) -> i16 {
    let mut one = [PollFd { fd, events, revents: 0 }];
    match ppoll(&mut one, Some(0), 0) {
        Ok(_) => one[0].revents,
        Err(_) => 0,
    }
}
