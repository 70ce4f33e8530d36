//! What follows from what happened to a connection: who is told, which timer is set, whether it has something to say, and
//! whether anything is left of it.

use super::clock::TIME_WAIT;
use super::table::{Entry, NEVER, Owner, Whose, tell};
use super::tcb::State;
use crate::Stack;
use crate::egress::Waiting;
use crate::iface::IfaceId;
use crate::socket::SocketId;
use crate::time::Instant;
use core::net::IpAddr;
use core::time::Duration;

/// Buffers that are empty then are given back: not at once, as the next octets would have to take memory again.
const IDLE: Duration = Duration::from_millis(200);

/// What a connection was before something happened to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    state: Option<State>,
    unread: usize,
    at_end: bool,
}

impl Before {
    /// It was not there.
    pub const NOTHING: Before = Before { state: None, unread: 0, at_end: false };

    #[inline]
    pub fn of(entry: &Entry) -> Before {
        let c = &entry.connection;
        Before { state: Some(c.state()), unread: c.rx.len(), at_end: c.is_finished() }
    }
}

impl Stack {
    /// What follows.
    #[inline]
    pub(crate) fn settle(&mut self, now: Instant, index: u32, before: &Before) {
        if self.settle_silently(now, index, before) {
            self.list(index);
        }
    }

    /// The same, for one that has just been asked for a segment and had none. True: it may have something to say all the same.
    #[inline]
    pub(super) fn settle_silently(&mut self, now: Instant, index: u32, before: &Before) -> bool {
        let (id, clock) = (self.tcp.id(index), self.tcp.clock);
        let full = self.tcp.is_full(index, self.config.tcp.octets);
        let Some(entry) = self.tcp.entry_mut(index) else { return false };
        if full {
            entry.connection.release();
        }
        let octets = entry.connection.octets_held();
        let held = core::mem::replace(&mut entry.octets, octets);
        match entry.owner {
            Owner::Application | Owner::Offered => tell_application(entry, before, id, &mut self.ready),
            Owner::Queued => {}
            _ => {
                self.settle_without(now, index, held);
                return true;
            }
        }
        let changed = (octets != held).then_some((entry.user, entry.owner));
        let speaks = !entry.listed && !entry.parked && entry.connection.wants_transmit();
        let over = entry.connection.state() == State::Closed;
        let due = due_sooner(entry, clock);
        if let Some((user, owner)) = changed {
            self.tcp.count(user, owner, held, octets);
        }
        if over {
            self.closed(index);
        }
        if let Some(due) = due {
            self.set_timer(index, due);
        }
        speaks
    }

    /// Of a connection that no application has.
    fn settle_without(&mut self, now: Instant, index: u32, held: usize) {
        let Some(entry) = self.tcp.entry_mut(index) else { return };
        let (octets, state, owner) = (entry.octets, entry.connection.state(), entry.owner);
        let user = entry.user;
        self.tcp.count(user, owner, held, octets);
        if let Owner::HalfOpen(listener) = owner
            && state != State::SynReceived
        {
            self.opened(index, listener, state);
        }
        if state == State::Closed {
            self.closed(index);
        }
        let Some(entry) = self.tcp.entry_mut(index) else { return };
        // It has nothing to say to the neighbour that it waits for.
        if entry.parked && state == State::Closed && !entry.connection.wants_transmit() {
            entry.parked = false;
            self.tcp.parked.remove(index);
        }
        let Some(entry) = self.tcp.entry_mut(index) else { return };
        if entry.is_over() {
            return self.free(index);
        }
        if entry.owner == Owner::Orphan {
            match state {
                // Nobody is there who could be sent something: it is not waited for for ever (Linux's net.ipv4.tcp_fin_timeout).
                State::FinWait2 if entry.until.is_none() => entry.until = Some(now + TIME_WAIT),
                State::TimeWait if !entry.connection.wants_transmit() && !entry.listed && !entry.parked => {
                    return self.wait_out(now, index);
                }
                _ => {}
            }
        }
        self.rearm(index);
    }

    /// A connection is not half open any more.
    pub(super) fn opened(&mut self, index: u32, listener: SocketId, state: State) {
        self.tcp.half_open -= 1;
        let place = self.tcp.index(listener);
        let called = place.and_then(|at| self.tcp.listener_mut(at));
        let owner = match called {
            Some(called) => {
                called.half_open -= 1;
                if state == State::Closed {
                    Owner::Nobody
                } else {
                    called.queue.push_back(index);
                    tell(&mut called.ready, listener, &mut self.ready, |news| news.readable = true);
                    Owner::Queued
                }
            }
            None => Owner::Nobody,
        };
        self.tcp.give(index, owner);
        let Some(entry) = self.tcp.entry_mut(index) else { return };
        if owner == Owner::Nobody {
            // Nobody listens any more.
            entry.connection.abort();
            if entry.connection.state() == State::Closed {
                self.closed(index);
            }
        }
    }

    /// Segments between its ends are not its own any more.
    fn closed(&mut self, index: u32) {
        let Some(entry) = self.tcp.entry_mut(index) else { return };
        let ends = entry.ends;
        if core::mem::take(&mut entry.entered) {
            self.tcp.strike(&ends);
        }
    }

    /// Forgets a connection.
    pub(super) fn free(&mut self, index: u32) {
        self.closed(index);
        let Some(entry) = self.tcp.entry_mut(index) else { return };
        let (timer, held) = (entry.timer.take(), entry.octets);
        let (bound, foreign, owner, user) = (entry.bound, entry.foreign, entry.owner, entry.user);
        if let Some(timer) = timer {
            self.tcp.timers.remove(timer);
        }
        if bound {
            self.tcp.release(index);
        }
        self.tcp.end_count(user, owner, held);
        self.tcp.foreign -= usize::from(foreign);
        self.tcp.orphans -= usize::from(owner == Owner::Orphan);
        self.tcp.remove(index);
    }

    /// What has to be kept of a connection in TIME-WAIT is kept; the rest is forgotten.
    fn wait_out(&mut self, now: Instant, index: u32) {
        let Some(entry) = self.tcp.entry(index) else { return };
        let waiting = entry.connection.waiting(now, entry.ends, &entry.options);
        self.free(index);
        if self.config.tcp.time_wait == 0 {
            self.counters.tcp_time_wait_replaced += 1;
            return;
        }
        while self.tcp.waits.len() >= self.config.tcp.time_wait
            && let Some((oldest, _)) = self.tcp.waits.first()
        {
            self.tcp.forget_waiting(oldest);
            self.counters.tcp_time_wait_replaced += 1;
        }
        let place = self.tcp.waits.add(waiting);
        self.tcp.enter(Whose::Waiting(place));
    }

    /// Sets its timer, if it is due earlier than that comes. One that comes too early costs less than one that is moved with each
    /// segment.
    pub(super) fn rearm(&mut self, index: u32) {
        let clock = self.tcp.clock;
        if let Some(due) = self.tcp.entry_mut(index).and_then(|entry| due_sooner(entry, clock)) {
            self.set_timer(index, due);
        }
    }

    /// Sets its timer.
    fn set_timer(&mut self, index: u32, due: Instant) {
        let Some(entry) = self.tcp.entry_mut(index) else { return };
        entry.due = due;
        let timer = match entry.timer {
            Some(timer) => timer,
            None => {
                let timer = self.tcp.timers.create(index);
                if let Some(entry) = self.tcp.entry_mut(index) {
                    entry.timer = Some(timer);
                }
                timer
            }
        };
        self.tcp.timers.set(timer, due);
    }

    /// Puts it on its link's list, if it has something to say.
    pub(super) fn list(&mut self, index: u32) {
        let Some(entry) = self.tcp.entry_mut(index) else { return };
        if !entry.listed && !entry.parked && entry.connection.wants_transmit() {
            entry.listed = true;
            let iface = entry.way.iface;
            let link = self.ifaces[iface.at()].link;
            self.ifaces[link.at()].talkers.push_back(index);
        }
    }

    /// What is due by now.
    pub(crate) fn tcp_due(&mut self, now: Instant) {
        self.tcp.clock = now;
        while let Some(index) = self.tcp.timers.pop_due(now) {
            let Some(entry) = self.tcp.entry_mut(index) else { continue };
            entry.due = NEVER;
            if entry.connection.silence(now) >= IDLE {
                entry.connection.release();
            }
            let before = Before::of(entry);
            if entry.until.is_some_and(|until| until <= now) {
                entry.until = None;
                if core::mem::take(&mut entry.left) {
                    entry.until = entry.options.linger.map(|linger| now + linger);
                } else {
                    entry.connection.abort();
                }
            } else if entry.connection.poll_timeout().is_some_and(|at| at <= now) {
                entry.connection.handle_timeout(now);
            }
            if entry.connection.poll_timeout().is_none()
                && entry.until.is_none()
                && entry.connection.octets_held() == 0
                && let Some(timer) = entry.timer.take()
            {
                self.tcp.timers.remove(timer);
            }
            self.settle(now, index, &before);
        }
        while let Some((place, waiting)) = self.tcp.waits.first()
            && waiting.until <= now
        {
            self.tcp.forget_waiting(place);
        }
    }

    /// Whether a connection that no program has any more is over but for a reset, and it is not counted, or its user has as many of those as he may: then
    /// no neighbour is asked for to say it.
    #[cold]
    pub(super) fn forgets_reset(&mut self, index: u32) -> bool {
        let most = self.config.tcp.orphans;
        let full = self.tcp.orphans >= most;
        let Some(entry) = self.tcp.entry(index) else { return false };
        let forgets = match entry.owner {
            Owner::Nobody => true,
            Owner::Orphan => self.tcp.users.has_orphans(entry.user, full, most),
            _ => false,
        };
        let Some(entry) = self.tcp.entry_mut(index) else { return false };
        let forgets = forgets && entry.connection.state() == State::Closed;
        if forgets {
            entry.connection.forget_reset();
        }
        forgets
    }

    /// A connection waits for a neighbour's address; it keeps what it has to say.
    #[cold]
    pub(super) fn park(&mut self, now: Instant, index: u32, iface: IfaceId, address: IpAddr) {
        let Some(entry) = self.tcp.entry_mut(index) else { return };
        entry.parked = true;
        let user = entry.user;
        if !self.tcp.parked.add(index, iface, address) {
            return;
        }
        if let Some(gone) = self.ifaces[iface.at()].neighbors.wait(now, address, user, Waiting::Connections) {
            self.gave_way(now, iface, address, gone);
        }
        self.poll_neighbors(now, iface);
    }

    /// Those that waited for a neighbour go on: it has answered, or is to be asked once more.
    #[cold]
    pub(crate) fn unpark(&mut self, iface: IfaceId, address: IpAddr) {
        for index in self.tcp.parked.take(iface, address) {
            if let Some(entry) = self.tcp.entry_mut(index) {
                entry.parked = false;
            }
            self.list_or_free(index);
        }
    }

    pub(super) fn list_or_free(&mut self, index: u32) {
        if self.tcp.entry(index).is_some_and(Entry::is_over) {
            self.free(index);
        } else {
            self.list(index);
        }
    }

    /// There is no place for the neighbour that they waited for: what they would have said is lost, and comes again.
    #[cold]
    pub(crate) fn unpark_for_now(&mut self, now: Instant, iface: IfaceId, address: IpAddr) {
        for index in self.tcp.parked.take(iface, address) {
            let Some(entry) = self.tcp.entry_mut(index) else { continue };
            entry.parked = false;
            let before = Before::of(entry);
            entry.connection.lose_one(now);
            self.settle(now, index, &before);
        }
    }

    /// Nobody has the address that they waited for.
    #[cold]
    pub(crate) fn unpark_in_vain(&mut self, now: Instant, iface: IfaceId, address: IpAddr) {
        for index in self.tcp.parked.take(iface, address) {
            let Some(entry) = self.tcp.entry_mut(index) else { continue };
            entry.parked = false;
            let before = Before::of(entry);
            entry.connection.host_is_not_there(now);
            self.counters.neighbor_drop_unreachable += 1;
            self.settle(now, index, &before);
        }
    }
}

/// When something is due, if that is before its timer comes.
#[inline]
fn due_sooner(entry: &Entry, clock: Instant) -> Option<Instant> {
    let due = match (entry.connection.poll_timeout(), entry.until) {
        (Some(a), Some(b)) => a.min(b),
        (Some(due), None) | (None, Some(due)) => due,
        // Buffers that stay empty are given back.
        (None, None) if entry.octets > 0 && entry.due == NEVER => clock + IDLE,
        (None, None) => return None,
    };
    (due < entry.due).then_some(due)
}

/// Tells whose connection it is what it has become.
#[inline]
fn tell_application(
    entry: &mut Entry,
    before: &Before,
    id: SocketId,
    list: &mut alloc::collections::VecDeque<SocketId>,
) {
    let c = &entry.connection;
    let state = c.state();
    let ended = state == State::Closed && before.state != Some(State::Closed);
    let mut readable = c.rx.len() > before.unread;
    let mut urgent = false;
    if c.urgent.is_some() {
        (readable, urgent) = entry.connection.urgent_news(readable);
    }
    let c = &entry.connection;
    readable |= c.is_finished() && !before.at_end || ended;
    let opens = matches!(before.state, Some(State::SynSent | State::SynReceived)) && c.is_writable();
    let room = entry.blocked && c.room() >= c.most_unacknowledged() / 2 && c.is_writable();
    let writable = opens || room || ended;
    let error = ended && c.has_failed();
    if readable || writable || error || urgent {
        entry.blocked &= !writable;
        tell(&mut entry.ready, id, list, |news| {
            news.readable |= readable;
            news.writable |= writable;
            news.error |= error;
            news.urgent |= urgent;
        });
    }
}
