//! `--connection-limit`: how many connections of a process may share memory at a time.

use crate::config::NO_LIMIT;
use crate::state;
use crate::table::{self, Sock};
use bypath_shm::reason::Reason;
use std::sync::atomic::Ordering::Relaxed;

/// Whether `s` may be upgraded beside those that are. A connection counts from the call to its other end on, as that
/// may answer at any time, until it is closed. Of one whose ends are both here the second goes with the first: else the
/// first ends of several could take all places and wait for ever. Called under [`state::LIFE`], so no two can take the
/// last place.
///
/// # Errors
/// [`Reason::ConnectionLimit`].
pub fn admit(s: &Sock) -> Result<(), Reason> {
    let limit = state::config().map_or(NO_LIMIT, |c| c.connection_limit);
    if limit == NO_LIMIT {
        return Ok(());
    }
    let peer = s.end().peer_cookie.load(Relaxed);
    let (mut taken, mut second) = (0u32, false);
    table::each_sock(|other| {
        if !std::ptr::eq(other, s) && (other.is_warm() || other.dialled.load(Relaxed) >= 0) {
            taken += 1;
            second |= peer != 0 && other.end().cookie.load(Relaxed) == peer;
        }
    });
    if taken < limit || second { Ok(()) } else { Err(Reason::ConnectionLimit) }
}
