//! The processes we share memory with: arenas, their bells, the control channel.

mod descriptors;
mod parents;
mod record;
mod shares;

pub use descriptors::{descriptors, owns, take_again, take_nothing};
pub use parents::let_go_of_parents;
use record::{ArenaRecord, ConnSlot};
use shares::Who;
pub use shares::{Kept, Share};

use crate::rendezvous::errno_reason;
use crate::thread::Record;
use crate::{numbers, others, state};
use bypath_shm::arena::{Control, Geometry, slot_use};
use bypath_shm::direction::Direction;
use bypath_shm::family::bell;
use bypath_shm::inbox::Inbox;
use bypath_shm::reason::Reason;
use bypath_shm::region::{self, Arena, Slab, StaticCell};
use bypath_shm::ring::Ring;
use bypath_sys::{Result, fd, poll, process, strangers, unix};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};

/// Set in a bell number that belongs to an epoll set: the waker marks the inbox and rings only if the set
/// has a sleeper. A thread's bell is always rung.
pub const EPOLL_BELL: u32 = bypath_shm::inbox::MARKED_BELL;

const BELL_PLACES: usize = 256;
/// Messages about bells that are sent more than once, of a pair.
const MOST_TOLD_AGAIN: u32 = 8;
/// Arenas one pair can have.
const ARENAS: usize = 8;

static PEERS: Slab<Peer, 4096, 1> = Slab::new();
static PEERS_USED: AtomicU32 = AtomicU32::new(0);

/// One process at the other end of connections.
#[derive(Debug)]
pub struct Peer {
    /// In use by this process.
    pub alive: AtomicBool,
    /// Random name of the pair, agreed at its first rendezvous.
    pub pair: AtomicU64,
    /// Random name of the process. It tells it to whom it meets: alone it proves nothing.
    pub token: AtomicU64,
    /// Who the kernel says has the other end of `control`: see [`process_behind`]. 0 = it does not tell.
    process: AtomicU64,
    /// And its user then.
    user: AtomicU32,
    /// 0 = we dialled the control channel, 1 = we accepted it: a process that talks to itself has both.
    pub side: AtomicU32,
    /// The SEQPACKET socket to it.
    pub control: AtomicI32,
    /// Its inbox.
    pub inbox: StaticCell<Inbox>,
    /// Its bells: {number << 32 | descriptor}, open addressing by number.
    bells: [AtomicU64; BELL_PLACES],
    /// How many.
    bell_count: AtomicU32,
    /// Our bells that it knows, by number.
    told: [AtomicU64; bypath_shm::inbox::BELLS / 64],
    /// How often one was told again.
    told_again: AtomicU32,
    /// It is this very process.
    pub is_self: AtomicBool,
    /// It was another user's when the pair was begun, and is no netstack service, which is trusted.
    pub is_doubted: AtomicBool,
    /// A child that may become another user has its memory, too: no new connection goes there.
    left: AtomicBool,
    /// Processes that were forked from this one, or this one was from, may use it as well.
    shared: AtomicBool,
    /// Arenas that we created (we hand out the slots) and that it created.
    ours: [ArenaRecord; ARENAS],
    theirs: [ArenaRecord; ARENAS],
    /// Connections of this pair that are mapped now.
    pub connections: AtomicU32,
    /// Slots that it has given us, as often as it did.
    given: AtomicU32,
    /// The process (its token) whose pair it is: forked children inherit mappings, and cannot receive bells.
    owner: AtomicU64,
}

impl Default for Peer {
    fn default() -> Self {
        Peer {
            alive: AtomicBool::new(false),
            pair: AtomicU64::new(0),
            token: AtomicU64::new(0),
            process: AtomicU64::new(0),
            user: AtomicU32::new(0),
            side: AtomicU32::new(0),
            control: AtomicI32::new(-1),
            inbox: StaticCell::new(),
            bells: std::array::from_fn(|_| AtomicU64::new(0)),
            bell_count: AtomicU32::new(0),
            told: std::array::from_fn(|_| AtomicU64::new(0)),
            told_again: AtomicU32::new(0),
            is_self: AtomicBool::new(false),
            is_doubted: AtomicBool::new(false),
            left: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            ours: std::array::from_fn(|_| ArenaRecord::default()),
            theirs: std::array::from_fn(|_| ArenaRecord::default()),
            connections: AtomicU32::new(0),
            given: AtomicU32::new(0),
            owner: AtomicU64::new(0),
        }
    }
}

/// Slots that this process has left to others of the family.
static LEFT: AtomicU32 = AtomicU32::new(0);
/// Of those, how many the kernel is asked about at once, and which ones are next.
const ASKED: u32 = 16;
static NEXT_ASKED: AtomicU32 = AtomicU32::new(0);

/// A mapped connection: where its rings and control lines are, seen from this end.
#[derive(Debug)]
pub struct Conn {
    /// The process at the other end.
    pub peer: &'static Peer,
    /// Its control page.
    pub control: &'static Control,
    /// 0 = we dialled, 1 = we accepted; also the index of our outgoing direction.
    pub role: usize,
    /// Outgoing ring.
    pub tx: Ring,
    /// Incoming ring.
    pub rx: Ring,
    arena: &'static Arena,
    record: &'static ArenaRecord,
    slot: u32,
    place: &'static ConnSlot,
}

impl Conn {
    /// Inode of the arena, and the slot there.
    pub fn location(&self) -> (u64, u32) {
        (self.record.inode(), self.slot)
    }

    /// Outgoing direction.
    #[inline]
    pub fn out(&self) -> &'static Direction {
        &self.control.direction[self.role]
    }

    /// Incoming direction.
    #[inline]
    pub fn inc(&self) -> &'static Direction {
        &self.control.direction[1 - self.role]
    }

    /// Wakes the other end's sleeper behind `bell`; false if that bell is not known, or cannot be rung.
    pub fn ring(&self, bell: u32) -> bool {
        self.ring_by(bell, others::ring_at_once)
    }

    /// The same where nothing else wakes it.
    pub fn ring_all_the_same(&self, bell: u32) {
        let user = self.peer.user.load(Relaxed);
        self.ring_by(bell, |fd| {
            others::ring_all_the_same(fd, user);
            true
        });
    }

    fn ring_by(&self, bell: u32, ring: impl Fn(i32) -> bool) -> bool {
        let number = bell & !EPOLL_BELL;
        let Some(fd) = self.peer.bell(number) else { return false };
        if bell & EPOLL_BELL == 0 {
            return ring(fd);
        }
        let Some(inbox) = self.peer.inbox.get() else { return false };
        inbox.mark(self.control.ends[1 - self.role].load(Relaxed));
        // SeqCst in mark and here: mark-then-look against the sleeper's announce-then-look.
        let Some(asleep) = inbox.asleep.get(number as usize) else { return false };
        let ticket = asleep.load(SeqCst);
        if ticket != 0 {
            if !ring(fd) {
                return false;
            }
            let _ = asleep.compare_exchange(ticket, 0, AcqRel, Relaxed);
        }
        true
    }

    /// Marks the connection in the other process's inbox and wakes any of its sleepers: somebody there must
    /// look at what we ask.
    pub fn demand_attention(&self) {
        let Some(inbox) = self.peer.inbox.get() else { return };
        inbox.mark(self.control.ends[1 - self.role].load(Relaxed));
        // Who sleeps has told its bell, but where no bytes have rung it nobody has taken the message yet.
        self.peer.read_control();
        for place in &self.peer.bells {
            let entry = place.load(Acquire);
            if entry == 0 {
                continue;
            }
            let number = (entry >> 32) as usize;
            if inbox.asleep.get(number).is_some_and(|a| a.load(SeqCst) != 0) {
                others::ring_all_the_same(entry as u32 as i32, self.peer.user.load(Relaxed));
                return;
            }
        }
    }

    /// Tells the other process about a bell of ours before a wait word names it; false if it cannot be told.
    #[inline]
    pub fn tell_bell(&self, number: u32, bell_fd: i32) -> bool {
        let place = &self.peer.told[number as usize / 64 % self.peer.told.len()];
        let bit = 1u64 << (number % 64);
        if place.load(Acquire) & bit != 0 {
            return true;
        }
        let message = crate::rendezvous::bell_message(number);
        if unix::send(self.peer.control.load(Acquire), &message, &[bell_fd]).is_err() {
            return false;
        }
        place.fetch_or(bit, SeqCst);
        // Told first, looked at second: whoever forks marks it the other way round.
        if self.peer.shared.load(SeqCst) {
            keep_number(number);
        }
        true
    }

    /// A wake by the bell `number` did not come. The other end may be shared, and another process of its family may have
    /// taken the message: it is told again, a limited number of times, as nobody may be there to take it.
    #[cold]
    pub fn tell_again(&self, number: u32) {
        if self.peer.told_again.fetch_add(1, Relaxed) < MOST_TOLD_AGAIN {
            let place = &self.peer.told[number as usize / 64 % self.peer.told.len()];
            place.fetch_and(!(1u64 << (number % 64)), AcqRel);
        }
    }

    /// A thread's bell, created and told if need be; `None` = the other end cannot wake us.
    pub fn bell_for(&self, thread: &Record) -> Option<(u32, i32)> {
        let (number, fd) = thread.ensure_bell().ok()?;
        self.tell_bell(number, fd).then_some((number, fd))
    }

    /// Gives a slot back that was handed out to an end which never heard of it.
    pub fn take_back(&self) {
        self.control.in_use.fetch_and(!slot_use::DIALLER, AcqRel);
        self.release();
    }

    /// Gives the slot back. The caller has made sure that no thread of this process uses it any more.
    pub fn release(&self) {
        let mine = if self.role == 1 { slot_use::ACCEPTER } else { slot_use::DIALLER };
        let before = self.control.in_use.fetch_and(!mine, AcqRel);
        if before & !mine == 0 && !others::any() {
            self.arena.release_rings(self.slot);
        }
        self.peer.connections.fetch_sub(1, AcqRel);
        self.place.busy.store(false, Release);
    }

    /// This process has closed its socket, the end `number`, while others of its family go on with it: whoever of them closes it last, or
    /// dies with it, cannot give the slot back, as it counts in this process. [`sweep`] does then. Called under [`state::LIFE`].
    pub fn leave_to_others(&self, number: u32, generation: u32) {
        self.place.left.store(u64::from(generation) << 32 | u64::from(number + 1), Relaxed);
        LEFT.fetch_add(1, Relaxed);
    }
}

/// Gives back slots of sockets that were left to others of the family, and that nobody holds any more. Called under [`state::LIFE`].
fn reclaim() {
    if LEFT.load(Relaxed) == 0 {
        return;
    }
    let Some(family) = state::get().map(|state| state.family) else { return };
    let arenas = live().flat_map(|peer| peer.ours.iter().chain(&peer.theirs));
    let places = arenas.filter_map(|record| record.conns.get()).flat_map(|slots| slots.0);
    let left = places.filter(|place| place.left.load(Relaxed) != 0);
    // The kernel is asked about few of them each time, and each time about others.
    let from = NEXT_ASKED.fetch_add(ASKED, Relaxed) % LEFT.load(Relaxed).max(1);
    let mut is_quiet = None;
    for (n, place) in (0..).zip(left) {
        let word = place.left.load(Relaxed);
        let asks = (from..from + ASKED).contains(&n);
        if !numbers::is_over(family, word as u32 - 1, (word >> 32) as u32, asks) {
            continue;
        }
        // A thread of this process may have been inside a call on it when it was closed.
        if !*is_quiet.get_or_insert_with(crate::thread::quiesce) {
            return;
        }
        place.left.store(0, Relaxed);
        LEFT.fetch_sub(1, Relaxed);
        if let Some(conn) = place.conn.get() {
            conn.release();
        }
    }
}

/// In a forked child: what its parent has left is the parent's to look after.
pub fn enter_child() {
    LEFT.store(0, Relaxed);
    others::enter_child();
}

impl Peer {
    /// Whether it is the pair of a process that this one was forked from. Connections over it stay usable.
    fn is_inherited(&self) -> bool {
        !state::is_own_token(self.owner.load(Relaxed))
    }

    /// Takes what waits on the control channel. Processes that share it take what the other one may miss: see
    /// [`Conn::tell_again`].
    pub fn read_control(&self) {
        if state::is_borrowed() {
            // A vfork child would have the bells, which the owner of this memory takes for its own.
            return;
        }
        let control = self.control.load(Acquire);
        let mut message = [0u8; crate::rendezvous::MESSAGE_SIZE];
        for _ in 0..64 {
            if strangers::is_busy() {
                return;
            }
            match unix::recv(control, &mut message, state::floor()) {
                Ok(Some(r)) if r.len > 0 => crate::rendezvous::control_message(self, &message[..r.len], &r),
                _ => return,
            }
        }
    }

    /// Whose process it was when the pair was begun.
    pub fn user(&self) -> u32 {
        self.user.load(Relaxed)
    }

    /// Whether the socket leads to the process of this pair. Its user may be another one by now.
    pub fn is_behind(&self, s: i32) -> bool {
        let (process, _) = process_behind(s);
        process != 0 && process == self.process.load(Relaxed)
    }

    /// Whether the process at the other end is gone.
    fn is_gone(&self) -> bool {
        poll::now(self.control.load(Acquire), libc::POLLIN | libc::POLLRDHUP)
            & (libc::POLLHUP | libc::POLLRDHUP | libc::POLLERR | libc::POLLNVAL)
            != 0
    }

    fn conn_at(
        &'static self,
        record: &'static ArenaRecord,
        slot: u32,
        role: usize,
    ) -> Option<(&'static Conn, &'static ConnSlot)> {
        let arena = record.arena.get()?;
        let place = record.conns.get()?.0.get(slot as usize)?;
        if let Some(c) = place.conn.get() {
            return Some((c, place));
        }
        let conn = Conn {
            peer: self,
            control: arena.control(slot).ok()?,
            role,
            tx: arena.ring(slot, role).ok()?,
            rx: arena.ring(slot, 1 - role).ok()?,
            arena,
            record,
            slot,
            place,
        };
        // A page per connection record would be dear: records are carved from shared chunks.
        let conn = crate::peer::keep(conn)?;
        place.conn.set(Some(conn));
        Some((conn, place))
    }
}

/// Some pair is not [`Peer::shared`] yet.
static UNSHARED: AtomicBool = AtomicBool::new(false);
/// Some pair is not left yet.
static UNLEFT: AtomicBool = AtomicBool::new(false);
/// As which user threads have begun the connections of those pairs.
static USER: AtomicU32 = AtomicU32::new(u32::MAX);

/// Before a thread names this process to another one, or takes a pair: a pair carries connections of one user's threads alone. What another user's
/// thread forks is that user's, and has the memory of those pairs. Called under [`state::LIFE`].
pub fn begin() {
    let user = process::euid();
    if USER.swap(user, Relaxed) != user {
        leave();
    }
}

/// No connection comes to the pairs that there are: others have their memory, or will.
fn leave() {
    if !UNLEFT.swap(false, Relaxed) {
        return;
    }
    if let Some(state) = state::get() {
        state.rename();
    }
    live().for_each(|p| p.left.store(true, Relaxed));
}

/// Before a fork: pairs are used by two processes from now on. What the other end was told of this one's bells it
/// remembers for as long as the child lives.
pub fn forking() {
    // Whatever an earlier fork was: this thread may have other rights than that one had then.
    if UNLEFT.load(Relaxed) && (process::may_become_another_user() || USER.load(Relaxed) != process::euid()) {
        leave();
    }
    if !UNSHARED.swap(false, Relaxed) {
        return;
    }
    for p in live().filter(|p| !p.shared.load(Relaxed)) {
        p.shared.store(true, SeqCst);
        for (word, set) in p.told.iter().enumerate() {
            let mut told = set.load(SeqCst);
            while told != 0 {
                keep_number(word as u32 * 64 + told.trailing_zeros());
                told &= told - 1;
            }
        }
    }
}

/// The number of a bell of ours is not used again.
fn keep_number(number: u32) {
    if let Some(bell) = state::get().and_then(|state| state.family.bells.get(number as usize)) {
        bell.fetch_or(bell::LASTING, AcqRel);
    }
}

/// Connection records, by running number.
static CONNS: Slab<KeptConn, 4096, 64> = Slab::new();
static CONNS_USED: AtomicU32 = AtomicU32::new(0);

#[derive(Debug, Default)]
struct KeptConn(std::sync::OnceLock<Conn>);

fn keep(conn: Conn) -> Option<&'static Conn> {
    let i = CONNS_USED.fetch_add(1, AcqRel) as usize;
    let place = CONNS.ensure(i)?;
    Some(place.0.get_or_init(|| conn))
}

/// A slot handed out by us (the accepting side).
pub struct Allocated {
    /// The connection, on the kernel path in both directions.
    pub conn: &'static Conn,
    /// Index of the arena among ours.
    pub arena: u32,
    /// Slot number.
    pub slot: u32,
    /// Geometry of the arena.
    pub geometry: Geometry,
    /// Descriptor of the arena; it stays ours.
    pub arena_fd: i32,
}

fn live() -> impl Iterator<Item = &'static Peer> {
    (0..PEERS_USED.load(Acquire))
        .filter_map(|i| PEERS.get(i as usize))
        .filter(|p| p.alive.load(Acquire) && !p.is_inherited())
}

/// Process and user at the other end of an AF_UNIX socket, as the kernel knows them: by a number that no other process ever has, or where there is
/// none (before Linux 6.9) the process id, which comes again. 0 where it is not seen from here, either: that is nobody whom one would meet again.
fn process_behind(s: i32) -> (u64, u32) {
    const NUMBER: u64 = 1 << 63;
    match unix::peer_credentials(s) {
        Err(_) => (0, 0),
        Ok(c) => (unix::peer_process(s).map_or(c.pid.into(), |number| number | NUMBER), c.uid),
    }
}

/// A pair with the process `token`, which has called by `caller`, whose control channel works; we accept a connection over
/// it. Another process that says the same name is another one. Called under [`state::LIFE`].
pub fn to_process(token: u64, caller: i32) -> Option<&'static Peer> {
    let own = state::get()?.own().name.load(Relaxed) == token;
    let (process, user) = process_behind(caller);
    live().find(|p| {
        !p.left.load(Relaxed)
            && p.token.load(Relaxed) == token
            && process != 0
            && (p.process.load(Relaxed), p.user.load(Relaxed)) == (process, user)
            && (!own || p.side.load(Relaxed) == 1)
            && !p.is_gone()
    })
}

/// The pair of this name seen from `side`. Called under [`state::LIFE`].
pub fn by_pair(pair: u64, side: u32) -> Option<&'static Peer> {
    live()
        .find(|p| p.pair.load(Relaxed) == pair && (!p.is_self.load(Relaxed) || p.side.load(Relaxed) == side))
}

/// A new pair that owns `control`, with the inbox that is mapped from `inbox`. Called under [`state::LIFE`].
///
/// # Errors
/// `PeerMemoryInvalid`: it is none. `NoMemory`: there is no place for it. Those of [`others::admit`]. `NoDescriptors`: who has
/// it has as many here as are left for others.
pub fn add(
    pair: u64,
    token: u64,
    side: u32,
    control: i32,
    inbox: i32,
) -> std::result::Result<&'static Peer, Reason> {
    others::admit(control).map_err(errno_reason)?;
    if state::is_own_inbox(inbox) && !unix::is_of_this_process(control) {
        // What is marked there for the other end this process would look at, and mark again.
        return Err(Reason::PeerMemoryInvalid);
    }
    let (process, user) = process_behind(control);
    shares::admit(Who { process, user }, 0).map_err(errno_reason)?;
    let peer = add_service(pair, token, side, control, inbox)?;
    peer.is_doubted.store(user != process::euid(), Relaxed);
    Ok(peer)
}

/// The same with a netstack service, which is trusted whoever runs it.
///
/// # Errors
/// As [`add`].
pub fn add_service(
    pair: u64,
    token: u64,
    side: u32,
    control: i32,
    inbox: i32,
) -> std::result::Result<&'static Peer, Reason> {
    let own = state::get().ok_or(Reason::NoMemory)?.own();
    let used = PEERS_USED.load(Acquire);
    let i =
        (0..used).find(|&i| PEERS.get(i as usize).is_some_and(|p| !p.alive.load(Acquire))).unwrap_or(used);
    let peer = PEERS.ensure(i as usize).ok_or(Reason::NoMemory)?;
    // Who had this place before has left nothing here. If he had, it were memory of his in the middle of another pair.
    peer.empty(false);
    for w in &peer.told {
        w.store(0, Relaxed);
    }
    peer.told_again.store(0, Relaxed);
    let inbox = region::map_inbox(inbox).map_err(|_| Reason::PeerMemoryInvalid)?;
    peer.pair.store(pair, Relaxed);
    peer.token.store(token, Relaxed);
    let (process, user) = process_behind(control);
    peer.process.store(process, Relaxed);
    peer.user.store(user, Relaxed);
    peer.side.store(side, Relaxed);
    peer.control.store(control, Relaxed);
    peer.inbox.set(Some(inbox));
    peer.owner.store(own.token.load(Relaxed), Relaxed);
    peer.is_self.store(token == own.name.load(Relaxed), Relaxed);
    peer.is_doubted.store(false, Relaxed);
    peer.left.store(false, Relaxed);
    peer.connections.store(0, Relaxed);
    peer.given.store(0, Relaxed);
    peer.shared.store(false, Relaxed);
    UNSHARED.store(true, Relaxed);
    UNLEFT.store(true, Relaxed);
    peer.alive.store(true, Release);
    PEERS_USED.fetch_max(i + 1, AcqRel);
    Ok(peer)
}

/// Forgets peers that are gone, or were left, and carry no connection any more, and gives slots back that others of the family have used last. Called
/// under [`state::LIFE`], now and then.
pub fn sweep() {
    reclaim();
    let gone = |p: &&'static Peer| {
        p.alive.load(Acquire)
            && p.connections.load(Acquire) == 0
            && !p.is_inherited()
            && (p.left.load(Relaxed) || p.is_gone())
    };
    let any = (0..PEERS_USED.load(Acquire)).filter_map(|i| PEERS.get(i as usize)).any(|p| gone(&p));
    if !any || !crate::thread::quiesce() {
        return;
    }
    for p in (0..PEERS_USED.load(Acquire)).filter_map(|i| PEERS.get(i as usize)).filter(gone) {
        let is_gone = p.is_gone();
        p.empty(is_gone);
        p.alive.store(false, Release);
    }
}

impl Peer {
    /// Gives up a pair that was just added, and all that was mapped for it: no other thread has seen any of it. Its control socket
    /// stays the caller's.
    pub fn disown(&self) {
        self.control.store(-1, Release);
        self.empty(false);
        self.alive.store(false, Release);
    }

    /// Lets go of everything: what stays would be the next process's that has this place.
    fn empty(&self, is_gone: bool) {
        // Who was forked from here may have a connection over it still.
        let for_all = strangers::close_caller;
        self.close_descriptors(if is_gone { for_all } else { |control| strangers::close(&[control]) });
        if let Some(inbox) = self.inbox.get() {
            region::let_go_of_inbox(inbox);
        }
        self.inbox.set(None);
        for record in self.ours.iter().chain(&self.theirs) {
            record.empty(is_gone);
        }
    }

    /// Hands out a slot of ours with rings of `ring` bytes. Called under [`state::LIFE`].
    ///
    /// # Errors
    /// ENOMEM, EMFILE, ENOSPC (too many arenas).
    pub fn allocate(&'static self, ring: u32) -> Result<Allocated> {
        for (i, record) in self.ours.iter().enumerate() {
            let Some(arena) = record.arena.get() else {
                let slots = [16u32, 64, 256, 1024, 4096, 4096, 4096, 4096][i];
                let geometry = Geometry { slots, ring };
                self.may_have_more()?;
                let arena_fd = Arena::memory(geometry, state::floor())?;
                record.fill(arena_fd, geometry).inspect_err(|_| fd::close(arena_fd))?;
                record.fd.store(arena_fd + 1, Release);
                return self.take(record, i, 0).ok_or(bypath_sys::Errno::NOSPC);
            };
            if arena.geometry.ring != ring {
                continue;
            }
            for slot in 0..arena.geometry.slots {
                if let Some(a) = self.take(record, i, slot) {
                    return Ok(a);
                }
            }
        }
        Err(bypath_sys::Errno::NOSPC)
    }

    fn take(&'static self, record: &'static ArenaRecord, arena: usize, slot: u32) -> Option<Allocated> {
        record.open(slot + 1).ok()?;
        let (conn, place) = self.conn_at(record, slot, 1)?;
        // Our own word first; the peer's bit is its own business, a lie costs it its own connections.
        if place.busy.load(Acquire) || conn.control.in_use.load(Acquire) != 0 {
            return None;
        }
        place.busy.store(true, Release);
        conn.control.begin();
        self.connections.fetch_add(1, AcqRel);
        Some(Allocated {
            conn,
            arena: arena as u32,
            slot,
            geometry: conn.arena.geometry,
            arena_fd: record.fd.load(Acquire) - 1,
        })
    }

    /// Whether no connection comes to it any more: others have its memory, or this process has other rights now.
    pub fn is_left(&self) -> bool {
        self.left.load(Relaxed)
    }

    /// Whether a peer that hands out the first slot that is free, as [`allocate`](Peer::allocate) does, can have come to this one, while so
    /// many other calls of ours to it are under way: each slot before it was given us once, or was lost on the way. What lies there serves
    /// nobody and costs a liar nothing, but this process all of its memory once it locks what it has mapped (mlockall(2)).
    pub fn may_give(&self, arena: u32, slot: u32, calls: impl FnOnce() -> u32) -> bool {
        /// Answers that were lost are not counted: there may be some, of all pairs with a user, and where they become many as many as came.
        const LOST: u64 = 16;
        let given = u64::from(self.given.load(Relaxed)) + 1;
        let before = self.opened();
        let more = self
            .theirs
            .get(arena as usize)
            .map_or(0, |record| slot.saturating_add(1).saturating_sub(record.opened.load(Relaxed)));
        if before + u64::from(more) <= 2 * given {
            return true;
        }
        let user = self.user.load(Relaxed);
        let (opened, all) =
            live().filter(|p| p.user.load(Relaxed) == user).fold((0, 1), |(opened, given), p| {
                (opened + p.opened(), given + u64::from(p.given.load(Relaxed)))
            });
        opened + u64::from(more) <= 2 * (all + u64::from(calls())) + LOST
    }

    /// Slots of the other side's that can be touched.
    fn opened(&self) -> u64 {
        self.theirs.iter().map(|record| u64::from(record.opened.load(Relaxed))).sum()
    }

    /// Takes a slot that the peer handed out; `arena_fd` (>= 0) is an arena that we do not know yet.
    /// Called under [`state::LIFE`].
    ///
    /// # Errors
    /// EINVAL for anything a correct peer does not say.
    pub fn accept_slot(
        &'static self,
        arena: u32,
        slot: u32,
        geometry: Geometry,
        arena_fd: i32,
    ) -> Result<&'static Conn> {
        use bypath_sys::Errno;
        let record = self.theirs.get(arena as usize).ok_or(Errno::INVAL)?;
        // Nothing is mapped for what is wrong by itself.
        if !geometry.is_valid() || slot >= geometry.slots {
            return Err(Errno::INVAL);
        }
        if arena_fd >= 0 && record.arena.get().is_none() {
            if state::is_own_inbox(arena_fd) {
                return Err(Errno::INVAL);
            }
            record.fill(arena_fd, geometry)?;
        }
        if record.arena.get().ok_or(Errno::INVAL)?.geometry != geometry {
            return Err(Errno::INVAL);
        }
        record.open(slot + 1)?;
        let (conn, place) = self.conn_at(record, slot, 0).ok_or(Errno::INVAL)?;
        if place.busy.swap(true, AcqRel) {
            return Err(Errno::INVAL);
        }
        self.connections.fetch_add(1, AcqRel);
        let _ = self.given.fetch_update(Relaxed, Relaxed, |given| given.checked_add(1));
        Ok(conn)
    }
}
