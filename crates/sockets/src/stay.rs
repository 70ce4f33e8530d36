//! Calls that sleep on a descriptor which another thread closes.
//!
//! The kernel's call holds the connection until it returns, whatever becomes of the number. So does ours: who closes the
//! last descriptor gives the sleepers one of the library's own, and whose call is the last to return closes that. A call that
//! goes in [parts](crate::parts) keeps it from one to the next.

use crate::fault;
use crate::life;
use crate::parts;
use crate::state;
use crate::table::{self, Sock};
use crate::thread::{self, Call, Record};
use bypath_sys::{clock, fd, futex, signal, thread as stack};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::*};

/// How long a sleeper may take to say that it stays. One that left by longjmp never does.
const PATIENCE_NS: u64 = 1_000_000_000;

/// What a socket has for calls that stay.
#[derive(Debug, Default)]
pub struct Stays {
    /// The library's descriptor, plus one.
    fd: AtomicI32,
    /// Calls that stay, and who is closing.
    users: AtomicU32,
}

impl Stays {
    /// The library's descriptor, if there is one.
    pub fn descriptor(&self) -> Option<i32> {
        match self.fd.load(Acquire) {
            0 => None,
            n => Some(n - 1),
        }
    }

    /// For a new socket.
    pub fn reset(&self) {
        self.fd.store(0, Relaxed);
        self.users.store(0, Relaxed);
    }

    /// One more call stays; false if there is nothing to stay on.
    pub fn join(&self) -> bool {
        self.users.fetch_update(AcqRel, Relaxed, |n| (n > 0).then_some(n + 1)).is_ok()
    }
}

/// A data call that may sleep on one socket.
#[derive(Debug)]
#[must_use = "end it"]
pub struct Staying {
    generation: u32,
    joined: bool,
    /// It is a part of a call.
    part: bool,
    /// It has slept, and may do so again; what the thread slept on before: a handler's call interrupts another one.
    outer: Option<u32>,
}

impl Staying {
    /// At its begin.
    #[inline]
    pub fn new(call: &Call, s: &Sock) -> Staying {
        if call.thread.stays_on.load(Relaxed) != 0 {
            left(call.thread, stack::stack_address());
        }
        let part = call.thread.going.is_part();
        Staying { generation: s.end().generation.load(Relaxed), joined: false, part, outer: None }
    }

    /// Runs `f`, which may sleep, and looks what became of `fd`: on which descriptor the call goes on. `None` = it was
    /// closed, and the connection with it.
    pub fn sleep<R>(
        &mut self,
        call: &Call,
        s: &'static Sock,
        fd: i32,
        f: impl FnOnce() -> R,
    ) -> (R, Option<i32>) {
        // Until the call ends: who closes the descriptor while the thread is awake between two sleeps waits for the next one.
        if self.outer.is_none() {
            let number = s.number.load(Relaxed) + 1;
            self.outer = Some(call.thread.sleeps_on.swap(number, SeqCst));
        }
        if self.part {
            call.thread.going.set_part(false);
            call.thread.stays_frame.store(stack::stack_address(), Relaxed);
        }
        let r = f();
        call.thread.going.set_part(self.part);
        fault::between("slept");
        (r, self.goes_on(call, s, fd))
    }

    fn goes_on(&mut self, call: &Call, s: &'static Sock, fd: i32) -> Option<i32> {
        if s.end().generation.load(Relaxed) != self.generation || !s.is_warm() {
            return None;
        }
        let own = s.stays.descriptor();
        let held = own.is_some() && call.thread.going.holds(s);
        if own.is_some() && !self.joined && !held && s.stays.join() {
            self.joined = true;
            stands(call.thread, s, stack::stack_address());
        }
        // Who closes has waited for nothing but this call: the number may be another file's in the next moment.
        if let Some(own) = own.filter(|_| self.joined || held) {
            return Some(own);
        }
        if table::still(fd, s) {
            return Some(fd);
        }
        // Another descriptor of the program.
        Some(s.carrier()).filter(|other| table::still(*other, s))
    }

    /// The call returns. Its thread must not use the connection any more.
    #[inline]
    pub fn end(self, call: &Call, s: &'static Sock) {
        if self.part {
            call.thread.going.set_part(false);
        }
        let Some(outer) = self.outer else { return };
        if self.part && parts::goes_on(call.thread, s, self.joined) {
            return;
        }
        call.thread.sleeps_on.store(outer, Release);
        if self.joined {
            call.thread.stays_on.store(0, Release);
            leave(s);
        }
    }
}

/// A call of `thread` stays on `s`, in the frame at `frame`.
pub fn stands(thread: &Record, s: &Sock, frame: usize) {
    thread.stays_frame.store(frame, Relaxed);
    thread.stays_on.store(s.number.load(Relaxed) + 1, SeqCst);
}

/// A call of this thread stays, or was left by longjmp: then its frame is gone, as the one at `here` shows.
#[cold]
pub fn left(thread: &Record, here: usize) {
    let frame = thread.stays_frame.load(Relaxed);
    if !thread.going.is_part() && frame <= here && here - frame < 1 << 20 && !signal::is_on_alternate_stack()
    {
        thread_ended(thread);
    }
}

/// The thread has ended: so has a call of its that stayed.
pub fn thread_ended(thread: &Record) {
    parts::left(&thread.going);
    let place = thread.stays_on.swap(0, AcqRel);
    if let Some(s) = place.checked_sub(1).and_then(table::by_number) {
        leave(s);
    }
}

/// A call does not stay any more: the last one closes the library's descriptor.
#[cold]
pub fn leave(s: &'static Sock) {
    // In a forked child there is none.
    if s.stays.users.fetch_update(AcqRel, Relaxed, |n| n.checked_sub(1)) != Ok(1) {
        return;
    }
    let Some(own) = s.stays.descriptor() else { return };
    let closing = life::close_begin(own);
    s.stays.fd.store(0, Release);
    fd::close(own);
    closing.finish(0);
}

/// Before the last descriptor `fd` of `s` is closed: calls of other threads that sleep on it keep the connection, with a
/// descriptor of their own. Whether there are any; then [`closed`] must follow.
pub fn offer(s: &'static Sock, fd: i32) -> bool {
    let number = s.number.load(Relaxed) + 1;
    if s.stays.descriptor().is_some() || !thread::sleep_on(number) {
        return false;
    }
    let Ok(own) = fd::dup_high(fd, state::floor()) else { return false };
    {
        // It is one more descriptor, as any that the program makes: who has the lock for long need not be waited for.
        let _life = state::LIFE.lock_soon(table::tid());
        // Who closes counts as a user, so that no call that returns early closes the connection under it.
        s.stays.users.store(1, Relaxed);
        table::alias(own, s);
        s.fd.store(own, Release);
        s.stays.fd.store(own + 1, Release);
    }
    let until = clock::monotonic_ns() + PATIENCE_NS;
    while thread::call(number) {
        if clock::monotonic_ns() > until {
            thread::forget_sleep_on(number);
            break;
        }
        futex::wait(&AtomicU32::new(0), 0, 100_000);
    }
    if s.stays.users.compare_exchange(1, 0, AcqRel, Relaxed).is_err() {
        return true;
    }
    {
        let _life = state::LIFE.lock_soon(table::tid());
        table::remove(own);
        s.descriptors.fetch_sub(1, AcqRel);
        table::repoint(s, own);
    }
    s.stays.fd.store(0, Release);
    fd::close(own);
    false
}

/// The library's descriptor beside `fd`, as long as that has this meaning, which is `s`: for a call that is to sleep where who
/// closes does not see it. Whether there is one; then [`leave`] must follow.
pub fn beside(s: &'static Sock, fd: i32, meaning: u64) -> bool {
    let Ok(own) = fd::dup_high(fd, state::floor()) else { return false };
    {
        let _life = state::LIFE.lock_soon(table::tid());
        // The entry goes before the number does: it is a duplicate of that socket.
        if table::meaning(fd) == meaning && s.stays.descriptor().is_none() {
            s.stays.users.store(1, Relaxed);
            table::alias(own, s);
            s.stays.fd.store(own + 1, Release);
            return true;
        }
    }
    fd::close(own);
    false
}

/// The descriptor is closed.
pub fn closed(s: &'static Sock) {
    leave(s);
}
