//! UDP sockets of the kernel whose datagrams go through shared memory while their receiver is awake (docs/udp.md).
//!
//! A receiver that gets datagrams from this host has a *mailbox* (`bypath_shm::mailbox`), and a name at which senders ask for it; a
//! sender that sends there again and again has a *route* to it. The kernel's way stays the truth for sleeping: `receive` opens the
//! mailbox's gate only while somebody looks, `wait` closes it before anybody sleeps in poll or epoll, `news` asks whether the kernel has
//! something, too.
//!
//! `calls` is what the hooks ask; `send` has the routes, `inbound` the mailbox, `meet` how two sockets find each other (`words`: what they say), `options` what excludes it all,
//! `shown` what views see, `told` what control messages tell, `groups` what sockets do that share a port,
//! `holders` who has a socket beside this process, `offers` sends that lie nowhere, `places` of how many there is something to look for,
//! `recall` what becomes of a mailbox when others get its socket, `stand_in` in whose name that is done, `lenders` how long,
//! `said` what a sender's control messages say, `maps` where mailboxes are mapped, `user` whose they are.

mod address;
pub mod calls;
pub mod groups;
pub mod holders;
mod inbound;
mod lenders;
mod maps;
mod meet;
pub mod network;
mod news;
mod offers;
mod options;
mod pause;
mod places;
mod queue;
mod recall;
mod receive;
mod route;
mod routed;
mod said;
pub mod seen;
mod send;
pub mod shown;
mod stand_in;
mod told;
pub mod user;
pub mod wait;
mod words;

use crate::config::Upgrade;
use crate::table::{self, Entry};
use crate::{service, state};
pub use address::{LONGEST, Name};
use bypath_shm::reason::Reason;
use bypath_shm::region::Slab;
use bypath_sys::{fd, sock};
use inbound::Inbound;
use recall::Readers;
use route::Outbound;
use shown::Shown;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU32, Ordering::*};
use wait::Registration;

/// Registrations of a socket with epoll sets that are known; with more it stays on the kernel.
const REGISTRATIONS: usize = 8;

/// What this process knows of a UDP socket.
#[derive(Debug, Default)]
pub struct Record {
    number: AtomicU32,
    /// Raised at each reuse.
    generation: AtomicU32,
    /// Descriptors of this process that mean it.
    descriptors: AtomicU32,
    /// One of them.
    fd: AtomicI32,
    /// AF_INET or AF_INET6.
    family: AtomicI32,
    /// O_NONBLOCK, as far as this process knows of it.
    nonblocking: AtomicBool,
    /// What the program wants to be told beside a datagram (`told::want`).
    wants: AtomicU32,
    /// Others may have its port, too.
    shares: AtomicBool,
    /// By what only the program knows (a filter of the port's group) it is said who of them gets what.
    steers: AtomicBool,
    /// The port that it shares, 0 = none is known.
    port: AtomicU32,
    /// The end of the family that says who holds it, plus one; 0: only this process does.
    end: AtomicU32,
    /// Changes of its names and options that the others of the family have made, as far as this process knows of them.
    changes: AtomicU32,
    /// Its port was chosen by the program.
    has_chosen_port: AtomicBool,
    /// Others hold it, or may, of whom nobody knows when they do no more.
    spread: AtomicBool,
    /// Why it stays on the kernel (a [`Reason`] value), 0 = it need not.
    stays: AtomicU16,
    /// Its place in the view.
    shown: Shown,
    /// Datagrams by the kernel until it is shown.
    seen: AtomicU32,
    /// The same counted: sent, received.
    early: [shown::Early; 2],
    /// Threads that sleep on it, or may.
    sleepers: AtomicU32,
    /// Its place among those with a mailbox.
    place: places::Place,
    /// What had come before the last sleep that was looked at (`wait`).
    heard: AtomicU32,
    inbound: Inbound,
    outbound: Outbound,
    registrations: [Registration; REGISTRATIONS],
    next_free: AtomicU32,
}

static RECORDS: Slab<Record, 1024, 64> = Slab::new();
static USED: AtomicU32 = AtomicU32::new(0);
static FREE: AtomicU32 = AtomicU32::new(0);
/// Some socket is or was followed.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// The record of this number.
#[inline]
pub fn record(number: u32) -> Option<&'static Record> {
    RECORDS.get(number as usize)
}

/// The record behind a descriptor.
#[inline]
pub fn of(fd: i32) -> Option<&'static Record> {
    record(table::udp(fd)?)
}

/// Whether some socket may be followed.
#[inline(always)]
pub fn is_active() -> bool {
    ACTIVE.load(Relaxed)
}

/// Every record that a descriptor means.
fn each(mut f: impl FnMut(&'static Record)) {
    if !is_active() {
        return;
    }
    for number in 0..USED.load(Acquire) {
        if let Some(r) = record(number).filter(|r| r.descriptors.load(Relaxed) > 0) {
            f(r);
        }
    }
}

/// Whether a socket of this kind is followed. Where a netstack service has sockets of datagrams they are not.
pub fn may_follow(domain: i32, kind: i32, protocol: i32) -> bool {
    matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & 0xf == libc::SOCK_DGRAM
        && matches!(protocol, 0 | libc::IPPROTO_UDP)
        && !service::is_active()
        && state::config().is_some_and(|c| c.upgrade != Upgrade::Off)
}

/// `socket()` returned `fd`, which [is followed](may_follow). Under `state::LIFE`.
pub fn made(fd: i32, domain: i32, nonblocking: bool) {
    let Some(r) = new_record() else { return };
    r.fd.store(fd, Relaxed);
    r.family.store(domain, Relaxed);
    r.nonblocking.store(nonblocking, Relaxed);
    ACTIVE.store(true, Relaxed);
    if fd <= 2 {
        r.keep(Reason::StandardDescriptor);
    }
    let number = r.number.load(Relaxed);
    alias(fd, number);
    if table::udp(fd) != Some(number) {
        discard(r);
    }
}

fn new_record() -> Option<&'static Record> {
    let number = match FREE.load(Relaxed).checked_sub(1) {
        Some(free) => {
            FREE.store(record(free)?.next_free.load(Relaxed), Relaxed);
            free
        }
        None => {
            let next = USED.load(Relaxed);
            RECORDS.ensure(next as usize)?.number.store(next, Relaxed);
            USED.store(next + 1, Release);
            next
        }
    };
    let r = record(number)?;
    r.generation.fetch_add(1, Relaxed);
    r.wants.store(0, Relaxed);
    r.shares.store(false, Relaxed);
    r.steers.store(false, Relaxed);
    r.port.store(0, Relaxed);
    r.has_chosen_port.store(false, Relaxed);
    r.end.store(0, Relaxed);
    r.changes.store(0, Relaxed);
    r.spread.store(false, Relaxed);
    r.stays.store(0, Relaxed);
    r.shown.forget();
    r.seen.store(0, Relaxed);
    r.early.iter().for_each(shown::Early::forget);
    r.sleepers.store(0, Relaxed);
    r.inbound.reset();
    r.outbound.reset();
    r.registrations.iter().for_each(Registration::forget);
    Some(r)
}

fn discard(r: &Record) {
    r.next_free.store(FREE.swap(r.number.load(Relaxed) + 1, Relaxed), Relaxed);
}

/// One more descriptor for a record. Under `state::LIFE`.
pub fn alias(fd: i32, number: u32) {
    if let Some(r) = record(number)
        && table::set_udp(fd, number)
    {
        r.descriptors.fetch_add(1, AcqRel);
        if fd <= 2 {
            r.keep(Reason::StandardDescriptor);
        }
        r.is_seen_inheritable(fd);
    }
}

/// Before a descriptor of it is closed: the last one takes the mailbox and the routes along.
pub fn close_begin(number: u32) {
    if let Some(r) = record(number)
        && r.descriptors.load(Acquire) == 1
        && !state::is_borrowed()
    {
        r.leave_the_rest();
        r.end_mailbox(Reason::RecalledClose);
        r.regroup();
    }
}

/// `fd`, one descriptor, is closed, or was. Under `state::LIFE`.
pub fn release(number: u32, closed: i32) {
    let Some(r) = record(number) else { return };
    if r.descriptors.fetch_sub(1, AcqRel) != 1 {
        r.repoint(closed);
        return;
    }
    r.end_mailbox(Reason::RecalledClose);
    r.regroup();
    r.forget_mailbox();
    r.registrations.iter().for_each(Registration::forget);
    r.drop_routes(Reason::RecalledClose);
    stand_in::take_back(r);
    r.holds_no_longer();
    r.hide();
    discard(r);
    maps::let_go();
}

impl Record {
    /// AF_INET or AF_INET6.
    #[inline]
    pub fn family(&self) -> i32 {
        self.family.load(Relaxed)
    }

    /// Why it stays on the kernel, if it does.
    #[inline]
    pub fn stays(&self) -> Option<Reason> {
        match self.stays.load(Relaxed) {
            0 => None,
            value => Some(Reason::from_value(value).unwrap_or(Reason::None)),
        }
    }

    /// It stays on the kernel from now on, for `reason`.
    #[cold]
    pub fn keep(&self, reason: Reason) {
        // Which number a descriptor has, and what a process may call, is about that process alone.
        if !matches!(reason, Reason::StandardDescriptor | Reason::Seccomp) {
            self.is_kept();
        }
        // The kernel is to read from it, where nobody sees that.
        if matches!(reason, Reason::RecalledSplice | Reason::RecalledStdio | Reason::IoUring)
            && !state::is_memory_of_another()
        {
            self.recall(if reason == Reason::IoUring { Readers::All } else { Readers::None });
        }
        if self.stays.compare_exchange(0, reason as u16, AcqRel, Relaxed).is_err() {
            return;
        }
        if state::is_memory_of_another() {
            // A vfork child has a table of descriptors of its own: ours are the parent's to close.
            self.leave_memory();
            return;
        }
        self.end_mailbox(reason);
        self.drop_routes(reason);
        stand_in::take_back(self);
        self.show_reason(reason);
        self.show_rx_reason(reason);
    }

    /// Another descriptor than `closed`, where that was the one that is used.
    fn repoint(&self, closed: i32) {
        if self.fd.load(Relaxed) != closed {
            return;
        }
        let number = self.number.load(Relaxed);
        table::each(|fd, entry| {
            if fd != closed && matches!(entry, Entry::Udp(n) if n == number) {
                self.fd.store(fd, Relaxed);
            }
        });
    }

    /// A call on it is about to change its names.
    fn renamed(&self) {
        self.is_changed();
        self.end_mailbox(Reason::RecalledConnect);
        self.drop_routes(Reason::RecalledConnect);
        stand_in::take_back(self);
        self.outbound.forget_peer();
    }

    /// Whether a receive does not wait, without any doubt.
    #[inline]
    fn is_known_nonblocking(&self, flags: i32) -> bool {
        flags & libc::MSG_DONTWAIT != 0 || self.nonblocking.load(Relaxed) && !self.may_be_anothers()
    }

    /// Whether a receive that finds nothing does not wait. Who has the socket, too, may have let it since.
    fn is_nonblocking(&self, fd: i32, flags: i32) -> bool {
        if self.is_known_nonblocking(flags) || !self.nonblocking.load(Relaxed) {
            return self.is_known_nonblocking(flags);
        }
        self.look_at_flags(fd);
        self.nonblocking.load(Relaxed)
    }

    fn look_at_flags(&self, fd: i32) {
        if let Ok(now) = fd::status_flags(fd) {
            self.nonblocking.store(now & libc::O_NONBLOCK != 0, Relaxed);
        }
    }
}

/// Before connect().
pub fn connect_begin(fd: i32) {
    if let Some(r) = of(fd) {
        r.recall_before(Reason::RecalledConnect);
        // It leaves its port's group, or comes to one.
        r.regroup();
        r.renamed();
    }
}

/// After connect(): what other threads have begun meanwhile, by what it was called before it, ends as well.
pub fn connect_end(fd: i32) {
    if let Some(r) = of(fd) {
        let _life = state::LIFE.lock_past(table::tid());
        r.renamed();
    }
}

/// Before setsockopt(): what waits has been let in by what holds until now.
pub fn option_begin(fd: i32, level: i32, name: i32) {
    use options::Effect;
    let Some(r) = of(fd) else { return };
    let effect = options::effect(level, name);
    if matches!(effect, Effect::Room | Effect::Steers | Effect::Stays(_)) {
        r.recall_before(Reason::RecalledOption);
    }
    // Of others at its port, too, as it becomes another one there.
    if matches!(effect, Effect::Steers | Effect::Stays(Reason::BoundDevice)) {
        r.regroup();
    }
}

/// After setsockopt().
pub fn option_set(fd: i32, level: i32, name: i32) {
    use options::Effect;
    let Some(r) = of(fd) else { return };
    let effect = options::effect(level, name);
    if effect != Effect::None {
        r.is_changed();
    }
    match effect {
        Effect::None => {}
        // Who has the mailbox knows how much may wait there: the next one is as large as the program wants it.
        Effect::Room => r.end_mailbox(Reason::RecalledOption),
        // A route knows how long its datagrams may be.
        Effect::Length => {
            if let Some(_life) = state::LIFE.lock_past(crate::table::tid()) {
                r.drop_routes(Reason::RecalledOption);
            }
        }
        // Nor is what waits already told of as what comes from now on.
        Effect::Tells => {
            if r.look_at_wants(fd) {
                r.end_mailbox(Reason::RecalledOption);
            }
        }
        Effect::Shares => {
            if sock::option(fd, level, name) != Ok(0) {
                r.begins_to_share(fd);
            }
        }
        Effect::Steers => r.begins_to_steer(),
        Effect::Stays(reason) => {
            r.keep(reason);
            // Where that is a device it has come to the port as another one.
            r.regroup();
        }
    }
}

/// The program's new O_NONBLOCK.
pub fn nonblocking_done(fd: i32, on: bool) {
    if let Some(r) = of(fd) {
        r.nonblocking.store(on, Relaxed);
    }
}

/// Every socket stays on the kernel from now on.
pub fn keep_all(reason: Reason) {
    each(|r| r.keep(reason));
}

/// The process ends.
pub fn exiting() {
    each(|r| {
        r.leave_the_rest();
        r.end_mailbox(Reason::RecalledExit);
        stand_in::take_back(r);
    });
}

/// Every descriptor of ours.
pub fn descriptors(mut f: impl FnMut(i32)) {
    each(|r| {
        r.inbound.descriptors(&mut f);
        r.outbound.descriptors(&mut f);
    });
}

/// Whether `number` is one of them.
pub fn owns(number: i32) -> bool {
    let mut found = false;
    descriptors(|fd| found |= fd == number);
    found
}

/// Nothing is followed any more, because of `hindrance`.
pub fn leave(hindrance: Reason) {
    keep_all(hindrance);
    each(|r| {
        r.forget_mailbox();
        r.registrations.iter().for_each(Registration::forget);
    });
    maps::let_go_of_all();
}
