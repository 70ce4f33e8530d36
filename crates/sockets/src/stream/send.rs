//! Send: into the ring, or to the carrier without waiting inside it.

use super::{Doubt, Step, accessible, replaced, rest, take_error};
use crate::flush;
use crate::hook::Moved;
use crate::peer::Conn;
use crate::stay::Staying;
use crate::switch;
use crate::table::{self, Sock, flag};
use crate::thread::Call;
use crate::wait::{self, Deadline, Woken};
use crate::wlock::WriteLock;
use crate::{
    carrier, epoll, fault, foreign, guard, heir, memory, options, promised, sealed, service, siblings,
};
use bypath_shm::direction::{ask, position, wait as words};
use bypath_shm::family::wpath;
use bypath_shm::reason::Reason;
use bypath_sys::page::Access;
use bypath_sys::user::UserVec;
use bypath_sys::{Errno, clock, process, sock, thread};
use std::sync::atomic::Ordering::*;

/// Send on `fd`. `rest_since`: bytes of the program's call were
/// sent already, and it began when the thread had run so many handlers.
#[inline]
pub fn send(fd: i32, buf: UserVec<'_>, flags: i32, rest_since: Option<u32>) -> Step {
    let Some(s) = table::sock(fd) else { return Step::of_unfollowed(fd) };
    if s.conn.get().is_none() {
        return cold_send(s, flags);
    }
    if flags & libc::MSG_FASTOPEN != 0 && !s.has(flag::LOCAL) {
        // It would connect first, and is refused: the kernel sends nothing.
        return Step::NotOurs;
    }
    let Some(call) = Call::enter() else { return Step::NotOurs };
    let Some(conn) = s.conn.get() else { return cold_send(s, flags) };
    let mut staying = Staying::new(&call, s);
    let is_served = s.served().is_some();
    if is_served && flags & libc::MSG_OOB != 0 {
        // Urgent octets go by the pair.
        return Step::Served;
    }
    let flags = if is_served { flags & !libc::MSG_FASTOPEN } else { flags };
    let quiet = if is_served { libc::MSG_NOSIGNAL } else { 0 };
    let mut moved = send_warm(&call, s, conn, fd, buf, flags | quiet, rest_since, &mut staying);
    if is_served && moved.is(Errno::PIPE) {
        moved = Moved::failed(service::calls::ended(fd, true).unwrap_or(Errno::PIPE));
    }
    staying.end(&call, s);
    if moved.is(Errno::BADF) && s.is_replaced(fd) {
        // As in `recv`.
        if s.is_dissolved() {
            drop(call);
            if flags & libc::MSG_NOSIGNAL == 0 {
                process::raise(libc::SIGPIPE);
            }
            return Step::Done(Moved::failed(Errno::PIPE));
        }
        return replaced(s, rest_since.is_some());
    }
    if moved.is(Errno::BADF) && sealed::still(fd, s) == Some(false) {
        return Step::Gone;
    }
    if moved.is_some() {
        guard::moved(s, true);
        heir::look(s, conn, &call, true);
    }
    Step::Done(moved)
}

fn cold_send(s: &'static Sock, flags: i32) -> Step {
    if flags & libc::MSG_FASTOPEN != 0 {
        s.keep_on_kernel(Reason::FastOpen);
    }
    Step::Cold(s)
}

#[expect(clippy::too_many_arguments, reason = "one call's arguments and what it is about")]
fn send_warm(
    call: &Call,
    s: &'static Sock,
    conn: &'static Conn,
    fd: i32,
    buf: UserVec<'_>,
    flags: i32,
    rest_since: Option<u32>,
    staying: &mut Staying,
) -> Moved {
    give(call, s, conn, fd, buf, flags, rest_since, staying).into()
}

#[expect(clippy::too_many_arguments, reason = "as above")]
#[inline(always)]
fn give(
    call: &Call,
    s: &'static Sock,
    conn: &'static Conn,
    mut fd: i32,
    buf: UserVec<'_>,
    flags: i32,
    rest_since: Option<u32>,
    staying: &mut Staying,
) -> Result<usize, Errno> {
    let total = buf.admit()?;
    let end = s.end();
    let w = &end.w;
    options::look_again(s, w.path.load(Relaxed) == wpath::KERNEL);
    let mut nonblocking = flags & libc::MSG_DONTWAIT != 0 || s.has(flag::NONBLOCK);
    let mut timeout = end.sndtimeo.load(Relaxed);
    let mut deadline = None;
    let mut no_room = NoRoom(0);
    let mut doubt = Doubt::new();
    let mut done = 0usize;
    let number = fd;
    switch::attend();
    fault::between("attended");
    if flags & libc::MSG_ZEROCOPY != 0 {
        switch::recall_both(s, Reason::RecalledOption, true);
    }
    loop {
        let Some(lock) = WriteLock::take(s, call) else {
            // A handler of this thread interrupted a send on the same socket: it cannot wait for itself.
            return if done > 0 { Ok(done) } else { Err(Errno::AGAIN) };
        };
        if w.path.load(Relaxed) == wpath::KERNEL {
            switch::maybe_begin(s, conn, &lock);
        }
        let full = match w.path.load(Relaxed) {
            wpath::RING => {
                let asked = conn.out().ra.ask.load(Relaxed);
                if asked & (ask::RECALL | ask::CLOSED) != 0 || s.has(flag::PEER_GONE) || fault::flip(256) {
                    let reason = if asked & ask::CLOSED != 0 || s.has(flag::PEER_GONE) {
                        Reason::RecalledPeerClosed
                    } else if asked & ask::RECALL != 0 {
                        Reason::RecalledPeer
                    } else {
                        Reason::RecalledTest
                    };
                    flush::claim(s, conn, reason, &lock);
                    lock.unlock();
                    continue;
                }
                if total == 0 {
                    lock.unlock();
                    return Ok(0);
                }
                match put(call, s, conn, buf, done, total - done) {
                    Put::Bytes(n) => {
                        lock.unlock();
                        after_publish(call, s, conn, n);
                        done += n;
                        if done == total {
                            return Ok(done);
                        }
                        continue;
                    }
                    Put::Full(progress) => {
                        lock.unlock();
                        Full::Ring(progress)
                    }
                    Put::Fault => {
                        lock.unlock();
                        return if done > 0 { Ok(done) } else { Err(Errno::FAULT) };
                    }
                    Put::NoMemory(reason) => {
                        flush::claim(s, conn, Reason::RecalledMemory, &lock);
                        lock.unlock();
                        s.keep_on_kernel(reason);
                        continue;
                    }
                    Put::Poisoned => {
                        switch::poison(s, conn);
                        lock.unlock();
                        return Err(Errno::CONNRESET);
                    }
                }
            }
            wpath::FLUSH => {
                flush::flush(s, conn, &lock);
                let again = w.path.load(Relaxed) != wpath::FLUSH;
                if !again {
                    flush::pardon(s);
                }
                lock.unlock();
                if again {
                    continue;
                }
                Full::Carrier
            }
            _ => {
                if done == 0
                    && carrier::of(s).send_reports_errors()
                    && let Some(e) = take_error(s)
                    && e != Errno::PIPE
                {
                    lock.unlock();
                    return Err(e);
                }
                // As `carrier_recv`, behind the last look at memory that the other end may make slow: closed meanwhile by another thread, and the number may be
                // another connection's.
                if !table::still(fd, s) {
                    lock.unlock();
                    is_cut_short(call, s, done, fd, number);
                    return if done > 0 { Ok(done) } else { Err(Errno::BADF) };
                }
                // After a partial success the error belongs to the next call, and so does its SIGPIPE.
                let quiet = if done > 0 { libc::MSG_NOSIGNAL } else { 0 };
                let sent = rest(buf, done, |v| sock::send(fd, v, flags | libc::MSG_DONTWAIT | quiet));
                match sent {
                    Ok(n) => {
                        w.kernel_bytes.fetch_add(n as u64, Relaxed);
                    }
                    Err(Errno::AGAIN) => flush::pardon(s),
                    Err(_) => {}
                }
                lock.unlock();
                match sent {
                    Ok(n) => {
                        super::count_by_carrier(call, s, true, n as u64);
                        done += n;
                        if done == total {
                            return Ok(done);
                        }
                        Full::Carrier
                    }
                    Err(Errno::AGAIN) => Full::Carrier,
                    Err(Errno::INTR) => continue,
                    Err(e) if done > 0 => {
                        // The kernel has told it to us and tells it to nobody else; a broken pipe it tells each time.
                        if !matches!(e, Errno::PIPE | Errno::FAULT | Errno::BADF) {
                            s.keep_error(e.raw_os_error());
                        }
                        return Ok(done);
                    }
                    Err(e) => return Err(e),
                }
            }
        };
        if let Full::Ring(progress) = full
            && (stays_full(s, conn, progress, !nonblocking) || !nonblocking && no_room.is_over(conn))
        {
            flush::recall_outgoing(s, conn, Reason::RecalledRingFull, call);
            continue;
        }
        if nonblocking {
            epoll::out_of_room(s);
            return if done > 0 { Ok(done) } else { Err(Errno::AGAIN) };
        }
        if rest_since.is_some_and(|since| since != call.thread.handlers.load(Relaxed)) {
            // It ran between two parts of the call. (From here on one waits until the thread sleeps.)
            return if done > 0 { Ok(done) } else { Err(Errno::INTR) };
        }
        let ends = *deadline.get_or_insert_with(|| Deadline::after(timeout));
        let until = doubt.bound(ends);
        let wait = || match full {
            Full::Ring(_) => wait::space(call, s, conn, until),
            Full::Carrier => wait::carrier_writable(call, s, until),
        };
        let (woken, goes_on) = staying.sleep(call, s, fd, wait);
        let Some(now) = goes_on else {
            if matches!(woken, Woken::Interrupted)
                && (done > 0 || !crate::signals::restarts(call.thread, timeout != 0))
            {
                return if done > 0 { Ok(done) } else { Err(Errno::INTR) };
            }
            if !matches!(woken, Woken::TimedOut) {
                is_cut_short(call, s, done, fd, number);
            }
            return if done > 0 { Ok(done) } else { Err(Errno::BADF) };
        };
        // Of a number that is another file's by now the kernel tells what that has.
        let is_other = std::mem::replace(&mut fd, now) != now;
        match woken {
            Woken::Look => {}
            Woken::Carrier(_) if is_other => {}
            Woken::Carrier(events) => {
                if matches!(full, Full::Ring(_)) {
                    let reset = events & (libc::POLLHUP | libc::POLLERR) != 0;
                    switch::peer_ended(s, conn, reset, call);
                }
            }
            Woken::TimedOut if doubt.is_settled(s, ends) => {
                nonblocking |= s.has(flag::NONBLOCK);
                let now = end.sndtimeo.load(Relaxed);
                if std::mem::replace(&mut timeout, now) != now {
                    deadline = None;
                }
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

/// A send ends behind `done` octets, perhaps only because nothing is followed any more: then the program's own call goes on.
#[cold]
fn is_cut_short(call: &Call, s: &Sock, done: usize, fd: i32, number: i32) {
    // By the number that the program gave, if that is still this connection's.
    if done > 0 && fd == number && sealed::still(number, s) == Some(true) {
        call.thread.is_cut_short();
    }
}

#[derive(Clone, Copy)]
enum Full {
    Ring(u64),
    Carrier,
}

enum Put {
    Bytes(usize),
    Full(u64),
    Fault,
    NoMemory(Reason),
    Poisoned,
}

/// Copies what fits into the ring and publishes it. Holds the writer's lock.
#[inline]
fn put(call: &Call, s: &'static Sock, conn: &'static Conn, buf: UserVec<'_>, skip: usize, len: usize) -> Put {
    let w = &s.end().w;
    let size = conn.tx.size();
    let tail = position::onward(w.tail.load(Relaxed), 0);
    // Any process of the family can have written this. Where it is not what this one has left there, another one has sent, or lies: the ring
    // tells, in memory that only both ends have. Its line is the reader's meanwhile, so it is not asked for nothing.
    if s.published.load(Relaxed) != tail && conn.out().t.tail.load(Relaxed) != tail {
        return Put::Poisoned;
    }
    let mut free = size.wrapping_sub(tail.wrapping_sub(w.head_cache.load(Relaxed)));
    if free < len as u64 || free > size || w.limit.load(Relaxed) != 0 {
        match switch::room(s, conn, tail) {
            Ok(now) => {
                w.head_cache.store(position::back(tail, size - now), Relaxed);
                free = switch::of_room(s, conn, now);
            }
            Err(_) => return Put::Poisoned,
        }
    }
    if free == 0 {
        return Put::Full(conn.out().progress());
    }
    let n = accessible(call, buf, skip, free.min(len as u64) as usize, Access::Read);
    if n == 0 {
        return Put::Fault;
    }
    let next = position::onward(tail, n as u64);
    if !memory::is_backed(w, next)
        && let Err(reason) = memory::back(s, conn, tail, n as u64)
    {
        return Put::NoMemory(reason);
    }
    conn.tx.copy_in(tail, buf, skip, n);
    fault::point("copied-in");
    conn.out().publish(next);
    fault::point("published");
    w.tail.store(next, Relaxed);
    s.published.store(next, Relaxed);
    w.ring_bytes.store(w.ring_bytes.load(Relaxed).wrapping_add(n as u64), Relaxed);
    Put::Bytes(n)
}

/// After publish and unlock: look at who sleeps and what R asks (I4), count, and now and then at the carrier.
#[inline]
fn after_publish(call: &Call, s: &'static Sock, conn: &'static Conn, n: usize) {
    let out = conn.out();
    fault::point("unlocked");
    switch::look_fence();
    switch::wake_readers(s, conn);
    if out.ra.ask.load(Relaxed) & (ask::RECALL | ask::CLOSED) != 0 {
        flush::recall_outgoing(s, conn, Reason::RecalledPeer, call);
    }
    s.sent_last.store(true, Relaxed);
    foreign::published();
    call.thread.count(|b| &b.ring_tx, n as u64);
    let cpu = thread::cpu();
    if out.t.cpu.load(Relaxed) != cpu {
        out.t.cpu.store(cpu, Relaxed);
    }
    // The clock is not read for every small message.
    let tail = s.end().w.tail.load(Relaxed);
    conn.tx.prefetch_write(tail.wrapping_add(512));
    let is_due = tail >> 10 != position::back(tail, n as u64) >> 10 || siblings::is_watching();
    if is_due && wait::peer_check_due(s, wait::EACH_MS) {
        let (gone, reset) = wait::peer_end(s);
        if gone {
            switch::peer_ended(s, conn, reset, call);
        }
    }
}

/// Since when a call waits for room in a ring (ns), 0 = it does not. A peer of another user may say for ever that it reads, or read octet by octet: it is
/// waited for as long as for what was told of it ([`promised`]), and then the carrier has room.
#[derive(Debug)]
struct NoRoom(u64);

impl NoRoom {
    #[cold]
    fn is_over(&mut self, conn: &Conn) -> bool {
        if !promised::is_doubted(conn) {
            return false;
        }
        let now = clock::monotonic_ns();
        if self.0 == 0 {
            self.0 = now;
        }
        let room = &promised::patience(conn).room;
        let is_over = now.saturating_sub(self.0) >= room.left().max(wait::FULL_NS);
        if is_over {
            room.spend(std::mem::take(&mut self.0));
        }
        is_over
    }
}

/// Whether a full ring counts as stuck: the reader stands at `progress` for a while. Where two blocked writers face each
/// other, or one thread holds both ends, nobody may be reading at all: the while is short. Where the carrier's room was
/// of no more use than the ring's so far, or the reader may be waiting for a processor, it is long.
fn stays_full(s: &Sock, conn: &Conn, progress: u64, blocking: bool) -> bool {
    let now = clock::monotonic_ns();
    if s.full_progress.load(Relaxed) != progress || s.full_since.load(Relaxed) == 0 {
        s.full_progress.store(progress, Relaxed);
        s.full_since.store(now, Relaxed);
        return false;
    }
    let own = conn.peer.is_self.load(Relaxed) && thread::is_the_only_one();
    let facing = blocking && words::any(&conn.inc().wa.wait);
    // Another thread may have seen it since.
    let since = now.saturating_sub(s.full_since.load(Relaxed));
    if own || facing {
        return since >= wait::FULL_NS / 10;
    }
    let pardons = s.pardons.load(Relaxed);
    since >= wait::FULL_NS << pardons
        && (since >= wait::FULL_NS << pardons.max(wait::BUSY_PARDONS) || !process::processors_are_short())
}

/// A writer waits for room (in poll or epoll): takes the ring back if it stays full.
pub fn unstick(s: &'static Sock, conn: &'static Conn, call: &Call) {
    let end = s.end();
    if end.w.path.load(Relaxed) != wpath::RING || crate::ready::ring_writable(s, conn) {
        return;
    }
    if stays_full(s, conn, conn.out().progress(), false) {
        flush::recall_outgoing(s, conn, Reason::RecalledRingFull, call);
    }
}
