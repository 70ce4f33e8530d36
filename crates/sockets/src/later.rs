//! Descriptors that were closed while a fork had [`state::LIFE`](crate::state::LIFE) for long: their ends are left to whoever has it next. A fork waits for locks
//! of the C library, and who closes may have one of these (a stream's, whose function opens and closes a connection).

use crate::life;
use crate::table::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// So many wait at a time.
const ROOM: usize = 256;
/// Entry, whether its number is [lost](End::Lost), and the number. 0: none.
static ENDS: [AtomicU64; ROOM] = [const { AtomicU64::new(0) }; ROOM];
static ANY: AtomicBool = AtomicBool::new(false);
const LOST: u64 = 1 << 31;

/// How a descriptor has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// The program has closed it.
    Closed,
    /// Its number came to mean something else, behind our back.
    Lost,
}

/// Leaves the end of `fd`, which is in the table no more; `false`: there is no room.
pub fn leave(fd: i32, entry: Entry, end: End) -> bool {
    let word = u64::from(entry.word()) << 32 | if end == End::Lost { LOST } else { 0 } | fd as u32 as u64;
    let left = ENDS.iter().any(|place| place.compare_exchange(0, word, AcqRel, Relaxed).is_ok());
    if left {
        ANY.store(true, SeqCst);
    }
    left
}

/// Does what was left. Under [`state::LIFE`](crate::state::LIFE).
#[inline]
pub fn make_up() {
    if ANY.load(SeqCst) {
        make_up_all();
    }
}

#[cold]
fn make_up_all() {
    ANY.store(false, SeqCst);
    for word in ENDS.iter().map(|place| place.swap(0, AcqRel)) {
        let Some(entry) = Entry::of((word >> 32) as u32) else { continue };
        let end = if word & LOST != 0 { End::Lost } else { End::Closed };
        life::ends((word & (LOST - 1)) as i32, entry, end);
    }
}
