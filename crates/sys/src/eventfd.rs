//! eventfd: the bell.

use crate::syscall::{check, syscall};
use crate::{Result, fd};

/// Creates a non-blocking, close-on-exec eventfd, moved above `floor`.
///
/// # Errors
/// EMFILE or ENFILE when no descriptor is to be had, EPERM under a seccomp filter.
pub fn create(floor: i32) -> Result<i32> {
    // SAFETY: eventfd2(count, flags) takes no pointer.
    let low = check(unsafe {
        syscall(libc::SYS_eventfd2, [0, (libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) as usize, 0, 0, 0, 0])
    })? as i32;
    fd::move_high(low, floor)
}

/// Rings: adds one to the counter. A full counter is as good as rung.
pub fn ring(bell: i32) {
    let one = 1u64;
    // SAFETY: write reads eight bytes from a local.
    unsafe { syscall(libc::SYS_write, [bell as usize, &raw const one as usize, 8, 0, 0, 0]) };
}

/// Silences the bell: resets the counter.
pub fn silence(bell: i32) {
    let mut count = 0u64;
    // SAFETY: read writes at most eight bytes to a local.
    unsafe { syscall(libc::SYS_read, [bell as usize, &raw mut count as usize, 8, 0, 0, 0]) };
}
