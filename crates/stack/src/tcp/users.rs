//! Whose connections hold what, in a stack that several users share: octets of buffers, connections that nobody has accepted, and
//! connections that were closed and are not over. Each user has a share of his own, so that nobody takes what the others need.

use super::table::{Owner, Table};
use crate::Stack;
use crate::share::Whom;
use alloc::vec;
use alloc::vec::Vec;

/// Where all of something is given out, who has no more than this part of it has some yet.
const CROWD: usize = 64;

/// What each user of a stack may have: see [`Tcp::set_user`](crate::Tcp::set_user).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Octets in the buffers of his connections, but of those that nobody has accepted: beyond, and beyond half of
    /// [`Config::octets`](super::Config::octets), they are treated as if there were no memory. What is written is so at three fourths of it.
    pub octets: usize,
    /// Connections that call his listeners and that nobody has accepted: beyond, SYNs are not answered, as with a full backlog.
    pub callers: usize,
    /// Octets in their buffers: beyond, and beyond a fourth of `Config::octets`, their windows stay shut.
    pub caller_octets: usize,
    /// Octets in the buffers of those that he has closed, which count among `octets`, too: beyond, a close with octets that are not
    /// acknowledged is a reset.
    pub orphan_octets: usize,
    /// Connections that he has closed and that are not over: beyond, and beyond a fourth of [`Config::orphans`](super::Config::orphans), a close
    /// is a reset.
    pub orphans: usize,
}

impl Share {
    /// As much as he likes.
    pub const ALL: Share = Share {
        octets: usize::MAX,
        callers: usize::MAX,
        caller_octets: usize::MAX,
        orphan_octets: usize::MAX,
        orphans: usize::MAX,
    };
}

/// What a user has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Octets in the buffers of connections that were accepted or asked for, orphans included.
    pub octets: usize,
    /// Connections that call and that nobody has accepted.
    pub callers: usize,
    /// Octets in their buffers, and in those of connections that are [offered](crate::Tcp::accept_to_offer).
    pub caller_octets: usize,
    /// Connections that were closed and are not over.
    pub orphans: usize,
    /// Octets in their buffers.
    pub orphan_octets: usize,
}

impl Held {
    /// A connection of this owner is one of his, with so many octets.
    const fn add(&mut self, owner: Owner, octets: usize) {
        match owner {
            Owner::HalfOpen(_) | Owner::Queued => {
                (self.callers, self.caller_octets) = (self.callers + 1, self.caller_octets + octets);
            }
            Owner::Offered => self.caller_octets += octets,
            Owner::Orphan => {
                (self.orphans, self.orphan_octets) = (self.orphans + 1, self.orphan_octets + octets);
                self.octets += octets;
            }
            Owner::Application | Owner::Nobody => self.octets += octets,
        }
    }

    /// It is not any more.
    const fn take(&mut self, owner: Owner, octets: usize) {
        match owner {
            Owner::HalfOpen(_) | Owner::Queued => {
                (self.callers, self.caller_octets) = (self.callers - 1, self.caller_octets - octets);
            }
            Owner::Offered => self.caller_octets -= octets,
            Owner::Orphan => {
                (self.orphans, self.orphan_octets) = (self.orphans - 1, self.orphan_octets - octets);
                self.octets -= octets;
            }
            Owner::Application | Owner::Nobody => self.octets -= octets,
        }
    }

    /// It has so many octets in place of so many.
    #[inline]
    const fn change(&mut self, owner: Owner, before: usize, now: usize) {
        match owner {
            Owner::HalfOpen(_) | Owner::Queued | Owner::Offered => {
                self.caller_octets = self.caller_octets - before + now;
            }
            Owner::Orphan => {
                self.orphan_octets = self.orphan_octets - before + now;
                self.octets = self.octets - before + now;
            }
            Owner::Application | Owner::Nobody => self.octets = self.octets - before + now,
        }
    }
}

/// What all users have who ever had a socket.
#[derive(Debug)]
pub(crate) struct Users {
    pub share: Share,
    /// By their places; the first one is nobody's in particular, who has no share.
    held: Vec<Held>,
}

impl Users {
    pub fn new() -> Users {
        Users { share: Share::ALL, held: vec![Held::default()] }
    }

    /// A user who has a socket.
    pub fn know(&mut self, whom: Whom) {
        if self.held.len() <= whom as usize {
            self.held.resize(whom as usize + 1, Held::default());
        }
    }

    #[inline]
    pub fn held(&self, whom: Whom) -> &Held {
        &self.held[whom as usize]
    }

    #[inline]
    fn held_mut(&mut self, whom: Whom) -> &mut Held {
        &mut self.held[whom as usize]
    }

    /// Whether as many call him as may.
    pub fn has_callers(&self, whom: Whom) -> bool {
        whom != 0 && self.held(whom).callers >= self.share.callers
    }

    /// Whether he has left as many connections as he may. `full`: all users together have left `most`.
    pub fn has_orphans(&self, whom: Whom, full: bool, most: usize) -> bool {
        if whom == 0 {
            return full;
        }
        let orphans = self.held(whom).orphans;
        orphans >= self.share.orphans.min(most / 4) || full && orphans >= (most / CROWD).max(1)
    }

    /// Whether he may leave no connection with so many octets.
    pub fn has_left_much(&self, whom: Whom, octets: usize) -> bool {
        self.held(whom).orphan_octets.saturating_add(octets) > self.share.orphan_octets
    }
}

impl Table {
    /// There is no more memory for what comes to this connection: its user has as much as he may, or all have, and he has not little.
    #[inline]
    pub fn is_full(&self, index: u32, most: usize) -> bool {
        self.is_beyond(index, most, |bound| bound)
    }

    /// The same of what is written: less, so that there is room for what comes, without which nothing of it might ever be sent, as the other end
    /// may be the same user's.
    #[inline]
    pub fn is_full_to_write(&self, index: u32, most: usize) -> bool {
        self.is_beyond(index, most, |bound| bound / 4 * 3)
    }

    #[inline]
    fn is_beyond(&self, index: u32, most: usize, part: impl Fn(usize) -> usize) -> bool {
        let full = self.octets >= most;
        let Some(entry) = self.entry(index) else { return full };
        if entry.user == 0 {
            return full;
        }
        let (held, share) = (self.users.held(entry.user), &self.users.share);
        let (octets, own) = match entry.owner {
            Owner::HalfOpen(_) | Owner::Queued | Owner::Offered => {
                (held.caller_octets, share.caller_octets.min(most / 4))
            }
            _ => (held.octets, share.octets.min(most / 2)),
        };
        octets >= part(if full { own.min(most / CROWD) } else { own })
    }

    /// Octets by which the windows of a user may grow: half of all memory may be promised, and half of his; the rest is for what was.
    #[inline]
    pub fn spare(&self, index: u32, most: usize) -> usize {
        let Some((user, owner)) = self.entry(index).map(|entry| (entry.user, entry.owner)) else { return 0 };
        if owner == Owner::Offered {
            return 0;
        }
        if user == 0 {
            return (most / 2).saturating_sub(self.octets);
        }
        (self.users.share.octets.min(most / 2) / 2).saturating_sub(self.users.held(user).octets)
    }

    /// The buffers of a connection hold so many octets in place of so many.
    #[inline]
    pub fn count(&mut self, user: Whom, owner: Owner, before: usize, now: usize) {
        if before != now {
            self.octets = self.octets - before + now;
            self.users.held_mut(user).change(owner, before, now);
        }
    }

    /// A connection is there.
    pub fn begin_count(&mut self, user: Whom, owner: Owner) {
        self.users.held_mut(user).add(owner, 0);
    }

    /// It is forgotten.
    pub fn end_count(&mut self, user: Whom, owner: Owner, octets: usize) {
        self.octets -= octets;
        self.users.held_mut(user).take(owner, octets);
    }

    /// A connection is somebody else's from now on.
    pub fn give(&mut self, index: u32, owner: Owner) {
        let Some(entry) = self.entry_mut(index) else { return };
        let before = core::mem::replace(&mut entry.owner, owner);
        let (user, octets) = (entry.user, entry.octets);
        let held = self.users.held_mut(user);
        held.take(before, octets);
        held.add(owner, octets);
    }

    /// A connection is this user's from now on.
    pub fn hand_over(&mut self, index: u32, user: Whom) {
        let Some(entry) = self.entry_mut(index) else { return };
        let before = core::mem::replace(&mut entry.user, user);
        let (owner, octets) = (entry.owner, entry.octets);
        self.users.held_mut(before).take(owner, octets);
        self.users.held_mut(user).add(owner, octets);
    }
}

impl Stack {
    /// What each user of it may have from now on.
    pub const fn set_share(&mut self, share: Share) {
        self.tcp.users.share = share;
    }

    /// What the TCP sockets of a user have.
    pub fn held_by(&self, user: u32) -> Held {
        let place = self.whoms.get(&user).map(|place| *place as usize);
        place.and_then(|place| self.tcp.users.held.get(place)).copied().unwrap_or_default()
    }

    /// The same of all users whose sockets [said so](crate::Tcp::set_user).
    pub fn users(&self) -> impl Iterator<Item = (u32, Held)> {
        self.whoms.keys().map(|user| (*user, self.held_by(*user)))
    }
}

/// For [`Stack::contradiction`].
impl Table {
    /// Whose numbers are not what his connections have.
    pub fn wrong_user(&self) -> Option<alloc::string::String> {
        let mut found = vec![Held::default(); self.users.held.len()];
        for entry in (0..self.places()).filter_map(|index| self.entry(index)) {
            found[entry.user as usize].add(entry.owner, entry.octets);
        }
        let (found, held) = found.iter().zip(&self.users.held).find(|(found, held)| found != held)?;
        Some(alloc::format!("a user: {found:?} found, {held:?} counted"))
    }
}
