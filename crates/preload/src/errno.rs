//! The calling thread's errno.

use bypath_sockets::hook::Meant;
use bypath_sys::{Errno, thread};
use libc::c_int;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Where errno stands, seen from the thread descriptor: the C library's variables of a thread are at the same place in
/// every thread. [`UNKNOWN`] before the constructor.
static PLACE: AtomicUsize = AtomicUsize::new(UNKNOWN);
const UNKNOWN: usize = usize::MAX;

/// Called by the constructor. From then on no function of the C library is called for errno: a forked child would first
/// have to map its code.
pub(crate) fn init() {
    // SAFETY: no arguments.
    let errno = unsafe { libc::__errno_location() };
    PLACE.store((errno as usize).wrapping_sub(thread::pthread_self()), Relaxed);
}

/// The calling thread's errno.
#[inline]
fn location() -> *mut c_int {
    match PLACE.load(Relaxed) {
        // SAFETY: no arguments.
        UNKNOWN => unsafe { libc::__errno_location() },
        place => thread::pthread_self().wrapping_add(place) as *mut c_int,
    }
}

/// The current value.
#[inline]
pub(crate) fn get() -> c_int {
    // SAFETY: a valid pointer to the calling thread's errno.
    unsafe { *location() }
}

/// Sets the value.
#[inline]
pub(crate) fn set(value: c_int) {
    // SAFETY: as in `get`.
    unsafe { *location() = value }
}

/// Runs `f` and puts errno back as it was: for reports that follow a real call.
#[inline]
pub(crate) fn kept<R>(f: impl FnOnce() -> R) -> R {
    let saved = get();
    let r = f();
    set(saved);
    r
}

/// Runs `takes_back`, in which other ends can hold the thread up, before a call of the kernel's on these numbers. False: one of them is
/// another file by now, and errno says so.
#[must_use]
pub(crate) fn still<const N: usize>(numbers: [c_int; N], takes_back: impl FnOnce()) -> bool {
    let meant = Meant::begin(numbers);
    kept(takes_back);
    is_still(meant.gone())
}

/// The same behind it, of what was found out.
#[must_use]
pub(crate) fn is_still(gone: Option<Errno>) -> bool {
    gone.inspect(|e| set(e.raw_os_error())).is_none()
}

/// What a function returns when it fails, and how the result of a raw system call becomes its result.
pub(crate) trait Answer: Sized {
    /// -1 or NULL.
    const FAILED: Self;
    /// From a non-negative system call result.
    fn from_raw(raw: isize) -> Self;
}

impl Answer for c_int {
    const FAILED: Self = -1;
    fn from_raw(raw: isize) -> Self {
        raw as c_int
    }
}

/// An interface's number.
impl Answer for libc::c_uint {
    const FAILED: Self = 0;
    fn from_raw(raw: isize) -> Self {
        raw as libc::c_uint
    }
}

impl Answer for isize {
    const FAILED: Self = -1;
    fn from_raw(raw: isize) -> Self {
        raw
    }
}

/// SIG_ERR.
impl Answer for libc::sighandler_t {
    const FAILED: Self = libc::SIG_ERR;
    fn from_raw(raw: isize) -> Self {
        raw as usize
    }
}

impl<T> Answer for *mut T {
    const FAILED: Self = std::ptr::null_mut();
    fn from_raw(raw: isize) -> Self {
        raw as *mut T
    }
}

impl Answer for () {
    const FAILED: Self = ();
    fn from_raw(_: isize) -> Self {}
}

/// Sets errno and answers failure.
#[cold]
pub(crate) fn fail<R: Answer>(value: c_int) -> R {
    set(value);
    R::FAILED
}

/// The C form of an engine's result.
#[inline]
pub(crate) fn answer<R: Answer>(result: Result<usize, Errno>) -> R {
    match result {
        Ok(n) => R::from_raw(n as isize),
        Err(Errno::INTR) => {
            crate::cancel::act();
            fail(libc::EINTR)
        }
        Err(e) => fail(e.raw_os_error()),
    }
}
