//! Listeners: who is called (RFC 9293, 3.10.7.2), how many may wait, and what happens when more come.
//!
//! A SYN is answered by a connection that is half open. Where there are too many of these, it is answered by a cookie, and
//! nothing is kept of it. What is open waits to be accepted; when the queue is full, nothing more becomes open (as Linux has it).

use super::answer::Header;
use super::cookie::{self, Said};
use super::ends::Ends;
use super::input::Arrival;
use super::settle::Before;
use super::table::{Entry, Options, Owner, Place, Table, Whose};
use super::tcb::{Connection, Settings, Shared, State};
use crate::Stack;
use crate::event::Ready;
use crate::iface::IfaceId;
use crate::ingress::Packet;
use crate::share::Whom;
use crate::time::Instant;
use crate::udp::demux::{Binding, may_share};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use bypath_wire::seq::SeqNumber;
use bypath_wire::tcp::{TcpFlags, TcpHeader};
use bypath_wire::tcp_options::{KnownTcpOptions, TcpOption, TcpOptions};
use core::hash::BuildHasher as _;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

/// So long after the last one a cookie may come back.
const COOKIES_COUNT: Duration = Duration::from_secs(120);

/// A socket that is called.
#[derive(Debug)]
pub(crate) struct Listener {
    pub binding: Binding,
    pub options: Options,
    pub settings: Arc<Settings>,
    /// For whom who calls counts.
    pub user: Whom,
    /// Connections that wait to be accepted at most, less one.
    pub backlog: usize,
    /// Connections that are not open yet.
    pub half_open: usize,
    /// Connections that wait to be accepted.
    pub queue: VecDeque<u32>,
    pub ready: Ready,
    /// When the last cookie was sent.
    pub cookies: Option<Instant>,
    /// When one came back last while the queue was full: its sender takes the connection to be open.
    pub refused: Option<Instant>,
}

impl Listener {
    /// As Linux has it: one more than was asked for.
    pub fn is_full(&self) -> bool {
        self.queue.len() > self.backlog
    }
}

impl Table {
    /// Who is called at this end: who listens to the address, else who listens to all of IPv4, else to all of IPv6.
    pub fn listener_for(&self, ends: &Ends, through: IfaceId) -> Option<u32> {
        if self.listeners.is_empty() {
            return None;
        }
        let (ip, port) = (ends.addresses.source(), ends.local_port);
        let at = |ip: IpAddr| self.choose(SocketAddr::new(ip, port), ends, through);
        let all_v4 = || ip.is_ipv4().then(|| at(Ipv4Addr::UNSPECIFIED.into())).flatten();
        at(ip).or_else(all_v4).or_else(|| at(Ipv6Addr::UNSPECIFIED.into()))
    }

    /// Of several with one address one by the hash of the ends; those of the interface alone first.
    fn choose(&self, address: SocketAddr, ends: &Ends, through: IfaceId) -> Option<u32> {
        let all = self.listeners.get(&address)?;
        let v4 = ends.addresses.source().is_ipv4();
        let hears = |index: &&u32| {
            self.listener(**index).is_some_and(|l| {
                l.binding.iface.is_none_or(|iface| iface == through)
                    && !(v4 && address.is_ipv6() && l.binding.only_v6)
            })
        };
        if let [one] = &all[..] {
            return Some(one).filter(hears).copied();
        }
        let is_near = |index: &u32| self.listener(*index).is_some_and(|l| l.binding.iface.is_some());
        let mut count = [0; 2];
        all.iter().filter(hears).for_each(|index| count[usize::from(is_near(index))] += 1);
        let near = count[1] > 0;
        let which = self.hash.hash_one(ends) % count[usize::from(near)].max(1);
        all.iter().filter(hears).filter(|index| is_near(index) == near).nth(which as usize).copied()
    }

    /// Whether this user may have one more listener there.
    pub fn may_listen(&self, user: Whom, binding: &Binding) -> bool {
        let there = self.listeners.get(&binding.local).into_iter().flatten();
        may_share(user, there.filter_map(|index| self.listener(*index)).map(|l| l.user))
    }

    /// A listener hears of calls from now on, or no more.
    pub fn set_listening(&mut self, index: u32, binding: &Binding, listens: bool) {
        let all = self.listeners.entry(binding.local).or_default();
        all.retain(|other| *other != index);
        if listens {
            all.push(index);
        }
        if all.is_empty() {
            self.listeners.remove(&binding.local);
        }
    }
}

impl Stack {
    /// A segment to a listener (RFC 9293, 3.10.7.2). `iss`: where our numbers begin, if what was there before says it.
    pub(super) fn call(
        &mut self,
        packet: &Packet<'_>,
        ends: &Ends,
        listener: u32,
        arrival: &Arrival<'_>,
        iss: Option<SeqNumber>,
    ) {
        let flags = arrival.header.flags;
        // First, RST: "An incoming RST should be ignored."
        if flags.has(TcpFlags::RST) {
            return;
        }
        // Second, ACK: "Any acknowledgment is bad if it arrives on a connection still in the LISTEN state", but that of a cookie.
        if flags.has(TcpFlags::ACK) {
            if flags.has(TcpFlags::SYN) || !self.return_cookie(packet, ends, listener, arrival) {
                self.refuse(packet, ends, arrival);
            }
            return;
        }
        // Third, SYN. With a FIN it is no honest one's (as Linux has it).
        if !flags.has(TcpFlags::SYN) || flags.has(TcpFlags::FIN) {
            self.counters.tcp_drop_flags += 1;
            return;
        }
        let Some(called) = self.tcp.listener(listener) else { return };
        if called.is_full() || self.tcp.users.has_callers(called.user) {
            self.counters.tcp_drop_accept_full += 1;
            return;
        }
        if called.options.admits {
            return self.hold(packet, ends, listener, arrival, iss);
        }
        let half_open =
            called.half_open < called.backlog.max(1) && self.tcp.half_open < self.config.tcp.half_open;
        if half_open && self.tcp.has_room(self.config.tcp.connections) {
            self.half_open(packet, ends, listener, arrival, iss);
        } else {
            self.send_cookie(packet, ends, listener, arrival);
        }
    }

    /// A connection that answers a SYN.
    fn half_open(
        &mut self,
        packet: &Packet<'_>,
        ends: &Ends,
        listener: u32,
        arrival: &Arrival<'_>,
        iss: Option<SeqNumber>,
    ) {
        let now = packet.now;
        let iss = iss.unwrap_or_else(|| self.tcp.secret.iss(now, ends));
        let make = |settings, ts_offset| Connection::accept(now, settings, iss, ts_offset, arrival);
        if let Some(index) = self.make_half_open(packet, ends, listener, make) {
            let before = Before::NOTHING;
            self.settle(now, index, &before);
        }
    }

    /// A connection that waits for the application's word before it answers a SYN. Nothing is sent to who is not there: it needs no
    /// cookies, and the backlog bounds it.
    fn hold(
        &mut self,
        packet: &Packet<'_>,
        ends: &Ends,
        listener: u32,
        arrival: &Arrival<'_>,
        iss: Option<SeqNumber>,
    ) {
        let now = packet.now;
        if !self.tcp.has_room(self.config.tcp.connections) {
            self.counters.tcp_drop_accept_full += 1;
            return;
        }
        let iss = iss.unwrap_or_else(|| self.tcp.secret.iss(now, ends));
        let make = |settings, ts_offset| {
            let mut connection = Connection::accept(now, settings, iss, ts_offset, arrival);
            connection.hold();
            connection
        };
        if let Some(index) = self.make_half_open(packet, ends, listener, make) {
            self.opened(index, self.tcp.id(listener), State::SynReceived);
        }
    }

    /// Puts a connection that `make` makes among those that are half open.
    fn make_half_open(
        &mut self,
        packet: &Packet<'_>,
        ends: &Ends,
        listener: u32,
        make: impl FnOnce(Shared, u32) -> Connection,
    ) -> Option<u32> {
        let called = self.tcp.listener(listener)?;
        let (options, settings, user) = (called.options, Arc::clone(&called.settings), called.user);
        let found = self.tcp_way(ends, &options, packet.foreign);
        let Ok((way, sizes)) = found else {
            self.counters.tcp_drop_unreachable += 1;
            return None;
        };
        let settings = Shared { mss: settings.mss.min(sizes.link), settings };
        let connection = make(settings, self.tcp.secret.ts_offset(&ends.addresses));
        let owner = Owner::HalfOpen(self.tcp.id(listener));
        let mut entry = Box::new(Entry::new(connection, *ends, options, owner));
        entry.connection.set_sizes(&sizes);
        entry.connection.limit_caller();
        (entry.way, entry.foreign, entry.user, entry.segments_in) = (way, packet.foreign, user, 1);
        let index = self.tcp.insert(self.config.tcp.connections, Place::Connection(entry)).ok()?;
        self.tcp.enter(Whose::Connection(index));
        self.tcp.begin_count(user, owner);
        self.tcp.half_open += 1;
        self.tcp.foreign += usize::from(packet.foreign);
        if let Some(entry) = self.tcp.entry_mut(index) {
            entry.entered = true;
        }
        if let Some(called) = self.tcp.listener_mut(listener) {
            called.half_open += 1;
        }
        self.counters.tcp_accepted += 1;
        Some(index)
    }

    /// Answers a SYN of which nothing is kept.
    #[cold]
    fn send_cookie(&mut self, packet: &Packet<'_>, ends: &Ends, listener: u32, arrival: &Arrival<'_>) {
        let now = packet.now;
        let Some(called) = self.tcp.listener_mut(listener) else { return };
        called.cookies = Some(now);
        let (options, settings) = (called.options, *called.settings);
        let Ok((_, sizes)) = self.tcp_way(ends, &options, packet.foreign) else {
            self.counters.tcp_drop_unreachable += 1;
            return;
        };
        let mss = settings.mss.min(sizes.link);
        let irs = arrival.header.seq;
        let theirs = arrival.options.mss.unwrap_or(536).min(sizes.path);
        let number = cookie::number(&self.tcp.secret, now, ends, irs, theirs);
        let mut answered = TcpOptions::new();
        let mut fits = answered.push(&TcpOption::MaxSegmentSize(mss));
        let mut flags = TcpFlags::SYN | TcpFlags::ACK;
        if let (Some((value, _)), true) = (arrival.options.timestamps, settings.timestamps) {
            let said = Said {
                window_scale: arrival.options.window_scale.filter(|_| settings.window_scale),
                sack: settings.sack && arrival.options.sack_permitted,
                ecn: settings.ecn && arrival.header.flags.has(TcpFlags::ECE | TcpFlags::CWR),
            };
            let offset = self.tcp.secret.ts_offset(&ends.addresses);
            let stamp = cookie::stamp(super::tcb::milliseconds(now), said).wrapping_add(offset);
            if said.sack {
                fits &= answered.push(&TcpOption::SackPermitted);
            } else {
                fits &= answered.push(&TcpOption::Nop) && answered.push(&TcpOption::Nop);
            }
            fits &= answered.push(&TcpOption::Timestamps { value: stamp, echo: value });
            if said.window_scale.is_some() {
                let own = super::tcb::window_shift(settings.receive_octets);
                fits &= answered.push(&TcpOption::Nop) && answered.push(&TcpOption::WindowScale(own));
            }
            if said.ecn {
                flags |= TcpFlags::ECE;
            }
        }
        debug_assert!(fits, "options of a SYN fit");
        let window = settings.receive_octets.min(65_535) as u16;
        let header = Header { seq: number, ack: irs + 1, flags, window, options: answered };
        self.answer(ends, &options, packet.foreign, &header);
        self.counters.tcp_cookies_sent += 1;
    }

    /// What answers a cookie opens a connection. False: it does not.
    #[cold]
    fn return_cookie(
        &mut self,
        packet: &Packet<'_>,
        ends: &Ends,
        listener: u32,
        arrival: &Arrival<'_>,
    ) -> bool {
        let (now, header) = (packet.now, arrival.header);
        let Some(called) = self.tcp.listener(listener) else { return false };
        // What follows the first octets of one that was refused has no cookie in it, and will come again.
        let refused = called.refused.is_some_and(|at| now.since(at) <= COOKIES_COUNT);
        if called.cookies.is_none_or(|at| now.since(at) > COOKIES_COUNT) {
            return refused;
        }
        let (irs, number) = (header.seq - 1, header.ack - 1);
        let Some(mss) = cookie::mss(&self.tcp.secret, now, ends, irs, number) else {
            self.counters.tcp_drop_cookie += 1;
            return refused;
        };
        let crowded = self.tcp.users.has_callers(called.user);
        let (settings, full) = (*called.settings, called.is_full() || crowded);
        if full {
            self.counters.tcp_drop_accept_full += 1;
            let room = !crowded
                && called.half_open < 2 * called.backlog.max(1)
                && self.tcp.half_open < self.config.tcp.half_open;
            if let Some(called) = self.tcp.listener_mut(listener) {
                called.refused = Some(now);
            }
            if !room {
                return true;
            }
        }
        let mut syn = TcpHeader::new(header.source_port, header.destination_port);
        (syn.seq, syn.flags, syn.window) = (irs, TcpFlags::SYN, header.window);
        let mut options = KnownTcpOptions { mss: Some(mss), ..KnownTcpOptions::default() };
        if let (Some((value, echo)), true) = (arrival.options.timestamps, settings.timestamps) {
            let offset = self.tcp.secret.ts_offset(&ends.addresses);
            let said = cookie::said(echo.wrapping_sub(offset));
            options.timestamps = Some((value, echo));
            (options.window_scale, options.sack_permitted) = (said.window_scale, said.sack);
            if said.ecn {
                syn.flags |= TcpFlags::ECE | TcpFlags::CWR;
            }
        }
        let asked = Arrival { header: &syn, options: &options, payload: &[], marked: false, segments: 1 };
        let make =
            |settings, ts_offset| Connection::accept_answered(now, settings, number, ts_offset, &asked);
        if let Some(index) = self.make_half_open(packet, ends, listener, make) {
            self.counters.tcp_cookies_returned += 1;
            if full {
                // It has shown that it is there: it stays half open as others do, beside those that did not, and is asked once more.
                self.settle(packet.now, index, &Before::NOTHING);
            } else {
                self.segment(packet.now, index, arrival);
            }
        }
        true
    }
}
