//! What is to be done again with a socket whose service is gone, once another one of its name is there ([`super::anew`]): the address that it
//! had, its options, and where it was registered.

use super::options;
use super::registrations::Registrations;
use crate::{state, table};
use bypath_shm::region::Slab;
use bypath_shm::service::{ADDRESS, Address, Body, CLAIM, Claim};
use bypath_sys::fd;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};

/// Options of a socket that are kept, memberships of groups among them.
const MOST: usize = 32;
/// Octets of a value that are kept: those of a group and its interface (`struct group_req`) that mean something. Others are shorter.
const VALUE: usize = 40;
/// What listen(2) has where nobody knows what the program asked for: Linux's net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// One socket's.
#[derive(Debug, Default)]
pub(super) struct Recipe {
    in_use: AtomicBool,
    /// An [`Address`]; none: it was not bound.
    local: [AtomicU64; ADDRESS / 8],
    backlog: AtomicI32,
    /// What its service said of it: whether it did, and a [`Claim`].
    is_claimed: AtomicBool,
    claim: [AtomicU64; CLAIM.div_ceil(8)],
    /// A descriptor of ours of what is left of it, plus one; 0: there is none.
    left: AtomicI32,
    /// Device and inode of that.
    left_file: [AtomicU64; 2],
    options: [Kept; MOST],
    /// Its service is away: whoever else has it does not know of what is set now.
    is_away: AtomicBool,
    /// Of a stream that is not followed.
    pub registrations: Registrations,
    /// When it is tried again (ns of CLOCK_MONOTONIC).
    pub due: AtomicU64,
    /// It was said why it is not to be had again.
    pub said: AtomicBool,
}

#[derive(Debug, Default)]
struct Kept {
    level: AtomicI32,
    name: AtomicI32,
    /// Octets of the value, as the program gave it, plus one; 0: none.
    len: AtomicU32,
    value: [AtomicU64; VALUE / 8],
    /// It was set while the service was away.
    is_late: AtomicBool,
}

static ALL: Slab<Recipe, 64, 64> = Slab::new();

/// Where a socket's recipe is, if it has one: its number plus one.
#[derive(Debug, Default)]
pub(super) struct Place(AtomicU32);

impl Drop for Place {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Place {
    pub fn get(&self) -> Option<&'static Recipe> {
        ALL.get(self.0.load(Acquire).checked_sub(1)? as usize)
    }

    /// The recipe, which is made where there is none; `None`: there are too many.
    pub fn begin(&self) -> Option<&'static Recipe> {
        if let Some(known) = self.get() {
            return Some(known);
        }
        let takes = |recipe: &Recipe| !recipe.in_use.load(Relaxed) && !recipe.in_use.swap(true, AcqRel);
        let number = (0..ALL_CAPACITY).find(|n| ALL.ensure(*n as usize).is_some_and(takes))?;
        let recipe = ALL.get(number as usize)?;
        put(&recipe.local, &Address(None).encode());
        recipe.backlog.store(BACKLOG, Relaxed);
        recipe.is_claimed.store(false, Relaxed);
        recipe.options.iter().for_each(|kept| kept.len.store(0, Relaxed));
        recipe.is_away(false);
        recipe.registrations.forget();
        recipe.due.store(0, Relaxed);
        recipe.said.store(false, Relaxed);
        if self.0.compare_exchange(0, number + 1, AcqRel, Acquire).is_err() {
            // Another thread was first.
            recipe.in_use.store(false, Release);
        }
        self.get()
    }

    /// Nothing is to be done again.
    pub fn give_up(&self) {
        if let Some(recipe) = ALL.get((self.0.swap(0, AcqRel) as usize).wrapping_sub(1)) {
            recipe.close_left();
            recipe.in_use.store(false, Release);
        }
    }

    /// Has what the other place has, which has nothing any more.
    pub fn take(&self, other: Place) {
        self.give_up();
        self.0.store(other.0.swap(0, AcqRel), Release);
    }
}

const ALL_CAPACITY: u32 = 64 * 64;

/// Recipes that have a descriptor of what is left of a socket.
static LEFT: AtomicU32 = AtomicU32::new(0);

/// Every such descriptor.
pub(super) fn descriptors(mut f: impl FnMut(i32)) {
    if LEFT.load(Relaxed) != 0 {
        let all = (0..ALL_CAPACITY as usize).filter_map(|n| ALL.get(n));
        all.filter_map(Recipe::left).for_each(&mut f);
    }
}

fn put(words: &[AtomicU64], octets: &[u8]) {
    for (n, word) in words.iter().enumerate() {
        let mut piece = [0; 8];
        let from = octets.get(n * 8..).unwrap_or_default();
        let len = from.len().min(8);
        piece[..len].copy_from_slice(&from[..len]);
        word.store(u64::from_ne_bytes(piece), Relaxed);
    }
}

fn octets<const N: usize>(words: &[AtomicU64]) -> [u8; N] {
    let mut all = [0; N];
    for (piece, word) in all.chunks_exact_mut(8).zip(words) {
        piece.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
    }
    all
}

/// What an option does with those that were set before.
enum Deed {
    /// It stands in place of the one of this name.
    Stands,
    /// It stands beside others, which have the same name.
    Joins,
    /// It undoes one of this name.
    Leaves(i32),
}

fn deed(level: i32, name: i32) -> Deed {
    use libc::*;
    match (level, name) {
        (IPPROTO_IP, IP_ADD_MEMBERSHIP)
        | (IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP)
        | (IPPROTO_IP | IPPROTO_IPV6, MCAST_JOIN_GROUP) => Deed::Joins,
        (IPPROTO_IP, IP_DROP_MEMBERSHIP) => Deed::Leaves(IP_ADD_MEMBERSHIP),
        (IPPROTO_IPV6, IPV6_DROP_MEMBERSHIP) => Deed::Leaves(IPV6_ADD_MEMBERSHIP),
        (IPPROTO_IP | IPPROTO_IPV6, MCAST_LEAVE_GROUP) => Deed::Leaves(MCAST_JOIN_GROUP),
        _ => Deed::Stands,
    }
}

/// Whether an option joins a group, or leaves it.
pub(super) fn is_of_group(level: i32, name: i32) -> bool {
    !matches!(deed(level, name), Deed::Stands)
}

impl Recipe {
    /// It has this address now.
    pub fn is_bound(&self, local: Address) {
        put(&self.local, &local.encode());
    }

    /// The address that it had.
    pub fn local(&self) -> Option<SocketAddr> {
        Address::decode(&octets(&self.local)).0
    }

    /// It is another one, which has nothing to do with what is left of an earlier one.
    pub fn is_another(&self, claim: Option<Claim>) {
        self.close_left();
        self.is_claimed(claim);
    }

    /// What its service says of it. As long as something is left of an earlier one in whose place it is, that is what others hold, too, and what
    /// counts is what was said of that.
    pub fn is_claimed(&self, claim: Option<Claim>) {
        if self.left().is_some() {
            return;
        }
        self.close_left();
        self.is_claimed.store(false, Relaxed);
        if let Some(claim) = claim {
            put(&self.claim, &claim.encode());
            self.is_claimed.store(true, Release);
        }
    }

    /// Whether it says anything.
    pub fn has_claim(&self) -> bool {
        self.is_claimed.load(Acquire)
    }

    /// That, and a descriptor of the socket that it was said of, which has ended.
    pub fn claim(&self) -> Option<(Claim, i32)> {
        let raw: [u8; 24] = octets(&self.claim);
        let claim = Claim::decode(&mut Body(&raw)).filter(|_| self.has_claim())?;
        Some((claim, self.left()?))
    }

    /// It, if the program has not closed the number by means that nobody sees, so that it is somebody else's.
    fn left(&self) -> Option<i32> {
        let left = Some(self.left.load(Relaxed) - 1).filter(|left| *left >= 0)?;
        let file = (self.left_file[0].load(Relaxed), self.left_file[1].load(Relaxed));
        (fd::identity(left) == Ok(file)).then_some(left)
    }

    /// `ended` is about to be replaced: one of ours goes on meaning it, where that is of any use.
    pub fn keep_left(&self, ended: i32) {
        if !self.has_claim() || self.left().is_some() {
            return;
        }
        self.close_left();
        let kept = fd::dup_high(ended, state::floor()).and_then(|left| Ok((left, fd::identity(left)?)));
        if let Ok((left, (device, inode))) = kept {
            LEFT.fetch_add(1, Relaxed);
            self.left_file[0].store(device, Relaxed);
            self.left_file[1].store(inode, Relaxed);
            self.left.store(left + 1, Relaxed);
        }
    }

    fn close_left(&self) {
        if let Some(left) = self.left() {
            fd::close(left);
        }
        if self.left.swap(0, Relaxed) != 0 {
            LEFT.fetch_sub(1, Relaxed);
        }
    }

    /// It listens.
    pub fn listens(&self, backlog: i32) {
        self.backlog.store(backlog, Relaxed);
    }

    pub fn backlog(&self) -> i32 {
        self.backlog.load(Relaxed)
    }

    /// An option was set. Where there is no room for it it is not set again; of a long value what is behind [`VALUE`] octets is zero then.
    pub fn note(&self, level: i32, name: i32, value: &[u8]) {
        let Some(_life) = state::LIFE.lock(table::tid()) else { return };
        let name = options::usual(level, name);
        let deed = deed(level, name);
        let looked_for = if let Deed::Leaves(joined) = deed { joined } else { name };
        let mut kept = [0; VALUE];
        let len = value.len().min(VALUE);
        kept[..len].copy_from_slice(&value[..len]);
        let is_it = |one: &&Kept| {
            one.len.load(Relaxed) != 0
                && (one.level.load(Relaxed), one.name.load(Relaxed)) == (level, looked_for)
                && (matches!(deed, Deed::Stands) || octets::<VALUE>(&one.value) == kept)
        };
        let known = self.options.iter().find(is_it);
        if let Deed::Leaves(_) = deed {
            return known.into_iter().for_each(|one| one.len.store(0, Relaxed));
        }
        let free = || self.options.iter().find(|one| one.len.load(Relaxed) == 0);
        let Some(one) = known.or_else(free) else { return };
        one.level.store(level, Relaxed);
        one.name.store(name, Relaxed);
        put(&one.value, &kept);
        one.is_late.store(self.is_away.load(Relaxed), Relaxed);
        one.len.store(value.len() as u32 + 1, Relaxed);
    }

    /// Its service is away from now on, or there.
    pub fn is_away(&self, away: bool) {
        self.is_away.store(away, Relaxed);
        self.options.iter().for_each(|kept| kept.is_late.store(false, Relaxed));
    }

    /// What the descriptor had itself is about to be noted anew.
    pub fn forget_descriptors_own(&self) {
        for one in &self.options {
            if options::is_of_descriptor(one.level.load(Relaxed), one.name.load(Relaxed)) {
                one.len.store(0, Relaxed);
            }
        }
    }

    /// A time limit that the descriptor had (ns), 0: none.
    pub fn limit(&self, limit: i32) -> u64 {
        let mut found = 0;
        self.options(|level, name, value, _| {
            if let (libc::SOL_SOCKET, Some(value)) =
                (level, value.first_chunk::<16>().filter(|_| name == limit))
            {
                let word = |at: usize| {
                    let octets = value[at..at + 8].try_into().unwrap_or_default();
                    u64::from_ne_bytes(octets)
                };
                found = word(0).saturating_mul(1_000_000_000).saturating_add(word(8).saturating_mul(1000));
            }
        });
        found
    }

    /// Each option that was set. What a descriptor has itself comes with `true`.
    pub fn options(&self, f: impl FnMut(i32, i32, &[u8], bool)) {
        self.options_of(|_| true, f);
    }

    /// Each that was set while the service was away.
    pub fn late_options(&self, f: impl FnMut(i32, i32, &[u8], bool)) {
        self.options_of(|one| one.is_late.load(Relaxed), f);
    }

    fn options_of(&self, which: impl Fn(&Kept) -> bool, mut f: impl FnMut(i32, i32, &[u8], bool)) {
        for one in self.options.iter().filter(|one| which(one)) {
            let Some(len) = one.len.load(Relaxed).checked_sub(1) else { continue };
            let mut value = [0; 256];
            value[..VALUE].copy_from_slice(&octets::<VALUE>(&one.value));
            let (level, name) = (one.level.load(Relaxed), one.name.load(Relaxed));
            let value = &value[..(len as usize).min(256)];
            f(level, name, value, options::is_of_descriptor(level, name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_was_set_last_is_set_again_and_groups_that_were_left_are_not_joined() {
        let place = Place::default();
        let recipe = place.begin().unwrap();
        let set = |name, value: &[u8]| recipe.note(libc::IPPROTO_IP, name, value);
        set(libc::IP_TTL, &[1, 0, 0, 0]);
        set(libc::IP_ADD_MEMBERSHIP, &[224, 0, 0, 5, 0, 0, 0, 0]);
        set(libc::IP_ADD_MEMBERSHIP, &[224, 0, 0, 6, 0, 0, 0, 0]);
        set(libc::IP_TTL, &[2, 0, 0, 0]);
        set(libc::IP_DROP_MEMBERSHIP, &[224, 0, 0, 5, 0, 0, 0, 0]);
        recipe.note(libc::IPPROTO_IP, libc::MCAST_JOIN_GROUP, &[7; 136]);
        let mut all = Vec::new();
        recipe.options(|_, name, value, own| all.push((name, value.to_vec(), own)));
        let mut long = vec![7; VALUE];
        long.resize(136, 0);
        let expected = [
            (libc::IP_TTL, vec![2, 0, 0, 0], false),
            (libc::MCAST_JOIN_GROUP, long, false),
            (libc::IP_ADD_MEMBERSHIP, vec![224, 0, 0, 6, 0, 0, 0, 0], false),
        ];
        assert_eq!(all, expected);
        let local = Some("[fe80::1%3]:80".parse().unwrap());
        recipe.is_bound(Address(local));
        assert_eq!(recipe.local(), local);
        let other = Place::default();
        other.take(place);
        assert!(std::ptr::eq(other.get().unwrap(), recipe));
        drop(other);
        assert!(!recipe.in_use.load(Relaxed));
    }

    #[test]
    fn what_is_left_of_a_socket_is_kept_until_something_else_is_said_and_nobody_elses_number_is_closed() {
        let place = Place::default();
        let recipe = place.begin().unwrap();
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        let is = |fd: i32, file: &std::os::unix::net::UnixStream| {
            fd::identity(fd) == fd::identity(file.as_raw_fd())
        };
        recipe.keep_left(a.as_raw_fd());
        assert_eq!(recipe.claim(), None);
        let claim = Claim { uid: 7, proof: [9; 16] };
        recipe.is_claimed(Some(claim));
        recipe.keep_left(a.as_raw_fd());
        let (said, left) = recipe.claim().unwrap();
        assert!(said == claim && is(left, &a));
        let mut all = Vec::new();
        descriptors(|fd| all.push(fd));
        assert!(all.contains(&left));
        recipe.is_claimed(Some(Claim { uid: 8, ..claim }));
        assert_eq!(recipe.claim(), Some((claim, left)));
        recipe.is_another(Some(claim));
        assert!(!is(left, &a) && recipe.claim().is_none());
        recipe.keep_left(a.as_raw_fd());
        let (_, left) = recipe.claim().unwrap();
        // The program takes the number.
        fd::dup_to(b.as_raw_fd(), left).unwrap();
        assert_eq!(recipe.claim(), None);
        place.give_up();
        assert!(is(left, &b));
        fd::close(left);
    }

    #[test]
    fn one_with_too_many_options_keeps_the_first_ones() {
        let place = Place::default();
        let recipe = place.begin().unwrap();
        for name in 0..100 {
            recipe.note(libc::IPPROTO_TCP, 1000 + name, &[1]);
        }
        let mut count = 0;
        recipe.options(|_, _, _, _| count += 1);
        assert_eq!(count, MOST);
    }
}
