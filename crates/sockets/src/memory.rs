//! Ring memory: backed when the writer first reaches it, given back when the connection rests.
//!
//! Only the writer's side does either, under the writer's lock. Pages are given back only while the ring is empty,
//! so nobody reads them: a reader that lost a race may copy zeroes, but its commit fails.

use crate::config::Config;
use crate::flush;
use crate::others;
use crate::peer::Conn;
use crate::state::{self, State};
use crate::table::{self, Sock};
use crate::thread::Call;
use crate::wlock::WriteLock;
use bypath_shm::arena::Geometry;
use bypath_shm::direction::{Head, Path, position};
use bypath_shm::family::{WriterLine, wpath};
use bypath_shm::reason::Reason;
use bypath_sys::{cgroup, clock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// First step in which memory is taken, and the following ones.
const FIRST: u64 = 4096;
const STEP: u64 = 32 * 1024;
/// A connection that sent nothing for one to two such periods rests.
const REST_NS: u64 = 250_000_000;
/// [`WriterLine::backed`] of a ring that is backed as a whole.
const WHOLE: u64 = u64::MAX;
/// No ring is larger.
const MOST: u64 = Geometry::MAX_RING as u64;

/// Rings of a process hold this part of its cgroup's memory at most.
const CGROUP_SHARE: u64 = 4;

/// Some ring took memory and may have come to rest since.
static GROWN: AtomicBool = AtomicBool::new(false);
/// When resting rings were last looked for.
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// What all rings of this process may hold: as configured, but no more than a part of what its cgroup allows. A ring's memory is
/// not given back under pressure, as the kernel's buffers are: the kernel would kill somebody.
fn ceiling(config: &Config) -> u64 {
    static CEILING: AtomicU64 = AtomicU64::new(0);
    let known = CEILING.load(Relaxed);
    if known != 0 {
        return known;
    }
    let allowed = cgroup::memory_limit().map_or(u64::MAX, |limit| limit / CGROUP_SHARE);
    let ceiling = config.memory_limit.min(allowed).max(1);
    CEILING.store(ceiling, Relaxed);
    ceiling
}

fn held(w: &WriterLine, size: u64) -> u64 {
    match w.backed.load(Relaxed) {
        WHOLE => size,
        to => position::distance(w.backed_from.load(Relaxed), to).min(size),
    }
}

/// Whether the ring has memory for the bytes up to position `end`.
#[inline]
pub fn is_backed(w: &WriterLine, end: u64) -> bool {
    let to = w.backed.load(Relaxed);
    to == WHOLE || position::distance(end, to) <= MOST
}

/// Takes memory for the `n` ring bytes from position `tail` on. Holds the writer's lock.
///
/// # Errors
/// Why there is none.
#[cold]
pub fn back(s: &Sock, conn: &Conn, tail: u64, n: u64) -> Result<(), Reason> {
    let (w, size) = (&s.end().w, conn.tx.size());
    let (Some(state), Some(config)) = (state::get(), state::config()) else { return Err(Reason::NoMemory) };
    if is_backed(w, position::onward(tail, n)) {
        return Ok(());
    }
    // From here on positions are not cut: they may be behind the wrap.
    let from = position::onward(w.backed_from.load(Relaxed), 0);
    let backed = from + position::distance(from, w.backed.load(Relaxed));
    let end = from + position::distance(from, tail) + n;
    let step = if end - from <= FIRST { FIRST } else { STEP };
    // Never less than there is: others of the family write these words, too.
    let to = end.next_multiple_of(step).min(from + size).max(backed);
    let growth = to - backed;
    let fits = || state.own().ring_bytes.load(Relaxed).saturating_add(growth) <= ceiling(config);
    if !fits() {
        reclaim();
        if !fits() {
            return Err(Reason::MemoryLimit);
        }
    }
    conn.tx.back(backed, to).map_err(|_| Reason::NoMemory)?;
    state.own().ring_bytes.fetch_add(growth, Relaxed);
    w.backed.store(if to == from + size { WHOLE } else { position::onward(to, 0) }, Relaxed);
    GROWN.store(true, Release);
    Ok(())
}

fn give_back(bytes: u64) {
    if let Some(state) = state::get() {
        // A forked child counts from 0, and may give back what its parent took.
        let _ = state.own().ring_bytes.fetch_update(Relaxed, Relaxed, |b| Some(b.saturating_sub(bytes)));
    }
}

/// The connection ends in this process: its memory no longer counts here.
pub fn forget(s: &Sock, conn: &Conn) {
    give_back(held(&s.end().w, conn.tx.size()));
}

/// Whether another connection has a chance under the ceiling.
///
/// # Errors
/// [`Reason::MemoryLimit`].
pub fn admit(state: &State, config: &Config) -> Result<(), Reason> {
    let fits = state.own().ring_bytes.load(Relaxed) + STEP <= ceiling(config);
    if fits { Ok(()) } else { Err(Reason::MemoryLimit) }
}

/// From now on the ring counts as not backed; its next byte stands at `tail`.
pub fn restart(w: &WriterLine, tail: u64) {
    let page = tail & !(FIRST - 1);
    w.backed_from.store(page, Relaxed);
    w.backed.store(page, Relaxed);
}

/// Called before a thread sleeps for at most `bound` ns (`None` = for ever): gives back the memory of rings that
/// rest. Returns how long to sleep: less while there are rings that may come to rest.
#[inline]
pub fn before_sleep(call: &Call, bound: Option<u64>) -> Option<u64> {
    if !GROWN.load(Relaxed) {
        return bound;
    }
    look(call);
    if GROWN.load(Relaxed) { Some(bound.unwrap_or(u64::MAX).min(REST_NS)) } else { bound }
}

#[cold]
fn look(call: &Call) {
    let (now, last) = (clock::monotonic_ns(), LOOKED.load(Relaxed));
    // Earlier than that, too, in a child of another time namespace.
    if now.abs_diff(last) < REST_NS || LOOKED.compare_exchange(last, now, AcqRel, Relaxed).is_err() {
        return;
    }
    GROWN.store(false, SeqCst);
    table::each_sock(|s| {
        let Some(conn) = s.conn.get() else { return };
        let w = &s.end().w;
        if held(w, conn.tx.size()) == 0 {
            return;
        }
        let tail = w.tail.load(Relaxed);
        if s.rested_at.swap(tail, Relaxed) != tail {
            GROWN.store(true, Release);
        } else if let Some(lock) = WriteLock::try_take(s, call) {
            release(s, conn);
            lock.unlock();
        }
    });
}

/// At the ceiling: gives back the memory of every ring that is empty, whether it rests or not.
#[cold]
fn reclaim() {
    static LAST: AtomicU64 = AtomicU64::new(0);
    const PERIOD_NS: u64 = 20_000_000;
    let (now, last) = (clock::monotonic_ns(), LAST.load(Relaxed));
    // Earlier than that, too, in a child of another time namespace.
    if now.abs_diff(last) < PERIOD_NS || LAST.compare_exchange(last, now, AcqRel, Relaxed).is_err() {
        return;
    }
    let Some(call) = Call::enter().filter(|_| !others::any()) else { return };
    table::each_sock(|s| {
        // The caller's own ring is locked, and left out by that.
        if let Some(conn) = s.conn.get()
            && held(&s.end().w, conn.tx.size()) > 0
            && let Some(lock) = WriteLock::try_take(s, &call)
        {
            release(s, conn);
            lock.unlock();
        }
    });
}

/// Gives the memory back if the ring is empty or not in use. Holds the writer's lock.
fn release(s: &Sock, conn: &Conn) {
    if others::any() {
        return;
    }
    let w = &s.end().w;
    let tail = w.tail.load(Relaxed);
    let empty = match w.path.load(Relaxed) {
        // A reader may have taken the ring over, or be about to.
        wpath::KERNEL => conn.out().path() == Path::Kernel && !flush::has_left_rest(conn),
        wpath::RING => Head::from_raw(conn.out().h.head.load(Acquire)).position() == tail,
        _ => false,
    };
    if empty {
        let size = conn.tx.size();
        give_back(held(w, size));
        restart(w, tail);
        conn.out().releasing(tail);
        conn.tx.release();
    }
}
