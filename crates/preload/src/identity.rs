//! A process that becomes another user. Before that its mailboxes are over, and one that was forked leaves behind what it has of its
//! parent's connections: whoever gets hold of it later is to find nothing there.

use crate::child::borrowed_memory;
use crate::errno::kept;
use crate::real::hook;
use bypath_sockets::hook;
use libc::{c_int, uid_t};

hook! {
    /// `setuid()`.
    fn setuid(user: uid_t) -> c_int, raw Some(libc::SYS_setuid); {
        changing(|| real(user))
    }

    /// `seteuid()`.
    fn seteuid(effective: uid_t) -> c_int, raw None; {
        changing(|| real(effective))
    }

    /// `setreuid()`.
    fn setreuid(user: uid_t, effective: uid_t) -> c_int, raw Some(libc::SYS_setreuid); {
        changing(|| real(user, effective))
    }

    /// `setresuid()`.
    fn setresuid(user: uid_t, effective: uid_t, saved: uid_t) -> c_int, raw Some(libc::SYS_setresuid); {
        changing(|| real(user, effective, saved))
    }

    /// `setfsuid()`.
    fn setfsuid(user: uid_t) -> c_int, raw Some(libc::SYS_setfsuid); {
        changing(|| real(user))
    }
}

/// Runs `call`, which changes the user: before it, everything is still allowed.
pub(crate) fn changing<R>(call: impl FnOnce() -> R) -> R {
    if borrowed_memory() {
        return call();
    }
    kept(hook::user_changes);
    let ret = call();
    kept(hook::user_changed);
    ret
}
