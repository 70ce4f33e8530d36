//! The writer's lock of an end: in family memory, because fork descendants write the same stream.
//!
//! Its word names process and thread. A dead owner is replaced, and what it left half done is finished
//! ([`crate::switch::repair`]); so is one that cannot be the owner, after a while. It is never held across a system call that can wait.

use crate::fault;
use crate::state;
use crate::table::Sock;
use crate::thread::{self, Call};
use bypath_sys::{clock, futex, process, thread as sys};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*, compiler_fence};

/// Holding the lock. Unlock explicitly: a thread that is cancelled or killed inside leaves it to its siblings.
#[derive(Debug)]
#[must_use = "call unlock()"]
pub struct WriteLock {
    sock: &'static Sock,
    inside: Inside,
}

/// The calling thread is in a lock, or about to be: it says so before its name stands in the word, and takes that back after the name has gone. So a name of
/// a thread that does not say so is a lie, or as good as gone.
#[derive(Debug)]
struct Inside {
    thread: &'static thread::Record,
    /// What it said before: a frame further out may be in another lock.
    before: usize,
}

impl Inside {
    #[inline]
    fn enter(thread: &'static thread::Record) -> Inside {
        let before = thread.lock_frame.load(Relaxed);
        thread.lock_frame.store(sys::stack_address(), Relaxed);
        compiler_fence(SeqCst);
        Inside { thread, before }
    }

    #[inline]
    fn leave(self) {
        self.thread.lock_frame.store(self.before, Release);
    }
}

impl WriteLock {
    /// Takes the lock; `None` if this very thread holds it in a live frame further out (a signal handler
    /// interrupted a send): the caller must not wait.
    #[inline]
    pub fn take(s: &'static Sock, call: &Call) -> Option<WriteLock> {
        if let Some(lock) = WriteLock::try_take(s, call) {
            return Some(lock);
        }
        let (inside, taken_over) = wait(s, call)?;
        if taken_over && let Some(conn) = s.conn.get() {
            crate::switch::repair(s, conn);
        }
        Some(WriteLock { sock: s, inside })
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_take(s: &'static Sock, call: &Call) -> Option<WriteLock> {
        let me = owner_word(call.thread.tid.load(Relaxed));
        let word = &s.end().w.lock;
        let inside = Inside::enter(call.thread);
        if !take_alone(s, word, me) && word.compare_exchange(0, me, AcqRel, Relaxed).is_err() {
            inside.leave();
            return None;
        }
        Some(WriteLock { sock: s, inside })
    }

    /// Whether a process that is gone holds the lock.
    pub fn is_orphaned(s: &Sock) -> bool {
        let owner = s.end().w.lock.load(Relaxed);
        owner != 0 && is_dead(s, owner)
    }

    /// Gives it back. The exchange is the full fence between a publish and the look at the reader's asks.
    #[inline]
    pub fn unlock(self) {
        self.sock.end().w.lock.swap(0, SeqCst);
        self.inside.leave();
    }
}

/// Of the owner's process: it has no place in the family's table, and this is its process id, 0 = not to be known.
const UNPLACED: u64 = 1 << 31;

fn owner_word(tid: u32) -> u64 {
    let index = state::get().map_or(0, |s| s.own().index.load(Relaxed));
    let process = match index.checked_add(1) {
        Some(place) => u64::from(place),
        // Its id means another process to the others, or none.
        None if state::are_children_elsewhere() => UNPLACED,
        None => UNPLACED | u64::from(process::pid()),
    };
    process << 32 | u64::from(tid)
}

/// Takes the lock with plain stores where nobody else can want it: the process has one thread and holds the socket
/// alone. Only signal handlers of this thread run in between: one that sends leaves the word as it was; one that
/// forks or starts a thread makes the second look fail, in both processes.
#[inline]
fn take_alone(s: &Sock, word: &AtomicU64, me: u64) -> bool {
    let alone = || sys::is_the_only_one() && state::get().is_some_and(|state| s.is_sole_holder(state));
    if !alone() || word.load(Relaxed) != 0 {
        return false;
    }
    fault::between("alone");
    compiler_fence(SeqCst);
    word.store(me, Relaxed);
    compiler_fence(SeqCst);
    if alone() {
        return true;
    }
    let _ = word.compare_exchange(me, 0, AcqRel, Relaxed);
    false
}

#[cold]
fn wait(s: &Sock, call: &Call) -> Option<(Inside, bool)> {
    let me = owner_word(call.thread.tid.load(Relaxed));
    let word = &s.end().w.lock;
    let replace = |owner: u64| {
        let inside = Inside::enter(call.thread);
        match word.compare_exchange(owner, me, AcqRel, Relaxed) {
            Ok(_) => Some(inside),
            Err(_) => {
                inside.leave();
                None
            }
        }
    };
    let mut rounds = 0u32;
    let mut doubt = Doubt { owner: 0, until: 0 };
    loop {
        let owner = word.load(Acquire);
        if owner == 0 {
            if let Some(inside) = replace(0) {
                return Some((inside, false));
            }
            continue;
        }
        if owner == me {
            // Nested in a signal handler, or after a longjmp out of one: a live outer frame lies further up the
            // stack, that is at a higher address; on an alternate stack it cannot be told, so assume it lives. In no frame at all it is somebody else's lie.
            let frame = call.thread.lock_frame.load(Relaxed);
            let here = sys::stack_address();
            if frame == 0 || frame < here && here - frame < 1 << 20 {
                call.thread.lock_frame.store(0, Relaxed);
                return Some((Inside::enter(call.thread), true));
            }
            return None;
        }
        rounds += 1;
        if rounds < 100 {
            std::hint::spin_loop();
            continue;
        }
        if rounds < 110 {
            sys::yield_now();
            continue;
        }
        if is_dead(s, owner) || doubt.has_grown(s, owner) {
            let Some(inside) = replace(owner) else { continue };
            if is_ours(word, owner, me) {
                return Some((inside, true));
            }
            inside.leave();
            continue;
        }
        // Not a real futex (nobody wakes it): a bounded sleep until the owner, which may be descheduled, is done.
        static NOBODY: AtomicU32 = AtomicU32::new(0);
        futex::wait(&NOBODY, 0, 100_000);
    }
}

/// How long a word is waited for that nothing shows to be true; and once there was such a one (ns).
const PATIENCE_NS: u64 = 1_000_000_000;
const LESS_PATIENCE_NS: u64 = 100_000_000;
/// What shows it is looked at so often.
const LOOK_NS: u64 = 10_000_000;
/// A word was not true.
static WAS_FOOLED: AtomicBool = AtomicBool::new(false);

/// An owner that is waited for, and when it is looked at whether it can be one.
struct Doubt {
    owner: u64,
    until: u64,
}

impl Doubt {
    /// Whether the owner was waited for long enough, though no process is seen that can have the lock.
    fn has_grown(&mut self, s: &Sock, owner: u64) -> bool {
        let now = clock::monotonic_ns();
        if self.owner != owner {
            let patience = if WAS_FOOLED.load(Relaxed) { LESS_PATIENCE_NS } else { PATIENCE_NS };
            *self = Doubt { owner, until: now + patience };
        }
        if now < self.until {
            return false;
        }
        if may_hold(s, owner) {
            self.until = now + LOOK_NS;
            return false;
        }
        WAS_FOOLED.store(true, Relaxed);
        true
    }
}

/// Whether the owner is seen to be one that may have the lock: a thread that does not sleep, of a process that may have inherited the socket or made it. Any
/// process of the family can write the word, also of one that is none: so who has come after the socket is believed if it is of the same user.
/// Where `/proc` shows nothing, whoever lives is believed.
fn may_hold(s: &Sock, owner: u64) -> bool {
    let Some(state) = state::get() else { return true };
    let (process, tid) = (owner >> 32, owner as u32);
    if process == owner_word(0) >> 32 && !state::is_memory_of_another() {
        return is_inside(tid);
    }
    let pid = if process & UNPLACED != 0 {
        (process & !UNPLACED) as u32
    } else {
        let place = (process as usize).checked_sub(1).and_then(|i| state.family.header.processes.get(i));
        place.filter(|p| p.ready.load(Acquire) == 1).map_or(0, |p| p.pid.load(Relaxed))
    };
    if pid == 0 {
        return false;
    }
    let is_elder = pid == process::parent() || pid == s.made_by.load(Relaxed);
    match process::is_at_work(pid, tid) {
        Some(is_at_work) => is_at_work && (is_elder || is_younger_brother(s, pid)),
        // Of a process that is seen the thread would be.
        None => {
            let is_unseen = |pid: u32| process::users(pid).is_none();
            is_unseen(process::pid()) || pid == process::parent() && is_unseen(pid)
        }
    }
}

/// Whether the process is younger than the socket, and of this one's user alone.
fn is_younger_brother(s: &Sock, pid: u32) -> bool {
    let own = process::euid();
    process::users(pid) == Some([own, own])
        && (process::start_time(pid).is_some_and(|started| started >= s.made_at.load(Relaxed))
            || !state::knows_start_times())
}

/// Whether that thread of this process is in a lock, or about to be in one. It waits for none while it has another.
fn is_inside(tid: u32) -> bool {
    sys::is_alive(tid) && thread::is_in_lock(tid)
}

/// The word named `owner`, who had gone. A thread of this process may have come back to the same word in between: then it is inside, and clears the word.
fn is_ours(word: &AtomicU64, owner: u64, me: u64) -> bool {
    if owner >> 32 == me >> 32 {
        while is_inside(owner as u32) {
            sys::yield_now();
        }
    }
    word.load(Acquire) == me
}

/// Whether the owner is a thread of this process that is not in any lock: it has ended, or another process of the family has written its name. A vfork child
/// sees its parent's memory, and none of its threads; and who cannot be told from a sibling is not asked about.
fn is_dead_here(process: u64, is_memory_of_another: bool, is_inside: impl FnOnce() -> bool) -> bool {
    process != UNPLACED && !is_memory_of_another && !is_inside()
}

/// Whether the owner's process is gone, or the owner cannot be one: any process of the family can write the word.
fn is_dead(s: &Sock, owner: u64) -> bool {
    let Some(state) = state::get() else { return false };
    let (index, own) = ((owner >> 32) as usize, owner_word(0) >> 32);
    if index as u64 == own {
        return is_dead_here(own, state::is_memory_of_another(), || is_inside(owner as u32));
    }
    if !s.is_older_than_a_fork() {
        return true;
    }
    if index as u64 & UNPLACED != 0 {
        let pid = (index as u64 & !UNPLACED) as u32;
        return pid != 0 && !process::lives(pid, 0);
    }
    let Some(p) = index.checked_sub(1).and_then(|i| state.family.header.processes.get(i)) else {
        return true;
    };
    if p.ready.load(Acquire) == 0 {
        return false;
    }
    !state::lives(p, p.pid.load(Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vfork_child_takes_no_lock_from_a_thread_that_it_cannot_see() {
        for place in [1, 7, UNPLACED | 9] {
            assert!(is_dead_here(place, false, || false) && !is_dead_here(place, false, || true));
            assert!(!is_dead_here(place, true, || false), "its parent's threads are not its own");
        }
        assert!(!is_dead_here(UNPLACED, false, || false), "it may be a sibling's");
    }
}
