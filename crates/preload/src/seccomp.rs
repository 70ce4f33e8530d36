//! A seccomp filter that the program puts on itself: what rings need must have happened before.

use crate::errno::kept;
use crate::real::hook;
use bypath_sockets::hook;
use libc::c_int;

hook! {
    /// `prctl()`: variadic in C; four more words are what the system call takes.
    fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int, raw Some(libc::SYS_prctl);
    only option == libc::PR_SET_SECCOMP; {
        by_prctl(option, a, b);
        real(option, a, b, c, d)
    }
}

const MODE_STRICT: usize = libc::SECCOMP_MODE_STRICT as usize;
const MODE_FILTER: usize = libc::SECCOMP_MODE_FILTER as usize;

/// Before `prctl(option, mode, filter)`. Without a filter it is a question, which the kernel answers with EFAULT.
pub(crate) fn by_prctl(option: c_int, mode: usize, filter: usize) {
    if option == libc::PR_SET_SECCOMP && (mode == MODE_STRICT || mode == MODE_FILTER && filter != 0) {
        kept(hook::filter_begin);
    }
}

/// Before the system call `seccomp(operation, flags, argument)`.
pub(crate) fn by_number(operation: usize, flags: usize, argument: usize) {
    let strict = operation == libc::SECCOMP_SET_MODE_STRICT as usize && flags == 0 && argument == 0;
    if strict || operation == libc::SECCOMP_SET_MODE_FILTER as usize && argument != 0 {
        kept(hook::filter_begin);
    }
}
