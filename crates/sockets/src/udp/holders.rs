//! Who holds a socket beside this process. All of them share its queue, and nobody knows who of them reads, or sends: what goes through
//! a mailbox is *offered* then, and lies nowhere but in the kernel's queue once its send is over. Before others come to hold it what its mailbox has
//! goes there, too (`recall`).
//!
//! Of a fork one of the family's ends (docs/shm-format.md) says who holds it, until the others have closed it, have ended, or have become
//! programs that did not inherit it. Of whom got it by exec, spawn or SCM_RIGHTS nobody will know when he holds it no more: it is *spread*.

use super::recall::Readers;
use super::{Record, each, is_active, record};
use crate::state::{self, State};
use crate::table::{self, Entry, flag};
use crate::{leaving, numbers};
use bypath_shm::family::End;
use bypath_shm::reason::Reason;
use bypath_sys::{fd, sock};
use std::sync::atomic::Ordering::*;

/// Looks for senders, or sends by the kernel, between two questions whether others still hold a socket, at most.
const ASK_EVERY: u32 = 256;

/// Whether it is asked after so many: less and less often.
pub(super) fn is_to_ask(times: u32) -> bool {
    times.is_power_of_two() || times.is_multiple_of(ASK_EVERY)
}

/// Before a fork of a process that has no state yet: made, if there is a socket of which to say who holds it.
pub fn begin() -> Option<&'static State> {
    let mut any = false;
    each(|r| any |= r.stays().is_none());
    if !any || state::is_sealed() || state::is_borrowed() {
        return None;
    }
    let _life = state::LIFE.lock_past(table::tid())?;
    state::start()
}

/// Before a fork: the child at `place` will hold every socket, too. `None`: nobody would know when it does no more. Under
/// [`state::LIFE`], if there is any state.
pub fn forking(to: Option<(&State, u32)>) {
    each(|r| {
        if r.stays().is_none() {
            // What waits is for whoever of them reads first.
            r.recall(Readers::All);
            match to {
                Some((state, place)) if r.spread_to(state, place) => r.rest(),
                _ => {
                    r.spreads(Reason::SharedQueue);
                    r.rest();
                }
            }
        }
    });
}

/// In a forked child: what views see is its parent's, and so are the sleepers.
pub fn enter_child() {
    super::wait::enter_child();
    each(|r| {
        r.shown.forget();
        // Calls of the parent's that this copy remembers are no longer about this one.
        r.generation.fetch_add(1, Relaxed);
        r.sleepers.store(0, Relaxed);
        // A thread that was about to know is the parent's.
        r.outbound.peer_asked.store(false, Relaxed);
    });
}

/// Before an exec, of which the others are told: what is close-on-exec the next image does not hold. Under [`state::LIFE`].
pub fn leaves(bit: u64) {
    each(|r| {
        if let Some(end) = r.end_of_holders()
            && fd::is_cloexec(r.fd.load(Relaxed)) == Ok(true)
        {
            end.r.leaving.fetch_or(bit, AcqRel);
        }
    });
}

/// The exec failed.
pub fn stays(bit: u64) {
    each(|r| {
        if let Some(end) = r.end_of_holders() {
            end.r.leaving.fetch_and(!bit, AcqRel);
        }
    });
}

/// Before another program, in this process or a child, gets what is not close-on-exec. What is, this process has no more after an exec.
pub fn hand_over(reason: Reason) {
    if !is_active() {
        return;
    }
    table::each(|fd, entry| {
        if let Entry::Udp(number) = entry
            && let Some(r) = record(number)
        {
            match fd::is_cloexec(fd) {
                Ok(false) => r.spreads(reason),
                Ok(true) if reason == Reason::RecalledExec && !state::is_memory_of_another() => {
                    r.leave_the_rest();
                }
                _ => {}
            }
        }
    });
}

/// After F_SETFD: another program may inherit `fd` from now on.
pub fn made_inheritable(fd: i32) {
    if let Some(r) = super::of(fd) {
        r.is_seen_inheritable(fd);
    }
}

impl Record {
    /// Others come to hold it of whom nobody will know when they do no more.
    #[cold]
    pub fn spreads(&self, reason: Reason) {
        self.is_given_away();
        self.spread.store(true, SeqCst);
        self.ends_unless_offered(reason);
    }

    /// Another program may inherit it by this descriptor.
    pub(super) fn is_seen_inheritable(&self, fd: i32) {
        let is_known = self.inbound.offers.load(Relaxed) || self.inbound.is_inheritable.load(Relaxed);
        if self.has_mailbox() && !is_known && fd::is_cloexec(fd) == Ok(false) {
            self.ends_unless_offered(Reason::RecalledOption);
        }
    }

    /// What was sent without being offered is recalled.
    fn ends_unless_offered(&self, reason: Reason) {
        if self.inbound.offers.load(Relaxed) {
            return;
        }
        let is_elsewhere = state::is_memory_of_another();
        self.recall(match reason {
            // Who holds the socket with others shares the ring with them, too, or with a parent.
            Reason::RecalledExec if !is_elsewhere && self.end.load(Relaxed) == 0 => Readers::None,
            Reason::RecalledExec | Reason::RecalledSpawn | Reason::RecalledScmRights => Readers::Some,
            _ => Readers::All,
        });
        if is_elsewhere {
            // A vfork child has a table of descriptors of its own: ours are the parent's to close.
            self.kill_mailbox();
        } else {
            self.end_mailbox(reason);
        }
    }

    /// Whether it is another's, too, or may be: what it sends has no order with what others send on it. Under [`state::LIFE`].
    pub(super) fn is_shared(&self) -> bool {
        self.spread.load(SeqCst) || self.is_held_elsewhere()
    }

    /// The same, as far as that is seen without asking.
    pub(super) fn may_be_anothers(&self) -> bool {
        self.end.load(Relaxed) != 0 || self.spread.load(Relaxed)
    }

    /// Whether another program would inherit it.
    pub(super) fn is_inheritable(&self) -> bool {
        let (own, mut any) = (self.number(), false);
        table::each(|fd, entry| {
            any |= matches!(entry, Entry::Udp(number) if number == own) && fd::is_cloexec(fd) != Ok(true);
        });
        any
    }

    /// Now and then, under [`state::LIFE`]: a mailbox that was offered to and need not be any more is over, and the next one is this process's.
    pub(super) fn ask_whether_offered(&self) {
        let offers = self.inbound.offers.load(Relaxed);
        if !offers && !self.inbound.is_inheritable.load(Relaxed) || self.spread.load(Relaxed) {
            return;
        }
        let looks = self.inbound.looks.load(Relaxed).wrapping_add(1);
        self.inbound.looks.store(looks, Relaxed);
        if is_to_ask(looks) && !(if offers { self.is_shared() } else { self.is_inheritable() }) {
            self.end_mailbox(Reason::RecalledOption);
        }
    }

    /// What says who holds it, once there was a fork.
    fn end_of_holders(&self) -> Option<&'static End> {
        let number = self.end.load(Relaxed).checked_sub(1)?;
        state::get()?.family.ends.get(number as usize)
    }

    fn spread_to(&self, state: &State, place: u32) -> bool {
        let end = match self.end_of_holders() {
            Some(end) => end,
            None => {
                let Some(place) = numbers::take(state) else { return false };
                let (own, end) = (self.fd.load(Relaxed), place.end());
                // First: who takes a number and dies does not keep it.
                end.holders.store(state.bit(), Relaxed);
                end.generation.fetch_add(1, Relaxed);
                end.flags.store(0, Relaxed);
                end.r.leaving.store(0, Relaxed);
                end.rule.store(0, Relaxed);
                self.changes.store(0, Relaxed);
                end.fd.store(own, Relaxed);
                let cookie = sock::option_u64(own, libc::SOL_SOCKET, libc::SO_COOKIE).unwrap_or(0);
                end.cookie.store(cookie, Relaxed);
                self.end.store(place.number.load(Relaxed) + 1, Relaxed);
                end
            }
        };
        end.holders.fetch_or(1 << place, AcqRel);
        // What an earlier process of that place was about to do.
        end.r.leaving.fetch_and(!(1 << place), AcqRel);
        true
    }

    /// By the kernel, until it is known who holds it.
    fn rest(&self) {
        self.end_mailbox(Reason::SharedQueue);
        self.drop_routes(Reason::SharedQueue);
        self.show_reason(Reason::SharedQueue);
        self.show_rx_reason(Reason::SharedQueue);
    }

    /// Whether another process holds it, too. Under [`state::LIFE`].
    fn is_held_elsewhere(&self) -> bool {
        let (Some(end), Some(state)) = (self.end_of_holders(), state::get()) else { return false };
        if !leaving::is_left_to(state, end) {
            return true;
        }
        // Read behind that: who gives it away says so while he holds it.
        let flags = end.flags.load(SeqCst);
        self.learns_changes(self.fd.load(Relaxed));
        if flags & flag::HANDED_OVER != 0 {
            self.spread.store(true, SeqCst);
            return true;
        }
        // From here on it is not asked for any more.
        self.look_at_flags(self.fd.load(Relaxed));
        self.holds_no_longer();
        false
    }

    /// Whether another process of the family has changed its names or options.
    #[inline]
    pub(super) fn is_changed_elsewhere(&self) -> bool {
        self.end.load(Relaxed) != 0
            && self.end_of_holders().is_some_and(|end| end.rule.load(Acquire) != self.changes.load(Relaxed))
    }

    /// If so what was known of it is no more, and what goes through memory begins anew.
    #[cold]
    pub(super) fn learns_changes(&self, fd: i32) {
        let Some(end) = self.end_of_holders() else { return };
        let now = end.rule.load(Acquire);
        if self.changes.swap(now, Relaxed) == now {
            return;
        }
        self.rest();
        self.outbound.forget_peer();
        self.look_at_wants(fd);
        if end.flags.load(SeqCst) & flag::FOR_GOOD != 0 {
            self.keep(Reason::SharedQueue);
        }
    }

    /// This process has changed its names or options.
    pub(super) fn is_changed(&self) {
        if let Some(end) = self.end_of_holders() {
            end.rule.fetch_add(1, AcqRel);
            // What others have changed meanwhile is still to be learned.
            self.changes.fetch_add(1, Relaxed);
        }
    }

    /// It stays on the kernel for what this process has done, in the others as well.
    pub(super) fn is_kept(&self) {
        if let Some(end) = self.end_of_holders() {
            end.flags.fetch_or(flag::FOR_GOOD, SeqCst);
        }
        self.is_changed();
    }

    /// The others of the family are told.
    fn is_given_away(&self) {
        if let Some(end) = self.end_of_holders() {
            end.flags.fetch_or(flag::HANDED_OVER, SeqCst);
        }
    }

    /// It is closed, or nothing needs to be known of who holds it. Under [`state::LIFE`].
    pub(super) fn holds_no_longer(&self) {
        if let (Some(end), Some(state)) = (self.end_of_holders(), state::get()) {
            self.end.store(0, Relaxed);
            if end.holders.fetch_and(!state.bit(), AcqRel) == state.bit() {
                numbers::free(end);
            }
        }
    }
}
