//! When a signal handler of the program may run: between our critical sections, never inside one (docs/signals.md).

use crate::thread::{self, Record};
use bypath_sys::{signal, thread as sys};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*, fence};

/// A handler ran while its thread slept in one of our calls.
pub const RAN: u32 = 1;
/// One without SA_RESTART did.
pub const BREAKS: u32 = 2;

/// The two functions of the preload library that stand in front of the program's handlers.
static STAND_INS: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// Tells the addresses of the functions that stand in front of the program's handlers.
pub fn stand_ins(addresses: [usize; 2]) {
    for (to, from) in STAND_INS.iter().zip(addresses) {
        to.store(from, Relaxed);
    }
}

/// The thread that a signal has to wait for: the calling one, if it is inside a call and does not sleep there.
#[inline]
pub fn busy() -> Option<&'static Record> {
    thread::existing().filter(|t| t.is_inside() && crate::fault::defers())
}

/// A handler with these SA_* flags returned.
#[inline]
pub fn ran(flags: i32) {
    if let Some(t) = thread::existing() {
        let breaks = if flags & libc::SA_RESTART == 0 { BREAKS } else { 0 };
        t.ran.store(t.ran.load(Relaxed) | RAN | breaks, Relaxed);
        t.handlers.store(t.handlers.load(Relaxed).wrapping_add(1), Relaxed);
    }
}

/// How many handlers the calling thread ran so far, wrapping.
pub fn handlers() -> u32 {
    thread::existing().map_or(0, |t| t.handlers.load(Relaxed))
}

/// What a blocking call does whose sleep ended with EINTR: the kernel restarts a receive or send without time-out if
/// the handler that ran was installed with SA_RESTART.
pub fn restarts(thread: &Record, has_timeout: bool) -> bool {
    if has_timeout || thread.is_cancelled() {
        return false;
    }
    match thread.ran.load(Relaxed) {
        0 => signal::others_restart([STAND_INS[0].load(Relaxed), STAND_INS[1].load(Relaxed)]),
        ran => ran & BREAKS == 0,
    }
}

/// Some thread was ever asked to end by pthread_cancel.
static CANCELS: AtomicBool = AtomicBool::new(false);

/// Whether the calling thread was asked to end by pthread_cancel.
#[inline]
pub fn is_cancelled() -> bool {
    CANCELS.load(Relaxed) && thread::existing().is_some_and(Record::is_cancelled)
}

/// pthread_cancel succeeded for the thread `pthread`: wakes it from a sleep of ours.
#[cold]
pub fn cancel(pthread: usize) {
    CANCELS.store(true, SeqCst);
    if let Some(target) = thread::find(pthread) {
        return target.cancel();
    }
    // It has made no call of ours so far. It is noted first and looked for second, and does it the other way round.
    let Some(tid) = sys::tid_of(pthread) else { return };
    let free = |noted: u32| noted == 0 || noted == tid || !sys::is_alive(noted);
    let note = |place: &AtomicU32| {
        let noted = place.load(Relaxed);
        free(noted) && place.compare_exchange(noted, tid, SeqCst, Relaxed).is_ok()
    };
    let _ = EARLY.iter().any(note);
    fence(SeqCst);
    if let Some(target) = thread::find(pthread) {
        target.cancel();
    }
}

/// Threads, by the kernel's numbers, for which pthread_cancel was called before they had a record. More at a time than there
/// is room for are cancelled by calls only that the kernel serves.
static EARLY: [AtomicU32; 256] = [const { AtomicU32::new(0) }; 256];

/// Whether pthread_cancel was called for the thread `tid`, which has just got its record.
pub fn was_cancelled(tid: u32) -> bool {
    fence(SeqCst);
    CANCELS.load(SeqCst) && EARLY.iter().any(|place| place.compare_exchange(tid, 0, SeqCst, Relaxed).is_ok())
}

/// The C library knows nothing of what the calling thread's mark says.
#[cold]
pub fn not_cancelled() {
    if let Some(thread) = thread::existing() {
        thread.not_cancelled();
    }
}

/// Whether the calling thread has cancellation switched on, as the C library knows.
static ENABLED: OnceLock<fn() -> bool> = OnceLock::new();

/// Tells how to ask whether the calling thread has cancellation switched on.
pub fn ask_cancellation(enabled: fn() -> bool) {
    let _ = ENABLED.set(enabled);
}

/// Whether the calling thread has cancellation switched on.
#[cold]
pub fn may_be_cancelled() -> bool {
    ENABLED.get().is_some_and(|enabled| enabled())
}
