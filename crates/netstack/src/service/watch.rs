//! What the service waits for: one epoll set, whose words tell whom an event is for.

use super::slab::Key;
use crate::Engine;
use bypath_sys::Result;
use bypath_sys::epoll::{Event, Set};
use bypath_sys::poll::PollFd;
use std::os::fd::{AsRawFd, BorrowedFd};

pub const IN: u32 = 0x1;
pub const PRI: u32 = 0x2;
pub const OUT: u32 = 0x4;
pub const ERR: u32 = 0x8;
pub const HUP: u32 = 0x10;
pub const RDHUP: u32 = 0x2000;
const EDGE: u32 = 1 << 31;

/// Whom an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Token {
    /// Somebody wants to ask.
    Door,
    /// The service is to stop.
    Bell,
    /// A link of the engine.
    Link,
    /// A connection for questions.
    Control(Key),
    /// The service's end of a socket.
    Socket(Key),
    /// A process that shares memory with the service has sent something, or is gone.
    Neighbour(Key),
    /// It has marked something.
    Bells(Key),
}

impl Token {
    const fn word(self) -> u64 {
        let (kind, key) = match self {
            Token::Door => (0, None),
            Token::Bell => (1, None),
            Token::Link => (2, None),
            Token::Control(key) => (3, Some(key)),
            Token::Socket(key) => (4, Some(key)),
            Token::Neighbour(key) => (5, Some(key)),
            Token::Bells(key) => (6, Some(key)),
        };
        let place = match key {
            Some(key) => (key.generation as u64) << 32 | key.index as u64,
            None => 0,
        };
        kind << 60 | place
    }

    const fn of(word: u64) -> Token {
        let key = Key { index: word as u32, generation: (word >> 32) as u32 & ((1 << 28) - 1) };
        match word >> 60 {
            0 => Token::Door,
            1 => Token::Bell,
            2 => Token::Link,
            3 => Token::Control(key),
            4 => Token::Socket(key),
            5 => Token::Neighbour(key),
            _ => Token::Bells(key),
        }
    }
}

/// Events that are taken at once.
pub const BATCH: usize = 256;

#[derive(Debug)]
pub struct Watch {
    set: Set,
    events: Vec<Event>,
    /// The engine's links as they are waited for.
    links: Vec<PollFd>,
    /// As they are to be waited for: memory that is used again.
    now: Vec<PollFd>,
}

impl Watch {
    pub fn new() -> Result<Watch> {
        Ok(Watch {
            set: Set::new()?,
            events: vec![Event::default(); BATCH],
            links: Vec::new(),
            now: Vec::new(),
        })
    }

    /// Tells again and again as long as it can be read.
    pub fn level(&self, fd: BorrowedFd<'_>, token: Token) -> Result<()> {
        self.set.add(fd, IN, token.word())
    }

    /// Tells once of what comes, urgent or not, and of the end.
    pub fn edge(&self, fd: BorrowedFd<'_>, token: Token) -> Result<()> {
        self.set.add(fd, IN | PRI | RDHUP | EDGE, token.word())
    }

    /// Of room, too, or no more. A program's every read would tell of room: only who found none is told.
    pub fn room(&self, fd: BorrowedFd<'_>, token: Token, wanted: bool) {
        let events = IN | PRI | RDHUP | EDGE | if wanted { OUT } else { 0 };
        // It is in the set as long as it is open.
        let _ = self.set.change(fd.as_raw_fd(), events, token.word());
    }

    /// Says nothing more of it: somebody else may have it open, too.
    pub fn forget(&self, fd: BorrowedFd<'_>) {
        self.set.remove(fd.as_raw_fd());
    }

    /// The engine's links, if they or what is waited for is not what it was. True: there is one that cannot be waited for.
    pub fn links(&mut self, engine: &Engine) -> Result<bool> {
        let mut now = std::mem::take(&mut self.now);
        now.clear();
        engine.descriptors(&mut now);
        let (ask, changed) = (now.len() < engine.links().count(), self.change_links(&now));
        self.now = now;
        changed.map(|()| ask)
    }

    fn change_links(&mut self, now: &[PollFd]) -> Result<()> {
        let same = |a: &PollFd, b: &PollFd| (a.fd, a.events) == (b.fd, b.events);
        if now.len() == self.links.len() && now.iter().zip(&self.links).all(|(a, b)| same(a, b)) {
            return Ok(());
        }
        for old in self.links.drain(..) {
            self.set.remove(old.fd);
        }
        for link in now {
            self.set.add_number(link.fd, link.events as u32 & (IN | OUT), Token::Link.word())?;
            self.links.push(*link);
        }
        Ok(())
    }

    /// Waits; what happened.
    pub fn wait(&mut self, timeout_ns: Option<u64>, told: &mut Vec<(Token, u32)>) {
        told.clear();
        // An error is a signal.
        let n = self.set.wait(&mut self.events, timeout_ns).unwrap_or(0);
        told.extend(self.events[..n].iter().map(|event| (Token::of(event.data), event.events)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        let key = Key { index: u32::MAX, generation: (1 << 28) - 1 };
        let plain = [Token::Door, Token::Bell, Token::Link];
        let keyed = [Token::Control(key), Token::Socket(key), Token::Neighbour(key), Token::Bells(key)];
        for token in plain.into_iter().chain(keyed) {
            assert_eq!(Token::of(token.word()), token);
        }
    }
}
