//! Sockets of a netstack service (docs/netstack-service.md): the side of the programs.
//!
//! A socket of the kernel's becomes the service's by `adopt`; one that came from elsewhere is known by `recognise`. `calls` is
//! what the hooks ask about either, `control` asks the service, `place` knows where that is. Octets move as those of any followed
//! socket do, whose carrier is the pair and whose other end is the service (`rings`); what comes after a shutdown is
//! asked for (`rest`). Of one that came from elsewhere they are the
//! kernel's. Nothing here is asked while they move, but for the first end or broken pipe of a connection.

mod address;
mod adopt;
mod anew;
mod asked;
pub mod calls;
mod connecting;
mod control;
pub mod datagram;
mod hold;
pub mod interfaces;
mod meanwhile;
mod name;
mod options;
pub mod place;
mod recipe;
mod recognise;
mod registrations;
pub mod rest;
pub mod rings;
pub mod said;
mod shown;

pub use address::SocketName;
pub use asked::are_inherited;
pub use name::ServiceName;
pub use recognise::{are_unasked, ask_about_all};

use crate::hook::EpollEvent;
use crate::table::{self, Entry, Sock};
use crate::{log, state};
use bypath_shm::region::Slab;
use bypath_shm::service::{LEFT, LEVEL, Op};
use bypath_sys::process;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};

/// Some socket of this process may be a service's.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Whether some socket of this process may be a service's, now or later.
#[inline(always)]
pub fn is_active() -> bool {
    ACTIVE.load(Relaxed)
}

/// After the library's settings are known: if they or the rules name a service, its sockets are known from here on. `lookup` is
/// a `getenv`.
pub fn init<'a>(lookup: impl Fn(&str) -> Option<&'a str>) {
    let Some(config) = state::config() else { return };
    if config.netstack.is_none() && !crate::rules::names_services() {
        return;
    }
    let folders =
        place::folders(|name| lookup(name).map(Into::into), process::euid(), process::euid_outside());
    control::init(folders, config.netstack.into_iter().chain(crate::rules::services()));
    ACTIVE.store(true, Release);
    log::keep_if_lasting();
    recognise::inherited();
}

/// In a forked child: what is for questions and what no program has yet is the parent's.
pub fn enter_child() {
    control::enter_child();
    adopt::enter_child();
    datagram::mail::enter_child();
}

/// Every descriptor of ours.
pub fn descriptors(mut f: impl FnMut(i32)) {
    control::descriptors(&mut f);
    adopt::descriptors(&mut f);
    recipe::descriptors(f);
}

/// Whether `number` is one of them.
pub fn owns(number: i32) -> bool {
    let mut found = false;
    descriptors(|fd| found |= fd == number);
    found
}

/// Nothing is followed any more: sockets of a service are what they look like.
pub fn leave() {
    ACTIVE.store(false, Release);
    // A worker would have it that is forked later.
    control::leave();
    table::each(|fd, entry| {
        if matches!(entry, Entry::Served(_) | Entry::Datagrams(_)) {
            table::remove(fd);
        }
    });
}

/// What this process knows of a socket of a service. What other holders did to it meanwhile is asked where that matters.
#[derive(Debug, Default)]
struct Record {
    /// Descriptors of this process that mean it; a followed socket counts as one.
    descriptors: AtomicU32,
    /// SO_COOKIE.
    cookie: AtomicU64,
    /// Number of its service.
    service: AtomicU32,
    /// AF_INET, AF_INET6, 0: not known.
    family: AtomicU32,
    /// A [`stage`].
    stage: AtomicU32,
    /// [`told`] bits.
    told: AtomicU32,
    /// An error that the service has told, and no call of the program yet; 0: none.
    error: AtomicI32,
    /// On which connection its service has answered about it, or about the one that it was accepted from: it may be told there without waiting.
    heard: AtomicU32,
    /// Of one that may listen: what is to be done again when its service was gone.
    recipe: recipe::Place,
    /// Next free one plus one.
    next_free: AtomicU32,
}

/// How far the life of a socket has come.
mod stage {
    /// The service is to be asked.
    pub const UNKNOWN: u32 = 0;
    /// It listens.
    pub const LISTENING: u32 = 1;
    /// A connection was begun, and no connect() has told how that ended.
    pub const CONNECTING: u32 = 2;
    /// There is a connection, or was.
    pub const CONNECTED: u32 = 3;
    /// connect() has told that it was refused: another one begins anew.
    pub const REFUSED: u32 = 4;
    /// It listened, and its service is gone: a timer has its place.
    pub const AWAY: u32 = 5;
}

/// What the program was told, and is not told again; and what was set on the descriptor.
mod told {
    /// What became of the receiving side.
    pub const END: u32 = 1;
    /// What became of the sending side.
    pub const PIPE: u32 = 2;
    /// Time limits or low-water marks were set: accepted connections get them, too.
    pub const LIMITS: u32 = 4;
    /// This process has shut the receiving side.
    pub const DEAF: u32 = 8;
    /// This process has shut the sending side.
    pub const MUTE: u32 = 16;
    /// This process has given it an address.
    pub const BOUND: u32 = 32;
    /// With a port.
    pub const PORT: u32 = 64;
    /// What is to be done again when its service was gone was asked for.
    pub const LASTS: u32 = 128;
    /// The service knows that urgent octets are written.
    pub const URGENT: u32 = 256;
}

static RECORDS: Slab<Record, 1024, 64> = Slab::new();
static USED: AtomicU32 = AtomicU32::new(0);
static FREE: AtomicU32 = AtomicU32::new(0);

fn record(number: u32) -> Option<&'static Record> {
    RECORDS.get(number as usize)
}

/// The record behind a descriptor.
fn of(fd: i32) -> Option<&'static Record> {
    record(table::served(fd)?)
}

/// A descriptor of the service's socket with this cookie.
fn descriptor(cookie: u64) -> Option<i32> {
    let of_stream = |number| record(number).map(|r| r.cookie.load(Relaxed));
    let mut found = None;
    table::each(|fd, entry| {
        let its = match entry {
            Entry::Served(number) => of_stream(number),
            Entry::Sock(s) => s.served().and_then(of_stream),
            Entry::Datagrams(number) => datagram::cookie(number),
            _ => None,
        };
        if its == Some(cookie) {
            found = Some(fd);
        }
    });
    found
}

/// A record for a socket, which no descriptor means yet. Under [`state::LIFE`].
fn new_record(service: u32, cookie: u64, family: i32, stage: u32) -> Option<u32> {
    let number = match FREE.load(Relaxed).checked_sub(1) {
        Some(free) => {
            FREE.store(record(free)?.next_free.load(Relaxed), Relaxed);
            free
        }
        None => {
            let next = USED.load(Relaxed);
            RECORDS.ensure(next as usize)?;
            USED.store(next + 1, Release);
            next
        }
    };
    let r = record(number)?;
    r.cookie.store(cookie, Relaxed);
    r.service.store(service, Relaxed);
    r.family.store(family as u32, Relaxed);
    r.told.store(0, Relaxed);
    r.error.store(0, Relaxed);
    r.heard.store(0, Relaxed);
    r.stage.store(stage, Release);
    Some(number)
}

/// A record that no descriptor came to mean. Under [`state::LIFE`].
fn discard(number: u32) {
    if let Some(r) = record(number) {
        r.recipe.give_up();
        r.stage.store(stage::UNKNOWN, Relaxed);
        r.cookie.store(0, Relaxed);
        r.next_free.store(FREE.swap(number + 1, Relaxed), Relaxed);
    }
}

/// epoll_ctl on a descriptor that is not followed: the set's descriptor and number.
pub fn registers(number: u32, set: (i32, u32), op: i32, fd: i32, event: Option<EpollEvent>) {
    let lasts = |r: &&Record| r.stage() == stage::AWAY || r.is_listening();
    let Some(r) = record(number).filter(lasts) else { return };
    if r.stage() != stage::AWAY && r.recipe.get().is_none() {
        r.is_to_last(None);
    }
    let Some(_life) = state::LIFE.lock(table::tid()) else { return };
    if let Some(recipe) = r.recipe.get() {
        recipe.registrations.note(set, op, fd, event);
    }
}

/// One more descriptor for a record. Under `state::LIFE`.
pub fn alias(fd: i32, number: u32) {
    if let Some(r) = record(number)
        && table::set_served(fd, number)
    {
        r.descriptors.fetch_add(1, AcqRel);
    }
}

/// A followed socket is this record's. Under `state::LIFE`.
pub fn attach(s: &Sock, number: u32) {
    if let Some(r) = record(number) {
        shown::name(&s.end().service, r.service.load(Relaxed));
        s.served.store(number + 1, Release);
        r.descriptors.fetch_add(1, AcqRel);
    }
}

/// The last descriptor of a followed socket is gone. Under `state::LIFE`.
pub fn detach(s: &Sock) {
    if let Some(number) = s.served.swap(0, AcqRel).checked_sub(1) {
        release(number);
    }
}

/// One descriptor less. Under `state::LIFE`.
pub fn release(number: u32) {
    if let Some(r) = record(number)
        && r.descriptors.fetch_sub(1, AcqRel) == 1
    {
        discard(number);
    }
}

/// Before the real close of `fd`. The service holds a connection that comes up, too: if this is the last descriptor of this process, it is told
/// that it need not.
pub fn close_begin(number: u32, fd: i32) {
    if let Some(r) = record(number)
        && r.stage() == stage::CONNECTING
        && r.descriptors.load(Relaxed) == 1
    {
        let said = r.question(Op::Say).number(LEVEL).number(LEFT).number(0);
        said.say(r.service(), r.heard.load(Relaxed), fd);
    }
}

/// Each socket of a stream whose state is to be asked for.
fn each_unknown(f: impl Fn(&'static Record)) {
    let is_unknown = |r: &&Record| r.descriptors.load(Relaxed) > 0 && r.stage() == stage::UNKNOWN;
    (0..USED.load(Acquire)).filter_map(record).filter(is_unknown).for_each(f);
}

/// The record of a socket that this process has already. Under [`state::LIFE`].
fn by_cookie(cookie: u64) -> Option<u32> {
    let is = |r: &Record| r.cookie.load(Relaxed) == cookie && r.descriptors.load(Relaxed) > 0;
    (0..USED.load(Acquire)).find(|number| record(*number).is_some_and(is))
}
