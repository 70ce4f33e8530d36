//! Descriptors on their way: sent to programs, and not received yet. The kernel counts them as those of the user that the service runs as, whose
//! processes without CAP_SYS_RESOURCE and CAP_SYS_ADMIN can send none while they are more than their RLIMIT_NOFILE (unix(7), ETOOMANYREFS). Whose
//! bound is met waits until some are received; the bounds are in `limits.rs`.
//!
//! What was received is not told: the kernel is asked what the other end has not read (SIOCOUTQ), once somebody waits and not before.

use super::control::leave;
use super::debts::Debts;
use super::limits::{Charge, Users};
use super::socket::Hub;
use super::watch::{Token, Watch};
use bypath_sys::{seqpacket, sock};
use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// How long somebody waits before it is looked again (ns): twice as long each time that it was in vain.
const FIRST: u64 = 1_000_000;
const LONGEST: u64 = 64_000_000;
/// The same where nobody waits, and ends are kept (ns).
const KEPT: u64 = 1_000_000_000;
/// Messages without octets that a queue can hold: each takes some 500 octets of it (the largest that net.core.wmem_max allows as a rule has 425,984).
const MOST_EMPTY: usize = 1024;

/// Whether the other end has received everything that was sent to it.
pub fn is_read(end: &OwnedFd) -> bool {
    sock::outq(end.as_raw_fd()).is_ok_and(|octets| octets == 0)
}

/// Receives what this user sent to an end that is shut, for nobody: the other end itself may be among it, which would never be gone then. False: what is
/// left there waits until some of what came is closed.
fn empty(end: &OwnedFd, uid: u32, users: &mut Users, debts: &mut Debts) -> bool {
    let (mut room, mut nothing) = ([0; 4096], 0);
    while nothing < MOST_EMPTY {
        if !users.may_send(uid) {
            return false;
        }
        nothing = match seqpacket::receive_all(end.as_fd(), &mut room) {
            Ok(None) => return true,
            Ok(Some(whole)) => {
                let is_nothing = whole.len == 0 && whole.fds.is_empty();
                debts.close(uid, !users.counts(uid), users.unwanted(uid, whole.fds));
                // Or it is the end, which is told again and again.
                if is_nothing { nothing + 1 } else { 0 }
            }
            Err(_) => nothing + 1,
        };
    }
    true
}

/// An end that is over, as far as the service is concerned, while the other one has not received everything.
struct Kept {
    end: OwnedFd,
    _charge: Charge,
    uid: u32,
    descriptors: usize,
    is_empty: bool,
}

/// Who has not received everything, and who waits until somebody has.
#[derive(Default)]
pub struct OnWay {
    /// Connections for questions and listeners that were sent descriptors, since it was last seen that all were received.
    unread: HashSet<Token>,
    waiting: HashSet<Token>,
    kept: Vec<Kept>,
    /// When to look (ns); `None`: there is no need to.
    due: Option<u64>,
    pause: u64,
}

impl OnWay {
    /// Descriptors were sent to this one.
    pub fn sent(&mut self, to: Token) {
        self.unread.insert(to);
    }

    /// It waits; that is looked at before the service sleeps.
    pub fn wait(&mut self, who: Token) {
        if self.waiting.insert(who) {
            self.due = Some(0);
        }
    }

    /// One is over whose program may not have received so many descriptors: then its end is kept, which says to the program that it is over, and they
    /// are counted on. Closing it would leave them where they are. What the program has sent, and nobody wants, is closed.
    pub fn end(
        &mut self,
        who: Token,
        end: OwnedFd,
        (uid, descriptors): (u32, usize),
        users: &mut Users,
        watch: &Watch,
        debts: &mut Debts,
    ) {
        self.unread.remove(&who);
        if descriptors == 0 || !users.counts(uid) || is_read(&end) {
            users.received(uid, descriptors);
            return leave(end);
        }
        watch.forget(end.as_fd());
        sock::shutdown(end.as_raw_fd(), libc::SHUT_RDWR);
        let is_empty = empty(&end, uid, users, debts);
        self.kept.push(Kept { end, _charge: users.account(uid).charge(1, 0), uid, descriptors, is_empty });
        self.due =
            Some(self.due.unwrap_or(u64::MAX).min(bypath_sys::clock::monotonic_ns() + self.kept_pause()));
    }

    /// After how long ends that are kept are looked at.
    fn kept_pause(&self) -> u64 {
        if self.kept.iter().all(|kept| kept.is_empty) { KEPT } else { LONGEST }
    }

    /// Ends that were kept for nothing but the count.
    pub fn take_kept(&mut self) -> impl Iterator<Item = OwnedFd> {
        std::mem::take(&mut self.kept).into_iter().map(|kept| kept.end)
    }

    pub const fn due(&self) -> Option<u64> {
        self.due
    }

    /// Looks who has received what he was sent; of each of those that are known `is_read_by` tells.
    pub fn look(&mut self, hub: &mut Hub, mut is_read_by: impl FnMut(Token, &mut Hub) -> bool) {
        self.unread.retain(|token| !is_read_by(*token, hub));
        for kept in self.kept.iter_mut().filter(|kept| !kept.is_empty) {
            kept.is_empty = empty(&kept.end, kept.uid, &mut hub.users, &mut hub.debts);
        }
        for kept in self.kept.extract_if(.., |kept| is_read(&kept.end)) {
            hub.users.received(kept.uid, kept.descriptors);
            leave(kept.end);
        }
    }

    /// Forgets those who wait and `may` go on.
    pub fn let_go(&mut self, now: u64, mut may: impl FnMut(Token) -> bool) {
        let before = self.waiting.len();
        self.waiting.retain(|token| !may(*token));
        let is_better = self.waiting.len() < before;
        self.pause = if is_better { FIRST } else { (2 * self.pause).clamp(FIRST, LONGEST) };
        self.due = match (self.waiting.is_empty(), self.kept.is_empty()) {
            (false, _) => Some(now + self.pause),
            (true, false) => Some(now + self.kept_pause()),
            (true, true) => None,
        };
    }
}
