//! What comes after this process has shut the receiving side of a connection: the pair takes no more, so the service is asked for it.

use super::{Record, told};
use crate::hook::{Moved, Verdict};
use crate::stream;
use crate::thread::Call;
use bypath_shm::service::{LEVEL, LOOK, Op, TAKE, UNREAD};
use bypath_sys::sock;
use bypath_sys::user::UserVec;
use std::sync::atomic::{AtomicBool, Ordering::*};

/// Octets of one question at most: an answer has no more room.
const PIECE: usize = 512;

/// There is such a connection, or was.
static ANY: AtomicBool = AtomicBool::new(false);

/// A connection of this process is one from now on.
pub(super) fn begin() {
    ANY.store(true, Release);
}

/// Whether there may be one.
#[inline]
pub fn is_any() -> bool {
    ANY.load(Relaxed)
}

fn deaf(fd: i32) -> Option<&'static Record> {
    super::of(fd).filter(|r| r.told.load(Relaxed) & told::DEAF != 0)
}

fn ask(r: &Record, name: i32, (most, skip): (usize, usize), f: impl FnOnce(&[u8])) -> usize {
    let question = r.question(Op::Get).number(LEVEL).number(name);
    let mut question = question.number(most as i32).number(skip as i32);
    let Ok(answer) = question.ask(r.service()) else { return 0 };
    let octets = answer.body.rest();
    let octets = &octets[..octets.len().min(most)];
    f(octets);
    octets.len()
}

/// FIONREAD: octets that are not in the pair.
#[inline]
pub fn unread(fd: i32) -> usize {
    if !is_any() {
        return 0;
    }
    let mut octets = 0;
    if let Some(r) = deaf(fd) {
        ask(r, UNREAD, (4, 0), |told| {
            octets = told.try_into().map_or(0, |told| u32::from_ne_bytes(told) as usize);
        });
    }
    octets
}

/// A receive of `fd`, of which this is known so far: behind what is in the pair there may be more.
#[inline]
pub fn received(fd: i32, buf: UserVec<'_>, flags: i32, verdict: Verdict) -> Verdict {
    if is_any() { look(fd, buf, flags, verdict) } else { verdict }
}

#[cold]
fn look(fd: i32, buf: UserVec<'_>, flags: i32, verdict: Verdict) -> Verdict {
    let special = libc::MSG_OOB | libc::MSG_ERRQUEUE | libc::MSG_TRUNC;
    let Some(r) = deaf(fd).filter(|_| flags & special == 0) else { return verdict };
    let done = match &verdict {
        Verdict::Done(moved) if let Ok(n) = moved.result() => n,
        // The call is to come. It finds what is in the pair, and never waits.
        Verdict::Served | Verdict::ServedKernel(_) => match sock::inq(fd) {
            Ok(0) => 0,
            Ok(_) => match sock::recv(fd, buf, flags) {
                Ok(n) => n,
                Err(_) => return verdict,
            },
            Err(_) => return verdict,
        },
        _ => return verdict,
    };
    let all = done + take(r, buf, flags, done);
    match verdict {
        // Whether there is an error instead of an end is found out by the call.
        Verdict::Served | Verdict::ServedKernel(_) if all == 0 => verdict,
        Verdict::ServedKernel(cold) => {
            cold.finish(done as isize);
            Verdict::Done(Moved::octets(all))
        }
        _ => Verdict::Done(Moved::octets(all)),
    }
}

/// Octets into the program's memory, behind those that are there; how many.
fn take(r: &Record, buf: UserVec<'_>, flags: i32, done: usize) -> usize {
    let (Some(call), Ok(want)) = (Call::enter(), buf.admit()) else { return 0 };
    let want = stream::writable(&call, buf, want);
    let peeks = flags & libc::MSG_PEEK != 0;
    let mut all = done;
    while all < want {
        let (name, skip) = if peeks { (LOOK, all - done) } else { (TAKE, 0) };
        let n = ask(r, name, ((want - all).min(PIECE), skip), |octets| buf.fill(all, octets));
        all += n;
        if n == 0 {
            break;
        }
    }
    all - done
}
