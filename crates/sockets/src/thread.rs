//! What a thread of this process has: a bell to be woken by, a marker of being inside a call, a counter block.
//!
//! The marker makes memory reuse safe without a lock or an atomic read-modify-write on the data path: a thread
//! counts its nesting with plain stores; who wants to reuse something issues a membarrier and looks at every
//! thread (see [`quiesce`]). Threads that sleep in the kernel hold nothing ([`Call::parked`]).

use crate::others;
use crate::parts::Going;
use crate::raised::Notes;
use crate::sealed;
use crate::state;
use crate::stay;
use crate::table::Sock;
use crate::wait;
use bypath_shm::family;
use bypath_shm::region::Slab;
use bypath_shm::stats::{BLOCKS, ByteBlock};
use bypath_sys::page::Pages;
use bypath_sys::scratch::{Scratch, Slot};
use bypath_sys::signal::{self, Deferred};
use bypath_sys::{Errno, clock, eventfd, fd, futex, process, thread as sys};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// Threads followed at a time; others use the kernel path.
const THREADS: usize = 4096;
// Chunks of a page or two: each page that was written once is copied at every fork.
static RECORDS: Slab<Record, { THREADS / 2 }, 2> = Slab::new();
/// Upper bound of the records ever used.
static USED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static MINE: Cell<Option<&'static Record>> = const { Cell::new(None) };
}

/// One thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Record {
    in_use: AtomicBool,
    number: AtomicU32,
    /// Thread id.
    pub tid: AtomicU32,
    depth: AtomicU32,
    /// Nesting outside of the innermost sleep: frames above it are inside a call.
    base: AtomicU32,
    epoch: AtomicU64,
    /// Signals that arrived inside a call.
    deferred: Deferred,
    /// What kind of handlers ran in the current sleep: bits of [`crate::signals`].
    pub ran: AtomicU32,
    /// The same of the sleep before, of the same call, which something else ended.
    unseen: AtomicU32,
    /// Handlers that ran in this thread so far, wrapping.
    pub handlers: AtomicU32,
    /// pthread_self().
    pthread: AtomicUsize,
    /// pthread_cancel was called for it.
    cancelled: AtomicBool,
    /// It sleeps, or is about to.
    asleep: AtomicBool,
    /// It is in the middle of something of this library's outside of a call: see [`Busy`].
    busy: AtomicU32,
    /// Epoll set it waits on plus one.
    pub waits_on: AtomicU32,
    /// One-shot registrations that had gone when it began a wait that the overlay does not serve.
    pub gone: AtomicU32,
    /// Its last data call has moved some, and ended as nothing is followed any more: one more than how many handlers had run.
    cut_short: AtomicU64,
    /// Socket on which a data call of its sleeps, or may, plus one.
    pub sleeps_on: AtomicU32,
    /// Socket whose memory it touches once more when it wakes up, plus one.
    touches: AtomicU32,
    /// Socket that such a call keeps, plus one; see `stay`.
    pub stays_on: AtomicU32,
    /// Its stack address.
    pub stays_frame: AtomicUsize,
    /// Its call that goes in parts.
    pub going: Going,
    /// Number of this thread's bell, 0 = none yet.
    pub bell: AtomicU32,
    /// Its eventfd.
    pub bell_fd: AtomicI32,
    /// The bell may have been rung since it was last silenced.
    pub rung: AtomicBool,
    /// Last ticket.
    ticket: AtomicU32,
    /// Stack address of the frame that holds a writer's lock, or is about to, 0 = none.
    pub lock_frame: AtomicUsize,
    /// Counters that are up for calls of this thread.
    notes: Notes,
    /// Nesting of sleeps: a signal handler may sleep inside a sleep.
    sleeps: AtomicU32,
    /// Pauses between two polls in stream mode.
    pub pace: AtomicU32,
    /// Pages of buffers that were good lately: 1 MiB of them.
    pub pages: Pages<256>,
    /// Working memory: of who calls the engine, and of its waits.
    scratch: [Slot; 2],
}

/// For what working memory is used. Calls of one kind nest only by signal handlers.
#[derive(Clone, Copy, Debug)]
pub enum Use {
    /// By who calls the engine.
    Caller,
    /// By a wait inside.
    Wait,
}

/// Working memory of the calling thread, for its frame at `frame`; `None` if there is none.
pub fn scratch(purpose: Use, len: usize, frame: usize) -> Option<Scratch<'static>> {
    match mine() {
        Some(r) => r.scratch[purpose as usize].take(len, frame),
        None => Scratch::of_one_call(len),
    }
}

extern "C" fn thread_ends(value: *mut std::ffi::c_void) {
    // The value is the record's number plus one.
    let number = (value as usize).wrapping_sub(1) as u32;
    if let Some(r) = record(number) {
        r.busy.store(BUSY, Relaxed);
        r.depth.store(0, Relaxed);
        r.notes.lower_all();
        stay::thread_ended(r);
        r.going.close_file();
        r.in_use.store(false, Release);
    }
    MINE.set(None);
}

/// Once per process image.
pub fn init() {
    sys::on_exit(thread_ends);
}

fn record(number: u32) -> Option<&'static Record> {
    RECORDS.get(number as usize)
}

/// The calling thread's record, created at its first call; `None` when there are too many threads.
#[inline]
pub fn mine() -> Option<&'static Record> {
    match MINE.get() {
        Some(r) => Some(r),
        None => enter(),
    }
}

#[cold]
fn enter() -> Option<&'static Record> {
    let tid = sys::tid();
    for number in 0..THREADS as u32 {
        let r = RECORDS.ensure(number as usize)?;
        if !r.in_use.swap(true, AcqRel) {
            r.number.store(number, Relaxed);
            r.tid.store(tid, Relaxed);
            let counters =
                [&r.depth, &r.base, &r.ran, &r.handlers, &r.sleeps, &r.waits_on, &r.sleeps_on, &r.stays_on];
            for counter in counters {
                counter.store(0, Relaxed);
            }
            r.going.reset();
            r.unseen.store(0, Relaxed);
            r.asleep.store(false, Relaxed);
            r.busy.store(0, Relaxed);
            r.cancelled.store(false, Relaxed);
            r.lock_frame.store(0, Relaxed);
            r.scratch.iter().for_each(Slot::hand_over);
            r.pthread.store(sys::pthread_self(), Release);
            r.pace.store(2, Relaxed);
            r.touches.store(0, Relaxed);
            USED.fetch_max(number + 1, AcqRel);
            MINE.set(Some(r));
            sys::set_exit_value(number as usize + 1);
            if crate::signals::was_cancelled(tid) {
                r.cancelled.store(true, SeqCst);
            }
            return Some(r);
        }
    }
    None
}

/// The calling thread's record if it has one.
#[inline]
pub fn existing() -> Option<&'static Record> {
    MINE.get()
}

/// The record of the thread that the C library calls `pthread`.
pub fn find(pthread: usize) -> Option<&'static Record> {
    let mut records = (0..USED.load(Acquire)).filter_map(record);
    records.find(|r| r.in_use.load(Acquire) && r.pthread.load(Acquire) == pthread)
}

/// Whether the thread of this number says that it is in a writer's lock, or about to be.
pub fn is_in_lock(tid: u32) -> bool {
    let mut records = (0..USED.load(Acquire)).filter_map(record);
    let of_it = |r: &&Record| r.in_use.load(Acquire) && r.tid.load(Relaxed) == tid;
    records.find(of_it).is_some_and(|r| r.lock_frame.load(Acquire) != 0)
}

/// Being inside a call on followed sockets. Signal handlers of the program wait until it ends or sleeps.
#[derive(Debug)]
pub struct Call {
    /// The calling thread.
    pub thread: &'static Record,
}

impl Call {
    /// Enters a call. Plain stores only: signal handlers nest and leave as they came.
    #[inline]
    pub fn enter() -> Option<Call> {
        let thread = mine()?;
        thread.depth.store(thread.depth.load(Relaxed) + 1, Relaxed);
        std::sync::atomic::compiler_fence(SeqCst);
        Some(Call { thread })
    }

    /// Runs `f` (a sleep in the kernel) as if outside: whatever was looked up must be looked up again after it.
    ///
    /// # Errors
    /// EINTR where `f` did not run because a handler did instead, now or in the call's sleep before (which an event ended that
    /// was none for the caller), or because the thread is to end; those of `f`.
    pub fn parked<R>(&self, f: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
        let t = self.thread;
        let (depth, base) = (t.depth.load(Relaxed), t.base.load(Relaxed));
        t.epoch.store(t.epoch.load(Relaxed) + 1, Relaxed);
        t.ran.store(t.unseen.load(Relaxed), Relaxed);
        t.unseen.store(0, Relaxed);
        // What this one interrupted may sleep. (So may have what it left by longjmp.)
        let outer = (depth > 1 || t.sleeps.load(Relaxed) > 1) && t.asleep.load(Relaxed);
        // Said first and taken back last: at no moment does it look as if it were outside.
        t.asleep.store(true, SeqCst);
        // Frames that this one interrupted (signal handlers nest) still hold what they looked up.
        t.depth.store(depth.saturating_sub(1), Release);
        t.base.store(depth.saturating_sub(1), Relaxed);
        std::sync::atomic::compiler_fence(SeqCst);
        if t.deferred.any() {
            t.deferred.deliver();
        }
        // A handler that ran just now ends the sleep as one that runs in it does.
        let r = if t.ran.load(Relaxed) != 0 || t.is_cancelled() { Err(Errno::INTR) } else { f() };
        t.depth.store(depth, Release);
        t.base.store(base, Relaxed);
        t.asleep.store(outer, Release);
        std::sync::atomic::fence(SeqCst);
        if r.is_ok() {
            // Whoever sleeps again has found nothing: then that was what woke it.
            t.unseen.store(t.ran.load(Relaxed), Relaxed);
        }
        r
    }

    /// A number of this call, where it is an outermost one: that of the thread's next call on a followed socket is one more.
    #[inline]
    pub fn number(&self) -> u64 {
        let t = self.thread;
        (u64::from(t.number.load(Relaxed)) << 48).wrapping_add(t.epoch.load(Relaxed))
    }

    /// Whether something wants this thread to stop spinning: a signal waits for its handler.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.thread.deferred.any()
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        let t = self.thread;
        let depth = t.depth.load(Relaxed);
        if depth <= 1 {
            t.epoch.store(t.epoch.load(Relaxed) + 1, Relaxed);
            t.unseen.store(0, Relaxed);
        }
        std::sync::atomic::compiler_fence(SeqCst);
        if !t.deferred.any() {
            t.depth.store(depth.saturating_sub(1), Release);
            // One that came before that store is kept, and finds nobody who looks.
            std::sync::atomic::compiler_fence(SeqCst);
            if !t.deferred.any() {
                return;
            }
        }
        leave_with_signals(t, depth);
    }
}

/// The call ends, and signals have waited for it.
#[cold]
fn leave_with_signals(t: &'static Record, depth: u32) {
    let _busy = Busy::of(t);
    t.depth.store(depth.saturating_sub(1), Release);
    if !t.is_inside() {
        t.deferred.deliver();
    }
}

/// Being in the middle of something of this library's outside of a [`Call`], where handlers run, and nobody else waits for this thread but who is about to
/// have no more system calls made that the program has not asked for ([`turn_out`]).
#[derive(Debug)]
pub struct Busy(Option<(&'static Record, u32)>);

/// It is.
const BUSY: u32 = 1;
/// A handler of the program has interrupted it, and may take long, or leave by longjmp.
const INTERRUPTED: u32 = 2;

impl Busy {
    /// From now on. Whether anything is followed is to be asked after it.
    pub fn begin() -> Busy {
        match MINE.get() {
            Some(t) => Busy::of(t),
            // Nothing is followed, nobody waits, and a filter may forbid what it takes to know the thread.
            None if sealed::is_done() => Busy(None),
            None => enter().map_or(Busy(None), Busy::of),
        }
    }

    /// The same of a thread that has made a call before; others are not made known for it.
    pub fn of_known() -> Busy {
        MINE.get().map_or(Busy(None), Busy::of)
    }

    /// Of the calling thread.
    fn of(t: &'static Record) -> Busy {
        let outer = t.busy.load(Relaxed);
        t.busy.store(BUSY, Relaxed);
        std::sync::atomic::compiler_fence(SeqCst);
        Busy(Some((t, outer)))
    }

    /// A handler of the program runs.
    #[inline]
    pub fn interrupted() -> Busy {
        let busy = existing().filter(|t| t.busy.load(Relaxed) == BUSY);
        busy.inspect(|t| t.busy.store(INTERRUPTED, Release));
        Busy(busy.map(|t| (t, BUSY)))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some((t, outer)) = self.0 {
            std::sync::atomic::compiler_fence(SeqCst);
            t.busy.store(outer, Release);
        }
    }
}

/// How long [`quiesce`] waits in all: its caller holds [`state::LIFE`], and a yield of a busy processor takes
/// milliseconds.
const QUIESCE_NS: u64 = 1_000_000;

/// Waits (bounded) until every other thread that was inside a call has left it or sleeps. False = not so; what
/// was to be reused must be kept for later.
pub fn quiesce() -> bool {
    quiesce_within(QUIESCE_NS)
}

/// The same, and how long it waits.
pub fn quiesce_within(patience_ns: u64) -> bool {
    if process::membarrier().is_err() {
        return false;
    }
    let me = MINE.get().map(|r| r.number.load(Relaxed));
    let mut deadline = None;
    for number in 0..USED.load(Acquire) {
        if Some(number) == me {
            continue;
        }
        let Some(r) = record(number) else { continue };
        if !r.in_use.load(Acquire) || r.depth.load(Acquire) == 0 {
            continue;
        }
        let epoch = r.epoch.load(Acquire);
        while r.depth.load(Acquire) != 0 && r.epoch.load(Acquire) == epoch {
            let now = clock::monotonic_ns();
            if now > *deadline.get_or_insert(now + patience_ns) {
                return false;
            }
            sys::yield_now();
        }
    }
    true
}

impl Record {
    /// Whether it is inside a call and does not sleep there. Asked by its own signal handlers.
    #[inline]
    pub fn is_inside(&self) -> bool {
        self.depth.load(Relaxed) > self.base.load(Relaxed)
    }

    /// Counters that are up for calls of this thread.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Whether its innermost call is its only one: it is no signal handler's.
    pub fn is_outermost(&self) -> bool {
        self.depth.load(Relaxed) == 1 && self.base.load(Relaxed) == 0
    }

    /// Keeps a signal for later.
    pub fn deferred(&self) -> &Deferred {
        &self.deferred
    }

    /// Whether pthread_cancel was called for it, the calling thread, and it may act on that.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(SeqCst) && crate::signals::may_be_cancelled()
    }

    /// A data call ends with less than it would have moved, as nothing is followed any more.
    #[cold]
    pub fn is_cut_short(&self) {
        self.cut_short.store(u64::from(self.handlers.load(Relaxed)) + 1, Relaxed);
    }

    /// Whether the last one has, and no handler ran since, which ends a call that has moved some: it is told once.
    pub fn was_cut_short(&self) -> bool {
        self.cut_short.swap(0, Relaxed) == u64::from(self.handlers.load(Relaxed)) + 1
    }

    /// Takes [`cancel`](Record::cancel) back.
    pub fn not_cancelled(&self) {
        self.cancelled.store(false, SeqCst);
    }

    /// Marks it as cancelled, and wakes it if it sleeps: until it looked, and not for longer than a tenth of a second.
    pub fn cancel(&self) {
        let epoch = self.epoch.load(SeqCst);
        self.cancelled.store(true, SeqCst);
        for _ in 0..1000 {
            if !self.in_use.load(Acquire) || !self.asleep.load(SeqCst) || self.epoch.load(SeqCst) != epoch {
                return;
            }
            self.wake();
            if self.bell.load(Acquire) == 0 && self.waits_on.load(Acquire) == 0 {
                // It sleeps where nobody was told of it.
                signal::nudge(self.tid.load(Relaxed));
            }
            futex::wait(&AtomicU32::new(0), 0, 100_000);
        }
    }

    /// Wakes it if it sleeps.
    fn wake(&self) {
        if self.bell.load(Acquire) != 0 {
            others::ring(self.bell_fd.load(Relaxed));
        }
        if let Some(set) = self.waits_on.load(Acquire).checked_sub(1) {
            crate::epoll::ring(set);
        }
    }

    /// A new ticket for a sleep, never 0.
    pub fn next_ticket(&self) -> u32 {
        // Records are numbered: no two threads of a family use the same bell, so tickets are per bell.
        wait::fresh_ticket(&self.ticket)
    }

    /// This thread's bell (number and descriptor), created at its first sleep.
    ///
    /// # Errors
    /// EMFILE.
    pub fn ensure_bell(&self) -> bypath_sys::Result<(u32, i32)> {
        let bell = self.bell.load(Relaxed);
        if bell != 0 {
            return Ok((bell, self.bell_fd.load(Relaxed)));
        }
        let (bell, fd) = new_bell()?;
        self.bell_fd.store(fd, Relaxed);
        self.bell.store(bell, Release);
        Ok((bell, fd))
    }

    /// The bell's descriptor, silenced, if there is a bell: for a sleep that nobody was told of.
    pub fn silenced_bell(&self) -> Option<i32> {
        if self.bell.load(Relaxed) == 0 {
            return None;
        }
        let fd = self.bell_fd.load(Relaxed);
        if self.rung.swap(false, Relaxed) {
            others::silence(fd);
        }
        Some(fd)
    }

    /// The counter block of this thread.
    #[inline]
    pub fn bytes(&self) -> Option<&'static ByteBlock> {
        let stats = state::get()?.own().stats.get()?;
        Some(&stats.bytes[(self.number.load(Relaxed) as usize).min(BLOCKS - 1)])
    }

    /// Adds to one counter of the block: a plain add where the block is this thread's own.
    #[inline]
    pub fn count(&self, which: impl Fn(&ByteBlock) -> &AtomicU64, n: u64) {
        if let Some(block) = self.bytes() {
            let counter = which(block);
            if (self.number.load(Relaxed) as usize) < BLOCKS - 1 {
                counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
            } else {
                counter.fetch_add(n, Relaxed);
            }
        }
    }
}

/// A sleep of a thread, from before its bell is silenced to after its words are withdrawn.
#[derive(Debug)]
pub struct Sleep(&'static Record);

impl Drop for Sleep {
    fn drop(&mut self) {
        let outer = self.0.sleeps.load(Relaxed).saturating_sub(1);
        self.0.sleeps.store(outer, Relaxed);
        if outer > 0 && self.0.bell.load(Relaxed) != 0 {
            // A ring for the sleep that this one interrupted may have been silenced: ring it again.
            self.0.rung.store(true, Relaxed);
            others::ring(self.0.bell_fd.load(Relaxed));
        }
    }
}

impl Record {
    /// Before a sleep after which it touches memory of `s` first: that stays until then. Returns what [`touched`](Record::touched) is told.
    pub fn is_to_touch(&self, s: &Sock) -> u32 {
        let outer = self.touches.load(Relaxed);
        self.touches.store(s.number.load(Relaxed) + 1, Release);
        // A frame that was left by longjmp touches nothing any more.
        if self.is_outermost() { 0 } else { outer }
    }

    /// It has done so.
    pub fn touched(&self, outer: u32) {
        self.touches.store(outer, Release);
    }

    /// Begins a sleep.
    pub fn sleeping(&'static self) -> Sleep {
        self.sleeps.store(self.sleeps.load(Relaxed) + 1, Relaxed);
        Sleep(self)
    }
}

/// Rings the bell `number` of a thread of this process, if it is one.
pub fn ring(number: u32) {
    for r in (0..USED.load(Acquire)).filter_map(record) {
        if r.bell.load(Relaxed) == number {
            others::ring(r.bell_fd.load(Relaxed));
            return;
        }
    }
}

/// Other threads that sleep in a data call on the socket `place` (its number plus one), or are about to.
fn sleepers(place: u32) -> impl Iterator<Item = &'static Record> {
    let me = MINE.get();
    let records = (0..USED.load(Acquire)).filter_map(record);
    records.filter(move |r| {
        r.sleeps_on.load(SeqCst) == place
            && r.in_use.load(Acquire)
            && !me.is_some_and(|m| std::ptr::eq(m, *r))
    })
}

/// Whether other threads sleep that touch the socket's memory (its number plus one) before they look at anything anew.
pub fn is_within(place: u32) -> bool {
    let mut records = (0..USED.load(Acquire)).filter_map(record);
    records.any(|r| r.touches.load(Acquire) == place && r.in_use.load(Acquire))
}

/// Whether other threads sleep in a data call on the socket.
pub fn sleep_on(place: u32) -> bool {
    sleepers(place).next().is_some()
}

/// Wakes those that do not keep the socket. Whether there are any.
pub fn call(place: u32) -> bool {
    let mut any = false;
    for r in sleepers(place).filter(|r| r.stays_on.load(SeqCst) != place) {
        r.wake();
        any = true;
    }
    any
}

/// Those that do not keep it do not sleep there any more.
pub fn forget_sleep_on(place: u32) {
    for r in sleepers(place).filter(|r| r.stays_on.load(SeqCst) != place) {
        let _ = r.sleeps_on.compare_exchange(place, 0, AcqRel, Relaxed);
    }
}

/// Longest wait of [`turn_out`] for a thread that is inside a call, does not sleep there, and gets nowhere: one that a signal handler left by longjmp,
/// which the library did not see run.
const STUCK_NS: u64 = 10_000_000_000;

/// Looks of [`turn_out`]: whoever waits for the one that does it sees that it goes on.
static ROUNDS: AtomicU32 = AtomicU32::new(0);

/// So many looks of [`turn_out`] there were, wrapping.
pub fn rounds() -> u32 {
    ROUNDS.load(Relaxed)
}

/// Waits until every other thread has left its call, and is not [`Busy`]: the calls that wake a peer, for one, may be its death under a filter. Those that sleep
/// are woken, and they and those whose handler runs given `patience` ns. Who is held up in the middle, for want of a processor, or because a peer takes the page away that it touches, is waited for as long as that takes.
pub fn turn_out(patience: u64) {
    let me = MINE.get();
    // What the others have stored is seen from here on: who enters a call enters it by plain stores.
    let _ = process::membarrier();
    let begun = clock::monotonic_ns();
    // When a thread was last seen held by memory.
    let mut held = begun;
    let others = || {
        let records = (0..USED.load(Acquire)).filter_map(record);
        records.filter(|r| r.in_use.load(Acquire) && !me.is_some_and(|m| std::ptr::eq(m, *r)))
    };
    loop {
        ROUNDS.fetch_add(1, Relaxed);
        let now = clock::monotonic_ns();
        let is_late = now - begun > patience;
        let mut left = 0;
        for r in others() {
            let epoch = r.epoch.load(Acquire);
            let depth = r.depth.load(Acquire);
            // A handler may be in a call of its own while what it interrupted sleeps.
            let is_asleep = r.asleep.load(SeqCst) && depth <= r.base.load(Relaxed);
            if is_asleep {
                r.wake();
            }
            let busy = r.busy.load(Acquire);
            if is_asleep || busy == INTERRUPTED {
                left += usize::from(!is_late);
            }
            // It may have come from one to the other while this looked.
            let moves = r.epoch.load(Acquire) != epoch || r.depth.load(Acquire) != depth;
            if depth > 0 && !is_asleep || busy == BUSY || moves {
                if is_late && process::is_held(r.tid.load(Relaxed)) {
                    held = now;
                }
                left += usize::from(now - held <= STUCK_NS);
            }
        }
        if left == 0 {
            return;
        }
        futex::wait(&AtomicU32::new(0), 0, if is_late { 5_000_000 } else { 100_000 });
    }
}

/// Creates a bell: its family-wide number and its eventfd.
///
/// # Errors
/// EMFILE, or ENOSPC when the family has used up its bell numbers.
pub fn new_bell() -> bypath_sys::Result<(u32, i32)> {
    if state::is_borrowed() {
        // The descriptor would be a vfork child's, its number in the memory of another.
        return Err(bypath_sys::Errno::NOSPC);
    }
    let state = state::get().ok_or(bypath_sys::Errno::INVAL)?;
    let bells = &state.family.bells;
    let place = state.own().index.load(Relaxed);
    let number = match state.elder_bells().find(|&n| family::bell::ends_with(bells[n].load(Acquire), place)) {
        Some(number) => number,
        None => {
            let next = |next: u32| ((next as usize) < bells.len()).then(|| next + 1);
            let number = state.family.header.next_bell.fetch_update(AcqRel, Relaxed, next);
            number.map_err(|_| bypath_sys::Errno::NOSPC)? as usize
        }
    };
    let bell = eventfd::create(state::floor()).inspect_err(|_| {
        // For the next process at this place.
        bells[number].store(family::bell::pack(-1, place), Release);
    })?;
    // For who wants to wake this process from outside.
    bells[number].store(family::bell::pack(bell, place), Release);
    Ok((number as u32, bell))
}

/// In a forked child: only the calling thread, whose record is `me`, exists, and bells are the parent's.
pub fn enter_child(me: Option<&'static Record>) {
    for number in 0..USED.load(Acquire) {
        let Some(r) = record(number) else { continue };
        if r.bell.load(Relaxed) != 0 {
            r.bell.store(0, Relaxed);
            fd::close(r.bell_fd.load(Relaxed));
        }
        if r.lock_frame.load(Relaxed) != 0 {
            r.lock_frame.store(0, Relaxed);
        }
        r.notes.forget();
        if r.busy.load(Relaxed) != 0 {
            r.busy.store(0, Relaxed);
        }
        if me.is_some_and(|m| std::ptr::eq(m, r)) {
            r.tid.store(sys::tid(), Relaxed);
            r.pages.forget();
            r.deferred.forget();
        } else if r.in_use.load(Relaxed) {
            r.going.close_file();
            r.in_use.store(false, Relaxed);
        }
    }
}

/// Whether `number` is a bell of some thread, or a file that it reads.
pub fn owns(number: i32) -> bool {
    let is_it = |r: &Record| r.bell.load(Relaxed) != 0 && r.bell_fd.load(Relaxed) == number;
    (0..USED.load(Acquire)).filter_map(record).any(|r| is_it(r) || r.going.file() == Some(number))
}

/// Every descriptor of threads.
pub fn descriptors(mut f: impl FnMut(i32)) {
    for r in (0..USED.load(Acquire)).filter_map(record) {
        if r.bell.load(Relaxed) != 0 {
            f(r.bell_fd.load(Relaxed));
        }
        r.going.file().into_iter().for_each(&mut f);
    }
}
