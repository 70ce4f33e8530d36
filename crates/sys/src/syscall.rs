//! The raw system call instruction.

use crate::{Errno, Result};

/// Makes a system call with up to six arguments.
///
/// # Safety
/// As the system call demands.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) unsafe fn syscall(n: libc::c_long, a: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the kernel clobbers rcx and r11 only; memory effects are the caller's contract.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") n as isize => ret,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    ret
}

/// Makes a system call with up to six arguments.
///
/// # Safety
/// As the system call demands.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) unsafe fn syscall(n: libc::c_long, a: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the kernel preserves all other registers; memory effects are the caller's contract.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") n, inlateout("x0") a[0] as isize => ret,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack)
        );
    }
    ret
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("Bypath runs on x86-64 and AArch64");

/// The kernel's return convention as a `Result`.
#[inline]
pub(crate) fn check(ret: isize) -> Result<usize> {
    if (-4095..0).contains(&ret) { Err(Errno::from_raw_os_error(-ret as i32)) } else { Ok(ret as usize) }
}
