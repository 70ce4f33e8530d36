//! Calls that go in parts: several messages, a file in pieces.
//!
//! The kernel's call has looked its descriptors up once and holds what they mean until it returns. Ours looks again for each part,
//! and another thread may have closed the number meanwhile and opened something else by it: so it remembers what the number
//! meant. Where the connection is still there, by another descriptor or by one of a call that [stays](crate::stay), the rest goes on to it; else the call
//! ends with what it has done.

use crate::state;
use crate::stay;
use crate::table::{self, Entry, Sock};
use crate::thread::{self, Call, Record};
use bypath_sys::{fd, signal, thread as stack};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering::*};

/// No frames of one stack are farther from each other.
const REACH: usize = 1 << 20;

/// What a thread has for its call that goes in parts.
#[derive(Debug, Default)]
pub struct Going {
    /// Its socket, plus one.
    on: AtomicU32,
    /// A part of it is under way, and no signal handler.
    part: AtomicBool,
    /// It stays on that socket from part to part.
    holds: AtomicBool,
    /// The library's duplicate of a file that it reads, plus one.
    file: AtomicI32,
    /// Whose frame that is.
    file_frame: AtomicUsize,
}

impl Going {
    /// For a new thread.
    pub fn reset(&self) {
        left(self);
        self.file.store(0, Relaxed);
    }

    /// Whether a part is under way: what the thread calls now is that, whatever a frame of before says.
    #[inline]
    pub fn is_part(&self) -> bool {
        self.part.load(Relaxed)
    }

    /// Handlers may run from here on, and leave by longjmp; or not any more.
    #[inline]
    pub fn set_part(&self, part: bool) {
        self.part.store(part, Relaxed);
    }

    /// Whether the call stays on `s`.
    pub fn holds(&self, s: &Sock) -> bool {
        self.holds.load(Relaxed) && self.on.load(Relaxed) == s.number.load(Relaxed) + 1
    }

    /// The library's duplicate of a file, if there is one.
    pub fn file(&self) -> Option<i32> {
        self.file.load(Acquire).checked_sub(1).filter(|n| *n >= 0)
    }

    /// The same if who read it was left by longjmp, as the frame at `here` shows.
    #[inline]
    fn close_file_of_dead(&self, here: usize) {
        if self.file().is_none() {
            return;
        }
        let frame = self.file_frame.load(Relaxed);
        if frame <= here && here - frame < REACH && !signal::is_on_alternate_stack() {
            self.close_file();
        }
    }

    /// Nobody reads that file any more.
    pub fn close_file(&self) {
        if let Some(own) = self.file() {
            self.file.store(0, Release);
            fd::close(own);
        }
    }
}

/// A call of the program that goes in parts.
#[derive(Debug)]
pub struct Parts {
    fd: i32,
    meaning: u64,
    sock: Option<(&'static Sock, u32)>,
    thread: Option<&'static Record>,
    /// Of the call that a signal handler with this one interrupts: its socket, whether it stays; and on what it sleeps.
    outer: (u32, bool),
    slept: u32,
}

impl Parts {
    /// At the begin of a call on `fd`, in the frame at `frame`, which calls for each part.
    pub fn begin(fd: i32, frame: usize) -> Parts {
        let meaning = table::meaning(fd);
        let sock = match Entry::of(meaning as u32) {
            Some(Entry::Sock(s)) => Some((s, s.end().generation.load(Relaxed))),
            _ => None,
        };
        let thread = sock.and_then(|_| thread::mine());
        let mut parts = Parts { fd, meaning, sock, thread, outer: (0, false), slept: 0 };
        if let (Some(t), Some((s, _))) = (thread, sock) {
            if t.stays_on.load(Relaxed) != 0 {
                stay::left(t, frame);
            }
            parts.slept = t.sleeps_on.load(Relaxed);
            let g = &t.going;
            g.close_file_of_dead(frame);
            parts.outer = (g.on.swap(s.number.load(Relaxed) + 1, Relaxed), g.holds.swap(false, Relaxed));
            g.set_part(true);
        }
        parts
    }

    /// The socket, as long as that is what it was at the begin.
    fn sock(&self) -> Option<&'static Sock> {
        let (s, generation) = self.sock?;
        (s.end().generation.load(Relaxed) == generation && s.is_in_use()).then_some(s)
    }

    /// By which number the next part goes. `None`: what there was at the begin is gone.
    #[inline]
    pub fn next(&self) -> Option<i32> {
        if let Some(t) = self.thread {
            t.going.set_part(true);
        }
        self.number()
    }

    /// By which number what there was at the begin is called now.
    #[inline]
    pub fn number(&self) -> Option<i32> {
        let offered = self.sock.is_some_and(|(s, _)| s.stays.descriptor().is_some());
        if !offered && table::meaning(self.fd) == self.meaning {
            return Some(self.fd);
        }
        // Nothing means anything any more: as any call that was woken for that.
        self.find().or_else(|| (!offered && state::is_sealed()).then_some(self.fd))
    }

    #[cold]
    fn find(&self) -> Option<i32> {
        if self.sock.is_none() {
            return (table::meaning(self.fd) == self.meaning).then_some(self.fd);
        }
        let s = self.sock()?;
        let held = self.joins(s);
        if let Some(own) = s.stays.descriptor().filter(|_| held) {
            return Some(own);
        }
        if table::still(self.fd, s) {
            return Some(self.fd);
        }
        Some(s.carrier()).filter(|other| table::still(*other, s))
    }

    /// Whether it stays by now, on the descriptor that there is for such calls.
    fn joins(&self, s: &'static Sock) -> bool {
        let Some(t) = self.thread else { return false };
        if !t.going.holds.load(Relaxed) && s.stays.join() {
            self.stays(t, s);
        }
        t.going.holds.load(Relaxed)
    }

    fn stays(&self, t: &'static Record, s: &'static Sock) {
        t.going.holds.store(true, Relaxed);
        stay::stands(t, s, stack::stack_address());
    }

    /// Before a part that sleeps in the kernel, with others to come: the connection stays whatever becomes of the number.
    pub fn hold(&self) -> bool {
        let (Some(t), Some(s)) = (self.thread, self.sock()) else { return false };
        if state::is_sealed() {
            return false;
        }
        // Handlers wait.
        let Some(_call) = Call::enter() else { return false };
        let held = self.joins(s) || stay::beside(s, self.fd, self.meaning);
        if held {
            self.stays(t, s);
        }
        t.going.set_part(false);
        held
    }

    /// The call has something else to tell, and met this error: the connection's next call tells it.
    pub fn keep_error(&self, errno: i32) {
        if let Some(s) = self.sock() {
            s.keep_error(errno);
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        let (Some(t), Some((s, _))) = (self.thread, self.sock) else { return };
        let g = &t.going;
        let held = g.holds.load(Relaxed);
        let (on, holds) = self.outer;
        g.on.store(on, Relaxed);
        g.holds.store(holds, Relaxed);
        g.set_part(false);
        if t.sleeps_on.load(Relaxed) != self.slept {
            t.sleeps_on.store(self.slept, Release);
        }
        if held {
            t.stays_on.store(0, Release);
            stay::leave(s);
        }
    }
}

/// A part of the call of `thread` has slept on `s`, and returns: the thread still counts as one that sleeps there, and what the part has
/// `joined` is the whole call's.
pub fn goes_on(thread: &Record, s: &Sock, joined: bool) -> bool {
    let g = &thread.going;
    let is_it = g.on.load(Relaxed) == s.number.load(Relaxed) + 1;
    if is_it && joined {
        g.holds.store(true, Relaxed);
    }
    is_it
}

/// The call that stayed was left, or ended with its thread.
pub fn left(going: &Going) {
    going.on.store(0, Relaxed);
    going.holds.store(false, Relaxed);
    going.set_part(false);
}

/// A file of the program that a call reads in parts, by a descriptor of the library's own.
#[derive(Debug)]
pub struct File {
    thread: &'static Record,
    own: i32,
}

impl File {
    /// Of the program's `number`, for the frame at `frame`. `None`: there is no descriptor to be had, or this is a signal handler in
    /// such a call.
    pub fn hold(number: i32, frame: usize) -> Option<File> {
        // Handlers wait.
        let call = Call::enter()?;
        let g = &call.thread.going;
        g.close_file_of_dead(frame);
        if g.file().is_some() {
            return None;
        }
        let own = fd::dup_high(number, state::floor()).ok()?;
        g.file_frame.store(frame, Relaxed);
        g.file.store(own + 1, Release);
        Some(File { thread: call.thread, own })
    }

    /// The descriptor.
    pub fn number(&self) -> i32 {
        self.own
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.thread.going.file() == Some(self.own) {
            self.thread.going.close_file();
        }
    }
}
