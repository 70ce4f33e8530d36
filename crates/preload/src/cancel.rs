//! pthread_cancel: waits on a ring are cancellation points, as waits in the kernel are (docs/signals.md).

use crate::child::borrowed_memory;
use crate::errno::kept;
use crate::real::hook;
use bypath_sockets::hook;
use libc::{c_int, pthread_t};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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
// Libc's by way of ours, which passes on; ASYNCHRONOUS acts on what came meanwhile.
#[cfg(panic = "abort")]
unsafe extern "C" {
    #[link_name = "pthread_setcanceltype"]
    fn set_type(kind: c_int, old: *mut c_int) -> c_int;
}
#[cfg(not(panic = "abort"))]
unsafe extern "C-unwind" {
    #[link_name = "pthread_setcanceltype"]
    fn set_type(kind: c_int, old: *mut c_int) -> c_int;
}

/// Kinds of cancellation (pthread.h).
const DEFERRED: c_int = 0;
const ASYNCHRONOUS: c_int = 1;

/// Some thread asked to be cancelled anywhere: in the middle of our code as well, if nothing were done about it.
static ANYWHERE: AtomicBool = AtomicBool::new(false);

hook! {
    /// `pthread_setcanceltype()`: noted, and passed on.
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int, raw None;
    only notes(kind); {
        real(kind, old)
    }

    /// `pthread_cancel()`.
    fn pthread_cancel(thread: pthread_t) -> c_int, raw None; {
        let ret = real(thread);
        if ret == 0 && !borrowed_memory() {
            kept(|| hook::cancelled(thread as usize));
        }
        ret
    }
}

/// Notes what is asked for. False: nothing is to be done beside it.
#[inline]
fn notes(kind: c_int) -> bool {
    if kind == ASYNCHRONOUS {
        ANYWHERE.store(true, Relaxed);
    }
    false
}

/// Whether calls of ours must keep asynchronous cancellation out.
#[inline(always)]
pub(crate) fn comes_anywhere() -> bool {
    ANYWHERE.load(Relaxed)
}

/// Until [`readmit`] the calling thread is cancelled at cancellation points only. Returns what it asked for itself.
pub(crate) fn keep_out() -> c_int {
    let mut before = DEFERRED;
    // SAFETY: `before` is written; only the calling thread is concerned.
    unsafe { set_type(DEFERRED, &raw mut before) };
    before
}

/// As it was before [`keep_out`]. A cancellation that came meanwhile acts here, where nothing of ours is held.
pub(crate) fn readmit(before: c_int) {
    if before == ASYNCHRONOUS {
        // SAFETY: only the calling thread is concerned.
        unsafe { set_type(before, std::ptr::null_mut()) };
    }
}

/// Ends the calling thread here if pthread_cancel asked for that. Called where nothing of ours is held.
#[cold]
#[inline(never)]
pub(crate) fn act() {
    if hook::is_cancelled() {
        pthread_testcancel();
        // The mark was for another thread, which had this one's number before.
        hook::not_cancelled();
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
