//! Data words of descriptors that are not followed. The kernel's events of one must reach the program, even if a
//! registration of a connection has the same word and nothing to tell.

use super::Set;
use crate::table;
use bypath_sys::fd;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// By the hash of set and word: a tag of it in the upper half, in the lower half the descriptor plus one. 0 = none.
static PLACES: [AtomicU64; 1 << 14] = [const { AtomicU64::new(0) }; 1 << 14];

/// In place of a descriptor: several have the word.
const SEVERAL: u64 = u32::MAX as u64;
/// In place of all: several words fell into this place.
const ANY: u64 = u64::MAX;

fn place_of(s: &Set, data: u64) -> (&'static AtomicU64, u64) {
    let mixed = (data ^ std::ptr::from_ref(s).addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The tag overlaps with the place, which is no matter: it tells words of one place apart.
    (&PLACES[(mixed >> 50) as usize], mixed >> 18 << 32)
}

/// A descriptor that is not followed is registered with this word.
pub fn registers(s: &Set, data: u64, number: i32) {
    let (place, tag) = place_of(s, data);
    let own = tag | (number as u32 as u64 + 1);
    let mut before = place.load(Relaxed);
    while before != own && before != ANY {
        let after = match before {
            0 => own,
            _ if !stands(before) => own,
            _ if before >> 32 == tag >> 32 => tag | SEVERAL,
            _ => ANY,
        };
        match place.compare_exchange(before, after, Relaxed, Relaxed) {
            Ok(_) => return,
            Err(now) => before = now,
        }
    }
}

/// Whether one may have this word. Not known to be gone counts: an event too much is less than one too few.
pub fn may_have(s: &Set, data: u64) -> bool {
    let (place, tag) = place_of(s, data);
    let found = place.load(Relaxed);
    found != 0 && (found == ANY || found >> 32 == tag >> 32) && stands(found)
}

/// Whether the descriptor of an entry may still be what it was: it is open, and has not become a connection.
fn stands(entry: u64) -> bool {
    let number = entry & SEVERAL;
    if number == SEVERAL {
        return true;
    }
    let number = (number as u32).wrapping_sub(1) as i32;
    table::sock(number).is_none() && fd::is_cloexec(number).is_ok()
}
