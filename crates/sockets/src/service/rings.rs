//! Rings for a connection of the netstack service: the service is the other end, and the pair is the carrier
//! (docs/netstack-service.md, "Rings").

use super::control::{self, Files, Message};
use crate::peer::{self, Conn};
use crate::state::State;
use crate::table::Sock;
use bypath_shm::arena::Geometry;
use bypath_shm::reason::Reason;
use bypath_shm::service::{Op, RingsGiven, RingsWanted, SEND_BUFFER};
use bypath_sys::{Errno, sock, thread};
use std::sync::atomic::Ordering::*;

/// The program waits as long for an answer, of a service that does nothing else.
pub const LONGEST_NS: u64 = 300_000_000;
/// Number of the service's bell.
const BELL: u32 = 1;

/// Gives the pair its room, which is small until there is a connection: the service does so, too, for programs that know nothing of that, and may
/// not have done it yet.
pub fn widen(s: &Sock) {
    let is_small =
        sock::option(s.carrier(), libc::SOL_SOCKET, libc::SO_SNDBUF).is_ok_and(|size| size < SEND_BUFFER);
    if is_small {
        let _ = sock::set_option(s.carrier(), libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER.to_ne_bytes());
    }
}

/// Asks the service for rings of at most so many octets, and maps them. Under `state::LIFE`.
///
/// # Errors
/// Why it has none.
pub fn meet(s: &Sock, state: &State, record: u32, ring: u32) -> Result<&'static Conn, Reason> {
    let r = super::record(record).ok_or(Reason::NotConnected)?;
    let socket = (r.service.load(Relaxed), r.cookie.load(Relaxed));
    let conn = ask(state, socket, s.number.load(Relaxed), ring);
    // Whoever looks at the connection wants to know whose it is; one that carries little is not worth a question.
    r.show_names(s.end());
    conn
}

/// The same of any socket: its service and its cookie. `end` is what is marked in the inbox.
///
/// # Errors
/// Why it has none.
pub fn ask(
    state: &State,
    (service, cookie): (u32, u64),
    end: u32,
    ring: u32,
) -> Result<&'static Conn, Reason> {
    let (_, inbox) = state.inbox().map_err(|_| Reason::NoDescriptors)?;
    peer::sweep();
    peer::begin();
    let pair = control::pair(service).filter(|pair| peer::by_pair(*pair, 0).is_some_and(|p| !p.is_left()));
    let wanted = RingsWanted { token: state.own().token.load(Relaxed), pair: pair.unwrap_or(0), end, ring };
    let question = Message::new(Op::Rings, cookie).octets(&wanted.encode()).with(inbox);
    let mut question = question.within(LONGEST_NS);
    let mut answer = question.ask(service).map_err(reason)?;
    let files = answer.files;
    let given = RingsGiven::decode(&mut answer.body).ok_or(Reason::VersionMismatch);
    let conn = given.and_then(|given| take(given, &files).inspect(|_| control::met(service, given.pair)));
    if conn.is_err() {
        files.close();
    }
    conn
}

/// A look without waiting found nothing: who looks again and again gives the service its processor, if that is where it is awake.
pub fn looked_in_vain(conn: &Conn, looks: u32) {
    let inc = conn.inc();
    inc.h.looks.store(looks, Relaxed);
    let cpu = thread::cpu();
    if inc.t.cpu.load(Relaxed) == cpu && cpu != u32::MAX && is_awake(conn) {
        thread::yield_now();
    }
}

fn is_awake(conn: &Conn) -> bool {
    let inbox = conn.peer.inbox.get();
    inbox.is_some_and(|inbox| inbox.asleep[BELL as usize].load(Relaxed) == 0)
}

fn reason(errno: Errno) -> Reason {
    match errno {
        Errno::PERM => Reason::PolicyUid,
        Errno::NOBUFS => Reason::MemoryLimit,
        Errno::INVAL => Reason::SmallBuffer,
        Errno::NOMEM | Errno::NOSPC => Reason::NoMemory,
        Errno::MFILE | Errno::NFILE => Reason::NoDescriptors,
        Errno::NOTCONN => Reason::NotConnected,
        // Or it has not answered in time.
        _ => Reason::Refused,
    }
}

/// Maps what was given. The descriptors that are kept or closed are so where this succeeds.
fn take(given: RingsGiven, files: &Files) -> Result<&'static Conn, Reason> {
    let geometry = Geometry { slots: given.slots, ring: given.ring };
    let slot = |peer: &'static peer::Peer, arena: i32| {
        let taken = peer.accept_slot(given.arena, given.slot, geometry, arena);
        taken.map_err(|_| Reason::PeerMemoryInvalid)
    };
    match (files.numbers(), given.first) {
        (&[arena], 0) => {
            let peer = peer::by_pair(given.pair, 0).ok_or(Reason::Refused)?;
            let conn = slot(peer, arena)?;
            peer.close_arena(given.arena, arena);
            Ok(conn)
        }
        (&[arena, inbox, bell, control], 1) => {
            let peer = peer::add_service(given.pair, given.token, 0, control, inbox)?;
            let conn = slot(peer, arena).inspect_err(|_| peer.disown())?;
            // The bell and the control socket are the peer's from now on.
            peer.add_bell(BELL, bell);
            bypath_sys::fd::close(arena);
            bypath_sys::fd::close(inbox);
            Ok(conn)
        }
        _ => Err(Reason::VersionMismatch),
    }
}
