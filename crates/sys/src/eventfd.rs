//! eventfd: the bell.

use crate::syscall::{check, syscall};
use crate::{Errno, Result, fd, poll, turn};
#[cfg(feature = "link")]
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Creates a non-blocking, close-on-exec eventfd, moved above `floor`.
///
/// # Errors
/// EMFILE or ENFILE when no descriptor is to be had, EPERM under a seccomp filter.
pub fn create(floor: i32) -> Result<i32> {
    let flags = libc::EFD_NONBLOCK | libc::EFD_CLOEXEC;
    turn::high(floor, || {
        // SAFETY: eventfd2(count, flags) takes no pointer.
        check(unsafe { syscall(libc::SYS_eventfd2, [0, flags as usize, 0, 0, 0, 0]) }).map(|made| made as i32)
    })
}

/// Whether a descriptor that somebody else sent may be rung. It has no kind, as an eventfd has none (of the others that have
/// none nothing waits for who writes there, though it may for who [closes](crate::strangers::close_files) them), and it does not wait: a write to a
/// pipe could end in SIGPIPE, one to a file anywhere.
pub fn is_bell(sent: i32) -> bool {
    fd::kind(sent) == Ok(0) && fd::status_flags(sent).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0)
}

/// Rings: adds one to the counter. A full counter is as good as rung.
pub fn ring(bell: i32) {
    let one = 1u64;
    // SAFETY: write reads eight bytes from a local.
    unsafe { syscall(libc::SYS_write, [bell as usize, &raw const one as usize, 8, 0, 0, 0]) };
}

/// The same of a bell whose description others have, too: a full one is left as it is, and it is made one that does not wait. Who makes it one that waits, and
/// fills it, between two system calls has this one wait all the same.
pub fn ring_carefully(bell: i32) {
    if poll::now(bell, libc::POLLOUT) & libc::POLLOUT != 0
        && fd::status_flags(bell).and_then(|now| fd::set_status_flags(bell, now | libc::O_NONBLOCK)).is_ok()
    {
        ring(bell);
    }
}

/// Silences the bell: resets the counter.
pub fn silence(bell: i32) {
    let mut count = 0u64;
    // SAFETY: read writes at most eight bytes to a local.
    unsafe { syscall(libc::SYS_read, [bell as usize, &raw mut count as usize, 8, 0, 0, 0]) };
}

/// The same of a bell whose description others have, too, and may have made one that waits (since Linux 5.8; before it is read as ever).
pub fn silence_at_once(bell: i32) {
    let mut count = 0u64;
    let pieces = [libc::iovec { iov_base: (&raw mut count).cast(), iov_len: 8 }];
    // A position of -1: where it stands, as of what has none.
    let at = [bell as usize, pieces.as_ptr() as usize, 1, usize::MAX, usize::MAX, libc::RWF_NOWAIT as usize];
    // SAFETY: preadv2 writes at most eight bytes to a local.
    if check(unsafe { syscall(libc::SYS_preadv2, at) }) == Err(Errno::OPNOTSUPP) {
        silence(bell);
    }
}

/// A bell that is closed with its value.
#[cfg(feature = "link")]
#[derive(Debug)]
pub struct Bell(OwnedFd);

#[cfg(feature = "link")]
impl Bell {
    /// One that is not rung: non-blocking, close-on-exec.
    ///
    /// # Errors
    /// Those of [`create`].
    pub fn new() -> Result<Bell> {
        let bell = create(3)?;
        // SAFETY: the kernel made this descriptor for us just now.
        Ok(Bell(unsafe { OwnedFd::from_raw_fd(bell) }))
    }
}

#[cfg(feature = "link")]
impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(all(test, feature = "link"))]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_bell_that_others_have_filled_and_made_wait_is_not_waited_for() {
        let bell = Bell::new().unwrap();
        let raw = bell.as_fd().as_raw_fd();
        fd::set_status_flags(raw, 0).unwrap();
        ring_carefully(raw);
        assert!(is_bell(raw), "it does not wait any more");
        assert_ne!(poll::now(raw, libc::POLLIN) & libc::POLLIN, 0, "it was rung");
        let most = u64::MAX - 2;
        // SAFETY: write reads eight octets of a local.
        check(unsafe { syscall(libc::SYS_write, [raw as usize, &raw const most as usize, 8, 0, 0, 0]) })
            .unwrap();
        fd::set_status_flags(raw, 0).unwrap();
        ring_carefully(raw);
    }
}
