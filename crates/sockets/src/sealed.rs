//! A process that is not followed any more: while everything is as before every connection goes back to the kernel, and
//! after that the process makes its own calls only.
//!
//! One reason is a seccomp filter that is about to be installed. It is written for the program's own calls; those that rings
//! need beside them may be answered by an error or by the process's death. The other one are descriptors of which the table here
//! would not be true: what one thread closes and opens means nothing for the others, or another process does it unseen.

use crate::table::{self, Entry};
use crate::thread::Call;
use crate::{cut, epoll, flush, foreign, fork, home, rendezvous, service, state, thread, udp};
use bypath_shm::reason::Reason;
use bypath_sys::{page, process};
use std::sync::atomic::Ordering::*;

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

/// Takes everything back and follows nothing from now on. A connection whose carrier has no room, and gets none within two seconds, is reset: followed
/// on, it would be the death of the process at the next call of this library, or mean another socket by its number.
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

/// Every byte that was in a ring is in its carrier, or lost with its connection, which is reset: so are those of a writer that was killed. False if this thread can do nothing about it.
fn flushed(recalled: Reason) -> bool {
    let Some(call) = Call::enter() else { return false };
    table::each_sock(|s| {
        if let Some(conn) = s.conn.get() {
            flush::empty_ring(s, conn, recalled, &call);
        }
    });
    flush::wait_for_carriers(|_| true, recalled, &call);
    table::each_sock(|s| {
        flush::give_up(s, &call);
        if let Some(conn) = s.conn.get() {
            // What lies in its ring alone nobody reads any more.
            cut::off(s, conn, &call);
        }
    });
    true
}
