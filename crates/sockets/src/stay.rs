//! Calls that sleep on a descriptor which another thread closes.
//!
//! The kernel's call holds the connection until it returns, whatever becomes of the number. So does ours: who closes the
//! last descriptor gives the sleepers one of the library's own, and whose call is the last to return closes that.

use crate::life;
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

    fn join(&self) -> bool {
        self.users.fetch_update(AcqRel, Relaxed, |n| (n > 0).then_some(n + 1)).is_ok()
    }
}

/// A data call that may sleep on one socket.
#[derive(Debug)]
#[must_use = "end it"]
pub struct Staying {
    generation: u32,
    joined: bool,
    /// It has slept, and may do so again; what the thread slept on before: a handler's call interrupts another one.
    outer: Option<u32>,
}

impl Staying {
    /// At its begin.
    #[inline]
    pub fn new(call: &Call, s: &Sock) -> Staying {
        if call.thread.stays_on.load(Relaxed) != 0 {
            left(call.thread);
        }
        Staying { generation: s.end().generation.load(Relaxed), joined: false, outer: None }
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
        let r = f();
        (r, self.goes_on(call, s, fd))
    }

    fn goes_on(&mut self, call: &Call, s: &'static Sock, fd: i32) -> Option<i32> {
        if s.end().generation.load(Relaxed) != self.generation || !s.is_warm() {
            return None;
        }
        let own = s.stays.descriptor();
        if own.is_some() && !self.joined && s.stays.join() {
            self.joined = true;
            call.thread.stays_frame.store(stack::stack_address(), Relaxed);
            call.thread.stays_on.store(s.number.load(Relaxed) + 1, SeqCst);
        }
        if table::still(fd, s) {
            return Some(fd);
        }
        // Another descriptor of the program, or ours.
        own.filter(|_| self.joined).or_else(|| Some(s.carrier()).filter(|other| table::still(*other, s)))
    }

    /// The call returns. Its thread must not use the connection any more.
    #[inline]
    pub fn end(self, call: &Call, s: &'static Sock) {
        if let Some(outer) = self.outer {
            call.thread.sleeps_on.store(outer, Release);
        }
        if self.joined {
            call.thread.stays_on.store(0, Release);
            leave(s);
        }
    }
}

/// A call of this thread stays, or was left by longjmp: then its frame is gone.
#[cold]
fn left(thread: &Record) {
    let (frame, here) = (thread.stays_frame.load(Relaxed), stack::stack_address());
    if frame <= here && here - frame < 1 << 20 && !signal::is_on_alternate_stack() {
        thread_ended(thread);
    }
}

/// The thread has ended: so has a call of its that stayed.
pub fn thread_ended(thread: &Record) {
    let place = thread.stays_on.swap(0, AcqRel);
    if let Some(s) = place.checked_sub(1).and_then(table::by_number) {
        leave(s);
    }
}

#[cold]
fn leave(s: &'static Sock) {
    if s.stays.users.fetch_sub(1, AcqRel) != 1 {
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

/// The descriptor is closed.
pub fn closed(s: &'static Sock) {
    leave(s);
}
