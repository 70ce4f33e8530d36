//! Becoming another program so that it finds what the caller of this one had set up.
//!
//! Rust's runtime ignores SIGPIPE and opens /dev/null for standard descriptors that are closed, and the standard
//! library's `exec` sets SIGPIPE to its default and empties the signal mask. A program would notice each of these.
//! Therefore the state is noted before the runtime starts, and restored here. This module is behind a feature:
//! the note is made by code that runs when the binary is loaded, which the preload library must not have.

use crate::syscall::syscall;
use crate::{Errno, Result};
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

/// `struct sigaction` of the kernel: handler, flags, restorer, mask.
type KernelSigaction = [usize; 4];
/// Size of the kernel's signal set in bytes.
const SIGSET_SIZE: usize = 8;

/// Whether SIGPIPE was ignored when this program was started.
static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);
/// A bit for each of the descriptors 0 to 2 that was closed when this program was started.
static CLOSED: AtomicU8 = AtomicU8::new(0);

#[used]
// SAFETY: the C library calls every pointer in this section once, before `main`; it is one to a function that
// ignores the arguments passed and needs nothing of the runtime.
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    let mut action: KernelSigaction = [0; 4];
    // SAFETY: the kernel writes at most 32 bytes to a local of 32.
    unsafe {
        syscall(
            libc::SYS_rt_sigaction,
            [libc::SIGPIPE as usize, 0, &raw mut action as usize, SIGSET_SIZE, 0, 0],
        )
    };
    SIGPIPE_IGNORED.store(action[0] == libc::SIG_IGN, Relaxed);
    let mut closed = 0;
    for fd in 0..3 {
        // SAFETY: integers only.
        let flags = unsafe { syscall(libc::SYS_fcntl, [fd, libc::F_GETFD as usize, 0, 0, 0, 0]) };
        closed |= u8::from(flags < 0) << fd;
    }
    CLOSED.store(closed, Relaxed);
}

/// Makes SIGPIPE ignored, or gives it its default action.
fn set_sigpipe(handler: usize) {
    let action: KernelSigaction = [handler, 0, 0, 0];
    // SAFETY: the kernel reads 32 bytes of a local; neither action is a function of ours.
    unsafe {
        syscall(
            libc::SYS_rt_sigaction,
            [libc::SIGPIPE as usize, &raw const action as usize, 0, SIGSET_SIZE, 0, 0],
        )
    };
}

/// Replaces this process's program by `file` with these arguments and environment (`NAME=VALUE`). Signal mask,
/// SIGPIPE and standard descriptors are as they were when this program was started.
///
/// # Errors
/// Those of execve(2); it does not return otherwise.
pub fn exec(
    file: &CString,
    arguments: &[CString],
    environment: &[CString],
) -> Result<std::convert::Infallible> {
    for fd in (0..3usize).filter(|fd| CLOSED.load(Relaxed) >> fd & 1 == 1) {
        // Closed by the kernel if the call succeeds.
        // SAFETY: integers only.
        unsafe { syscall(libc::SYS_fcntl, [fd, libc::F_SETFD as usize, libc::FD_CLOEXEC as usize, 0, 0, 0]) };
    }
    if !SIGPIPE_IGNORED.load(Relaxed) {
        set_sigpipe(libc::SIG_DFL);
    }
    let (argv, envp) = (pointers(arguments), pointers(environment));
    // SAFETY: a C string, and two lists of pointers to C strings that end with a null pointer; all of them are
    // borrowed until the call returns.
    let result = unsafe {
        syscall(
            libc::SYS_execve,
            [file.as_ptr() as usize, argv.as_ptr() as usize, envp.as_ptr() as usize, 0, 0, 0],
        )
    };
    set_sigpipe(libc::SIG_IGN);
    Err(Errno::from_raw_os_error(-(result as i32)))
}

fn pointers(strings: &[CString]) -> Vec<usize> {
    strings.iter().map(|s| s.as_ptr() as usize).chain([0]).collect()
}
