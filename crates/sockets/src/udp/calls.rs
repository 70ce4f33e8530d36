//! What the hooks ask about UDP sockets of the kernel.

pub use super::receive::{RealReceive, Receiving, Taken};
pub use super::said::{MOST as MOST_SAID, Said};
pub use super::send::{RealSend, Sending, To};
pub use super::told::{TIMESTAMP_NEW, TIMESTAMPNS_NEW, Told, want};
pub use super::{LONGEST, Name, Record, is_active, of};
use crate::state;
use bypath_shm::reason::Reason;

/// FIONREAD: octets of the next datagram, if it is in a mailbox.
pub fn next_len(fd: i32) -> Option<usize> {
    of(fd)?.next_len()
}

/// Before a call on `fd` that neither knows a mailbox nor is reported: it stays on the kernel from now on.
pub fn keep(fd: i32, reason: Reason) {
    if let Some(r) = of(fd).filter(|_| !state::is_borrowed()) {
        r.keep(reason);
    }
}

/// Before others get `fd`, or a call on it is made that knows no mailbox.
pub fn recall(fd: i32, reason: Reason) {
    match reason {
        // Also of what a vfork child is about to hand on.
        Reason::RecalledScmRights | Reason::RecalledExec | Reason::RecalledSpawn => {
            if let Some(r) = of(fd) {
                r.spreads(reason);
            }
        }
        _ => keep(fd, reason),
    }
}

/// Whether nothing of the socket goes through memory: calls for many datagrams are the kernel's as a whole.
pub fn is_plain(r: &Record) -> bool {
    !r.has_mailbox() && !r.has_routes()
}
