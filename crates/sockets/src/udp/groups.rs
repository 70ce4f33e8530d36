//! Sockets that share their port (SO_REUSEADDR, SO_REUSEPORT): which of them gets a datagram the kernel says, by the addresses of that.
//!
//! Its choice is the same for all of one source until somebody joins or leaves. A sender has asked for it before it got the mailbox, and asks
//! again while it sends; what this process does to such a port ends the mailboxes that are there at once.

use super::address::Name;
use super::route::Route;
use super::told::LOOPBACK;
use super::{Record, each};
use crate::{state, table};
use bypath_shm::reason::Reason;
use bypath_sys::sock::{self, Address};
use bypath_sys::{Errno, sockdiag};
use std::sync::atomic::Ordering::*;

/// So long (microseconds) a sender relies on what the kernel has said.
pub const ASK_US: u64 = 250;

/// Who gets what is sent from `source` to `to`. Under [`state::LIFE`].
///
/// # Errors
/// Errors of the netlink socket.
pub fn receiver(source: &Name, to: &Name) -> Result<Option<sockdiag::Found>, Errno> {
    receiver_by(state::netlink()?, source, to)
}

/// The same, asked through a socket of one's own.
///
/// # Errors
/// Those of [`receiver`].
pub(super) fn receiver_by(netlink: i32, source: &Name, to: &Name) -> Result<Option<sockdiag::Found>, Errno> {
    // It arrives there: sockets of that device are looked at as well.
    let scope = if to.address().is_loopback() { LOOPBACK } else { 0 };
    sockdiag::udp(netlink, &Address { scope, ..source.to_address() }, &to.to_address())
}

impl Route {
    /// Whether the receiver with the mailbox is still who gets it. Under [`state::LIFE`]. In another network namespace it is not: cookies are a
    /// socket's alone on the whole host.
    pub(super) fn is_chosen(&self) -> bool {
        let source = Name {
            ip: [self.source[0].load(Relaxed), self.source[1].load(Relaxed)],
            port: self.source[2].load(Relaxed) as u16,
        };
        let found = receiver(&source, &self.name());
        found.is_ok_and(|found| found.is_some_and(|found| found.cookie == self.cookie.load(Relaxed)))
    }

    /// As [`Route::is_chosen`]; `None`: it cannot be asked now.
    #[cold]
    pub(super) fn ask_again(&self) -> Option<bool> {
        let _life = state::LIFE.try_lock(table::tid())?;
        Some(self.is_chosen())
    }
}

impl Record {
    /// Whether others may have its port, too.
    pub(super) fn shares_port(&self) -> bool {
        self.shares.load(Relaxed)
    }

    /// From now on others may bind its port: senders who know it have to ask.
    pub(super) fn begins_to_share(&self, fd: i32) {
        if !self.shares.swap(true, AcqRel) {
            self.end_mailbox(Reason::RecalledOption);
        }
        self.is_named(fd);
    }

    /// It may have got another name: it has left one port, and come to one.
    pub(super) fn is_named(&self, fd: i32) {
        if !self.shares_port() {
            return;
        }
        self.regroup();
        let port = sock::local_address(fd).map_or(0, |own| own.port);
        if self.port.swap(u32::from(port), Relaxed) != u32::from(port) {
            self.regroup();
        }
    }

    /// It comes to its port, leaves it, or is another one there: who gets what is the kernel's choice anew.
    pub(super) fn regroup(&self) {
        self.regroup_at(self.port.load(Relaxed));
    }

    /// The same of that port.
    fn regroup_at(&self, port: u32) {
        if !self.shares_port() || port == 0 {
            return;
        }
        let is_there = |other: &Record| other.shares_port() && other.port.load(Relaxed) == port;
        // The kernel keeps what one has said when that one is closed.
        let mut is_steered = false;
        each(|other| is_steered |= is_there(other) && other.steers.load(Relaxed));
        each(|other| match (is_there(other), is_steered) {
            (false, _) => {}
            (true, true) => {
                other.steers.store(true, Relaxed);
                other.keep(Reason::SteeredPort);
            }
            (true, false) => {
                other.recall_before(Reason::SharedPort);
                other.end_mailbox(Reason::SharedPort);
            }
        });
    }

    /// The program says who of those at the port gets what, in a way that nobody else knows.
    pub(super) fn begins_to_steer(&self) {
        self.steers.store(true, Relaxed);
        self.keep(Reason::SteeredPort);
        self.regroup();
    }
}

/// Before bind() to `port`: what waits at it is those sockets' for which it came.
pub fn bind_begin(fd: i32, port: u16) {
    if let Some(r) = super::of(fd) {
        r.regroup_at(port.into());
    }
}

/// After bind() and connect(). `is_chosen`: the program has chosen the port.
pub fn named(fd: i32, is_chosen: bool) {
    if let Some(r) = super::of(fd) {
        if is_chosen {
            r.has_chosen_port.store(true, Relaxed);
        }
        r.is_changed();
        r.is_named(fd);
    }
}
