//! A seccomp filter is about to be installed. It is written for the program's own calls; those that rings need beside
//! them may be answered by an error or by the process's death. So while everything is still allowed every connection
//! goes back to the kernel, and after that nothing is followed any more: the process makes its own calls only.

use crate::table::{self, Entry};
use crate::thread::Call;
use crate::{epoll, flush, foreign, fork, home, rendezvous, service, state, thread, udp};
use bypath_shm::family::wpath;
use bypath_shm::reason::Reason;
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::{clock, page};
use std::sync::atomic::Ordering::*;

/// Longest wait for carriers without room for what was taken back.
const FLUSH_NS: u64 = 2_000_000_000;
/// Longest wait for threads that sleep on rings.
const THREADS_NS: u64 = 100_000_000;

/// Takes everything back and follows nothing from now on. A carrier that has no room even after [`FLUSH_NS`] keeps the
/// process as it is, with every connection on the kernel path: bytes that are only here must not be forgotten.
#[cold]
pub fn seal() {
    if state::is_borrowed() || state::is_sealed() {
        return;
    }
    if state::get().is_some() {
        home::go(Reason::Seccomp, Reason::RecalledSeccomp, home::PATIENCE_NS);
        if !flushed() {
            return;
        }
    }
    let Some(_life) = state::LIFE.lock(table::tid()) else { return };
    state::seal();
    service::leave();
    udp::leave();
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
        // Behind a filter it is not seen to become another user.
        fork::let_go_of_parents();
    }
    page::seal();
}

/// Whether every byte that was in a ring is in its carrier.
fn flushed() -> bool {
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
            flush::recall_outgoing(s, conn, Reason::RecalledSeccomp, &call);
        }
    }
}
