//! Closing without waiting.
//!
//! The kernel lets a thread that closes a packet socket wait until no processor uses it any more: 16 ms, 24 ms with rings.
//! Threads of ours wait instead. They are few, and what waits for them is bounded: beyond that a closer waits itself. A
//! socket that waits still has its filter, which is set to let nothing pass, so it costs next to nothing.

use bypath_sys::signal::Blocked;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The most threads that close.
const MOST_THREADS: usize = 4;
/// The most that wait to be closed.
const MOST_WAITING: usize = 256;
/// A thread without work ends after this. While it lives it keeps the network namespace in which it was started.
const PATIENCE: Duration = Duration::from_secs(1);

/// Something whose drop takes long.
pub(crate) type Burden = Box<dyn Send>;

struct State {
    waiting: VecDeque<Burden>,
    threads: usize,
    idle: usize,
    /// Burdens that are being dropped.
    busy: usize,
}

static STATE: Mutex<State> = Mutex::new(State { waiting: VecDeque::new(), threads: 0, idle: 0, busy: 0 });
/// The process that the threads are in. A forked child has none of them, and perhaps a lock that nobody gives back.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static NEWS: Condvar = Condvar::new();
static SETTLED: Condvar = Condvar::new();

/// Sees to it that a thread is there, so that a later [`reap`] need not start one.
pub(crate) fn prepare() {
    let here = std::process::id();
    // Only the first caller's store counts; nothing else is published by it.
    let first = PROCESS.compare_exchange(0, here, Relaxed, Relaxed);
    if first.is_ok() || first == Err(here) {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        if state.threads == 0 {
            start(&mut state);
        }
    }
}

/// Drops `burden` in another thread; in this one where there is none to be had.
pub(crate) fn reap(burden: Burden) {
    let Some(burden) = hand_over(burden) else { return };
    drop(burden);
}

/// Waits until everything that was to be closed is closed, for half a second at most.
pub(crate) fn settle() {
    if PROCESS.load(Relaxed) != std::process::id() {
        return;
    }
    let state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let unsettled = |s: &mut State| s.busy > 0 || !s.waiting.is_empty();
    drop(SETTLED.wait_timeout_while(state, Duration::from_millis(500), unsettled));
}

/// Gives `burden` back if it cannot wait its turn.
fn hand_over(burden: Burden) -> Option<Burden> {
    if PROCESS.load(Relaxed) != std::process::id() {
        return Some(burden);
    }
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if state.idle <= state.waiting.len() && state.threads < MOST_THREADS {
        start(&mut state);
    }
    if state.threads == 0 || state.waiting.len() >= MOST_WAITING {
        return Some(burden);
    }
    state.waiting.push_back(burden);
    NEWS.notify_one();
    None
}

fn start(state: &mut State) {
    // It inherits that no signal comes to it: one that the program blocks in its own threads, to wait for it or to read it
    // from a descriptor, would end the program here.
    let _blocked = Blocked::new();
    let thread = std::thread::Builder::new().name("bypath-close".to_owned()).stack_size(64 * 1024);
    state.threads += usize::from(thread.spawn(work).is_ok());
}

fn work() {
    // Woken on the processor of who closes, this thread would make him wait while it unmaps rings. Otherwise it does as it is.
    let _ = bypath_sys::realtime::batch();
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(burden) = state.waiting.pop_front() {
            state.busy += 1;
            drop(state);
            drop(burden);
            state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
            state.busy -= 1;
            if state.busy == 0 && state.waiting.is_empty() {
                SETTLED.notify_all();
            }
            continue;
        }
        state.idle += 1;
        let (woken, result) = NEWS.wait_timeout(state, PATIENCE).unwrap_or_else(PoisonError::into_inner);
        state = woken;
        state.idle -= 1;
        if result.timed_out() && state.waiting.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::Instant;

    /// Fields of this kind, in hexadecimal, of the threads that close.
    fn masks() -> Vec<u64> {
        let threads = fs::read_dir("/proc/self/task").unwrap().map(|t| t.unwrap().path());
        // A thread may end while it is looked at.
        let closers =
            threads.filter(|t| fs::read_to_string(t.join("comm")).is_ok_and(|c| c == "bypath-close\n"));
        let texts = closers.filter_map(|t| fs::read_to_string(t.join("status")).ok());
        texts
            .filter_map(|t| {
                let mask = t.lines().find_map(|l| l.strip_prefix("SigBlk:"))?.trim().to_owned();
                Some(u64::from_str_radix(&mask, 16).unwrap())
            })
            .collect()
    }

    #[test]
    fn no_signal_comes_to_the_threads_that_close() {
        let own = || {
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            status.lines().find(|l| l.starts_with("SigBlk:")).unwrap().to_owned()
        };
        let before = own();
        prepare();
        let deadline = Instant::now() + Duration::from_secs(20);
        let seen = loop {
            match masks() {
                none if none.is_empty() => assert!(Instant::now() < deadline, "no thread"),
                seen => break seen,
            }
            prepare();
        };
        // Nobody can block 9 and 19; 32 and 33 are the C library's.
        assert!(seen.iter().all(|&m| m == !(1 << 8 | 1 << 18 | 0b11 << 31)), "{seen:x?}");
        // The starter's own mask is as it was.
        assert_eq!(own(), before);
    }
}
