//! Message queues of POSIX: a process is told of what comes as long as none of its threads closes a descriptor of the queue, a copy of one included.

use crate::child::borrowed_memory;
use crate::errno::kept;
use crate::real::hook;
use bypath_sockets::hook;
use libc::{c_int, mqd_t, sigevent};

hook! {
    /// `mq_notify()`. Without an event it takes back what was asked for.
    fn mq_notify(queue: mqd_t, event: *const sigevent) -> c_int, raw None;
    only !event.is_null(); {
        asking();
        real(queue, event)
    }
}

/// Before the call, or the system call.
pub(crate) fn asking() {
    if !borrowed_memory() {
        kept(hook::notification_begin);
    }
}
