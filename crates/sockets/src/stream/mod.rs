//! The data path: receive and send on followed TCP sockets.
//!
//! Cold ends go through the real libc call and are counted. Warm ends are served here: from the ring, or from the
//! carrier without waiting inside it.

mod peek;
mod recv;
mod send;

pub use recv::{from_kernel, received, recv};
pub use send::{send, unstick};

use crate::carrier;
use crate::hook::{Cold, FileSend, Moved, Verdict};
use crate::raised::{self, Counter, Raised};
use crate::rendezvous;
use crate::table::{self, Sock, flag};
use crate::thread::Call;
use crate::wait::Deadline;
use crate::{fault, guard, options, siblings, state, whose};
use bypath_sys::page::Access;
use bypath_sys::user::{IoVec, UserVec};
use bypath_sys::{Errno, thread};
use std::sync::atomic::Ordering::*;

/// Calls f with the part of `buf` after its first `skip` bytes (of long lists, the first 16 elements).
fn rest<R>(buf: UserVec<'_>, skip: usize, f: impl FnOnce(UserVec<'_>) -> R) -> R {
    if skip == 0 {
        return f(buf);
    }
    let mut list = [IoVec { base: 0, len: 0 }; 16];
    buf.after(skip, &mut list, f)
}

/// How many of the `n` > 0 bytes of `buf` from `skip` on are copied: all of them, or fewer where the memory ends
/// before; 0 = EFAULT. The kernel, too, copies in pieces, and takes nothing of one that ends in the void.
#[inline]
fn accessible(call: &Call, buf: UserVec<'_>, skip: usize, n: usize, access: Access) -> usize {
    let reach = buf.reach(skip, n, access, &call.thread.pages);
    if reach == n {
        return n;
    }
    let piece = match access {
        // A send fills a page fragment before it takes the next (net/core/sock.c).
        Access::Read => 32 * 1024,
        // A receive copies whole segments, on the loopback up to this long.
        Access::Write => 64 * 1024,
    };
    reach - reach % piece
}

/// How many of the `n` > 0 first bytes of `buf` can be written: 0 = EFAULT.
pub fn writable(call: &Call, buf: UserVec<'_>, n: usize) -> usize {
    accessible(call, buf, 0, n, Access::Write)
}

/// What becomes of a call of data.
#[derive(Clone, Copy)]
pub enum Step {
    /// It is done.
    Done(Moved),
    /// The socket changed under the question: it is asked again.
    Again,
    /// The kernel moves the bytes of this one.
    Cold(&'static Sock),
    /// Not a call on a ring, or on what is followed.
    NotOurs,
    /// The same on a netstack service's socket.
    Served,
    /// Its number means something else by now, and nothing is followed any more.
    Gone,
}

/// What becomes of a call that dup2 has taken the number from. There was no moment at which that meant nothing, so it is for what has it now: unless a part of
/// it is done (`rest`), or it was under way for long already.
#[cold]
fn replaced(s: &Sock, rest: bool) -> Step {
    match rest {
        true => Step::Done(Moved::failed(Errno::BADF)),
        false if s.is_late.load(Acquire) => Step::Done(Moved::failed(Errno::INTR)),
        false => Step::Again,
    }
}

impl Step {
    /// Of a call on `fd`, which is not followed.
    #[inline]
    fn of_unfollowed(fd: i32) -> Step {
        if table::served(fd).is_some() { Step::Served } else { Step::NotOurs }
    }

    /// `None`: it is asked again.
    pub fn verdict(self, flags: i32, sending: bool) -> Option<Verdict> {
        match self {
            Step::Done(moved) => Some(Verdict::Done(moved).unless_sealed()),
            Step::Again => None,
            Step::Cold(s) => cold(s, flags, sending),
            Step::NotOurs => Some(Verdict::NotOurs),
            Step::Served => Some(Verdict::Served),
            Step::Gone => Some(Verdict::Done(Moved::failed(Errno::BADF))),
        }
    }
}

/// A call on a cold end: the kernel moves the bytes.
fn cold(s: &'static Sock, flags: i32, sending: bool) -> Option<Verdict> {
    let blocking = flags & libc::MSG_DONTWAIT == 0 && !s.has(flag::NONBLOCK);
    // Where only hooked calls know how many bytes they moved, none of them may be under way at a switch.
    let counted = blocking || !carrier::is_counted(s);
    fault::between("cold");
    let mut raised = None;
    if counted {
        // Counted first, looked at again second: an upgrade that starts meanwhile sees one of the two.
        let frame = thread::stack_address();
        raised::lower_dead(frame);
        let up = raised::raise(if sending { Counter::Sending(s) } else { Counter::Receiving(s) }, frame);
        if s.is_warm() {
            up.lower();
            return None;
        }
        raised = Some(up);
    }
    fault::between("counted");
    let cold = Cold::new(s, sending, raised, flags);
    Some(if s.served().is_some() { Verdict::ServedKernel(cold) } else { Verdict::Kernel(cold) })
}

/// How a file gets into the connection `fd`.
pub fn send_file(fd: i32) -> FileSend {
    let Some(s) = table::sock(fd) else { return FileSend::Unfollowed };
    loop {
        if s.conn.get().is_some() {
            return if s.has(flag::STAYS) { FileSend::Unfollowed } else { FileSend::Pieces };
        }
        if let Some(Verdict::Kernel(report) | Verdict::ServedKernel(report)) = cold(s, 0, true) {
            return FileSend::Kernel(report);
        }
    }
}

/// A call that moves several messages on `fd`: its report if the kernel moves them all, `None` if they go one by one.
pub fn several(fd: i32, flags: i32, sending: bool) -> Option<Cold> {
    let s = table::sock(fd).filter(|s| s.served().is_none())?;
    while s.conn.get().is_none() {
        if let Some(Verdict::Kernel(report)) = cold(s, flags, sending) {
            return Some(report);
        }
    }
    None
}

/// Counts bytes that went by the carrier: the kernel's connection, or the pair that a netstack service's socket is.
#[inline]
pub fn count_by_carrier(call: &Call, s: &Sock, sending: bool, n: u64) {
    let of_service = s.served().is_some();
    call.thread.count(
        |b| match (sending, of_service) {
            (true, false) => &b.kernel_tx,
            (false, false) => &b.kernel_rx,
            (true, true) => &b.pair_tx,
            (false, true) => &b.pair_rx,
        },
        n,
    );
    if !sending {
        fault::slow(false);
    }
}

/// Reports the result of a call on a cold end.
pub fn cold_done(s: &'static Sock, sending: bool, raised: Option<Raised>, flags: i32, ret: isize) {
    let end = s.end();
    let moved = if flags & libc::MSG_PEEK != 0 { 0 } else { ret.max(0) as u64 };
    let bytes = if sending { &end.w.kernel_bytes } else { &end.r.kernel_bytes };
    // The bytes first: who sees nobody in the kernel must see the count that belongs to it.
    if moved > 0 {
        bytes.fetch_add(moved, Relaxed);
    }
    if let Some(raised) = raised {
        raised.lower();
    }
    if moved == 0 {
        return;
    }
    if state::is_sealed() {
        return;
    }
    let Some(call) = Call::enter() else { return };
    count_by_carrier(&call, s, sending, moved);
    if !s.has(flag::USED) {
        s.set_used();
    }
    if !s.is_warm() {
        guard::moved(s, sending);
        rendezvous::traffic(s);
    }
}

/// What a call was told of its socket's options may be nonsense: any process of the family can write there. A sleep that lasts is
/// interrupted once, and the kernel is asked.
struct Doubt {
    asks: bool,
    until: Option<Deadline>,
}

impl Doubt {
    /// A process that has no relatives has no doubts.
    fn new() -> Doubt {
        Doubt { asks: table::has_relatives(), until: None }
    }

    /// When to wake up.
    fn bound(&mut self, deadline: Deadline) -> Deadline {
        if !self.asks {
            return deadline;
        }
        *self.until.get_or_insert_with(|| deadline.or_after(siblings::PERIOD_NS))
    }

    /// The sleep up to [`bound`](Doubt::bound) is over. True, once, if the call was to sleep longer: its options are what the kernel says
    /// now.
    fn is_settled(&mut self, s: &Sock, deadline: Deadline) -> bool {
        let was_cut = std::mem::take(&mut self.asks) && deadline.left() != Some(0);
        if was_cut {
            options::refresh(s);
        }
        was_cut
    }
}

/// linux/err.h: no error has a higher number.
const MOST_ERRNO: i32 = 4095;

/// The error that a call of ours took from the carrier, for the program; it is reported once.
pub fn take_error(s: &Sock) -> Option<Errno> {
    match s.end().pending_error.swap(0, AcqRel) {
        // A broken pipe is for writers, and the kernel says it to them itself, with its signal.
        libc::EPIPE => None,
        // What befell the connection is no news of another one.
        e @ 1..=MOST_ERRNO if !whose::is_elsewhere(s) => Some(Errno::from_raw_os_error(e)),
        // Nothing, or nonsense of another process of the family.
        _ => None,
    }
}
