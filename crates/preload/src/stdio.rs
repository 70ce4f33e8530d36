//! stdio streams: the C library reads and writes their descriptors where nobody sees it, so a socket that becomes a
//! stream stays on the kernel.

use crate::child::borrowed_memory;
use crate::errno::{kept, still};
use crate::real::hook;
use crate::sock::is_standard;
use bypath_sockets::hook::{self, Closing, Reason};
use bypath_sys::turn::Replacing;
use libc::{FILE, c_char, c_int, c_void};
use std::arch::naked_asm;

hook! {
    /// `fdopen()`.
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE, raw None; aka _IO_fdopen; {
        if becomes_stream(fd) { real(fd, mode) } else { std::ptr::null_mut() }
    }

    /// `fclose()`: closes a descriptor inside the C library.
    fn fclose(file: *mut FILE) -> c_int, raw None; aka _IO_fclose; {
        let (closing, replacing) = (closing(file), replacing(file));
        let ret = real(file);
        drop(replacing);
        closed(closing);
        ret
    }

    /// `freopen()`.
    fn freopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE, raw None; {
        let (closing, replacing) = (closing(file), replacing(file));
        let ret = real(path, mode, file);
        drop(replacing);
        closed(closing);
        ret
    }

    /// `freopen64()`.
    fn freopen64(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE, raw None; {
        let (closing, replacing) = (closing(file), replacing(file));
        let ret = real(path, mode, file);
        drop(replacing);
        closed(closing);
        ret
    }

    /// `vdprintf()`.
    fn vdprintf(fd: c_int, format: *const c_char, args: *mut c_void) -> c_int, raw None; {
        if becomes_stream(fd) { real(fd, format, args) } else { -1 }
    }

    /// `vdprintf()` with checks.
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, args: *mut c_void) -> c_int, raw None; {
        if becomes_stream(fd) { real(fd, flag, format, args) } else { -1 }
    }

    /// `backtrace_symbols_fd()`: writes inside the C library.
    fn backtrace_symbols_fd(frames: *const *mut c_void, count: c_int, fd: c_int) -> (), raw None; aka __backtrace_symbols_fd; {
        if becomes_stream(fd) {
            real(frames, count, fd);
        }
    }
}

/// False: the call fails.
fn becomes_stream(fd: c_int) -> bool {
    !hook::is_followed(fd) || still([fd], || hook::recall(fd, Reason::RecalledStdio, true))
}

fn closing(file: *mut FILE) -> Option<Closing> {
    let fd = descriptor_of(file)?;
    kept(|| hook::is_followed(fd).then(|| hook::close_begin(fd)))
}

/// The C library closes, opens and duplicates itself, without regard to what stands at a standard descriptor's number for a moment.
fn replacing(file: *mut FILE) -> Option<Replacing> {
    descriptor_of(file).is_some_and(is_standard).then(Replacing::begin)
}

fn descriptor_of(file: *mut FILE) -> Option<c_int> {
    if file.is_null() || borrowed_memory() {
        return None;
    }
    // SAFETY: a stream that the program is about to close, hence a valid one.
    Some(kept(|| unsafe { libc::fileno(file) }))
}

fn closed(closing: Option<Closing>) {
    if let Some(closing) = closing {
        // The descriptor is gone whatever the flush answered.
        kept(|| closing.finish(0));
    }
}

/// The variadic forms: the descriptor is looked at, then the real function is jumped to with every argument
/// register as it was (also those of floating-point arguments, which `al` counts).
macro_rules! variadic {
    ($($(#[$meta:meta])* $name:ident;)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// That of the C function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(_fd: c_int) -> c_int {
            naked_asm!(
                "push rax",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "sub rsp, 128",
                "movups [rsp], xmm0",
                "movups [rsp + 16], xmm1",
                "movups [rsp + 32], xmm2",
                "movups [rsp + 48], xmm3",
                "movups [rsp + 64], xmm4",
                "movups [rsp + 80], xmm5",
                "movups [rsp + 96], xmm6",
                "movups [rsp + 112], xmm7",
                "call {before}",
                "mov r11, rax",
                "movups xmm0, [rsp]",
                "movups xmm1, [rsp + 16]",
                "movups xmm2, [rsp + 32]",
                "movups xmm3, [rsp + 48]",
                "movups xmm4, [rsp + 64]",
                "movups xmm5, [rsp + 80]",
                "movups xmm6, [rsp + 96]",
                "movups xmm7, [rsp + 112]",
                "add rsp, 128",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "pop rax",
                "jmp r11",
                before = sym before_dprintf::<{ crate::real::index(stringify!($name)) }>,
            )
        }
    )*};
}

variadic! {
    /// `dprintf()`.
    dprintf;
    /// `dprintf()` with checks.
    __dprintf_chk;
}

/// Answers where to jump.
extern "C" fn before_dprintf<const I: usize>(fd: c_int) -> usize {
    match crate::real::load::<I>() {
        _ if !becomes_stream(fd) => fails as *const () as usize,
        0 => no_dprintf as *const () as usize,
        address => address,
    }
}

/// With errno as it is.
extern "C" fn fails() -> c_int {
    -1
}

extern "C" fn no_dprintf() -> c_int {
    crate::errno::fail(libc::ENOSYS)
}
