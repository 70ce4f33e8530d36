//! The life of descriptors: from socket() to the last close, through dup, fork, exec and exit.

use crate::budget::Budget;
use crate::heir::{self, Deed, Image};
use crate::later::{self, End};
use crate::peer::{self, Conn};
use crate::state;
use crate::table::{self, Entry, Sock, flag};
use crate::thread::{self, Busy, Call};
use crate::{
    carrier, cut, epoll, flush, kept, leaving, memory, over, rendezvous, service, stay, switch, taken, udp,
    whose, worth,
};
use bypath_shm::direction::{ask, writer_flag};
use bypath_shm::family::wpath;
use bypath_shm::reason::Reason;
use bypath_shm::region::Slab;
use bypath_sys::{clock, fd, sock};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// How long last closes wait for carriers without room, one of them or many.
static FLUSHES_AT_CLOSE: Budget = Budget::new(2_000_000_000);
/// So often at once that is looked at, and then at such intervals.
const LOOKS_AT_CLOSE: u32 = 100;
const PAUSE_AT_CLOSE_NS: u64 = 500_000;

/// Data calls ask no more often than this (microseconds) whether other holders live: each answer is a file in /proc.
const ASK_WHO_US: u64 = 10_000;

/// What a close (or dup2 over a descriptor) is about.
#[derive(Debug)]
pub struct Closing {
    entry: Option<Entry>,
    fd: i32,
    /// Calls of other threads go on with the connection.
    stays: bool,
}

/// Follows a new socket, if its kind is followed.
pub fn socket_done(fd: i32, domain: i32, kind: i32, protocol: i32) {
    if state::config().is_none() {
        return;
    }
    let _busy = Busy::begin();
    if state::is_sealed() {
        return;
    }
    let lost = table::entry(fd).is_some();
    let made = carrier::made(domain, kind, protocol);
    let datagrams = made.is_none() && service::datagram::may_serve(domain, kind, protocol);
    let udp = made.is_none() && !datagrams && udp::may_follow(domain, kind, protocol);
    if made.is_none() && !datagrams && !udp && !lost || state::is_borrowed() {
        return;
    }
    // What may have to become a service's is waited for.
    let life = if service::is_active() {
        state::LIFE.lock(table::tid())
    } else {
        state::LIFE.lock_soon(table::tid())
    };
    let Some(_life) = life else { return lose_alone(fd) };
    if state::is_sealed() {
        return;
    }
    if lost {
        lose(fd);
    }
    if let Some(made) = made {
        table::follow(fd, made, kind & libc::SOCK_NONBLOCK != 0);
    }
    if datagrams {
        service::datagram::made(fd, domain, protocol);
    }
    if udp {
        udp::made(fd, domain, kind & libc::SOCK_NONBLOCK != 0);
    }
}

/// Follows an accepted socket, if its kind is followed.
pub fn accept_done(listener: i32, fd: i32, flags: i32) {
    if state::config().is_none() || state::is_borrowed() {
        return;
    }
    let _busy = Busy::begin();
    if state::is_sealed() {
        return;
    }
    let lost = table::entry(fd).is_some();
    // What a followed listener accepts is of its kind; others are asked.
    let kind = table::sock(listener).map(carrier::kind).or_else(|| carrier::accepted(fd));
    if kind.is_none() && !lost {
        return;
    }
    let Some(_life) = state::LIFE.lock_soon(table::tid()) else { return lose_alone(fd) };
    if state::is_sealed() {
        return;
    }
    if lost {
        lose(fd);
    }
    if let Some(kind) = kind {
        table::follow(fd, kind, flags & libc::SOCK_NONBLOCK != 0);
        // A key of its listener's, which nobody can ask for (TCP_MD5SIG), is its own as well.
        if table::sock(listener).is_some_and(|listener| listener.has(flag::SEALED))
            && let Some(accepted) = table::sock(fd)
        {
            accepted.keep_on_kernel(Reason::SocketOption);
        }
    }
}

/// Follows a new epoll set. One that is not followed is the kernel's, and so is what is registered in it.
pub fn epoll_done(epfd: i32) {
    let _busy = Busy::begin();
    if state::is_sealed() {
        return;
    }
    let Some(_life) = state::LIFE.lock_soon(table::tid()) else { return lose_alone(epfd) };
    if state::is_sealed() {
        return;
    }
    lose(epfd);
    epoll::created(epfd);
}

/// The number `fd` was closed behind our back, if it was followed, and is in use anew. Under [`state::LIFE`].
pub fn lose(fd: i32) {
    if let Some(entry) = table::remove(fd) {
        ends(fd, entry, End::Lost);
    }
}

/// The same without that, as who has it is away for long. What stands for the number now is not followed.
#[cold]
fn lose_alone(fd: i32) {
    if let Some(entry) = table::remove(fd) {
        end(fd, entry, End::Lost);
    }
}

/// What `fd` was, which is in the table no more, has ended so. Under [`state::LIFE`].
pub fn ends(fd: i32, entry: Entry, end: End) {
    match entry {
        Entry::Sock(s) => {
            let is_last = s.descriptors.fetch_sub(1, AcqRel) == 1;
            match end {
                End::Closed if is_last => finish_last(s),
                End::Closed => {}
                End::Lost if is_last => {
                    // Nothing can be sent any more through a carrier that is not ours: only forget.
                    s.fd.store(-1, Relaxed);
                    finish_last(s);
                }
                End::Lost => table::repoint(s, fd),
            }
        }
        Entry::Epoll(n) => {
            if end == End::Lost || !has_other_descriptor(n) {
                epoll::closed(n);
            }
        }
        Entry::Served(n) => service::release(n),
        Entry::Datagrams(n) => service::datagram::release(n),
        Entry::Udp(n) => udp::release(n, fd),
    }
}

/// As [`ends`], now or [later].
fn end(fd: i32, entry: Entry, end: End) {
    let life = state::LIFE.lock_soon(table::tid());
    if life.is_none() {
        if later::leave(fd, entry, end) {
            // Who had it may have given it back meanwhile.
            if let Some(_life) = state::LIFE.lock_soon(table::tid()) {
                later::make_up();
            }
            return;
        }
        if let Some(_life) = state::LIFE.lock_past(table::tid()) {
            ends(fd, entry, end);
        }
        return;
    }
    ends(fd, entry, end);
    later::make_up();
}

/// Before the real close of `fd`.
pub fn close_begin(fd: i32) -> Closing {
    let none = Closing::none();
    if table::entry(fd).is_none() {
        return none;
    }
    let _busy = Busy::begin();
    let Some(entry) = table::entry(fd) else { return none };
    if state::is_borrowed() {
        return none;
    }
    let mut stays = false;
    if let Entry::Sock(s) = entry
        && s.descriptors.load(Acquire) == 1
        && s.is_warm()
    {
        stays = stay::offer(s, fd);
    }
    if let Entry::Sock(s) = entry
        && s.descriptors.load(Acquire) == 1
    {
        if s.meeting.load(Relaxed)
            && let Some(_life) = state::LIFE.lock_soon(table::tid())
        {
            rendezvous::give_up(s);
        }
        if let Some(conn) = s.conn.get()
            && is_last_process(s)
        {
            leave_ring(s, conn, Reason::RecalledClose);
        }
    }
    if let Entry::Udp(n) = entry {
        udp::close_begin(n);
    }
    let served = match entry {
        Entry::Sock(s) if s.descriptors.load(Acquire) == 1 => s.served(),
        Entry::Served(n) => Some(n),
        _ => None,
    };
    if let Some(n) = served {
        service::close_begin(n, fd);
    }
    if let Entry::Sock(s) = entry
        && s.descriptors.load(Acquire) > 1
    {
        // First, so that there is no moment without a carrier.
        table::repoint(s, fd);
    }
    // The entry goes before the number can be reused by another thread.
    let entry = table::remove(fd);
    match entry {
        Some(Entry::Sock(s)) if s.descriptors.load(Acquire) > 1 => heir::no_standard_descriptor(s, fd),
        Some(Entry::Sock(s)) => epoll::forget(s),
        Some(Entry::Epoll(n)) => epoll::leaves(n, fd),
        _ => {}
    }
    Closing { entry, fd, stays }
}

impl Closing {
    /// Of nothing that is followed.
    pub fn none() -> Closing {
        Closing { entry: None, fd: -1, stays: false }
    }

    /// After the real close.
    pub fn finish(self, _ret: i32) {
        let Some(entry) = self.entry else { return };
        let _busy = Busy::begin();
        if !state::is_sealed() {
            end(self.fd, entry, End::Closed);
        }
        if let Entry::Sock(s) = entry
            && self.stays
        {
            stay::closed(s);
        }
    }
}

fn has_other_descriptor(set: u32) -> bool {
    let mut found = false;
    table::each(|_, e| found |= matches!(e, Entry::Epoll(n) if n == set));
    found
}

/// The last descriptor of this process is gone. Under [`state::LIFE`].
pub fn finish_last(s: &'static Sock) {
    let Some(state) = state::get() else { return };
    let end = s.end();
    // Who holds it last may give the number to another socket at once.
    let generation = end.generation.load(Relaxed);
    let left = end.holders.fetch_and(!state.bit(), AcqRel) & !state.bit();
    let last = left == 0;
    if let Some(elder) = s.elder.get() {
        elder.leave();
    }
    if last {
        s.count_reason();
    } else {
        s.count_elsewhere();
    }
    rendezvous::give_up(s);
    epoll::forget(s);
    service::detach(s);
    kept::forget(s, last);
    let conn = s.conn.get();
    s.conn.set(None);
    if let Some(conn) = conn {
        if state::is_own_token(s.mapped_by.load(Relaxed)) {
            worth::ended(s, Some(conn));
        }
        memory::forget(s, conn);
        retire(s, conn, last, generation);
    } else {
        if s.attempts.load(Relaxed) > 0 && end.reason() == Reason::PeerPlain {
            worth::ended(s, None);
        }
        table::forget(s, last);
    }
}

/// Every descriptor of a socket means another one from now on, which is the netstack service's socket `record`. Under [`state::LIFE`].
pub fn replaced_by_service(s: &'static Sock, record: u32) {
    table::each(|fd, entry| {
        if matches!(entry, Entry::Sock(other) if std::ptr::eq(other, s)) {
            table::remove(fd);
            service::alias(fd, record);
        }
    });
    epoll::hand_over(s);
    s.descriptors.store(0, Relaxed);
    s.fd.store(-1, Relaxed);
    finish_last(s);
}

/// Sockets that cannot be reused yet because a thread may still look at them: the number, and whether that is given back.
static LIMBO: Slab<AtomicU64, 64, 64> = Slab::new();
static LIMBO_USED: AtomicU32 = AtomicU32::new(0);
/// The slots that go with them.
static HELD_BACK: Slab<bypath_shm::region::StaticCell<Conn>, 64, 64> = Slab::new();
/// Bit of an entry of [`LIMBO`]: no other process of the family holds the socket.
const LAST: u64 = 1 << 32;

/// In a forked child, which has no other threads: what is held back is the parent's to give back.
pub fn enter_child() {
    for i in 0..LIMBO_USED.load(Relaxed) {
        let number = LIMBO.get(i as usize).map(|place| place.load(Relaxed) as u32);
        if let Some(old) = number.and_then(table::by_number) {
            old.is_held_back.store(false, Relaxed);
        }
    }
    if LIMBO_USED.load(Relaxed) != 0 {
        LIMBO_USED.store(0, Relaxed);
    }
}

/// Gives slot and number back once no thread uses them. Under [`state::LIFE`].
fn retire(s: &'static Sock, conn: &'static Conn, last: bool, generation: u32) {
    if !last && !s.is_inherited() {
        conn.leave_to_others(s.number.load(Relaxed), generation);
    }
    // Else another process of the family goes on with the mapping, or the one whose slot it is gives that back.
    let own = (last && !s.is_inherited()).then_some(conn);
    // Who sleeps there without a hold on it touches its memory once more.
    let is_held = |number: u32| thread::is_within(number + 1);
    let is_quiet = thread::quiesce();
    if !is_quiet || is_held(s.number.load(Relaxed)) {
        // Kept for later: the slot stays taken, the number is not reused.
        s.is_held_back.store(true, Relaxed);
        let n = LIMBO_USED.load(Relaxed);
        if let (Some(place), Some(held)) = (LIMBO.ensure(n as usize), HELD_BACK.ensure(n as usize)) {
            place.store(u64::from(s.number.load(Relaxed)) | if last { LAST } else { 0 }, Relaxed);
            held.set(own);
            LIMBO_USED.store(n + 1, Relaxed);
        }
        return;
    }
    let mut left = 0;
    for i in 0..LIMBO_USED.load(Relaxed) {
        let Some((place, held)) = LIMBO.get(i as usize).zip(HELD_BACK.get(i as usize)) else { continue };
        let (word, conn) = (place.load(Relaxed), held.get());
        if is_held(word as u32) {
            if let Some((place, held)) = LIMBO.get(left as usize).zip(HELD_BACK.get(left as usize)) {
                place.store(word, Relaxed);
                held.set(conn);
                left += 1;
            }
        } else if let Some(old) = table::by_number(word as u32) {
            conn.inspect(|conn| conn.release());
            old.is_held_back.store(false, Relaxed);
            table::forget(old, word & LAST != 0);
        }
    }
    LIMBO_USED.store(left, Relaxed);
    own.inspect(|conn| conn.release());
    table::forget(s, last);
}

/// Before the last close: outgoing bytes to the carrier; the other end learns that nobody reads any more.
fn leave_ring(s: &'static Sock, conn: &'static Conn, reason: Reason) {
    let Some(call) = Call::enter() else { return };
    flush::empty_ring_for_others(s, conn, reason, &call);
    let unread = switch::unread(conn) + kept::len(s);
    switch::ask_recall(s, conn, ask::CLOSED, reason);
    end_as_tcp(s, unread, &call);
}

/// Before the kernel closes the carrier: unread ring bytes make it reset the connection, as unread bytes in its own
/// queue would. A reset discards what is still in the send queue, so what was just flushed must have left it.
fn end_as_tcp(s: &'static Sock, unread: u64, call: &Call) {
    if s.has(flag::HANDED_OVER | flag::STANDARD) || whose::is_elsewhere(s) {
        return;
    }
    let kind = carrier::of(s);
    let mut linger = [0u8; 8];
    let resets = unread > 0
        || sock::option_bytes(s.carrier(), libc::SOL_SOCKET, libc::SO_LINGER, &mut linger).is_ok()
            && linger[0] != 0
            && linger[4..] == [0; 4];
    if !resets {
        return;
    }
    let begin = clock::monotonic_ns();
    let until = begin + FLUSHES_AT_CLOSE.left();
    let wait = || {
        let mut looks = 0;
        while kind.discardable(s) > 0 {
            // They leave at once, or when the other end reads.
            looks += 1;
            if looks < LOOKS_AT_CLOSE {
                bypath_sys::thread::yield_now();
            } else if clock::monotonic_ns() < until {
                let _ = bypath_sys::poll::ppoll(&mut [], Some(PAUSE_AT_CLOSE_NS), 0);
            } else {
                break;
            }
        }
        Ok(())
    };
    // A signal that came before has its handler run, and then the wait goes on. A thread that is to end waits as well, but
    // does not sleep.
    while call.parked(wait).is_err() && clock::monotonic_ns() < until {
        if call.thread.is_cancelled() {
            let _ = wait();
            break;
        }
    }
    FLUSHES_AT_CLOSE.spend(begin);
    if unread > 0 {
        kind.close_unread(s);
    }
}

/// Whether no other living process of the family holds the socket. Bits of dead ones are cleared.
pub fn is_last_process(s: &'static Sock) -> bool {
    let Some(state) = state::get() else { return true };
    leaving::is_left_to(state, s.end())
}

/// As [`Sock::is_sole_holder`], for data calls: now and then they ask whether the others live. Children end without a
/// word, some of them because they may say none.
pub fn holds_alone(s: &'static Sock, state: &state::State) -> bool {
    s.is_sole_holder(state) || is_time_to_ask(s) && is_last_process(s) && s.is_sole_holder(state)
}

#[cold]
fn is_time_to_ask(s: &Sock) -> bool {
    let now = clock::ticks();
    if now.wrapping_sub(s.asked_who.load(Relaxed)) < ASK_WHO_US * state::ticks_per_us() {
        return false;
    }
    s.asked_who.store(now, Relaxed);
    true
}

/// Every followed descriptor in `first..=last` is about to be closed at once.
pub fn close_range_begin(first: u32, last: u32) {
    if state::is_borrowed() {
        return;
    }
    let top = last.min(1 << 20) as i32;
    let mut fds = [0i32; 256];
    loop {
        let mut n = 0;
        table::each(|fd, e| {
            let own = matches!(e, Entry::Sock(s) if s.stays.descriptor() == Some(fd));
            if fd as u32 >= first && fd <= top && !own && n < fds.len() {
                fds[n] = fd;
                n += 1;
            }
        });
        for &fd in &fds[..n] {
            // The real close follows for all of them: finishing early only frees the record.
            let c = close_begin(fd);
            c.finish(0);
        }
        if n < fds.len() {
            return;
        }
    }
}

/// One more descriptor for what `old` means.
pub fn dup_done(old: i32, new: i32) {
    if table::entry(old).is_none() && table::entry(new).is_none() {
        return;
    }
    let _busy = Busy::begin();
    let Some(entry) = table::entry(old) else {
        if table::entry(new).is_some() && !state::is_borrowed() {
            lose_alone(new);
        }
        return;
    };
    if old == new || state::is_borrowed() {
        return;
    }
    let is_services = matches!(entry, Entry::Served(_) | Entry::Datagrams(_));
    let generation = |s: &Sock| s.end().generation.load(Relaxed);
    let age = if let Entry::Sock(s) = entry { generation(s) } else { 0 };
    let life = if is_services { state::LIFE.lock(table::tid()) } else { state::LIFE.lock_soon(table::tid()) };
    if is_services && life.is_none() || state::is_sealed() {
        return;
    }
    // Without it, as who has it is away for long, nobody looks at the counts but those who are about to [leave](later) something.
    if let Some(entry) = table::remove(new) {
        match life {
            Some(_) => ends(new, entry, End::Lost),
            None => end(new, entry, End::Lost),
        }
    }
    match entry {
        // Closed meanwhile, as others had the lock for long: the record may be another socket's.
        Entry::Sock(s) if generation(s) != age || !s.is_in_use() => {}
        Entry::Sock(s) => {
            table::alias(new, s);
            if new <= 2 {
                switch_standard(s);
            }
        }
        Entry::Epoll(n) => table::set_epoll(new, n),
        Entry::Served(n) => service::alias(new, n),
        Entry::Datagrams(n) => service::datagram::alias(new, n),
        Entry::Udp(n) => udp::alias(new, n),
    }
}

/// `new` came from the process behind `pidfd`, perhaps this one (pidfd_getfd): if it is a socket that is followed here,
/// it is one more descriptor of that.
pub fn taken(new: i32, pidfd: i32) {
    if state::config().is_none() || state::is_borrowed() {
        return;
    }
    let _busy = Busy::begin();
    if state::is_sealed() {
        return;
    }
    let cookie_of = |fd| sock::option_u64(fd, libc::SOL_SOCKET, libc::SO_COOKIE);
    let Ok(cookie) = cookie_of(new) else { return };
    let mut held = None;
    table::each_sock(|s| {
        if held.is_none() && cookie_of(s.carrier()) == Ok(cookie) {
            held = Some(s.carrier());
        }
    });
    match held.filter(|old| *old != new) {
        Some(old) => dup_done(old, new),
        None => taken::came(new, pidfd),
    }
}

/// A socket became descriptor 0, 1 or 2: children and stdio will use it.
fn switch_standard(s: &'static Sock) {
    s.set(flag::STANDARD);
    s.set_reason(Reason::StandardDescriptor);
    switch::recall_both(s, Reason::RecalledStdio, false);
}

/// Before shutdown().
pub fn shutdown_begin(fd: i32, how: i32) {
    if let Some(r) = udp::of(fd) {
        r.keep(Reason::RecalledShutdown);
    }
    let Some(s) = table::sock(fd) else { return };
    if how == libc::SHUT_WR || how == libc::SHUT_RDWR {
        s.set(flag::SENT_FIN);
    }
    if how == libc::SHUT_RD || how == libc::SHUT_RDWR {
        s.set(flag::NO_READ);
    }
    let Some(conn) = s.conn.get() else { return };
    let Some(call) = Call::enter() else { return };
    if how == libc::SHUT_WR || how == libc::SHUT_RDWR {
        flush::empty_ring(s, conn, Reason::RecalledShutdown, &call);
        flush::leave_rest(s, &call);
        conn.out().wa.flags.fetch_or(writer_flag::SHUT, AcqRel);
    }
    if kept::is_due(s) {
        kept::put_aside(s, conn, &call);
    } else if how == libc::SHUT_RD {
        switch::recall_incoming(s, conn, Reason::RecalledShutdown);
    }
    over::seen(s, conn);
    // The kernel wakes whoever waits on the socket, which is an edge of what is ready.
    epoll::is_enough(s);
}

// ---------------------------------------------------------------- processes

/// unshare() or setns() has succeeded.
pub fn namespaces_changed(children_elsewhere: bool) {
    let _busy = Busy::begin();
    if state::get().is_none() || state::is_borrowed() || state::is_sealed() {
        return;
    }
    if children_elsewhere {
        state::send_children_elsewhere();
    }
    state::time_may_differ();
    if let Some(_life) = state::LIFE.lock_past(table::tid()) {
        state::forget_netlink();
    }
}

/// Before an exec or spawn: whatever a new image would inherit goes to the kernel for good. What no `deed` is about may
/// be anybody's after it.
pub fn hand_over(reason: Reason, deed: Option<&Deed>) {
    if !state::is_sealed() {
        udp::holders::hand_over(reason);
    }
    if state::get().is_none() {
        return;
    }
    if state::is_sealed() {
        return heir::spread_everything();
    }
    let mut waiting = false;
    table::each(|number, e| {
        if let Entry::Datagrams(_) = e
            && fd::is_cloexec(number) == Ok(false)
            && let Some(r) = service::datagram::of(number)
        {
            r.leave_rings(reason);
        }
        if let Entry::Sock(s) = e
            && fd::is_cloexec(number) == Ok(false)
        {
            let reason_now = if s.is_warm() { reason } else { Reason::SharedProcesses };
            if deed.is_some_and(|d| d.is_about(s)) {
                s.set_reason(reason_now);
            } else {
                heir::spread(s);
                s.keep_on_kernel(reason_now);
            }
            if let Some(conn) = s.conn.get()
                && let Some(call) = Call::enter()
            {
                flush::empty_ring(s, conn, reason, &call);
                switch::ask_back(s, conn, reason);
                waiting = true;
            }
        }
    });
    if waiting {
        let is_inherited = |number| fd::is_cloexec(number) == Ok(false);
        if let Some(call) = Call::enter() {
            flush::wait_for_carriers(is_inherited, reason, &call);
        }
        let patience = switch::Patience::default();
        table::each_sock(|s| {
            if (s.has(flag::STAYS) || deed.is_some_and(|d| d.is_about(s)))
                && let Some(conn) = s.conn.get()
            {
                switch::recall_incoming_within(s, conn, reason, &patience);
                if (s.has(flag::SPREAD) || deed.is_some_and(|d| d.is_about(s)))
                    && let Some(call) = Call::enter()
                {
                    cut::off(s, conn, &call);
                }
                if s.has(flag::SPREAD) || deed.is_some_and(|d| d.is_about(s)) {
                    // Whoever has it may have the kernel do something to what comes.
                    over::seal(s, conn, false);
                }
                if deed.is_some_and(|d| d.is_about(s)) && s.end().w.path.load(Acquire) == wpath::KERNEL {
                    conn.inc().leave();
                }
            }
        });
    }
}

/// Last before the exec.
pub fn exec_now(deed: Option<&Deed>) {
    if let Some(deed) = deed.filter(|_| !state::is_sealed()) {
        deed.hand_on();
    }
}

/// Before an exec by this process itself: close-on-exec descriptors end as if closed, others are left to the next image
/// where that is what `image` says (`None` = one without this library, as far as can be told).
pub fn exec_begin(image: impl FnOnce() -> Option<Image>) -> Option<Deed> {
    let Some(state) = state::get() else {
        hand_over(Reason::RecalledExec, None);
        return None;
    };
    let deed = heir::leave(image);
    hand_over(Reason::RecalledExec, deed.as_ref());
    // Many forked children do nothing else: nothing is remembered for them.
    if state::is_sealed() || state::is_memory_of_another() {
        return None;
    }
    peer::take_nothing();
    leaving::begin();
    table::each_sock(|s| {
        if let Some(conn) = s.conn.get()
            && fd::is_cloexec(s.carrier()) == Ok(true)
            && is_last_process(s)
            && let Some(call) = Call::enter()
        {
            flush::empty_ring(s, conn, Reason::RecalledExec, &call);
            // What is sent to whom is gone then has the kernel's answer. There may be no exec.
            switch::ask_back(s, conn, Reason::RecalledExec);
        }
    });
    leaving::tell(state, |s| deed.as_ref().is_some_and(|d| d.is_about(s)));
    deed
}

/// exec failed: the process still holds what it held.
pub fn exec_failed(deed: Option<Deed>) {
    if let Some(deed) = deed {
        deed.revoke();
    }
    let Some(state) = state::get() else { return };
    if !state::is_sealed() && !state::is_memory_of_another() {
        leaving::failed(state);
        peer::take_again();
    }
}

/// The process ends: everything goes to the kernel, and stays there for what exit handlers still send.
pub fn exiting() {
    let Some(state) = state::get() else { return };
    if state::is_sealed() || state::is_memory_of_another() || state::set_exiting() {
        return;
    }
    udp::exiting();
    table::each_sock(|s| {
        rendezvous::remove_name(s);
        if let Some(conn) = s.conn.get()
            && is_last_process(s)
            && let Some(call) = Call::enter()
        {
            if s.end().w.path.load(Relaxed) != wpath::KERNEL {
                flush::empty_ring(s, conn, Reason::RecalledExit, &call);
            }
            let unread = switch::unread(conn) + kept::len(s);
            switch::ask_recall(s, conn, ask::CLOSED, Reason::RecalledExit);
            end_as_tcp(s, unread, &call);
        }
    });
    if let Some(stats) = state.own().stats.get() {
        stats.state.store(2, Relaxed);
    }
}
