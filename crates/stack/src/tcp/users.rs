//! Whose connections hold what, in a stack that several users share: octets of buffers, connections that nobody has accepted, and
//! connections that were closed and are not over. Each user has a share of his own, so that nobody takes what the others need.

use super::table::{Config, Owner, Table};
use crate::Stack;
use crate::share::Whom;
use crate::time::Instant;
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
    /// Octets of memory for datagrams that his UDP sockets have not received, with those in the buffers of his connections: beyond, what comes is lost,
    /// but for a small one for each socket that has none.
    pub datagram_octets: usize,
}

impl Share {
    /// As much as he likes.
    pub const ALL: Share = Share {
        octets: usize::MAX,
        callers: usize::MAX,
        caller_octets: usize::MAX,
        orphan_octets: usize::MAX,
        orphans: usize::MAX,
        datagram_octets: usize::MAX,
    };

    /// The same, as far as one alone may have it.
    pub(crate) fn within(self, config: &Config) -> Share {
        Share {
            octets: self.octets.min(config.octets / 2),
            caller_octets: self.caller_octets.min(config.octets / 4),
            orphans: self.orphans.min(config.orphans / 4),
            ..self
        }
    }
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
    /// Whether something that is written or comes may be beyond a bound.
    #[inline]
    const fn is_near(&self, share: &Share) -> bool {
        self.octets >= to_write(share.octets) || self.caller_octets >= to_write(share.caller_octets)
    }

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

/// The part of a bound that counts for what is written.
const fn to_write(bound: usize) -> usize {
    bound / 4 * 3
}

/// What all users have who ever had a socket.
#[derive(Debug)]
pub(crate) struct Users {
    share: Share,
    /// By their places; the first one is nobody's in particular, who has no share.
    held: Vec<Held>,
    /// How many of them are near a bound of octets: as a rule nobody is, and a segment looks no further.
    near: usize,
}

impl Users {
    pub fn new(config: &Config) -> Users {
        Users { share: Share::ALL.within(config), held: vec![Held::default()], near: 0 }
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

    /// Octets of memory that the datagrams of a user may have beside his connections.
    #[inline]
    pub fn left_for_datagrams(&self, whom: Whom) -> usize {
        let held = self.held.get(whom as usize).map_or(0, |held| held.octets);
        self.share.datagram_octets.saturating_sub(held)
    }

    /// The same, where he had no connections.
    pub const fn datagram_octets(&self) -> usize {
        self.share.datagram_octets
    }

    /// Changes what one has.
    #[inline]
    fn change(&mut self, whom: Whom, change: impl FnOnce(&mut Held)) {
        let held = &mut self.held[whom as usize];
        let was_near = held.is_near(&self.share);
        change(held);
        let is_near = held.is_near(&self.share);
        if whom != 0 && was_near != is_near {
            self.near = if is_near { self.near + 1 } else { self.near - 1 };
        }
    }

    fn set_share(&mut self, share: Share) {
        self.share = share;
        self.near = self.held.iter().skip(1).filter(|held| held.is_near(&share)).count();
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
        orphans >= self.share.orphans || full && orphans >= (most / CROWD).max(1)
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
        self.is_beyond(index, most, to_write)
    }

    #[inline]
    fn is_beyond(&self, index: u32, most: usize, part: impl Fn(usize) -> usize) -> bool {
        let full = self.octets >= most;
        (full || self.users.near > 0) && self.is_one_beyond(index, full, most, part)
    }

    #[cold]
    fn is_one_beyond(&self, index: u32, full: bool, most: usize, part: impl Fn(usize) -> usize) -> bool {
        let Some(entry) = self.entry(index) else { return full };
        if entry.user == 0 {
            return full;
        }
        let (held, share) = (self.users.held(entry.user), &self.users.share);
        let (octets, own) = match entry.owner {
            Owner::HalfOpen(_) | Owner::Queued | Owner::Offered => (held.caller_octets, share.caller_octets),
            _ => (held.octets, share.octets),
        };
        octets >= part(if full { own.min(most / CROWD) } else { own })
    }

    /// Octets by which the windows of a user may grow: half of all memory may be promised, and half of his; the rest is for what was.
    pub fn spare(&self, user: Whom, owner: Owner, most: usize) -> usize {
        if owner == Owner::Offered {
            return 0;
        }
        if user == 0 {
            return (most / 2).saturating_sub(self.octets);
        }
        (self.users.share.octets / 2).saturating_sub(self.users.held(user).octets)
    }

    /// The buffers of a connection hold so many octets in place of so many.
    #[inline]
    pub fn count(&mut self, user: Whom, owner: Owner, before: usize, now: usize) {
        if before != now {
            self.octets = self.octets - before + now;
            self.users.change(user, |held| held.change(owner, before, now));
        }
    }

    /// A connection is there.
    pub fn begin_count(&mut self, user: Whom, owner: Owner) {
        self.users.change(user, |held| held.add(owner, 0));
    }

    /// It is forgotten.
    pub fn end_count(&mut self, user: Whom, owner: Owner, octets: usize) {
        self.octets -= octets;
        self.users.change(user, |held| held.take(owner, octets));
    }

    /// A connection is somebody else's from now on.
    pub fn give(&mut self, index: u32, owner: Owner) {
        let Some(entry) = self.entry_mut(index) else { return };
        let before = core::mem::replace(&mut entry.owner, owner);
        let (user, octets) = (entry.user, entry.octets);
        self.users.change(user, |held| {
            held.take(before, octets);
            held.add(owner, octets);
        });
    }

    /// A connection is this user's from now on.
    pub fn hand_over(&mut self, index: u32, user: Whom) {
        let Some(entry) = self.entry_mut(index) else { return };
        let before = core::mem::replace(&mut entry.user, user);
        let (owner, octets) = (entry.owner, entry.octets);
        self.users.change(before, |held| held.take(owner, octets));
        self.users.change(user, |held| held.add(owner, octets));
    }
}

impl Stack {
    /// The application has read so many octets of a connection whose window may grow.
    pub(super) fn tune(&mut self, now: Instant, index: u32, octets: usize) {
        let Some((user, owner)) = self.tcp.entry(index).map(|entry| (entry.user, entry.owner)) else {
            return;
        };
        let spare = self.tcp.spare(user, owner, self.config.tcp.octets);
        if let Some(entry) = self.tcp.entry_mut(index) {
            entry.connection.tune_receive(now, octets, spare);
        }
    }

    /// What each user of it may have from now on.
    pub fn set_share(&mut self, share: Share) {
        self.tcp.users.set_share(share.within(&self.config.tcp));
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
        let near = found.iter().skip(1).filter(|held| held.is_near(&self.users.share)).count();
        if near != self.users.near {
            return Some(alloc::format!("users near a bound: {near} found, {} counted", self.users.near));
        }
        let (found, held) = found.iter().zip(&self.users.held).find(|(found, held)| found != held)?;
        Some(alloc::format!("a user: {found:?} found, {held:?} counted"))
    }
}
