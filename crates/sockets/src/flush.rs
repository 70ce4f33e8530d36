//! Taking the outgoing direction back: the claim, and the flush, which sends what is left in the ring again through the
//! carrier.

use crate::carrier;
use crate::config::LogLevel;
use crate::peer::Conn;
use crate::state;
use crate::switch;
use crate::table::{self, Entry, Sock};
use crate::thread::Call;
use crate::wlock::WriteLock;
use crate::{epoll, fault, log, whose};
use bypath_shm::direction::{Head, position, writer_flag};
use bypath_shm::family::wpath;
use bypath_shm::reason::Reason;
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::{Errno, clock, sock};
use std::sync::atomic::{AtomicBool, Ordering::*};

/// A direction that was taken back `n` times is not upgraded again before this many bytes times 2^n (n up to 8).
const BACK_OFF_BYTES: u64 = 64 * 1024;
/// A full ring is given up 2^n times later where that was in vain before.
pub const MOST_PARDONS: u32 = 4;

/// W takes its direction back: freezes R's position and re-sends what was not consumed. Waits for the writer's
/// lock.
pub fn recall_outgoing(s: &'static Sock, conn: &'static Conn, reason: Reason, call: &Call) {
    if s.end().w.path.load(Acquire) == wpath::KERNEL {
        return;
    }
    let Some(lock) = WriteLock::take(s, call) else { return };
    claim(s, conn, reason, &lock);
    lock.unlock();
}

/// As [`recall_outgoing`], where the carrier must have all bytes at once: others write to it next, or nobody of this
/// image will be there to go on with a flush that has to wait for room.
pub fn empty_ring(s: &'static Sock, conn: &'static Conn, reason: Reason, call: &Call) {
    recall_outgoing(s, conn, reason, call);
    if s.end().w.path.load(Acquire) != wpath::FLUSH {
        return;
    }
    let carrier = carrier::of(s);
    let restore = carrier.widen(s, 2 * conn.tx.size());
    recall_outgoing(s, conn, reason, call);
    if let Some(mut size) = restore {
        // As often as it helps; what says so is shared with siblings.
        for _ in 0..STEPS + conn.tx.size() / STEP {
            let at = s.end().w.flush.load(Relaxed);
            if s.end().w.path.load(Acquire) != wpath::FLUSH || !carrier.press(s, &mut size) {
                break;
            }
            recall_outgoing(s, conn, reason, call);
            if s.end().w.flush.load(Relaxed) == at {
                break;
            }
        }
        carrier.narrow(s, size);
    }
}

/// A carrier that is pressed ([`carrier::Backend::press`]) takes at least so much at once, but for a remainder now and then.
const STEP: u64 = 4096;
/// Steps beside those.
const STEPS: u64 = 16;

/// As [`empty_ring`], where somebody else writes to the carrier next, or nobody of this process will: one that cannot take
/// all bytes at once is given some time.
pub fn empty_ring_for_others(s: &'static Sock, conn: &'static Conn, reason: Reason, call: &Call) {
    empty_ring(s, conn, reason, call);
    let until = clock::monotonic_ns() + FLUSH_FOR_OTHERS_NS;
    while s.end().w.path.load(Acquire) == wpath::FLUSH && clock::monotonic_ns() < until {
        if state::is_borrowed() && !has_carrier(s) {
            // Only the process whose memory this is can go on with it.
            break;
        }
        let mut one = [PollFd { fd: s.carrier(), events: libc::POLLOUT, revents: 0 }];
        let _ = ppoll(&mut one, Some(50_000_000), 0);
        if one[0].revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0 {
            break;
        }
        recall_outgoing(s, conn, reason, call);
    }
}

/// Waits for the carriers of what `whose` names that could not take all bytes at once ([`empty_ring`]): for all of them together as long
/// as [`empty_ring_for_others`] waits for one, so that the ends of some which nobody reads do not keep the others' from what is theirs.
pub fn wait_for_carriers(whose: impl Fn(i32) -> bool, reason: Reason, call: &Call) {
    let until = clock::monotonic_ns() + FLUSH_FOR_OTHERS_NS;
    loop {
        // Asked before: one round may take long, and who got room meanwhile is seen by the last one.
        let is_last = clock::monotonic_ns() >= until;
        let mut full = [PollFd { fd: -1, events: libc::POLLOUT, revents: 0 }; CARRIERS];
        let mut count = 0;
        table::each(|number, entry| {
            if let Entry::Sock(s) = entry
                && s.end().w.path.load(Acquire) == wpath::FLUSH
                && whose(number)
                && let Some(conn) = s.conn.get()
                // Only the process whose memory this is can go on with what a borrower has not.
                && (!state::is_borrowed() || has_carrier(s))
            {
                recall_outgoing(s, conn, reason, call);
                if count < CARRIERS && s.end().w.path.load(Acquire) == wpath::FLUSH {
                    full[count].fd = s.carrier();
                    count += 1;
                }
            }
        });
        if count == 0 || is_last {
            return;
        }
        // More than these have their turn when this is over.
        let _ = ppoll(&mut full[..count], Some(20_000_000), 0);
    }
}

/// So many carriers without room are waited for at once.
const CARRIERS: usize = 64;

/// Longest wait for a carrier to take what others are to write behind.
const FLUSH_FOR_OTHERS_NS: u64 = 2_000_000_000;

/// Before the FIN of a shutdown: what is still in the ring then, as the carrier cannot be made to take it, stays there for
/// the reader, who finds the flush unfinished when the carrier ends ([`switch::inherit`]). This end is on the kernel.
pub fn leave_rest(s: &'static Sock, call: &Call) {
    let w = &s.end().w;
    if w.path.load(Acquire) != wpath::FLUSH {
        return;
    }
    let Some(lock) = WriteLock::take(s, call) else { return };
    if w.path.load(Acquire) == wpath::FLUSH {
        w.path.store(wpath::KERNEL, Release);
        epoll::path_changed(s);
    }
    lock.unlock();
}

/// Nobody will be there to go on with a flush for which the carrier has no room: the connection is reset, so that nobody takes what has come for
/// all. Whoever has the ring may read the rest of it there.
#[cold]
pub fn give_up(s: &'static Sock, call: &Call) {
    let w = &s.end().w;
    if w.path.load(Acquire) == wpath::KERNEL {
        return;
    }
    let lock = WriteLock::take(s, call);
    if w.path.load(Acquire) != wpath::KERNEL {
        w.path.store(wpath::KERNEL, Release);
        let carrier = carrier::of(s);
        if !carrier.dissolve(s) {
            carrier.reset(s);
        }
        s.keep_on_kernel(Reason::SmallBuffer);
        if let Some(stats) = state::get().and_then(|s| s.own().stats.get()) {
            stats.recalled[Reason::SmallBuffer as usize].fetch_add(1, Relaxed);
        }
        log::line(
            LogLevel::Error,
            format_args!(
                "fd {}: nobody reads, and the kernel has no room for what was in shared memory; connection reset",
                s.carrier()
            ),
        );
        epoll::path_changed(s);
    }
    if let Some(lock) = lock {
        lock.unlock();
    }
}

/// Whether the reader may still want bytes of the ring although this end is on the kernel.
pub fn has_left_rest(conn: &Conn) -> bool {
    conn.out().wa.flags.load(Acquire) & writer_flag::FLUSHING != 0
}

/// The direction stays on the kernel for a while. Under the writer's lock.
pub fn rest(s: &Sock) {
    let w = &s.end().w;
    w.not_before.store(w.kernel_bytes.load(Relaxed).saturating_add(BACK_OFF_BYTES), Relaxed);
}

/// As [`recall_outgoing`], under the writer's lock.
pub fn claim(s: &'static Sock, conn: &'static Conn, reason: Reason, lock: &WriteLock) {
    let end = s.end();
    if end.w.path.load(Acquire) == wpath::RING {
        conn.out().wa.flags.fetch_or(writer_flag::FLUSHING, AcqRel);
        match conn.out().claim() {
            Ok(position) => {
                fault::point("claimed");
                end.w.flush.store(position, Relaxed);
                // Decided here, under the lock: of several threads that see the end one is the first.
                if position != end.w.tail.load(Relaxed) && switch::peer_was_killed(s, conn) {
                    s.keep_error(libc::ECONNRESET);
                }
                end.w.path.store(wpath::FLUSH, Release);
            }
            Err(_) => {
                switch::poison(s, conn);
                return;
            }
        }
        let claims = end.w.claims.fetch_add(1, Relaxed);
        // Unless it is pardoned, the carrier's room was of use.
        s.pardons.store(s.pardons.load(Relaxed).saturating_sub(1), Relaxed);
        let sent = end.w.kernel_bytes.load(Relaxed);
        let pause = if fault::flip(1) { 0 } else { BACK_OFF_BYTES << claims.min(8) };
        end.w.not_before.store(sent.saturating_add(pause), Relaxed);
        s.set_reason(reason);
        if let Some(stats) = state::get().and_then(|s| s.own().stats.get()) {
            stats.recalled[reason as usize % stats.recalled.len()].fetch_add(1, Relaxed);
        }
        log::line(
            LogLevel::Info,
            format_args!("fd {}: outgoing bytes go through the kernel: {}", s.carrier(), reason.code()),
        );
    }
    flush(s, conn, lock);
    if end.w.path.load(Relaxed) == wpath::FLUSH {
        PENDING.store(true, Release);
        // The rest follows when the carrier has room: the kernel watches that from now on.
        epoll::path_changed(s);
    }
}

/// Some end's flush waits for room in its carrier.
static PENDING: AtomicBool = AtomicBool::new(false);

/// Whether a sleeper must wake now and then to drive flushes: the program has handed these bytes over and need not
/// make another call on their connection.
#[inline]
pub fn flushes_pending() -> bool {
    PENDING.load(Relaxed)
}

/// Drives every pending flush, without waiting.
#[cold]
pub fn drive_flushes(call: &Call) {
    PENDING.store(false, SeqCst);
    table::each_sock(|s| {
        if s.end().w.path.load(Acquire) == wpath::FLUSH
            && let Some(conn) = s.conn.get()
        {
            recall_outgoing(s, conn, Reason::RecalledRingFull, call);
            if s.end().w.path.load(Acquire) == wpath::FLUSH {
                PENDING.store(true, Release);
            }
        }
    });
}

/// A sibling may have been killed on a shared end: while it took the direction back (its flush goes on here), or before
/// it woke a reader.
pub fn finish_for_siblings(s: &'static Sock, conn: &'static Conn, call: &Call) {
    let w = &s.end().w;
    if (w.path.load(Acquire) == wpath::FLUSH || WriteLock::is_orphaned(s))
        && let Some(lock) = WriteLock::take(s, call)
    {
        flush(s, conn, &lock);
        lock.unlock();
        if w.path.load(Acquire) == wpath::FLUSH {
            PENDING.store(true, Release);
        }
    }
    let unread = Head::from_raw(conn.out().h.head.load(Acquire)).position() != w.tail.load(Relaxed);
    if w.path.load(Acquire) == wpath::RING && unread {
        switch::wake_readers(s, conn);
    }
}

/// The carrier is full, too. If the ring was given up because it was full, that did not help: the other end does not read,
/// or gets no processor, and the direction may come back as soon as it does. Under the writer's lock.
#[cold]
pub fn pardon(s: &Sock) {
    let w = &s.end().w;
    if s.end().reason() != Reason::RecalledRingFull
        || w.not_before.load(Relaxed) <= w.kernel_bytes.load(Relaxed)
    {
        return;
    }
    w.not_before.store(w.kernel_bytes.load(Relaxed), Relaxed);
    w.claims.store(w.claims.load(Relaxed).saturating_sub(1), Relaxed);
    s.pardons.store((s.pardons.load(Relaxed) + 2).min(MOST_PARDONS), Relaxed);
}

/// How long a sleeper may sleep while flushes are pending.
pub const FLUSH_PERIOD_NS: u64 = 5_000_000;

/// Whether the descriptor of the carrier is the carrier also in the calling process.
#[cold]
fn has_carrier(s: &Sock) -> bool {
    let cookie = s.end().cookie.load(Relaxed);
    sock::option_u64(s.carrier(), libc::SOL_SOCKET, libc::SO_COOKIE) == Ok(cookie)
}

/// A child that ran in this memory goes its own way: what it left to do is done.
pub fn finish_for_child() {
    if flushes_pending()
        && let Some(call) = Call::enter()
    {
        drive_flushes(&call);
    }
}

/// Continues a flush: re-sends ring bytes through the carrier, without waiting. Holds the writer's lock.
pub fn flush(s: &'static Sock, conn: &'static Conn, _lock: &WriteLock) {
    let end = s.end();
    let w = &end.w;
    if w.path.load(Acquire) != wpath::FLUSH {
        return;
    }
    let carrier = carrier::of(s);
    // Cut to what positions are: others of the family write these words, too, and the loop ends where both are equal.
    let tail = position::onward(w.tail.load(Relaxed), 0);
    if conn.out().t.tail.load(Relaxed) != tail {
        switch::poison(s, conn);
        return;
    }
    let mut at = position::onward(w.flush.load(Relaxed), 0);
    if at != tail && state::is_borrowed() && !has_carrier(s) {
        // A vfork child that closed it, or put something else in its place: our process goes on with this when it runs.
        PENDING.store(true, Release);
        return;
    }
    if at != tail && bypath_sys::poll::now(s.carrier(), 0) & (libc::POLLERR | libc::POLLHUP) != 0 {
        // A dead connection: the bytes are lost as unsent data is, and the error stays for the program to see.
        at = tail;
        if let Some(errno) = carrier.lost(s, None) {
            s.keep_error(errno);
        }
    }
    if at != tail && whose::is_elsewhere(s) {
        // To whom it leads nothing of this was said.
        at = tail;
    }
    let urged = at != tail && carrier.urge(s);
    while at != tail {
        let left = position::distance(at, tail);
        if left > conn.tx.size() {
            switch::poison(s, conn);
            return;
        }
        if !table::still(s.carrier(), s) {
            // Closed meanwhile by another thread: what is left is nobody's.
            return;
        }
        let sent = conn.tx.with_pieces(at, left as usize, |v| {
            sock::send(s.carrier(), v, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
        });
        match sent {
            Ok(n) => {
                at = position::onward(at, n as u64);
                w.flush.store(at, Relaxed);
                w.kernel_bytes.fetch_add(n as u64, Relaxed);
                w.not_before.fetch_add(n as u64, Relaxed);
                fault::point("mid-flush");
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                if urged {
                    carrier.relax(s);
                }
                return;
            }
            Err(e) => {
                // The connection is dead, and so are these bytes, as unsent data of a reset connection are. The
                // error was the program's to see.
                if let Some(errno) = carrier.lost(s, Some(e.raw_os_error())) {
                    s.keep_error(errno);
                }
                break;
            }
        }
    }
    if urged {
        carrier.relax(s);
    }
    conn.out().wa.flags.fetch_and(!writer_flag::FLUSHING, AcqRel);
    w.path.store(wpath::KERNEL, Release);
    epoll::path_changed(s);
}
