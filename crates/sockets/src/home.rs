//! Every connection of the process goes back to the kernel for good, and none comes up any more: something has
//! happened that no single descriptor is to blame for.

use crate::config::LogLevel;
use crate::flush;
use crate::switch;
use crate::table::{self, flag};
use crate::thread::Call;
use crate::{cut, heir, log, over, state, udp};
use bypath_shm::direction::{Path, ask};
use bypath_shm::reason::Reason;
use bypath_sys::poll;
use bypath_sys::{clock, thread};
use std::sync::atomic::{Ordering::*, fence};

/// How long a call waits in all for the other ends to give their directions back.
pub const PATIENCE_NS: u64 = 50_000_000;

/// Nothing is upgraded from now on, because of `hindrance`; what was upgraded is taken back, as `reason`. Waits up to
/// `patience` ns for the other ends: whoever is late goes on through the kernel with its next call.
#[cold]
pub fn go(hindrance: Reason, reason: Reason, patience: u64) {
    state::hinder(hindrance);
    // Who begins a ring looks at the hindrance after it; who has begun one before this is seen here.
    fence(SeqCst);
    udp::keep_all(hindrance);
    let Some(call) = Call::enter() else { return };
    log::line(
        LogLevel::Info,
        format_args!("every connection of this process goes through the kernel: {}", hindrance.text()),
    );
    table::each_sock(|s| {
        // An instance of io_uring holds what is registered there, whatever is closed.
        if hindrance == Reason::IoUring {
            heir::spread(s);
        }
        // Once a sealed process is gone, others of its family that hold the socket may upgrade it.
        s.set(if hindrance == Reason::IoUring { flag::FOR_GOOD } else { flag::UNCOUNTED });
        let Some(conn) = s.conn.get() else { return s.set_reason(hindrance) };
        flush::recall_outgoing(s, conn, reason, &call);
        if s.end().reason() != reason {
            s.set_reason(hindrance);
        }
        conn.inc().withdraw_consent();
        s.end().rx_reason.store(hindrance as u16, Relaxed);
        switch::ask_recall(s, conn, ask::RECALL, reason);
    });
    let until = clock::monotonic_ns().saturating_add(patience);
    while patience > 0 && !all_incoming_back() && clock::monotonic_ns() < until {
        // An other end may be in this very process.
        switch::attend();
        thread::yield_now();
    }
    if hindrance == Reason::IoUring {
        // What is closed there, connected anew or given an option nobody sees.
        table::each_sock(|s| {
            if let Some(conn) = s.conn.get() {
                cut::off(s, conn, &call);
                over::seal(s, conn, true);
            }
        });
    }
}

/// Whether no other end that lives still writes into a ring.
fn all_incoming_back() -> bool {
    let mut back = true;
    table::each_sock(|s| {
        let out = || poll::now(s.carrier(), 0) & (libc::POLLHUP | libc::POLLERR) == 0;
        back &= s.conn.get().is_none_or(|c| c.inc().path() == Path::Kernel || !out());
    });
    back
}
