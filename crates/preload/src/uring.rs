//! liburing's functions that make an io_uring instance: they make their system calls by inline assembly, which is not
//! seen otherwise. Operations are not followed; whether there may be an instance is the user's choice (`--io-uring`).

use crate::errno::kept;
use bypath_sockets::hook;
use libc::{c_char, c_int, c_void};
use std::arch::naked_asm;
use std::ffi::CStr;

/// A function of liburing with the five words of the longest of them. Answers a negative error number.
type Make = unsafe extern "C" fn(usize, usize, usize, usize, usize) -> c_int;

macro_rules! makes_an_instance {
    ($($(#[$meta:meta])* $name:ident by $body:ident;)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// That of liburing's function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            // Who calls, as one more argument: its own copy of the library may not be in sight of anybody else.
            naked_asm!("mov r9, qword ptr [rsp]", "jmp {}", sym $body)
        }

        extern "C" fn $body(a: usize, b: usize, c: usize, d: usize, e: usize, caller: usize) -> c_int {
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            make(NAME, [a, b, c, d, e], caller)
        }
        const _: usize = crate::real::index(stringify!($name));
    )*};
}

makes_an_instance! {
    /// `io_uring_queue_init()`.
    io_uring_queue_init by queue_init;
    /// `io_uring_queue_init_mem()`: in memory of the program.
    io_uring_queue_init_mem by queue_init_mem;
    /// `io_uring_queue_init_params()`.
    io_uring_queue_init_params by queue_init_params;
    /// `io_uring_queue_init_try_nosqarr()`.
    io_uring_queue_init_try_nosqarr by queue_init_try_nosqarr;
    /// `io_uring_setup()`: the system call.
    io_uring_setup by setup;
}

fn make(name: &CStr, a: [usize; 5], caller: usize) -> c_int {
    let address = if hook::io_uring_begin() { kept(|| real(name, caller)) } else { 0 };
    if address == 0 {
        return -libc::ENOSYS;
    }
    // SAFETY: the function of this name that the program would call without us, with its own arguments; words that it
    // does not take are ignored.
    let made = unsafe { std::mem::transmute::<usize, Make>(address)(a[0], a[1], a[2], a[3], a[4]) };
    if made >= 0 {
        kept(hook::io_uring_done);
    }
    made
}

/// The function that ours hides: the next one in the order of look-up, else the one that the calling object was linked
/// with (a library that came by dlopen keeps its own to itself).
fn real(name: &CStr, caller: usize) -> usize {
    let symbol: *const c_char = name.as_ptr();
    // SAFETY: a NUL-terminated name.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, symbol) };
    if !next.is_null() {
        return next as usize;
    }
    let mut object = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: an address to look up and a structure to fill.
    let known = unsafe { libc::dladdr(caller as *const c_void, &raw mut object) } != 0;
    if !known || object.dli_fname.is_null() {
        return 0;
    }
    // SAFETY: the path of a loaded object, which is not loaded once more.
    let handle = unsafe { libc::dlopen(object.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return 0;
    }
    // SAFETY: an open handle and a NUL-terminated name.
    let own = unsafe { libc::dlsym(handle, symbol) };
    // SAFETY: gives back what was taken above; the caller's object stays loaded, as it is running.
    unsafe { libc::dlclose(handle) };
    if own as usize == ours(symbol) { 0 } else { own as usize }
}

/// The address under which everybody else finds the symbol: ours.
fn ours(symbol: *const c_char) -> usize {
    // SAFETY: a NUL-terminated name.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol) as usize }
}
