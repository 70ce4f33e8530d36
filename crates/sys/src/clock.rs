//! Clocks. Only this file reads one.

use crate::syscall::syscall;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Time-stamp counter: a cheap, monotonic tick; see [`ticks_per_us`]. On AArch64 the virtual counter.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: rdtsc reads a counter.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let t: u64;
        // SAFETY: reads the virtual counter.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) t, options(nomem, nostack)) };
        t
    }
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    let t = now(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Nanoseconds for which the calling thread has had a processor: CLOCK_THREAD_CPUTIME_ID, a system call.
pub fn thread_ns() -> u64 {
    let t = now(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Nanoseconds since 1970 (UTC), CLOCK_REALTIME: may be set back. 0 before 1970.
pub fn realtime_ns() -> u64 {
    let t = now(rustix::time::ClockId::Realtime);
    u64::try_from(t.tv_sec).map_or(0, |s| s * 1_000_000_000 + t.tv_nsec as u64)
}

/// Hundredths of a second of CLOCK_BOOTTIME.
pub(crate) fn boot_hundredths() -> u64 {
    let t = now(rustix::time::ClockId::Boottime);
    t.tv_sec as u64 * 100 + t.tv_nsec as u64 / 10_000_000
}

fn now(clock: rustix::time::ClockId) -> rustix::time::Timespec {
    if has_vdso() { rustix::time::clock_gettime(clock) } else { ask_kernel(clock) }
}

/// Whether this process can call into the vDSO. A program that is run by an interpreter of machine code (valgrind) has none:
/// the C library's auxiliary vector, which the interpreter wrote, says so. The kernel's copy of it, where rustix looks,
/// names one that cannot be called.
#[inline]
pub(crate) fn has_vdso() -> bool {
    /// Where the vDSO is (elf.h).
    const AT_SYSINFO_EHDR: libc::c_ulong = 33;
    /// 0: not looked up yet.
    static FOUND: AtomicU8 = AtomicU8::new(0);
    match FOUND.load(Relaxed) {
        0 => {
            // SAFETY: no pointers.
            let vdso = unsafe { libc::getauxval(AT_SYSINFO_EHDR) } != 0;
            FOUND.store(1 + u8::from(vdso), Relaxed);
            vdso
        }
        found => found == 2,
    }
}

#[cold]
fn ask_kernel(clock: rustix::time::ClockId) -> rustix::time::Timespec {
    let mut t = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `struct timespec` of 64-bit fields, as which rustix declares it. Both clocks exist.
    unsafe { syscall(libc::SYS_clock_gettime, [clock as usize, (&raw mut t) as usize, 0, 0, 0, 0]) };
    t
}

/// Calibrates [`ticks`] against CLOCK_MONOTONIC: two readings 200 us apart.
pub fn ticks_per_us() -> u64 {
    let (n0, t0) = (monotonic_ns(), ticks());
    loop {
        let n1 = monotonic_ns();
        if n1 - n0 >= 200_000 {
            return ((ticks() - t0) * 1000 / (n1 - n0)).max(1);
        }
        core::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::time::{ClockId, Timespec};

    #[test]
    fn both_ways_to_a_clock_tell_the_same_time() {
        let ns = |t: Timespec| t.tv_sec * 1_000_000_000 + t.tv_nsec;
        for clock in [ClockId::Monotonic, ClockId::Boottime] {
            let (before, asked, after) = (now(clock), ask_kernel(clock), now(clock));
            assert!(ns(before) <= ns(asked) && ns(asked) <= ns(after), "{before:?} {asked:?} {after:?}");
        }
    }
}
