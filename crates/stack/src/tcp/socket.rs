//! Sockets of TCP: what an application does with connections and listeners.

use super::buffer::LEAST;
use super::error::{AcceptError, ConnectError, ListenError, OpenError, ReadError, WriteError};
use super::holders::Holders;
use super::listener::Listener;
use super::settle::Before;
use super::status::Statistics;
use super::table::{Entry, Idle, Options, Owner, Place, tell};
use super::tcb::{Connection, Failure, Settings, State};
use crate::Stack;
use crate::event::Ready;
use crate::socket::{BindError, SocketError, SocketId, unscoped};
use crate::time::Instant;
use crate::udp::demux::{Binding, Crowded, InUse};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

/// A TCP socket, to be used for some calls.
///
/// It is closed by [`Stack::close`]: what was written is still sent, and the connection lives on without the socket until both
/// sides have finished. If there are octets that were not read, it is reset instead (RFC 9293, 3.6.1).
#[derive(Debug)]
pub struct Tcp<'a> {
    pub(super) stack: &'a mut Stack,
    pub(super) id: SocketId,
    pub(super) index: u32,
}

impl Stack {
    /// A new TCP socket, bound to nothing; of IPv4, IPv6 or both, as it will be bound.
    ///
    /// # Errors
    /// [`TooMany`](crate::socket::TooMany).
    pub fn open_tcp(&mut self) -> Result<SocketId, OpenError> {
        let settings = Arc::clone(&self.tcp.settings);
        let idle = Box::new(Idle { settings, ..Idle::default() });
        let index = self.tcp.insert(self.config.tcp.connections, Place::Idle(idle))?;
        Ok(self.tcp.id(index))
    }

    /// TCP sockets that are opened from now on begin with urgent octets [in line](Settings::urgent_inline).
    pub fn keep_urgent_in_line(&mut self) {
        Arc::make_mut(&mut self.tcp.settings).urgent_inline = true;
    }

    /// A TCP socket; `None`: it was closed, or is no TCP socket.
    #[inline]
    pub fn tcp(&mut self, id: SocketId) -> Option<Tcp<'_>> {
        let index = self.tcp.index(id)?;
        Some(Tcp { stack: self, id, index })
    }

    /// Closes a socket of TCP.
    pub(crate) fn close_tcp(&mut self, id: SocketId) {
        let Some(index) = self.tcp.index(id) else { return };
        match self.tcp.place(index) {
            Place::Free => {}
            Place::Idle(_) => {
                self.tcp.release(index);
                self.tcp.remove(index);
            }
            Place::Listener(_) => self.close_listener(id, index),
            Place::Connection(_) => self.leave_connection(index),
        }
    }

    /// Who has called and was not accepted is reset; who is not open yet finds nobody when he is.
    fn close_listener(&mut self, id: SocketId, index: u32) {
        self.tcp.forwarder = self.tcp.forwarder.filter(|forwarder| *forwarder != id);
        self.tcp.release(index);
        let Place::Listener(listener) = self.tcp.remove(index) else { return };
        self.tcp.set_listening(index, &listener.binding, false);
        for called in listener.queue {
            self.drop_connection(called);
        }
    }

    /// A connection that nobody has goes with a reset, but not with one that would wait for a neighbour: nobody is counted for that.
    fn drop_connection(&mut self, index: u32) {
        let now = self.tcp.clock;
        let Some(entry) = self.tcp.entry_mut(index) else { return };
        let before = Before::of(entry);
        if entry.parked {
            entry.connection.end(None)
        } else {
            entry.connection.abort()
        }
        self.tcp.give(index, Owner::Nobody);
        self.settle(now, index, &before);
    }

    /// A connection has the window that its listener wants.
    fn widen(&mut self, index: u32) {
        if let Some(entry) = self.tcp.entry_mut(index) {
            entry.connection.accepted();
            self.list(index);
        }
    }

    /// The application leaves a connection.
    fn leave_connection(&mut self, index: u32) {
        let now = self.tcp.clock;
        self.tcp.forget_id(index);
        let Some((user, octets)) = self.tcp.entry(index).map(|entry| (entry.user, entry.octets)) else {
            return;
        };
        let most = self.config.tcp.orphans;
        let many = self.tcp.users.has_orphans(user, self.tcp.orphans >= most, most);
        let much = user != 0 && self.tcp.users.has_left_much(user, octets);
        let Some(entry) = self.tcp.entry_mut(index) else { return };
        let before = Before::of(entry);
        let linger = entry.options.linger;
        // What is over at some time is looked at as soon as the time is told.
        if linger.is_some() || entry.connection.state() == State::FinWait2 {
            (entry.left, entry.until) = (true, Some(Instant::ZERO));
        }
        match linger {
            // As below.
            Some(Duration::ZERO) if many && entry.parked => entry.connection.end(None),
            Some(Duration::ZERO) => entry.connection.abort(),
            _ => entry.connection.close(),
        }
        // Little is no matter, as anywhere.
        let much = much && entry.connection.unacknowledged() > LEAST;
        let over = matches!(entry.connection.state(), State::Closed | State::TimeWait);
        if (many || much) && !over {
            self.counters.tcp_orphans_reset += 1;
            // A reset that would wait for a neighbour is not said: he is beyond his bound as long as it waits.
            if entry.parked { entry.connection.end(None) } else { entry.connection.abort() }
        }
        self.tcp.orphans += 1;
        self.tcp.give(index, Owner::Orphan);
        // A port that it had chosen it only uses from now on: who may have so many sockets has no more ports to himself.
        self.tcp.release(index);
        if let Some(entry) = self.tcp.entry_mut(index) {
            entry.bound = false;
        }
        self.settle(now, index, &before);
    }
}

impl Tcp<'_> {
    fn place(&mut self) -> &mut Place {
        self.stack.tcp.place_mut(self.index).expect("a socket that is open has a place")
    }

    fn entry(&mut self) -> Option<&mut Entry> {
        self.stack.tcp.entry_mut(self.index)
    }

    /// What it wants.
    pub fn options(&mut self) -> Options {
        match self.place() {
            Place::Idle(idle) => idle.options,
            Place::Listener(listener) => listener.options,
            Place::Connection(entry) => entry.options,
            Place::Free => Options::default(),
        }
    }

    /// Wants something else. Who it shares its port with, and its interface, are looked at when it is bound; connections have the
    /// options of their listener.
    pub fn set_options(&mut self, options: Options) {
        match self.place() {
            Place::Idle(idle) => idle.options = options,
            Place::Listener(listener) => listener.options = options,
            Place::Connection(entry) => {
                let options = Options { iface: entry.options.iface, ..options };
                self.stack.tcp.set_options(self.index, options);
            }
            Place::Free => {}
        }
    }

    /// Whose it is, by a number that the application has for him: what it holds counts for this user, and so does who calls it, until it is
    /// gone. Each user has a [share](super::Share); who has none is nobody in particular.
    pub fn set_user(&mut self, user: u32) {
        let user = self.stack.whom(user);
        self.stack.tcp.users.know(user);
        match self.place() {
            Place::Idle(idle) => idle.user = user,
            // Who calls from now on.
            Place::Listener(listener) => listener.user = user,
            Place::Connection(_) => self.stack.tcp.hand_over(self.index, user),
            Place::Free => {}
        }
    }

    /// Bounds and wishes of its connection.
    pub fn settings(&mut self) -> Settings {
        match self.place() {
            Place::Idle(idle) => *idle.settings,
            Place::Listener(listener) => *listener.settings,
            Place::Connection(entry) => entry.connection.settings(),
            Place::Free => Settings::default(),
        }
    }

    /// Wants others. What was agreed on when the connection was opened stays: MSS, SACK, timestamps, window scale and ECN.
    /// Connections have the settings of their listener. A size that is another one than before is what is wanted: it is not tuned any
    /// more.
    pub fn set_settings(&mut self, now: Instant, settings: Settings) {
        match self.place() {
            Place::Idle(idle) => idle.settings = Arc::new(settings.chosen(&idle.settings)),
            Place::Listener(listener) => {
                listener.settings = Arc::new(settings.chosen(&listener.settings));
            }
            Place::Connection(entry) => {
                let before = Before::of(entry);
                entry.connection.set_settings(now, settings);
                self.stack.settle(now, self.index, &before);
            }
            Place::Free => {}
        }
    }

    /// Where it is bound; the address and port of its own end when it is connected.
    pub fn local(&mut self) -> Option<SocketAddr> {
        match self.place() {
            Place::Idle(idle) => idle.binding.map(|binding| binding.local),
            Place::Listener(listener) => Some(listener.binding.local),
            Place::Connection(entry) => Some(entry.ends.local()),
            Place::Free => None,
        }
    }

    /// To whom it is connected.
    pub fn remote(&mut self) -> Option<SocketAddr> {
        self.entry().map(|entry| entry.ends.remote())
    }

    /// The state of its connection; `None`: it has none.
    pub fn state(&mut self) -> Option<State> {
        self.entry().map(|entry| entry.connection.state())
    }

    /// It was bound; what was accepted is not.
    pub fn is_bound(&mut self) -> bool {
        self.stack.tcp.binding(self.index).is_some()
    }

    /// It listens.
    pub fn is_listening(&mut self) -> bool {
        matches!(self.place(), Place::Listener(_))
    }

    /// Binds it to one of our addresses, or the unspecified address, which stands for all. Port 0: one that is free.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind(&mut self, local: SocketAddr) -> Result<SocketAddr, BindError> {
        let (local, scope) = unscoped(local);
        let Place::Idle(idle) = self.place() else { return Err(BindError::Bound) };
        if idle.binding.is_some() {
            return Err(BindError::Bound);
        }
        let (options, user) = (idle.options, idle.user);
        let iface = options.iface.or(scope);
        let ip = local.ip();
        if !self.stack.may_bind(ip, iface) {
            return Err(BindError::NotOurs);
        }
        let binding = Binding {
            iface,
            only_v6: options.only_v6,
            reuse_address: options.reuse_address,
            reuse_port: options.reuse_port,
            ..Binding::new(local)
        };
        let binding = match local.port() {
            0 => self.stack.free_tcp_port(user, &binding).ok_or(BindError::NoPort)?,
            _ if self.stack.tcp.is_free(user, &binding) && !self.stack.tcp.is_anothers(user, &binding) => {
                binding
            }
            _ => return Err(InUse.into()),
        };
        let (index, port) = (self.index, binding.local.port());
        let holders = self.stack.tcp.bound.entry(port);
        holders.and_modify(|all| all.add(index)).or_insert(Holders::One(index));
        if let Place::Idle(idle) = self.place() {
            idle.binding = Some(binding);
        }
        Ok(binding.local)
    }

    /// Listens: who calls from now on can be accepted. Of a [user](Tcp::set_user) [so many](crate::udp::demux::SHARERS) share one address and port at
    /// most. `backlog`: as many and one more wait for that at most; as many may be about to
    /// be open before cookies are sent. Of a socket that listens already it is another backlog.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&mut self, backlog: usize) -> Result<(), ListenError> {
        match self.place() {
            Place::Listener(listener) => {
                listener.backlog = backlog;
                return Ok(());
            }
            Place::Idle(idle) if idle.binding.is_none() => {
                self.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))?;
            }
            Place::Idle(_) => {}
            _ => return Err(ListenError::Connected),
        }
        let Place::Idle(idle) = self.place() else { return Err(ListenError::Connected) };
        let (options, settings, user) = (idle.options, Arc::clone(&idle.settings), idle.user);
        let Some(binding) = idle.binding else { return Err(ListenError::Connected) };
        // Others were bound with SO_REUSEADDR alone, or to a group: one of them may listen, or call. And a port of nobody's choice may have
        // connections.
        let tcp = &self.stack.tcp;
        if tcp.is_listened_to(self.index, user, &binding) || tcp.is_used_by_another(user, &binding) {
            return Err(BindError::from(InUse).into());
        }
        if !self.stack.tcp.may_listen(user, &binding) {
            return Err(BindError::from(Crowded).into());
        }
        *self.place() = Place::Listener(Box::new(Listener {
            binding,
            options,
            settings,
            user,
            backlog,
            half_open: 0,
            queue: VecDeque::new(),
            ready: Ready::default(),
            cookies: None,
            refused: None,
        }));
        self.stack.tcp.set_listening(self.index, &binding, true);
        Ok(())
    }

    /// The next connection that has become open.
    ///
    /// # Errors
    /// [`AcceptError`].
    pub fn accept(&mut self) -> Result<SocketId, AcceptError> {
        let index = self.accept_as(Owner::Application)?;
        self.stack.widen(index);
        Ok(self.stack.tcp.id(index))
    }

    /// The same for somebody else, who may leave it: until it is [taken](Tcp::take_offered) its window stays as small as that of a connection
    /// that nobody has accepted, and its octets count as theirs.
    ///
    /// # Errors
    /// [`AcceptError`].
    pub fn accept_to_offer(&mut self) -> Result<SocketId, AcceptError> {
        let index = self.accept_as(Owner::Offered)?;
        Ok(self.stack.tcp.id(index))
    }

    /// Who was [offered](Tcp::accept_to_offer) the connection has taken it.
    pub fn take_offered(&mut self) {
        if self.entry().is_some_and(|entry| entry.owner == Owner::Offered) {
            self.stack.tcp.give(self.index, Owner::Application);
            self.stack.widen(self.index);
        }
    }

    fn accept_as(&mut self, owner: Owner) -> Result<u32, AcceptError> {
        let Place::Listener(listener) = self.place() else { return Err(AcceptError::NotListening) };
        let index = listener.queue.pop_front().ok_or(AcceptError::Empty)?;
        let stack = &mut *self.stack;
        let id = stack.tcp.id(index);
        stack.tcp.give(index, owner);
        let Some(entry) = stack.tcp.entry_mut(index) else { return Err(AcceptError::Empty) };
        // What came before anybody could be told.
        let c = &entry.connection;
        let ended = c.state() == State::Closed;
        let urgent = c.has_urgent();
        if c.unread() > 0 || c.is_finished() || ended || urgent {
            tell(&mut entry.ready, id, &mut stack.ready, |news| {
                (news.readable, news.error, news.urgent) = (true, ended, urgent);
            });
        }
        Ok(index)
    }

    /// Answers the call that was accepted of a listener that [admits](Options::admits) whom it likes: the connection is open when the
    /// socket becomes writable, or there is an error to be fetched. [`abort`](Tcp::abort), and closing the socket, refuse the call
    /// as if nobody listened there.
    pub fn admit(&mut self, now: Instant) {
        self.stack.tcp.clock = now;
        let Some(entry) = self.entry() else { return };
        let before = Before::of(entry);
        entry.connection.admit();
        self.stack.settle(now, self.index, &before);
    }

    /// Asks for a connection. It is open when the socket becomes writable; or there is an error to be fetched.
    ///
    /// # Errors
    /// [`ConnectError`]: it is not even asked for.
    pub fn connect(&mut self, now: Instant, remote: SocketAddr) -> Result<(), ConnectError> {
        self.stack.connect_tcp(now, self.index, remote)
    }

    /// Queues octets to be sent, as many as there is room for; how many.
    ///
    /// # Errors
    /// [`WriteError`].
    #[inline]
    pub fn write(&mut self, octets: &[u8]) -> Result<usize, WriteError> {
        self.write_before(octets, false)
    }

    #[inline]
    pub(super) fn write_before(&mut self, octets: &[u8], more: bool) -> Result<usize, WriteError> {
        let all = octets.len();
        self.queue(all, |c, most| {
            c.expect_more(more);
            let n = c.write(&octets[..most]);
            (n > 0 || all == 0).then_some(n)
        })
    }

    /// Has octets written where they are sent from, `most` of them: `fill` gets a piece of memory, which may be shorter, and says how
    /// many it wrote. That many; one copy fewer than [`write`](Tcp::write) for who reads them from somewhere. `more`: more will follow soon,
    /// and what does not fill a segment waits for it (MSG_MORE).
    ///
    /// # Errors
    /// [`WriteError`]; `fill` was not called.
    #[inline]
    pub fn write_with(
        &mut self,
        most: usize,
        more: bool,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<usize, WriteError> {
        self.queue(most, |c, most| {
            let n = c.write_with(most, fill)?;
            // Nothing that was written has nothing to say of what waits already.
            if n > 0 {
                c.expect_more(more);
            }
            Some(n)
        })
    }

    /// Queues `most` octets by `put`, which says how many there were: `None`, there was no room.
    #[inline]
    pub(super) fn queue(
        &mut self,
        most: usize,
        put: impl FnOnce(&mut Connection, usize) -> Option<usize>,
    ) -> Result<usize, WriteError> {
        let full = self.stack.tcp.is_full_to_write(self.index, self.stack.config.tcp.octets);
        let Some(entry) = self.stack.tcp.entry_mut(self.index) else { return Err(WriteError::NotConnected) };
        let c = &mut entry.connection;
        if !c.is_writable() {
            return Err(match c.state() {
                _ if c.has_failed() => c.take_failure().map_or(WriteError::Finished, WriteError::Failed),
                State::SynSent | State::SynReceived if !c.is_shut() => {
                    entry.blocked = true;
                    WriteError::Full
                }
                _ => WriteError::Finished,
            });
        }
        // Without memory for more, what there is may be used.
        let possible = if full { most.min(c.spare_room()) } else { most };
        let n = put(c, possible);
        if n.is_none_or(|n| n < most && (full || c.room() == 0)) {
            entry.blocked = true;
        }
        let Some(n) = n else { return Err(WriteError::Full) };
        let held = c.octets_held();
        let before = core::mem::replace(&mut entry.octets, held);
        let (user, owner) = (entry.user, entry.owner);
        self.stack.tcp.count(user, owner, before, held);
        self.stack.list(self.index);
        Ok(n)
    }

    /// Takes octets that came, as many as there are and fit; how many. 0: the other side has finished, and everything was read.
    ///
    /// # Errors
    /// [`ReadError`].
    #[inline]
    pub fn read(&mut self, room: &mut [u8]) -> Result<usize, ReadError> {
        self.take(room.len(), |c| c.read(room))
    }

    /// Shows octets that came where they lie, `most` of them: `take` gets them, or fewer that lie in one piece of memory, and says how
    /// many of them it has taken; the rest stays. That many; one copy fewer than [`read`](Tcp::read) for who hands them on. 0: none was
    /// taken, or the other side has finished and everything was read; then `take` gets an empty slice.
    ///
    /// # Errors
    /// [`ReadError`]; `take` was not called.
    #[inline]
    pub fn read_with(&mut self, most: usize, take: impl FnOnce(&[u8]) -> usize) -> Result<usize, ReadError> {
        self.take(most, |c| c.read_with(most, take))
    }

    /// Takes octets by `take`, which says how many there were.
    #[inline]
    fn take(&mut self, most: usize, take: impl FnOnce(&mut Connection) -> usize) -> Result<usize, ReadError> {
        let clock = self.stack.tcp.clock;
        let entry = match self.readable(most > 0) {
            Ok(entry) => entry,
            Err((error, passed)) => {
                // The window may have to be told, though nothing can be read.
                if passed {
                    self.stack.list(self.index);
                }
                return Err(error);
            }
        };
        let n = take(&mut entry.connection);
        let tunes = entry.connection.tunes();
        let held = entry.connection.octets_held();
        let before = core::mem::replace(&mut entry.octets, held);
        let (user, owner) = (entry.user, entry.owner);
        self.stack.tcp.count(user, owner, before, held);
        if tunes {
            self.stack.tune(clock, self.index, n);
        }
        self.stack.list(self.index);
        Ok(n)
    }

    /// The same, and they stay: MSG_PEEK.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn peek(&mut self, room: &mut [u8]) -> Result<usize, ReadError> {
        let entry = self.readable(false).map_err(|(error, _)| error)?;
        Ok(entry.connection.peek(room))
    }

    /// The connection, if something can be read of it, or nothing ever will. `takes`: an urgent octet that is the next one is passed;
    /// whether it was, if there is nothing behind it.
    #[inline]
    fn readable(&mut self, takes: bool) -> Result<&mut Entry, (ReadError, bool)> {
        let entry = self.stack.tcp.entry_mut(self.index).ok_or((ReadError::NotConnected, false))?;
        let c = &mut entry.connection;
        if c.unread() == 0 {
            let passed = takes && c.urgent.is_some() && c.pass_mark();
            if let Some(failure) = c.take_failure() {
                return Err((failure.into(), passed));
            }
            if !c.is_at_end() {
                return Err((ReadError::Empty, passed));
            }
        }
        Ok(entry)
    }

    /// Octets that can be read.
    pub fn unread(&mut self) -> usize {
        self.entry().map_or(0, |entry| entry.connection.unread())
    }

    /// Nothing more will be written: the other side reads an end behind what was. SHUT_WR.
    ///
    /// # Errors
    /// [`WriteError::NotConnected`].
    pub fn finish(&mut self) -> Result<(), WriteError> {
        let now = self.stack.tcp.clock;
        let entry = self.entry().ok_or(WriteError::NotConnected)?;
        if entry.connection.state() == State::Closed {
            return Err(WriteError::NotConnected);
        }
        let before = Before::of(entry);
        entry.connection.finish();
        self.stack.settle(now, self.index, &before);
        Ok(())
    }

    /// Ends the connection at once, with a reset. What was received can still be read.
    pub fn abort(&mut self) {
        let now = self.stack.tcp.clock;
        let Some(entry) = self.entry() else { return };
        let before = Before::of(entry);
        entry.connection.abort();
        self.stack.settle(now, self.index, &before);
    }

    /// How its connection does; `None`: it has none.
    pub fn statistics(&mut self) -> Option<Statistics> {
        let entry = self.entry()?;
        let (segments_in, segments_out) = (entry.segments_in, entry.segments_out);
        Some(Statistics { segments_in, segments_out, ..entry.connection.statistics() })
    }

    /// Why it is over; it is forgotten: SO_ERROR.
    pub fn take_error(&mut self) -> Option<Failure> {
        self.entry()?.connection.take_failure()
    }

    /// What the network said last and did not end the connection (RFC 5927, 5.2): it may be why nothing gets on.
    pub fn warning(&mut self) -> Option<SocketError> {
        self.entry()?.said
    }

    /// Its id.
    pub const fn id(&self) -> SocketId {
        self.id
    }
}
