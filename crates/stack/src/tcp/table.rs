//! All of a stack's TCP: sockets, connections by their ends, listeners by their addresses, ports.
//!
//! A segment is looked for once, by the hash of its ends, among connections and what is left of them in TIME-WAIT; only where
//! there is none, listeners are asked.

use super::ends::Ends;
use super::holders::Holders;
use super::listener::Listener;
use super::parked::Parked;
use super::predict::Known;
use super::secret::Secret;
use super::tcb::{Connection, Settings, State};
use super::time_wait::Waits;
use super::users::Users;
use crate::egress::Hop;
use crate::event::Ready;
use crate::iface::IfaceId;
use crate::random::Random;
use crate::share::Whom;
use crate::socket::{SocketError, SocketId, TooMany};
use crate::time::{Instant, sooner};
use crate::timer::{TimerId, Timers};
use crate::udp::demux::Binding;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bypath_wire::TrafficClass;
use core::hash::BuildHasher as _;
use core::net::SocketAddr;
use core::time::Duration;
use foldhash::quality::FixedState;
use hashbrown::{HashMap, HashTable};

/// Bounds of a stack's TCP, and what connections begin with.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Sockets, connections that nobody has accepted yet, and connections that an application has left, at most.
    pub connections: usize,
    /// Connections that were asked for and are not open yet, of all listeners: beyond, cookies are sent. Linux's
    /// net.ipv4.tcp_max_syn_backlog.
    pub half_open: usize,
    /// Connections in TIME-WAIT: the oldest makes room. Linux's net.ipv4.tcp_max_tw_buckets.
    pub time_wait: usize,
    /// Connections that applications have left and that are not over: beyond, they are reset, but those of users who have left less than
    /// a 64th of it. Linux's net.ipv4.tcp_max_orphans.
    pub orphans: usize,
    /// Octets in the buffers of all connections: beyond, nothing is taken that needs more memory, but for the first 2048 octets of
    /// each buffer, so that each connection gets on, and for users who have less than a 64th of it. A buffer that grows may go beyond it
    /// once.
    pub octets: usize,
    /// What connections begin with. The MSS is that of the path, if it is smaller.
    pub settings: Settings,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            connections: 1 << 20,
            half_open: 4096,
            time_wait: 65_536,
            orphans: 65_536,
            octets: 1 << 30,
            settings: Settings { mss: u16::MAX, ..Settings::default() },
        }
    }
}

/// What a TCP socket wants beside [`Settings`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Routers that its packets may pass; `None`: as `Config` says.
    pub hop_limit: Option<u8>,
    /// Its packets' traffic class; the bits of ECN are the stack's.
    pub class: TrafficClass,
    /// It speaks through this interface only: SO_BINDTODEVICE.
    pub iface: Option<IfaceId>,
    /// IPV6_V6ONLY.
    pub only_v6: bool,
    /// SO_REUSEADDR: others who say so, too, may be bound to its port, unless one of them listens; connections keep what their listener says.
    pub reuse_address: bool,
    /// SO_REUSEPORT: others who say so, too, may listen to the same address; they share who comes.
    pub reuse_port: bool,
    /// Of a listener: who calls is not answered before [`Tcp::admit`](crate::Tcp::admit) says so, but can be accepted at once.
    pub admits: bool,
    /// SO_LINGER: what is not acknowledged so long after a close is given up with a reset; with no time at all it is given up at
    /// once. `None`: it is sent as long as the other side answers.
    pub linger: Option<Duration>,
}

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Application,
    /// Not open yet; of this listener.
    HalfOpen(SocketId),
    /// Open, and waits to be accepted.
    Queued,
    /// The application has it, and offers it to somebody who has not taken it yet.
    Offered,
    /// The application has left it, and it is counted.
    Orphan,
    /// It has only to end.
    Nobody,
}

/// The way to the other end, as long as nothing changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// Of the stack when it was found; 0: never.
    pub generation: u64,
    pub iface: IfaceId,
    pub hop: Hop,
    /// There is none: what is sent is lost.
    pub lost: bool,
}

impl Way {
    pub const UNKNOWN: Way = Way { generation: 0, iface: IfaceId::LOOPBACK, hop: Hop::None, lost: false };
}

/// Of a timer that is stopped.
pub(crate) const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// A connection, and what the stack knows of it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub connection: Connection,
    pub ends: Ends,
    pub options: Options,
    pub way: Way,
    pub owner: Owner,
    pub timer: Option<TimerId>,
    /// When that comes, which may be too early: [`NEVER`] if it is stopped.
    pub due: Instant,
    /// When what is acknowledged next shows that the neighbour is there: [`NEVER`] until something was.
    pub confirms: Instant,
    /// When it is over in any case.
    pub until: Option<Instant>,
    pub ready: Ready,
    /// It stands in the table of ends.
    pub entered: bool,
    /// It stands in a link's list of those that have something to say.
    pub listed: bool,
    /// It waits for a neighbour.
    pub parked: bool,
    /// A write found no room.
    pub blocked: bool,
    /// It was bound to its port before it was connected.
    pub bound: bool,
    /// The forwarder's: our end need not be ours.
    pub foreign: bool,
    /// For whom its octets count.
    pub user: Whom,
    /// It was just left, at a time that was not told: when it is over follows from the next time that is.
    pub left: bool,
    /// What the network said, which ends nothing.
    pub said: Option<SocketError>,
    /// Octets of its buffers, as they are counted.
    pub octets: usize,
    pub segments_in: u64,
    pub segments_out: u64,
}

/// A socket that is not connected.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    pub options: Options,
    pub binding: Option<Binding>,
    pub settings: Arc<Settings>,
    pub user: Whom,
}

#[derive(Debug)]
pub(crate) enum Place {
    Free,
    Idle(Box<Idle>),
    Listener(Box<Listener>),
    Connection(Box<Entry>),
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    place: Place,
}

/// Whose a pair of ends is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Connection(u32),
    Waiting(u32),
}

/// Connections of a port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    all: u32,
    /// Those without SO_REUSEADDR.
    pub alone: u32,
}

/// In the table of ends, numbers with this bit are places of [`Waits`].
const WAITING: u32 = 1 << 31;

/// All of it.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    ends: HashTable<u32>,
    pub waits: Waits,
    pub listeners: HashMap<SocketAddr, Vec<u32>, FixedState>,
    /// Sockets that were bound, by their ports.
    pub bound: HashMap<u16, Holders, FixedState>,
    /// Connections that a port has, those in TIME-WAIT included.
    pub used: HashMap<u16, Used, FixedState>,
    pub timers: Timers<u32>,
    /// Those that wait for a neighbour.
    pub parked: Parked,
    pub hash: FixedState,
    pub secret: Secret,
    /// What sockets begin with.
    pub settings: Arc<Settings>,
    pub forwarder: Option<SocketId>,
    /// Connections that came to the forwarder.
    pub foreign: usize,
    pub half_open: usize,
    pub orphans: usize,
    /// Octets of buffers.
    pub octets: usize,
    /// Whose they are.
    pub users: Users,
    /// The last time that was told.
    pub clock: Instant,
    /// Whose the segment was that came last.
    pub last: Option<u32>,
    pub known: Known,
}

impl Table {
    pub fn new(random: &mut Random, config: &Config) -> Table {
        let mut hash = || FixedState::with_seed(random.next_u64());
        Table {
            slots: Vec::new(),
            free: Vec::new(),
            ends: HashTable::new(),
            waits: Waits::default(),
            listeners: HashMap::with_hasher(hash()),
            bound: HashMap::with_hasher(hash()),
            used: HashMap::with_hasher(hash()),
            timers: Timers::default(),
            parked: Parked::new(hash()),
            users: Users::new(config),
            hash: hash(),
            secret: Secret::new(random),
            settings: Arc::new(config.settings),
            forwarder: None,
            foreign: 0,
            half_open: 0,
            orphans: 0,
            octets: 0,
            clock: Instant::ZERO,
            last: None,
            known: Known::default(),
        }
    }

    // Sockets by their place.

    /// Sockets, and connections without.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn insert(&mut self, most: usize, place: Place) -> Result<u32, TooMany> {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize].place = place;
            return Ok(index);
        }
        let most = most.min(WAITING as usize);
        if self.slots.len() >= most {
            return Err(TooMany { most });
        }
        self.slots.push(Slot { generation: 0, place });
        Ok((self.slots.len() - 1) as u32)
    }

    /// As many places as there ever were sockets at once.
    pub fn places(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Whether one more fits.
    pub fn has_room(&self, most: usize) -> bool {
        !self.free.is_empty() || self.slots.len() < most.min(WAITING as usize)
    }

    /// Takes a socket out of its place; the place's ids are nobody's from now on.
    pub fn remove(&mut self, index: u32) -> Place {
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let place = core::mem::replace(&mut slot.place, Place::Free);
        // A place whose numbers are used up stays empty.
        if slot.generation < u32::MAX {
            self.free.push(index);
        }
        place
    }

    /// The ids of a place are nobody's from now on; what is there stays.
    pub fn forget_id(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
    }

    pub fn id(&self, index: u32) -> SocketId {
        SocketId::of_tcp(index, self.slots[index as usize].generation)
    }

    /// The place of a socket that is open.
    pub fn index(&self, id: SocketId) -> Option<u32> {
        let (index, generation) = id.tcp()?;
        let slot = self.slots.get(index as usize).filter(|slot| slot.generation == generation)?;
        (!matches!(slot.place, Place::Free)).then_some(index)
    }

    pub fn place(&self, index: u32) -> &Place {
        self.slots.get(index as usize).map_or(&Place::Free, |slot| &slot.place)
    }

    pub fn place_mut(&mut self, index: u32) -> Option<&mut Place> {
        self.slots.get_mut(index as usize).map(|slot| &mut slot.place)
    }

    pub fn entry(&self, index: u32) -> Option<&Entry> {
        match self.place(index) {
            Place::Connection(entry) => Some(entry),
            _ => None,
        }
    }

    #[inline]
    pub fn entry_mut(&mut self, index: u32) -> Option<&mut Entry> {
        match &mut self.slots.get_mut(index as usize)?.place {
            Place::Connection(entry) => Some(entry),
            _ => None,
        }
    }

    pub fn listener(&self, index: u32) -> Option<&Listener> {
        match self.place(index) {
            Place::Listener(listener) => Some(listener),
            _ => None,
        }
    }

    pub fn listener_mut(&mut self, index: u32) -> Option<&mut Listener> {
        match self.place_mut(index)? {
            Place::Listener(listener) => Some(listener),
            _ => None,
        }
    }

    /// What a socket has to tell.
    pub fn ready_mut(&mut self, id: SocketId) -> Option<&mut Ready> {
        let index = self.index(id)?;
        match self.place_mut(index)? {
            Place::Connection(entry) => Some(&mut entry.ready),
            Place::Listener(listener) => Some(&mut listener.ready),
            Place::Idle(_) | Place::Free => None,
        }
    }

    // Connections by their ends.

    /// Whose these ends are.
    #[inline]
    pub fn find(&self, ends: &Ends) -> Option<Whose> {
        let hash = self.hash.hash_one(ends);
        let found = *self.ends.find(hash, |at| self.ends_of(*at) == Some(ends))?;
        Some(if found & WAITING == 0 { Whose::Connection(found) } else { Whose::Waiting(found & !WAITING) })
    }

    fn ends_of(&self, at: u32) -> Option<&Ends> {
        if at & WAITING == 0 {
            self.entry(at).map(|entry| &entry.ends)
        } else {
            self.waits.get(at & !WAITING).map(|waiting| &waiting.ends)
        }
    }

    /// Segments between these ends are for it from now on. They must be nobody's.
    pub fn enter(&mut self, whose: Whose) {
        let at = match whose {
            Whose::Connection(index) => index,
            Whose::Waiting(place) => place | WAITING,
        };
        let Some(&ends) = self.ends_of(at) else { return };
        let mut table = core::mem::take(&mut self.ends);
        table.insert_unique(self.hash.hash_one(ends), at, |at| {
            self.ends_of(*at).map_or(0, |ends| self.hash.hash_one(ends))
        });
        self.ends = table;
        let alone = self.is_alone(at);
        let used = self.used.entry(ends.local_port).or_default();
        (used.all, used.alone) = (used.all + 1, used.alone + u32::from(alone));
    }

    /// Segments between these ends are nobody's from now on.
    pub fn strike(&mut self, ends: &Ends) {
        self.known.generation = 0;
        let mut table = core::mem::take(&mut self.ends);
        if let Ok(found) = table.find_entry(self.hash.hash_one(ends), |at| self.ends_of(*at) == Some(ends)) {
            let (at, _) = found.remove();
            self.leave_port(ends.local_port, self.is_alone(at));
        }
        self.ends = table;
    }

    /// What is left of a connection goes.
    pub fn forget_waiting(&mut self, place: u32) {
        if let Some(ends) = self.waits.get(place).map(|waiting| waiting.ends) {
            self.strike(&ends);
            self.waits.remove(place);
        }
    }

    // Ports.

    /// Whether what stands in the table of ends has its port without SO_REUSEADDR.
    fn is_alone(&self, at: u32) -> bool {
        if at & WAITING == 0 {
            self.entry(at).is_some_and(|entry| !entry.options.reuse_address)
        } else {
            self.waits.get(at & !WAITING).is_some_and(|waiting| !waiting.reuse_address)
        }
    }

    /// A connection does not use a port any more.
    fn leave_port(&mut self, port: u16, alone: bool) {
        if let Some(used) = self.used.get_mut(&port) {
            (used.all, used.alone) = (used.all - 1, used.alone - u32::from(alone));
            if used.all == 0 {
                self.used.remove(&port);
            }
        }
    }

    /// What uses its port without SO_REUSEADDR: for [`Stack::contradiction`](crate::Stack::contradiction).
    pub fn alone(&self) -> usize {
        self.ends.iter().filter(|at| self.is_alone(**at)).count()
    }

    /// A connection wants something else.
    pub fn set_options(&mut self, index: u32, options: Options) {
        let Some(entry) = self.entry_mut(index) else { return };
        let before = core::mem::replace(&mut entry.options, options).reuse_address;
        let (port, counts) = (entry.ends.local_port, entry.entered && before != options.reuse_address);
        if let Some(used) = self.used.get_mut(&port).filter(|_| counts) {
            used.alone = if before { used.alone + 1 } else { used.alone - 1 };
        }
    }

    /// A socket is not bound any more.
    pub fn release(&mut self, index: u32) {
        let Some(port) = self.binding(index).map(|binding| binding.local.port()) else { return };
        if self.bound.get_mut(&port).is_some_and(|all| !all.remove(index)) {
            self.bound.remove(&port);
        }
    }

    /// How a socket was bound, if it was.
    pub fn binding(&self, index: u32) -> Option<Binding> {
        match self.place(index) {
            Place::Free => None,
            Place::Idle(idle) => idle.binding,
            Place::Listener(listener) => Some(listener.binding),
            Place::Connection(entry) => entry.bound.then(|| entry.here()),
        }
    }

    /// When something is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let waits = self.waits.first().map(|(_, waiting)| waiting.until);
        sooner(self.timers.next(), waits)
    }
}

impl Entry {
    pub fn new(connection: Connection, ends: Ends, options: Options, owner: Owner) -> Entry {
        Entry {
            connection,
            ends,
            options,
            way: Way::UNKNOWN,
            owner,
            timer: None,
            due: NEVER,
            confirms: NEVER,
            until: None,
            ready: Ready::default(),
            entered: false,
            listed: false,
            parked: false,
            blocked: false,
            bound: false,
            foreign: false,
            user: 0,
            left: false,
            said: None,
            octets: 0,
            segments_in: 0,
            segments_out: 0,
        }
    }

    /// How it has its port.
    pub fn here(&self) -> Binding {
        Binding {
            iface: self.options.iface,
            only_v6: self.options.only_v6,
            reuse_address: self.options.reuse_address,
            reuse_port: self.options.reuse_port,
            ..Binding::new(self.ends.local())
        }
    }

    /// Nothing is left to be done with it but to be forgotten.
    pub fn is_over(&self) -> bool {
        let left = matches!(self.owner, Owner::Orphan | Owner::Nobody);
        let silent = !self.listed && !self.parked && !self.connection.wants_transmit();
        left && silent && self.connection.state() == State::Closed
    }
}

/// Puts a socket on the list of those that are ready, unless it is there.
pub(crate) fn tell(
    ready: &mut Ready,
    id: SocketId,
    list: &mut VecDeque<SocketId>,
    change: impl FnOnce(&mut Ready),
) {
    let was = *ready;
    change(ready);
    if was == Ready::default() && *ready != was {
        list.push_back(id);
    }
}
