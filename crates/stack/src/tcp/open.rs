//! Ports, and connections that are asked for.

use super::ends::Ends;
use super::error::ConnectError;
use super::holders::Holders;
use super::settle::Before;
use super::table::{Entry, Owner, Place, Table, Whose};
use super::tcb::{Connection, Shared, State};
use crate::Stack;
use crate::path::{Reach, Unreachable};
use crate::share::Whom;
use crate::socket::unscoped;
use crate::time::Instant;
use crate::udp::demux::Binding;
use alloc::boxed::Box;
use alloc::sync::Arc;
use bypath_wire::seq::SeqNumber;
use core::net::SocketAddr;

impl Table {
    /// Whether a socket of this user may be bound like this. As Linux has it: SO_REUSEADDR lets it where others say so, too, and do not
    /// listen: sockets that were bound, and connections, those in TIME-WAIT included.
    pub fn is_free(&self, user: Whom, binding: &Binding) -> bool {
        let port = binding.local.port();
        let bound = self.bound.get(&port);
        let is_free = bound.into_iter().flat_map(Holders::all).all(|index| {
            let Some(other) = self.binding(*index) else { return true };
            if self.entry(*index).is_some_and(has_only_to_say) {
                return true;
            }
            let listens = self.listener(*index).is_some();
            let shared = binding.reuse_port && other.reuse_port
                || binding.reuse_address && other.reuse_address && !listens;
            shared || !binding.overlaps(&other)
        });
        is_free && self.is_free_of_connections(user, binding)
    }

    /// The same of connections that were not bound themselves. They are looked at one by one where some are without SO_REUSEADDR only.
    fn is_free_of_connections(&self, user: Whom, binding: &Binding) -> bool {
        let Some(used) = self.used.get(&binding.local.port()) else { return true };
        if binding.reuse_address && used.alone == 0 {
            return true;
        }
        let mut entries = (0..self.places()).filter_map(|index| self.entry(index));
        let shares_with = |entry: &Entry| shares(binding, &entry.here(), entry.user == user);
        entries.all(|entry| entry.bound || !has_port(entry) || shares_with(entry))
            && self.waits.all().all(|waiting| shares(binding, &waiting.here(), true))
    }

    /// Whether another user has it, and shares it by SO_REUSEPORT alone: that is among the sockets of one user (as Linux has it), or anybody
    /// could take calls that are for somebody else.
    pub fn is_anothers(&self, user: Whom, binding: &Binding) -> bool {
        let bound = self.bound.get(&binding.local.port());
        bound.into_iter().flat_map(Holders::all).any(|index| {
            let (other, its) = match self.place(*index) {
                Place::Idle(idle) => (idle.binding, idle.user),
                Place::Listener(listener) => (Some(listener.binding), listener.user),
                Place::Connection(entry) => (self.binding(*index), entry.user),
                Place::Free => return false,
            };
            let shares = |other: &Binding| {
                binding.reuse_address && other.reuse_address && self.listener(*index).is_none()
            };
            its != user && other.is_some_and(|other| !shares(&other) && binding.overlaps(&other))
        })
    }

    /// Whether somebody else listens there already, and does not share: SO_REUSEPORT is among the sockets of one user.
    pub fn is_listened_to(&self, index: u32, user: Whom, binding: &Binding) -> bool {
        let bound = self.bound.get(&binding.local.port());
        bound.into_iter().flat_map(Holders::all).any(|other| {
            *other != index
                && self.listener(*other).is_some_and(|listener| {
                    let shared = binding.reuse_port && listener.binding.reuse_port && user == listener.user;
                    !shared && binding.overlaps(&listener.binding)
                })
        })
    }

    /// Whether another user calls from there: who calls the listener might meet that (RFC 9293, 3.5: simultaneous open). Or has a connection
    /// there that shares its port with nobody: who calls may mean him, unless he has closed it. (What is bound by wish to where such a one is
    /// left has been refused before.)
    pub fn is_used_by_another(&self, user: Whom, binding: &Binding) -> bool {
        // Of most ports nothing goes out.
        self.used.contains_key(&binding.local.port())
            && (0..self.places()).any(|other| {
                let Place::Connection(entry) = self.place(other) else { return false };
                if entry.user == user || !has_port(entry) {
                    return false;
                }
                let calls = matches!(entry.owner, Owner::Application)
                    && matches!(entry.connection.state(), State::SynSent | State::SynReceived);
                calls && Binding::new(entry.ends.local()).overlaps(binding)
                    || !entry.bound && entry.owner != Owner::Orphan && !shares(binding, &entry.here(), false)
            })
    }

    /// Whether another user listens there: a call from there might meet who calls him.
    fn is_listened_to_by_another(&self, user: Whom, here: &Binding) -> bool {
        let bound = self.bound.get(&here.local.port());
        bound.into_iter().flat_map(Holders::all).any(|other| {
            self.listener(*other)
                .is_some_and(|listener| listener.user != user && listener.binding.overlaps(here))
        })
    }
}

/// Whether a connection keeps others from its port: what is half open goes with its listener, and the forwarder's is not ours.
fn has_port(entry: &Entry) -> bool {
    entry.entered && !entry.foreign && !matches!(entry.owner, Owner::HalfOpen(_))
}

/// Whether nobody has it, and it is over but for a reset that is to be sent.
fn has_only_to_say(entry: &Entry) -> bool {
    !entry.entered && matches!(entry.owner, Owner::Orphan | Owner::Nobody)
}

/// Whether a port may be had like this beside a connection, which is the same user's or not.
fn shares(binding: &Binding, other: &Binding, same_user: bool) -> bool {
    let says_so = binding.reuse_address && other.reuse_address;
    says_so || binding.reuse_port && other.reuse_port && same_user || !binding.overlaps(other)
}

impl Stack {
    /// From a random port on the first that is free (RFC 6056, 3.3.1), for who is to be bound.
    pub(super) fn free_tcp_port(&mut self, user: Whom, binding: &Binding) -> Option<Binding> {
        let with = |port| {
            let local = SocketAddr::new(binding.local.ip(), port);
            // Who has no wish for a port shares it with nobody.
            Binding { local, reuse_address: false, reuse_port: false, ..*binding }
        };
        // Where connections are on all of them, those that are over included: one that nobody is bound to, or a user's connections
        // would leave others none.
        let port = self
            .ephemeral_port(|stack, port| {
                !stack.tcp.used.contains_key(&port) && stack.tcp.is_free(user, &with(port))
            })
            .or_else(|| self.ephemeral_port(|stack, port| !stack.tcp.bound.contains_key(&port)))?;
        Some(Binding { local: SocketAddr::new(binding.local.ip(), port), ..*binding })
    }

    /// The first port from a random one on of which this is true.
    fn ephemeral_port(&mut self, suits: impl Fn(&Stack, u16) -> bool) -> Option<u16> {
        let (first, last) = (*self.config.ephemeral.start(), *self.config.ephemeral.end());
        let count = u32::from(last.checked_sub(first)?) + 1;
        let start = self.random.below(count);
        let mut ports = (0..count).map(|n| first + ((start + n) % count) as u16).filter(|port| *port != 0);
        ports.find(|port| suits(self, *port))
    }

    /// Whether a connection of ours may have these ends: nobody has, or what has them is over and cannot be mistaken.
    fn may_have(&self, now: Instant, ends: &Ends) -> bool {
        match self.tcp.find(ends) {
            None => true,
            Some(Whose::Connection(_)) => false,
            Some(Whose::Waiting(place)) => self.tcp.waits.get(place).is_some_and(|w| w.may_begin(now)),
        }
    }

    /// A socket asks for a connection (RFC 9293, 3.10.1).
    pub(super) fn connect_tcp(
        &mut self,
        now: Instant,
        index: u32,
        remote: SocketAddr,
    ) -> Result<(), ConnectError> {
        self.tcp.clock = now;
        let (options, settings, binding, user) = match self.tcp.place(index) {
            Place::Idle(idle) => (idle.options, Arc::clone(&idle.settings), idle.binding, idle.user),
            Place::Listener(_) => return Err(ConnectError::Listening),
            Place::Connection(_) | Place::Free => return Err(ConnectError::Connected),
        };
        let (remote, scope) = unscoped(remote);
        let bound = binding.map(|binding| binding.local);
        let iface = options.iface.or(binding.and_then(|binding| binding.iface)).or(scope);
        // Who is bound to a group's address, or everybody's, calls from one of the interface's, as in Linux.
        let one =
            |ip: &core::net::IpAddr| !ip.is_unspecified() && !ip.is_multicast() && !self.is_everybodys(*ip);
        let source = bound.map(|local| local.ip()).filter(one);
        // A socket that nobody has bound speaks to both, or to IPv6 alone.
        if bound.is_none() && options.only_v6 && remote.is_ipv4() {
            return Err(ConnectError::Kind);
        }
        if let Some(local) = bound {
            let any = local.ip().is_unspecified() && local.is_ipv6() && !options.only_v6;
            if local.is_ipv4() != remote.is_ipv4() && !any {
                return Err(ConnectError::Kind);
            }
            // The address may have gone since.
            if source.is_some_and(|source| !self.is_local(source, iface)) {
                return Err(Unreachable::NotOurs.into());
            }
        }
        let path = self.path(remote.ip(), iface, source)?;
        if !matches!(path.reach, Reach::Host | Reach::Own) {
            return Err(ConnectError::NotAHost);
        }
        let ends = |port| Ends::between(SocketAddr::new(path.source, port), remote, path.iface);
        let port = match bound {
            Some(local) => Some(local.port()),
            None => self.ephemeral_port(|stack, port| {
                let used = stack.tcp.used.contains_key(&port);
                !stack.tcp.bound.contains_key(&port)
                    && ends(port).is_some_and(|ends| !used || stack.may_have(now, &ends))
            }),
        };
        let ends = ends(port.ok_or(ConnectError::InUse)?).ok_or(ConnectError::Kind)?;
        let here = Binding { iface: Some(path.iface), ..Binding::new(ends.local()) };
        if !self.may_have(now, &ends) || bound.is_some() && self.tcp.is_listened_to_by_another(user, &here) {
            return Err(ConnectError::InUse);
        }
        let (way, sizes) = self.tcp_way(&ends, &options, false)?;
        let iss = self.take_over(&ends).unwrap_or_else(|| self.tcp.secret.iss(now, &ends));
        let settings = Shared { mss: settings.mss.min(sizes.link), settings };
        let ts_offset = self.tcp.secret.ts_offset(&ends.addresses);
        let mut connection = Connection::connect(now, settings, iss, ts_offset);
        connection.set_sizes(&sizes);
        let mut entry = Box::new(Entry::new(connection, ends, options, Owner::Application));
        (entry.way, entry.bound, entry.entered, entry.user) = (way, bound.is_some(), true, user);
        if let Some(place) = self.tcp.place_mut(index) {
            *place = Place::Connection(entry);
        }
        self.tcp.enter(Whose::Connection(index));
        self.counters.tcp_connected += 1;
        self.settle(now, index, &Before::NOTHING);
        Ok(())
    }

    /// Takes the ends of a connection that was; where the numbers of the next one begin.
    fn take_over(&mut self, ends: &Ends) -> Option<SeqNumber> {
        let Some(Whose::Waiting(place)) = self.tcp.find(ends) else { return None };
        let iss = self.tcp.waits.get(place).map(|waiting| waiting.next_iss());
        self.tcp.forget_waiting(place);
        self.counters.tcp_time_wait_reused += 1;
        iss
    }
}
