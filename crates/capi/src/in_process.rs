//! A netstack without a thread: what its user does beside calling its sockets.

use crate::boundary::{guarded, write};
use crate::netstack::{bypath_netstack, with};
use crate::options::timeout;
use crate::status::{bypath_error, bypath_status};
use std::ffi::c_int;

/// Moves what there is to be moved between the link and the sockets of a netstack that was opened with `BYPATH_NETSTACK_IN_PROCESS`, and
/// does what is due. `moved` becomes 1, or 0 where there was nothing to do; it may be NULL.
///
/// Calls of such a netstack's sockets do this themselves as long as they find nothing: one with a time-out of 0 once, others until there is
/// something or their time is over. They use no other thread, and no system call but the link's. What nobody calls for does not happen:
/// what was lost is not sent again, and nobody hears answers, so that a program which does something else for a while calls this now and then.
/// The descriptors of sockets follow with it.
///
/// Fails with `BYPATH_E_GONE` when the link has gone, `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_netstack_poll(
    netstack: *mut bypath_netstack,
    moved: *mut c_int,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let any = with(netstack, |n| Ok(n.host.poll()?))?;
        if moved.is_null() { Ok(()) } else { write(moved, "moved", c_int::from(any)) }
    })
}

/// Sleeps until `bypath_netstack_poll` would have something to do, for this time at most (ns; `BYPATH_FOREVER`: no limit), or until a signal
/// comes: for programs that spin for a while only. Calls of other threads wake nobody. Fails with `BYPATH_E_GONE`, `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_netstack_wait(
    netstack: *mut bypath_netstack,
    timeout_ns: u64,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || with(netstack, |n| Ok(n.host.wait(timeout(timeout_ns))?)))
}
