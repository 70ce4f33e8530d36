//! connect of a socket of a service, and waiting as a call of the kernel's would: for so long, and until a signal.

use super::adopt::{self, Call};
use super::anew::is_gone;
use super::calls::{CLOSE, for_family, served};
use super::{Record, address, datagram, stage};
use crate::signals;
use crate::table::{self, Entry};
use crate::thread::Call as Inside;
use crate::wait::Deadline;
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::{Errno, Result, clock, fd as sys, poll, sock};
use std::sync::atomic::Ordering::*;

/// Before connect.
pub fn connect(fd: i32, raw: &[u8]) -> Option<Result<()>> {
    let remote = address::parse(raw);
    let Some(r) = served(fd) else {
        if datagram::of(fd).is_some() {
            return datagram::calls::connect(fd, raw);
        }
        let Some(Entry::Sock(s)) = table::entry(fd) else { return None };
        let call = Call::Connect(remote.ok()?);
        let begun = adopt::adopt(s, adopt::meant(s, call)?, call);
        return Some(begun.and_then(|r| {
            r.is_heard();
            begun_now(fd, r)
        }));
    };
    r.look();
    Some(match r.stage() {
        // Nobody is to know of it, but this process.
        stage::AWAY if dissolves(raw) => {
            r.recipe.give_up();
            r.enter(stage::UNKNOWN);
            Ok(())
        }
        stage::UNKNOWN if dissolves(raw) => Ok(()),
        _ if dissolves(raw) => adopt::dissolve(fd, r),
        // What is asked for does not matter while the answer of the last one is due.
        stage::CONNECTING if is_nonblocking(fd) && poll::now(fd, libc::POLLOUT) == 0 => Err(Errno::ALREADY),
        stage::CONNECTING => connected(fd, r),
        stage::CONNECTED | stage::LISTENING | stage::AWAY => Err(Errno::ISCONN),
        stage::REFUSED => remote.and_then(|remote| {
            adopt::renew(fd, r, for_family(remote, r)?)?;
            begun_now(fd, r)
        }),
        _ => remote.and_then(|remote| {
            adopt::connect(r.service(), r.cookie.load(Relaxed), fd, for_family(remote, r)?)?;
            r.recipe.give_up();
            // Of a connection that was dissolved.
            r.error.store(0, Relaxed);
            r.enter(stage::CONNECTING);
            begun_now(fd, r)
        }),
    })
}

/// Whether a connect to this address is the end of a connection.
pub fn dissolves(raw: &[u8]) -> bool {
    raw.get(..2) == Some(&(libc::AF_UNSPEC as u16).to_ne_bytes()[..])
}

/// Whether `fd` is a socket of a service that has, or had, a connection.
pub fn is_connected(fd: i32) -> bool {
    let Some(r) = super::of(fd) else { return false };
    r.look();
    r.stage() == stage::CONNECTED
}

pub(super) fn is_nonblocking(fd: i32) -> bool {
    sys::status_flags(fd).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0)
}

/// A connection was begun by this call: who does not wait is told so, however soon there is an answer.
fn begun_now(fd: i32, r: &Record) -> Result<()> {
    if is_nonblocking(fd) { Err(Errno::INPROGRESS) } else { connected(fd, r) }
}

/// Waits for what becomes of the connection.
fn connected(fd: i32, r: &Record) -> Result<()> {
    wait_for_room(fd)?;
    if r.is_well(fd) {
        r.enter(stage::CONNECTED);
        return Ok(());
    }
    let error = match r.take_error() {
        // Its service ended while it came up: another connection is to be had once there is one again.
        told if is_gone(&told) => {
            r.enter(stage::REFUSED);
            return Err(Errno::NETDOWN);
        }
        told => told?,
    };
    let error = match error {
        // Somebody was told already, or it was connected and is over.
        None if poll::now(fd, libc::POLLOUT) & (libc::POLLHUP | libc::POLLERR) != 0 => {
            (r.names()?.1 == CLOSE).then_some(Errno::CONNABORTED)
        }
        error => error,
    };
    r.enter(if error.is_some() { stage::REFUSED } else { stage::CONNECTED });
    error.map_or(Ok(()), Err)
}

/// Waits as connect does: for SO_SNDTIMEO at most.
fn wait_for_room(fd: i32) -> Result<()> {
    let limit = sock::option_time(fd, libc::SO_SNDTIMEO).unwrap_or(0);
    wait_for(fd, libc::POLLOUT, limit, Errno::INPROGRESS)
}

/// Waits for an event, for so long at most (ns; 0: for ever), and until a handler runs after which calls are not restarted.
///
/// # Errors
/// EINTR, and `over` when the time is over.
pub(super) fn wait_for(fd: i32, events: i16, limit: u64, over: Errno) -> Result<()> {
    let until = (limit != 0).then(|| clock::monotonic_ns().saturating_add(limit));
    let inside = Inside::enter();
    loop {
        let left = until.map(|until| until.saturating_sub(clock::monotonic_ns()));
        let mut fds = [PollFd { fd, events, revents: 0 }];
        let wait = |fds: &mut [PollFd]| ppoll(fds, left, 0);
        let woken = match &inside {
            Some(inside) => inside.parked(|| wait(&mut fds)),
            None => wait(&mut fds),
        };
        match woken {
            Ok(0) => return Err(over),
            // Another thread has closed it.
            Ok(_) if fds[0].revents & libc::POLLNVAL != 0 => return Err(Errno::BADF),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {
                let goes_on = inside.as_ref().is_some_and(|i| signals::restarts(i.thread, until.is_some()));
                if !goes_on {
                    return Err(Errno::INTR);
                }
            }
            Err(e) => return Err(e),
        }
    }
}

/// Waits for the timer of a socket that is away, as long as the call may.
///
/// # Errors
/// EAGAIN: its time is over; those of [`wait_for`].
pub(super) fn wait_within(fd: i32, deadline: Deadline) -> Result<()> {
    match deadline.left() {
        Some(0) => Err(Errno::AGAIN),
        left => wait_for(fd, libc::POLLIN, left.unwrap_or(0), Errno::AGAIN),
    }
}
