//! Mailboxes under poll, select and epoll: at the entry of a wait, and while it spins, a ring with something in it is readable; before
//! the sleep the gates are closed, and the kernel's wait is the whole truth.

use super::places::Places;
use super::receive::Opening;
use super::{Record, record, routed};
use crate::epoll::datagrams as sets;
use crate::hook::{EpollEvent, PollFd};
use crate::lock::Lock;
use crate::table;
use bypath_shm::reason::Reason;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};

const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
const ET: u32 = libc::EPOLLET as u32;
/// What the overlay does not do for datagrams.
const NOT_SERVED: u32 = libc::EPOLLONESHOT as u32;

/// Sockets with a mailbox. Lively are those whose gate may be open, or that have something in the ring; and a few at whom something has come
/// lately, whose gates are opened again by the next wait. The others get what comes by the kernel.
static MAILBOXES: Places = Places::new();
/// Held by who calms some.
static CALMS: Lock = Lock::new();
/// So many are lively without having got anything.
const FEW: u32 = 8;
/// How many there are.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A registration with an epoll set.
#[derive(Debug, Default)]
pub struct Registration {
    /// The set's number plus one; 0: there is none.
    set: AtomicU32,
    fd: AtomicI32,
    events: AtomicU32,
    data: AtomicU64,
    /// Edge-triggered: where the ring ended when it was last told, plus one.
    told: AtomicU64,
    /// The set knows that it has a mailbox in it.
    is_counted: AtomicBool,
}

impl Registration {
    /// The set that it is in.
    pub fn set(&self) -> Option<u32> {
        self.set.load(Acquire).checked_sub(1)
    }

    /// It is in no set any more.
    pub fn forget(&self) {
        self.left();
        self.set.store(0, Release);
    }

    fn comes(&self) {
        if let Some(set) = self.set()
            && !self.is_counted.swap(true, AcqRel)
        {
            sets::comes(set);
        }
    }

    fn left(&self) {
        if let Some(set) = self.set()
            && self.is_counted.swap(false, AcqRel)
        {
            sets::goes(set);
        }
    }

    fn can_overlay(&self) -> Result<(), Reason> {
        match self.set() {
            Some(_) if self.events.load(Relaxed) & NOT_SERVED != 0 => Err(Reason::OneShot),
            Some(set) if !sets::can_serve(set) => Err(Reason::ForeignEpoll),
            _ => Ok(()),
        }
    }

    /// What is to be told of it.
    fn would_tell(&self, r: &Record) -> u32 {
        let events = self.events.load(Relaxed);
        if events & IN == 0 || !r.has_unread() {
            return 0;
        }
        let is_new = events & ET == 0 || self.told.load(Relaxed) != r.tail().wrapping_add(1);
        if is_new { events & IN } else { 0 }
    }
}

/// After a successful epoll_ctl on a socket: `set` is the set's number.
pub fn registered(r: &'static Record, set: u32, op: i32, fd: i32, event: Option<EpollEvent>) {
    let is = |one: &&Registration| one.set() == Some(set) && one.fd.load(Relaxed) == fd;
    let known = r.registrations.iter().find(is);
    let Some(event) = event.filter(|_| op != libc::EPOLL_CTL_DEL) else {
        return known.into_iter().for_each(Registration::forget);
    };
    let Some(one) = known.or_else(|| r.registrations.iter().find(|one| one.set().is_none())) else {
        return r.keep(Reason::TableFull);
    };
    one.fd.store(fd, Relaxed);
    one.events.store(event.events, Relaxed);
    one.data.store(event.data, Relaxed);
    one.told.store(0, Relaxed);
    one.set.store(set + 1, Release);
    if r.has_mailbox() {
        if let Err(reason) = one.can_overlay() {
            r.end_mailbox(reason);
        }
        one.comes();
    }
}

/// The kernel looks at a set from outside: its sockets have no mailboxes.
pub fn leave_set(set: u32) {
    super::each(|r| {
        if r.registrations.iter().any(|one| one.set() == Some(set)) {
            r.end_mailbox(Reason::RecalledEpoll);
        }
    });
}

/// A set is gone.
pub fn set_closed(set: u32) {
    super::each(|r| {
        r.registrations.iter().filter(|one| one.set() == Some(set)).for_each(Registration::forget);
    });
}

/// Whether every set that holds the socket can serve a mailbox.
///
/// # Errors
/// Why one cannot.
pub fn can_overlay(r: &Record) -> Result<(), Reason> {
    r.registrations.iter().try_for_each(Registration::can_overlay)
}

/// It has a mailbox now; false: there are too many.
pub fn comes(r: &Record) -> bool {
    if !MAILBOXES.take(&r.place, r.number()) {
        return false;
    }
    COUNT.fetch_add(1, SeqCst);
    r.registrations.iter().for_each(Registration::comes);
    true
}

/// It has none any more.
pub fn goes(r: &Record) {
    if MAILBOXES.leave(&r.place) {
        COUNT.fetch_sub(1, SeqCst);
    }
    r.registrations.iter().for_each(Registration::left);
}

/// Its gate may be open soon, or is to be opened by the next wait.
#[inline]
pub fn stir(r: &Record) {
    MAILBOXES.stir(&r.place);
}

/// In a forked child: who calmed some does not exist here.
pub fn enter_child() {
    CALMS.reset();
}

fn of_set(r: &'static Record, set: u32) -> impl Iterator<Item = &'static Registration> {
    r.registrations.iter().filter(move |one| one.set() == Some(set))
}

/// The lively ones.
fn in_set(set: u32) -> impl Iterator<Item = (&'static Record, &'static Registration)> {
    MAILBOXES.lively().flat_map(move |(_, r)| of_set(r, set).map(move |one| (r, one)))
}

/// Who is told of first: there was no room for it the last time, in whichever set that was.
static FIRST: AtomicU32 = AtomicU32::new(0);

/// Whether a mailbox in the set has something to tell.
#[inline]
pub fn is_ready(set: u32) -> bool {
    in_set(set).any(|(r, one)| one.would_tell(r) != 0)
}

/// What mailboxes of the set have to tell, behind the `n` events that are there already; how many there are then.
pub fn collect(set: u32, out: &mut [EpollEvent], mut n: usize) -> usize {
    let first = FIRST.load(Relaxed);
    let all = || (0u32..).zip(in_set(set));
    let mut next = 0;
    for (at, (r, one)) in all().skip(first as usize).chain(all().take(first as usize)) {
        let tail = r.tail();
        let events = one.would_tell(r);
        if events == 0 {
            continue;
        }
        let data = one.data.load(Relaxed);
        if let Some(same) = out[..n].iter_mut().find(|other| { other.data } == data) {
            same.events |= events;
        } else if n < out.len() {
            out[n] = EpollEvent { events, data };
            n += 1;
        } else {
            // First in line next time.
            next = at;
            break;
        }
        one.told.store(tail.wrapping_add(1), Relaxed);
    }
    if next != first {
        FIRST.store(next, Relaxed);
    }
    n
}

/// Before a spin: opens the gates of the set; false: something has come.
pub fn open_set(set: u32) -> bool {
    in_set(set).all(|(r, one)| {
        one.events.load(Relaxed) & IN == 0 || r.open_gate(one.fd.load(Relaxed)) != Opening::News
    })
}

/// Before a sleep in the set: who was killed has not read what its sockets sent last, those that only send among them.
#[inline]
pub fn look_after_routes(set: u32) {
    routed::look_after(|r| r.registrations.iter().any(|one| one.set() == Some(set)));
}

/// Before the sleep, which was announced: closes the gates of the set. Whether there is something to tell.
pub fn close_set(set: u32) -> bool {
    look_after_routes(set);
    if COUNT.load(SeqCst) == 0 {
        return false;
    }
    // Who calms one, and finds that it has come to life meanwhile, stirs it again: nobody else is to miss it in between.
    match CALMS.try_lock(table::tid()) {
        Some(_held) => {
            let is_crowded = MAILBOXES.count_lively() > FEW;
            MAILBOXES.lively().fold(false, |tells, (at, r)| {
                let tells = close_in(r, set) || tells;
                if is_quiet(r) && is_crowded {
                    MAILBOXES.calm_quiet(at, r, Record::may_tell);
                }
                tells
            })
        }
        None => MAILBOXES.all().fold(false, |tells, (_, r)| close_in(r, set) || tells),
    }
}

/// Before a sleep in the set. Whether there is something to tell.
fn close_in(r: &'static Record, set: u32) -> bool {
    let mut ones = of_set(r, set).peekable();
    if ones.peek().is_some() {
        r.close_gate();
    }
    ones.any(|one| one.would_tell(r) != 0)
}

/// Whether nothing has come since the last sleep of this process.
fn is_quiet(r: &Record) -> bool {
    let now = r.traffic();
    r.heard.swap(now, Relaxed) == now && !r.may_tell()
}

fn of_entry(p: &PollFd) -> Option<&'static Record> {
    if p.fd < 0 { None } else { record(table::udp(p.fd)?) }
}

/// Events of one entry of a poll that its mailbox vouches for.
#[inline]
pub fn ready(p: &PollFd) -> i16 {
    let wanted = p.events & IN as i16;
    if wanted == 0 || COUNT.load(Relaxed) == 0 {
        return 0;
    }
    of_entry(p).filter(|r| r.has_unread()).map_or(0, |_| wanted)
}

/// Whether some entry has a mailbox that is waited for.
pub fn any(fds: &[PollFd]) -> bool {
    COUNT.load(Relaxed) != 0
        && fds.iter().any(|p| p.events & IN as i16 != 0 && of_entry(p).is_some_and(Record::has_mailbox))
}

/// Before a spin: opens the gates of the entries; false: something has come.
pub fn open(fds: &[PollFd]) -> bool {
    fds.iter()
        .all(|p| p.events & IN as i16 == 0 || of_entry(p).is_none_or(|r| r.open_gate(p.fd) != Opening::News))
}

/// Before a sleep in poll, which was announced.
pub fn close(fds: &[PollFd]) {
    for r in fds.iter().filter_map(of_entry) {
        r.close_gate();
        r.look_after_routes();
    }
}

/// The socket of an entry, for which a sleep is announced.
pub fn sleeps_on(p: &PollFd) -> Option<&'static Record> {
    of_entry(p)
}
