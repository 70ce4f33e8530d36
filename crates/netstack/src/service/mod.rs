//! The netstack service: a stack for programs of other processes, which use it by their ordinary socket calls.
//! docs/netstack-service.md says what the two sides say to each other.
//!
//! One thread does everything: what is not ready now is told of by the kernel (`watch`) or by the stack's events, and each socket does a bounded
//! part of its work before the others have their turn.

mod again;
mod busy;
mod client;
mod connect;
mod control;
mod counts;
mod datagram;
mod debts;
mod deputies;
mod door;
mod ends;
mod heirs;
mod hold;
mod interfaces;
mod limits;
mod listener;
mod memory;
mod model;
mod neighbours;
mod on_way;
mod options;
mod query;
mod question;
mod remains;
mod rings;
mod rows;
mod share;
mod sharers;
mod slab;
mod socket;
mod stream;
pub mod table;
mod tasks;
mod urgent;
mod watch;
mod wishes;

pub use client::{CaptureStream, Client, Patience, Pings, QueryError, Reached, query, query_within};
pub use rows::{
    AddressRow, Change, CounterRow, LinkRow, NeighborRow, Question, RouteRow, ServiceRow, SocketRow,
};

use crate::{Engine, Error, News};
use busy::{Busy, Rest};
use bypath_stack::event::Event;
use bypath_stack::tcp::Share;
use bypath_sys::eventfd::{self, Bell};
use bypath_sys::fd::raise_limit;
use bypath_sys::strangers::Others;
use bypath_sys::{Errno, clock, process, thread};
use control::Controls;
use door::Door;
use limits::{Took, Users};
use memory::Memory;
use neighbours::Neighbours;
use slab::Slab;
use socket::{Hub, Phase, Socket};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use watch::{Token, Watch};

/// How long nobody is admitted after descriptors have run out (ns).
const PAUSE: u64 = 100_000_000;
/// How long resets may take to leave, when the service ends.
const RESETS_LEAVE: Duration = Duration::from_millis(100);
/// So long an answer to what was sent may take, before a program that spins has its turn (ns).
const ANSWER: u64 = 8_000;
/// Who are admitted in one turn.
const ADMITTED: usize = 64;
/// How long sockets of one user are worked on in one turn (ns), where they are more than a few.
const WORKED_NS: u64 = 5_000_000;
const FEW: usize = 16;

/// How a service is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Programs find it by this name.
    pub name: String,
    /// Where its socket stands; the folder is there.
    pub folder: PathBuf,
    /// Sockets of one user at most.
    pub sockets_per_user: usize,
    /// Octets of one user that wait in the stack, beyond which nothing more is taken of him but for a few octets of each connection.
    pub octets_per_user: usize,
    /// Who may bind to ports below 1024, beside root.
    pub low_ports: Vec<u32>,
    /// Who may use it, beside root and the service's own user; `None`: anybody who reaches the socket.
    pub users: Option<Vec<u32>>,
    /// Octets of each ring that a connection and the service share, at most: a power of two from 4 KiB to 1 MiB; 0: there are none.
    pub ring_octets: u32,
    /// For so long after there was something to do it looks for more before it sleeps, as long as it has a processor to itself. Zero: it
    /// sleeps at once.
    pub busy_poll: Duration,
}

impl Settings {
    /// Whether this user may use it. Whom the user namespace does not know are many users of one number.
    fn admits(&self, uid: u32) -> bool {
        if uid == process::OVERFLOW_UID && !process::knows_all_users() {
            return false;
        }
        let known = [0, process::euid()];
        known.contains(&uid) || self.users.as_ref().is_none_or(|users| users.contains(&uid))
    }

    /// Whether this user may have ports below 1024.
    fn may_low(&self, uid: u32) -> bool {
        uid == 0 || self.low_ports.contains(&uid)
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            name: "default".to_owned(),
            folder: PathBuf::new(),
            sockets_per_user: 16_384,
            octets_per_user: 256 << 20,
            low_ports: Vec::new(),
            users: Some(Vec::new()),
            ring_octets: 256 << 10,
            busy_poll: Duration::ZERO,
        }
    }
}

/// A service that cannot be, or not any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// What a name may be.
    #[error("{name:?} is no name of a service: letters, digits, `-`, `_` and `.`, not first, 32 at most")]
    Name {
        /// The name.
        name: String,
    },
    /// Another one has the name.
    #[error("{}: a netstack service named {name} runs already; choose another name (--name), or end that one", path.display())]
    Exists {
        /// The name.
        name: String,
        /// Its socket.
        path: PathBuf,
    },
    /// Something else has the name.
    #[error("{}: this is no socket of a netstack service; remove it, or choose another name (--name)", path.display())]
    NoSocket {
        /// What is there.
        path: PathBuf,
    },
    /// Longer than a name of a socket can be.
    #[error("{}: more than 107 octets, which no socket's name may have; set BYPATH_NETSTACK_DIR to a shorter one", path.display())]
    TooLong {
        /// The path.
        path: PathBuf,
    },
    /// No socket can be made there.
    #[error("{}: {source}; set BYPATH_NETSTACK_DIR to a folder that can be written", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A link is gone.
    #[error(transparent)]
    Link(#[from] Error),
    /// It would be the user that stands for all whom the user namespace does not know.
    #[error(
        "a service cannot be of user 65534 where its user namespace does not know all users: each of those would be its own; give it another user (unshare -Ur)"
    )]
    Nobody,
    /// The kernel has no descriptors or no memory for it.
    #[error("the service cannot wait for anything: {0}; raise the limit of open files (ulimit -n)")]
    Kernel(io::Error),
}

impl From<Errno> for ServiceError {
    fn from(e: Errno) -> ServiceError {
        ServiceError::Kernel(io::Error::from_raw_os_error(e.raw_os_error()))
    }
}

/// Stops a [`Service`], from any thread and from signal handlers.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Bell>);

impl Stopper {
    /// [`Service::run`] returns soon.
    pub fn stop(&self) {
        eventfd::ring(self.0.as_fd().as_raw_fd());
    }
}

/// A service, which [`run`](Service::run) runs on the calling thread.
pub struct Service {
    engine: Engine,
    settings: Settings,
    door: Door,
    /// Somebody may wait there.
    called: bool,
    /// Nobody is admitted before (ns).
    closed_until: u64,
    bell: Arc<Bell>,
    hub: Hub,
    controls: Controls,
    told: Vec<(Token, u32)>,
    /// How long sockets of each user were worked on, and those that wait for the next turn.
    took: Took,
    late: VecDeque<slab::Key>,
    /// News that are no socket's.
    news: VecDeque<News>,
    memory: Memory,
    busy: Busy,
    /// What was sent for a program that spins may be answered until then: it has its turn when that is over.
    answered_until: u64,
}

impl Service {
    /// Opens the service's socket. The process may have as many descriptors as the hard limit says from now on.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn open(mut engine: Engine, settings: Settings) -> Result<Service, ServiceError> {
        if process::euid() == process::OVERFLOW_UID && !process::knows_all_users() {
            return Err(ServiceError::Nobody);
        }
        raise_limit();
        engine.stack().keep_urgent_in_line();
        let users = Users::new(settings.sockets_per_user, settings.octets_per_user);
        engine.stack().set_share(users.share());
        thread::init();
        let (watch, bell) = (Watch::new()?, Arc::new(Bell::new()?));
        let door = Door::open(&settings)?;
        watch.edge(door.as_fd(), Token::Door)?;
        watch.level(bell.as_fd(), Token::Bell)?;
        let hub = Hub {
            name: settings.name.clone(),
            watch,
            sockets: Slab::new(),
            by_id: HashMap::new(),
            by_cookie: HashMap::new(),
            active: VecDeque::new(),
            users,
            debts: debts::Debts::new()?,
            graves: remains::Graves::default(),
            claims: again::Claims::new(&settings.folder, &settings.name),
            heirs: heirs::Heirs::default(),
            counts: counts::Counts::default(),
            starved: HashSet::new(),
            counted: 0,
            ended: Vec::new(),
            later: Vec::new(),
            on_way: on_way::OnWay::default(),
            told: Vec::new(),
            pings: datagram::ping::Pings::default(),
            record: Vec::new(),
            neighbours: Neighbours::new(),
            unwatched: HashMap::new(),
            mail: Vec::new(),
            looks: !settings.busy_poll.is_zero(),
            begun: false,
            readers_due: 0,
            marked: Vec::new(),
        };
        let controls = Controls::new();
        let (told, news, memory) = (Vec::new(), VecDeque::new(), Memory::default());
        let (called, closed_until) = (true, 0);
        let busy = Busy::new(settings.busy_poll);
        Ok(Service {
            engine,
            settings,
            door,
            called,
            closed_until,
            bell,
            hub,
            controls,
            told,
            took: Took::default(),
            late: VecDeque::new(),
            news,
            memory,
            busy,
            answered_until: 0,
        })
    }

    /// Stops it.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.bell))
    }

    /// Its stack and links.
    pub const fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Other bounds; name and folder stay.
    pub fn set_limits(&mut self, new: &Settings) {
        let Settings { sockets_per_user, octets_per_user, low_ports, users, ring_octets, .. } = new.clone();
        self.hub.users.set_bounds(sockets_per_user, octets_per_user);
        self.engine.stack().set_share(self.hub.users.share());
        self.settings = Settings {
            sockets_per_user,
            octets_per_user,
            low_ports,
            users,
            ring_octets,
            ..std::mem::take(&mut self.settings)
        };
        self.controls.are_admitted_by(&self.settings);
    }

    /// Serves until it is [stopped](Service::stopper). It may be called again then.
    ///
    /// # Errors
    /// [`ServiceError::Link`]: a link is gone.
    pub fn run(&mut self) -> Result<(), ServiceError> {
        while self.run_until_news()?.is_some() {}
        Ok(())
    }

    /// The same, but returns what happened to links, addresses and leases, too. `None`: it was stopped.
    ///
    /// # Errors
    /// Those of [`run`](Service::run).
    pub fn run_until_news(&mut self) -> Result<Option<News>, ServiceError> {
        loop {
            if let Some(news) = self.news.pop_front() {
                return Ok(Some(news));
            }
            if let Some((uid, sockets)) = self.hub.users.take_short() {
                return Ok(Some(News::Crowded { uid, sockets }));
            }
            // The bell goes on ringing where there is news to be told first.
            if self.turn()? && self.news.is_empty() {
                eventfd::silence(self.bell.as_fd().as_raw_fd());
                return Ok(None);
            }
        }
    }

    /// Waits, and does what there is to be done; true: it was stopped.
    fn turn(&mut self) -> Result<bool, ServiceError> {
        // A link without a descriptor is to be asked.
        let ask = self.hub.watch.links(&self.engine)?;
        let now = clock::monotonic_ns();
        let recount = self.hub.release_held(self.engine.stack(), now);
        let pause = self.called.then_some(self.closed_until);
        let tasks = self.controls.due(&mut self.engine);
        let (sockets, stack) = (self.hub.sockets.len(), self.engine.stack());
        let held = sockets * memory::OF_SOCKET + stack.connection_octets() + stack.datagram_octets();
        let trim = self.memory.look(held, now);
        let readers = self.hub.look_at_readers(now);
        let heirs = self.hub.look_at_heirs(now);
        let unread = self.controls.look_at_unread(&mut self.hub, now);
        self.settle(now);
        let debts = self.hub.debts.due();
        let due = [recount, pause, tasks, trim, readers, heirs, unread, debts].into_iter().flatten();
        let until = self.engine.poll_timeout().into_iter().chain(due).min();
        self.hub.look_at_mail();
        let busy = !self.hub.active.is_empty() || !self.hub.later.is_empty() || self.controls.is_active();
        let rest = if busy { Rest::Sleep } else { self.busy.rest(now, thread::cpu()) };
        if let Rest::Move(processor) = rest {
            thread::move_to(processor);
        }
        let looks = rest != Rest::Sleep;
        let busy = busy || !looks && (self.hub.close_mail() | self.hub.neighbours.rest());
        let timeout = if busy || looks { Some(0) } else { until.map(|at| at.saturating_sub(now)) };
        let mut told = std::mem::take(&mut self.told);
        self.hub.watch.wait(timeout, &mut told);
        let news = !told.is_empty() || self.hub.neighbours.is_marked();
        if looks && !news && !ask && until.is_none_or(|at| at > now) {
            self.told = told;
            // Who else wants this processor has it at once, and does not wait until we have looked long enough.
            if clock::monotonic_ns() >= self.answered_until {
                thread::yield_now();
            }
            return Ok(false);
        }
        if busy || news {
            self.busy.works();
        }
        told.append(&mut self.hub.later);
        let (mut stopped, mut link) = (false, ask);
        for (token, events) in &told {
            match *token {
                Token::Door => self.called = true,
                Token::Bell => stopped = true,
                Token::Link => link = true,
                Token::Control(key) => self.controls.activate(key),
                Token::Socket(key) => self.hub.heard(key, *events),
                Token::Neighbour(key) => self.hub.hear_neighbour(key),
                Token::Bells(key) => self.hub.neighbours.wake(key),
            }
        }
        self.told = told;
        self.hub.hear_marks();
        if link || self.engine.poll_timeout().is_some_and(|at| at <= clock::monotonic_ns()) {
            // What follows is sent below, with what programs have written.
            self.engine.take_for(&mut self.hub)?;
        }
        self.hear_of_stack();
        self.admit();
        self.controls.activate_tasks();
        self.controls.turn(&mut self.hub, &mut self.engine, &self.settings);
        let mut asks = false;
        for (token, _) in &self.hub.later {
            if let Token::Control(key) = token {
                self.controls.activate(*key);
                asks = true;
            }
        }
        if asks {
            // Octets that were written behind a message are not read before it.
            self.controls.turn(&mut self.hub, &mut self.engine, &self.settings);
        }
        self.work();
        self.hub.hear_rest();
        self.hub.reset_barred();
        self.engine.flush()?;
        if std::mem::take(&mut self.hub.begun) {
            self.busy.begins(clock::monotonic_ns());
        }
        if let Some(spinner) = self.hub.neighbours.spinner() {
            let now = clock::monotonic_ns();
            self.busy.beside(spinner, now);
            if !link {
                self.answered_until = now + ANSWER;
            } else if spinner == thread::cpu() {
                // It has what it looks for.
                thread::yield_now();
            }
        }
        Ok(stopped)
    }

    /// Every socket that has something to do has a turn; where they are many, those of one user no longer than [`WORKED_NS`].
    fn work(&mut self) {
        let most = self.hub.active.len();
        let are_many = most > FEW;
        let (mut took, mut now) = (std::mem::take(&mut self.took), 0);
        if are_many {
            took.clear();
            now = clock::monotonic_ns();
        }
        for _ in 0..most {
            let Some(key) = self.hub.active.pop_front() else { break };
            if self.hub.is_owed_for(key) {
                self.hub.debts.waiting.sockets.push(key);
                continue;
            }
            if !are_many {
                self.hub.work(&mut self.engine, key);
                continue;
            }
            let Some(uid) = self.hub.sockets.get(key).map(|socket| socket.uid) else { continue };
            if took.left(uid, WORKED_NS) == 0 {
                self.late.push_back(key);
                continue;
            }
            self.hub.work(&mut self.engine, key);
            let begun = std::mem::replace(&mut now, clock::monotonic_ns());
            took.add(uid, now.saturating_sub(begun));
        }
        self.took = took;
        let sockets = &self.hub.sockets;
        self.hub.ended.retain(|key| sockets.get(*key).is_some_and(|socket| socket.is.active));
        if !self.late.is_empty() {
            // The first ones of the next turn.
            self.late.append(&mut self.hub.active);
            std::mem::swap(&mut self.late, &mut self.hub.active);
        }
    }

    /// What waited for users who have paid what they took has its turn.
    fn settle(&mut self, now: u64) {
        if let Some(waited) = self.hub.debts.settle(now) {
            self.controls.go_on(waited.controls);
            self.hub.active.extend(waited.sockets);
            self.hub.later.extend(waited.neighbours.into_iter().map(|key| (Token::Neighbour(key), 0)));
        }
    }

    fn hear_of_stack(&mut self) {
        while let Some(news) = self.engine.poll_event() {
            match news {
                News::Stack(Event::Socket { id, .. }) if self.hub.pings.has(id) => {
                    self.hub.hear_pings(self.engine.stack(), id);
                }
                News::Stack(Event::Socket { id, ready }) => {
                    self.hub.told(id, ready.readable, ready.writable, ready.error);
                }
                other => self.news.push_back(other),
            }
        }
    }

    /// Lets those in who want to ask.
    fn admit(&mut self) {
        if !self.called || clock::monotonic_ns() < self.closed_until {
            return;
        }
        for _ in 0..ADMITTED {
            match self.door.next() {
                Ok(Some(end)) => {
                    self.controls.admit(end, &self.hub.watch, &mut self.hub.users, &self.settings);
                }
                Ok(None) => {
                    self.called = false;
                    return;
                }
                // There are no descriptors: they wait for their turn.
                Err(_) => {
                    self.closed_until = clock::monotonic_ns() + PAUSE;
                    return;
                }
            }
        }
    }

    /// Ends it: its name goes at once; what programs have written is still sent, as far as that is possible within this time. Then a connection that
    /// its program has not ended is reset, as it is for the program: an end would say that nothing is missing.
    pub fn finish(self, longest: Duration) {
        let Service { mut engine, door, mut hub, controls, .. } = self;
        {
            // What others have sent there, and nobody has received, goes with them.
            let _others = Others::new();
            drop((door, controls, hub.on_way.take_kept().collect::<Vec<_>>()));
        }
        // Nobody has to make room for others any more.
        engine.stack().set_share(Share::ALL);
        let mut unfinished = Vec::new();
        for key in hub.sockets.keys() {
            let Some(socket) = hub.sockets.get_mut(key) else { continue };
            (socket.is.pair_in, socket.until) = (true, None);
            match socket.phase {
                Phase::Open => {
                    hub.pump(engine.stack(), key);
                }
                Phase::Datagrams(_) => {
                    hub.exchange(&mut engine, key);
                }
                _ => {}
            }
            if hub.sockets.get(key).is_some_and(Socket::is_unfinished) {
                unfinished.push(key);
            } else {
                hub.release(engine.stack(), key);
            }
        }
        engine.finish(longest);
        let is_any = !unfinished.is_empty();
        for key in unfinished {
            hub.abort(engine.stack(), key);
        }
        if is_any {
            engine.finish(RESETS_LEAVE);
        }
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("name", &self.settings.name).finish_non_exhaustive()
    }
}
