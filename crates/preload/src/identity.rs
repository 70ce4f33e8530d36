//! A process that becomes another user. One that was forked leaves behind what it has of its parent's connections: whoever gets
//! hold of it later is to find nothing there.

use crate::child::borrowed_memory;
use crate::errno::kept;
use crate::real::hook;
use bypath_sockets::hook;
use libc::{c_int, uid_t};

hook! {
    /// `setuid()`.
    fn setuid(user: uid_t) -> c_int, raw Some(libc::SYS_setuid); {
        changing();
        real(user)
    }

    /// `seteuid()`.
    fn seteuid(effective: uid_t) -> c_int, raw None; {
        changing();
        real(effective)
    }

    /// `setreuid()`.
    fn setreuid(user: uid_t, effective: uid_t) -> c_int, raw Some(libc::SYS_setreuid); {
        changing();
        real(user, effective)
    }

    /// `setresuid()`.
    fn setresuid(user: uid_t, effective: uid_t, saved: uid_t) -> c_int, raw Some(libc::SYS_setresuid); {
        changing();
        real(user, effective, saved)
    }

    /// `setfsuid()`.
    fn setfsuid(user: uid_t) -> c_int, raw Some(libc::SYS_setfsuid); {
        changing();
        real(user)
    }
}

/// Before the user changes, while everything is still allowed.
pub(crate) fn changing() {
    if !borrowed_memory() {
        kept(hook::user_changes);
    }
}
