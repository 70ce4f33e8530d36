//! poll(2) and epoll(7): what sockets are ready for, and who is told once of what.

use crate::file::{File, Kind};
use crate::machine::Machine;
use bypath_stack::linux::errno::Result;
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::State;
use std::collections::BTreeMap;

const READ: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
const WRITE: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
const ERR: u32 = libc::EPOLLERR as u32;
const HUP: u32 = libc::EPOLLHUP as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// What can be asked for beside EPOLLEXCLUSIVE.
const WITH_EXCLUSIVE: u32 =
    EXCLUSIVE | EDGE | ALWAYS | (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLWAKEUP) as u32;
/// What is told whether it was asked for or not.
const ALWAYS: u32 = ERR | HUP;

/// One descriptor in a set.
#[derive(Clone, Copy, Debug)]
struct Watch {
    events: u32,
    data: u64,
    /// Something happened since it was told of.
    pending: bool,
    /// It was told of, once and for all (EPOLLONESHOT).
    silent: bool,
}

/// A set of descriptors.
#[derive(Debug, Default)]
pub struct Epoll {
    watches: BTreeMap<i32, Watch>,
}

impl Machine {
    /// What a descriptor is ready for.
    pub fn readiness(&mut self, fd: i32) -> Result<u32> {
        let file = self.files.get(fd)?;
        match (&file.kind, &file.socket) {
            (Kind::Pipe(pipe, writes), _) => {
                let (pipe, writes) = (*pipe, *writes);
                let pipe = &self.files.pipes[pipe];
                let (able, broken) = match writes {
                    true => (pipe.room() > 0, !pipe.open.0),
                    false => (pipe.len() > 0, !pipe.open.1),
                };
                let bits = if writes { (WRITE, ERR) } else { (READ, HUP) };
                Ok(if able { bits.0 } else { 0 } | if broken { bits.1 } else { 0 })
            }
            (Kind::Udp, Some(socket)) => {
                let id = socket.id;
                let Some(mut udp) = self.stack.udp(id) else { return Ok(0) };
                let readable = if udp.next_len().is_some() { READ } else { 0 };
                Ok(WRITE | readable | if udp.has_failed() { ERR } else { 0 })
            }
            (Kind::Tcp, Some(socket)) => {
                let (id, deaf, lowat) = (socket.id, socket.deaf, socket.notsent_lowat);
                let least = socket.least;
                Ok(self.readiness_of_tcp(id, deaf, lowat, least))
            }
            (Kind::Epoll(set), _) => {
                let watches: Vec<(i32, Watch)> =
                    set.watches.iter().map(|(fd, watch)| (*fd, *watch)).collect();
                let tells = watches.iter().any(|(fd, watch)| self.is_told(*fd, watch) != 0);
                Ok(if tells { READ } else { 0 })
            }
            _ => Ok(0),
        }
    }

    fn readiness_of_tcp(&mut self, id: SocketId, deaf: bool, lowat: Option<u32>, least: usize) -> u32 {
        let Some(mut tcp) = self.stack.tcp(id) else { return 0 };
        if tcp.is_listening() {
            return if tcp.has_callers() { READ } else { 0 };
        }
        let Some(state) = tcp.state() else {
            return WRITE | HUP | if deaf { READ | RDHUP } else { 0 };
        };
        if matches!(state, State::SynSent | State::SynReceived) {
            return 0;
        }
        let (over, failed) = (state == State::Closed, tcp.has_failed());
        let (finished, shut) = (tcp.is_finished() || deaf || over, tcp.is_shut() || over);
        let mut mask = if failed { ERR } else { 0 };
        if finished {
            mask |= READ | RDHUP;
        }
        if finished && shut {
            mask |= HUP;
        }
        // More than fits will not come.
        let fits = tcp.statistics().map_or(least, |statistics| statistics.rooms.1.max(1));
        if tcp.unread() >= least.min(fits) {
            mask |= READ;
        }
        if shut || self.has_room(id, lowat) {
            mask |= WRITE;
        }
        mask
    }

    /// What a set has to tell of a descriptor in it.
    fn is_told(&mut self, fd: i32, watch: &Watch) -> u32 {
        if watch.silent || watch.events & EDGE != 0 && !watch.pending {
            return 0;
        }
        self.readiness(fd).unwrap_or(0) & (watch.events | ALWAYS)
    }

    /// Whether a write is worth it: a third of what it takes is free, and not too much was not sent.
    fn has_room(&mut self, id: SocketId, lowat: Option<u32>) -> bool {
        let Some(mut tcp) = self.stack.tcp(id) else { return false };
        let Some(statistics) = tcp.statistics() else { return false };
        let (most, held) = (statistics.rooms.0, statistics.unacknowledged);
        held < most
            && most - held >= held / 2
            && lowat.is_none_or(|lowat| statistics.unsent < (lowat / 2).max(1) as usize)
    }

    /// Whether poll(2) would not say that a connection can be written to.
    ///
    /// # Errors
    /// EBADF.
    pub fn is_full(&mut self, fd: i32) -> Result<bool> {
        let is_tcp = matches!(self.files.get(fd)?.kind, Kind::Tcp);
        Ok(is_tcp && self.readiness(fd)? & WRITE == 0)
    }

    /// Whether a write is taken now.
    pub fn takes(&mut self, id: SocketId, lowat: Option<u32>) -> bool {
        let Some(lowat) = lowat else { return true };
        let statistics = self.stack.tcp(id).and_then(|mut tcp| tcp.statistics());
        statistics.is_none_or(|s| s.unsent < lowat as usize)
    }

    /// Something happened to a descriptor: sets that wait for it are to tell.
    pub fn kick(&mut self, fd: i32, readable: bool, writable: bool) {
        self.wake(fd, if readable { READ | RDHUP } else { 0 } | if writable { WRITE } else { 0 });
    }

    /// Something happened that concerns all who wait for it, whatever they wait for.
    pub fn kick_all(&mut self, fd: i32) {
        self.wake(fd, u32::MAX);
    }

    fn wake(&mut self, fd: i32, bits: u32) {
        let mut sets = Vec::new();
        for (set_fd, file) in self.files.iter_mut() {
            if let Kind::Epoll(set) = &mut file.kind
                && let Some(watch) = set.watches.get_mut(&fd)
                && watch.events & bits != 0
            {
                watch.pending = true;
                sets.push(*set_fd);
            }
        }
        for set in sets {
            self.wake(set, READ);
        }
    }

    /// Whether a set has another one in it, or in one that it has.
    fn reaches(&mut self, from: i32, to: i32) -> bool {
        let Ok(set) = self.set(from) else { return false };
        let inside: Vec<i32> = set.watches.keys().copied().collect();
        inside.into_iter().any(|fd| fd == to || self.reaches(fd, to))
    }

    /// Sockets that were full of what was not sent (TCP_NOTSENT_LOWAT) may be written to again.
    pub fn look_for_room(&mut self) {
        let waiting: Vec<_> = self.files.waiting_for_room();
        for (fd, id, lowat) in waiting {
            if self.has_room(id, lowat) {
                if let Ok(socket) = self.files.socket(fd) {
                    socket.waits_for_room = false;
                }
                self.kick(fd, false, true);
            }
        }
    }

    fn set(&mut self, epfd: i32) -> Result<&mut Epoll> {
        match &mut self.files.get(epfd)?.kind {
            Kind::Epoll(set) => Ok(set),
            _ => Err(libc::EINVAL),
        }
    }

    pub fn epoll_create(&mut self) -> i32 {
        self.files.add(File::new(Kind::Epoll(Epoll::default()), None))
    }

    /// # Errors
    /// EBADF, EINVAL, EEXIST, ENOENT, ELOOP.
    pub fn epoll_ctl(&mut self, epfd: i32, what: i32, fd: i32, event: Option<(u32, u64)>) -> Result<()> {
        self.set(epfd)?;
        self.files.get(fd)?;
        if fd == epfd {
            return Err(libc::EINVAL);
        }
        let is_set = self.set(fd).is_ok();
        if let Some((events, _)) = event.filter(|(events, _)| events & EXCLUSIVE != 0)
            && (what != libc::EPOLL_CTL_ADD || is_set || events & !WITH_EXCLUSIVE != 0)
        {
            return Err(libc::EINVAL);
        }
        if what == libc::EPOLL_CTL_ADD && is_set && self.reaches(fd, epfd) {
            return Err(libc::ELOOP);
        }
        let watches = &mut self.set(epfd)?.watches;
        match (what, event) {
            (libc::EPOLL_CTL_DEL, _) => watches.remove(&fd).map(|_| ()).ok_or(libc::ENOENT),
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, Some((events, data))) => {
                match (what == libc::EPOLL_CTL_ADD, watches.contains_key(&fd)) {
                    (true, true) => return Err(libc::EEXIST),
                    (false, false) => return Err(libc::ENOENT),
                    (false, true) if watches.get(&fd).is_some_and(|w| w.events & EXCLUSIVE != 0) => {
                        return Err(libc::EINVAL);
                    }
                    _ => {}
                }
                watches.insert(fd, Watch { events, data, pending: true, silent: false });
                self.wake(epfd, READ);
                Ok(())
            }
            _ => Err(libc::EINVAL),
        }
    }

    /// What a set has to tell now.
    ///
    /// # Errors
    /// EAGAIN: nothing.
    pub fn epoll_poll(&mut self, epfd: i32, most: usize) -> Result<Vec<(u32, u64)>> {
        let watches: Vec<(i32, Watch)> = self.set(epfd)?.watches.iter().map(|(fd, w)| (*fd, *w)).collect();
        let mut told = Vec::new();
        for (fd, watch) in watches {
            if told.len() >= most {
                break;
            }
            let ready = self.is_told(fd, &watch);
            if let Some(watch) = self.set(epfd)?.watches.get_mut(&fd) {
                watch.pending = false;
                watch.silent |= ready != 0 && watch.events & ONESHOT != 0;
            }
            if ready != 0 {
                told.push((ready, watch.data));
            }
        }
        if told.is_empty() { Err(libc::EAGAIN) } else { Ok(told) }
    }

    /// A descriptor is closed: no set has it any more.
    pub fn unwatch(&mut self, fd: i32) {
        for (_, file) in self.files.iter_mut() {
            if let Kind::Epoll(set) = &mut file.kind {
                set.watches.remove(&fd);
            }
        }
    }
}
