//! From descriptor to followed socket: two loads and a compare. And the private part of a socket's record.

use crate::carrier::{self, Kind};
use crate::numbers;
use crate::peer::Conn;
use crate::state::{self, State};
use crate::stay::Stays;
use crate::whose;
use bypath_shm::family::{ENDS, End, end_state};
use bypath_shm::reason::Reason;
use bypath_shm::region::{Slab, StaticCell};
use bypath_shm::ring::Ring;
use bypath_sys::{fd, process, sock, thread};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU32, AtomicU64, Ordering::*};

/// Descriptor numbers that can be followed: 0..2^20. The lower half is the entry, the upper one how often it was written.
static FDS: Slab<AtomicU64, 1024, 1024> = Slab::new();
/// Above the highest number that was ever followed.
static TOP: AtomicU32 = AtomicU32::new(0);
/// Private parts, by end number.
static SOCKS: Slab<Sock, 4096, 16> = Slab::new();
/// Forks that this process has come from, or has made.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Entry bit: the number is an epoll set.
const EPOLL: u32 = 1 << 31;
/// Entry bit: the number is a socket of the netstack service that is not followed: its calls of data are the kernel's.
const SERVED: u32 = 1 << 30;
/// Entry bit: the number is a socket of datagrams, the kernel's or the netstack service's.
const DATAGRAMS: u32 = 1 << 29;
/// Entry bit: the number is a UDP socket of the kernel that is followed.
const UDP: u32 = 1 << 28;

/// Bits of [`End::flags`].
pub mod flag {
    /// Never upgrade; the reason stands in `End::reason`.
    pub const FOR_GOOD: u32 = 1;
    /// O_NONBLOCK is set.
    pub const NONBLOCK: u32 = 2;
    /// At least one direction was on a ring once.
    pub const WAS_UPGRADED: u32 = 4;
    /// Data calls were seen.
    pub const USED: u32 = 8;
    /// Bytes were moved by calls whose count is not known (sendfile, splice).
    pub const UNCOUNTED: u32 = 16;
    /// The carrier reported FIN or an error from the other end.
    pub const PEER_GONE: u32 = 32;
    /// This end shut its sending side down: its outgoing direction is over.
    pub const SENT_FIN: u32 = 128;
    /// This end shut its receiving side down.
    pub const NO_READ: u32 = 256;
    /// Another process image or process got the socket: its endings are not ours to decide.
    pub const HANDED_OVER: u32 = 512;
    /// Carrier bytes appeared while the incoming direction was on the ring.
    pub const FOREIGN_BYTES: u32 = 64;
    /// The carrier is an AF_UNIX stream.
    pub const LOCAL: u32 = 1024;
    /// A descriptor of it is 0, 1 or 2, or was.
    pub const STANDARD: u32 = 2048;
    /// Somebody may hold it whose doings nobody can follow: another program image, a process of another family.
    pub const SPREAD: u32 = 4096;
    /// Taken over from an earlier program image, and not known yet to be nobody else's: see `heir`.
    pub const ELDERS: u32 = 8192;
    /// A process without a place in the family's table holds it, too: its number is not used again.
    pub const CROWDED: u32 = 16384;
    /// Bytes were put aside, though it reads on: see `cut`.
    pub const ASIDE: u32 = 32768;
    /// What comes by its ring from now on is none of it: see `over`.
    pub const SEALED: u32 = 65536;
    /// Nothing of its ring is any more.
    pub const EMPTIED: u32 = 131_072;
    /// Any of the reasons for which nothing is upgraded.
    pub const STAYS: u32 = FOR_GOOD | STANDARD | SPREAD;
}

/// The part of a followed socket that is private to a process (copied at fork).
#[derive(Debug, Default)]
pub struct Sock {
    /// Its end number.
    pub number: AtomicU32,
    /// Forks of this process, when it was made: see [`Sock::is_older_than_a_fork`].
    pub forks: AtomicU32,
    /// The process that made it.
    pub made_by: AtomicU32,
    /// When (as [`process::start_time`]), if there were relatives: who is older, and has not made it, cannot have inherited it.
    pub made_at: AtomicU64,
    /// Descriptors of this process that refer to it.
    pub descriptors: AtomicU32,
    /// One of these descriptors, for system calls on the carrier.
    pub fd: AtomicI32,
    /// The mapped connection while warm.
    pub conn: StaticCell<Conn>,
    /// The process (its token) that mapped the connection, 0 = nobody yet.
    pub mapped_by: AtomicU64,
    /// Rendezvous: listener and dialled socket, -1 = none; see `rendezvous`.
    pub listener: AtomicI32,
    /// See `listener`.
    pub dialled: AtomicI32,
    /// Who has called, and is to be heard; -1 = nobody.
    pub caller: AtomicI32,
    /// Who was dialled has not been told HELLO yet.
    pub is_unsaid: AtomicBool,
    /// The rendezvous is one with another network namespace: the inode of its name in the folder, else 0.
    pub abroad: AtomicU64,
    /// A rendezvous is under way: data calls look at it now and then.
    pub meeting: AtomicBool,
    /// The socket, by its cookie, that alone had the other end's addresses when it was asked for, if it is another user's; 0: none.
    pub seen: AtomicU64,
    /// So many octets this end had been given then: one beyond them that is acknowledged says that the other end was there.
    pub seen_at: AtomicU64,
    /// Calls until the next look or attempt.
    pub patience: AtomicU32,
    /// Looks of this rendezvous that found nobody.
    pub looks: AtomicU32,
    /// Attempts so far.
    pub attempts: AtomicU32,
    /// Byte and call counts at which the next attempt is due.
    pub due_calls: AtomicU64,
    /// See `due_calls`.
    pub due_bytes: AtomicU64,
    /// When the listener is given up (ns of CLOCK_MONOTONIC).
    pub meeting_ends: AtomicU64,
    /// Registrations in epoll sets: first registration number plus one.
    pub registrations: AtomicU32,
    /// When the carrier was last looked at (ticks).
    pub looked: AtomicU64,
    /// When a full ring without progress was first seen (ns of CLOCK_MONOTONIC, 0 = not), and how far the reader was then.
    pub full_since: AtomicU64,
    /// See `full_since`.
    pub full_progress: AtomicU64,
    /// How much later a full ring is given up, as that was in vain: see [`flush::pardon`](crate::flush::pardon).
    pub pardons: AtomicU32,
    /// When it was last asked whether the other holders live (ticks).
    pub asked_who: AtomicU64,
    /// The tail when the connection was last seen to rest, see `memory`.
    pub rested_at: AtomicU64,
    /// How far this process has published octets of this connection, [`UNPUBLISHED`]: not known.
    pub published: AtomicU64,
    /// The last thing this end did was to send: it waits for an answer (latency mode).
    pub sent_last: AtomicBool,
    /// How spinning on this connection went.
    pub spins: crate::wait::SpinHistory,
    /// Bytes that outlive a shutdown, see `kept`.
    pub kept: StaticCell<Ring>,
    /// Calls that sleep on it while its descriptors are closed, see `stay`.
    pub stays: Stays,
    /// How many octets will have been read when those are that were told to be there; 0: none were. See `promised`.
    pub promised: AtomicU64,
    /// After how many forks of this process.
    pub promised_at: AtomicU32,
    /// How often those look that no ring wakes.
    pub unwoken: crate::unwoken::Pace,
    /// How fast it is on either path.
    pub guard: crate::guard::Guard,
    /// Empty reads in a row: the carrier is looked at now and then.
    pub empty_reads: AtomicU32,
    /// The other end's image was replaced: a meeting with the next one is sought while this connection is mapped.
    pub left: AtomicBool,
    /// The last of its numbers that dup2 gave to another file, plus one; [`ALL`]: it is not followed any more by any.
    pub replaced: AtomicI32,
    /// A call that was under way when it was replaced did not end for long.
    pub is_late: AtomicBool,
    /// What an earlier program image of this process left behind of it.
    pub elder: StaticCell<crate::heir::Elder>,
    /// Why this process's statistics count the connection as not upgraded (a [`Reason`] value), 0 = they do not.
    pub counted: AtomicU16,
    /// The record of a netstack service's socket, plus one; 0: it is none.
    pub served: AtomicU32,
    /// See `numbers`.
    pub next_free: AtomicU32,
    /// `next_free` means something.
    pub listed: AtomicBool,
    /// A thread may be in a call on the socket that was here: it is not another one yet.
    pub is_held_back: AtomicBool,
}

/// See [`Sock::replaced`].
pub const ALL: i32 = -1;

/// EBADF to a call, POLLNVAL to poll(2), which does not look at a negative one.
pub const NEVER_OPEN: i32 = i32::MAX;

/// See [`Sock::published`]. No position is that large.
pub const UNPUBLISHED: u64 = u64::MAX;

/// A descriptor's meaning.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// A followed socket.
    Sock(&'static Sock),
    /// An epoll set, by number.
    Epoll(u32),
    /// A socket of the netstack service that is not followed, by the number of its record.
    Served(u32),
    /// A socket of datagrams that is the netstack service's or may become one, by the number of its record.
    Datagrams(u32),
    /// A UDP socket of the kernel that is followed, by the number of its record.
    Udp(u32),
}

impl Sock {
    /// The shared record.
    #[inline]
    pub fn end(&self) -> &'static End {
        let family = state::get().expect("a Sock exists only once the state does").family;
        &family.ends[self.number.load(Relaxed) as usize % ENDS]
    }

    /// Whether dup2 took `fd` from it, or it is not followed any more: there was no moment at which that meant nothing.
    #[cold]
    pub fn is_replaced(&self, fd: i32) -> bool {
        let replaced = self.replaced.load(Acquire);
        replaced == fd + 1 || replaced == ALL
    }

    /// Whether another thread has dissolved its connection by connect() to AF_UNSPEC: calls on that have EPIPE.
    #[inline]
    pub fn is_dissolved(&self) -> bool {
        self.replaced.load(Acquire) == ALL
    }

    /// The carrier: asked at each system call, behind the last look at memory that the other end may make slow. If another thread has closed it meanwhile, its
    /// number may be another connection's, and this is none that is ever open.
    #[inline]
    pub fn carrier(&self) -> i32 {
        let means_it = |fd| sock(fd).is_some_and(|now| std::ptr::eq(now, self));
        let fd = self.fd.load(Acquire);
        if means_it(fd) {
            return if whose::is_its_number(self, fd) { fd } else { NEVER_OPEN };
        }
        // It may have been given another of its descriptors in between.
        Some(self.fd.load(Acquire)).filter(|again| means_it(*again)).unwrap_or(NEVER_OPEN)
    }

    /// The record of the netstack service's socket that it is.
    #[inline]
    pub fn served(&self) -> Option<u32> {
        self.served.load(Relaxed).checked_sub(1)
    }

    /// Whether [`flag`] `bit` is set.
    #[inline]
    pub fn has(&self, bit: u32) -> bool {
        self.end().flags.load(Relaxed) & bit != 0
    }

    /// Sets [`flag`] bits.
    pub fn set(&self, bits: u32) {
        self.end().flags.fetch_or(bits, AcqRel);
    }

    /// Clears [`flag`] bits.
    pub fn clear(&self, bits: u32) {
        self.end().flags.fetch_and(!bits, AcqRel);
    }

    /// Never upgrade this socket, for `reason`.
    pub fn keep_on_kernel(&self, reason: Reason) {
        self.set(flag::FOR_GOOD);
        self.set_reason(reason);
    }

    /// Never upgrade this socket, which has an option that a ring cannot honour.
    pub fn keep_for_option(&self) {
        self.keep_on_kernel(Reason::SocketOption);
        self.name_unless_hindered();
    }

    /// An attempt to come up records the names; where there will be none, who looks at the connection wants them too.
    fn name_unless_hindered(&self) {
        if state::hindrance().is_none() {
            carrier::of(self).record_names(self);
        }
    }

    /// Why outgoing bytes go where they go.
    pub fn set_reason(&self, reason: Reason) {
        self.end().reason.store(reason as u16, Relaxed);
        self.count_reason();
        if reason.is_unsupported() {
            crate::unsupported::tell(self.carrier(), reason);
        }
    }

    /// Data calls were seen: the connection counts.
    #[cold]
    pub fn set_used(&self) {
        self.set(flag::USED);
        if self.end().reason.load(Relaxed) == Reason::SocketOption as u16 {
            // When that was settled it may not have been connected.
            self.name_unless_hindered();
        }
        if let Some(stats) = state::get().and_then(|s| s.own().stats.get()) {
            stats.connections.fetch_add(1, Relaxed);
        }
        self.count_reason();
    }

    /// At least one direction is on a ring.
    pub fn set_upgraded(&self) {
        if self.end().flags.fetch_or(flag::WAS_UPGRADED, AcqRel) & flag::WAS_UPGRADED != 0 {
            return;
        }
        if let Some(stats) = state::get().and_then(|s| s.own().stats.get()) {
            stats.upgraded.fetch_add(1, Relaxed);
        }
        self.count_reason();
    }

    /// Keeps the statistics right at any time, as the process may be killed at any time: a connection that was used
    /// and never upgraded stands under its present reason.
    pub fn count_reason(&self) {
        let end = self.end();
        let reason = match end.reason() {
            _ if !self.has(flag::USED) || self.has(flag::WAS_UPGRADED) => Reason::None,
            Reason::None => state::hindrance().unwrap_or(Reason::BelowThreshold),
            known => known,
        };
        self.count_as(reason);
    }

    /// This process's part is over, while others of its family go on with the connection: it counts there.
    pub fn count_elsewhere(&self) {
        self.count_as(Reason::None);
    }

    fn count_as(&self, reason: Reason) {
        let was = self.counted.swap(reason as u16, AcqRel);
        let Some(stats) = state::get().and_then(|s| s.own().stats.get()) else { return };
        let slot = |value: u16| &stats.not_upgraded[usize::from(value) % stats.not_upgraded.len()];
        if was != reason as u16 {
            if was != Reason::None as u16 {
                slot(was).fetch_sub(1, Relaxed);
            }
            if reason != Reason::None {
                slot(reason as u16).fetch_add(1, Relaxed);
            }
        }
    }

    /// Keeps an error that one of our own calls on the carrier took: the program's next call reports it.
    pub fn keep_error(&'static self, errno: i32) {
        // A broken pipe is what follows from another error.
        let newer = |kept| (kept == 0 || kept == libc::EPIPE).then_some(errno);
        let _ = self.end().pending_error.fetch_update(AcqRel, Relaxed, newer);
        crate::epoll::news(self);
    }

    /// Whether a socket of this process has this place, whatever its record says.
    pub fn is_in_use(&self) -> bool {
        self.descriptors.load(Acquire) > 0 || self.is_warm()
    }

    /// Whether the connection is mapped.
    #[inline]
    pub fn is_warm(&self) -> bool {
        self.conn.get().is_some()
    }

    /// Whether the mapping was inherited through fork: its bells and epoll sets are the parent's. (A forked child has
    /// another token. It need not write to the socket's memory for this, which would be copied.)
    pub fn is_inherited(&self) -> bool {
        let mapped_by = self.mapped_by.load(Relaxed);
        mapped_by != 0 && !state::is_own_token(mapped_by)
    }

    /// Whether another process may hold it by this record: one that was forked since it was made. What the record itself says any
    /// process of the family can have written.
    pub fn is_older_than_a_fork(&self) -> bool {
        self.forks.load(Relaxed) != FORKS.load(Relaxed)
    }

    /// Whether this process alone holds the socket, as far as is known.
    pub fn is_sole_holder(&self, state: &State) -> bool {
        self.end().holders.load(Acquire) == state.bit()
    }
}

/// The followed socket behind `fd`: the question of every data call.
#[inline]
pub fn sock(fd: i32) -> Option<&'static Sock> {
    match FDS.get(fd as u32 as usize)?.load(Acquire) as u32 {
        0 => None,
        e if e & (EPOLL | SERVED | DATAGRAMS | UDP) != 0 => None,
        e => SOCKS.get(e as usize - 1),
    }
}

/// Forks of this process, and of those that it comes from.
#[inline]
pub fn forks() -> u32 {
    FORKS.load(Relaxed)
}

/// Whether another process may have the family region: children, or whose child this is.
#[inline]
pub fn has_relatives() -> bool {
    FORKS.load(Relaxed) != 0
}

/// Before a fork: what is followed another process may hold from now on.
pub fn forking() {
    FORKS.fetch_add(1, Relaxed);
}

/// The record of the netstack service's socket behind `fd`.
#[inline]
pub fn served(fd: i32) -> Option<u32> {
    match entry(fd)? {
        Entry::Served(record) => Some(record),
        Entry::Sock(s) => s.served(),
        Entry::Epoll(_) | Entry::Datagrams(_) | Entry::Udp(_) => None,
    }
}

/// The record of the socket of datagrams behind `fd`.
#[inline]
pub fn datagrams(fd: i32) -> Option<u32> {
    let e = FDS.get(fd as u32 as usize)?.load(Acquire) as u32;
    (e & (EPOLL | SERVED | DATAGRAMS) == DATAGRAMS).then_some(e & !DATAGRAMS)
}

/// The record of the followed UDP socket behind `fd`.
#[inline]
pub fn udp(fd: i32) -> Option<u32> {
    let e = FDS.get(fd as u32 as usize)?.load(Acquire) as u32;
    (e & (EPOLL | SERVED | DATAGRAMS | UDP) == UDP).then_some(e & !UDP)
}

/// Whether readiness of `fd` may be more than the kernel knows: it is a followed socket, of datagrams as well, or an epoll set.
#[inline(always)]
pub fn is_overlaid(fd: i32) -> bool {
    let bears = |e: u32| e != 0 && (e & EPOLL != 0 || e & (SERVED | DATAGRAMS) == 0);
    FDS.get(fd as u32 as usize).is_some_and(|e| bears(e.load(Acquire) as u32))
}

/// Whether `fd` is a followed socket, an epoll set, or a socket of the netstack service.
#[inline(always)]
pub fn is_followed(fd: i32) -> bool {
    FDS.get(fd as u32 as usize).is_some_and(|e| e.load(Acquire) as u32 != 0)
}

/// The meaning of `fd`, if followed.
#[inline]
pub fn entry(fd: i32) -> Option<Entry> {
    Entry::of(FDS.get(fd as u32 as usize)?.load(Acquire) as u32)
}

/// What `fd` means, and since when: another value as soon as another thread has closed the number and something else is followed by it.
#[inline]
pub fn meaning(fd: i32) -> u64 {
    FDS.get(fd as u32 as usize).map_or(0, |place| place.load(Acquire))
}

impl Entry {
    /// What stands in the table for it, never 0.
    pub fn word(self) -> u32 {
        match self {
            Entry::Epoll(n) => n | EPOLL,
            Entry::Served(n) => n | SERVED,
            Entry::Datagrams(n) => n | DATAGRAMS,
            Entry::Udp(n) => n | UDP,
            Entry::Sock(s) => s.number.load(Relaxed) + 1,
        }
    }

    /// What has this [word](Entry::word).
    #[inline]
    pub fn of(word: u32) -> Option<Entry> {
        match word {
            0 => None,
            e if e & EPOLL != 0 => Some(Entry::Epoll(e & !EPOLL)),
            e if e & SERVED != 0 => Some(Entry::Served(e & !SERVED)),
            e if e & DATAGRAMS != 0 => Some(Entry::Datagrams(e & !DATAGRAMS)),
            e if e & UDP != 0 => Some(Entry::Udp(e & !UDP)),
            e => SOCKS.get(e as usize - 1).map(Entry::Sock),
        }
    }
}

/// Whether `fd` still means `sock`.
#[inline]
pub fn still(fd: i32, s: &Sock) -> bool {
    sock(fd).is_some_and(|now| std::ptr::eq(now, s))
}

/// The private part of an end number.
pub fn by_number(number: u32) -> Option<&'static Sock> {
    SOCKS.get(number as usize)
}

/// The private part of an end number, made if need be.
pub fn ensure(number: u32) -> Option<&'static Sock> {
    SOCKS.ensure(number as usize)
}

/// Follows a socket that was just created or accepted as `fd`. Called under [`state::LIFE`].
pub fn follow(fd: i32, kind: Kind, nonblocking: bool) -> Option<&'static Sock> {
    let state = state::start()?;
    let place = FDS.ensure(fd as u32 as usize)?;
    let sock = numbers::take(state)?;
    let end = sock.end();
    // First: who takes a number and dies does not keep it.
    end.holders.store(state.bit(), Relaxed);
    sock.forks.store(FORKS.load(Relaxed), Relaxed);
    sock.made_by.store(state::own_pid(), Relaxed);
    sock.made_at.store(if has_relatives() { process::start_time_now() } else { 0 }, Relaxed);
    sock.descriptors.store(1, Relaxed);
    sock.fd.store(fd, Relaxed);
    sock.conn.set(None);
    sock.kept.set(None);
    sock.stays.reset();
    sock.elder.set(None);
    sock.replaced.store(0, Relaxed);
    sock.listener.store(-1, Relaxed);
    sock.dialled.store(-1, Relaxed);
    sock.caller.store(-1, Relaxed);
    for flag in [&sock.meeting, &sock.is_unsaid, &sock.sent_last, &sock.left, &sock.is_late] {
        flag.store(false, Relaxed);
    }
    for word in
        [&sock.patience, &sock.looks, &sock.attempts, &sock.registrations, &sock.empty_reads, &sock.pardons]
    {
        word.store(0, Relaxed);
    }
    for word in [
        &sock.mapped_by,
        &sock.due_calls,
        &sock.due_bytes,
        &sock.meeting_ends,
        &sock.abroad,
        &sock.seen,
        &sock.seen_at,
        &sock.looked,
        &sock.full_since,
        &sock.promised,
        &sock.full_progress,
        &sock.asked_who,
        &sock.rested_at,
    ] {
        word.store(0, Relaxed);
    }
    sock.counted.store(0, Relaxed);
    sock.served.store(0, Relaxed);
    sock.guard.reset();
    sock.unwoken.reset();
    end.generation.fetch_add(1, Relaxed);
    end.fd.store(fd, Relaxed);
    end.reason.store(Reason::None as u16, Relaxed);
    end.rx_reason.store(Reason::None as u16, Relaxed);
    end.cookie.store(0, Relaxed);
    end.peer_cookie.store(0, Relaxed);
    end.local.set(0, 0, [0; 16]);
    end.remote.set(0, 0, [0; 16]);
    end.ring_size.store(0, Relaxed);
    end.pending_error.store(0, Relaxed);
    end.rule.store(0, Relaxed);
    end.wish.store(0, Relaxed);
    end.service.set("");
    end.arena.store(0, Relaxed);
    end.last.iter().for_each(|place| place.store(0, Relaxed));
    let local = if kind == Kind::Local { flag::LOCAL } else { 0 };
    end.flags.store(local | if nonblocking { flag::NONBLOCK } else { 0 }, Relaxed);
    end.rcvlowat.store(1, Relaxed);
    end.rcvtimeo.store(0, Relaxed);
    end.sndtimeo.store(0, Relaxed);
    let w = &end.w;
    for word in [
        &w.lock,
        &w.tail,
        &w.head_cache,
        &w.flush,
        &w.backed,
        &w.backed_from,
        &w.ring_bytes,
        &w.kernel_bytes,
        &w.not_before,
        &end.r.tail_cache,
        &end.r.ring_bytes,
        &end.r.kernel_bytes,
        &end.r.kept_read,
        &end.r.kept,
        &end.r.heir,
        &end.r.leaving,
    ] {
        word.store(0, Relaxed);
    }
    for word in [&w.path, &w.claims, &w.in_kernel, &end.r.in_kernel, &end.r.calls] {
        word.store(0, Relaxed);
    }
    end.state.store(end_state::COLD, Release);
    mean(fd, place, sock.number.load(Relaxed) + 1);
    if fd <= 2 {
        sock.set(flag::STANDARD);
        sock.set_reason(Reason::StandardDescriptor);
    }
    Some(sock)
}

/// Forgets a socket that nobody in this process refers to. Called under [`state::LIFE`]; `last` = no other
/// process of the family holds it, so its number can be used again.
pub fn forget(sock: &'static Sock, last: bool) {
    sock.conn.set(None);
    if last {
        numbers::give_back(sock);
    }
}

/// Points `fd` at `sock` as one more descriptor.
pub fn alias(fd: i32, sock: &'static Sock) {
    if let Some(place) = FDS.ensure(fd as u32 as usize) {
        sock.descriptors.fetch_add(1, AcqRel);
        mean(fd, place, sock.number.load(Relaxed) + 1);
    }
}

/// In a forked child: the parent has counted what was open.
pub fn enter_child() {
    // Written only where need be: each page that a child writes is copied first.
    each_sock(|s| {
        if s.counted.load(Relaxed) != 0 {
            s.counted.store(0, Relaxed);
        }
        // What was left to the parent it alone can look after.
        if s.elder.get().is_some() {
            s.elder.set(None);
        }
    });
}

/// Marks `fd` as epoll set `number`.
pub fn set_epoll(fd: i32, number: u32) {
    if let Some(place) = FDS.ensure(fd as u32 as usize) {
        mean(fd, place, number | EPOLL);
    }
}

/// Marks `fd` as one of the netstack service's sockets; false if there is no room for it.
pub fn set_served(fd: i32, record: u32) -> bool {
    let place = FDS.ensure(fd as u32 as usize);
    place.inspect(|place| mean(fd, place, record | SERVED)).is_some()
}

/// Marks `fd` as a socket of datagrams; false if there is no room for it.
pub fn set_datagrams(fd: i32, record: u32) -> bool {
    let place = FDS.ensure(fd as u32 as usize);
    place.inspect(|place| mean(fd, place, record | DATAGRAMS)).is_some()
}

/// Marks `fd` as a UDP socket that is followed; false if there is no room for it.
pub fn set_udp(fd: i32, record: u32) -> bool {
    let place = FDS.ensure(fd as u32 as usize);
    place.inspect(|place| mean(fd, place, record | UDP)).is_some()
}

/// Writes the entry of `fd`.
fn mean(fd: i32, place: &AtomicU64, entry: u32) {
    // First the bound: who goes through all sees every entry that was there before.
    if fd as u32 >= TOP.load(Relaxed) {
        TOP.fetch_max(fd as u32 + 1, SeqCst);
    }
    let age = (place.load(Relaxed) >> 32) + 1;
    place.store(age << 32 | u64::from(entry), Release);
}

/// Empties the entry of `fd`; returns what it was.
pub fn remove(fd: i32) -> Option<Entry> {
    let was = entry(fd)?;
    let place = FDS.get(fd as u32 as usize)?;
    place.store(place.load(Relaxed) >> 32 << 32, Release);
    Some(was)
}

/// After `fd` was closed while other descriptors remain: the carrier needs a number that is still open.
pub fn repoint(sock: &'static Sock, closed: i32) {
    if sock.fd.load(Relaxed) != closed {
        return;
    }
    let mut other = -1;
    each(|fd, e| {
        if let Entry::Sock(s) = e
            && std::ptr::eq(s, sock)
            && fd != closed
        {
            other = fd;
        }
    });
    sock.fd.store(other, Release);
}

/// Every followed descriptor.
pub fn each(mut f: impl FnMut(i32, Entry)) {
    let top = TOP.load(SeqCst) as usize;
    for chunk in 0..top.div_ceil(1024) {
        if FDS.get(chunk * 1024).is_none() {
            continue;
        }
        for fd in chunk * 1024..top.min((chunk + 1) * 1024) {
            if let Some(e) = entry(fd as i32) {
                f(fd as i32, e);
            }
        }
    }
}

/// Every followed socket of this process, once.
pub fn each_sock(mut f: impl FnMut(&'static Sock)) {
    each(|fd, e| {
        if let Entry::Sock(s) = e
            && s.fd.load(Relaxed) == fd
        {
            f(s);
        }
    });
}

/// Whether `number` is a rendezvous socket of ours.
pub fn owns(number: i32) -> bool {
    let mut found = false;
    each_sock(|s| {
        found |= [&s.listener, &s.dialled, &s.caller].iter().any(|own| own.load(Relaxed) == number)
            || s.stays.descriptor() == Some(number);
    });
    found
}

/// Reads cookie and names into the shared record; false if the socket is not a connected one.
pub fn identify(s: &'static Sock) -> bool {
    let end = s.end();
    let fd = s.carrier();
    let Ok(cookie) = sock::option_u64(fd, libc::SOL_SOCKET, libc::SO_COOKIE) else { return false };
    if !carrier::of(s).record_names(s) {
        return false;
    }
    end.cookie.store(cookie, Relaxed);
    true
}

/// The thread id used as lock owner.
pub fn tid() -> u32 {
    crate::thread::mine().map_or_else(thread::tid, |r| r.tid.load(Relaxed))
}

/// Reads O_NONBLOCK from the kernel.
pub fn refresh_nonblocking(s: &Sock) {
    if let Ok(flags) = fd::status_flags(s.carrier()) {
        if flags & libc::O_NONBLOCK != 0 { s.set(flag::NONBLOCK) } else { s.clear(flag::NONBLOCK) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that nothing else in these tests has.
    const OWN: i32 = (1 << 20) - 7;

    #[test]
    fn a_number_that_another_file_has_is_no_carrier() {
        let [s, other] = [60_001, 60_002].map(|number| {
            let s = ensure(number).unwrap();
            s.number.store(number, Relaxed);
            s.fd.store(OWN, Relaxed);
            s
        });
        alias(OWN, s);
        assert_eq!((s.carrier(), other.carrier()), (OWN, NEVER_OPEN));
        remove(OWN);
        assert_eq!(s.carrier(), NEVER_OPEN, "it was closed");
        alias(OWN, other);
        assert_eq!((s.carrier(), other.carrier()), (NEVER_OPEN, OWN));
        remove(OWN);
        assert_eq!(bypath_sys::poll::now(NEVER_OPEN, libc::POLLIN), libc::POLLNVAL);
        assert_eq!(sock::inq(NEVER_OPEN), Err(bypath_sys::Errno::BADF));
    }
}
