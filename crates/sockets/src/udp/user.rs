//! Whose a mailbox is: programs of the user that this process was when it made it, or asked for it, and is. Senders see there what the others write.

use super::recall::Readers;
use super::{Record, each, maps, stand_in};
use crate::rendezvous;
use bypath_shm::reason::Reason;
use bypath_sys::process;
use std::sync::atomic::{AtomicU32, Ordering::*};

/// Threads that are about to change the user of the process.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// The user may change from now on: neither is a mailbox made nor asked for, until that is [over](changed).
pub fn changes() {
    CHANGES.fetch_add(1, SeqCst);
}

/// Before that, while everything is still allowed: what waits in mailboxes goes to the kernel, and they are over, as are the routes to others', with their
/// memory. Under [`state::LIFE`](crate::state::LIFE).
pub fn let_go() {
    each(|r| {
        r.recall(Readers::All);
        r.end_mailbox(Reason::OtherUser);
        r.drop_routes(Reason::OtherUser);
        stand_in::take_back(r);
        // What could not be recalled is read as ever.
        if !r.has_unread() {
            r.forget_mailbox();
        }
    });
    maps::let_go_of_all();
}

/// The user is another one now, or is not.
pub fn changed() {
    let _ = CHANGES.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
}

/// In a forked child: the threads that were about to change the user do not exist here.
pub fn enter_child() {
    CHANGES.store(0, Relaxed);
}

/// Whether there may be mailboxes now. Under [`state::LIFE`](crate::state::LIFE), so that those that are made before are let go of.
pub(super) fn check_steady() -> Result<(), Reason> {
    if CHANGES.load(SeqCst) == 0 { Ok(()) } else { Err(Reason::OtherUser) }
}

/// Only the own user, whomever `--allow-uid` names beside him: who has a mailbox sees what the other senders write there.
pub(super) fn check(uid: u32) -> Result<(), Reason> {
    let is_own = uid == process::euid() && rendezvous::check_uid(uid).is_ok();
    if is_own { Ok(()) } else { Err(Reason::OtherUser) }
}

impl Record {
    /// Whether a mailbox that the user `made_by` has made is still this one's, who may have become another one by a system call of his own, and the caller's.
    pub(super) fn check_user(&self, caller: u32) -> Result<(), Reason> {
        check(self.inbound.made_by.load(Relaxed))?;
        check(caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mailbox_is_for_the_user_who_made_it_and_whom_the_process_is() {
        let (own, other) = (process::euid(), process::euid() + 1);
        let r = Box::<Record>::default();
        for (made_by, caller, is) in
            [(own, own, true), (own, other, false), (other, own, false), (other, other, false)]
        {
            r.inbound.made_by.store(made_by, Relaxed);
            assert_eq!(r.check_user(caller).is_ok(), is, "made by {made_by}, called by {caller}");
        }
    }
}
