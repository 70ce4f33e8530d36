//! poll(2) and epoll(7): what sockets are ready for, and who is told once of what.

use crate::errors::Result;
use crate::file::{File, Kind};
use crate::machine::Machine;
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
                let readable = self.stack.udp(id).is_some_and(|mut udp| udp.peek().is_ok());
                Ok(WRITE | if readable { READ } else { 0 })
            }
            (Kind::Tcp, Some(socket)) => {
                let (id, deaf, lowat) = (socket.id, socket.deaf, socket.notsent_lowat);
                Ok(self.readiness_of_tcp(id, deaf, lowat))
            }
            _ => Ok(0),
        }
    }

    fn readiness_of_tcp(&mut self, id: SocketId, deaf: bool, lowat: Option<u32>) -> u32 {
        let Some(mut tcp) = self.stack.tcp(id) else { return 0 };
        if tcp.is_listening() {
            return if tcp.has_callers() { READ } else { 0 };
        }
        let Some(state) = tcp.state() else { return WRITE | HUP };
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
        if tcp.unread() > 0 {
            mask |= READ;
        }
        if shut || self.has_room(id, lowat) {
            mask |= WRITE;
        }
        mask
    }

    /// Whether a write is worth it: a third of what it takes is free, and not too much was not sent.
    fn has_room(&mut self, id: SocketId, lowat: Option<u32>) -> bool {
        let Some(mut tcp) = self.stack.tcp(id) else { return false };
        let Some(statistics) = tcp.statistics() else { return false };
        let most = tcp.settings().send_octets;
        let held = statistics.unacknowledged;
        held < most
            && most - held >= held / 2
            && lowat.is_none_or(|lowat| statistics.unsent < (lowat / 2).max(1) as usize)
    }

    /// Whether a write is taken now.
    pub fn takes(&mut self, id: SocketId, lowat: Option<u32>) -> bool {
        let Some(lowat) = lowat else { return true };
        let statistics = self.stack.tcp(id).and_then(|mut tcp| tcp.statistics());
        statistics.is_none_or(|s| s.unsent < lowat as usize)
    }

    /// Something happened to a descriptor: sets that wait for it are to tell.
    pub fn kick(&mut self, fd: i32, readable: bool, writable: bool) {
        let bits = if readable { READ | RDHUP } else { 0 } | if writable { WRITE } else { 0 };
        for (_, file) in self.files.iter_mut() {
            if let Kind::Epoll(set) = &mut file.kind
                && let Some(watch) = set.watches.get_mut(&fd)
                && watch.events & bits != 0
            {
                watch.pending = true;
            }
        }
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
        self.files.add(File { kind: Kind::Epoll(Epoll::default()), nonblock: false, socket: None })
    }

    /// # Errors
    /// EBADF, EINVAL, EEXIST, ENOENT.
    pub fn epoll_ctl(&mut self, epfd: i32, what: i32, fd: i32, event: Option<(u32, u64)>) -> Result<()> {
        self.set(epfd)?;
        self.files.get(fd)?;
        if fd == epfd {
            return Err(libc::EINVAL);
        }
        let watches = &mut self.set(epfd)?.watches;
        match (what, event) {
            (libc::EPOLL_CTL_DEL, _) => watches.remove(&fd).map(|_| ()).ok_or(libc::ENOENT),
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, Some((events, data))) => {
                match (what == libc::EPOLL_CTL_ADD, watches.contains_key(&fd)) {
                    (true, true) => return Err(libc::EEXIST),
                    (false, false) => return Err(libc::ENOENT),
                    _ => {}
                }
                watches.insert(fd, Watch { events, data, pending: true, silent: false });
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
            let is_edge = watch.events & EDGE != 0;
            if told.len() >= most || watch.silent || is_edge && !watch.pending {
                continue;
            }
            let ready = self.readiness(fd).unwrap_or(0) & (watch.events | ALWAYS);
            if let Some(watch) = self.set(epfd)?.watches.get_mut(&fd) {
                watch.pending = false;
                watch.silent = ready != 0 && watch.events & ONESHOT != 0;
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
