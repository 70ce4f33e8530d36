//! Send: by the route to a mailbox, or by the kernel. Destinations that are used often get a route, if they can have one.

use super::address::Name;
use super::network;
use super::receive::{HEAD, HEAD_LONG, head_of};
use super::route::{Route, stage};
use super::said::Said;
use super::told::{self, Told, want};
use super::{Record as Socket, groups, maps, meet, queue, recall, routed, shown};
use crate::thread::Call;
use crate::wait::may_spin;
use crate::{fault, signals, state};
use bypath_shm::dgram::span;
use bypath_shm::mailbox::{Pushed, Writer};
use bypath_shm::reason::Reason;
use bypath_shm::region::MailboxMap;
use bypath_shm::ring::Ring;
use bypath_sys::page::Access;
use bypath_sys::user::UserVec;
use bypath_sys::{Errno, clock, poll, process, sock, thread};
use std::sync::atomic::{Ordering::*, fence};

/// A send asks so often (microseconds) whether the receiver lives.
const ALIVE_US: u64 = 1000;
/// Whether an error waits is asked at most so often (microseconds), unless something was sent by the kernel.
const ERROR_US: u64 = 4;
/// Sends between two looks for an answer.
pub(super) const LOOK_EVERY: u32 = 4;

/// Where a send goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// To the partner.
    Partner,
    /// There.
    Name(Name),
    /// The kernel is to say.
    Unknown,
}

/// What is to be done with a send.
#[derive(Debug)]
pub enum Sending {
    /// The program's own call, whose result is reported.
    Real(RealSend),
    /// It is done.
    Done(Result<usize, Errno>),
}

/// A send of the kernel's.
#[derive(Debug)]
#[must_use = "report the result with finish()"]
pub struct RealSend {
    record: &'static Socket,
    to: To,
}

impl Socket {
    /// To whom it is connected.
    pub(super) fn peer(&self) -> Option<Name> {
        let known = &self.outbound;
        match known.peer_known.load(Acquire) {
            1 => None,
            2 => Some(Name {
                ip: [known.peer_ip[0].load(Relaxed), known.peer_ip[1].load(Relaxed)],
                port: known.peer_port.load(Relaxed) as u16,
            }),
            _ => {
                let forgotten = known.peer_forgotten.load(SeqCst);
                let peer = sock::remote_address(self.fd.load(Relaxed)).ok().map(|peer| Name::of(&peer));
                // One thread at a time keeps it, and only if no connect(2) came in between.
                if known.peer_asked.swap(true, Acquire) {
                    return peer;
                }
                if let Some(peer) = peer {
                    known.peer_ip[0].store(peer.ip[0], Relaxed);
                    known.peer_ip[1].store(peer.ip[1], Relaxed);
                    known.peer_port.store(peer.port.into(), Relaxed);
                }
                known.peer_known.store(if peer.is_some() { 2 } else { 1 }, SeqCst);
                if known.peer_forgotten.load(SeqCst) != forgotten {
                    known.peer_known.store(0, SeqCst);
                }
                known.peer_asked.store(false, Release);
                peer
            }
        }
    }

    /// Where a send with the address `raw` goes.
    #[inline]
    pub fn destination(&self, raw: Option<&[u8]>) -> To {
        match raw {
            None => To::Partner,
            Some(raw) => Name::parse(raw, self.family()).map_or(To::Unknown, To::Name),
        }
    }

    /// Whether something that it sends goes through a mailbox.
    pub fn has_routes(&self) -> bool {
        self.outbound.up.load(Relaxed) != 0
    }

    fn name_of(&self, to: To) -> Option<Name> {
        match to {
            To::Partner => self.peer(),
            To::Name(name) => Some(name),
            To::Unknown => None,
        }
    }

    /// A send. `said`: by its control messages.
    #[inline]
    pub fn send(&'static self, to: To, buf: UserVec<'_>, flags: i32, said: Said) -> Sending {
        if signals::is_cancelled() {
            return Sending::Done(Err(Errno::INTR));
        }
        let real = Sending::Real(RealSend { record: self, to });
        const KNOWN: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CONFIRM;
        if flags & libc::MSG_MORE != 0 {
            // What is sent next is part of the same datagram.
            self.keep(Reason::SocketOption);
        }
        if self.outbound.up.load(Acquire) == 0 || flags & !KNOWN != 0 || said == Said::Else {
            return real;
        }
        let Some(call) = Call::enter() else { return real };
        let Some(name) = self.name_of(to) else { return real };
        let Some(route) = self.outbound.route(&name) else { return real };
        if to != To::Partner && self.has_error_of_partner(&name) {
            return real;
        }
        if said != Said::Nothing
            && !said.agrees([&route.source[0], &route.source[1]].map(|w| w.load(Relaxed)), &name)
        {
            return real;
        }
        match self.push(&call, route, &name, buf) {
            Some(len) => Sending::Done(Ok(len)),
            None => real,
        }
    }

    /// Whether an error waits, which the kernel tells at the next send, whoever that is to. Only a socket with a partner has any (those with IP_RECVERR stay
    /// on the kernel), and only from what went there: while there is a route to the partner he lives.
    #[inline]
    fn has_error_of_partner(&self, to: &Name) -> bool {
        self.peer().is_some_and(|peer| peer != *to) && self.has_error()
    }

    #[cold]
    fn has_error(&self) -> bool {
        let (asked, now) = (&self.outbound.error_asked, clock::ticks());
        if now.wrapping_sub(asked.load(Relaxed)) < ERROR_US * state::ticks_per_us() {
            return false;
        }
        // First: what another thread sends by the kernel meanwhile is asked about.
        asked.store(now, SeqCst);
        poll::now(self.fd.load(Relaxed), 0) != 0
    }

    /// `None`: by the kernel.
    #[inline]
    fn push(&self, call: &Call, route: &Route, to: &Name, buf: UserVec<'_>) -> Option<usize> {
        let len = buf.admit().ok()?;
        let is_v4 = self.family() == libc::AF_INET || to.is_v4();
        if len > route.longest.load(Relaxed) as usize
            || buf.reach(0, len, Access::Read, &call.thread.pages) < len
        {
            return None;
        }
        let now = clock::ticks();
        if !network::is_as_at(route.changes.load(Relaxed), now) {
            self.drop_route(route);
            return None;
        }
        // Who shares its port may not get it any more; who alone has one may be gone, which is looked at while the datagram is on its way.
        let shares = route.shares.load(Relaxed);
        if shares && route.is_due(now) && !self.is_still_there(route, now) {
            return None;
        }
        let (writer, map) = route.writer(call.thread.tid.load(Relaxed))?;
        // Acquire pairs with `child_has_sent`.
        let by_children = self.outbound.by_children.load(Acquire);
        if by_children != route.by_children.load(Relaxed) {
            writer.sent_by_kernel(&route.left);
            // Other threads do the same until then.
            route.by_children.store(by_children, Release);
        }
        let mut head = [0; HEAD_LONG];
        for (to, from) in head[..HEAD].chunks_exact_mut(8).zip(&route.source) {
            to.copy_from_slice(&from.load(Relaxed).to_ne_bytes());
        }
        head[18..20].copy_from_slice(&(thread::cpu() as u16).to_ne_bytes());
        let is_careful = route.is_careful.load(Relaxed) || self.spread.load(Relaxed);
        if is_careful && self.is_changed_elsewhere() {
            self.learns_changes(self.fd.load(Relaxed));
            return None;
        }
        let is_offered = is_careful || route.offers.load(Relaxed);
        let wants = route.heads.load(Relaxed);
        let len_of_head = if wants == 0 {
            HEAD
        } else {
            let stamp = if wants & want::STAMP != 0 { clock::realtime_ns() } else { 0 };
            Told { wants, to: to.ip, stamp }.encode(&mut head);
            HEAD_LONG
        };
        if is_careful {
            told::put_behind(&mut head);
        }
        let head = &head[..len_of_head];
        // As many of this length as the kernel would queue: where there are longer ones among them it is looked at more closely.
        let (room, own) = (u64::from(route.room.load(Relaxed)), queue::true_size(len, is_v4));
        let limit = (room / own).max(1) * span(head.len(), len);
        let push = |limit: u64| {
            let fill = |ring: &Ring, at| {
                fault::point("in-its-turn");
                ring.copy_in(at, buf, 0, len);
            };
            match is_offered {
                true => self.offer(route, &writer, head, len, fill),
                false => writer.push_with(&route.left, head, len, limit, fill),
            }
        };
        let mut pushed = push(limit);
        let is_wanted = || call.is_wanted();
        if pushed == Pushed::Kernel && may_spin() && route.pause(&map.mailbox().gate.0, is_wanted) {
            pushed = push(limit);
        }
        if pushed == Pushed::Full && queue::of(&map, is_v4).is_some_and(|queued| queued + own <= room) {
            pushed = push(u64::MAX);
            if pushed == Pushed::Full {
                // The kernel's queue would have room for it, and the ring is shorter than that.
                return None;
            }
        }
        match pushed {
            Pushed::Sent => {
                if !shares && route.is_found_orphaned(now) {
                    // Who has closed it in order reads what is in the ring. Of who was killed the kernel has to say something; where another thread has
                    // dropped the route it may be read yet.
                    let is_lost =
                        !is_offered && !map.mailbox().is_dead() && route.connection.load(Relaxed) > 0;
                    self.drop_route(route);
                    if is_lost {
                        return None;
                    }
                }
                if !route.fresh.load(Relaxed) {
                    route.fresh.store(true, SeqCst);
                    routed::stir(&self.outbound.place);
                }
                self.inbound.sent_last.store(true, Relaxed);
                // Who answers, or has had an answer, gets the next one before it sends again.
                if self.inbound.has_taken.load(Relaxed) {
                    self.inbound.has_taken.store(false, Relaxed);
                    writer.prepare(len);
                }
                self.inbound.news.goes_on(call);
                if let Some(end) = self.shown() {
                    shown::count(&end.tx, true, len);
                }
                call.thread.count(|b| &b.ring_tx, len as u64);
                Some(len)
            }
            Pushed::Full if !shares && route.is_found_orphaned(now) => {
                self.drop_route(route);
                None
            }
            Pushed::Full => {
                writer.lose();
                if let Some(end) = self.shown() {
                    shown::add(&end.tx.lost, 1);
                }
                Some(len)
            }
            Pushed::Kernel if !shares && route.is_found_orphaned(now) => {
                self.drop_route(route);
                None
            }
            Pushed::Kernel => {
                self.look_at(route, &writer, &map);
                None
            }
            Pushed::Poisoned => {
                self.drop_route(route);
                None
            }
        }
    }

    /// Whether the receiver at a port that it shares lives, and gets what is sent there.
    #[cold]
    fn is_still_there(&self, route: &Route, now: u64) -> bool {
        if route.is_orphaned() {
            self.drop_route(route);
            return false;
        }
        match route.ask_again() {
            Some(true) => {}
            Some(false) => {
                self.drop_route(route);
                self.show_reason(Reason::SharedPort);
                return false;
            }
            None => return false,
        }
        route.checked.store(now, Relaxed);
        true
    }

    /// The mailbox was not to be used: is it over, or did a writer die in its turn, after which it is over?
    fn look_at(&self, route: &Route, writer: &Writer<'static, Ring>, map: &MailboxMap) {
        if recall::wait_for(map) || map.mailbox().is_dead() {
            return self.drop_route(route);
        }
        let Some(holder) = writer.held_by() else { return };
        if route.holder.swap(holder, Relaxed) == holder && !process::exists(holder) {
            map.mailbox().kill();
            self.drop_route(route);
        }
    }

    /// Before a sleep: an answer may never come, as the receiver is gone. Whether there is something that it may not have read yet.
    pub fn look_after_routes(&self) -> bool {
        if self.outbound.up.load(Relaxed) == 0 {
            return false;
        }
        // What it sees of a mailbox is that one until it has left.
        let Some(_call) = Call::enter() else { return true };
        let mut is_fresh = false;
        for route in self.outbound.routes.iter().filter(|route| route.stage.load(Acquire) == stage::UP) {
            let Some(map) = route.mailbox.get() else { continue };
            if !route.fresh.load(SeqCst) {
                // What went there was read while the receiver lived.
                continue;
            }
            // Before the look: who sends meanwhile sees that, or we see what it sent.
            route.fresh.store(false, SeqCst);
            fence(SeqCst);
            // What was read before the receiver is seen to live has not gone with it. Another sender may have taken this one's out of there, though.
            let (is_read, now) = (map.mailbox().unread() == 0, clock::ticks());
            let is_due = route.is_due(now);
            if !is_read || !is_due {
                route.fresh.store(true, SeqCst);
                is_fresh = true;
            }
            if is_due {
                route.checked.store(now, Relaxed);
            } else if is_read {
                continue;
            }
            if route.is_orphaned() {
                // Who closes it in order has all that was sent before, as the kernel's queue would: nobody is told of that.
                if !map.mailbox().is_dead() {
                    meet::send_again(self, route);
                }
                self.drop_route(route);
            }
        }
        is_fresh
    }

    /// Routes that are up, which others are told of.
    pub(super) fn count_up(&self) -> u32 {
        let up = self.outbound.count();
        match (self.outbound.up.swap(up, AcqRel), up) {
            (0, 1..) => routed::comes(&self.outbound.place, self.number()),
            (1.., 0) => routed::goes(&self.outbound.place),
            _ => {}
        }
        up
    }

    /// Nothing comes through the mailbox from now on; what is open stays open.
    pub(super) fn kill_mailbox(&self) {
        let _call = Call::enter();
        if let Some(map) = self.inbound.mailbox.get() {
            map.mailbox().kill();
        }
    }

    /// The same of both directions.
    pub(super) fn leave_memory(&self) {
        self.kill_mailbox();
        if self.outbound.up.swap(0, AcqRel) > 0 {
            routed::goes(&self.outbound.place);
        }
    }

    /// The kernel's way from now on, until there is a mailbox again.
    pub(super) fn drop_route(&self, route: &Route) {
        let Some(_life) = state::LIFE.lock_soon(crate::table::tid()) else { return };
        self.take_down(route);
        let up = self.count_up();
        self.show_routes(up);
        if up == 0 {
            self.show_reason(Reason::RecalledPeerClosed);
        }
    }

    fn take_down(&self, route: &Route) {
        match route.stage.load(Relaxed) {
            stage::UP => {
                route.stage.store(stage::DOWN, Release);
                if let Some(map) = route.mailbox.take() {
                    maps::give_back(map);
                }
            }
            // Another thread was first, and a third one may still be looking at it.
            stage::DOWN => {}
            _ => route.stage.store(stage::FREE, Relaxed),
        }
        route.close();
    }

    /// The same of all routes.
    pub(super) fn drop_routes(&self, reason: Reason) {
        let mut any = false;
        for route in &self.outbound.routes {
            if route.stage.load(Relaxed) != stage::FREE {
                any |= route.stage.load(Relaxed) == stage::UP;
                self.take_down(route);
            }
        }
        if any {
            self.count_up();
            self.show_routes(0);
            self.show_reason(reason);
        }
    }
}

impl RealSend {
    /// Reports the kernel's result.
    pub fn finish(self, fd: i32, ret: isize) {
        if !state::is_sealed() {
            self.record.sent(fd, self.to, ret);
        }
    }
}

impl Socket {
    /// One of many that went by the kernel, with the address `raw`.
    pub fn one_sent(&self, fd: i32, raw: Option<&[u8]>, len: usize) {
        if !state::is_sealed() {
            self.sent(fd, self.destination(raw), isize::try_from(len).unwrap_or(0));
        }
    }

    /// A child in this process's memory (vfork) has sent, or tried to, by the kernel. It cannot tell whether a mailbox is still mapped: who sends next
    /// goes behind that.
    pub fn child_has_sent(&self) {
        self.outbound.error_asked.store(0, SeqCst);
        self.outbound.by_children.fetch_add(1, AcqRel);
    }

    /// A send of the kernel's is over.
    fn sent(&self, fd: i32, to: To, ret: isize) {
        let call = Call::enter();
        self.outbound.error_asked.store(0, SeqCst);
        let up = self.outbound.up.load(Acquire);
        let name = if up > 0 || self.stays().is_none() { self.name_of(to) } else { None };
        if up > 0 {
            for route in self.outbound.routes.iter().filter(|route| route.stage.load(Acquire) == stage::UP) {
                // Other names of this host may be the same socket's.
                let is_meant = name.is_none_or(|name| u32::from(name.port) == route.port.load(Relaxed));
                if is_meant && let Some((writer, _)) = route.writer(1) {
                    writer.sent_by_kernel(&route.left);
                }
            }
        }
        let Ok(len) = usize::try_from(ret) else { return };
        self.inbound.sent_last.store(true, Relaxed);
        if let Some(call) = call {
            call.thread.count(|b| &b.kernel_tx, len as u64);
        }
        self.count_by_kernel(fd, true, len);
        if self.stays().is_some() {
            return;
        }
        if let Some(name) = name {
            self.count_to(fd, &name);
        }
    }

    fn count_to(&self, fd: i32, name: &Name) {
        let routes = &self.outbound.routes;
        let known = routes.iter().find(|route| {
            matches!(route.stage.load(Acquire), stage::COUNTING | stage::ASKED | stage::UP)
                && route.is_to(name)
        });
        let Some(route) = known else { return self.new_destination(name) };
        if route.stage.load(Relaxed) == stage::UP {
            return self.ask_whether_careful(route);
        }
        // The largest is what is never due.
        let sends = route.sends.load(Relaxed).saturating_add(1).min(u32::MAX - 1);
        route.sends.store(sends, Relaxed);
        if sends >= route.due.load(Relaxed) {
            meet::attempt(self, fd, route);
        }
    }

    #[cold]
    fn new_destination(&self, name: &Name) {
        let Some(_life) = state::LIFE.try_lock(crate::table::tid()) else { return };
        let routes = &self.outbound.routes;
        let of = |wanted: u32| routes.iter().find(move |route| route.stage.load(Relaxed) == wanted);
        let free = of(stage::FREE).or_else(|| of(stage::DOWN).filter(|_| crate::thread::quiesce()));
        let Some(route) = free else {
            // Who is sent to least makes room, by and by.
            let counting = routes.iter().filter(|route| match route.stage.load(Relaxed) {
                stage::COUNTING => true,
                stage::ASKED => route.is_unanswered(),
                _ => false,
            });
            let Some(least) = counting.min_by_key(|route| route.sends.load(Relaxed)) else { return };
            match least.sends.load(Relaxed) {
                0 => {
                    least.close();
                    least.begin(name, meet::threshold());
                }
                sends => least.sends.store(sends - 1, Relaxed),
            }
            return;
        };
        route.begin(name, meet::threshold());
    }

    pub(super) fn route_is_up(
        &self,
        route: &Route,
        map: &'static MailboxMap,
        source: &Name,
        (room, heads, shares): (u32, u32, bool),
    ) {
        let head = head_of(source);
        for (to, from) in route.source.iter().zip(head.chunks_exact(8)) {
            to.store(u64::from_ne_bytes(from.try_into().unwrap_or_default()), Relaxed);
        }
        route.room.store(room, Relaxed);
        route.heads.store(heads, Relaxed);
        route.left.store(0, Relaxed);
        route.shares.store(shares, Relaxed);
        route.fresh.store(false, Relaxed);
        let every = if shares { groups::ASK_US } else { ALIVE_US };
        route.every.store(every * state::ticks_per_us(), Relaxed);
        route.checked.store(clock::ticks(), Relaxed);
        route.mailbox.set(Some(map));
        if let Some((writer, _)) = route.writer(1) {
            // What was sent so far.
            writer.sent_by_kernel(&route.left);
        }
        route.stage.store(stage::UP, Release);
        let up = self.count_up();
        self.show_routes(up);
        self.show_reason(Reason::Ring);
    }
}
