//! Sockets made anew that several processes have together: who shows what is left of the same socket of an earlier service gets the same one. Some of them
//! do not call for long, or never: a server's first process, whose workers get the socket from it when they begin. So the program's end is kept
//! here, too, as long as anybody has open what is left: then it is as if he had the new one.

use super::again::Again;
use super::limits::Counted;
use super::question::{Answer, Asks};
use super::slab::Key;
use super::socket::{Holders, Hub};
use bypath_shm::service::Address;
use bypath_stack::linux::errno::Result;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

/// How often it is looked whether anybody has what is left open (ns); where that matters it is looked at once.
const EVERY: u64 = 1_000_000_000;

/// One of them.
#[derive(Debug)]
struct Heir {
    key: Key,
    program: Counted,
    /// Who has what is left of the earlier one.
    left: Holders,
}

/// All of them, by the cookie of the earlier socket.
#[derive(Debug, Default)]
pub struct Heirs {
    all: HashMap<u64, Heir>,
    due: u64,
}

impl Asks<'_> {
    /// The socket that stands in place of the one that is asked about, if somebody was here before.
    pub fn inherited(&mut self) -> Result<Option<Answer>> {
        let Some(heir) = self.hub.heirs.all.get(&self.socket) else { return Ok(None) };
        let Some(socket) = self.hub.sockets.get(heir.key) else { return Ok(None) };
        let is_there = socket.again.as_ref().is_some_and(Again::is_there);
        let program = heir.program.as_fd().try_clone_to_owned().map_err(|_| libc::EMFILE)?;
        let body = u32::from(is_there).to_ne_bytes().to_vec();
        Ok(Some(Answer { with: vec![program], ..Answer::of(socket.cookie, body) }))
    }

    /// Gives a socket the address that is asked for; the answer. One that was made anew and is there is there.
    pub fn bind(&mut self, key: Key, to: Address) -> Result<Answer> {
        let may_low = self.settings.may_low(self.uid);
        let (hub, stack) = (&mut *self.hub, self.engine.stack());
        let again = hub.sockets.get(key).and_then(|socket| socket.again);
        if again.is_some_and(|again| !again.may_be(to)) {
            return Err(libc::EACCES);
        }
        let local = match (again, hub.is_of_datagrams(key)) {
            (Some(again), _) if again.is_there() => to,
            (_, true) => hub.bind_datagrams(stack, key, to, may_low || again.is_some())?,
            (_, false) => hub.bind(stack, key, to, may_low || again.is_some())?,
        };
        hub.is_there_again(key);
        let claim = hub.claim(stack, key);
        Ok(Answer::of(self.socket, [&local.encode()[..], &claim].concat()))
    }
}

impl Hub {
    /// Others may come who held the same socket of an earlier service, of which `left` is left. Where that cannot be seen each has one of his own.
    pub fn has_heirs(&mut self, before: u64, key: Key, answer: &Answer, left: Option<&OwnedFd>) {
        let program = answer.with.first().and_then(|program| program.try_clone().ok());
        let Some(uid) = self.sockets.get(key).map(|socket| socket.uid) else { return };
        let left = left.and_then(|left| Holders::new(left.as_fd(), &mut self.users, uid).ok());
        if let (Some(program), Some(left)) = (program, left) {
            let program = self.users.counted(uid, program);
            self.heirs.all.insert(before, Heir { key, program, left });
        }
    }

    /// Of sockets for which nobody can come any more the program's end is the programs' alone.
    pub fn forget_heirs(&mut self) {
        self.heirs.all.retain(|_, heir| heir.left.are_any());
    }

    /// The same now and then; when to look next.
    pub fn look_at_heirs(&mut self, now: u64) -> Option<u64> {
        if self.heirs.all.is_empty() {
            return None;
        }
        if now >= self.heirs.due {
            self.forget_heirs();
            self.heirs.due = now + EVERY;
        }
        Some(self.heirs.due)
    }

    /// Somebody calls: whether there is anybody yet who could accept.
    pub fn look_at_heirs_of(&mut self, key: Key) {
        let before = self.sockets.get(key).and_then(|socket| Some(socket.again?.before()));
        let Some(before) = before else { return };
        if self.heirs.all.get(&before).is_some_and(|heir| heir.key == key && !heir.left.are_any()) {
            self.heirs.all.remove(&before);
            if let Some(socket) = self.sockets.get_mut(key) {
                let (gone, unread) = socket.looks_gone();
                socket.is.hung_up |= gone;
                socket.is.unread |= unread;
            }
        }
    }

    /// The socket is over.
    pub fn has_no_heirs(&mut self, key: Key, again: &Again) {
        if self.heirs.all.get(&again.before()).is_some_and(|heir| heir.key == key) {
            self.heirs.all.remove(&again.before());
        }
    }
}
