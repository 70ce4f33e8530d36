//! A process that is not followed any more: while everything is as before every connection goes back to the kernel, and
//! after that the process makes its own calls only.
//!
//! One reason is a seccomp filter that is about to be installed. It is written for the program's own calls; those that rings
//! need beside them may be answered by an error or by the process's death. The other one are descriptors of which the table here
//! would not be true: what one thread closes and opens means nothing for the others, or another process does it unseen.

use crate::table::{self, Entry, Sock};
use crate::thread::{Busy, Call};
use crate::{cut, epoll, flush, foreign, fork, home, rendezvous, service, state, thread, udp};
use bypath_shm::reason::Reason;
use bypath_sys::{clock, futex, page, process, sock};
use std::sync::atomic::{AtomicU32, Ordering::*};

/// Longest wait for threads that sleep on rings.
const THREADS_NS: u64 = 100_000_000;
/// Longest wait for another thread that seals, and for those that wait so to have a processor.
const SEALER_NS: u64 = 30_000_000_000;
const WAITERS_NS: u64 = 2_000_000_000;
/// Who waits for another thread that seals looks again so often.
const LOOKS_NS: u64 = 10_000_000;

/// The thread that seals; [`DONE`] once there is nothing left to do.
static SEALER: AtomicU32 = AtomicU32::new(0);
/// How many others wait for that.
static WAITERS: AtomicU32 = AtomicU32::new(0);
/// No thread has this id.
const DONE: u32 = u32::MAX;

/// The calling thread is about to get a descriptor table of its own, which in a process with one thread is the only one.
#[cold]
pub fn unshare_begin() {
    if state::is_sealed() {
        wait_for_end();
    } else if !state::is_borrowed() && process::threads() != Some(1) {
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
    let Some(busy) = begun() else { return };
    if state::is_sealed() {
        return wait_for_sealer(busy);
    }
    if state::get().is_some() {
        home::go(hindrance, recalled, home::PATIENCE_NS);
        if !flushed(recalled) {
            return;
        }
    }
    {
        let Some(_life) = state::LIFE.lock_past(table::tid()) else { return };
        if state::is_sealed() {
            drop(_life);
            return wait_for_sealer(busy);
        }
        SEALER.store(table::tid(), SeqCst);
        state::seal();
        service::leave();
        udp::leave(hindrance);
        if state::get().is_some() {
            table::each_sock(|s| {
                s.count_reason();
                rendezvous::abandon(s);
            });
            epoll::leave();
            forget_all();
        }
    }
    // Who waits for what is free now has begun before, and goes on with it.
    thread::turn_out(THREADS_NS);
    if let Some(_life) = state::LIFE.lock_past(table::tid())
        && state::get().is_some()
    {
        // What was made meanwhile, by who had looked before.
        forget_all();
        epoll::take_bells();
        // From here on it is not seen to become another user.
        fork::let_go_of_parents();
    }
    page::seal();
    SEALER.store(DONE, SeqCst);
    futex::wake(&SEALER, u32::MAX);
    // Those that wait for this have seen it. (A handler may have left one of them by longjmp.)
    let until = clock::monotonic_ns() + WAITERS_NS;
    while WAITERS.load(SeqCst) != 0 && clock::monotonic_ns() < until {
        futex::wait(&AtomicU32::new(0), 0, 100_000);
    }
}

/// Whether [`seal`] waits for no thread any more.
pub fn is_done() -> bool {
    SEALER.load(SeqCst) == DONE
}

/// Of a call on `s` that was woken as nothing is followed any more, whether `fd` still means that: another thread may have closed it, and opened something. `None`: there is no telling,
/// as who seals waits for the calling thread no more, and may have a filter.
#[cold]
pub fn still(fd: i32, s: &Sock) -> Option<bool> {
    let cookie = || sock::option_u64(fd, libc::SOL_SOCKET, libc::SO_COOKIE);
    (state::is_sealed() && !is_done()).then(|| cookie() == Ok(s.end().cookie.load(Relaxed)))
}

/// As [`seal`] in a process that is not followed any more.
#[inline]
pub fn wait_for_end() {
    if SEALER.load(Acquire) != DONE
        && let Some(busy) = begun()
    {
        wait_for_sealer(busy);
    }
}

/// The calling thread is busy before it asks the kernel whose memory this is: who seals waits for it. `None`: another process's, or there is nothing left to do.
fn begun() -> Option<Busy> {
    // A vfork child is none of the parent's threads.
    if is_done() || state::SHARERS.load(Relaxed) != 0 && state::is_memory_of_another() {
        return None;
    }
    let busy = Busy::begin();
    (!is_done() && !state::is_memory_of_another()).then_some(busy)
}

/// Another thread seals, or has: when this returns there is nothing left to do. `busy`: the calling thread has not looked like one that has left.
fn wait_for_sealer(busy: Busy) {
    WAITERS.fetch_add(1, SeqCst);
    drop(busy);
    let (mut until, mut rounds) = (clock::monotonic_ns() + SEALER_NS, thread::rounds());
    loop {
        let sealer = SEALER.load(SeqCst);
        let now = thread::rounds();
        if now != rounds {
            rounds = now;
            until = clock::monotonic_ns() + SEALER_NS;
        }
        // A handler may have interrupted it, or taken it elsewhere by longjmp.
        if sealer == DONE || sealer == table::tid() || clock::monotonic_ns() > until {
            break;
        }
        futex::wait(&SEALER, sealer, LOOKS_NS);
    }
    WAITERS.fetch_sub(1, SeqCst);
}

/// In a child that was forked when its parent had begun to seal, or had done so.
pub fn enter_child() {
    state::LIFE.reset();
    WAITERS.store(0, Relaxed);
    if SEALER.load(Relaxed) != DONE {
        forget_all();
        page::seal();
        SEALER.store(DONE, Relaxed);
    }
}

/// Nothing is followed.
fn forget_all() {
    table::each(|fd, entry| {
        table::remove(fd);
        if let Entry::Sock(s) = entry {
            // The record stays: threads may be looking at it.
            s.registrations.store(0, Relaxed);
        }
    });
    foreign::forget();
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
