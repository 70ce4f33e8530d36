//! pthread_cancel: waits on a ring are cancellation points, as waits in the kernel are (docs/signals.md).

use crate::child::borrowed_memory;
use crate::errno::kept;
use crate::real::hook;
use bypath_sockets::hook;
use libc::{c_int, pthread_t};

#[cfg(panic = "abort")]
unsafe extern "C" {
    safe fn pthread_testcancel();
}
#[cfg(not(panic = "abort"))]
unsafe extern "C-unwind" {
    safe fn pthread_testcancel();
}
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

hook! {
    /// `pthread_cancel()`.
    fn pthread_cancel(thread: pthread_t) -> c_int, raw None; {
        let ret = real(thread);
        if ret == 0 && !borrowed_memory() {
            kept(|| hook::cancelled(thread as usize));
        }
        ret
    }
}

/// Ends the calling thread here if pthread_cancel asked for that. Called where nothing of ours is held.
#[cold]
#[inline(never)]
pub(crate) fn act() {
    if hook::is_cancelled() {
        pthread_testcancel();
    }
}

/// Whether the calling thread has cancellation switched on: asked by switching it off for a moment.
pub(crate) fn is_enabled() -> bool {
    const DISABLE: c_int = 1;
    let mut before = DISABLE;
    // SAFETY: `before` is written; only the calling thread is concerned.
    unsafe {
        pthread_setcancelstate(DISABLE, &raw mut before);
        pthread_setcancelstate(before, std::ptr::null_mut());
    }
    before != DISABLE
}
