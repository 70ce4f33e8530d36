//! System calls without the C library, for the moments when it cannot be asked: before its symbols are known,
//! and for functions that an old C library does not have.

use std::arch::asm;

/// One system call; the result is the kernel's (-4095..0 is an error).
///
/// # Safety
/// As dangerous as the call itself: the arguments must be ones that the program may pass.
#[inline]
pub(crate) unsafe fn syscall(number: i64, args: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the x86-64 system call convention: rcx and r11 are clobbered, the rest is the caller's contract.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => ret,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    ret
}

/// The caller's process id, from the kernel (a cached one would be the parent's in a vfork child).
pub(crate) fn getpid() -> i32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) as i32 }
}

/// Writes one line to standard error; whatever happens to it is of no interest.
pub(crate) fn complain(line: &[u8]) {
    // SAFETY: address and length of a live slice.
    unsafe { syscall(libc::SYS_write, [2, line.as_ptr() as usize, line.len(), 0, 0, 0]) };
}
