//! Futex on words that several processes map (never the private variant).

use crate::syscall::syscall;
use std::sync::atomic::AtomicU32;

/// Sleeps while `*word == expected`, at most `timeout_ns`. Returns on wake, change, signal or time-out.
pub fn wait(word: &AtomicU32, expected: u32, timeout_ns: u64) {
    let ts = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: FUTEX_WAIT reads the word and the time-out.
    unsafe {
        syscall(
            libc::SYS_futex,
            [
                word.as_ptr() as usize,
                libc::FUTEX_WAIT as usize,
                expected as usize,
                &raw const ts as usize,
                0,
                0,
            ],
        )
    };
}

/// Wakes up to `count` sleepers.
pub fn wake(word: &AtomicU32, count: u32) {
    // SAFETY: FUTEX_WAKE only uses the address.
    unsafe {
        syscall(libc::SYS_futex, [word.as_ptr() as usize, libc::FUTEX_WAKE as usize, count as usize, 0, 0, 0])
    };
}
