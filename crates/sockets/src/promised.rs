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
    /// The last while of that which was paid for.
    paid: Paid,
    /// For room in rings.
    pub room: Budget,
}

/// Those beyond share some.
const USERS: usize = 16;
static PATIENCE: [Patience; USERS] = [const {
    Patience {
        user: AtomicU64::new(0),
        octets: Budget::new(PATIENCE_NS),
        paid: Paid::new(),
        room: Budget::new(PATIENCE_NS),
    }
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

/// Of a receive that waits: since when it does so for what was told to be there (ns), at whose expense. However that ends it was waited: who gives octets back in time
/// can take others away.
#[derive(Debug)]
pub struct Lack(Option<(u64, &'static Patience)>);

impl Lack {
    pub fn new() -> Lack {
        Lack(None)
    }

    /// When to look again at the latest, before `until`, as so many octets are there; `None`: others are not, and were waited for.
    #[inline]
    pub fn bound(&mut self, s: &'static Sock, conn: &Conn, seen: u64, until: Deadline) -> Option<Deadline> {
        if s.promised.load(Relaxed) == 0 {
            self.ends();
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
            self.ends();
            return Some(until);
        }
        let now = clock::monotonic_ns();
        let (since, his) = *self.0.get_or_insert_with(|| (now, patience(conn)));
        match his.octets.left().max(LEAST_NS).saturating_sub(now.saturating_sub(since)) {
            0 => None,
            left => Some(until.or_after(left)),
        }
    }

    /// Whether a sleep ended sooner than its caller said.
    #[inline]
    pub fn is_there(&self) -> bool {
        self.0.is_some()
    }

    #[inline]
    fn ends(&mut self) {
        if let Some((since, his)) = self.0.take() {
            his.pay(since);
        }
    }
}

impl Drop for Lack {
    #[inline]
    fn drop(&mut self) {
        self.ends();
    }
}

impl Patience {
    #[cold]
    fn pay(&self, since: u64) {
        let now = clock::monotonic_ns();
        self.octets.spend(now.saturating_sub(self.paid.newly(since, now)));
    }
}

/// A while, in parts of 2^16 ns: when it ended (48 bits) and how long it was (16 bits). What many threads wait for at once, as an honest peer takes all of its rings back, is
/// paid for once.
#[derive(Debug)]
struct Paid(AtomicU64);

impl Paid {
    const LONGEST: u64 = 0xFFFF;

    const fn new() -> Paid {
        Paid(AtomicU64::new(0))
    }

    /// How much (ns) from `since` to `now` (monotonic, ns) nobody has paid for. A part of it may be paid for twice.
    fn newly(&self, since: u64, now: u64) -> u64 {
        let (since, now) = (since >> 16, now >> 16);
        let longer = |paid: u64| {
            let until = paid >> 16;
            let from = until - (paid & Self::LONGEST).min(until);
            let is_apart = since > until;
            let (from, newly) = if is_apart {
                (since, now.saturating_sub(since))
            } else {
                (from.min(since), now.saturating_sub(until) + from.saturating_sub(since))
            };
            let until = until.max(now);
            (until << 16 | (until - from).min(Self::LONGEST), newly)
        };
        let mut newly = 0;
        let _ = self.0.fetch_update(Relaxed, Relaxed, |paid| {
            let (paid, more) = longer(paid);
            newly = more;
            Some(paid)
        });
        newly << 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_at_once_is_paid_for_once() {
        let paid = Paid::new();
        let pays = |since: u64, now: u64| paid.newly(since << 16, now << 16) >> 16;
        assert_eq!(pays(1000, 1100), 100);
        assert_eq!((pays(1000, 1100), pays(1050, 1100), pays(1050, 1120)), (0, 0, 20));
        assert_eq!(pays(900, 1130), 110, "before and behind");
        assert_eq!(pays(900, 1130), 0);
        assert_eq!(pays(2000, 2010), 10, "apart");
        assert_eq!(pays(1000, 2020), 1010, "what is forgotten is paid for again");
        assert_eq!(
            (pays(100_000, 200_000), pays(100_000, 200_000)),
            (100_000, 34_465),
            "longer than it counts"
        );
    }
}
