//! The rings of a service's socket of datagrams, seen from the program: it writes into one mailbox while the service is awake, and reads from the other one
//! while one of its threads looks (docs/netstack-service.md, "Rings of datagrams").
//!
//! The pair wakes: a thread that is about to sleep on anything closes the gates, and has the service send by the pair what is in a ring ([`rest`]).
//! So poll, select and epoll are asked about the pair alone.

use super::super::rings;
use super::Record;
use super::shown::Way;
use crate::config::Upgrade;
use crate::peer::Conn;
use crate::thread::Call;
use crate::wait::{self, SpinHistory};
use crate::{state, table};
use bypath_shm::datagram::{HEADER, Header, Kind};
use bypath_shm::mailbox::{Epoch, Mailbox, Pushed, Reader, Writer};
use bypath_shm::reason::Reason;
use bypath_shm::region::StaticCell;
use bypath_shm::ring::Ring;
use bypath_shm::service::{LEVEL, Op, TAKE_BACK};
use bypath_sys::page::Access;
use bypath_sys::user::UserVec;
use bypath_sys::{Errno, Result, fd, poll, sock};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*, fence};

/// Octets of a ring: it has room for a datagram of any length.
const RING: u32 = 128 << 10;
/// Sockets of this process that may have rings.
const MOST: usize = 64;
/// How often a datagram that goes while it is looked at is looked for again.
const LOOKS: u32 = 64;
/// Datagrams that are written without asking whether the service is there still.
const UNASKED: u32 = 16;
/// Looks at the ring between two at the pair.
const PAIR_LOOKS: u32 = 64;

/// Records (their number plus one) that have rings.
static MAILED: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];
/// Some socket has them.
static ANY: AtomicBool = AtomicBool::new(false);
/// A gate may be open, or a ring have datagrams, since this was last seen to.
static OPENED: AtomicBool = AtomicBool::new(false);
/// Threads that wait in poll, select or epoll: no gate is opened beside them.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// The rings of a socket.
#[derive(Debug, Default)]
pub(super) struct Rings {
    conn: StaticCell<Conn>,
    /// Calls so far; the service was asked, or nobody is to ask.
    calls: AtomicU64,
    asked: AtomicBool,
    /// They are not used any more, but for what is in them.
    over: AtomicBool,
    /// The epoch in which the service's mailbox is left alone.
    left: AtomicU64,
    /// Datagrams that went by the pair, and up to which of them it is known that the service has taken them.
    by_pair: AtomicU64,
    taken: AtomicU64,
    pushed: AtomicU32,
    /// Threads asleep in a receive.
    sleepers: AtomicU32,
    spins: SpinHistory,
}

impl Rings {
    /// Of a new socket. `shared`: other processes may have it, and it gets none.
    pub fn reset(&self, shared: bool) {
        self.conn.set(None);
        self.calls.store(0, Relaxed);
        self.asked.store(shared, Relaxed);
        self.over.store(false, Relaxed);
        self.left.store(0, Relaxed);
        // Those that went before there were rings.
        self.by_pair.store(1, Relaxed);
        self.taken.store(0, Relaxed);
        self.pushed.store(0, Relaxed);
        self.sleepers.store(0, Relaxed);
        self.spins.record(true);
    }

    /// Nobody of this process has the socket any more. Under `state::LIFE`.
    pub fn discard(&self, number: u32) {
        let Some(conn) = self.conn.get() else { return };
        self.conn.set(None);
        MAILED.iter().for_each(|place| _ = place.compare_exchange(number + 1, 0, AcqRel, Relaxed));
        // Where a thread may still look at it the slot is nobody's, until this process ends.
        if crate::thread::quiesce() {
            conn.release();
        }
    }
}

fn reader(conn: &'static Conn) -> Reader<'static, Ring> {
    Reader::new(incoming(conn), conn.rx)
}

fn incoming(conn: &'static Conn) -> &'static Mailbox {
    &conn.control.mailbox[1]
}

fn writer(conn: &'static Conn) -> Writer<'static, Ring> {
    // Its threads are the only writers.
    Writer::new(&conn.control.mailbox[0], conn.tx, 1)
}

/// What a receive does that has found nothing in the ring.
#[derive(Debug)]
pub enum Step {
    /// It looks into the ring again.
    Again,
    /// It reads the pair.
    Pair,
    /// It reads the pair without waiting, and tells [`Record::found_empty`] if nothing is there.
    Try(Tried),
    /// It reads the pair, and may sleep there.
    Sleep(Asleep),
}

/// An opening of the gate.
#[derive(Debug)]
pub struct Tried(Epoch);

/// A thread that sleeps: no gate is opened meanwhile.
#[derive(Debug)]
pub struct Asleep(&'static Record);

impl Drop for Asleep {
    fn drop(&mut self) {
        self.0.rings.sleepers.fetch_sub(1, AcqRel);
    }
}

impl Record {
    /// Rings that may be used.
    fn conn(&self) -> Option<&'static Conn> {
        self.rings.conn.get()
    }

    /// A call on it: after some the service is asked for rings.
    #[inline]
    pub fn counts(&'static self) {
        if !self.rings.asked.load(Relaxed) {
            self.one_more();
        }
    }

    #[cold]
    fn one_more(&'static self) {
        let Some(config) = state::config() else { return };
        let calls = self.rings.calls.fetch_add(1, Relaxed) + 1;
        let calls = if config.upgrade == Upgrade::Eager { u64::MAX } else { calls };
        if config.upgrade == Upgrade::Off
            || calls < config.upgrade_calls
            || state::is_borrowed()
            || state::is_sealed()
        {
            return;
        }
        if !self.undecided.load(Relaxed) && !self.rings.asked.swap(true, AcqRel) {
            self.ask(config.ring_size.min(RING));
        }
    }

    fn ask(&'static self, ring: u32) {
        let Some(_life) = state::LIFE.lock(table::tid()) else { return };
        let Some(state) = state::start().filter(|_| state::hindrance().is_none()) else { return };
        let is_this = |entry: &AtomicU32| {
            super::record(entry.load(Relaxed).wrapping_sub(1)).is_some_and(|r| std::ptr::eq(r, self))
        };
        let Some(number) =
            (0..super::USED.load(Acquire)).find(|n| super::record(*n).is_some_and(|r| std::ptr::eq(r, self)))
        else {
            return;
        };
        let free = |place: &&AtomicU32| place.load(Relaxed) == 0;
        let Some(place) = MAILED.iter().find(free).filter(|_| !MAILED.iter().any(is_this)) else { return };
        let (service, cookie) = (self.service.load(Relaxed), self.cookie.load(Relaxed));
        let conn = match rings::ask(state, (service, cookie), 0, ring) {
            Ok(conn) => conn,
            Err(reason) => return self.show_reason(reason),
        };
        if conn.tx.back(0, conn.tx.size()).is_err() {
            return conn.release();
        }
        // What was sent before is on its way through the pair.
        writer(conn).sent_by_kernel(&self.rings.left);
        place.store(number + 1, Release);
        self.rings.conn.set(Some(conn));
        ANY.store(true, Release);
        self.show_reason(Reason::Ring);
    }

    /// Puts a datagram of `len` octets into the ring. False: it goes by the pair.
    #[inline]
    pub fn push(&self, fd: i32, header: &Header, from: UserVec<'_>, len: usize) -> bool {
        let Some(conn) = self.conn().filter(|_| !self.rings.over.load(Relaxed)) else { return false };
        let Some(call) = Call::enter() else { return false };
        if from.reach(0, len, Access::Read, &call.thread.pages) < len {
            // The kernel says what is wrong with it.
            return false;
        }
        let (writer, size) = (writer(conn), conn.tx.size());
        let fill = |ring: &Ring, at: u64| ring.copy_in(at, from, 0, len);
        let none = AtomicU64::new(0);
        let left = if self.is_all_taken(fd, &writer) { &none } else { &self.rings.left };
        match writer.push_with(left, &header.encode(), len, size, fill) {
            Pushed::Sent => {
                self.count(Way::Out, true, len, &call);
                let pushed = self.rings.pushed.fetch_add(1, Relaxed);
                if pushed % UNASKED == UNASKED - 1 && poll::now(fd, 0) & libc::POLLHUP != 0 {
                    // It was killed while it was awake. The next call hears of it.
                    self.leave_rings(Reason::RecalledPeerClosed);
                }
                true
            }
            Pushed::Kernel | Pushed::Full => false,
            Pushed::Poisoned => {
                self.leave_rings(Reason::PeerMemoryInvalid);
                false
            }
        }
    }

    /// Whether the service has taken everything that went by the pair. The kernel is asked only where it matters.
    fn is_all_taken(&self, fd: i32, writer: &Writer<'_, Ring>) -> bool {
        let rings = &self.rings;
        // Read before the question: what another thread sends meanwhile counts later.
        let by_pair = rings.by_pair.load(Acquire);
        if rings.taken.load(Relaxed) == by_pair {
            return true;
        }
        if writer.is_barred(&rings.left) && sock::outq(fd) == Ok(0) {
            rings.taken.fetch_max(by_pair, Relaxed);
            return true;
        }
        false
    }

    /// A datagram of `len` octets went by the pair.
    #[inline]
    pub fn went_by_pair(&self, len: usize) {
        if let Some(call) = Call::enter() {
            self.count(Way::Out, false, len, &call);
        }
        if let Some(conn) = self.conn().filter(|_| !self.rings.over.load(Relaxed)) {
            writer(conn).sent_by_kernel(&self.rings.left);
            self.rings.by_pair.fetch_add(1, AcqRel);
        }
    }

    /// The ring's next datagram, copied to `to`, which has room for `room` octets, and how long it is. With `peek` it stays.
    ///
    /// # Errors
    /// EFAULT.
    pub fn take(&self, to: UserVec<'_>, room: usize, peek: bool) -> Option<Result<(Header, usize)>> {
        let conn = self.conn()?;
        let call = Call::enter()?;
        let reader = reader(conn);
        for _ in 0..LOOKS {
            let peeked = match reader.peek() {
                Ok(None) => return None,
                Ok(Some(peeked)) if peeked.place.head_len() == HEADER => peeked,
                _ => break,
            };
            let mut head = [0; HEADER];
            peeked.place.copy_head(&conn.rx, &mut head);
            let Some(header) = Header::decode(&head) else {
                if reader.stands(&peeked) {
                    break;
                }
                continue;
            };
            let n = peeked.place.len().min(room);
            let fits = to.reach(0, n, Access::Write, &call.thread.pages) == n;
            if fits {
                conn.rx.copy_out(peeked.place.at(), to, 0, n);
            }
            if if peek { reader.stands(&peeked) } else { reader.release(&peeked) } {
                if !peek && header.kind == Kind::Datagram {
                    self.count(Way::In, true, peeked.place.len(), &call);
                }
                return Some(if fits { Ok((header, peeked.place.len())) } else { Err(Errno::FAULT) });
            }
        }
        self.give_up(conn);
        None
    }

    /// The header of the ring's next datagram, and its length.
    pub fn next_in_ring(&self) -> Option<(Header, usize)> {
        let conn = self.conn()?;
        let _call = Call::enter()?;
        let reader = reader(conn);
        let peeked = reader.peek().ok()??;
        let mut head = [0; HEADER];
        peeked.place.copy_head(&conn.rx, &mut head);
        let header = Header::decode(&head)?;
        reader.stands(&peeked).then_some((header, peeked.place.len()))
    }

    /// Takes the ring's next record if it is an error. False: it is none.
    pub fn drop_error(&self) -> bool {
        let Some(conn) = self.conn() else { return false };
        let Some(_call) = Call::enter() else { return false };
        let reader = reader(conn);
        let Ok(Some(peeked)) = reader.peek() else { return false };
        let mut head = [0; HEADER];
        peeked.place.copy_head(&conn.rx, &mut head);
        Header::decode(&head).is_some_and(|header| header.kind == Kind::Error) && reader.release(&peeked)
    }

    /// What is next after the ring was found empty. `tried`: the call has looked for long enough.
    pub fn step(&'static self, fd: i32, dontwait: bool, tried: &mut bool) -> Step {
        let Some(conn) = self.conn() else { return Step::Pair };
        let Some(call) = Call::enter() else { return Step::Pair };
        let (reader, rings) = (reader(conn), &self.rings);
        let waits = || !dontwait && fd::status_flags(fd).is_ok_and(|flags| flags & libc::O_NONBLOCK == 0);
        let may_look = |tried: &mut bool| {
            !std::mem::replace(tried, true)
                && WAITING.load(Relaxed) == 0
                && rings.sleepers.load(Relaxed) == 0
                && rings.spins.should()
                && waits()
        };
        if reader.is_open() {
            if may_look(tried) && self.look(fd, &call, &reader) {
                return Step::Again;
            }
        } else if !rings.over.load(Relaxed) && may_look(tried) {
            OPENED.store(true, Release);
            if let Some(epoch) = reader.open_begin() {
                // Who began to sleep meanwhile has closed it, or is seen here.
                if rings.sleepers.load(SeqCst) == 0 && WAITING.load(SeqCst) == 0 {
                    *tried = false;
                    return Step::Try(Tried(epoch));
                }
            }
        }
        if dontwait {
            reader.close();
            return if reader.is_empty() { Step::Pair } else { Step::Again };
        }
        rings.sleepers.fetch_add(1, SeqCst);
        let asleep = Asleep(self);
        reader.close();
        if reader.is_empty() { Step::Sleep(asleep) } else { Step::Again }
    }

    /// Whether the service may write into the ring.
    pub fn is_open(&self) -> bool {
        self.conn().is_some_and(|conn| reader(conn).is_open())
    }

    /// Looks for a while. True: something is in the ring.
    fn look(&self, fd: i32, call: &Call, reader: &Reader<'_, Ring>) -> bool {
        let (once, mut looks, mut pair) = (SpinHistory::new(), 0u32, false);
        let found = wait::spin(call, &once, u32::MAX, 0, || {
            looks += 1;
            pair = looks.is_multiple_of(PAIR_LOOKS) && poll::now(fd, libc::POLLIN) != 0;
            pair || !reader.is_empty()
        });
        self.rings.spins.record(found);
        found && !pair
    }

    /// After a [`Step::Try`] that has found nothing in the pair: the service may write into the ring. False: it may not, for
    /// now.
    pub fn found_empty(&self, tried: Tried) -> bool {
        self.conn().is_some_and(|conn| reader(conn).open_finish(tried.0))
    }

    /// The service lies: its mailbox is not looked at any more.
    fn give_up(&self, conn: &'static Conn) {
        self.leave_rings(Reason::PeerMemoryInvalid);
        incoming(conn).head.0.store(0, Relaxed);
        incoming(conn).tail.0.store(0, Relaxed);
    }

    /// Everything goes by the pair from now on: other processes have the socket, or will have it.
    pub fn leave_rings(&self, reason: Reason) {
        self.rings.asked.store(true, Release);
        self.show_reason(reason);
        if let Some(conn) = self.conn()
            && !self.rings.over.swap(true, AcqRel)
        {
            incoming(conn).kill();
            self.empty_ring(conn);
        }
    }

    /// Has the service send by the pair what is in the ring.
    fn empty_ring(&self, conn: &'static Conn) {
        let reader = reader(conn);
        reader.close();
        if !reader.is_empty() && !state::is_borrowed() {
            let mut question = self.question(Op::Get).number(LEVEL).number(TAKE_BACK).number(4);
            let _ = question.ask(self.service.load(Relaxed));
        }
    }
}

/// A thread that waits in poll, select or epoll.
#[derive(Debug)]
pub struct Waiting(());

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, AcqRel);
    }
}

/// Whether some socket has rings.
#[inline]
pub fn have_rings() -> bool {
    ANY.load(Relaxed)
}

/// Before a wait in poll, select or epoll: what is for this process comes by pairs until it is over.
#[inline]
pub fn rest() -> Option<Waiting> {
    have_rings().then(|| {
        WAITING.fetch_add(1, SeqCst);
        fence(SeqCst);
        if OPENED.load(Acquire) {
            close_all();
        }
        Waiting(())
    })
}

#[cold]
fn close_all() {
    OPENED.store(false, SeqCst);
    let Some(_call) = Call::enter() else { return };
    each(|r| {
        if let Some(conn) = r.conn() {
            r.empty_ring(conn);
        }
    });
}

fn each(f: impl Fn(&'static Record)) {
    let numbers = MAILED.iter().filter_map(|place| place.load(Acquire).checked_sub(1));
    numbers.filter_map(super::record).for_each(f);
}

/// Before a fork, under `state::LIFE`.
pub fn forking() {
    (0..super::USED.load(Acquire))
        .filter_map(super::record)
        .for_each(|r| r.leave_rings(Reason::RecalledFork));
}

/// In a forked child: the mappings are the parent's, and so are the slots.
pub fn enter_child() {
    WAITING.store(0, Relaxed);
    super::shown::enter_child();
    each(|r| r.rings.conn.set(None));
    MAILED.iter().for_each(|place| place.store(0, Relaxed));
    ANY.store(false, Relaxed);
}
