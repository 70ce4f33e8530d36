//! A process that is not followed any more: while everything is as before every connection goes back to the kernel, and
//! after that the process makes its own calls only.
//!
//! One reason is a seccomp filter that is about to be installed. It is written for the program's own calls; those that rings
//! need beside them may be answered by an error or by the process's death. The other one are descriptors of which the table here
//! would not be true: what one thread closes and opens means nothing for the others, or another process does it unseen.

use crate::table::{self, Entry};
use crate::thread::Call;
use crate::{epoll, flush, foreign, fork, home, rendezvous, service, state, thread, udp};
use bypath_shm::family::wpath;
use bypath_shm::reason::Reason;
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::{clock, page, process};
use std::sync::atomic::Ordering::*;

/// Longest wait for carriers without room for what was taken back.
const FLUSH_NS: u64 = 2_000_000_000;
/// Longest wait for threads that sleep on rings.
const THREADS_NS: u64 = 100_000_000;

/// The calling thread is about to get a descriptor table of its own, which in a process with one thread is the only one.
#[cold]
pub fn unshare_begin() {
    if !state::is_borrowed() && !state::is_sealed() && process::threads() != Some(1) {
        tables_differ();
    }
}

/// A thread with another descriptor table is about to be made, or a process with the same one.
#[cold]
pub fn tables_differ() {
    let (hindrance, recalled) = (Reason::DescriptorTables, Reason::RecalledTables);
    if !service::is_active() {
        seal(hindrance, recalled);
    } else if !state::is_borrowed() {
        // A service's sockets have no kernel's to go home to: they are followed on, by their numbers.
        home::go(hindrance, recalled, home::PATIENCE_NS);
    }
}

/// Takes everything back and follows nothing from now on. A carrier that has no room even after [`FLUSH_NS`] keeps the
/// process as it is, with every connection on the kernel path: bytes that are only here must not be forgotten.
#[cold]
pub fn seal(hindrance: Reason, recalled: Reason) {
    if state::is_borrowed() || state::is_sealed() {
        return;
    }
    if state::get().is_some() {
        home::go(hindrance, recalled, home::PATIENCE_NS);
        if !flushed(recalled) {
            return;
        }
    }
    let Some(_life) = state::LIFE.lock_past(table::tid()) else { return };
    state::seal();
    service::leave();
    udp::leave(hindrance);
    if state::get().is_some() {
        table::each_sock(|s| {
            s.count_reason();
            rendezvous::abandon(s);
        });
        epoll::leave();
        table::each(|fd, entry| {
            table::remove(fd);
            if let Entry::Sock(s) = entry {
                // The record stays: threads may be looking at it.
                s.registrations.store(0, Relaxed);
            }
        });
        foreign::forget();
        thread::turn_out(THREADS_NS);
        epoll::take_bells();
        // From here on it is not seen to become another user.
        fork::let_go_of_parents();
    }
    page::seal();
}

/// Whether every byte that was in a ring is in its carrier.
fn flushed(recalled: Reason) -> bool {
    let until = clock::monotonic_ns().saturating_add(FLUSH_NS);
    loop {
        let mut full = None;
        table::each_sock(|s| {
            if s.end().w.path.load(Acquire) != wpath::KERNEL {
                full = Some(s);
            }
        });
        let Some(s) = full else { return true };
        if clock::monotonic_ns() > until {
            return false;
        }
        let mut one = [PollFd { fd: s.carrier(), events: libc::POLLOUT, revents: 0 }];
        let _ = ppoll(&mut one, Some(flush::FLUSH_PERIOD_NS), 0);
        if let (Some(conn), Some(call)) = (s.conn.get(), Call::enter()) {
            flush::recall_outgoing(s, conn, recalled, &call);
        }
    }
}
