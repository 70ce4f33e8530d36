//! Namespaces: what was found out in the old ones does not hold in the new ones. And descriptors of one thread alone.

use crate::errno::kept;
use crate::real::hook;
use bypath_sockets::hook;
use libc::c_int;

hook! {
    /// `unshare()`.
    fn unshare(flags: c_int) -> c_int, raw Some(libc::SYS_unshare); {
        if flags & libc::CLONE_FILES != 0 {
            kept(hook::unshare_begin);
        }
        changed(real(flags), flags & libc::CLONE_NEWPID != 0)
    }

    /// `setns()`. Without a kind the descriptor decides.
    fn setns(fd: c_int, kind: c_int) -> c_int, raw Some(libc::SYS_setns); {
        changed(real(fd, kind), kind == 0 || kind & libc::CLONE_NEWPID != 0)
    }
}

fn changed(ret: c_int, children_elsewhere: bool) -> c_int {
    if ret == 0 {
        kept(|| hook::namespaces_changed(children_elsewhere));
    }
    ret
}
