//! The switch: a direction goes to the ring (consent by R, begun by W) and back (claim and flush by W, asked for
//! by R). See docs/switch-protocol.md, "One direction" and "Sharing".

use crate::carrier::{self, Course};
use crate::config::LogLevel;
use crate::peer::Conn;
use crate::state;
use crate::table::{Sock, UNPUBLISHED, flag};
use crate::thread::Call;
use crate::wait as waiting;
use crate::wlock::WriteLock;
use crate::{
    cut, epoll, fault, flush, guard, heir, leaving, life, log, memory, options, over, promised, siblings,
    uring, whose, wish,
};
use bypath_shm::atomic::fence_after_rmw;
use bypath_shm::direction::{Head, Path, Poisoned, Readable, ask, position, wait, writer_flag};
use bypath_shm::family::{end_state, wpath};
use bypath_shm::reason::Reason;
use bypath_sys::{clock, thread};
use std::cell::Cell;
use std::sync::atomic::{Ordering::*, fence};

/// No upgrade where the carrier has room for less than this.
const SMALLEST_LIMIT: u32 = 4096;

/// Both ends have mapped the connection: from now on no hooked call sleeps inside recv or send on the carrier.
/// Called under [`state::LIFE`].
pub fn warm(s: &'static Sock, conn: &'static Conn) {
    let end = s.end();
    let old = s.conn.get();
    if let Some(old) = old {
        heir::replaced(s, old);
    }
    options::refresh(s);
    let first = fault::first_position();
    end.w.tail.store(first, Relaxed);
    s.published.store(UNPUBLISHED, Relaxed);
    end.w.head_cache.store(first, Relaxed);
    memory::restart(&end.w, first);
    end.r.tail_cache.store(0, Relaxed);
    end.w.path.store(wpath::KERNEL, Relaxed);
    end.ring_size.store(conn.tx.size() as u32, Relaxed);
    // The peer cannot write here: who looks from outside takes the rings from nowhere else.
    let (arena, slot) = conn.location();
    end.arena.store(arena, Relaxed);
    end.slot.store(slot, Relaxed);
    end.state.store(end_state::WARM, Release);
    // Whatever kept it cold is over. Each direction moves with its writer's next bytes.
    if !s.has(flag::STAYS) {
        s.set_reason(Reason::BelowThreshold);
        end.rx_reason.store(Reason::BelowThreshold as u16, Relaxed);
    }
    if s.has(flag::SENT_FIN) {
        conn.out().wa.flags.fetch_or(writer_flag::SHUT, AcqRel);
    }
    s.mapped_by.store(state::get().map_or(0, |st| st.own().token.load(Relaxed)), Relaxed);
    s.conn.set(Some(conn));
    // Who counts itself into a kernel call after this sees the connection; who did before is seen by `consent`.
    fence(SeqCst);
    if old.is_some() {
        epoll::news(s);
    } else {
        epoll::became_warm(s);
    }
    guard::upgraded(s);
    log::line(LogLevel::Debug, format_args!("fd {}: both ends mapped", s.carrier()));
    consent(s, conn);
}

/// R permits an upgrade of the incoming direction, if nothing speaks against it.
#[inline]
pub fn consent(s: &'static Sock, conn: &'static Conn) {
    let asked = conn.inc().ra.ask.load(Relaxed);
    if asked == 0 || asked == ask::RECALL {
        consent_slow(s, conn);
    }
}

#[cold]
fn consent_slow(s: &'static Sock, conn: &'static Conn) {
    let end = s.end();
    let Some(state) = state::get() else { return };
    if s.has(flag::STAYS | over::SIGNS | flag::FOREIGN_BYTES)
        || state::hindrance().is_some()
        || leaving::is_under_way()
        || s.is_inherited()
        || !life::holds_alone(s, state)
        || end.r.heir.load(Relaxed) != 0
        || s.guard.holds()
        || conn.inc().path() != Path::Kernel
        || conn.inc().wa.flags.load(Relaxed) & writer_flag::SHUT != 0
    {
        return;
    }
    if end.r.in_kernel.load(SeqCst) != 0 {
        end.rx_reason.store(Reason::InKernelCall as u16, Relaxed);
        return;
    }
    if !epoll::can_overlay(s) {
        end.rx_reason.store(Reason::ForeignEpoll as u16, Relaxed);
        return;
    }
    if !uring::is_absent() {
        return;
    }
    // A recall that was asked for in passing has been answered: the path is the kernel's.
    conn.inc().withdraw_recall();
    conn.inc().consent();
    fault::point("consented");
    // Who wants the end on the kernel for good says so first and looks at the consent second.
    fence(SeqCst);
    if must_stay(s) {
        conn.inc().withdraw_consent();
        ask_recall(s, conn, ask::RECALL, Reason::RecalledOption);
    }
    // A wait word may have been used up in an earlier phase: the end is looked at, and armed, anew.
    epoll::news(s);
}

/// W starts using the ring if R consents and it is worth it. Holds the writer's lock.
#[inline]
pub fn maybe_begin(s: &'static Sock, conn: &'static Conn, lock: &WriteLock) {
    if conn.out().consented() {
        begin(s, conn, lock);
    }
}

#[cold]
fn begin(s: &'static Sock, conn: &'static Conn, lock: &WriteLock) {
    let end = s.end();
    let w = &end.w;
    let Some(state) = state::get() else { return };
    if s.has(flag::STAYS | flag::PEER_GONE | flag::SENT_FIN)
        || state::hindrance().is_some()
        || leaving::is_under_way()
        || s.is_inherited()
        || !life::holds_alone(s, state)
        || end.r.heir.load(Relaxed) != 0
        || s.guard.holds()
        || w.in_kernel.load(SeqCst) != 0
        || w.path.load(Relaxed) != wpath::KERNEL
        || end.pending_error.load(Relaxed) != 0
        || w.kernel_bytes.load(Relaxed) < w.not_before.load(Relaxed)
    {
        return;
    }
    let carrier = carrier::of(s);
    let Ok(standing) = carrier.standing(s) else { return };
    let half_closed = is_half_closed(s, conn);
    if standing.course != Course::Open && !(standing.course == Course::PeerFinished && half_closed) {
        return;
    }
    // Ring bytes that were re-sent through the carrier count there too: compare with what the carrier was given.
    if !s.has(flag::UNCOUNTED) && standing.given != carrier_bytes(s) {
        s.keep_on_kernel(Reason::UnhookedWriter);
        return;
    }
    if let Err(reason) = memory::back(s, conn, w.tail.load(Relaxed), 1) {
        s.keep_on_kernel(reason);
        return;
    }
    // Until R has drained the carrier, the ring may hold only what a recall could still put behind it.
    let limit = (carrier.room(s) / 2).min(conn.tx.size()) as u32;
    if limit < SMALLEST_LIMIT || !uring::is_absent() {
        return;
    }
    if !can_take_back(s, conn) {
        s.set_reason(Reason::SmallBuffer);
        return flush::rest(s);
    }
    let tail = w.tail.load(Relaxed);
    if !conn.out().begin_ring(tail, standing.given) {
        return;
    }
    fault::point("ring-begun");
    w.head_cache.store(tail, Relaxed);
    w.limit.store(limit, Relaxed);
    w.path.store(wpath::RING, Release);
    // Who wants the end on the kernel for good says so first and looks at the path second.
    fence(SeqCst);
    if must_stay(s) {
        return flush::claim(s, conn, state::hindrance().unwrap_or(end.reason()), lock);
    }
    // And so does who makes the carrier's buffer smaller.
    if !can_take_back(s, conn) {
        return flush::claim(s, conn, Reason::RecalledOption, lock);
    }
    // What was read last would have been acknowledged with these bytes.
    carrier::of(s).acknowledge(s);
    s.set_reason(Reason::Ring);
    s.set_upgraded();
    log::line(
        LogLevel::Info,
        format_args!("fd {}: outgoing bytes go through shared memory after {}", s.carrier(), standing.given),
    );
    // Sleeping readers are woken after the publish that follows, outside the lock.
    epoll::path_changed(s);
}

/// Whether the end is to stay on the kernel, whatever it was asked before.
fn must_stay(s: &Sock) -> bool {
    s.has(flag::STAYS) || state::hindrance().is_some() || s.end().r.heir.load(Acquire) != 0
}

/// Bytes that hooked calls gave to the carrier, recalled ring bytes included.
fn carrier_bytes(s: &Sock) -> u64 {
    s.end().w.kernel_bytes.load(Relaxed)
}

/// Wakes sleeping readers of the outgoing direction. A sleeper whose bell is unknown, or cannot be rung, is woken by the carrier:
/// the direction is taken back.
#[inline]
pub fn wake_readers(s: &'static Sock, conn: &'static Conn) {
    let places = &conn.out().ra.wait;
    if wait::any(places) {
        wake_readers_slow(s, conn);
    }
}

#[cold]
fn wake_readers_slow(s: &'static Sock, conn: &'static Conn) {
    let mut unknown = false;
    wait::wake(&conn.out().ra.wait, |bell| unknown |= !conn.ring(bell));
    if unknown
        && s.end().w.path.load(Relaxed) == wpath::RING
        && let Some(call) = Call::enter()
    {
        flush::recall_outgoing(s, conn, Reason::RecalledNoBell, &call);
    }
}

/// Wakes sleeping writers of the incoming direction once a quarter of the ring is free.
#[inline]
pub fn wake_writers(conn: &'static Conn) {
    if wait::any(&conn.inc().wa.wait) {
        wait::wake(&conn.inc().wa.wait, |bell| conn.ring_all_the_same(bell));
    }
}

/// R asks for the kernel path on the incoming direction and sees to it that W notices.
pub fn ask_recall(s: &'static Sock, conn: &'static Conn, bits: u32, reason: Reason) {
    let inc = conn.inc();
    inc.ask_recall(bits);
    if inc.path() != Path::Kernel {
        s.end().rx_reason.store(reason as u16, Relaxed);
        conn.demand_attention();
    }
}

/// Both directions back to the kernel, as far as this end can: the outgoing one now, the incoming one by asking,
/// with a bounded wait for the other end's flush. `forever` forbids upgrades for good.
pub fn recall_both(s: &'static Sock, reason: Reason, forever: bool) {
    recall_both_within(s, reason, forever, &Patience::default());
}

/// The same for one of several, all of which were asked: together they are waited for no longer than one.
pub fn recall_both_within(s: &'static Sock, reason: Reason, forever: bool, patience: &Patience) {
    if forever {
        s.set(flag::FOR_GOOD);
        let handed_over = matches!(
            reason,
            Reason::RecalledScmRights | Reason::RecalledExec | Reason::RecalledSpawn | Reason::RecalledStdio
        );
        if handed_over {
            s.set(flag::HANDED_OVER);
        }
        if handed_over && reason != Reason::RecalledStdio {
            heir::spread(s);
        }
        if !s.is_warm() {
            match reason {
                // There is nothing to take back.
                Reason::RecalledOption | Reason::RecalledUlp => s.keep_for_option(),
                _ => s.set_reason(reason),
            }
        }
    }
    let Some(conn) = s.conn.get() else { return };
    let Some(call) = Call::enter() else { return };
    if s.has(flag::HANDED_OVER) {
        flush::empty_ring_for_others(s, conn, reason, &call);
    } else {
        flush::empty_ring(s, conn, reason, &call);
    }
    recall_incoming_within(s, conn, reason, patience);
    if s.has(flag::HANDED_OVER) {
        cut::off(s, conn, &call);
        // Whoever has it may have the kernel do something to what comes.
        over::seal(s, conn, false);
    }
    end_recall(s, conn);
}

/// How long other ends are waited for, however many they are: from the first wait on.
#[derive(Debug, Default)]
pub struct Patience(Cell<Option<u64>>);

impl Patience {
    fn until(&self) -> u64 {
        let until = self.0.get().unwrap_or_else(|| clock::monotonic_ns() + 50_000_000);
        self.0.set(Some(until));
        until
    }
}

/// Takes the other end's consent back and asks for the incoming direction; who asks several ends so waits for all of them at once
/// ([`recall_incoming_within`]).
pub fn ask_back(s: &'static Sock, conn: &'static Conn, reason: Reason) {
    conn.inc().withdraw_consent();
    ask_recall(s, conn, ask::RECALL, reason);
}

/// A recall that W has answered is over. Where W has not answered yet it stands, and is answered before W's next byte.
pub fn end_recall(s: &Sock, conn: &Conn) {
    if !s.has(flag::STAYS) && conn.inc().path() == Path::Kernel {
        conn.inc().withdraw_recall();
    }
}

/// Asks for the incoming direction and waits up to 50 ms for the claim; W still maps the ring and will flush at
/// its next call if it is late.
pub fn recall_incoming(s: &'static Sock, conn: &'static Conn, reason: Reason) {
    recall_incoming_within(s, conn, reason, &Patience::default());
}

/// The same for one of several, all of which were asked.
pub fn recall_incoming_within(s: &'static Sock, conn: &'static Conn, reason: Reason, patience: &Patience) {
    conn.inc().withdraw_consent();
    let late_bytes = carrier::of(s).shutdown_is_gentle();
    let is_back = || {
        conn.inc().path() == Path::Kernel
            && (late_bytes || conn.inc().wa.flags.load(Acquire) & writer_flag::FLUSHING == 0)
    };
    if is_back() {
        return;
    }
    ask_recall(s, conn, ask::RECALL, reason);
    let until = patience.until();
    // The peer may be this very thread's process: serve our own inbox meanwhile.
    while !is_back() && clock::monotonic_ns() < until {
        attend();
        if bypath_sys::poll::now(s.carrier(), libc::POLLHUP | libc::POLLERR) & (libc::POLLHUP | libc::POLLERR)
            != 0
        {
            return;
        }
        thread::yield_now();
    }
}

/// Serves what peers demand of this process: looks at every marked end. One load when there is nothing.
#[inline]
pub fn attend() {
    if let Some(inbox) = state::get().and_then(|s| s.inbox_if_any())
        && inbox.is_marked()
    {
        attend_marked(inbox);
    }
}

#[cold]
fn attend_marked(inbox: &'static bypath_shm::inbox::Inbox) {
    uring::attend();
    inbox.drain(|number| {
        let Some(s) = crate::table::by_number(number) else { return };
        wish::serve(s);
        attend_to(s);
    });
}

/// The other end may ask for something, or have done something that sets wait for.
pub fn attend_to(s: &'static Sock) {
    if let Some(conn) = s.conn.get() {
        answer_demand(s, conn);
        epoll::news(s);
    }
}

/// Takes outgoing bytes back if the other end asks for that.
pub fn answer_demand(s: &'static Sock, conn: &'static Conn) {
    let asked = conn.out().ra.ask.load(Acquire);
    if asked & (ask::RECALL | ask::CLOSED) != 0
        && s.end().w.path.load(Relaxed) != wpath::KERNEL
        && let Some(call) = Call::enter()
    {
        let reason = if asked & ask::CLOSED != 0 { Reason::RecalledPeerClosed } else { Reason::RecalledPeer };
        flush::recall_outgoing(s, conn, reason, &call);
    }
}

/// Whether the other end has shut its sending side down only, and it will be seen when it is gone. After TCP's FIN nothing comes that would tell: it is asked for
/// now and then.
#[inline]
pub fn is_half_closed(s: &Sock, conn: &Conn) -> bool {
    conn.inc().wa.flags.load(Acquire) & writer_flag::SHUT != 0 && is_watched(s)
}

#[cold]
fn is_watched(s: &Sock) -> bool {
    let is_watched = carrier::of(s).tells_after_fin(s);
    if is_watched {
        siblings::watch();
    }
    is_watched
}

/// The carrier reported the other end's FIN or an error: outgoing bytes go the kernel's way, so that it answers
/// as TCP does, now and when an end that only sends no more is gone.
pub fn peer_ended(s: &'static Sock, conn: &'static Conn, reset: bool, call: &Call) {
    if !reset && is_half_closed(s, conn) {
        return siblings::look_if_due(call);
    }
    s.set(flag::PEER_GONE);
    over::seen(s, conn);
    flush::recall_outgoing(s, conn, Reason::RecalledPeerClosed, call);
}

/// Whether the other end is gone and did not say why, and the kernel has no error for it. An end that closes with unread
/// bytes, or after reading all, says CLOSED. One that did neither was killed; the kernel resets such a connection if
/// bytes were unread, and so it ends here. An end that reads no more looks to its own calls as if the other were gone.
pub fn peer_was_killed(s: &Sock, conn: &Conn) -> bool {
    let carrier = carrier::of(s);
    let finished = || carrier.standing(s).is_ok_and(|at| at.course != Course::Open);
    s.has(flag::PEER_GONE)
        && conn.out().ra.ask.load(Acquire) & ask::CLOSED == 0
        && conn.inc().wa.flags.load(Acquire) & writer_flag::SHUT == 0
        && !waiting::peer_end(s).1
        && (!s.has(flag::NO_READ) || carrier.shutdown_is_gentle() && finished())
}

/// The peer wrote nonsense: this connection ends as a reset would end it, and nothing else suffers.
pub fn poison(s: &'static Sock, conn: &'static Conn) {
    let end = s.end();
    end.w.path.store(wpath::KERNEL, Release);
    s.keep_on_kernel(Reason::PeerMemoryInvalid);
    end.rx_reason.store(Reason::PeerMemoryInvalid as u16, Relaxed);
    over::end(s);
    conn.inc().h.head.store(poisoned_head(), Release);
    // Who has its number, or is its partner, by now has done nothing.
    if !whose::is_elsewhere(s) {
        end.pending_error.store(libc::ECONNRESET, Relaxed);
        carrier::of(s).reset(s);
    }
    if let Some(stats) = state::get().and_then(|s| s.own().stats.get()) {
        stats.recalled[Reason::PeerMemoryInvalid as usize].fetch_add(1, Relaxed);
    }
    log::line(
        LogLevel::Error,
        format_args!("fd {}: the other end wrote nonsense into shared memory; connection reset", s.carrier()),
    );
}

/// A head word on the kernel path: our own reads go to the carrier from now on.
fn poisoned_head() -> u64 {
    Head::new(0, Path::Kernel).raw()
}

/// D to R if the carrier is drained: its count of received bytes says so. True if the path is R now.
pub fn try_drained(s: &'static Sock, conn: &'static Conn, head: Head) -> bool {
    let expected = conn.inc().wa.switch_k.load(Relaxed);
    if !carrier::of(s).arrived(s, expected, 0) {
        return false;
    }
    // W says where positions begin: what was seen before is no tail of these.
    s.end().r.tail_cache.store(head.position(), Relaxed);
    if conn.inc().drained(head) {
        fault::point("drained");
        carrier::of(s).acknowledge(s);
        // The writer may use the whole ring now.
        fence_after_rmw();
        wake_writers(conn);
        let end = s.end();
        end.rx_reason.store(Reason::Ring as u16, Relaxed);
        s.set_upgraded();
    }
    true
}

/// The carrier has ended. If W had claimed and died, or shut its side down, before it had sent everything again, the rest
/// is still in the ring: true if R reads on there.
#[cold]
pub fn inherit(s: &Sock, conn: &Conn) -> bool {
    sent_again(s, conn).is_some_and(|octets| conn.inc().inherit(octets, conn.rx.size()))
}

/// The same where nothing of the ring is read any more: whether octets are missing that it has. It is told once.
#[cold]
pub fn is_cut_short(s: &Sock, conn: &Conn) -> bool {
    let head = Head::from_raw(conn.inc().h.head.load(Acquire));
    let is_short = sent_again(s, conn).is_some_and(|octets| octets < over::behind(conn, head));
    if is_short {
        conn.inc().wa.flags.fetch_and(!writer_flag::FLUSHING, AcqRel);
    }
    is_short
}

/// How much a writer that has ended had sent again of what it took back, where it had not sent all.
fn sent_again(s: &Sock, conn: &Conn) -> Option<u64> {
    let inc = conn.inc();
    if inc.wa.flags.load(Acquire) & writer_flag::FLUSHING == 0 {
        return None;
    }
    let (taken, before) = (s.end().r.kernel_bytes.load(Acquire), inc.wa.switch_k.load(Relaxed));
    // Only the kernel knows that these are all; what a reset threw away comes before the ring's bytes. After a shutdown for reading it says so while they come.
    let is_all = || carrier::of(s).arrived(s, taken, 0) && (!s.has(flag::NO_READ) || waiting::peer_end(s).0);
    (taken >= before && is_all()).then(|| taken - before)
}

/// Free ring bytes for the writer whose true tail is `tail`, by the head as it is now, or was seen before: it does not go back. Who has been told of room finds it,
/// whatever a reader says by then.
pub fn room(s: &Sock, conn: &Conn, tail: u64) -> Result<u64, Poisoned> {
    let size = conn.tx.size();
    let used = position::distance(s.end().w.head_cache.load(Relaxed), tail);
    Ok(conn.out().space(tail, size)?.max(size.saturating_sub(used)))
}

/// How much of that may be used.
pub fn of_room(s: &Sock, conn: &Conn, free: u64) -> u64 {
    let w = &s.end().w;
    let limit = u64::from(w.limit.load(Relaxed));
    if limit == 0 {
        return free;
    }
    if conn.out().path() == Path::Ring && is_drained(s) {
        w.limit.store(0, Relaxed);
        return free;
    }
    limit.saturating_sub(conn.tx.size() - free)
}

/// Whether the carrier has room for a ring again. R has said that it has read everything, which need not be true: what is in the ring must find
/// a place in the carrier, or the process cannot go back to the kernel.
#[cold]
fn is_drained(s: &Sock) -> bool {
    let carrier = carrier::of(s);
    carrier.room(s) >= carrier.capacity(s.carrier()) / 2
}

/// Whether a full ring would find a place in the carrier, also where nobody reads that: its buffer may be smaller than it was when the ring's
/// length was agreed on.
pub fn can_take_back(s: &Sock, conn: &Conn) -> bool {
    carrier::of(s).capacity(s.carrier()) / 2 >= conn.tx.size()
}

/// Whether a waiting writer should go on: a quarter of what it may use is free.
pub fn has_space(s: &Sock, conn: &Conn) -> bool {
    let w = &s.end().w;
    let seen = w.head_cache.load(Relaxed);
    let tail = w.tail.load(Relaxed);
    let Ok(free) = room(s, conn, tail) else { return true };
    let usable = of_room(s, conn, free);
    let limit = u64::from(w.limit.load(Relaxed));
    let all = if limit == 0 { conn.tx.size() } else { limit };
    let has = usable >= all / 4;
    if has && promised::is_doubted(conn) {
        // Not where another thread has seen more, or begun another ring.
        let head = position::back(tail, conn.tx.size() - free);
        let _ = w.head_cache.compare_exchange(seen, head, Relaxed, Relaxed);
    }
    has
}

/// Ring bytes waiting to be read.
pub fn unread(conn: &Conn) -> u64 {
    match conn.inc().readable(conn.rx.size()) {
        Ok(Readable::Ring { available, .. }) => available,
        Ok(Readable::Drain(head)) => {
            position::distance(head.position(), conn.inc().t.tail.load(Acquire)).min(conn.rx.size())
        }
        _ => 0,
    }
}

/// As [`unread`], without ring bytes behind some of the carrier that have not arrived: no read gets at those.
pub fn within_reach(s: &Sock, conn: &Conn) -> u64 {
    let inc = conn.inc();
    let blocked = inc.path() == Path::Drain && is_under_way(s, inc.wa.switch_k.load(Relaxed));
    if blocked { 0 } else { unread(conn) }
}

/// Ring bytes that R could see, and that are not read yet, come through the carrier: the position in its stream that they
/// end at.
pub fn owed(s: &Sock, conn: &Conn) -> Option<u64> {
    let inc = conn.inc();
    let head = Head::from_raw(inc.h.head.load(Acquire));
    let behind = position::distance(head.position(), inc.t.tail.load(Acquire));
    if head.path() != Path::Kernel || behind == 0 || behind > conn.rx.size() {
        return None;
    }
    let end = inc.wa.switch_k.load(Relaxed).wrapping_add(behind);
    (s.end().r.kernel_bytes.load(Acquire) < end).then_some(end)
}

/// The incoming direction is the kernel's for good, and everything that will be read comes from the carrier.
pub fn is_settled(s: &Sock, conn: &Conn) -> bool {
    let asked = conn.inc().ra.ask.load(SeqCst);
    s.has(flag::FOR_GOOD)
        && (asked == 0 || asked == ask::RECALL)
        && conn.inc().path() == Path::Kernel
        && owed(s, conn).is_none()
}

/// Whether they are not there yet: their writer is about to send them again, or they are on the way.
pub fn is_under_way(s: &Sock, owed: u64) -> bool {
    if s.served().is_some() {
        // A pair has nothing on its way: the service says while it takes octets back. What is read of them nobody need see.
        let flushing = |conn: &Conn| conn.inc().wa.flags.load(Acquire) & writer_flag::FLUSHING != 0;
        return s.conn.get().is_some_and(flushing);
    }
    carrier::of(s).received(s).is_ok_and(|received| received < owed)
}

/// Whether more of the carrier is due than a read that found nothing has seen: it has come since, or is [`owed`].
#[cold]
pub fn comes_yet(s: &Sock, owed: Option<u64>) -> bool {
    // In this order: what is not on its way any more is there.
    owed.is_some_and(|owed| is_under_way(s, owed)) || bypath_sys::sock::inq(s.carrier()).is_ok_and(|n| n > 0)
}

/// The writer's lock was taken over from a dead sibling: finishes what it may have left half done. Kernel truth
/// and the head word settle positions.
pub fn repair(s: &'static Sock, conn: &'static Conn) {
    let end = s.end();
    let w = &end.w;
    let size = conn.tx.size();
    let out = conn.out();
    // Killed between publish and its own note of it: what was visible counts.
    let tail = w.tail.load(Relaxed);
    let published = position::distance(tail, out.t.tail.load(Acquire));
    let tail = if published <= size { position::onward(tail, published) } else { tail };
    w.tail.store(tail, Relaxed);
    // As if the ring were full: the next writer looks at the head.
    w.head_cache.store(tail.wrapping_sub(size), Relaxed);
    let head = Head::from_raw(out.h.head.load(Acquire));
    match (w.path.load(Relaxed), head.path()) {
        (wpath::KERNEL, Path::Ring | Path::Drain) => {
            // What the carrier has room for is not known any more; this much it had.
            w.limit.store(SMALLEST_LIMIT, Relaxed);
            w.path.store(wpath::RING, Release);
        }
        (wpath::RING | wpath::FLUSH, Path::Kernel) => {
            let written = carrier::of(s).standing(s).map_or(0, |at| at.given);
            let resent = written.saturating_sub(out.wa.switch_k.load(Relaxed));
            let behind = position::distance(head.position(), tail).min(size);
            w.flush.store(position::back(tail, behind - resent.min(behind)), Relaxed);
            w.kernel_bytes.store(written, Relaxed);
            w.path.store(wpath::FLUSH, Release);
        }
        _ => {}
    }
}

/// A full fence that orders our last locked instruction before the looks that follow.
#[inline]
pub fn look_fence() {
    fence_after_rmw();
}
