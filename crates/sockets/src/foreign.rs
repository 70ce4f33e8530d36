//! Before a thread blocks in a read of a descriptor that is not followed: ring bytes of ours that the other end
//! shows no sign of reading, or asked to get through the carrier, must not wait until this process makes another
//! call on that connection. Their reader may have become a program that only knows the carrier.

use crate::fault;
use crate::flush;
use crate::others;
use crate::state;
use crate::switch;
use crate::table::{self, Sock};
use crate::thread::{Busy, Call};
use crate::wait::{self, QUIET_NS, STALL_NS};
use bypath_shm::direction::{Head, ask, wait as words};
use bypath_shm::family::wpath;
use bypath_shm::reason::Reason;
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::{Errno, fd, sock};
use std::sync::atomic::{AtomicBool, Ordering::*};

/// Some end may have bytes in its outgoing ring.
static DIRTY: AtomicBool = AtomicBool::new(false);

/// Bytes were published.
#[inline]
pub fn published() {
    if !DIRTY.load(Relaxed) {
        DIRTY.store(true, Relaxed);
    }
}

/// Whether [`before_read`] has anything to look at: one load.
#[inline]
pub fn is_due() -> bool {
    DIRTY.load(Relaxed) && !state::is_sealed()
}

/// Nothing is followed any more.
pub fn forget() {
    DIRTY.store(false, SeqCst);
}

fn unread(s: &'static Sock) -> Option<(u64, bool)> {
    let conn = s.conn.get()?;
    if s.end().w.path.load(Acquire) != wpath::RING {
        return None;
    }
    let head = conn.out().h.head.load(Acquire);
    let asked = conn.out().ra.ask.load(Relaxed) & (ask::RECALL | ask::CLOSED) != 0;
    let left = Head::from_raw(head).position() != s.end().w.tail.load(Relaxed);
    // Whoever sleeps with a wait word has been rung: it reads in a moment.
    (asked || left && !words::any(&conn.out().ra.wait)).then_some((head, asked))
}

/// Waits until `number` can be read or there is no such byte left. `Err` = a handler ran and the read is not to be
/// restarted.
///
/// # Errors
/// EINTR; EBADF: another thread has closed it meanwhile, and it may be another file.
#[cold]
pub fn before_read(number: i32, flags: i32) -> Result<(), Errno> {
    let busy = Busy::begin();
    if !is_due() || flags & libc::MSG_DONTWAIT != 0 || bypath_sys::poll::now(number, libc::POLLIN) != 0 {
        return Ok(());
    }
    if fd::status_flags(number).is_ok_and(|f| f & libc::O_NONBLOCK != 0)
        || sock::option_time(number, libc::SO_RCVTIMEO).is_ok_and(|t| t != 0)
    {
        return Ok(());
    }
    let file = fd::identity(number);
    // The other ends' memory may be slow, and they have the last word on how long this takes.
    let is_it = || if fd::identity(number) == file { Ok(()) } else { Err(Errno::BADF) };
    let Some(call) = Call::enter() else { return Ok(()) };
    drop(busy);
    let Ok((bell, bell_fd)) = call.thread.ensure_bell() else { return Ok(()) };
    let _nest = call.thread.sleeping();
    let mut stall = STALL_NS;
    loop {
        switch::attend();
        // At most a handful at a time; the rest in the next round.
        let mut waiting = [None; 16];
        let mut n = 0;
        DIRTY.store(false, SeqCst);
        table::each_sock(|s| {
            if let Some((head, asked)) = unread(s)
                && n < waiting.len()
            {
                waiting[n] = Some((s, head, asked));
                n += 1;
            }
        });
        let flushing = flush::flushes_pending();
        fault::between("foreign-looked");
        if n == 0 && !flushing {
            return is_it();
        }
        let period = if flushing { flush::FLUSH_PERIOD_NS } else { stall };
        DIRTY.store(true, Relaxed);
        if call.thread.rung.swap(false, Relaxed) {
            others::silence(bell_fd);
        }
        wait::announce(bell, call.thread.next_ticket());
        let mut fds = [
            PollFd { fd: number, events: libc::POLLIN, revents: 0 },
            PollFd { fd: bell_fd, events: libc::POLLIN, revents: 0 },
        ];
        let result = call.parked(|| ppoll(&mut fds, Some(period), 0));
        if flushing {
            flush::drive_flushes(&call);
        }
        wait::retract(bell, call.thread);
        if fds[1].revents != 0 {
            call.thread.rung.store(true, Relaxed);
        }
        match result {
            Err(Errno::INTR) if !crate::signals::restarts(call.thread, false) => return Err(Errno::INTR),
            Ok(n) if n > 0 && fds[0].revents != 0 => return is_it(),
            Ok(0) => {
                for (s, head, _) in waiting.iter().flatten() {
                    if let Some(conn) = s.conn.get()
                        && unread(s).is_some_and(|(now, _)| now == *head)
                    {
                        flush::recall_outgoing(s, conn, Reason::RecalledStalledReader, &call);
                    }
                }
                stall = QUIET_NS;
            }
            _ => {}
        }
    }
}
