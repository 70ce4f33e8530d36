//! Sockets that were given to programs: what the service holds of each, and how they begin and end.

use super::again::{Again, Claims};
use super::connect::Connecting;
use super::counts::Counts;
use super::datagram::Datagrams;
use super::datagram::ping::Pings;
use super::debts::{Debts, PIECE, Payer};
use super::heirs::Heirs;
use super::limits::{Charge, Unwanted, Users};
use super::listener::Listening;
use super::neighbours::Neighbours;
use super::on_way::OnWay;
use super::options::Wishes;
use super::remains::{Graves, Remains};
use super::rings::Rings;
use super::sharers::watched;
use super::slab::{Key, Slab};
use super::watch::{BATCH, Token, Watch};
use crate::Engine;
use bypath_shm::service::{Address, SEND_BUFFER, end_name};
use bypath_stack::Stack;
use bypath_stack::linux::errno::{self, Errno, Result};
use bypath_stack::linux::info;
use bypath_stack::socket::{Options, SocketId};
use bypath_stack::tcp::Failure;
use bypath_sys::epoll::Set;
use bypath_sys::{pair, process};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// When it is first looked at whether somebody reads what is in a ring (ns).
const FIRST_LOOK: u64 = 50_000_000;

/// What a socket is doing.
#[derive(Debug)]
pub enum Phase {
    /// It was opened, and perhaps bound.
    Fresh,
    /// It was asked to connect.
    Connecting(Box<Connecting>),
    /// Octets go both ways.
    Open,
    /// It listens.
    Listening(Box<Listening>),
    /// Datagrams go both ways.
    Datagrams(Box<Datagrams>),
}

/// One socket.
#[derive(Debug)]
pub struct Socket {
    /// The stack's name of it.
    pub id: SocketId,
    /// The service's end of the pair.
    pub end: OwnedFd,
    /// That is a descriptor of his.
    _charge: Charge,
    /// SO_COOKIE of the program's end.
    pub cookie: u64,
    pub uid: u32,
    /// Opened with AF_INET6.
    pub v6: bool,
    pub phase: Phase,
    pub wishes: Wishes,
    /// For the next call; 0: none.
    pub errno: Errno,
    /// Octets in the stack as they are counted for the user.
    pub counted: usize,
    /// Octets that are read from the pair at once.
    pub piece: usize,
    /// Who listened, of a connection that nobody is known to have accepted yet.
    pub of: Option<Key>,
    /// The other end of its connection, which the stack forgets before the program has read everything.
    pub remote: Option<SocketAddr>,
    /// Octets that came through the pair, ever, and that went through it.
    pub came: u64,
    pub went: u64,
    /// So many of the program's next octets are followed by others (MSG_MORE).
    pub followed: usize,
    /// What takes the pair's place, as long as both sides know it.
    pub rings: Option<Box<Rings>>,
    /// Of one whose receiving side the program has shut: what tells whether anybody has the program's end open.
    pub holders: Option<Holders>,
    /// It stands in place of one of an earlier service.
    pub again: Option<Again>,
    /// When its turn is over, whatever is left to do (ns): of another user's, whose calls may take long. `None`: it ends by what was done.
    pub until: Option<u64>,
    pub is: Is,
}

/// Whether a program has its end open, which hang-up does not tell once the end is shut both ways: an end that is closed is in no
/// set any more, and one that is shut both ways is always ready.
#[derive(Debug)]
pub struct Holders {
    set: Set,
    _charge: Charge,
}

impl Holders {
    /// # Errors
    /// EMFILE, ENOMEM: also where this user may have no more descriptors of the service.
    pub fn new(program: BorrowedFd<'_>, users: &mut Users, uid: u32) -> bypath_sys::Result<Holders> {
        let account = users.account(uid);
        if !account.may_have(program.as_raw_fd(), 1) {
            return Err(bypath_sys::Errno::MFILE);
        }
        let set = Set::new()?;
        // POLLHUP is always told.
        set.add(program, 0, 0)?;
        Ok(Holders { set, _charge: account.charge(1, 0) })
    }

    /// Whether anybody has it open.
    pub fn are_any(&self) -> bool {
        self.set.is_ready()
    }
}

/// What is known of both sides of a socket. What may be there is tried; what was tried in vain is told of by an event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Is {
    /// It stands in the queue of those that have something to do.
    pub active: bool,
    /// The pair, or the program's ring, may have octets, or their end.
    pub pair_in: bool,
    /// The pair itself may: it was told of.
    pub pair_news: bool,
    /// The pair, or the service's ring, may have room.
    pub pair_out: bool,
    /// It is the ring that has none.
    pub ring_full: bool,
    /// Room in the pair is told of.
    pub room_told: bool,
    /// Octets were put into the ring as they came, of which the program has not been told.
    pub given: bool,
    /// The stack may have octets, or their end; connections of one that listens.
    pub stack_in: bool,
    /// The stack may have room.
    pub stack_out: bool,
    /// The program is gone, or wants nothing any more.
    pub hung_up: bool,
    /// It had not read everything.
    pub unread: bool,
    /// The program has finished writing, and the stack knows.
    pub shut: bool,
    /// The program has shut the receiving side: what comes waits in the stack until it is asked for.
    pub asked: bool,
    /// The program reads no more, while it writes.
    pub deaf: bool,
    /// The other side has finished, and the program knows.
    pub finished: bool,
    /// The connection failed.
    pub failed: bool,
    /// Nobody is to have accepted it, and nobody will: it is reset when it hangs up.
    pub refused: bool,
    /// Its user has more octets than he may: nothing is taken of it for now.
    pub held: bool,
    /// Its window was made smaller for the same reason.
    pub squeezed: bool,
    /// The program writes urgent octets: before octets are read from the pair it is asked whether the next one is.
    pub urgent: bool,
    /// The program was given one. What is for it stays in the pair, of which the kernel may count one too many from then on.
    pub marked: bool,
    /// It stands among those whose readers are looked at.
    pub watched: bool,
    /// It was accepted, and the stack does not know that the program has taken it.
    pub offered: bool,
}

/// All sockets and what they share.
pub struct Hub {
    pub name: String,
    pub watch: Watch,
    pub sockets: Slab<Socket>,
    pub by_id: HashMap<SocketId, Key>,
    pub by_cookie: HashMap<u64, Key>,
    /// Those that have something to do.
    pub active: VecDeque<Key>,
    pub users: Users,
    /// Users for whom calls took long.
    pub debts: Debts,
    pub graves: Graves,
    pub claims: Claims,
    /// What stands in place of sockets of earlier services.
    pub heirs: Heirs,
    /// What was asked.
    pub counts: Counts,
    /// Processes that share memory with the service.
    pub neighbours: Neighbours,
    /// Listeners that may not accept for now, as their user has too many sockets or there are no descriptors; connections whose
    /// user has too many octets.
    pub starved: HashSet<Key>,
    /// When octets were last counted anew (ns).
    pub counted: u64,
    /// Sockets whose program has gone, as was heard of in this turn.
    pub ended: Vec<Key>,
    /// What else was told meanwhile, for the next turn.
    pub later: Vec<(Token, u32)>,
    /// Memory for [`Hub::ends_first`].
    pub told: Vec<(Token, u32)>,
    /// Who has not received what he was sent, and who waits for that.
    pub on_way: OnWay,
    pub pings: Pings,
    /// Memory for a record of a datagram.
    pub record: Vec<u8>,
    /// Connections that have octets in a ring that nobody waits for: since when they are looked at, and how far the reader was then.
    pub unwatched: HashMap<Key, (u64, u64)>,
    /// Sockets of datagrams whose gates may be open.
    pub mail: Vec<Key>,
    /// The service looks for more for a while before it sleeps.
    pub looks: bool,
    /// A stream has begun in this turn, or a listener has got one.
    pub begun: bool,
    /// When they are to be looked at next (ns).
    pub readers_due: u64,
    /// Memory for [`Hub::hear_marks`].
    pub marked: Vec<Key>,
}

/// A new pair: the program's end, the service's, and its name.
pub struct Pair {
    pub program: OwnedFd,
    pub end: OwnedFd,
    pub cookie: u64,
}

impl Hub {
    /// For this user; `small`: of a program that may connect, or listen, first. Later its buffer cannot be made smaller without waiting.
    ///
    /// # Errors
    /// EMFILE and its like.
    pub fn pair(&mut self, uid: u32, small: bool) -> Result<Pair> {
        let pair = self.named(uid, pair::new)?;
        // What the service reads stops before an urgent octet, and goes on with it.
        pair::keep_urgent_in_line(pair.end.as_fd());
        // A ring is no larger than half of what its program could take back to the pair at once.
        let octets = if small { 1 } else { SEND_BUFFER };
        pair::set_send_buffer(pair.program.as_fd(), octets).map_err(|e| e.raw_os_error())?;
        Ok(pair)
    }

    /// The same of records.
    ///
    /// # Errors
    /// EMFILE and its like.
    pub fn pair_of_records(&mut self, uid: u32) -> Result<Pair> {
        self.named(uid, pair::of_records)
    }

    fn named(&mut self, uid: u32, new: fn() -> bypath_sys::Result<(OwnedFd, OwnedFd)>) -> Result<Pair> {
        let mut made = || {
            let (program, end) = new()?;
            if !self.users.may_have_descriptor(uid, end.as_raw_fd()) {
                return Err(bypath_sys::Errno::MFILE);
            }
            let cookie = pair::cookie(program.as_fd())?;
            // Who sent an end through itself, where nothing is read, would keep it open for ever. An older kernel lets him: it counts
            // as his, and no more.
            pair::refuse_descriptors(end.as_fd());
            pair::name(end.as_fd(), end_name(&self.name, cookie, process::random_u64()).as_bytes())?;
            Ok(Pair { program, end, cookie })
        };
        made().map_err(|e: bypath_sys::Errno| e.raw_os_error())
    }

    /// Takes a socket in. The program's end is for the caller to give away.
    ///
    /// # Errors
    /// ENOMEM, ENOSPC: it cannot be waited for; the stack's socket is closed.
    pub fn insert(
        &mut self,
        stack: &mut Stack,
        id: SocketId,
        (end, cookie): (OwnedFd, u64),
        (uid, v6): (u32, bool),
        phase: Phase,
    ) -> Result<Key> {
        let is_stream = !matches!(phase, Phase::Datagrams(_));
        if let Some(mut udp) = stack.udp(id) {
            udp.set_user(uid);
            // As Linux has it: one of IPv6 hears the groups of IPv4 that it is in alone.
            let options = udp.options();
            udp.set_options(Options { of_v6: v6, group_all: !v6, ..options });
        } else if matches!(phase, Phase::Fresh)
            && let Some(mut tcp) = stack.tcp(id)
        {
            // What is accepted of it is his, too.
            tcp.set_user(uid);
        }
        let socket = Socket {
            id,
            end,
            _charge: self.users.account(uid).charge(1, 0),
            cookie,
            uid,
            v6,
            phase,
            wishes: Wishes::default(),
            errno: 0,
            counted: 0,
            piece: super::stream::LEAST,
            of: None,
            remote: None,
            came: 0,
            went: 0,
            followed: 0,
            rings: None,
            holders: None,
            again: None,
            until: None,
            is: Is::default(),
        };
        let key = self.sockets.insert(socket);
        let socket = self.sockets.get(key).ok_or(libc::ENOMEM)?;
        if let Err(e) = self.watch.edge(socket.end.as_fd(), Token::Socket(key)) {
            self.sockets.remove(key);
            stack.close(id);
            return Err(e.raw_os_error());
        }
        self.by_id.insert(id, key);
        self.by_cookie.insert(cookie, key);
        self.begun |= is_stream;
        self.users.change(uid, |usage| usage.sockets += 1);
        Ok(key)
    }

    /// The service's end is closed, and the stack's socket; what may be asked of it is kept.
    pub fn release(&mut self, stack: &mut Stack, key: Key) {
        let Some(socket) = self.sockets.remove(key) else { return };
        self.debts.forget(key);
        let said = match socket.phase {
            Phase::Connecting(_) | Phase::Open => {
                stack.tcp(socket.id).map(|mut tcp| (tcp.options(), tcp.settings()))
            }
            _ => None,
        };
        let (local, remote) = socket.ends(stack);
        let last = stack.tcp(socket.id).and_then(|mut tcp| tcp.statistics());
        let info = last.map_or(Vec::new(), |last| info::last(&last));
        stack.close(socket.id);
        self.by_id.remove(&socket.id);
        self.by_cookie.remove(&socket.cookie);
        self.users.count(socket.uid, socket.counted, 0);
        self.users.change(socket.uid, |usage| usage.sockets -= 1);
        if let Some(rings) = &socket.rings {
            self.give_back(rings, socket.is.hung_up);
        }
        if let Some(again) = &socket.again {
            self.has_no_heirs(key, again);
        }
        match socket.phase {
            Phase::Listening(listening) => {
                let on_way = (socket.uid, listening.given());
                self.refuse(stack, *listening, &socket.end, socket.is.unread);
                self.end_on_way(Token::Socket(key), socket.end, on_way);
            }
            Phase::Datagrams(of) => {
                if let Some(ping) = of.ping {
                    self.forget_ping(stack, socket.uid, socket.v6, ping.ident);
                }
            }
            _ => {}
        }
        let shown = |address: Option<SocketAddr>| Address(address.map(|address| outward(socket.v6, address)));
        let (local, remote) = (shown(local), shown(remote));
        let Socket { uid, v6, errno, wishes, .. } = socket;
        self.graves.add(socket.cookie, Remains { uid, v6, local, remote, errno, wishes, said, info });
        // Somebody may have what this one had.
        for starved in std::mem::take(&mut self.starved) {
            self.activate(starved);
        }
    }

    /// The rings of a connection that is over.
    fn give_back(&mut self, rings: &Rings, gone: bool) {
        if let Some(near) = self.neighbours.get_mut(rings.with) {
            let stranger = near.stranger();
            watched(stranger.as_deref(), || near.leave(rings.at, rings.number, gone));
        }
        self.neighbours.sweep(rings.with);
    }

    /// What processes have marked in the service's inboxes.
    pub fn hear_marks(&mut self) {
        let mut marked = std::mem::take(&mut self.marked);
        self.neighbours.marked(|key| marked.push(key));
        for key in marked.drain(..) {
            if let Some(socket) = self.sockets.get_mut(key) {
                let is = &mut socket.is;
                is.pair_in = true;
                is.pair_out |= std::mem::take(&mut is.ring_full);
                self.activate(key);
            }
        }
        self.marked = marked;
    }

    /// A connection has got octets: whether it is to be looked at whether they are read.
    pub fn watch_reader(&mut self, key: Key) {
        let Some(socket) = self.sockets.get_mut(key).filter(|socket| !socket.is.watched) else { return };
        let near = socket.rings.as_ref().and_then(|rings| self.neighbours.get(rings.with));
        if let Some(position) = near.and_then(|near| socket.unread_in_ring(near)) {
            let now = bypath_sys::clock::monotonic_ns();
            if self.unwatched.is_empty() {
                self.readers_due = now + FIRST_LOOK;
            }
            self.unwatched.insert(key, (now, position));
            socket.is.watched = true;
        }
    }

    /// Takes octets back that nobody has read for long; when to look next.
    pub fn look_at_readers(&mut self, now: u64) -> Option<u64> {
        if self.unwatched.is_empty() {
            return None;
        }
        if now < self.readers_due {
            return Some(self.readers_due);
        }
        let mut next = None;
        let mut over = Vec::new();
        for (key, (since, position)) in &mut self.unwatched {
            let socket = self.sockets.get_mut(*key);
            let near = socket.and_then(|socket| {
                let near = self.neighbours.get(socket.rings.as_ref()?.with)?;
                Some((socket, near))
            });
            let Some((socket, near)) = near else {
                over.push((*key, false));
                continue;
            };
            let reached = near.watched(|| socket.unread_in_ring(near));
            let (Some(reached), Some(rings)) = (reached, &mut socket.rings) else {
                over.push((*key, false));
                continue;
            };
            if reached != *position {
                (*since, *position) = (now, reached);
            }
            let due = *since + rings.patience();
            if now < due {
                next = Some(next.map_or(due, |next: u64| next.min(due)));
            } else {
                // Who lies is found out by what follows.
                let _ = near.watched(|| rings.give_up(near));
                if let Phase::Datagrams(of) = &mut socket.phase
                    && let Some(mail) = &mut of.mail
                {
                    near.watched(|| mail.take_back(near));
                }
                over.push((*key, true));
            }
        }
        for (key, given_up) in over {
            self.unwatched.remove(&key);
            if let Some(socket) = self.sockets.get_mut(key) {
                socket.is.watched = false;
            }
            if given_up {
                self.activate(key);
            }
        }
        self.readers_due = next.unwrap_or(0);
        next
    }

    /// Whether no more is to be taken of this user.
    pub fn is_full(&self, stack: &Stack, uid: u32) -> bool {
        self.users.is_full(uid, &stack.held_by(uid))
    }

    /// It has something to do.
    pub fn activate(&mut self, key: Key) {
        if let Some(socket) = self.sockets.get_mut(key)
            && !std::mem::replace(&mut socket.is.active, true)
        {
            self.active.push_back(key);
        }
    }

    /// Room in the pair is to be told of, or no more.
    pub fn tell_room(&mut self, key: Key, wanted: bool) {
        if let Some(socket) = self.sockets.get_mut(key)
            && std::mem::replace(&mut socket.is.room_told, wanted) != wanted
        {
            self.watch.room(socket.end.as_fd(), Token::Socket(key), wanted);
        }
    }

    /// What programs closed before they asked is closed before they are answered: an address, above all, is free again.
    pub fn ends_first(&mut self, engine: &mut Engine) {
        let mut told = std::mem::take(&mut self.told);
        // As often as all sockets that there are fill what is told at once: who makes news all the time does not keep us here.
        for _ in 0..=self.by_cookie.len() / BATCH {
            self.watch.wait(Some(0), &mut told);
            for (token, events) in &told {
                match *token {
                    Token::Socket(key) => self.heard(key, *events),
                    other => self.later.push((other, *events)),
                }
            }
            if told.len() < BATCH {
                break;
            }
        }
        self.told = told;
        // It is their own, and not of who asks.
        let meter = self.debts.begin_apart();
        for key in std::mem::take(&mut self.ended) {
            if self.is_owed_for(key) {
                self.ended.push(key);
            } else {
                self.work(engine, key);
            }
        }
        self.debts.end(&meter);
    }

    /// Who pays for what is done for a socket.
    fn payer(&self, key: Key, uid: u32) -> Payer {
        if self.users.counts(uid) { Payer::User(uid) } else { Payer::Socket(key) }
    }

    /// Whether a socket's turn has to wait until somebody has paid.
    pub fn is_owed_for(&self, key: Key) -> bool {
        self.sockets.get(key).is_some_and(|socket| self.debts.owes(self.payer(key, socket.uid)))
    }

    /// A socket has its turn; where somebody has to pay first it waits.
    pub fn work(&mut self, engine: &mut Engine, key: Key) {
        let Some(uid) = self.sockets.get(key).map(|socket| socket.uid) else { return };
        let payer = self.payer(key, uid);
        if self.debts.owes(payer) {
            // It stands in a queue already, or does from now on.
            return self.activate(key);
        }
        let now = bypath_sys::clock::monotonic_ns();
        let is_watched = self.users.counts(uid) || self.debts.suspects(payer);
        if let Some(socket) = self.sockets.get_mut(key) {
            socket.until = is_watched.then_some(now + PIECE);
        }
        let meter = self.debts.begin(payer, now);
        self.work_for(engine, key);
        self.debts.end(&meter);
        if let Some(socket) = self.sockets.get_mut(key) {
            socket.until = None;
        }
    }

    /// A process that shares memory with the service has said something, or is gone.
    pub fn hear_neighbour(&mut self, key: Key) {
        let Some(uid) = self.neighbours.get(key).map(|neighbour| neighbour.uid) else { return };
        if !self.users.counts(uid) {
            return self.neighbours.heard(key);
        }
        let owes = self.debts.owes(Payer::User(uid));
        if owes || !self.users.may_send(uid) {
            if !owes {
                self.debts.crowd();
            }
            if !self.debts.waiting.neighbours.contains(&key) {
                self.debts.waiting.neighbours.push(key);
            }
            return;
        }
        let meter = self.debts.begin(Payer::User(uid), bypath_sys::clock::monotonic_ns());
        self.neighbours.heard(key);
        self.debts.end(&meter);
    }

    /// Closes what came from this user, and nobody wants.
    pub fn close_received(&mut self, uid: u32, fds: Vec<OwnedFd>) {
        let files = self.users.unwanted(uid, fds);
        self.debts.close(uid, !self.users.counts(uid), files);
    }

    /// An end is over that its program may not have read: what became of it is seen to.
    pub fn end_on_way(&mut self, who: Token, end: OwnedFd, (uid, descriptors): (u32, usize)) {
        self.on_way.end(who, end, (uid, descriptors), &mut self.users, &self.watch, &mut self.debts);
    }

    /// What processes have said, and was not heard, is heard in the next turn; what came along and is no bell is closed.
    pub fn hear_rest(&mut self) {
        let (unheard, files) = self.neighbours.take_unheard();
        self.later.extend(unheard.into_iter().map(|key| (Token::Neighbour(key), 0)));
        let mut by_user = HashMap::<u32, Vec<Unwanted>>::new();
        files.into_iter().for_each(|file| by_user.entry(file.account().uid).or_default().push(file));
        for (uid, files) in by_user {
            let meter = self.debts.begin(Payer::User(uid), bypath_sys::clock::monotonic_ns());
            self.debts.close(uid, !self.users.counts(uid), files);
            self.debts.end(&meter);
        }
    }

    fn work_for(&mut self, engine: &mut Engine, key: Key) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        socket.is.active = false;
        let more = match socket.phase {
            Phase::Fresh => {
                if socket.is.hung_up {
                    self.release(engine.stack(), key);
                }
                false
            }
            Phase::Connecting(_) => {
                self.look_at_connecting(engine.stack(), key);
                false
            }
            Phase::Open => self.pump(engine.stack(), key),
            Phase::Listening(_) => self.accept(engine, key),
            Phase::Datagrams(_) => self.exchange(engine, key),
        };
        if more {
            self.activate(key);
        }
    }

    /// What the kernel says of the service's end.
    pub fn heard(&mut self, key: Key, events: u32) {
        use super::watch::{ERR, HUP, OUT, PRI};
        let Some(socket) = self.sockets.get_mut(key) else { return };
        let is = &mut socket.is;
        (is.pair_in, is.pair_news) = (true, true);
        is.pair_out |= events & OUT != 0 && !is.ring_full;
        let gone = events & HUP != 0 && !socket.holders.as_ref().is_some_and(Holders::are_any);
        if gone && !std::mem::replace(&mut is.hung_up, true) {
            self.ended.push(key);
        }
        is.unread |= events & ERR != 0;
        if events & PRI != 0 {
            // Somebody whom the library does not see.
            socket.urges();
        }
        self.activate(key);
    }

    /// What the stack says.
    pub fn told(&mut self, id: SocketId, readable: bool, writable: bool, error: bool) {
        let Some(key) = self.by_id.get(&id).copied() else { return };
        let Some(socket) = self.sockets.get_mut(key) else { return };
        socket.is.stack_in |= readable || error;
        socket.is.stack_out |= writable || error;
        self.activate(key);
    }
}

impl Socket {
    /// Whether others have their turn now.
    pub fn is_late(&self) -> bool {
        self.until.is_some_and(|until| bypath_sys::clock::monotonic_ns() >= until)
    }

    /// The connection failed: programs hear of it once.
    pub fn fail(&mut self, failure: Failure, half_closed: bool) {
        self.is.failed = true;
        self.errno = errno::of_connection(half_closed, failure);
    }

    /// Whether the kernel says that the program's end is gone, and that it had not read everything.
    pub fn looks_gone(&self) -> (bool, bool) {
        let events = bypath_sys::poll::now(self.end.as_raw_fd(), 0) as u32;
        let shut = events & super::watch::HUP != 0;
        (shut && !self.holders.as_ref().is_some_and(Holders::are_any), events & super::watch::ERR != 0)
    }
}

/// An address as the stack takes it, of a socket of this family.
///
/// # Errors
/// EAFNOSUPPORT.
pub fn inward(v6: bool, address: SocketAddr) -> Result<SocketAddr> {
    match address {
        SocketAddr::V4(_) if !v6 => Ok(address),
        SocketAddr::V6(a) if v6 => Ok(match a.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(v4.into(), a.port()),
            None => address,
        }),
        _ => Err(libc::EAFNOSUPPORT),
    }
}

/// An address as a socket of this family tells it.
pub fn outward(v6: bool, address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(a) if v6 => SocketAddr::new(a.ip().to_ipv6_mapped().into(), a.port()),
        _ => address,
    }
}
