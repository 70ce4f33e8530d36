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

/// Writes one line to standard error; whatever happens to it is of no interest.
pub(crate) fn complain(line: &[u8]) {
    // SAFETY: address and length of a live slice.
    unsafe { syscall(libc::SYS_write, [2, line.as_ptr() as usize, line.len(), 0, 0, 0]) };
}

/// Whether the descriptor is a regular file.
pub(crate) fn is_regular_file(fd: i32) -> bool {
    // SAFETY: stat is plain integers, which fstat fills.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let ret = syscall(libc::SYS_fstat, [fd as usize, &raw mut stat as usize, 0, 0, 0, 0]);
        ret == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// A file's position; `None` if it has none.
pub(crate) fn position(fd: i32) -> Option<i64> {
    // SAFETY: integers only.
    let ret = unsafe { syscall(libc::SYS_lseek, [fd as usize, 0, libc::SEEK_CUR as usize, 0, 0, 0]) };
    (ret >= 0).then_some(ret as i64)
}

/// Moves a file's position.
pub(crate) fn set_position(fd: i32, to: i64) {
    // SAFETY: integers only.
    unsafe { syscall(libc::SYS_lseek, [fd as usize, to as usize, libc::SEEK_SET as usize, 0, 0, 0]) };
}

/// Reads from a position of a file: what was read, or the error number.
pub(crate) fn pread(fd: i32, into: &mut [u8], at: i64) -> Result<&[u8], i32> {
    let args = [fd as usize, into.as_mut_ptr() as usize, into.len(), at as usize, 0, 0];
    // SAFETY: address and length of a live slice.
    let ret = unsafe { syscall(libc::SYS_pread64, args) };
    if ret < 0 {
        return Err(-ret as i32);
    }
    Ok(&into[..ret as usize])
}

/// Sends on the kernel's connection as the C library does: -1 and errno.
pub(crate) fn send(fd: i32, bytes: &[u8], flags: i32) -> isize {
    let args = [fd as usize, bytes.as_ptr() as usize, bytes.len(), flags as usize, 0, 0];
    // SAFETY: address and length of a live slice.
    let ret = unsafe { syscall(libc::SYS_sendto, args) };
    if ret < 0 { crate::errno::fail(-ret as i32) } else { ret }
}
