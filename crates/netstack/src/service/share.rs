//! Which rings a connection is given, or a socket of datagrams.

use super::datagram::mail::Mail;
use super::neighbours::Introduction;
use super::question::{Answer, Asks};
use super::rings::Rings;
use super::sharers::watched;
use super::slab::Key;
use super::socket::Phase;
use bypath_shm::arena::Geometry;
use bypath_shm::service::{RingsGiven, RingsWanted};
use bypath_stack::linux::errno::Result;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

impl Asks<'_> {
    /// Rings for a connection, from which the pair is taken over whenever both sides agree.
    pub fn rings(&mut self, key: Key, wanted: RingsWanted, fds: Vec<OwnedFd>) -> Result<Answer> {
        let inbox = fds.first().ok_or(libc::EBADF)?;
        let hub = &mut *self.hub;
        let socket = hub.sockets.get_mut(key).ok_or(libc::EBADF)?;
        if !matches!(socket.phase, Phase::Open | Phase::Datagrams(_)) || socket.is.hung_up || socket.is.failed
        {
            return Err(libc::ENOTCONN);
        }
        // A program whose image was replaced, or a child of one, may have those that another has left. The pair it is then.
        if socket.rings.is_some() {
            return Err(libc::EBUSY);
        }
        if hub.neighbours.is_barred(self.uid) {
            return Err(libc::EPERM);
        }
        let ring = wanted.ring.min(self.settings.ring_octets);
        if !(Geometry { slots: 1, ring }).is_valid() {
            return Err(libc::EINVAL);
        }
        // Whose memory it is: he may be another one than the maker of a socket that he was given.
        let account = hub.users.account(self.uid);
        if !account.may_have(inbox.as_raw_fd(), 1) {
            return Err(libc::ENOBUFS);
        }
        let failed = |e: bypath_sys::Errno| e.raw_os_error();
        let who = (self.uid, wanted.token, wanted.pair);
        let (with, introduction) = hub.neighbours.meet(who, inbox, &hub.watch, account).map_err(failed)?;
        let service = hub.neighbours.token;
        let near = hub.neighbours.get_mut(with).ok_or(libc::ENOMEM)?;
        let stranger = near.stranger();
        let enter = || near.enter(key, socket.cookie, wanted.end, ring).map_err(failed);
        let (at, number) = watched(stranger.as_deref(), enter)?;
        let (geometry, arena) = near.arena(at);
        let body = RingsGiven {
            pair: near.pair,
            token: service,
            arena: at.arena as u32,
            slot: at.slot,
            slots: geometry.slots,
            ring: geometry.ring,
            first: introduction.is_some().into(),
        };
        let mut files = vec![arena.try_clone()];
        if let Some(Introduction { inbox, control }) = introduction {
            files.extend([Ok(inbox), near.bell().as_fd().try_clone_to_owned(), Ok(control)]);
        }
        let files: std::io::Result<Vec<OwnedFd>> = files.into_iter().collect();
        let Ok(with_answer) = files else {
            near.leave(at, number, false);
            return Err(libc::EMFILE);
        };
        let mut rings = Rings::new(with, at, number, wanted.end);
        rings.spoiled = socket.is.marked;
        socket.rings = Some(Box::new(rings));
        // Who asks has taken it.
        socket.of = None;
        if let Phase::Datagrams(of) = &mut socket.phase {
            of.mail = Some(Mail::new(at));
            socket.is.pair_news = true;
        }
        // The pair is looked at, and then the program may use its ring.
        socket.is.pair_in = true;
        hub.neighbours.wake(with);
        hub.activate(key);
        Ok(Answer { with: with_answer, ..Answer::of(self.socket, body.encode().to_vec()) })
    }
}
