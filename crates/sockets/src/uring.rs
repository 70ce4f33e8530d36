//! `--io-uring`: what a process does with io_uring cannot be seen, as operations are written into memory that the
//! kernel reads. So a process that has an instance keeps its connections on the kernel, unless its user says that they
//! have nothing to do with each other.
//!
//! An instance is met where it is made by a call that is interposed. One that was made by inline system calls is found
//! among the descriptors: before a direction is upgraded, and now and then before a thread sleeps.

use crate::config::IoUring;
use crate::thread::Call;
use crate::{home, state, table};
use bypath_shm::reason::Reason;
use bypath_sys::{clock, open_files};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// What `/proc` calls an instance.
const LINK: &[u8] = b"anon_inode:[io_uring]";
/// Before a thread sleeps a look is due after this long.
const PERIOD_US: u64 = 100_000;
/// Looks take no more than one part in so many of the time.
const SHARE: u64 = 20;

/// When the next look may be made at all, and when one is due (ticks).
static ALLOWED: AtomicU64 = AtomicU64::new(0);
static DUE: AtomicU64 = AtomicU64::new(0);
/// An instance was found where connections could not be taken back.
static FOUND: AtomicBool = AtomicBool::new(false);

/// Whether an instance may be made.
pub fn may_be_made() -> bool {
    state::config().is_none_or(|c| c.io_uring != IoUring::Avoid)
}

/// An instance was made. The program does not know it yet, so no operation has been submitted.
#[cold]
pub fn made() {
    if watches() && !state::is_borrowed() {
        home::go(Reason::IoUring, Reason::RecalledIoUring, home::PATIENCE_NS);
    }
}

fn watches() -> bool {
    state::config().is_some_and(|c| c.io_uring != IoUring::Allow)
}

/// Before a direction is upgraded: whether the process has no instance, as far as can be seen. Asks the kernel, under
/// whatever lock the caller holds.
#[cold]
pub fn is_absent() -> bool {
    if !watches() || clock::ticks() < ALLOWED.load(Relaxed) || !is_there() {
        return true;
    }
    state::hinder(Reason::IoUring);
    FOUND.store(true, Release);
    // Connections go back when this thread, or another, looks at its inbox next.
    if let Some(inbox) = state::get().and_then(|s| s.inbox_if_any()) {
        inbox.mark(0);
    }
    false
}

/// The inbox was marked: perhaps by [`is_absent`].
#[inline]
pub fn attend() {
    if FOUND.load(Relaxed) && FOUND.swap(false, AcqRel) {
        home::go(Reason::IoUring, Reason::RecalledIoUring, 0);
    }
}

/// Called before a thread sleeps for at most `bound` ns (`None` = for ever), outside of locks. Returns how long to sleep.
#[inline]
pub fn before_sleep(_call: &Call, bound: Option<u64>) -> Option<u64> {
    if clock::ticks() < DUE.load(Relaxed) { bound } else { look(bound) }
}

#[cold]
fn look(bound: Option<u64>) -> Option<u64> {
    DUE.store(clock::ticks() + PERIOD_US * state::ticks_per_us(), Relaxed);
    if !watches() || state::hindrance().is_some() || !is_there() {
        return bound;
    }
    home::go(Reason::IoUring, Reason::RecalledIoUring, 0);
    // What the sleeper looked at has changed.
    Some(0)
}

/// Where the process may not look at its descriptors the answer is no.
fn is_there() -> bool {
    let start = clock::ticks();
    // Whether a number is one of the library's own would take longer to find out than what it is.
    let found = open_files::any(LINK, state::floor(), table::is_followed);
    let end = clock::ticks();
    ALLOWED.store(end + end.saturating_sub(start) * SHARE, Relaxed);
    found == Ok(true)
}
