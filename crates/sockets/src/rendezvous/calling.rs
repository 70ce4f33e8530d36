//! The first words of a rendezvous. Who calls can send no descriptors before the other end has seen whose process it is (`unix::listen`):
//! HELLO, which brings some, is kept back until then, and who has called is heard when he has something to say. Both look in their own
//! calls; nobody waits.

use super::message::{HELLO, MESSAGE_SIZE, VERSION, WORDS, to_bytes};
use super::{CALL_LIFE_NS, abroad, close_other, errno_reason, may_call, ring_size};
use crate::state::State;
use crate::table::Sock;
use crate::{fault, others, peer, state};
use bypath_shm::reason::Reason;
use bypath_sys::{Errno, clock, unix};
use std::sync::atomic::Ordering::*;

/// Who was dialled is told HELLO: as soon as he takes it.
pub fn dialled(s: &Sock, state: &State, dialled: i32) -> Result<(), Reason> {
    s.is_unsaid.store(true, Relaxed);
    say_hello(s, state, dialled)?;
    s.dialled.store(dialled, Relaxed);
    progress(s);
    Ok(())
}

/// Says HELLO, if it has not been said.
///
/// # Errors
/// `PeerPlain`: he is gone. What is in the way here.
pub fn say_hello(s: &Sock, state: &State, dialled: i32) -> Result<(), Reason> {
    if !s.is_unsaid.load(Relaxed) {
        return Ok(());
    }
    match call(s, state, dialled)? {
        Ok(()) => {
            s.is_unsaid.store(false, Relaxed);
            fault::point("hello-sent");
            s.looks.store(0, Relaxed);
            Ok(())
        }
        // He has not accepted yet.
        Err(Errno::PERM) => Ok(()),
        Err(_) => Err(Reason::PeerPlain),
    }
}

fn call(s: &Sock, state: &State, dialled: i32) -> Result<bypath_sys::Result<()>, Reason> {
    others::admit(dialled).map_err(errno_reason)?;
    let (_, inbox_fd) = state.inbox().map_err(errno_reason)?;
    let end = s.end();
    let mut m = [0; WORDS];
    m[0] = HELLO;
    m[1] = VERSION;
    m[2] = end.cookie.load(Relaxed);
    m[3] = end.peer_cookie.load(Relaxed);
    peer::begin();
    m[4] = state.own().name.load(Relaxed);
    m[5..8].copy_from_slice(&state.namespaces);
    m[8] = u64::from(s.number.load(Relaxed));
    m[9] = u64::from(ring_size(s)?);
    m[11] = abroad::folder_name();
    if s.abroad.load(Relaxed) == 0 {
        return Ok(unix::send(dialled, &to_bytes(&m), &[inbox_fd]));
    }
    let shown = abroad::show(s)?;
    m[12] = shown.namespace;
    let [diag, probe] = shown.sockets;
    Ok(unix::send(dialled, &to_bytes(&m), &[inbox_fd, diag, probe]))
}

/// The next one who calls, and may.
///
/// # Errors
/// With the caller: he may not.
pub fn accept(s: &Sock, listener: i32) -> Result<Option<i32>, (i32, Reason)> {
    let Ok(Some(caller)) = unix::accept(listener, state::floor()) else { return Ok(None) };
    may_call(s, caller).map_err(|reason| (caller, reason))?;
    unix::take_descriptors(caller, true);
    Ok(Some(caller))
}

/// Who has called is heard when he speaks.
pub fn hold(s: &Sock, caller: i32) {
    s.caller.store(caller, Relaxed);
    progress(s);
}

/// What who has called says; `None`: nothing yet. From then on he is the caller's of this function.
///
/// # Errors
/// `PeerPlain`: he is gone. Why his descriptors could not be taken.
pub fn heard(s: &Sock, bytes: &mut [u8; MESSAGE_SIZE]) -> Result<Option<(i32, unix::Received)>, Reason> {
    let caller = s.caller.load(Relaxed);
    let outcome = match unix::recv(caller, bytes, state::floor()) {
        Ok(None) => return Ok(None),
        Ok(Some(r)) if r.len > 0 => Ok(Some((caller, r))),
        Ok(_) => Err(Reason::PeerPlain),
        Err(e) => Err(errno_reason(e)),
    };
    s.caller.store(-1, Relaxed);
    if outcome.is_err() {
        close_other(caller);
    }
    outcome
}

/// Looks are close again, and go on for a while.
fn progress(s: &Sock) {
    s.looks.store(0, Relaxed);
    s.meeting_ends.store(clock::monotonic_ns() + CALL_LIFE_NS, Relaxed);
}
