//! How two ends of a connection find each other: by socket cookie, in the abstract AF_UNIX namespace.
//!
//! An end that has carried enough traffic asks the carrier for the socket at the other end (sock_diag), binds
//! `bypath/1/<own cookie>` and dials `bypath/1/<peer's cookie>`: bind first, dial second, so that of two ends that
//! come at the same time at least one finds the other. Nothing here waits. See docs/switch-protocol.md.
//! Ends in two network namespaces meet in a folder, if that is asked for: see `abroad`.

mod abroad;
mod calling;
mod message;
mod way;

pub use abroad::remove_name;
use message::{HELLO, NO, VERSION, WELCOME, WORDS, from_bytes, to_bytes};
pub use message::{MESSAGE_SIZE, bell_message};
use way::Way;
use way::may_call;
pub use way::{check_uid, credentials_fit};

use crate::budget::Rest;
use crate::config::Upgrade;
use crate::peer::{self, Allocated, Conn, Peer};
use crate::state::{self, State};
use crate::table::{self, Sock, flag};
use crate::{carrier, fault, heir, life, limit, log, memory, options, rules, service, switch, wish, worth};
use bypath_shm::arena::Geometry;
use bypath_shm::inbox::BELL;
use bypath_shm::reason::Reason;
use bypath_sys::sockdiag::Found;
use bypath_sys::{Errno, clock, fd, process, sock, strangers, unix};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// A name is kept this long before it is given up (the next attempt binds it again).
const NAME_LIFE_NS: u64 = 500_000_000;
/// Where the other end is known to have a name, and has not answered yet: it may rest for a while.
const CALL_LIFE_NS: u64 = 10_000_000_000;
/// Attempts on one connection before its peer counts as plain for good.
const MAX_ATTEMPTS: u32 = 8;
/// Attempts that are repeated soon, if the other end is not proven.
const PROOFS: u32 = 3;
/// Further attempts on a connection come after this many bytes at least.
const LATER_BYTES: u64 = 64 * 1024;

/// After dealings with strangers: their ends of connections may be watched by millions, all of whom the kernel tells of each word, and of the close.
pub static STRANGERS: Rest = Rest::new();

/// Whether anything of others may be taken now.
pub fn may_meet() -> bool {
    STRANGERS.is_over() && !strangers::is_busy()
}

/// Rendezvous under way. Changes under [`state::LIFE`].
static MEETINGS: AtomicU32 = AtomicU32::new(0);

/// A message on a pair's control channel.
pub fn control_message(peer: &Peer, bytes: &[u8], received: &unix::Received) {
    match from_bytes(bytes) {
        Some(m) if m[0] == BELL && received.fd_count == 1 => {
            peer.add_bell(m[2] as u32, received.fds[0]);
        }
        _ => strangers::close_received(received),
    }
}

/// A connection with the other end, who may have left there what is not closed at once.
fn close_other(end: i32) {
    strangers::close_caller(end);
}

/// Called by data calls of cold ends after they moved bytes: counts, and now and then makes an attempt or looks
/// at a rendezvous under way.
#[inline]
pub fn traffic(s: &'static Sock) {
    wish::serve(s);
    if s.meeting.load(Relaxed) {
        s.end().r.calls.fetch_add(1, Relaxed);
        let patience = s.patience.load(Relaxed);
        if patience > 0 {
            s.patience.store(patience - 1, Relaxed);
            return;
        }
        // Before it looks, as what it finds may end this rendezvous and begin another.
        s.patience.store(if fault::flip(2) { 0 } else { patience_after(s) }, Relaxed);
        look(s);
        return;
    }
    let end = s.end();
    let calls = u64::from(end.r.calls.fetch_add(1, Relaxed)) + 1;
    let due = calls >= s.due_calls.load(Relaxed)
        || end.w.kernel_bytes.load(Relaxed).wrapping_add(end.r.kernel_bytes.load(Relaxed))
            >= s.due_bytes.load(Relaxed);
    if due && !s.has(flag::STAYS) {
        attempt(s, calls);
    }
}

/// Calls between a look at a rendezvous and the next one. A look costs a microsecond or two: as much as a small call, nothing
/// beside a large one. Who comes comes soon; where nobody does, looks become rare.
fn patience_after(s: &Sock) -> u32 {
    let end = s.end();
    let is_said = s.dialled.load(Relaxed) >= 0 && !s.is_unsaid.load(Relaxed);
    // An answer that was asked for is looked for all the time.
    let looks = if is_said { 0 } else { s.looks.fetch_add(1, Relaxed) };
    let bytes = end.w.kernel_bytes.load(Relaxed).wrapping_add(end.r.kernel_bytes.load(Relaxed));
    let at_last: u32 = match bytes / u64::from(end.r.calls.load(Relaxed)).max(1) {
        0..4096 => 64,
        4096..32_768 => 16,
        _ => 1,
    };
    // At first each call: processes that are to share a connection say little before, and each step takes one end's next look.
    (1 << (looks / 4).min(6)).min(at_last) - 1
}

/// Whether another attempt may go better.
pub fn is_passing(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::PeerPlain
            | Reason::SharedProcesses
            | Reason::InKernelCall
            | Reason::NoDescriptors
            | Reason::NoMemory
            | Reason::MemoryLimit
            | Reason::ConnectionLimit
            | Reason::NotConnected
            | Reason::BelowThreshold
            | Reason::PeerUnproven
    )
}

/// The next call makes an attempt, as if none had been made, whatever the connection has carried.
pub fn attempt_soon(s: &Sock) {
    s.attempts.store(1, Relaxed);
    s.due_calls.store(0, Relaxed);
}

#[cold]
fn attempt(s: &'static Sock, calls: u64) {
    if state::is_borrowed() {
        // What a vfork child opens here the owner of this memory does not have.
        return;
    }
    let Some(_life) = state::LIFE.try_lock(table::tid()) else { return };
    let (Some(state), Some(config)) = (state::get(), state::config()) else { return };
    let end = s.end();
    let bytes = end.w.kernel_bytes.load(Relaxed).wrapping_add(end.r.kernel_bytes.load(Relaxed));
    let attempts = s.attempts.load(Relaxed);
    if config.upgrade == Upgrade::Lazy && attempts == 0 {
        let factor = worth::factor();
        let due_calls = config.upgrade_calls.saturating_mul(factor);
        let due_bytes = config.upgrade_bytes.saturating_mul(factor);
        if calls < due_calls && bytes < due_bytes {
            s.due_calls.store(due_calls, Relaxed);
            s.due_bytes.store(due_bytes, Relaxed);
            s.set_reason(Reason::BelowThreshold);
            return;
        }
    }
    if MEETINGS.load(Relaxed) >= most_meetings() && !end_overdue(state) || !may_meet() {
        // Its turn comes: nothing is known about its other end yet.
        s.due_calls.store(calls + 1, Relaxed);
        return;
    }
    s.attempts.store(attempts + 1, Relaxed);
    let factor = if config.upgrade == Upgrade::Eager { 2 } else { 4 };
    s.due_calls.store((calls * factor).max(calls + 4), Relaxed);
    s.due_bytes.store((bytes.saturating_mul(factor)).max(LATER_BYTES), Relaxed);
    match begin(s, state) {
        Ok(()) => {}
        Err(reason) => {
            s.set_reason(reason);
            // Processes that share it may let go of it at any time, and nobody else is asked meanwhile.
            let last = attempts + 1 >= MAX_ATTEMPTS && reason != Reason::SharedProcesses;
            // What a service has not at one moment it may have at another one.
            let is_passing = is_passing(reason) || s.served().is_some() && reason == Reason::Refused;
            if !is_passing || last {
                s.keep_on_kernel(reason);
            }
            if reason == Reason::PeerUnproven && attempts < PROOFS {
                // Another user's end is proven by what goes over it between two attempts.
                s.due_calls.store(calls + 4, Relaxed);
            }
            tell(s, reason);
        }
    }
}

fn tell(s: &Sock, reason: Reason) {
    log::line(
        crate::config::LogLevel::Debug,
        format_args!("fd {} stays on the kernel: {}", s.carrier(), reason.code()),
    );
}

/// Ends those whose time is over and that nobody looks at, as their connections rest. Whether there is room for another one then. Under
/// [`state::LIFE`].
#[cold]
fn end_overdue(state: &'static State) -> bool {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    const PAUSE_NS: u64 = 10_000_000;
    let now = clock::monotonic_ns();
    if now < NEXT.load(Relaxed) {
        return false;
    }
    NEXT.store(now + PAUSE_NS, Relaxed);
    table::each_sock(|s| {
        if s.meeting.load(Relaxed) {
            end_if_overdue(s, state, now);
        }
    });
    MEETINGS.load(Relaxed) < most_meetings()
}

fn end_if_overdue(s: &'static Sock, state: &State, now: u64) {
    if now > s.meeting_ends.load(Relaxed) && !waits_alone(s, state) {
        let reason = unanswered(s);
        give_up(s);
        s.set_reason(reason);
    }
}

/// Rendezvous under way at a time: each holds up to two descriptors, so half of our numbers at most.
fn most_meetings() -> u32 {
    let room = fd::limits().0.saturating_sub(state::floor() as u64) / 4;
    room.clamp(16, 1024) as u32
}

fn begin(s: &'static Sock, state: &'static State) -> Result<(), Reason> {
    if let Some(reason) = state::hindrance() {
        return Err(reason);
    }
    if !heir::is_alone(s, state) {
        return Err(Reason::SharedProcesses);
    }
    // Whoever shares memory must be able to sleep.
    crate::thread::mine().ok_or(Reason::NoMemory)?.ensure_bell().map_err(errno_reason)?;
    let end = s.end();
    let known = end.cookie.load(Relaxed);
    let carrier = s.carrier();
    let cookie =
        sock::option_u64(carrier, libc::SOL_SOCKET, libc::SO_COOKIE).map_err(|_| Reason::NotConnected)?;
    if known != 0 && known != cookie {
        // The descriptor was closed and reused behind our back: this record is about another socket.
        return Err(Reason::Inherited);
    }
    if !table::identify(s) {
        return Err(Reason::NotConnected);
    }
    if s.served().is_none() {
        rules::admit(s)?;
    }
    options::eligible(s)?;
    if s.served().is_some() {
        service::rings::widen(s);
    }
    let ring = ring_size(s)?;
    limit::admit(s)?;
    memory::admit(state, state::config().ok_or(Reason::Disabled)?)?;
    if let Some(record) = s.served() {
        return service::rings::meet(s, state, record, ring).map(|conn| switch::warm(s, conn));
    }
    let way = match peer_socket(s) {
        Err(Reason::PeerRemote) => Way::Abroad(abroad::Way::of(s)?),
        found => Way::Here(found?),
    };
    if let Way::Here(found) = way {
        if found.inode == 0 {
            return Err(Reason::PeerPlain);
        }
        check_uid(found.uid)?;
    }
    end.peer_cookie.store(way.peer_cookie(), Relaxed);
    peer::sweep();

    let (listener, inode) = way.listen(cookie)?;
    if matches!(way, Way::Here(_)) && is_elsewhere(carrier, listener) {
        strangers::close_listener(listener);
        return Err(Reason::OtherNamespace);
    }
    s.abroad.store(inode, Relaxed);
    s.listener.store(listener, Relaxed);
    fault::point("listening");
    s.meeting.store(true, Relaxed);
    MEETINGS.fetch_add(1, Relaxed);
    s.patience.store(0, Relaxed);
    s.looks.store(0, Relaxed);
    s.meeting_ends.store(clock::monotonic_ns() + NAME_LIFE_NS, Relaxed);
    let dialled = match STRANGERS.after(|| way.dial()) {
        Ok(Some(dialled)) => dialled,
        Ok(None) => {
            // So it is as long as nobody comes.
            s.set_reason(unanswered(s));
            return Ok(());
        }
        Err(reason) => {
            abandon(s);
            return Err(reason);
        }
    };
    let said = calling::dialled(s, state, dialled);
    if said.is_err() {
        close_other(dialled);
        abandon(s);
    }
    said
}

/// Whether a name of this thread's is in another network namespace than the connection.
fn is_elsewhere(carrier: i32, listener: i32) -> bool {
    matches!([carrier, listener].map(sock::network_namespace), [Ok(own), Ok(other)] if own != other)
}

/// Why a connection stays on the kernel whose other end has not answered.
fn unanswered(s: &Sock) -> Reason {
    if s.abroad.load(Relaxed) != 0 { Reason::PeerRemote } else { Reason::PeerPlain }
}

/// Why something could not be made.
pub fn errno_reason(e: Errno) -> Reason {
    match e {
        Errno::MFILE | Errno::NFILE | Errno::INVAL => Reason::NoDescriptors,
        Errno::NOMEM | Errno::NOBUFS | Errno::NOSPC => Reason::NoMemory,
        _ => Reason::ForbiddenCall,
    }
}

/// The ring this end can take back at any time: at most half of what its carrier can buffer.
fn ring_size(s: &Sock) -> Result<u32, Reason> {
    let config = state::config().ok_or(Reason::Disabled)?;
    let half = u32::try_from(carrier::of(s).capacity(s.carrier()) / 2).unwrap_or(0);
    let size = if half == 0 { 0 } else { config.ring_size.min(1 << half.ilog2()) };
    if size < *crate::config::RING_SIZES.start() { Err(Reason::SmallBuffer) } else { Ok(size) }
}

/// Looks at a rendezvous under way.
#[cold]
fn look(s: &'static Sock) {
    if state::is_borrowed() {
        return;
    }
    let Some(_life) = state::LIFE.try_lock(table::tid()) else { return };
    if !s.meeting.load(Relaxed) {
        return;
    }
    let Some(state) = state::get() else { return };
    match step(s, state) {
        Ok(Some(conn)) => {
            abandon(s);
            switch::warm(s, conn);
        }
        Ok(None) => end_if_overdue(s, state, clock::monotonic_ns()),
        Err(reason) => {
            abandon(s);
            s.set_reason(reason);
            tell(s, reason);
            let passing = matches!(
                reason,
                Reason::PeerPlain
                    | Reason::SharedProcesses
                    | Reason::NoDescriptors
                    | Reason::NoMemory
                    | Reason::ConnectionLimit
                    | Reason::PeerUnproven
            );
            if !passing {
                s.keep_on_kernel(reason);
            }
        }
    }
}

/// Whether the other end was called, and a child that came since shares this one: the answer waits until it is gone. Who has
/// answered counts on this end, and cannot be met again.
fn waits_alone(s: &'static Sock, state: &State) -> bool {
    s.dialled.load(Relaxed) >= 0 && !life::holds_alone(s, state)
}

fn step(s: &'static Sock, state: &'static State) -> Result<Option<&'static Conn>, Reason> {
    let floor = state::floor();
    let mut bytes = [0; MESSAGE_SIZE];
    let dialled = s.dialled.load(Relaxed);
    if waits_alone(s, state) {
        return Ok(None);
    }
    if dialled >= 0 {
        let is_there = match calling::say_hello(s, state, dialled) {
            Ok(()) => true,
            Err(Reason::PeerPlain) => false,
            Err(reason) => return Err(reason),
        };
        match unix::recv(dialled, &mut bytes, floor) {
            Ok(None) if is_there => {}
            Ok(Some(r)) if r.len > 0 => {
                return answered(s, state, dialled, &bytes[..r.len], &r, true).map(Some);
            }
            // There was an answer.
            Err(e @ Errno::MFILE) => return Err(errno_reason(e)),
            _ => {
                // Declined because the other end dialled us, or gone: its own call may be waiting.
                close_other(dialled);
                s.dialled.store(-1, Relaxed);
            }
        }
    }
    if s.caller.load(Relaxed) < 0 && !calls(s)? {
        return Ok(None);
    }
    let Some((caller, r)) = calling::heard(s, &mut bytes)? else { return Ok(None) };
    let result = greeted(s, state, caller, &bytes[..r.len], &r);
    if !matches!(result, Ok((_, true))) {
        close_other(caller);
    }
    result.map(|(conn, _)| Some(conn))
}

/// Whether somebody calls who is to be heard.
fn calls(s: &Sock) -> Result<bool, Reason> {
    let end = s.end();
    let (listener, dialled) = (s.listener.load(Relaxed), s.dialled.load(Relaxed));
    if listener < 0 {
        return if dialled < 0 { Err(Reason::PeerPlain) } else { Ok(false) };
    }
    if !may_meet() {
        return Ok(false);
    }
    let caller = match calling::accept(s, listener) {
        Ok(Some(caller)) => caller,
        Ok(None) => return Ok(false),
        Err((caller, reason)) => {
            // What a stranger says stays unread.
            return Err(STRANGERS.after(|| {
                let reason = decline(caller, reason);
                strangers::close_stranger(caller);
                reason
            }));
        }
    };
    if dialled >= 0 {
        let is_higher = end.cookie.load(Relaxed) > end.peer_cookie.load(Relaxed);
        if if s.abroad.load(Relaxed) == 0 { is_higher } else { abroad::is_first(s) } {
            // Crossed calls: the one dialled by the higher cookie counts, or by the higher address, and that is ours.
            close_other(caller);
            return Ok(false);
        }
        close_other(dialled);
        s.dialled.store(-1, Relaxed);
    }
    calling::hold(s, caller);
    Ok(true)
}

fn decline(s: i32, reason: Reason) -> Reason {
    let mut m = [0; WORDS];
    m[0] = NO;
    m[1] = VERSION;
    m[2] = reason as u64;
    let _ = unix::send(s, &to_bytes(&m), &[]);
    reason
}

/// The accepting side: checks HELLO, hands out a slot, answers. The flag tells whether the socket became the
/// control channel of a new pair.
fn greeted(
    s: &'static Sock,
    state: &'static State,
    caller: i32,
    bytes: &[u8],
    r: &unix::Received,
) -> Result<(&'static Conn, bool), Reason> {
    let end = s.end();
    let checked = (|| {
        let m = from_bytes(bytes).ok_or(Reason::VersionMismatch)?;
        let is_abroad = s.abroad.load(Relaxed) != 0;
        if m[0] != HELLO || r.fd_count != if is_abroad { 3 } else { 1 } {
            return Err(Reason::VersionMismatch);
        }
        if is_abroad {
            abroad::verify(s, m[2], m[12], [r.fds[1], r.fds[2]])?;
            end.peer_cookie.store(m[2], Relaxed);
        } else {
            let peer_cookie = end.peer_cookie.load(Relaxed);
            if m[2] != peer_cookie || m[3] != end.cookie.load(Relaxed) {
                return Err(Reason::Squatter);
            }
            let uid = unix::peer_credentials(caller).map_err(|_| Reason::Squatter)?.uid;
            let found = peer_socket(s)?;
            if found.inode == 0 {
                return Err(Reason::PeerPlain);
            }
            if found.cookie != peer_cookie || found.uid != uid {
                return Err(Reason::Squatter);
            }
            if m[5..8] != state.namespaces && !abroad::is_asked_for(m[11]) {
                return Err(Reason::PolicyNamespace);
            }
        }
        if !heir::is_alone(s, state) {
            return Err(Reason::SharedProcesses);
        }
        let ring = ring_size(s)?.min(u32::try_from(m[9]).unwrap_or(0));
        if !(Geometry { slots: 1, ring }).is_valid() {
            return Err(Reason::SmallBuffer);
        }
        limit::admit(s)?;
        memory::admit(state, state::config().ok_or(Reason::Disabled)?)?;
        let (_, inbox_fd) = state.inbox().map_err(errno_reason)?;
        peer::begin();
        let (peer, fresh) = match peer::to_process(m[4], caller) {
            Some(p) => (p, false),
            None => {
                let pair = process::random_u64();
                (peer::add(pair, m[4], 1, caller, r.fds[0])?, true)
            }
        };
        let a = peer.allocate(ring).map_err(errno_reason);
        let a = match a {
            Ok(a) => a,
            Err(reason) => {
                if fresh {
                    peer.disown();
                }
                return Err(reason);
            }
        };
        a.conn.control.name([m[2], m[3]]);
        a.conn.control.ends[0].store(m[8] as u32, Relaxed);
        a.conn.control.ends[1].store(s.number.load(Relaxed), Relaxed);
        Ok((a, peer, fresh, inbox_fd))
    })();
    strangers::close_received(r);
    let (a, peer, fresh, inbox_fd) = checked.map_err(|reason| decline(caller, reason))?;
    fault::point("slot-allocated");
    if let Err(reason) = welcome(caller, state, &a, peer, fresh, inbox_fd, s) {
        a.conn.take_back();
        if fresh {
            peer.disown();
        }
        return Err(reason);
    }
    fault::point("welcome-sent");
    Ok((a.conn, fresh))
}

/// The socket at the other end, as the kernel knows it.
fn peer_socket(s: &Sock) -> Result<Found, Reason> {
    carrier::of(s).peer(s, state::netlink().map_err(errno_reason)?)
}

fn welcome(
    to: i32,
    state: &State,
    a: &Allocated,
    peer: &Peer,
    fresh: bool,
    inbox_fd: i32,
    s: &Sock,
) -> Result<(), Reason> {
    let mut m = [0; WORDS];
    m[0] = WELCOME;
    m[1] = VERSION;
    m[2] = peer.pair.load(Relaxed);
    m[3] = state.own().name.load(Relaxed);
    m[4] = u64::from(a.arena) << 32 | u64::from(a.slot);
    m[5..8].copy_from_slice(&state.namespaces);
    m[8] = u64::from(s.number.load(Relaxed));
    m[9] = u64::from(a.geometry.slots) << 32 | u64::from(a.geometry.ring);
    m[10] = u64::from(fresh);
    m[11] = abroad::folder_name();
    let plain = |_| Reason::PeerPlain;
    if s.abroad.load(Relaxed) == 0 {
        return unix::send(to, &to_bytes(&m), &[inbox_fd, a.arena_fd]).map_err(plain);
    }
    let shown = abroad::show(s)?;
    m[12] = shown.namespace;
    m[13] = s.end().cookie.load(Relaxed);
    let [diag, probe] = shown.sockets;
    unix::send(to, &to_bytes(&m), &[inbox_fd, a.arena_fd, diag, probe]).map_err(plain)
}

/// The dialling side: checks WELCOME and maps what it names.
fn answered(
    s: &'static Sock,
    state: &'static State,
    dialled: i32,
    bytes: &[u8],
    r: &unix::Received,
    look_further: bool,
) -> Result<&'static Conn, Reason> {
    let result = (|| {
        let m = from_bytes(bytes).ok_or(Reason::VersionMismatch)?;
        if m[0] == NO {
            let reason = u16::try_from(m[2]).ok().and_then(Reason::from_value).unwrap_or(Reason::Refused);
            return Err(reason);
        }
        let is_abroad = s.abroad.load(Relaxed) != 0;
        if m[0] != WELCOME || r.fd_count != if is_abroad { 4 } else { 2 } {
            return Err(Reason::VersionMismatch);
        }
        if is_abroad {
            abroad::verify(s, m[13], m[12], [r.fds[2], r.fds[3]])?;
            s.end().peer_cookie.store(m[13], Relaxed);
        } else if m[5..8] != state.namespaces && !abroad::is_asked_for(m[11]) {
            return Err(Reason::PolicyNamespace);
        }
        if !heir::is_alone(s, state) {
            return Err(Reason::SharedProcesses);
        }
        // What was asked for may be over, and another connection in its place.
        if !is_abroad && peer_socket(s)?.cookie != s.end().peer_cookie.load(Relaxed) {
            return Err(Reason::Squatter);
        }
        // No longer than was asked for, and than can be taken back now.
        if m[9] as u32 > ring_size(s)? {
            return Err(Reason::SmallBuffer);
        }
        peer::begin();
        let pair = || peer::by_pair(m[2], 0).filter(|p| p.is_behind(dialled));
        let known = pair().or_else(|| {
            // The answer that founded the pair came earlier, on the socket of another connection.
            if m[10] == 0 && look_further {
                look_at_others(s, state, m[2]);
            }
            pair()
        });
        let (peer, fresh) = match known {
            // Since this process was named; by another name it will be another pair.
            Some(p) if p.is_left() => return Err(Reason::SharedProcesses),
            Some(p) => (p, false),
            None if m[10] == 0 => return Err(Reason::PeerPlain),
            None => (peer::add(m[2], m[3], 0, dialled, r.fds[0])?, true),
        };
        let conn = match given(peer, &m, dialled, r) {
            Some(c) => c,
            None => {
                if fresh {
                    peer.disown();
                }
                return Err(Reason::PeerMemoryInvalid);
            }
        };
        if fresh {
            s.dialled.store(-1, Relaxed);
        }
        Ok(conn)
    })();
    if result.is_err() {
        hand_back(dialled, bytes, r);
    }
    strangers::close_received(r);
    fault::point("welcome-taken");
    result
}

/// An answer that nothing comes of: the slot that it hands out can be used again.
#[cold]
fn hand_back(dialled: i32, bytes: &[u8], r: &unix::Received) {
    let Some(m) = from_bytes(bytes).filter(|m| m[0] == WELCOME && r.fd_count >= 2) else { return };
    // As where one comes of it: who names another's pair has no memory there.
    if let Some(peer) = peer::by_pair(m[2], 0).filter(|peer| peer.is_behind(dialled))
        && let Some(conn) = given(peer, &m, dialled, r)
    {
        conn.release();
    }
}

/// The slot that an answer, which came on `dialled`, hands out; `None`: a correct peer does not say that.
fn given(peer: &'static Peer, m: &[u64; WORDS], dialled: i32, r: &unix::Received) -> Option<&'static Conn> {
    let [arena, slot] = [(m[4] >> 32) as u32, m[4] as u32];
    let geometry = Geometry { slots: (m[9] >> 32) as u32, ring: m[9] as u32 };
    // For each it may have handed out a slot already.
    let calls = || {
        let mut calls = 0;
        table::each_sock(|s| {
            let other = s.dialled.load(Relaxed);
            calls += u32::from(other >= 0 && other != dialled && peer.is_behind(other));
        });
        calls
    };
    if !peer.may_give(arena, slot, calls) {
        return None;
    }
    peer.accept_slot(arena, slot, geometry, r.fds[1]).ok()
}

/// Takes the answer that founded `pair`, if it waits on another connection's socket. Other pairs are founded there, too.
fn look_at_others(but: &'static Sock, state: &'static State, pair: u64) {
    let mut founder = None;
    table::each_sock(|s| {
        let dialled = s.dialled.load(Relaxed);
        if founder.is_some() || dialled < 0 || std::ptr::eq(s, but) {
            return;
        }
        let mut bytes = [0; MESSAGE_SIZE];
        let founds = unix::peek(dialled, &mut bytes)
            .and_then(|n| from_bytes(&bytes[..n]))
            .is_some_and(|m| m[0] == WELCOME && m[10] != 0 && m[2] == pair);
        if founds {
            founder = Some((s, dialled));
        }
    });
    let Some((s, dialled)) = founder else { return };
    let mut bytes = [0; MESSAGE_SIZE];
    if let Ok(Some(r)) = unix::recv(dialled, &mut bytes, state::floor()) {
        let result = answered(s, state, dialled, &bytes[..r.len], &r, false);
        abandon(s);
        match result {
            Ok(conn) => switch::warm(s, conn),
            Err(reason) => s.set_reason(reason),
        }
    }
}

/// As [`abandon`], where nobody else goes on with it: the answer may have come meanwhile. Called under [`state::LIFE`].
pub fn give_up(s: &Sock) {
    let dialled = s.dialled.load(Acquire);
    let mut bytes = [0; MESSAGE_SIZE];
    if dialled >= 0 {
        // One that comes later is refused, so that who answers takes the slot back.
        unix::refuse(dialled);
        if let Ok(Some(r)) = unix::recv(dialled, &mut bytes, state::floor()) {
            hand_back(dialled, &bytes[..r.len], &r);
            strangers::close_received(&r);
        }
    }
    abandon(s);
}

/// In a forked child: what its parent has begun, and the name of it, is the parent's.
pub fn leave_to_parent(s: &Sock) {
    s.abroad.store(0, Relaxed);
    end(s, fd::close, fd::close);
}

/// Ends a rendezvous: closes what is open for it.
pub fn abandon(s: &Sock) {
    let close_listener = |listener| STRANGERS.after(|| strangers::close_listener(listener));
    end(s, close_listener, close_other);
}

fn end(s: &Sock, close_listener: fn(i32), close_other: fn(i32)) {
    if s.meeting.load(Relaxed) {
        s.meeting.store(false, Relaxed);
        MEETINGS.fetch_sub(1, Relaxed);
    }
    // While its listener is open.
    remove_name(s);
    let closers = [close_listener, close_other, close_other];
    for (place, close) in [&s.listener, &s.dialled, &s.caller].into_iter().zip(closers) {
        let f = place.load(Acquire);
        if f >= 0 {
            place.store(-1, Release);
            close(f);
        }
    }
}
