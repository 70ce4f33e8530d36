//! What a thread that must be in time asks for: a real-time priority, memory that stays; and one that others must not wait for.

use crate::Result;
use crate::syscall::{check, syscall};

/// Schedules the calling thread by SCHED_FIFO with this priority, 1 to 99.
///
/// # Errors
/// EPERM without CAP_SYS_NICE and with too low an RLIMIT_RTPRIO; EINVAL for another priority.
pub fn fifo(priority: i32) -> Result<()> {
    schedule(libc::SCHED_FIFO, priority)
}

/// Schedules the calling thread by SCHED_BATCH: woken, it does not take a processor away from a thread that runs.
///
/// # Errors
/// EPERM under a filter.
pub fn batch() -> Result<()> {
    schedule(libc::SCHED_BATCH, 0)
}

fn schedule(policy: i32, priority: i32) -> Result<()> {
    // `struct sched_param` has this one field.
    let parameter = [priority];
    let policy = policy as usize;
    // SAFETY: the kernel reads the parameter, which lives until the call returns.
    check(unsafe { syscall(libc::SYS_sched_setscheduler, [0, policy, parameter.as_ptr() as usize, 0, 0, 0]) })
        .map(|_| ())
}

/// Keeps in memory what this process has now. What it takes later is not kept: with a limit (RLIMIT_MEMLOCK) its
/// allocations would fail instead.
///
/// # Errors
/// EPERM and ENOMEM without CAP_IPC_LOCK and with too low an RLIMIT_MEMLOCK.
pub fn lock_memory() -> Result<()> {
    // SAFETY: no memory changes.
    check(unsafe { syscall(libc::SYS_mlockall, [libc::MCL_CURRENT as usize, 0, 0, 0, 0, 0]) }).map(|_| ())
}
