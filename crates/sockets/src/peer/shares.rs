//! Who has how many of the descriptors that the library keeps for itself, above [`state::floor`]: for control channels, arenas, bells, and the connections
//! by which mailboxes of UDP were given. Nobody at the other end has so many that nothing is left for those who come after him.

use super::descriptors::in_use;
use super::{Peer, process_behind};
use crate::state;
use bypath_sys::{Errno, Result, fd, process, unix};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// Who is at the other end: processes of another user together, whom one of them may give what it has; of the own user each for itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who {
    pub(super) process: u64,
    pub(super) user: u32,
}

/// Whether `who` may have one more here: no more than what would be left for others. `counted`: of it, where somebody else may be asking at the same time.
///
/// # Errors
/// EMFILE.
pub(super) fn admit(who: Who, counted: u64) -> Result<()> {
    let room = fd::limits().0.saturating_sub(state::floor() as u64);
    let is_own_user = who.user == process::euid();
    let is_his = |peer: &Peer| {
        peer.user.load(Relaxed) == who.user && (!is_own_user || peer.process.load(Relaxed) == who.process)
    };
    let (mut all, mut his) = (u64::from(HELD.load(Relaxed)), 0);
    for peer in in_use() {
        let has = u64::from(peer.count());
        all += has;
        his += if is_his(peer) { has } else { 0 };
    }
    if is_own_user {
        his += u64::from(HOLDINGS[place_of(who.process)].count.load(Relaxed));
    }
    // Without those that are counted of both.
    if his + all < room + 2 * counted { Ok(()) } else { Err(Errno::MFILE) }
}

/// What a process of the own user has beside pairs.
#[derive(Debug)]
struct Holding {
    process: AtomicU64,
    count: AtomicU32,
}

/// Processes that are told apart: those beyond have one share together, as have those that the kernel does not tell.
const PLACES: usize = 1024;
static HOLDINGS: [Holding; PLACES] =
    [const { Holding { process: AtomicU64::new(0), count: AtomicU32::new(0) } }; PLACES];
/// Those that were ever used, and the first one.
static USED: AtomicUsize = AtomicUsize::new(1);
/// All of them.
static HELD: AtomicU32 = AtomicU32::new(0);

/// Where a process is counted. Under [`state::LIFE`], or to look.
fn place_of(process: u64) -> usize {
    let used = USED.load(Acquire);
    // Acquire pairs with the last one's end.
    let is_free = |at: &usize| HOLDINGS[*at].count.load(Acquire) == 0;
    let is_its = |at: &usize| HOLDINGS[*at].process.load(Relaxed) == process && !is_free(at);
    if process == 0 {
        return 0;
    }
    let found = (1..used).find(is_its).or_else(|| (1..used).find(is_free));
    found.unwrap_or(if used < PLACES { used } else { 0 })
}

/// One descriptor, as long as this lives.
#[derive(Debug)]
pub struct Share(usize);

impl Share {
    /// Of who has the other end of this connection, whose user is the own one. This process may have as many as it likes. Under [`state::LIFE`].
    ///
    /// # Errors
    /// EMFILE: he has as many as are left for others.
    pub fn of(connection: i32) -> Result<Share> {
        let (process, user) = process_behind(connection);
        if !unix::is_of_this_process(connection) {
            admit(Who { process, user }, 0)?;
        }
        Ok(Share::counted(process))
    }

    fn counted(process: u64) -> Share {
        let at = place_of(process);
        HOLDINGS[at].process.store(process, Relaxed);
        HOLDINGS[at].count.fetch_add(1, Relaxed);
        HELD.fetch_add(1, Relaxed);
        USED.fetch_max(at + 1, AcqRel);
        Share(at)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        HOLDINGS[self.0].count.fetch_sub(1, Release);
        HELD.fetch_sub(1, Relaxed);
    }
}

/// A place for one.
#[derive(Debug, Default)]
pub struct Kept(AtomicU32);

impl Kept {
    pub const fn new() -> Kept {
        Kept(AtomicU32::new(0))
    }

    /// Whatever was there is no more.
    pub fn put(&self, share: Share) {
        drop(Kept::share(self.0.swap(share.0 as u32 + 1, AcqRel)));
        std::mem::forget(share);
    }

    pub fn take(&self) -> Option<Share> {
        Kept::share(self.0.swap(0, AcqRel))
    }

    fn share(word: u32) -> Option<Share> {
        word.checked_sub(1).map(|at| Share(at as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_one_keeps_his_place_and_who_has_none_leaves_it() {
        let (first, second) = (Share::counted(7), Share::counted(8));
        assert_ne!(first.0, second.0);
        let again = Kept::new();
        again.put(Share::counted(8));
        assert_eq!(
            (again.0.load(Relaxed) as usize, HOLDINGS[second.0].count.load(Relaxed)),
            (second.0 + 1, 2)
        );
        drop(first);
        assert_eq!(place_of(8), second.0);
        drop((again.take(), second));
        assert_eq!((HELD.load(Relaxed), again.take().is_none()), (0, true));
        // More than there are places for have one together.
        let all: Vec<Share> = (1..=PLACES as u64).map(Share::counted).collect();
        assert_eq!((all[PLACES - 1].0, Share::counted(0).0), (0, 0));
        drop(all);
        assert_eq!(place_of(1 << 40), 1);
    }
}
