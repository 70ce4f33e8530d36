//! epoll.

use crate::Result;
use crate::syscall::{check, syscall};
#[cfg(feature = "link")]
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One event, laid out as `struct epoll_event`.
#[cfg_attr(target_arch = "x86_64", repr(C, packed))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Event {
    /// EPOLL* bits.
    pub events: u32,
    /// The program's word.
    pub data: u64,
}

/// epoll_ctl; `op` is EPOLL_CTL_*.
///
/// # Errors
/// As epoll_ctl(2).
pub fn ctl(epfd: i32, op: i32, fd: i32, mut event: Event) -> Result<()> {
    // SAFETY: the kernel reads one event.
    check(unsafe {
        syscall(libc::SYS_epoll_ctl, [epfd as usize, op as usize, fd as usize, &raw mut event as usize, 0, 0])
    })
    .map(|_| ())
}

/// epoll_pwait2 with nanoseconds; `None` waits for ever. Falls back to milliseconds (rounded up) where the
/// kernel (before 5.11) or a filter does not know epoll_pwait2.
///
/// # Errors
/// EINTR, EBADF, EINVAL, EFAULT (mask address) as epoll_pwait(2).
pub fn wait(epfd: i32, out: &mut [Event], timeout_ns: Option<u64>, sigmask: usize) -> Result<usize> {
    if timeout_ns == Some(0) || timeout_ns.is_none() {
        return wait_ms(epfd, out, if timeout_ns.is_none() { -1 } else { 0 }, sigmask);
    }
    let ns = timeout_ns.unwrap_or(0);
    let ts = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the kernel writes at most out.len() events.
    let r = check(unsafe {
        syscall(
            libc::SYS_epoll_pwait2,
            [epfd as usize, out.as_mut_ptr() as usize, out.len(), &raw const ts as usize, sigmask, 8],
        )
    });
    match r {
        Err(crate::Errno::NOSYS | crate::Errno::PERM) => {
            wait_ms(epfd, out, ns.div_ceil(1_000_000).min(i32::MAX as u64) as i32, sigmask)
        }
        other => other,
    }
}

fn wait_ms(epfd: i32, out: &mut [Event], ms: i32, sigmask: usize) -> Result<usize> {
    // SAFETY: the kernel writes at most out.len() events.
    check(unsafe {
        syscall(
            libc::SYS_epoll_pwait,
            [epfd as usize, out.as_mut_ptr() as usize, out.len(), ms as usize, sigmask, 8],
        )
    })
}

/// A set that is closed with its value.
#[cfg(feature = "link")]
#[derive(Debug)]
pub struct Set(OwnedFd);

#[cfg(feature = "link")]
impl Set {
    /// One in which nothing is, close-on-exec.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn new() -> Result<Set> {
        // SAFETY: integers only.
        let made = check(unsafe {
            syscall(libc::SYS_epoll_create1, [libc::EPOLL_CLOEXEC as usize, 0, 0, 0, 0, 0])
        })?;
        // SAFETY: the kernel made it for us just now.
        Ok(Set(unsafe { OwnedFd::from_raw_fd(made as i32) }))
    }

    /// Waits for these events (EPOLL* bits) from now on, which are told with this word.
    ///
    /// # Errors
    /// EEXIST, ENOMEM, ENOSPC, EPERM: it cannot be waited for.
    pub fn add(&self, fd: BorrowedFd<'_>, events: u32, data: u64) -> Result<()> {
        ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), Event { events, data })
    }

    /// The same of a number, whose descriptor somebody else holds.
    ///
    /// # Errors
    /// Those of [`add`](Set::add); EBADF.
    pub fn add_number(&self, fd: i32, events: u32, data: u64) -> Result<()> {
        ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, Event { events, data })
    }

    /// Waits for other events. What is there already is told again.
    ///
    /// # Errors
    /// ENOENT, EBADF.
    pub fn change(&self, fd: i32, events: u32, data: u64) -> Result<()> {
        ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_MOD, fd, Event { events, data })
    }

    /// Waits for it no more.
    pub fn remove(&self, fd: i32) {
        let _ = ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, Event::default());
    }

    /// Whether something in it is ready.
    pub fn is_ready(&self) -> bool {
        crate::poll::now(self.0.as_raw_fd(), libc::POLLIN) & libc::POLLIN != 0
    }

    /// What happened; how many events. `None` waits for ever.
    ///
    /// # Errors
    /// EINTR.
    pub fn wait(&self, out: &mut [Event], timeout_ns: Option<u64>) -> Result<usize> {
        wait(self.0.as_raw_fd(), out, timeout_ns, 0)
    }
}
