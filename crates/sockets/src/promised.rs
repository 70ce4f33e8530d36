//! What a program was told to be there, by a process of another user, and whether it is.
//!
//! Who waits for octets with poll and then receives them does not expect to wait. Of TCP they are in the kernel, and stay there. A ring is the other end's as
//! well: an honest one takes octets back only to bring them by the carrier, at once; one that lies takes them away. A receive that would wait for what was
//! told to be there gives it some time, and then the connection is reset. Between programs of one user nothing of this is done: one of them may be
//! stopped in the middle.

use crate::budget::Budget;
use crate::life;
use crate::others;
use crate::peer::Conn;
use crate::state;
use crate::table::{self, Sock, flag};
use crate::wait::Deadline;
use bypath_sys::clock;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// So long is waited for what was told, by all connections with processes of one user together, who can end each other: others do not pay for it.
const PATIENCE_NS: u64 = 2_000_000_000;
/// And for one at least.
const LEAST_NS: u64 = 1_000_000;

/// What this process has with one user.
#[derive(Debug)]
pub struct Patience {
    /// Plus one; 0: nobody's yet.
    user: AtomicU64,
    /// For octets that were told to be there.
    octets: Budget,
    /// For room in rings.
    pub room: Budget,
}

/// Those beyond share some.
const USERS: usize = 16;
static PATIENCE: [Patience; USERS] = [const {
    Patience { user: AtomicU64::new(0), octets: Budget::new(PATIENCE_NS), room: Budget::new(PATIENCE_NS) }
}; USERS];

/// Of whoever is at the other end.
pub fn patience(conn: &Conn) -> &'static Patience {
    let user = u64::from(conn.peer.user()) + 1;
    let is_his = |of: &&Patience| {
        of.user.load(Relaxed) == user
            || of
                .user
                .compare_exchange(0, user, Relaxed, Relaxed)
                .map_or_else(|other| other == user, |_| true)
    };
    PATIENCE.iter().find(is_his).unwrap_or(&PATIENCE[user as usize % USERS])
}

/// What was read of it, before a look at what is there: whatever others read after that look was there, and counts.
#[inline]
pub fn before(s: &Sock) -> u64 {
    if others::any() { read(s) } else { 0 }
}

/// The program is told that so many octets are there, as was seen after [`before`].
#[inline]
pub fn told(s: &'static Sock, conn: &Conn, before: u64, octets: u64) {
    if others::any() {
        note(s, conn, before, octets);
    }
}

#[cold]
fn note(s: &'static Sock, conn: &Conn, before: u64, octets: u64) {
    if !is_doubted(conn) || !is_alone(s) {
        return;
    }
    // Never 0, which is none.
    let told = before.wrapping_add(octets).max(1);
    if s.promised_at.swap(table::forks(), Relaxed) != table::forks() {
        forget(s);
    }
    let more = |last: u64| (last == 0 || told.wrapping_sub(last) < 1 << 63).then_some(told);
    let _ = s.promised.fetch_update(Relaxed, Relaxed, more);
}

/// Whether the other end is a process of another user, but for a netstack service, which is trusted.
#[inline]
pub fn is_doubted(conn: &Conn) -> bool {
    conn.peer.is_doubted.load(Relaxed)
}

/// The kernel is to receive what was told, past all counts.
pub fn forget(s: &Sock) {
    s.promised.store(0, Relaxed);
}

/// Octets of this connection that were read.
fn read(s: &Sock) -> u64 {
    let r = &s.end().r;
    // Acquire: what is seen of the ring afterwards is no older.
    r.ring_bytes.load(Acquire).wrapping_add(r.kernel_bytes.load(Acquire))
}

/// Whether something was told to be there beyond what is seen, and nobody has read it. What other processes take past their rings nobody counts.
fn is_open(s: &'static Sock, seen: u64) -> bool {
    let promised = s.promised.load(Relaxed);
    promised != 0
        && (read(s).wrapping_add(seen).wrapping_sub(promised) as i64) < 0
        && s.promised_at.load(Relaxed) == table::forks()
        && is_alone(s)
}

/// Whether nobody else takes octets, who counts otherwise or not at all; nor has, who was forked since.
fn is_alone(s: &'static Sock) -> bool {
    !s.has(flag::HANDED_OVER | flag::SPREAD) && state::get().is_some_and(|state| life::holds_alone(s, state))
}

/// Of a receive that waits: since when it waits for what was told to be there (ns), 0 = it does not.
#[derive(Debug)]
pub struct Lack(u64);

impl Lack {
    pub fn new() -> Lack {
        Lack(0)
    }

    /// When to look again at the latest, before `until`, as so many octets are there; `None`: others are not, and were waited for.
    #[inline]
    pub fn bound(&mut self, s: &'static Sock, conn: &Conn, seen: u64, until: Deadline) -> Option<Deadline> {
        if s.promised.load(Relaxed) == 0 {
            self.0 = 0;
            return Some(until);
        }
        self.bound_of_promise(s, conn, seen, until)
    }

    #[cold]
    fn bound_of_promise(
        &mut self,
        s: &'static Sock,
        conn: &Conn,
        seen: u64,
        until: Deadline,
    ) -> Option<Deadline> {
        if !is_open(s, seen) {
            self.0 = 0;
            return Some(until);
        }
        let now = clock::monotonic_ns();
        if self.0 == 0 {
            self.0 = now;
        }
        let left = patience(conn).octets.left().max(LEAST_NS).saturating_sub(now.saturating_sub(self.0));
        if left == 0 {
            patience(conn).octets.spend(self.0);
            return None;
        }
        Some(until.or_after(left))
    }

    /// Whether a sleep ended sooner than its caller said.
    #[inline]
    pub fn is_there(&self) -> bool {
        self.0 != 0
    }
}
