//! Sockets of datagrams that outlive their service (`service/anew.rs`): what is sent meanwhile is ENETDOWN, and nothing comes.

use super::super::anew::{complain, is_back, is_due, is_gone, make, says_back, timer};
use super::super::connecting::wait_within;
use super::super::control::Message;
use super::super::options::limits;
use super::{Call, Record, record, replace};
use crate::wait::Deadline;
use crate::{state, table};
use bypath_shm::reason::Reason;
use bypath_shm::service::{Address, Claim, Op};
use bypath_sys::{Errno, Result, fd, poll, sock};
use std::sync::atomic::Ordering::*;

fn waits(fd: i32, dontwait: bool) -> bool {
    !dontwait && fd::status_flags(fd).is_ok_and(|flags| flags & libc::O_NONBLOCK == 0)
}

impl Record {
    /// Whether a descriptor means it yet.
    fn has(&self, fd: i32) -> bool {
        self.number(fd).is_some()
    }

    /// Its number, if a descriptor means it yet.
    fn number(&self, fd: i32) -> Option<u32> {
        let number = table::datagrams(fd)?;
        record(number).filter(|r| std::ptr::eq(*r, self)).map(|_| number)
    }

    /// Whether its service is gone.
    #[inline]
    pub fn is_away(&self) -> bool {
        self.away.load(Acquire)
    }

    /// It came from elsewhere: what is to be done again is asked for, once.
    pub(super) fn is_to_last(&self) {
        if self.recipe.get().is_none()
            && self.is_served()
            // Whatever comes of it.
            && !self.lasts.swap(true, Relaxed)
            && let Ok(([local, _], claim)) = self.told()
            && let Some(recipe) = self.recipe.begin()
        {
            recipe.is_bound(local);
            recipe.is_claimed(claim);
            // It is to be known then, too.
            let _ = (self.family(), self.protocol(), self.partner());
        }
    }

    /// After the call that made it a service's.
    pub(super) fn was_made_by(&self, call: Call, local: Option<Address>, claim: Option<Claim>) {
        if let (Call::Bind(to), Some(recipe)) = (call, self.recipe.get()) {
            recipe.is_bound(local.unwrap_or(Address(Some(to))));
            recipe.is_claimed(claim);
        }
    }

    /// The end of the pair was met. True: as the service is gone, and a timer has the pair's place.
    pub(super) fn goes_away(&self, fd: i32) -> bool {
        if self.is_away() {
            return true;
        }
        let Some(recipe) = self.recipe.get() else { return false };
        let cookie = self.cookie.load(Relaxed);
        let names = self.names();
        if !is_gone(&names) {
            return false;
        }
        self.leave_rings(Reason::RecalledPeerClosed);
        let Ok(timer) = timer(fd, is_back(&names)) else { return false };
        recipe.forget_descriptors_own();
        limits(fd, |name, value| recipe.note(libc::SOL_SOCKET, name, value));
        let Some(_life) = state::LIFE.lock(table::tid()) else { return false };
        // It may have been closed, and number and record be another socket's.
        let number = self.number(fd).filter(|_| self.cookie.load(Relaxed) == cookie);
        if let (Some(number), false) = (number, self.is_away()) {
            recipe.keep_left(fd);
            replace(self, number, timer.0);
            recipe.is_away(true);
            self.away.store(true, Release);
        }
        number.is_some()
    }

    /// Whether its service is there. One that is back is asked for another socket, now and then.
    pub(super) fn is_there(&self, fd: i32) -> bool {
        let Some(recipe) = self.recipe.get().filter(|_| self.is_away()) else { return true };
        if !is_due(recipe, fd) {
            return !self.is_away();
        }
        let done = self.make_again(fd);
        match done {
            Ok(()) => {
                self.show_names();
                says_back(recipe, "the socket of datagrams");
            }
            Err(errno) => complain(recipe, "the socket of datagrams", errno),
        }
        done.is_ok()
    }

    /// What the service answers about it. `None`: its service is away, and what the call is about is kept, or known.
    ///
    /// The end of a connected one is told by a receive, which finds it.
    pub(super) fn answered<T>(&self, fd: i32, mut ask: impl FnMut() -> Result<T>) -> Option<Result<T>> {
        if !self.is_there(fd) {
            return None;
        }
        let answer = ask();
        // A service that knows the socket has refused what was asked.
        if !is_gone(&answer) || self.recipe.get().is_none() || !is_gone(&self.names()) {
            return Some(answer);
        }
        let is_connected = !matches!(self.partner.get(), Some(None));
        if is_connected || !self.goes_away(fd) || !self.is_there(fd) { None } else { Some(ask()) }
    }

    fn make_again(&self, fd: i32) -> Result<()> {
        let recipe = self.recipe.get().ok_or(Errno::NETDOWN)?;
        let before = self.cookie.load(Relaxed);
        let service = self.service.load(Relaxed);
        let kind = [self.family.load(Relaxed), libc::SOCK_DGRAM, self.protocol.load(Relaxed)];
        let made = make(recipe, service, kind, fd)?;
        let end = &made.end;
        if let Some(Some(partner)) = self.partner.get() {
            Message::new(Op::Connect, made.cookie).address(partner).with(end.0).ask(service)?;
        }
        let _life = state::LIFE.lock(table::tid()).ok_or(Errno::DEADLK)?;
        let number = self.number(fd).filter(|_| self.cookie.load(Relaxed) == before).ok_or(Errno::BADF)?;
        if self.is_away() {
            if let Some(how) = self.shut.load(Acquire).checked_sub(1) {
                sock::shutdown(end.0, how as i32);
            }
            replace(self, number, end.0);
            self.rings.discard(number);
            self.rings.reset(false);
            self.reached.store(0, Relaxed);
            self.cookie.store(made.cookie, Relaxed);
            if !made.is_the_same {
                recipe.is_another(made.claim);
            }
            recipe.is_away(false);
            self.away.store(false, Release);
        }
        Ok(())
    }

    /// Before a receive: waits until the service is there, where the call may wait.
    ///
    /// # Errors
    /// EAGAIN: it may not, or no longer. ENETDOWN: it may, but was told that there was something. EBADF: it was closed meanwhile. EINTR.
    pub fn wait_for_service(&self, fd: i32, dontwait: bool) -> Result<()> {
        let waits = waits(fd, dontwait);
        let was_told = poll::now(fd, libc::POLLIN) != 0;
        let deadline = Deadline::after(self.recipe.get().map_or(0, |recipe| recipe.limit(libc::SO_RCVTIMEO)));
        while !self.is_there(fd) {
            if !self.has(fd) {
                return Err(Errno::BADF);
            }
            match waits {
                false => return Err(Errno::AGAIN),
                true if was_told => return Err(Errno::NETDOWN),
                true => wait_within(fd, deadline)?,
            }
        }
        if was_told && waits && poll::now(fd, libc::POLLIN) == 0 {
            return Err(Errno::NETDOWN);
        }
        Ok(())
    }

    /// After a receive that found the end of the pair, and was not to wait if `dontwait`.
    ///
    /// # Errors
    /// ENETDOWN, once: the service is gone; EAGAIN: the same, of a call that does not wait for anybody in particular. ECONNRESET: there will
    /// be no other one.
    pub fn ended(&self, fd: i32, dontwait: bool) -> Result<()> {
        if self.shut.load(Acquire) & 1 != 0 {
            return Ok(());
        }
        if !self.goes_away(fd) {
            return Err(Errno::CONNRESET);
        }
        let is_connected = matches!(self.partner.get(), Some(Some(_)));
        Err(if is_connected || waits(fd, dontwait) { Errno::NETDOWN } else { Errno::AGAIN })
    }
}
