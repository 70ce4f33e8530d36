//! Receive: from the ring, or from the carrier without waiting inside it.

use super::peek::{Behind, peek_behind};
use super::{Doubt, Step, accessible, replaced, rest, take_error};
use crate::config::Profile;
use crate::hook::Moved;
use crate::peer::Conn;
use crate::promised::Lack;
use crate::state;
use crate::stay::Staying;
use crate::switch;
use crate::table::{self, Sock, flag};
use crate::thread::Call;
use crate::wait::{self, Deadline, Woken};
use crate::{
    carrier, cut, epoll, fault, foreign, guard, heir, kept, options, others, over, promised, sealed, service,
};
use bypath_shm::direction::{Head, Path, Readable, ask, position, wait as words};
use bypath_shm::family::wpath;
use bypath_shm::reason::Reason;
use bypath_sys::page::Access;
use bypath_sys::user::{UserControl, UserVec};
use bypath_sys::{Errno, sock, thread};
use std::sync::atomic::Ordering::*;

/// A look that waits.
const WAITING_PEEK: i32 = libc::MSG_PEEK | libc::MSG_WAITALL;

/// How often a non-blocking read looks again for bytes that are being taken back: 20 times at once, then for 100 ms.
const PATIENCE: u32 = 40;

/// So often others may have read what a call was about to before it tries with less, and with a single octet: an end of another user's that only says so
/// could hold it up for ever.
const FEW_LOST: u32 = 8;
const MOST_LOST: u32 = 100_000;

/// Receive on `fd`. `rest_since`: messages of the program's call
/// were received already, and it began when the thread had run so many handlers. `control`: where the kernel puts what it
/// tells beside the bytes; a ring has nothing to tell.
#[inline]
pub fn recv(
    fd: i32,
    buf: UserVec<'_>,
    flags: i32,
    rest_since: Option<u32>,
    control: Option<&mut UserControl>,
) -> Step {
    let Some(s) = table::sock(fd) else {
        if foreign::is_due()
            && let Err(e) = foreign::before_read(fd, flags)
        {
            return Step::Done(Moved::failed(e));
        }
        return Step::of_unfollowed(fd);
    };
    if s.conn.get().is_none() {
        return Step::Cold(s);
    }
    let Some(call) = Call::enter() else { return Step::NotOurs };
    let Some(conn) = s.conn.get() else { return Step::Cold(s) };
    if flags & (libc::MSG_ERRQUEUE | libc::MSG_OOB) != 0
        || flags & WAITING_PEEK == WAITING_PEEK && switch::is_settled(s, conn) && !kept::concerns(s)
    {
        // Behind a look at shared memory.
        fault::between("taken-back");
        return match s.served() {
            Some(_) => Step::Served,
            None if table::still(fd, s) => Step::NotOurs,
            None if s.is_replaced(fd) => replaced(s, rest_since.is_some()),
            None => Step::Done(Moved::failed(Errno::BADF)),
        };
    }
    let mut staying = Staying::new(&call, s);
    let mut moved = recv_warm(&call, s, conn, fd, buf, flags, rest_since, control, &mut staying);
    if (moved == Moved::octets(0) || moved.is(Errno::CONNRESET)) && s.served().is_some() {
        // What became of the connection the service knows.
        moved = service::calls::ended(fd, false).map_or(Moved::octets(0), Moved::failed);
    }
    // Of what was read its other end may have written some since, if this thread was held up by the ring's memory.
    let is_dissolved = s.is_dissolved();
    staying.end(&call, s);
    if is_dissolved {
        return Step::Done(Moved::failed(Errno::PIPE));
    }
    if moved.is(Errno::BADF) && s.is_replaced(fd) {
        return replaced(s, rest_since.is_some());
    }
    if moved.is(Errno::BADF) && sealed::still(fd, s) == Some(false) {
        return Step::Gone;
    }
    if moved.is_some() {
        guard::moved(s, false);
        heir::look(s, conn, &call, false);
        epoll::taken(s);
    }
    Step::Done(moved)
}

#[expect(clippy::too_many_arguments, reason = "one call's arguments and what it is about")]
fn recv_warm(
    call: &Call,
    s: &'static Sock,
    conn: &'static Conn,
    fd: i32,
    buf: UserVec<'_>,
    flags: i32,
    rest_since: Option<u32>,
    control: Option<&mut UserControl>,
    staying: &mut Staying,
) -> Moved {
    take(call, s, conn, fd, buf, flags, rest_since, control, staying).into()
}

#[expect(clippy::too_many_arguments, reason = "as above")]
#[inline(always)]
fn take(
    call: &Call,
    s: &'static Sock,
    conn: &'static Conn,
    mut fd: i32,
    buf: UserVec<'_>,
    flags: i32,
    rest_since: Option<u32>,
    mut control: Option<&mut UserControl>,
    staying: &mut Staying,
) -> Result<usize, Errno> {
    let want = buf.admit()?;
    let end = s.end();
    let inc = conn.inc();
    let size = conn.rx.size();
    options::look_again(s, inc.path() == Path::Kernel);
    let mut nonblocking = flags & libc::MSG_DONTWAIT != 0 || s.has(flag::NONBLOCK);
    let peek = flags & libc::MSG_PEEK != 0;
    let enough = || {
        let lowat = end.rcvlowat.load(Relaxed) as usize;
        if flags & libc::MSG_WAITALL != 0 { want } else { lowat.min(want) }.max(1)
    };
    let mut target = enough();
    if target > 1 && (peek || flags & libc::MSG_WAITALL == 0) && target as u64 > size / 2 {
        // Who was asked before, and has not been in a call since, answers before it says anything else.
        if inc.ra.ask.load(Relaxed) & ask::RECALL == 0 || !nonblocking {
            switch::recall_incoming(s, conn, Reason::RecalledWatermark);
        }
    }
    let mut timeout = end.rcvtimeo.load(Relaxed);
    let mut deadline = None;
    let mut doubt = Doubt::new();
    let mut done = 0usize;
    let mut patience = PATIENCE;
    // The time is over, or a signal came: what a MSG_PEEK with MSG_WAITALL finds now is its answer.
    let mut late = false;
    let mut looks = None;
    let mut lack = Lack::new();
    let mut lost = 0;
    switch::attend();
    if kept::concerns(s) {
        done = kept::read(call, s, buf, want, flags)?;
        if done > 0 && (done >= target || peek || nonblocking) {
            return Ok(done);
        }
    }
    if fault::flip(64) {
        switch::ask_recall(s, conn, ask::RECALL, Reason::RecalledTest);
    }
    loop {
        let mut check_carrier = false;
        let before = if peek { promised::before(s) } else { 0 };
        let mut seen = readable(call, s, conn, (want - done) as u64);
        if s.has(over::SIGNS) {
            over::bound(s, conn, &mut seen);
        }
        match seen {
            Err(_) => {
                switch::poison(s, conn);
                return if done > 0 { Ok(done) } else { Err(Errno::CONNRESET) };
            }
            Ok(Readable::Ring { head, available }) if available > 0 => {
                let mut n = available.min((want - done) as u64) as usize;
                if lost > FEW_LOST {
                    // Less takes less time.
                    n = (n >> (lost - FEW_LOST).min(20)).max(1);
                }
                if n > 0 && flags & libc::MSG_TRUNC == 0 {
                    n = accessible(call, buf, done, n, Access::Write);
                    if n == 0 {
                        return if done > 0 { Ok(done) } else { Err(Errno::FAULT) };
                    }
                    conn.rx.copy_out(head.position(), buf, done, n);
                }
                if peek {
                    let ended =
                        s.has(flag::PEER_GONE | flag::NO_READ) || end.pending_error.load(Relaxed) != 0;
                    if n >= target || nonblocking || n == want || available as usize >= want || ended || late
                    {
                        if conn.inc().h.head.load(Acquire) != head.raw() {
                            loses(&mut lost, s, conn);
                            continue;
                        }
                        promised::told(s, conn, before, n as u64);
                        return Ok(n);
                    }
                    // MSG_PEEK with MSG_WAITALL: wait for more, copy again from the start, by a fresh tail.
                    end.r.tail_cache.store(head.position(), Relaxed);
                } else {
                    fault::point("copied-out");
                    if !inc.commit(head, n as u64) {
                        loses(&mut lost, s, conn);
                        continue;
                    }
                    fault::point("committed");
                    lost = 0;
                    received(call, s, conn, head, n);
                    over::took(call, s, conn, head, n as u64);
                    done += n;
                    if done >= target || done == want {
                        return Ok(done);
                    }
                    continue;
                }
            }
            Ok(Readable::Ring { .. }) => {
                // Empty. The carrier tells of ends; look at it when there is reason to, and now and then.
                let empties = s.empty_reads.load(Relaxed);
                // Another thread's is lost now and then: that is cheaper than none.
                s.empty_reads.store(empties.wrapping_add(1), Relaxed);
                // A netstack service's end may come without its ring being taken back.
                let every = match empties {
                    0 if s.served().is_some() => 0,
                    0 => wait::BEHIND_DATA,
                    _ => wait::EACH_MS,
                };
                check_carrier = s.has(over::SIGNS | flag::FOREIGN_BYTES)
                    || end.pending_error.load(Relaxed) != 0
                    || nonblocking && (empties % 64 == 63 || wait::peer_check_due(s, every));
                if nonblocking && s.served().is_some() {
                    service::rings::looked_in_vain(conn, empties);
                }
            }
            Ok(Readable::Drain(head)) => {
                match carrier_recv(s, fd, buf, done, flags, control.as_deref_mut()) {
                    Ok(0) if want > done => {
                        end_is_seen(s, conn);
                        if switch::try_drained(s, conn, head) {
                            continue;
                        }
                        let before = Some(inc.wa.switch_k.load(Relaxed));
                        if s.has(flag::NO_READ) && patience > 0 && switch::comes_yet(s, before) {
                            if !gives_way(call, s, &mut fd, &mut patience, staying) {
                                return if done > 0 { Ok(done) } else { Err(Errno::BADF) };
                            }
                            continue;
                        }
                        // The carrier lost bytes (a reset): what follows them in the ring never arrived.
                        carrier_ended(call, s, conn, false);
                        return if done > 0 { Ok(done) } else { take_error(s).map_or(Ok(0), Err) };
                    }
                    Ok(n) => {
                        if !peek {
                            from_kernel(call, s, n);
                            inc.note_carrier_read(n as u64);
                        }
                        // Bytes may wait in the ring behind the last one of the carrier, and no wake will tell of them:
                        // neither this thread nor others that wait for the same socket.
                        let drained = switch::try_drained(s, conn, head);
                        epoll::news(s);
                        words::each(&inc.ra.wait, crate::thread::ring);
                        done += n;
                        if peek {
                            let counts = flags & libc::MSG_TRUNC != 0;
                            let shown = peek_behind(call, s, conn, head, buf, done..want, counts);
                            if nonblocking || late || shown >= target {
                                promised::told(s, conn, before, shown as u64);
                                return Ok(shown);
                            }
                            done -= n;
                            let ends = *deadline.get_or_insert_with(|| Deadline::after(timeout));
                            let waits = Behind { lack: &mut lack, looks: &mut looks, staying, ends };
                            late = !waits.for_more_than(call, s, conn, &mut fd, shown as u64)?;
                            continue;
                        }
                        // Taken back just now, the ring's bytes come by the carrier: they may have been counted for the
                        // program, and are part of the answer as well.
                        let goes_on = drained || done < want && inc.path() == Path::Kernel;
                        if !goes_on && (done >= target || nonblocking) {
                            return Ok(done);
                        }
                        // What waits in the ring belongs to the same answer.
                        continue;
                    }
                    Err(Errno::AGAIN) => {
                        if switch::try_drained(s, conn, head) {
                            // Once, if it does not lie.
                            loses(&mut lost, s, conn);
                            continue;
                        }
                    }
                    Err(e) if e == Errno::FAULT || e == Errno::INTR || e == Errno::BADF => {
                        return if done > 0 { Ok(done) } else { Err(e) };
                    }
                    Err(e) => {
                        s.set(flag::PEER_GONE);
                        over::seen(s, conn);
                        if done > 0 {
                            s.keep_error(e.raw_os_error());
                            return Ok(done);
                        }
                        if !switch::try_drained(s, conn, head) {
                            return Err(e);
                        }
                        // Ring bytes come before the error, as queued bytes do.
                        s.keep_error(e.raw_os_error());
                        continue;
                    }
                }
            }
            Ok(Readable::Kernel) => {
                if done > 0 && carrier::of(s).is_at_mark(s) {
                    return Ok(done);
                }
                // Asked before the carrier is looked at: what arrives afterwards must not be missed.
                let owed = switch::owed(s, conn);
                match carrier_recv(s, fd, buf, done, flags, control.as_deref_mut()) {
                    Ok(n) if n > 0 => {
                        if !peek {
                            from_kernel(call, s, n);
                            if s.end().w.path.load(Relaxed) == wpath::RING {
                                carrier::of(s).acknowledge(s);
                            }
                        }
                        if peek && !nonblocking && !late && done + n < target {
                            late = carrier::of(s).has_mark_within(s, want - done);
                            if !late {
                                let ends = *deadline.get_or_insert_with(|| Deadline::after(timeout));
                                let waits = Behind { lack: &mut lack, looks: &mut looks, staying, ends };
                                late = !waits.for_more_than(call, s, conn, &mut fd, (done + n) as u64)?;
                            }
                            continue;
                        }
                        done += n;
                        // The rest of what was told may be on its way, behind this part.
                        let more = !peek && done < want && switch::owed(s, conn).is_some();
                        if !more && (done >= target || peek || nonblocking) {
                            switch::consent(s, conn);
                            return Ok(done);
                        }
                        continue;
                    }
                    Err(Errno::AGAIN) => {
                        if inc.path() != Path::Kernel && !s.has(flag::EMPTIED) {
                            loses(&mut lost, s, conn);
                            continue;
                        }
                        fault::between("carrier-empty");
                        if let Some(owed) = owed
                            && (nonblocking || done > 0)
                            && patience > 0
                            && !s.has(flag::PEER_GONE)
                        {
                            // Readiness was reported from the ring: its bytes are on their way to the carrier, as soon
                            // as their writer and the kernel get a processor.
                            if switch::is_under_way(s, owed) {
                                if !gives_way(call, s, &mut fd, &mut patience, staying) {
                                    return if done > 0 { Ok(done) } else { Err(Errno::BADF) };
                                }
                            } else {
                                // They came just now, or another thread has read them.
                                patience = 0;
                            }
                            continue;
                        }
                        switch::consent(s, conn);
                        if done == 0
                            && let Some(e) = take_error(s)
                        {
                            return Err(e);
                        }
                    }
                    // So it says of a queue without octets, too, once this side has shut it down.
                    Ok(0)
                        if want > done
                            && patience > 0
                            && s.has(flag::NO_READ)
                            && !s.has(flag::EMPTIED)
                            && switch::comes_yet(s, owed) =>
                    {
                        if !gives_way(call, s, &mut fd, &mut patience, staying) {
                            return if done > 0 { Ok(done) } else { Err(Errno::BADF) };
                        }
                        continue;
                    }
                    other => {
                        let is_end =
                            matches!(other, Err(Errno::CONNRESET | Errno::NOTCONN)) && cut::is_off(conn);
                        let other = if is_end { Ok(0) } else { other };
                        match other {
                            Ok(_) if want > done && !s.has(flag::EMPTIED) && switch::inherit(s, conn) => {
                                loses(&mut lost, s, conn);
                                continue;
                            }
                            Ok(0)
                                if want > 0
                                    && done == 0
                                    && s.has(flag::EMPTIED)
                                    && switch::is_cut_short(s, conn) =>
                            {
                                return Err(Errno::CONNRESET);
                            }
                            Ok(_) if want > done => {
                                carrier_ended(call, s, conn, false);
                                over::told(s);
                            }
                            Err(Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT) => {
                                carrier_ended(call, s, conn, true)
                            }
                            _ => {}
                        }
                        if done > 0 {
                            // The program has not seen the error: its next call does.
                            if let Err(e) = other
                                && e != Errno::FAULT
                                && e != Errno::INTR
                            {
                                s.keep_error(e.raw_os_error());
                            }
                            return Ok(done);
                        }
                        if let Some(e) = take_error(s) {
                            return Err(e);
                        }
                        return other;
                    }
                }
            }
        }
        if done >= target {
            return Ok(done);
        }
        if check_carrier {
            match carrier_news(s, conn, fd, done) {
                News::None => {}
                News::Look => {
                    loses(&mut lost, s, conn);
                    continue;
                }
                News::Answer(r) => return r,
                News::Foreign => {
                    let r = carrier_recv(s, fd, buf, done, flags, control.as_deref_mut());
                    return match r {
                        Ok(n) => {
                            if !peek {
                                from_kernel(call, s, n);
                            }
                            Ok(done + n)
                        }
                        Err(_) if done > 0 => Ok(done),
                        Err(e) => Err(e),
                    };
                }
            }
        }
        if nonblocking {
            return if done > 0 { Ok(done) } else { Err(Errno::AGAIN) };
        }
        if rest_since.is_some_and(|since| since != call.thread.handlers.load(Relaxed)) {
            // It ran between two messages. (From here on one waits until the thread sleeps.)
            return if done > 0 { Ok(done) } else { Err(Errno::INTR) };
        }
        let ends = *deadline.get_or_insert_with(|| Deadline::after(timeout));
        let need = if peek { target } else { target - done }.min(size as usize / 2) as u64;
        // What is too little for a MSG_PEEK stays, and ends no sleep.
        let shown = match seen {
            Ok(Readable::Ring { available, .. }) => available,
            _ => 0,
        };
        let need = need.max(shown + 1);
        let path = match seen {
            Ok(Readable::Ring { .. }) => Path::Ring,
            Ok(Readable::Drain(_)) => Path::Drain,
            _ => Path::Kernel,
        };
        if shown > 0 && peek && s.has(flag::FOREIGN_BYTES) {
            // The carrier has some, too, which the kernel would tell of at once.
            let waits = Behind { lack: &mut lack, looks: &mut looks, staying, ends };
            late = !waits.for_more_than(call, s, conn, &mut fd, shown)?;
            continue;
        }
        let until = doubt.bound(ends);
        let Some(until) = lack.bound(s, conn, shown, until) else {
            let reset = taken_away(s, conn);
            return if done > 0 { Ok(done) } else { Err(reset) };
        };
        let wait = || wait::readable(call, s, conn, path, need, until);
        let (woken, goes_on) = staying.sleep(call, s, fd, wait);
        let Some(now) = goes_on else {
            if matches!(woken, Woken::Interrupted)
                && (done > 0 || !crate::signals::restarts(call.thread, timeout != 0))
            {
                return if done > 0 { Ok(done) } else { Err(Errno::INTR) };
            }
            return if done > 0 { Ok(done) } else { Err(Errno::BADF) };
        };
        // Of a number that is another file's by now the kernel tells what that has.
        let is_other = std::mem::replace(&mut fd, now) != now;
        match woken {
            Woken::Look => {}
            Woken::Carrier(_) if is_other => {}
            Woken::Carrier(events) => {
                if matches!(seen, Ok(Readable::Ring { head, .. }) if inc.h.head.load(Acquire) == head.raw()) {
                    if events & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0 {
                        let reset = events & (libc::POLLHUP | libc::POLLERR) != 0;
                        switch::peer_ended(s, conn, reset, call);
                        s.set(flag::PEER_GONE);
                        over::seen(s, conn);
                    } else if events & libc::POLLIN != 0 {
                        s.set(flag::FOREIGN_BYTES);
                    }
                }
            }
            Woken::TimedOut if doubt.is_settled(s, ends) => {
                nonblocking |= s.has(flag::NONBLOCK);
                target = enough();
                let now = end.rcvtimeo.load(Relaxed);
                if std::mem::replace(&mut timeout, now) != now {
                    deadline = None;
                }
            }
            Woken::TimedOut if lack.is_there() && ends.left() != Some(0) => {}
            // What was looked at is the answer: once more, as another thread may have read it meanwhile.
            Woken::TimedOut | Woken::Interrupted
                if peek && !late && shown > 0 && !call.thread.is_cancelled() =>
            {
                late = true;
            }
            Woken::TimedOut => return if done > 0 { Ok(done) } else { Err(Errno::AGAIN) },
            Woken::Interrupted => {
                // A thread that is to end does so in here, whatever it has moved.
                if done > 0 && !call.thread.is_cancelled() {
                    return Ok(done);
                }
                if rest_since.is_some() || !crate::signals::restarts(call.thread, timeout != 0) {
                    return Err(Errno::INTR);
                }
            }
        }
    }
}

/// Octets that were told are on their way, as soon as their writer and the kernel get a processor. False: another thread has closed `fd`.
fn gives_way(call: &Call, s: &'static Sock, fd: &mut i32, patience: &mut u32, staying: &mut Staying) -> bool {
    *patience -= 1;
    let (goes, now) = staying.sleep(call, s, *fd, || wait::for_flush(call, s, *patience < PATIENCE - 20));
    if !goes {
        *patience = 0;
    }
    now.inspect(|now| *fd = *now).is_some()
}

/// Something was not what it looked like, as others have read what a call was about to, or say so.
#[cold]
fn loses(lost: &mut u32, s: &'static Sock, conn: &'static Conn) {
    *lost += 1;
    if *lost > MOST_LOST && promised::is_doubted(conn) {
        switch::poison(s, conn);
    }
}

/// What was told to be there was taken away by who wrote it, or never there.
#[cold]
pub fn taken_away(s: &'static Sock, conn: &'static Conn) -> Errno {
    switch::poison(s, conn);
    Errno::CONNRESET
}

/// What there is to read, by the cached tail where that suffices: the writer's line is left alone.
#[inline]
fn readable(
    call: &Call,
    s: &'static Sock,
    conn: &'static Conn,
    want: u64,
) -> Result<Readable, bypath_shm::direction::Poisoned> {
    let inc = conn.inc();
    let cache = &s.end().r.tail_cache;
    let head = Head::from_raw(inc.h.head.load(Acquire));
    if head.path() == Path::Ring {
        let available = position::distance(head.position(), cache.load(Relaxed));
        if available != 0 && available >= want && available <= conn.rx.size() {
            return Ok(Readable::Ring { head, available });
        }
    }
    let streaming = !s.sent_last.load(Relaxed);
    if streaming {
        pause(call);
    }
    let fresh = inc.readable(conn.rx.size());
    if let Ok(Readable::Ring { head, available }) = fresh {
        cache.store(position::onward(head.position(), available), Relaxed);
        if available > 0 {
            s.empty_reads.store(0, Relaxed);
        }
        if streaming {
            pace(call, available);
        }
    }
    fresh
}

/// Ticks that one unit of pace stands for.
const PACE_TICKS: u64 = 32;

/// Stream mode (this end only receives): looks at the writer's line are spaced, so that it can fill more than one
/// message between two of them; otherwise every look takes the line away from it.
#[inline]
fn pause(call: &Call) {
    let pace = u64::from(call.thread.pace.load(Relaxed));
    if pace > 2 {
        let until = bypath_sys::clock::ticks() + pace * PACE_TICKS;
        while bypath_sys::clock::ticks() < until {
            std::hint::spin_loop();
        }
    }
}

/// Adapts the pace to what a look found: little, look less often; much or nothing, more often.
#[inline]
fn pace(call: &Call, available: u64) {
    let pace = &call.thread.pace;
    let now = pace.load(Relaxed);
    if available == 0 || available > 8192 {
        pace.store((now / 2).max(2), Relaxed);
    } else if available < 2048 && state::config().is_some_and(|c| c.profile != Profile::Latency) {
        pace.store((now * 2).min(128), Relaxed);
    }
}

/// After a commit: counts, and wakes a writer that waits for space.
#[inline]
pub fn received(call: &Call, s: &'static Sock, conn: &'static Conn, head: Head, n: usize) {
    let end = s.end();
    if others::any() || table::has_relatives() {
        // What is promised is told by it, and others may count beside this process.
        end.r.ring_bytes.fetch_add(n as u64, Relaxed);
    } else {
        end.r.ring_bytes.store(end.r.ring_bytes.load(Relaxed).wrapping_add(n as u64), Relaxed);
    }
    s.sent_last.store(false, Relaxed);
    call.thread.count(|b| &b.ring_rx, n as u64);
    fault::slow(true);
    let inc = conn.inc();
    let cpu = thread::cpu();
    if inc.h.cpu.load(Relaxed) != cpu {
        inc.h.cpu.store(cpu, Relaxed);
    }
    switch::look_fence();
    if words::any(&inc.wa.wait) {
        let size = conn.rx.size();
        let used = position::distance(head.position() + n as u64, inc.t.tail.load(Acquire));
        if used <= size - size / 4 {
            switch::wake_writers(conn);
        }
    }
}

pub fn from_kernel(call: &Call, s: &Sock, n: usize) {
    s.end().r.kernel_bytes.fetch_add(n as u64, Relaxed);
    super::count_by_carrier(call, s, false, n as u64);
}

fn carrier_recv(
    s: &'static Sock,
    fd: i32,
    buf: UserVec<'_>,
    skip: usize,
    flags: i32,
    control: Option<&mut UserControl>,
) -> Result<usize, Errno> {
    // Closed meanwhile by another thread, and the number may be another connection's.
    if !table::still(fd, s) {
        return Err(Errno::BADF);
    }
    let flags = flags & !libc::MSG_WAITALL | libc::MSG_DONTWAIT;
    if flags & libc::MSG_TRUNC != 0 && s.served().is_some() {
        // As of TCP: they are counted, and the program's memory stays as it is.
        return sock::count(fd, buf.admit()?.saturating_sub(skip), flags & !libc::MSG_TRUNC);
    }
    rest(buf, skip, |v| match control {
        Some(control) => sock::recv_with(fd, v, flags, control),
        None => sock::recv(fd, v, flags),
    })
}

/// A read of the carrier found nothing, which is its end, but where this side has shut it down.
#[cold]
fn end_is_seen(s: &'static Sock, conn: &'static Conn) {
    if !s.has(flag::NO_READ) || carrier::of(s).has_finished(s) {
        s.set(flag::PEER_GONE);
        over::seen(s, conn);
    }
}

/// A read of the carrier reported its end: bytes of ours that wait in the outgoing ring must meet the kernel's answer
/// before the program hears of it.
#[cold]
fn carrier_ended(call: &Call, s: &'static Sock, conn: &'static Conn, reset: bool) {
    if !s.has(flag::NO_READ) {
        switch::peer_ended(s, conn, reset, call);
    }
}

enum News {
    None,
    Look,
    Foreign,
    Answer(Result<usize, Errno>),
}

/// The ring is empty: what does the carrier say? EOF and errors count only after the tail was looked at again;
/// bytes mean a claim that just happened, or a writer that Bypath does not see (I6).
fn carrier_news(s: &'static Sock, conn: &'static Conn, fd: i32, done: usize) -> News {
    let inc = conn.inc();
    let mut byte = [0u8; 1];
    fault::between("ring-empty");
    if !table::still(fd, s) {
        return News::Answer(if done > 0 { Ok(done) } else { Err(Errno::BADF) });
    }
    let seen = sock::peek(fd, &mut byte);
    // The call goes by an earlier look, and would not see it.
    let nonsense = || {
        switch::poison(s, conn);
        News::Look
    };
    let nothing_more = |answer: Result<usize, Errno>| {
        // Ends count only after the tail was loaded once more, and only while the path is still the ring.
        match over::without_late(s, conn, inc.readable(conn.rx.size())) {
            Ok(Readable::Ring { available: 0, .. }) => {
                if done > 0 {
                    News::Answer(Ok(done))
                } else {
                    News::Answer(answer)
                }
            }
            Err(_) => nonsense(),
            _ => News::Look,
        }
    };
    match seen {
        Err(Errno::AGAIN) => match s.end().pending_error.load(Relaxed) {
            0 => News::None,
            _ => match nothing_more(Ok(0)) {
                News::Answer(Ok(0)) => News::Answer(take_error(s).map_or(Ok(0), Err)),
                other => other,
            },
        },
        Ok(0) => {
            end_is_seen(s, conn);
            if let Some(call) = Call::enter() {
                switch::peer_ended(s, conn, false, &call);
            }
            match nothing_more(Ok(0)) {
                News::Answer(Ok(0)) => News::Answer(take_error(s).map_or(Ok(0), Err)),
                other => other,
            }
        }
        Ok(_) => match over::without_late(s, conn, inc.readable(conn.rx.size())) {
            Ok(Readable::Ring { available: 0, .. }) => {
                s.set(flag::FOREIGN_BYTES);
                switch::ask_recall(s, conn, ask::RECALL, Reason::RecalledForeignReader);
                News::Foreign
            }
            Err(_) => nonsense(),
            _ => News::Look,
        },
        Err(_) if cut::is_off(conn) => nothing_more(Ok(0)),
        Err(e) => {
            s.set(flag::PEER_GONE);
            over::seen(s, conn);
            s.keep_error(e.raw_os_error());
            if let Some(call) = Call::enter() {
                switch::peer_ended(s, conn, true, &call);
            }
            match nothing_more(Err(e)) {
                News::Answer(Err(e)) => {
                    take_error(s);
                    News::Answer(Err(e))
                }
                other => other,
            }
        }
    }
}
