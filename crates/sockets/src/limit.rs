//! `--connection-limit`: how many connections of a process may share memory at a time.

use crate::config::NO_LIMIT;
use crate::state;
use crate::table::{self, Sock};
use bypath_shm::reason::Reason;
use std::sync::atomic::Ordering::Relaxed;

/// Whether `s` may be upgraded beside those that are. A connection counts from the call to its other end on, as that
/// may answer at any time, until it is closed. Called under [`state::LIFE`], so no two can take the last place.
///
/// # Errors
/// [`Reason::ConnectionLimit`].
pub fn admit(s: &Sock) -> Result<(), Reason> {
    let limit = state::config().map_or(NO_LIMIT, |c| c.connection_limit);
    if limit == NO_LIMIT {
        return Ok(());
    }
    let mut taken = 0u32;
    table::each_sock(|other| {
        if !std::ptr::eq(other, s) && (other.is_warm() || other.dialled.load(Relaxed) >= 0) {
            taken += 1;
        }
    });
    if taken < limit { Ok(()) } else { Err(Reason::ConnectionLimit) }
}
