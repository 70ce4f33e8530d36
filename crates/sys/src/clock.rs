//! Clocks. Only this file reads one.

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
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Nanoseconds since 1970 (UTC), CLOCK_REALTIME: may be set back. 0 before 1970.
pub fn realtime_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    u64::try_from(t.tv_sec).map_or(0, |s| s * 1_000_000_000 + t.tv_nsec as u64)
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
